//! Whether variants answer like the baseline, by probes and by the replies under load.

use tare_model::plan::PlanParts;
use tare_model::samples::Probe;
use tare_model::variant::Difference;

use crate::evidence::Evidence;
use crate::format::{bytes, count};
use crate::rules::LoadKind;
use crate::{Code, LineWords, RunGuard, Severity, guard};

/// Average body sizes that differ by more are different work, even if probes agreed.
const BODY_APART: f64 = 0.01;
const RANDOM_BODY_APART: f64 = 0.1;

/// One thing in which a reply differs from the baseline's.
struct Differs {
    /// The setting of `may_differ` that allows it.
    in_what: Difference,
    text: String,
}

/// Guards for variants that answer differently from the baseline in an undeclared way.
pub fn unequal_probes(plan: &PlanParts, probes: &[Option<&Probe>]) -> Vec<RunGuard> {
    let baseline = plan.baseline();
    let guards = (0..plan.variants.len()).filter(|variant| *variant != baseline).flat_map(|at| {
        match (probes.get(baseline).copied().flatten(), probes.get(at).copied().flatten()) {
            (Some(base), Some(mine)) => unequal_pair(plan, at, base, mine),
            _ => Vec::new(),
        }
    });
    guards.collect()
}

/// Why probes forbid comparing any variant with the baseline.
pub fn probes_forbid_all(plan: &PlanParts, probes: &[Option<&Probe>]) -> Option<String> {
    let guards = unequal_probes(plan, probes);
    let void = |name: &str| {
        let own = |guard: &&RunGuard| guard.variant.as_deref() == Some(name);
        guards.iter().filter(own).find(|guard| guard.severity == Severity::Void)
    };
    let baseline = plan.baseline();
    let others = plan.variants.iter().enumerate().filter(|(at, _)| *at != baseline);
    let told: Option<Vec<String>> = others
        .map(|(_, variant)| {
            let LineWords { seen, cure } = &void(&variant.name)?.line;
            let seen = seen.as_deref().unwrap_or("replies differ");
            let cure = cure.as_deref().unwrap_or_default();
            let (name, base) = (&variant.name, &plan.variants[baseline].name);
            Some(format!("{name} against {base} is void: {seen}; {cure}"))
        })
        .collect();
    told.filter(|told| !told.is_empty()).map(|told| told.join("; "))
}

fn unequal_pair(plan: &PlanParts, at: usize, base: &Probe, mine: &Probe) -> Vec<RunGuard> {
    let facts = &plan.variants[at];
    let both_tls = facts.is_tls() && plan.variants[plan.baseline()].is_tls();
    let mut found = differences(base, mine, both_tls);
    found.retain(|one| !facts.may_differ_in(one.in_what));
    let mut guards = Vec::new();
    if !found.is_empty() {
        let told: Vec<&str> = found.iter().map(|one| one.text.as_str()).collect();
        let told = told.join("; ");
        let mut allows: Vec<&str> = found.iter().map(|one| one.in_what.word()).collect();
        allows.dedup();
        let allows = allows.join(",");
        let text = format!(
            "its reply differs from the baseline's: {told}; if that is intended, declare it \
             (--may-differ {allows})"
        );
        guards = guard(Code::UnequalReply, Severity::Void, Some(&facts.name), text);
        guards[0].line = LineWords {
            seen: Some(format!("replies differ: {told}")),
            cure: Some(format!("make them equal, or run with --may-differ {allows}")),
        };
    }
    if !facts.may_differ_in(Difference::Headers) {
        guards.extend(other_headers(base, mine).into_iter().flat_map(|text| {
            // Servers name themselves and their caches differently while doing the same work.
            guard(Code::UnequalReply, Severity::Note, Some(&facts.name), text)
        }));
    }
    guards
}

fn differences(base: &Probe, mine: &Probe, both_tls: bool) -> Vec<Differs> {
    let mut found = Vec::new();
    let mut add = |in_what, text: String| found.push(Differs { in_what, text });
    if base.status != mine.status {
        add(Difference::Status, format!("status {} against {}", mine.status, base.status));
    }
    if base.body_bytes != mine.body_bytes {
        let (mine_bytes, base_bytes) = (count(mine.body_bytes), count(base.body_bytes));
        add(Difference::Body, format!("{mine_bytes} bytes against {base_bytes}"));
    } else if base.body_sha256 != mine.body_sha256 && base.body_stable && mine.body_stable {
        let size = count(mine.body_bytes);
        let at = mine.first_difference.as_ref().map_or(String::new(), |at| format!(" ({at})"));
        add(Difference::Body, format!("{size} bytes in both, with different contents{at}"));
    }
    if base.content_encoding != mine.content_encoding {
        let words = |probe: &Probe| probe.content_encoding.clone().unwrap_or_else(|| "none".into());
        let text = match &base.content_encoding {
            None => format!("content-encoding: {}", words(mine)),
            Some(_) => format!("content-encoding: {} against {}", words(mine), words(base)),
        };
        add(Difference::Body, text);
    }
    if base.connection_kept != mine.connection_kept {
        let text = match mine.connection_kept {
            true => "it keeps connections open, but the baseline closes them after each reply",
            false => "it closes the connection after each reply",
        };
        add(Difference::Connection, text.into());
    }
    if both_tls && base.tls != mine.tls {
        let name = |probe: &Probe| probe.tls.clone().unwrap_or_else(|| "no TLS".into());
        add(Difference::Tls, format!("{} against {}", name(mine), name(base)));
    }
    found
}

fn other_headers(base: &Probe, mine: &Probe) -> Option<String> {
    if base.header_names == mine.header_names {
        return None;
    }
    let only = |a: &Probe, b: &Probe| {
        let names = a.header_names.iter().filter(|name| !b.header_names.contains(name));
        names.map(String::as_str).collect::<Vec<&str>>().join(", ")
    };
    let differences = [("it also sends", only(mine, base)), ("it lacks", only(base, mine))];
    let differences = differences.iter().filter(|(_, names)| !names.is_empty());
    let told: Vec<String> = differences.map(|(how, names)| format!("{how} {names}")).collect();
    Some(format!("its headers differ from the baseline's: {}", told.join("; ")))
}

/// Compares probes, in the first round in which they differ, and then sizes of replies under load.
pub(crate) fn unequal_reply(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let baseline = evidence.question.baseline;
    if variant == baseline {
        return Vec::new();
    }
    let facts = &evidence.plan.variants[variant];
    let pairs = evidence.digests.iter().filter_map(|digest| {
        let probe = |v: usize| digest.variants[v].launch.as_ref()?.probe.as_ref();
        Some((probe(baseline)?, probe(variant)?))
    });
    let mut found: Vec<RunGuard> = Vec::new();
    for own in pairs.map(|(base, mine)| unequal_pair(evidence.plan, variant, base, mine)) {
        for guard in own {
            if found.iter().all(|known| known.severity != guard.severity) {
                found.push(guard);
            }
        }
    }
    if found.iter().any(|guard| guard.severity == Severity::Void) {
        return found;
    }
    let size = |v: usize| {
        let counts = &evidence.totals[v].counts;
        counts.body_bytes as f64 / counts.completed.max(1) as f64
    };
    let (base, mine) = (size(baseline), size(variant));
    // With paths in random order, one variant gets more of the long replies by chance.
    let at_random = evidence.plan.load.http().is_some_and(|http| http.paths.at_random());
    let allowed = if at_random { RANDOM_BODY_APART } else { BODY_APART };
    let apart = (mine - base).abs() > base.max(mine) * allowed;
    let measured = |v: usize| evidence.totals[v].counts.completed > 0;
    // Streams have no replies to compare.
    let replies = LoadKind::by(&evidence.plan.load) == LoadKind::Replies;
    let is_unequal = apart && replies && measured(variant) && measured(baseline);
    if !is_unequal || facts.may_differ_in(Difference::Body) {
        return found;
    }
    let (mine, base) = (bytes(mine), bytes(base));
    let text = format!(
        "under load its replies have {mine} on average, the baseline's {base}: not the same work"
    );
    let mut guards = guard(Code::UnequalReply, Severity::Void, Some(&facts.name), text);
    guards[0].line.seen = Some(format!("replies differ under load: {mine} against {base}"));
    guards.extend(found);
    guards
}

/// Replies that would fit one TCP segment but come in several. A polling client acknowledges each,
/// which costs the server CPU time: the baseline costs more than it needs to, and overheads in
/// percent come out too small.
pub(crate) fn split_replies(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let segments = |v: usize| {
        let launches = evidence.digests.iter().filter_map(|d| d.variants[v].launch.as_ref());
        launches.filter_map(|launch| launch.probe.as_ref()?.reply_segments).min()
    };
    let (base, mine) = (segments(evidence.question.baseline), segments(variant));
    let name = &evidence.plan.variants[variant].name;
    match (base, mine) {
        (_, Some(mine)) if mine > 1 && variant == evidence.question.baseline => {
            let text = format!(
                "each of its replies would fit one TCP segment but is sent in {mine}: it writes \
                 head and body separately, which costs it more the faster a client reads"
            );
            guard(Code::SplitReplies, Severity::Warn, Some(name), text)
        }
        (Some(base), Some(mine)) if mine > base => {
            let text = format!(
                "each of its replies is sent in {mine} TCP segments, the baseline's in {base}"
            );
            guard(Code::SplitReplies, Severity::Note, Some(name), text)
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use tare_model::samples::Probe;

    use super::*;

    fn told(change: impl Fn(&mut Probe)) -> Vec<String> {
        let base = Probe {
            status: 200,
            body_bytes: 1710,
            body_sha256: "a".into(),
            body_stable: true,
            connection_kept: true,
            ..Probe::default()
        };
        let mut mine = base.clone();
        change(&mut mine);
        differences(&base, &mine, true).into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn differences_are_told_by_their_figures() {
        let gzip = |probe: &mut Probe| {
            probe.body_bytes = 8822;
            probe.content_encoding = Some("gzip".into());
        };
        assert_eq!(told(gzip), ["8,822 bytes against 1,710", "content-encoding: gzip"]);
        assert_eq!(told(|probe| probe.status = 403), ["status 403 against 200"]);
        let closes = |probe: &mut Probe| probe.connection_kept = false;
        assert_eq!(told(closes), ["it closes the connection after each reply"]);
        let bytes = |probe: &mut Probe| {
            probe.body_sha256 = "b".into();
            probe.first_difference = Some("byte 17: \"1\" against \"2\"".into());
        };
        let expected =
            "1,710 bytes in both, with different contents (byte 17: \"1\" against \"2\")";
        assert_eq!(told(bytes), [expected]);
        let random = |probe: &mut Probe| {
            probe.body_sha256 = "b".into();
            probe.body_stable = false;
        };
        assert!(told(random).is_empty(), "it changes from reply to reply");
        assert!(told(|_| ()).is_empty());
    }
}
