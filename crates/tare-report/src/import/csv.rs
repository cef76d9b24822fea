//! An import as CSV: one row per output and metric.

use super::ImportDocument;
use crate::exports::csv::quote;

const HEADER: &str = "file,first_line,last_line,tool,variant,case,metric,value,baseline_value,\
overhead_percent,overhead_percent_lower,overhead_percent_upper,p,p_corrected,verdict\n";

pub fn render(document: &ImportDocument) -> String {
    let mut text = HEADER.to_owned();
    for sample in &document.import.samples {
        for (key, value) in &sample.values {
            let compared = document.comparisons.iter().find(|c| {
                c.metric.key() == key && c.variant == sample.variant && c.case == sample.case
            });
            let compared = compared.map_or(",,,,,,".to_owned(), |c| {
                let interval = c.interval.map_or(",,,".to_owned(), |interval| {
                    let tare_import::compare::Interval { lower, upper, p, p_corrected, .. } =
                        interval;
                    format!("{lower},{upper},{p},{p_corrected}")
                });
                let verdict = c.verdict.map_or("", |verdict| verdict.word());
                format!("{},{},{interval},{verdict}", c.baseline_value, c.overhead_percent)
            });
            text.push_str(&format!(
                "{},{},{},{},{},{},{key},{value},{compared}\n",
                quote(&sample.source.file),
                sample.source.first_line,
                sample.source.last_line,
                quote(sample.tool.name()),
                quote(&sample.variant),
                quote(&sample.case),
            ));
        }
    }
    text
}
