//! HPACK (RFC 7541): header fields as bytes.

mod huffman;
mod table;

pub use table::ENTRY_BYTES;
use table::{DynamicTable, STATIC};

/// The size of a peer's dynamic table, unless a setting changes it.
pub const TABLE_BYTES: usize = 4096;
/// The index of the newest entry in a dynamic table.
pub const NEWEST: usize = STATIC.len() + 1;
/// A block that expands to more than this is refused: a byte can stand for a field of 4 KiB.
const LIST_BYTES_MAX: usize = 1 << 20;

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockDefect {
    #[error("a header block is truncated")]
    Truncated,
    #[error("an integer in a header block is too large")]
    NumberTooLarge,
    #[error("a header block refers to index {0}, which neither table has")]
    NoEntry(usize),
    #[error("a header block has an invalid Huffman code")]
    Huffman,
    #[error(
        "a header block has a wrong update of the dynamic table's size: it comes first, and is at most {TABLE_BYTES}"
    )]
    Resize,
    #[error("a header list is over {LIST_BYTES_MAX} bytes")]
    ListTooLong,
}

/// Reads the header blocks of one connection, in order.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    text: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: DynamicTable::new(TABLE_BYTES), text: Vec::new() }
    }
}

impl Decoder {
    /// Changes whenever the meaning of later blocks may have.
    pub fn version(&self) -> u64 {
        self.table.version
    }

    /// Calls `field` with each name and value.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), BlockDefect> {
        let mut rest = block;
        let mut list_bytes = 0;
        let mut has_fields = false;
        while let Some(first) = rest.first().copied() {
            match first {
                0x80.. => {
                    let index = integer(&mut rest, 7)?;
                    let found = self.table.field(index);
                    let (name, value) = found.ok_or(BlockDefect::NoEntry(index))?;
                    list_bytes += name.len() + value.len();
                    field(name, value);
                }
                0x20..0x40 => {
                    let bytes = integer(&mut rest, 5)?;
                    if has_fields || bytes > TABLE_BYTES {
                        return Err(BlockDefect::Resize);
                    }
                    self.table.resize(bytes);
                    continue;
                }
                _ => {
                    let inserts = first & 0x40 != 0;
                    let index = integer(&mut rest, if inserts { 6 } else { 4 })?;
                    self.text.clear();
                    match index {
                        0 => string(&mut rest, &mut self.text)?,
                        _ => {
                            let found = self.table.field(index);
                            let (name, _) = found.ok_or(BlockDefect::NoEntry(index))?;
                            self.text.extend_from_slice(name);
                        }
                    }
                    let name_bytes = self.text.len();
                    string(&mut rest, &mut self.text)?;
                    let (name, value) = self.text.split_at(name_bytes);
                    list_bytes += self.text.len();
                    field(name, value);
                    if inserts {
                        self.table.insert(name, value);
                    }
                }
            }
            has_fields = true;
            if list_bytes > LIST_BYTES_MAX {
                return Err(BlockDefect::ListTooLong);
            }
        }
        Ok(())
    }
}

/// Takes an integer off the front, with a prefix of this many bits (RFC 7541, 5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, BlockDefect> {
    let mask = (1usize << bits) - 1;
    let (first, behind) = rest.split_first().ok_or(BlockDefect::Truncated)?;
    *rest = behind;
    let mut value = usize::from(*first) & mask;
    if value < mask {
        return Ok(value);
    }
    for shift in (0..28).step_by(7) {
        let (byte, behind) = rest.split_first().ok_or(BlockDefect::Truncated)?;
        *rest = behind;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(BlockDefect::NumberTooLarge)
}

/// Takes a string literal off the front, and appends it to `out`.
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), BlockDefect> {
    let is_coded = rest.first().ok_or(BlockDefect::Truncated)? & 0x80 != 0;
    let bytes = integer(rest, 7)?;
    let (text, behind) = rest.split_at_checked(bytes).ok_or(BlockDefect::Truncated)?;
    *rest = behind;
    match is_coded {
        true => huffman::decode(text, out).ok_or(BlockDefect::Huffman),
        false => {
            out.extend_from_slice(text);
            Ok(())
        }
    }
}

/// How a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Indexed, in both tables.
    Indexed(usize),
    /// As a literal that the peer adds to its dynamic table.
    LiteralIndexed,
    /// As a literal without indexing.
    Literal,
}

/// Writes a field. A field that the static table has is one byte in any form.
pub fn put_field(name: &str, value: &str, form: Form, out: &mut Vec<u8>) {
    let whole = STATIC.iter().position(|field| *field == (name, value));
    let index = match (whole, form) {
        (Some(at), _) => return put_integer(at + 1, 7, 0x80, out),
        (None, Form::Indexed(index)) => return put_integer(index, 7, 0x80, out),
        (None, _) => STATIC.iter().position(|(own, _)| *own == name).map_or(0, |at| at + 1),
    };
    match form {
        Form::LiteralIndexed => put_integer(index, 6, 0x40, out),
        _ => put_integer(index, 4, 0, out),
    }
    if index == 0 {
        put_string(name.as_bytes(), out);
    }
    put_string(value.as_bytes(), out);
}

/// Whether the static table has the field.
pub fn is_static(name: &str, value: &str) -> bool {
    STATIC.contains(&(name, value))
}

/// Updates the size of the peer's dynamic table; stands before all fields of a block.
pub fn put_table_bytes(bytes: usize, out: &mut Vec<u8>) {
    put_integer(bytes, 5, 0x20, out);
}

fn put_integer(value: usize, bits: u32, first: u8, out: &mut Vec<u8>) {
    let mask = (1usize << bits) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes a text in the Huffman code if that is shorter.
fn put_string(text: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::encoded_bytes(text);
    if coded < text.len() {
        put_integer(coded, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        put_integer(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests;
