//! The HTTP/1.1 reply parser on anything a server may send: no panic, no hang, bounded memory, and
//! the same replies however the bytes are cut.

use tare_load::protocol::http1::{HeadMemo, ReplyParser};
use tare_load::protocol::reply::Reply;

pub fn check(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let to_head = choice & 1 == 1;
    let piece = usize::from(choice >> 1) + 1;
    let (whole, whole_good) = replies(bytes, bytes.len().max(1), to_head);
    let (cut, cut_good) = replies(bytes, piece, to_head);
    assert_eq!(whole, cut, "cut into pieces of {piece}");
    // A bad head may be judged before or after the rest of it has come; that it is bad may not.
    assert_eq!(whole_good, cut_good, "cut into pieces of {piece}");
}

fn replies(bytes: &[u8], piece: usize, to_head: bool) -> (Vec<Reply>, bool) {
    let (mut parser, mut memo) = (ReplyParser::default(), HeadMemo::default());
    let mut found = Vec::new();
    for piece in bytes.chunks(piece) {
        let mut input = piece;
        while !input.is_empty() {
            let before = input.len();
            match parser.advance(&mut input, to_head, &mut memo) {
                Ok(reply) => {
                    assert!(input.len() < before, "every step takes something");
                    found.extend(reply);
                }
                Err(_) => return (found, false),
            }
        }
    }
    if parser.is_between_replies() {
        return (found, true);
    }
    match parser.on_close(true) {
        Ok(reply) => {
            found.extend(reply);
            (found, true)
        }
        Err(_) => (found, false),
    }
}
