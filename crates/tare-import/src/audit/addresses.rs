//! Whose numbers they are: addresses that fit neither their command, nor their heading, nor the
//! other outputs of it.

use std::collections::{BTreeMap, BTreeSet};

use tare_guards::{Code, Severity};

use super::Finding;
use crate::command::Command;
use crate::import::Import;
use crate::names::plain_words;
use crate::sample::Sample;

/// The output is of another load than the command above it asks for.
pub fn other_than_asked(sample: &Sample) -> Option<Finding> {
    // What stands further up may be of another output.
    if !sample.is_commands_own {
        return None;
    }
    let asked = Command::asked_by(sample.command.as_deref()?)?;
    let mut told = Vec::new();
    if let (Some(command), Some(own)) = (&asked.url, &sample.asked.url) {
        // "HOST" and "$URL" stand for what was typed.
        let is_symbol = command.contains(['$', '<', '{'])
            || host(command).chars().any(|c| c.is_ascii_uppercase());
        if trimmed(command) != trimmed(own) && !is_symbol {
            told.push(format!("asks {command}, but the output says {own}"));
        }
    }
    let own = &sample.asked;
    for (what, asked, own) in [
        ("threads", asked.threads, own.threads),
        ("connections", asked.connections, own.connections),
        ("requests", asked.requests, own.requests),
    ] {
        // Of processes that ran at once, the output is the sum.
        if let Some((asked, own)) =
            asked.zip(own).filter(|(a, b)| a != b && sample.added.is_empty())
        {
            told.push(format!("asks for {asked} {what}, but the output says {own}"));
        }
    }
    let seconds = asked.seconds.zip(own.seconds).filter(|(a, b)| (a - b).abs() > 0.5);
    told.extend(seconds.map(|(a, b)| format!("asks for {a} s, but the output says {b} s")));
    if told.is_empty() {
        return None;
    }
    let text = format!("the document's command {}", told.join("; "));
    let means =
        "the two do not belong together, or one was edited: it is unclear which settings were used";
    Some(Finding::new(Code::OtherCommand, Severity::Warn, text, means).of(sample))
}

/// Without quotes, the port that goes without saying, and the last slash.
fn trimmed(url: &str) -> String {
    let url = url.trim_matches(['"', '\'']);
    let usual = if url.starts_with("https:") { ":443" } else { ":80" };
    let (host, path) =
        match url.find("://").and_then(|at| url[at + 3..].find('/').map(|to| at + 3 + to)) {
            Some(at) => url.split_at(at),
            None => (url, ""),
        };
    format!("{}{}", host.strip_suffix(usual).unwrap_or(host), path.trim_end_matches('/'))
}

fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

fn port(url: &str) -> Option<u16> {
    host(url).rsplit_once(':')?.1.parse().ok()
}

/// An address, a port or a script that belongs to another heading. What an output is called by its
/// address is not looked at: only what stands above it.
pub fn wrong_headings(import: &Import) -> Vec<Finding> {
    let with_url: Vec<(&Sample, &str)> =
        import.samples.iter().filter_map(|s| Some((s, s.asked.url.as_deref()?))).collect();
    let (hosts, names) = (Hosts::of(&with_url), Names::of(import));
    let mut found = Vec::new();
    let mut add = |sample: &Sample, text: String| {
        let means = "either the output stands under the wrong heading, or that variant was tested \
                     at the wrong address: it is unclear whose numbers these are";
        found.push(Finding::new(Code::WrongHeading, Severity::Warn, text, means).of(sample));
    };
    for sample in &import.samples {
        let script = sample.command.as_deref().and_then(Command::script_in);
        if let Some((script, other)) = script.and_then(|s| Some((s, names.in_text(sample, s)?))) {
            add(sample, format!("its script {script} bears the name of '{other}'"));
        }
    }
    for (sample, url) in &with_url {
        let words = format!("{} {}", sample.headings.join(" "), sample.under);
        let said = said_ports(&words);
        if let (Some(port), Some(first)) = (port(url), said.first())
            && !said.contains(&port)
        {
            add(sample, format!("its heading says port {first}, its address port {port}"));
            continue;
        }
        let named = names.in_text(sample, host(url));
        if let Some(other) = named.filter(|other| hosts.usual(other) != Some(host(url))) {
            add(sample, format!("its address {url} bears the name of '{other}'"));
            continue;
        }
        if let Some((own, other)) = hosts.of_another(sample, host(url)) {
            add(
                sample,
                format!(
                    "it stands under '{}', and its address {} is that of '{other}'; that of its \
                     own heading is {own}",
                    sample.under,
                    host(url)
                ),
            );
        }
    }
    found.extend(shared_addresses(import, &hosts));
    found
}

/// "port 9023", "(port: 9023)", "ports 9023 and 9024": numbers right after the word.
fn said_ports(words: &str) -> Vec<u16> {
    let lower = words.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut found = Vec::new();
    let mut after = false;
    for word in words {
        match word.parse::<u16>() {
            Ok(port) if after => found.push(port),
            _ => after = matches!(word, "port" | "ports") || (after && word == "and"),
        }
    }
    found
}

/// How many outputs under each heading were asked at each address.
struct Hosts<'a>(BTreeMap<&'a str, BTreeMap<&'a str, usize>>);

impl<'a> Hosts<'a> {
    fn of(all: &[(&'a Sample, &'a str)]) -> Self {
        let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for (sample, url) in all {
            *counts.entry(&sample.under).or_default().entry(host(url)).or_default() += 1;
        }
        Self(counts)
    }

    /// The address of most outputs under a heading; none where two have as many.
    fn usual(&self, under: &str) -> Option<&'a str> {
        let counts = self.0.get(under)?;
        let most = counts.values().max()?;
        let mut usual = counts.iter().filter(|(_, n)| *n == most);
        usual.next().filter(|_| usual.next().is_none()).map(|(host, _)| *host)
    }

    /// One address among others of its heading's, at which all of another heading are: its heading's
    /// own, and the other heading.
    fn of_another(&self, sample: &Sample, host: &str) -> Option<(&'a str, &'a str)> {
        let own = self.usual(&sample.under).filter(|own| *own != host)?;
        // "Kata, tuned" may be at the address of "Kata".
        let words = telling(&sample.under);
        let is_like = |other: &str| telling(other).iter().any(|word| words.contains(word));
        let is_all_there =
            |counts: &BTreeMap<&str, usize>| counts.len() == 1 && counts.contains_key(host);
        let mut others = self.0.iter().filter(|(under, _)| **under != sample.under);
        let (other, _) = others.find(|(under, counts)| is_all_there(counts) && !is_like(under))?;
        Some((own, other))
    }
}

/// Words that tell variants apart, of each.
struct Names<'a>(Vec<(&'a str, Vec<String>)>);

impl<'a> Names<'a> {
    fn of(import: &'a Import) -> Self {
        let all: BTreeSet<&str> = import.samples.iter().map(|s| s.under.as_str()).collect();
        Self(all.into_iter().map(|name| (name, telling(name))).collect())
    }

    /// The heading whose name a text bears, where it is not the output's own.
    fn in_text(&self, sample: &Sample, text: &str) -> Option<&'a str> {
        let (said, own) = (telling(text), telling(&sample.under));
        if said.is_empty() || own.iter().any(|word| said.contains(word)) {
            return None;
        }
        // "cache-a" bears the name of "cache", and not that of "TLS, cold cache".
        let bears = |words: &[String]| {
            !words.is_empty() && words.iter().all(|word| !own.contains(word) && said.contains(word))
        };
        let mut others = self.0.iter().filter(|(name, _)| *name != sample.under);
        others.find(|(_, words)| bears(words)).map(|(name, _)| *name)
    }
}

/// Words of a name that are not everybody's.
fn telling(text: &str) -> Vec<String> {
    const COMMON: [&str; 12] = [
        "localhost",
        "host",
        "http",
        "https",
        "local",
        "the",
        "lua",
        "script",
        "scripts",
        "test",
        "wrk",
        "with",
    ];
    let is_telling = |word: &String| {
        let is_word = word.len() >= 3 && word.chars().any(char::is_alphabetic);
        is_word && !COMMON.contains(&word.as_str())
    };
    plain_words(text).into_iter().filter(is_telling).collect()
}

/// Two variants at one address, where all others have their own.
fn shared_addresses(import: &Import, hosts: &Hosts<'_>) -> Vec<Finding> {
    let mut by_host: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let unders = import.samples.iter().map(|sample| sample.under.as_str());
    for under in unders.filter(|under| seen.insert(*under)) {
        if let Some(host) = hosts.usual(under) {
            by_host.entry(host).or_default().push(under);
        }
    }
    // Every machine has a loopback of its own.
    let is_loopback = |host: &str| host.starts_with("localhost") || host.starts_with("127.");
    let loopbacks = by_host.keys().filter(|host| is_loopback(host)).count();
    let shared: Vec<(&&str, &Vec<&str>)> = by_host.iter().filter(|(_, v)| v.len() > 1).collect();
    let (mixed, alone) = (loopbacks > 0 && loopbacks < by_host.len(), by_host.len() - shared.len());
    match shared.as_slice() {
        [(host, variants)] if variants.len() == 2 && alone >= 2 && !mixed => {
            let (first, second) = (variants[0], variants[1]);
            let text = format!("'{second}' was asked at {host}, as '{first}' was");
            let means = "where every other variant has an address of its own, two at the same one \
                         may be the same server under two headings";
            let mut finding = Finding::new(Code::WrongHeading, Severity::Warn, text, means);
            finding.variant = Some(second.to_owned());
            vec![finding]
        }
        _ => Vec::new(),
    }
}
