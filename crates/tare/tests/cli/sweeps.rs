//! Sweeps over servers: their settings, and parameters in their commands.

use serde_json::Value;
use tare_target::behaviour::Behaviour;

use crate::runs::Desk;
use crate::util::{Server, str};

/// Two of tare's servers: one by its kind, one by a command with a parameter.
fn experiment(sweep: &str) -> String {
    let tare = env!("CARGO_BIN_EXE_tare");
    format!(
        "name = \"swept\"\n\
         [load]\nconnections = 2\n\
         [stop]\nrounds = 2\nmax_time = \"60s\"\n\
         [slices]\nwindow = \"5ms\"\ncycles = 2\n\
         [server.own]\ntarget = {{}}\n\
         [server.typed]\n\
         command = \"exec {tare} target --listen 127.0.0.1:{{port}} --body {{body_bytes}}\"\n\
         [[variant]]\nname = \"own\"\nserver = \"own\"\n\
         [[variant]]\nname = \"typed\"\nserver = \"typed\"\n\
         [sweep]\n{sweep}\n"
    )
}

#[test]
fn settings_and_parameters_of_servers_can_be_swept() {
    let desk = Desk::new("sweep-servers");
    let path =
        desk.file("swept.toml", &experiment("connections = [1, 3]\nbody_bytes = [10, 20000]"));
    let ran = desk.tare(&["run", str(&path), "--json", "-", "-q"]).measured();
    let sweep: Value = serde_json::from_str(&ran.stdout).unwrap();
    let cells = sweep["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4, "{}", ran.story());
    for cell in cells {
        let (values, report) = (&cell["values"], &cell["report"]);
        let bytes: u64 = values["body_bytes"].as_str().unwrap().parse().unwrap();
        // Both servers answer with this many bytes; otherwise the comparison would be void.
        let variants = report["variants"].as_array().unwrap();
        for variant in variants {
            assert_eq!(variant["probe"]["body_bytes"].as_u64(), Some(bytes), "{variant}");
        }
        assert_eq!(report["run"]["rounds"].as_u64(), Some(2), "{}", ran.story());
    }
}

#[test]
fn what_no_server_has_cannot_be_swept() {
    let desk = Desk::new("sweep-mistakes");
    for (sweep, complaint) in [
        ("speed = [1, 2]", "sweep: speed = 1: it cannot be swept; connections, http, streams"),
        ("port = [1, 2]", "sweep: port = 1: {port} is given by tare to each launch"),
        ("tls = [true]", "this changes the scheme of the URL"),
        ("body_bytes = [\"many\"]", "sweep: body_bytes = many: own: invalid type"),
    ] {
        let path = desk.file("swept.toml", &experiment(sweep));
        desk.tare(&["run", str(&path)]).fails(2, complaint);
    }
}

/// Another port is another server, so these cells are measured separately.
#[test]
fn where_a_server_listens_can_be_swept() {
    let desk = Desk::new("sweep-ports");
    let of = |body_bytes: usize| Server::start(Behaviour { body_bytes, ..Behaviour::default() });
    let servers = [10, 2000].map(of);
    let ports = servers.each_ref().map(|server| server.address().port());
    let toml = format!(
        "name = \"ports\"\n[load]\nconnections = 2\n[stop]\nrounds = 2\n\
         [slices]\nwindow = \"5ms\"\ncycles = 2\n\
         [server.up]\nurl = \"http://127.0.0.1:{{at}}/\"\n\
         [[variant]]\nname = \"a\"\nserver = \"up\"\n\
         [[variant]]\nname = \"b\"\nserver = \"up\"\n\
         [sweep]\nat = {ports:?}\n"
    );
    let path = desk.file("ports.toml", &toml);
    let ran = desk.tare(&["run", str(&path), "--json", "-", "-q"]).measured();
    let sweep: Value = serde_json::from_str(&ran.stdout).unwrap();
    for (cell, bytes) in sweep["cells"].as_array().unwrap().iter().zip([10, 2000]) {
        let probe = &cell["report"]["variants"][0]["probe"];
        assert_eq!(probe["body_bytes"].as_u64(), Some(bytes), "{}", ran.story());
    }
}

/// A launch is cold only once, so values that share launches cannot all be measured.
#[test]
fn cold_servers_can_be_swept_by_what_they_are_only() {
    let desk = Desk::new("sweep-cold");
    let toml = |sweep: &str| experiment(sweep).replace("window = \"5ms\"\ncycles = 2\n", "");
    let shared = desk.file("shared.toml", &toml("connections = [1, 2]"));
    let args = ["run", str(&shared), "--cold", "50", "--dry-run"];
    desk.tare(&args).fails(2, "cold: a sweep's values share launches");
    let apart = desk.file("apart.toml", &toml("body_bytes = [10, 20]"));
    let args = ["run", str(&apart), "--cold", "50", "--dry-run"];
    let told = desk.tare(&args).success().stdout;
    assert!(told.contains("the above is the first of 2 cells"), "{told}");
}
