use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tare_io::DurationNs;
use tare_io::process::is_root;
use tare_io::time::monotonic_now;
use tare_tidy::skips::not_run;

use super::resources::{Cgroup, Processes};
use super::*;
use crate::journal::resources;
use crate::machine::processes;
use crate::machine::processes::ProcessIdentity;

fn made_folder(path: PathBuf) -> Resource {
    resources::Folder(path).into()
}

fn made_processes(leader: ProcessIdentity) -> Resource {
    Processes(leader).into()
}

fn made_cgroup(path: PathBuf) -> Resource {
    Cgroup(path).into()
}

struct State(PathBuf);

impl State {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tare-journal-{}-{name}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    /// Writes a dead process's journal: no process has this pid and start time.
    fn left_behind(&self, made: &[Resource]) -> PathBuf {
        let lines: Vec<_> = made.iter().map(|made| serde_json::to_string(made).unwrap()).collect();
        let header = serde_json::to_string(&Header::current().unwrap()).unwrap();
        self.written(&(header + "\n" + &lines.join("\n") + "\n"))
    }

    fn written(&self, text: &str) -> PathBuf {
        let path = self.0.join("tare-1-1-0.journal");
        let mut open = std::fs::OpenOptions::new();
        let mut file =
            open.write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path
    }
}

impl Drop for State {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A group of two processes.
fn group() -> (Child, ProcessIdentity) {
    process("sleep 1000 & echo; exec sleep 1000")
}

/// Starts a process group that prints a line when it is ready.
fn process(script: &str) -> (Child, ProcessIdentity) {
    let mut command = Command::new("sh");
    command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = [0];
    child.stdout.take().unwrap().read_exact(&mut line).unwrap();
    let birth = ProcessIdentity::read(child.id()).unwrap();
    (child, birth)
}

/// Runs a script as another user; `None` if this is not root.
fn as_nobody(script: &str) -> Option<Child> {
    if !is_root() {
        not_run("another user's files need root to be made");
        return None;
    }
    let mut command = Command::new("sh");
    command.args(["-c", script]).uid(65534).gid(65534).process_group(0);
    Some(command.spawn().unwrap())
}

#[test]
fn what_was_made_is_gone_when_the_journal_is_dropped() {
    let state = State::new("drop");
    let made = state.0.join("tare-made");
    let journal = Journal::create(&state.0.join("new/journal")).unwrap();
    journal.record_before_create(made_folder(made.clone())).unwrap();
    std::fs::create_dir(&made).unwrap();
    let (mut child, birth) = group();
    journal.record_before_create(made_processes(birth)).unwrap();
    let folder = state.0.join("new/journal");
    let cleaned = clean(&folder);
    assert_eq!((cleaned.running, cleaned.removed.len()), (1, 0), "it is ours, and we live");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state.0.join("new")), mode(&folder)), (0o700, 0o700));
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        assert_eq!(mode(&entry.path()), 0o600);
    }
    drop(journal);
    child.wait().unwrap();
    assert!(!made.exists() && processes::in_group(child.id()).is_empty());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn processes_end_before_what_they_make_is_removed() {
    let state = State::new("order");
    let (marker, made) = (state.0.join("marker"), state.0.join("tare-made"));
    std::fs::write(&marker, "").unwrap();
    // The script acts like a runtime that creates control groups, recorded after its process.
    let script =
        format!("echo; while [ -e {} ]; do mkdir -p {}; done", marker.display(), made.display());
    let (mut child, birth) = process(&script);
    let journal = Journal::create(&state.0).unwrap();
    journal.record_before_create(made_processes(birth)).unwrap();
    journal.record_before_create(made_folder(made.clone())).unwrap();
    assert_eq!(journal.remove_all(), Vec::<String>::new());
    assert!(!made.exists(), "it was made again");
    std::fs::remove_file(&marker).unwrap();
    child.wait().unwrap();
}

#[test]
fn what_the_dead_left_is_removed_and_nothing_else() {
    let state = State::new("clean");
    let (ours, theirs) = (state.0.join("tare-ours"), state.0.join("theirs"));
    std::fs::create_dir_all(ours.join("in/it")).unwrap();
    std::fs::create_dir(&theirs).unwrap();
    let (mut child, birth) = group();
    // The journal lists this process with another start time, as if its pid had been reused.
    let (mut stranger, other) = group();
    let other = ProcessIdentity { started_ticks: other.started_ticks - 1, ..other };
    state.left_behind(&[
        made_folder(theirs.clone()),
        made_folder(ours.clone()),
        made_processes(other),
        made_processes(birth),
    ]);
    let cleaned = clean(&state.0);
    child.wait().unwrap();
    assert_eq!(cleaned.removed.len(), 2, "{cleaned:?}");
    assert_eq!(cleaned.complaints, Vec::<String>::new());
    assert!(theirs.exists() && !ours.exists());
    assert!(stranger.try_wait().unwrap().is_none(), "not ours to end");
    let _ = tare_io::process::signal_group(stranger.id(), libc::SIGKILL);
    stranger.wait().unwrap();
    assert_eq!(clean(&state.0), Cleaned::default(), "nothing is left");
}

#[test]
fn a_group_whose_leader_has_ended_is_ended_in_its_session_only() {
    let (mut child, birth) = process("sleep 1000 & echo");
    child.wait().unwrap();
    assert_eq!(
        crate::executor::ending::end_group(&ProcessIdentity {
            session: birth.session + 1,
            ..birth
        }),
        0
    );
    assert_eq!(crate::executor::ending::end_group(&birth), 1);
}

/// The leader's pid may be reused by now; the control group lists exactly our processes.
#[test]
fn beside_a_control_group_a_group_without_its_leader_is_left_to_that() {
    let state = State::new("leaderless");
    let (mut child, birth) = process("sleep 1000 & echo");
    child.wait().unwrap();
    let made = state.0.join("tare-group");
    std::fs::create_dir(&made).unwrap();
    state.left_behind(&[made_cgroup(made), made_processes(birth)]);
    let cleaned = clean(&state.0);
    assert!(cleaned.removed.is_empty(), "{cleaned:?}");
    assert_eq!(crate::executor::ending::end_group(&birth), 1, "it lived");
}

/// Ordinary users cannot create control groups, but their names are recorded first.
#[test]
fn where_a_control_group_could_not_be_made_its_processes_are_ended_by_session() {
    let state = State::new("groupless");
    let (mut child, birth) = process("sleep 1000 & echo");
    child.wait().unwrap();
    let never = PathBuf::from("/sys/fs/cgroup/tare-that-never-was");
    state.left_behind(&[made_cgroup(never), made_processes(birth)]);
    let cleaned = clean(&state.0);
    assert_eq!((cleaned.removed.len(), cleaned.complaints.len()), (1, 0), "{cleaned:?}");
    assert_eq!(crate::executor::ending::end_group(&birth), 0, "it was ended");
}

#[test]
fn after_a_restart_no_process_is_looked_for() {
    let state = State::new("boot");
    let (mut child, birth) = group();
    let folder = state.0.join("tare-folder");
    std::fs::create_dir(&folder).unwrap();
    let header = Header { boot_id: "another".into(), ..Header::current().unwrap() };
    let lines = [
        serde_json::to_string(&header).unwrap(),
        serde_json::to_string(&made_processes(birth)).unwrap(),
        serde_json::to_string(&made_folder(folder.clone())).unwrap(),
    ];
    state.written(&(lines.join("\n") + "\n"));
    assert_eq!(clean(&state.0).removed.len(), 1);
    assert!(!folder.exists() && child.try_wait().unwrap().is_none());
    crate::executor::ending::end_group(&birth);
    child.wait().unwrap();
}

#[test]
fn a_journal_that_is_not_understood_is_kept_and_reported() {
    let state = State::new("strange");
    let header = serde_json::to_string(&Header::current().unwrap()).unwrap();
    let folder = state.0.join("tare-folder");
    std::fs::create_dir(&folder).unwrap();
    let line = serde_json::to_string(&made_folder(folder.clone())).unwrap();
    for text in [
        format!("{header}\n{line}\n{{\"pods\":[]}}\n"),
        format!("{header}\n{line}\nnonsense\n{line}\n"),
        format!("{line}\n"),
        format!("{}\n", "x".repeat(1 << 20)),
    ] {
        let path = state.written(&text);
        let cleaned = clean(&state.0);
        assert_eq!((cleaned.removed.len(), cleaned.complaints.len()), (0, 1), "{cleaned:?}");
        assert!(cleaned.complaints[0].contains("is not understood"), "{cleaned:?}");
        assert!(path.exists() && folder.exists());
    }
    // A line cut short by a kill names something that was never created.
    state.written(&format!("{header}\n{line}\n{{\"folder\":\"/cut"));
    assert_eq!(clean(&state.0).removed.len(), 1);
}

#[test]
fn files_that_others_could_have_written_are_refused() {
    let state = State::new("others");
    let (mut child, birth) = group();
    let kept = state.left_behind(&[made_processes(birth)]);
    let refused = |words: &str| {
        let cleaned = clean(&state.0);
        assert_eq!((cleaned.removed.len(), cleaned.complaints.len()), (0, 1), "{cleaned:?}");
        assert!(cleaned.complaints[0].contains(words), "{words}: {cleaned:?}");
    };
    let mode = |bits| std::fs::set_permissions(&kept, PermissionsExt::from_mode(bits)).unwrap();
    mode(0o620);
    refused("can be changed by other users (mode 0620)");
    mode(0o602);
    refused("can be changed by other users (mode 0602)");
    mode(0o600);
    let other = state.0.join("another-name");
    std::fs::hard_link(&kept, &other).unwrap();
    refused("2 names");
    std::fs::remove_file(&other).unwrap();
    std::fs::rename(&kept, &other).unwrap();
    std::os::unix::fs::symlink(&other, &kept).unwrap();
    refused("is not a regular file");
    std::fs::remove_file(&kept).unwrap();
    // Opening a FIFO would block.
    assert!(Command::new("mkfifo").arg(&kept).status().unwrap().success());
    refused("is not a regular file");
    assert!(child.try_wait().unwrap().is_none());
    crate::executor::ending::end_group(&birth);
    child.wait().unwrap();
}

#[test]
fn another_users_folder_is_refused() {
    let state = State::new("foreign");
    std::fs::set_permissions(&state.0, PermissionsExt::from_mode(0o755)).unwrap();
    let home = state.0.join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o777)).unwrap();
    let folder = home.join("tare/journal");
    let script = format!("umask 0; mkdir -p {}", folder.display());
    let Some(mut nobody) = as_nobody(&script) else { return };
    assert!(nobody.wait().unwrap().success());
    for home_mode in [0o777, 0o755] {
        std::fs::set_permissions(&home, PermissionsExt::from_mode(home_mode)).unwrap();
        let cleaned = clean(&folder);
        assert_eq!(cleaned.complaints.len(), 1, "{cleaned:?}");
        let error = Journal::create(&folder).unwrap_err().to_string();
        let words = if home_mode == 0o777 { "can be changed by other" } else { "another user" };
        assert!(error.contains(words) && cleaned.complaints[0].contains(words), "{error}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing was made in it");
}

/// A folder that everybody may write to, such as /tmp, is neither used nor made private.
#[test]
fn another_users_link_to_a_folder_of_ours_is_not_followed() {
    let state = State::new("linked");
    std::fs::set_permissions(&state.0, PermissionsExt::from_mode(0o755)).unwrap();
    let (open, theirs) = (state.0.join("open"), state.0.join("theirs"));
    for folder in [&open, &theirs] {
        std::fs::create_dir(folder).unwrap();
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o1777)).unwrap();
    }
    let link = theirs.join("journal");
    let script = format!("ln -s {} {}", open.display(), link.display());
    let Some(mut nobody) = as_nobody(&script) else { return };
    assert!(nobody.wait().unwrap().success());
    let cleaned = clean(&link);
    assert!(cleaned.complaints[0].contains("belongs to another user"), "{cleaned:?}");
    let error = Journal::create(&link).unwrap_err().to_string();
    assert!(error.contains("belongs to another user"), "{error}");
    for folder in [&open, &theirs] {
        let error = Journal::create(folder).unwrap_err().to_string();
        assert!(error.contains("can be changed by other users (mode 1777)"), "{error}");
        assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o7777, 0o1777);
    }
    // A link of our own is followed.
    let own = state.0.join("own");
    std::fs::create_dir(state.0.join("real")).unwrap();
    std::os::unix::fs::symlink("real/../real", &own).unwrap();
    drop(Journal::create(&own).unwrap());
    std::os::unix::fs::symlink("circle", state.0.join("circle")).unwrap();
    let error = Journal::create(&state.0.join("circle")).unwrap_err().to_string();
    assert!(error.contains("circular links"), "{error}");
}

#[test]
fn removal_goes_through_no_link_and_touches_no_other_users_folder() {
    let state = State::new("links");
    std::fs::set_permissions(&state.0, PermissionsExt::from_mode(0o755)).unwrap();
    let real = state.0.join("real");
    std::fs::create_dir_all(real.join("tare-x/kept")).unwrap();
    std::os::unix::fs::symlink(&real, state.0.join("link")).unwrap();
    std::os::unix::fs::symlink(real.join("tare-x"), state.0.join("tare-l")).unwrap();
    let linked = [state.0.join("link/tare-x"), state.0.join("tare-l")];
    state.left_behind(&linked.map(made_folder));
    let cleaned = clean(&state.0);
    assert_eq!(cleaned.complaints.len(), 2, "{cleaned:?}");
    assert!(cleaned.complaints.iter().all(|text| text.contains("is a symbolic link")));
    assert!(real.join("tare-x/kept").exists());
    // Open the folder, which was made private so that others cannot lock it.
    std::fs::set_permissions(&state.0, PermissionsExt::from_mode(0o711)).unwrap();
    let open = state.0.join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o1777)).unwrap();
    let theirs = open.join("tare-theirs");
    let Some(mut nobody) = as_nobody(&format!("mkdir {}", theirs.display())) else { return };
    assert!(nobody.wait().unwrap().success());
    // A link inside a folder of ours is removed, but its target is not.
    let ours = state.0.join("tare-ours");
    std::fs::create_dir(&ours).unwrap();
    std::os::unix::fs::symlink(&real, ours.join("out")).unwrap();
    state.left_behind(&[made_folder(theirs.clone()), made_folder(ours.clone())]);
    let cleaned = clean(&state.0);
    assert!(cleaned.complaints[0].contains("belongs to another user"), "{cleaned:?}");
    assert!(theirs.exists() && !ours.exists() && real.join("tare-x/kept").exists());
}

#[test]
fn a_folder_that_is_no_control_group_is_not_emptied_as_one() {
    let state = State::new("cgroup");
    let (mut child, birth) = group();
    let folder = state.0.join("tare-group");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("cgroup.procs"), format!("{}\n", child.id())).unwrap();
    state.left_behind(&[made_cgroup(folder)]);
    let cleaned = clean(&state.0);
    assert!(cleaned.complaints[0].contains("is not a control group"), "{cleaned:?}");
    assert!(child.try_wait().unwrap().is_none());
    crate::executor::ending::end_group(&birth);
    child.wait().unwrap();
}

#[test]
fn two_that_clean_at_once_wait_for_each_other() {
    let state = State::new("two");
    let (mut child, birth) = group();
    state.left_behind(&[made_processes(birth)]);
    let both: Vec<Cleaned> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| clean(&state.0))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    child.wait().unwrap();
    assert!(both.iter().all(|cleaned| cleaned.complaints.is_empty()), "{both:?}");
    assert_eq!(both.iter().map(|cleaned| cleaned.removed.len()).sum::<usize>(), 1);
}

#[test]
fn a_deep_nest_is_removed() {
    let state = State::new("deep");
    let ours = state.0.join("tare-ours");
    let mut deep = ours.clone();
    (0..230).for_each(|_| deep.push("d"));
    std::fs::create_dir_all(&deep).unwrap();
    state.left_behind(&[made_folder(ours)]);
    let cleaned = clean(&state.0);
    assert!(cleaned.complaints.is_empty() && cleaned.removed.len() == 1, "{cleaned:?}");
}

#[test]
fn a_journal_is_locked_as_long_as_its_process_lives() {
    let state = State::new("lock");
    let journal = Journal::create(&state.0).unwrap();
    // Rename it after a pid that does not exist, as if seen from another namespace.
    let (own, other) = (journal.0.inner().name.clone(), state.0.join("tare-1-1-0.journal"));
    std::fs::rename(state.0.join(own), &other).unwrap();
    assert_eq!(clean(&state.0).running, 1);
    drop(journal);
    assert_eq!(clean(&state.0), Cleaned::default());
    assert!(!other.exists(), "it said nothing, and is removed");
}

/// A container that ended took its processes with it, and left what it created elsewhere.
#[test]
fn what_a_namespace_that_is_gone_left_is_removed_and_no_process() {
    let state = State::new("namespace");
    let ours = state.0.join("tare-ours");
    let (mut child, birth) = group();
    let write = |pid_namespace: &str| {
        std::fs::create_dir_all(&ours).unwrap();
        let header = Header { pid_namespace: pid_namespace.into(), ..Header::current().unwrap() };
        let made = [made_folder(ours.clone()), made_processes(birth)];
        let lines = made.map(|made| serde_json::to_string(&made).unwrap()).join("\n");
        state.written(&(serde_json::to_string(&header).unwrap() + "\n" + &lines + "\n"))
    };
    let journal = write("pid:[1]");
    let cleaned = clean(&state.0);
    if Header::current().unwrap().pid_namespace != FIRST_PID_NAMESPACE {
        // The host's processes are not visible in a container.
        assert!(cleaned.complaints[0].contains("another process namespace"), "{cleaned:?}");
        tare_io::process::signal_group(child.id(), libc::SIGKILL).unwrap();
        child.wait().unwrap();
        return;
    }
    assert!(cleaned.complaints.is_empty() && !ours.exists() && !journal.exists(), "{cleaned:?}");
    assert!(processes::Stat::read(child.id()).is_some(), "its number is of another namespace");
    // The namespace of a process that still runs.
    let alone = Command::new("unshare").args(["-pf", "sleep", "100"]).process_group(0).spawn();
    if let (true, Ok(mut other)) = (is_root(), alone) {
        let mut found = None;
        let limit = monotonic_now() + DurationNs::from_secs(10);
        while found.is_none() && monotonic_now() < limit {
            let below = processes::children(other.id());
            found =
                below.first().and_then(|p| std::fs::read_link(format!("/proc/{p}/ns/pid")).ok());
            std::thread::yield_now();
        }
        let journal = write(&found.unwrap().display().to_string());
        let cleaned = clean(&state.0);
        assert!(cleaned.complaints[0].contains("another process namespace"), "{cleaned:?}");
        assert!(ours.exists() && journal.exists());
        tare_io::process::signal_group(other.id(), libc::SIGKILL).unwrap();
        other.wait().unwrap();
    }
    tare_io::process::signal_group(child.id(), libc::SIGKILL).unwrap();
    child.wait().unwrap();
}
