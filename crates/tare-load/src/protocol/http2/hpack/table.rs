//! The static table (RFC 7541, appendix A) and the dynamic table of HPACK.

use std::collections::VecDeque;

/// Names and values; the first has index 1.
pub const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// What each entry counts beside its text (RFC 7541, 4.1).
pub const ENTRY_BYTES: usize = 32;

/// Fields that the peer has added; the oldest are dropped when there is no room for a new one.
#[derive(Debug)]
pub struct DynamicTable {
    /// The text of all entries, the newest last; bytes before the oldest are unused.
    text: Vec<u8>,
    /// The newest first.
    entries: VecDeque<Entry>,
    bytes: usize,
    limit_bytes: usize,
    /// Changes whenever the table does.
    pub version: u64,
}

#[derive(Debug)]
struct Entry {
    at: usize,
    name_bytes: usize,
    value_bytes: usize,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.name_bytes + self.value_bytes + ENTRY_BYTES
    }
}

impl DynamicTable {
    pub fn new(limit_bytes: usize) -> Self {
        let (text, entries) = (Vec::new(), VecDeque::new());
        Self { text, entries, bytes: 0, limit_bytes, version: 0 }
    }

    /// The field at this index of both tables; the static one comes first.
    pub fn field(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let index = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let Entry { at, name_bytes, value_bytes } = self.entries.get(index - STATIC.len())?;
        Some(self.text[*at..*at + name_bytes + value_bytes].split_at(*name_bytes))
    }

    pub fn resize(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
        self.make_room(0);
        self.version += 1;
    }

    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        let (name_bytes, value_bytes) = (name.len(), value.len());
        let entry = Entry { at: self.text.len(), name_bytes, value_bytes };
        self.version += 1;
        self.make_room(entry.bytes());
        // A field that is longer than the table empties it.
        if entry.bytes() <= self.limit_bytes {
            let at = self.text.len();
            self.text.extend_from_slice(name);
            self.text.extend_from_slice(value);
            self.bytes += entry.bytes();
            self.entries.push_front(Entry { at, ..entry });
        }
    }

    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.limit_bytes
            && let Some(oldest) = self.entries.pop_back()
        {
            self.bytes -= oldest.bytes();
        }
        let dead = self.entries.back().map_or(self.text.len(), |oldest| oldest.at);
        if dead > self.limit_bytes {
            self.text.drain(..dead);
            self.entries.iter_mut().for_each(|entry| entry.at -= dead);
        }
    }
}
