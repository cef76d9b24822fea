//! What a launch uses, wherever its processes are: each part is metered by who sees it, and the sum
//! is what a variant pays.

use std::fs::File;
use std::io::Read as _;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use tare_io::{DurationNs, Instant};
use tare_model::counters::{Counter, Counters};

use crate::agent::TIMEOUT;
use crate::error::LabError;
use crate::executor::{MeterId, Target};
use crate::meter::{Footprint, Quiet, Reading, Used};
use crate::requests::{Attach, Processes, Quiesce, Read, ReadFootprint, Sample};
use crate::site::{Site, ask_all};
use crate::world::Meter;

/// Who meters something, and what.
#[derive(Clone, Debug)]
pub struct MeterSource {
    pub site: Site,
    pub target: Target,
}

/// One part's counters; `None` where nobody sees them.
type Part = Option<(Site, MeterId)>;

/// The counters of a server and of what stands between it and its client.
#[derive(Debug, Default)]
pub struct Metering {
    /// The server's is the first.
    parts: Vec<Part>,
    /// The counters of its place's link: received and sent.
    packets: Vec<File>,
}

impl Metering {
    /// Opens the counters that are there now.
    pub fn of(source: &MeterSource) -> Self {
        let request = Attach { target: source.target.clone() };
        let attached = source.site.ask(request).ok();
        let part = attached.map(|meter| (source.site.clone(), meter));
        Self { parts: vec![part], packets: Vec::new() }
    }

    /// Counts the packets of that link, too.
    #[must_use]
    pub fn with_link(mut self, link: Option<&str>) -> Self {
        let folder = link.map(|link| Path::new("/sys/class/net").join(link).join("statistics"));
        let files = folder.iter().flat_map(|f| [f.join("rx_packets"), f.join("tx_packets")]);
        self.packets = files.filter_map(|path| File::open(path).ok()).collect();
        self
    }

    /// Adds another's parts.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    /// Those on this machine that are metered.
    pub fn processes(&self) -> Vec<u32> {
        let here = |part: &Part| {
            let (site, meter) = part.as_ref()?;
            site.agent().is_none().then(|| site.ask(Processes { meter: *meter }).ok())?
        };
        self.parts.iter().filter_map(here).flatten().collect()
    }

    fn sum(&self, own: Option<Counters>, others: &[Used]) -> Option<Counters> {
        let counters: Option<Vec<u64>> = self.packets.iter().map(read_number).collect();
        let packets = counters.filter(|found| found.len() == 2).map(|found| found.iter().sum());
        let mut sum = own?.with(Counter::Packets, packets);
        for other in others {
            let used = other.server?;
            let layers_ns = sum[Counter::Layers].unwrap_or(0) + used.cpu_ns();
            // A hop has no link of its own.
            sum = sum.plus(used).with(Counter::Packets, packets).with(Counter::Layers, layers_ns);
        }
        Some(sum)
    }
}

impl Meter for Metering {
    /// The sum of all parts, where each can be read. Threads are told where the server's are.
    fn used(&self) -> Used {
        let ask = |part: &Part| {
            let (site, meter) = part.as_ref()?;
            site.ask(Read { meter: *meter }).ok().map(Used::bounded)
        };
        let all: Option<Vec<Used>> = self.parts.iter().map(ask).collect();
        let all = all.unwrap_or_default();
        let Some((own, others)) = all.split_first() else { return Used::default() };
        let threads = match own.threads.is_empty() {
            // Its hops' threads alone would stand for all.
            true => Vec::new(),
            false => all.iter().flat_map(|used| &used.threads).copied().collect(),
        };
        Used { server: self.sum(own.server, others), threads }
    }

    fn footprint(&self) -> (Footprint, Option<u64>) {
        let ask = |part: &Part| {
            let asked =
                part.as_ref().map(|(site, meter)| site.ask(ReadFootprint { meter: *meter }));
            asked.and_then(Result::ok).unwrap_or_default().bounded()
        };
        let all: Vec<Footprint> = self.parts.iter().map(ask).collect();
        let Some((own, others)) = all.split_first() else { return Default::default() };
        let sum = |all: &[Footprint]| all.iter().map(|one| one.rss_bytes).sum::<Option<u64>>();
        let footprint = Footprint { rss_bytes: sum(&all), ..*own };
        (footprint, if others.is_empty() { None } else { sum(others) })
    }
}

/// What each of these sites is to do with its meters.
fn by_site<'a>(meters: impl Iterator<Item = &'a Metering>) -> Vec<(&'a Site, Vec<MeterId>)> {
    let mut sites: Vec<(&Site, Vec<MeterId>)> = Vec::new();
    for (site, meter) in meters.flat_map(|metering| metering.parts.iter().flatten()) {
        match sites.iter_mut().find(|(known, _)| known.is_same(site)) {
            Some((_, meters)) => meters.push(*meter),
            None => sites.push((site, vec![*meter])),
        }
    }
    sites
}

/// Waits until all of them stand still, each site's at the same time; whether they do.
pub fn quiesce(meters: &[&Metering], quiet: Quiet) -> bool {
    let sites = by_site(meters.iter().copied());
    let asked = sites.into_iter().map(|(site, meters)| (site, Quiesce { meters, quiet }));
    // Whoever cannot be asked is asked again by whoever needs an answer.
    ask_all(asked, TIMEOUT).is_ok_and(|stand| stand.into_iter().all(|stands| stands))
}

/// Reads all of them at one instant of this machine's clock, and again after each interval: a row
/// for each.
pub fn sample(
    meters: &[Option<&Metering>],
    from: Instant,
    interval: DurationNs,
    times: u32,
) -> Result<Vec<Vec<Reading>>, LabError> {
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
        let of_parts = parts.map(|part| part.as_ref().and_then(|(site, m)| row_of(site, *m)));
        let of_parts: Option<Vec<&Vec<Reading>>> = of_parts.collect();
        of_parts.map_or_else(Vec::new, |rows| together(&rows))
    });
    Ok(all.collect())
}

/// The sums of what parts used: all were read at the same instants.
fn together(rows: &[&Vec<Reading>]) -> Vec<Reading> {
    let n = rows.iter().map(|row| row.len()).min().unwrap_or(0);
    let at = |index: usize| {
        let all = rows.iter().map(|row| &row[index]);
        Reading {
            ns: rows[0][index].ns,
            cpu_ns: all.clone().map(|reading| reading.cpu_ns).fold(0, u64::saturating_add),
            threads: match rows[0][index].threads.is_empty() {
                true => Vec::new(),
                false => all.flat_map(|reading| &reading.threads).copied().collect(),
            },
        }
    };
    (0..n).map(at).collect()
}

fn read_number(mut file: &File) -> Option<u64> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
