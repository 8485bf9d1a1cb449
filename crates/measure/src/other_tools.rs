//! Other tools' familiar lines, of a report. Their latencies are those from when requests were sent.

use crate::report::Report;
use crate::words;

/// A tool that people know.
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

impl Tool {
    const ALL: [Tool; 6] = [
        Tool::Ab,
        Tool::Siege,
        Tool::Wrk,
        Tool::Locust,
        Tool::Blitz,
        Tool::K6,
    ];

    /// The tool of this name.
    pub fn named(name: &str) -> Option<Tool> {
        Tool::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Ab => "ab",
            Tool::Siege => "siege",
            Tool::Wrk => "wrk",
            Tool::Locust => "locust",
            Tool::Blitz => "blitz",
            Tool::K6 => "k6",
        }
    }
}

/// A report's figures, as these tools call them.
struct Figures {
    seconds: f64,
    answered: u64,
    served: u64,
    not_served: u64,
    timed_out: u64,
    mean: f64,
    min: f64,
    max: f64,
    deviation: f64,
    megabytes: f64,
    users: usize,
}

impl Figures {
    fn of(report: &Report) -> Figures {
        let requests = &report.requests;
        let known = |found: Option<f64>| found.unwrap_or(0.0);
        let others = requests.refused + requests.failed + requests.wrong;
        Figures {
            seconds: report.run.seconds.max(1e-9),
            answered: requests.served + others,
            served: requests.served,
            not_served: others + requests.timed_out,
            timed_out: requests.timed_out,
            mean: known(report.service.mean),
            min: known(report.service.min),
            max: known(report.service.max),
            deviation: known(report.service.deviation),
            megabytes: requests.body_bytes as f64 / 1e6,
            users: report.run.connections,
        }
    }

    fn rate(&self) -> f64 {
        self.served as f64 / self.seconds
    }

    fn all(&self) -> u64 {
        (self.served + self.not_served).max(1)
    }
}

/// The tool's lines.
pub fn lines(tool: Tool, report: &Report) -> Vec<String> {
    let figures = Figures::of(report);
    match tool {
        Tool::Ab => ab(report, &figures),
        Tool::Siege => siege(&figures),
        Tool::Wrk => wrk(report, &figures),
        Tool::Locust => locust(report, &figures),
        Tool::Blitz => blitz(&figures),
        Tool::K6 => k6(report, &figures),
    }
}

fn siege(of: &Figures) -> Vec<String> {
    let seconds = of.seconds;
    vec![
        format!("Transactions:              {:>12} hits", of.served),
        format!(
            "Availability:              {:>12.2} %",
            of.served as f64 * 100.0 / of.all() as f64
        ),
        format!("Elapsed time:              {seconds:>12.2} secs"),
        format!("Data transferred:          {:>12.2} MB", of.megabytes),
        format!("Response time:             {:>12.2} secs", of.mean),
        format!("Transaction rate:          {:>12.2} trans/sec", of.rate()),
        format!(
            "Throughput:                {:>12.2} MB/sec",
            of.megabytes / seconds
        ),
        // Little's law.
        format!("Concurrency:               {:>12.2}", of.rate() * of.mean),
        format!("Successful transactions:   {:>12}", of.served),
        format!("Failed transactions:       {:>12}", of.not_served),
        format!("Longest transaction:       {:>12.2}", of.max),
        format!("Shortest transaction:      {:>12.2}", of.min),
    ]
}

fn ab(report: &Report, of: &Figures) -> Vec<String> {
    let each = of.users as f64 / of.rate().max(1e-9) * 1e3;
    let non_2xx: u64 = report
        .statuses
        .iter()
        .filter(|(status, _)| !(200..300).contains(*status))
        .map(|(_, count)| count)
        .sum();
    let mut lines = vec![
        format!("Concurrency Level:      {}", of.users),
        format!("Time taken for tests:   {:.3} seconds", of.seconds),
        format!("Complete requests:      {}", of.answered),
        format!("Failed requests:        {}", of.not_served),
        format!("Non-2xx responses:      {non_2xx}"),
        format!(
            "HTML transferred:       {} bytes",
            report.requests.body_bytes
        ),
        format!("Requests per second:    {:.2} [#/sec] (mean)", of.rate()),
        format!("Time per request:       {each:.3} [ms] (mean)"),
        format!(
            "Time per request:       {:.3} [ms] (mean, across all concurrent requests)",
            1e3 / of.rate().max(1e-9)
        ),
        "Percentage of the requests served within a certain time (ms)".to_owned(),
    ];
    let service = &report.service;
    for (percent, found) in [
        (50, service.p50),
        (75, service.p75),
        (90, service.p90),
        (95, service.p95),
        (99, service.p99),
        (100, service.max),
    ] {
        let found = found.map_or("n/a".to_owned(), |found| format!("{:.0}", found * 1e3));
        lines.push(format!("{percent:>5}% {found:>6}"));
    }
    lines
}

fn wrk(report: &Report, of: &Figures) -> Vec<String> {
    let mut lines = vec![
        format!(
            "  {} threads and {} connections",
            report.run.threads, of.users
        ),
        "  Thread Stats   Avg      Stdev     Max".to_owned(),
        format!(
            "    Latency   {:>9} {:>9} {:>9}",
            words::duration(of.mean),
            words::duration(of.deviation),
            words::duration(of.max)
        ),
        format!(
            "  {} requests in {:.2}s, {:.2}MB read",
            of.answered, of.seconds, of.megabytes
        ),
    ];
    if of.not_served > 0 {
        lines.push(format!(
            "  Not served: {}, of which timeouts: {}",
            of.not_served, of.timed_out
        ));
    }
    lines.push(format!(
        "Requests/sec: {:>10.2}",
        of.answered as f64 / of.seconds
    ));
    lines.push(format!(
        "Transfer/sec: {:>10.2}MB",
        of.megabytes / of.seconds
    ));
    lines
}

fn locust(report: &Report, of: &Figures) -> Vec<String> {
    let header = format!(
        "{:40}{:>9}{:>16} |{:>8}{:>8}{:>8}{:>8} |{:>9}{:>12}",
        "Name", "# reqs", "# fails", "Avg", "Min", "Max", "Med", "req/s", "failures/s"
    );
    let millis = |found: f64| format!("{:.0}", found * 1e3);
    let share = of.not_served as f64 * 100.0 / of.all() as f64;
    let row = format!(
        "{:40}{:>9}{:>16} |{:>8}{:>8}{:>8}{:>8} |{:>9.2}{:>12.2}",
        "Aggregated",
        of.all(),
        format!("{}({share:.2}%)", of.not_served),
        millis(of.mean),
        millis(of.min),
        millis(of.max),
        report.service.p50.map_or("n/a".to_owned(), millis),
        of.all() as f64 / of.seconds,
        of.not_served as f64 / of.seconds,
    );
    vec![header, row]
}

fn blitz(of: &Figures) -> Vec<String> {
    vec![format!(
        "This rush generated {} successful hits in {:.0} seconds. The average hit rate was {:.2}/second, \
         the response time {}. {} errors, {} timeouts.",
        of.served,
        of.seconds,
        of.rate(),
        words::duration(of.mean),
        of.not_served - of.timed_out,
        of.timed_out,
    )]
}

fn k6(report: &Report, of: &Figures) -> Vec<String> {
    let service = &report.service;
    let latency = |found: Option<f64>| found.map_or("n/a".to_owned(), words::duration);
    let dots = |name: &str| format!("{name:.<27}:");
    vec![
        format!(
            "{} avg={} min={} med={} max={} p(90)={} p(95)={}",
            dots("http_req_duration"),
            latency(service.mean),
            latency(service.min),
            latency(service.p50),
            latency(service.max),
            latency(service.p90),
            latency(service.p95)
        ),
        format!(
            "{} {:.2}% {} out of {}",
            dots("http_req_failed"),
            of.not_served as f64 * 100.0 / of.all() as f64,
            of.not_served,
            of.all()
        ),
        format!(
            "{} {} {:.2}/s",
            dots("http_reqs"),
            of.all(),
            of.all() as f64 / of.seconds
        ),
        format!("{} {}", dots("dropped_iterations"), report.requests.unsent),
        format!("{} {}", dots("vus"), of.users),
    ]
}
