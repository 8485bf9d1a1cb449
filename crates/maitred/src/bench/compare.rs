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

use super::options::{Compare, OutputOptions, Run};
use super::setup::{self, Refusal};
use super::{EXIT_INVALID, EXIT_PARTIAL, measure};
use crate::EXIT_SUCCESS;

/// Fewest pairs that say anything.
const MIN_PAIRS: usize = 5;

/// When an interval is as narrow as this, more pairs would say nothing else.
const NARROW: f64 = 0.03;

/// The share of all processors that others may use in a run. One in which they use more is made again.
const OUTSIDE: f64 = 0.1;

/// How often a run is made at most until others leave it alone.
const MAX_TRIES: usize = 3;

/// How long a server that was started may take until it listens.
const START: Duration = Duration::from_secs(60);

/// How long one may take to end before it is killed.
const END: Duration = Duration::from_secs(20);

/// How often it is looked whether a server listens, or has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A figure that is compared.
type Figure = (&'static str, Direction, fn(&Report) -> Option<f64>);

/// What is compared.
const FIGURES: [Figure; 4] = [
    ("served/s", Direction::HigherIsBetter, |report| {
        Some(report.requests.goodput.unwrap_or(report.requests.rate))
    }),
    ("p50", Direction::LowerIsBetter, |report| {
        report.corrected.p50
    }),
    ("p90", Direction::LowerIsBetter, |report| {
        report.corrected.p90
    }),
    ("p99", Direction::LowerIsBetter, |report| {
        report.corrected.p99
    }),
];

/// One of the two.
struct Side {
    run: Run,
    command: Option<String>,
}

/// What is said of one figure.
#[derive(Debug, Serialize)]
struct Row {
    figure: &'static str,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    smallest_detectable: Option<f64>,
    /// How likely chance alone makes as many pairs agree.
    sign_test: Option<f64>,
    verdict: String,
}

/// The outcome, as JSON has it.
#[derive(Debug, Serialize)]
struct Outcome {
    schema: &'static str,
    a: String,
    b: String,
    pairs: usize,
    same_against_itself: Vec<Row>,
    usable: bool,
    b_beside_a: Vec<Row>,
    disturbed: Disturbed,
}

/// What became of runs in which others used more than [`OUTSIDE`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Disturbed {
    /// They were made again, so many times.
    repeated: usize,
    /// They are among those that were compared: so were all tries.
    counted: usize,
    /// Nobody could say what others use.
    unknown: usize,
}

/// Compares, and says what there is to say.
///
/// # Errors
/// One sentence.
pub fn compare(asked: &Compare, stop: &Arc<AtomicBool>) -> Result<u8, Refusal> {
    if asked.pairs < MIN_PAIRS || asked.max_pairs < asked.pairs {
        return Err(format!("--pairs has to be {MIN_PAIRS} to --max-pairs").into());
    }
    if asked.load.find_capacity.is_some() {
        return Err(
            "compare makes runs of one load: find each one's capacity by itself"
                .to_owned()
                .into(),
        );
    }
    let (a, b) = (side(asked, &asked.a)?, side(asked, &asked.b)?);
    let disturbed = Cell::default();
    let contest = Contest {
        asked,
        stop,
        disturbed,
    };
    contest.say(&format!(
        "A: {}\nB: {}\n\nA against itself",
        asked.a, asked.b
    ));
    let itself = contest.pairs(&a, &a, asked.pairs)?;
    let noise = rows(&itself, asked.load.seed);
    contest.table(&noise);
    let usable = !noise
        .iter()
        .any(|row| row.verdict == "faster" || row.verdict == "slower");
    let stopped = || stop.load(Ordering::Relaxed);
    let mut outcome = Outcome {
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
        contest.say(
            "\nA differs from itself: this machine is not quiet enough to compare anything on it",
        );
    } else if !stopped() {
        contest.say("\nB beside A");
        let pairs = contest.pairs(&a, &b, asked.max_pairs)?;
        outcome.pairs = pairs.len();
        outcome.b_beside_a = rows(&pairs, asked.load.seed);
        contest.table(&outcome.b_beside_a);
    }
    outcome.disturbed = contest.disturbed.get();
    contest.say_what_disturbed();
    if asked.json {
        let json = serde_json::to_string_pretty(&outcome).map_err(|why| why.to_string())?;
        let _ = writeln!(io::stdout(), "{json}");
    }
    Ok(match usable {
        _ if stopped() => EXIT_PARTIAL,
        true => EXIT_SUCCESS,
        false => EXIT_INVALID,
    })
}

/// A URL, or a command and the URL that is asked of what it starts.
fn side(asked: &Compare, text: &str) -> Result<Side, String> {
    let is_url = Url::read(text, None).is_ok() && !text.contains(' ');
    let url = match (is_url, &asked.url) {
        (true, _) => text,
        (false, Some(url)) => url,
        (false, None) => {
            return Err(format!(
                "'{text}' is a command: say with --url what it serves"
            ));
        }
    };
    Ok(Side {
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

struct Contest<'a> {
    asked: &'a Compare,
    stop: &'a Arc<AtomicBool>,
    disturbed: Cell<Disturbed>,
}

impl Contest<'_> {
    /// Pairs of reports, A's and B's, until they say enough or there are `most`.
    fn pairs(&self, a: &Side, b: &Side, most: usize) -> Result<Vec<(Report, Report)>, Refusal> {
        let mut pairs: Vec<(Report, Report)> = Vec::new();
        while pairs.len() < most {
            let turned = b_first(pairs.len(), self.asked.load.seed);
            let (first, second) = if turned { (b, a) } else { (a, b) };
            let (first, second) = (self.block(first)?, self.block(second)?);
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            pairs.push(if turned {
                (second, first)
            } else {
                (first, second)
            });
            if pairs.len() >= self.asked.pairs && self.is_clear(&pairs) {
                break;
            }
        }
        Ok(pairs)
    }

    /// Whether every figure is either narrow or surely different.
    fn is_clear(&self, pairs: &[(Report, Report)]) -> bool {
        let rows = rows(pairs, self.asked.load.seed);
        rows.iter().all(|row| {
            row.verdict != "undecided"
                || row.smallest_detectable.is_some_and(|least| least < NARROW)
        })
    }

    /// A run that others have left alone, or the last that was tried.
    fn block(&self, side: &Side) -> Result<Report, Refusal> {
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

    /// A run, and the share of all processors that others used meanwhile, where it is known.
    fn run(&self, side: &Side) -> Result<(Report, Option<f64>), Refusal> {
        let server = match &side.command {
            Some(command) => Some(Started::start(command, side, self.stop)?),
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

    fn say_what_disturbed(&self) {
        let Disturbed {
            repeated,
            counted,
            unknown,
        } = self.disturbed.get();
        let percent = OUTSIDE * 100.0;
        if repeated > 0 {
            self.say(&format!(
                "\nothers used more than {percent} % of the processors: {repeated} runs were made again"
            ));
        }
        if counted > 0 {
            self.say(&format!(
                "{counted} runs were disturbed {MAX_TRIES} times and count all the same; if it is \
                 the servers' own databases that use the processors, name them with --with"
            ));
        }
        if unknown > 0 {
            self.say(
                "\nwhat others use of the processors is not known: /proc does not say who listens here",
            );
        }
    }

    fn say(&self, text: &str) {
        if !self.asked.json {
            let _ = writeln!(io::stdout(), "{text}");
        }
    }

    fn table(&self, rows: &[Row]) {
        let percent = |found: Option<f64>| {
            found.map_or("n/a".to_owned(), |ratio| {
                format!("{:+.1} %", (ratio - 1.0) * 100.0)
            })
        };
        for row in rows {
            let least = row.smallest_detectable.map_or("n/a".to_owned(), |share| {
                format!("{} %", humanize::digits(share * 100.0))
            });
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

/// Where a server listens.
enum Door {
    Unix(PathBuf),
    Tcp(Url),
}

impl Door {
    fn of(side: &Side) -> Result<Door, String> {
        if let Some(path) = &side.run.request.unix {
            return Ok(Door::Unix(path.clone()));
        }
        let url = side.run.urls.first().map_or("", String::as_str);
        Ok(Door::Tcp(Url::read(url, None)?))
    }

    fn is_open(&self) -> bool {
        match self {
            Door::Unix(path) => UnixStream::connect(path).is_ok(),
            Door::Tcp(place) => TcpStream::connect((place.host.as_str(), place.port)).is_ok(),
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Door::Unix(path) => write!(f, "{}", path.display()),
            Door::Tcp(place) => write!(f, "{place}"),
        }
    }
}

/// A server that was started by a command, with all its processes. It ends when this is dropped.
struct Started {
    shell: Child,
    door: Door,
}

impl Started {
    /// Starts it, and waits until it listens.
    fn start(command: &str, side: &Side, stop: &Arc<AtomicBool>) -> Result<Started, Refusal> {
        let now = |why: String| Refusal::Now(format!("'{command}': {why}"));
        let door = Door::of(side)?;
        if door.is_open() {
            return Err(now(format!("somebody else listens at {door} already")));
        }
        let mut shell = Command::new("sh");
        shell
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        shell.process_group(0);
        maitred_os::spawn::unblock_signals(&mut shell);
        let shell = shell.spawn();
        let shell = shell.map_err(|why| now(format!("cannot be started: {why}")))?;
        let mut started = Started { shell, door };
        let deadline = Instant::now() + START;
        while !started.door.is_open() {
            if let Ok(Some(status)) = started.shell.try_wait() {
                let door = &started.door;
                return Err(now(format!(
                    "ended before it listened at {door} ({status})"
                )));
            }
            if Instant::now() > deadline || stop.load(Ordering::Relaxed) {
                return Err(now(format!("nobody listens at {}", started.door)));
            }
            std::thread::sleep(LOOK);
        }
        Ok(started)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let group = i32::try_from(self.shell.id()).ok().and_then(Pid::from_raw);
        let tell = |signal: Signal| {
            if let Some(group) = group {
                let _ = kill_process_group(group, signal);
            }
        };
        tell(Signal::TERM);
        let deadline = Instant::now() + END;
        // The shell may end before what it has started.
        while Instant::now() < deadline
            && (matches!(self.shell.try_wait(), Ok(None)) || self.door.is_open())
        {
            std::thread::sleep(LOOK);
        }
        tell(Signal::KILL);
        let _ = self.shell.wait();
    }
}
