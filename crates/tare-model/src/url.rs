//! The part of URLs that a load generator needs.

use std::net::{IpAddr, Ipv6Addr};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub tls: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// The port, if the URL names it.
    pub written_port: Option<u16>,
    /// Path and query, never empty.
    pub target: String,
}

impl Url {
    /// Reads `http://host:port/path?query`; the scheme is optional.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((scheme, _)) => {
                return Err(format!("scheme '{scheme}' is not supported; use http or https"));
            }
            None => (false, text),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, target) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err("user names in the URL are not sent; use -H 'Authorization: …'".into());
        }
        let (host, port) = split_port(authority)?;
        let written_port = match port {
            Some(text) => Some(
                text.parse()
                    .ok()
                    .filter(|port| *port > 0)
                    .ok_or_else(|| format!("port '{text}' is not a number from 1 to 65535"))?,
            ),
            None => None,
        };
        let port = written_port.unwrap_or(if tls { 443 } else { 80 });
        if host.is_empty() {
            return Err("the host is missing; write http://host:port/path".into());
        }
        if let Some(bad) = host.chars().find(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!("the host has a character that is not allowed: {bad:?}"));
        }
        let target = match target.chars().next() {
            None => "/".to_owned(),
            Some('?') => format!("/{target}"),
            Some(_) => target.to_owned(),
        };
        Ok(Self { tls, host: host.to_owned(), port, written_port, target })
    }

    /// Whether the host is this machine.
    pub fn is_loopback(&self) -> bool {
        let ip: Option<IpAddr> = self.host.parse().ok();
        self.host == "localhost" || ip.is_some_and(|ip| ip.is_loopback())
    }

    /// Value of the Host header, with the port unless it is the scheme's default.
    pub fn host_header(&self) -> String {
        let host = match self.host.parse::<Ipv6Addr>() {
            Ok(_) => format!("[{}]", self.host),
            Err(_) => self.host.clone(),
        };
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) =
            rest.split_once(']').ok_or("the bracket of the IPv6 address is open")?;
        if host.parse::<Ipv6Addr>().is_err() {
            return Err(format!("'{host}' is not an IPv6 address"));
        }
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(format!("'{after}' after the IPv6 address is not a port")),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            Err("an IPv6 address must stand in brackets, as [::1]:8080".into())
        }
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts = (bool, String, u16, String);

    fn url(tls: bool, host: &str, port: u16, target: &str) -> Result<Parts, String> {
        Ok((tls, host.into(), port, target.into()))
    }

    #[test]
    fn urls_are_read() {
        for (text, expected) in [
            ("http://localhost:8080/a?b=c#d", url(false, "localhost", 8080, "/a?b=c")),
            ("https://example.org", url(true, "example.org", 443, "/")),
            ("127.0.0.1:80?x", url(false, "127.0.0.1", 80, "/?x")),
            ("http://[::1]:8080/", url(false, "::1", 8080, "/")),
            ("http://[::1]", url(false, "::1", 80, "/")),
        ] {
            let parsed = Url::parse(text).map(|url| (url.tls, url.host, url.port, url.target));
            assert_eq!(parsed, expected, "{text}");
        }
        assert_eq!(Url::parse("http://[::1]:8080/").unwrap().host_header(), "[::1]:8080");
        assert_eq!(Url::parse("https://a/").unwrap().host_header(), "a");
    }

    #[test]
    fn bad_urls_say_why() {
        for (text, why) in [
            ("ftp://x/", "scheme 'ftp' is not supported; use http or https"),
            ("http://", "the host is missing; write http://host:port/path"),
            ("http:///path", "the host is missing; write http://host:port/path"),
            ("http://h:0/", "port '0' is not a number from 1 to 65535"),
            ("http://h:99999/", "port '99999' is not a number from 1 to 65535"),
            ("http://::1/", "an IPv6 address must stand in brackets, as [::1]:8080"),
            ("http://[::1/", "the bracket of the IPv6 address is open"),
            ("http://[zz]/", "'zz' is not an IPv6 address"),
            ("http://a b/", "the host has a character that is not allowed: ' '"),
        ] {
            assert_eq!(Url::parse(text), Err(why.to_owned()), "{text}");
        }
        assert!(Url::parse("http://u:p@h/").unwrap_err().contains("Authorization"));
    }
}
