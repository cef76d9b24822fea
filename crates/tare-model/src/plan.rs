//! A run with every default resolved; stored as a whole, and enough to repeat it.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use crate::check::Check;
use crate::cold::Cold;
use crate::invalid::check_range;
use crate::load::{Load, LoadSpec, check_headers};
use crate::servers::ServerSpec;
use crate::variant::{Skipped, Variant};
use crate::{Invalid, Metric, text};

/// Index of a variant in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariantId(pub usize);

impl VariantId {
    /// The variant's number in samples.
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The contents of a [`Plan`], unchecked: its parts may contradict each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanParts<L = Load> {
    pub name: String,
    pub seed: u64,
    pub load: L,
    pub stop: Stop,
    pub slices: Slices,
    /// CPUs of the load's workers; if empty, the kernel chooses.
    pub load_cpus: Vec<usize>,
    /// CPUs of the servers; if empty, the kernel chooses.
    pub server_cpus: Vec<usize>,
    pub variants: Vec<Variant>,
    /// Variants that this machine could not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// In a cell of a sweep: the value of each parameter that is swept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cell: BTreeMap<String, String>,
    /// Set if the run belongs to a check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

/// A plan from files and flags; its load is unchecked too.
pub type Draft = PlanParts<LoadSpec>;

/// A consistent plan: variants have distinct names, one is the baseline, and every value is in its
/// range. Whether this machine can run it is checked elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PlanParts", into = "PlanParts")]
pub struct Plan(PlanParts);

/// When a run ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Required precision, as a share: 0.02 is 2 %.
    pub precision: f64,
    /// Precision that is enough for a large effect, as a share of that effect.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub of_effect: f64,
    /// Tolerance, as a share.
    pub tolerance: f64,
    #[serde(with = "text::duration")]
    pub max_time: DurationNs,
    /// Metrics that must reach that precision; default: the load's own.
    pub metrics: Vec<Metric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Rounds that may be lost to a failing server, client or place; one more ends the run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_rounds: u32,
}

fn is_nothing(share: &f64) -> bool {
    *share == 0.0
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Slice settings; the first rounds determine what is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slices {
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationNs>,
    /// Load on each launch before its first slice, discarded; default: determined by the first
    /// rounds.
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub warmup: Option<DurationNs>,
    /// The longest warm-up to try; default: 20 s, less in a short run.
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub warmup_max: Option<DurationNs>,
    /// Load on all variants at once, in addition to slices, on a few launches; default: 3 s.
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub sustained: Option<DurationNs>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_sustained: bool,
    /// Measures the first load on each launch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold: Option<Cold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u32>,
    /// How often connections are reopened: which of a server's workers gets them is chance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconnect_each: Option<ReconnectEach>,
    /// How often a place that starts slowly (a VM) is started over the first six rounds; default:
    /// 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place_launches: Option<u32>,
}

/// When connections are reopened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReconnectEach {
    /// The default.
    Launch,
    Slice,
}

impl ReconnectEach {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "launch" => Ok(Self::Launch),
            "slice" => Ok(Self::Slice),
            _ => Err("write launch or slice".into()),
        }
    }
}

impl Slices {
    /// Cycles of a round, unless they are to be determined.
    pub fn cycles(&self) -> Option<u32> {
        if self.cold.is_some() { Some(1) } else { self.cycles }
    }

    /// The longest warm-up in a run of at most `max_time`.
    pub fn warmup_max(&self, max_time: DurationNs) -> DurationNs {
        let a_quarter = DurationNs::from_ns(max_time.as_ns() / 4);
        self.warmup_max.unwrap_or(a_quarter.clamp(WARMUP_MAX_LEAST, WARMUP_MAX))
    }
}

const WARMUP_MAX: DurationNs = DurationNs::from_secs(20);
const WARMUP_MAX_LEAST: DurationNs = DurationNs::from_secs(5);

impl Deref for Plan {
    type Target = PlanParts;

    fn deref(&self) -> &PlanParts {
        &self.0
    }
}

impl From<Plan> for PlanParts {
    fn from(plan: Plan) -> Self {
        plan.0
    }
}

impl TryFrom<PlanParts> for Plan {
    type Error = Invalid;

    fn try_from(mut parts: PlanParts) -> Result<Self, Invalid> {
        if parts.stop.metrics.is_empty() {
            parts.stop.metrics = vec![parts.load.metric()];
        }
        if parts.variants.len() == 1 {
            // A single variant has no effect: nothing is compared.
            parts.stop.of_effect = 0.0;
        }
        parts.check()?;
        Ok(Self(parts))
    }
}

impl TryFrom<Draft> for Plan {
    type Error = Invalid;

    fn try_from(draft: Draft) -> Result<Self, Invalid> {
        Self::try_from(PlanParts {
            load: Load::try_from(draft.load)?,
            name: draft.name,
            seed: draft.seed,
            stop: draft.stop,
            slices: draft.slices,
            load_cpus: draft.load_cpus,
            server_cpus: draft.server_cpus,
            variants: draft.variants,
            skipped: draft.skipped,
            cell: draft.cell,
            check: draft.check,
        })
    }
}

impl<L> PlanParts<L> {
    pub fn baseline(&self) -> usize {
        self.variants.iter().position(|variant| variant.baseline).unwrap_or(0)
    }

    /// The path requested from the baseline's server.
    pub fn path(&self) -> String {
        let url = self.variants.get(self.baseline()).map(|baseline| baseline.url(1));
        url.and_then(Result::ok).map_or_else(String::new, |url| url.target)
    }

    /// Makes another variant the baseline.
    pub fn rebase(&mut self, name: &str) -> Result<(), Invalid> {
        if !self.variants.iter().any(|variant| variant.name == name) {
            let all: Vec<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
            return Err(Invalid(format!("--baseline {name}: choose among {}", all.join(", "))));
        }
        for variant in &mut self.variants {
            variant.baseline = variant.name == name;
            // Nothing can be compared without the baseline.
            variant.optional &= !variant.baseline;
        }
        Ok(())
    }

    /// Whether variants run alone, one after another; one exclusive variant is enough.
    pub fn is_exclusive(&self) -> bool {
        self.variants.iter().any(|variant| variant.exclusive) || self.measures_startup()
    }

    /// Whether startup is measured; then each variant starts alone, together with its place.
    pub fn measures_startup(&self) -> bool {
        let asked = &self.stop.metrics;
        asked.contains(&Metric::Startup) || asked.contains(&Metric::StartupCpu)
    }
}

impl PlanParts {
    /// The load on one variant, with the variant's own headers.
    pub fn load_of(&self, variant: VariantId) -> Load {
        let own = &self.variants[variant.0];
        // Plans with a contradictory load of a variant were refused before.
        let mut load = own.load.applied_to(&self.load).unwrap_or_else(|_| self.load.clone());
        if let Some(http) = load.http_mut() {
            http.headers.extend(own.headers.iter().cloned());
            // A certificate that tare made itself needs no verification.
            http.tls.insecure |= own.shows_our_certificate();
        }
        load.client.threads = Some(self.load.workers());
        load.client.cpus = (!self.load_cpus.is_empty()).then(|| self.load_cpus.clone());
        load
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.variants.is_empty() {
            return Err("there is no variant to measure".into());
        }
        for (at, variant) in self.variants.iter().enumerate() {
            if variant.name.is_empty() || variant.name.chars().any(char::is_control) {
                let text = format!("variant name {:?}: write printable characters", variant.name);
                return Err(Invalid(text));
            }
            if self.variants[..at].iter().any(|other| other.name == variant.name) {
                let text = format!("two variants are named '{}'; give each its own", variant.name);
                return Err(Invalid(text));
            }
        }
        match self.variants.iter().filter(|variant| variant.baseline).count() {
            1 => {}
            0 => return Err("no variant is the baseline".into()),
            n => return Err(Invalid(format!("{n} variants are the baseline; one can be"))),
        }
        self.check_ranges()?;
        self.check_cold()?;
        if let Some(check) = &self.check {
            let names: Vec<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
            check.check(names[self.baseline()], &names, &self.stop.metrics)?;
        }
        if self.measures_startup() {
            self.all_are_started("startup")?;
            let chooses = |variant: &&Variant| {
                variant.url.contains("{port}") && !variant.server.facts().listens_on_given_port()
            };
            if let Some(variant) = self.variants.iter().find(chooses) {
                return Err(Invalid(format!(
                    "startup: variant '{}': write {{port}} or $PORT in its command: looking for its \
                     port would count as its time",
                    variant.name
                )));
            }
        }
        let tls_only_key = self.load.http().and_then(|http| http.tls.tls_only_key());
        if let Some(key) = tls_only_key.filter(|_| !self.variants.iter().any(Variant::is_tls)) {
            return Err(Invalid(format!("{key} goes with TLS: no URL begins with https")));
        }
        let protocol = self.load.protocol();
        self.variants.iter().try_for_each(|variant| {
            variant.url(1)?;
            let load = variant.load.applied_to(&self.load);
            let checked = load.and_then(|load| {
                if load.workers() != self.load.workers() {
                    return Err(Invalid(format!(
                        "connections = {}: each of the {} threads needs one: give more, or set threads",
                        load.connections,
                        self.load.workers()
                    )));
                }
                variant.check(protocol)
            });
            checked.map_err(|why| why.named(&format!("variant '{}'", variant.name)))
        })
    }

    fn check_cold(&self) -> Result<(), Invalid> {
        if self.slices.cold.is_none() {
            return Ok(());
        }
        // With several clients, a slice is repeated if one client began too late; the repetition is
        // not the launch's first load.
        if self.variants.iter().any(|variant| variant.clients.len() > 1) {
            return Err("cold: its load comes from one client alone".into());
        }
        let Slices { window, warmup, warmup_max, sustained, cycles, .. } = &self.slices;
        let durations = [window, warmup, warmup_max, sustained].into_iter().any(Option::is_some);
        if durations || cycles.is_some_and(|cycles| cycles != 1) {
            return Err("cold: each launch has one slice and no warm-up: leave out window (or \
                        --slice), warmup, sustained and cycles"
                .into());
        }
        self.all_are_started("cold")
    }

    fn all_are_started(&self, wanted: &str) -> Result<(), Invalid> {
        match self.variants.iter().find(|variant| variant.server == ServerSpec::External) {
            Some(up) => {
                Err(Invalid(format!("{wanted}: tare does not start '{}' (--launch)", up.name)))
            }
            None => Ok(()),
        }
    }

    /// Checks values that a file can give but the command line cannot.
    fn check_ranges(&self) -> Result<(), Invalid> {
        if self.name.is_empty() || self.name.chars().any(char::is_control) {
            return Err(Invalid(format!("name = {:?}: write printable characters", self.name)));
        }
        self.variants.iter().try_for_each(|variant| check_headers(&variant.headers))?;
        if self.load.has_new_connections() && self.slices.reconnect_each.is_some() {
            let why = "reconnect_each (--reconnect-each) needs kept connections; with \
                       new_connections each request has its own";
            return Err(Invalid(why.into()));
        }
        let filtered = self.variants.iter().find(|variant| variant.filter().is_some());
        let paths = self.load.http().map_or(&[][..], |http| http.paths.several());
        if let Some(variant) = filtered.filter(|_| !paths.is_empty()) {
            return Err(Invalid(format!(
                "variant '{}': a filter's proof needs one path for all requests: leave out paths",
                variant.name
            )));
        }
        check_range("rounds", self.stop.rounds.unwrap_or(1), u32::MAX)?;
        check_range("place_launches", self.slices.place_launches.unwrap_or(1), 20)?;
        check_range("cycles", self.slices.cycles.unwrap_or(1), CYCLES_MAX)?;
        if let Some(window) = self.slices.window.filter(|w| !SLICE_LENGTHS.contains(w)) {
            return Err(Invalid(format!("slices: {window} each: write 1ms to 60s")));
        }
        let longest = self.slices.sustained.max(self.slices.warmup_max);
        if let Some(time) = longest.filter(|time| *time > self.stop.max_time) {
            let most = self.stop.max_time;
            return Err(Invalid(format!(
                "sustained or warmup_max of {time}: longer than the time for the run, {most}"
            )));
        }
        if let Some(warmup) = self.slices.warmup.filter(|w| *w > self.stop.max_time) {
            let most = self.stop.max_time;
            return Err(Invalid(format!(
                "warm-up of {warmup}: longer than the time for the run, {most}"
            )));
        }
        Ok(())
    }
}

/// Allowed lengths of slices.
pub const SLICE_LENGTHS: std::ops::RangeInclusive<DurationNs> =
    DurationNs::from_ms(1)..=DurationNs::from_secs(60);
pub const CYCLES_MAX: u32 = 10_000;

/// Joint confidence level of all intervals.
pub const LEVEL: f64 = 0.95;
