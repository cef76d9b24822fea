//! Report formats. Each kind of report is a [`Document`], which renders itself in a [`Form`]; a new
//! format needs a variant here and an arm in the documents that support it.

use tare_model::plain;

/// A format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Text,
    /// All guards, ratios and proofs, with figures.
    Why,
    Json,
    Markdown,
    Csv,
    /// The values behind a run's intervals.
    RoundsCsv,
    Html,
    /// OpenMetrics, the text format of Prometheus.
    OpenMetrics,
    /// The table that Istio's benchmark runner makes from fortio's results.
    FortioCsv,
    /// k6's summary as a table.
    K6Csv,
    /// The result file of bpftime's nginx benchmark.
    BpftimeJson,
    /// Bencher's metric format.
    BencherJson,
    /// Metrics for github-action-benchmark of which more is better.
    GithubBigger,
    /// The other metrics for github-action-benchmark.
    GithubSmaller,
    /// Text of Go's benchmarks, for benchstat.
    GoBench,
    /// A row per run, for Apache Otava.
    OtavaCsv,
    /// Test cases, as CI systems read them.
    Junit,
    /// Messages that a forge shows beside a change.
    Annotations,
}

impl Form {
    pub const ALL: [Self; 18] = [
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
        Self::BencherJson,
        Self::GithubBigger,
        Self::GithubSmaller,
        Self::GoBench,
        Self::OtavaCsv,
        Self::Junit,
        Self::Annotations,
    ];

    /// Name of the format on the command line.
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
            Self::BencherJson => "bencher-json",
            Self::GithubBigger => "github-bigger",
            Self::GithubSmaller => "github-smaller",
            Self::GoBench => "go-bench",
            Self::OtavaCsv => "otava-csv",
            Self::Junit => "junit",
            Self::Annotations => "annotations",
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

/// A result that can be reported.
pub trait Document {
    /// Kind of document, for the error about an unsupported format.
    fn kind(&self) -> &'static str;

    /// Renders the document; `None` if the format is unsupported.
    fn form(&self, form: Form) -> Option<String>;

    /// Renders the document, or returns a one-line error if the format is unsupported. Escape
    /// sequences in names and messages are shown by their codes.
    fn render(&self, form: Form) -> Result<String, String> {
        let safe = |text: String| match form {
            Form::Json
            | Form::BpftimeJson
            | Form::BencherJson
            | Form::GithubBigger
            | Form::GithubSmaller => plain::json(&text).into_owned(),
            _ => plain::lines(&text).into_owned(),
        };
        self.form(form).map(safe).ok_or_else(|| {
            let has = Form::ALL.into_iter().filter(|form| self.form(*form).is_some());
            let words: Vec<&str> = has.map(Form::word).collect();
            format!("{} has no form {}; it has {}", self.kind(), form.word(), words.join(", "))
        })
    }
}
