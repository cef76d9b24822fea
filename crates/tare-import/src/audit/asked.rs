//! Outputs that do not fit the command or the heading above them.

use std::collections::BTreeMap;

use tare_guards::{Code, Severity};

use super::Finding;
use crate::command::Command;
use crate::import::Import;
use crate::sample::Sample;

/// Reports an output if its load differs from what the command above it asks for.
pub fn other_than_asked(sample: &Sample) -> Option<Finding> {
    // A command further up may belong to another output.
    if !sample.is_commands_own {
        return None;
    }
    let asked = Command::asked_by(sample.command.as_deref()?)?;
    let mut told = Vec::new();
    if let (Some(command), Some(own)) = (&asked.url, &sample.asked.url) {
        // "HOST" and "$URL" are placeholders.
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
        // Earlier versions stored the sum of several processes, which no command asked for.
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
    Some(Finding::new(Code::OtherCommand, Severity::Warn, text, means).about(sample))
}

/// Strips quotes, the default port, and the last slash.
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

/// Reports outputs with the address of another heading, if most outputs under their own heading
/// have a different one.
pub fn wrong_headings(import: &Import) -> Vec<Finding> {
    let asked = import.samples.iter().filter_map(|s| Some((s, host(s.asked.url.as_deref()?))));
    let asked: Vec<(&Sample, &str)> = asked.collect();
    let mut hosts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (sample, host) in &asked {
        *hosts.entry(&sample.under).or_default().entry(host).or_default() += 1;
    }
    // The address of most outputs under a heading; `None` on a tie.
    let usual = |under: &str| {
        let most = hosts[under].values().max()?;
        let mut usual = hosts[under].iter().filter(|(_, n)| *n == most);
        usual.next().filter(|_| usual.next().is_none()).map(|(host, _)| *host)
    };
    let of = |(sample, host): &(&Sample, &str)| {
        let own = usual(&sample.under).filter(|own| own != host)?;
        let is_all_there = |at: &BTreeMap<&str, usize>| at.len() == 1 && at.contains_key(host);
        let (other, _) = hosts.iter().find(|(_, at)| is_all_there(at))?;
        let text = format!(
            "it stands under '{}', and its address {host} is that of '{other}'; that of its own \
             heading is {own}",
            sample.under
        );
        let means = "either the output stands under the wrong heading, or that variant was tested at \
                     the wrong address: it is unclear whose numbers these are";
        Some(Finding::new(Code::WrongHeading, Severity::Warn, text, means).about(sample))
    };
    asked.iter().filter_map(of).collect()
}
