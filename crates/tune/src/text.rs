//! The report for people.

use maitred_text::humanize;

use crate::course::proof::ComparisonRow;
use crate::report::Report;
use crate::settings::Recommendation;
use crate::usl::Model;

/// How wide the names at the left are.
const NAME: usize = 16;

/// From so many times on a ratio is no percentage any more.
const MANY_TIMES: f64 = 3.0;

/// What a server of ours may say too much of PHP's memory, as a share (`PeakMemory`).
const COUNTED_TOO_MUCH: f64 = 0.125;

/// How wide a bar is at most.
const BAR: f64 = 30.0;

/// The report as lines.
pub fn lines(report: &Report) -> Vec<String> {
    let mut lines = vec![format!("maitred tune: {}", report.subject)];
    if report.indicative {
        lines.push("INDICATIVE: little time was given; figures show the direction only".to_owned());
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
    comparison("new beside old", &report.proof, &mut lines);
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

/// What there was no time for.
pub(crate) fn left_out(report: &Report) -> Vec<String> {
    let all = report.left_out.iter();
    all.map(|what| format!("{what}: there was no time for it (--time 10m has it)"))
        .collect()
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
        "{} processors ({} logical{}) · memory {} ({}) · others use {}",
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
        "at rest: {} in use · tasks wait for a processor {} of the time, for memory {}, all of them {}",
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
    let floor = floor.map_or("unknown".to_owned(), |floor| {
        format!("±{:.1} % (A/A)", floor * 100.0)
    });
    let text = format!(
        "{}; generator on the same machine; noise floor {floor}",
        report.load
    );
    named("load", &text, lines);
    named("before", &report.before.words(), lines);
    if let Some(goal) = &report.goal {
        let is_timed = report
            .alone
            .as_ref()
            .is_some_and(|alone| alone.mean.is_some());
        let from = match (report.goal_given, is_timed) {
            (true, _) => "given",
            (false, true) => "made from what one request takes alone",
            (false, false) => "made from how often one user alone was served",
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
        parts.map_or("n/a".to_owned(), |parts| humanize::digits(parts.share())),
        crowded(report),
    );
    named("per request", &text, lines);
    routes(report, lines);
    let text = format!(
        "private p50 {} · p95 {} · at most {} at any moment · shared once {} · RSS {} (which guides would use)",
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
            "processor {} until its first request · the first request after a reload {} · the second {}",
            time(boot.cpu),
            humanize::duration(boot.first),
            time(boot.second)
        );
        named("start", &text, lines);
    }
    let growth = match &report.growth {
        Some(slope) if slope.leaks() => {
            format!(
                "grows by {} with each request",
                humanize::bytes(slope.bytes)
            )
        }
        Some(slope) => format!(
            "no leak visible in {:.0} requests of each worker",
            slope.requests
        ),
        None => "not seen for long enough to say".to_owned(),
    };
    named("growth", &growth, lines);
}

/// What PHP itself counts, and what it does not.
fn counted(report: &Report) -> String {
    match (report.counted, report.uncounted) {
        (Some(counted), beside) if report.counted_since_start => since_start(counted, beside),
        (Some(counted), Some(0.0)) => format!(
            "PHP itself counts {} of its largest script, by what it reserves; its worker has used no more",
            humanize::bytes(counted)
        ),
        (Some(counted), Some(beside)) => format!(
            "PHP itself counts {} of its largest script; its worker had {} beside that",
            humanize::bytes(counted),
            humanize::bytes(beside)
        ),
        _ => format!(
            "what PHP itself counts of a script cannot be told: {}",
            report.not_counted.as_deref().unwrap_or("nobody said so")
        ),
    }
}

/// What a server of ours counts, and what a worker had beside that as far as it is more than may be counted too much.
fn since_start(counted: f64, beside: Option<f64>) -> String {
    let beside = beside.filter(|beside| *beside >= counted * COUNTED_TOO_MUCH);
    let beside = beside.map_or(String::new(), |beside| {
        format!(
            "; the largest worker had {} beside that",
            humanize::bytes(beside)
        )
    });
    format!(
        "PHP itself counts {} at most for 99 of 100 scripts since the server's start{beside}",
        humanize::bytes(counted)
    )
}

/// The run queue where as many users are served as were chosen.
fn crowded(report: &Report) -> String {
    let Some((users, wait)) = report.crowded else {
        return String::new();
    };
    format!(" · run queue {} at N = {users}", humanize::duration(wait))
}

/// A row for each route.
fn routes(report: &Report, lines: &mut Vec<String>) {
    if report.routes.is_empty() {
        return;
    }
    let heading =
        "  share   answer  processor  run queue  waiting     u      size      peak  beside PHP's";
    named("per route", heading, lines);
    for route in &report.routes {
        let seen = &route.seen;
        let parts = seen.parts();
        let text = format!(
            "{:>6} {:>8} {:>10} {:>10} {:>8} {:>5} {:>9} {:>9} {:>13}  {}",
            percent(Some(route.share)),
            time(seen.mean),
            time(seen.cpu),
            time(seen.core_wait),
            time(parts.map(|parts| parts.waiting)),
            parts.map_or("n/a".to_owned(), |parts| humanize::digits(parts.share())),
            bytes(seen.bytes),
            bytes(seen.peak),
            bytes(seen.uncounted()),
            route.name,
        );
        named("", &text, lines);
    }
}

/// What more workers cost.
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
            "{} pairs count; {} were made again, since others used the processors",
            report.pairs, report.repeated_pairs
        );
        named("pairs", &text, lines);
    }
}

/// What becomes of more than the highest rate.
fn overload(report: &Report, lines: &mut Vec<String>) {
    for beyond in &report.overload {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let told = beyond.with_retry_after.map_or(String::new(), |told| {
            format!(", {} of them with Retry-After", percent(told))
        });
        let slow = match (beyond.p99, beyond.slow) {
            (Some(p99), _) => format!("p99 {}", humanize::duration(p99)),
            (None, Some(slow)) => format!("the slowest {}", humanize::duration(slow)),
            (None, None) => "nothing served".to_owned(),
        };
        let recovery = beyond
            .recovery
            .map_or("none".to_owned(), humanize::duration);
        let text = format!(
            "{}/s: in time {} of the highest rate · {slow} · refused {}{told} · without an answer {} · processor \
             {} for each answer (alone {}) · at rest after {recovery}",
            humanize::digits(beyond.asked),
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
    let best = report
        .sweep
        .iter()
        .map(|(_, rate)| *rate)
        .fold(0.0, f64::max);
    let model = report.choice.as_ref().and_then(|choice| choice.model);
    for (place, (workers, rate)) in report.sweep.iter().enumerate() {
        let bar = "█".repeat((rate / best.max(1e-9) * BAR).round() as usize);
        let fit = model.map_or(String::new(), |model| {
            format!("  (USL {})", humanize::digits(model.at(*workers)))
        });
        let text = format!(
            "{workers:>4} busy {:>9}/s {bar}{fit}",
            humanize::digits(*rate)
        );
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
                match choice.models.is_empty() {
                    true => String::new(),
                    false => format!(" [{low:.digits$}, {high:.digits$}]"),
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
            "memory {} ({}) · knee K/u {} · Kneedle {} · demand at the highest rate {} · downstream {} · USL \
             {model}",
            ceiling.workers,
            ceiling.why,
            or_none(choice.knee),
            or_none(choice.bend),
            or_none(report.demand),
            downstream(report),
        );
        named("limits", &text, lines);
        let text = format!(
            "static, {} workers; binding: {}",
            choice.workers, choice.binding
        );
        named("choice", &text, lines);
        if let Some(further) = &report.further {
            named("to go further", further, lines);
        }
    }
    let rate = |value: Option<f64>| {
        value.map_or("none".to_owned(), |rate| {
            format!("{}/s", humanize::digits(rate))
        })
    };
    if !report.rates.is_empty() {
        let text = format!(
            "{}{} (before: {})",
            rate(report.rate_after),
            if report.rate_lasts {
                ", and it lasts"
            } else {
                ""
            },
            rate(report.rate_before)
        );
        named("highest rate", &text, lines);
    }
}

fn downstream(report: &Report) -> String {
    let known = report.downstream.as_ref();
    known.map_or("none known".to_owned(), |(name, most)| {
        format!("{most} ({name})")
    })
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
        lines.push(format!(
            "{} {} = {}  ({proven})",
            line.server.name(),
            line.name,
            line.value
        ));
        lines.push(format!("  measured  {}", line.measured));
        lines.push(format!("  formula   {}", line.formula));
        lines.push(format!(
            "  guides    {} [{}]",
            line.guide,
            line.rules.join(" ")
        ));
        lines.push(format!("  why       {}", line.why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_of_ours_counts_is_of_all_scripts_and_less_than_its_error_is_not_told_beside_it()
     {
        let of = |beside| since_start(80e6, Some(beside * 1e6));
        let counted =
            "PHP itself counts 80 MB at most for 99 of 100 scripts since the server's start";
        assert_eq!(of(9.0), counted);
        assert_eq!(since_start(80e6, None), counted);
        assert_eq!(
            of(11.0),
            format!("{counted}; the largest worker had 11 MB beside that")
        );
    }
}
