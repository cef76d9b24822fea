//! Resolves names to addresses, and makes random seeds.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use tare_model::load::Family;

use crate::load::interrupt;
use tare_model::Failure;

/// Connect timeout when choosing among several addresses of a name.
const CHOOSING_TIMEOUT: Duration = Duration::from_secs(2);

/// Resolves `host`; among several addresses, returns the first that accepts a connection.
/// `localhost` is ::1 and 127.0.0.1, and servers often listen on only one of them.
pub fn address_of(host: &str, port: u16, family: Family) -> Result<SocketAddr, Failure> {
    let found: Vec<SocketAddr> = look_up(host, port)?
        .into_iter()
        .filter(|address| match family {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        })
        .collect();
    match found.as_slice() {
        [] => Err(Failure::target(format!("{host} has no address of the family asked for"))),
        [only] => Ok(*only),
        several => Ok(several
            .iter()
            .find(|address| TcpStream::connect_timeout(address, CHOOSING_TIMEOUT).is_ok())
            .copied()
            .unwrap_or(several[0])),
    }
}

/// Resolves a name on a separate thread, so that Ctrl-C works while the C library waits for a name
/// server.
fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (sender, found) = channel();
    let name = host.to_owned();
    let ask = move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Fails if the user has interrupted the wait.
        let _ = sender.send(found.map_err(|error: std::io::Error| error.to_string()));
    };
    let thread = std::thread::Builder::new().name("names".into()).spawn(ask);
    thread.map_err(|error| Failure::environment(format!("cannot start a thread: {error}")))?;
    loop {
        match found.recv_timeout(STOP_CHECK) {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(text)) => {
                let text =
                    text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
                let text = format!("cannot resolve {host}: {}", text.to_lowercase());
                return Err(Failure::target(text));
            }
            Err(_) if interrupt::was_interrupted() => return Err(Failure::interrupted()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::bug("the look-up of a name ended without an answer"));
            }
        }
    }
}

const STOP_CHECK: Duration = Duration::from_millis(20);

/// Returns a random seed.
pub fn random_seed() -> u64 {
    // Hash keys are seeded by the system; no crate is needed for one number.
    use std::hash::{BuildHasher, RandomState};
    // The seed has 53 bits, because numbers in JavaScript and jq hold no more.
    RandomState::new().hash_one(0) >> 11
}
