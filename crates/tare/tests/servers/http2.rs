//! HTTP/2 against common servers: every request is answered, on kept connections and on new
//! ones, with bodies and without, with TLS and without.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Stdio};

use crate::processes::program;
use crate::runs::{Desk, no_guard};
use crate::util::{Folder, command, load_json, str};
use crate::wait;

/// A server of a kind that tare knows, by HTTP/1.1 and by HTTP/2.
fn compared(kind: &str, settings: &str) {
    let desk = Desk::new(&format!("http2-{kind}-{}", settings.len()));
    let report = desk.run(&format!(
        "name = \"{kind}\"\n[load]\nconnections = 8\nthreads = 1\n\
         [stop]\nrounds = 2\nmax_time = \"60s\"\n[slices]\nwindow = \"20ms\"\ncycles = 5\n\
         [server.one]\n{kind} = {{ {settings} }}\n\
         [server.two]\n{kind} = {{ http2 = true, {settings} }}\n\
         [[variant]]\nname = \"one\"\nserver = \"one\"\nbaseline = true\n\
         [[variant]]\nname = \"two\"\nserver = \"two\"\nmay_differ = [\"headers\"]\n\
         load = {{ http = \"2\", connections = 2, streams = 4 }}\n"
    ));
    for variant in &report.variants {
        assert!(variant.errors.is_empty(), "{kind}: {:?}", variant.errors);
        assert_eq!(variant.status.keys().collect::<Vec<_>>(), ["200"], "{kind}");
    }
    for code in ["errors", "count-mismatch", "unequal-reply", "retried", "littles-law"] {
        no_guard(&report, code);
    }
}

#[test]
fn nginx_answers() {
    compared("nginx", "workers = 1");
    compared("nginx", "tls = true");
}

#[test]
fn httpd_answers() {
    compared("httpd", "threads = 16");
}

#[test]
fn haproxy_answers() {
    compared("haproxy", "threads = 1");
    compared("haproxy", "tls = true");
}

#[test]
fn caddy_answers() {
    compared("caddy", "threads = 1");
    compared("caddy", "tls = true");
}

struct Standing(Child);

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program without TLS and with it, and loads it in every way.
fn loaded(line: impl Fn(u16, bool) -> String) {
    let folder = Folder::new("http2-program");
    let [cert, key, upload] = ["cert.pem", "key.pem", "upload"].map(|name| folder.file(name));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::write(&upload, vec![7; 300_000]).unwrap();
    std::fs::write(folder.file("index.html"), "hello").unwrap();
    for tls in [false, true] {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut shell = command("/bin/sh");
        shell.args(["-c", &line(port, tls)]).current_dir(&folder.0);
        let _standing = Standing(shell.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        wait::until("the server listens", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        let url = format!("{}://127.0.0.1:{port}/", if tls { "https" } else { "http" });
        for more in [
            &["-c", "4", "--streams", "8"][..],
            &["-c", "4", "--streams", "8", "--rate", "500"],
            &["-c", "2", "--streams", "4", "-X", "POST", "--body-file", str(&upload)],
            &["-c", "4", "--new-connections"],
            &["-c", "2", "--streams", "3", "--no-hpack-table", "-H", "Cookie: a=b"],
        ] {
            let asked = [&url, "--http2", "-k", "-n", "300"];
            let report = load_json(&[&asked, more].concat());
            let found = &report.requests;
            assert_eq!((found.good, found.failed), (300, 0), "{url} {more:?}: {:?}", report.errors);
        }
    }
}

#[test]
fn node_answers() {
    loaded(|port, tls| format!("exec node {} {port} {tls}", program("http2.js")));
}

#[test]
fn nghttpd_answers() {
    loaded(|port, tls| match tls {
        false => format!("exec nghttpd -a 127.0.0.1 -d . --no-tls {port}"),
        true => format!("exec nghttpd -a 127.0.0.1 -d . {port} key.pem cert.pem"),
    });
}
