//! Trends of latencies.

use crate::series::Second;

/// The number of windows of a run.
const WINDOWS: usize = 5;

/// Whether latencies have no trend, by the Mann-Kendall test over five windows. S of 8 or more
/// occurs by chance in 8 % of steady runs, so a trend needs S of 10, all in one direction (1.7 %),
/// and a change of more than a tenth. `None` for runs under five seconds.
pub fn steady(series: &[Second]) -> Option<bool> {
    let medians = series.iter().filter(|second| !second.warm_up);
    let medians: Vec<f64> = medians.filter_map(|second| second.p50).collect();
    let width = medians.len() / WINDOWS;
    if width == 0 {
        return None;
    }
    let mean = |window: &[f64]| window.iter().sum::<f64>() / window.len() as f64;
    let windows: Vec<f64> = medians.chunks_exact(width).take(WINDOWS).map(mean).collect();
    let trend = kendall(&windows);
    let (Some(first), Some(last)) = (windows.first(), windows.last()) else {
        return None;
    };
    let change = (last / first.max(1e-9)).ln().abs();
    let all_pairs = (WINDOWS * (WINDOWS - 1) / 2) as i64;
    Some(trend.abs() < all_pairs || change < 0.1)
}

/// Rising pairs minus falling pairs.
fn kendall(values: &[f64]) -> i64 {
    let pairs = values
        .iter()
        .enumerate()
        .flat_map(|(at, first)| values[at + 1..].iter().map(move |second| (first, second)));
    pairs
        .map(|(first, second)| match first.total_cmp(second) {
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => -1,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(medians: impl IntoIterator<Item = f64>) -> Vec<Second> {
        let seconds = medians.into_iter().map(|p50| Second { p50: Some(p50), ..Second::default() });
        seconds.collect()
    }

    #[test]
    fn a_run_that_gets_slower_all_the_time_is_not_steady() {
        assert_eq!(steady(&series((0..30).map(|n| 1.0 + f64::from(n)))), Some(false));
        assert_eq!(steady(&series((0..30).map(|n| 40.0 - f64::from(n)))), Some(false));
        assert_eq!(steady(&series((0..30).map(|n| f64::from(1 + n % 3)))), Some(true));
        assert_eq!(steady(&series((0..30).map(|n| 1.0 + f64::from(n) / 1e4))), Some(true));
        assert_eq!(steady(&series([1.0, 2.0, 3.0])), None);
    }
}
