//! A report as one HTML file, with charts as SVG and without external resources.

use std::fmt::Write as _;

use crate::report::{Report, SpectrumPoint};
use crate::series::Second;
use crate::text;
use maitred_text::humanize;
use maitred_text::look::{self, escape};

/// The size of a chart, and the margins for its axes.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 12.0;

/// Number of lines of the vertical axis.
const TICKS: u32 = 5;

/// Most times on the horizontal axis.
const MOST_TIMES: f64 = 8.0;

/// Possible distances between them, in seconds.
const STEPS: [f64; 14] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 21_600.0,
    86_400.0,
];

/// The percentiles on the horizontal axis.
const PERCENTILES: [f64; 9] = [0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];

/// One line of a chart.
#[derive(Debug, Clone)]
struct Curve<'a> {
    name: &'a str,
    class: char,
    points: Vec<(f64, f64)>,
}

/// Formats a value of the vertical axis.
pub type FormatValue = fn(f64) -> String;

/// The labels of a horizontal axis with this maximum, and their positions.
pub type AxisLabels = fn(f64) -> Vec<(f64, String)>;

/// The page.
pub fn page(report: &Report) -> String {
    let mut page = String::new();
    for why in &report.invalid_because {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "<p class=\"bad\">Invalid: {}</p>", escape(why));
    }
    if report.partial {
        page.push_str("<p class=\"bad\">Partial: the run was stopped early.</p>\n");
    }
    let table = text::lines(report).join("\n");
    let _ = writeln!(page, "<pre>{}</pre>", escape(&table));
    page.push_str(&charts(report));
    look::report(&format!("maitred bench {}", report.run.url), &page)
}

/// The position of a percentile on a scale on which each nine has the same width.
pub fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// The labels of the percentiles up to this position.
pub fn percentiles(most: f64) -> Vec<(f64, String)> {
    let within = PERCENTILES.into_iter();
    let within = within.filter(|percentile| nines(*percentile) <= most + 1e-9);
    within
        .map(|percentile| (nines(percentile), format!("{} %", humanize::number(percentile))))
        .collect()
}

/// Labels of round times up to this many seconds.
fn times(most: f64) -> Vec<(f64, String)> {
    let mut steps = STEPS.into_iter();
    let step = steps.find(|step| most / step <= MOST_TIMES);
    let step = step.unwrap_or(most / MOST_TIMES);
    // A small number.
    let count = (most / step) as u32;
    let times = (0..=count).map(|number| f64::from(number) * step);
    times.map(|time| (time, at(time, humanize::duration))).collect()
}

/// Zero has no unit.
fn at(value: f64, label: FormatValue) -> String {
    if value == 0.0 { "0".to_owned() } else { label(value) }
}

/// The charts of a run.
fn charts(report: &Report) -> String {
    let spectrum = |of: fn(&SpectrumPoint) -> Option<f64>| {
        points(&report.spectrum, |point| nines(point.percentile), of)
    };
    let series =
        |of: fn(&Second) -> Option<f64>| points(&report.series, |second| second.number as f64, of);
    let by_percentile = Chart::new("Latency by percentile", percentiles, humanize::duration)
        .curve("corrected: from when it was due", 'a', spectrum(|point| point.corrected))
        .curve("service: from when it was sent", 'b', spectrum(|point| point.service));
    let latency = Chart::new("Latency of served requests over time", times, humanize::duration)
        .curve("p50", 'a', series(|second| second.p50))
        .curve("p99", 'b', series(|second| second.p99))
        .curve("longest", 'c', series(|second| second.max));
    let not_served = |second: &Second| Some((second.ended() - second.served) as f64);
    let rate = Chart::new("Requests a second over time", times, humanize::digits)
        .curve("served", 'a', series(|second| Some(second.served as f64)))
        .curve("sent", 'b', series(|second| Some(second.sent as f64)))
        .curve("not served", 'c', series(not_served));
    [by_percentile, latency, rate].map(|chart| chart.svg()).concat()
}

/// Points of a curve: those of `items` that have a value.
pub fn points<T>(
    items: &[T],
    x: impl Fn(&T) -> f64,
    y: impl Fn(&T) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let found = items.iter().filter_map(|item| Some((x(item), y(item)?)));
    found.collect()
}

/// A chart with lines, both axes from zero.
#[derive(Debug)]
pub struct Chart<'a> {
    title: &'a str,
    below: AxisLabels,
    label: FormatValue,
    curves: Vec<Curve<'a>>,
}

impl<'a> Chart<'a> {
    /// An empty chart with these labels of the horizontal and the vertical axis.
    pub fn new(title: &'a str, below: AxisLabels, label: FormatValue) -> Chart<'a> {
        Chart { title, below, label, curves: Vec::new() }
    }

    /// Adds a line with its name, its class (`a`, `b` or `c`: its colour) and its points.
    #[must_use]
    pub fn curve(mut self, name: &'a str, class: char, points: Vec<(f64, f64)>) -> Chart<'a> {
        self.curves.push(Curve { name, class, points });
        self
    }

    /// The chart as SVG; empty for fewer than two points.
    pub fn svg(&self) -> String {
        let all = || self.curves.iter().flat_map(|curve| &curve.points);
        if all().count() < 2 {
            return String::new();
        }
        let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max).max(1e-9);
        let (x_most, y_most) = (most(|point| point.0), most(|point| point.1) * 1.05);
        let x = |value: f64| LEFT + value / x_most * (WIDTH - LEFT - 20.0);
        let y = |value: f64| HEIGHT - BOTTOM - value / y_most * (HEIGHT - BOTTOM - TOP);
        let title = self.title;
        let mut svg = format!("<h2>{title}</h2>\n<div class=\"key\">");
        // Writing to a string cannot fail, here and below.
        for Curve { name, class, .. } in &self.curves {
            let _ = write!(svg, "<b class=\"k{class}\">— {}</b> ", escape(name));
        }
        let _ = write!(
            svg,
            "</div>\n<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{title}\">"
        );
        for tick in 0..=TICKS {
            let value = f64::from(tick) / f64::from(TICKS) * y_most;
            let (at_y, right) = (y(value), WIDTH - 20.0);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at_y:.1}\" \
                 y2=\"{at_y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                at_y + 4.0,
                escape(&at(value, self.label)),
            );
        }
        for (value, label) in (self.below)(x_most) {
            let (at_x, at_y, label) = (x(value), HEIGHT - 12.0, escape(&label));
            let _ = write!(
                svg,
                "<text x=\"{at_x:.1}\" y=\"{at_y:.1}\" text-anchor=\"middle\">{label}</text>"
            );
        }
        for Curve { class, points, .. } in &self.curves {
            let points = points.iter();
            let points = points.map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value)));
            let points = points.collect::<Vec<_>>().join(" ");
            let _ = write!(svg, "<polyline class=\"{class}\" points=\"{points}\"/>");
        }
        svg.push_str("</svg>\n");
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_stays_within_its_frame_and_names_its_curves() {
        let chart = || Chart::new("Latency", times, humanize::duration);
        let svg = chart()
            .curve("p50 <b>", 'a', vec![(0.0, 0.1), (9.0, 0.4)])
            .curve("p99", 'b', vec![(3.0, 2.0)])
            .svg();
        assert!(svg.contains("p50 &lt;b&gt;") && svg.contains(">2.1 s<"), "{svg}");
        for label in [">0<", ">2 s<", ">8 s<"] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
        let names = |below: Vec<(f64, String)>| below.into_iter().map(|(_, name)| name).collect();
        let below: Vec<String> = names(times(100.0));
        assert_eq!(below.last().map(String::as_str), Some(humanize::duration(90.0).as_str()));
        let below: Vec<String> = names(percentiles(nines(99.0)));
        assert_eq!(below, ["0 %", "50 %", "75 %", "90 %", "95 %", "99 %"]);
        let points = svg.split("points=\"").skip(1);
        for points in points.map(|rest| rest.split('"').next().unwrap_or_default()) {
            for point in points.split(' ') {
                let (x, y) = point.split_once(',').expect("a point");
                let (x, y): (f64, f64) = (x.parse().expect("x"), y.parse().expect("y"));
                assert!((LEFT..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{point}");
            }
        }
        assert_eq!(chart().svg(), "");
    }
}
