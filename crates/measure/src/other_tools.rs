//! A report in the words of other load generators. Their latencies start when a request is sent.

use crate::report::Report;
use maitred_text::humanize;

/// A load generator that `--as` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Tool {
    Ab,
    Siege,
    Wrk,
    Locust,
    Blitz,
    K6,
}

/// Writes a tool's summary of a report.
type Summarise = fn(&Report, &Stats) -> Vec<String>;

/// Each tool with its name on the command line, and its summary.
const TOOLS: [(Tool, &str, Summarise); 6] = [
    (Tool::Ab, "ab", ab),
    (Tool::Siege, "siege", siege),
    (Tool::Wrk, "wrk", wrk),
    (Tool::Locust, "locust", locust),
    (Tool::Blitz, "blitz", blitz),
    (Tool::K6, "k6", k6),
];

impl Tool {
    /// The tool of this name.
    pub fn named(name: &str) -> Option<Tool> {
        let found = TOOLS.iter().find(|(_, known, _)| *known == name);
        found.map(|(tool, ..)| *tool)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        TOOLS[self as usize].1
    }
}

/// The report in the tool's words, as lines.
pub fn lines(tool: Tool, report: &Report) -> Vec<String> {
    TOOLS[tool as usize].2(report, &Stats::of(report))
}

/// A report's numbers, as these tools count them.
struct Stats {
    seconds: f64,
    answered: u64,
    served: u64,
    not_served: u64,
    all: u64,
    timed_out: u64,
    mean: f64,
    min: f64,
    max: f64,
    deviation: f64,
    megabytes: f64,
    users: usize,
    /// Served requests a second.
    rate: f64,
    /// Requests that were not served, in percent.
    failed_percent: f64,
}

impl Stats {
    fn of(report: &Report) -> Stats {
        let requests = &report.requests;
        let service = &report.service;
        let seconds = report.run.seconds.max(1e-9);
        let others = requests.refused + requests.failed + requests.wrong;
        let not_served = others + requests.timed_out;
        let all = (requests.served + not_served).max(1);
        Stats {
            seconds,
            answered: requests.served + others,
            served: requests.served,
            not_served,
            all,
            timed_out: requests.timed_out,
            mean: service.mean.unwrap_or(0.0),
            min: service.min.unwrap_or(0.0),
            max: service.max.unwrap_or(0.0),
            deviation: service.deviation.unwrap_or(0.0),
            megabytes: requests.body_bytes as f64 / 1e6,
            users: report.run.connections,
            rate: requests.served as f64 / seconds,
            failed_percent: not_served as f64 * 100.0 / all as f64,
        }
    }
}

fn or_na(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "n/a".to_owned(), format)
}

fn millis(seconds: f64) -> String {
    format!("{:.0}", seconds * 1e3)
}

fn siege(_: &Report, of: &Stats) -> Vec<String> {
    let two = |value: f64| format!("{value:.2}");
    let availability = of.served as f64 * 100.0 / of.all as f64;
    let rows = [
        ("Transactions", of.served.to_string(), " hits"),
        ("Availability", two(availability), " %"),
        ("Elapsed time", two(of.seconds), " secs"),
        ("Data transferred", two(of.megabytes), " MB"),
        ("Response time", two(of.mean), " secs"),
        ("Transaction rate", two(of.rate), " trans/sec"),
        ("Throughput", two(of.megabytes / of.seconds), " MB/sec"),
        // Little's law.
        ("Concurrency", two(of.rate * of.mean), ""),
        ("Successful transactions", of.served.to_string(), ""),
        ("Failed transactions", of.not_served.to_string(), ""),
        ("Longest transaction", two(of.max), ""),
        ("Shortest transaction", two(of.min), ""),
    ];
    let rows =
        rows.map(|(name, value, unit)| format!("{:27}{value:>12}{unit}", format!("{name}:")));
    rows.to_vec()
}

fn ab(report: &Report, of: &Stats) -> Vec<String> {
    let between = 1e3 / of.rate.max(1e-9);
    let each = of.users as f64 / of.rate.max(1e-9) * 1e3;
    let non_2xx = report.statuses.iter();
    let non_2xx = non_2xx.filter(|(status, _)| !(200..300).contains(*status));
    let non_2xx: u64 = non_2xx.map(|(_, count)| count).sum();
    let bytes = report.requests.body_bytes;
    let per_request = "Time per request";
    let rows = [
        ("Concurrency Level", of.users.to_string()),
        ("Time taken for tests", format!("{:.3} seconds", of.seconds)),
        ("Complete requests", of.answered.to_string()),
        ("Failed requests", of.not_served.to_string()),
        ("Non-2xx responses", non_2xx.to_string()),
        ("HTML transferred", format!("{bytes} bytes")),
        ("Requests per second", format!("{:.2} [#/sec] (mean)", of.rate)),
        (per_request, format!("{each:.3} [ms] (mean)")),
        (per_request, format!("{between:.3} [ms] (mean, across all concurrent requests)")),
    ];
    let rows = rows.map(|(name, value)| format!("{:24}{value}", format!("{name}:")));
    let heading = "Percentage of the requests served within a certain time (ms)".to_owned();
    let service = &report.service;
    let percentiles = [
        (50, service.p50),
        (75, service.p75),
        (90, service.p90),
        (95, service.p95),
        (99, service.p99),
        (100, service.max),
    ];
    let percentiles =
        percentiles.map(|(percent, found)| format!("{percent:>5}% {:>6}", or_na(found, millis)));
    rows.into_iter().chain([heading]).chain(percentiles).collect()
}

fn wrk(report: &Report, of: &Stats) -> Vec<String> {
    let latency = [of.mean, of.deviation, of.max];
    let latency = latency.map(|value| format!("{:>9}", humanize::duration(value)));
    let mut lines = vec![
        format!("  {} threads and {} connections", report.run.threads, of.users),
        "  Thread Stats   Avg      Stdev     Max".to_owned(),
        format!("    Latency   {}", latency.join(" ")),
        format!("  {} requests in {:.2}s, {:.2}MB read", of.answered, of.seconds, of.megabytes),
    ];
    if of.not_served > 0 {
        let (all, timeouts) = (of.not_served, of.timed_out);
        lines.push(format!("  Not served: {all}, of which timeouts: {timeouts}"));
    }
    let rate = of.answered as f64 / of.seconds;
    lines.push(format!("Requests/sec: {rate:>10.2}"));
    lines.push(format!("Transfer/sec: {:>10.2}MB", of.megabytes / of.seconds));
    lines
}

fn locust(report: &Report, of: &Stats) -> Vec<String> {
    let row = |cells: [&str; 9]| {
        let [name, all, fails, mean, min, max, median, rate, failures] = cells;
        format!(
            "{name:40}{all:>9}{fails:>16} |{mean:>8}{min:>8}{max:>8}{median:>8} |\
             {rate:>9}{failures:>12}"
        )
    };
    let heading = ["Name", "# reqs", "# fails", "Avg", "Min", "Max", "Med", "req/s", "failures/s"];
    let aggregated = [
        "Aggregated",
        &of.all.to_string(),
        &format!("{}({:.2}%)", of.not_served, of.failed_percent),
        &millis(of.mean),
        &millis(of.min),
        &millis(of.max),
        &or_na(report.service.p50, millis),
        &format!("{:.2}", of.all as f64 / of.seconds),
        &format!("{:.2}", of.not_served as f64 / of.seconds),
    ];
    vec![row(heading), row(aggregated)]
}

fn blitz(_: &Report, of: &Stats) -> Vec<String> {
    vec![format!(
        "This rush generated {} successful hits in {:.0} seconds. The average hit rate was \
         {:.2}/second, the response time {}. {} errors, {} timeouts.",
        of.served,
        of.seconds,
        of.rate,
        humanize::duration(of.mean),
        of.not_served - of.timed_out,
        of.timed_out,
    )]
}

fn k6(report: &Report, of: &Stats) -> Vec<String> {
    let service = &report.service;
    let durations = [
        ("avg", service.mean),
        ("min", service.min),
        ("med", service.p50),
        ("max", service.max),
        ("p(90)", service.p90),
        ("p(95)", service.p95),
    ];
    let durations =
        durations.map(|(name, found)| format!("{name}={}", or_na(found, humanize::duration)));
    let (failed, all) = (of.not_served, of.all);
    let rate = all as f64 / of.seconds;
    let rows = [
        ("http_req_duration", durations.join(" ")),
        ("http_req_failed", format!("{:.2}% {failed} out of {all}", of.failed_percent)),
        ("http_reqs", format!("{all} {rate:.2}/s")),
        ("dropped_iterations", report.requests.unsent.to_string()),
        ("vus", of.users.to_string()),
    ];
    rows.map(|(name, value)| format!("{name:.<27}: {value}")).to_vec()
}
