//! What a tuning came to, for programs and for the other faces of the report.

use std::path::PathBuf;

use serde::Serialize;

use crate::course::goal::Goal;
use crate::course::overload::OverloadResult;
use crate::course::profile::RouteProfile;
use crate::course::proof::{self, ComparisonRow};
use crate::course::rate_search::{RateSearch, RateTrial};
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

/// The report's form; it changes when a field changes its meaning or goes.
pub const SCHEMA: &str = "maitred-tune/1";

/// The times that the demand is more than its mean in nearly all moments: the workers that one rate needs at
/// 99 of 100 moments are its mean and so many of its deviations (Poisson).
const PEAKS: f64 = 2.33;

/// From this share on processors are busy: the web server and the generator need the rest.
const BUSY: f64 = 0.6;

/// maitred's page cache has a part for each processor, up to so many.
const MOST_PARTS: u32 = 16;

/// Most files that are looked at to count scripts.
const MOST_FILES: u64 = 200_000;

/// Points of a chart.
pub type Curve = Vec<(f64, f64)>;

/// A report. Times are in seconds, memory in bytes, shares of 1.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What was tuned: the pool, its server and its file.
    pub subject: String,
    /// Whether there was too little time for more than a hint.
    pub indicative: bool,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub load: String,
    /// How the pool was set.
    pub before: PoolSetting,
    /// `gain`, `no_gain`, `nothing_to_gain` or `cannot_say`.
    pub verdict: &'static str,
    /// The same as a sentence.
    pub conclusion: String,
    /// The goal, and whether somebody gave it.
    pub goal: Option<String>,
    #[allow(missing_docs)]
    pub goal_given: bool,
    /// Others used much, or the machine differs from itself, and somebody has said that it is to go on.
    pub despite_noise: Vec<String>,
    /// By which share the throughput of the same setting may differ from itself.
    pub noise_floor: Option<f64>,
    /// One user.
    pub alone: Option<Measurement>,
    /// The number of users nearest to what was chosen, and a request's waiting for a processor then.
    pub crowded: Option<(u32, f64)>,
    /// The same of each route, where there are several.
    pub routes: Vec<RouteProfile>,
    /// What it costs until a worker serves.
    pub boot: Option<WorkerStart>,
    /// What all workers have together, in bytes: OPcache and code, counted once.
    pub shared: Option<f64>,
    /// The most private memory that a worker had at any moment.
    pub peak: Option<f64>,
    /// The most memory that PHP itself has counted for a script, or why that is not known.
    pub counted: Option<f64>,
    /// That is of 99 of 100 scripts since the server's start, an eighth too much at most, and not of the largest.
    pub counted_since_start: bool,
    #[allow(missing_docs)]
    pub not_counted: Option<String>,
    /// What that worker had beside it.
    pub uncounted: Option<f64>,
    /// Memory of a worker: the most of its own that was seen, and with what it shares.
    pub private: Option<f64>,
    #[allow(missing_docs)]
    pub resident: Option<f64>,
    /// What a worker in the middle of all has for itself.
    pub typical: Option<f64>,
    /// How workers grow with what they serve.
    pub growth: Option<Slope>,
    /// What bounds the number of workers from above.
    pub ceiling: Option<Ceiling>,
    /// Throughput by workers.
    pub sweep: Vec<(f64, f64)>,
    /// What was chosen.
    pub choice: Option<Choice>,
    /// Rates that were tried.
    pub rates: Vec<RateTrial>,
    /// The highest that held, before and after.
    pub rate_before: Option<f64>,
    #[allow(missing_docs)]
    pub rate_after: Option<f64>,
    /// Whether that was kept up for long.
    pub rate_lasts: bool,
    /// The database of this machine that takes the fewest connections, and how many.
    pub downstream: Option<(String, u64)>,
    /// Workers that this rate keeps busy, with what chance makes of it.
    pub demand: Option<f64>,
    /// What it would take to serve more.
    pub further: Option<String>,
    /// What becomes of more requests than that.
    pub overload: Vec<OverloadResult>,
    /// The old setting beside itself.
    pub noise: Vec<ComparisonRow>,
    /// The new one beside the old one.
    pub proof: Vec<ComparisonRow>,
    /// How many pairs that are, and how many were made again since others used the processors.
    pub pairs: usize,
    #[allow(missing_docs)]
    pub repeated_pairs: usize,
    /// Requests that were not served in the pairs, of all: before, after.
    pub errors: Option<(f64, f64)>,
    /// Memory of all workers' own, in bytes: before, after.
    pub memory: Option<(f64, f64)>,
    /// Whether the figures obey the laws, in words.
    pub consistency: Vec<String>,
    /// What there was no time for.
    pub left_out: Vec<String>,
    /// What is not proven, and what makes the figures less sure.
    pub not_proven: Vec<String>,
    /// Settings for the servers that were asked for.
    pub settings: Vec<Recommendation>,
    /// What was written, or is to be pasted.
    pub written: Option<String>,
    /// The file or the lines that say so.
    pub file: String,
    /// Latencies by percentile in the pairs, for a chart: before, after.
    #[serde(skip)]
    pub spectrums: (Curve, Curve),
    /// Second by second, for a chart.
    #[serde(skip)]
    pub moments: Vec<TimelinePoint>,
}

impl Report {
    /// Of a course that is over.
    pub fn of(site: &Site, load: &str, course: &Course, servers: &[Server]) -> Report {
        let (verdict, conclusion) = verdict(course);
        let highest =
            |rate_search: &Option<RateSearch>| rate_search.as_ref().and_then(RateSearch::highest);
        let points = course
            .sweep
            .as_ref()
            .map(|sweep| sweep.points.as_slice())
            .unwrap_or_default();
        let seen = || points.iter().map(|point| &point.seen).chain(&course.alone);
        let most = |of: fn(&Measurement) -> Option<f64>| seen().filter_map(of).reduce(f64::max);
        let private = most(|seen| seen.private);
        let resident = most(|seen| seen.resident);
        let tries = [&course.before, &course.after].into_iter().flatten();
        let peak = most(|seen| seen.peak);
        let largest = largest_counted(course);
        let shared = resident.zip(private).map(|(all, own)| (all - own).max(0.0));
        let own = WorkerSizes {
            private,
            resident,
            peak,
            shared,
        };
        let inputs = inputs(site, course, &own);
        let lines = inputs.iter().flat_map(|inputs| {
            servers
                .iter()
                .flat_map(move |server| settings::lines(*server, inputs))
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
            sweep: course
                .sweep
                .as_ref()
                .map(|sweep| sweep.curve())
                .unwrap_or_default(),
            choice: course.choice.clone(),
            rates: tries
                .flat_map(|rate_search| rate_search.tries.clone())
                .collect(),
            rate_before: highest(&course.before),
            rate_after: highest(&course.after),
            rate_lasts: course
                .after
                .as_ref()
                .is_some_and(|rate_search| rate_search.is_confirmed),
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

    /// For programs.
    ///
    /// # Errors
    /// Nothing that is known to happen.
    pub fn json(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self).map_err(|why| why.to_string())
    }
}

fn verdict(course: &Course) -> (&'static str, String) {
    let workers = course.choice.as_ref().map_or(0, |choice| choice.workers);
    match &course.verdict {
        Some(Verdict::Gain) => (
            "gain",
            format!("static with {workers} workers is proven to be better"),
        ),
        Some(Verdict::NoGain(why)) => ("no_gain", format!("no proven gain: {why}")),
        Some(Verdict::NothingToGain(why)) => ("nothing_to_gain", format!("nothing to gain: {why}")),
        Some(Verdict::CannotSay(why)) => ("cannot_say", why.clone()),
        None => (
            "cannot_say",
            "it was ended before anything could be said".to_owned(),
        ),
    }
}

/// What was seen of the script that PHP itself has counted most memory for.
fn largest_counted(course: &Course) -> Option<&Measurement> {
    let routes = course.profile.profiled.iter().map(|route| &route.seen);
    let known = routes
        .chain(&course.alone)
        .filter(|seen| seen.counted.is_some());
    known.max_by(|a, b| {
        a.counted
            .unwrap_or(0.0)
            .total_cmp(&b.counted.unwrap_or(0.0))
    })
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
    let highest =
        |rate_search: &Option<RateSearch>| rate_search.as_ref().and_then(RateSearch::highest);
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
        open_files: processes::open_files(&processes::workers(site.master, &site.title())),
        scripts: scripts(&site.pool.roots),
        boot: course.boot().and_then(|boot| boot.cpu),
        total: site.total,
        cores: site.cores,
        rate: highest(&course.after)
            .or(highest(&course.before))
            .unwrap_or(choice.rate),
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

/// Bytes of all pages that were asked for one by one, and of the largest, on average.
fn pages(course: &Course) -> Option<(f64, f64)> {
    let routes = course.profile.profiled.iter().map(|route| &route.seen);
    let mut sizes: Vec<f64> = routes.filter_map(|seen| seen.bytes).collect();
    if sizes.is_empty() {
        sizes.extend(course.alone.as_ref().and_then(|alone| alone.bytes));
    }
    let largest = sizes.iter().copied().reduce(f64::max)?;
    Some((sizes.iter().sum(), largest))
}

/// Scripts in the folders of a pool's code, as far as they are counted.
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

/// The settings that were tried, with their reasons: nothing that no pair of runs has seen.
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
        &format!(
            "\n{sign} {cores} processors, goal {goal}, {:.0} requests/s.\n",
            inputs.rate
        ),
        1,
    )
}

fn consistency(course: &Course) -> Vec<String> {
    let points = course
        .sweep
        .as_ref()
        .map(|sweep| sweep.points.as_slice())
        .unwrap_or_default();
    let off = points
        .iter()
        .filter_map(|point| laws::little(point.workers, &point.seen));
    let off = off.map(f64::abs).reduce(f64::max);
    let used = points
        .iter()
        .filter_map(|point| laws::processors(&point.seen))
        .reduce(f64::max);
    let mut lines = Vec::new();
    if let Some(off) = off {
        lines.push(format!(
            "Little's law holds, {:.1} % off at most",
            off * 100.0
        ));
    }
    if let Some(used) = used {
        let cores = course.input.cores;
        lines.push(format!(
            "utilisation law holds: workers used {used:.2} of {cores} processors at most"
        ));
    }
    let broken = course
        .broken
        .iter()
        .map(|why| format!("not told, since it breaks {why}"));
    lines.extend(broken);
    lines
}

fn not_proven(site: &Site, course: &Course, machine: &Machine) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |said: bool, line: &str| {
        if said {
            lines.push(line.to_owned());
        }
    };
    say(
        course.is_indicative(),
        "all of it: there was little time, the figures are indicative",
    );
    say(
        !course.settled && course.alone.is_some(),
        "latencies or memory had not come to rest when measuring began: a leak, or a cache that is filled anew \
         again and again",
    );
    say(
        course.background.is_none(),
        "what others use of the processors is not known (/proc)",
    );
    say(
        course
            .after
            .as_ref()
            .is_some_and(|rate_search| !rate_search.is_confirmed),
        "that the highest rate lasts: it was not kept up for long",
    );
    lines.extend(
        course
            .troubles
            .iter()
            .map(|why| format!("{why} (--despite-noise)")),
    );
    let disturbed = |sweep: &&Sweep| sweep.repeated > 0 || sweep.disturbed > 0;
    if let Some(sweep) = course.sweep.as_ref().filter(disturbed) {
        lines.push(format!(
            "others used the processors meanwhile: {} measurements were made again, and {} of {} count \
             all the same",
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
    if let Some(slope) = course
        .growth
        .filter(|slope| !slope.leaks() && !slope.is_long())
    {
        lines.push(format!(
            "that workers do not grow: each had served {:.0} requests at most before it was started anew; \
             2000 show it",
            slope.requests
        ));
    }
    if let (Some((name, most)), Some(choice)) = (downstream(site), &course.choice)
        && u64::from(choice.workers) > most
    {
        lines.push(format!(
            "that {name} has room for {} workers with a connection each: it takes {most} (--most-workers)",
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
        .push("the generator runs on the same machine and has a part of its processors".to_owned());
    lines.push("settings other than the number of workers follow by formula".to_owned());
    lines
}

/// The workers that the highest rate keeps busy: rate x time of a request without waiting for a processor, and
/// what chance makes of it.
fn demand(course: &Course) -> Option<f64> {
    let alone = course.alone.as_ref()?;
    let each = alone.mean? - alone.core_wait.unwrap_or(0.0);
    let mean = course.highest()? * each;
    Some(mean + PEAKS * mean.sqrt())
}

/// The database that takes the fewest connections.
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

/// What it would take to serve more.
fn further(choice: &Choice, course: &Course) -> String {
    let used = course.sweep.as_ref().and_then(|sweep| {
        let points = sweep.points.iter();
        points
            .filter_map(|point| laws::processors(&point.seen))
            .reduce(f64::max)
    });
    let cores = course.input.cores;
    match used {
        _ if !choice.binding.starts_with("throughput") => {
            "what binds the number of workers: memory, or the number that was given".to_owned()
        }
        Some(used) if used > cores * BUSY => {
            "processors, or scripts that compute less: those that there are, are busy".to_owned()
        }
        Some(used) => format!(
            "what the scripts wait for, such as a database: of {cores} processors they keep {used:.1} busy, and \
             the web server and the generator take their part"
        ),
        None => "not known: the workers' processor time is not".to_owned(),
    }
}

/// A figure of the pairs, before and after, as the middle of all has it.
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

/// The last pair's curves.
fn spectrums(course: &Course) -> (Curve, Curve) {
    let last = course.pairs.last();
    last.map_or_else(Default::default, |(old, new)| {
        (old.spectrum.clone(), new.spectrum.clone())
    })
}
