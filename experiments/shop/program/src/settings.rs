//! Settings of one service, from its environment.

use std::net::SocketAddr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub name: String,
    pub cluster: String,
    pub listen: SocketAddr,
    pub calls: Vec<Callee>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callee {
    pub name: String,
    /// Address, as HOST:PORT.
    pub host: String,
}

impl Settings {
    /// Reads the settings; an error is one line.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let name = get("SHOP_NAME").ok_or("SHOP_NAME: write which service this is")?;
        let cluster = get("SHOP_CLUSTER").unwrap_or_else(|| "0".into());
        for (key, value) in [("SHOP_NAME", &name), ("SHOP_CLUSTER", &cluster)] {
            if !is_name(value) {
                return Err(format!("{key}={value:?}: write lower-case letters, digits and -"));
            }
        }
        let listen = get("SHOP_LISTEN").unwrap_or_else(|| "0.0.0.0:8080".into());
        let listen = listen
            .parse()
            .map_err(|_| format!("SHOP_LISTEN={listen:?}: write an address, as 0.0.0.0:8080"))?;
        let calls = get("SHOP_CALLS").unwrap_or_default();
        let calls = calls.split(',').filter(|call| !call.is_empty()).map(callee);
        Ok(Self { name, cluster, listen, calls: calls.collect::<Result<_, _>>()? })
    }
}

fn callee(text: &str) -> Result<Callee, String> {
    let wrong = || format!("SHOP_CALLS: {text:?}: write NAME=http://HOST:PORT");
    let (name, url) = text.split_once('=').ok_or_else(wrong)?;
    let host = url.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let plain = |c: char| c.is_ascii_graphic() && c != '/';
    match is_name(name) && port.is_some() && host.chars().all(plain) {
        true => Ok(Callee { name: name.to_owned(), host: host.to_owned() }),
        false => Err(wrong()),
    }
}

/// Names are limited to plain characters, because replies contain them unescaped.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let of = |key: &str| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| (*v).to_owned());
        Settings::read(of)
    }

    #[test]
    fn settings_are_read_and_mistakes_named() {
        let cart = read(&[("SHOP_NAME", "cart"), ("SHOP_CALLS", "redis=http://redis:80")]).unwrap();
        assert_eq!(cart.calls, [Callee { name: "redis".into(), host: "redis:80".into() }]);
        assert_eq!(cart.listen.port(), 8080);
        for (pairs, told) in [
            (&[][..], "SHOP_NAME"),
            (&[("SHOP_NAME", "a\"b")], "lower-case"),
            (&[("SHOP_NAME", "a"), ("SHOP_LISTEN", "x")], "SHOP_LISTEN"),
            (&[("SHOP_NAME", "a"), ("SHOP_CALLS", "b")], "NAME=http://HOST:PORT"),
            (&[("SHOP_NAME", "a"), ("SHOP_CALLS", "b=http://h")], "NAME=http://HOST:PORT"),
            (&[("SHOP_NAME", "a"), ("SHOP_CALLS", "b=http://h:1/x")], "NAME=http://HOST:PORT"),
        ] {
            let why = read(pairs).unwrap_err();
            assert!(why.contains(told), "{why}");
        }
    }
}
