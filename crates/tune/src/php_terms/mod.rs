//! Which of PHP's settings make a pool's pages cheaper: each is tried by itself and stays if it is
//! proven to. Most are proven in pairs of runs with and without it, a cache on disk by first pages
//! after cold starts, and sizes by what the pool reports of its caches.
//!
//! - Pure: the order of the trials and their conclusions ([`PhpCourse`]), which settings may be
//!   tried ([`conditions`]), which sizes are too small ([`cache_sizes`]), the comparison of pages
//!   ([`pages`]), the report ([`report`]).
//! - Not pure: changing settings and measuring ([`trial`]).

pub mod cache_sizes;
pub mod cold_start;
pub mod conditions;
pub mod pages;
pub mod php_term;
pub mod report;
pub mod trial;
pub mod trial_folder;

use maitred_measure::compare::{Direction, Ratio, Verdict, b_first, verdicts};
use serde::Serialize;

use crate::measurement::{Load, Measurement, Setting, Task, TaskLimits};
use cache_sizes::{PoolCaches, SizeVerdict};
use cold_start::{COLD_PAIRS, ColdStarts, FirstPages};
use php_term::{CacheSize, PhpTerm, PhpTerms, TunedPool};

/// Fewest and most pairs of a trial: six agree by chance once in 64 times.
const PAIRS: (usize, usize) = (6, 12);

/// With an interval this narrow more pairs would change nothing.
const NARROW: f64 = 0.03;

/// The bounds of a run, in seconds, and the usual time of what precedes it: half of the runs have a
/// reload before them, after which a pool may have to learn what to preload.
const RUN: (f64, f64) = (0.6, 8.0);
const BEFORE_RUN: f64 = 6.0;

/// The warm-up of new workers, in seconds: OPcache's compiler runs during the first requests.
const WARM_UP: (f64, f64) = (0.5, 2.0);

/// The highest share of requests without the expected response.
const MOST_ERRORS: f64 = 0.01;

/// Users for each processor.
const USERS_PER_CORE: f64 = 2.0;

/// Most users.
const MOST_USERS: u32 = 64;

/// How often a size is enlarged that does not suffice: each time it is doubled.
const MOST_SIZES: usize = 3;

/// The usual time until a pool has reported the state of its caches, in seconds.
const REPORT: f64 = 10.0;

/// The timeout of a response, in seconds.
const TIMEOUT: f64 = 30.0;

/// A closed loop leaves no queue to wait for.
const LIMITS: TaskLimits = TaskLimits {
    checks_idle: false,
    times_second: false,
    rest: 0.0,
    page: TIMEOUT,
    response: TIMEOUT,
    is_cut: false,
    timeout: TIMEOUT,
    recovery: None,
};

/// What is known before the first run.
#[derive(Debug, Clone)]
pub struct PhpInput {
    /// The total time, in seconds.
    pub seconds: f64,
    /// Processors; a quota may be a fraction.
    pub cores: f64,
    /// The limit of workers.
    pub workers: u32,
    /// The settings to try: those that the pool does not have.
    pub candidates: Vec<PhpTerm>,
    /// The sizes to judge by what the pool reports.
    pub sizes: Vec<CacheSize>,
    /// The memory of the server, in bytes, if known.
    pub memory: Option<f64>,
    /// The pool.
    pub pool: TunedPool,
    /// The seed of random numbers.
    pub seed: u64,
}

/// Two settings whose pages are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The accepted one.
    pub old: Setting,
    /// The one that is tried.
    pub new: Setting,
}

/// The next step.
#[derive(Debug, Clone, PartialEq)]
pub enum PhpStep {
    /// Compare the pages of two settings.
    Compare(Comparison),
    /// Make this measurement.
    Measure(Task),
    /// Send a load, and read what the pool reports of its caches.
    Look(Setting),
    /// Time the first page after a start with an empty OPcache.
    ColdStart(Setting),
    /// All settings are tried.
    Over,
}

/// A ratio of the new setting to the old one, with its interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct PhpRatio {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhpTermResult {
    /// The setting.
    pub term: PhpTerm,
    /// Its lines in the pool's section.
    pub lines: Vec<String>,
    /// Processor time of the workers for each request; `None` if it cannot be read.
    pub cpu: Option<PhpRatio>,
    /// Requests a second of a closed loop.
    pub rate: Option<PhpRatio>,
    /// The first pages after cold starts, where these decide.
    pub first_page: Option<FirstPages>,
    /// The number of pairs.
    pub pairs: usize,
    /// Whether it is proven to be better.
    pub gain: bool,
    /// The reason, as a sentence.
    pub why: String,
}

/// The trials.
#[derive(Debug, Clone)]
pub struct PhpCourse {
    input: PhpInput,
    /// Seconds since the start.
    now: f64,
    accepted: PhpTerms,
    /// The settings to try: sizes that are too small, then the candidates.
    terms: Vec<PhpTerm>,
    /// Why each of the sizes is too small.
    reasons: Vec<(CacheSize, String)>,
    has_looked: bool,
    /// How often the current size has been enlarged.
    enlarged: usize,
    pairs: Vec<(Measurement, Measurement)>,
    half: Option<Measurement>,
    cold: ColdStarts,
    pages_are_same: bool,
    /// Sizes that stay, each with the reason.
    pub stays: Vec<String>,
    /// The results so far.
    pub results: Vec<PhpTermResult>,
}

/// The figures of a trial.
#[derive(Debug, Clone, Default)]
struct Figures {
    cpu: Option<PhpRatio>,
    rate: Option<PhpRatio>,
    first_page: Option<FirstPages>,
}

impl PhpCourse {
    /// Before the first step.
    pub fn new(input: PhpInput) -> PhpCourse {
        PhpCourse {
            now: 0.0,
            accepted: PhpTerms::default(),
            terms: input.candidates.clone(),
            reasons: Vec::new(),
            has_looked: input.sizes.is_empty(),
            enlarged: 0,
            pairs: Vec::new(),
            half: None,
            cold: ColdStarts::default(),
            pages_are_same: false,
            stays: Vec::new(),
            results: Vec::new(),
            input,
        }
    }

    /// Updates the elapsed time, in seconds.
    pub fn at(&mut self, now: f64) {
        self.now = now;
    }

    /// Whether the current trial has had its share of the time.
    fn is_late(&self) -> bool {
        let (all, done) = (self.terms.len().max(1), self.results.len() + 1);
        self.now >= self.input.seconds * done as f64 / all as f64
    }

    /// The settings that are proven so far.
    pub fn accepted(&self) -> PhpTerms {
        self.accepted
    }

    fn term(&self) -> Option<PhpTerm> {
        self.terms.get(self.results.len()).copied()
    }

    /// The next step.
    pub fn next(&self) -> PhpStep {
        if !self.has_looked {
            return PhpStep::Look(Setting::AsItWas);
        }
        let Some(term) = self.term() else {
            return PhpStep::Over;
        };
        let (old, new) = (self.accepted.setting(), self.accepted.with(term).setting());
        if !self.pages_are_same {
            return PhpStep::Compare(Comparison { old, new });
        }
        match term {
            term if term.is_reported() => PhpStep::Look(new),
            PhpTerm::FileCache => {
                let new_is_next = self.is_new_next(self.cold.pairs(), self.cold.is_half());
                PhpStep::ColdStart(if new_is_next { new } else { old })
            }
            _ => {
                let new_is_next = self.is_new_next(self.pairs.len(), self.half.is_some());
                PhpStep::Measure(self.task(if new_is_next { new } else { old }))
            }
        }
    }

    fn is_new_next(&self, pairs: usize, is_half: bool) -> bool {
        b_first(pairs, self.input.seed) != is_half
    }

    fn task(&self, setting: Setting) -> Task {
        let timed = self.terms.iter().filter(|term| !term.is_reported()).count();
        let runs = (timed.max(1) * PAIRS.0 * 2) as f64;
        let seconds = (self.input.seconds / runs - BEFORE_RUN).clamp(RUN.0, RUN.1);
        let users = (self.input.cores * USERS_PER_CORE).ceil() as u32;
        Task {
            what: self.term().map_or("", PhpTerm::name),
            setting,
            load: Load::Users(users.min(self.input.workers).clamp(1, MOST_USERS)),
            seconds,
            warm_up: (seconds / 2.0).clamp(WARM_UP.0, WARM_UP.1),
            route: None,
            limits: LIMITS,
        }
    }

    /// A load of this many seconds: for a pool that learns what to preload, or fills its caches.
    pub fn learning_task(&self, setting: Setting, seconds: f64) -> Task {
        Task { seconds, warm_up: 0.0, ..self.task(setting) }
    }

    /// The remaining time, in seconds, without the trials that need more pairs.
    pub fn left(&self) -> f64 {
        let run = self.task(Setting::AsItWas).seconds + BEFORE_RUN;
        let left = self.terms.iter().skip(self.results.len()).map(|term| match term {
            term if term.is_reported() => 3.0 * BEFORE_RUN,
            PhpTerm::FileCache => (COLD_PAIRS.0 * 2) as f64 * BEFORE_RUN,
            _ => (PAIRS.0 * 2) as f64 * run,
        });
        let runs = 2 * self.pairs.len() + usize::from(self.half.is_some());
        let starts = 2 * self.cold.pairs() + usize::from(self.cold.is_half());
        let done = runs.min(PAIRS.0 * 2) as f64 * run;
        let done = done + starts.min(COLD_PAIRS.0 * 2) as f64 * BEFORE_RUN;
        let report = if self.has_looked { 0.0 } else { REPORT };
        (report + left.sum::<f64>() - done).max(0.0)
    }

    /// The pages of both settings are the same, or a sentence says how they differ.
    pub fn compared(&mut self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.pages_are_same = true,
            Err(why) => self.reject(why),
        }
    }

    /// The current setting cannot be used, and why.
    pub fn reject(&mut self, why: String) {
        self.conclude(false, Figures::default(), why);
    }

    /// Takes the pool's report of the current step.
    pub fn looked(&mut self, caches: &PoolCaches) {
        if !self.has_looked {
            self.has_looked = true;
            return self.choose_sizes(caches);
        }
        let Some(PhpTerm::Size(size, _)) = self.term() else {
            return;
        };
        if caches.opcache.is_none() {
            return self.reject("the pool reports no OPcache with it".to_owned());
        }
        let fits = |term| match term {
            PhpTerm::Size(CacheSize::Strings, value) => caches.strings_fit(value, None),
            _ => true,
        };
        let reason = self.reasons.iter().find(|(of, _)| *of == size);
        let reason = reason.map_or(String::new(), |(_, why)| why.clone());
        match caches.judge(size, self.input.memory, None) {
            SizeVerdict::Grows(larger, _) if self.enlarged < MOST_SIZES && fits(larger) => {
                let at = self.results.len();
                self.enlarged += 1;
                self.pages_are_same = false;
                self.terms[at] = larger;
            }
            SizeVerdict::Grows(_, after) => {
                let why = format!("{reason}; with it {after}, so tune again");
                self.conclude(true, Figures::default(), why);
            }
            SizeVerdict::Stays(after) => {
                self.conclude(true, Figures::default(), format!("{reason}; with it {after}"));
            }
        }
    }

    /// Adds the sizes that are too small to the settings to try. Memory that a larger buffer of
    /// strings needs comes before that buffer.
    fn choose_sizes(&mut self, caches: &PoolCaches) {
        let judge = |size, strings| caches.judge(size, self.input.memory, strings);
        let grown = |verdict: &SizeVerdict| match verdict {
            SizeVerdict::Grows(PhpTerm::Size(_, value), _) => Some(*value),
            _ => None,
        };
        let mut strings = grown(&judge(CacheSize::Strings, None));
        let memory = grown(&judge(CacheSize::Memory, strings));
        let misfit = strings.take_if(|strings| !caches.strings_fit(*strings, memory));
        let mut grow = Vec::new();
        for size in self.input.sizes.clone() {
            let entry = size.entry();
            match (judge(size, strings), misfit.filter(|_| size == CacheSize::Strings)) {
                (SizeVerdict::Grows(_, why), Some(value)) => self.stays.push(format!(
                    "{entry}: {why}; but {value} MB would leave opcache.memory_consumption no \
                     room for scripts"
                )),
                (SizeVerdict::Grows(term, why), None) => {
                    grow.push(term);
                    self.reasons.push((size, why));
                }
                (SizeVerdict::Stays(why), _) => self.stays.push(format!("{entry}: {why}")),
            }
        }
        let is_first = |term: &PhpTerm| matches!(term, PhpTerm::Size(CacheSize::Memory, _));
        grow.sort_by_key(|term| !is_first(term));
        self.terms.splice(0..0, grow);
    }

    /// Takes the time of the first page of the current step, in seconds.
    pub fn started(&mut self, seconds: f64) {
        let PhpStep::ColdStart(setting) = self.next() else {
            return;
        };
        self.cold.add(seconds, setting != self.accepted.setting());
        if let Some(verdict) = self.cold.judge(self.input.seed, self.is_late()) {
            let figures = Figures { first_page: verdict.pages, ..Figures::default() };
            self.conclude(verdict.gain, figures, verdict.why.to_owned());
        }
    }

    /// Takes the measurement of the current step.
    pub fn seen(&mut self, seen: Measurement) {
        let PhpStep::Measure(task) = self.next() else {
            return;
        };
        let is_new = task.setting != self.accepted.setting();
        if is_new && seen.error_share > MOST_ERRORS {
            let cause = seen.cause.as_deref().unwrap_or("no response");
            return self.reject(format!(
                "{:.0} % of the requests did not get the expected response ({cause})",
                seen.error_share * 100.0
            ));
        }
        let Some(first) = self.half.take() else {
            self.half = Some(seen);
            return;
        };
        self.pairs.push(if is_new { (first, seen) } else { (seen, first) });
        if self.pairs.len() >= PAIRS.0 {
            self.judge();
        }
    }

    fn ratio(&self, of: impl Fn(&Measurement) -> Option<f64>) -> Option<Ratio> {
        let ratios = self.pairs.iter().map(|(old, new)| Some(of(new)? / of(old)?));
        Ratio::of(&ratios.collect::<Option<Vec<f64>>>()?, 2, self.input.seed)
    }

    /// Fewer seconds of a processor for each request are a gain if no fewer requests are served;
    /// if these times cannot be read, more requests are.
    fn judge(&mut self) {
        let cpu = self.ratio(|seen| seen.cpu);
        let rate = self.ratio(|seen| Some(seen.rate));
        let found = verdicts(&[(Direction::LowerIsBetter, cpu), (Direction::HigherIsBetter, rate)]);
        let [of_cpu, of_rate] = [0, 1].map(|at| found.get(at).copied());
        let is_slower = of_rate == Some(Verdict::Slower);
        let gain = match cpu {
            Some(_) => of_cpu == Some(Verdict::Faster) && !is_slower,
            None => of_rate == Some(Verdict::Faster),
        };
        let wide = |ratio: &Option<Ratio>| {
            ratio.as_ref().is_some_and(|ratio| ratio.detectable() >= NARROW)
        };
        let deciding = if cpu.is_some() { &cpu } else { &rate };
        if !gain && wide(deciding) && self.pairs.len() < PAIRS.1 && !self.is_late() {
            return;
        }
        let why = match (gain, is_slower) {
            (true, _) => "proven to be better".to_owned(),
            (false, true) => "fewer requests are served with it".to_owned(),
            (false, false) if wide(deciding) => {
                "no proven gain in the time; more pairs (--time) show smaller ones".to_owned()
            }
            (false, false) => "no proven gain".to_owned(),
        };
        let figures = Figures {
            cpu: cpu.as_ref().map(shown),
            rate: rate.as_ref().map(shown),
            ..Figures::default()
        };
        self.conclude(gain, figures, why);
    }

    fn conclude(&mut self, gain: bool, figures: Figures, why: String) {
        let Some(term) = self.term() else {
            return;
        };
        if gain {
            self.accepted = self.accepted.with(term);
        }
        let pairs = self.pairs.len().max(self.cold.pairs());
        let Figures { cpu, rate, first_page } = figures;
        let lines = term.lines(&self.input.pool);
        self.results.push(PhpTermResult { term, lines, cpu, rate, first_page, pairs, gain, why });
        self.pairs.clear();
        self.half = None;
        self.cold = ColdStarts::default();
        self.enlarged = 0;
        self.pages_are_same = false;
        let excluded = self.term().and_then(|next| conditions::excluded(self.accepted, next));
        if let Some(why) = excluded {
            self.reject(why.to_owned());
        }
    }
}

impl PhpTerms {
    fn setting(self) -> Setting {
        if self == PhpTerms::default() { Setting::AsItWas } else { Setting::Php(self) }
    }
}

fn shown(ratio: &Ratio) -> PhpRatio {
    PhpRatio { mean: ratio.mean, low: ratio.low, high: ratio.high }
}

#[cfg(test)]
mod tests;
