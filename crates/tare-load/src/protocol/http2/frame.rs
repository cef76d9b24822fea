//! Frames of HTTP/2 (RFC 9113): headers, types, settings and error codes.

/// Length of a frame header.
pub const HEADER_BYTES: usize = 9;
/// The bytes with which a client begins a connection, before its first frame.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame's payload that every peer accepts.
pub const PAYLOAD_BYTES: u32 = 16_384;
/// The limit up to which a peer may raise that length.
pub const PAYLOAD_BYTES_MAX: u32 = (1 << 24) - 1;
/// The size of a window before any setting or update.
pub const WINDOW_BYTES: u32 = 65_535;
pub const WINDOW_BYTES_MAX: i64 = (1 << 31) - 1;
pub const STREAM_ID_MAX: u32 = (1 << 31) - 1;

pub const END_STREAM: u8 = 0x1;
pub const ACK: u8 = 0x1;
pub const END_HEADERS: u8 = 0x4;
pub const PADDED: u8 = 0x8;
pub const PRIORITY: u8 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// A type that this version of the protocol does not define, to be ignored.
    Unknown(u8),
}

impl Kind {
    const KNOWN: [Self; 10] = [
        Self::Data,
        Self::Headers,
        Self::Priority,
        Self::RstStream,
        Self::Settings,
        Self::PushPromise,
        Self::Ping,
        Self::GoAway,
        Self::WindowUpdate,
        Self::Continuation,
    ];

    fn from_byte(byte: u8) -> Self {
        Self::KNOWN.get(usize::from(byte)).copied().unwrap_or(Self::Unknown(byte))
    }

    fn byte(self) -> u8 {
        match self {
            Self::Unknown(byte) => byte,
            known => Self::KNOWN.iter().position(|kind| *kind == known).unwrap_or(0) as u8,
        }
    }
}

/// The names of RFC 9113.
impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Data => "DATA",
            Self::Headers => "HEADERS",
            Self::Priority => "PRIORITY",
            Self::RstStream => "RST_STREAM",
            Self::Settings => "SETTINGS",
            Self::PushPromise => "PUSH_PROMISE",
            Self::Ping => "PING",
            Self::GoAway => "GOAWAY",
            Self::WindowUpdate => "WINDOW_UPDATE",
            Self::Continuation => "CONTINUATION",
            Self::Unknown(byte) => return write!(f, "unknown ({byte})"),
        })
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload.
    pub bytes: u32,
    pub kind: Kind,
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Self {
            bytes: u32::from_be_bytes([0, a, b, c]),
            kind: Kind::from_byte(kind),
            flags,
            stream: u32::from_be_bytes(stream) & STREAM_ID_MAX,
        }
    }

    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let [_, a, b, c] = self.bytes.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind.byte(), self.flags, d, e, f, g]
    }

    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }
}

/// Appends a frame.
pub fn put(kind: Kind, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    FrameHeader { bytes: payload.len() as u32, kind, flags, stream }.write(out);
    out.extend_from_slice(payload);
}

pub fn put_window_update(stream: u32, more: u32, out: &mut Vec<u8>) {
    put(Kind::WindowUpdate, 0, stream, &more.to_be_bytes(), out);
}

pub fn put_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    put(Kind::RstStream, 0, stream, &code.0.to_be_bytes(), out);
}

pub fn put_goaway(last_stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    FrameHeader { bytes: 8, kind: Kind::GoAway, flags: 0, stream: 0 }.write(out);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Strips padding and priority from a payload; `None` if it is too short for them.
pub fn content(header: FrameHeader, payload: &[u8]) -> Option<&[u8]> {
    let mut content = payload;
    if header.has(PADDED) && matches!(header.kind, Kind::Data | Kind::Headers) {
        let (padding, rest) = content.split_first()?;
        content = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
    }
    if header.has(PRIORITY) && header.kind == Kind::Headers {
        content = content.get(5..)?;
    }
    Some(content)
}

/// A setting's identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting(pub u16);

impl Setting {
    pub const HEADER_TABLE_SIZE: Self = Self(1);
    pub const ENABLE_PUSH: Self = Self(2);
    pub const MAX_CONCURRENT_STREAMS: Self = Self(3);
    pub const INITIAL_WINDOW_SIZE: Self = Self(4);
    pub const MAX_FRAME_SIZE: Self = Self(5);
}

/// Appends a SETTINGS frame.
pub fn put_settings(settings: &[(Setting, u32)], out: &mut Vec<u8>) {
    let bytes = 6 * settings.len() as u32;
    FrameHeader { bytes, kind: Kind::Settings, flags: 0, stream: 0 }.write(out);
    for (setting, value) in settings {
        out.extend_from_slice(&setting.0.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// The settings in the payload of a SETTINGS frame. Its length must be a multiple of six.
pub fn settings(payload: &[u8]) -> impl Iterator<Item = (Setting, u32)> {
    payload.chunks_exact(6).map(|six| {
        let number = u16::from_be_bytes([six[0], six[1]]);
        (Setting(number), u32::from_be_bytes([six[2], six[3], six[4], six[5]]))
    })
}

/// Reads the number that a payload begins with; 0 if it is too short.
pub fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Why a stream or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL: Self = Self(1);
    pub const FLOW_CONTROL: Self = Self(3);
    pub const FRAME_SIZE: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION: Self = Self(9);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);

    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Self::NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown error code {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_headers_are_read_as_they_were_written() {
        for (kind, byte) in [(Kind::Data, 0), (Kind::Continuation, 9), (Kind::Unknown(77), 77)] {
            let header = FrameHeader { bytes: 0x01_02_03, kind, flags: 5, stream: 0x7654_3210 };
            let mut out = Vec::new();
            header.write(&mut out);
            assert_eq!(out, [1, 2, 3, byte, 5, 0x76, 0x54, 0x32, 0x10]);
            assert_eq!(FrameHeader::read(out.first_chunk().unwrap()), header);
        }
    }

    #[test]
    fn padding_and_priority_are_stripped() {
        let head = |kind, flags| FrameHeader { bytes: 0, kind, flags, stream: 1 };
        let padded = head(Kind::Data, PADDED);
        assert_eq!(content(padded, &[2, b'x', b'y', 0, 0]), Some(&b"xy"[..]));
        assert_eq!(content(padded, &[4, b'x', 0, 0]), None, "more padding than payload");
        assert_eq!(content(padded, &[]), None);
        let both = head(Kind::Headers, PADDED | PRIORITY);
        assert_eq!(content(both, &[1, 0, 0, 0, 0, 16, b'h', 0]), Some(&b"h"[..]));
        assert_eq!(content(head(Kind::Headers, PRIORITY), &[0, 0, 0, 0]), None);
    }
}
