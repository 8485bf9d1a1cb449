//! The progress of a run, for a terminal.

use crate::generate::Progress;
use crate::outcome::Class;
use maitred_text::humanize;

/// Width of the progress bar, in characters.
const BAR: usize = 40;

/// Upper ends of the histogram's ranges, in seconds.
const RANGES: [f64; 12] =
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// The progress as lines; their number never changes.
pub fn picture(progress: &Progress<'_>, url: &str) -> Vec<String> {
    let second = progress.second;
    let past = (second.number + 1) as f64;
    let done = (past / progress.duration.max(1e-9)).min(1.0);
    // At most 1 times a small number.
    let filled = (done * BAR as f64) as usize;
    let phase = if second.warm_up { "warming up" } else { "measuring" };
    let latency = |found: Option<f64>| found.map_or("n/a".to_owned(), humanize::duration);
    let total = progress.total;
    let not_served: Vec<String> = Class::ALL
        .into_iter()
        .skip(1)
        .map(|class| format!("{} {}", humanize::count(total.count(class)), class.name()))
        .collect();
    let mut lines = vec![
        format!("maitred bench {url}"),
        format!(
            "[{}{}] {phase}, {} of {}; Ctrl-C ends it with a report",
            "█".repeat(filled),
            "·".repeat(BAR - filled),
            humanize::duration(past.min(progress.duration)),
            humanize::duration(progress.duration),
        ),
        format!(
            "last second  {}/s sent, {}/s served, {} in flight, {} waiting, {} connections",
            humanize::count(second.sent),
            humanize::count(second.served),
            humanize::count(second.in_flight),
            humanize::count(second.waiting),
            humanize::count(second.connections),
        ),
        format!(
            "latency      p50 {}, p90 {}, p99 {}, max {}",
            latency(second.p50),
            latency(second.p90),
            latency(second.p99),
            latency(second.max),
        ),
        format!(
            "so far       {} served, {}; {} late",
            humanize::count(total.count(Class::Served)),
            not_served.join(", "),
            humanize::count(total.late),
        ),
    ];
    lines.extend(histogram(progress));
    lines
}

fn histogram(progress: &Progress<'_>) -> Vec<String> {
    let served = &progress.total.ended[Class::Served.index()].corrected;
    let counts = served.ranges(&RANGES);
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let names = RANGES.map(|end| format!("≤ {}", humanize::duration(end)));
    let names = names.into_iter().chain(["longer".to_owned()]);
    let rows = names.zip(counts).map(|(name, count)| {
        // At most 1 times a small number.
        let bar = (count as f64 / most as f64 * BAR as f64).round() as usize;
        format!("{name:>10}{:>12}  {}", humanize::count(count), "█".repeat(bar))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Second;
    use crate::tally::{RequestEnd, Tally};

    #[test]
    fn a_picture_has_always_the_same_lines_and_shows_how_far_it_is() {
        let mut total = Tally::default();
        let draw = |total: &Tally, number| {
            let second = Second { number, ..Second::default() };
            let progress = Progress { second: &second, total, duration: 10.0 };
            picture(&progress, "http://a/")
        };
        let first = draw(&total, 0);
        total.ended(&RequestEnd {
            cause: None,
            status: Some(200),
            has_retry_after: false,
            body_bytes: 1,
            corrected: 2_000_000,
            service: 2_000_000,
            row: 0,
        });
        let last = draw(&total, 10);
        assert_eq!(first.len(), last.len());
        assert!(first[1].starts_with("[████····"), "{first:?}");
        assert!(last[1].contains("10 s of 10 s") && !last[1].contains('·'), "{last:?}");
        assert!(last[8].contains("≤ 3 ms           1  ████"), "{last:?}");
    }
}
