//! A lab for each test.

#![allow(dead_code, reason = "no test program uses all of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use tare_io::Endpoint;
use tare_lab::lab::Deployment;
use tare_lab::launch::Launched;
use tare_lab::world::World as _;
use tare_lab::{Lab, LabPlan};
use tare_model::clients::Clients;
use tare_model::places::{HostSpec, PlaceSpec};
use tare_model::plan::VariantId;
use tare_model::servers::{CommandSpec, ServerSpec};

pub struct Bench {
    pub lab: Lab,
    state: PathBuf,
}

impl Bench {
    pub fn new(name: &str, servers: Vec<ServerSpec>, fixed: Option<SocketAddr>) -> Self {
        let state = std::env::temp_dir().join(format!("tare-lab-{}-{name}", std::process::id()));
        let servers = servers.into_iter().enumerate();
        let plan = LabPlan {
            state: &state,
            servers: servers
                .map(|(n, server)| Deployment {
                    name: format!("v{n}"),
                    server,
                    endpoint: Endpoint::Tcp(([127, 0, 0, 1], 0).into()),
                    fixed,
                    ip: None,
                    layers: Vec::new(),
                    place: PlaceSpec::Host(HostSpec::default()),
                    clients: Clients::on_host(),
                })
                .collect(),
            cpus: vec![0],
            load_cpus: Vec::new(),
            exclusive: false,
            place_launches: 3,
            halt: Default::default(),
            connections: 10,
        };
        Self { lab: Lab::open(plan).unwrap(), state }
    }

    pub fn start(&mut self, variant: usize) -> Launched {
        let mut launched = self.lab.launch(VariantId(variant), 0).unwrap().unwrap();
        launched.server.wait_until_listening(&Default::default()).unwrap();
        launched
    }

    /// Closes the lab, and checks that nothing is left.
    pub fn end(self) {
        assert_eq!(self.lab.close(), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(&self.state).unwrap().count(), 0, "journals");
        std::fs::remove_dir_all(&self.state).unwrap();
    }
}

pub fn get(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /aaaa HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

pub fn command(text: &str) -> ServerSpec {
    let command = text.to_owned();
    ServerSpec::Command(CommandSpec {
        command,
        argv: Vec::new(),
        env: Default::default(),
        ready_within_ms: 5000,
        access_log: None,
    })
}
