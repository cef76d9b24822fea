use super::*;
use crate::protocol::capture::Budget;

/// Parses `bytes` as one connection, cut into pieces of `piece` bytes, then closed.
fn replies(bytes: &[u8], piece: usize, to_head: bool) -> (Vec<Reply>, Option<ReplyDefect>) {
    let mut parser = ReplyParser::default();
    let mut memo = HeadMemo::default();
    let mut found = Vec::new();
    for piece in bytes.chunks(piece) {
        let mut input = piece;
        while !input.is_empty() {
            match parser.advance(&mut input, to_head, &mut memo) {
                Ok(reply) => found.extend(reply),
                Err(defect) => return (found, Some(defect)),
            }
        }
    }
    if parser.is_between_replies() {
        return (found, None);
    }
    match parser.on_close(true) {
        Ok(reply) => {
            found.extend(reply);
            (found, None)
        }
        Err(defect) => (found, Some(defect)),
    }
}

/// Checks [`replies`] with pieces of every size: where a reply is cut must not matter.
#[track_caller]
fn check(text: &str, expected: &[Reply], defect: Option<ReplyDefect>) {
    for piece in 1..=text.len() {
        let got = replies(text.as_bytes(), piece, false);
        assert_eq!(got, (expected.to_vec(), defect.clone()), "in pieces of {piece}");
    }
}

fn reply(status: u16, keep_alive: bool, body_bytes: u64) -> Reply {
    Reply { status, keep_alive, body_bytes, code: GOOD }
}

#[test]
fn framings() {
    let ok = |body_bytes| [reply(200, true, body_bytes)];
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", &ok(5), None);
    check("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &ok(0), None);
    check("HTTP/1.1 200 OK\ncontent-length: 2\n\nhi", &ok(2), None);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(&format!("{chunked}5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"), &ok(15), None);
    check(&format!("{chunked}0\r\nTrailer: x\r\nB: y\r\n\r\n"), &ok(0), None);
    check("HTTP/1.1 200 OK\r\n\r\nuntil the end", &[reply(200, false, 13)], None);
    check("HTTP/1.1 204 No Content\r\n\r\n", &[reply(204, true, 0)], None);
    check("HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", &[reply(304, true, 0)], None);
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        &ok(1),
        None,
    );
}

#[test]
fn a_reply_to_head_has_no_body() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 612\r\n\r\nHTTP/1.1 200 OK\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    for piece in 1..text.len() {
        assert_eq!(
            replies(text, piece, true),
            (vec![reply(200, true, 0), reply(200, true, 0)], None)
        );
    }
}

#[test]
fn keep_alive_follows_version_and_header() {
    let head =
        |version, header| format!("HTTP/{version} 200 OK\r\nContent-Length: 0\r\n{header}\r\n");
    check(&head("1.1", ""), &[reply(200, true, 0)], None);
    check(&head("1.1", "Connection: close\r\n"), &[reply(200, false, 0)], None);
    check(&head("1.0", ""), &[reply(200, false, 0)], None);
    check(&head("1.0", "Connection: x, Keep-Alive\r\n"), &[reply(200, true, 0)], None);
}

#[test]
fn replies_follow_each_other() {
    let one = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    let two = "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    check(
        &format!("{one}{two}{one}"),
        &[reply(200, true, 3), reply(404, true, 1), reply(200, true, 3)],
        None,
    );
}

#[test]
fn the_memo_never_mistakes_one_head_for_another() {
    let mut parser = ReplyParser::default();
    let mut memo = HeadMemo::default();
    for (text, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", reply(200, true, 1)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", reply(200, true, 1)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", reply(200, true, 10)),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 1\r\n\r\nx", reply(503, true, 1)),
    ] {
        let mut input = text.as_bytes();
        assert_eq!(parser.advance(&mut input, false, &mut memo), Ok(Some(expected)), "{text}");
    }
}

#[test]
fn every_defect_is_named() {
    let head = "HTTP/1.1 200 OK\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bad_length = |value: &str| ReplyDefect::BadContentLength { value: value.into() };
    for (text, defect) in [
        (
            format!("{head}Content-Length: 5\r\n\r\nhel"),
            ReplyDefect::ClosedInBody { got_bytes: 3, expected_bytes: 5 },
        ),
        (format!("{head}Content-Le"), ReplyDefect::ClosedInHead { got_bytes: 27 }),
        (format!("{head}Content-Length: five\r\n\r\n"), bad_length("five")),
        (format!("{head}Content-Length: -1\r\n\r\n"), bad_length("-1")),
        (format!("{head}Content-Length: +1\r\n\r\n"), bad_length("+1")),
        (format!("{head}Content-Length: \r\n\r\n"), bad_length("")),
        (
            format!("{head}Content-Length: 99999999999999999999\r\n\r\n"),
            bad_length("99999999999999999999"),
        ),
        (
            format!("{head}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            ReplyDefect::TwoContentLengths { first: 1, second: 2 },
        ),
        (
            format!("{head}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ReplyDefect::LengthAndChunked,
        ),
        (format!("{chunked}xyz\r\n"), ReplyDefect::BadChunkSize { byte: b'x' }),
        (format!("{chunked}\r\n"), ReplyDefect::BadChunkSize { byte: b'\r' }),
        (format!("{chunked}5\r\nhelloX"), ReplyDefect::BadChunkEnd { byte: b'X' }),
        (
            format!("{chunked}ffffffffffffffff\r\n"),
            ReplyDefect::ChunkTooLong { limit_bytes: 1 << 50 },
        ),
        (format!("{chunked}5\r\nhel"), ReplyDefect::ClosedInChunks { got_bytes: 3 }),
        (format!("{chunked}0\r\n"), ReplyDefect::ClosedInChunks { got_bytes: 0 }),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n".into(), ReplyDefect::SwitchedProtocols),
        ("HTTP/1.1 100 Continue\r\n\r\n".repeat(101), ReplyDefect::TooManyInterim { limit: 100 }),
        (
            "SSH-2.0-OpenSSH_9.2\r\n\r\n".into(),
            ReplyDefect::BadHead { what: "invalid HTTP version".into() },
        ),
        ("\0\0\x06\x04\0\0\0\0\0\0\x04\0\u{7f}\u{7f}\u{7f}".into(), ReplyDefect::Http2),
        ("\x15\x03\x03\0\x02\x02\x0a".into(), ReplyDefect::Tls),
        ("HTTP/1.1 000 Nil\r\n\r\n".into(), ReplyDefect::BadHead { what: "status 000".into() }),
    ] {
        let (_, got) = replies(text.as_bytes(), text.len(), false);
        assert_eq!(got, Some(defect.clone()), "{text:?}");
        let (_, got) = replies(text.as_bytes(), 1, false);
        assert_eq!(got, Some(defect), "byte by byte: {text:?}");
    }
}

#[test]
fn heads_and_trailers_are_bounded() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(HEAD_LIMIT_BYTES));
    for piece in [1, 1000, long.len()] {
        let (_, defect) = replies(long.as_bytes(), piece, false);
        assert_eq!(defect, Some(ReplyDefect::HeadTooLong { limit_bytes: HEAD_LIMIT_BYTES }));
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(129));
    let (_, defect) = replies(many.as_bytes(), many.len(), false);
    assert_eq!(defect, Some(ReplyDefect::TooManyHeaders { limit: 128 }));
    let trailers = "X: y\r\n".repeat(20_000);
    let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{trailers}");
    let (_, defect) = replies(text.as_bytes(), 4096, false);
    assert_eq!(defect, Some(ReplyDefect::TrailersTooLong { limit_bytes: 64 * 1024 }));
}

#[test]
fn a_cut_tls_stream_is_not_a_finished_body() {
    let mut parser = ReplyParser::default();
    let mut input = &b"HTTP/1.1 200 OK\r\n\r\nhalf a bo"[..];
    assert_eq!(parser.advance(&mut input, false, &mut HeadMemo::default()), Ok(None));
    assert_eq!(parser.on_close(false), Err(ReplyDefect::NoCloseNotify));
}

#[test]
fn captures_hold_headers_and_decoded_body() {
    let budget = Budget::new(5);
    let mut parser = ReplyParser::capturing(&Wanted::Bodies(budget.clone()));
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n";
    let text = format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    for byte in text.as_bytes().chunks(1) {
        let mut input = byte;
        parser.advance(&mut input, false, &mut HeadMemo::default()).unwrap();
    }
    let capture = parser.capture().unwrap();
    let headers: Vec<_> = capture.headers().collect();
    assert_eq!(headers, [(&b"Transfer-Encoding"[..], &b"chunked"[..]), (b"A", b"b")]);
    assert_eq!((capture.head_bytes(), capture.body()), (head.len(), &b"abcde"[..]));
    // All connections share the budget, and return what they no longer hold.
    let mut other = ReplyParser::capturing(&Wanted::Bodies(budget.clone()));
    let mut input = &b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"[..];
    let over = Err(ReplyDefect::BodiesTooLong { limit_bytes: 5 });
    assert_eq!(other.advance(&mut input, false, &mut HeadMemo::default()), over);
    parser.reset();
    other.reset();
    let mut input = &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde"[..];
    assert!(other.advance(&mut input, false, &mut HeadMemo::default()).unwrap().is_some());
    let hashed = other.capture().unwrap().sha256();
    let mut hashing = ReplyParser::capturing(&Wanted::Hashes);
    for piece in text.as_bytes().chunks(3) {
        let mut input = piece;
        hashing.advance(&mut input, false, &mut HeadMemo::default()).unwrap();
    }
    let capture = hashing.capture().unwrap();
    assert_eq!((capture.sha256(), capture.body_bytes()), (hashed, 5));
}
