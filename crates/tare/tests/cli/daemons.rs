//! Servers that go into the background: the cause is reported, and nothing of them is left.

use std::os::unix::process::CommandExt;

use tare_io::process::is_root;
use tare_tidy::skips::not_run;

use crate::runs::{BRIEF, Desk, launches};
use crate::util::{Folder, own, ran};

const NOBODY: u32 = 65534;

/// A shell that leaves a separate session behind: a master and its worker.
fn daemon(marker: &str) -> String {
    let tare = env!("CARGO_BIN_EXE_tare");
    let worker = format!("{tare} target --listen 127.0.0.1:{{port}} {marker}");
    format!("--launch=a=setsid sh -c \"{worker} & wait\" &")
}

fn left(marker: &str) -> Vec<u32> {
    let is_it = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        command.contains(marker) && !command.contains("compare")
    };
    tare_lab::machine::processes::all().into_iter().filter(is_it).collect()
}

const CAUSE: &str = "if it went into the background, start it in the foreground";

#[test]
fn a_server_that_goes_into_the_background_is_told_so_and_ended() {
    let desk = Desk::new("daemon");
    let marker = format!("--seed {}78", std::process::id());
    let (a, [_, b]) = (daemon(&marker), launches("", ""));
    let args = [&["compare", &a, &b, "-q"][..], &BRIEF].concat();
    let output = desk.tare(&args);
    assert!(output.stderr.contains(CAUSE), "{}", output.story());
    assert_eq!(left(&marker), Vec::<u32>::new(), "{}", output.story());
}

#[test]
fn without_control_groups_too() {
    if !is_root() {
        not_run("another user needs root");
        return;
    }
    let folder = Folder::new("daemon-nobody");
    let home = folder.file("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    std::os::unix::fs::chown(&folder.0, Some(NOBODY), Some(NOBODY)).unwrap();
    let marker = format!("--seed {}79", std::process::id());
    let mut command = own();
    let (a, [_, b]) = (daemon(&marker), launches("", ""));
    let args = [&["compare", &a, &b, "-q"][..], &BRIEF].concat();
    command.args(args).env("XDG_DATA_HOME", &home).env("HOME", &home).env_remove("TARE_STORE");
    let output = ran(command.current_dir(&home).uid(NOBODY).gid(NOBODY));
    assert!(output.stderr.contains(CAUSE), "{}", output.story());
    assert_eq!(left(&marker), Vec::<u32>::new(), "{}", output.story());
}
