//! Gates: `--fail-if 'p99 > 5%'`. They judge by intervals, so that noise fails no build.

use tare_report::run::{Comparison, RunReport};
use tare_report::run_words::overhead;
use tare_stats::stopping::relative_half_width;
use tare_stats::{Metric, Verdict};

use crate::failure::Failure;

#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// The run ended without the precision that was asked for.
    Unresolved,
    Overhead {
        /// One variant's; all, where none is named.
        variant: Option<String>,
        metric: Metric,
        above: bool,
        percent: f64,
    },
}

impl Gate {
    /// Reads `unresolved`, `p99 > 5%`, `NAME: throughput > 3%`, `cpu < -10%`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "'{text}' is not a gate; write 'METRIC > 5%', 'VARIANT: METRIC > 5%' or 'unresolved'"
            )
        };
        if text.trim() == "unresolved" {
            return Ok(Self::Unresolved);
        }
        let at = text.rfind(['<', '>']).ok_or_else(bad)?;
        let (left, right) = text.split_at(at);
        let (variant, metric) = match left.rsplit_once(':') {
            Some((variant, metric)) => (Some(variant.trim().to_owned()), metric),
            None => (None, left),
        };
        let number = right[1..].trim().strip_suffix('%').ok_or_else(bad)?;
        let percent = number.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        Ok(Self::Overhead {
            variant,
            metric: Metric::parse(metric.trim())?,
            above: right.starts_with('>'),
            percent: percent.ok_or_else(bad)?,
        })
    }

    /// A gate about a variant that there is not would never fail.
    pub fn check_names(&self, names: &[&str]) -> Result<(), Failure> {
        match self {
            Self::Overhead { variant: Some(name), .. } if !names.contains(&name.as_str()) => {
                let allowed = format!("there is no variant of that name; there are {names:?}");
                Err(Failure::flag("--fail-if", name, allowed))
            }
            _ => Ok(()),
        }
    }
}

/// `Err` where a gate fails; the first kind that does decides the exit code.
pub fn judge(gates: &[Gate], report: &RunReport) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for gate in gates {
        if let Gate::Overhead { variant, metric, above, percent } = gate {
            let wanted = |c: &&Comparison| {
                c.metric == *metric && variant.as_ref().is_none_or(|name| *name == c.variant)
            };
            let found: Vec<&Comparison> = report.comparisons.iter().filter(wanted).collect();
            if found.is_empty() {
                failed.push(format!("{} was not measured", metric.word()));
            }
            failed.extend(found.into_iter().filter_map(|c| breaks(c, *above, *percent)));
        }
    }
    if !failed.is_empty() {
        return Err(Failure::Gate(format!("gate failed: {}", failed.join("; "))));
    }
    let wide: Vec<&str> = report
        .comparisons
        .iter()
        .filter(|c| c.asked && is_wide(c, report))
        .map(|c| c.variant.as_str())
        .collect();
    let nothing = report.comparisons.iter().all(|c| !c.asked);
    if gates.contains(&Gate::Unresolved) && (nothing || !wide.is_empty()) {
        let precision = report.run.precision * 100.0;
        let whom = if nothing { "nothing".to_owned() } else { wide.join(", ") };
        let text = format!("unresolved: {whom} not known to ± {precision} %");
        return Err(Failure::Unresolved(text));
    }
    Ok(())
}

fn is_wide(comparison: &Comparison, report: &RunReport) -> bool {
    let few = comparison.ratio.n < tare_stats::verdict::ROUNDS_MIN;
    few || relative_half_width(&comparison.ratio) > report.run.precision
}

/// In words, where the whole interval is on the forbidden side; and where no verdict is allowed,
/// for a gate that cannot judge must not pass.
fn breaks(comparison: &Comparison, above: bool, percent: f64) -> Option<String> {
    let Comparison { variant, metric, overhead_percent, verdict, .. } = comparison;
    if *verdict == Verdict::Void {
        return Some(format!("{variant}: no verdict on {} is allowed (void)", metric.word()));
    }
    let beyond = match above {
        true => overhead_percent.lower > percent,
        false => overhead_percent.upper < percent,
    };
    let sign = if above { '>' } else { '<' };
    beyond.then(|| {
        let shown = overhead(overhead_percent);
        format!("{variant}: {} {shown} is {sign} {percent} %", metric.word())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read() {
        let gate = |variant: Option<&str>, metric, above, percent| {
            Ok(Gate::Overhead { variant: variant.map(str::to_owned), metric, above, percent })
        };
        for (text, expected) in [
            ("p99 > 5%", gate(None, Metric::LatencyP99, true, 5.0)),
            ("a:b: throughput>3.5 %", gate(Some("a:b"), Metric::Throughput, true, 3.5)),
            ("cpu < -10%", gate(None, Metric::ServerCpu, false, -10.0)),
            ("unresolved", Ok(Gate::Unresolved)),
        ] {
            assert_eq!(Gate::parse(text), expected, "{text}");
        }
        for (text, why) in [
            ("p99", "is not a gate; write"),
            ("p99 > 5", "is not a gate; write"),
            ("p99 > x%", "is not a gate; write"),
            ("speed > 5%", "'speed' is not a metric; choose among throughput"),
        ] {
            let error = Gate::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
