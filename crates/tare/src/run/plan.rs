//! A run with every default resolved: kept whole in the store, and enough to repeat it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_lab::filters::FilterSpec;
use tare_lab::places::spec::HostSpec;
use tare_lab::places::{ClientSpec, PlaceSpec};
use tare_lab::{LabError, ServerSpec};
use tare_load::net::Protocol;
use tare_stats::sustained::WarmUp;
use tare_stats::verdict::ROUNDS_MIN;
use tare_stats::{Metric, Question};

use super::cold::Cold;
use crate::failure::Failure;
use crate::load::spec::LoadSpec;
use crate::load::text;
use crate::url::Url;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub name: String,
    pub seed: u64,
    pub load: LoadSpec,
    pub stop: Stop,
    pub slices: Slices,
    /// CPUs of the load's workers and of the servers; empty leaves them to the kernel.
    pub load_cpus: Vec<usize>,
    pub server_cpus: Vec<usize>,
    pub variants: Vec<Variant>,
    /// Variants that this machine could not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// A cell of a sweep: the value of each thing that is swept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cell: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Shares: 0.02 is 2 %.
    pub precision: f64,
    pub tolerance: f64,
    #[serde(with = "text::duration")]
    pub max_time: DurationNs,
    /// Those whose intervals must become that narrow.
    pub metrics: Vec<Metric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
}

/// What is left out is found by the first rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slices {
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationNs>,
    /// Load on each launch before its first slice, thrown away; found by default.
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub warmup: Option<DurationNs>,
    /// The longest that is looked for; 5 s by default.
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub warmup_max: Option<DurationNs>,
    /// Load on all variants at once, beside slices, on a few launches; 3 s by default.
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub sustained: Option<DurationNs>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_sustained: bool,
    /// The first load of each launch is what is asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold: Option<Cold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u32>,
    /// How often a place that takes long to start (a VM) is started over the first twenty rounds;
    /// 3 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place_launches: Option<u32>,
    /// What the first round found for what was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<Found>,
}

impl Slices {
    /// Where it is not to be found.
    pub fn cycles(&self) -> Option<u32> {
        if self.cold.is_some() { Some(1) } else { self.cycles }
    }

    pub fn warmup_max(&self) -> DurationNs {
        self.warmup_max.unwrap_or(WARMUP_MAX)
    }
}

const WARMUP_MAX: DurationNs = DurationNs::from_secs(5);
const SUSTAINED: DurationNs = DurationNs::from_secs(3);

/// The shape of all slices of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    #[serde(with = "text::duration")]
    pub window: DurationNs,
    #[serde(with = "text::duration")]
    pub ramp: DurationNs,
    #[serde(with = "text::duration")]
    pub warmup: DurationNs,
    /// Of each variant, until it does not change any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Vec<WarmUp>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
    pub baseline: bool,
    /// `{port}` in it stands for the port that tare gave to the server.
    pub url: String,
    pub server: ServerSpec,
    /// Beside those of all variants.
    pub headers: Vec<String>,
    /// What may differ from the baseline without making the comparison void.
    pub may_differ: Vec<Difference>,
    /// Runs while no other variant is up.
    pub exclusive: bool,
    /// What is put between client and server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Layer>,
    /// Where its server runs, and where its load comes from.
    #[serde(default = "host", skip_serializing_if = "is_host")]
    pub place: PlaceSpec,
    #[serde(default = "client_on_host", skip_serializing_if = "is_client_on_host")]
    pub client: ClientSpec,
    /// Left out of the run where its place cannot be had, instead of ending it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// A variant that could not be had, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    pub name: String,
    pub reason: String,
}

pub fn host() -> PlaceSpec {
    PlaceSpec::Host(HostSpec::default())
}

fn is_host(place: &PlaceSpec) -> bool {
    *place == host()
}

pub fn client_on_host() -> ClientSpec {
    ClientSpec::Place(host())
}

fn is_client_on_host(client: &ClientSpec) -> bool {
    *client == client_on_host()
}

/// Something in the path. A new kind is a new variant here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Layer {
    Filter(FilterSpec),
}

impl Variant {
    /// Its filter, if it has one.
    pub fn filter(&self) -> Option<&FilterSpec> {
        self.layers.iter().map(|Layer::Filter(spec)| spec).next()
    }

    /// Whether its filter and its places can be had on this machine.
    fn can_be_had(&self) -> Result<(), LabError> {
        self.filter().map_or(Ok(()), |filter| filter.filter.check_machine())?;
        self.place.check()?;
        match &self.client {
            ClientSpec::SameAsServer => Ok(()),
            ClientSpec::Place(place) => place.check(),
        }
    }

    /// What cannot be seen from one place alone.
    fn check_places(&self) -> Result<(), Failure> {
        let usage = |text: &str| Err(Failure::Usage(format!("variant '{}': {text}", self.name)));
        let has_place = !matches!(self.place, PlaceSpec::Host(_));
        if self.optional && self.baseline {
            return usage("the baseline cannot be optional");
        }
        if self.server == ServerSpec::Up && !is_host(&self.place) {
            return usage("a server that is up already is where it is: leave out place");
        }
        if self.client == ClientSpec::SameAsServer && !has_place {
            return usage("same_as_server needs a place; on the host it is so already");
        }
        if has_place && !self.url.contains("{port}") {
            return usage("a server in a place listens where tare says: leave out url");
        }
        if !self.place.has_our_programs() && self.filter().is_some() {
            return usage(
                "its place has an nginx of its own, which tare's filters are not built for",
            );
        }
        if has_place && matches!(&self.server, ServerSpec::Nginx(spec) if spec.config.is_some()) {
            return usage(
                "an nginx config of one's own says where it listens: it goes with the host",
            );
        }
        let ClientSpec::Place(client) = &self.client else { return Ok(()) };
        if !self.place.meets(client) {
            return Err(Failure::Usage(format!(
                "variant '{}': a client in {} cannot reach a server in {}: they are on different \
                 networks; tare's own (netns, oci, vm) go together, and all go with the host",
                self.name,
                client.name(),
                self.place.name()
            )));
        }
        let url = Url::parse(&self.url.replace("{port}", "1"));
        let is_loopback = url.is_ok_and(|url| {
            url.host == "localhost" || url.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        });
        // tare finds an address for what it starts, on its own network.
        let is_found = self.url.contains("{port}") && !matches!(client, PlaceSpec::Ssh(_));
        let client_is_here = matches!(client, PlaceSpec::Host(_)) || client.shares_our_ports();
        if !has_place && !client_is_here && is_loopback && !is_found {
            return usage(
                "a client elsewhere does not reach 127.0.0.1: give url = \"http://ADDRESS:{port}/\" \
                 with an address of this machine that it does reach",
            );
        }
        Ok(())
    }

    /// What cannot be seen from one layer alone.
    fn check_layers(&self) -> Result<(), Failure> {
        let usage = |text: String| Err(Failure::Usage(format!("variant '{}': {text}", self.name)));
        if self.layers.len() > 1 {
            return usage("one filter can be in its path".into());
        }
        let Some(filter) = self.filter() else { return Ok(()) };
        if let Err(why) = self.server.takes_filters() {
            return usage(why);
        }
        let path = self.url.splitn(4, '/').nth(3).unwrap_or_default();
        if path.contains(['%', '?', '#']) || path.contains("//") || path.contains("/.") {
            return usage(format!(
                "path /{path}: with a filter, write it as nginx serves it: without %, ?, // and /."
            ));
        }
        match filter.describe() {
            Ok(_) => Ok(()),
            Err(LabError::Usage(text)) => usage(text),
            Err(error) => Err(error.into()),
        }
    }
}

/// What a probe compares.
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

impl Plan {
    pub fn baseline(&self) -> usize {
        self.variants.iter().position(|variant| variant.baseline).unwrap_or(0)
    }

    /// Compares with another variant than it was made to.
    pub fn rebase(&mut self, name: &str) -> Result<(), Failure> {
        if !self.variants.iter().any(|variant| variant.name == name) {
            let all: Vec<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
            let allowed = format!("choose among {}", all.join(", "));
            return Err(Failure::flag("--baseline", name, allowed));
        }
        self.variants.iter_mut().for_each(|variant| variant.baseline = variant.name == name);
        Ok(())
    }

    pub fn question(&self) -> Question {
        Question {
            baseline: self.baseline(),
            metrics: self.stop.metrics.clone(),
            tolerance: self.stop.tolerance,
            level: LEVEL,
        }
    }

    /// How long sustained load is, where there is any: only where a verdict can be had, and all
    /// variants can be asked at once.
    pub fn sustained(&self) -> Option<DurationNs> {
        let length = self.slices.sustained.unwrap_or(SUSTAINED);
        let has_verdict = self.stop.rounds.is_none_or(|rounds| rounds >= ROUNDS_MIN);
        let is_http = self.load.protocol() == Protocol::Http;
        // What comes as often as that is then in it, wherever it falls.
        let length = DurationNs::from_ns(length.as_ns() + length.as_ns() / 10);
        let is_left_out = self.slices.no_sustained || self.slices.cold.is_some();
        let wanted = !is_left_out && has_verdict && is_http && !self.is_exclusive();
        wanted.then_some(length)
    }

    /// Whether a variant runs alone; then all do, one after another.
    pub fn is_exclusive(&self) -> bool {
        self.variants.iter().any(|variant| variant.exclusive)
    }

    /// What can be wrong with a plan whatever it came from.
    pub fn check(self) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        if self.variants.len() < 2 {
            return usage("a comparison needs two variants or more".into());
        }
        for (at, variant) in self.variants.iter().enumerate() {
            if variant.name.is_empty() || variant.name.chars().any(char::is_control) {
                return usage(format!(
                    "variant name {:?}: write printable characters",
                    variant.name
                ));
            }
            if self.variants[..at].iter().any(|other| other.name == variant.name) {
                return usage(format!(
                    "two variants are named '{}'; give each its own",
                    variant.name
                ));
            }
        }
        match self.variants.iter().filter(|variant| variant.baseline).count() {
            1 => {}
            0 => return usage("no variant is the baseline".into()),
            n => return usage(format!("{n} variants are the baseline; one can be")),
        }
        self.check_ranges().map_err(Failure::Usage)?;
        self.check_cold().map_err(Failure::Usage)?;
        self.load.check_test()?;
        self.load.check_open_loop(self.load.rate.is_some(), "a rate")?;
        let is_http = self.load.protocol() == Protocol::Http;
        for (index, variant) in self.variants.iter().enumerate() {
            self.url(index, 1)?;
            match &variant.server {
                ServerSpec::Net(_) if is_http => {
                    return usage(format!(
                        "variant '{}': an endpoint of net answers no HTTP: give load.test or \
                         load.call, or sweep them",
                        variant.name
                    ));
                }
                ServerSpec::Up | ServerSpec::Net(_) => {}
                _ if is_http => {}
                _ => {
                    return usage(format!(
                        "variant '{}': load.test and load.call need a server of kind net",
                        variant.name
                    ));
                }
            }
            match variant.place.has_our_programs() {
                true => variant.server.describe()?,
                false => variant.server.describe_elsewhere()?,
            };
            variant.check_layers()?;
            variant.check_places()?;
        }
        Ok(self)
    }

    /// What this machine cannot have and the file calls optional.
    pub fn absent(&self) -> Result<Vec<Skipped>, Failure> {
        let mut absent = Vec::new();
        for variant in &self.variants {
            match variant.can_be_had() {
                Ok(()) => {}
                Err(LabError::Environment(reason)) if variant.optional => {
                    absent.push(Skipped { name: variant.name.clone(), reason });
                }
                Err(error) => return Err(error.named(&variant.name).into()),
            }
        }
        Ok(absent)
    }

    /// The same without these.
    pub fn without(mut self, absent: &[Skipped]) -> Result<Self, Failure> {
        self.variants.retain(|variant| absent.iter().all(|skipped| skipped.name != variant.name));
        self.skipped.extend(absent.iter().cloned());
        if self.variants.len() < 2 {
            let reasons = self.skipped.iter().map(|s| format!("{}: {}", s.name, s.reason));
            let reasons: Vec<String> = reasons.collect();
            let text = format!("nothing is left to compare: {}", reasons.join("; "));
            return Err(Failure::Environment(text));
        }
        Ok(self)
    }

    /// What a stored plan says, which a stranger may have written.
    fn check_found(&self, found: &Found) -> Result<(), String> {
        let Found { window, ramp, warmup, warm } = found;
        let lengths = [window, ramp, warmup].into_iter().all(|time| time <= SLICE_LENGTHS.end());
        let is_whole = warm.as_ref().is_none_or(|warm| warm.len() == self.variants.len());
        // Longer than it may be, a warm-up is cut.
        match lengths && is_whole {
            true => Ok(()),
            false => Err("slices.found: this is what a run finds, and does not fit it".into()),
        }
    }

    fn check_cold(&self) -> Result<(), String> {
        if self.slices.cold.is_none() {
            return Ok(());
        }
        if !self.cell.is_empty() {
            return Err("cold: a sweep's values share launches, which are cold for one only".into());
        }
        let Slices { window, warmup, warmup_max, sustained, cycles, .. } = &self.slices;
        let durations = [window, warmup, warmup_max, sustained].into_iter().any(Option::is_some);
        if durations || cycles.is_some_and(|cycles| cycles != 1) {
            return Err("cold: each launch has one slice and no warm-up: leave out window (or \
                        --slice), warmup, sustained and cycles"
                .into());
        }
        match self.variants.iter().find(|variant| variant.server == ServerSpec::Up) {
            Some(up) => Err(format!("cold: tare does not start '{}' (--launch)", up.name)),
            None => Ok(()),
        }
    }

    /// Values that the command line cannot give, but a file can.
    fn check_ranges(&self) -> Result<(), String> {
        let within = |key: &str, value: u32, most: u32| match value {
            value if (1..=most).contains(&value) => Ok(()),
            value => Err(format!("{key} = {value}: write 1 to {most}")),
        };
        if self.name.is_empty() || self.name.chars().any(char::is_control) {
            return Err(format!("name = {:?}: write printable characters", self.name));
        }
        let own = self.variants.iter().flat_map(|variant| &variant.headers);
        for header in self.load.headers.iter().chain(own) {
            if header.chars().any(|c| c.is_control() && c != '\t') {
                // A line end would begin another header, or another request.
                return Err(format!("headers: {header:?}: write it without control characters"));
            }
        }
        within("connections", self.load.connections, 1_000_000)?;
        within("threads", self.load.workers(), 1024)?;
        within("rounds", self.stop.rounds.unwrap_or(1), u32::MAX)?;
        within("place_launches", self.slices.place_launches.unwrap_or(1), 20)?;
        within("cycles", self.slices.cycles.unwrap_or(1), CYCLES_MAX)?;
        if let Some(window) = self.slices.window.filter(|w| !SLICE_LENGTHS.contains(w)) {
            return Err(format!("slices: {window} each: write 1ms to 60s"));
        }
        if let Some(found) = &self.slices.found {
            self.check_found(found)?;
        }
        let longest = self.slices.sustained.max(self.slices.warmup_max);
        if let Some(time) = longest.filter(|time| *time > self.stop.max_time) {
            let most = self.stop.max_time;
            return Err(format!(
                "sustained or warmup_max of {time}: longer than the time for the run, {most}"
            ));
        }
        if let Some(warmup) = self.slices.warmup.filter(|w| *w > self.stop.max_time) {
            let most = self.stop.max_time;
            return Err(format!("warm-up of {warmup}: longer than the time for the run, {most}"));
        }
        if let Some(rate) = self.load.rate.filter(|rate| !(*rate > 0.0 && *rate <= RATE_MAX)) {
            return Err(format!("rate = {rate}: write a number above 0, up to {RATE_MAX}"));
        }
        let known = tare_io::system::allowed_cpus();
        let cpus = self.load_cpus.iter().chain(&self.server_cpus);
        match cpus.into_iter().find(|cpu| !known.contains(cpu)) {
            Some(cpu) => Err(format!("cpus: {cpu} is not one that tare may use: {known:?}")),
            None => Ok(()),
        }
    }

    /// A variant's URL, once its server's port is known.
    pub fn url(&self, variant: usize, port: u16) -> Result<Url, Failure> {
        let variant = &self.variants[variant];
        if variant.server == ServerSpec::Up && variant.url.contains("{port}") {
            let text = "{port} needs a server that tare starts (--launch)";
            return Err(Failure::Usage(format!("URL '{}': {text}", variant.url)));
        }
        let text = variant.url.replace("{port}", &port.to_string());
        Url::parse(&text).map_err(|why| Failure::Usage(format!("URL '{}': {why}", variant.url)))
    }

    /// The load on one variant, with what is its own.
    pub fn load_of(&self, variant: usize) -> LoadSpec {
        let own = &self.variants[variant];
        let mut load = self.load.clone();
        load.headers.extend(own.headers.iter().cloned());
        // tare made the certificate itself, a moment ago.
        load.insecure |= own.server.tls();
        load.threads = Some(self.load.workers());
        load.cpus = (!self.load_cpus.is_empty()).then(|| self.load_cpus.clone());
        load
    }
}

/// How long slices may be.
pub const SLICE_LENGTHS: std::ops::RangeInclusive<DurationNs> =
    DurationNs::from_ms(1)..=DurationNs::from_secs(60);
pub const CYCLES_MAX: u32 = 10_000;
/// No loopback carries more.
const RATE_MAX: f64 = 1e8;

/// Of all intervals together.
pub const LEVEL: f64 = 0.95;
