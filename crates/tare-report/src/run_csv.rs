//! A run, for spreadsheets: a row a variant and metric.

use crate::exports::csv::quote;
use crate::run::RunReport;

const HEADER: &str = "run,variant,baseline,metric,value,value_lower,value_upper,level,rounds,\
ratio,ratio_lower,ratio_upper,ratio_level,overhead_percent,overhead_percent_lower,\
overhead_percent_upper,asked,verdict\n";

pub fn render(report: &RunReport) -> String {
    let mut text = HEADER.to_owned();
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
                "{},{},{},{key},{},{},{},{},{},{compared}\n",
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
