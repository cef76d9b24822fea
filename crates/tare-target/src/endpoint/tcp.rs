//! TCP connections of an endpoint. Each has a thread of its own, with plain blocking calls.
//!
//! A round trip is then one receive and one send here, with nothing between. Idle threads wait in
//! accept(2) together; when the last of them gets a connection, it starts another.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tare_io::socket::{self, Blocking};
use tare_io::system::sharpen_timers;
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, SetupError};
use tare_load::protocol::content::{Checker, content};
use tare_load::protocol::stream::receive_bytes;
use tare_load::protocol::wire::{
    ASK, CallOrder, DONE, GO, GREETING_BYTES, Greeting, ORDER_BYTES, Purpose, STOP,
    encode_call_result,
};

use super::sessions::{Session, Sessions};
use super::{EndpointPlan, NetEndpoint, RemoteControl};

/// State shared by all threads.
pub struct TcpServer {
    listener: TcpListener,
    plan: EndpointPlan,
    /// Endpoints on other ports, opened at a client's request.
    others: Mutex<Vec<NetEndpoint>>,
    sessions: Arc<Sessions>,
    stop: Arc<AtomicBool>,
    /// Threads that wait for a connection.
    idle: AtomicUsize,
    /// All threads, idle or not.
    threads: AtomicUsize,
}

/// Waits end at least this often, so that a stop is noticed.
const STOP_CHECK: Duration = Duration::from_millis(50);
const IDLE_MAX: usize = 2;
/// A greeting must be complete within this many waits of [`STOP_CHECK`] (2 s), even if it is split.
const GREETING_LOOKS: u32 = 40;
/// Clients may not have lower ports opened, which belong to system services.
const OTHER_PORT_MIN: u16 = 1024;
const OTHER_PORTS_MAX: usize = 16;
/// Most bytes of a stream received at a time.
const BUFFER_BYTES: usize = 128 * 1024;
/// The last part of a delay is spent polling instead of sleeping.
const SPIN: DurationNs = DurationNs::from_ms(1);
/// Messages up to this size are small.
const SMALL_MESSAGE: u32 = 1024;
/// Number of small messages sent between two checks for [`STOP`].
const SENDS_A_LOOK: u32 = 16;
/// After receiving less than this, a receiver of small messages rests for [`REST`]. Messages then
/// gather, as they would if it took them one by one, and the sender is what limits the measured
/// rate.
const LITTLE: usize = 16 * 1024;
const REST: Duration = Duration::from_micros(40);

impl TcpServer {
    pub fn new(
        listener: OwnedFd,
        plan: &EndpointPlan,
        sessions: Arc<Sessions>,
        stop: Arc<AtomicBool>,
    ) -> Result<Arc<Self>, SetupError> {
        let listener = TcpListener::from(listener);
        socket::accept_within(&listener, STOP_CHECK)
            .map_err(|error| SetupError::new("cannot wait for connections", error))?;
        Ok(Arc::new(Self {
            listener,
            plan: plan.clone(),
            others: Mutex::new(Vec::new()),
            sessions,
            stop,
            idle: AtomicUsize::new(0),
            threads: AtomicUsize::new(1),
        }))
    }

    /// Serves one connection after another, until stopped or until enough other threads are idle.
    pub fn serve(self: &Arc<Self>, is_first: bool) -> Result<(), SetupError> {
        super::settle_thread(&self.plan.cpus)?;
        sharpen_timers();
        let mut buffer = vec![0; BUFFER_BYTES];
        while !self.stop.load(Ordering::Relaxed) {
            self.idle.fetch_add(1, Ordering::Relaxed);
            let accepted = self.accept();
            let left = self.idle.fetch_sub(1, Ordering::Relaxed) - 1;
            let Some(stream) = accepted? else { continue };
            if left == 0 {
                self.add_thread();
            }
            // Errors are for the client to report: it sees the connection end, or a reset.
            if self.converse(&stream, &mut buffer).is_err() {
                socket::reset_on_close(&stream);
            }
            // Idle threads cost wake-ups: only a few may wait.
            if !is_first && self.idle.load(Ordering::Relaxed) >= IDLE_MAX {
                break;
            }
        }
        self.threads.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the next connection, or `None` if none came for a while.
    fn accept(&self) -> Result<Option<TcpStream>, SetupError> {
        match self.listener.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) if socket::is_retryable(&error) => Ok(None),
            // The client went away while it was in the backlog.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => Ok(None),
            // Out of file descriptors or memory; other connections may free some.
            Err(_) => {
                std::thread::park_timeout(STOP_CHECK);
                Ok(None)
            }
        }
    }

    /// Starts a thread for the next connection; at the limit, connections wait in the backlog.
    fn add_thread(self: &Arc<Self>) {
        if self.threads.fetch_add(1, Ordering::Relaxed) >= self.plan.connections_max as usize {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let door = self.clone();
        let started = std::thread::Builder::new().name("endpoint".into()).spawn(move || {
            // An error that stops all threads is reported by the first one.
            let _ = door.serve(false);
        });
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Also serves on another port of the same address, unless it does already.
    fn listen_too(&self, port: u16) -> io::Result<()> {
        let mut others = self.others.lock().unwrap_or_else(|e| e.into_inner());
        if port < OTHER_PORT_MIN {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let own = self.plan.listen.port();
        if port == own || others.iter().any(|other| other.listens.port() == port) {
            return Ok(());
        }
        if others.len() == OTHER_PORTS_MAX {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        let listen = SocketAddr::new(self.plan.listen.ip(), port);
        let plan = EndpointPlan { listen, obeys: RemoteControl::Nobody, ..self.plan.clone() };
        others.push(NetEndpoint::start(&plan).map_err(|error| error.source)?);
        Ok(())
    }

    fn converse(&self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<()> {
        socket::prepare_accepted(stream, Blocking::Yes, self.plan.sockets);
        stream.set_read_timeout(Some(STOP_CHECK))?;
        stream.set_write_timeout(Some(STOP_CHECK))?;
        let from = stream.peer_addr()?.ip();
        let looks_left = Cell::new(Some(GREETING_LOOKS));
        let line = Line { stream, stop: &self.stop, looks_left };
        let mut greeting = [0; GREETING_BYTES];
        if !line.read(&mut greeting)? {
            return Ok(());
        }
        line.looks_left.set(None);
        let greeting = Greeting::parse(&greeting).ok_or(ErrorKind::InvalidData)?;
        let session = || self.sessions.get_or_create(greeting.session, from);
        match greeting.purpose {
            Purpose::Messages { request_bytes, reply_bytes, close } => {
                self.answer(&line, buffer, (request_bytes, reply_bytes), close)
            }
            Purpose::Receive { message_bytes } => {
                let session = session();
                session.cut_by(message_bytes);
                receive(&line, buffer, message_bytes, &session)
            }
            Purpose::Send { message_bytes, nodelay } => {
                stream.set_nodelay(nodelay)?;
                let session = session();
                session.cut_by(message_bytes);
                send(&line, message_bytes, &session)
            }
            Purpose::Count => tell_counts(&line, &session()),
            Purpose::Calls if self.plan.calls => make_calls(&line),
            Purpose::Listen { port } if self.plan.obeys != RemoteControl::Nobody => {
                self.listen_too(port)?;
                line.write(&[DONE])
            }
            Purpose::Quit if self.obeys_quit(from, greeting.session) => {
                line.write(&[DONE])?;
                self.stop.store(true, Ordering::Relaxed);
                Ok(())
            }
            Purpose::Calls | Purpose::Listen { .. } | Purpose::Quit => {
                Err(ErrorKind::PermissionDenied.into())
            }
        }
    }

    fn obeys_quit(&self, from: IpAddr, said: u64) -> bool {
        match self.plan.obeys {
            RemoteControl::Nobody => false,
            RemoteControl::Clients { token } => {
                from.to_canonical().is_loopback() || token == Some(said)
            }
        }
    }

    fn answer(
        &self,
        line: &Line<'_>,
        buffer: &mut [u8],
        (request_bytes, reply_bytes): (u32, u32),
        close: bool,
    ) -> io::Result<()> {
        let reply = content(0, reply_bytes as usize);
        let mut checker = Checker::default();
        loop {
            let mut got = 0u64;
            while got < u64::from(request_bytes) {
                let most = buffer.len().min((u64::from(request_bytes) - got) as usize);
                let n = line.receive_some(&mut buffer[..most])?;
                if n == 0 {
                    return if got == 0 { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) };
                }
                if !checker.is_content(got, &buffer[..n]) {
                    return Err(ErrorKind::InvalidData.into());
                }
                got += n as u64;
            }
            self.wait_delay();
            line.write(reply)?;
            if close {
                return Ok(());
            }
        }
    }

    fn wait_delay(&self) {
        let delay = self.plan.delay;
        if delay == DurationNs::ZERO {
            return;
        }
        let due = monotonic_now() + delay;
        let sleep = delay.as_ns().saturating_sub(SPIN.as_ns());
        if sleep > 0 {
            std::thread::park_timeout(Duration::from_nanos(sleep));
        }
        while monotonic_now() < due {
            std::hint::spin_loop();
        }
    }
}

/// One connection; its waits end when the endpoint stops.
struct Line<'a> {
    stream: &'a TcpStream,
    stop: &'a AtomicBool,
    /// Waits of [`STOP_CHECK`] left for the greeting; `None` once it has come.
    looks_left: Cell<Option<u32>>,
}

impl Line<'_> {
    /// Receives some bytes; returns 0 at the end of the stream.
    fn receive_some(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut stream = self.stream;
            match stream.read(into) {
                Err(error) if socket::is_retryable(&error) => self.check_limits()?,
                done => return done,
            }
        }
    }

    /// Fills `into`; returns `false` if the connection ended before the first byte.
    fn read(&self, into: &mut [u8]) -> io::Result<bool> {
        let mut got = 0;
        while got < into.len() {
            match self.receive_some(&mut into[got..])? {
                0 if got == 0 => return Ok(false),
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => got += n,
            }
        }
        Ok(true)
    }

    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut stream = self.stream;
            match stream.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) if socket::is_retryable(&error) => self.check_limits()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ErrorKind::Interrupted.into());
        }
        match self.looks_left.get() {
            None => Ok(()),
            Some(0) => Err(ErrorKind::TimedOut.into()),
            Some(left) => {
                self.looks_left.set(Some(left - 1));
                Ok(())
            }
        }
    }
}

fn receive(
    line: &Line<'_>,
    buffer: &mut [u8],
    message_bytes: u32,
    session: &Session,
) -> io::Result<()> {
    let (mut got, mut checker) = (0u64, Checker::default());
    // Small messages are received many at a time: a receiver that empties the socket at once has to
    // be woken for every message, and the sender pays for that.
    let gathers = message_bytes <= SMALL_MESSAGE;
    let most = if gathers { buffer.len() } else { receive_bytes(message_bytes) };
    loop {
        let n = line.receive_some(&mut buffer[..most])?;
        if n == 0 {
            return Ok(());
        }
        let is_right = checker.is_content(got, &buffer[..n]);
        session.wrong.fetch_add(u64::from(!is_right), Ordering::Relaxed);
        got += n as u64;
        session.bytes.fetch_add(n as u64, Ordering::Relaxed);
        if gathers && n < LITTLE {
            std::thread::park_timeout(REST);
        }
    }
}

/// Sends messages from each [`GO`] that the client sends until its next [`STOP`].
fn send(line: &Line<'_>, message_bytes: u32, session: &Session) -> io::Result<()> {
    let mut sent = 0u64;
    let mut word = [0; 1];
    loop {
        if !line.read(&mut word)? {
            return Ok(());
        }
        if word[0] != GO {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut heard = ClientWord::Nothing;
        while heard == ClientWord::Nothing {
            // Checking for a command after every small message would add to its cost.
            for _ in 0..if message_bytes <= SMALL_MESSAGE { SENDS_A_LOOK } else { 1 } {
                let bytes = content(sent, message_bytes as usize);
                line.write(bytes)?;
                sent += bytes.len() as u64;
                session.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            heard = poll_word(line)?;
        }
        if heard == ClientWord::End {
            return Ok(());
        }
    }
}

#[derive(PartialEq)]
enum ClientWord {
    Nothing,
    Stop,
    End,
}

/// Reads the client's next command, if there is one, without waiting.
fn poll_word(line: &Line<'_>) -> io::Result<ClientWord> {
    let mut word = [0; 1];
    match socket::receive_now(line.stream.as_raw_fd(), &mut word) {
        Ok(0) => Ok(ClientWord::End),
        Ok(_) if word[0] == STOP => Ok(ClientWord::Stop),
        Ok(_) => Err(ErrorKind::InvalidData.into()),
        Err(error) if socket::is_retryable(&error) => Ok(ClientWord::Nothing),
        Err(error) => Err(error),
    }
}

fn tell_counts(line: &Line<'_>, session: &Session) -> io::Result<()> {
    let mut word = [0; 1];
    while line.read(&mut word)? {
        if word[0] != ASK {
            return Err(ErrorKind::InvalidData.into());
        }
        line.write(&session.count(monotonic_now()).bytes())?;
    }
    Ok(())
}

fn make_calls(line: &Line<'_>) -> io::Result<()> {
    let mut order = [0; ORDER_BYTES];
    while line.read(&mut order)? {
        let order = CallOrder::parse(&order).ok_or(ErrorKind::InvalidData)?;
        let made = tare_io::calls::repeat_for(order.call, order.length);
        line.write(&encode_call_result(&made))?;
    }
    Ok(())
}
