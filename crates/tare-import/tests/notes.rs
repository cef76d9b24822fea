//! Twenty notes in the manner of engineers, with what is in them, written by people who had not
//! seen the code: how much of that is found, named, and kept apart?
//!
//! `notes/truth.json` has for each output its line, its variant as a reader would call it, one of
//! its values, and the outputs that are repetitions of it.

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
    metric: Option<String>,
    value: Option<f64>,
}

#[derive(Default)]
struct Tally {
    outputs: usize,
    found: usize,
    right: usize,
    told: Vec<String>,
}

#[test]
fn notes_are_read_as_a_reader_would() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/notes");
    let truth = std::fs::read_to_string(folder.join("truth.json")).unwrap();
    let notes: BTreeMap<String, Note> = serde_json::from_str(&truth).unwrap();
    assert_eq!(notes.len(), 20);
    let mut tally = Tally::default();
    for (name, note) in &notes {
        let text = std::fs::read(folder.join(name)).unwrap();
        let found = read(name, text.as_slice()).unwrap();
        let file = FileDrafts { file: name.clone(), found, ..FileDrafts::default() };
        compare(name, note, &assemble(name, vec![file]), &mut tally);
    }
    let Tally { outputs, found, right, told } = tally;
    println!("{}\n{found} of {outputs} found, {right} right in all", told.join("\n"));
    assert!(outputs > 300 && found * 100 >= outputs * 98, "{found} of {outputs} found");
    assert!(right * 100 >= outputs * 90, "{right} of {outputs} right");
}

fn compare(name: &str, note: &Note, import: &Import, tally: &mut Tally) {
    let matched: Vec<Option<&Sample>> = note.blocks.iter().map(|b| nearest(b, import)).collect();
    let place = |sample: &Sample| (sample.variant.clone(), sample.case.clone(), sample.tool);
    for (at, (block, own)) in note.blocks.iter().zip(&matched).enumerate() {
        tally.outputs += 1;
        // An output that was cut before its result is told as such.
        let is_told = import.unread.iter().any(|unread| unread.line == block.line);
        let Some(own) = own else {
            let is_empty = block.value.is_none() && is_told;
            tally.found += usize::from(is_empty);
            tally.right += usize::from(is_empty);
            tally.told.extend((!is_empty).then(|| format!("{name}:{}: not found", block.line)));
            continue;
        };
        tally.found += 1;
        let mut is_right = true;
        for (other, theirs) in note.blocks.iter().zip(&matched).enumerate().take(at) {
            let (other, (of, Some(theirs))) = (other, theirs) else { continue };
            if std::ptr::eq(*theirs, *own) {
                continue;
            }
            let is_same = block.same_as.contains(&other) || of.same_as.contains(&at);
            let is_pooled = place(theirs) == place(own);
            assert!(is_same || !is_pooled, "{name}:{} and {}: pooled", of.line, block.line);
            if is_same && !is_pooled && is_right {
                is_right = false;
                tally.told.push(format!("{name}:{}: kept apart from {}", block.line, of.line));
            }
        }
        if !is_named(&block.variant, own) {
            is_right = false;
            let Block { line, variant, .. } = block;
            tally.told.push(format!("{name}:{line}: '{}' is '{variant}'", own.variant));
        }
        tally.right += usize::from(is_right);
    }
}

/// The output that begins there and has that value.
fn nearest<'a>(block: &Block, import: &'a Import) -> Option<&'a Sample> {
    let is_near = |sample: &&Sample| {
        let first = sample.source.first_line.saturating_sub(16);
        sample.tool != Tool::Table && (first..=sample.source.last_line + 1).contains(&block.line)
    };
    let off = |sample: &Sample| {
        let value = block.metric.as_ref().and_then(|metric| sample.values.get(metric));
        let off = value.zip(block.value).map_or(9.0, |(own, told)| (own / told - 1.0).abs());
        (off, sample.source.first_line.abs_diff(block.line))
    };
    let near = import.samples.iter().filter(is_near);
    near.min_by(|a, b| off(a).partial_cmp(&off(b)).unwrap())
}

/// A word of the reader's name is in ours.
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
