//! A small forest plot: the intervals of a run's comparisons, which narrow while it goes on.

/// An interval to draw, in percent.
#[derive(Clone, Debug)]
pub struct Interval {
    pub name: String,
    pub lower: f64,
    pub point: f64,
    pub upper: f64,
}

/// Columns of the drawing, without names. An odd number, so that one column is that of zero.
const COLUMNS: usize = 41;
/// Intervals that reach beyond this are cut off, so that one that is still wide hides no other.
const REACH_MAX: f64 = 50.0;

/// Draws a line for each interval, and a scale below them. `tolerance` is in percent.
pub fn forest(intervals: &[Interval], tolerance: f64) -> Vec<String> {
    let ends = intervals.iter().flat_map(|one| [one.lower.abs(), one.upper.abs()]);
    let reach = ends.fold(2.0 * tolerance, f64::max).min(REACH_MAX);
    let middle = COLUMNS / 2;
    let column = |value: f64| {
        let share = (value / reach).clamp(-1.0, 1.0);
        (middle as f64 * (1.0 + share)).round() as usize
    };
    let width = intervals.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    let mut lines: Vec<String> = intervals
        .iter()
        .map(|one| {
            let mut cells = [' '; COLUMNS];
            cells[column(-tolerance)..=column(tolerance)].fill('·');
            cells[middle] = '┊';
            let from = column(one.lower);
            let to = column(one.upper).max(from);
            cells[from..=to].fill('─');
            let is_cut = |value: f64| value.abs() > reach;
            cells[from] = if one.lower > reach {
                '▸'
            } else if is_cut(one.lower) {
                '◂'
            } else {
                '├'
            };
            cells[to] = if one.upper < -reach {
                '◂'
            } else if is_cut(one.upper) {
                '▸'
            } else {
                '┤'
            };
            if !is_cut(one.point) {
                cells[column(one.point)] = '●';
            }
            format!("  {:width$}  {}", one.name, cells.iter().collect::<String>())
        })
        .collect();
    if !intervals.is_empty() {
        let (least, most) = (format!("−{reach:.1} %"), format!("+{reach:.1} %"));
        let left = middle - least.chars().count();
        let right = COLUMNS - middle - 1;
        lines.push(format!("  {:width$}  {least}{:left$}0{most:>right$}", "", ""));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(name: &str, lower: f64, point: f64, upper: f64) -> Interval {
        Interval { name: name.into(), lower, point, upper }
    }

    #[test]
    fn intervals_are_drawn_to_scale() {
        let all = [interval("a", -1.0, 0.0, 1.0), interval("bc", 5.0, 7.5, 10.0)];
        let drawn = forest(&all, 2.0);
        let bar = |at: usize, drawn: &str| " ".repeat(at) + drawn;
        assert_eq!(drawn[0], format!("  a   {}{}", bar(16, "··├─●─┤··"), " ".repeat(16)));
        let second = format!("····┊····{}", bar(5, "├────●────┤"));
        assert_eq!(drawn[1], format!("  bc  {}", bar(16, &second)));
        assert_eq!(drawn[2], format!("      −10.0 %{}{}", bar(13, "0"), bar(13, "+10.0 %")));
        assert!(forest(&[], 2.0).is_empty());
    }

    #[test]
    fn an_interval_without_bounds_is_cut_off() {
        let wide = interval("a", -99.0, 1e9, f64::INFINITY);
        let drawn = forest(&[wide, interval("b", 1.0, 1.0, 1.0)], 2.0);
        assert!(drawn[0].contains('◂') && drawn[0].ends_with('▸'), "{}", drawn[0]);
        let far = forest(&[interval("far", -90.0, -80.0, -70.0)], 2.0);
        assert!(far[0].starts_with("  far  ◂ ") && !far[0].contains('●'), "{}", far[0]);
        assert_eq!(drawn[1].matches('●').count(), 1);
        let nothing = forest(&[interval("c", f64::NAN, f64::NAN, f64::NAN)], 2.0);
        assert_eq!(nothing.len(), 2);
    }
}
