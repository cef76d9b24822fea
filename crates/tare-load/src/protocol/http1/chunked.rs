//! The chunked transfer coding: sizes, data, trailers.

use std::ops::Range;

use crate::protocol::reply::ReplyDefect;

#[derive(Debug, Default)]
pub struct ChunkedBody {
    state: State,
    /// Bytes of extensions and trailers so far.
    overhead_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    FirstDigit,
    Digits(u64),
    /// In an extension, or in spaces behind the size.
    Extension(u64),
    SizeLineFeed(u64),
    Data(u64),
    DataCarriageReturn,
    DataLineFeed,
    TrailerStart,
    Trailer,
    LastLineFeed,
    Done,
}

/// Limit of one chunk; more is a mistake or an attempt to overflow the counter.
const CHUNK_LIMIT_BYTES: u64 = 1 << 50;
const OVERHEAD_LIMIT_BYTES: usize = 64 * 1024;

impl ChunkedBody {
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes bytes off the front of `input`, up to and including one stretch of data. Returns how
    /// many were used and which of them are data.
    pub fn advance(&mut self, input: &[u8]) -> Result<(usize, Option<Range<usize>>), ReplyDefect> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if let State::Data(left) = self.state {
                let n = left.min((input.len() - at) as u64) as usize;
                self.state = match left - n as u64 {
                    0 => State::DataCarriageReturn,
                    left => State::Data(left),
                };
                return Ok((at + n, Some(at..at + n)));
            }
            self.state = self.next(input[at])?;
            at += 1;
        }
        Ok((at, None))
    }

    fn next(&mut self, byte: u8) -> Result<State, ReplyDefect> {
        let bad_size = Err(ReplyDefect::BadChunkSize { byte });
        Ok(match (self.state, byte) {
            (State::FirstDigit, _) => match hex(byte) {
                Some(digit) => State::Digits(digit),
                None => return bad_size,
            },
            (State::Digits(size), b'\r') | (State::Extension(size), b'\r') => {
                State::SizeLineFeed(size)
            }
            (State::Digits(size), b'\n') | (State::Extension(size), b'\n') => after_size(size),
            (State::Digits(size), b';' | b' ' | b'\t') => State::Extension(size),
            (State::Digits(size), _) => match hex(byte) {
                Some(_) if size >= CHUNK_LIMIT_BYTES / 16 => {
                    return Err(ReplyDefect::ChunkTooLong { limit_bytes: CHUNK_LIMIT_BYTES });
                }
                Some(digit) => State::Digits(size * 16 + digit),
                None => return bad_size,
            },
            (State::Extension(size), _) => self.overhead(State::Extension(size))?,
            (State::SizeLineFeed(size), b'\n') => after_size(size),
            (State::SizeLineFeed(_), _) => return bad_size,
            (State::DataCarriageReturn, b'\r') => State::DataLineFeed,
            (State::DataCarriageReturn | State::DataLineFeed, b'\n') => State::FirstDigit,
            (State::DataCarriageReturn | State::DataLineFeed, _) => {
                return Err(ReplyDefect::BadChunkEnd { byte });
            }
            (State::TrailerStart, b'\r') => State::LastLineFeed,
            (State::TrailerStart | State::LastLineFeed, b'\n') => State::Done,
            (State::LastLineFeed, _) => return Err(ReplyDefect::BadChunkEnd { byte }),
            (State::Trailer, b'\n') => self.overhead(State::TrailerStart)?,
            (State::TrailerStart | State::Trailer, _) => self.overhead(State::Trailer)?,
            (State::Data(_) | State::Done, _) => self.state,
        })
    }

    fn overhead(&mut self, next: State) -> Result<State, ReplyDefect> {
        self.overhead_bytes += 1;
        if self.overhead_bytes > OVERHEAD_LIMIT_BYTES {
            return Err(ReplyDefect::TrailersTooLong { limit_bytes: OVERHEAD_LIMIT_BYTES });
        }
        Ok(next)
    }
}

fn after_size(size: u64) -> State {
    if size == 0 { State::TrailerStart } else { State::Data(size) }
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
