//! Kinds of servers, as a plan names them. How each is started is in `tare_lab::servers`.
//!
//! A new kind is a file here with its settings, and a line in `servers!`.

mod caddy;
mod command;
mod haproxy;
mod httpd;
mod net;
mod nginx;
mod standing;
mod target;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Invalid;

pub use caddy::CaddySpec;
pub use command::CommandSpec;
pub use haproxy::HaproxySpec;
pub use httpd::HttpdSpec;
pub use net::NetSpec;
pub use nginx::NginxSpec;
pub use standing::StandingSpec;
pub use target::TargetSpec;

/// The enum of servers and its facts, from a list of kinds with their keys in experiments.
macro_rules! servers {
    ($($key:literal: $name:ident($spec:ty),)*) => {
        /// The program that answers.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(clippy::large_enum_variant, reason = "a plan has a handful of them")]
        pub enum ServerSpec {
            /// It is up already; tare can neither start nor restart it.
            External,
            $($name($spec),)*
        }

        impl ServerSpec {
            /// The kinds that tare starts.
            pub const KINDS: &[&str] = &[$($key),*];

            pub fn facts(&self) -> &dyn ServerFacts {
                match self {
                    Self::External => &External,
                    $(Self::$name(spec) => spec,)*
                }
            }

            /// Files that it names; relative to the experiment's until that is read.
            pub fn paths(&mut self) -> Vec<&mut PathBuf> {
                match self {
                    Self::External => Vec::new(),
                    $(Self::$name(spec) => spec.paths(),)*
                }
            }
        }
    };
}

servers! {
    "command": Command(CommandSpec),
    "nginx": Nginx(NginxSpec),
    "httpd": Httpd(HttpdSpec),
    "caddy": Caddy(CaddySpec),
    "haproxy": Haproxy(HaproxySpec),
    "target": Target(TargetSpec),
    "net": Net(NetSpec),
    "standing": Standing(StandingSpec),
}

/// What is known of a server before it starts.
pub trait ServerFacts {
    /// What is wrong with its settings.
    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }

    /// It speaks TLS, with a certificate that tare makes.
    fn tls(&self) -> bool {
        false
    }

    /// It answers HTTP; else it is an endpoint of `tare net`.
    fn speaks_http(&self) -> bool {
        true
    }

    /// Whether it can start in a place with programs of its own; else why not.
    fn can_start_elsewhere(&self) -> Result<(), Invalid> {
        let text = "a place with programs of its own (an image, another machine) runs nginx, httpd, \
                    tare's target or a command";
        Err(text.into())
    }

    /// Whether it listens where tare chooses; a configuration of the user's says it itself.
    fn listens_where_told(&self) -> bool {
        true
    }

    /// Whether it can listen on the port that tare chooses.
    fn listens_on_given_port(&self) -> bool {
        true
    }

    /// Whether nginx's filters can be put in its path; else why not.
    fn takes_filters(&self) -> Result<(), Invalid> {
        Err("a filter needs a server of kind nginx".into())
    }

    /// Files that it names; relative to the experiment's until it is read.
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }
}

/// A server that is up already, of which nothing is known.
struct External;

impl ServerFacts for External {
    fn can_start_elsewhere(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// Pages are made in memory, here and in the server.
const BODY_BYTES_MAX: u32 = 64 << 20;

fn check_threads(threads: u32, most: u32) -> Result<(), Invalid> {
    match (1..=most).contains(&threads) {
        true => Ok(()),
        false => Err(Invalid(format!("threads = {threads}: write 1 to {most}"))),
    }
}

fn check_body(bytes: u32) -> Result<(), Invalid> {
    match bytes <= BODY_BYTES_MAX {
        true => Ok(()),
        false => Err(Invalid(format!(
            "body_bytes = {bytes}: at most {BODY_BYTES_MAX} (64 MiB) are supported"
        ))),
    }
}
