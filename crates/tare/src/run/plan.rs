//! A run with every default resolved: kept whole in the store, and enough to repeat it.

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_lab::ServerSpec;
use tare_stats::{Metric, Question};

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
    /// Load on each launch before its first slice, thrown away; a slice's length by default.
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub warmup: Option<DurationNs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u32>,
    /// What the first round found for what was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<Found>,
}

/// The shape of all slices of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    #[serde(with = "text::duration")]
    pub window: DurationNs,
    #[serde(with = "text::duration")]
    pub ramp: DurationNs,
    #[serde(with = "text::duration")]
    pub warmup: DurationNs,
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

    pub fn question(&self) -> Question {
        Question {
            baseline: self.baseline(),
            metrics: self.stop.metrics.clone(),
            tolerance: self.stop.tolerance,
            level: LEVEL,
        }
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
        self.load.check_open_loop(self.load.rate.is_some(), "a rate")?;
        for (index, variant) in self.variants.iter().enumerate() {
            self.url(index, 1)?;
            variant.server.describe()?;
        }
        Ok(self)
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

/// Of all intervals together.
pub const LEVEL: f64 = 0.95;
