//! Tests of networks and calls into the kernel, by name: what `tare net` and `tare sys` measure.

use serde::{Deserialize, Serialize};
use tare_io::calls::Call;

/// The protocol on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Protocol {
    #[default]
    Http,
    /// HTTP/2, with up to this many requests at a time on each connection.
    Http2 {
        streams: u32,
        /// Requests refer to entries that earlier ones have added to the server's dynamic table.
        dynamic_table: bool,
    },
    /// A request and a reply of fixed sizes; datagrams if the endpoint is UDP.
    Messages { request_bytes: u32, reply_bytes: u32 },
    /// Messages one way, without replies.
    Stream { message_bytes: u32, reverse: bool },
    /// System calls where the endpoint runs; the network carries only the commands.
    Calls { call: CallName },
}

/// Properties of protocols that rules check.
impl Protocol {
    /// Whether ordinary servers answer this protocol; otherwise only tare's own endpoint does.
    pub fn is_served(self) -> bool {
        matches!(self, Self::Http | Self::Http2 { .. })
    }

    /// The same, with one request at a time on a connection.
    pub fn one_at_a_time(self) -> Self {
        match self {
            Self::Http2 { dynamic_table, .. } => Self::Http2 { streams: 1, dynamic_table },
            other => other,
        }
    }

    /// Whether each message has a reply; the latency of replies is measured.
    pub fn has_replies(self) -> bool {
        matches!(self, Self::Http | Self::Http2 { .. } | Self::Messages { .. })
    }
}

/// A system call, stored by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CallName(pub Call);

impl TryFrom<String> for CallName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Call::parse(&text).map(Self)
    }
}

impl From<CallName> for String {
    fn from(name: CallName) -> Self {
        name.0.name().to_owned()
    }
}

/// A network test, by the names that netperf and neper use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetTest {
    TcpRr,
    TcpCrr,
    TcpStream,
    TcpStreamReverse,
    UdpRr,
    UdpStream,
}

impl NetTest {
    pub const ALL: [Self; 6] = [
        Self::TcpRr,
        Self::TcpCrr,
        Self::TcpStream,
        Self::TcpStreamReverse,
        Self::UdpRr,
        Self::UdpStream,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::TcpRr => "tcp_rr",
            Self::TcpCrr => "tcp_crr",
            Self::TcpStream => "tcp_stream",
            Self::TcpStreamReverse => "tcp_stream_reverse",
            Self::UdpRr => "udp_rr",
            Self::UdpStream => "udp_stream",
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|test| test.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is not a test; choose among {names}")
        })
    }

    pub fn is_udp(self) -> bool {
        matches!(self, Self::UdpRr | Self::UdpStream)
    }

    pub fn is_stream(self) -> bool {
        matches!(self, Self::TcpStream | Self::TcpStreamReverse | Self::UdpStream)
    }

    /// The largest message: a datagram's capacity, or a sensible limit.
    pub fn message_bytes_max(self) -> u32 {
        if self.is_udp() { DATAGRAM_BYTES_MAX } else { MESSAGE_BYTES_MAX }
    }

    /// Default of TCP_NODELAY. Streams let TCP merge small writes, as other tools do; exchanges do
    /// not.
    pub fn nodelay(self) -> bool {
        !self.is_stream()
    }

    pub fn protocol(self, message_bytes: u32, reply_bytes: u32) -> Protocol {
        match self {
            Self::TcpRr | Self::TcpCrr | Self::UdpRr => {
                Protocol::Messages { request_bytes: message_bytes, reply_bytes }
            }
            Self::TcpStream | Self::UdpStream => Protocol::Stream { message_bytes, reverse: false },
            Self::TcpStreamReverse => Protocol::Stream { message_bytes, reverse: true },
        }
    }
}

pub const MESSAGE_BYTES_MAX: u32 = 4 << 20;
/// Largest payload of UDP over IPv4.
pub const DATAGRAM_BYTES_MAX: u32 = 65_507;
