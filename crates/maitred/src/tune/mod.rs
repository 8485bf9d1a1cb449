//! `maitred tune`: measures, decides, proves, writes.

pub mod options;
mod php_settings;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use maitred_control::admin::{PoolStatus, Reply, Request};
use maitred_doctor::facts::PhpServer;
use maitred_doctor::finding::{Finding, Severity};
use maitred_doctor::read::Counted;
use maitred_doctor::{Options, Scope};
use maitred_measure::endpoints::TlsTrust;
use maitred_os::signals::{Awaited, Signal};
use maitred_os::users;
use maitred_text::humanize;
use maitred_tune::course::goal::Goal;
use maitred_tune::course::{Course, CourseInput, Verdict};
use maitred_tune::php_memory::{Counts, PhpMemoryProbe};
use maitred_tune::processes::{self, ProcessOwner};
use maitred_tune::report::Report;
use maitred_tune::runner::{Abort, Runner};
use maitred_tune::settings::Server;
use maitred_tune::site::Site;
use maitred_tune::target::{self, Reload, Target};
use maitred_tune::workload::{Prober, Workload, WorkloadOptions, prepare};
use maitred_tune::{html, text};

use crate::client::{Client, UNEXPECTED};
use crate::command::DEFAULT_CONFIG;
use crate::command::Reach;
use crate::doctor::user_of_pool;
use crate::exit_code::{EXIT_STOPPED, EXIT_SUCCESS, complain, fail, print_line, refuse};
use crate::report_file;
use options::{Tune, TuneOutputOptions, TuneServerOptions};
use php_settings::Candidates;

/// Nothing is proven, and nothing has changed.
const EXIT_NOT_PROVEN: u8 = 3;

/// Default duration, and that of `--quick`, in seconds.
const USUAL_SECONDS: f64 = 600.0;
const QUICK_SECONDS: f64 = 120.0;

/// The share of the time of `--quick` within which all pages must have been fetched once.
const LOOKING_AT_PAGES: f64 = 1.0 / 6.0;

/// Possible durations, in seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 5.0..=86_400.0;

/// Timeout of the checks before a run.
const PATIENCE: Duration = Duration::from_secs(5);

/// Timeout until the site is served with the new setting.
const LIVE_CHECK: Duration = Duration::from_secs(10);

/// The subject of doctor's findings that are about no server.
const MACHINE: &str = "the machine";

/// Checks of doctor whose failure makes results doubtful: a throttled control group, paging, low
/// memory, OPcache or a debugger.
const FALSIFIES: [&str; 4] = ["D5", "D6", "D7", "D15"];

/// The state for the signal handler: it can be interrupted, it is being interrupted, it is done.
const GOING: u8 = 0;
const ENDING: u8 = 1;
const DONE: u8 = 2;

/// Interruption by a signal.
#[derive(Clone, Default)]
struct Interruption {
    requested: Arc<AtomicBool>,
    state: Arc<AtomicU8>,
}

impl Interruption {
    /// A signal interrupts it. Returns whether it will stop early.
    fn request(&self) -> bool {
        let ends = self.pass(ENDING) || self.state.load(Ordering::SeqCst) == ENDING;
        if ends {
            self.requested.store(true, Ordering::SeqCst);
        }
        ends
    }

    /// Only the report is missing. Returns whether no signal has interrupted it before.
    fn done(&self) -> bool {
        self.pass(DONE)
    }

    fn pass(&self, next: u8) -> bool {
        let (now, seen) = (Ordering::SeqCst, Ordering::SeqCst);
        self.state.compare_exchange(GOING, next, now, seen).is_ok()
    }
}

/// Why there is no report.
enum TuneError {
    Usage(String),
    Now(String),
    Stopped,
}

impl From<String> for TuneError {
    fn from(why: String) -> TuneError {
        TuneError::Now(why)
    }
}

impl From<Abort> for TuneError {
    fn from(ended: Abort) -> TuneError {
        match ended {
            Abort::Stopped => TuneError::Stopped,
            Abort::Failed(why) => TuneError::Now(why),
        }
    }
}

/// Runs the command.
pub fn tune(asked: &Tune) -> ExitCode {
    match carry_out(asked) {
        Ok(code) => ExitCode::from(code),
        Err(TuneError::Usage(why)) => refuse(&why),
        Err(TuneError::Now(why)) => fail(&why),
        Err(TuneError::Stopped) => {
            let _ = writeln!(io::stderr(), "maitred: interrupted; all settings are restored");
            ExitCode::from(EXIT_STOPPED)
        }
    }
}

/// The parsed arguments that need checks.
#[derive(Clone)]
struct ParsedArguments {
    seconds: f64,
    goal: Option<Goal>,
    servers: Vec<Server>,
}

/// Parses the command line, before anything else.
fn read(asked: &Tune) -> Result<ParsedArguments, TuneError> {
    let goal = asked.course.goal.as_deref().map(Goal::read);
    let servers = asked.output.servers.iter().map(|name| Server::read(name));
    let said = ParsedArguments {
        seconds: seconds(asked).map_err(TuneError::Usage)?,
        goal: goal.transpose().map_err(TuneError::Usage)?,
        servers: servers.collect::<Result<Vec<_>, _>>().map_err(TuneError::Usage)?,
    };
    let wanted = !asked.urls.is_empty()
        || asked.load.urls_file.is_some()
        || asked.load.har.is_some()
        || asked.course.undo;
    if !wanted {
        let why = "name a page of the site to tune, such as http://127.0.0.1/";
        return Err(TuneError::Usage(why.to_owned()));
    }
    check_files(&asked.output)?;
    Ok(said)
}

fn carry_out(asked: &Tune) -> Result<u8, TuneError> {
    let began = Instant::now();
    let said = read(asked)?;
    // Before any thread starts: one that does not block the signals would be ended by them.
    let stop = stop_on_signals().map_err(|why| format!("cannot wait for signals: {why}"))?;
    let (site, findings) = find(&asked.server)?;
    if stop.requested.load(Ordering::SeqCst) {
        return Err(TuneError::Stopped);
    }
    if asked.course.undo {
        let done = target::undo(&site, reload(&asked.server, &site))?;
        let _ = writeln!(io::stdout(), "{done}");
        return Ok(EXIT_SUCCESS);
    }
    let owner = owner_of_pool(&asked.server, &site)?;
    let tries_php = asked.course.php.is_some();
    let php = tries_php.then(|| Candidates::of(asked, &site, owner)).transpose()?;
    let doubts = warn(&site, findings);
    let wish = workload_of(asked);
    let mut prober =
        Prober::new(&wish.headers, Arc::clone(&stop.requested)).map_err(TuneError::Usage)?;
    // Before the first request: another `maitred tune` may be reloading the site.
    let mut target = Target::of(&site, reload(&asked.server, &site))?;
    if let Some(user) = owner.map(|owner| owner.uid).or(site.pool.user) {
        target.trust_only(user);
    }
    let looks = Duration::from_secs_f64(said.seconds * LOOKING_AT_PAGES);
    prober.until(asked.course.quick.then_some(began + looks));
    let workload = prepare(&wish, &mut prober)?;
    prober.until(None);
    if let Some(left_out) = workload.left_out() {
        note(&left_out);
    }
    let mut progress = Progress::new(&workload.source, &site);
    let mut ask = counts_of(&site, &asked.server);
    let mut runner = Runner {
        counts: PhpMemoryProbe::new(site.service.kind == PhpServer::Maitred, &mut ask),
        target: &mut target,
        workload: &workload,
        prober: &mut prober,
        stop: &stop.requested,
        began,
        progress: &mut |what, left| progress.say(what, left),
    };
    if let Some(candidates) = php {
        return php_settings::tune_php(asked, &site, candidates, said.seconds, runner);
    }
    let mut course = Course::new(course_input(asked, said.clone(), &site, &workload));
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
    // The setting is written; a missing report does not change the exit code.
    for why in publish(&report, &asked.output) {
        complain(&why);
    }
    written?;
    Ok(match course.verdict {
        Some(Verdict::Gain | Verdict::NothingToGain(_)) => EXIT_SUCCESS,
        _ => EXIT_NOT_PROVEN,
    })
}

fn course_input(
    asked: &Tune,
    said: ParsedArguments,
    site: &Site,
    workload: &Workload,
) -> CourseInput {
    CourseInput {
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
    }
}

/// The error for a signal while a setting was written. Only the first attempt to restore it knows
/// its outcome: the second finds nothing to restore, even if the server has exited meanwhile.
fn ended_early(written: Result<(), TuneError>, restored: Result<(), String>) -> TuneError {
    match (written, restored) {
        (Err(TuneError::Now(why)), Err(further)) if !why.contains(&further) => {
            TuneError::Now(format!("{why}; {further}"))
        }
        (Err(refusal), _) => refusal,
        (Ok(()), Err(why)) => TuneError::Now(why),
        (Ok(()), Ok(())) => TuneError::Stopped,
    }
}

/// Writes the proven setting, or prints what to paste. Returns whether a written file is in use
/// now.
fn write_down(
    asked: &Tune,
    target: &mut Target,
    course: &Course,
    report: &mut Report,
) -> Result<bool, TuneError> {
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
        report.written =
            Some(format!("put this into {shown}, and run maitred reload:\n{}", report.file));
        return Ok(false);
    }
    if asked.course.no_write {
        report.written =
            Some(format!("nothing is written (--no-write); {shown} would be:\n{}", report.file));
        return Ok(false);
    }
    let file = report.file.clone();
    match target.write(choice.workers, &file) {
        Ok(()) => {
            report.written = Some(format!(
                "written to {shown} and in use; maitred tune --undo restores the old settings"
            ));
            Ok(true)
        }
        Err(why) => {
            report.written = Some(format!("not written: {why}"));
            Err(TuneError::Now(why))
        }
    }
}

/// Checks that the site is served with the new setting. If not, the old one is restored.
fn serves(
    is_kept: bool,
    target: &mut Target,
    workload: &Workload,
    prober: &mut Prober,
    report: &mut Report,
) -> Result<(), TuneError> {
    if !is_kept {
        return Ok(());
    }
    let Err(why) = workload.is_served(prober, LIVE_CHECK) else {
        return Ok(());
    };
    let undone = match target.restore() {
        Ok(()) => "its old settings are restored".to_owned(),
        Err(further) => further,
    };
    let why = format!("the site is not served with the new setting: {why}; {undone}");
    report.written = Some(format!("not written: {why}"));
    Err(TuneError::Now(why))
}

fn seconds(asked: &Tune) -> Result<f64, String> {
    let seconds = match (&asked.course.time, asked.course.quick) {
        (_, true) => QUICK_SECONDS,
        (Some(text), false) => humanize::parse_duration(text)?,
        (None, false) => USUAL_SECONDS,
    };
    if !SECONDS.contains(&seconds) {
        return Err("--time has to be 5s to 24h".to_owned());
    }
    Ok(seconds)
}

/// Examines the machine, and finds the pool. Also returns doctor's findings.
fn find(asked: &TuneServerOptions) -> Result<(Site, Vec<Finding>), TuneError> {
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
        user_of_pool,
        root: None,
        access_log: None,
        watch: maitred_doctor::read::DEFAULT_WATCH,
        time: PATIENCE,
    });
    let site = Site::find(&facts, asked.pool.as_deref())?;
    Ok((site, maitred_doctor::Report::of(&facts).findings))
}

/// The user of the PHP of a pool of maitred; none: that of this process, or it is unknown. What
/// runs does not decide it: any process can have the title of a worker.
fn owner_of_pool(
    asked: &TuneServerOptions,
    site: &Site,
) -> Result<Option<ProcessOwner>, TuneError> {
    if site.service.kind != PhpServer::Maitred || !users::is_root() {
        return Ok(None);
    }
    // The pools of a server that was not started as root run as it does.
    if let Some(server) = processes::owner(site.master).filter(|server| server.uid != 0) {
        return Ok(Some(server));
    }
    let loaded = maitred_config::load(&config(asked)).map_err(|why| why.to_string())?;
    let Some(pool) = loaded.pools.iter().find(|pool| pool.name == site.pool.section) else {
        return Ok(None);
    };
    let user = maitred_supervisor::user_of_pool(pool, &loaded).map_err(|why| why.to_string())?;
    Ok(user.map(|user| ProcessOwner { uid: user.uid, gid: user.gid }))
}

/// Prints doctor's findings about a pool; returns those that make results doubtful.
fn warn(site: &Site, findings: Vec<Finding>) -> Vec<String> {
    let of_it = [&site.service.name, &site.pool.name, MACHINE];
    let bad = findings
        .iter()
        .filter(|found| found.severity == Severity::Fail && of_it.contains(&found.about.as_str()));
    let mut doubts = Vec::new();
    for found in bad {
        let line = format!("doctor {}: {}; {}", found.check, found.seen, found.consequence);
        note(&line);
        if FALSIFIES.contains(&found.check) {
            doubts.push(line);
        }
    }
    doubts
}

fn config(asked: &TuneServerOptions) -> PathBuf {
    asked.config.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG))
}

/// `maitred reload`, for maitred.
fn reload(asked: &TuneServerOptions, site: &Site) -> Reload {
    let (reach, section) = (reach(asked), site.pool.section.clone());
    Box::new(move |workers| {
        let pools = Vec::new();
        let what = match Client::reach(&reach)?.ask_patiently(&Request::Reload { pools })? {
            Reply::Reloaded { what } => what,
            Reply::Failed { why } | Reply::Refused { why } => return Err(why),
            _ => return Err(UNEXPECTED.to_owned()),
        };
        let now = workers.map(|_| status_of_pool(&reach, &section)).transpose()?.flatten();
        let now = now.map(|pool| pool.workers.limit);
        match workers.zip(now).filter(|(workers, now)| u64::from(*workers) != *now) {
            None => Ok(what),
            Some((workers, now)) => Err(format!(
                "pool {section} has {now} workers after the reload, not {workers}: is \
                 MAITRED_POOL_MAX_CHILDREN in the server's environment? Remove it, and tune again"
            )),
        }
    })
}

/// What maitred reports of a pool; none: it has no such pool.
fn status_of_pool(reach: &Reach, section: &str) -> Result<Option<PoolStatus>, String> {
    let request = Request::Status { pool: Some(section.to_owned()) };
    let Reply::Status(status) = Client::reach(reach)?.ask(&request)? else {
        return Err(UNEXPECTED.to_owned());
    };
    Ok(status.pools.into_iter().find(|pool| pool.name == section))
}

/// Reads the memory of scripts: from php-fpm's status page, or from maitred's admin socket.
fn counts_of(site: &Site, asked: &TuneServerOptions) -> Box<dyn FnMut() -> Counts> {
    let pool = site.pool.clone();
    if site.service.kind != PhpServer::Maitred {
        return Box::new(move || {
            let reported = maitred_doctor::read::counted(&pool, PATIENCE);
            reported.map_err(|why| why.to_string())
        });
    }
    let reach = reach(asked);
    Box::new(move || {
        let most = status_of_pool(&reach, &pool.section)?
            .and_then(|reported| Some((reported.requests, reported.peak_memory.p99_bytes?)));
        let (requests, memory) = most.ok_or("no script has run yet")?;
        Ok(vec![Counted { pid: 0, requests, memory }])
    })
}

fn reach(asked: &TuneServerOptions) -> Reach {
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
        trust: TlsTrust { insecure: load.insecure, ca: load.ca.clone() },
    }
}

/// Prints a line on standard error. It may have text of the site's pages.
fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{}", humanize::printable_pattern(line));
}

/// Progress on standard error: the current step, and the remaining time.
struct Progress {
    began: Instant,
}

impl Progress {
    fn new(source: &str, site: &Site) -> Progress {
        let about = format!("tuning {} of {}: {source}", site.pool.section, site.service.name);
        note(&format!("{about}; Ctrl-C interrupts it and restores all settings"));
        Progress { began: Instant::now() }
    }

    fn say(&mut self, what: &str, left: f64) {
        let past = self.began.elapsed().as_secs_f64();
        let done = past / (past + left).max(1e-9) * 100.0;
        let left = humanize::duration(left.ceil());
        note(&format!("[{done:>3.0} %] {what} · about {left} left"));
    }
}

/// Checks that the files of the report can be written, before ten minutes are spent on it.
fn check_files(output: &TuneOutputOptions) -> Result<(), TuneError> {
    let mut files = output.json.file().into_iter().chain(output.html.as_deref());
    Ok(files.try_for_each(report_file::check)?)
}

/// Prints the report, and writes its files. Returns the errors.
fn publish(report: &Report, output: &TuneOutputOptions) -> Vec<String> {
    // A closed reader is no error.
    let json = if output.json.is_stdout() {
        let text = report.json();
        text.map(|text| drop(writeln!(io::stdout(), "{text}")))
    } else {
        print_line(&humanize::printable_lines(&text::lines(report).join("\n")));
        output.json.file().map_or(Ok(()), |file| report_file::write(file, &report.json()?))
    };
    let html = output.html.as_deref();
    let html = html.map_or(Ok(()), |file| report_file::write(file, &html::page(report)));
    [json, html].into_iter().filter_map(Result::err).collect()
}

/// Installs the signal handling: a signal interrupts the tuning, which then restores all settings.
fn stop_on_signals() -> io::Result<Interruption> {
    let signals =
        Awaited::take_over(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT])?;
    let stop = Interruption::default();
    let requested = stop.clone();
    std::thread::Builder::new().spawn(move || {
        while signals.wait().is_ok() {
            let notice = if requested.request() {
                "maitred: restoring all settings"
            } else {
                "maitred: the setting is in use; only the report is missing"
            };
            let _ = writeln!(io::stderr(), "{notice}");
        }
    })?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_that_all_is_put_back_is_told_the_truth() {
        let stop = Interruption::default();
        assert!(stop.request() && stop.request());
        assert!(stop.requested.load(Ordering::SeqCst));
        assert!(!stop.done(), "what was written has to be taken back");
        let stop = Interruption::default();
        assert!(stop.done());
        assert!(!stop.request(), "it stays");
        assert!(!stop.requested.load(Ordering::SeqCst));
    }

    #[test]
    fn who_ends_it_while_a_setting_is_written_is_told_what_is_not_as_it_was() {
        let said = |written: Result<(), &str>, restored: Result<(), &str>| {
            let written = written.map_err(|why| TuneError::Now(why.to_owned()));
            match ended_early(written, restored.map_err(str::to_owned)) {
                TuneError::Now(why) => Some(why),
                TuneError::Stopped => None,
                TuneError::Usage(why) => panic!("{why}"),
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
