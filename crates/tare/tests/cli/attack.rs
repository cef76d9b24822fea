//! Root on a machine with other users: nothing that they put in the way changes what tare does.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tare_io::process::signal;

use crate::attacker::{Attacker, NOBODY, mode};
use crate::runs::{BRIEF, Desk, launches};
use crate::util::{Folder, Temporary, command, ran, str};
use crate::wait::{let_pass, until};

fn bits_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_planted_journal_is_not_followed() {
    let Some(attacker) = Attacker::new("attack-journal") else { return };
    let evil = attacker.evil("podman");
    let victim = Folder::new("attack-victim");
    let kept = victim.file("tare-kept");
    std::fs::create_dir(&kept).unwrap();
    let mut sleeper = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
    let pid = sleeper.id();
    let home = attacker.home.display();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = |kind: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        link.display().to_string()
    };
    let header = format!(
        "{{\"tare_journal\":1,\"boot_id\":\"{}\",\"pid_namespace\":\"{}\",\
         \"net_namespace\":\"{}\",\"mount_namespace\":\"{}\"}}",
        boot.trim(),
        namespace("pid"),
        namespace("net"),
        namespace("mnt")
    );
    let processes = format!(
        "{{\"processes\":{{\"pid\":{pid},\"started_ticks\":{},\"session\":{}}}}}",
        fields[19], fields[3]
    );
    // Some lines would be trusted from root; others not even then.
    let lines = [
        header,
        format!(
            "{{\"engine_container\":{{\"program\":\"{}\",\"name\":\"tare-x\"}}}}",
            evil.display()
        ),
        "{\"engine_container\":{\"engine\":\"podman\",\"name\":\"tare-x\"}}".into(),
        format!("{{\"processes_of\":\"{home}/pid\"}}"),
        processes,
        format!("{{\"folder\":\"{home}/link/tare-kept\"}}"),
        format!("{{\"folder\":\"{}\"}}", kept.display()),
        format!(
            "{{\"ssh_folder\":{{\"host\":\"h\",\"options\":[\"-o\",\"ProxyCommand={}\"],\
             \"path\":\"/tmp/tare-x\"}}}}",
            evil.display()
        ),
    ];
    let text = lines.join("\n");
    attacker.does(&format!(
        "mkdir -p .local/share/tare/journal; ln -s {} link; echo {pid} >pid; \
         cat >.local/share/tare/journal/tare-1-1-0.journal <<'END'\n{text}\nEND\n\
         mkfifo .local/share/tare/journal/tare-1-1-1.journal",
        victim.0.display()
    ));
    let path = format!("{home}/bin:/usr/bin:/bin");
    let cleaned = ran(attacker.victim(&["clean"]).env("PATH", &path));
    cleaned.fails(3, "belongs to another user (uid 65534)");
    attacker.has_not_won();
    assert!(kept.exists(), "a folder was removed: {}", cleaned.story());
    assert!(sleeper.try_wait().unwrap().is_none(), "a process was killed: {}", cleaned.story());
    // XDG_DATA_HOME names the same folder; a run also refuses it before it starts anything.
    let data = attacker.home.join(".local/share");
    let mut command = attacker.victim(&["clean"]);
    ran(command.env("XDG_DATA_HOME", &data)).fails(3, "belongs to another user");
    let pair = launches("", "");
    let mut run = vec!["compare", &pair[0], &pair[1], "-q"];
    run.extend(BRIEF);
    ran(&mut attacker.victim(&run)).fails(3, "belongs to another user (uid 65534)");
    attacker.has_not_won();
    // In a folder where nothing exists yet, nothing is created.
    attacker.does("mkdir empty");
    let empty = attacker.home.join("empty");
    let mut command = attacker.victim(&run);
    ran(command.env("HOME", &empty)).fails(3, "belongs to another user (uid 65534)");
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "root made something there");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn programs_that_another_user_could_have_put_there_do_not_run() {
    let Some(attacker) = Attacker::new("attack-path") else { return };
    for name in ["nginx", "ip", "runc", "podman", "qemu-system-x86_64", "ssh", "apache2"] {
        attacker.evil(name);
    }
    let desk = Desk::new("attack-path-desk");
    let path = format!("{}/bin:/usr/sbin:/usr/bin:/sbin:/bin", attacker.home.display());
    ran(desk.command(&["doctor"]).env("PATH", &path)).success();
    attacker.has_not_won();
    // Nor programs that a shell looks for, in a server's command or in tare's own.
    let mut command = desk.command(&[
        "compare",
        "--launch=a=nginx -v; ip; exec false {port}",
        "--launch=b=exec false {port}",
        "-q",
    ]);
    assert_eq!(ran(command.env("PATH", &path)).code, Some(4));
    attacker.has_not_won();
    let mut command =
        desk.command(&["compare", "--launch=a=evil {port}", "--launch=b=evil {port}", "-q"]);
    ran(command.env("PATH", &path)).fails(3, "root passes over folders of PATH");
    // A sticky folder protects root's files in it, but does not protect root from others' files.
    let open = Temporary::new();
    mode(&open.0, 0o1777);
    attacker.does(&format!("cp bin/nginx {}", open.0.display()));
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", open.0.display());
    let args =
        ["compare", "--launch=a=nginx -v; exec false {port}", "--launch=b=exec false {port}", "-q"];
    assert_eq!(ran(desk.command(&args).env("PATH", &path)).code, Some(4));
    attacker.has_not_won();
    // Found only through the current folder.
    let mut command = desk.command(&["doctor"]);
    ran(command.env("PATH", ":bin:.").current_dir(&attacker.home)).success();
    attacker.has_not_won();
}

/// A link in another user's folder can be changed between the check and the start.
#[test]
fn programs_behind_another_users_link_do_not_run() {
    let Some(attacker) = Attacker::new("attack-path-link") else { return };
    attacker.does("ln -s /usr/sbin bin");
    let desk = Desk::new("attack-path-link-desk");
    let path = format!("{}/bin", attacker.home.display());
    let toml = "name = \"x\"\n[load]\nconnections = 1\n[server.web]\nnginx = {}\n\
                [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\nplace = \"netns\"\n\
                [[variant]]\nname = \"b\"\nserver = \"web\"\n";
    let file = desk.file("experiment.toml", toml);
    let told = ran(desk.command(&["run", str(&file), "--dry-run"]).env("PATH", &path));
    assert!(!told.stdout.contains(&path), "{}", told.story());
}

#[test]
fn a_store_that_is_another_users_link_is_refused() {
    let Some(attacker) = Attacker::new("attack-store") else { return };
    let secret = Folder::new("attack-store-secret");
    let target = secret.file("made-by-root");
    attacker.does(&format!("ln -s {} tare.db", target.display()));
    let wrk = "Running 10s test @ http://h/\n  2 threads and 10 connections\n  \
               Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency     1.00ms    \
               1.00ms  10.00ms   90.00%\n    Req/Sec     5.00k     1.00k   10.00k    90.00%\n  \
               100000 requests in 10.00s, 80.00MB read\nRequests/sec:  10000.00\n\
               Transfer/sec:      8.00MB\n";
    let pasted = secret.file("wrk.txt");
    std::fs::write(&pasted, wrk).unwrap();
    let store = attacker.home.join("tare.db");
    let desk = Desk::new("attack-store-desk");
    let args = ["import", str(&pasted), "--store", str(&store)];
    desk.tare(&args).fails(3, "belongs to another user (uid 65534)");
    assert!(!target.exists(), "root made a file where a link led it");
    // A store that another user owns is read, and nothing is created beside it.
    let own = desk.folder.file("own.db");
    desk.tare(&["import", str(&pasted), "--store", str(&own)]).success();
    let theirs = attacker.home.join("theirs.db");
    std::fs::copy(&own, &theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let listed = desk.tare(&["runs", "--store", str(&theirs)]).success().stdout;
    assert!(listed.contains("wrk"), "{listed}");
    let names: Vec<_> = std::fs::read_dir(&attacker.home).unwrap().flatten().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_waiting_link_leads_root_nowhere() {
    let Some(attacker) = Attacker::new("attack-link") else { return };
    let (temporary, secret) = (Temporary::new(), Folder::new("attack-secret"));
    mode(&secret.0, 0o700);
    mode(&temporary.0, 0o1777);
    // The numbers of the next processes are easy to guess.
    let next = std::process::id();
    attacker.does(&format!(
        "i={next}; while [ $i -lt $(({next} + 6000)) ]; do \
         ln -s {} {}/tare-doctor-$i; i=$((i + 1)); done",
        secret.0.display(),
        temporary.0.display()
    ));
    let desk = Desk::new("attack-link-desk");
    let args = ["doctor", "--noise", "--time", "1s"];
    ran(desk.command(&args).env("TMPDIR", &temporary.0)).success();
    assert_eq!(std::fs::read_dir(&secret.0).unwrap().count(), 0, "root wrote through a link");
    // If another user owns the folder for temporary files, nothing is created in it.
    let mut command = desk.command(&["doctor", "--noise", "--time", "1s"]);
    ran(command.env("TMPDIR", &attacker.home)).fails(3, "belongs to another user");
}

/// Watches everything that a run creates while it runs.
#[test]
fn nothing_is_left_open_to_others_whatever_the_umask() {
    let (desk, temporary) = (Desk::new("attack-umask"), Temporary::new());
    let toml = "name = \"x\"\n[load]\nconnections = 2\n[stop]\nrounds = 4\n\
                [server.web]\nnginx = { workers = 1, tls = true }\n\
                [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
                [[variant]]\nname = \"b\"\nserver = \"web\"\n";
    let path = desk.file("experiment.toml", toml);
    let tare = env!("CARGO_BIN_EXE_tare");
    let mut command = command("sh");
    command.args(["-c", "umask 0; exec \"$0\" \"$@\"", tare, "run", str(&path), "-q"]);
    command.env("XDG_DATA_HOME", &desk.folder.0).env("TMPDIR", &temporary.0);
    command.env_remove("TARE_STORE").stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut seen: std::collections::BTreeMap<PathBuf, u32> = Default::default();
    while child.try_wait().unwrap().is_none() {
        let mut folders = vec![temporary.0.clone(), desk.folder.file("tare")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let Ok(data) = std::fs::symlink_metadata(entry.path()) else { continue };
                seen.insert(entry.path(), data.permissions().mode() & 0o777);
                if data.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
    }
    // Watching takes CPU from the run, so noise may forbid its verdict.
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 6)));
    let open: Vec<_> = seen.iter().filter(|(_, mode)| *mode & 0o022 != 0).collect();
    assert_eq!(open, Vec::<(&PathBuf, &u32)>::new());
    let named = |end: &str| {
        let found = seen.iter().find(|(path, _)| path.to_string_lossy().ends_with(end));
        *found.unwrap_or_else(|| panic!("no {end} was seen: {seen:?}")).1
    };
    for end in ["key.pem", ".journal", "tare.db", "tare.db-wal", "tare.db-shm"] {
        assert_eq!(named(end), 0o600, "{end}");
    }
    assert_eq!(named("cert.pem"), 0o644, "workers that gave up root read it");
    for folder in ["tare", "tare/journal"] {
        assert_eq!(bits_of(&desk.folder.file(folder)), 0o700, "{folder}");
    }
}

#[test]
fn a_kept_name_in_shared_memory_is_not_believed() {
    let Some(attacker) = Attacker::new("attack-shm") else { return };
    let name = format!("tare-attack-{}", std::process::id());
    attacker.does(&format!("head -c 20480 /dev/zero >/dev/shm/{name}; chmod 666 /dev/shm/{name}"));
    let desk = Desk::new("attack-shm-desk");
    let args = ["filter", "control", "shm", "--shm", &name, "--set", "/x"];
    desk.tare(&args).fails(3, "belongs to another user");
    let args = ["filter", "control", "shm", "--shm", &name];
    desk.tare(&args).fails(3, "not of tare's making");
    std::fs::remove_file(format!("/dev/shm/{name}")).unwrap();
}

/// Starts a comparison that has begun to create things.
fn under_way(desk: &Desk, temporary: &Temporary) -> std::process::Child {
    let pair = launches("", "");
    let args = ["compare", &pair[0], &pair[1], "-q", "--max-time", "100s"];
    let mut command = desk.command(&args);
    command.env("TMPDIR", &temporary.0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    until("it has made something", || {
        assert!(child.try_wait().unwrap().is_none());
        !temporary.left().is_empty()
    });
    child
}

#[test]
fn every_signal_that_ends_a_program_is_cleaned_up_after() {
    let (desk, temporary) = (Desk::new("attack-signals"), Temporary::new());
    let signals = [
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGPROF,
        libc::SIGXCPU,
        libc::SIGTERM,
        libc::SIGRTMIN() + 3,
    ];
    for number in signals {
        let mut child = under_way(&desk, &temporary);
        signal(child.id(), number).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "signal {number}");
        assert_eq!(temporary.left(), Vec::<String>::new(), "signal {number}");
        assert_eq!(std::fs::read_dir(desk.folder.file("tare/journal")).unwrap().count(), 0);
    }
}

#[test]
fn two_that_clean_at_once_both_succeed() {
    let (desk, temporary) = (Desk::new("attack-two"), Temporary::new());
    for _ in 0..5 {
        let mut child = under_way(&desk, &temporary);
        let_pass(std::time::Duration::from_millis(50));
        child.kill().unwrap();
        child.wait().unwrap();
        std::thread::scope(|scope| {
            let clean = || desk.tare(&["clean"]);
            let both = [scope.spawn(clean), scope.spawn(clean)];
            both.into_iter().for_each(|one| drop(one.join().unwrap().success()));
        });
        assert_eq!(temporary.left(), Vec::<String>::new());
    }
}
