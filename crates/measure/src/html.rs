//! A report as one HTML file: charts as SVG, nothing that is loaded from elsewhere.

use std::fmt::Write as _;

use crate::report::Report;
use crate::series::Second;
use crate::text;
use maitred_text::humanize;

/// The size of a chart, and the room beside it for its axes.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 12.0;

/// How many lines the upright axis has.
const TICKS: u32 = 5;

/// Most times that are written below a chart.
const MOST_TIMES: f64 = 8.0;

/// How far they may lie apart, in seconds.
const STEPS: [f64; 14] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 21_600.0,
    86_400.0,
];

/// The percentiles that are written below a chart.
const PERCENTILES: [f64; 9] = [0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];

/// The look of pages with charts.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2330;--soft:#66708a;--line:#d8dce6;--paper:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9f0;--soft:#98a2b8;--line:#363d4d;--paper:#151922}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:920px;\
margin:2rem auto;padding:0 1rem}pre{white-space:pre-wrap;font-size:13px;line-height:1.35}\
svg{width:100%;height:auto}text{fill:var(--soft);font:11px system-ui,sans-serif}\
.grid{stroke:var(--line);stroke-width:1}h2{font-size:1.05rem;margin:1.6rem 0 .3rem}\
.bad{color:#c0392b;font-weight:600}.a{stroke:#2f7ed8;fill:none;stroke-width:1.8}\
.b{stroke:#e08e0b;fill:none;stroke-width:1.8}.c{stroke:#c0392b;fill:none;stroke-width:1.8}\
.key{font-size:13px;color:var(--soft)}.key b{font-weight:600}\
.ka{color:#2f7ed8}.kb{color:#e08e0b}.kc{color:#c0392b}";

/// One line of a chart.
#[derive(Debug, Clone)]
pub struct Curve<'a> {
    name: &'a str,
    class: char,
    points: Vec<(f64, f64)>,
}

/// How a figure is written beside an axis.
pub type Label = fn(f64) -> String;

/// What is written below a chart that ends there, and where.
pub type Below = fn(f64) -> Vec<(f64, String)>;

/// The page.
pub fn page(report: &Report) -> String {
    let title = escape(&format!("maitred bench {}", report.run.url));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style>\n\
         <h1>{title}</h1>\n"
    );
    for why in &report.invalid_because {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "<p class=\"bad\">Invalid: {}</p>", escape(why));
    }
    if report.partial {
        page.push_str("<p class=\"bad\">Partial: the run was ended before its time.</p>\n");
    }
    let table = text::lines(report).join("\n");
    let _ = writeln!(page, "<pre>{}</pre>", escape(&table));
    page.push_str(&spectrum(report));
    page.push_str(&latency_over_time(&report.series));
    page.push_str(&rate_over_time(&report.series));
    page.push_str("</html>\n");
    page
}

/// Where a percentile lies on a scale on which each nine takes the same room.
pub fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// The percentiles up to so many nines.
pub fn percentiles(most: f64) -> Vec<(f64, String)> {
    let within = PERCENTILES.into_iter();
    let within = within.filter(|percentile| nines(*percentile) <= most + 1e-9);
    within
        .map(|percentile| {
            (
                nines(percentile),
                format!("{} %", humanize::number(percentile)),
            )
        })
        .collect()
}

/// Round times up to so many seconds.
fn times(most: f64) -> Vec<(f64, String)> {
    let mut steps = STEPS.into_iter();
    let step = steps.find(|step| most / step <= MOST_TIMES);
    let step = step.unwrap_or(most / MOST_TIMES);
    // A small number.
    let count = (most / step) as u32;
    let times = (0..=count).map(|number| f64::from(number) * step);
    times
        .map(|time| (time, at(time, humanize::duration)))
        .collect()
}

/// Nothing has no unit.
fn at(value: f64, label: Label) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else {
        label(value)
    }
}

fn spectrum(report: &Report) -> String {
    let points = |of: fn(&crate::report::SpectrumPoint) -> Option<f64>| {
        let points = report.spectrum.iter();
        points
            .filter_map(|point| Some((nines(point.percentile), of(point)?)))
            .collect()
    };
    let curves = [
        curve(
            "corrected: from when it was due",
            'a',
            points(|point| point.corrected),
        ),
        curve(
            "service: from when it was sent",
            'b',
            points(|point| point.service),
        ),
    ];
    chart(
        "Latency by percentile",
        &curves,
        percentiles,
        humanize::duration,
    )
}

fn latency_over_time(series: &[Second]) -> String {
    let points = |of: fn(&Second) -> Option<f64>| {
        let seconds = series.iter();
        seconds
            .filter_map(|second| Some((second.number as f64, of(second)?)))
            .collect()
    };
    let curves = [
        curve("p50", 'a', points(|second| second.p50)),
        curve("p99", 'b', points(|second| second.p99)),
        curve("longest", 'c', points(|second| second.max)),
    ];
    chart(
        "Latency of served requests over time",
        &curves,
        times,
        humanize::duration,
    )
}

fn rate_over_time(series: &[Second]) -> String {
    let points = |of: fn(&Second) -> u64| {
        let seconds = series.iter();
        seconds
            .map(|second| (second.number as f64, of(second) as f64))
            .collect()
    };
    let curves = [
        curve("served", 'a', points(|second| second.served)),
        curve("sent", 'b', points(|second| second.sent)),
        curve(
            "not served",
            'c',
            points(|second| second.ended() - second.served),
        ),
    ];
    chart(
        "Requests a second over time",
        &curves,
        times,
        humanize::digits,
    )
}

/// A line with its name, its class (`a`, `b` or `c`: its colour) and its points.
pub fn curve(name: &str, class: char, points: Vec<(f64, f64)>) -> Curve<'_> {
    Curve {
        name,
        class,
        points,
    }
}

/// A chart as SVG, from zero to the most of both axes; nothing for fewer than two points.
pub fn chart(title: &str, curves: &[Curve<'_>], below: Below, y_label: Label) -> String {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    if all().count() < 2 {
        return String::new();
    }
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max).max(1e-9);
    let (x_most, y_most) = (most(|point| point.0), most(|point| point.1) * 1.05);
    let x = |value: f64| LEFT + value / x_most * (WIDTH - LEFT - 20.0);
    let y = |value: f64| HEIGHT - BOTTOM - value / y_most * (HEIGHT - BOTTOM - TOP);
    let mut svg = format!("<h2>{title}</h2>\n<div class=\"key\">");
    for curve in curves {
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            svg,
            "<b class=\"k{}\">— {}</b> ",
            curve.class,
            escape(curve.name)
        );
    }
    let _ = write!(
        svg,
        "</div>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
    );
    for tick in 0..=TICKS {
        let share = f64::from(tick) / f64::from(TICKS);
        let at_y = y(share * y_most);
        let right = WIDTH - 20.0;
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at_y:.1}\" y2=\"{at_y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at_y + 4.0,
            escape(&at(share * y_most, y_label)),
        );
    }
    for (value, label) in below(x_most) {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(value),
            HEIGHT - 12.0,
            escape(&label),
        );
    }
    for curve in curves {
        let points = curve.points.iter();
        let points: Vec<String> = points
            .map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value)))
            .collect();
        let (class, points) = (curve.class, points.join(" "));
        let _ = write!(svg, "<polyline class=\"{class}\" points=\"{points}\"/>");
    }
    svg.push_str("</svg>\n");
    svg
}

/// A text as HTML has it.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_stays_within_its_frame_and_names_its_curves() {
        let curves = [
            curve("p50 <b>", 'a', vec![(0.0, 0.1), (9.0, 0.4)]),
            curve("p99", 'b', vec![(3.0, 2.0)]),
        ];
        let svg = chart("Latency", &curves, times, humanize::duration);
        assert!(
            svg.contains("p50 &lt;b&gt;") && svg.contains(">2.1 s<"),
            "{svg}"
        );
        for label in [">0<", ">2 s<", ">8 s<"] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
        let names = |below: Vec<(f64, String)>| below.into_iter().map(|(_, name)| name).collect();
        let below: Vec<String> = names(times(100.0));
        assert_eq!(
            below.last().map(String::as_str),
            Some(humanize::duration(90.0).as_str())
        );
        let below: Vec<String> = names(percentiles(nines(99.0)));
        assert_eq!(below, ["0 %", "50 %", "75 %", "90 %", "95 %", "99 %"]);
        let points = svg.split("points=\"").skip(1);
        for points in points.map(|rest| rest.split('"').next().unwrap_or_default()) {
            for point in points.split(' ') {
                let (x, y) = point.split_once(',').expect("a point");
                let (x, y): (f64, f64) = (x.parse().expect("x"), y.parse().expect("y"));
                assert!(
                    (LEFT..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y),
                    "{point}"
                );
            }
        }
        assert_eq!(chart("Nothing", &[], times, humanize::duration), "");
    }
}
