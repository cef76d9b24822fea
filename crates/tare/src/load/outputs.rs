//! Files that a run writes: opened before it starts, so that a bad path costs nothing.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use tare_io::files::Outlet;
use tare_model::plain;
use tare_report::form::{Document, Form};

use crate::paint::paint;
use tare_model::Failure;

/// A file (or `-`, standard output) that is written at the end. What stands in it stays until then:
/// a run that fails costs nobody the last report.
pub struct Output {
    flag: String,
    path: PathBuf,
    /// `None`: standard output.
    outlet: Option<Outlet>,
}

impl Output {
    pub fn create(flag: &str, path: &Path) -> Result<Self, Failure> {
        let output = Self { flag: flag.into(), path: path.into(), outlet: None };
        if path.as_os_str() == "-" {
            return Ok(output);
        }
        match Outlet::find(path) {
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

    /// JSON, in whose strings a stranger's escape sequences stand by their codes.
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

/// Where forms of a report go.
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

/// Flags' files, in the order json, markdown, csv, html.
pub fn files_of(paths: [&Option<PathBuf>; 4]) -> Vec<(Form, PathBuf)> {
    let forms = [Form::Json, Form::Markdown, Form::Csv, Form::Html];
    forms.into_iter().zip(paths).filter_map(|(form, path)| Some((form, path.clone()?))).collect()
}

/// Standard error, in the same way; where it is gone, there is nobody to tell.
pub fn print_stderr(text: &str) {
    let _ = std::io::stderr().write_all(plain::lines(text).as_bytes());
}

/// Files that a report goes to: opened before it is made, so that a bad path costs nothing.
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

    /// Whether one of the forms goes to standard output.
    pub fn take_stdout(&self) -> bool {
        self.0.iter().any(|(_, output)| output.is_stdout())
    }

    /// The text goes to standard output, with where it is kept, unless another form has that.
    pub fn write(&mut self, document: &dyn Document, kept: Option<&str>) -> Result<(), Failure> {
        if !self.take_stdout() {
            let text = document.render(Form::Text).map_err(Failure::usage)?;
            print_report(&(text + kept.unwrap_or_default()))
                .map_err(|error| Failure::environment(format!("standard output: {error}")))?;
        }
        self.write_forms(document)
    }

    /// The forms alone.
    pub fn write_forms(&mut self, document: &dyn Document) -> Result<(), Failure> {
        for (form, output) in &mut self.0 {
            output.write(&document.render(*form).map_err(Failure::usage)?)?;
        }
        Ok(())
    }
}

/// Standard output; a reader that has gone away is no failure. A stranger's escape sequences are
/// shown, not obeyed.
pub fn print(text: &str) -> std::io::Result<()> {
    to_stdout(&plain::lines(text))
}

/// The same of a report for people: its signs have colours on a terminal.
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
