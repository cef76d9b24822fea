//! `tare steps`: procedures are carried out, timed, counted, and always undone.

use std::path::{Path, PathBuf};
use std::process::Command;

use tare_io::DurationNs;
use tare_io::process::{PidFd, signal};
use tare_report::steps::{SCHEMA, StepsReport};
use tare_target::behaviour::Behaviour;

use crate::runs::Desk;
use crate::util::{Server, Temporary, ran, str};
use crate::wait::until;

/// Returns the folder in which all procedures here create things.
fn made(desk: &Desk) -> PathBuf {
    desk.folder.file("made")
}

/// Writes a procedure that creates a folder, takes these steps, and checks the folder.
fn procedure(desk: &Desk, name: &str, steps: &str) -> PathBuf {
    let made = made(desk).display().to_string();
    desk.file(
        &format!("{name}.toml"),
        &format!(
            "name = \"{name}\"\n[env]\nMADE = \"{made}\"\n\
             [reset]\nrun = \"rm -rf $MADE\"\nclean = \"test ! -e $MADE\"\n\
             [[step]]\nname = \"folder\"\nrun = \"mkdir $MADE\"\nundo = \"rmdir $MADE || true\"\n\
             {steps}\n\
             [[step]]\nname = \"it is there\"\nkind = \"verify\"\nrun = \"test -d $MADE\"\n"
        ),
    )
}

const VALUES: &str = "[[step]]\nname = \"look\"\ngives = \"word\"\nrun = \"echo namespace/x created; \
    echo a b\"\n[[step]]\nname = \"write\"\nedit = { file = \"conf/v\", text = \"it is {word}\\n\" }\n\
    [[step]]\nname = \"apply\"\nrun = '''cp conf/v $MADE/v\ngrep -q \"a b\" $MADE/v && test \
    \"$word\" != \"\" '''\n[[step]]\nname = \"ready\"\nwait = { run = \"test -e $MADE/v\" }\n";

fn report(desk: &Desk, args: &[&str]) -> StepsReport {
    let ran = desk.tare(&[&["steps", "-q", "--json", "-"], args].concat()).success();
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn procedures_are_carried_out_in_turn_and_counted() {
    let desk = Desk::new("steps");
    let (a, b) = (procedure(&desk, "a", VALUES), procedure(&desk, "b", ""));
    let page = desk.folder.file("page.html");
    let report = report(&desk, &[str(&a), str(&b), "-r", "6", "--seed", "7", "--html", str(&page)]);
    assert_eq!((report.schema.as_str(), report.seed, report.failed), (SCHEMA, 7, None));
    assert_eq!(report.repetitions.len(), 12);
    let order: Vec<u32> = report.repetitions.iter().map(|one| one.variant).collect();
    assert!(order.chunks(2).all(|pair| pair[0] != pair[1]), "each once a round: {order:?}");
    assert!(order.chunks(2).any(|pair| pair != &order[..2]), "in random order: {order:?}");
    let [a, b] = &report.variants[..] else { panic!() };
    assert!(a.baseline && a.repetitions == 6 && a.change_percent.is_none());
    assert!(b.verdict.is_some() && b.ratio.unwrap().n == 6);
    let units = &a.units;
    assert_eq!((units.all_steps(), units.commands, units.lines, units.values), (6, 7, 1, 2));
    assert_eq!((units.steps["decision"], units.steps["wait"]), (1, 1));
    assert!((a.objects.unwrap().point - 1.0).abs() < 1e-9);
    assert!(a.total_s.unwrap().point >= a.doing_s.unwrap().point);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("class=\"gantt\"") && page.contains("bar waiting"));
    assert!(!made(&desk).exists(), "taken back");
}

#[test]
fn experiments_name_procedures() {
    let desk = Desk::new("steps-experiment");
    procedure(&desk, "a", "");
    let manual = "[[step]]\nname = \"console\"\nmanual = true\ntook = \"90s\"\n";
    procedure(&desk, "b", manual);
    let needs = "name = \"c\"\nneeds = \"echo $WHAT is missing; exit 1\"\n\
                 [[step]]\nname = \"v\"\nkind = \"verify\"\nrun = \"true\"\n";
    desk.file("c.toml", needs);
    let text = "name = \"both\"\nrepetitions = 2\n[[variant]]\nprocedure = \"a.toml\"\n\
                [[variant]]\nprocedure = \"c.toml\"\nenv = { WHAT = \"a device\" }\n\
                [[variant]]\nprocedure = \"b.toml\"\nname = \"product\"\nbaseline = true\n";
    let path = desk.file("both.toml", text);
    let found = report(&desk, &[str(&path)]);
    assert_eq!((found.name.as_str(), found.repetitions.len()), ("both", 4));
    let skipped = &found.skipped[0];
    assert_eq!((skipped.name.as_str(), skipped.why.as_str()), ("c", "a device is missing"));
    let product = &found.variants[1];
    assert!(product.baseline && product.name == "product" && product.units.manual == 1);
    assert!((product.recorded_s - 90.0).abs() < 1e-9 && product.total_s.unwrap().point > 90.0);
    let text = desk.tare(&["steps", str(&path), "-q"]).success().stdout;
    assert!(text.contains("90.00 s of its time is what persons were once seen to take"), "{text}");
    let counted = report(&desk, &[str(&path), "--count"]);
    assert!(counted.repetitions.is_empty() && counted.variants.len() == 3);
    // Published counts have no times, and no comparison.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/published-mesh.toml");
    let text = desk.tare(&["steps", str(&path), "--count"]).success().stdout;
    assert!(text.contains("nothing was carried out") && !text.contains("verdict"), "{text}");
    let counted = report(&desk, &[str(&path), "--count"]);
    let all: Vec<u32> = counted.variants.iter().map(|one| one.units.all_steps()).collect();
    assert_eq!(all, [41, 34], "docs/steps.md tells of them");
}

/// Fails with one line and undoes everything; a good procedure then works.
#[track_caller]
fn fails(name: &str, steps: &str, told: &[&str]) {
    let desk = Desk::new(name);
    let path = procedure(&desk, "p", steps);
    let ran = desk.tare(&["steps", str(&path), "-q"]);
    assert_eq!(ran.code, Some(4), "{}", ran.story());
    for words in told.iter().chain(&["what was done was taken back"]) {
        assert!(ran.stderr.contains(words), "'{words}': {}", ran.stderr);
    }
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(!made(&desk).exists());
    if let Some((_, log)) = ran.stderr.trim().split_once("all that it printed: ") {
        assert!(std::fs::read_to_string(log).unwrap().contains("standard output"));
        std::fs::remove_file(log).unwrap();
    }
    let good = procedure(&desk, "good", "");
    report(&desk, &[str(&good), "-r", "2"]);
}

#[test]
fn a_step_that_fails_hangs_or_half_applies_is_taken_back() {
    let step = |body: &str| format!("[[step]]\nname = \"bad\"\n{body}\n");
    let exits = step("run = \"echo half >$MADE/x; echo no such thing >&2; exit 7\"\nretries = 2");
    fails("steps-exit", &exits, &["p: step 'bad' failed: no such thing"]);
    let hangs = step("run = \"sleep 100\"\nwithin = \"200ms\"");
    fails("steps-hang", &hangs, &["step 'bad' failed: it did not end within 200ms"]);
    let waits = step("wait = { url = \"http://127.0.0.1:9/\" }\nwithin = \"200ms\"");
    fails("steps-wait", &waits, &["step 'bad' failed: not within 200ms: no answer from"]);
    let nothing = step("run = \"true\"\ngives = \"x\"");
    fails("steps-give", &nothing, &["it gives 'x', and printed nothing"]);
    let server = Server::start(Behaviour::default());
    let asks = |more: &str| step(&format!("http = {{ url = \"{}\"{more} }}", server.url()));
    fails("steps-http", &asks(", status = 404"), &["it answers with 200, not 404"]);
    let desk = Desk::new("steps-asks");
    let found = report(&desk, &[str(&procedure(&desk, "p", &asks(""))), "-r", "1"]);
    assert_eq!(found.variants[0].units.steps["verify"], 2, "one asks, the other looks");
}

#[test]
fn after_a_kill_what_was_done_is_taken_back_by_clean() {
    let desk = Desk::new("steps-kill");
    let waits = "[[step]]\nname = \"long\"\nrun = \"touch $MADE/x; sleep 1000\"\n";
    let path = procedure(&desk, "killed", waits);
    let mut child = desk.command(&["steps", str(&path), "-q"]).spawn().unwrap();
    let watched = PidFd::new(child.id()).unwrap();
    let x = made(&desk).join("x");
    until("it got so far", || x.exists());
    signal(child.id(), libc::SIGKILL).unwrap();
    assert!(watched.wait_timeout(DurationNs::from_secs(10)));
    child.wait().unwrap();
    assert!(x.exists());
    let told = desk.tare(&["clean"]).success().stdout;
    assert!(told.contains("removed what procedure 'killed' had done"), "{told}");
    assert!(!made(&desk).exists(), "{told}");
}

#[test]
fn somebody_elses_script_is_not_run_by_clean() {
    let desk = Desk::new("steps-planted");
    let waits = "[[step]]\nname = \"long\"\nrun = \"touch $MADE/x; sleep 1000\"\n";
    let (path, temporary) = (procedure(&desk, "killed", waits), Temporary::new());
    let mut command = desk.command(&["steps", str(&path), "-q"]);
    let mut child = command.env("TMPDIR", &temporary.0).spawn().unwrap();
    let x = made(&desk).join("x");
    until("it got so far", || x.exists());
    signal(child.id(), libc::SIGKILL).unwrap();
    child.wait().unwrap();
    let own = temporary.left();
    let script =
        own.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    let script = script
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "reset"));
    let script = script.unwrap();
    // Now anyone may write to it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&script, mode).unwrap();
    let ran = desk.tare(&["clean"]);
    assert!(ran.stderr.contains("it was left"), "{}", ran.story());
    assert!(x.exists(), "it was not run");
}

#[test]
fn what_cannot_be_carried_out_gets_one_line() {
    let desk = Desk::new("steps-wrong");
    let good = procedure(&desk, "good", "");
    let bad = |name: &str, text: &str| desk.file(name, text);
    let verify = "[[step]]\nname = \"v\"\nkind = \"verify\"\nrun = \"true\"\n";
    let untimed = bad(
        "untimed.toml",
        &format!("name = \"u\"\n[[step]]\nname = \"console\"\nmanual = true\n{verify}"),
    );
    let once = bad("once.toml", &format!("name = \"o\"\n{verify}"));
    let unproven = bad("unproven.toml", "name = \"x\"\n[[step]]\nname = \"a\"\nrun = \"true\"\n");
    let typo = bad("typo.toml", &format!("name = \"x\"\n{verify}comand = \"a\"\n"));
    let lacking =
        bad("lacking.toml", &format!("name = \"l\"\nneeds = \"echo no device; exit 1\"\n{verify}"));
    let dirty = bad(
        "dirty.toml",
        &format!("name = \"d\"\n[reset]\nrun = \"true\"\nclean = \"false\"\n{verify}"),
    );
    for (args, code, told) in [
        (&[str(&untimed)][..], 2, "step 'console' is manual and has no recorded time"),
        (&[str(&once)], 2, "it has no [reset]"),
        (&[str(&unproven)], 2, "no step shows that it worked"),
        (&[str(&typo)], 2, "unknown key 'comand'"),
        (&[str(&good), str(&good)], 2, "two procedures are called 'good'"),
        (&[str(&good), "--by-hand"], 2, "needs a terminal"),
        (&[str(&good), "--from", "nowhere"], 2, "no step has this name"),
        (&[str(&good), str(&once), "--keep"], 2, "for one procedure"),
        (&[str(&lacking)], 3, "l: the baseline cannot be carried out here: no device"),
        (&[str(&dirty)], 3, "after its reset the state is not clean"),
    ] {
        let ran = desk.tare(&[&["steps", "-q"], args].concat());
        assert_eq!(ran.code, Some(code), "{}", ran.story());
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
}

#[test]
fn a_procedure_goes_on_where_it_stopped() {
    let desk = Desk::new("steps-from");
    let fails = "[[step]]\nname = \"look\"\ngives = \"word\"\nrun = \"echo x\"\n\
                 [[step]]\nname = \"bad\"\nrun = \"test -e $MADE/mended && touch $MADE/$word\"\n";
    let path = procedure(&desk, "p", fails);
    let ran = desk.tare(&["steps", str(&path), "-q", "--keep"]);
    assert!(ran.code == Some(4) && ran.stderr.contains("is left as it is"), "{}", ran.story());
    std::fs::write(made(&desk).join("mended"), "").unwrap();
    desk.tare(&["steps", str(&path), "-q", "--keep", "--from", "bad"]).success();
    assert!(made(&desk).join("x").exists());
    let told = desk.tare(&["clean"]).success().stdout;
    assert!(told.contains("nothing was left behind"), "kept is kept: {told}");
}

#[test]
fn what_a_person_does_is_asked_for_timed_and_carried_over() {
    let desk = Desk::new("steps-by-hand");
    let console = "[[step]]\nname = \"console\"\nmanual = true\ngives = \"token\"\n\
                   [[step]]\nname = \"use it\"\nrun = \"touch $MADE/$token\"\n\
                   [[step]]\nname = \"look\"\nmanual = true\nkind = \"wait\"\n";
    let path = procedure(&desk, "p", console);
    let refused = desk.tare(&["steps", str(&path)]);
    refused.fails(2, "step 'console' is manual and has no recorded time");
    let took = procedure(&desk, "q", &console.replace("true\n", "true\ntook = \"1m\"\n"));
    desk.tare(&["steps", str(&took)]).fails(2, "step 'console' needs a value from a person");
    // On a terminal, which `--by-hand` requires.
    let report = desk.folder.file("report.json");
    let by_hand = |answers: &str| {
        let tare = env!("CARGO_BIN_EXE_tare");
        let words = "steps p.toml --by-hand -q --keep --json report.json";
        let typed = format!("printf '{answers}' | script -qec '{tare} {words}' /dev/null");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &typed]).current_dir(&desk.folder.0);
        ran(shell.env("XDG_DATA_HOME", &desk.folder.0).env_remove("TARE_STORE"))
    };
    let done = by_hand("abc\\n\\n");
    assert_eq!(done.code, Some(0), "{}", done.story());
    for asked in ["now do 'console', then write the token that it gives: ", "then press Enter: "] {
        assert!(done.stdout.contains(asked), "{}", done.story());
    }
    assert!(made(&desk).join("abc").exists());
    let report = std::fs::read_to_string(report).unwrap();
    let report: StepsReport = serde_json::from_str(&report).unwrap();
    let variant = &report.variants[0];
    assert_eq!((variant.units.manual, variant.units.values), (2, 1));
    assert!(variant.steps[3].waiting && variant.steps[3].manual, "{:?}", variant.steps[3]);
    assert!(report.repetitions[0].steps.iter().all(|step| !step.recorded && step.tries == 1));
    std::fs::remove_dir_all(made(&desk)).unwrap();
    let silent = by_hand("\\n");
    assert_eq!(silent.code, Some(4), "{}", silent.story());
    assert!(silent.stdout.contains("it gives 'token', and nothing was said"), "{}", silent.story());
}
