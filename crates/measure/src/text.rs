//! The report as text.

use crate::latency::{SAMPLES_BEYOND, Summary};
use crate::outcome::Class;
use crate::report::{Report, Requests};
use maitred_text::humanize;

/// Width of the longest bar, in characters.
const BAR: usize = 40;

/// Most causes in the report.
const MAX_CAUSES: usize = 10;

/// Most URLs in the report.
const MAX_URLS: usize = 20;

/// The report as lines.
pub fn lines(report: &Report) -> Vec<String> {
    let mut lines = head(report);
    lines.push(String::new());
    lines.extend(counts(report));
    lines.push(String::new());
    lines.extend(latencies(report));
    lines.extend(causes(report));
    lines.extend(urls(report));
    lines.extend(histogram(report));
    lines.push(String::new());
    lines.extend(about_the_generator(report));
    lines.extend(about_the_server(report));
    lines.extend(verdict(report));
    lines
}

fn head(report: &Report) -> Vec<String> {
    let run = &report.run;
    let kind = if run.kind == "open" { "open loop" } else { "closed loop" };
    let mut lines = vec![
        format!("maitred bench {}", run.url),
        format!(
            "{kind}: {}; {} measured, {}, {}",
            run.load,
            humanize::duration(run.seconds),
            protocol(report),
            humanize::plural(run.threads as u64, "thread"),
        ),
    ];
    let warm_up = &report.warm_up;
    if warm_up.seconds > 0.0 {
        lines.push(format!(
            "warm-up: {}, {} sent, {} served, p50 {}; not counted below",
            humanize::duration(warm_up.seconds),
            humanize::plural(warm_up.sent, "request"),
            humanize::count(warm_up.served),
            latency(warm_up.p50),
        ));
    }
    lines
}

fn protocol(report: &Report) -> String {
    match (report.run.protocol, report.run.streams) {
        (name, 1) => name.to_owned(),
        (name, streams) => format!("{name} with {streams} streams a connection"),
    }
}

fn of_class(requests: &Requests, class: Class) -> u64 {
    match class {
        Class::Served => requests.served,
        Class::Refused => requests.refused,
        Class::Failed => requests.failed,
        Class::TimedOut => requests.timed_out,
        Class::Wrong => requests.wrong,
    }
}

fn counts(report: &Report) -> Vec<String> {
    let requests = &report.requests;
    let seconds = report.run.seconds.max(1e-9);
    let all: u64 = Class::ALL.iter().map(|class| of_class(requests, *class)).sum();
    let row = |name: &str, count: u64| {
        let rate = count as f64 / seconds;
        let share = count as f64 * 100.0 / all.max(1) as f64;
        let count = humanize::count(count);
        format!("{name:12}{count:>12}{:>12}/s{share:>9.2} %", humanize::digits(rate))
    };
    let mut lines = vec![format!("{:12}{:>12}{:>14}{:>11}", "", "REQUESTS", "RATE", "SHARE")];
    lines.extend(Class::ALL.map(|class| row(class.name(), of_class(requests, class))));
    for (name, count) in [("unsent", requests.unsent), ("cut off", requests.cut_off)] {
        if count > 0 {
            lines.push(format!("{name:12}{:>12}", humanize::count(count)));
        }
    }
    if let Some(goodput) = requests.goodput {
        lines.push(format!(
            "{:12}{:>12}{:>12}/s  served within the objective's time",
            "goodput",
            "",
            humanize::digits(goodput)
        ));
    }
    lines
}

fn latency(found: Option<f64>) -> String {
    found.map_or_else(|| "n/a".to_owned(), humanize::duration)
}

fn latencies(report: &Report) -> Vec<String> {
    let row = |name: &str, summary: &Summary, of: &str| {
        let columns = [
            summary.mean,
            summary.p50,
            summary.p90,
            summary.p99,
            summary.p99_9,
            summary.p99_99,
            summary.max,
        ];
        let columns = columns.map(|found| format!("{:>10}", latency(found)));
        format!("{name:12}{}  {of}", columns.concat())
    };
    let names = ["MEAN", "p50", "p90", "p99", "p99.9", "p99.99", "MAX"];
    let names = names.map(|name| format!("{name:>10}"));
    let mut lines = vec![
        format!("{:12}{}", "LATENCY", names.concat()),
        row("corrected", &report.corrected, "from when it was due"),
        row("service", &report.service, "from when it was sent"),
    ];
    for (class, pair) in &report.not_served {
        lines.push(row(&class.replace('_', " "), &pair.corrected, "from when it was due"));
    }
    if report.requests.served > 0 && report.corrected.p99.is_none() {
        lines.push(format!(
            "n/a: fewer than {SAMPLES_BEYOND} served requests are above that percentile; a higher \
             rate or a longer run gives more"
        ));
    }
    lines
}

fn causes(report: &Report) -> Vec<String> {
    let causes = report.causes.iter().take(MAX_CAUSES);
    let mut lines: Vec<String> = causes
        .map(|cause| {
            let name = cause.class.name();
            format!("{name:12}{:>12}  {}", humanize::count(cause.count), cause.cause)
        })
        .collect();
    if !lines.is_empty() {
        lines.insert(0, String::new());
        lines.insert(1, "NOT SERVED, BY CAUSE".to_owned());
    }
    lines
}

fn urls(report: &Report) -> Vec<String> {
    if report.urls.len() < 2 {
        return Vec::new();
    }
    let mut lines = vec![
        String::new(),
        format!("{:>10}{:>12}{:>10}{:>10}{:>10}  URL", "SERVED", "NOT SERVED", "p50", "p99", "MAX"),
    ];
    lines.extend(report.urls.iter().take(MAX_URLS).map(|url| {
        let summary = &url.corrected;
        format!(
            "{:>10}{:>12}{:>10}{:>10}{:>10}  {}",
            humanize::count(url.served),
            humanize::count(url.not_served),
            latency(summary.p50),
            latency(summary.p99),
            latency(summary.max),
            url.url
        )
    }));
    let more = report.urls.len().saturating_sub(MAX_URLS);
    if more > 0 {
        lines.push(format!("{more} more in the JSON report"));
    }
    lines
}

fn histogram(report: &Report) -> Vec<String> {
    let ranges = &report.histogram;
    let most = ranges.iter().map(|range| range.count).max().unwrap_or(0);
    if most == 0 {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "SERVED, BY LATENCY (corrected)".to_owned()];
    let last = ranges.iter().rposition(|range| range.count > 0);
    let ranges = ranges.iter().take(last.map_or(0, |last| last + 1));
    lines.extend(ranges.map(|range| {
        // At most 1 times a small number.
        let bar = (range.count as f64 / most as f64 * BAR as f64).round() as usize;
        format!(
            "{:>12}{:>12}  {}",
            format!("≤ {}", humanize::duration(range.to)),
            humanize::count(range.count),
            "█".repeat(bar)
        )
    }));
    lines
}

fn about_the_generator(report: &Report) -> Vec<String> {
    let generator = &report.generator;
    let wait = match generator.run_wait {
        Some(wait) => format!("waited {} for a processor", humanize::duration(wait)),
        None => "waits for processors unknown".to_owned(),
    };
    let each = generator
        .cpu_per_request
        .map_or(String::new(), |each| format!(" ({} a request)", humanize::duration(each)));
    let requests = &report.requests;
    vec![
        format!(
            "generator   CPU {}{each}, {:.0} % of {} processors; {wait}",
            humanize::duration(generator.cpu),
            generator.cpu_share * 100.0,
            generator.processors,
        ),
        format!(
            "lateness    p50 {}, p99 {}, max {}; {} late of {} sent",
            latency(generator.lateness.p50),
            latency(generator.lateness.p99),
            latency(generator.lateness.max),
            humanize::count(requests.late),
            humanize::count(requests.sent),
        ),
        format!(
            "connections {} opened, connect p50 {}, max {}; at most {} in flight; {} read",
            humanize::count(report.connections.made),
            latency(report.connections.connect.p50),
            latency(report.connections.connect.max),
            humanize::plural(report.connections.most_in_flight, "request"),
            humanize::bytes(requests.body_bytes as f64),
        ),
    ]
}

fn about_the_server(report: &Report) -> Option<String> {
    let watched = report.server.as_ref()?;
    let count = |found: Option<u64>, thing: &str| {
        found.map_or(format!("n/a {thing}s"), |found| humanize::plural(found, thing))
    };
    let lost = watched.lost.as_ref();
    let lost = lost.map_or(String::new(), |why| format!("; then lost: {why}"));
    let memory = watched.most_private_bytes;
    Some(format!(
        "server      at most {} busy and {} waiting; CPU {}, private memory {}{lost}",
        count(watched.most_busy, "worker"),
        count(watched.most_queue, "request"),
        latency(watched.cpu),
        memory.map_or("n/a".to_owned(), |bytes| humanize::bytes(bytes as f64)),
    ))
}

fn verdict(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for verdict in &report.slo {
        let found = match verdict.measured {
            None => "too few samples".to_owned(),
            Some(share) if verdict.condition.starts_with("error") => {
                format!("{:.3} %", share * 100.0)
            }
            Some(rate) if verdict.condition.starts_with("rate") => {
                format!("{}/s", humanize::digits(rate))
            }
            Some(seconds) => humanize::duration(seconds),
        };
        let word = if verdict.holds { "holds" } else { "MISSED" };
        lines.push(format!("{word:12}{}: {found}", verdict.condition));
    }
    lines.extend(report.warnings.iter().map(|text| format!("note        {text}")));
    lines.extend(report.invalid_because.iter().map(|why| format!("INVALID     {why}")));
    if report.partial {
        lines.push("PARTIAL     the run was stopped early".to_owned());
    }
    lines
}
