//! Hostile servers.

use crate::flood::Flood;
use crate::util::tare;

#[test]
fn lengths_that_say_two_things_are_a_defect() {
    for (head, words) in [
        ("Content-Length: 2\r\nContent-Length: 2", "two content-lengths, 2 and 2"),
        ("Content-Length: 2\r\nContent-Length: 3", "two content-lengths, 2 and 3"),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", "both content-length and chunked"),
    ] {
        let head: &'static str = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nhi").leak();
        let flood = Flood::of(head, Vec::new());
        let ran = tare(&["load", &flood.url(), "-n", "2", "-c", "1", "-d", "5s"]);
        assert_eq!(ran.code, Some(4), "{}", ran.story());
        assert!((ran.stdout.clone() + &ran.stderr).contains(words), "{}", ran.story());
    }
}
