//! Mistakes in what was asked: of whom, how much, and whether it was the same for all.

use std::collections::BTreeMap;

use tare_stats::{Metric, Severity};

use super::Finding;
use crate::command::Command;
use crate::import::Import;
use crate::sample::Sample;

/// Below this share of the asked rate, an open loop was none.
const RATE_MET: f64 = 0.99;
/// Below this share of the asked time, something ended a run.
const TIME_MET: f64 = 0.8;

pub fn rate_missed(sample: &Sample) -> Option<Finding> {
    let asked = sample.asked.rate_per_s?;
    let achieved = sample.value(Metric::Throughput)?;
    // hey's and nighthawk's rates are of one worker; those that are read here are of all.
    if achieved >= asked * RATE_MET {
        return None;
    }
    let text = format!("{achieved:.0} a second of {asked:.0} that were asked for");
    let means = "the server or the client could not keep up: latencies are those of a queue that \
                 grows, and depend on how long the run was";
    Some(Finding::new("rate-missed", Severity::Void, text, means).of(sample))
}

pub fn cut_short(sample: &Sample) -> Option<Finding> {
    let (asked, ran) = (sample.asked.seconds?, sample.seen.seconds?);
    if ran >= asked * TIME_MET {
        return None;
    }
    let text = format!("ran for {ran:.2} of {asked:.0} s");
    let means = "it was interrupted, or ended by a failure: it is not of the same length as the \
                 others, and what ended it may be in its numbers";
    Some(Finding::new("cut-short", Severity::Warn, text, means).of(sample))
}

/// wrk divides connections by threads and forgets the rest.
pub fn connections_lost(sample: &Sample) -> Option<Finding> {
    let (asked, real) = (sample.asked.connections? as f64, sample.connections()?);
    if real >= asked {
        return None;
    }
    let threads = sample.asked.threads.unwrap_or(1);
    let text = format!("{asked} connections on {threads} threads are {real}");
    let means = "wrk gives every thread the same whole number of connections, and drops the rest";
    Some(Finding::new("connections-lost", Severity::Note, text, means).of(sample))
}

/// The output's own address is not the command's.
pub fn other_address(sample: &Sample) -> Option<Finding> {
    let command = sample.command.as_deref().and_then(Command::url_in)?;
    let own = sample.asked.url.as_deref()?;
    let same = trimmed(&command) == trimmed(own);
    // "HOST" and "$URL" stand for what was typed.
    let is_symbol =
        command.contains(['$', '<', '{']) || host(&command).chars().any(|c| c.is_ascii_uppercase());
    if same || is_symbol || sample.asked.url.is_none() {
        return None;
    }
    let text = format!("the command above asks {command}, the output is of {own}");
    let means =
        "the output does not belong to the command, or to the heading, that it stands under";
    Some(Finding::new("wrong-heading", Severity::Warn, text, means).of(sample))
}

fn trimmed(url: &str) -> &str {
    url.trim_matches(['"', '\'']).trim_end_matches('/')
}

fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

fn port(url: &str) -> Option<u16> {
    host(url).rsplit_once(':')?.1.parse().ok()
}

/// Threads, connections and times that differ between variants of a case.
pub fn unequal_load(import: &Import) -> Vec<Finding> {
    let mut found = Vec::new();
    let path = |url: &String| {
        let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        rest.split_once('/').map_or(String::new(), |(_, path)| path.to_owned())
    };
    for case in import.cases() {
        let Some(base) = import.of(case, &import.baseline).next() else { continue };
        for sample in import.samples.iter().filter(|s| s.case == case && s.variant != base.variant)
        {
            let (own, theirs) = (&sample.asked, &base.asked);
            let mut told = Vec::new();
            let mut differ = |what: &str, a: Option<String>, b: Option<String>| {
                if let (Some(a), Some(b)) = (a, b)
                    && a != b
                {
                    told.push(format!("{what} {a}, {b} in {}", import.baseline));
                }
            };
            let number = |n: Option<u64>| n.map(|n| n.to_string());
            differ("connections", number(own.connections), number(theirs.connections));
            differ("threads", number(own.threads), number(theirs.threads));
            // Rates are cases of their own; times matter where they differ by much.
            let times = own.seconds.zip(theirs.seconds).filter(|(a, b)| a / b > 1.5 || b / a > 1.5);
            if let Some((a, b)) = times {
                differ("seconds", Some(a.to_string()), Some(b.to_string()));
            }
            differ("path /", own.url.as_ref().map(path), theirs.url.as_ref().map(path));
            if told.is_empty() {
                continue;
            }
            let means = "the variants were not asked the same: a part of the difference is the \
                         load's";
            let text = told.join("; ");
            found.push(Finding::new("unequal-load", Severity::Warn, text, means).of(sample));
        }
    }
    found
}

pub fn different_tools(import: &Import) -> Vec<Finding> {
    let mut found = Vec::new();
    for case in import.cases() {
        let Some(base) = import.of(case, &import.baseline).next() else { continue };
        let others = import.samples.iter().filter(|s| s.case == case && s.variant != base.variant);
        for sample in others.filter(|s| s.tool != base.tool) {
            let text =
                format!("{}, {} in {}", sample.tool.name(), base.tool.name(), import.baseline);
            let means = "tools differ in when they start the clock, what they count as a request, \
                         and how they hold connections";
            found.push(Finding::new("different-tools", Severity::Warn, text, means).of(sample));
        }
    }
    found
}

/// An address or a name that belongs to another heading.
pub fn wrong_headings(import: &Import) -> Vec<Finding> {
    let with_url: Vec<(&Sample, &str)> =
        import.samples.iter().filter_map(|s| Some((s, s.asked.url.as_deref()?))).collect();
    let usual = usual_hosts(&with_url);
    let mut found = Vec::new();
    for (sample, url) in &with_url {
        let mut add = |text: String| {
            let means = "the output stands under a heading that it is not of, or that variant was \
                         asked at the wrong address: whose numbers they are is not known";
            found.push(Finding::new("wrong-heading", Severity::Warn, text, means).of(sample));
        };
        let words = format!("{} {}", sample.headings.join(" "), sample.variant);
        let said = words.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u16>().ok());
        let mut said = said.filter(|n| *n >= 1024).peekable();
        let own_port = port(url);
        if let (Some(port), Some(first)) = (own_port, said.peek().copied())
            && words.to_lowercase().contains("port")
            && !said.any(|n| n == port)
        {
            add(format!("its heading says port {first}, its address port {port}"));
            continue;
        }
        if let Some(other) = another_name(import, sample, url) {
            add(format!("its address {url} bears the name of '{other}'"));
            continue;
        }
        let own = usual.get(sample.variant.as_str());
        let owner =
            usual.iter().find(|(name, usual)| **name != sample.variant && **usual == host(url));
        match (own, owner) {
            (Some(own), Some((other, _))) if *own != host(url) => add(format!(
                "it was asked at {}, as '{other}' is; the other outputs of its heading at {own}",
                host(url)
            )),
            _ => {}
        }
    }
    found.extend(shared_addresses(import, &usual));
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

/// The address has a word that names another variant, and none of its own.
fn another_name(import: &Import, sample: &Sample, url: &str) -> Option<String> {
    let words = |text: &str| -> Vec<String> {
        let text = text.to_lowercase();
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() >= 3);
        words.filter(|word| word.chars().any(char::is_alphabetic)).map(str::to_owned).collect()
    };
    let in_url = words(url);
    let own = words(&sample.variant);
    if own.iter().any(|word| in_url.contains(word)) {
        return None;
    }
    let mut others = import.variants().into_iter().filter(|name| *name != sample.variant);
    others
        .find(|name| {
            let theirs = words(name);
            let telling = theirs.iter().filter(|word| !own.contains(word) && *word != "http");
            let mut telling = telling.filter(|word| *word != "localhost" && *word != "host");
            telling.any(|word| in_url.contains(word))
        })
        .map(str::to_owned)
}

/// Two variants at one address, where others have their own.
fn shared_addresses(import: &Import, usual: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let distinct: std::collections::BTreeSet<&&str> = usual.values().collect();
    if distinct.len() < 2 || usual.len() < 3 {
        return Vec::new();
    }
    // Every machine has a loopback of its own.
    let is_loopback = |host: &str| host.starts_with("localhost") || host.starts_with("127.");
    let loopbacks = usual.values().filter(|host| is_loopback(host)).count();
    if loopbacks > 0 && loopbacks < usual.len() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let order = import.variants();
    for (at, variant) in order.iter().enumerate() {
        let Some(host) = usual.get(variant) else { continue };
        let earlier = order[..at].iter().find(|other| usual.get(*other) == Some(host));
        if let Some(other) = earlier {
            let text = format!("'{variant}' was asked at {host}, as '{other}' was");
            let means = "where every variant has an address of its own, two at the same one may be \
                         the same server under two headings";
            let mut finding = Finding::new("wrong-heading", Severity::Warn, text, means);
            finding.variant = Some((*variant).to_owned());
            found.push(finding);
        }
    }
    found
}
