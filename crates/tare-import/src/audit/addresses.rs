//! Whose numbers they are: addresses that fit neither their command, nor their heading, nor the
//! other outputs of it.

use std::collections::BTreeMap;

use tare_guards::{Code, Severity};

use super::Finding;
use crate::command::Command;
use crate::import::Import;
use crate::sample::Sample;

/// The output's own address is not the command's.
pub fn other_address(sample: &Sample) -> Option<Finding> {
    let command = sample.command.as_deref().and_then(Command::url_in)?;
    let own = sample.asked.url.as_deref()?;
    let same = trimmed(&command) == trimmed(own);
    // "HOST" and "$URL" stand for what was typed.
    let is_symbol =
        command.contains(['$', '<', '{']) || host(&command).chars().any(|c| c.is_ascii_uppercase());
    if same || is_symbol {
        return None;
    }
    let text = format!("the command above asks {command}, the output is of {own}");
    let means =
        "the output does not belong to the command, or to the heading, that it stands under";
    Some(Finding::new(Code::WrongHeading, Severity::Warn, text, means).of(sample))
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

/// An address or a name that belongs to another heading.
pub fn wrong_headings(import: &Import) -> Vec<Finding> {
    let with_url: Vec<(&Sample, &str)> =
        import.samples.iter().filter_map(|s| Some((s, s.asked.url.as_deref()?))).collect();
    let (usual, names) = (usual_hosts(&with_url), Names::of(import));
    let owners: BTreeMap<&str, &str> =
        usual.iter().rev().map(|(variant, host)| (*host, *variant)).collect();
    let mut found = Vec::new();
    for (sample, url) in &with_url {
        let mut add = |text: String| {
            let means = "the output is under the wrong heading, or that variant was tested at the \
                         wrong address: it is not known whose numbers these are";
            found.push(Finding::new(Code::WrongHeading, Severity::Warn, text, means).of(sample));
        };
        let words = format!("{} {}", sample.headings.join(" "), sample.variant);
        let said = said_ports(&words);
        if let (Some(port), Some(first)) = (port(url), said.first())
            && !said.contains(&port)
        {
            add(format!("its heading says port {first}, its address port {port}"));
            continue;
        }
        let named = names.in_host(sample, url).filter(|other| usual.get(other) != Some(&host(url)));
        if let Some(other) = named {
            add(format!("its address {url} bears the name of '{other}'"));
            continue;
        }
        let own = usual.get(sample.variant.as_str());
        let owner = owners.get(host(url)).filter(|other| **other != sample.variant);
        match (own, owner) {
            (Some(own), Some(other)) if *own != host(url) => add(format!(
                "it was asked at {}, as '{other}' is; the other outputs of its heading at {own}",
                host(url)
            )),
            (Some(own), None) if *own != host(url) => add(format!(
                "it was asked at {}, the other outputs of its heading at {own}",
                host(url)
            )),
            _ => {}
        }
    }
    found.extend(shared_addresses(import, &usual));
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

/// The address of most outputs of each variant.
fn usual_hosts<'a>(all: &[(&'a Sample, &'a str)]) -> BTreeMap<&'a str, &'a str> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (sample, url) in all {
        *counts.entry((sample.variant.as_str(), host(url))).or_default() += 1;
    }
    let mut usual: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for ((variant, host), n) in counts {
        let known = usual.entry(variant).or_insert((host, n));
        if n > known.1 {
            *known = (host, n);
        }
    }
    usual.into_iter().map(|(variant, (host, _))| (variant, host)).collect()
}

/// Words that tell variants apart, of each.
struct Names<'a>(Vec<(&'a str, Vec<String>)>);

impl<'a> Names<'a> {
    fn of(import: &'a Import) -> Self {
        Self(import.variants().into_iter().map(|name| (name, telling(name))).collect())
    }

    /// The variant whose name the address's host bears, where it is not the output's own.
    fn in_host(&self, sample: &Sample, url: &str) -> Option<&'a str> {
        let (in_url, own) = (telling(host(url)), telling(&sample.variant));
        if in_url.is_empty() || own.iter().any(|word| in_url.contains(word)) {
            return None;
        }
        let bears = |words: &[String]| {
            words.iter().any(|word| !own.contains(word) && in_url.contains(word))
        };
        let mut others = self.0.iter().filter(|(name, _)| *name != sample.variant);
        others.find(|(_, words)| bears(words)).map(|(name, _)| *name)
    }
}

/// Words of a name that are not everybody's.
fn telling(text: &str) -> Vec<String> {
    const COMMON: [&str; 6] = ["localhost", "host", "http", "https", "local", "the"];
    let text = text.to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| word.len() >= 3 && word.chars().any(char::is_alphabetic));
    words.filter(|word| !COMMON.contains(word)).map(str::to_owned).collect()
}

/// Two variants at one address, where all others have their own.
fn shared_addresses(import: &Import, usual: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let mut by_host: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for variant in import.variants() {
        if let Some(host) = usual.get(variant) {
            by_host.entry(host).or_default().push(variant);
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
