//! The simulated network: connections, latency, cuts and resets on one event queue and one clock.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tare_io::reactor::Chunk;
use tare_io::{
    Accepted, Close, Completion, DurationNs, Endpoint, Happened, Instant, KeptBytes, KeptId,
    Outgoing, Random, Reactor, SetupError, Token, Wait,
};

/// What the network does to traffic.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// Latency in one direction.
    pub latency: DurationNs,
    /// Data arrives in pieces of 1 to this many bytes; 0 keeps it whole.
    pub piece_max_bytes: usize,
    /// Share of pieces that are lost once and arrive after a retransmission timeout.
    pub loss: f64,
    pub retransmit: DurationNs,
    /// Share of connection attempts that fail with ECONNRESET.
    pub connect_reset: f64,
    pub seed: u64,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            latency: DurationNs::from_us(10),
            piece_max_bytes: 0,
            loss: 0.0,
            retransmit: DurationNs::from_ms(200),
            connect_reset: 0.0,
            seed: 0,
        }
    }
}

/// The network. It is cheap to clone, and all clones are the same network.
#[derive(Clone)]
pub struct Net(Rc<RefCell<State>>);

struct State {
    options: NetOptions,
    random: Random,
    now: Instant,
    /// Ordered by time, then by creation.
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    payloads: HashMap<u64, Event>,
    made: u64,
    ends: Vec<End>,
    listeners: Vec<(String, usize)>,
    hosts: Vec<Host>,
    /// Everything that happened, as text, for tests of exact order.
    trace: Vec<String>,
}

/// One side of a connection.
struct End {
    peer: Option<usize>,
    host: usize,
    token: Option<Token>,
    /// What arrived before the connection was adopted.
    held: Vec<Arrival>,
    open: bool,
    /// Nothing sent later may arrive before this.
    last_arrival: Instant,
}

#[derive(Default)]
struct Host {
    inbox: VecDeque<(Token, Inbound)>,
}

enum Inbound {
    Data(Vec<u8>),
    Other(Happened),
}

enum Event {
    Syn { from: usize, to: String },
    Refused { end: usize },
    Connected { end: usize },
    Arrived { end: usize, arrival: Arrival },
    Sent { host: usize, token: Token, spent: Vec<u8> },
}

enum Arrival {
    Data(Vec<u8>),
    Eof,
    Reset,
}

impl Net {
    pub fn new(options: NetOptions) -> Self {
        Self(Rc::new(RefCell::new(State {
            random: Random::stream(options.seed, "net", 0),
            options,
            // Not zero, so that a forgotten timestamp shows as an absurd latency.
            now: Instant::from_ns(1_000_000_000),
            events: BinaryHeap::new(),
            payloads: HashMap::new(),
            made: 0,
            ends: Vec::new(),
            listeners: Vec::new(),
            hosts: Vec::new(),
            trace: Vec::new(),
        })))
    }

    pub fn host(&self) -> SimReactor {
        let mut state = self.0.borrow_mut();
        state.hosts.push(Host::default());
        SimReactor {
            net: self.clone(),
            host: state.hosts.len() - 1,
            kept: KeptBytes::default(),
            tokens: HashMap::new(),
            chunks: Vec::new(),
            free_chunks: Vec::new(),
        }
    }

    pub fn now(&self) -> Instant {
        self.0.borrow().now
    }

    pub fn trace(&self) -> Vec<String> {
        self.0.borrow().trace.clone()
    }

    pub fn next_event(&self) -> Instant {
        self.0.borrow().events.peek().map_or(Instant::FAR, |Reverse((at, _))| *at)
    }

    /// Moves the clock on and delivers everything due by then.
    pub fn advance(&self, to: Instant) {
        let mut state = self.0.borrow_mut();
        while let Some(Reverse((at, id))) = state.events.peek().copied()
            && at <= to
        {
            state.events.pop();
            state.now = state.now.max(at);
            if let Some(event) = state.payloads.remove(&id) {
                state.handle(event);
            }
        }
        state.now = state.now.max(to);
    }
}

impl State {
    fn at(&mut self, at: Instant, event: Event) {
        self.made += 1;
        self.events.push(Reverse((at, self.made)));
        self.payloads.insert(self.made, event);
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        // Long simulations would keep millions of unread lines.
        if self.trace.len() < 10_000 {
            let us = self.now.as_ns() / 1000 - 1_000_000;
            self.trace.push(format!("{us} {what}"));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Syn { from, to } => self.on_syn(from, &to),
            Event::Refused { end } => {
                let errno = libc::ECONNREFUSED;
                self.deliver(end, Inbound::Other(Happened::Failed(errno)));
            }
            Event::Connected { end } => {
                self.note(format_args!("connected {end}"));
                self.deliver(end, Inbound::Other(Happened::Connected));
            }
            Event::Arrived { end, arrival } => self.on_arrival(end, arrival),
            Event::Sent { host, token, spent } => {
                let sent = Inbound::Other(Happened::Sent(spent));
                self.hosts[host].inbox.push_back((token, sent));
            }
        }
    }

    fn on_syn(&mut self, from: usize, to: &str) {
        let back = self.now + self.options.latency;
        let reset = self.options.connect_reset > 0.0 && {
            let chance = self.options.connect_reset;
            self.random.chance(chance)
        };
        let listener = self.listeners.iter().find(|(name, _)| name == to).map(|(_, host)| *host);
        match listener {
            Some(_) if reset => {
                self.at(back, Event::Arrived { end: from, arrival: Arrival::Reset });
            }
            Some(host) => {
                let here = self.new_end(host, Some(from));
                self.ends[from].peer = Some(here);
                self.at(back, Event::Connected { end: from });
                let accepted = Happened::Accepted(Accepted::Simulated(here as u32));
                self.hosts[host].inbox.push_back((Token::NONE, Inbound::Other(accepted)));
            }
            None => self.at(back, Event::Refused { end: from }),
        }
    }

    fn new_end(&mut self, host: usize, peer: Option<usize>) -> usize {
        let last_arrival = Instant::ZERO;
        self.ends.push(End { peer, host, token: None, held: Vec::new(), open: true, last_arrival });
        self.ends.len() - 1
    }

    fn on_arrival(&mut self, end: usize, arrival: Arrival) {
        if self.ends[end].token.is_none() && self.ends[end].open {
            self.ends[end].held.push(arrival);
            return;
        }
        if !self.ends[end].open {
            // Data for a closed connection is answered with a reset.
            if let (Arrival::Data(_), Some(peer)) = (&arrival, self.ends[end].peer) {
                self.send_to(peer, Arrival::Reset);
            }
            return;
        }
        match arrival {
            Arrival::Data(bytes) => {
                self.note(format_args!("data {end} {}", bytes.len()));
                self.deliver(end, Inbound::Data(bytes));
            }
            Arrival::Eof => {
                self.note(format_args!("eof {end}"));
                self.deliver(end, Inbound::Other(Happened::Eof));
            }
            Arrival::Reset => {
                self.note(format_args!("reset {end}"));
                self.deliver(end, Inbound::Other(Happened::Failed(libc::ECONNRESET)));
            }
        }
    }

    fn deliver(&mut self, end: usize, inbound: Inbound) {
        let End { host, token, .. } = self.ends[end];
        if let Some(token) = token {
            self.hosts[host].inbox.push_back((token, inbound));
        }
    }

    /// Sends something to `end`. Order is kept, as in TCP.
    fn send_to(&mut self, end: usize, arrival: Arrival) {
        let mut at = self.now + self.options.latency;
        let loss = self.options.loss;
        if loss > 0.0 && self.random.chance(loss) {
            at = at + self.options.retransmit;
        }
        at = at.max(self.ends[end].last_arrival);
        self.ends[end].last_arrival = at;
        self.at(at, Event::Arrived { end, arrival });
    }

    fn send_data(&mut self, end: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = match self.options.piece_max_bytes {
                0 => rest.len(),
                max => (1 + self.random.below(max as u64) as usize).min(rest.len()),
            };
            self.send_to(end, Arrival::Data(rest[..n].to_vec()));
            rest = &rest[n..];
        }
    }
}

/// One host's view of the network.
pub struct SimReactor {
    net: Net,
    host: usize,
    kept: KeptBytes,
    /// Each slot's generation, and its connection while it has one.
    tokens: HashMap<u32, (u32, Option<usize>)>,
    /// Received bytes, until the engine releases them.
    chunks: Vec<Vec<u8>>,
    free_chunks: Vec<u32>,
}

impl SimReactor {
    pub fn listen(&mut self, at: &Endpoint) {
        self.net.0.borrow_mut().listeners.push((at.to_string(), self.host));
    }

    pub fn has_completions(&self) -> bool {
        self.completions() > 0
    }

    /// Counts what has arrived and was not taken yet.
    pub fn completions(&self) -> usize {
        self.net.0.borrow().hosts[self.host].inbox.len()
    }

    fn keep(&mut self, bytes: Vec<u8>) -> Chunk {
        let len = bytes.len() as u32;
        let index = self.free_chunks.pop().unwrap_or_else(|| {
            self.chunks.push(Vec::new());
            self.chunks.len() as u32 - 1
        });
        self.chunks[index as usize] = bytes;
        Chunk::new(index, len)
    }

    fn begin(&mut self, slot: u32, end: usize) -> Token {
        let entry = self.tokens.entry(slot).or_default();
        assert!(entry.1.is_none(), "slot {slot} is in use");
        *entry = (entry.0 + 1, Some(end));
        Token { slot, generation: entry.0 }
    }

    fn end_of(&self, token: Token) -> Option<usize> {
        self.tokens.get(&token.slot).filter(|(g, _)| *g == token.generation)?.1
    }
}

impl Reactor for SimReactor {
    fn now(&self) -> Instant {
        self.net.now()
    }

    fn connect(&mut self, slot: u32, to: &Endpoint, _from: Option<IpAddr>) -> Token {
        let end = self.net.0.borrow_mut().new_end(self.host, None);
        let token = self.begin(slot, end);
        let mut state = self.net.0.borrow_mut();
        state.ends[end].token = Some(token);
        let at = state.now + state.options.latency;
        state.at(at, Event::Syn { from: end, to: to.to_string() });
        token
    }

    fn adopt(&mut self, slot: u32, accepted: Accepted) -> Token {
        let Accepted::Simulated(end) = accepted else { panic!("a real connection in simulation") };
        let end = end as usize;
        let token = self.begin(slot, end);
        let mut state = self.net.0.borrow_mut();
        state.ends[end].token = Some(token);
        for arrival in std::mem::take(&mut state.ends[end].held) {
            state.on_arrival(end, arrival);
        }
        token
    }

    fn keep(&mut self, bytes: Arc<[u8]>) -> KeptId {
        self.kept.keep(bytes)
    }

    fn send(&mut self, token: Token, bytes: Outgoing) {
        let end = self.end_of(token);
        assert!(end.is_some(), "send on a closed connection");
        let mut state = self.net.0.borrow_mut();
        if let Some(peer) = end.and_then(|end| state.ends[end].peer) {
            state.send_data(peer, self.kept.bytes(&bytes));
        }
        if bytes.is_reported() {
            let spent = bytes.into_cleared_buffer();
            let (at, host) = (state.now, self.host);
            state.at(at, Event::Sent { host, token, spent });
        }
    }

    fn close(&mut self, token: Token, how: Close) {
        let Some(end) = self.end_of(token) else { return };
        self.tokens.insert(token.slot, (token.generation, None));
        let mut state = self.net.0.borrow_mut();
        state.ends[end].open = false;
        state.ends[end].token = None;
        if let Some(peer) = state.ends[end].peer {
            let arrival = if how == Close::Reset { Arrival::Reset } else { Arrival::Eof };
            state.send_to(peer, arrival);
        }
    }

    /// Takes what has arrived. Never waits: the world moves the clock.
    fn wait(&mut self, _wait: Wait, into: &mut Vec<Completion>) -> Result<(), SetupError> {
        let arrived = std::mem::take(&mut self.net.0.borrow_mut().hosts[self.host].inbox);
        for (token, inbound) in arrived {
            let happened = match inbound {
                Inbound::Other(happened) => happened,
                Inbound::Data(bytes) => Happened::Received(self.keep(bytes)),
            };
            into.push(Completion { token, happened });
        }
        Ok(())
    }

    fn chunk(&self, chunk: &Chunk) -> &[u8] {
        &self.chunks[chunk.index() as usize]
    }

    fn release(&mut self, chunk: Chunk) {
        self.free_chunks.push(chunk.index());
    }
}
