//! What a tuning came to, for programs and for the other faces of the report.

use serde::Serialize;

use crate::course::goal::Goal;
use crate::course::hunt::{Hunt, Try};
use crate::course::proof::{self, Row};
use crate::course::{Course, Now, Verdict};
use crate::decide::{Ceiling, Choice};
use crate::growth::Slope;
use crate::laws;
use crate::seen::Seen;
use crate::settings::{self, Inputs, Line, Server};
use crate::site::Site;

/// The report's form; it changes when a field changes its meaning or goes.
pub const SCHEMA: &str = "maitred-tune/1";

/// Others that use more than this share of the processors spoil what is measured.
const MUCH_BACKGROUND: f64 = 0.1;

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
    pub before: Now,
    /// `gain`, `no_gain`, `nothing_to_gain` or `cannot_say`.
    pub verdict: &'static str,
    /// The same as a sentence.
    pub conclusion: String,
    /// The goal, and whether somebody gave it.
    pub goal: Option<String>,
    #[allow(missing_docs)]
    pub goal_given: bool,
    /// One user.
    pub alone: Option<Seen>,
    /// Memory of a worker: the most of its own that was seen, and with what it shares.
    pub private: Option<f64>,
    #[allow(missing_docs)]
    pub resident: Option<f64>,
    /// How workers grow with what they serve.
    pub growth: Option<Slope>,
    /// What bounds the number of workers from above.
    pub ceiling: Option<Ceiling>,
    /// Throughput by workers.
    pub sweep: Vec<(f64, f64)>,
    /// What was chosen.
    pub choice: Option<Choice>,
    /// Rates that were tried.
    pub rates: Vec<Try>,
    /// The highest that held, before and after.
    pub rate_before: Option<f64>,
    #[allow(missing_docs)]
    pub rate_after: Option<f64>,
    /// The old setting beside itself.
    pub noise: Vec<Row>,
    /// The new one beside the old one.
    pub proof: Vec<Row>,
    /// How many pairs that are.
    pub pairs: usize,
    /// Whether the figures obey the laws, in words.
    pub consistency: Vec<String>,
    /// What is not proven, and what makes the figures less sure.
    pub not_proven: Vec<String>,
    /// Settings for the servers that were asked for.
    pub settings: Vec<Line>,
    /// What was written, or is to be pasted.
    pub written: Option<String>,
    /// The file or the lines that say so.
    pub file: String,
    /// Latencies by percentile in the pairs, for a chart: before, after.
    #[serde(skip)]
    pub spectrums: (Curve, Curve),
}

/// The machine.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Machine {
    pub cores: f64,
    pub processors: u32,
    pub memory: Option<f64>,
    pub memory_from: String,
    pub background: Option<f64>,
}

impl Report {
    /// Of a course that is over.
    pub fn of(site: &Site, load: &str, course: &Course, servers: &[Server]) -> Report {
        let (verdict, conclusion) = verdict(course);
        let highest = |hunt: &Option<Hunt>| hunt.as_ref().and_then(Hunt::highest);
        let points = course
            .sweep
            .as_ref()
            .map(|sweep| sweep.points.as_slice())
            .unwrap_or_default();
        let seen = || points.iter().map(|point| &point.seen).chain(&course.alone);
        let most = |of: fn(&Seen) -> Option<f64>| seen().filter_map(of).reduce(f64::max);
        let private = most(|seen| seen.private);
        let resident = most(|seen| seen.resident);
        let tries = [&course.before, &course.after].into_iter().flatten();
        let inputs = inputs(site, course, private, resident);
        let lines = inputs.iter().flat_map(|inputs| {
            servers
                .iter()
                .flat_map(move |server| settings::lines(*server, inputs))
        });
        let (budget, memory_from) = match &site.memory.budget {
            Ok((bytes, whose)) => (Some(*bytes), whose.clone()),
            Err(why) => (None, format!("unknown: {why}")),
        };
        Report {
            schema: SCHEMA,
            subject: format!("{} of {}", site.pool.name, site.service.name),
            indicative: course.is_indicative(),
            machine: Machine {
                cores: site.cores,
                processors: site.processors,
                memory: budget,
                memory_from,
                background: course.background,
            },
            load: load.to_owned(),
            before: course.terms.now.clone(),
            verdict,
            conclusion,
            goal: course.goal.as_ref().map(|goal| goal.text.clone()),
            goal_given: course.goal.as_ref().is_some_and(|goal| goal.is_given),
            alone: course.alone.clone(),
            private,
            resident,
            growth: course.growth,
            ceiling: course.sweep.as_ref().map(|sweep| sweep.ceiling().clone()),
            sweep: course
                .sweep
                .as_ref()
                .map(|sweep| sweep.curve())
                .unwrap_or_default(),
            choice: course.choice.clone(),
            rates: tries.flat_map(|hunt| hunt.tries.clone()).collect(),
            rate_before: highest(&course.before),
            rate_after: highest(&course.after),
            noise: course.noise_rows.clone(),
            proof: course.rows.clone(),
            pairs: course.pairs.len(),
            consistency: consistency(course),
            not_proven: not_proven(site, course),
            settings: lines.collect(),
            written: None,
            file: inputs.map_or(String::new(), |inputs| file(site, course, &inputs)),
            spectrums: spectrums(course),
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

fn inputs(
    site: &Site,
    course: &Course,
    private: Option<f64>,
    resident: Option<f64>,
) -> Option<Inputs> {
    let choice = course.choice.as_ref()?;
    let highest = |hunt: &Option<Hunt>| hunt.as_ref().and_then(Hunt::highest);
    let alone = course.alone.as_ref();
    Some(Inputs {
        workers: choice.workers,
        is_proven: course.verdict == Some(Verdict::Gain),
        binding: choice.binding.clone(),
        private,
        resident,
        total: site.total,
        cores: site.cores,
        rate: highest(&course.after)
            .or(highest(&course.before))
            .unwrap_or(choice.rate),
        limit: course.goal.as_ref().map_or(1.0, Goal::limit),
        slowest: alone
            .and_then(|alone| alone.p99.or(alone.p90).or(alone.mean))
            .unwrap_or(1.0),
        leak: course.growth.filter(Slope::leaks).map(|slope| slope.bytes),
        memory_limit: Inputs::memory_limit_of(site),
        somaxconn: site.somaxconn,
    })
}

/// The settings that were tried, with their reasons: nothing that no pair of runs has seen.
fn file(site: &Site, course: &Course, inputs: &Inputs) -> String {
    let server = match site.service.kind {
        maitred_doctor::facts::Kind::Maitred => Server::Maitred,
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
        let cores = course.terms.cores;
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

fn not_proven(site: &Site, course: &Course) -> Vec<String> {
    let mut lines = Vec::new();
    if course.is_indicative() {
        lines.push("all of it: there was little time, the figures are indicative".to_owned());
    }
    if !course.settled && course.alone.is_some() {
        lines.push("latencies had not come to rest when measuring began".to_owned());
    }
    match course.background {
        Some(share) if share > MUCH_BACKGROUND => lines.push(format!(
            "others used {:.0} % of the processors while nothing was asked",
            share * 100.0
        )),
        None => lines.push("what others use of the processors is not known (/proc)".to_owned()),
        Some(_) => {}
    }
    if let Some(sweep) = course.sweep.as_ref().filter(|sweep| sweep.repeated > 0) {
        lines.push(format!(
            "others used the processors meanwhile: {} measurements were made again, and {} of {} count \
             all the same",
            sweep.repeated,
            sweep.disturbed,
            sweep.points.len()
        ));
    }
    if proof::differs(&course.noise_rows) {
        lines.push(
            "the old setting differs from itself: this machine is not quiet enough".to_owned(),
        );
    }
    if let Some(doubt) = course
        .choice
        .as_ref()
        .and_then(|choice| choice.doubt.clone())
    {
        lines.push(doubt);
    }
    if let Err(why) = &site.service.group.cores {
        lines.push(format!("a quota of processors is not known: {why}"));
    }
    lines
        .push("the generator runs on the same machine and has a part of its processors".to_owned());
    lines.push("overload (T8) is not measured; settings other than the number of workers follow by formula".to_owned());
    lines
}

/// The last pair's curves.
fn spectrums(course: &Course) -> (Curve, Curve) {
    let last = course.pairs.last();
    last.map_or_else(Default::default, |(old, new)| {
        (old.spectrum.clone(), new.spectrum.clone())
    })
}
