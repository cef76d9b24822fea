//! Writes a check as JUnit's XML: a test case for each metric. Worse metrics are failures, void ones
//! are errors, and undecided ones are skipped.

use crate::check::{CheckDocument, MetricFinding, Outcome};

pub fn render(document: &CheckDocument) -> String {
    let count = |of: &[Outcome]| {
        document.findings.iter().filter(|finding| of.contains(&finding.outcome)).count()
    };
    let mut cases: String = document.findings.iter().map(|one| case(document, one)).collect();
    for missing in &document.missing {
        let (name, reason) = (escape(&missing.name), escape(&missing.reason));
        cases.push_str(&format!(
            "<testcase classname=\"{name}\" name=\"all metrics\"><error message=\"{reason}\"/>\
             </testcase>\n"
        ));
    }
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\"",
        document.findings.len() + document.missing.len(),
        count(&FAILURES),
        count(&ERRORS) + document.missing.len(),
        count(&[Outcome::Undecided]),
        document.elapsed_ms as f64 / 1000.0
    );
    let name = escape(&document.name);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"tare check\" {counts}>\n\
         <testsuite name=\"{name}\" {counts}>\n{cases}<system-out>{}</system-out>\n\
         </testsuite>\n</testsuites>\n",
        escape(&document.sentence)
    )
}

const FAILURES: [Outcome; 2] = [Outcome::Worse, Outcome::RepliesDiffer];
const ERRORS: [Outcome; 2] = [Outcome::Unfit, Outcome::Void];

fn case(document: &CheckDocument, finding: &MetricFinding) -> String {
    let (experiment, name) = (escape(&finding.experiment), escape(&document.name_of(finding)));
    let message = escape(&document.change_of(finding));
    let inner = match finding.outcome {
        outcome if FAILURES.contains(&outcome) => format!("<failure message=\"{message}\"/>"),
        outcome if ERRORS.contains(&outcome) => {
            let reason = finding.reason.as_ref().map_or(message, |reason| escape(reason));
            format!("<error message=\"{reason}\"/>")
        }
        Outcome::Undecided => format!("<skipped message=\"{message}\"/>"),
        _ => format!("<system-out>{message}</system-out>"),
    };
    format!("<testcase classname=\"{experiment}\" name=\"{name}\">{inner}</testcase>\n")
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML 1.0 has no way to write control characters.
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
