//! Serves one service: a thread for each connection, which calls the other services in turn.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::client::{Client, field, head};
use crate::settings::Settings;

const CONNECTIONS_MAX: usize = 512;
/// A connection without a request for this long is closed.
const IDLE: Duration = Duration::from_secs(300);

struct ServerState {
    settings: Settings,
    served: AtomicU64,
    connections: AtomicUsize,
}

/// Serves until the listener fails for good, and returns that error.
pub fn serve(listener: &TcpListener, settings: Settings) -> std::io::Error {
    let served = Arc::new(ServerState {
        settings,
        served: AtomicU64::new(0),
        connections: AtomicUsize::new(0),
    });
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.raw_os_error().is_none() => return error,
            // The client is gone, or too many files are open: retry after a pause.
            Err(_) => {
                std::thread::park_timeout(Duration::from_millis(10));
                continue;
            }
        };
        if served.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            served.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let served = served.clone();
        std::thread::spawn(move || {
            served.serve_connection(stream);
            served.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl ServerState {
    fn serve_connection(&self, stream: TcpStream) {
        let set = stream.set_read_timeout(Some(IDLE)).and_then(|()| stream.set_nodelay(true));
        if set.is_err() {
            return;
        }
        let (mut connection, mut client) = (BufReader::new(stream), Client::default());
        while let Ok(head) = head(&mut connection) {
            let mut words = head.split(' ');
            let (method, path) = (words.next(), words.next().unwrap_or_default());
            let has_body = head.to_ascii_lowercase().contains("\r\ntransfer-encoding:")
                || head.lines().any(|line| {
                    let field = line.to_ascii_lowercase();
                    field.strip_prefix("content-length:").is_some_and(|n| n.trim() != "0")
                });
            let ends = has_body || head.to_ascii_lowercase().contains("\r\nconnection: close");
            let (status, body) = match (method, path) {
                (Some("GET"), _) if has_body => ("400 Bad Request", String::new()),
                (Some("GET"), "/ready") => ("200 OK", "ready\n".to_owned()),
                (Some("GET"), "/counts") => ("200 OK", self.counts()),
                (Some("GET"), _) => self.answer(&mut client, asked_by(&head)),
                _ => ("405 Method Not Allowed", String::new()),
            };
            let close = if ends { "Connection: close\r\n" } else { "" };
            let reply = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 {close}\r\n{body}",
                body.len()
            );
            if connection.get_mut().write_all(reply.as_bytes()).is_err() || ends {
                return;
            }
        }
    }

    fn counts(&self) -> String {
        let served = self.served.load(Ordering::Relaxed);
        format!("{{\"service\": \"{}\", \"served\": {served}}}\n", self.settings.name)
    }

    /// Returns status and body of a reply: this service's name, and the replies of those it called.
    fn answer(&self, client: &mut Client, asked_by: &str) -> (&'static str, String) {
        self.served.fetch_add(1, Ordering::Relaxed);
        let Settings { name, cluster, calls, .. } = &self.settings;
        let mut said = Vec::new();
        for callee in calls {
            match client.call(callee) {
                Ok(body) => said.push(body.trim().to_owned()),
                Err(why) => return ("502 Bad Gateway", format!("{name}: {why}\n")),
            }
        }
        let calls = said.join(", ");
        let body = format!(
            "{{\"service\": \"{name}\", \"cluster\": \"{cluster}\", \"asked_by\": \"{asked_by}\", \
             \"calls\": [{calls}]}}\n"
        );
        ("200 OK", body)
    }
}

/// Returns the identity in the last client's certificate, as a mutual TLS sidecar reports it.
fn asked_by(head: &str) -> &str {
    let last = field(head, "x-forwarded-client-cert").and_then(|all| all.rsplit(',').next());
    let named =
        last.and_then(|client| client.split(';').find_map(|part| part.strip_prefix("URI=")));
    let plain = |uri: &&str| {
        uri.len() <= 200 && uri.chars().all(|c| c.is_ascii_alphanumeric() || ":/._-".contains(c))
    };
    named.filter(plain).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::asked_by;

    #[test]
    fn the_last_client_is_who_asked() {
        let head =
            |value: &str| format!("GET / HTTP/1.1\r\nX-Forwarded-Client-Cert: {value}\r\n\r\n");
        let of = |value: &str| asked_by(&head(value)).to_owned();
        assert_eq!(
            of("By=x;URI=spiffe://a/sa/b,By=y;Hash=0;URI=spiffe://a/sa/c"),
            "spiffe://a/sa/c"
        );
        assert_eq!(of("By=x;Hash=0;Subject=\"\""), "");
        assert_eq!(of("URI=a\"b"), "", "it is in JSON as it is");
        assert_eq!(asked_by("GET / HTTP/1.1\r\n\r\n"), "");
    }
}
