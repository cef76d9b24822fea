//! Runs as CSV: one row per variant and metric; a sweep's values are columns before them.

use std::collections::BTreeMap;

use crate::exports::csv::quote;
use crate::run::RunReport;

const HEADER: &str = "variant,baseline,metric,value,value_lower,value_upper,level,rounds,\
ratio,ratio_lower,ratio_upper,ratio_level,overhead_percent,overhead_percent_lower,\
overhead_percent_upper,asked,verdict\n";

pub fn render(report: &RunReport) -> String {
    header([]) + &rows(report, &BTreeMap::new())
}

/// Returns the header, with the names of a sweep's values.
pub fn header<'a>(keys: impl IntoIterator<Item = &'a String>) -> String {
    let keys: String = keys.into_iter().map(|key| quote(key) + ",").collect();
    format!("run,{keys}{HEADER}")
}

pub fn rows(report: &RunReport, values: &BTreeMap<String, String>) -> String {
    let values: String = values.values().map(|value| quote(value) + ",").collect();
    let mut text = String::new();
    for variant in &report.variants {
        for (key, value) in &variant.metrics {
            let comparison = report
                .comparisons
                .iter()
                .find(|c| c.variant == variant.name && c.metric.key() == key);
            let compared = comparison.map_or(",,,,,,,,".to_owned(), |c| {
                let (r, o) = (&c.ratio, &c.overhead_percent);
                format!(
                    "{},{},{},{},{},{},{},{},{}",
                    r.point,
                    r.lower,
                    r.upper,
                    r.level,
                    o.point,
                    o.lower,
                    o.upper,
                    c.asked,
                    c.verdict.word()
                )
            });
            text.push_str(&format!(
                "{},{values}{},{},{key},{},{},{},{},{},{compared}\n",
                report.run.id,
                quote(&variant.name),
                variant.baseline,
                value.point,
                value.lower,
                value.upper,
                value.level,
                value.n
            ));
        }
    }
    text
}
