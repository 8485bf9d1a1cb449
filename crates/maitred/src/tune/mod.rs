//! `maitred tune`: measures, decides, proves, writes.

pub mod options;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use maitred_control::admin::{Answer, Request};
use maitred_doctor::facts::PhpServer;
use maitred_doctor::finding::{Finding, Severity};
use maitred_doctor::read::Counted;
use maitred_doctor::{Options, Scope};
use maitred_measure::endpoints::TlsTrust;
use maitred_os::signals::{Awaited, Signal};
use maitred_text::humanize;
use maitred_tune::course::goal::Goal;
use maitred_tune::course::{Course, CourseInput, Verdict};
use maitred_tune::php_memory::{Counts, PhpMemoryProbe};
use maitred_tune::report::Report;
use maitred_tune::runner::{Abort, Runner};
use maitred_tune::settings::Server;
use maitred_tune::site::Site;
use maitred_tune::target::{self, Reload, Target};
use maitred_tune::workload::{Prober, Workload, WorkloadOptions, prepare};
use maitred_tune::{html, text};

use crate::client::Client;
use crate::command::Reach;
use crate::serve::DEFAULT_CONFIG;
use crate::{EXIT_SUCCESS, complain, fail, refuse};
use options::{OutputOptions, ServerOptions, Tune};

/// Nothing is proven, and nothing was changed.
const EXIT_NOT_PROVEN: u8 = 3;

/// It was ended before its time, as a shell says it of SIGINT.
const EXIT_STOPPED: u8 = 130;

/// How long it takes where nobody says so, and with `--quick`, in seconds.
const USUAL_SECONDS: f64 = 600.0;
const QUICK_SECONDS: f64 = 120.0;

/// The share of the time of `--quick` within which all pages have to be looked at.
const LOOKING_AT_PAGES: f64 = 1.0 / 6.0;

/// Within what it can be done, in seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 5.0..=86_400.0;

/// How long whoever is asked beforehand may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the site may take until it is served with what was written.
const LIVE_CHECK: Duration = Duration::from_secs(10);

/// What doctor's findings are about that are about no server.
const MACHINE: &str = "the machine";

/// Checks of doctor's that make figures doubtful if they fail: a group that is throttled, paging, want of memory,
/// OPcache or a debugger.
const FALSIFIES: [&str; 4] = ["D5", "D6", "D7", "D15"];

/// How far it is, for who is told to end it: it can be ended, it is being ended, it is done.
const GOING: u8 = 0;
const ENDING: u8 = 1;
const DONE: u8 = 2;

/// Whether it is to end before its time.
#[derive(Clone, Default)]
struct Stop {
    told: Arc<AtomicBool>,
    state: Arc<AtomicU8>,
}

impl Stop {
    /// Somebody wants it to end. Whether it will.
    fn tell(&self) -> bool {
        let ends = self.pass(ENDING) || self.state.load(Ordering::SeqCst) == ENDING;
        if ends {
            self.told.store(true, Ordering::SeqCst);
        }
        ends
    }

    /// All is done but for the report. Whether nobody has wanted it to end before.
    fn done(&self) -> bool {
        self.pass(DONE)
    }

    fn pass(&self, next: u8) -> bool {
        let (now, seen) = (Ordering::SeqCst, Ordering::SeqCst);
        self.state.compare_exchange(GOING, next, now, seen).is_ok()
    }
}

/// Why there is no report.
enum Refusal {
    Usage(String),
    Now(String),
    Stopped,
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Now(why)
    }
}

impl From<Abort> for Refusal {
    fn from(ended: Abort) -> Refusal {
        match ended {
            Abort::Stopped => Refusal::Stopped,
            Abort::Failed(why) => Refusal::Now(why),
        }
    }
}

/// Carries out what was asked.
pub fn tune(asked: &Tune) -> ExitCode {
    match carry_out(asked) {
        Ok(code) => ExitCode::from(code),
        Err(Refusal::Usage(why)) => refuse(&why),
        Err(Refusal::Now(why)) => fail(&why),
        Err(Refusal::Stopped) => {
            let _ = writeln!(
                io::stderr(),
                "maitred: ended before its time; all is as it was"
            );
            ExitCode::from(EXIT_STOPPED)
        }
    }
}

/// What is said on the command line, as far as it has to be understood first.
struct Said {
    seconds: f64,
    goal: Option<Goal>,
    servers: Vec<Server>,
}

/// Understands the command line, before anything is looked at.
fn read(asked: &Tune) -> Result<Said, Refusal> {
    let goal = asked.course.goal.as_deref().map(Goal::read);
    let servers = asked.output.servers.iter().map(|name| Server::read(name));
    let said = Said {
        seconds: seconds(asked).map_err(Refusal::Usage)?,
        goal: goal.transpose().map_err(Refusal::Usage)?,
        servers: servers
            .collect::<Result<Vec<_>, _>>()
            .map_err(Refusal::Usage)?,
    };
    let wanted = !asked.urls.is_empty()
        || asked.load.urls_file.is_some()
        || asked.load.har.is_some()
        || asked.course.undo;
    if !wanted {
        let why = "name a page of the site that is to be tuned, such as http://127.0.0.1/";
        return Err(Refusal::Usage(why.to_owned()));
    }
    check_files(&asked.output)?;
    Ok(said)
}

fn carry_out(asked: &Tune) -> Result<u8, Refusal> {
    let began = Instant::now();
    let said = read(asked)?;
    let stop = stop_on_signals().map_err(|why| format!("signals cannot be awaited: {why}"))?;
    let (site, findings) = find(&asked.server)?;
    if asked.course.undo {
        let done = target::undo(&site, reload(&asked.server))?;
        let _ = writeln!(io::stdout(), "{done}");
        return Ok(EXIT_SUCCESS);
    }
    let doubts = warn(&site, findings);
    let wish = workload_of(asked);
    let mut prober = Prober::new(&wish.headers, Arc::clone(&stop.told)).map_err(Refusal::Usage)?;
    // Before the site is asked: it may not answer while another tune has it begin anew.
    let mut target = Target::of(&site, reload(&asked.server))?;
    let looks = Duration::from_secs_f64(said.seconds * LOOKING_AT_PAGES);
    prober.until(asked.course.quick.then_some(began + looks));
    let workload = prepare(&wish, &mut prober)?;
    prober.until(None);
    if let Some(left_out) = workload.left_out() {
        let _ = writeln!(io::stderr(), "{left_out}");
    }
    let mut course = Course::new(CourseInput {
        seconds: said.seconds,
        ends: asked.course.quick,
        first: workload.took,
        cores: site.cores,
        memory: site.memory.clone(),
        now: site.now(),
        most_workers: asked.course.most_workers,
        goal: said.goal,
        routes: workload.routes(),
        despite_noise: asked.course.despite_noise,
        seed: asked.course.seed,
    });
    let mut progress = Progress::new(&workload.source, &site);
    let mut ask = counts_of(&site, &asked.server);
    let mut runner = Runner {
        counts: PhpMemoryProbe::new(site.service.kind == PhpServer::Maitred, &mut ask),
        target: &mut target,
        workload: &workload,
        prober: &mut prober,
        stop: &stop.told,
        began,
        progress: &mut |what, left| progress.say(what, left),
    };
    runner.run(&mut course)?;
    let not_counted = runner.counts.why_not.take();
    let mut report = Report::of(&site, &workload.source, &course, &said.servers);
    report.not_counted = not_counted;
    report.not_proven.extend(doubts);
    let written = write_down(asked, &mut target, &course, &mut report)
        .and_then(|keeps| serves(keeps, &mut target, &workload, &mut prober, &mut report));
    if !stop.done() {
        return Err(ended_early(written, target.restore()));
    }
    target.release();
    // What was done is done, and the exit code says so.
    for why in publish(&report, &asked.output) {
        complain(&why);
    }
    written?;
    Ok(match course.verdict {
        Some(Verdict::Gain | Verdict::NothingToGain(_)) => EXIT_SUCCESS,
        _ => EXIT_NOT_PROVEN,
    })
}

/// What is said where somebody ended it while a setting was written. Only the first that puts a setting back knows
/// how that went: there is nothing left to put back for the second, even if the server has ended meanwhile.
fn ended_early(written: Result<(), Refusal>, restored: Result<(), String>) -> Refusal {
    match (written, restored) {
        (Err(Refusal::Now(why)), Err(further)) if !why.contains(&further) => {
            Refusal::Now(format!("{why}; {further}"))
        }
        (Err(refusal), _) => refusal,
        (Ok(()), Err(why)) => Refusal::Now(why),
        (Ok(()), Ok(())) => Refusal::Stopped,
    }
}

/// Writes what is proven, or says what to paste. Whether a file was written that is in use now.
fn write_down(
    asked: &Tune,
    target: &mut Target,
    course: &Course,
    report: &mut Report,
) -> Result<bool, Refusal> {
    let wanted = match &course.verdict {
        Some(Verdict::Gain) => true,
        Some(Verdict::NoGain(_)) => asked.course.write_unproven,
        _ => false,
    };
    let Some(choice) = course.choice.as_ref().filter(|_| wanted) else {
        return Ok(false);
    };
    let shown = target.file().display().to_string();
    if !target.takes_file() {
        report.written = Some(format!(
            "put this into {shown}, and run maitred reload:\n{}",
            report.file
        ));
        return Ok(false);
    }
    if asked.course.no_write {
        report.written = Some(format!(
            "nothing is written (--no-write); {shown} would be:\n{}",
            report.file
        ));
        return Ok(false);
    }
    let file = report.file.clone();
    match target.write(choice.workers, &file) {
        Ok(()) => {
            report.written = Some(format!(
                "written to {shown} and in use; maitred tune --undo takes it back"
            ));
            Ok(true)
        }
        Err(why) => {
            report.written = Some(format!("not written: {why}"));
            Err(Refusal::Now(why))
        }
    }
}

/// Looks whether the site is served with what was written. If it is not, all is as it was.
fn serves(
    is_kept: bool,
    target: &mut Target,
    workload: &Workload,
    prober: &mut Prober,
    report: &mut Report,
) -> Result<(), Refusal> {
    if !is_kept {
        return Ok(());
    }
    let Err(why) = workload.is_served(prober, LIVE_CHECK) else {
        return Ok(());
    };
    let undone = match target.restore() {
        Ok(()) => "its settings are as they were again".to_owned(),
        Err(further) => further,
    };
    let why = format!("with the new setting the site is not served: {why}; {undone}");
    report.written = Some(format!("not written: {why}"));
    Err(Refusal::Now(why))
}

fn seconds(asked: &Tune) -> Result<f64, String> {
    let seconds = match (&asked.course.time, asked.course.quick) {
        (_, true) => QUICK_SECONDS,
        (Some(text), false) => humanize::parse_duration(text)?,
        (None, false) => USUAL_SECONDS,
    };
    match SECONDS.contains(&seconds) {
        true => Ok(seconds),
        false => Err("--time has to be 5s to 24h".to_owned()),
    }
}

/// Looks at the machine, and finds the pool. With it comes what doctor finds.
fn find(asked: &ServerOptions) -> Result<(Site, Vec<Finding>), Refusal> {
    let which = match (&asked.config, &asked.php_fpm) {
        (Some(_), _) => Scope::Maitred,
        (None, Some(_)) => Scope::PhpFpm,
        (None, None) => Scope::Everything,
    };
    let facts = maitred_doctor::read(&Options {
        which,
        config: config(asked),
        php_fpm: asked.php_fpm.clone().flatten(),
        admin_socket: asked.admin_socket.clone(),
        root: None,
        access_log: None,
        watch: maitred_doctor::read::DEFAULT_WATCH,
        time: PATIENCE,
    });
    let site = Site::find(&facts, asked.pool.as_deref())?;
    Ok((site, maitred_doctor::Report::of(&facts).findings))
}

/// Says what doctor finds wrong with a pool; what of it makes figures doubtful.
fn warn(site: &Site, findings: Vec<Finding>) -> Vec<String> {
    let of_it = [&site.service.name, &site.pool.name, MACHINE];
    let bad = findings
        .iter()
        .filter(|found| found.severity == Severity::Fail && of_it.contains(&found.about.as_str()));
    let mut doubts = Vec::new();
    for found in bad {
        let line = format!(
            "doctor {}: {}; {}",
            found.check, found.seen, found.consequence
        );
        let _ = writeln!(io::stderr(), "{line}");
        if FALSIFIES.contains(&found.check) {
            doubts.push(line);
        }
    }
    doubts
}

fn config(asked: &ServerOptions) -> PathBuf {
    asked
        .config
        .clone()
        .unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG))
}

/// `maitred reload`, for a server of ours.
fn reload(asked: &ServerOptions) -> Reload {
    let reach = reach(asked);
    Box::new(move || {
        let pools = Vec::new();
        match Client::reach(&reach)?.ask_patiently(&Request::Reload { pools })? {
            Answer::Reloaded { what } => Ok(what),
            Answer::Failed { why } | Answer::Refused { why } => Err(why),
            _ => Err("the server answers what was not asked".to_owned()),
        }
    })
}

/// Asks what PHP counts of its scripts' memory: php-fpm by its status page, a server of ours on its admin socket.
fn counts_of(site: &Site, asked: &ServerOptions) -> Box<dyn FnMut() -> Counts> {
    let pool = site.pool.clone();
    if site.service.kind != PhpServer::Maitred {
        return Box::new(move || {
            let told = maitred_doctor::read::counted(&pool, PATIENCE);
            told.map_err(|why| why.to_string())
        });
    }
    let reach = reach(asked);
    Box::new(move || {
        let request = Request::Status {
            pool: Some(pool.section.clone()),
        };
        let Answer::Status(status) = Client::reach(&reach)?.ask(&request)? else {
            return Err("the server answers what was not asked".to_owned());
        };
        let told = status.pools.iter().find(|told| told.name == pool.section);
        let most = told.and_then(|told| Some((told.requests, told.peak_memory.p99_bytes?)));
        let (requests, memory) = most.ok_or("no script has run yet")?;
        Ok(vec![Counted {
            pid: 0,
            requests,
            memory,
        }])
    })
}

fn reach(asked: &ServerOptions) -> Reach {
    Reach {
        admin_socket: asked.admin_socket.clone(),
        configuration: Some(config(asked)).filter(|_| asked.admin_socket.is_none()),
    }
}

fn workload_of(asked: &Tune) -> WorkloadOptions {
    let load = &asked.load;
    WorkloadOptions {
        urls: asked.urls.clone(),
        urls_file: load.urls_file.clone(),
        access_log: load.access_log.clone(),
        har: load.har.clone(),
        cookies: load.cookies,
        crawl: load.crawl,
        headers: load.header.clone(),
        expect: load.expect.clone(),
        contains: load.contains.clone(),
        allow_write: load.allow_write,
        owned: load.yes_i_own_it,
        trust: TlsTrust {
            insecure: load.insecure,
            ca: load.ca.clone(),
        },
    }
}

/// What is done now, and how long the rest takes, on standard error.
struct Progress {
    began: Instant,
}

impl Progress {
    fn new(source: &str, site: &Site) -> Progress {
        let about = format!(
            "tuning {} of {}: {source}",
            site.pool.section, site.service.name
        );
        let _ = writeln!(
            io::stderr(),
            "{about}; Ctrl-C ends it and leaves everything as it was"
        );
        Progress {
            began: Instant::now(),
        }
    }

    fn say(&mut self, what: &str, left: f64) {
        let past = self.began.elapsed().as_secs_f64();
        let done = past / (past + left).max(1e-9) * 100.0;
        let left = humanize::duration(left.ceil());
        let _ = writeln!(io::stderr(), "[{done:>3.0} %] {what} · about {left} left");
    }
}

/// Whether JSON is all that is printed.
fn only_json(output: &OutputOptions) -> bool {
    output.json.as_deref() == Some(Path::new("-"))
}

/// Looks whether the files of the report can be written, before ten minutes are spent on it.
fn check_files(output: &OutputOptions) -> Result<(), Refusal> {
    let json = output.json.iter().filter(|_| !only_json(output));
    for file in json.chain(&output.html) {
        let opened = OpenOptions::new().create(true).append(true).open(file);
        opened.map_err(|why| unwritable(file, &why))?;
    }
    Ok(())
}

fn unwritable(file: &Path, why: &io::Error) -> String {
    format!("{} cannot be written: {why}", file.display())
}

/// Prints the report, and writes its files. Why those that could not be are not there.
fn publish(report: &Report, output: &OutputOptions) -> Vec<String> {
    let write =
        |file: &Path, text: &str| std::fs::write(file, text).map_err(|why| unwritable(file, &why));
    // That nobody reads what is printed is no error.
    let json = if only_json(output) {
        let text = report.json();
        text.map(|text| drop(writeln!(io::stdout(), "{text}")))
    } else {
        let _ = writeln!(io::stdout(), "{}", text::lines(report).join("\n"));
        let file = output.json.as_deref();
        file.map_or(Ok(()), |file| write(file, &report.json()?))
    };
    let html = output.html.as_deref();
    let html = html.map_or(Ok(()), |file| write(file, &html::page(report)));
    [json, html].into_iter().filter_map(Result::err).collect()
}

/// From now on signals that would end us end the tuning instead, which then puts everything back.
fn stop_on_signals() -> io::Result<Stop> {
    let signals = Awaited::take_over(&[
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ])?;
    let stop = Stop::default();
    let told = stop.clone();
    std::thread::Builder::new().spawn(move || {
        while signals.wait().is_ok() {
            let said = match told.tell() {
                true => "maitred: putting everything back",
                false => "maitred: it is done, and only the report is still to be written",
            };
            let _ = writeln!(io::stderr(), "{said}");
        }
    })?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_that_all_is_put_back_is_told_the_truth() {
        let stop = Stop::default();
        assert!(stop.tell() && stop.tell());
        assert!(stop.told.load(Ordering::SeqCst));
        assert!(!stop.done(), "what was written has to be taken back");
        let stop = Stop::default();
        assert!(stop.done());
        assert!(!stop.tell(), "it stays");
        assert!(!stop.told.load(Ordering::SeqCst));
    }

    #[test]
    fn who_ends_it_while_a_setting_is_written_is_told_what_is_not_as_it_was() {
        let said = |written: Result<(), &str>, restored: Result<(), &str>| {
            let written = written.map_err(|why| Refusal::Now(why.to_owned()));
            match ended_early(written, restored.map_err(str::to_owned)) {
                Refusal::Now(why) => Some(why),
                Refusal::Stopped => None,
                Refusal::Usage(why) => panic!("{why}"),
            }
        };
        assert_eq!(said(Ok(()), Ok(())), None, "all is as it was");
        let gone = said(Err("it does not serve: start it"), Ok(()));
        assert_eq!(gone.as_deref(), Some("it does not serve: start it"));
        let trial = said(Ok(()), Err("it still runs with the trial"));
        assert_eq!(trial.as_deref(), Some("it still runs with the trial"));
        let both = said(Err("it is gone"), Err("the file is another's"));
        assert_eq!(both.as_deref(), Some("it is gone; the file is another's"));
        let once = said(Err("it is gone; the file"), Err("the file"));
        assert_eq!(once.as_deref(), Some("it is gone; the file"));
    }
}
