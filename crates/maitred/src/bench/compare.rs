//! `maitred bench compare`: two servers, or two commands that start one, in pairs of runs.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maitred_measure::compare::{Direction, Ratio, b_first, verdicts};
use maitred_measure::outside::OwnProcesses;
use maitred_measure::report::Report;
use maitred_measure::slo::Slo;
use maitred_measure::url::Url;
use maitred_text::humanize;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use super::bench_error::BenchError;
use super::measured_run::{EXIT_INVALID, EXIT_PARTIAL, measure};
use super::options::{Compare, OutputOptions, Run};
use super::setup;
use crate::exit_code::EXIT_SUCCESS;
use crate::report_file;

/// Fewest pairs that give a result.
const MIN_PAIRS: usize = 5;

/// Width of an interval below which more pairs would change nothing.
const NARROW: f64 = 0.03;

/// The share of all CPUs that other processes may use during a run. A run with more is repeated.
const OUTSIDE: f64 = 0.1;

/// Most attempts at a run without such a disturbance.
const MAX_TRIES: usize = 3;

/// Timeout until a started server listens.
const START: Duration = Duration::from_secs(60);

/// Timeout of a server's shutdown, after which it is killed.
const END: Duration = Duration::from_secs(20);

/// Polling interval for a server that starts or exits.
const LOOK: Duration = Duration::from_millis(20);

/// A compared value: its name, whether more is better, and how it is read.
type ComparedValue = (&'static str, Direction, fn(&Report) -> Option<f64>);

/// The compared values.
const FIGURES: [ComparedValue; 4] = [
    ("served/s", Direction::HigherIsBetter, |report| {
        Some(report.requests.goodput.unwrap_or(report.requests.rate))
    }),
    ("p50", Direction::LowerIsBetter, |report| report.corrected.p50),
    ("p90", Direction::LowerIsBetter, |report| report.corrected.p90),
    ("p99", Direction::LowerIsBetter, |report| report.corrected.p99),
];

/// One of the two servers.
struct Candidate {
    run: Run,
    command: Option<String>,
}

/// The result for one value.
#[derive(Debug, Serialize)]
struct Row {
    figure: &'static str,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    smallest_detectable: Option<f64>,
    /// Probability that chance alone makes as many pairs agree.
    sign_test: Option<f64>,
    verdict: String,
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct ComparisonReport {
    schema: &'static str,
    a: String,
    b: String,
    pairs: usize,
    same_against_itself: Vec<Row>,
    usable: bool,
    b_beside_a: Vec<Row>,
    disturbed: Disturbed,
}

/// Runs in which other processes used more than [`OUTSIDE`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Disturbed {
    /// How many were repeated.
    repeated: usize,
    /// How many were compared all the same, after [`MAX_TRIES`] attempts.
    counted: usize,
    /// Runs for which the use by others is unknown.
    unknown: usize,
}

/// Compares, and prints the result.
///
/// # Errors
/// One sentence.
pub fn compare(asked: &Compare, stop: &Arc<AtomicBool>) -> Result<u8, BenchError> {
    if asked.pairs < MIN_PAIRS || asked.max_pairs < asked.pairs {
        return Err(format!("--pairs has to be {MIN_PAIRS} to --max-pairs").into());
    }
    if asked.load.find_capacity.is_some() {
        return Err("compare runs one load: use --find-capacity for each server separately"
            .to_owned()
            .into());
    }
    let (a, b) = (side(asked, &asked.a)?, side(asked, &asked.b)?);
    let disturbed = Cell::default();
    let contest = Comparison { asked, stop, disturbed };
    contest.say(&format!("A: {}\nB: {}\n\nA against itself", asked.a, asked.b));
    let itself = contest.pairs(&a, &a, asked.pairs)?;
    let noise = rows(&itself, asked.load.seed);
    contest.table(&noise);
    let usable = !noise.iter().any(|row| row.verdict == "faster" || row.verdict == "slower");
    let stopped = || stop.load(Ordering::Relaxed);
    let mut outcome = ComparisonReport {
        schema: "maitred-bench-compare/1",
        a: asked.a.clone(),
        b: asked.b.clone(),
        pairs: 0,
        same_against_itself: noise,
        usable,
        b_beside_a: Vec::new(),
        disturbed: Disturbed::default(),
    };
    if !usable {
        contest.say("\nA differs from itself: this machine is too noisy for a comparison");
    } else if !stopped() {
        contest.say("\nB beside A");
        let pairs = contest.pairs(&a, &b, asked.max_pairs)?;
        outcome.pairs = pairs.len();
        outcome.b_beside_a = rows(&pairs, asked.load.seed);
        contest.table(&outcome.b_beside_a);
    }
    outcome.disturbed = contest.disturbed.get();
    contest.report_disturbances();
    let json = || serde_json::to_string_pretty(&outcome).map_err(|why| why.to_string());
    if asked.json.is_stdout() {
        let _ = writeln!(io::stdout(), "{}", json()?);
    } else if let Some(file) = asked.json.file() {
        report_file::write(file, &json()?).map_err(BenchError::Now)?;
    }
    Ok(if stopped() {
        EXIT_PARTIAL
    } else if usable {
        EXIT_SUCCESS
    } else {
        EXIT_INVALID
    })
}

/// A URL, or a command and the URL of the server that it starts.
fn side(asked: &Compare, text: &str) -> Result<Candidate, String> {
    let is_url = Url::read(text, None).is_ok() && !text.contains(' ');
    let url = match (is_url, &asked.url) {
        (true, _) => text,
        (false, Some(url)) => url,
        (false, None) => {
            return Err(format!("'{text}' is a command: give the URL that it serves with --url"));
        }
    };
    Ok(Candidate {
        run: Run {
            urls: vec![url.to_owned()],
            load: asked.load.clone(),
            request: asked.request.clone(),
            output: OutputOptions::default(),
            preset: Vec::new(),
        },
        command: (!is_url).then(|| text.to_owned()),
    })
}

struct Comparison<'a> {
    asked: &'a Compare,
    stop: &'a Arc<AtomicBool>,
    disturbed: Cell<Disturbed>,
}

impl Comparison<'_> {
    /// Pairs of reports, A's and B's, until they are significant or there are `most`.
    fn pairs(
        &self,
        a: &Candidate,
        b: &Candidate,
        most: usize,
    ) -> Result<Vec<(Report, Report)>, BenchError> {
        let mut pairs: Vec<(Report, Report)> = Vec::new();
        while pairs.len() < most {
            let turned = b_first(pairs.len(), self.asked.load.seed);
            let (first, second) = if turned { (b, a) } else { (a, b) };
            let (first, second) = (self.block(first)?, self.block(second)?);
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            pairs.push(if turned { (second, first) } else { (first, second) });
            if pairs.len() >= self.asked.pairs && self.is_clear(&pairs) {
                break;
            }
        }
        Ok(pairs)
    }

    /// Whether every value either has a narrow interval or surely differs.
    fn is_clear(&self, pairs: &[(Report, Report)]) -> bool {
        let rows = rows(pairs, self.asked.load.seed);
        rows.iter().all(|row| {
            row.verdict != "undecided"
                || row.smallest_detectable.is_some_and(|least| least < NARROW)
        })
    }

    /// A run without disturbance by others, or the last attempt.
    fn block(&self, side: &Candidate) -> Result<Report, BenchError> {
        let mut disturbed = self.disturbed.get();
        let mut tries = 1;
        let report = loop {
            let (report, outside) = self.run(side)?;
            disturbed.unknown += usize::from(outside.is_none());
            if outside.is_none_or(|share| share <= OUTSIDE) || self.stop.load(Ordering::Relaxed) {
                break report;
            }
            if tries == MAX_TRIES {
                disturbed.counted += 1;
                break report;
            }
            tries += 1;
            disturbed.repeated += 1;
        };
        self.disturbed.set(disturbed);
        Ok(report)
    }

    /// A run, and the share of all CPUs that others used meanwhile, if known.
    fn run(&self, side: &Candidate) -> Result<(Report, Option<f64>), BenchError> {
        let server = match &side.command {
            Some(command) => Some(StartedServer::start(command, side, self.stop)?),
            None => None,
        };
        let plan = setup::plan(&side.run)?;
        let ours = OwnProcesses::of(&plan.endpoints, &self.asked.with);
        let before = ours.as_ref().and_then(OwnProcesses::look);
        let report = measure(&plan, &Slo::default(), self.stop);
        let outside = ours.zip(before);
        let outside = outside.and_then(|(ours, before)| ours.outside(&before));
        drop(server);
        Ok((report?, outside))
    }

    fn report_disturbances(&self) {
        let Disturbed { repeated, counted, unknown } = self.disturbed.get();
        let percent = OUTSIDE * 100.0;
        if repeated > 0 {
            self.say(&format!(
                "\nother processes used more than {percent} % of the CPUs: {repeated} runs were \
                 repeated"
            ));
        }
        if counted > 0 {
            self.say(&format!(
                "{counted} runs were disturbed {MAX_TRIES} times and count all the same; if the \
                 servers' own databases use the CPUs, name them with --with"
            ));
        }
        if unknown > 0 {
            self.say(
                "\nCPU use by other processes is unknown: /proc does not show who listens here",
            );
        }
    }

    fn say(&self, text: &str) {
        if !self.asked.json.is_stdout() {
            let _ = writeln!(io::stdout(), "{text}");
        }
    }

    fn table(&self, rows: &[Row]) {
        let percent = |found: Option<f64>| {
            found.map_or("n/a".to_owned(), |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0))
        };
        for row in rows {
            let least = row
                .smallest_detectable
                .map_or("n/a".to_owned(), |share| format!("{} %", humanize::digits(share * 100.0)));
            self.say(&format!(
                "{:10}{:>10}   {:>9} to {:>9}   could see {least:>7}   {}",
                row.figure,
                percent(row.ratio),
                percent(row.low),
                percent(row.high),
                row.verdict,
            ));
        }
    }
}

fn rows(pairs: &[(Report, Report)], seed: u64) -> Vec<Row> {
    let ratios = FIGURES.map(|(_, better, of)| {
        let ratios = pairs.iter().map(|(a, b)| Some(of(b)? / of(a)?));
        let ratios: Option<Vec<f64>> = ratios.collect();
        let ratio = ratios.and_then(|ratios| Ratio::of(&ratios, FIGURES.len(), seed));
        (better, ratio)
    });
    let rows = FIGURES.iter().zip(ratios).zip(verdicts(&ratios));
    rows.map(|(((figure, ..), (_, ratio)), verdict)| Row {
        figure,
        ratio: ratio.map(|ratio| ratio.mean),
        low: ratio.map(|ratio| ratio.low),
        high: ratio.map(|ratio| ratio.high),
        smallest_detectable: ratio.map(|ratio| ratio.detectable()),
        sign_test: ratio.map(|ratio| ratio.signs),
        verdict: verdict.to_string(),
    })
    .collect()
}

/// The address on which a server listens.
enum ListenAddress {
    Unix(PathBuf),
    Tcp(Url),
}

impl ListenAddress {
    fn of(side: &Candidate) -> Result<ListenAddress, String> {
        if let Some(path) = &side.run.request.unix {
            return Ok(ListenAddress::Unix(path.clone()));
        }
        let url = side.run.urls.first().map_or("", String::as_str);
        Ok(ListenAddress::Tcp(Url::read(url, None)?))
    }

    fn is_open(&self) -> bool {
        match self {
            ListenAddress::Unix(path) => UnixStream::connect(path).is_ok(),
            ListenAddress::Tcp(place) => {
                TcpStream::connect((place.host.as_str(), place.port)).is_ok()
            }
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Unix(path) => write!(f, "{}", path.display()),
            ListenAddress::Tcp(place) => write!(f, "{place}"),
        }
    }
}

/// A server started by a command, with all its processes. Dropping it stops it.
struct StartedServer {
    shell: Child,
    listener: ListenAddress,
}

impl StartedServer {
    /// Starts it, and waits until it listens.
    fn start(
        command: &str,
        side: &Candidate,
        stop: &Arc<AtomicBool>,
    ) -> Result<StartedServer, BenchError> {
        let now = |why: String| BenchError::Now(format!("'{command}': {why}"));
        let listener = ListenAddress::of(side)?;
        if listener.is_open() {
            return Err(now(format!("another server listens on {listener} already")));
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null());
        shell.process_group(0);
        maitred_os::spawn::unblock_signals(&mut shell);
        let shell = shell.spawn();
        let shell = shell.map_err(|why| now(format!("cannot be started: {why}")))?;
        let mut started = StartedServer { shell, listener };
        let deadline = Instant::now() + START;
        while !started.listener.is_open() {
            if let Ok(Some(status)) = started.shell.try_wait() {
                let listener = &started.listener;
                return Err(now(format!("exited before it listened on {listener} ({status})")));
            }
            if Instant::now() > deadline || stop.load(Ordering::Relaxed) {
                return Err(now(format!("no server listens on {}", started.listener)));
            }
            std::thread::sleep(LOOK);
        }
        Ok(started)
    }
}

impl Drop for StartedServer {
    fn drop(&mut self) {
        let group = i32::try_from(self.shell.id()).ok().and_then(Pid::from_raw);
        let tell = |signal: Signal| {
            if let Some(group) = group {
                let _ = kill_process_group(group, signal);
            }
        };
        tell(Signal::TERM);
        let deadline = Instant::now() + END;
        // The shell may exit before the processes that it has started.
        while Instant::now() < deadline
            && (matches!(self.shell.try_wait(), Ok(None)) || self.listener.is_open())
        {
            std::thread::sleep(LOOK);
        }
        tell(Signal::KILL);
        let _ = self.shell.wait();
    }
}
