//! An agent and filters that another user planted beside tare.

use crate::attacker::{Attacker, mode};
use crate::runs::Desk;
use crate::util::{Folder, command, ran};

/// tare in a folder within one that others can write to: files beside it need not be tare's.
#[test]
fn an_agent_and_filters_beside_tare_must_be_its_own() {
    let Some(attacker) = Attacker::new("attack-near") else { return };
    let near = Folder::new("attack-near-tare");
    mode(&near.0, 0o1777);
    let own = near.file("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_tare"), own.join("tare")).unwrap();
    let agent = tare_lab::places::agent_file::find().unwrap();
    let readable = attacker.home.join("agent-to-copy");
    std::fs::copy(&agent, &readable).unwrap();
    mode(&readable, 0o755);
    let there = near.0.display();
    attacker.does(&format!(
        "mkdir {there}/agent {there}/filters; cp agent-to-copy {there}/agent/tare-agent; \
         cp agent-to-copy {there}/filters/libtare_filter_library.so"
    ));
    let desk = Desk::new("attack-near-desk");
    let run = |args: &[&str]| {
        let mut command = command(own.join("tare"));
        command.args(args).env("XDG_DATA_HOME", &desk.folder.0).env_remove("TARE_STORE");
        ran(command.env_remove("TARE_AGENT").env_remove("TARE_FILTERS"))
    };
    let doctor = run(&["doctor"]).success().stdout;
    let netns = doctor.lines().find(|line| line.starts_with("place        netns")).unwrap();
    assert!(netns.contains("is not built: make agent"), "{netns}");
    run(&["filter", "ask", "library", "/aaaa"]).fails(3, "is not built: make filters");
}
