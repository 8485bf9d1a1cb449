//! The report as text.

use maitred_text::humanize;

use crate::course::profile::RouteProfile;
use crate::course::proof::ComparisonRow;
use crate::measurement::Measurement;
use crate::report::Report;
use crate::settings::Recommendation;
use crate::usl::Model;

/// Width of the names at the left.
const NAME: usize = 16;

/// From this factor on a ratio is not printed as a percentage.
const MANY_TIMES: f64 = 3.0;

/// By which share maitred may overestimate PHP's memory (`PeakMemory`).
const COUNTED_TOO_MUCH: f64 = 0.125;

/// Width of the longest bar.
const BAR: f64 = 30.0;

/// The report as lines.
pub fn lines(report: &Report) -> Vec<String> {
    let mut lines = vec![format!("maitred tune: {}", report.subject)];
    if report.indicative {
        lines.push("INDICATIVE: little time was given; results show the direction only".to_owned());
    }
    for trouble in &report.despite_noise {
        lines.push(format!("DESPITE NOISE: {trouble}"));
    }
    lines.push(String::new());
    machine(report, &mut lines);
    each(report, &mut lines);
    curve(report, &mut lines);
    choice(report, &mut lines);
    comparison("A/A noise", &report.noise, &mut lines);
    comparison("new vs. old", &report.proof, &mut lines);
    cost(report, &mut lines);
    overload(report, &mut lines);
    several("consistency", &report.consistency, &mut lines);
    several("left out", &left_out(report), &mut lines);
    several("not proven", &report.not_proven, &mut lines);
    settings(&report.settings, &mut lines);
    lines.push(String::new());
    named("verdict", &report.conclusion, &mut lines);
    if let Some(written) = &report.written {
        named("", written, &mut lines);
    }
    lines
}

fn named(name: &str, text: &str, lines: &mut Vec<String>) {
    lines.push(format!("{name:NAME$}{text}"));
}

fn several(name: &str, texts: &[String], lines: &mut Vec<String>) {
    for (place, text) in texts.iter().enumerate() {
        named(if place == 0 { name } else { "" }, text, lines);
    }
}

/// What was skipped for lack of time.
pub(crate) fn left_out(report: &Report) -> Vec<String> {
    let all = report.left_out.iter();
    all.map(|what| format!("{what}: there was no time for it (--time 10m includes it)")).collect()
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or("n/a".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

pub(crate) fn time(seconds: Option<f64>) -> String {
    seconds.map_or("n/a".to_owned(), humanize::duration)
}

pub(crate) fn bytes(value: Option<f64>) -> String {
    value.map_or("n/a".to_owned(), humanize::bytes)
}

fn machine(report: &Report, lines: &mut Vec<String>) {
    let machine = &report.machine;
    let quota = machine.quota.as_ref();
    let text = format!(
        "{} processors ({} logical{}) · memory {} ({}) · other processes use {}",
        humanize::digits(machine.cores),
        machine.processors,
        quota.map_or(String::new(), |quota| format!(", quota {quota}")),
        bytes(machine.memory),
        machine.memory_from,
        percent(machine.background),
    );
    named("machine", &text, lines);
    let waits = machine.stalls;
    let text = format!(
        "without load: {} in use · tasks wait for a processor {} of the time, for memory {}, all \
         of them {}",
        bytes(machine.in_use),
        percent(waits.cpu),
        percent(waits.memory),
        percent(waits.all_for_memory),
    );
    named("", &text, lines);
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let text = format!(
        "Linux {} · PHP {} · {} · {}",
        or_unknown(&machine.kernel),
        or_unknown(&machine.php),
        machine.opcache,
        or_unknown(&machine.model),
    );
    named("", &text, lines);
    let floor = report.noise_floor;
    let floor =
        floor.map_or("unknown".to_owned(), |floor| format!("±{:.1} % (A/A)", floor * 100.0));
    let text = format!("{}; generator on the same machine; noise floor {floor}", report.load);
    named("load", &text, lines);
    named("before", &report.before.words(), lines);
    if let Some(goal) = &report.goal {
        let is_timed = report.alone.as_ref().is_some_and(|alone| alone.mean.is_some());
        let from = match (report.goal_given, is_timed) {
            (true, _) => "given",
            (false, true) => "derived from the latency of one user alone",
            (false, false) => "derived from the throughput of one user alone",
        };
        named("goal", &format!("{goal} ({from})"), lines);
    }
}

fn each(report: &Report, lines: &mut Vec<String>) {
    let Some(alone) = &report.alone else { return };
    let parts = alone.parts();
    let text = format!(
        "{} alone: processor {} · run queue {} · waiting {} · u {}{}",
        time(alone.mean),
        time(alone.cpu),
        time(alone.core_wait),
        time(parts.map(|parts| parts.waiting)),
        processor_share(alone),
        crowded(report),
    );
    named("per request", &text, lines);
    routes(report, lines);
    let text = format!(
        "private p50 {} · p95 {} · at most {} at any moment · shared once {} · RSS {} (which \
         guides would use)",
        bytes(report.typical),
        bytes(report.private),
        bytes(report.peak),
        bytes(report.shared),
        bytes(report.resident)
    );
    named("per worker", &text, lines);
    named("", &counted(report), lines);
    if let Some(boot) = &report.boot {
        let text = format!(
            "processor {} until its first request · the first request after a reload {} · the \
             second {}",
            time(boot.cpu),
            humanize::duration(boot.first),
            time(boot.second)
        );
        named("start", &text, lines);
    }
    let growth = match &report.growth {
        Some(slope) if slope.leaks() => {
            format!("grows by {} with each request", humanize::bytes(slope.bytes))
        }
        Some(slope) => format!("no leak visible in {:.0} requests of each worker", slope.requests),
        None => "not measured for long enough".to_owned(),
    };
    named("growth", &growth, lines);
}

/// PHP's memory count, and the memory beyond it.
fn counted(report: &Report) -> String {
    match (report.counted, report.uncounted) {
        (Some(counted), beside) if report.counted_since_start => since_start(counted, beside),
        (Some(counted), Some(0.0)) => format!(
            "PHP counts {} for its largest script, by reservation; its worker has used no more",
            humanize::bytes(counted)
        ),
        (Some(counted), Some(beside)) => format!(
            "PHP counts {} for its largest script; its worker had {} in addition",
            humanize::bytes(counted),
            humanize::bytes(beside)
        ),
        _ => format!(
            "PHP's memory count of a script is not known: {}",
            report.not_counted.as_deref().unwrap_or("no report")
        ),
    }
}

/// maitred's count, and the memory of a worker beyond it, unless the count's error may explain
/// that.
fn since_start(counted: f64, beside: Option<f64>) -> String {
    let beside = beside.filter(|beside| *beside >= counted * COUNTED_TOO_MUCH);
    let beside = beside.map_or(String::new(), |beside| {
        format!("; the largest worker had {} in addition", humanize::bytes(beside))
    });
    format!(
        "PHP counts at most {} for 99 of 100 scripts since the server's start{beside}",
        humanize::bytes(counted)
    )
}

/// The run queue time with as many users as workers were chosen.
fn crowded(report: &Report) -> String {
    let Some((users, wait)) = report.crowded else {
        return String::new();
    };
    format!(" · run queue {} at N = {users}", humanize::duration(wait))
}

/// Columns of a route's row: heading, width, and value.
type RouteColumn = (&'static str, usize, fn(&RouteProfile) -> String);

/// The columns of the table of routes.
pub(crate) const ROUTE_COLUMNS: [RouteColumn; 9] = [
    ("share", 6, |route| percent(Some(route.share))),
    ("response", 8, |route| time(route.seen.mean)),
    ("processor", 10, |route| time(route.seen.cpu)),
    ("run queue", 10, |route| time(route.seen.core_wait)),
    ("waiting", 8, |route| time(route.seen.parts().map(|parts| parts.waiting))),
    ("u", 5, |route| processor_share(&route.seen)),
    ("size", 9, |route| bytes(route.seen.bytes)),
    ("peak", 9, |route| bytes(route.seen.peak)),
    ("beyond PHP's", 13, |route| bytes(route.seen.uncounted())),
];

/// The share of its own time that a request computes.
fn processor_share(seen: &Measurement) -> String {
    let parts = seen.parts();
    parts.map_or("n/a".to_owned(), |parts| humanize::digits(parts.share()))
}

/// A row for each route.
fn routes(report: &Report, lines: &mut Vec<String>) {
    if report.routes.is_empty() {
        return;
    }
    let row = |cell: &dyn Fn(&RouteColumn) -> String| {
        let cells = ROUTE_COLUMNS.iter();
        let cells = cells.map(|column| format!("{:>width$}", cell(column), width = column.1));
        cells.collect::<Vec<_>>().join(" ")
    };
    named("per route", &row(&|column| column.0.to_owned()), lines);
    for route in &report.routes {
        let cells = row(&|column| column.2(route));
        named("", &format!("{cells}  {}", route.name), lines);
    }
}

/// The cost of more workers.
fn cost(report: &Report, lines: &mut Vec<String>) {
    if let Some((before, after)) = report.memory {
        let text = format!(
            "{} of the workers' own (before: {})",
            humanize::bytes(after),
            humanize::bytes(before)
        );
        named("memory", &text, lines);
    }
    if let Some((before, after)) = report.errors {
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let text = format!("{} (before: {})", percent(after), percent(before));
        named("errors", &text, lines);
    }
    if report.repeated_pairs > 0 {
        let text = format!(
            "{} pairs count; {} were repeated, since other processes used the processors",
            report.pairs, report.repeated_pairs
        );
        named("pairs", &text, lines);
    }
}

/// The behaviour under overload.
fn overload(report: &Report, lines: &mut Vec<String>) {
    for beyond in &report.overload {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let retried = beyond.with_retry_after.map_or(String::new(), |retried| {
            format!(", {} of them with Retry-After", percent(retried))
        });
        let slow = match (beyond.p99, beyond.slow) {
            (Some(p99), _) => format!("p99 {}", humanize::duration(p99)),
            (None, Some(slow)) => format!("the slowest {}", humanize::duration(slow)),
            (None, None) => "nothing served".to_owned(),
        };
        let recovery = beyond.recovery.map_or("none".to_owned(), humanize::duration);
        let text = format!(
            "{}/s: in time {} of the highest rate · {slow} · refused {}{retried} · without a \
             response {} · processor {} for each response (alone {}) · idle after {recovery}",
            humanize::digits(beyond.rate),
            percent(beyond.goodput),
            percent(beyond.refused),
            percent(beyond.failed),
            time(beyond.cpu),
            time(report.alone.as_ref().and_then(|alone| alone.cpu)),
        );
        named(&format!("overload {}x", beyond.times), &text, lines);
    }
}

fn curve(report: &Report, lines: &mut Vec<String>) {
    let best = report.sweep.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let model = report.choice.as_ref().and_then(|choice| choice.model);
    for (place, (workers, rate)) in report.sweep.iter().enumerate() {
        let bar = "█".repeat((rate / best.max(1e-9) * BAR).round() as usize);
        let fit = model.map_or(String::new(), |model| {
            format!("  (USL {})", humanize::digits(model.at(*workers)))
        });
        let text = format!("{workers:>4} busy {:>9}/s {bar}{fit}", humanize::digits(*rate));
        named(if place == 0 { "throughput" } else { "" }, &text, lines);
    }
}

fn choice(report: &Report, lines: &mut Vec<String>) {
    if let (Some(ceiling), Some(choice)) = (&report.ceiling, &report.choice) {
        let or_none =
            |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.0}"));
        let model = choice.model.map_or("n/a".to_owned(), |model| {
            let range = |of: fn(&Model) -> f64, digits: usize| {
                let each = || choice.models.iter().map(of);
                let (low, high) = (each().fold(f64::MAX, f64::min), each().fold(0.0, f64::max));
                if choice.models.is_empty() {
                    String::new()
                } else {
                    format!(" [{low:.digits$}, {high:.digits$}]")
                }
            };
            format!(
                "peak {} (σ {:.4}{}, κ {:.6}{})",
                or_none(model.peak()),
                model.sigma,
                range(|model| model.sigma, 4),
                model.kappa,
                range(|model| model.kappa, 6),
            )
        });
        let text = format!(
            "memory {} ({}) · knee K/u {} · Kneedle {} · demand at the highest rate {} · \
             downstream {} · USL {model}",
            ceiling.workers,
            ceiling.why,
            or_none(choice.knee),
            or_none(choice.bend),
            or_none(report.demand),
            downstream(report),
        );
        named("limits", &text, lines);
        let text = format!("static, {} workers; binding: {}", choice.workers, choice.binding);
        named("choice", &text, lines);
        if let Some(further) = &report.further {
            named("to go further", further, lines);
        }
    }
    let rate = |value: Option<f64>| {
        value.map_or("none".to_owned(), |rate| format!("{}/s", humanize::digits(rate)))
    };
    if !report.rates.is_empty() {
        let text = format!(
            "{}{} (before: {})",
            rate(report.rate_after),
            if report.rate_lasts { ", and it lasts" } else { "" },
            rate(report.rate_before)
        );
        named("highest rate", &text, lines);
    }
}

fn downstream(report: &Report) -> String {
    let known = report.downstream.as_ref();
    known.map_or("none known".to_owned(), |(name, most)| format!("{most} ({name})"))
}

fn comparison(name: &str, rows: &[ComparisonRow], lines: &mut Vec<String>) {
    let change = |value: Option<f64>| {
        value.map_or("n/a".to_owned(), |value| match value {
            value if value >= MANY_TIMES => format!("x {}", humanize::digits(value)),
            value => format!("{:+.1} %", (value - 1.0) * 100.0),
        })
    };
    for (place, row) in rows.iter().enumerate() {
        let text = format!(
            "{:10}{:>10} [{}, {}]  {}",
            row.figure,
            change(row.ratio),
            change(row.low),
            change(row.high),
            row.verdict
        );
        named(if place == 0 { name } else { "" }, &text, lines);
    }
}

fn settings(settings: &[Recommendation], lines: &mut Vec<String>) {
    for line in settings {
        let proven = if line.is_proven { "proven" } else { "computed" };
        lines.push(String::new());
        lines.push(format!("{} {} = {}  ({proven})", line.server.name(), line.name, line.value));
        lines.push(format!("  measured  {}", line.measured));
        lines.push(format!("  formula   {}", line.formula));
        lines.push(format!("  guides    {} [{}]", line.guide, line.rules.join(" ")));
        lines.push(format!("  why       {}", line.why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maitreds_count_is_of_all_scripts_and_a_difference_below_its_error_is_left_out() {
        const MIB: f64 = 1024.0 * 1024.0;
        let of = |beside| since_start(80.0 * MIB, Some(beside * MIB));
        let counted = "PHP counts at most 80 MiB for 99 of 100 scripts since the server's start";
        assert_eq!(of(9.0), counted);
        assert_eq!(since_start(80.0 * MIB, None), counted);
        assert_eq!(of(11.0), format!("{counted}; the largest worker had 11 MiB in addition"));
    }
}
