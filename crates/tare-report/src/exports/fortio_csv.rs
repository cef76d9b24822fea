//! Writes the table of Istio's benchmark runner in its units (whole microseconds, milli-CPUs, MiB),
//! one row per variant. The server and its layers (sidecars, proxies) have separate columns; layers
//! on both sides are added up.

use tare_model::Metric;

use super::Part;
use super::csv::quote;
use crate::date;
use crate::run::Variant;
use crate::sweep::cells::label;

pub const HEADER: &str = "StartTime,ActualDuration,Labels,NumThreads,ActualQPS,p50,p90,p99,p999,\
cpu_mili_avg_server,mem_Mi_avg_server,cpu_mili_avg_istio_proxy,mem_Mi_avg_istio_proxy\n";

pub fn render(parts: &[Part<'_>]) -> String {
    HEADER.to_owned() + &parts.iter().map(rows).collect::<String>()
}

fn rows(part: &Part<'_>) -> String {
    let document = part.document;
    let report = &document.report;
    let values = match part.values.is_empty() {
        true => String::new(),
        false => format!(", {}", label(part.values)),
    };
    let row = |(at, variant): (usize, &Variant)| {
        let seconds = document.counts(at).window_ns as f64 / 1e9;
        let per_s = point(variant, Metric::Throughput);
        let us = |metric| whole(point(variant, metric).map(|ns| ns / 1e3));
        // The total covers all processes; the server's own share is the total less the layers.
        let split = |all: Metric, layers: Metric| {
            let layers = point(variant, layers);
            (point(variant, all).map(|all| all - layers.unwrap_or(0.0)), layers)
        };
        let mili_cpus = |ns: Option<f64>| whole(ns.zip(per_s).map(|(ns, n)| ns * n / 1e6));
        let mebibytes = |bytes: Option<f64>| whole(bytes.map(|n| n / f64::from(1 << 20)));
        let (cpu, layers_cpu) = split(Metric::ServerCpu, Metric::LayersCpu);
        let (rss, layers_rss) = split(Metric::ServerRss, Metric::LayersRss);
        [
            date::rfc3339(report.run.started_unix_ms),
            format!("{seconds:.3}"),
            quote(&format!("{}{values}", variant.name)),
            document.facts.plan.load.connections.to_string(),
            whole(per_s),
            us(Metric::LatencyP50),
            us(Metric::LatencyP90),
            us(Metric::LatencyP99),
            us(Metric::LatencyP999),
            mili_cpus(cpu),
            mebibytes(rss),
            mili_cpus(layers_cpu),
            mebibytes(layers_rss),
        ]
        .join(",")
            + "\n"
    };
    report.variants.iter().enumerate().map(row).collect()
}

fn point(variant: &Variant, metric: Metric) -> Option<f64> {
    variant.metric(metric).map(|estimate| estimate.point)
}

/// Formats a whole number, or a dash if it is missing, as Istio's table does.
fn whole(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.0}"))
}
