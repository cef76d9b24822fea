//! Reads how many requests a server served, from its status page or access log.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::launch::spec::{CountPage, CountSource};

const TIMEOUT: Duration = Duration::from_secs(2);
/// A sidecar's page lists every server of its mesh.
const PAGE_BYTES_MAX: u64 = 2 << 20;

impl CountSource {
    /// Returns whether it may lag behind the replies, because it counts a request only once it is
    /// done.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::AccessLog(_) | Self::Page { page: CountPage::ApacheAuto, .. })
    }

    /// Returns the requests that each reading of the count adds to it.
    pub fn own_requests(&self) -> u64 {
        match self {
            Self::Page { page: CountPage::NginxStub | CountPage::ApacheAuto, .. } => 1,
            Self::Page { page: CountPage::HaproxyCsv | CountPage::TareTarget, .. }
            | Self::AccessLog(_) => 0,
        }
    }
}

/// Fetches a page over plain HTTP, headers included.
pub fn fetch(address: SocketAddr, path: &str) -> Option<String> {
    fetch_as(address, &address.to_string(), path)
}

/// Fetches a page with another Host header than its address.
pub fn fetch_as(address: SocketAddr, host: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut bytes = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let page = String::from_utf8(bytes).ok()?;
    let (head, body) = page.split_once("\r\n\r\n")?;
    match head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked") {
        true => Some(format!("{head}\r\n\r\n{}", decode_chunked(body)?)),
        false => Some(page),
    }
}

/// Decodes a chunked body; `None` if it is incomplete or malformed.
fn decode_chunked(mut body: &str) -> Option<String> {
    let mut text = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(text);
        }
        text.push_str(rest.get(..size)?);
        body = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

impl CountPage {
    pub fn parse(self, page: &str) -> Option<u64> {
        let after = |marker: &str| {
            let rest = page.split_once(marker)?.1;
            let digits: String =
                rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        match self {
            // " accepts handled requests\n 3 3 17"
            Self::NginxStub => nginx_stub(page).map(|(_, requests)| requests),
            Self::ApacheAuto => after("Total Accesses:"),
            Self::HaproxyCsv => haproxy_column(page, "req_tot"),
            Self::TareTarget => after("\"requests\":"),
        }
    }
}

/// Reads a column of HAProxy's statistics for the frontend `web`.
pub fn haproxy_column(page: &str, name: &str) -> Option<u64> {
    let columns = page.split_once("# pxname,")?.1.lines().next()?.split(',');
    let at = columns.clone().position(|column| column == name)?;
    let web = page.lines().find_map(|line| line.strip_prefix("web,FRONTEND,"))?;
    // The header line lacks its first column, this line its first two.
    web.split(',').nth(at.checked_sub(1)?)?.parse().ok()
}

/// Reads accepted connections and requests from nginx's stub_status.
pub fn nginx_stub(page: &str) -> Option<(u64, u64)> {
    let line = page.split_once("server accepts handled requests")?.1;
    let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
    let accepted = numbers.next()??;
    Some((accepted, numbers.nth(1)??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together() {
        assert_eq!(
            decode_chunked("4\r\nabcd\r\n2;x=1\r\nef\r\n0\r\n\r\n").as_deref(),
            Some("abcdef")
        );
        for cut in ["4\r\nabc", "4\r\nabcd", "zz\r\na\r\n", "", "ffffffffffffffff\r\na\r\n"] {
            assert_eq!(decode_chunked(cut), None, "{cut}");
        }
    }

    #[test]
    fn pages_are_read() {
        let nginx = "HTTP/1.1 200 OK\r\n\r\nActive connections: 1 \nserver accepts handled requests\n 3 4 17 \nReading: 0";
        assert_eq!(CountPage::NginxStub.parse(nginx), Some(17));
        assert_eq!(CountPage::ApacheAuto.parse("x\nTotal Accesses: 42\nTotal kBytes: 7"), Some(42));
        let haproxy =
            "# pxname,svname,qcur,req_rate,req_tot,\nweb,FRONTEND,,0,17,\nx,FRONTEND,,0,9,";
        assert_eq!(CountPage::HaproxyCsv.parse(haproxy), Some(17));
        assert_eq!(CountPage::TareTarget.parse("{\"requests\": 9, \"replies\": 8}"), Some(9));
        assert_eq!(CountPage::NginxStub.parse("404"), None);
    }
}
