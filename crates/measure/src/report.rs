//! The report of a run: its measurements, and whether they are valid.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::clock;
use crate::generate::Measured;
use crate::latency::{Latencies, Summary};
use crate::outcome::Class;
use crate::plan::{Load, Plan, Protocol};
use crate::series::Second;
use crate::slo::{ConditionResult, Slo};
use crate::statistics;
use crate::usage;
use crate::watched::ServerSamples;
use maitred_text::humanize;

/// The version of the report's format; it changes when a field is removed or changes its meaning.
pub const SCHEMA: &str = "maitred-bench/1";

/// Most late and unsent requests of a valid run, as a share.
pub const MAX_LATE_SHARE: f64 = 0.01;

/// The generator's share of the processors from which the report warns, since the server lacks
/// them.
const MUCH_CPU: f64 = 0.25;

/// The share of its runnable time that the generator may wait for a processor without a warning.
const MUCH_WAIT: f64 = 0.1;

/// Most URLs that are listed.
const MAX_ROWS: usize = 100;

/// The percentiles of the spectrum.
const SPECTRUM: [f64; 21] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.5, 99.0,
    99.5, 99.9, 99.95, 99.99, 99.999,
];

/// The number of ranges of the histogram.
const RANGES: usize = 20;

/// A report. Times are in seconds, shares are of 1.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// The start of the run, in seconds since 1970 by the wall clock.
    pub began: f64,
    /// The parameters of the run.
    pub run: Run,
    /// Whether the measurements are valid.
    pub valid: bool,
    /// Why not.
    pub invalid_because: Vec<String>,
    /// Whether the run was stopped early.
    pub partial: bool,
    /// What makes the measurements less certain.
    pub warnings: Vec<String>,
    /// Counts of requests.
    pub requests: Requests,
    /// Latencies of served requests, from their due time.
    pub corrected: Summary,
    /// Latencies of served requests, from the moment they were sent.
    pub service: Summary,
    /// Latencies of the other classes.
    pub not_served: BTreeMap<&'static str, LatencyPair>,
    /// Why requests were not served, the most frequent first.
    pub causes: Vec<CauseCount>,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// By URL.
    pub urls: Vec<UrlStats>,
    /// Connections.
    pub connections: ConnectionStats,
    /// The generator itself.
    pub generator: GeneratorStats,
    /// The warm-up, which is excluded from all other values but the series.
    pub warm_up: WarmUp,
    /// Whether latencies had no trend; `None` if the run is too short to decide.
    pub steady: Option<bool>,
    /// The results of the conditions of `--slo`.
    pub slo: Vec<ConditionResult>,
    /// Latencies of served requests by percentile, from their due time.
    pub spectrum: Vec<SpectrumPoint>,
    /// Counts of served requests by latency, from their due time.
    pub histogram: Vec<HistogramRange>,
    /// Second by second.
    pub series: Vec<Second>,
    /// Samples of the server, if it was watched.
    pub server: Option<ServerSamples>,
}

/// The parameters of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// `open` or `closed`.
    #[serde(rename = "loop")]
    pub kind: &'static str,
    /// The load, described for people.
    pub load: String,
    /// `HTTP/1.1`, `HTTP/2` or `FastCGI`.
    pub protocol: &'static str,
    /// Concurrent requests of a connection.
    pub streams: usize,
    /// The URL, or the first of several.
    pub url: String,
    /// The measured time, in seconds.
    pub seconds: f64,
    /// The limit of connections, or the number of users.
    pub connections: usize,
    /// The generator's threads.
    pub threads: usize,
    /// The seed of random numbers.
    pub seed: u64,
}

/// Counts of requests.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)]
pub struct Requests {
    pub sent: u64,
    pub served: u64,
    pub refused: u64,
    /// Refused requests whose response has the `Retry-After` header.
    pub with_retry_after: u64,
    pub failed: u64,
    pub timed_out: u64,
    pub wrong: u64,
    /// In flight when the run was stopped early.
    pub cut_off: u64,
    /// Never sent.
    pub unsent: u64,
    /// Sent later than tolerated.
    pub late: u64,
    /// Late requests that waited for a free connection.
    pub late_for_connections: u64,
    /// Late and unsent requests, of all that were due.
    pub late_share: f64,
    /// Requests that were not served, of all that ended or were never sent.
    pub error_share: f64,
    /// Sent twice, since the server had just closed the connection.
    pub resent: u64,
    /// Served requests a second.
    pub rate: f64,
    /// Served requests a second within the latency of the objective, if there is one.
    pub goodput: Option<f64>,
    /// The bodies of responses, in bytes.
    pub body_bytes: u64,
}

/// Latencies of one class.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct LatencyPair {
    pub corrected: Summary,
    pub service: Summary,
}

/// Why requests were not served.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct CauseCount {
    pub class: Class,
    pub cause: String,
    pub count: u64,
}

/// Requests for one URL.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct UrlStats {
    pub url: String,
    pub served: u64,
    pub not_served: u64,
    /// From the due time.
    pub corrected: Summary,
}

/// Connections, including the warm-up's.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct ConnectionStats {
    pub made: u64,
    pub most_in_flight: u64,
    pub connect: Summary,
}

/// The generator itself.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct GeneratorStats {
    pub cpu: f64,
    /// Its share of all processors.
    pub cpu_share: f64,
    pub cpu_per_request: Option<f64>,
    /// Time waiting for a processor; `None` if the kernel does not report it.
    pub run_wait: Option<f64>,
    /// Its share of the runnable time.
    pub run_wait_share: Option<f64>,
    pub lateness: Summary,
    pub processors: usize,
}

/// The warm-up.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct WarmUp {
    pub seconds: f64,
    pub sent: u64,
    pub served: u64,
    /// The median of served requests, from their due time.
    pub p50: Option<f64>,
}

/// A point of the spectrum.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs)]
pub struct SpectrumPoint {
    pub percentile: f64,
    pub corrected: Option<f64>,
    pub service: Option<f64>,
}

/// A range of the histogram.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct HistogramRange {
    /// Its upper end; that of the last range is the longest latency.
    pub to: f64,
    /// The number of latencies in it.
    pub count: u64,
}

impl Report {
    /// Summarises a run.
    pub fn of(plan: &Plan, measured: &Measured, slo: &Slo) -> Report {
        let total = &measured.total;
        let served = &total.ended[Class::Served.index()];
        let requests = requests(measured, slo);
        let generator = generator(measured);
        let invalid_because = invalid_because(&requests);
        let steady = statistics::steady(&measured.series);
        let began = measured.began.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let not_served = Class::ALL.into_iter().skip(1).filter_map(|class| {
            let ended = &total.ended[class.index()];
            let pair = || LatencyPair {
                corrected: ended.corrected.summary(),
                service: ended.service.summary(),
            };
            (ended.service.count() > 0).then(|| (key(class), pair()))
        });
        Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            began: began.map_or(0.0, |since| since.as_secs_f64()),
            run: run(plan, measured),
            valid: invalid_because.is_empty(),
            invalid_because,
            partial: measured.partial,
            warnings: warnings(plan, &requests, &generator, steady),
            corrected: served.corrected.summary(),
            service: served.service.summary(),
            not_served: not_served.collect(),
            causes: causes(measured),
            statuses: total.statuses.clone(),
            urls: urls(plan, measured),
            connections: connections(measured),
            generator,
            warm_up: warm_up(plan, measured),
            steady,
            slo: slo.judge(measured),
            spectrum: spectrum(&served.corrected, &served.service),
            histogram: histogram(&served.corrected),
            series: measured.series.clone(),
            server: None,
            requests,
        }
    }

    /// Whether all conditions hold.
    pub fn holds(&self) -> bool {
        self.slo.iter().all(|verdict| verdict.holds)
    }
}

/// The name of a class in the report.
fn key(class: Class) -> &'static str {
    match class {
        Class::TimedOut => "timed_out",
        other => other.name(),
    }
}

fn run(plan: &Plan, measured: &Measured) -> Run {
    let (load, connections) = match &plan.load {
        Load::Open { profile, spacing, connections } => {
            let spacing = match spacing {
                crate::arrivals::Spacing::Even => "",
                crate::arrivals::Spacing::Poisson => ", Poisson",
            };
            (format!("{}{spacing}", profile.describe()), *connections)
        }
        Load::Replay { log, connections } => {
            let speed = humanize::number(log.speed);
            (format!("{} at {speed} × its speed", log.file.display()), *connections)
        }
        Load::Closed { users, think, .. } => {
            (format!("{users} users, {}", think.describe()), *users)
        }
    };
    let first = plan.requests.first();
    Run {
        kind: if plan.load.is_open() { "open" } else { "closed" },
        load,
        protocol: match plan.protocol {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 { .. } => "HTTP/2",
            Protocol::Fastcgi { .. } => "FastCGI",
        },
        streams: plan.protocol.streams(),
        url: first.map_or(String::new(), |request| request.spec.url.to_string()),
        seconds: measured.seconds,
        connections,
        threads: plan.threads,
        seed: plan.seed,
    }
}

fn requests(measured: &Measured, slo: &Slo) -> Requests {
    let total = &measured.total;
    let served = total.count(Class::Served);
    let ended = total.all() + total.unsent;
    let due = total.sent + total.unsent;
    let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
    let seconds = measured.seconds.max(1e-9);
    let corrected = &total.ended[Class::Served.index()].corrected;
    let within = |limit| corrected.within(limit) as f64 / seconds;
    Requests {
        sent: total.sent,
        served,
        refused: total.count(Class::Refused),
        with_retry_after: total.with_retry_after,
        failed: total.count(Class::Failed),
        timed_out: total.count(Class::TimedOut),
        wrong: total.count(Class::Wrong),
        cut_off: measured.cut_off,
        unsent: total.unsent,
        late: total.late,
        late_for_connections: total.late_for_connections,
        late_share: share(total.late + total.unsent, due),
        error_share: share(ended.saturating_sub(served), ended),
        resent: total.resent,
        rate: served as f64 / seconds,
        goodput: slo.latency_limit().map(within),
        body_bytes: total.body_bytes,
    }
}

fn generator(measured: &Measured) -> GeneratorStats {
    let processors = usage::processors();
    let wall = measured.wall.max(1e-9);
    let ended = measured.total.all() + measured.warm_up.all();
    let share = |wait: f64| wait / (wait + measured.cpu).max(1e-9);
    GeneratorStats {
        cpu: measured.cpu,
        cpu_share: measured.cpu / wall / processors as f64,
        cpu_per_request: (ended > 0).then(|| measured.cpu / ended as f64),
        run_wait: measured.run_wait,
        run_wait_share: measured.run_wait.map(share),
        lateness: measured.total.lateness.summary(),
        processors,
    }
}

/// Including the warm-up's, since most connections are opened there.
fn connections(measured: &Measured) -> ConnectionStats {
    let mut connects = measured.total.connects.clone();
    connects.add(&measured.warm_up.connects);
    ConnectionStats {
        made: connects.count(),
        most_in_flight: measured.most_in_flight,
        connect: connects.summary(),
    }
}

fn invalid_because(requests: &Requests) -> Vec<String> {
    let mut why = Vec::new();
    if requests.late_share > MAX_LATE_SHARE {
        let for_others = requests.late.saturating_sub(requests.late_for_connections);
        why.push(format!(
            "{:.1} % of the requests were not sent when they were due: {} late since all \
             connections were busy (--connections), {} late since the generator was (--threads, or \
             a lower rate), {} not sent at all",
            requests.late_share * 100.0,
            humanize::count(requests.late_for_connections),
            humanize::count(for_others),
            humanize::count(requests.unsent),
        ));
    }
    if requests.sent == 0 {
        why.push("nothing was sent".to_owned());
    }
    why
}

fn warnings(
    plan: &Plan,
    requests: &Requests,
    generator: &GeneratorStats,
    steady: Option<bool>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let closed = !plan.load.is_open();
    if generator.cpu_share > MUCH_CPU && !closed {
        warnings.push(format!(
            "the generator used {:.0} % of this machine's processors, which a server on the same \
             machine lacks",
            generator.cpu_share * 100.0
        ));
    }
    if let Some(share) = generator.run_wait_share
        && share > MUCH_WAIT
    {
        warnings.push(format!(
            "the generator waited for a processor for {:.0} % of the time in which it could have \
             run: latencies are too long by that",
            share * 100.0
        ));
    }
    if generator.run_wait.is_none() {
        warnings.push(
            "the kernel does not report how long the generator waited for a processor (schedstat)"
                .to_owned(),
        );
    }
    if closed {
        warnings.push(
            "a closed loop slows down with the server: it shows what the server can do, not how \
             long users wait (--rate shows that)"
                .to_owned(),
        );
    }
    if steady == Some(false) {
        warnings.push("not steady: latencies rose or fell all the time (--warm-up)".to_owned());
    }
    if requests.sent > 0 && requests.served == 0 {
        warnings.push("no request was served".to_owned());
    }
    warnings
}

fn causes(measured: &Measured) -> Vec<CauseCount> {
    let causes = measured.total.causes.iter().map(|(cause, count)| CauseCount {
        class: cause.class(),
        cause: cause.to_string(),
        count: *count,
    });
    let mut causes: Vec<CauseCount> = causes.collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    causes
}

fn urls(plan: &Plan, measured: &Measured) -> Vec<UrlStats> {
    let rows = plan.requests.iter().zip(&measured.total.rows);
    let mut urls: Vec<UrlStats> = rows
        .map(|(request, row)| {
            let served = row.counts[Class::Served.index()];
            UrlStats {
                url: request.spec.label(),
                served,
                not_served: row.counts.iter().sum::<u64>() - served,
                corrected: row.served.summary(),
            }
        })
        .collect();
    urls.sort_by_key(|url| std::cmp::Reverse(url.served + url.not_served));
    urls.truncate(MAX_ROWS);
    urls
}

fn warm_up(plan: &Plan, measured: &Measured) -> WarmUp {
    let warm_up = &measured.warm_up;
    WarmUp {
        seconds: clock::seconds(plan.warm_up),
        sent: warm_up.sent,
        served: warm_up.count(Class::Served),
        p50: warm_up.ended[Class::Served.index()].corrected.percentile(50.0),
    }
}

fn spectrum(corrected: &Latencies, service: &Latencies) -> Vec<SpectrumPoint> {
    let points = SPECTRUM.into_iter().map(|percentile| SpectrumPoint {
        percentile,
        corrected: corrected.percentile(percentile),
        service: service.percentile(percentile),
    });
    points.filter(|point| point.corrected.is_some()).collect()
}

/// Ranges of equal width up to the 99th percentile, so that a few long latencies do not compress
/// them, and one range above.
fn histogram(latencies: &Latencies) -> Vec<HistogramRange> {
    let (Some(min), Some(p99), Some(max)) = (latencies.min(), latencies.at(99.0), latencies.max())
    else {
        return Vec::new();
    };
    let width = (p99 - min).max(1e-6) / RANGES as f64;
    let limits: Vec<f64> = (1..=RANGES).map(|range| min + width * range as f64).collect();
    let counts = latencies.ranges(&limits);
    let ends = limits.into_iter().chain([max]);
    let ranges = ends.zip(counts).map(|(to, count)| HistogramRange { to, count });
    ranges.filter(|range| range.count > 0 || range.to <= p99).collect()
}
