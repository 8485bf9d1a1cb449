//! A report as one HTML file: charts as SVG, nothing that is loaded from elsewhere.

use std::fmt::Write as _;

use crate::report::Report;
use crate::series::Second;
use crate::text;
use crate::words;

/// The size of a chart, and the room beside it for its axes.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 12.0;

/// How many lines an axis has.
const TICKS: u32 = 5;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2330;--soft:#66708a;--line:#d8dce6;--paper:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9f0;--soft:#98a2b8;--line:#363d4d;--paper:#151922}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:920px;\
margin:2rem auto;padding:0 1rem}pre{overflow-x:auto;font-size:13px;line-height:1.35}\
svg{width:100%;height:auto}text{fill:var(--soft);font:11px system-ui,sans-serif}\
.grid{stroke:var(--line);stroke-width:1}h2{font-size:1.05rem;margin:1.6rem 0 .3rem}\
.bad{color:#c0392b;font-weight:600}.a{stroke:#2f7ed8;fill:none;stroke-width:1.8}\
.b{stroke:#e08e0b;fill:none;stroke-width:1.8}.c{stroke:#c0392b;fill:none;stroke-width:1.8}\
.key{font-size:13px;color:var(--soft)}.key b{font-weight:600}\
.ka{color:#2f7ed8}.kb{color:#e08e0b}.kc{color:#c0392b}";

/// One line of a chart.
struct Curve<'a> {
    name: &'a str,
    class: char,
    points: Vec<(f64, f64)>,
}

/// How a figure is written beside an axis.
type Label = fn(f64) -> String;

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

/// Percentiles on a scale on which each nine takes the same room.
fn spectrum(report: &Report) -> String {
    let nines = |percentile: f64| -(1.0 - percentile / 100.0).log10();
    let points = |of: fn(&crate::report::Point) -> Option<f64>| {
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
    let percentile = |nines: f64| {
        let percentile = 100.0 - 100.0 / 10_f64.powf(nines);
        format!("{} %", words::number((percentile * 1e4).round() / 1e4))
    };
    chart(
        "Latency by percentile",
        &curves,
        percentile,
        words::duration,
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
        words::duration,
        words::duration,
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
        words::duration,
        words::digits,
    )
}

fn curve(name: &str, class: char, points: Vec<(f64, f64)>) -> Curve<'_> {
    Curve {
        name,
        class,
        points,
    }
}

fn chart(title: &str, curves: &[Curve<'_>], x_label: Label, y_label: Label) -> String {
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
        let (at_x, at_y) = (x(share * x_most), y(share * y_most));
        let right = WIDTH - 20.0;
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at_y:.1}\" y2=\"{at_y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{at_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            LEFT - 8.0,
            at_y + 4.0,
            escape(&y_label(share * y_most)),
            HEIGHT - 12.0,
            escape(&x_label(share * x_most)),
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

fn escape(text: &str) -> String {
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
        let svg = chart("Latency", &curves, words::duration, words::duration);
        assert!(
            svg.contains("p50 &lt;b&gt;") && svg.contains(">2.1 s<"),
            "{svg}"
        );
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
        assert_eq!(chart("Nothing", &[], words::duration, words::duration), "");
    }
}
