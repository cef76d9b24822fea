//! Randomness from one printed seed, split into named streams so that one part of a run can change
//! without shifting the draws of another.

/// SplitMix64: tiny, fast, and the same on every machine and in every version.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream `name` of `seed`; `index` distinguishes workers or servers of one name.
    pub fn stream(seed: u64, name: &str, index: u64) -> Self {
        // FNV-1a over the name; the generator's own mixing does the rest.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut random = Self(seed ^ hash ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next_u64();
        random
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `0..n`; `n` must not be 0. The bias is below n / 2⁶⁴.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |name, index| Random::stream(42, name, index).next_u64();
        assert_eq!(draw("arrivals", 0), draw("arrivals", 0));
        assert_ne!(draw("arrivals", 0), draw("arrivals", 1));
        assert_ne!(draw("arrivals", 0), draw("payload", 0));
    }

    #[test]
    fn means_are_right() {
        let mut random = Random::stream(1, "test", 0);
        let n = 200_000;
        let uniform = (0..n).map(|_| random.uniform()).sum::<f64>() / f64::from(n);
        let exponential = (0..n).map(|_| random.exponential()).sum::<f64>() / f64::from(n);
        assert!((uniform - 0.5).abs() < 0.005, "{uniform}");
        assert!((exponential - 1.0).abs() < 0.01, "{exponential}");
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}
