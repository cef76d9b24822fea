//! `tare import FILE…`: audits and stores other tools' results.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use clap::Args;
use tare_import::{FileContents, FileDrafts, Import as Imported, Trouble, assemble, printable};
use tare_io::files::open_input;
use tare_io::time::wall_unix_ms;
use tare_report::import::{ImportDocument, sources};
use tare_store::{NewRun, RunRow, Store};

use crate::load::outputs::{FormFiles, Outputs, print_stderr};
use crate::run::command;
use crate::run::cpus_and_folders::store_path;
use tare_model::Failure;

/// Read other tools' results, audit them, and store them
///
/// Reads outputs of wrk, wrk2, qperf, h2load, ab, hey, oha, fortio, k6, iperf3, netperf and
/// UnixBench, as files or pasted into Markdown or any text (headings, labels and comments above
/// them name the variants); JSON of fortio, k6, oha, iperf3 and bpftime's nginx benchmark; CSV of
/// k6; tables (Markdown, HTML, tabs) and printed summaries of results. tare audits each result,
/// recomputes the differences stated in the text, and gives intervals where runs were repeated.
///
/// Example: tare import study.md --dry-run
///
/// Example: tare import a1.json a2.json b1.json b2.json --as a --as a --as b --as b
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Import {
    /// Files; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Variant name, once for all files or once for each. Files with the same name are
    /// repetitions. If headings in a file name several variants, this is their prefix.
    /// FILE:LINE=NAME names the output that begins at that line.
    /// Default: the headings and labels above it, or the file name
    #[arg(long = "as", value_name = "NAME")]
    names: Vec<String>,
    /// Name of the import; default: the names of the files
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Variant to compare the others with; default: the first
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Show what was recognised in which lines, and the audit; store nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    forms: FormFiles,
    /// Run store; default: $TARE_STORE, or tare.db in your data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

pub fn run(args: &Import) -> Result<(), Failure> {
    let import = read_all(args)?;
    let mut outputs = Outputs::create(&args.forms.wanted())?;
    let version = env!("CARGO_PKG_VERSION");
    if args.dry_run {
        let document = ImportDocument::new(import, 0, wall_unix_ms(), version);
        let told = format!("\n{}nothing was kept (--dry-run)\n", sources(&document));
        if outputs.uses_stdout() {
            print_stderr(&told);
        }
        return outputs.write(&document, Some(&told));
    }
    let path = store_path(args.store.as_ref())?;
    let now = wall_unix_ms();
    let new = NewRun {
        name: import.name.clone(),
        seed: 0,
        tare_version: version.into(),
        started_unix_ms: now,
        command: command::typed(std::env::args_os()),
        plan: "{}".into(),
        machine: "{}".into(),
        variants: import.variants().into_iter().map(str::to_owned).collect(),
    };
    let run = Store::open(&path)?.add_import(&new, &import.json())?;
    let document = ImportDocument::new(import, run.0, now, version);
    let kept = format!("stored as run {run} in {}; show it: tare report {run}\n", path.display());
    outputs.write(&document, Some(&kept))
}

/// Maximum number of outputs that are read at once.
const OUTPUTS_MAX: usize = 5000;

/// Reads all files before any of them is stored.
fn read_all(args: &Import) -> Result<Imported, Failure> {
    if args.names.iter().any(|name| name.trim().is_empty()) {
        return Err(Failure::flag("--as", "''", "a variant needs a name"));
    }
    let (lines, names): (Vec<String>, Vec<String>) =
        args.names.iter().cloned().partition(|name| parse_line_name(name, &args.files).is_some());
    let lines: Vec<(String, u32, String)> =
        lines.iter().filter_map(|name| parse_line_name(name, &args.files)).collect();
    if let Some(name) = names.iter().find(|name| has_line_form(name)) {
        return Err(Failure::flag(
            "--as",
            name,
            "FILE:LINE=NAME is of one of the files that are read",
        ));
    }
    let given = match (names.as_slice(), args.files.len()) {
        ([], n) => vec![None; n],
        ([one], n) => vec![Some(one.clone()); n],
        (all, n) if all.len() == n => all.iter().cloned().map(Some).collect(),
        (all, n) => {
            let text = format!(
                "--as was given {} times for {n} files: give it once, or {n} times",
                all.len()
            );
            return Err(Failure::usage(text));
        }
    };
    let mut files = Vec::new();
    for (path, given) in args.files.iter().zip(given) {
        let file = match path.as_os_str() == "-" {
            true => "stdin".into(),
            false => printable(&path.display().to_string()),
        };
        let found = tare_import::read(&file, open(path)?)
            .map_err(|Trouble { line, why }| Failure::usage(format!("{file}:{line}: {why}")))?;
        let given_at = names_by_line(&lines, &file, &found)?;
        files.push(FileDrafts { file, given, given_at, found });
    }
    let named: Vec<&str> = files.iter().map(|file| base(&file.file)).collect();
    let name = args.name.clone().unwrap_or_else(|| match named.as_slice() {
        [first, _, .., last] => format!("{} files, {first} to {last}", named.len()),
        all => all.join(" and "),
    });
    let outputs: usize = files.iter().map(|file| file.found.drafts.len()).sum();
    if outputs > OUTPUTS_MAX {
        let text = format!("{outputs} outputs; up to {OUTPUTS_MAX} are read at once");
        return Err(Failure::usage(text));
    }
    let mut import = assemble(&name, files);
    if let Some(baseline) = &args.baseline {
        rebase(&mut import, baseline)?;
    }
    Ok(import)
}

/// Parses `FILE:LINE=NAME` if FILE is one of these files, as typed or as shown.
fn parse_line_name(name: &str, files: &[PathBuf]) -> Option<(String, u32, String)> {
    files.iter().find_map(|file| {
        let given = printable(&file.display().to_string());
        let shown = if given == "-" { "stdin".to_owned() } else { given.clone() };
        let rest = name.strip_prefix(&given).or(name.strip_prefix(&shown))?;
        let (line, name) = rest.strip_prefix(':')?.split_once('=')?;
        Some((shown, line.parse().ok()?, name.trim().to_owned()))
    })
}

/// Whether a name has the form `FILE:LINE=NAME`, which is an error if FILE is not among the files.
fn has_line_form(name: &str) -> bool {
    let before = name.split_once('=').map(|(before, _)| before);
    let line = before.and_then(|before| before.rsplit_once(':')).map(|(_, line)| line);
    line.is_some_and(|line| !line.is_empty() && line.chars().all(|c| c.is_ascii_digit()))
}

/// Returns the names given to a file's outputs, by line.
fn names_by_line(
    all: &[(String, u32, String)],
    file: &str,
    found: &FileContents,
) -> Result<BTreeMap<u32, String>, Failure> {
    let mut named = BTreeMap::new();
    for (_, line, name) in all.iter().filter(|(of, ..)| of == file) {
        let lines: BTreeSet<u32> = found.drafts.iter().map(|d| d.source.first_line).collect();
        if name.is_empty() || !lines.contains(line) {
            let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
            let allowed =
                format!("a name, and a line where an output begins: {}", lines.join(", "));
            return Err(Failure::flag("--as", &format!("{file}:{line}={name}"), allowed));
        }
        let own = found.drafts.iter().filter(|draft| draft.source.first_line == *line);
        let names: BTreeSet<Option<&String>> = own.map(|draft| draft.own_name.as_ref()).collect();
        if names.len() > 1 {
            let allowed = "an output of one variant: at this line stands a table of several";
            return Err(Failure::flag("--as", &format!("{file}:{line}={name}"), allowed));
        }
        named.insert(*line, name.clone());
    }
    Ok(named)
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Makes another variant the baseline.
pub fn rebase(import: &mut Imported, baseline: &str) -> Result<(), Failure> {
    if !import.variants().contains(&baseline) {
        let allowed = format!("there are: {}", import.variants().join(", "));
        return Err(Failure::flag("--baseline", baseline, allowed));
    }
    import.baseline = baseline.to_owned();
    Ok(())
}

fn open(path: &std::path::Path) -> Result<Box<dyn BufRead>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let shown = printable(&path.display().to_string());
    let cannot = |why: String| Failure::usage(format!("{shown}: cannot be read: {why}"));
    let input = open_input(path).map_err(|error| cannot(error.to_string()))?;
    Ok(Box::new(BufReader::new(input)))
}

/// Returns the report of a stored import.
pub fn stored(
    found: &str,
    row: &RunRow,
    baseline: Option<&str>,
) -> Result<ImportDocument, Failure> {
    let mut import: Imported = serde_json::from_str(found).map_err(|error| {
        let text = format!("the import {} is of another version of tare: {error}", row.id);
        Failure::environment(text)
    })?;
    if let Some(name) = baseline {
        rebase(&mut import, name)?;
    }
    Ok(ImportDocument::new(import, row.id.0, row.started_unix_ms, &row.tare_version))
}
