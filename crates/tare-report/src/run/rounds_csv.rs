//! The values behind a run's intervals, for recomputing them: one row per round, variant and
//! metric.

use tare_model::Metric;
use tare_stats::analyse;

use crate::exports::csv::quote;
use crate::run::document::RunDocument;

/// `weight` is the round's share of the estimate.
const HEADER: &str = "run,round,variant,baseline,metric,value,log_ratio,weight\n";

pub fn render(document: &RunDocument) -> String {
    let RunDocument { report, facts, digests, .. } = document;
    let analysis = analyse(digests, &facts.question());
    let mut text = HEADER.to_owned();
    for (at, variant) in report.variants.iter().enumerate() {
        for metric in Metric::ALL {
            let compared =
                analysis.comparisons.iter().find(|c| c.variant == at && c.metric == metric);
            let mut weights = compared.map_or(&[][..], |c| &c.shares).iter();
            for digest in digests {
                let round = &digest.variants[at];
                let Some(value) = round.value(metric) else { continue };
                let ratio = round.log_ratio(metric).filter(|_| compared.is_some());
                let weight = ratio.and_then(|_| weights.next());
                let cell = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
                text.push_str(&format!(
                    "{},{},{},{},{},{value},{},{}\n",
                    report.run.id,
                    digest.index + 1,
                    quote(&variant.name),
                    variant.baseline,
                    metric.key(),
                    cell(ratio),
                    cell(weight.copied()),
                ));
            }
        }
    }
    text
}
