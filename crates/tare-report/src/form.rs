//! The forms that reports come in. What measures makes a [`Document`]; what writes asks it for a
//! [`Form`]; a new form is a line here and an arm in the documents that have it.

use tare_model::plain;

/// A form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Text,
    /// All that a run says for and against itself, with its figures.
    Why,
    Json,
    Markdown,
    Csv,
    /// What a run's intervals are made of.
    RoundsCsv,
    Html,
    /// Prometheus' text, as OpenMetrics has it.
    OpenMetrics,
    /// The table of Istio's benchmark runner, made of fortio's results.
    FortioCsv,
    /// A summary of k6 as a table.
    K6Csv,
    /// Service Mesh Performance.
    /// The result file of bpftime's nginx benchmark.
    BpftimeJson,
}

impl Form {
    pub const ALL: [Self; 11] = [
        Self::Text,
        Self::Why,
        Self::Json,
        Self::Markdown,
        Self::Csv,
        Self::RoundsCsv,
        Self::Html,
        Self::OpenMetrics,
        Self::FortioCsv,
        Self::K6Csv,
        Self::BpftimeJson,
    ];

    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Why => "why",
            Self::Json => "json",
            Self::Markdown => "markdown",
            Self::Csv => "csv",
            Self::RoundsCsv => "rounds-csv",
            Self::Html => "html",
            Self::OpenMetrics => "openmetrics",
            Self::FortioCsv => "fortio-csv",
            Self::K6Csv => "k6-csv",
            Self::BpftimeJson => "bpftime-json",
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|form| form.word() == text);
        found.ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|form| form.word()).collect();
            format!("choose among {}", words.join(", "))
        })
    }
}

/// Something measured, that can be told.
pub trait Document {
    /// What it is, for the one line that says it has no such form.
    fn kind(&self) -> &'static str;

    /// `None` where it has no such form.
    fn form(&self, form: Form) -> Option<String>;

    /// In one line why not, where it has no such form. Names and messages in it may be a
    /// stranger's: what a terminal would obey is shown by its code.
    fn render(&self, form: Form) -> Result<String, String> {
        let safe = |text: String| match form {
            Form::Json | Form::BpftimeJson => plain::json(&text).into_owned(),
            _ => plain::lines(&text).into_owned(),
        };
        self.form(form).map(safe).ok_or_else(|| {
            let has = Form::ALL.into_iter().filter(|form| self.form(*form).is_some());
            let words: Vec<&str> = has.map(Form::word).collect();
            format!("{} has no form {}; it has {}", self.kind(), form.word(), words.join(", "))
        })
    }
}
