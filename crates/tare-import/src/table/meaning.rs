//! Recognises the quantity of a number by the words above or beside it, and by its unit.

use tare_model::Metric;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    Of(Metric),
    Percentile(f64),
    Errors,
    /// UnixBench's index.
    Index,
    /// Difference between two numbers of the document.
    Change,
    /// A number that is not compared: spreads, extremes, CPU, sizes.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// Time, with its factor to nanoseconds.
    Time(f64),
    /// Bandwidth, with its factor to bytes per second.
    Bytes(f64),
    /// Rate, with its factor to things per second.
    Count(f64),
    Percent,
    /// Factor between two values.
    Times,
}

/// The quantity and the unit that words name, and the words that remain.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaning {
    pub quantity: Option<Quantity>,
    pub unit: Option<Unit>,
    /// The words that remain: "without TLS" in "p99 without TLS (ms)".
    pub rest: String,
}

pub fn unit(text: &str) -> Option<Unit> {
    let text = text.trim().trim_matches(['[', ']', '(', ')']).trim();
    let time = match text.to_lowercase().as_str() {
        "ns" | "nsec" => Some(1.0),
        "us" | "µs" | "μs" | "usec" | "usecs" | "microseconds" => Some(1e3),
        "ms" | "msec" | "msecs" | "milliseconds" | "毫秒" => Some(1e6),
        "s" | "sec" | "secs" | "seconds" | "sekunden" | "秒" => Some(1e9),
        "%" => return Some(Unit::Percent),
        "x" | "×" | "times" => return Some(Unit::Times),
        _ => None,
    };
    if let Some(factor) = time {
        return Some(Unit::Time(factor));
    }
    let short = text.replace("/sec", "/s").replace("ps", "/s");
    let rate = short.strip_suffix("/s").map(str::trim);
    if let Some(size) = rate.and_then(bytes) {
        return Some(Unit::Bytes(size));
    }
    let lower = text.to_lowercase();
    let (factor, rest) = match lower.chars().next() {
        Some('k') => (1e3, &lower[1..]),
        Some('m') if text.starts_with('M') => (1e6, &lower[1..]),
        _ => (1.0, lower.as_str()),
    };
    let rest = rest.trim().trim_start_matches(['#', '.']);
    let is_rate = rest.is_empty()
        || ["req/s", "req/sec", "reqs/s", "requests/s", "requests/sec", "rps", "qps", "tps", "lps"]
            .contains(&rest)
        || ["/s", "/sec", "1/s", "r/s", "请求/秒", "anfragen/s", "req"].contains(&rest);
    (is_rate && !text.is_empty()).then_some(Unit::Count(factor))
}

/// Returns the bytes of "MB", "Gbit" or "KiB"; case distinguishes bits from bytes.
fn bytes(text: &str) -> Option<f64> {
    let (prefix, divisor) = ["bits", "bit", "b"]
        .iter()
        .find_map(|bits| Some((text.strip_suffix(bits)?, 8.0)))
        .or_else(|| {
            ["Bytes", "bytes", "B"].iter().find_map(|b| Some((text.strip_suffix(b)?, 1.0)))
        })?;
    let factor = match prefix.trim() {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1048576.0,
        "Gi" => 1073741824.0,
        _ => return None,
    };
    Some(factor / divisor)
}

use Quantity::{Change, Errors, Index, Of, Other, Percentile};

/// The first match counts: "p99 latency" is a percentile, "latency stdev" a spread.
const WORDS: [(Quantity, &str); 17] = [
    (
        Change,
        "overhead improvement factor diff difference delta Δ change reduction gain speedup speed-up \
         degradation slowdown vs verbesserung mehraufwand unterschied abweichung \
         differenz 提升 开销 差异 下降 损耗 变化 変化 surcoût écart diferencia mejora perda ganho \
         diferença melhoria",
    ),
    (
        Other,
        "stdev stddev sd std σ deviation max min maximum minimum slowest fastest longest \
         shortest cpu memory mem rss duration time(s) \
         runs iterations n loss ratio relative share delay",
    ),
    (Percentile(99.99), "p99.99 p9999 99.99%"),
    (Percentile(99.9), "p99.9 p999 99.9%"),
    (Percentile(99.0), "p99 99% 99th"),
    (Percentile(95.0), "p95 95% 95th"),
    (Percentile(90.0), "p90 90% 90th"),
    (Percentile(75.0), "p75 75% 75th"),
    (Percentile(50.0), "p50 50% 50th median med"),
    (
        Errors,
        "timeout timeouts errors error failed failures non-2xx fehler 超时 错误 エラー erreurs errores \
         erros falhas",
    ),
    (Index, "index score"),
    (Of(Metric::Bandwidth), "bandwidth bw transfer transfer/sec 带宽 bandbreite tcp_bw udp_bw"),
    (
        Of(Metric::LatencyMean),
        "latency latencies lat tcp_lat udp_lat latenz antwortzeit 延迟 时延 レイテンシ 遅延 latence \
         latencia latência rtt 响应时间 応答時間",
    ),
    (
        Of(Metric::Throughput),
        "req/s req/sec reqs/s request/s requests/s requests/sec requests reqs rps qps tps throughput \
         anfragen/s anfragen durchsatz 吞吐量 吞吐 请求/秒 每秒请求数 スループット débit requêtes/s \
         peticiones/s requisições/s rendimiento vazão lps r/s",
    ),
    (Of(Metric::LatencyMean), "mean avg average response 平均 moyenne media média mittel"),
    (Of(Metric::Throughput), "durchläufe"),
    (Other, "size bytes"),
];

pub fn meaning(text: &str) -> Meaning {
    // "99 <sup>th</sup> percentile", "99th pct".
    let mut rest = text.replace(" th ", "th ").replace("th pct", "th percentile");
    let mut found = None;
    // The unit may be in parentheses, in brackets, or at the end.
    for (open, close) in [('(', ')'), ('[', ']')] {
        let inner = rest.split_once(open).and_then(|(before, more)| {
            let (inner, after) = more.split_once(close)?;
            Some((unit(inner)?, format!("{before} {after}")))
        });
        if let Some((own, without)) = inner {
            found = Some(own);
            rest = without;
        }
    }
    if found.is_none()
        && let Some((before, last)) = rest.trim_end().rsplit_once([' ', '/', ','])
        && !before.trim().is_empty()
        && let Some(own) = unit(last).filter(|own| !is_rate_itself(before, *own))
    {
        found = Some(own);
        rest = before.to_owned();
    }
    let lower = rest.to_lowercase();
    let known = WORDS.iter().find_map(|(quantity, words)| {
        words.split(' ').find(|word| at_word(&lower, word).is_some()).map(|word| (*quantity, word))
    });
    // A percentile that is not in the list is not a mean.
    let is_quantile =
        ["percentile", "perzentil", "quantil", "centile"].iter().any(|w| lower.contains(w));
    let known = match known {
        Some((Of(Metric::LatencyMean), _)) | None if is_quantile => Some((Other, "percentile")),
        known => known,
    };
    // "Requests" alone is a count, not a rate.
    let known = known.map(|(quantity, word)| match quantity {
        Of(Metric::Throughput) if !is_rate(word) && !is_per_second(&text.to_lowercase()) => {
            (Other, word)
        }
        _ => (quantity, word),
    });
    // "requests/s" and "req/s (k)" contain their unit.
    let found = found.or_else(|| unit(text.trim()));
    let Some((quantity, _)) = known else {
        return Meaning { quantity: None, unit: found, rest: rest.trim().to_owned() };
    };
    let mut words = Vec::new();
    for word in rest.split_whitespace() {
        let own = word.to_lowercase();
        let own = own.trim_matches(|c: char| !c.is_alphanumeric() && !"%/Δσ".contains(c));
        let is_known = WORDS.iter().any(|(_, all)| all.split(' ').any(|known| known == own));
        if !is_known {
            words.push(word);
        }
    }
    // "Requests per second", "mean of p99": joining words that are left over are dropped.
    const JOINTS: [&str; 10] =
        ["of", "per", "in", "the", "for", "second", "seconds", "time", "rate", "percentile"];
    let is_joint = |word: &&str| JOINTS.contains(&word.to_lowercase().as_str());
    let from = words.iter().position(|word| !is_joint(word)).unwrap_or(words.len());
    let to = words.iter().rposition(|word| !is_joint(word)).map_or(from, |last| last + 1);
    Meaning { quantity: Some(quantity), unit: found, rest: words[from..to].join(" ") }
}

/// Whether a word for throughput means a rate by itself.
fn is_rate(word: &str) -> bool {
    const COUNTS: [&str; 7] =
        ["requests", "reqs", "request", "anfragen", "durchläufe", "peticiones", "requêtes"];
    !COUNTS.contains(&word)
}

fn is_per_second(text: &str) -> bool {
    const WORDS: [&str; 8] = ["/s", "/ s", "per s", "pro s", "par s", "por s", "每秒", "毎秒"];
    WORDS.iter().any(|word| text.contains(word))
}

/// Whether the unit is only the end of a rate, as in "requests / s", and not a unit of time.
fn is_rate_itself(before: &str, unit: Unit) -> bool {
    let last = before.trim_end_matches(['/', ' ']).rsplit([' ', '/']).next().unwrap_or("");
    let is_thing = ["req", "reqs", "request", "requests", "anfragen", "requêtes", "transfer"]
        .contains(&last.to_lowercase().as_str());
    is_thing && matches!(unit, Unit::Time(_))
}

/// Finds a word that stands by itself; Chinese and Japanese words are found anywhere.
fn at_word(text: &str, word: &str) -> Option<usize> {
    let is_cjk = word.chars().any(|c| ('\u{3040}'..='\u{9fff}').contains(&c));
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '.');
        // "avg." and "p99:" end; "p99.9" goes on.
        let goes_on = after == Some('.')
            && text[at + word.len() + 1..].starts_with(|c: char| c.is_ascii_digit());
        is_cjk || !(joins(before) || (joins(after) && (after != Some('.') || goes_on)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_say_what_their_numbers_are() {
        let of = |text: &str| {
            let Meaning { quantity, unit, rest } = meaning(text);
            (quantity, unit, rest)
        };
        let none = String::new;
        let rps = Some(Of(Metric::Throughput));
        let mean = Some(Of(Metric::LatencyMean));
        assert_eq!(of("Requests/sec").0, rps);
        assert_eq!(of("Requests per second").0, rps);
        assert_eq!((of("Requests").0, of("packet loss (%)").0), (Some(Other), Some(Other)));
        assert_eq!(of("QPS"), (rps, Some(Unit::Count(1.0)), none()));
        assert_eq!(of("k req/s").1, Some(Unit::Count(1e3)));
        assert_eq!(of("Latency avg (ms)"), (mean, Some(Unit::Time(1e6)), none()));
        assert_eq!(of("Latenz [µs]"), (mean, Some(Unit::Time(1e3)), none()));
        assert_eq!(
            of("p99 without TLS (ms)"),
            (Some(Percentile(99.0)), Some(Unit::Time(1e6)), "without TLS".into())
        );
        assert_eq!(of("p99.9, ms").0, Some(Percentile(99.9)));
        assert_eq!(of("Overhead").0, Some(Change));
        assert_eq!(of("Latency stdev").0, Some(Other));
        assert_eq!(of("TDX VM").0, None);
        assert_eq!(of("平均延迟 (ms)").1, Some(Unit::Time(1e6)));
        assert_eq!(of("throughput (MB/s)").1, Some(Unit::Bytes(1e6)));
    }

    #[test]
    fn units_are_told_by_their_case() {
        assert_eq!(unit("Gb/s"), Some(Unit::Bytes(125e6)));
        assert_eq!(unit("GB/sec"), Some(Unit::Bytes(1e9)));
        assert_eq!(unit("Gbps"), Some(Unit::Bytes(125e6)));
        assert_eq!(unit("MiB/s"), Some(Unit::Bytes(1048576.0)));
        assert_eq!(unit("ms"), Some(Unit::Time(1e6)));
        for none in ["GB", "B", "cores", ""] {
            assert_eq!(unit(none), None, "{none}");
        }
    }
}
