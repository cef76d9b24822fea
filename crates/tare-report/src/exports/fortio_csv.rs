//! The table of Istio's benchmark runner: a row a variant, in its units (whole microseconds, milli-
//! CPUs, MiB). Its CPU and memory are those of the server's processes, and called so: what runs in
//! tare's variants is not known to be a proxy.

use tare_model::Metric;

use super::Part;
use super::csv::quote;
use crate::date;
use crate::run::Variant;
use crate::sweep::cells::label;

pub const HEADER: &str = "StartTime,ActualDuration,Labels,NumThreads,ActualQPS,p50,p90,p99,p999,\
cpu_mili_avg_server,mem_Mi_avg_server\n";

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
        let mili_cpus =
            point(variant, Metric::ServerCpu).zip(per_s).map(|(ns, per_s)| ns * per_s / 1e9 * 1e3);
        let mebibytes = point(variant, Metric::ServerRss).map(|bytes| bytes / f64::from(1 << 20));
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
            whole(mili_cpus),
            whole(mebibytes),
        ]
        .join(",")
            + "\n"
    };
    report.variants.iter().enumerate().map(row).collect()
}

fn point(variant: &Variant, metric: Metric) -> Option<f64> {
    variant.metric(metric).map(|estimate| estimate.point)
}

/// A dash where there is nothing, as that table has it.
fn whole(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.0}"))
}
