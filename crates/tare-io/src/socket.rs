//! Opens and prepares sockets for the reactors: blocking mode, options, local address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::endpoint::Endpoint;
use crate::reactor::SetupError;
use crate::time::DurationNs;

/// Whether a socket blocks. io_uring needs blocking sockets (it parks the request itself), epoll
/// needs non-blocking ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    Yes,
    No,
}

/// Backlog of a listening socket; the kernel caps it at `somaxconn`.
const BACKLOG: i32 = 4096;

/// Socket options; `None` leaves the kernel's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketOptions {
    /// TCP_NODELAY: small sends leave at once, even while earlier data is unacknowledged.
    pub nodelay: bool,
    /// Size of the send and of the receive buffer, each; the kernel doubles it for its own use.
    pub buffer_bytes: Option<u32>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { nodelay: true, buffer_bytes: None }
    }
}

impl SocketOptions {
    fn set(self, socket: &SockRef<'_>, is_tcp: bool) -> io::Result<()> {
        if is_tcp {
            socket.set_tcp_nodelay(self.nodelay)?;
        }
        if let Some(bytes) = self.buffer_bytes {
            socket.set_send_buffer_size(bytes as usize)?;
            socket.set_recv_buffer_size(bytes as usize)?;
        }
        Ok(())
    }
}

pub fn address(endpoint: &Endpoint) -> io::Result<SockAddr> {
    match endpoint {
        Endpoint::Tcp(address) | Endpoint::Udp(address) => Ok((*address).into()),
        Endpoint::Unix(path) => SockAddr::unix(path),
    }
}

/// Opens a socket that is ready to connect to `to`.
pub fn open_outgoing(
    to: &Endpoint,
    from: Option<IpAddr>,
    blocking: Blocking,
    options: SocketOptions,
) -> io::Result<Socket> {
    let socket = open(to, blocking)?;
    options.set(&SockRef::from(&socket), matches!(to, Endpoint::Tcp(_)))?;
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

/// Opens a listening socket. `shared` lets several threads listen on one TCP address, each with a
/// queue of its own. Also returns the bound address (for port 0 the kernel chooses one).
pub fn listener(at: &Endpoint, shared: bool) -> Result<(OwnedFd, Endpoint), SetupError> {
    let error = |source| SetupError::new(format!("cannot listen on {at}"), source);
    let socket = open(at, Blocking::No).map_err(error)?;
    if let Endpoint::Tcp(_) = at {
        socket.set_reuse_address(true).map_err(error)?;
        socket.set_reuse_port(shared).map_err(error)?;
    }
    socket.bind(&address(at).map_err(error)?).map_err(error)?;
    let own = || socket.local_addr().map_err(error).map(|address| address.as_socket());
    let bound = match at {
        Endpoint::Tcp(_) => own()?.map(Endpoint::Tcp),
        Endpoint::Udp(_) => own()?.map(Endpoint::Udp),
        Endpoint::Unix(_) => None,
    };
    // Datagram sockets have no backlog.
    if !matches!(at, Endpoint::Udp(_)) {
        socket.listen(BACKLOG).map_err(error)?;
    }
    Ok((socket.into(), bound.unwrap_or_else(|| at.clone())))
}

/// Makes accepting block, but no longer than `limit`.
pub fn accept_within(
    listener: &impl std::os::fd::AsFd,
    limit: std::time::Duration,
) -> io::Result<()> {
    let socket = SockRef::from(listener);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(limit))
}

/// Shuts a socket down, which wakes every thread that waits on it.
pub fn shut_down(fd: &impl std::os::fd::AsFd) -> io::Result<()> {
    SockRef::from(fd).shutdown(std::net::Shutdown::Both)
}

/// Prepares an accepted connection.
pub fn prepare_accepted(fd: &impl std::os::fd::AsFd, blocking: Blocking, options: SocketOptions) {
    let socket = SockRef::from(fd);
    let _ = socket.set_nonblocking(blocking == Blocking::No);
    // Fails on unix sockets, which have no Nagle to turn off.
    let _ = options.set(&socket, true);
}

/// Prepares an unconnected datagram socket; `polled` makes it non-blocking.
pub fn prepare_datagrams(
    socket: &std::net::UdpSocket,
    options: SocketOptions,
    polled: bool,
) -> io::Result<()> {
    options.set(&SockRef::from(socket), false)?;
    socket.set_nonblocking(polled)
}

/// Receives what has already arrived, without blocking even on a blocking socket.
pub fn receive_now(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    let (at, length, flags) = (into.as_mut_ptr(), into.len(), libc::MSG_DONTWAIT);
    // SAFETY: the pointer and length are those of a live, exclusively borrowed slice.
    let n = unsafe { libc::recv(fd, at.cast(), length, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Makes closing the socket send a reset (RST).
pub fn reset_on_close(fd: &impl std::os::fd::AsFd) {
    let _ = SockRef::from(fd).set_linger(Some(std::time::Duration::ZERO));
}

/// Does what `send(2)` does, but skips the C library's thread cancellation, which takes as many
/// instructions as everything else around the call.
pub fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let (at, length, nobody) = (bytes.as_ptr(), bytes.len(), std::ptr::null::<libc::sockaddr>());
    let (fd, flags) = (libc::c_long::from(fd), libc::c_long::from(libc::MSG_NOSIGNAL));
    // SAFETY: the pointer and length are those of a live slice; no address is given.
    let n = unsafe { libc::syscall(libc::SYS_sendto, fd, at, length, flags, nobody, 0usize) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

pub fn receive(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    let (at, length, nobody) = (into.as_mut_ptr(), into.len(), std::ptr::null_mut::<u8>());
    let (fd, flags) = (libc::c_long::from(fd), libc::c_long::from(0));
    // SAFETY: the pointer and length are those of a live, exclusively borrowed slice; no address is
    // asked for.
    let n = unsafe { libc::syscall(libc::SYS_recvfrom, fd, at, length, flags, nobody, nobody) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Waits until one of `fds` is writable (or readable), for at most `limit` or 1 s.
pub fn wait_ready(fds: &[RawFd], writable: bool, limit: DurationNs) -> io::Result<()> {
    let events = if writable { libc::POLLOUT } else { libc::POLLIN };
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events, revents: 0 }).collect();
    let ms = limit.as_ns().div_ceil(1_000_000).min(1000) as i32;
    // SAFETY: the pointer and length are those of a live vector.
    let n = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, ms) };
    match io::Error::last_os_error() {
        error if n < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Waits for bytes, with a timeout in nanoseconds.
pub fn wait_readable_exactly(socket: &impl AsRawFd, limit: DurationNs) -> io::Result<()> {
    let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = libc::timespec {
        tv_sec: (limit.as_ns() / 1_000_000_000) as i64,
        tv_nsec: (limit.as_ns() % 1_000_000_000) as i64,
    };
    // SAFETY: both structures are valid for the call; no signal mask is given.
    let n = unsafe { libc::ppoll(&raw mut polled, 1, &raw const limit, std::ptr::null()) };
    match io::Error::last_os_error() {
        error if n < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Segments that a TCP connection has retransmitted so far; 0 if the kernel does not say.
pub fn retransmits(fd: RawFd) -> u64 {
    tcp_info(fd).map_or(0, |info| u64::from(info.tcpi_total_retrans))
}

/// The kernel's counters of a TCP connection. Kernels older than a counter leave it at zero.
pub(crate) fn tcp_info(fd: RawFd) -> Option<libc::tcp_info> {
    // SAFETY: the structure is plain data, for which zeroes are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into a structure of that size.
    let done = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (done == 0).then_some(info)
}

/// Whether a send or receive can be retried: no room, no bytes, interrupted, or no driver memory.
pub fn is_retryable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS))
}

fn open(endpoint: &Endpoint, blocking: Blocking) -> io::Result<Socket> {
    let family = |address: &SocketAddr| match address {
        SocketAddr::V4(_) => Domain::IPV4,
        SocketAddr::V6(_) => Domain::IPV6,
    };
    let (domain, kind, protocol) = match endpoint {
        Endpoint::Tcp(address) => (family(address), Type::STREAM, Some(Protocol::TCP)),
        Endpoint::Udp(address) => (family(address), Type::DGRAM, Some(Protocol::UDP)),
        Endpoint::Unix(_) => (Domain::UNIX, Type::STREAM, None),
    };
    let kind = match blocking {
        Blocking::Yes => kind,
        Blocking::No => kind.nonblocking(),
    };
    Socket::new(domain, kind, protocol)
}
