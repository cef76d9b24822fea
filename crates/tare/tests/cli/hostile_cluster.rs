//! Clusters with answers that are endless or missing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::flood::PEAK_KB_MAX;
use crate::runs::Desk;
use crate::util::{peak_of, str};

/// Starts an API server that answers each request with this function.
fn api(answer: fn(&mut TcpStream) -> std::io::Result<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut request = [0; 8192];
                while matches!(stream.read(&mut request), Ok(n) if n > 0) {
                    if answer(&mut stream).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: evil\nclusters:\n- name: evil\n  cluster:\n    \
         server: http://{address}\ncontexts:\n- name: evil\n  context: {{cluster: evil, user: u}}\n\
         users:\n- name: u\n  user: {{}}\n"
    )
}

fn say(stream: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}")
}

fn endless_body(stream: &mut TcpStream) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    write!(stream, "28\r\n{:40}\r\n", "{\"kind\":\"List\",\"items\":[{\"a\":[")?;
    let chunk = format!("{:x}\r\n{}\r\n", 2 << 16, "0,".repeat(1 << 16));
    loop {
        stream.write_all(chunk.as_bytes())?;
    }
}

fn endless_pages(stream: &mut TcpStream) -> std::io::Result<()> {
    let name = "n".repeat(1 << 20);
    let item = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}");
    let more = "\"metadata\":{\"continue\":\"more\"}";
    say(stream, "200 OK", &format!("{{\"kind\":\"List\",{more},\"items\":[{item}]}}"))
}

/// Small as text, but large once parsed.
fn nested_maps(stream: &mut TcpStream) -> std::io::Result<()> {
    let maps = vec!["{\"\":0}"; 4_000_000].join(",");
    say(stream, "200 OK", &format!("{{\"kind\":\"List\",\"items\":[{{\"data\":[{maps}]}}]}}"))
}

fn empty_pages(stream: &mut TcpStream) -> std::io::Result<()> {
    let page = "{\"kind\":\"List\",\"metadata\":{\"continue\":\"more\"},\"items\":[]}";
    say(stream, "200 OK", page)
}

fn endless_error(stream: &mut TcpStream) -> std::io::Result<()> {
    let message = "no such thing ".repeat(1 << 20);
    let status = format!("{{\"kind\":\"Status\",\"message\":\"{message}\",\"code\":400}}");
    say(stream, "400 Bad Request", &status)
}

fn no_json(stream: &mut TcpStream) -> std::io::Result<()> {
    say(stream, "200 OK", "<html>It works!</html>")
}

#[test]
fn answers_are_bounded_and_what_cannot_succeed_is_not_repeated() {
    let desk = Desk::new("hostile-cluster");
    for (name, answer, told) in [
        ("body", endless_body as fn(&mut TcpStream) -> _, "its answer is over 32 MiB"),
        ("pages", endless_pages, "its answer is over 32 MiB"),
        ("maps", nested_maps, "or 512 MiB in memory"),
        ("empty", empty_pages, "its pages do not end within 60s and 20000 objects"),
        ("error", endless_error, "no such thing"),
        ("html", no_json, "Error deserializing response"),
    ] {
        let config = desk.file("config", &api(answer));
        let mut clean = desk.command(&["clean", "--context", "evil"]);
        let (ran, peak_kb) = peak_of(clean.env("KUBECONFIG", str(&config)));
        ran.fails(3, told);
        // Requests that were repeated for 30 s end with these words.
        assert!(!ran.stderr.contains("does not answer"), "{name}: {}", ran.stderr);
        assert!(peak_kb <= 3 * PEAK_KB_MAX, "{name}: {peak_kb} kB");
        assert!(ran.stderr.lines().all(|line| line.len() < 1000), "{name}: {}", ran.stderr);
    }
}
