//! Files that other users plant beside root's: journals of stores, links and pipes in place of
//! reports, a program in place of tare.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

use tare_io::process::is_root;
use tare_tidy::skips::not_run;

use crate::attacker::{Attacker, NOBODY, mode};
use crate::runs::{BRIEF, Desk, launches};
use crate::util::{Folder, Ran, Temporary, command, ran, str};
use crate::wait::{until, until_some};

const WRK: &str = "Running 10s test @ http://h/\n  2 threads and 10 connections\n  \
                   Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency     1.00ms    \
                   1.00ms  10.00ms   90.00%\n    Req/Sec     5.00k     1.00k   10.00k    90.00%\n  \
                   100000 requests in 10.00s, 80.00MB read\nRequests/sec:  10000.00\n\
                   Transfer/sec:      8.00MB\n";

/// A rollback journal as a crash leaves it, which names a super-journal.
fn hot_journal(super_journal: &Path) -> Vec<u8> {
    let name = str(super_journal).as_bytes();
    let mut journal = vec![1; 1024];
    journal.extend(b"....");
    journal.extend(name);
    journal.extend((name.len() as u32).to_be_bytes());
    journal.extend(name.iter().map(|byte| u32::from(*byte)).sum::<u32>().to_be_bytes());
    journal.extend([0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    journal
}

#[test]
fn a_journal_beside_roots_store_deletes_nothing() {
    let Some(attacker) = Attacker::new("planted-journal") else { return };
    let (desk, sticky) = (Desk::new("planted-journal-desk"), Temporary::new());
    let (secret, own) = (Folder::new("planted-secret"), desk.folder.file("own.db"));
    let pasted = desk.file("wrk.txt", WRK);
    desk.tare(&["import", str(&pasted), "--store", str(&own)]).success();
    let store = sticky.0.join("results.db");
    // As after a kill: its log still exists.
    std::fs::copy(&own, &store).unwrap();
    mode(&store, 0o600);
    mode(&sticky.0, 0o1777);
    let kept = secret.file("kept");
    std::fs::write(&kept, "secret").unwrap();
    let planted = sticky.0.join("results.db-journal");
    let copied = attacker.home.join("journal");
    std::fs::write(&copied, hot_journal(&kept)).unwrap();
    mode(&copied, 0o644);
    attacker.does(&format!("cp journal {}", planted.display()));

    let listed = desk.tare(&["runs", "--store", str(&store)]).success().stdout;
    assert!(listed.contains("wrk"), "it is read: {listed}");
    assert!(kept.exists(), "root deleted what a planted journal names");
    let refused = "can be changed by other users (mode 1777); give a place that only you can write";
    desk.tare(&["import", str(&pasted), "--store", str(&store)]).fails(3, refused);
    let pair = launches("", "");
    let compare = ["compare", &pair[0], &pair[1], "-q", "--store", str(&store)];
    desk.tare(&compare).fails(3, refused);
    assert!(kept.exists(), "root deleted what a planted journal names");

    // Opening a pipe of that name would block.
    attacker.does(&format!("rm {0}; mkfifo {0}", planted.display()));
    desk.tare(&["runs", "--store", str(&store)]).success();
    // Entries that may be in a log are reported, not skipped.
    attacker.does(&format!("echo x >{}", sticky.0.join("results.db-wal").display()));
    desk.tare(&["runs", "--store", str(&store)]).fails(3, "copy both files");
}

#[test]
fn a_store_is_a_regular_file() {
    let desk = Desk::new("planted-device");
    let pair = launches("", "");
    let refused = "cannot use the store /dev/zero: it is not a regular file";
    desk.tare(&["compare", &pair[0], &pair[1], "--store", "/dev/zero"]).fails(3, refused);
    desk.tare(&["runs", "--store", "/dev/zero"]).fails(3, refused);
}

/// Root waits for a file while its program is replaced, and then starts its own servers.
#[test]
fn what_stands_where_tare_was_is_not_run() {
    let Some(attacker) = Attacker::new("planted-program") else { return };
    let (desk, sticky) = (Desk::new("planted-program-desk"), Temporary::new());
    mode(&sticky.0, 0o1777);
    let program = sticky.0.join("tare");
    std::fs::copy(env!("CARGO_BIN_EXE_tare"), &program).unwrap();
    let evil = attacker.evil("tare");
    let fifo = desk.folder.file("experiment.toml");
    assert!(command("mkfifo").arg(&fifo).status().unwrap().success());
    let args = ["run", str(&fifo), "-q", "--allow-void", "--rounds", "1", "--cycles", "1"];
    let mut tare = command(&program);
    tare.args(args).env("XDG_DATA_HOME", &desk.folder.0).env_remove("TARE_STORE");
    let child = tare.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("it runs", || {
        std::fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|path| path == program)
    });
    std::fs::remove_file(&program).unwrap();
    for name in ["tare", "tare (deleted)"] {
        attacker.does(&format!("cp {} '{}/{name}'", evil.display(), sticky.0.display()));
    }
    let toml = "name = \"x\"\n[load]\nconnections = 1\n[server.t]\ntarget = {}\n\
                [[variant]]\nname = \"a\"\nserver = \"t\"\nbaseline = true\n\
                [[variant]]\nname = \"b\"\nserver = \"t\"\n";
    std::fs::write(&fifo, toml).unwrap();
    let ended = child.wait_with_output().unwrap();
    attacker.has_not_won();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "its own servers are started: {told}");
}

#[test]
fn links_and_pipes_in_the_way_of_reports() {
    let desk = Desk::new("planted-report");
    let stored = desk.tare(&["import", str(&desk.file("wrk.txt", WRK))]).success();
    assert!(stored.stdout.contains("wrk"), "{}", stored.story());
    let json = |path: &Path| desk.tare(&["report", "last", "--json", str(path)]);
    let is_report = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.starts_with("{\n"), "{text}");
    };

    // One's own links are followed, and the file behind them is replaced as a whole.
    let (real, link) = (desk.file("real.json", "old"), desk.folder.file("link.json"));
    std::os::unix::fs::symlink("real.json", &link).unwrap();
    json(&link).success();
    is_report(&real);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    mode(&real, 0o600);
    json(&real).success();
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o600, "it keeps its mode");
    let long = desk.folder.file(&"r".repeat(250));
    json(&long).success();
    is_report(&long);
    json(Path::new("/dev/null")).success();
    json(&desk.folder.0).fails(3, "it is a folder");
    json(&desk.folder.file("nowhere/report.json")).fails(3, "No such file");
    let fifo = desk.folder.file("fifo");
    assert!(command("mkfifo").arg(&fifo).status().unwrap().success());
    json(&fifo).fails(3, "nobody reads that pipe");
    // A path as in a shell's `>(command)`.
    let script = "\"$0\" report last --json >(cat >\"$1\"); wait";
    let through = desk.folder.file("through.json");
    let mut bash = command("bash");
    bash.args(["-c", script, env!("CARGO_BIN_EXE_tare"), str(&through)]);
    ran(bash.env("XDG_DATA_HOME", &desk.folder.0).env_remove("TARE_STORE")).success();
    until("the pipe was read", || std::fs::read(&through).is_ok_and(|text| !text.is_empty()));
    is_report(&through);
    let left = std::fs::read_dir(&desk.folder.0).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");

    let Some(attacker) = Attacker::new("planted-report-user") else { return };
    let sticky = Temporary::new();
    mode(&sticky.0, 0o1777);
    let (secret, planted) = (desk.file("secret", "secret"), sticky.0.join("report.json"));
    attacker.does(&format!("ln -s {} {}", secret.display(), planted.display()));
    json(&planted).fails(3, "it is a link of another user's");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    attacker.does(&format!("rm {0}; mkfifo {0}; (timeout 20 cat {0} >got) &", planted.display()));
    let refused = until_some("it is read", || {
        Some(json(&planted)).filter(|ran| !ran.stderr.contains("nobody reads"))
    });
    refused.fails(3, "it is a pipe of another user's");
    // Nor may a folder of the path be another user's link.
    let through = sticky.0.join("reports");
    attacker.does(&format!("ln -s {} {}", desk.folder.0.display(), through.display()));
    json(&through.join("secret")).fails(3, "belongs to another user (uid 65534)");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    // Another user's file is replaced, and then belongs to root.
    attacker.does(&format!("rm {0}; echo >{0}", planted.display()));
    json(&planted).success();
    is_report(&planted);
    assert_ne!(planted.metadata().unwrap().uid(), NOBODY);
}

/// Kills a run; returns the result of a `tare clean` in namespaces of its own, after this setup.
fn cleaned_within(name: &str, setup: &str) -> Option<(Ran, Desk, Temporary)> {
    if !is_root() {
        not_run("a namespace of its own needs root");
        return None;
    }
    let (desk, temporary) = (Desk::new(name), Temporary::new());
    let pair = launches("", "");
    let args = ["compare", &pair[0], &pair[1], "-q", "--max-time", "100s"];
    let mut run = desk.command(&args);
    run.env("TMPDIR", &temporary.0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = run.spawn().unwrap();
    until("it has made something", || !temporary.left().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let mut within = command("unshare");
    within.args(["--mount", "--pid", "--fork", "sh", "-c"]);
    within.args([&format!("{setup} && exec \"$0\" clean"), env!("CARGO_BIN_EXE_tare")]);
    let cleaned = ran(within.env("XDG_DATA_HOME", &desk.folder.0).env("TMPDIR", &temporary.0));
    assert!(!temporary.left().is_empty(), "folders of servers that run: {}", cleaned.story());
    Some((cleaned, desk, temporary))
}

#[test]
fn where_proc_does_not_tell_nothing_is_removed() {
    let setup = "mount -t tmpfs none /proc";
    let Some((cleaned, desk, temporary)) = cleaned_within("planted-no-proc", setup) else { return };
    cleaned.fails(3, "without /proc nobody knows which processes still run");
    desk.tare(&["clean"]).success();
    assert_eq!(temporary.left(), Vec::<String>::new());
}

#[test]
fn another_process_namespace_leaves_the_hosts_runs() {
    let setup = "mount -t proc proc /proc";
    let Some((cleaned, desk, temporary)) = cleaned_within("planted-pid", setup) else { return };
    cleaned.fails(3, "it was written in another process namespace");
    desk.tare(&["clean"]).success();
    assert_eq!(temporary.left(), Vec::<String>::new());
}

#[test]
fn a_file_for_temporary_files_is_refused_and_leaves_nothing() {
    let desk = Desk::new("planted-tmpdir");
    let file = desk.file("file", "");
    let pair = launches("", "");
    let run = [&["compare", &pair[0], &pair[1], "-q"], &BRIEF[..]].concat();
    let refused = format!("TMPDIR={}: it is not a folder", file.display());
    ran(desk.command(&run).env("TMPDIR", &file)).fails(2, &refused);
    desk.tare(&["clean"]).success();
    assert_eq!(std::fs::read_dir(desk.folder.file("tare/journal")).unwrap().count(), 0);
}

#[test]
fn a_small_stack_is_enough() {
    let script = "ulimit -s 64; exec \"$0\" run \"$1\" --dry-run";
    let desk = Desk::new("planted-stack");
    let toml = "name = \"x\"\n[server.t]\ntarget = {}\n[[variant]]\nname = \"a\"\nserver = \"t\"\n\
                [[variant]]\nname = \"b\"\nserver = \"t\"\n";
    let file = desk.file("x.toml", toml);
    let mut shell = command("sh");
    ran(shell.args(["-c", script, env!("CARGO_BIN_EXE_tare"), str(&file)])).success();
    let mut shell = command("sh");
    let help = "ulimit -s 64; exec \"$0\" run --help";
    ran(shell.args(["-c", help, env!("CARGO_BIN_EXE_tare")])).success();
}

/// A request that cannot be built is refused before a server is started for it.
#[test]
fn requests_that_cannot_be_made_start_nothing() {
    let desk = Desk::new("planted-requests");
    for (load, told) in [
        ("method = \"GET\\r\\nX: y\"", "method 'GET\\r\\nX: y' has a character that is not"),
        ("headers = [\"X: a\\r\\nb: c\"]", "headers: \"X: a\\r\\nb: c\": write it without control"),
        ("body_file = \"/dev/zero\"", "body_file /dev/zero: it is over 268435456 bytes"),
        ("body_file = \"/nowhere\"", "body_file /nowhere: No such file"),
        ("threads = 100000", "threads = 100000: write 1 to 1024"),
    ] {
        let started = desk.folder.file("started");
        let toml = format!(
            "name = \"x\"\n[load]\n{load}\n[server.s]\ncommand = \"touch {}; exec sleep 9 # {{port}}\"\n\
             url = \"http://127.0.0.1:{{port}}/\"\n[[variant]]\nname = \"a\"\nserver = \"s\"\n\
             [[variant]]\nname = \"b\"\nserver = \"s\"\n",
            started.display()
        );
        let file = desk.file("x.toml", &toml);
        desk.tare(&["run", str(&file), "-q"]).fails(2, told);
        assert!(!started.exists(), "{load}: a server was started");
    }
}
