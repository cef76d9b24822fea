//! How long variants take to warm up, by what their first launches showed under load that does not
//! let up.

use tare_model::sustained::WarmUp;

/// A warm-up that takes more than this share of the load is not known to be over.
const OVER_SHARE: f64 = 0.6;
/// A warm-up that long is looked for in a second launch, and where that does not have it in a
/// third: it may have been the machine's weather.
const LONG_NS: u64 = 400_000_000;

/// By launch, and variant.
#[derive(Clone, Debug, Default)]
pub struct Surveys(Vec<Vec<WarmUp>>);

impl Surveys {
    pub fn add(&mut self, by_variant: Vec<WarmUp>) {
        self.0.push(by_variant);
    }

    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    pub fn wants_another(&self) -> bool {
        let is_long = |warm: &WarmUp| warm.ns > LONG_NS;
        match self.0.as_slice() {
            [] => true,
            [only] => only.iter().any(is_long),
            [one, other] => one.iter().zip(other).any(|(a, b)| is_long(a) != is_long(b)),
            _ => false,
        }
    }

    /// What each variant showed: the median of its launches; of two the longer, for whoever is warm
    /// too early is not warm.
    pub fn found(&self) -> Vec<WarmUp> {
        let variants = self.0.first().map_or(0, Vec::len);
        let of = |variant: usize| {
            let mut seen: Vec<WarmUp> = self.0.iter().map(|launch| launch[variant]).collect();
            seen.sort_by_key(|warm| warm.ns);
            seen[seen.len() / 2]
        };
        (0..variants).map(of).collect()
    }

    /// What each is given: the time of the slowest. Of two equal servers one may have been seen to
    /// take longer by chance, and slices would compare it with a colder one.
    pub fn warm(&self) -> Vec<WarmUp> {
        let found = self.found();
        let slowest = found.iter().map(|warm| warm.ns).max().unwrap_or(0);
        found.into_iter().map(|warm| WarmUp { ns: slowest, ..warm }).collect()
    }
}

/// Whether warm-ups found in so long a load are known to be over.
pub fn are_over(warm: &[WarmUp], load_ns: u64) -> bool {
    warm.iter().all(|warm| warm.ns as f64 <= load_ns as f64 * OVER_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_warm_up_is_looked_for_again_and_weather_is_outvoted() {
        let of = |ms: u64| WarmUp { ns: ms * 1_000_000, requests: ms };
        let mut surveys = Surveys::default();
        assert!(surveys.wants_another() && surveys.found().is_empty());
        surveys.add(vec![of(0), of(2000)]);
        assert!(surveys.wants_another());
        surveys.add(vec![of(10), of(50)]);
        assert!(surveys.wants_another(), "one says long, the other not");
        assert_eq!(surveys.found(), [of(10), of(2000)]);
        assert_eq!(surveys.warm(), [WarmUp { ns: 2_000_000_000, requests: 10 }, of(2000)]);
        surveys.add(vec![of(20), of(60)]);
        assert!(!surveys.wants_another());
        assert_eq!(surveys.found(), [of(10), of(60)]);
        assert!(are_over(&surveys.warm(), 3_000_000_000));
        assert!(!are_over(&[of(2000)], 3_000_000_000));
    }
}
