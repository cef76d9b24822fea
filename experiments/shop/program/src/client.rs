//! Calls to other services over kept connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::settings::Callee;

const TIMEOUT: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: u64 = 16 << 10;
const BODY_BYTES_MAX: usize = 64 << 10;

/// One thread's connections to the services that it calls.
#[derive(Default)]
pub struct Client {
    kept: Vec<(String, BufReader<TcpStream>)>,
}

impl Client {
    /// Returns the body of a callee's reply; a status other than 200 is an error.
    pub fn call(&mut self, callee: &Callee) -> Result<String, String> {
        self.get(callee, "/")
    }

    pub fn get(&mut self, callee: &Callee, path: &str) -> Result<String, String> {
        let failed = |why: String| format!("{}: {why}", callee.name);
        let at = self.kept.iter().position(|(host, _)| *host == callee.host);
        if let Some(at) = at {
            let (host, mut connection) = self.kept.swap_remove(at);
            // The callee may have closed it meanwhile: then retry on a new connection.
            if let Ok((body, keeps)) = exchange(&mut connection, callee, path) {
                if keeps {
                    self.kept.push((host, connection));
                }
                return body.map_err(failed);
            }
        }
        let mut connection = connect(&callee.host).map_err(failed)?;
        let (body, keeps) = exchange(&mut connection, callee, path).map_err(failed)?;
        if keeps {
            self.kept.push((callee.host.clone(), connection));
        }
        body.map_err(failed)
    }
}

fn connect(host: &str) -> Result<BufReader<TcpStream>, String> {
    let found = host.to_socket_addrs().map_err(|error| error.to_string())?.next();
    let address = found.ok_or("it has no address")?;
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(|e| e.to_string())?;
    let set = stream.set_read_timeout(Some(TIMEOUT)).and_then(|()| stream.set_nodelay(true));
    set.map_err(|error| error.to_string())?;
    Ok(BufReader::new(stream))
}

/// Returns the reply, and whether the connection may be reused; an error if no valid reply came.
fn exchange(
    connection: &mut BufReader<TcpStream>,
    callee: &Callee,
    path: &str,
) -> Result<(Result<String, String>, bool), String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", callee.host);
    let sent = connection.get_mut().write_all(request.as_bytes());
    sent.map_err(|error| error.to_string())?;
    let head = head(connection)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    let length: usize = field(&head, "content-length")
        .and_then(|text| text.parse().ok())
        .ok_or("an answer without a length")?;
    if length > BODY_BYTES_MAX {
        return Err(format!("an answer of {length} bytes"));
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).map_err(|error| error.to_string())?;
    let keeps =
        !field(&head, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let body = String::from_utf8(body).map_err(|_| "an answer that is no text".to_owned())?;
    Ok((if status == "200" { Ok(body) } else { Err(format!("status {status}")) }, keeps))
}

/// Returns the value of a header field.
pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut named = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    named.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// Reads a head through its empty line.
pub fn head(connection: &mut BufReader<TcpStream>) -> Result<String, String> {
    let mut text = String::new();
    let mut limited = connection.take(HEAD_BYTES_MAX);
    loop {
        let before = text.len();
        let n = limited.read_line(&mut text).map_err(|error| error.to_string())?;
        if n == 0 {
            return Err("it ended".into());
        }
        if text[before..].trim_end_matches(['\r', '\n']).is_empty() {
            return Ok(text);
        }
    }
}
