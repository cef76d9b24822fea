//! Requests: lists of paths, and servers on Unix sockets.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use tare_target::behaviour::Behaviour;

use crate::runs::{BRIEF, Desk, launches, read};
use crate::util::{Server, str};

#[test]
fn paths_of_a_file_are_requested_in_turn() {
    let desk = Desk::new("requests-paths");
    let file = desk.file("paths.txt", "# two pages\n/one\n/two?x=1\n");
    let log = desk.folder.file("log");
    let tare = env!("CARGO_BIN_EXE_tare");
    // A server that logs its requests.
    let server = desk.file("server.py", SERVER);
    let launch = format!("--launch=a=exec python3 {} {{port}} {}", server.display(), log.display());
    let other = format!("--launch=b=exec {tare} target --listen 127.0.0.1:{{port}} --body 2");
    let args = ["compare", &launch, &other, "--urls", str(&file), "-q", "--json", "-", "-c", "1"];
    let report = read(desk.tare(&[&args[..], &BRIEF].concat()).measured());
    assert!(report.variants.iter().all(|variant| variant.probe.is_some()), "{report:?}");
    let asked = std::fs::read_to_string(&log).unwrap();
    // The first path also has the two requests of each probe.
    let load: Vec<&str> = asked.lines().collect();
    let [one, two] = ["/one", "/two?x=1"].map(|path| load.iter().filter(|l| **l == path).count());
    assert_eq!(one + two, load.len(), "{asked}");
    assert!(two > 0 && one.abs_diff(two) <= 6 * 4 + 2 * 6, "{one} and {two}");
    assert!(load.windows(2).any(|pair| pair == ["/one", "/two?x=1"]), "in turn: {asked}");
}

const SERVER: &str = r#"
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        log.write(self.path + "\n")
        log.flush()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"xx")
    def log_message(self, *args):
        pass
log = open(sys.argv[2], "a")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

#[test]
fn lists_that_cannot_be_requested_are_refused() {
    let desk = Desk::new("requests-mistakes");
    let [a, b] = launches("", "");
    let empty = desk.file("empty.txt", "# nothing\n");
    desk.tare(&["compare", &a, &b, "--urls", str(&empty)]).fails(2, "there is no URL in it");
    let whole = desk.file("whole.txt", "/x\nhttp://h/y\n");
    desk.tare(&["compare", &a, &b, "--urls", str(&whole)]).fails(2, "whole.txt:2 'http://h/y'");
    let many = desk.file("many.txt", &"/x\n".repeat(201));
    desk.tare(&["compare", &a, &b, "--urls", str(&many)]).fails(2, "200 are allowed");
    desk.tare(&["compare", &a, &b, "--random-order"]).fails(2, "--urls");
    let socket = "--unix-socket=a=/tmp/a.sock";
    desk.tare(&["compare", &a, &b, socket]).fails(2, "a server that is up already");
    desk.tare(&["compare", &a, &b, "--unix-socket=c=/x"]).fails(2, "the name of a variant");
}

#[test]
fn servers_on_unix_sockets_are_compared() {
    let desk = Desk::new("requests-unix");
    let paths = ["a.sock", "b.sock"].map(|name| desk.folder.file(name));
    for path in &paths {
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(n) = stream.read(&mut bytes)
                        && n > 0
                    {
                        let heads = bytes[..n].windows(4).filter(|w| *w == b"\r\n\r\n").count();
                        let reply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxx".repeat(heads);
                        if stream.write_all(reply.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
    }
    let [a, b] = paths.map(|path| path.display().to_string());
    let (a_socket, b_socket) = (format!("--unix-socket=a={a}"), format!("--unix-socket=b={b}"));
    let args = ["compare", "a=http://localhost/", "b=http://localhost/", &a_socket, &b_socket];
    let ran = desk.tare(&[&args[..], &["-q", "--json", "-", "-c", "2"], &BRIEF].concat());
    let report = read(ran.measured());
    assert!(report.guards.iter().all(|guard| guard.code != "unequal-reply"), "{report:?}");
    assert!(report.variants.iter().all(|variant| variant.probe.is_some()), "{report:?}");
    let toml = format!(
        "name = \"x\"\n[load]\npaths = [\"/a\", \"/b\"]\nrandom_order = true\nconnections = 1\n\
         [stop]\nrounds = 2\n[slices]\nwindow = \"5ms\"\ncycles = 2\n\
         [server.a]\nurl = \"http://localhost/\"\nunix_socket = \"{a}\"\n\
         [server.b]\nurl = \"http://localhost/\"\nunix_socket = \"{b}\"\n\
         [[variant]]\nname = \"a\"\nserver = \"a\"\n[[variant]]\nname = \"b\"\nserver = \"b\"\n"
    );
    let file = desk.file("unix.toml", &toml);
    let report = read(desk.tare(&["run", str(&file), "--json", "-", "-q"]).measured());
    assert_eq!(report.run.rounds, 2);
}

#[test]
fn a_standing_server_is_started_afresh_by_its_own_command() {
    let desk = Desk::new("requests-standing");
    let server = Server::start(Behaviour::default());
    let log = desk.folder.file("relaunches");
    let text = |relaunch: &str| {
        format!(
            "name = \"standing\"\n[load]\nconnections = 2\n[stop]\nrounds = 3\n[slices]\n\
             window = \"20ms\"\nno_sustained = true\n[server.up]\nurl = \"{url}\"\n[server.web]\n\
             standing = {{ relaunch = \"{relaunch}\" }}\nurl = \"{url}\"\n[[variant]]\nname = \"up\"\n\
             server = \"up\"\nbaseline = true\n[[variant]]\nname = \"web\"\nserver = \"web\"\n",
            url = server.url()
        )
    };
    let report = desk.run(&text(&format!("echo one >> {}", log.display())));
    let web = &report.variants[1];
    assert_eq!(web.name, "web");
    assert!(web.probe.is_some(), "{report:?}");
    let relaunches = std::fs::read_to_string(&log).unwrap().lines().count();
    assert_eq!(relaunches as u32, report.run.rounds, "one at each launch");
    assert!(!web.metrics.contains_key("server_cpu_ns_per_request"), "nobody saw its CPU time");
    for (relaunch, code, words) in [
        ("echo no such deployment >&2; exit 1", 3, "relaunch did not work: no such deployment"),
        (" ", 2, "relaunch is empty"),
    ] {
        let path = desk.file("wrong.toml", &text(relaunch));
        desk.tare(&["run", str(&path), "-q"]).fails(code, words);
    }
}
