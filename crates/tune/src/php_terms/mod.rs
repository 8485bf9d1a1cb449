//! Which of PHP's settings make a pool's pages cheaper: each is tried by itself, in pairs of runs
//! with and without it, and stays if it is proven to.
//!
//! - Pure: the order of the trials and their conclusions ([`PhpCourse`]), the comparison of pages
//!   ([`pages`]), the report ([`report`]).
//! - Not pure: changing settings and measuring ([`trial`]).

pub mod pages;
pub mod report;
pub mod trial;

use maitred_measure::compare::{Direction, Ratio, Verdict, b_first, verdicts};
use serde::Serialize;

use crate::measurement::{Load, Measurement, Setting, Task, TaskLimits};

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

/// A setting of PHP that is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PhpTerm {
    /// `preload = true`.
    Preload,
    /// The tracing compiler of OPcache (`opcache.jit`), with room for its code.
    Jit,
}

/// All of them, in the order of their trials.
pub const PHP_TERMS: [PhpTerm; 2] = [PhpTerm::Preload, PhpTerm::Jit];

/// Entries of php.ini that [`PhpTerm::Jit`] sets. The buffer is 0 by default in PHP 8.3 and before,
/// which switches the compiler off.
pub const JIT_ENTRIES: [(&str, &str); 2] =
    [("opcache.jit", "tracing"), ("opcache.jit_buffer_size", "64M")];

impl PhpTerm {
    /// Its lines in a `[pools]` section.
    pub fn lines(self) -> Vec<String> {
        match self {
            PhpTerm::Preload => vec!["preload = true".to_owned()],
            PhpTerm::Jit => {
                let entry = |(name, value): (&str, &str)| {
                    format!("php_admin_value.\"{name}\" = \"{value}\"")
                };
                JIT_ENTRIES.map(entry).to_vec()
            }
        }
    }

    /// Its name, for people.
    pub fn words(self) -> &'static str {
        match self {
            PhpTerm::Preload => "preload",
            PhpTerm::Jit => "opcache.jit = tracing",
        }
    }
}

/// A set of settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PhpTerms {
    /// [`PhpTerm::Preload`].
    pub preload: bool,
    /// [`PhpTerm::Jit`].
    pub jit: bool,
}

impl PhpTerms {
    /// The same set with another member.
    pub fn with(mut self, term: PhpTerm) -> PhpTerms {
        match term {
            PhpTerm::Preload => self.preload = true,
            PhpTerm::Jit => self.jit = true,
        }
        self
    }

    /// Whether it has this member.
    pub fn has(self, term: PhpTerm) -> bool {
        match term {
            PhpTerm::Preload => self.preload,
            PhpTerm::Jit => self.jit,
        }
    }

    /// Its members.
    pub fn terms(self) -> Vec<PhpTerm> {
        PHP_TERMS.into_iter().filter(|term| self.has(*term)).collect()
    }

    fn setting(self) -> Setting {
        if self == PhpTerms::default() { Setting::AsItWas } else { Setting::Php(self) }
    }
}

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
    pairs: Vec<(Measurement, Measurement)>,
    half: Option<Measurement>,
    pages_are_same: bool,
    /// The results so far.
    pub results: Vec<PhpTermResult>,
}

impl PhpCourse {
    /// Before the first step.
    pub fn new(input: PhpInput) -> PhpCourse {
        PhpCourse {
            input,
            now: 0.0,
            accepted: PhpTerms::default(),
            pairs: Vec::new(),
            half: None,
            pages_are_same: false,
            results: Vec::new(),
        }
    }

    /// Updates the elapsed time, in seconds.
    pub fn at(&mut self, now: f64) {
        self.now = now;
    }

    /// Whether the current trial has had its share of the time.
    fn is_late(&self) -> bool {
        let (all, done) = (self.input.candidates.len().max(1), self.results.len() + 1);
        self.now >= self.input.seconds * done as f64 / all as f64
    }

    /// The settings that are proven so far.
    pub fn accepted(&self) -> PhpTerms {
        self.accepted
    }

    fn term(&self) -> Option<PhpTerm> {
        self.input.candidates.get(self.results.len()).copied()
    }

    /// The next step.
    pub fn next(&self) -> PhpStep {
        let Some(term) = self.term() else {
            return PhpStep::Over;
        };
        let (old, new) = (self.accepted.setting(), self.accepted.with(term).setting());
        if !self.pages_are_same {
            return PhpStep::Compare(Comparison { old, new });
        }
        let new_is_next = b_first(self.pairs.len(), self.input.seed) == self.half.is_none();
        PhpStep::Measure(self.task(if new_is_next { new } else { old }))
    }

    fn task(&self, setting: Setting) -> Task {
        let runs = (self.input.candidates.len().max(1) * PAIRS.0 * 2) as f64;
        let seconds = (self.input.seconds / runs - BEFORE_RUN).clamp(RUN.0, RUN.1);
        let users = (self.input.cores * USERS_PER_CORE).ceil() as u32;
        Task {
            what: self.term().map_or("", PhpTerm::words),
            setting,
            load: Load::Users(users.min(self.input.workers).clamp(1, MOST_USERS)),
            seconds,
            warm_up: (seconds / 2.0).clamp(WARM_UP.0, WARM_UP.1),
            route: None,
            limits: LIMITS,
        }
    }

    /// The load of a pool that learns what to preload, for this many seconds.
    pub fn learning_task(&self, setting: Setting, seconds: f64) -> Task {
        Task { seconds, warm_up: 0.0, ..self.task(setting) }
    }

    /// The remaining time, in seconds, without the trials that need more pairs.
    pub fn left(&self) -> f64 {
        let trials = self.input.candidates.len().saturating_sub(self.results.len());
        let done = 2 * self.pairs.len() + usize::from(self.half.is_some());
        let runs = (trials * PAIRS.0 * 2).saturating_sub(done.min(PAIRS.0 * 2));
        runs as f64 * (self.task(Setting::AsItWas).seconds + BEFORE_RUN)
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
        self.conclude(false, None, None, why);
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
        self.conclude(gain, cpu.as_ref().map(shown), rate.as_ref().map(shown), why);
    }

    fn conclude(&mut self, gain: bool, cpu: Option<PhpRatio>, rate: Option<PhpRatio>, why: String) {
        let Some(term) = self.term() else {
            return;
        };
        if gain {
            self.accepted = self.accepted.with(term);
        }
        let pairs = self.pairs.len();
        self.results.push(PhpTermResult { term, lines: term.lines(), cpu, rate, pairs, gain, why });
        self.pairs.clear();
        self.half = None;
        self.pages_are_same = false;
    }
}

fn shown(ratio: &Ratio) -> PhpRatio {
    PhpRatio { mean: ratio.mean, low: ratio.low, high: ratio.high }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> PhpInput {
        PhpInput {
            seconds: 120.0,
            cores: 2.0,
            workers: 16,
            candidates: PHP_TERMS.to_vec(),
            seed: 1,
        }
    }

    fn seen(cpu: Option<f64>, rate: f64) -> Measurement {
        Measurement { cpu, rate, ..Measurement::default() }
    }

    /// Runs a course in which a request costs what `cpu` says of the setting.
    fn run(cpu: impl Fn(PhpTerms) -> Option<f64>, rate: impl Fn(PhpTerms) -> f64) -> PhpCourse {
        let mut course = PhpCourse::new(input());
        for at in 0..200 {
            match course.next() {
                PhpStep::Over => return course,
                PhpStep::Compare(_) => course.compared(Ok(())),
                PhpStep::Measure(task) => {
                    let terms = match task.setting {
                        Setting::Php(terms) => terms,
                        _ => PhpTerms::default(),
                    };
                    let wobble = 1.0 + 0.002 * f64::from(at % 3);
                    let cpu = cpu(terms).map(|cpu| cpu * wobble);
                    course.seen(seen(cpu, rate(terms) / wobble));
                }
            }
        }
        panic!("it does not end: {course:?}");
    }

    #[test]
    fn a_setting_that_saves_processor_time_stays_and_one_that_does_not_is_left_out() {
        let cpu = |terms: PhpTerms| if terms.preload { 0.006 } else { 0.010 };
        let course = run(|terms| Some(cpu(terms)), |terms| 1.0 / cpu(terms));
        let gains: Vec<bool> = course.results.iter().map(|result| result.gain).collect();
        assert_eq!(gains, [true, false], "{:?}", course.results);
        assert_eq!(course.accepted().terms(), [PhpTerm::Preload]);
        let ratio = course.results[0].cpu.expect("a ratio");
        assert!((ratio.mean - 0.6).abs() < 0.01 && ratio.high < 0.65, "{ratio:?}");
        assert_eq!(course.left(), 0.0);
    }

    #[test]
    fn a_setting_is_tried_on_top_of_the_accepted_ones() {
        let cpu = |terms: PhpTerms| {
            0.010 * if terms.preload { 0.6 } else { 1.0 } * if terms.jit { 0.9 } else { 1.0 }
        };
        let course = run(|terms| Some(cpu(terms)), |terms| 1.0 / cpu(terms));
        assert_eq!(course.accepted(), PhpTerms { preload: true, jit: true });
        let ratio = course.results[1].cpu.expect("a ratio");
        assert!((ratio.mean - 0.9).abs() < 0.01, "against preload alone: {ratio:?}");
    }

    #[test]
    fn a_trial_that_shows_nothing_ends_with_its_share_of_the_time() {
        let pairs = |seconds: f64| {
            let mut course = PhpCourse::new(input());
            course.compared(Ok(()));
            for at in 0..100 {
                course.at(seconds);
                if !course.results.is_empty() {
                    break;
                }
                // It varies by a third.
                course.seen(seen(Some(0.010 + 0.001 * f64::from(at * at % 4)), 100.0));
            }
            let result = &course.results[0];
            assert!(!result.gain, "{result:?}");
            result.pairs
        };
        assert_eq!((pairs(10.0), pairs(60.0)), (PAIRS.1, PAIRS.0));
    }

    #[test]
    fn less_processor_time_is_no_gain_if_fewer_requests_are_served() {
        let course = run(
            |terms| Some(if terms.preload { 0.006 } else { 0.010 }),
            |terms| if terms.preload { 50.0 } else { 100.0 },
        );
        assert!(!course.results[0].gain);
        assert_eq!(course.results[0].why, "fewer requests are served with it");
    }

    #[test]
    fn the_rate_decides_if_the_processor_time_cannot_be_read() {
        let course = run(|_| None, |terms| if terms.jit { 130.0 } else { 100.0 });
        let gains: Vec<bool> = course.results.iter().map(|result| result.gain).collect();
        assert_eq!(gains, [false, true], "{:?}", course.results);
    }

    #[test]
    fn a_page_that_differs_or_fails_rejects_the_setting() {
        let mut course = PhpCourse::new(input());
        assert!(matches!(course.next(), PhpStep::Compare(pages) if pages.old == Setting::AsItWas));
        course.compared(Err("/ differs".to_owned()));
        assert_eq!(course.results[0].why, "/ differs");
        let new = Setting::Php(PhpTerms { preload: false, jit: true });
        let pages = Comparison { old: Setting::AsItWas, new };
        assert_eq!(course.next(), PhpStep::Compare(pages));
        course.compared(Ok(()));
        for _ in 0..4 {
            let fails = Measurement { error_share: 0.5, ..seen(Some(0.01), 100.0) };
            course.seen(fails);
        }
        assert_eq!(course.next(), PhpStep::Over, "{course:?}");
        assert!(course.results[1].why.starts_with("50 % of the requests"), "{course:?}");
        assert_eq!(course.accepted(), PhpTerms::default());
    }
}
