//! What the installed program carries: experiments, completions, manual pages, and what it says of
//! itself.

use crate::runs::{BRIEF, Desk, owned};
use crate::util::{ran, str, tare};

#[test]
fn ready_made_experiments_are_listed_and_run_by_name() {
    let desk = Desk::new("ready-made");
    let mut command = desk.command(&["run", "--list"]);
    let listed = ran(command.env("KUBECONFIG", "/nonexistent")).success().stdout;
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments"));
    let names = files.unwrap().filter_map(|file| {
        file.unwrap().file_name().into_string().unwrap().strip_suffix(".toml").map(str::to_owned)
    });
    for name in names {
        assert!(listed.contains(&format!(" {name} ")), "{name} is missing: {listed}");
    }
    // nginx is one of the gate's packages.
    let plan = desk.tare(&["run", "proxies-before-nginx", "--dry-run", "-q"]);
    assert!(plan.stdout.contains("\"name\"") || plan.stderr.contains("is not installed"));
    desk.tare(&["run", "nginx-log"]).fails(2, "no ready-made experiment is called 'nginx-log'");
    desk.tare(&["run", "vn"]).fails(2, "did you mean 'vm'?");
    desk.tare(&["run", "startup-cold"]).fails(2, "'tare run --copy startup-cold' writes them");
    for words in [&["run", "deploy-shop"][..], &["run", "--copy", "deploy-shop"]] {
        desk.tare(words).fails(2, "deploy-shop needs programs of tare's sources: make shop");
    }
    desk.tare(&["run", "--list", "vm"]).fails(2, "cannot be used with");
    desk.tare(&["run", "--copy", "./vm.toml"]).fails(2, "not the name of a ready-made experiment");
}

#[test]
fn an_experiment_is_copied_and_replaces_nothing() {
    let desk = Desk::new("copied");
    let copy = || {
        let mut command = desk.command(&["run", "--copy", "startup-procedures"]);
        ran(command.current_dir(&desk.folder.0))
    };
    let said = copy().success().stdout;
    assert_eq!(said.lines().count(), 3, "{said}");
    let counted =
        desk.tare(&["steps", str(&desk.folder.file("startup-procedures.toml")), "--count"]);
    assert!(counted.success().stdout.contains("podman, crun"));
    let place = desk.folder.file("startup/place");
    std::fs::write(&place, "mine").unwrap();
    copy().fails(2, "startup exists and is not replaced");
    assert_eq!(std::fs::read_to_string(&place).unwrap(), "mine");
}

/// A name is never a file of the current folder: another user may have put it there.
#[test]
fn a_file_with_an_experiments_name_is_not_run() {
    let desk = Desk::new("planted-name");
    let shop = "name = 'evil'\n[server.a]\nurl = 'http://127.0.0.1:1/'\n[[variant]]\nname = 'a'\n\
                server = 'a'\n[[variant]]\nname = 'b'\nserver = 'a'\n";
    std::fs::write(desk.folder.file("proxies-before-nginx"), shop).unwrap();
    let run = |name: &str| {
        let mut command = desk.command(&["run", name, "--dry-run"]);
        ran(command.current_dir(&desk.folder.0))
    };
    assert!(run("./proxies-before-nginx").success().stdout.contains("evil"));
    let by_name = run("proxies-before-nginx");
    assert!(!by_name.stdout.contains("evil"), "{}", by_name.story());
}

#[test]
fn commands_are_variants() {
    let desk = Desk::new("commands");
    let target = env!("CARGO_BIN_EXE_tare");
    let write = |name: &str, port: &str| {
        let script = format!("#!/bin/sh\nexec {target} target --listen 127.0.0.1:{port}\n");
        let path = desk.file(name, &script);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        str(&path).to_owned()
    };
    // One takes its port from the environment, one chooses a port itself, one is given it.
    let paths = [write("from-environment", "$PORT"), write("of-its-own", "0")];
    let given = format!("given=exec {target} target --listen 127.0.0.1:{{port}}");
    let all = [paths[0].clone(), paths[1].clone(), given];
    let report = desk.compare(&owned(&all, &BRIEF));
    let names: Vec<&str> = report.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(names, ["from-environment", "of-its-own", "given"]);
    assert!(report.variants.iter().all(|variant| variant.requests > 0));
    desk.tare(&["compare", "foo"]).fails(2, "neither a URL (http://host:port/) nor a command");
    let twice = ["compare", "./a", "./a"];
    desk.tare(&twice).fails(2, "two variants are called './a'; give each its own NAME=");
}

#[test]
fn shells_complete_names() {
    let desk = Desk::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let script = desk.tare(&["completions", shell]).success().stdout;
        assert!(script.contains("TARE_COMPLETE"), "{shell}: {script}");
    }
    desk.tare(&["completions", "tcsh"]).fails(2, "[possible values: bash, zsh, fish]");
    let complete = |words: &[&str]| {
        let mut all = vec!["--", "tare"];
        all.extend(words);
        let mut command = desk.command(&all);
        let index = words.len().to_string();
        command.envs([
            ("TARE_COMPLETE", "bash"),
            ("_CLAP_COMPLETE_INDEX", &index),
            ("_CLAP_IFS", "\n"),
        ]);
        ran(&mut command).success().stdout
    };
    assert_eq!(complete(&["run", "nginx-ac"]), "nginx-access-log");
    let variants = complete(&["run", "nginx-access-log", "--baseline", ""]);
    assert!(variants.lines().any(|name| name == "Apache"), "{variants}");
    assert!(complete(&["report", ""]).contains("last"));
}

#[test]
fn manual_pages_say_what_help_says() {
    let desk = Desk::new("man");
    let folder = desk.folder.file("man");
    desk.tare(&["man", str(&folder)]).fails(3, "cannot write manual pages to");
    std::fs::create_dir(&folder).unwrap();
    desk.tare(&["man", str(&folder)]).success();
    let page = std::fs::read_to_string(folder.join("tare-compare.1")).unwrap();
    for text in ["confidence intervals", "Length of a slice", "Colour signs in reports"] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[test]
fn the_program_introduces_itself() {
    let alone = tare(&[]);
    alone.fails(2, "no command given; try 'tare --help'");
    assert!(alone.stdout.lines().count() <= 12, "{}", alone.stdout);
    assert!(alone.stdout.contains("tare run --list"), "{}", alone.stdout);
    let version = tare(&["--version"]).success().stdout;
    for part in ["tare ", "\nbuild:", "\nreactor:"] {
        assert!(version.contains(part), "{version}");
    }
    assert_eq!(tare(&["-V"]).success().stdout.lines().count(), 1);
    let [short, long] = ["-h", "--help"].map(|flag| tare(&["compare", flag]).success().stdout);
    let lines = |text: &str| text.lines().count();
    assert!(lines(&short) <= 50 && lines(&long) > 2 * lines(&short), "{short}");
    assert!(!short.contains("--linger") && long.contains("--linger"));
}

#[test]
fn colours_are_asked_for() {
    let is_coloured = |when: &str| {
        let mut command = crate::util::own();
        command.args(["run", "--list", "--color", when]).env("KUBECONFIG", "/nonexistent");
        ran(&mut command).success().stdout.contains("\x1b[32m✓\x1b[0m ")
    };
    assert!(is_coloured("always") && !is_coloured("auto") && !is_coloured("never"));
    tare(&["doctor", "--color", "red"]).fails(2, "[possible values: auto, always, never]");
}
