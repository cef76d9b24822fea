//! The reactor on io_uring: one ring per worker, registered files, multishot receive.
//!
//! Its advantage over epoll is the batched wait: one system call submits all sends of a turn and
//! sleeps until several replies have arrived. [`Wait::batch`] and [`Wait::linger`] bound the
//! latency that this adds.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use socket2::SockAddr;

use crate::buffers::BufferRing;
use crate::endpoint::Endpoint;
use crate::reactor::{
    Accepted, Chunk, Close, Completion, Happened, KeptBytes, KeptId, Outgoing, Polling,
    QUIET_SEND_MAX_BYTES, Reactor, SetupError, Token, Tuning, Wait,
};
use crate::socket::{self, Blocking, SocketOptions};
use crate::time::{DurationNs, Instant, monotonic_now};

pub struct UringReactor {
    // Dropped first, which cancels the operations that the ring still holds, so that the kernel no
    // longer reads memory of the fields below.
    ring: IoUring,
    buffers: BufferRing,
    kept: KeptBytes,
    connections: Vec<Connection>,
    /// Buffers of connections that were closed while the kernel was still sending them.
    orphans: Vec<(u64, Outgoing)>,
    ready: Vec<Completion>,
    /// Connections with a receive that found no free buffer. The receive is armed again at the next
    /// wait: by then the engine has released some buffers, and reaping cannot loop for ever.
    starved: Vec<Token>,
    listener: Option<OwnedFd>,
    has_min_wait: bool,
    sockets: SocketOptions,
    polling: Polling,
    /// Counts submissions, to know whether an entry is still only queued.
    epoch: u64,
}

#[derive(Default)]
struct Connection {
    fd: Option<OwnedFd>,
    generation: u32,
    /// The kernel reads the address while it connects.
    address: Option<Box<SockAddr>>,
    /// A send in the kernel that will be reported.
    sending: Option<Outgoing>,
    /// A multishot receive is armed in the kernel.
    receiving: bool,
    /// The epoch in which an entry for this connection was last queued.
    queued_epoch: u64,
}

/// The operation that a completion ends, in the top byte of its user data. Below it are 24 bits of
/// generation and 32 of slot.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Op {
    Connect = 1,
    Receive = 2,
    SendQuiet = 3,
    Send = 4,
    Accept = 5,
    /// Cancelling at a close; the result is ignored.
    Tidy = 6,
}

const GENERATION_MASK: u32 = 0x00ff_ffff;
/// Room for the sends and receives of one turn; a full queue is submitted early.
const SUBMISSIONS: u32 = 1024;
/// A full completion queue only ends multishot receives, which are armed again.
const COMPLETIONS: u32 = 8192;
const BUFFER_GROUP: u16 = 0;

impl UringReactor {
    /// A reactor for connections in slots `0..slots`. Fails if the kernel is too old or io_uring is
    /// forbidden (as in many containers).
    pub fn new(slots: u32) -> Result<Self, SetupError> {
        Self::tuned(slots, Tuning::default())
    }

    pub fn tuned(slots: u32, tuning: Tuning) -> Result<Self, SetupError> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)
            .map_err(|error| SetupError::new("cannot create an io_uring", error))?;
        let setup = |what| move |error| SetupError::new(format!("io_uring: {what}"), error);
        ring.submitter()
            .register_files_sparse(slots.max(1))
            .map_err(setup("cannot register files"))?;
        let buffers = BufferRing::register(&ring, BUFFER_GROUP, tuning.buffers)
            .map_err(setup("no buffer rings"))?;
        let has_min_wait = ring.params().is_feature_min_timeout();
        Ok(Self {
            ring,
            buffers,
            kept: KeptBytes::default(),
            connections: (0..slots).map(|_| Connection::default()).collect(),
            orphans: Vec::new(),
            ready: Vec::with_capacity(64),
            starved: Vec::with_capacity(64),
            listener: None,
            has_min_wait,
            sockets: tuning.sockets,
            polling: Polling::default(),
            epoch: 1,
        })
    }

    /// Starts to accept connections.
    pub fn listen(&mut self, listener: OwnedFd) -> Result<(), SetupError> {
        let fd = types::Fd(listener.as_raw_fd());
        self.listener = Some(listener);
        self.start_accepting(fd);
        Ok(())
    }

    fn start_accepting(&mut self, listener: types::Fd) {
        // A process that another thread starts must not keep a connection open.
        let accept = opcode::AcceptMulti::new(listener).flags(libc::SOCK_CLOEXEC);
        self.push(accept.build().user_data(user_data(Op::Accept, NOBODY)));
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: every entry names memory that outlives its operation: addresses and owned buffers
        // sit in `connections` or `orphans` until the completion, kept bytes in `kept` as long as the
        // ring, receives use the registered ring.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.submit();
        }
    }

    fn push_for(&mut self, slot: u32, entry: squeue::Entry) {
        self.push(entry);
        self.connections[slot as usize].queued_epoch = self.epoch;
    }

    /// Submits what is queued. An error here shows up again in `wait`.
    fn submit(&mut self) {
        let _ = self.ring.submit();
        self.epoch += 1;
    }

    fn next_token(&mut self, slot: u32) -> Token {
        let connection = &mut self.connections[slot as usize];
        assert!(connection.fd.is_none(), "slot {slot} is in use");
        connection.generation = connection.generation.wrapping_add(1) & GENERATION_MASK;
        Token { slot, generation: connection.generation }
    }

    fn install(&mut self, slot: u32, fd: OwnedFd) -> io::Result<()> {
        self.ring.submitter().register_files_update(slot, &[fd.as_raw_fd()])?;
        self.connections[slot as usize].fd = Some(fd);
        Ok(())
    }

    fn arm_receive(&mut self, token: Token) {
        self.connections[token.slot as usize].receiving = true;
        let entry = opcode::RecvMulti::new(types::Fixed(token.slot), BUFFER_GROUP).build();
        self.push_for(token.slot, entry.user_data(user_data(Op::Receive, token)));
    }

    fn fail(&mut self, token: Token, error: &io::Error) {
        let happened = Happened::Failed(error.raw_os_error().unwrap_or(libc::EIO));
        self.ready.push(Completion { token, happened });
    }

    /// Enters the kernel once: submits, runs deferred work, waits.
    fn enter(&mut self, wait: Wait) -> Result<(), SetupError> {
        let sleep =
            if self.ready.is_empty() { wait.sleep_at(self.now()) } else { Default::default() };
        let want = if sleep.as_ns() == 0 { 0 } else { wait.batch.max(1) };
        let want = if self.has_min_wait { want } else { want.min(1) };
        let timeout = types::Timespec::new()
            .sec(sleep.as_ns() / 1_000_000_000)
            .nsec((sleep.as_ns() % 1_000_000_000) as u32);
        let mut args = types::SubmitArgs::new().timespec(&timeout);
        if want > 1 {
            args = args.min_wait_usec((wait.linger.as_ns() / 1000).max(1) as u32);
        }
        let queued = self.ring.submission().len() as u32;
        // SAFETY: `args` is the argument that EXT_ARG promises, and lives through the call.
        let entered = unsafe {
            self.ring.submitter().enter(queued, want, ENTER_GETEVENTS | ENTER_EXT_ARG, Some(&args))
        };
        self.epoch += 1;
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Time ran out, a signal came, or completions must be reaped first: all normal.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(SetupError::new("cannot enter the io_uring", error)),
            },
        }
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.ready);
        // Entries are copied out one by one, since acting on one may push new submissions.
        while let Some(entry) = { self.ring.completion().next() } {
            self.on_completion(&entry, into);
        }
    }

    fn on_completion(&mut self, entry: &cqueue::Entry, into: &mut Vec<Completion>) {
        let data = entry.user_data();
        let token = Token { slot: data as u32, generation: (data >> 32) as u32 & GENERATION_MASK };
        let op = (data >> 56) as u8;
        if op == Op::Accept as u8 {
            return self.on_accept(entry, into);
        }
        let current = self
            .connections
            .get(token.slot as usize)
            .is_some_and(|c| c.generation == token.generation && c.fd.is_some());
        let result = entry.result();
        if op == Op::Receive as u8 {
            self.on_receive(entry, token, current, into);
        } else if op == Op::Send as u8 {
            self.on_sent(data, result, token, current, into);
        } else if op == Op::Connect as u8 && current {
            self.connections[token.slot as usize].address = None;
            if result < 0 {
                into.push(Completion { token, happened: Happened::Failed(-result) });
            } else {
                self.arm_receive(token);
                into.push(Completion { token, happened: Happened::Connected });
            }
        } else if op == Op::SendQuiet as u8 && current && result < 0 {
            into.push(Completion { token, happened: Happened::Failed(-result) });
        }
    }

    fn on_receive(
        &mut self,
        entry: &cqueue::Entry,
        token: Token,
        current: bool,
        into: &mut Vec<Completion>,
    ) {
        let result = entry.result();
        let chunk = cqueue::buffer_select(entry.flags())
            .map(|index| Chunk { index: u32::from(index), len: result.max(0) as u32 });
        if !current {
            if let Some(chunk) = chunk {
                self.buffers.release(chunk);
            }
            return;
        }
        let armed = cqueue::more(entry.flags());
        self.connections[token.slot as usize].receiving = armed;
        let happened = match (result, chunk) {
            (1.., Some(chunk)) => {
                into.push(Completion { token, happened: Happened::Received(chunk) });
                if !armed {
                    self.arm_receive(token);
                }
                return;
            }
            (errno, _) if errno == -libc::ENOBUFS => return self.starved.push(token),
            (0, chunk) => {
                if let Some(chunk) = chunk {
                    self.buffers.release(chunk);
                }
                Happened::Eof
            }
            (errno, _) => Happened::Failed(-errno),
        };
        into.push(Completion { token, happened });
    }

    fn on_sent(
        &mut self,
        data: u64,
        result: i32,
        token: Token,
        current: bool,
        into: &mut Vec<Completion>,
    ) {
        if !current {
            self.orphans.retain(|(orphan, _)| *orphan != data);
            return;
        }
        let Some(sent) = self.connections[token.slot as usize].sending.take() else { return };
        let happened = if result < 0 {
            Happened::Failed(-result)
        } else if (result as usize) < self.kept.bytes(&sent).len() {
            // MSG_WAITALL sends all or fails; short means the peer went away in the middle.
            Happened::Failed(libc::EPIPE)
        } else {
            Happened::Sent(sent.into_cleared_buffer())
        };
        into.push(Completion { token, happened });
    }

    fn on_accept(&mut self, entry: &cqueue::Entry, into: &mut Vec<Completion>) {
        if entry.result() >= 0 {
            // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
            let fd = unsafe { OwnedFd::from_raw_fd(entry.result()) };
            let happened = Happened::Accepted(Accepted::Socket(fd));
            into.push(Completion { token: Token::NONE, happened });
        }
        if !cqueue::more(entry.flags())
            && let Some(listener) = &self.listener
        {
            let fd = types::Fd(listener.as_raw_fd());
            self.start_accepting(fd);
        }
    }
}

impl Drop for UringReactor {
    /// Shuts the sockets down. The kernel tears a ring down in the background, and until then its
    /// requests hold the sockets open: a port would stay taken and a peer would wait.
    fn drop(&mut self) {
        let sockets = self.connections.iter().filter_map(|c| c.fd.as_ref()).chain(&self.listener);
        for socket in sockets {
            // Fails if the peer has gone already, which does no harm.
            let _ = socket2::SockRef::from(socket).shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Reactor for UringReactor {
    fn now(&self) -> Instant {
        monotonic_now()
    }

    fn connect(&mut self, slot: u32, to: &Endpoint, from: Option<IpAddr>) -> Token {
        let token = self.next_token(slot);
        let started =
            socket::open_outgoing(to, from, Blocking::Yes, self.sockets).and_then(|socket| {
                let address = Box::new(socket::address(to)?);
                self.install(slot, socket.into())?;
                Ok(address)
            });
        match started {
            Ok(address) => {
                let entry = opcode::Connect::new(
                    types::Fixed(slot),
                    address.as_ptr().cast(),
                    address.len(),
                )
                .build()
                .user_data(user_data(Op::Connect, token));
                self.connections[slot as usize].address = Some(address);
                self.push_for(slot, entry);
            }
            Err(error) => self.fail(token, &error),
        }
        token
    }

    fn adopt(&mut self, slot: u32, accepted: Accepted) -> Token {
        let token = self.next_token(slot);
        let Accepted::Socket(fd) = accepted else { panic!("a simulated connection on io_uring") };
        socket::prepare_accepted(&fd, Blocking::Yes, self.sockets);
        match self.install(slot, fd) {
            Ok(()) => self.arm_receive(token),
            Err(error) => self.fail(token, &error),
        }
        token
    }

    fn keep(&mut self, bytes: Arc<[u8]>) -> KeptId {
        self.kept.keep(bytes)
    }

    fn send(&mut self, token: Token, bytes: Outgoing) {
        let connection = &mut self.connections[token.slot as usize];
        assert_eq!(connection.generation, token.generation, "send on a closed connection");
        assert!(connection.sending.is_none(), "send before the last one ended");
        // Moving the buffer below does not move the bytes that it points to.
        let to_send = self.kept.bytes(&bytes);
        let (start, len) = (to_send.as_ptr(), to_send.len());
        let send = opcode::Send::new(types::Fixed(token.slot), start, len as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL);
        if bytes.is_reported() {
            connection.sending = Some(bytes);
            let entry = send.build().user_data(user_data(Op::Send, token));
            self.push_for(token.slot, entry);
        } else {
            assert!(len <= QUIET_SEND_MAX_BYTES, "{len} bytes to send");
            let entry = send.build().user_data(user_data(Op::SendQuiet, token));
            self.push_for(token.slot, entry.flags(squeue::Flags::SKIP_SUCCESS));
        }
    }

    fn close(&mut self, token: Token, how: Close) {
        let connection = &mut self.connections[token.slot as usize];
        if connection.generation != token.generation {
            return;
        }
        let Some(fd) = connection.fd.take() else { return };
        connection.generation = connection.generation.wrapping_add(1) & GENERATION_MASK;
        let pending = connection.receiving || connection.address.is_some();
        connection.receiving = false;
        let address = connection.address.take();
        let sending = connection.sending.take();
        if let Close::Reset = how {
            socket::reset_on_close(&fd);
        }
        if pending || sending.is_some() {
            // Requests in the kernel hold the file open: cancel them, by the slot's file.
            let builder = types::CancelBuilder::fd(types::Fixed(token.slot)).all();
            let entry = opcode::AsyncCancel2::new(builder).build();
            self.push_for(token.slot, entry.user_data(user_data(Op::Tidy, token)));
        }
        // Entries queued for this connection must be submitted before its slot is emptied, and a
        // connect before its address is freed.
        if self.connections[token.slot as usize].queued_epoch == self.epoch {
            self.submit();
        }
        drop(address);
        if let Some(bytes) = sending {
            self.orphans.push((user_data(Op::Send, token), bytes));
        }
        let _ = self.ring.submitter().register_files_update(token.slot, &[-1]);
    }

    fn wait(&mut self, wait: Wait, into: &mut Vec<Completion>) -> Result<(), SetupError> {
        while let Some(token) = self.starved.pop() {
            let connection = &self.connections[token.slot as usize];
            if connection.generation == token.generation && connection.fd.is_some() {
                self.arm_receive(token);
            }
        }
        let mut looked: Option<Instant> = None;
        loop {
            self.enter(wait)?;
            self.reap(into);
            if !into.is_empty() || !self.starved.is_empty() || self.now() >= wait.until {
                if let Some(since) = looked {
                    self.polling.idle = self.polling.idle + self.now().since(since);
                }
                return Ok(());
            }
            if wait.polls && looked.is_none() {
                looked = Some(self.now());
            }
            self.polling.pause(&wait);
        }
    }

    fn chunk(&self, chunk: &Chunk) -> &[u8] {
        self.buffers.bytes(chunk)
    }

    fn release(&mut self, chunk: Chunk) {
        self.buffers.release(chunk);
    }

    fn idle(&self) -> DurationNs {
        self.polling.idle
    }
}

const NOBODY: Token = Token { slot: u32::MAX, generation: 0 };
// From the kernel's io_uring interface; the crate keeps its own copies private.
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;

fn user_data(op: Op, token: Token) -> u64 {
    u64::from(token.slot) | u64::from(token.generation) << 32 | (op as u64) << 56
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread can have 16 rings registered with it, and keeps them open.
    #[test]
    fn a_reactor_leaves_nothing_with_the_thread_that_made_it() {
        for _ in 0..16 {
            if UringReactor::new(1).is_err() {
                return; // The kernel is too old, or forbids it.
            }
        }
        let ring = IoUring::new(1).unwrap();
        let mut submitter = ring.submitter();
        submitter.register_ring_fd().unwrap();
        submitter.unregister_ring_fd().unwrap();
    }

    #[test]
    fn accepted_connections_do_not_outlive_the_process() {
        let Ok(mut io) = UringReactor::new(1) else { return };
        let any = Endpoint::Tcp("127.0.0.1:0".parse().unwrap());
        let (listener, bound) = crate::socket::listener(&any, false).unwrap();
        let Endpoint::Tcp(address) = bound else { unreachable!() };
        io.listen(listener).unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        let mut happened = Vec::new();
        io.wait(Wait::until(io.now() + DurationNs::from_secs(10)), &mut happened).unwrap();
        let Happened::Accepted(Accepted::Socket(fd)) = &happened[0].happened else { panic!() };
        // SAFETY: a plain call on a descriptor that we own.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
    }
}
