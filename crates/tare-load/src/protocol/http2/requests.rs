//! Encodes requests as header blocks of HTTP/2.

use std::ops::Range;
use std::sync::Arc;

use super::hpack::{self, Form};
use crate::request::{RequestError, RequestParts, Requests};

/// All requests of a load, each as three blocks.
#[derive(Clone, Debug)]
pub struct Http2Requests {
    blocks: Arc<[u8]>,
    places: Arc<[[Range<usize>; 3]]>,
    pub body: Arc<[u8]>,
    pub to_head: bool,
    /// The connection is inside TLS, which must have chosen HTTP/2.
    pub over_tls: bool,
    /// Requests after a connection's first refer to entries of the server's dynamic table.
    pub uses_table: bool,
    /// What that table must hold for it.
    pub table_bytes: usize,
}

/// Which block a request is sent as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOf {
    /// A connection's first request: adds its fields to the server's table.
    First,
    /// Refers to the entries that the first has added.
    Later,
    /// Uses only the static table.
    Plain,
}

const BLOCKS: [BlockOf; 3] = [BlockOf::First, BlockOf::Later, BlockOf::Plain];

impl Http2Requests {
    pub fn new(
        requests: &Requests,
        over_tls: bool,
        uses_table: bool,
    ) -> Result<Self, RequestError> {
        let Requests::Parts(parts) = requests else { return Err(RequestError::Kind) };
        parts.check()?;
        let fields = fields(parts, over_tls)?;
        let (added, table_bytes) = added(&fields);
        let (mut blocks, mut places) = (Vec::new(), Vec::with_capacity(parts.paths.len()));
        for path in &parts.paths {
            places.push(BLOCKS.map(|block| {
                let start = blocks.len();
                let mut entries = added.iter().filter(|added| **added).count();
                for ((name, value), added) in fields.iter().zip(&added) {
                    let form = match block {
                        BlockOf::First if *added => Form::LiteralIndexed,
                        BlockOf::Later if *added => {
                            entries -= 1;
                            Form::Indexed(hpack::NEWEST + entries)
                        }
                        _ => Form::Literal,
                    };
                    let value = if name == PATH { path } else { value };
                    hpack::put_field(name, value, form, &mut blocks);
                }
                start..blocks.len()
            }));
        }
        Ok(Self {
            blocks: blocks.into(),
            places: places.into(),
            body: parts.body.as_slice().into(),
            to_head: parts.is_head(),
            over_tls,
            uses_table,
            table_bytes,
        })
    }

    /// Checks that no header is forbidden in HTTP/2.
    pub fn check(parts: &RequestParts) -> Result<(), RequestError> {
        fields(parts, false).map(drop)
    }

    #[inline]
    pub fn block(&self, at: u32, block: BlockOf) -> &[u8] {
        &self.blocks[self.places[at as usize][block as usize].clone()]
    }
}

const PATH: &str = ":path";
/// Fields that are about a connection, which HTTP/2 forbids (RFC 9113, 8.2.2).
const CONNECTION_SPECIFIC: [&str; 5] =
    ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"];

/// The fields of every request, in their order; the path has no value here.
fn fields(parts: &RequestParts, over_tls: bool) -> Result<Vec<(String, String)>, RequestError> {
    let named = |name: &str| {
        parts.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut fields = vec![
        field(":method", &parts.method),
        field(":scheme", if over_tls { "https" } else { "http" }),
        field(":authority", named("host").unwrap_or(&parts.authority)),
        field(PATH, ""),
    ];
    if named("user-agent").is_none() {
        fields.push(field("user-agent", concat!("tare/", env!("CARGO_PKG_VERSION"))));
    }
    if named("accept").is_none() {
        fields.push(field("accept", "*/*"));
    }
    if let Some(bytes) = parts.content_length() {
        fields.push(field("content-length", &bytes.to_string()));
    }
    for (name, value) in &parts.headers {
        let name = name.to_ascii_lowercase();
        let is_barred = CONNECTION_SPECIFIC.contains(&name.as_str())
            || (name == "te" && !value.eq_ignore_ascii_case("trailers"));
        match name.as_str() {
            "host" => {}
            _ if is_barred => return Err(RequestError::NotInHttp2(name)),
            _ => fields.push((name, value.clone())),
        }
    }
    Ok(fields)
}

/// Which fields the first request of a connection adds to the server's table, and how much room
/// they take there. Paths differ from request to request and are not added.
fn added(fields: &[(String, String)]) -> (Vec<bool>, usize) {
    let mut table_bytes = 0;
    let added = fields.iter().map(|(name, value)| {
        let bytes = name.len() + value.len() + hpack::ENTRY_BYTES;
        let fits = table_bytes + bytes <= hpack::TABLE_BYTES;
        let is_added = name != PATH && !hpack::is_static(name, value) && fits;
        table_bytes += if is_added { bytes } else { 0 };
        is_added
    });
    (added.collect(), table_bytes)
}
