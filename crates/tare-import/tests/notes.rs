//! Notes in the style of engineers, with their true contents, written by people who had not seen
//! the code: how much is found, named, pooled and kept apart?
//!
//! `notes/truth.json` has for each output its line, its variant as a reader would name it, one of
//! its values, the outputs that are repetitions of it, and what shows that.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use tare_import::{FileDrafts, Import, Sample, Tool, assemble, read};

#[derive(Deserialize)]
struct Note {
    #[allow(dead_code)]
    what: String,
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    line: u32,
    variant: String,
    same_as: Vec<usize>,
    /// "own command", "Run N", "loop", "at once", "nothing"; `None` in the older notes.
    shown: Option<String>,
    metric: Option<String>,
    value: Option<f64>,
}

#[derive(Default)]
struct Tally {
    outputs: usize,
    found: usize,
    named: usize,
    /// Named by their line: only a sentence says which variant they are.
    by_line: usize,
    told: Vec<String>,
}

#[test]
fn notes_are_read_and_nothing_is_guessed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/notes");
    let truth = std::fs::read_to_string(folder.join("truth.json")).unwrap();
    let notes: BTreeMap<String, Note> = serde_json::from_str(&truth).unwrap();
    assert_eq!(notes.len(), 32);
    let mut tally = Tally::default();
    for (name, note) in &notes {
        let text = std::fs::read(folder.join(name)).unwrap();
        let found = read(name, text.as_slice()).unwrap();
        let file = FileDrafts { file: name.clone(), found, ..FileDrafts::default() };
        let import = assemble(name, vec![file]);
        let text = String::from_utf8(text).unwrap();
        for sample in &import.samples {
            let Sample { variant, headings, source, .. } = sample;
            assert!(
                is_of_facts(sample, &text),
                "{name}:{}: '{variant}' {headings:?}",
                source.first_line
            );
        }
        compare(name, note, &import, &mut tally);
    }
    let Tally { outputs, found, named, by_line, told } = tally;
    println!("{}\n{found} of {outputs} found, {named} named, {by_line} by line", told.join("\n"));
    assert!(outputs > 390 && found * 100 >= outputs * 98, "{found} of {outputs} found");
    // docs/evidence.md must state these numbers.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = |what: &str, n: usize| {
        let row = page.lines().find(|line| line.starts_with(&format!("| {what}"))).unwrap();
        assert_eq!(row.split('|').nth(2).unwrap().trim(), n.to_string(), "{row}");
    };
    row("found ", found);
    row("named with a word", named);
    row("named by its line", by_line);
    row("named by an address", found - named - by_line);
    // The rest have names that are in the notes, but that a reader would not have chosen: of a
    // test, or an address.
    let otherwise = found - named - by_line;
    assert!(otherwise * 100 <= outputs * 17, "{otherwise} of {outputs} have another name");
}

/// Whether a name comes from headings, labels, commands, prompts and addresses alone.
fn is_of_facts(sample: &Sample, text: &str) -> bool {
    let Sample { tool, headings, command, asked, .. } = sample;
    use Tool::{Ab, H2load, Hey, Iperf3, Netperf, Oha, Qperf, Wrk, Wrk2};
    let names_itself =
        !matches!(tool, Ab | H2load | Hey | Iperf3 | Netperf | Oha | Qperf | Wrk | Wrk2);
    let url = asked.url.clone().unwrap_or_default();
    let said = format!("{} {} {url}", headings.join(" "), command.clone().unwrap_or_default());
    let is_prompt = |line: &&str| ["$ ", "# ", ":~"].iter().any(|mark| line.contains(mark));
    let is_typed = |part: &str| text.lines().filter(is_prompt).any(|line| line.contains(part));
    let is_said = |part: &str| part.split(' ').all(|word| said.contains(word)) || is_typed(part);
    let is_line = |part: &str| part.starts_with(&format!("{} at line ", tool.name()));
    names_itself
        || sample.variant == sample.source.file.rsplit_once('.').map_or("", |(stem, _)| stem)
        || sample.variant.split(" / ").all(|part| is_said(part) || is_line(part))
}

fn compare(name: &str, note: &Note, import: &Import, tally: &mut Tally) {
    let matched: Vec<Option<&Sample>> = note.blocks.iter().map(|b| nearest(b, import)).collect();
    let place = |sample: &Sample| (sample.variant.clone(), sample.case.clone(), sample.tool);
    for (at, (block, own)) in note.blocks.iter().zip(&matched).enumerate() {
        tally.outputs += 1;
        // An output that was cut before its result is reported as such.
        let is_told = import.unread.iter().any(|unread| unread.line.abs_diff(block.line) < 40);
        let Some(own) = own else {
            tally.found += usize::from(is_told);
            tally.by_line += usize::from(is_told);
            tally.told.extend((!is_told).then(|| format!("{name}:{}: not found", block.line)));
            continue;
        };
        tally.found += 1;
        let shows = |block: &Block| block.shown.as_deref().is_none_or(|shown| shown != "nothing");
        for (other, theirs) in note.blocks.iter().zip(&matched).enumerate().take(at) {
            let (other, (of, Some(theirs))) = (other, theirs) else { continue };
            let is_same = block.same_as.contains(&other) || of.same_as.contains(&at);
            let is_shown = is_same && shows(block) && shows(of);
            if std::ptr::eq(*theirs, *own) {
                let is_told = own.added.is_empty() || is_same;
                assert!(is_told, "{name}:{} and {}: added up", of.line, block.line);
                continue;
            }
            let is_pooled = place(theirs) == place(own);
            assert!(is_shown || !is_pooled, "{name}:{} and {}: pooled", of.line, block.line);
            if is_shown && !is_pooled && block.shown.is_some() {
                tally.told.push(format!("{name}:{}: kept apart from {}", block.line, of.line));
            }
        }
        let Block { line, variant, .. } = block;
        if is_named(variant, own) {
            tally.named += 1;
        } else if own.by_line {
            tally.by_line += 1;
        } else {
            tally.told.push(format!("{name}:{line}: '{}' is '{variant}'", own.variant));
        }
    }
}

/// Returns the output that begins there and has that value.
fn nearest<'a>(block: &Block, import: &'a Import) -> Option<&'a Sample> {
    let is_near = |sample: &&Sample| {
        let first = sample.source.first_line.saturating_sub(16);
        sample.tool != Tool::Table && (first..=sample.source.last_line + 1).contains(&block.line)
    };
    let off = |sample: &Sample| {
        let value = block.metric.as_ref().and_then(|metric| sample.values.get(metric));
        let off = match sample.added.contains(&block.line) {
            true => 0.0,
            false => value.zip(block.value).map_or(9.0, |(own, told)| (own / told - 1.0).abs()),
        };
        (off, sample.source.first_line.abs_diff(block.line))
    };
    let near = import.samples.iter().filter(is_near);
    near.min_by(|a, b| off(a).partial_cmp(&off(b)).unwrap())
}

/// Whether a word of the reader's name is in ours.
fn is_named(variant: &str, sample: &Sample) -> bool {
    const COMMON: [&str; 11] =
        ["the", "on", "in", "with", "of", "and", "no", "container", "from", "for", "at"];
    let words = |text: &str| -> BTreeSet<String> {
        let text = text.to_lowercase();
        let parts = text.split(|c: char| !c.is_alphanumeric() && c != '.');
        // "v1.9.0" is 1.9.0.
        let is_version = |word: &str| word[1..].starts_with(|c: char| c.is_ascii_digit());
        let own = parts.filter(|word| word.chars().count() >= 2 && !COMMON.contains(word));
        own.map(|word| match word.strip_prefix('v').filter(|_| is_version(word)) {
            Some(version) => version.to_owned(),
            None => word.to_owned(),
        })
        .collect()
    };
    let (told, own) = (words(variant), sample.variant.to_lowercase());
    let ours = words(&format!("{own} {}", sample.case));
    told.is_empty() || told.iter().any(|word| ours.contains(word) || own.contains(word.as_str()))
}
