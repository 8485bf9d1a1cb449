//! The report of a tuning, for programs and for the text and HTML reports.

use std::path::PathBuf;

use serde::Serialize;

use crate::course::goal::Goal;
use crate::course::overload::OverloadResult;
use crate::course::profile::RouteProfile;
use crate::course::proof::{self, ComparisonRow};
use crate::course::rate_search::RateTrial;
use crate::course::sweep::Sweep;
use crate::course::{Course, PoolSetting, Verdict, WorkerStart};
use crate::decide::{Ceiling, Choice};
use crate::growth::Slope;
use crate::laws;
use crate::machine::Machine;
use crate::measurement::Measurement;
use crate::processes;
use crate::settings::{self, Recommendation, Server, SettingInputs};
use crate::site::{Site, memory_limit, opcache, processor_limit, strings, wall_limit};
use crate::timeline::TimelinePoint;

/// The version of the report's format; it changes when a field is removed or changes its meaning.
pub const SCHEMA: &str = "maitred-tune/1";

/// The demand exceeds its mean at most moments: at 99 of 100 moments the busy workers are at most
/// the mean plus this many standard deviations (Poisson).
const PEAKS: f64 = 2.33;

/// From this share on the processors are busy: the web server and the generator need the rest.
const BUSY: f64 = 0.6;

/// maitred's page cache has a part for each processor, up to this many.
const MOST_PARTS: u32 = 16;

/// Most files that are visited to count scripts.
const MOST_FILES: u64 = 200_000;

/// Points of a chart.
pub type Curve = Vec<(f64, f64)>;

/// A report. Times are in seconds, memory is in bytes, shares are of 1.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The tuned pool, its server and its file.
    pub subject: String,
    /// Whether there was too little time for more than an indication.
    pub indicative: bool,
    /// The machine.
    pub machine: Machine,
    /// The source of the requests.
    pub load: String,
    /// The pool's original setting.
    pub before: PoolSetting,
    /// `gain`, `no_gain`, `nothing_to_gain` or `cannot_say`.
    pub verdict: &'static str,
    /// The same as a sentence.
    pub conclusion: String,
    /// The goal, and whether the user gave it.
    pub goal: Option<String>,
    #[allow(missing_docs)]
    pub goal_given: bool,
    /// Reasons to stop that `--despite-noise` has overridden.
    pub despite_noise: Vec<String>,
    /// By which share the throughput of the same setting may differ from itself.
    pub noise_floor: Option<f64>,
    /// One user alone.
    pub alone: Option<Measurement>,
    /// The number of users closest to the chosen number of workers, and the run queue time of a
    /// request with it.
    pub crowded: Option<(u32, f64)>,
    /// One user alone for each route, if there are several.
    pub routes: Vec<RouteProfile>,
    /// The cost of starting workers.
    pub boot: Option<WorkerStart>,
    /// Memory that all workers share, in bytes: OPcache and code, counted once.
    pub shared: Option<f64>,
    /// The most private memory of a worker at any moment.
    pub peak: Option<f64>,
    /// The most memory that PHP counted for a script, or why it is unknown.
    pub counted: Option<f64>,
    /// The count is for 99 of 100 scripts since the server's start, up to an eighth too high, and
    /// not for the largest script.
    pub counted_since_start: bool,
    #[allow(missing_docs)]
    pub not_counted: Option<String>,
    /// What that worker had in addition.
    pub uncounted: Option<f64>,
    /// Memory of a worker: the most private memory, and resident memory.
    pub private: Option<f64>,
    #[allow(missing_docs)]
    pub resident: Option<f64>,
    /// Private memory of a worker, median.
    pub typical: Option<f64>,
    /// The growth of workers.
    pub growth: Option<Slope>,
    /// The upper bound of the number of workers.
    pub ceiling: Option<Ceiling>,
    /// Throughput by workers.
    pub sweep: Vec<(f64, f64)>,
    /// The choice.
    pub choice: Option<Choice>,
    /// The rates that were tried.
    pub rates: Vec<RateTrial>,
    /// The highest rates that held, before and after.
    pub rate_before: Option<f64>,
    #[allow(missing_docs)]
    pub rate_after: Option<f64>,
    /// Whether the highest rate has lasted.
    pub rate_lasts: bool,
    /// The database on this machine with the fewest connections, and their number.
    pub downstream: Option<(String, u64)>,
    /// Workers that this rate keeps busy, including peaks.
    pub demand: Option<f64>,
    /// What limits higher rates.
    pub further: Option<String>,
    /// The behaviour under overload.
    pub overload: Vec<OverloadResult>,
    /// The original setting compared with itself.
    pub noise: Vec<ComparisonRow>,
    /// The new setting compared with the original one.
    pub proof: Vec<ComparisonRow>,
    /// The number of pairs, and how many were repeated because other processes used the processors.
    pub pairs: usize,
    #[allow(missing_docs)]
    pub repeated_pairs: usize,
    /// Requests that were not served in the pairs, of all: before, after.
    pub errors: Option<(f64, f64)>,
    /// Private memory of all workers, in bytes: before, after.
    pub memory: Option<(f64, f64)>,
    /// Whether the measurements obey the laws.
    pub consistency: Vec<String>,
    /// What was skipped for lack of time.
    pub left_out: Vec<String>,
    /// What is not proven, and what makes the results less certain.
    pub not_proven: Vec<String>,
    /// Settings for the servers that the user named.
    pub settings: Vec<Recommendation>,
    /// What was written, or what the user has to write.
    pub written: Option<String>,
    /// The file with the new setting.
    pub file: String,
    /// Latencies by percentile in the last pair, for a chart: before, after.
    #[serde(skip)]
    pub spectrums: (Curve, Curve),
    /// The timeline, for a chart.
    #[serde(skip)]
    pub moments: Vec<TimelinePoint>,
}

impl Report {
    /// Summarises a finished course.
    pub fn of(site: &Site, load: &str, course: &Course, servers: &[Server]) -> Report {
        let (verdict, conclusion) = verdict(course);
        let points = || course.points().iter().map(|point| &point.seen);
        let seen = || points().chain(&course.alone);
        let most = |of: fn(&Measurement) -> Option<f64>| seen().filter_map(of).reduce(f64::max);
        let private = most(|seen| seen.private);
        let resident = most(|seen| seen.resident);
        let tries = [&course.before, &course.after].into_iter().flatten();
        let peak = most(|seen| seen.peak);
        let largest = largest_counted(course);
        let shared = resident.zip(private).map(|(all, own)| (all - own).max(0.0));
        let own = WorkerSizes { private, resident, peak, shared };
        let inputs = inputs(site, course, &own);
        let lines = inputs.iter().flat_map(|inputs| {
            servers.iter().flat_map(move |server| settings::lines(*server, inputs))
        });
        let machine = Machine::of(site, &course.at_rest);
        Report {
            schema: SCHEMA,
            subject: format!("{} of {}", site.pool.name, site.service.name),
            indicative: course.is_indicative(),
            load: load.to_owned(),
            before: course.input.now.clone(),
            verdict,
            conclusion,
            goal: course.goal.as_ref().map(|goal| goal.text.clone()),
            despite_noise: course.troubles.clone(),
            noise_floor: course.noise.floor,
            goal_given: course.goal.as_ref().is_some_and(|goal| goal.is_given),
            alone: course.alone.clone(),
            crowded: crowded(course),
            routes: course.profile.profiled.clone(),
            boot: course.boot(),
            private,
            shared,
            peak,
            counted: largest.and_then(|seen| seen.counted),
            counted_since_start: site.service.kind == maitred_doctor::facts::PhpServer::Maitred,
            not_counted: None,
            uncounted: largest.and_then(|seen| seen.uncounted()),
            resident,
            typical: most(|seen| seen.typical),
            growth: course.growth,
            ceiling: course.sweep.as_ref().map(|sweep| sweep.ceiling().clone()),
            sweep: course.sweep.as_ref().map(|sweep| sweep.curve()).unwrap_or_default(),
            choice: course.choice.clone(),
            rates: tries.flat_map(|rate_search| rate_search.tries.clone()).collect(),
            rate_before: course.highest_before(),
            rate_after: course.highest_after(),
            rate_lasts: course.after.as_ref().is_some_and(|rate_search| rate_search.is_confirmed),
            downstream: downstream(site),
            demand: demand(course),
            further: course.choice.as_ref().map(|choice| further(choice, course)),
            overload: course
                .overload
                .as_ref()
                .map(|overload| overload.beyond.clone())
                .unwrap_or_default(),
            noise: course.noise.rows.clone(),
            proof: course.rows.clone(),
            pairs: course.pairs.len(),
            repeated_pairs: course.repeated,
            errors: in_pairs(course, |seen| Some(seen.error_share)),
            memory: in_pairs(course, |seen| Some(seen.private? * f64::from(seen.workers))),
            consistency: consistency(course),
            left_out: course.left_out.clone(),
            not_proven: not_proven(site, course, &machine),
            machine,
            settings: lines.collect(),
            written: None,
            file: inputs.map_or(String::new(), |inputs| file(site, course, &inputs)),
            spectrums: spectrums(course),
            moments: course.moments.clone(),
        }
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// None that is known to happen.
    pub fn json(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self).map_err(|why| why.to_string())
    }
}

fn verdict(course: &Course) -> (&'static str, String) {
    let workers = course.choice.as_ref().map_or(0, |choice| choice.workers);
    match &course.verdict {
        Some(Verdict::Gain) => {
            ("gain", format!("static with {workers} workers is proven to be better"))
        }
        Some(Verdict::NoGain(why)) => ("no_gain", format!("no proven gain: {why}")),
        Some(Verdict::NothingToGain(why)) => ("nothing_to_gain", format!("nothing to gain: {why}")),
        Some(Verdict::CannotSay(why)) => ("cannot_say", why.clone()),
        None => ("cannot_say", "it was stopped before there was a result".to_owned()),
    }
}

/// The measurement of the script with the most memory by PHP's count.
fn largest_counted(course: &Course) -> Option<&Measurement> {
    let routes = course.profile.profiled.iter().map(|route| &route.seen);
    let known = routes.chain(&course.alone).filter(|seen| seen.counted.is_some());
    known.max_by(|a, b| a.counted.unwrap_or(0.0).total_cmp(&b.counted.unwrap_or(0.0)))
}

/// Memory of a worker, in bytes.
struct WorkerSizes {
    private: Option<f64>,
    resident: Option<f64>,
    peak: Option<f64>,
    shared: Option<f64>,
}

fn inputs(site: &Site, course: &Course, own: &WorkerSizes) -> Option<SettingInputs> {
    let choice = course.choice.as_ref()?;
    let alone = course.alone.as_ref();
    Some(SettingInputs {
        workers: choice.workers,
        is_proven: course.verdict == Some(Verdict::Gain),
        binding: choice.binding.clone(),
        enough: choice.enough,
        private: own.private,
        resident: own.resident,
        peak: own.peak,
        shared: own.shared,
        opcache: opcache(&site.pool),
        strings: strings(&site.pool),
        pages: pages(course),
        parts: site.processors.min(MOST_PARTS),
        cpu: alone.and_then(|alone| alone.cpu),
        open_files: processes::open_files(&processes::workers(
            site.master,
            &site.title(),
            site.pool.user,
        )),
        scripts: scripts(&site.pool.roots),
        boot: course.boot().and_then(|boot| boot.cpu),
        total: site.total,
        cores: site.cores,
        rate: course.highest().unwrap_or(choice.rate),
        limit: course.goal.as_ref().map_or(1.0, Goal::limit),
        slowest: alone.and_then(|alone| alone.p99.or(alone.p90).or(alone.mean)),
        pace: course.pace,
        leak: course.growth.filter(Slope::leaks).map(|slope| slope.bytes),
        memory_limit: memory_limit(&site.pool),
        wall_limit: wall_limit(&site.pool),
        is_php_fpm: site.service.kind == maitred_doctor::facts::PhpServer::PhpFpm,
        control_timeout: site.service.control_timeout.as_secs_f64(),
        reads: site.reads,
        processor_limit: processor_limit(&site.pool),
        somaxconn: site.somaxconn,
    })
}

/// Average sizes of the requested pages: all together, and the largest.
fn pages(course: &Course) -> Option<(f64, f64)> {
    let routes = course.profile.profiled.iter().map(|route| &route.seen);
    let mut sizes: Vec<f64> = routes.filter_map(|seen| seen.bytes).collect();
    if sizes.is_empty() {
        sizes.extend(course.alone.as_ref().and_then(|alone| alone.bytes));
    }
    let largest = sizes.iter().copied().reduce(f64::max)?;
    Some((sizes.iter().sum(), largest))
}

/// The number of scripts in the directories of a pool's code, as far as they are counted.
fn scripts(roots: &[String]) -> Option<u64> {
    let mut folders: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
    let (mut found, mut seen) = (0, 0);
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries {
            seen += 1;
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let path = entry.path();
            found += u64::from(!is_folder && path.extension().is_some_and(|end| end == "php"));
            if is_folder {
                folders.push(path);
            }
        }
        if seen > MOST_FILES {
            break;
        }
    }
    (found > 0).then_some(found)
}

/// The measured settings with their reasons, and none that no pair of runs has tested.
fn file(site: &Site, course: &Course, inputs: &SettingInputs) -> String {
    let server = match site.service.kind {
        maitred_doctor::facts::PhpServer::Maitred => Server::Maitred,
        _ => Server::PhpFpm,
    };
    let names = ["pm", "pm.max_children", "max_children"];
    let mut tried = settings::lines(server, inputs);
    tried.retain(|line| names.contains(&line.name));
    for line in tried.iter_mut().filter(|line| line.name == "pm") {
        "static".clone_into(&mut line.value);
    }
    let text = settings::file(server, &tried, &site.pool.section);
    let goal = course.goal.as_ref().map_or("", |goal| goal.text.as_str());
    let sign = if server == Server::PhpFpm { ';' } else { '#' };
    let cores = inputs.cores;
    text.replacen(
        '\n',
        &format!("\n{sign} {cores} processors, goal {goal}, {:.0} requests/s.\n", inputs.rate),
        1,
    )
}

fn consistency(course: &Course) -> Vec<String> {
    let points = course.points().iter();
    let off = points.filter_map(|point| laws::little(point.workers, &point.seen));
    let off = off.map(f64::abs).reduce(f64::max);
    let mut lines = Vec::new();
    if let Some(off) = off {
        lines.push(format!("Little's law holds, {:.1} % off at most", off * 100.0));
    }
    if let Some(used) = course.most_processors() {
        let cores = course.input.cores;
        lines.push(format!(
            "utilisation law holds: workers used {used:.2} of {cores} processors at most"
        ));
    }
    let broken = course.broken.iter();
    lines.extend(broken.map(|why| format!("not reported, since it breaks {why}")));
    lines
}

fn not_proven(site: &Site, course: &Course, machine: &Machine) -> Vec<String> {
    let after = course.after.as_ref();
    let notes = [
        (course.is_indicative(), "all of it: there was little time, the results are indicative"),
        (
            !course.settled && course.alone.is_some(),
            "latencies or memory were not steady when measuring started: a leak, or a cache that \
             is refilled again and again",
        ),
        (course.background.is_none(), "the processor time of other processes is not known (/proc)"),
        (
            after.is_some_and(|search| !search.is_confirmed),
            "that the highest rate lasts: it was not kept up for long",
        ),
    ];
    let notes = notes.into_iter().filter(|(applies, _)| *applies);
    let mut lines: Vec<String> = notes.map(|(_, note)| note.to_owned()).collect();
    let troubles = course.troubles.iter();
    lines.extend(troubles.map(|why| format!("{why} (--despite-noise)")));
    let disturbed = |sweep: &&Sweep| sweep.repeated > 0 || sweep.disturbed > 0;
    if let Some(sweep) = course.sweep.as_ref().filter(disturbed) {
        lines.push(format!(
            "other processes used the processors: {} measurements were repeated, and {} of {} \
             count all the same",
            sweep.repeated,
            sweep.disturbed,
            sweep.points.len()
        ));
    }
    if proof::differs(&course.noise.rows) {
        lines.push(
            "the old setting differs from itself: this machine is not quiet enough".to_owned(),
        );
    }
    if let Some(slope) = course.growth.filter(|slope| !slope.leaks() && !slope.is_long()) {
        lines.push(format!(
            "that workers do not grow: each had served {:.0} requests at most before it was \
             restarted; 2000 show it",
            slope.requests
        ));
    }
    if let (Some((name, most)), Some(choice)) = (downstream(site), &course.choice)
        && u64::from(choice.workers) > most
    {
        lines.push(format!(
            "that {name} has connections for {} workers: it accepts {most} (--most-workers)",
            choice.workers
        ));
    }
    let doubt = course.choice.as_ref();
    lines.extend(doubt.and_then(|choice| choice.doubt.clone()));
    if let Err(why) = &site.service.group.cores {
        lines.push(format!("a quota of processors is not known: {why}"));
    }
    lines.extend(machine.doubts());
    lines
        .push("the generator runs on the same machine and takes part of its processors".to_owned());
    lines.push("settings other than the number of workers follow by formula".to_owned());
    lines
}

/// The workers that the highest rate keeps busy: rate x time of a request without the run queue,
/// including peaks.
fn demand(course: &Course) -> Option<f64> {
    let alone = course.alone.as_ref()?;
    let each = alone.mean? - alone.core_wait.unwrap_or(0.0);
    let mean = course.highest()? * each;
    Some(mean + PEAKS * mean.sqrt())
}

/// The database with the fewest connections.
fn downstream(site: &Site) -> Option<(String, u64)> {
    let databases = site.downstream.as_ref().ok()?.iter();
    databases.min_by_key(|(_, most)| *most).cloned()
}

fn crowded(course: &Course) -> Option<(u32, f64)> {
    let chosen = course.choice.as_ref()?.workers;
    let points = course.sweep.as_ref()?.points.iter();
    let near = points.min_by_key(|point| point.workers.abs_diff(chosen))?;
    Some((near.workers, near.seen.core_wait?))
}

/// What limits higher rates.
fn further(choice: &Choice, course: &Course) -> String {
    let used = course.most_processors();
    let cores = course.input.cores;
    match used {
        _ if !choice.binding.starts_with("throughput") => {
            "the limit of the number of workers: memory, or the given one".to_owned()
        }
        Some(used) if used > cores * BUSY => {
            "processors, or scripts that compute less: all processors are busy".to_owned()
        }
        Some(used) => format!(
            "what the scripts wait for, such as a database: of {cores} processors they keep \
             {used:.1} busy, and the web server and the generator take their part"
        ),
        None => "not known: the workers' processor time is unknown".to_owned(),
    }
}

/// The median of a metric in the pairs, before and after.
fn in_pairs(course: &Course, of: impl Fn(&Measurement) -> Option<f64>) -> Option<(f64, f64)> {
    let middle = |values: &mut dyn Iterator<Item = Option<f64>>| {
        let mut values: Vec<f64> = values.flatten().collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let old = middle(&mut course.pairs.iter().map(|(old, _)| of(old)))?;
    let new = middle(&mut course.pairs.iter().map(|(_, new)| of(new)))?;
    Some((old, new))
}

/// The spectrums of the last pair.
fn spectrums(course: &Course) -> (Curve, Curve) {
    let last = course.pairs.last();
    last.map_or_else(Default::default, |(old, new)| (old.spectrum.clone(), new.spectrum.clone()))
}
