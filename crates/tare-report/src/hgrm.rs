//! Writes a histogram's percentiles as text (`.hgrm`), as HdrHistogram's tools and their plotter read
//! it. Values are in milliseconds.

use hdrhistogram::Histogram;

/// Lines for each halving of the distance to 100 %.
const PER_HALF: u32 = 5;
const NS_PER_MS: f64 = 1e6;

pub fn render(histogram: &Histogram<u64>) -> String {
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut below = 0;
    for point in histogram.iter_quantiles(PER_HALF) {
        below += point.count_since_last_iteration();
        let quantile = point.quantile_iterated_to();
        let ms = point.value_iterated_to() as f64 / NS_PER_MS;
        text.push_str(&match quantile < 1.0 {
            true => {
                format!("{ms:12.3} {quantile:2.12} {below:10} {:14.2}\n", 1.0 / (1.0 - quantile))
            }
            false => format!("{ms:12.3} {quantile:2.12} {below:10}\n"),
        });
    }
    let ms = |ns: f64| ns / NS_PER_MS;
    text + &format!(
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n#[Max     = {:12.3}, Total count    = {:12}]\n\
         #[Buckets = {:12}, SubBuckets     = {:12}]\n",
        ms(histogram.mean()),
        ms(histogram.stdev()),
        ms(histogram.max() as f64),
        histogram.len(),
        histogram.buckets(),
        histogram.distinct_values() / usize::from(histogram.buckets()).max(1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_end_with_the_maximum_and_count_everything() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        for value in 1..=1000 {
            histogram.record(value * 1_000_000).unwrap();
        }
        let text = render(&histogram);
        let mut rows = text.lines().skip(2).take_while(|line| !line.starts_with('#'));
        let cells = |line: &str| {
            line.split_whitespace().map(|cell| cell.parse::<f64>().unwrap()).collect::<Vec<_>>()
        };
        let first = cells(rows.next().unwrap());
        assert!((first[0] - 1.0).abs() < 0.01 && first[1] == 0.0 && first[2] == 1.0, "{first:?}");
        let rows: Vec<Vec<f64>> = rows.map(cells).collect();
        let median = rows.iter().find(|row| row[1] >= 0.5).unwrap();
        assert!((median[0] - 500.0).abs() < 2.0 && (median[3] - 2.0).abs() < 0.01, "{median:?}");
        let last = rows.last().unwrap();
        assert!((last[0] - 1000.0).abs() < 1.0 && last[1..] == [1.0, 1000.0], "{last:?}");
        assert!(rows.is_sorted_by(|a, b| a[0] <= b[0] && a[2] <= b[2]));
        assert!(text.contains("Total count    =         1000]"), "{text}");
    }
}
