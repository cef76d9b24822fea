//! Runs the real binary against a target in this process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tare_io::Endpoint;
use tare_io::process::{is_root, restore_default_signals};
use tare_report::load::LoadReport;
use tare_report::load::guards::Severity;
use tare_report::run::RunReport;
use tare_target::behaviour::Behaviour;
use tare_target::serve::{Target, TargetPlan};
use tare_target::tls::TlsServer;
use tare_tidy::skips::not_run;

pub struct Server {
    pub target: Target,
    scheme: &'static str,
}

impl Server {
    pub fn start(behaviour: Behaviour) -> Self {
        Self::on(behaviour, None, 1024)
    }

    pub fn with_tls(behaviour: Behaviour) -> Self {
        Self::on(behaviour, Some(TlsServer::self_signed().unwrap()), 1024)
    }

    pub fn with_slots(slots: u32) -> Self {
        Self::on(Behaviour::default(), None, slots)
    }

    fn on(behaviour: Behaviour, tls: Option<TlsServer>, slots: u32) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let target = Target::start(&TargetPlan {
            listen: Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
            behaviour,
            tls,
            threads: 1,
            cpus: Vec::new(),
            reactor: None,
            slots,
        })
        .unwrap();
        Self { target, scheme }
    }

    pub fn address(&self) -> SocketAddr {
        match &self.target.listens {
            Endpoint::Tcp(address) => *address,
            Endpoint::Udp(_) => unreachable!("the target speaks TCP"),
            Endpoint::Unix(path) => panic!("{}", path.display()),
        }
    }

    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.address())
    }
}

pub struct Ran {
    pub command: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Returns a program that SIGINT and SIGQUIT end, even if the tests are a shell's background job.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    restore_default_signals(&mut command);
    command
}

/// Returns the program under test; its runs do not go into the tester's store.
pub fn own() -> Command {
    let mut own = command(env!("CARGO_BIN_EXE_tare"));
    own.env("XDG_DATA_HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("TARE_STORE");
    own
}

pub fn tare(args: &[&str]) -> Ran {
    ran(own().args(args))
}

pub fn load_json(args: &[&str]) -> LoadReport {
    let ran = tare(&[&["load", "--json", "-"], args].concat());
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{}", ran.story()))
}

pub fn ran(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran {
        command: format!("{command:?}"),
        code: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

impl Ran {
    /// Returns everything known about the run, for failing tests.
    pub fn story(&self) -> String {
        let Self { command, code, stdout, stderr } = self;
        format!("{command}\nexit code {code:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }

    #[track_caller]
    pub fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.story());
        self
    }

    /// It measured; a guard may have forbidden the verdict.
    #[track_caller]
    pub fn measured(self) -> Self {
        assert!(matches!(self.code, Some(0 | 6)), "{}", self.story());
        self
    }

    #[track_caller]
    pub fn fails(&self, code: i32, message: &str) {
        assert_eq!(self.code, Some(code), "{}", self.story());
        let told = self.stderr.trim_end();
        assert_eq!(told.lines().count(), 1, "one line, please: {}", self.story());
        assert!(told.starts_with("tare: ") && told.contains(message), "{}", self.story());
    }
}

/// Only noise may forbid the verdict.
#[track_caller]
pub fn not_void(report: &RunReport) {
    // A busy machine alone can trip these guards.
    let noise = ["not-steady", "not-warm", "deferred-work", "rate-missed", "noisy"];
    let mut void = report.guards.iter().filter(|guard| guard.severity == Severity::Void);
    let found = void.find(|guard| !noise.contains(&guard.code.word()));
    assert_eq!(found, None);
}

/// A folder for this test, removed at its end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tare-test-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// A folder for `$TMPDIR`, with a short name: servers keep sockets in it.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("t{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Returns what tare has left in it.
    pub fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap().flatten();
        entries.map(|entry| entry.path().display().to_string()).collect()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command to its end; returns the outcome and its peak memory. The peak of `wait4` is at
/// least what this process used at the start, so memory is sampled during the run.
pub fn peak_of(command: &mut Command) -> (Ran, u64) {
    let shown = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let ended = AtomicBool::new(false);
    let (output, peak_kb) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut peak_kb = 0;
            let mut looks = 0;
            while !ended.load(Ordering::Relaxed) {
                peak_kb = peak_kb_of(pid).unwrap_or(0).max(peak_kb);
                looks += 1;
                // Some commands end at once.
                let rest = std::time::Duration::from_millis(if looks < 1000 { 0 } else { 2 });
                super::wait::let_pass(rest);
            }
            peak_kb
        });
        let output = child.wait_with_output().unwrap();
        ended.store(true, Ordering::Relaxed);
        (output, looking.join().unwrap())
    });
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let ran = Ran { command: shown, code: output.status.code(), stdout, stderr };
    (ran, peak_kb)
}

pub fn peak_kb_of(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Places need root; CI runs as root.
pub fn can_run(what: &str) -> bool {
    if !is_root() {
        not_run(&format!("{what} needs root"));
    }
    is_root()
}
