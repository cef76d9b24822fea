//! The filters themselves: what each answers and counts, called directly and in nginx, and how each
//! fails. `make filters` builds them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tare_io::DurationNs;
use tare_io::process::{PidFd, signal};
use tare_lab::filters::shared::SharedMemory;
use tare_tidy::skips::not_run;

use crate::runs::Desk;
use crate::util::{Ran, ran, str};

/// All filters that have a library.
pub const LIBRARIES: [&str; 8] =
    ["shm", "library", "wasm", "wasm2c", "rlbox-noop", "lua", "ebpf", "mpk"];

/// URLs and the answers that a filter must give with prefix /aaaa; paths as a library gets them.
fn questions() -> Vec<(String, bool)> {
    vec![
        ("/aaaa".into(), true),
        ("/aaaa/index.html".into(), true),
        (format!("/aaaa{}", "x".repeat(4096)), true),
        (format!("/aaaa{}", "x".repeat(100_000)), true),
        (String::new(), false),
        ("/".into(), false),
        ("/aaa".into(), false),
        ("/aaab".into(), false),
        ("aaaa".into(), false),
        ("/%61aaa".into(), false),
        (format!("/b{}", "a".repeat(4096)), false),
        ("/aaaä".into(), false),
    ]
}

/// Returns the folder in which `make filters` puts them.
fn built() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_tare")).ancestors().nth(2).unwrap().join("filters");
    assert!(folder.join("ngx_http_tare_filter_module.so").exists(), "run make filters first");
    folder
}

/// Compiles C into a library for a test.
pub fn compile(desk: &Desk, name: &str, source: &str, more: &[&str]) -> PathBuf {
    let from = desk.file(&format!("{name}.c"), source);
    let to = desk.folder.file(&format!("{name}.so"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filters/include");
    let mut command = Command::new("cc");
    command.args(["-O1", "-fPIC", "-shared", "-I"]).arg(include).args(more);
    ran(command.arg(from).arg("-o").arg(&to)).success();
    to
}

pub fn has_protection_keys() -> bool {
    let has = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" ospke"));
    if !has {
        not_run("this CPU has no protection keys, or the kernel does not use them");
    }
    has
}

#[test]
fn every_filter_gives_the_same_answers_and_counts_them() {
    let desk = Desk::new("answers");
    let questions = questions();
    for filter in LIBRARIES {
        if filter == "mpk" && !has_protection_keys() {
            continue;
        }
        let mut args = vec!["filter", "ask", filter, "--prefix", "/aaaa"];
        args.extend(questions.iter().map(|(url, _)| url.as_str()));
        let told = desk.tare(&args).success().stdout;
        for ((url, accepted), line) in questions.iter().zip(told.lines()) {
            let word = if *accepted { "accepted" } else { "refused" };
            assert!(line.starts_with(word), "{filter}, {url}: {line}");
        }
        assert_eq!(told.lines().last(), Some("counted 4 accepted, 8 refused"), "{filter}");
    }
    let longest = format!("/{}", "a".repeat(126));
    let shorter = &longest[..126];
    for filter in LIBRARIES.into_iter().filter(|filter| *filter != "mpk" || has_protection_keys()) {
        let told = desk.tare(&["filter", "ask", filter, "--prefix", &longest, &longest, shorter]);
        let told = told.success().stdout;
        assert!(told.ends_with("counted 1 accepted, 1 refused\n"), "{filter}: {told}");
    }
}

/// A real nginx with the module, set up by a configuration file.
struct Nginx {
    child: Child,
    address: SocketAddr,
    status: SocketAddr,
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn nginx_command(
    desk: &Desk,
    directives: &str,
    at: [SocketAddr; 2],
    env: &[(&str, &str)],
) -> Command {
    let [address, status] = at;
    let folder = desk.folder.0.display();
    std::fs::write(desk.folder.file("index.html"), "here").unwrap();
    let config = format!(
        "load_module {module}; daemon off; worker_processes 2; pid {folder}/pid; user root;
         error_log stderr error; events {{ worker_connections 200; accept_mutex off; }}
         http {{ access_log off; root {folder}; large_client_header_buffers 4 128k; {directives}
           server {{ listen {address} reuseport; location / {{ try_files /index.html =404; }} }}
           server {{ listen {status}; location / {{ tare_filter_status; }} }} }}",
        module = built().join("ngx_http_tare_filter_module.so").display()
    );
    let path = desk.file("nginx.conf", &config);
    let mut command = Command::new("nginx");
    command.args(["-e", "stderr", "-c"]).arg(path).envs(env.iter().copied());
    command
}

impl Nginx {
    fn start(desk: &Desk, directives: &str, env: &[(&str, &str)]) -> Self {
        let at = [free(), free()];
        let mut command = nginx_command(desk, directives, at, env);
        let child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let nginx = Self { child, address: at[0], status: at[1] };
        let watched = PidFd::new(nginx.child.id()).unwrap();
        for _ in 0..5000 {
            if TcpStream::connect(at[1]).is_ok() && TcpStream::connect(at[0]).is_ok() {
                return nginx;
            }
            assert!(!watched.wait_timeout(DurationNs::from_ms(1)), "nginx ended");
        }
        panic!("nginx does not listen");
    }

    fn counts(&self) -> Vec<u64> {
        let page = get(self.status, "/").1;
        let numbers = ["seen ", "accepted ", "refused "];
        numbers
            .map(|name| page.lines().find_map(|line| line.strip_prefix(name)).unwrap())
            .map(|number| number.parse().unwrap())
            .to_vec()
    }

    /// Workers publish their counts a moment later.
    fn counts_become(&self, expected: &[u64]) {
        let watched = PidFd::new(self.child.id()).unwrap();
        for _ in 0..400 {
            if self.counts() == expected {
                return;
            }
            assert!(!watched.wait_timeout(DurationNs::from_ms(5)), "nginx ended");
        }
        assert_eq!(self.counts(), expected);
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = signal(self.child.id(), libc::SIGTERM);
        let _ = self.child.wait();
    }
}

/// Returns status and body.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// A controller that ends when dropped.
struct Control(Child);

impl Control {
    fn start(desk: &Desk, filter: &str, name: &str) -> Self {
        let args = ["filter", "control", filter, "--prefix", "/aaaa", "--shm", name];
        let mut command = desk.command(&args);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let watched = PidFd::new(child.id()).unwrap();
        while !Path::new("/dev/shm").join(name).exists() {
            assert!(!watched.wait_timeout(DurationNs::from_ms(1)), "the controller ended");
        }
        Self(child)
    }

    fn end(mut self) -> String {
        signal(self.0.id(), libc::SIGINT).unwrap();
        let mut told = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(self.0.wait().unwrap().success(), "{told}");
        told
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_filter_works_in_nginx_with_several_workers() {
    for filter in LIBRARIES.into_iter().chain(["identity"]) {
        if filter == "mpk" && !has_protection_keys() {
            continue;
        }
        let desk = Desk::new(&format!("nginx-{filter}"));
        let name = format!("tare-test-{}-{filter}", std::process::id());
        let controlled = matches!(filter, "shm" | "ebpf");
        let control = controlled.then(|| Control::start(&desk, filter, &name));
        let library = built().join(format!("libtare_filter_{}.so", filter.replace('-', "_")));
        let kind = match filter {
            "identity" | "shm" => filter.to_owned(),
            _ => format!("library {}", library.display()),
        };
        let shm = if controlled { format!("tare_filter_shm {name};") } else { String::new() };
        let directives = format!("tare_filter {kind}; tare_filter_prefix /aaaa; {shm}");
        let nginx = Nginx::start(&desk, &directives, &[]);
        let identity = filter == "identity";
        let refusal = if identity { 200 } else { 403 };
        let long = "x".repeat(60_000);
        // nginx decodes and normalises a path before it asks the filter about it.
        for (path, status) in [
            ("/aaaa", 200),
            ("/aaaa/%2e%2e/b?/aaaa", refusal),
            ("/%61%61aa?q", 200),
            ("//aaaa", 200),
            (&format!("/aaaa{long}"), 200),
            (&format!("/b{long}"), refusal),
            ("/", refusal),
            ("/aaa%c3%a4", refusal),
        ] {
            assert_eq!(get(nginx.address, path).0, status, "{filter}, {path:.40}");
        }
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let address = nginx.address;
                let path = if thread % 4 == 0 { "/b" } else { "/aaaa" };
                std::thread::spawn(move || (0..25).for_each(|_| drop(get(address, path))))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let expected = if identity { [208, 0, 0] } else { [208, 154, 54] };
        nginx.counts_become(&expected);
        drop(nginx);
        if let Some(control) = control {
            let told = control.end();
            assert!(told.ends_with("ended: accepted 154, refused 54\n"), "{filter}: {told}");
        }
    }
}

#[test]
fn the_published_environment_is_honoured_where_directives_are_absent() {
    let desk = Desk::new("environment");
    let library = built().join("libtare_filter_lua.so");
    let script = desk.file(
        "all.lua",
        "function module_initialize() return 0 end
         function module_url_filter(url) return url == '/only' and 1 or 0 end
         function module_get_counters() return 7, 8 end",
    );
    let env = [
        ("DYNAMIC_LOAD_LIB_PATH", str(&library)),
        ("DYNAMIC_LOAD_URL_PREFIX", "/any"),
        ("LUA_MODULE_PATH", str(&script)),
    ];
    let nginx = Nginx::start(&desk, "tare_filter library;", &env);
    assert_eq!(get(nginx.address, "/only").0, 200);
    assert_eq!(get(nginx.address, "/any").0, 403);
    // Each of the two workers reports 7 and 8, even one without requests.
    nginx.counts_become(&[2, 14, 16]);
}

#[test]
fn what_cannot_be_set_up_stops_nginx_with_the_reason() {
    let desk = Desk::new("setup");
    let path = |name: &str| built().join(format!("libtare_filter_{name}.so")).display().to_string();
    let half = compile(&desk, "half", "int module_initialize(const char *p) { return 0; }", &[]);
    let broken = desk.file("broken.wasm", "this is not WebAssembly");
    let bad_lua = desk.file("bad.lua", "function module_initialize(");
    let bad_bpf = desk.file("bad.o", "not an object");
    let wasm = format!("library {}", path("wasm"));
    let lua = format!("library {}", path("lua"));
    let ebpf = format!("library {}", path("ebpf"));
    let prefix = "tare_filter_prefix /aaaa;";
    let long = format!("tare_filter_prefix /{};", "a".repeat(199));
    for (kind, more, env, complaint) in [
        ("library /no/such.so", prefix, ("A", ""), "cannot open shared object file"),
        (&format!("library {}", half.display()), prefix, ("A", ""), "has no function module_url_"),
        ("library", prefix, ("A", ""), "which? give a path"),
        (&wasm, "", ("A", ""), "no prefix: give tare_filter_prefix"),
        (&wasm, prefix, ("WASM_MODULE_PATH", str(&broken)), "broken.wasm: "),
        (&wasm, prefix, ("WASM_MODULE_PATH", "/no/such.wasm"), "such.wasm: No such file"),
        (&lua, prefix, ("LUA_MODULE_PATH", str(&bad_lua)), "bad.lua:1: "),
        (&lua, prefix, ("LUA_MODULE_PATH", "/no/such.lua"), "cannot open /no/such.lua"),
        (&ebpf, prefix, ("TARE_FILTER_SHM", "tare-no-such"), "start `tare filter control` first"),
        (&ebpf, prefix, ("EBPF_MODULE_PATH", str(&bad_bpf)), "no shared memory is named"),
        ("shm", prefix, ("A", ""), "no shared memory is named"),
        ("wasm", "", ("A", ""), "is one of: off, identity, shm, library PATH"),
        ("identity /x", "", ("A", ""), "takes a path with 'library' only"),
        ("identity", &long, ("A", ""), "has 200 bytes; 1 to 127 are allowed"),
    ] {
        let directives = format!("tare_filter {kind}; {more}");
        let told = ran(&mut nginx_command(&desk, &directives, [free(), free()], &[env]));
        assert_ne!(told.code, Some(0), "{kind}");
        assert!(told.stderr.contains(complaint), "{kind} {env:?}: {}", told.story());
    }
}

#[test]
fn protection_keys_protect_or_nothing_runs() {
    let desk = Desk::new("mpk");
    let deny = compile(
        &desk,
        "deny",
        "#include <errno.h>\nint pkey_alloc(unsigned f, unsigned r) { errno = ENOSPC; return -1; }",
        &[],
    );
    let mut command = desk.command(&["filter", "ask", "mpk", "/aaaa"]);
    let told = ran(command.env("LD_PRELOAD", &deny));
    told.fails(3, "protection keys cannot be used, and without them this filter does not run");
    if !has_protection_keys() {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filters/library/mpk.c");
    let source = std::fs::read_to_string(source).unwrap();
    let stray = compile(&desk, "stray", &source, &["-DTARE_TEST_STRAY", "-O2"]);
    desk.tare(&["filter", "ask", str(&stray), "/aaaa"])
        .fails(3, "has an instruction outside its gates that changes protection rights");
    let program = desk.folder.file("poke");
    let poke = desk.file(
        "poke.c",
        r#"#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void caught(int n, siginfo_t *info, void *c) {
    (void) n; (void) c;
    _exit(info->si_code == 4 /* SEGV_PKUERR */ ? 42 : 43);
}
int main(int argc, char **argv) {
    void *lib = dlopen(argv[1], RTLD_NOW);
    int (*initialize)(const char *) = dlsym(lib, "module_initialize");
    int (*filter)(const char *) = dlsym(lib, "module_url_filter");
    volatile char *(*domain)(void) = dlsym(lib, "tare_mpk_domain");
    if (argc < 2 || initialize("/aaaa") != 0 || filter("/aaaa") != 1 || filter("/b") != 0) return 1;
    volatile char *at = domain();
    if (at[8] != '/') return 2; /* reading is allowed: the prefix */
    struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };
    sigaction(SIGSEGV, &action, NULL);
    at[9] = 'b';
    return 3;
}"#,
    );
    ran(Command::new("cc").arg(&poke).arg("-o").arg(&program).arg("-ldl")).success();
    let told = ran(Command::new(&program).arg(built().join("libtare_filter_mpk.so")));
    assert_eq!(told.code, Some(42), "{}", told.story());
}

#[test]
fn a_controller_changes_the_prefix_while_filters_run() {
    let desk = Desk::new("control");
    let name = format!("tare-test-{}-change", std::process::id());
    let mut control = Control::start(&desk, "shm", &name);
    let nginx = Nginx::start(&desk, &format!("tare_filter shm; tare_filter_shm {name};"), &[]);
    assert_eq!([get(nginx.address, "/aaaa").0, get(nginx.address, "/bbbb").0], [200, 403]);
    let set = |prefix: &str| -> Ran {
        desk.tare(&["filter", "control", "shm", "--shm", &name, "--set", prefix])
    };
    assert_eq!(set("/bbbb").success().stdout, "prefix /bbbb (was /aaaa)\n");
    assert_eq!([get(nginx.address, "/aaaa").0, get(nginx.address, "/bbbb").0], [403, 200]);
    set("bbbb").fails(2, "write a slash and at least one character");
    let again = ["filter", "control", "shm", "--shm", &name];
    desk.tare(&again).fails(3, "which runs; give another --shm");
    // Typing a line does the same; a wrong line changes nothing.
    let mut typed = control.0.stdin.as_ref().unwrap();
    typed.write_all(b"cccc\n/cccc\n").unwrap();
    let memory = SharedMemory::open(&name).unwrap();
    let watched = PidFd::new(control.0.id()).unwrap();
    while memory.prefix().unwrap() != "/cccc" {
        assert!(!watched.wait_timeout(DurationNs::from_ms(5)), "the controller ended");
    }
    assert_eq!([get(nginx.address, "/bbbb").0, get(nginx.address, "/cccc").0], [403, 200]);
    drop(nginx);
    // Every second it prints the counts.
    let mut out = BufReader::new(control.0.stdout.take().unwrap());
    let mut told = String::new();
    while !told.contains("accepted 3 (+") {
        assert!(out.read_line(&mut told).unwrap() > 0, "the controller ended: {told}");
    }
    control.0.stdout = Some(out.into_inner());
    let told = control.end();
    assert!(told.ends_with("ended: accepted 3, refused 3\n"), "{told}");
    assert!(!Path::new("/dev/shm").join(&name).exists());
    set("/bbbb").fails(3, "no controller runs under that name");
    desk.tare(&["filter", "control", "lua"]).fails(2, "has no controller; shm and ebpf have");
    desk.tare(&["filter", "control", "shm", "--shm", "mine"]).fails(2, "write tare-…");
}

#[test]
fn memory_that_a_killed_controller_left_is_explained_and_removed() {
    let desk = Desk::new("stale");
    let name = format!("tare-test-{}-stale", std::process::id());
    let mut control = Control::start(&desk, "ebpf", &name);
    control.0.kill().unwrap();
    control.0.wait().unwrap();
    let again = ["filter", "control", "ebpf", "--shm", &name];
    desk.tare(&again).fails(3, "which was killed; tare clean removes it");
    let cleaned = desk.tare(&["clean"]).success().stdout;
    assert!(cleaned.contains(&format!("removed shared memory /dev/shm/{name}\n")), "{cleaned}");
    Control::start(&desk, "ebpf", &name).end();
}

#[test]
fn a_reload_that_fails_leaves_nginx_as_it_was() {
    let desk = Desk::new("reload");
    let library =
        format!("tare_filter library {};", built().join("libtare_filter_library.so").display());
    let nginx = Nginx::start(&desk, &format!("{library} tare_filter_prefix /aaaa;"), &[]);
    let path = desk.folder.file("nginx.conf");
    let good = std::fs::read_to_string(&path).unwrap();
    let reload = |config: &str| {
        std::fs::write(&path, config).unwrap();
        signal(nginx.child.id(), libc::SIGHUP).unwrap();
    };
    // nginx listens before it handles signals: until a worker answers, SIGHUP would end it.
    assert_eq!(get(nginx.address, "/aaaa").0, 200);
    let watched = PidFd::new(nginx.child.id()).unwrap();
    reload(&good.replace("/aaaa", &format!("/{}", "a".repeat(200))));
    reload(&good.replace("tare_filter library ", "tare_filter library /no/such"));
    assert!(!watched.wait_timeout(DurationNs::from_ms(300)), "nginx ended");
    assert_eq!([get(nginx.address, "/aaaa").0, get(nginx.address, "/bbbb").0], [200, 403]);
    reload(&good.replace("/aaaa", "/bbbb"));
    let turned = (0..1000).any(|_| {
        assert!(!watched.wait_timeout(DurationNs::from_ms(5)), "nginx ended");
        get(nginx.address, "/bbbb").0 == 200
    });
    assert!(turned, "the new prefix is not used");
}

#[test]
fn nothing_gets_around_the_filter_in_nginx() {
    let desk = Desk::new("around");
    let config = "tare_filter identity; tare_filter_prefix /aaaa;";
    // Other directives can overrule an answer too.
    let around = "server { listen 127.0.0.1:PORT; satisfy any; allow all;
        location / { try_files /index.html =404; }
        location = /turned { error_page 418 = @other; return 418; }
        location @other { try_files /index.html =404; } }";
    let port = free().port();
    let library = built().join("libtare_filter_library.so");
    let config = config.replace("identity", &format!("library {}", library.display()))
        + &around.replace("PORT", &port.to_string());
    let nginx = Nginx::start(&desk, &config, &[]);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(get(address, "/aaaa").0, 200);
    assert_eq!(get(address, "/b").0, 403, "satisfy any");
    assert_eq!(get(address, "/turned").0, 403, "redirected before the access phase");
    nginx.counts_become(&[3, 1, 2]);
}

#[test]
fn a_prefix_that_changes_while_it_is_read_accepts_nothing_else() {
    let desk = Desk::new("race");
    let source = r#"#include "shared.h"
#include <pthread.h>
static struct shared shared;
static char prefixes[2][TARE_PREFIX_MAX + 1];
static int ended;
static void put(uint32_t generation, const char *prefix) {
    struct shared_prefix *p = &shared.prefix;
    memcpy(p->text[generation & 1], prefix, TARE_PREFIX_MAX + 1);
    p->length[generation & 1] = TARE_PREFIX_MAX;
    __atomic_store_n(&p->generation, generation, __ATOMIC_RELEASE);
}
static void *write_on(void *unused) {
    for (uint32_t i = 1; !__atomic_load_n(&ended, __ATOMIC_RELAXED); i++) {
        put(i, prefixes[(i >> 1) & 1]);
    }
    return unused;
}
int main(void) {
    pthread_t writer;
    char mixed[2][8][TARE_PREFIX_MAX + 1];
    int wrong = 0;
    for (int p = 0; p < 2; p++) {
        memset(prefixes[p], 'a' + p, TARE_PREFIX_MAX);
    }
    for (int m = 0; m < 16; m++) {
        char *url = mixed[m & 1][m >> 1];
        int split = 8 + (m >> 1) * 16;
        memset(url, 'a' + (m & 1), split);
        memset(url + split, 'b' - (m & 1), TARE_PREFIX_MAX - split);
        url[TARE_PREFIX_MAX] = 0;
    }
    put(0, prefixes[0]);
    pthread_create(&writer, NULL, write_on, NULL);
    for (int i = 0; i < 10000000; i++) {
        wrong += shared_accepts(&shared, mixed[i & 1][(i >> 1) & 7], TARE_PREFIX_MAX) == 1;
    }
    __atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
    pthread_join(writer, NULL);
    printf("%d\n", wrong);
    return wrong > 0;
}"#;
    let from = desk.file("race.c", source);
    let to = desk.folder.file("race");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filters/include");
    let mut command = Command::new("cc");
    command.args(["-O2", "-pthread", "-D_GNU_SOURCE", "-I"]).arg(include).arg(from);
    ran(command.arg("-o").arg(&to)).success();
    ran(&mut Command::new(&to)).success();
}
