//! The report as one HTML file, with the charts of `maitred bench`.

use std::fmt::Write as _;

use maitred_measure::html::{Chart, nines, percentiles, points};
use maitred_text::humanize;
use maitred_text::look::{self, escape};

use crate::course::rate_search::RateTrial;
use crate::measurement::{Measurement, Setting};
use crate::report::{Curve, Report};
use crate::text::{self, ROUTE_COLUMNS};
use crate::timeline::TimelinePoint;

/// Most numbers on an axis.
const NUMBERS: f64 = 8.0;

/// Most bars of a chart.
const BARS: usize = 20;

/// The page.
pub fn page(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail, here and below.
    for trouble in &report.despite_noise {
        let _ = writeln!(page, "<p class=\"bad\">Despite noise: {}</p>", escape(trouble));
    }
    if report.indicative {
        page.push_str("<p class=\"bad\">Indicative: little time was given.</p>\n");
    }
    let _ = writeln!(page, "<pre>{}</pre>", escape(&text::lines(report).join("\n")));
    page.push_str(&throughput(report));
    page.push_str(&latencies(report));
    page.push_str(&spectrum(report));
    page.push_str(&routes(report));
    page.push_str(&split(report));
    page.push_str(&over_time(report));
    if !report.file.is_empty() {
        let _ = writeln!(page, "<h2>Settings</h2>\n<pre>{}</pre>", escape(&difference(report)));
    }
    look::report(&format!("maitred tune: {}", report.subject), &page)
}

/// Labels of round numbers up to the maximum.
fn numbers(most: f64) -> Vec<(f64, String)> {
    let rough = (most / NUMBERS).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
    let count = (most / step) as u32;
    (0..=count)
        .map(|number| f64::from(number) * step)
        .map(|value| (value, humanize::digits(value)))
        .collect()
}

fn throughput(report: &Report) -> String {
    let last = report.sweep.last().map_or(0.0, |(workers, _)| *workers);
    let model = report.choice.as_ref().and_then(|choice| choice.model);
    let model = model.map(|model| {
        let points = (0..=60).map(|part| 1.0 + (last - 1.0).max(0.0) * f64::from(part) / 60.0);
        points.map(|workers| (workers, model.at(workers))).collect()
    });
    let around = band(report, last);
    let best = report.sweep.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let chosen = report.choice.as_ref().map(|choice| f64::from(choice.workers));
    let chosen = chosen.map(|workers| vec![(workers, 0.0), (workers, best)]);
    Chart::new("Requests a second by busy workers", numbers, humanize::digits)
        .curve("measured", 'a', report.sweep.clone())
        .curve("universal scalability law", 'b', model.unwrap_or_default())
        .curve("with one measurement left out", 'd', around.0)
        .curve("", 'd', around.1)
        .curve("chosen", 'c', chosen.unwrap_or_default())
        .svg()
}

fn latencies(report: &Report) -> String {
    let tries = |before: bool| {
        let tries = report.rates.iter();
        let of = tries.filter(|of: &&RateTrial| (of.setting == Setting::AsItWas) == before);
        let slow = |of: &RateTrial| of.p99.or(of.p90).or(of.p50);
        let mut points: Vec<(f64, f64)> = of.filter_map(|of| Some((of.rate, slow(of)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let goal = report.goal.as_deref().and_then(|text| crate::course::goal::Goal::read(text).ok());
    let most = report.rates.iter().map(|of| of.rate).fold(0.0, f64::max);
    let goal = goal.map(|goal| vec![(0.0, goal.limit()), (most, goal.limit())]);
    let title = "Latency by rate (p99, or the highest percentile with enough samples)";
    Chart::new(title, numbers, humanize::duration)
        .curve("proposed", 'a', tries(false))
        .curve("original", 'b', tries(true))
        .curve("goal", 'c', goal.unwrap_or_default())
        .svg()
}

fn spectrum(report: &Report) -> String {
    let spectrum = |of: &[(f64, f64)]| points(of, |point| nines(point.0), |point| Some(point.1));
    let title = "Latency by percentile in the last pair";
    Chart::new(title, percentiles, humanize::duration)
        .curve("proposed", 'a', spectrum(&report.spectrums.1))
        .curve("original", 'b', spectrum(&report.spectrums.0))
        .svg()
}

/// The lowest and the highest throughput of the models with one measurement left out.
fn band(report: &Report, last: f64) -> (Curve, Curve) {
    let models = report.choice.as_ref().map(|choice| &choice.models);
    let Some(models) = models.filter(|models| !models.is_empty()) else {
        return Default::default();
    };
    let at = |part: u32| 1.0 + (last - 1.0).max(0.0) * f64::from(part) / 60.0;
    let both = (0..=60).map(at).map(|workers| {
        let each = || models.iter().map(|model| model.at(workers));
        let least = each().fold(f64::MAX, f64::min);
        let most = each().fold(0.0, f64::max);
        ((workers, least), (workers, most))
    });
    both.unzip()
}

/// Bars of the parts of a request's time, for all requests and for each route.
fn split(report: &Report) -> String {
    let all = report.alone.iter().map(|seen| ("all", seen));
    let routes = report.routes.iter();
    let each = all.chain(routes.map(|route| (route.name.as_str(), &route.seen)));
    let bars: Vec<String> = each.take(BARS).filter_map(|(name, seen)| bar(name, seen)).collect();
    if bars.is_empty() {
        return String::new();
    }
    format!("<h2>A request's time</h2>\n{}", bars.join(""))
}

/// A table row for each route, measured with one user alone.
fn routes(report: &Report) -> String {
    if report.routes.is_empty() {
        return String::new();
    }
    let heading = ROUTE_COLUMNS.map(|(heading, ..)| heading).join("<th scope=\"col\">");
    let mut table = format!(
        "<h2>Each route</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"routes\"><table><tr><th scope=\"col\">route<th scope=\"col\">p95\
         <th scope=\"col\">{heading}</tr>\n"
    );
    for route in &report.routes {
        let (name, p95) = (escape(&route.name), text::time(route.seen.p95));
        let cells = ROUTE_COLUMNS.map(|(.., cell)| cell(route)).join("<td>");
        let _ = writeln!(table, "<tr><td>{name}<td>{p95}<td>{cells}</tr>");
    }
    table + "</table></div>\n"
}

fn bar(name: &str, seen: &Measurement) -> Option<String> {
    let parts = seen.parts()?;
    let parts = [
        ("processor", "cpu", parts.cpu),
        ("run queue", "core", parts.queue),
        ("waiting", "blocked", parts.waiting),
    ];
    let all: f64 = parts.iter().map(|(_, _, seconds)| seconds).sum();
    let label = parts.map(|(name, _, seconds)| format!("{name} {}", humanize::duration(seconds)));
    let mut svg = format!(
        "<div class=\"key\">{}</div>\n<svg viewBox=\"0 0 860 50\" role=\"img\" \
         aria-label=\"{}\">",
        escape(name),
        label.join(", ")
    );
    let mut x = 0.0;
    for (name, class, seconds) in parts {
        let width = seconds / all.max(1e-9) * 860.0;
        let label = format!("{name} {}", humanize::duration(seconds));
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"26\" class=\"{class}\">\
             <title>{label}</title></rect>"
        );
        if width > 90.0 {
            let _ = write!(svg, "<text x=\"{:.1}\" y=\"44\">{label}</text>", x + 4.0);
        }
        x += width;
    }
    Some(svg + "</svg>\n")
}

/// The timeline of the tuning.
fn over_time(report: &Report) -> String {
    let of = |value: fn(&TimelinePoint) -> Option<f64>| {
        points(&report.moments, |moment| moment.at, value)
    };
    let percent = |share| format!("{:.0} %", share * 100.0);
    let load = Chart::new("Requests and workers over time (s)", numbers, humanize::digits)
        .curve("served", 'a', of(|moment| Some(moment.served)))
        .curve("wait", 'b', of(|moment| Some(moment.waiting)))
        .curve("workers", 'c', of(|moment| Some(moment.workers)));
    let latency = Chart::new("Latency over time (s)", numbers, humanize::duration)
        .curve("p50", 'a', of(|moment| moment.p50))
        .curve("p99, or the longest", 'b', of(|moment| moment.p99));
    let stalled = "time in which some task waited for one";
    let processors = Chart::new("Processors over time (s)", numbers, percent)
        .curve("processors in use", 'a', of(|moment| moment.busy))
        .curve(stalled, 'c', of(|moment| moment.stalls.cpu));
    let memory = Chart::new("Memory of the machine over time (s)", numbers, humanize::bytes).curve(
        "in use",
        'a',
        of(|moment| moment.memory),
    );
    let stalled = "time in which some task waited for memory";
    let pressure = Chart::new("Memory pressure over time (s)", numbers, percent)
        .curve(stalled, 'b', of(|moment| moment.stalls.memory))
        .curve("all tasks", 'c', of(|moment| moment.stalls.all_for_memory));
    [load, latency, processors, memory, pressure].map(|chart| chart.svg()).concat()
}

/// The changed settings as a diff.
fn difference(report: &Report) -> String {
    let name =
        if report.file.contains("pm.max_children") { "pm.max_children" } else { "max_children" };
    let before = &report.before;
    let mut lines = vec![format!("- pm = {}", before.pm), format!("- {name} = {}", before.workers)];
    let file = report.file.lines();
    lines.extend(file.filter(|line| !line.is_empty()).map(|line| format!("+ {line}")));
    lines.join("\n")
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
