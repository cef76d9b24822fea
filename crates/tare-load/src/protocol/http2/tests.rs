//! A connection against frames written by hand, in pieces of every size.

use super::frame::{
    self, ACK, END_HEADERS, END_STREAM, ErrorCode, Kind, PADDED, PRIORITY, Setting,
};
use super::hpack::{self, Decoder, Form};
use super::{Http2, Http2Requests};
use crate::codec::lone::LoneConnection;
use crate::codec::{Codec, Decoded, FlightId, Room};
use crate::protocol::capture::Wanted;
use crate::protocol::reply::{Reply, ReplyDefect};
use crate::request::{RequestParts, Requests};

const STREAMS: u32 = 10;

/// A client with one connection, and a decoder for what it sends.
struct Client {
    lone: LoneConnection<Http2>,
    decoder: Decoder,
}

impl Client {
    fn with(parts: RequestParts, uses_table: bool) -> Self {
        let requests = Requests::Parts(parts.into());
        let requests = Http2Requests::new(&requests, false, uses_table).unwrap();
        let mut lone = LoneConnection::new(Http2::new(1, STREAMS, &Wanted::Hashes, requests));
        let preface: Vec<u8> = lone.sent.drain(..frame::PREFACE.len()).collect();
        assert_eq!(preface, frame::PREFACE);
        Self { lone, decoder: Decoder::default() }
    }

    fn new() -> Self {
        Self::with(parts(), true)
    }

    /// A client that has the server's settings, and has sent this many requests.
    fn asking(requests: u32) -> (Self, Vec<FlightId>) {
        let mut client = Self::new();
        client.receive(&settings(&[])).unwrap();
        let flights = (0..requests).map(|_| client.ask()).collect();
        client.frames();
        (client, flights)
    }

    fn ask(&mut self) -> FlightId {
        self.lone.ask()
    }

    fn room(&self) -> Room {
        self.lone.codec.room(0)
    }

    /// Takes bytes from the server; returns all outcomes.
    fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Decoded>, ReplyDefect> {
        let mut outcomes = Vec::new();
        self.lone.receive(bytes, &mut outcomes).map(|()| outcomes)
    }

    /// Takes the frames that it has sent: kind, flags, stream, payload.
    fn frames(&mut self) -> Vec<(Kind, u8, u32, Vec<u8>)> {
        let bytes = std::mem::take(&mut self.lone.sent);
        let mut rest = &bytes[..];
        let mut frames = Vec::new();
        while let Some(head) = rest.first_chunk().map(frame::FrameHeader::read) {
            let end = frame::HEADER_BYTES + head.bytes as usize;
            frames.push((
                head.kind,
                head.flags,
                head.stream,
                rest[frame::HEADER_BYTES..end].to_vec(),
            ));
            rest = &rest[end..];
        }
        assert!(rest.is_empty());
        frames
    }

    /// The fields of a block that it has sent.
    fn fields(&mut self, block: &[u8]) -> String {
        let mut text = String::new();
        let read = self.decoder.decode(block, |name, value| {
            let [name, value] = [name, value].map(|bytes| String::from_utf8_lossy(bytes));
            text.push_str(&format!("{name}={value} "));
        });
        read.unwrap();
        text
    }
}

fn parts() -> RequestParts {
    RequestParts {
        method: "GET".into(),
        authority: "host:80".into(),
        paths: vec!["/a?b".into()],
        headers: vec![("X-Own".into(), "value".into())],
        ..RequestParts::default()
    }
}

fn framed(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(kind, flags, stream, payload, &mut out);
    out
}

fn settings(settings: &[(Setting, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_settings(settings, &mut out);
    out
}

fn block(fields: &[(&str, &str, Form)]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|(name, value, form)| hpack::put_field(name, value, *form, &mut out));
    out
}

fn head(stream: u32, fields: &[(&str, &str, Form)], ends: bool) -> Vec<u8> {
    let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
    framed(Kind::Headers, flags, stream, &block(fields))
}

/// A reply with a body of three bytes.
fn reply(stream: u32) -> Vec<u8> {
    let head = head(stream, &[(":status", "200", Form::Literal)], false);
    [head, framed(Kind::Data, END_STREAM, stream, b"abc")].concat()
}

fn replied(flight: FlightId, status: u16, body_bytes: u64) -> Decoded {
    Decoded::Replied(flight, Reply { status, keep_alive: true, body_bytes, code: 0 })
}

#[test]
fn replies_are_found_however_they_are_cut() {
    let own = |form| ("x-own", "a rather long value that only the first reply has", form);
    let length = ("content-length", "5", Form::Literal);
    let status = |status| (":status", status, Form::Literal);
    let trailers = [("x-sum", "1", Form::Literal)];
    let spread = block(&[status("200"), own(Form::Indexed(62)), length]);
    let bytes = [
        settings(&[(Setting::MAX_CONCURRENT_STREAMS, 7)]),
        framed(Kind::Unknown(200), 255, 3, b"ignored"),
        framed(Kind::Ping, 0, 0, b"12345678"),
        head(1, &[status("103"), own(Form::LiteralIndexed)], false),
        head(1, &[status("200"), length], false),
        framed(Kind::Data, 0, 1, b"he"),
        framed(Kind::Headers, 0, 3, &spread[..1]),
        framed(Kind::Continuation, 0, 3, &[]),
        framed(Kind::Continuation, END_HEADERS, 3, &spread[1..]),
        framed(Kind::Data, PADDED | END_STREAM, 3, &[2, b'h', b'e', b'l', b'l', b'o', 0, 0]),
        framed(Kind::Data, 0, 1, b""),
        framed(Kind::Data, 0, 1, b"llo"),
        head(1, &trailers, true),
        framed(Kind::Headers, END_STREAM | END_HEADERS | PRIORITY, 5, &[0, 0, 0, 0, 1, 0x8d]),
        framed(Kind::WindowUpdate, 0, 7, &[0, 0, 0, 1]),
        reply(7),
    ]
    .concat();
    for piece in 1..=bytes.len() {
        let mut client = Client::new();
        let flights: Vec<FlightId> = (0..4).map(|_| client.ask()).collect();
        client.frames();
        let mut outcomes = Vec::new();
        for piece in bytes.chunks(piece) {
            outcomes.extend(client.receive(piece).unwrap());
        }
        let expected = [
            replied(flights[1], 200, 5),
            replied(flights[0], 200, 5),
            replied(flights[2], 404, 0),
            replied(flights[3], 200, 3),
        ];
        assert_eq!(outcomes, expected, "in pieces of {piece}");
        let answers: Vec<(Kind, u8)> = client.frames().iter().map(|one| (one.0, one.1)).collect();
        assert_eq!(answers, [(Kind::Settings, ACK), (Kind::Ping, ACK)]);
        assert_eq!(client.room(), Room::Ready(7));
    }
}

#[test]
fn the_first_request_fills_the_table_and_later_ones_refer_to_it() {
    let mut client = Client::new();
    let begin = client.frames();
    assert_eq!([begin[0].0, begin[1].0], [Kind::Settings, Kind::WindowUpdate]);
    assert_eq!(client.room(), Room::Ready(1), "before the server's settings");
    client.receive(&settings(&[])).unwrap();
    assert_eq!(client.room(), Room::Ready(STREAMS));
    for _ in 0..3 {
        client.ask();
    }
    let frames = client.frames();
    let fields = concat!(
        ":method=GET :scheme=http :authority=host:80 :path=/a?b user-agent=tare/",
        env!("CARGO_PKG_VERSION"),
        " accept=*/* x-own=value "
    );
    for (nth, (kind, flags, stream, block)) in frames[1..].iter().enumerate() {
        assert_eq!((*kind, *flags), (Kind::Headers, END_HEADERS | END_STREAM));
        assert_eq!((*stream, client.fields(block)), (2 * nth as u32 + 1, fields.to_owned()));
        assert_eq!(block.len() < 16, nth > 0, "{block:?}");
    }
    // A table that shrinks below what the fields take is not used; one that has room again is filled
    // again.
    for size in [20, 0, 300, 4096, 60_000] {
        client.receive(&settings(&[(Setting::HEADER_TABLE_SIZE, size)])).unwrap();
        client.ask();
        let block = client.frames().pop().unwrap().3;
        assert_eq!(client.fields(&block), fields, "with a table of {size}");
        let refers = block.len() < 16;
        assert_eq!(refers, size == 60_000, "with a table of {size}: {block:?}");
    }
    let mut plain = Client::with(parts(), false);
    for _ in 0..2 {
        plain.ask();
    }
    let blocks: Vec<Vec<u8>> = plain.frames().into_iter().skip(2).map(|frame| frame.3).collect();
    assert_eq!(blocks[0], blocks[1]);
    assert_eq!(plain.fields(&blocks[0]), fields);
}

#[test]
fn connection_specific_headers_are_rejected() {
    let with = |name: &str, value: &str| {
        let headers = vec![(name.to_owned(), value.to_owned())];
        let parts = RequestParts { headers, ..parts() };
        Http2Requests::new(&Requests::Parts(parts.into()), true, true).map(drop)
    };
    for (name, value) in [("Connection", "close"), ("Transfer-Encoding", "chunked"), ("TE", "gzip")]
    {
        let why = with(name, value).unwrap_err().to_string();
        assert!(why.contains("is not allowed in HTTP/2"), "{why}");
    }
    assert!(with("te", "trailers").is_ok() && with("Host", "other").is_ok());
    let headers = vec![("Host".to_owned(), "other".to_owned())];
    let mut client = Client::with(RequestParts { headers, ..parts() }, true);
    client.ask();
    let block = client.frames().pop().unwrap().3;
    let fields = client.fields(&block);
    assert!(fields.contains(":authority=other ") && !fields.contains("host="), "{fields}");
}

#[test]
fn a_long_head_takes_several_frames() {
    let headers = vec![("x-long".to_owned(), "~".repeat(40_000))];
    let mut client = Client::with(RequestParts { headers, ..parts() }, true);
    client.ask();
    let frames = client.frames().split_off(2);
    let kinds: Vec<Kind> = frames.iter().map(|frame| frame.0).collect();
    assert_eq!(kinds[..2], [Kind::Headers, Kind::Continuation]);
    assert!(frames.iter().all(|frame| frame.3.len() <= 16_384 && frame.2 == 1));
    let flags: Vec<u8> = frames.iter().map(|frame| frame.1 & END_HEADERS).collect();
    assert_eq!(flags.iter().position(|flags| *flags != 0), Some(flags.len() - 1));
    let whole: Vec<u8> = frames.into_iter().flat_map(|frame| frame.3).collect();
    assert!(client.fields(&whole).ends_with(&format!("x-long={} ", "~".repeat(40_000))));
}

#[test]
fn bodies_keep_to_both_windows_and_to_the_length_of_frames() {
    let body = vec![7; 200_000];
    let mut client = Client::with(RequestParts { method: "POST".into(), body, ..parts() }, true);
    client.receive(&settings(&[(Setting::INITIAL_WINDOW_SIZE, 50_000)])).unwrap();
    client.ask();
    client.ask();
    client.frames();
    let poured = |client: &mut Client| {
        while {
            let before = client.lone.sent.len();
            client.lone.codec.pour(0, 30_000, &mut client.lone.sent);
            client.lone.sent.len() > before
        } {}
        let frames = client.frames();
        let data = frames.iter().filter(|frame| frame.0 == Kind::Data);
        assert!(data.clone().all(|frame| frame.3.len() <= 16_384));
        let sum = |id| data.clone().filter(|f| f.2 == id).map(|f| f.3.len()).sum::<usize>();
        (sum(1), sum(3), data.clone().filter(|frame| frame.1 == END_STREAM).count())
    };
    let (first, second, ended) = poured(&mut client);
    assert_eq!((first + second, ended), (65_535, 0), "the connection's window");
    let update = |id, more: u32| framed(Kind::WindowUpdate, 0, id, &more.to_be_bytes());
    client.receive(&update(0, 1 << 20)).unwrap();
    let (more, others, _) = poured(&mut client);
    assert_eq!((first + more, second + others), (50_000, 50_000), "the streams' windows");
    // A smaller window for all streams leaves these below zero.
    client.receive(&settings(&[(Setting::INITIAL_WINDOW_SIZE, 40_000)])).unwrap();
    client.receive(&update(1, 10_001)).unwrap();
    assert_eq!(poured(&mut client), (1, 0, 0));
    client.receive(&[update(1, 149_999), update(3, 900_000)].concat()).unwrap();
    assert_eq!(poured(&mut client), (149_999, 150_000, 2));
    // A reply that comes before the whole request ends the request too.
    client.ask();
    poured(&mut client);
    let outcome = client.receive(&reply(5)).unwrap();
    assert!(matches!(outcome[..], [Decoded::Replied(..)]), "{outcome:?}");
    let last = client.frames().pop().unwrap();
    assert_eq!((last.0, last.2), (Kind::RstStream, 5));
    client.receive(&update(5, 100_000)).unwrap();
    assert_eq!(poured(&mut client), (0, 0, 0));
}

#[test]
fn windows_are_replenished_before_the_server_has_to_wait() {
    let (mut client, _) = Client::asking(1);
    client.receive(&head(1, &[(":status", "200", Form::Literal)], false)).unwrap();
    let piece = framed(Kind::Data, 0, 1, &[0; 16_384]);
    let (mut stream, mut connection) = (4i64 << 20, 16i64 << 20);
    for _ in 0..3000 {
        (stream, connection) = (stream - 16_384, connection - 16_384);
        assert!(stream >= 0 && connection >= 0, "the server waits");
        client.receive(&piece).unwrap();
        for (kind, _, id, payload) in client.frames() {
            assert_eq!(kind, Kind::WindowUpdate);
            *(if id == 0 { &mut connection } else { &mut stream }) +=
                i64::from(frame::number(&payload));
        }
        assert!(stream <= 4 << 20 && connection <= 16 << 20);
    }
}

#[test]
fn goaway_and_refused_stream_return_unprocessed_requests() {
    let goaway = |last, code| {
        let mut out = Vec::new();
        frame::put_goaway(last, code, &mut out);
        out
    };
    let (mut client, flights) = Client::asking(4);
    // First a graceful shutdown's GOAWAY, with the highest stream identifier (RFC 9113, 6.8).
    client.receive(&goaway(frame::STREAM_ID_MAX, ErrorCode::NO_ERROR)).unwrap();
    assert_eq!(client.room(), Room::Draining);
    let mut retried = client.receive(&goaway(3, ErrorCode::NO_ERROR)).unwrap();
    retried.sort_by_key(|outcome| format!("{outcome:?}"));
    assert_eq!(retried, [Decoded::Refused(flights[2]), Decoded::Refused(flights[3])]);
    let outcomes = client.receive(&[reply(3), reply(1)].concat()).unwrap();
    assert_eq!(outcomes, [replied(flights[1], 200, 3), replied(flights[0], 200, 3)]);

    let (mut client, asked) = Client::asking(3);
    let reset = |id, code: ErrorCode| framed(Kind::RstStream, 0, id, &code.0.to_be_bytes());
    let outcomes =
        client.receive(&[reset(3, ErrorCode::REFUSED_STREAM), reset(1, ErrorCode(2))].concat());
    let lost = ReplyDefect::StreamReset { code: ErrorCode(2) };
    let expected = vec![Decoded::Refused(asked[1]), Decoded::Lost(asked[0], lost.clone())];
    assert_eq!(outcomes, Ok(expected));
    assert_eq!(lost.to_string(), "the server reset the stream: INTERNAL_ERROR");
    let lost = client.receive(&goaway(3, ErrorCode::ENHANCE_YOUR_CALM)).unwrap();
    let gone = ReplyDefect::GoneAway { code: ErrorCode::ENHANCE_YOUR_CALM };
    assert_eq!(lost, [Decoded::Lost(asked[2], gone)]);
    let why = client.lone.close().unwrap_err();
    assert_eq!(why.to_string(), "the server sent GOAWAY: ENHANCE_YOUR_CALM");
}

#[test]
fn a_cancelled_request_leaves_its_connection_usable() {
    let (mut client, flights) = Client::asking(2);
    let mut out = Vec::new();
    assert!(client.lone.codec.cancel(0, flights[0], &mut out));
    assert_eq!(out, framed(Kind::RstStream, 0, 1, &ErrorCode::CANCEL.0.to_be_bytes()));
    // Its reply was on the way, and added to the table what the next one refers to.
    let added = [(":status", "200", Form::Literal), ("x-own", "value", Form::LiteralIndexed)];
    let late = [head(1, &added, false), framed(Kind::Data, END_STREAM, 1, b"late")].concat();
    let refers = [(":status", "200", Form::Literal), ("x-own", "value", Form::Indexed(62))];
    let outcomes = client.receive(&[late, head(3, &refers, true)].concat()).unwrap();
    assert_eq!(outcomes, [replied(flights[1], 200, 0)]);
    let capture = client.lone.codec.capture(0).unwrap();
    let headers: Vec<_> = capture.headers().collect();
    assert_eq!(headers, [(&b"x-own"[..], &b"value"[..])]);
}

#[test]
fn a_reply_that_is_wrong_fails_alone() {
    let status = |status| (":status", status, Form::Literal);
    let five = ("content-length", "5", Form::Literal);
    let ends = framed(Kind::Data, END_STREAM, 1, b"abc");
    for (bytes, why) in [
        ([head(1, &[status("200"), five], false), ends.clone()].concat(), "the body has 3 bytes"),
        (head(1, &[five], true), "a reply without :status"),
        (head(1, &[status("65736")], true), "malformed"),
        (head(1, &[status("200"), status("200")], true), "malformed"),
        (
            head(1, &[status("200"), five, ("content-length", "6", Form::Literal)], false),
            "malformed",
        ),
        (head(1, &[status("200"), ("content-length", "ten", Form::Literal)], false), "malformed"),
        (head(1, &[status("100")], true), "an interim (1xx) reply with END_STREAM"),
        (head(1, &[status("101")], false), "status 101"),
        (head(1, &[status("103")], false).repeat(101), "over 100 interim (1xx) replies"),
        ([head(1, &[status("200")], false), head(1, &[five], false)].concat(), "trailers"),
        (framed(Kind::WindowUpdate, 0, 1, &[0; 4]), "an increment of 0"),
    ] {
        let (mut client, flights) = Client::asking(2);
        let outcomes = client.receive(&[bytes, reply(3)].concat()).unwrap();
        let [Decoded::Lost(flight, defect), other] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert_eq!((*flight, other), (flights[0], &replied(flights[1], 200, 3)));
        assert!(defect.to_string().contains(why), "{defect}");
    }
    let (mut client, _) = Client::asking(1);
    let long = [head(1, &[status("304"), five], true)].concat();
    assert!(
        matches!(client.receive(&long).unwrap()[..], [Decoded::Replied(..)]),
        "no body to a 304"
    );
}

#[test]
fn a_server_that_breaks_the_protocol_is_named() {
    let status = [(":status", "200", Form::Literal)];
    let update = |more: u32| framed(Kind::WindowUpdate, 0, 0, &more.to_be_bytes());
    for (bytes, why) in [
        (framed(Kind::Ping, 0, 0, &[0; 8]), "the first frame is PING, not SETTINGS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "does not speak HTTP/2 on this port"),
        (framed(Kind::Settings, 0, 0, &[0; 5]), "a SETTINGS frame of 5 bytes"),
        (settings(&[(Setting::MAX_FRAME_SIZE, 5)]), "SETTINGS_MAX_FRAME_SIZE of 5"),
        (
            settings(&[(Setting::INITIAL_WINDOW_SIZE, u32::MAX)]),
            "a flow-control window beyond its limit",
        ),
        ([settings(&[]), vec![0, 0x40, 1, 6, 0, 0, 0, 0, 0]].concat(), "a frame of 16385 bytes"),
        ([settings(&[]), framed(Kind::PushPromise, 4, 1, &[0; 9])].concat(), "PUSH_PROMISE"),
        ([settings(&[]), framed(Kind::Data, 0, 0, &[])].concat(), "a DATA frame on stream 0"),
        ([settings(&[]), reply(2)].concat(), "a HEADERS frame on idle stream 2"),
        ([settings(&[]), reply(9)].concat(), "a HEADERS frame on idle stream 9"),
        ([settings(&[]), framed(Kind::Data, 0, 1, b"a")].concat(), "DATA before HEADERS"),
        ([settings(&[]), framed(Kind::Data, PADDED, 1, &[9])].concat(), "padding that is longer"),
        (
            [settings(&[]), framed(Kind::Continuation, 4, 1, &[])].concat(),
            "CONTINUATION without HEADERS",
        ),
        (
            [settings(&[]), framed(Kind::Headers, 0, 1, &block(&status)), reply(1)].concat(),
            "instead of its CONTINUATION",
        ),
        ([settings(&[]), framed(Kind::Headers, 4, 1, &[0xbe])].concat(), "refers to index 62"),
        ([settings(&[]), update(0)].concat(), "an increment of 0"),
        (
            [settings(&[]), update(1 << 30), update(1 << 30)].concat(),
            "a flow-control window beyond its limit",
        ),
        (
            [settings(&[]), framed(Kind::GoAway, 0, 0, &[0; 7])].concat(),
            "a GOAWAY frame of 7 bytes",
        ),
        (
            [
                settings(&[]),
                framed(Kind::Headers, 0, 1, &[]),
                framed(Kind::Continuation, 0, 1, &[0; 16_000]).repeat(5),
            ]
            .concat(),
            "reply head is over 65536 bytes",
        ),
    ] {
        for piece in [1, 7, bytes.len()] {
            let mut client = Client::new();
            client.ask();
            client.frames();
            let outcome = bytes.chunks(piece).try_for_each(|piece| client.receive(piece).map(drop));
            let defect = outcome.unwrap_err().to_string();
            assert!(defect.contains(why), "{defect}, not {why}");
            assert_eq!(client.frames().pop().unwrap().0, Kind::GoAway, "{why}");
        }
    }
}
