//! An HTTP/2 connection that receives arbitrary bytes: no panic, no hang, bounded memory, and the
//! same outcomes and answers however the bytes are cut.

use tare_load::codec::Decoded;
use tare_load::codec::lone::LoneConnection;
use tare_load::protocol::capture::Wanted;
use tare_load::protocol::http2::{Http2, Http2Requests};
use tare_load::request::{RequestParts, Requests};

const REQUESTS: usize = 3;

pub fn check(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let piece = usize::from(choice) + 1;
    let whole = exchange(bytes, bytes.len().max(1));
    assert_eq!(whole, exchange(bytes, piece), "cut into pieces of {piece}");
    // Answers are settings, pings, windows and resets: none is much longer than the frame that it answers.
    assert!(whole.2.len() < 1000 + 4 * bytes.len(), "{} bytes sent", whole.2.len());
}

/// The outcomes, whether the server kept to the protocol, and what was sent.
fn exchange(bytes: &[u8], piece: usize) -> (Vec<Decoded>, bool, Vec<u8>) {
    let parts = RequestParts {
        method: "GET".into(),
        authority: "localhost".into(),
        paths: vec!["/".into()],
        ..RequestParts::default()
    };
    let requests = Http2Requests::new(&Requests::Parts(parts.into()), false, true);
    let requests = requests.expect("a valid request");
    let codec = Http2::new(1, REQUESTS as u32, &Wanted::Hashes, requests);
    let mut connection = LoneConnection::new(codec);
    for _ in 0..REQUESTS {
        connection.ask();
    }
    let mut outcomes = Vec::new();
    for piece in bytes.chunks(piece) {
        if connection.receive(piece, &mut outcomes).is_err() {
            return (outcomes, false, connection.sent);
        }
    }
    assert!(connection.close().is_err(), "a connection that ends is an error");
    (outcomes, true, connection.sent)
}
