//! Outputs of processes that ran at once are parts of one load: they are added up, not averaged.

use std::collections::BTreeMap;

use tare_model::Metric;

use crate::command::Command;
use crate::sample::Draft;

/// Outputs that one command made, which the text shows to have started several load generators.
/// What the user names differently stays apart.
pub fn added(drafts: Vec<Draft>, given_at: &BTreeMap<u32, String>) -> Vec<Draft> {
    let mut found: Vec<Vec<Draft>> = Vec::new();
    for draft in drafts {
        let given = |draft: &Draft| given_at.get(&draft.source.first_line);
        let is_part = |group: &&mut Vec<Draft>| {
            is_part(&group[0], &draft) && given(&group[0]) == given(&draft)
        };
        match found.last_mut().filter(is_part) {
            Some(group) => group.push(draft),
            None => found.push(vec![draft]),
        }
    }
    found.into_iter().map(sum).collect()
}

fn is_part(first: &Draft, next: &Draft) -> bool {
    let place = |draft: &Draft| (draft.passage, draft.tool, draft.typed.clone());
    let name = |draft: &Draft| (draft.own_name.clone(), draft.own_case.clone());
    let is_shown = first.command.as_ref().is_some_and(|command| starts_several(command));
    is_shown
        && place(first) == place(next)
        && name(first) == name(next)
        && first.headings == next.headings
        && first.command == next.command
        && first.asked.url == next.asked.url
}

/// "wrk http://h/ &", "for i in 0 1; do taskset -c $i wrk http://h/ & done", "xargs -P 4 wrk …": the
/// load generator itself goes on behind the shell, and nobody waits for each.
fn starts_several(command: &str) -> bool {
    let words = Command::words(command);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(tool) = words.iter().position(|word| Command::is_tool(word)) else { return false };
    let (before, after) = words.split_at(tool);
    let is_end = |word: &&str| matches!(*word, ";" | "&" | "&&" | "|" | "||" | "done");
    let is_behind = after.iter().find(|word| is_end(word)) == Some(&"&");
    let body = after.iter().take_while(|word| **word != "done");
    let waits = after.contains(&"done") && body.clone().any(|word| *word == "wait");
    let loops = before.iter().filter(|word| matches!(**word, "for" | "while")).count();
    let many = |n: &str| n.parse::<u32>().is_ok_and(|n| n != 1);
    let is_xargs = before.contains(&"xargs")
        && (before.windows(2).any(|two| two[0] == "-P" && many(two[1]))
            || before.iter().any(|word| word.strip_prefix("-P").is_some_and(many)));
    (is_behind && !waits && loops < 2) || is_xargs || before.contains(&"parallel")
}

/// Rates and counts add up, and a mean is that of all requests; percentiles cannot be known.
fn sum(mut parts: Vec<Draft>) -> Draft {
    if parts.len() < 2 {
        return parts.remove(0);
    }
    let total = |of: &dyn Fn(&Draft) -> Option<f64>| parts.iter().map(of).sum::<Option<f64>>();
    let count =
        |of: fn(&Draft) -> Option<u64>| total(&|part| Some(of(part)? as f64)).map(|n| n as u64);
    let value = |part: &Draft, metric: Metric| part.values.get(metric.key()).copied();
    let mut all = Draft::new(parts[0].tool);
    for metric in [Metric::Throughput, Metric::Bandwidth] {
        total(&|part| value(part, metric)).into_iter().for_each(|sum| all.put(metric, sum));
    }
    let requests = count(|part| part.seen.requests);
    let waited =
        total(&|part| Some(value(part, Metric::LatencyMean)? * part.seen.requests? as f64));
    let mean = waited.zip(requests.filter(|n| *n > 0)).map(|(ns, n)| ns / n as f64);
    mean.into_iter().for_each(|ns| all.put(Metric::LatencyMean, ns));
    all.asked = parts[0].asked.clone();
    all.asked.threads = count(|part| part.asked.threads);
    all.asked.connections = count(|part| part.asked.connections);
    all.asked.requests = count(|part| part.asked.requests);
    all.asked.rate_per_s = total(&|part| part.asked.rate_per_s);
    all.seen.requests = requests;
    all.seen.bytes = total(&|part| part.seen.bytes);
    all.seen.bytes_step = total(&|part| part.seen.bytes_step);
    all.seen.body_bytes = total(&|part| part.seen.body_bytes);
    all.seen.bytes_are_bodies = parts[0].seen.bytes_are_bodies;
    all.seen.bad_status = count(|part| part.seen.bad_status);
    all.seen.opened = count(|part| part.seen.opened);
    let most = |of: fn(&Draft) -> Option<f64>| parts.iter().filter_map(of).reduce(f64::max);
    all.seen.seconds = most(|part| part.seen.seconds);
    all.seen.latency_max_ns = most(|part| part.seen.latency_max_ns);
    for part in &parts {
        part.seen.errors.iter().for_each(|(kind, n)| all.put_errors(kind, *n));
    }
    all.added = parts.iter().map(|part| part.source.first_line).collect();
    let text: Vec<&str> = parts.iter().map(|part| part.source.text.as_str()).collect();
    let text = text.join("\n");
    let last_line = parts.last().map_or(0, |part| part.source.last_line);
    let first = parts.remove(0);
    all.source = first.source;
    (all.source.text, all.source.last_line) = (text, last_line);
    (all.headings, all.typed, all.command) = (first.headings, first.typed, first.command);
    (all.own_name, all.own_case) = (first.own_name, first.own_case);
    (all.passage, all.is_first_of_typed) = (first.passage, first.is_first_of_typed);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_start_several() {
        for shown in [
            "wrk -c9 http://h/ &",
            "wrk -c9 http://h/?a=1&b=2 &",
            "for i in 0 1; do taskset -c $i wrk http://h/ & done; wait",
            "for i in 0 1; do wrk http://h/ > $i.log & done; wait; cat ?.log",
            "seq 4 | xargs -P 4 -I{} wrk http://h/",
            "parallel wrk -c9 http://h/ ::: 1 2",
        ] {
            assert!(starts_several(shown), "{shown}");
        }
        for one in [
            "wrk http://h/ && wrk http://h/",
            "wrk 'http://h/?a=1&b=2'",
            "./server & wrk -c9 http://h/",
            "for i in 1 2; do mpstat 1 30 > c.$i & wrk http://h/; done",
            "for i in 1 2; do wrk http://h/ & wait; done",
            "for r in 1 2; do for c in 0 1; do wrk http://h/ & done; wait; done",
            "iperf3 --parallel 4 -c h",
            "seq 4 | xargs -P 1 wrk http://h/",
        ] {
            assert!(!starts_several(one), "{one}");
        }
    }
}
