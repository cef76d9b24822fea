//! Reports of made-up rounds: every format to the byte, what pages say, and the published schema.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod made_up;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest as hash_of};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use tare_import::{FileDrafts, assemble};
use tare_model::Metric;
use tare_model::counters::{Counter, Counters};
use tare_model::places::{PlaceSpec, SshSpec};
use tare_model::samples::{ClientPart, ConcurrentClients, Launch, Proof, Round};
use tare_model::servers::ServerSpec;
use tare_model::steps::{Images, Procedure, Repetition, Step, StepKind, Timed, Wait};
use tare_model::usage::Usage;
use tare_model::variant::{Skipped, Variant};
use tare_report::formats::{Document, Form};
use tare_report::import::ImportDocument;
use tare_report::pair::PairDocument;
use tare_report::run::csv;
use tare_report::run::document::RunDocument;
use tare_report::run::from_rounds::{RunFacts, build};
use tare_report::run::markdown;
use tare_report::run::terminal;
use tare_report::run::{GateResult, RunReport};
use tare_report::steps::{StepsAsked, StepsReport, analyse};
use tare_report::sweep::cells::MissingCell;
use tare_report::sweep::document::SweepDocument;
use tare_report::timeline::Timeline;
use tare_stats::{Verdict, digests};

use made_up::{disturbed_throughout, facts, part, round, rounds, rounds_of, slice};

/// CPU use of such servers cannot be separated from that of other programs.
#[test]
fn others_are_not_seen_beside_servers_that_stand() {
    let mut stands = facts();
    let spec = serde_json::from_str("{\"relaunch\": \"true\"}").unwrap();
    stands.plan.variants[1].server = ServerSpec::Standing(spec);
    let busy = |round: &mut Round| round.machine.own_cpu_ns = 0;
    let noisy = |facts: &_| build(facts, &rounds(busy)).guards.iter().any(|g| g.code == "noisy");
    assert!(noisy(&facts()) && !noisy(&stands));
}

#[test]
fn a_resumed_run_goes_on_counting_starts_of_its_place() {
    let starts = |round: &mut Round| round.launches[1].place_starts = round.index % 12 + 1;
    let report = build(&facts(), &rounds(starts));
    let counted = report.variants[1].place_launches;
    assert!((24..=25).contains(&counted), "{counted}");
}

fn report() -> RunReport {
    build(&facts(), &rounds(|_| {}))
}

#[test]
fn columns_that_a_terminal_has_no_room_for_are_with_all_figures() {
    let both = |length: usize| {
        let mut facts = facts();
        facts.plan.variants[1].name = "x".repeat(length);
        let document = document_of(&facts, |_| {});
        [Form::Text, Form::Why].map(|form| document.render(form).unwrap())
    };
    let ([short, _], [long, why]) = (both(4), both(60));
    assert!(short.contains(" p50 ") && short.contains("--why # all figures"), "{short}");
    assert!(!long.contains(" p50 ") && !long.contains(" memory "), "{long}");
    assert!(why.contains(" p50 ") && why.contains(" memory "), "{why}");
}

/// Makes the second variant's requests pass these hops, which use this much CPU.
fn with_hops(round: &mut Round, hops: &[(&str, u64)]) {
    let launch = &mut round.launches[1];
    for (at, (name, _)) in hops.iter().enumerate() {
        launch.parts.insert(at, part(name, "netns", 5_000_000));
    }
    launch.rss_bytes = launch.parts.iter().map(|part| part.rss_bytes).sum();
    for used in round.slices.iter_mut().filter(|s| s.variant == 1).flat_map(|s| &mut s.used) {
        let cpu = hops.iter().map(|(_, ns)| Counters::default().with(Counter::Cpu, *ns));
        *used = Usage::of_parts(used.all, cpu.collect());
    }
}

#[test]
fn each_hop_has_columns_of_its_own_and_their_sum_where_there_are_several() {
    let render = |hops: &'static [(&str, u64)]| {
        let document = document_of(&facts(), |round| with_hops(round, hops));
        (terminal::render(&document.report), document.report)
    };
    let (one, report) = render(&[("proxy nginx", 40_000_000)]);
    let header = one.lines().find(|line| line.contains("CPU/request")).unwrap();
    assert!(header.contains("proxy nginx CPU") && header.contains("proxy nginx memory"), "{one}");
    assert!(!one.contains("layers'"), "{one}");
    let of = |part: &str| {
        let metric = report.variants[1].metric_of(part, Metric::ServerCpu);
        metric.unwrap().point
    };
    let whole = report.variants[1].metric(Metric::ServerCpu).unwrap().point;
    assert!((of("proxy nginx") + of("server") - whole).abs() / whole < 0.01);
    assert_eq!(report.variants[1].parts[0].place, "netns");
    assert_eq!(report.variants[0].hops(), []);
    let (two, _) = render(&[("client's proxy", 40_000_000), ("server's proxy", 20_000_000)]);
    assert!(two.contains("layers' CPU"), "{two}");
    assert!(!two.contains("client's proxy memory") && !one.contains(" p50 "), "{two}\n{one}");
}

#[test]
fn what_cpu_per_request_leaves_out_has_a_column_where_it_is_much() {
    let text = |ns: u64| {
        let document = document_of(&facts(), |round| {
            for used in round.slices.iter_mut().flat_map(|slice| &mut slice.used) {
                used.all = used.all.with(Counter::Softirq, ns);
            }
        });
        terminal::render(&document.report)
    };
    // The variant uses 95 ms.
    assert!(text(5_000_000).contains("softirq CPU"), "{}", text(5_000_000));
    assert!(!text(1_000_000).contains("softirq CPU"));
}

/// Clients that sleep get this share of the replies from the second server, in percent.
fn by_sleepers(kept: u64) -> String {
    let report = build(
        &facts(),
        &rounds(|round| {
            round.by_sleepers = round.slices.clone();
            for slice in &mut round.by_sleepers {
                slice.cycle += round.cycles;
                let counts = &mut slice.counts;
                for n in [&mut counts.good, &mut counts.completed, &mut counts.answered] {
                    *n = if slice.variant == 1 { *n * kept / 96 } else { *n };
                }
            }
        }),
    );
    terminal::render(&report)
}

#[test]
fn sizes_that_depend_on_clients_are_told_with_both_figures() {
    let (same_side, either) = (by_sleepers(76), by_sleepers(120));
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat(&same_side).contains("+3.9 % with clients that poll, +24.0 % with clients that sleep"),
        "{same_side}"
    );
    assert!(flat(&same_side).contains("depending on how it is loaded"), "{same_side}");
    assert!(flat(&either).contains("with clients that poll, but −20"), "{either}");
    assert!(!by_sleepers(96).contains("sleep"), "what agrees is not told");
}

#[test]
fn a_guard_on_the_baseline_voids_all() {
    let report = build(&facts(), &rounds(|round| round.launches[0].requests_served = Some(1)));
    assert!(report.comparisons.iter().all(|c| c.verdict == Verdict::Void));
    assert_eq!(report.why_void("=<b>filter</b>").unwrap().code, "count-mismatch");
    let text = terminal::render(&report).replace("\n  ", " ");
    assert!(
        text.contains("is void: none: the server counted more or fewer requests than were sent"),
        "{text}"
    );
}

fn golden(name: &str, got: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testdata").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(got, expected, "{}: set UPDATE_GOLDEN=1 where the change is meant", path.display());
}

/// Lists of stored runs keep conclusions by the version of the method.
#[test]
fn what_is_concluded_changes_with_the_version_of_the_method_alone() {
    let version = tare_stats::analysis::VERSION;
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testdata/concluded.json");
    let concluded = report().comparisons;
    let concluded = concluded.iter().map(|c| (c.metric, c.overhead_percent, c.verdict));
    let got = (version, concluded.collect::<Vec<_>>());
    let got = serde_json::to_string_pretty(&got).unwrap() + "\n";
    let expected = std::fs::read_to_string(&path).unwrap();
    let is_newer = !expected.starts_with(&format!("[\n  {version},\n"));
    if is_newer && std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &got).unwrap();
        return;
    }
    assert_eq!(
        got, expected,
        "raise VERSION in tare-stats/src/analysis.rs (then UPDATE_GOLDEN=1): stored runs conclude \
         other than before"
    );
}

fn document() -> RunDocument {
    document_of(&facts(), |_| {})
}

fn document_of(facts: &RunFacts, change: impl Fn(&mut Round)) -> RunDocument {
    let mut timeline = Timeline::default();
    let rounds = (0..24).map(|index| {
        let mut round = round(index);
        change(&mut round);
        timeline.add(&round, Metric::Throughput);
        round
    });
    let rounds: Vec<Round> = rounds.collect();
    let digests = digests(&rounds, facts.plan.variants.len(), 0);
    RunDocument::new(facts.clone(), digests, timeline)
}

/// Loops over all formats, so that one without a golden file fails. Of a page, the golden file holds
/// what it says; browser tests look at how.
#[track_caller]
fn every_form(name: &str, document: &dyn Document) {
    for form in Form::ALL {
        match document.render(form) {
            Err(_) => {}
            Ok(page) if form == Form::Html => golden(&format!("{name}.page"), &words_of(&page)),
            Ok(text) => golden(&format!("{name}.{}", form.word()), &text),
        }
    }
}

/// Returns what a page says between its style and its scripts: a line for each element with text, a
/// row of a table as one line with its empty cells, the labels and links that are attributes; and
/// for each plot how many shapes of each kind it has, and the texts of its tips.
fn words_of(page: &str) -> String {
    let (_, rest) = page.split_once("</style>").unwrap();
    let (body, _) = rest.split_once("<div id=\"tip\"").unwrap();
    let (mut lines, mut line) = (Vec::new(), String::new());
    let mut shapes: Option<BTreeMap<&str, usize>> = None;
    for piece in body.split('<') {
        let (tag, text) = piece.split_once('>').unwrap_or(("", piece));
        let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap_or_default();
        if name == "script" {
            lines.extend(tips(text));
            continue;
        }
        match (name, &mut shapes) {
            ("svg", Some(seen)) if tag.starts_with('/') => lines.push(format!("[plot: {seen:?}]")),
            ("g" | "text" | "tspan" | "title", Some(_)) | ("svg", _) => {}
            (_, Some(seen)) if !tag.starts_with('/') => *seen.entry(name).or_default() += 1,
            _ => {}
        }
        match name {
            "svg" => shapes = (!tag.starts_with('/')).then(BTreeMap::new),
            "td" | "th" if !tag.starts_with('/') => line += " | ",
            // These are within a line of text.
            "a" | "b" | "code" | "em" | "i" | "kbd" | "span" | "strong" | "td" | "th" | "tspan" => {
            }
            _ => lines.push(std::mem::take(&mut line)),
        }
        for attribute in ["aria-label", "class", "data-title", "href", "title"] {
            let value = tag.split_once(&format!(" {attribute}=\"")).map(|(_, rest)| rest);
            let value = value.and_then(|value| value.split_once('"')).map(|(value, _)| value);
            if let Some(value) = value.filter(|value| *value != "number") {
                line += &format!("[{attribute} {value}] ");
            }
        }
        line += text;
    }
    lines.push(line);
    let lines = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("\n") + "\n"
}

/// Returns the texts of a plot's tips, from its JSON.
fn tips(json: &str) -> Vec<String> {
    let hits: Vec<Value> = serde_json::from_str(json).unwrap_or_default();
    hits.iter().map(|hit| format!("[tip: {}]", hit[2])).collect()
}

#[test]
fn every_form_of_a_run_to_the_byte() {
    let document = document();
    let of_checks = [Form::Junit, Form::Annotations];
    let of_runs = Form::ALL.into_iter().filter(|form| !of_checks.contains(form));
    assert!(of_runs.into_iter().all(|form| document.form(form).is_some()));
    every_form("run", &document);
}

#[test]
fn every_form_of_a_sweep_to_the_byte() {
    let cell = |connections: &str, id: i64| {
        let mut facts = facts();
        facts.id = id;
        facts.plan.name = format!("{} (connections {connections})", facts.plan.name);
        let values = [("connections".to_owned(), connections.to_owned())];
        (values.into(), document_of(&facts, |_| {}))
    };
    let missing = MissingCell {
        values: [("connections".to_owned(), "90".to_owned())].into(),
        reason: "the server ended".into(),
    };
    every_form("sweep", &SweepDocument::new(vec![cell("10", 7), cell("40", 8)], vec![missing]));
}

fn gate() -> GateResult {
    GateResult {
        gate: "p99 > 5%".into(),
        passed: Some(true),
        text: "filter p99 +1.0 % ± 0.2".into(),
    }
}

fn pair() -> PairDocument {
    let before = document();
    let mut later = facts();
    (later.id, later.started_unix_ms) = (9, later.started_unix_ms + 86_400_000);
    later.machine = serde_json::json!({ "cpus": [0, 1, 2] });
    // The variant loses a tenth, and the machine is slower by a fifth.
    let after = document_of(&later, |round| {
        round.launches.iter_mut().for_each(|launch| launch.load.sustained = None);
        for slice in &mut round.slices {
            let lost = if slice.variant == 0 { 20 } else { 28 };
            let counts = &mut slice.counts;
            counts.good -= counts.good * lost / 100;
            counts.completed = counts.good;
            counts.body_bytes = counts.good * 612;
            counts.status = vec![(200, counts.good)];
            counts.started = counts.completed + counts.drained;
        }
    });
    let pair = PairDocument::new(&before, &after, &[Metric::Throughput]).unwrap();
    PairDocument { gates: vec![gate()], ..pair }
}

#[test]
fn every_form_of_a_pair_to_the_byte() {
    let pair = pair();
    let changes = pair.changes.iter().filter(|change| change.asked);
    let percents: Vec<f64> = changes.map(|c| c.overhead_percent.point.round()).collect();
    assert_eq!(percents, [20.0, 10.0], "the machine's part is in the baseline only");
    every_form("pair", &pair);
}

fn import() -> ImportDocument {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let vm = read("confidential-vm.md");
    // A file in which the second and third blocks are cut off.
    let cut = [&vm[..780], b"\n```\n# Cut\nRunning 1s test @ http://h/\n"].concat();
    // How people rewrite outputs, and describe them.
    let told = format!(
        "| variant | requests/s | mean latency | overhead | CPU |\n|---|---|---|---|---|\n\
         | plain | 1,000 | 1.0 ms | | 50 % |\n| proxied | 910 | 1.1 ms | 20 % | 60 % |\n\n\
         ```\nplain, again:\n  Requests/sec: 1010 ± 20\n  Successful runs: 20\n\n\
         Overhead comparisons:\n  proxied: 20 %\n```\n\n\
         # Both\n\nThis is on the host.\n\n```\n{0}```\n\n\
         Then it ran behind a proxy, which is 3 times slower.\n\n```\n{0}```\n\n\
         # At once\n```\n$ for i in 1 2; do wrk -t1 -c1 http://h/ & done\n{0}{0}```\n",
        "Running 10s test @ http://h/\n  1 threads and 1 connections\n    \
         Latency     1.00ms    0.10ms   9.00ms   99.00%\n  10000 requests in 10.00s, 4.77MB read\n\
         Requests/sec:   1000.00\nTransfer/sec:      0.48MB\n"
    );
    let texts = [
        ("filters.json", read("filters.json")),
        ("vm.md", vm),
        ("rates.md", read("rates.md")),
        ("cut.md", cut),
        ("told.md", told.into_bytes()),
    ];
    let files = texts.map(|(name, text)| {
        let found = tare_import::read(name, text.as_slice()).unwrap();
        FileDrafts { file: name.into(), found, ..FileDrafts::default() }
    });
    let import = assemble("five studies", files.into());
    ImportDocument::new(import, 3, 1_795_239_600_000, "0.1.0")
}

#[test]
fn every_form_of_an_import_to_the_byte() {
    let import = import();
    assert_eq!(import.import.unread.len(), 2);
    assert!(import.comparisons.iter().any(|compared| compared.interval.is_some()));
    every_form("import", &import);
}

/// Two procedures; a person does part of one.
fn steps() -> StepsReport {
    let step = |name: &str, run: &str| Step {
        name: name.into(),
        run: Some(run.into()),
        ..Step::default()
    };
    let wait = Wait { url: Some("http://x/".into()), ..Wait::default() };
    let procedure = |name: &str, more: Vec<Step>| {
        let ready = Step { name: "ready".into(), wait: Some(wait.clone()), ..Step::default() };
        let verify = Step { kind: Some(StepKind::Verify), ..step("a <b>visit</b>", "curl x") };
        let steps = [more, vec![step("install", "apply a && apply b"), ready, verify]].concat();
        let (needs, env, reset, images_of) = (None, BTreeMap::new(), None, Vec::new());
        Procedure { name: name.into(), needs, env, reset, images_of, steps }
    };
    let (manual, took) = (true, Some("90s".into()));
    let console = Step { name: "console".into(), manual, took, ..Step::default() };
    let procedures = [procedure("by hand", vec![console]), procedure("manifest", Vec::new())];
    let ms = |n: u64| n * 1_000_000;
    let repetition = |variant: u32, round: u32| {
        let mut steps = vec![
            Timed { started_ns: 0, took_ns: ms(90_000), tries: 1, objects: 0, recorded: true },
            Timed {
                took_ns: ms(2000 + 10 * u64::from(round)),
                tries: 1,
                objects: 7,
                ..Timed::default()
            },
            Timed { started_ns: ms(2100), took_ns: ms(1500), tries: 1, ..Timed::default() },
            Timed {
                started_ns: ms(3600),
                took_ns: ms(40),
                tries: 1 + round % 2,
                ..Timed::default()
            },
        ];
        if variant == 1 {
            steps.remove(0);
        }
        let cpu_ns = ms(2500 + 100 * u64::from(round));
        let images = Images { used: 3, pulled: 2, pulled_bytes: Some(61_200_000) };
        let images = (variant == 0).then_some(images);
        Repetition { variant, round, started_unix_ms: 1_795_239_600_000, steps, cpu_ns, images }
    };
    let asked = StepsAsked {
        name: "What does it take?".into(),
        skipped: vec![("product".into(), "it needs an account".into())],
        tare_version: "0.1.0".into(),
        seed: 42,
        tolerance: 0.05,
        baseline: 0,
        interrupted: false,
        failed: None,
    };
    let done = (0..6).flat_map(|round| [repetition(0, round), repetition(1, round)]).collect();
    analyse(asked, &procedures, done)
}

#[test]
fn every_form_of_procedures_to_the_byte() {
    let steps = steps();
    assert_eq!(steps.variants[1].verdict, Some(Verdict::Faster));
    every_form("steps", &steps);
}

/// `.*` in the table stands for all keys below.
#[test]
fn the_json_of_pairs_imports_and_procedures_is_as_published() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    let documents: [(&str, &dyn Document); 3] = [
        ("## `tare.change/1`", &pair()),
        ("## `tare.audit/1`", &import()),
        ("## `tare.steps/1`", &steps()),
    ];
    for (title, document) in documents {
        let (_, rest) = page.split_once(title).unwrap();
        let table = rest.split("\n## ").next().unwrap();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
        let published: Vec<&str> = rows.map(|row| row.split('`').next().unwrap()).collect();
        let mut all = BTreeSet::new();
        let json = document.render(Form::Json).unwrap();
        paths(&serde_json::from_str(&json).unwrap(), "", &mut all);
        let is_leaf = |path: &&String| {
            let deeper = [format!("{path}."), format!("{path}[]")];
            !all.iter().any(|other| deeper.iter().any(|deeper| other.starts_with(deeper)))
        };
        let leaves: Vec<&String> = all.iter().filter(is_leaf).collect();
        let covers = |row: &str, leaf: &str| match row.strip_suffix(".*") {
            Some(above) => leaf.starts_with(&format!("{above}.")),
            None => row == leaf,
        };
        for leaf in &leaves {
            assert!(
                published.iter().any(|row| covers(row, leaf)),
                "{title}: {leaf} is unpublished"
            );
        }
        for row in &published {
            assert!(leaves.iter().any(|leaf| covers(row, leaf)), "{title}: {row} is not written");
        }
    }
}

#[test]
fn forms_that_a_document_lacks_are_named() {
    let why = pair().render(Form::K6Csv).unwrap_err();
    assert_eq!(
        why,
        "a pair of runs has no form k6-csv; it has text, why, json, markdown, csv, html"
    );
}

#[test]
fn text_from_outside_is_not_markup() {
    let markdown = markdown::render(&report());
    assert!(markdown.contains("What does \\|it\\| cost?") && markdown.contains("=&lt;b>filter"));
    let csv = csv::render(&report());
    assert!(csv.contains(",'=<b>filter</b>,"), "no formula: {csv}");
}

/// Everything that a server, a machine or a user can put into a report.
#[test]
fn hostile_text_is_no_markup_in_html() {
    const EVIL: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u{202e}";
    let mut facts = facts();
    facts.plan.name = EVIL.into();
    facts.command = format!("tare run x -H 'Authorization: hush' {EVIL}");
    facts.plan.variants[1].name = EVIL.into();
    let ssh = SshSpec { host: EVIL.into(), address: None, options: Vec::new() };
    facts.plan.variants[1].place = PlaceSpec::Ssh(ssh);
    facts.plan.skipped[0] = Skipped { name: EVIL.into(), reason: EVIL.into() };
    facts.machine =
        serde_json::json!({ "host": EVIL, "cpu_model": EVIL, "cpus": [0], "system": EVIL });
    facts.plan.cell.insert(EVIL.into(), EVIL.into());
    facts.plan.load.http_mut().unwrap().headers =
        vec!["Cookie: hush".into(), format!("X-Evil: {EVIL}")];
    let document = document_of(&facts, |round| {
        let counts = &mut round.slices[1].counts;
        (counts.failed, counts.started) = (9, counts.started + 9);
        round.machine.steal_ns = 50_000_000;
        counts.errors = vec![(EVIL.into(), 9, EVIL.into())];
        round.launches[1].parts.insert(0, part(EVIL, EVIL, 1));
        let probe = round.launches[1].probe.as_mut().unwrap();
        probe.header_names = vec![EVIL.into()];
        probe.tls = Some(EVIL.into());
        round.launches[1].proofs =
            vec![Proof { layer: EVIL.into(), held: true, text: EVIL.into() }];
    });
    let html = document.render(Form::Html).unwrap();
    // Scripts that tare itself writes: one, and one block of data for each figure.
    let pictures = html.matches("<svg ").count();
    assert!(pictures > 8 && html.matches("<script").count() == pictures + 1, "{pictures} pictures");
    assert_eq!(html.matches("</script>").count(), pictures + 1);
    let (_, own) = html.rsplit_once("<script>").unwrap();
    let hash = hash_of(&SHA256, own.split_once("</script>").unwrap().0.as_bytes());
    let allowed = format!("script-src 'sha256-{}'\"", BASE64_STANDARD.encode(hash));
    assert!(html.contains(&allowed), "a browser runs this script alone");
    assert!(!html.contains("<img") && !html.contains('\u{202e}'), "markup from outside");
    assert!(html.contains("&lt;img src=x onerror=alert(2)&gt;"), "it is shown as text");
    assert!(!html.contains("hush") && html.contains("Authorization:…"), "secrets stay at home");
    assert!(
        html.contains(": 9 failed") && html.contains(">\nsteal, at most 3.85 %"),
        "the run's marks"
    );
    for markup in ["http://", "https://", "url(", "@import", "<link"] {
        let mut found = html.matches(markup);
        // The namespace of SVG is a name, not an address; and the plan, as text, has every URL.
        let names = pictures + facts.plan.variants.len();
        let allowed = if markup == "http://" { names } else { 0 };
        assert_eq!(found.by_ref().count(), allowed, "{markup}: the page must need nothing else");
    }
}

/// With made-up rounds in the number that the issue names; `bench/report` measures the time.
#[test]
fn ten_variants_of_500_rounds_fit_into_three_megabytes() {
    let mut facts = facts();
    let variant = facts.plan.variants[1].clone();
    let named =
        |at| Variant { name: format!("variant {at}"), baseline: at == 0, ..variant.clone() };
    facts.plan.variants = (0..10).map(named).collect();
    let mut timeline = Timeline::default();
    let rounds = (0..500).map(|index| {
        let mut round = round(index);
        let slices = (0..3).flat_map(|cycle| (0..10).map(move |v| slice(v, cycle, index)));
        round.slices = slices.collect();
        let launch = |variant| Launch { variant, ..round.launches[0].clone() };
        round.launches = (0..10).map(launch).collect();
        timeline.add(&round, Metric::Throughput);
        round
    });
    let rounds: Vec<Round> = rounds.collect();
    let digests = digests(&rounds, 10, 0);
    let html = RunDocument::new(facts, digests, timeline).render(Form::Html).unwrap();
    assert!(html.len() <= 3_000_000, "{} bytes", html.len());
    assert!(html.len() > 500_000, "{} bytes: are the dots there?", html.len());
}

/// Collects paths of keys: lists as `[]`, keys that are names or numbers as `*`.
fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    const OPEN: [&str; 6] = [
        "machine",
        "plan",
        "variants[].errors",
        "variants[].status",
        "variants[].metrics",
        "variants[].parts[].metrics",
    ];
    match value {
        Value::Object(fields) if at == "machine" || at == "plan" => {
            assert!(!fields.is_empty());
            found.insert(format!("{at}.*"));
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = if OPEN.contains(&at) { "*" } else { key };
                let path = if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
                paths(value, &path, found);
            }
        }
        Value::Array(values) => {
            found.insert(format!("{at}[]"));
            values.iter().for_each(|value| paths(value, &format!("{at}[]"), found));
        }
        _ => drop(found.insert(at.to_owned())),
    }
}

/// Every key that is written is documented, and every documented key is written.
#[test]
fn json_is_as_published() {
    let mut all = BTreeSet::new();
    let noisy = rounds(|round| {
        round.machine.steal_ns = 50_000_000;
        round.slices[0].counts.errors = vec![("reset".into(), 1, "x".into())];
        round.slices[0].counts.failed = 1;
        round.slices[0].counts.started += 1;
        round.launches[1].requests_served = Some(1);
        let probe = round.launches[1].probe.as_mut().unwrap();
        probe.content_encoding = Some("gzip".into());
        probe.first_difference = Some("byte 0".into());
        // Much slower than in slices.
        if let Some(sustained) = &mut round.launches[1].load.sustained {
            sustained.bins.iter_mut().for_each(|bin| bin.answered = bin.answered * 6 / 10);
        }
        let client = ClientPart { sent: 1, lag_ns: 9, ..ClientPart::default() };
        let together =
            ConcurrentClients { clients: vec![client; 2], ..ConcurrentClients::default() };
        round.slices[1].counts.together = Some(together);
        round.by_sleepers = round.slices.clone();
        for slice in &mut round.by_sleepers {
            (slice.cycle, slice.counts.failed) = (slice.cycle + round.cycles, 0);
        }
    });
    for report in [RunReport { gates: vec![gate()], ..report() }, build(&facts(), &noisy)] {
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        paths(&json, "", &mut all);
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run-json.md");
    let text = std::fs::read_to_string(page).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let published: BTreeSet<String> =
        rows.filter_map(|row| row.split('`').next()).map(str::to_owned).collect();
    let leaves: BTreeSet<String> = all
        .iter()
        .filter(|path| !all.iter().any(|other| other.starts_with(&format!("{path}."))))
        .cloned()
        .collect();
    assert_eq!(
        leaves.difference(&published).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "unpublished"
    );
    assert_eq!(
        published.difference(&leaves).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "not written"
    );
}

#[test]
fn unknown_and_missing_keys_are_refused() {
    let json = report().json();
    assert_eq!(serde_json::from_str::<RunReport>(&json).unwrap(), report());
    for (from, to) in [
        ("\"schema\"", "\"extra\": 1, \"schema\""),
        ("\"rounds\"", "\"extra\": 1, \"rounds\""),
        ("\"launches\"", "\"extra\": 1, \"launches\""),
        ("\"overhead_percent\": {", "\"overhead_percent\": { \"extra\": 1,"),
        ("\"seed\": 42,", ""),
    ] {
        assert!(json.contains(from), "{from}");
        assert!(serde_json::from_str::<RunReport>(&json.replacen(from, to, 1)).is_err(), "{to}");
    }
}

/// It had the check, and for that reason has no verdict.
#[test]
fn what_has_no_verdict_is_not_said_to_lack_sustained_load() {
    let report = build(
        &facts(),
        &rounds(|round| {
            round.machine.own_cpu_ns = 300_000_000;
            disturbed_throughout(round);
            if let Some(sustained) = &mut round.launches[1].load.sustained {
                let percent = [85, 100, 115][round.index as usize % 3];
                sustained
                    .bins
                    .iter_mut()
                    .for_each(|bin| bin.answered = bin.answered * percent / 100);
            }
        }),
    );
    assert!(report.guards.iter().any(|guard| guard.code == "unconfirmed"), "{:?}", report.guards);
    let text = terminal::render(&report);
    assert!(text.contains(" is void: ") && !text.contains("not checked"), "{text}");
}

#[test]
fn a_single_variant_is_printed_with_its_value() {
    let mut single = facts();
    single.plan.variants.truncate(1);
    let rounds = rounds_of(&single.plan, 12, |round| {
        round.slices.retain(|slice| slice.variant == 0);
        round.launches.truncate(1);
    });
    let text = terminal::render(&build(&single, &rounds));
    assert!(text.contains("  none: ") && text.contains(" requests/s ("), "{text}");
}

#[test]
fn rounds_that_were_lost_are_reported() {
    let mut facts = facts();
    facts.lost = (2, Some("b, client 2 of 4: it is gone".into()));
    let report = build(&facts, &rounds(|_| {}));
    let found = report.guards.iter().find(|guard| guard.code == "lost-rounds").unwrap();
    assert!(found.text.starts_with("2 rounds were lost"), "{found:?}");
}
