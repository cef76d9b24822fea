//! Sockets as both reactors want them: not blocking, no Nagle, bound where asked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::endpoint::Endpoint;
use crate::reactor::SetupError;

/// io_uring wants blocking sockets (it parks the request itself), epoll the other kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    Yes,
    No,
}

/// Connections waiting to be accepted; the kernel lowers it to its own `somaxconn`.
const BACKLOG: i32 = 4096;

pub fn address(endpoint: &Endpoint) -> io::Result<SockAddr> {
    match endpoint {
        Endpoint::Tcp(address) => Ok((*address).into()),
        Endpoint::Unix(path) => SockAddr::unix(path),
    }
}

/// A socket ready to connect to `to`.
pub fn outgoing(to: &Endpoint, from: Option<IpAddr>, blocking: Blocking) -> io::Result<Socket> {
    let socket = open(to, blocking)?;
    if let Some(ip) = from {
        // The port is left to connect(2), which can share one local port among many destinations.
        // SAFETY: a plain setsockopt on a socket we own, with a valid int of the stated size.
        let done = unsafe {
            let on: libc::c_int = 1;
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_IP,
                libc::IP_BIND_ADDRESS_NO_PORT,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        socket.bind(&SocketAddr::new(ip, 0).into())?;
    }
    Ok(socket)
}

/// A listening socket. `shared` lets several threads listen on one TCP address, each with a queue
/// of its own. The second value is where it listens in fact (port 0 is chosen by the kernel).
pub fn listener(at: &Endpoint, shared: bool) -> Result<(OwnedFd, Endpoint), SetupError> {
    let error = |source| SetupError::new(format!("cannot listen on {at}"), source);
    let socket = open(at, Blocking::No).map_err(error)?;
    if let Endpoint::Tcp(_) = at {
        socket.set_reuse_address(true).map_err(error)?;
        socket.set_reuse_port(shared).map_err(error)?;
    }
    socket.bind(&address(at).map_err(error)?).map_err(error)?;
    socket.listen(BACKLOG).map_err(error)?;
    let bound = match at {
        Endpoint::Tcp(_) => socket.local_addr().map_err(error)?.as_socket().map(Endpoint::Tcp),
        Endpoint::Unix(_) => None,
    };
    Ok((socket.into(), bound.unwrap_or_else(|| at.clone())))
}

/// Prepares an accepted connection.
pub fn prepare_accepted(fd: &OwnedFd, blocking: Blocking) {
    let socket = SockRef::from(fd);
    let _ = socket.set_nonblocking(blocking == Blocking::No);
    // Fails on unix sockets, which have no Nagle to turn off.
    let _ = socket.set_tcp_nodelay(true);
}

/// Makes the coming close send a reset.
pub fn reset_on_close(fd: &impl std::os::fd::AsFd) {
    let _ = SockRef::from(fd).set_linger(Some(std::time::Duration::ZERO));
}

pub fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live slice.
    let n = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

pub fn receive(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live, exclusively borrowed slice.
    let n = unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), 0) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

fn open(endpoint: &Endpoint, blocking: Blocking) -> io::Result<Socket> {
    let (domain, protocol) = match endpoint {
        Endpoint::Tcp(SocketAddr::V4(_)) => (Domain::IPV4, Some(Protocol::TCP)),
        Endpoint::Tcp(SocketAddr::V6(_)) => (Domain::IPV6, Some(Protocol::TCP)),
        Endpoint::Unix(_) => (Domain::UNIX, None),
    };
    let kind = match blocking {
        Blocking::Yes => Type::STREAM,
        Blocking::No => Type::STREAM.nonblocking(),
    };
    let socket = Socket::new(domain, kind, protocol)?;
    if protocol.is_some() {
        socket.set_tcp_nodelay(true)?;
    }
    Ok(socket)
}
