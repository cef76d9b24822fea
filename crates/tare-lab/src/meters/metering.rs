//! Meters what a launch uses, wherever its processes are. Each part is metered where it can be
//! seen; the sum is the cost of the variant.

use tare_io::{DurationNs, Instant};
use tare_model::counters::Counters;
use tare_model::samples::LaunchPart;
use tare_model::usage::Usage;

use crate::agent::TIMEOUT;
use crate::executor::requests::{Attach, Processes, Quiesce, Read, ReadFootprint, Sample};
use crate::executor::{MeterId, Target};
use crate::lab::site::{Site, ask_all};
use crate::meters::probe::{Probe, ProcessFiles};
use crate::meters::probes::{Link, Softirq};
use crate::meters::{self, Quiet, Reading};
use crate::world::{LaunchUsage, Meter};
use tare_model::Failure;

/// A site and the target that it meters.
#[derive(Clone, Debug)]
pub struct MeterSource {
    pub site: Site,
    pub target: Target,
}

impl MeterSource {
    /// Reads its counters so far; `None` if they cannot be read.
    pub fn read(&self) -> Option<Counters> {
        let meter = self.site.ask(Attach { target: self.target.clone() }).ok()?;
        self.site.ask(Read { meter }).ok()?.bounded().counters
    }
}

/// One metered part of a variant.
#[derive(Clone, Debug)]
struct Part {
    /// The part without its counters.
    told: LaunchPart,
    /// The site and meter that read its counters; `None` if they cannot be read.
    meter: Option<(Site, MeterId)>,
}

/// The counters of a server and of the hops before it.
#[derive(Debug, Default)]
pub struct Metering {
    /// Hops, starting with the one nearest to the client; the server is last.
    parts: Vec<Part>,
    /// Probes shared by all parts: of this end of the link to the server's place, and of the
    /// kernel's interrupts.
    shared: Vec<Box<dyn Probe>>,
}

impl Metering {
    /// Adds a part behind all others and opens its counters.
    #[must_use]
    pub fn with_part(mut self, told: LaunchPart, source: &MeterSource) -> Self {
        let attached = source.site.ask(Attach { target: source.target.clone() }).ok();
        let meter = attached.map(|meter| (source.site.clone(), meter));
        self.parts.push(Part { told, meter });
        self
    }

    /// Also counts the packets of this link, or of the loopback device without one, and the
    /// kernel's interrupts on the server's CPUs if the server is on this machine.
    #[must_use]
    pub fn with_shared(mut self, link: Option<&str>) -> Self {
        let server = self.parts.last().map(processes_here).unwrap_or_default();
        let link = match link {
            Some(link) => Link::attach(link),
            None => server.first().and_then(|pid| Link::attach_loopback(*pid)),
        };
        if let Some(link) = link {
            self.shared.push(Box::new(link));
        }
        if let Some(softirq) = server.first().and_then(|pid| Softirq::attach(*pid)) {
            self.shared.push(Box::new(softirq));
        }
        self
    }

    /// Returns the metered processes on this machine.
    pub fn processes(&self) -> Vec<u32> {
        self.parts.iter().flat_map(processes_here).collect()
    }

    fn usage(&self, all: &[meters::MeterReading]) -> Option<Usage> {
        let nobody = ProcessFiles::default();
        let shared = self.shared.iter().map(|probe| probe.read(&nobody.look()));
        let shared = shared.fold(Counters::default(), Counters::or);
        let counters: Option<Vec<Counters>> = all.iter().map(|used| used.counters).collect();
        let mut hops = counters?;
        let server = hops.pop()?.or(shared);
        Some(Usage::of_parts(server, hops))
    }
}

fn processes_here(part: &Part) -> Vec<u32> {
    let Some((site, meter)) = &part.meter else { return Vec::new() };
    let is_here = site.agent().is_none();
    let told = is_here.then(|| site.ask(Processes { meter: *meter }).ok()).flatten();
    told.unwrap_or_default()
}

impl Meter for Metering {
    fn used(&self) -> LaunchUsage {
        let ask = |part: &Part| {
            let (site, meter) = part.meter.as_ref()?;
            site.ask(Read { meter: *meter }).ok().map(meters::MeterReading::bounded)
        };
        let all: Option<Vec<meters::MeterReading>> = self.parts.iter().map(ask).collect();
        let all = all.unwrap_or_default();
        let usage = self.usage(&all);
        let threads = threads_of(&all, |used| &used.threads);
        LaunchUsage { usage, threads }
    }

    fn parts(&self) -> Vec<LaunchPart> {
        let of = |part: &Part| {
            let meter = part.meter.as_ref();
            let read = meter.map(|(site, meter)| site.ask(ReadFootprint { meter: *meter }));
            let footprint = read.and_then(Result::ok).unwrap_or_default().bounded();
            LaunchPart {
                rss_bytes: footprint.rss_bytes,
                throttled_periods: footprint.throttled_periods,
                ..part.told.clone()
            }
        };
        self.parts.iter().map(of).collect()
    }
}

/// Returns the threads of all parts; none if the server's are unknown, because the hops' threads
/// alone would be taken for all.
fn threads_of<T>(parts: &[T], threads: impl Fn(&T) -> &Vec<[u64; 2]>) -> Vec<[u64; 2]> {
    match parts.last().map(&threads) {
        Some(own) if !own.is_empty() => parts.iter().flat_map(threads).copied().collect(),
        _ => Vec::new(),
    }
}

/// Groups the meters by the site that reads them.
fn by_site<'a>(meters: impl Iterator<Item = &'a Metering>) -> Vec<(&'a Site, Vec<MeterId>)> {
    let mut sites: Vec<(&Site, Vec<MeterId>)> = Vec::new();
    for (site, meter) in
        meters.flat_map(|metering| metering.parts.iter().filter_map(|part| part.meter.as_ref()))
    {
        match sites.iter_mut().find(|(known, _)| known.is_same(site)) {
            Some((_, meters)) => meters.push(*meter),
            None => sites.push((site, vec![*meter])),
        }
    }
    sites
}

/// Waits until all of them are idle, all sites at the same time; returns whether they are.
pub fn quiesce(meters: &[&Metering], quiet: Quiet) -> bool {
    let sites = by_site(meters.iter().copied());
    let asked = sites.into_iter().map(|(site, meters)| (site, Quiesce { meters, quiet }));
    // A site that fails here fails again where its reply is needed.
    ask_all(asked, TIMEOUT).is_ok_and(|stand| stand.into_iter().all(|stands| stands))
}

/// Reads all these meters at one instant of this machine's clock and again after each interval;
/// returns a row for each meter.
pub fn sample(
    meters: &[Option<&Metering>],
    from: Instant,
    interval: DurationNs,
    times: u32,
) -> Result<Vec<Vec<Reading>>, Failure> {
    let sites = by_site(meters.iter().copied().flatten());
    let asked = sites.iter().map(|(site, meters)| {
        let from = site.clock().there(from);
        (*site, Sample { meters: meters.clone(), from, interval, times })
    });
    let length = DurationNs::from_ns(interval.as_ns() * u64::from(times));
    let rows = ask_all(asked, length + TIMEOUT)?;
    let bounded = |row: Vec<Reading>| row.into_iter().map(Reading::bounded).collect();
    let rows: Vec<Vec<Vec<Reading>>> =
        rows.into_iter().map(|rows| rows.into_iter().map(bounded).collect()).collect();
    let row_of = |site: &Site, meter: MeterId| {
        let (rows, (_, meters)) =
            rows.iter().zip(&sites).find(|(_, (known, _))| known.is_same(site))?;
        rows.get(meters.iter().position(|known| *known == meter)?)
    };
    let all = meters.iter().map(|metering| {
        let parts = metering.iter().flat_map(|metering| &metering.parts);
        let of_parts = parts.map(|part| {
            let (site, meter) = part.meter.as_ref()?;
            row_of(site, *meter)
        });
        let of_parts: Option<Vec<&Vec<Reading>>> = of_parts.collect();
        of_parts.map_or_else(Vec::new, |rows| sum_rows(&rows))
    });
    Ok(all.collect())
}

/// Sums the readings of the parts, which were taken at the same instants.
fn sum_rows(rows: &[&Vec<Reading>]) -> Vec<Reading> {
    let n = rows.iter().map(|row| row.len()).min().unwrap_or(0);
    let at = |index: usize| {
        let all: Vec<&Reading> = rows.iter().map(|row| &row[index]).collect();
        Reading {
            ns: all[0].ns,
            cpu_ns: all.iter().map(|reading| reading.cpu_ns).fold(0, u64::saturating_add),
            threads: threads_of(&all, |reading| &reading.threads),
        }
    };
    (0..n).map(at).collect()
}
