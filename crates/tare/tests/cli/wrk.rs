//! `tare wrk`: scripts that are broken.

use tare_target::behaviour::Behaviour;

use crate::util::{Folder, Server, tare};

#[test]
fn broken_scripts_say_where() {
    let server = Server::start(Behaviour::default());
    let folder = Folder::new("broken-lua");
    for (text, message) in [
        ("function request( return end", "script: syntax error: "),
        ("error('at once')", "at once"),
        (
            "function request() return 'nonsense' end",
            "request() does not give a whole HTTP request",
        ),
        (
            "local n = 0; function request() n = n + 1; if n > 5 then error('later') end; return wrk.format() end",
            "later",
        ),
        ("function done() local x = nil; x.y = 1 end", "attempt to index local 'x'"),
        (
            "function setup(thread) thread:set('f', function() end) end",
            "cannot transfer 'function' to thread",
        ),
    ] {
        let path = folder.file("broken.lua");
        std::fs::write(&path, text).unwrap();
        let ran = tare(&["wrk", "-t1", "-c1", "-d1", "-s", path.to_str().unwrap(), &server.url()]);
        assert_eq!(ran.code, Some(2), "{text}\n{}", ran.story());
        assert!(
            ran.stderr.lines().any(|l| l.starts_with("tare: ") && l.contains(message)),
            "{text}\n{}",
            ran.story()
        );
    }
}
