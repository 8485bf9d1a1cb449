//! The report as one HTML file, with the charts of `maitred bench`.

use std::fmt::Write as _;

use maitred_measure::html::{STYLE, chart, curve, escape, nines, percentiles};
use maitred_measure::words;

use crate::course::hunt::Try;
use crate::report::Report;
use crate::seen::Setting;
use crate::text;

/// How many numbers are written below a chart.
const NUMBERS: f64 = 8.0;

/// The page.
pub fn page(report: &Report) -> String {
    let title = escape(&format!("maitred tune: {}", report.subject));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style>\n\
         <h1>{title}</h1>\n"
    );
    if report.indicative {
        page.push_str("<p class=\"bad\">Indicative: little time was given.</p>\n");
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "<pre>{}</pre>",
        escape(&text::lines(report).join("\n"))
    );
    page.push_str(&throughput(report));
    page.push_str(&latencies(report));
    page.push_str(&spectrum(report));
    page.push_str(&split(report));
    if !report.file.is_empty() {
        let _ = writeln!(
            page,
            "<h2>Settings</h2>\n<pre>{}</pre>",
            escape(&report.file)
        );
    }
    page.push_str("</html>\n");
    page
}

/// Round numbers up to the most.
fn numbers(most: f64) -> Vec<(f64, String)> {
    let rough = (most / NUMBERS).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let count = (most / step) as u32;
    (0..=count)
        .map(|number| f64::from(number) * step)
        .map(|value| (value, words::digits(value)))
        .collect()
}

fn throughput(report: &Report) -> String {
    let last = report.sweep.last().map_or(0.0, |(workers, _)| *workers);
    let model = report.choice.as_ref().and_then(|choice| choice.model);
    let model = model.map(|model| {
        let points = (0..=60).map(|part| 1.0 + (last - 1.0).max(0.0) * f64::from(part) / 60.0);
        points.map(|workers| (workers, model.at(workers))).collect()
    });
    let best = report
        .sweep
        .iter()
        .map(|(_, rate)| *rate)
        .fold(0.0, f64::max);
    let chosen = report
        .choice
        .as_ref()
        .map(|choice| f64::from(choice.workers));
    let chosen = chosen.map(|workers| vec![(workers, 0.0), (workers, best)]);
    let curves = [
        curve("measured", 'a', report.sweep.clone()),
        curve("universal scalability law", 'b', model.unwrap_or_default()),
        curve("chosen", 'c', chosen.unwrap_or_default()),
    ];
    chart(
        "Requests a second by busy workers",
        &curves,
        numbers,
        words::digits,
    )
}

fn latencies(report: &Report) -> String {
    let points = |before: bool| {
        let tries = report.rates.iter();
        let of = tries.filter(|of: &&Try| (of.setting == Setting::AsItWas) == before);
        let slow = |of: &Try| of.p99.or(of.p90).or(of.p50);
        let mut points: Vec<(f64, f64)> = of.filter_map(|of| Some((of.rate, slow(of)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let goal = report
        .goal
        .as_deref()
        .and_then(|text| crate::course::goal::Goal::read(text).ok());
    let most = report.rates.iter().map(|of| of.rate).fold(0.0, f64::max);
    let goal = goal.map(|goal| vec![(0.0, goal.limit()), (most, goal.limit())]);
    let curves = [
        curve("as proposed", 'a', points(false)),
        curve("as it was", 'b', points(true)),
        curve("goal", 'c', goal.unwrap_or_default()),
    ];
    chart(
        "Latency by rate (p99, or what the samples carry)",
        &curves,
        numbers,
        words::duration,
    )
}

fn spectrum(report: &Report) -> String {
    let points = |of: &[(f64, f64)]| of.iter().map(|(at, value)| (nines(*at), *value)).collect();
    let curves = [
        curve("as proposed", 'a', points(&report.spectrums.1)),
        curve("as it was", 'b', points(&report.spectrums.0)),
    ];
    chart(
        "Latency by percentile in the last pair",
        &curves,
        percentiles,
        words::duration,
    )
}

/// One bar: what a request's time is made of.
fn split(report: &Report) -> String {
    let Some(alone) = &report.alone else {
        return String::new();
    };
    let (Some(mean), Some(cpu)) = (alone.mean, alone.cpu) else {
        return String::new();
    };
    let queue = alone.core_wait.unwrap_or(0.0);
    let parts = [
        ("processor", "#2f7ed8", cpu),
        ("run queue", "#c0392b", queue),
        ("waiting", "#e08e0b", (mean - cpu - queue).max(0.0)),
    ];
    let all: f64 = parts.iter().map(|(_, _, seconds)| seconds).sum();
    let mut svg = "<h2>A request's time</h2>\n<svg viewBox=\"0 0 860 50\" role=\"img\">".to_owned();
    let mut x = 0.0;
    for (name, colour, seconds) in parts {
        let width = seconds / all.max(1e-9) * 860.0;
        let label = format!("{name} {}", words::duration(seconds));
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"26\" fill=\"{colour}\">\
             <title>{label}</title></rect>"
        );
        if width > 90.0 {
            let _ = write!(svg, "<text x=\"{:.1}\" y=\"44\">{label}</text>", x + 4.0);
        }
        x += width;
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_a_chart_are_round_and_few() {
        let found: Vec<String> = numbers(130.0).into_iter().map(|(_, text)| text).collect();
        assert_eq!(found, ["0", "20", "40", "60", "80", "100", "120"]);
        assert!(numbers(0.0).len() <= 11);
    }
}
