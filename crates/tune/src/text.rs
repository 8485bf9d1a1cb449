//! The report for people.

use maitred_measure::words;

use crate::course::proof::Row;
use crate::report::Report;
use crate::settings::Line;

/// How wide the names at the left are.
const NAME: usize = 16;

/// From so many times on a ratio is no percentage any more.
const MANY_TIMES: f64 = 3.0;

/// How wide a bar is at most.
const BAR: f64 = 30.0;

/// The report as lines.
pub fn lines(report: &Report) -> Vec<String> {
    let mut lines = vec![format!("maitred tune: {}", report.subject)];
    if report.indicative {
        lines.push("INDICATIVE: little time was given; figures show the direction only".to_owned());
    }
    lines.push(String::new());
    machine(report, &mut lines);
    each(report, &mut lines);
    curve(report, &mut lines);
    choice(report, &mut lines);
    comparison("A/A noise", &report.noise, &mut lines);
    comparison("new beside old", &report.proof, &mut lines);
    several("consistency", &report.consistency, &mut lines);
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

fn percent(share: Option<f64>) -> String {
    share.map_or("n/a".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or("n/a".to_owned(), words::duration)
}

fn bytes(value: Option<f64>) -> String {
    value.map_or("n/a".to_owned(), words::bytes)
}

fn machine(report: &Report, lines: &mut Vec<String>) {
    let machine = &report.machine;
    let text = format!(
        "{} processors ({} logical) · memory {} ({}) · others use {}",
        words::digits(machine.cores),
        machine.processors,
        bytes(machine.memory),
        machine.memory_from,
        percent(machine.background),
    );
    named("machine", &text, lines);
    named("load", &report.load, lines);
    named("before", &report.before.words(), lines);
    if let Some(goal) = &report.goal {
        let from = if report.goal_given {
            "given"
        } else {
            "made from what one request takes alone"
        };
        named("goal", &format!("{goal} ({from})"), lines);
    }
}

fn each(report: &Report, lines: &mut Vec<String>) {
    let Some(alone) = &report.alone else { return };
    let waits = alone
        .mean
        .zip(alone.cpu)
        .map(|(mean, cpu)| mean - cpu - alone.core_wait.unwrap_or(0.0));
    let share = alone
        .cpu
        .zip(waits)
        .map(|(cpu, waits)| cpu / (cpu + waits.max(0.0)));
    let text = format!(
        "{} alone: processor {} · run queue {} · waiting {} · u {}",
        time(alone.mean),
        time(alone.cpu),
        time(alone.core_wait),
        time(waits.map(|waits| waits.max(0.0))),
        share.map_or("n/a".to_owned(), words::digits),
    );
    named("per request", &text, lines);
    let text = format!(
        "private {} · RSS {} (which guides would use)",
        bytes(report.private),
        bytes(report.resident)
    );
    named("per worker", &text, lines);
    let growth = match &report.growth {
        Some(slope) if slope.leaks() => {
            format!("grows by {} with each request", words::bytes(slope.bytes))
        }
        Some(_) => "no leak visible".to_owned(),
        None => "not seen for long enough to say".to_owned(),
    };
    named("growth", &growth, lines);
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
            format!("  (USL {})", words::digits(model.at(*workers)))
        });
        let text = format!("{workers:>4} busy {:>9}/s {bar}{fit}", words::digits(*rate));
        named(if place == 0 { "throughput" } else { "" }, &text, lines);
    }
}

fn choice(report: &Report, lines: &mut Vec<String>) {
    if let (Some(ceiling), Some(choice)) = (&report.ceiling, &report.choice) {
        let or_none =
            |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.0}"));
        let model = choice.model.map_or("n/a".to_owned(), |model| {
            format!(
                "peak {} (σ {:.4}, κ {:.6})",
                or_none(model.peak()),
                model.sigma,
                model.kappa
            )
        });
        let text = format!(
            "memory {} ({}) · knee K/u {} · Kneedle {} · USL {model}",
            ceiling.workers,
            ceiling.why,
            or_none(choice.knee),
            or_none(choice.bend),
        );
        named("limits", &text, lines);
        let text = format!(
            "static, {} workers; binding: {}",
            choice.workers, choice.binding
        );
        named("choice", &text, lines);
    }
    let rate = |value: Option<f64>| {
        value.map_or("none".to_owned(), |rate| {
            format!("{}/s", words::digits(rate))
        })
    };
    if !report.rates.is_empty() {
        let text = format!(
            "{} (before: {})",
            rate(report.rate_after),
            rate(report.rate_before)
        );
        named("highest rate", &text, lines);
    }
}

fn comparison(name: &str, rows: &[Row], lines: &mut Vec<String>) {
    let change = |value: Option<f64>| {
        value.map_or("n/a".to_owned(), |value| match value {
            value if value >= MANY_TIMES => format!("x {}", words::digits(value)),
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

fn settings(settings: &[Line], lines: &mut Vec<String>) {
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
