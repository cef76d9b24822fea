//! Kinds of servers in a plan. `tare_lab::servers` starts them.
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

/// Generates the enum of servers and its facts from a list of kinds and their keys in experiments.
macro_rules! servers {
    ($($key:literal: $name:ident($spec:ty),)*) => {
        /// The server program.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(clippy::large_enum_variant, reason = "a plan has a handful of them")]
        pub enum ServerSpec {
            /// Already running; tare can neither start nor restart it.
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

            /// Paths in the settings, relative to the experiment file until they are resolved.
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

/// Facts about a server before it starts.
pub trait ServerFacts {
    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }

    /// Whether it speaks TLS, with a certificate that tare makes.
    fn tls(&self) -> bool {
        false
    }

    /// Whether it answers HTTP; otherwise it is an endpoint of `tare net`.
    fn speaks_http(&self) -> bool {
        true
    }

    /// An error says why it cannot start in a place with programs of its own.
    fn check_start_elsewhere(&self) -> Result<(), Invalid> {
        let text = "a place with programs of its own (an image, another machine) runs nginx, httpd, \
                    tare's target or a command";
        Err(text.into())
    }

    /// Whether tare chooses its listen address; a configuration of the user's sets its own.
    fn listens_on_given_address(&self) -> bool {
        true
    }

    /// Whether it can listen on the port that tare chooses.
    fn listens_on_given_port(&self) -> bool {
        true
    }

    /// An error says why nginx's filters cannot be put in its path.
    fn check_filters(&self) -> Result<(), Invalid> {
        Err("a filter needs a server of kind nginx".into())
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }
}

/// A server that is already running; nothing is known about it.
struct External;

impl ServerFacts for External {
    fn check_start_elsewhere(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// Largest page: tare and the server hold it in memory.
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
