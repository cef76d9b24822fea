//! One of the things that are compared: a server, where it runs, where its load comes from, and
//! what is put between them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::clients::Clients;
use crate::filters::FilterSpec;
use crate::layers::{self, AcceptedProtocol, HopPosition, LayerSpec};
use crate::load::OwnLoad;
use crate::net::Protocol;
use crate::places::{HostSpec, Network, PlaceSpec};
use crate::servers::ServerSpec;
use crate::url::Url;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
    pub baseline: bool,
    /// `{port}` stands for the port that tare assigns to the server.
    pub url: String,
    pub server: ServerSpec,
    /// Replaces the TCP port; only for a server that is already running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_socket: Option<PathBuf>,
    /// Headers in addition to those of all variants.
    pub headers: Vec<String>,
    /// Keys of `[load]` that it overrides.
    #[serde(default, skip_serializing_if = "OwnLoad::is_empty")]
    pub load: OwnLoad,
    /// Differences from the baseline that do not make the comparison void.
    pub may_differ: Vec<Difference>,
    /// Whether it runs only while no other variant is up.
    pub exclusive: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerSpec>,
    /// Place of its server.
    #[serde(default = "PlaceSpec::host", skip_serializing_if = "PlaceSpec::is_host")]
    pub place: PlaceSpec,
    #[serde(default = "Clients::on_host", skip_serializing_if = "Clients::is_on_host")]
    pub clients: Clients,
    /// Whether it is skipped where its place is unsupported, instead of ending the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

const LAYERS_MAX: usize = 8;
static ON_HOST: PlaceSpec = PlaceSpec::Host(HostSpec { cpus: None, memory: None });

impl Variant {
    /// A variant without layers; client and server run on this machine.
    pub fn new(name: &str, url: &str, server: ServerSpec) -> Self {
        Self {
            name: name.to_owned(),
            baseline: false,
            url: url.to_owned(),
            server,
            unix_socket: None,
            headers: Vec::new(),
            load: OwnLoad::default(),
            may_differ: Vec::new(),
            exclusive: false,
            layers: Vec::new(),
            place: PlaceSpec::host(),
            clients: Clients::on_host(),
            optional: false,
        }
    }

    /// Whether tare starts and restarts its server.
    pub fn is_launched(&self) -> bool {
        self.server != ServerSpec::External
    }

    /// Whether tare can meter its server.
    pub fn is_metered(&self) -> bool {
        self.is_launched() && !matches!(self.server, ServerSpec::Standing(_))
    }

    pub fn is_tls(&self) -> bool {
        self.url.starts_with("https:")
    }

    /// Whether clients see a certificate that tare made.
    pub fn shows_our_certificate(&self) -> bool {
        let mut takes = self.layers.iter().map(|layer| layer.facts().accepts());
        self.server.facts().tls() || takes.any(|takes| takes == AcceptedProtocol::Tls)
    }

    /// Whether its gateway is configured not to resume sessions.
    pub fn forbids_resumption(&self) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|layer| matches!(layer, LayerSpec::Gateway(gateway) if !gateway.tls.resume))
    }

    pub fn may_differ_in(&self, what: Difference) -> bool {
        self.may_differ.contains(&what)
    }

    pub fn filter_name(&self) -> Option<&'static str> {
        self.filter().map(|filter| filter.filter.name())
    }

    pub fn filter(&self) -> Option<&FilterSpec> {
        self.filters().next()
    }

    pub(crate) fn filters(&self) -> impl Iterator<Item = &FilterSpec> {
        self.layers.iter().filter_map(|layer| match layer {
            LayerSpec::Filter(spec) => Some(spec),
            _ => None,
        })
    }

    /// Checks it under load of that protocol.
    pub(crate) fn check(&self, protocol: Protocol) -> Result<(), Invalid> {
        let server = self.server.facts();
        let is_http = protocol.is_served();
        if is_http && !server.speaks_http() {
            return Err(
                "an endpoint of net answers no HTTP: give load.test or load.call, or sweep \
                        them"
                    .into(),
            );
        }
        if !is_http && server.speaks_http() && self.server != ServerSpec::External {
            return Err("load.test and load.call need a server of kind net".into());
        }
        if !is_http && self.unix_socket.is_some() {
            return Err("unix_socket goes with HTTP, not with load.test and load.call".into());
        }
        if self.layers.len() > LAYERS_MAX {
            return Err(Invalid(format!("{} layers; {LAYERS_MAX} are allowed", self.layers.len())));
        }
        server.check()?;
        // Without layers, a command's port is found by its socket.
        let is_found = matches!(self.server, ServerSpec::Command(_)) && self.layers.is_empty();
        if self.url.contains("{port}") && !server.listens_on_given_port() && !is_found {
            return Err(
                "tare chooses a port for it, which its command does not use: write {port} \
                        where the command has the port to listen on, or a url with the port that \
                        it has"
                    .into(),
            );
        }
        if !self.place.facts().shares_host_files() {
            server.check_start_elsewhere()?;
        }
        self.place.check()?;
        for client in self.clients.places() {
            client.check()?;
            client.check_client(&self.place)?;
        }
        if let PlaceSpec::Kubernetes(place) = &self.place {
            place.check_server()?;
        }
        self.check_places()?;
        self.layers.iter().try_for_each(|layer| layer.facts().check(self))?;
        self.check_route()
    }

    /// Places that its hops have of their own.
    pub fn places_of_hops(&self) -> impl Iterator<Item = &PlaceSpec> {
        self.layers.iter().filter_map(|layer| layer.facts().place())
    }

    /// Names and places of hops that have a place of their own, the nearest to the client first.
    fn hops_between(&self) -> Vec<(String, &PlaceSpec)> {
        let hops = layers::hops(&self.layers).into_iter();
        let between = hops.filter(|hop| hop.stand == HopPosition::Between);
        let placed = between.map(|hop| {
            let place = self.layers[hop.layer].facts().place();
            (hop.name, place.unwrap_or(&ON_HOST))
        });
        placed.collect()
    }

    /// Checks that clients reach the first hop, and each hop its next one.
    fn check_route(&self) -> Result<(), Invalid> {
        let hops = self.hops_between();
        let Some((first, _)) = hops.first() else { return Ok(()) };
        let wrong = |who: &str, text: &str| Err(Invalid(format!("{who}: {text}")));
        let is_reached = |client: &PlaceSpec| {
            matches!(client.facts().network(), Network::Host | Network::Bridge)
        };
        if self.clients.has_one_beside_server() || !self.clients.places().all(is_reached) {
            return wrong(first, "its clients run on the host, or in netns, oci or vm");
        }
        let url = Url::parse(&self.url.replace("{port}", "1"));
        if !self.url.contains("{port}") || !url.is_ok_and(|url| url.is_loopback()) {
            return wrong(first, "it listens where tare says: leave out url");
        }
        let takes_tls = layers::clients_use_tls(&self.layers, self.server.facts().tls());
        match (takes_tls, self.is_tls()) {
            (true, false) => return wrong(first, "clients come to it by https: leave out url"),
            (false, true) => return wrong(first, "clients come to it by http: leave out url"),
            _ => {}
        }
        let behind = hops.iter().skip(1).map(|(_, place)| *place).chain([&self.place]);
        for ((name, place), next) in hops.iter().zip(behind) {
            if !next.is_reachable_from(place) {
                return Err(Invalid(format!(
                    "{name}: in {} it cannot reach what is in {}: they are on different networks",
                    place.name(),
                    next.name()
                )));
            }
        }
        Ok(())
    }

    /// Whether a client of the variant has a CPU limit, which it must not spend on waiting.
    pub fn client_is_limited(&self) -> bool {
        let mut places = self.clients.iter().map(|client| client.place().unwrap_or(&self.place));
        places.any(|place| place.facts().limits().cpus.is_some())
    }

    /// Its URL, given its server's port.
    pub fn url(&self, port: u16) -> Result<Url, Invalid> {
        let wrong = |why: &str| Invalid(format!("URL '{}': {why}", self.url));
        if self.server == ServerSpec::External && self.url.contains("{port}") {
            return Err(wrong("{port} needs a server that tare starts (--launch)"));
        }
        Url::parse(&self.url.replace("{port}", &port.to_string())).map_err(|why| wrong(&why))
    }

    /// Sets the path if its URL names none; another path in the URL is an error.
    pub fn ask_for(&mut self, path: &str) -> Result<(), Invalid> {
        let own = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        let own = own.find(['/', '?']).map_or("", |at| &own[at..]);
        if matches!(own, "" | "/") {
            self.url = format!("{}{path}", self.url.trim_end_matches('/'));
        } else if own != path {
            let text = format!("its URL asks for {own}, and the load's path is {path}: write one");
            return Err(Invalid(text));
        }
        Ok(())
    }

    /// Checks combinations of places, clients and server.
    fn check_places(&self) -> Result<(), Invalid> {
        let usage = |text: &str| Err(Invalid::from(text));
        let has_place = !matches!(self.place, PlaceSpec::Host(_));
        if self.optional && self.baseline {
            return usage("the baseline cannot be optional");
        }
        if self.server == ServerSpec::External && !self.place.is_host() {
            return usage("a server that is up already is where it is: leave out place");
        }
        if self.unix_socket.is_some() && self.server != ServerSpec::External {
            return usage("unix_socket goes with a server that is up already");
        }
        if self.unix_socket.is_some() && !self.clients.is_on_host() {
            return usage("a client elsewhere does not reach a Unix socket of this machine");
        }
        if self.clients.has_one_beside_server() && !has_place {
            return usage("same_as_server needs a place; on the host it is so already");
        }
        if has_place && !self.url.contains("{port}") {
            return usage("a server in a place listens where tare says: leave out url");
        }
        if has_place && !self.server.facts().listens_on_given_address() {
            return usage(
                "an nginx config of one's own says where it listens: it goes with the host",
            );
        }
        match self.hops_between().is_empty() {
            true => self.clients.places().try_for_each(|client| self.check_reach(client)),
            false => Ok(()),
        }
    }

    /// Checks that a client in that place can reach the server.
    fn check_reach(&self, client: &PlaceSpec) -> Result<(), Invalid> {
        if !self.place.is_reachable_from(client) {
            return Err(Invalid(format!(
                "a client in {} cannot reach a server in {}: they are on different networks; \
                 tare's own (netns, oci, vm) go together, and all go with the host",
                client.name(),
                self.place.name()
            )));
        }
        let url = Url::parse(&self.url.replace("{port}", "1"));
        let is_loopback = url.is_ok_and(|url| url.is_loopback());
        // tare finds an address on its own network for each server that it starts.
        let is_found = self.url.contains("{port}")
            && !matches!(client, PlaceSpec::Ssh(_) | PlaceSpec::Kubernetes(_));
        let client_is_here = matches!(client, PlaceSpec::Host(_)) || client.shares_our_ports();
        let has_place = !matches!(self.place, PlaceSpec::Host(_));
        if !has_place && !client_is_here && is_loopback && !is_found {
            return Err("a client elsewhere does not reach 127.0.0.1: give url = \
                        \"http://ADDRESS:{port}/\" with an address of this machine that it does \
                        reach"
                .into());
        }
        Ok(())
    }
}

/// A variant that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    pub name: String,
    pub reason: String,
}

/// Properties of replies that a probe compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    Status,
    Body,
    Headers,
    Connection,
    Tls,
}

impl Difference {
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Status, "status"),
        (Self::Body, "body"),
        (Self::Headers, "headers"),
        (Self::Connection, "connection"),
        (Self::Tls, "tls"),
    ];

    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, word)| *word == text);
        found.map(|(difference, _)| difference).ok_or_else(|| {
            let words = Self::ALL.map(|(_, word)| word).join(", ");
            format!("'{text}' is not a difference; choose among {words}")
        })
    }

    pub fn word(self) -> &'static str {
        Self::ALL.into_iter().find(|(own, _)| *own == self).map_or("", |(_, word)| word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_behind_a_url_that_names_none() {
        let asked = |url: &str| {
            let mut variant = Variant::new("a", url, ServerSpec::External);
            variant.ask_for("/data.json?n=1").map(|()| variant.url)
        };
        let told = |url: &str| Ok(format!("{url}/data.json?n=1"));
        assert_eq!(asked("http://127.0.0.1:8201/"), told("http://127.0.0.1:8201"));
        assert_eq!(asked("http://127.0.0.1:{port}"), told("http://127.0.0.1:{port}"));
        assert_eq!(asked("h:1"), told("h:1"));
        assert_eq!(asked("http://h/data.json?n=1"), told("http://h"));
        let why = asked("http://h/other").unwrap_err().0;
        assert_eq!(
            why,
            "its URL asks for /other, and the load's path is /data.json?n=1: write one"
        );
    }
}
