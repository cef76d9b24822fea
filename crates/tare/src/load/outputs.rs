//! Output files of a run, opened before it starts, so that a bad path fails early.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use tare_io::files::OutputFile;
use tare_model::plain;
use tare_report::formats::{Document, Form};

use crate::paint::paint;
use tare_model::Failure;

/// A file (or `-`, standard output) that is written at the end. Its old contents stay until then,
/// so that a failed run loses no earlier report.
pub struct Output {
    flag: String,
    path: PathBuf,
    /// `None`: standard output.
    outlet: Option<OutputFile>,
}

impl Output {
    pub fn create(flag: &str, path: &Path) -> Result<Self, Failure> {
        let output = Self { flag: flag.into(), path: path.into(), outlet: None };
        if path.as_os_str() == "-" {
            return Ok(output);
        }
        match OutputFile::find(path) {
            Ok(outlet) => Ok(Self { outlet: Some(outlet), ..output }),
            Err(error) => Err(output.failed(&error)),
        }
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        let (flag, path) = (&self.flag, self.path.display());
        Failure::environment(format!("{flag}: cannot write {path}: {error}"))
    }

    pub fn is_stdout(&self) -> bool {
        self.outlet.is_none()
    }

    /// Writes JSON; escape sequences in its strings are shown by their codes.
    pub fn write_json(&mut self, text: &str) -> Result<(), Failure> {
        self.write(&plain::json(text))
    }

    pub fn write(&mut self, text: &str) -> Result<(), Failure> {
        let written = match &mut self.outlet {
            Some(outlet) => outlet.write(text.as_bytes()),
            None => print(text),
        };
        written.map_err(|error| self.failed(&error))
    }
}

/// Files for the formats of a report.
#[derive(Args)]
pub struct FormFiles {
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as Markdown to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the report as CSV to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the report as one HTML file with charts, or to standard output with -
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl FormFiles {
    pub fn wanted(&self) -> Vec<(Form, PathBuf)> {
        files_of([&self.json, &self.markdown, &self.csv, &self.html])
    }
}

/// Files of a check's answer, besides standard output.
#[derive(Args)]
pub struct CheckFiles {
    /// Write the answer as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a comment for a pull request to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write one HTML file with charts, or to standard output with -
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write test cases in JUnit's format to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a message for the forge (a GitHub workflow command) to this file, or to standard
    /// output with -
    #[arg(long, value_name = "FILE")]
    annotations: Option<PathBuf>,
}

impl CheckFiles {
    pub fn wanted(&self) -> Vec<(Form, PathBuf)> {
        let own = [(Form::Junit, &self.junit), (Form::Annotations, &self.annotations)];
        let own = own.into_iter().filter_map(|(form, path)| Some((form, path.clone()?)));
        files_of([&self.json, &self.markdown, &None, &self.html]).into_iter().chain(own).collect()
    }
}

/// Pairs the flags' files with their formats: JSON, Markdown, CSV, HTML.
pub fn files_of(paths: [&Option<PathBuf>; 4]) -> Vec<(Form, PathBuf)> {
    let forms = [Form::Json, Form::Markdown, Form::Csv, Form::Html];
    forms.into_iter().zip(paths).filter_map(|(form, path)| Some((form, path.clone()?))).collect()
}

/// Prints to standard error as `print` does, and ignores errors.
pub fn print_stderr(text: &str) {
    let _ = std::io::stderr().write_all(plain::lines(text).as_bytes());
}

/// Files of a report, opened before it is made, so that a bad path fails early.
pub struct Outputs(Vec<(Form, Output)>);

impl Outputs {
    pub fn create(wanted: &[(Form, PathBuf)]) -> Result<Self, Failure> {
        if let Some(at) = (1..wanted.len()).find(|at| {
            let (_, path) = &wanted[*at];
            wanted[..*at].iter().any(|(_, other)| other == path)
        }) {
            let text = "each form needs a file of its own, and only one can be - (standard output)";
            return Err(Failure::usage(format!("--{}: {text}", wanted[at].0.word())));
        }
        let outputs = wanted
            .iter()
            .map(|(form, path)| Ok((*form, Output::create(&format!("--{}", form.word()), path)?)));
        outputs.collect::<Result<_, _>>().map(Self)
    }

    /// Whether a format goes to standard output.
    pub fn uses_stdout(&self) -> bool {
        self.0.iter().any(|(_, output)| output.is_stdout())
    }

    /// Writes the files. Unless one of them is standard output, also prints the text and `kept`.
    pub fn write(&mut self, document: &dyn Document, kept: Option<&str>) -> Result<(), Failure> {
        if !self.uses_stdout() {
            let text = document.render(Form::Text).map_err(Failure::usage)?;
            print_report(&(text + kept.unwrap_or_default()))
                .map_err(|error| Failure::environment(format!("standard output: {error}")))?;
        }
        self.write_forms(document)
    }

    /// Writes the files without printing the text.
    pub fn write_forms(&mut self, document: &dyn Document) -> Result<(), Failure> {
        for (form, output) in &mut self.0 {
            output.write(&document.render(*form).map_err(Failure::usage)?)?;
        }
        Ok(())
    }
}

/// Prints to standard output; a closed pipe is no error. Escape sequences are shown, not sent to
/// the terminal.
pub fn print(text: &str) -> std::io::Result<()> {
    to_stdout(&plain::lines(text))
}

/// Prints a report as `print` does, with coloured signs.
pub fn print_report(text: &str) -> std::io::Result<()> {
    to_stdout(&paint(&plain::lines(text)))
}

fn to_stdout(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
