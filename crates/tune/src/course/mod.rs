//! The course of a tuning as a state machine: it decides what is measured next, and draws
//! conclusions from the measurements. It measures and changes nothing itself.

mod budget;
pub mod goal;
mod input;
mod next_task;
pub mod noise;
pub mod overload;
pub mod profile;
pub mod proof;
pub mod rate_search;
pub mod sweep;
mod time_limit;
mod times;

use maitred_measure::compare::b_first;

use crate::decide::{self, Choice};
use crate::growth::{GrowthSamples, Slope};
use crate::laws;
use crate::measurement::{Measurement, Setting};
use crate::timeline::TimelinePoint;
use budget::Budget;
use goal::Goal;
pub use input::{CourseInput, IdleSample, NextStep, PoolSetting, Verdict, WorkerStart};
use noise::Noise;
use overload::Overload;
use profile::Profile;
use proof::ComparisonRow;
use rate_search::RateSearch;
use sweep::{Sweep, SweepPoint};
use times::Times;

/// Most windows of the warm-up, and by how much the median may still change in the last ones.
const MOST_WINDOWS: usize = 8;
const SETTLED: f64 = 0.05;
const SETTLED_WINDOWS: usize = 3;

/// The highest error rate with which a tuning starts.
const MOST_ERRORS: f64 = 0.05;

/// A rate search starts with this share of the throughput of a closed loop.
const FIRST_RATE: f64 = 0.85;

/// The share of all processors that other processes may use without load, and how often to check
/// again whether they still do.
const MOST_BACKGROUND: f64 = 0.1;
const LOOKS_AT_OTHERS: usize = 3;

/// With `--quick`, a page that takes longer than this is slow, in seconds.
const SLOW: f64 = 0.3;

/// Most pairs of the proof that are repeated because other processes used the processors.
const MOST_REPEATED_PAIRS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Phase {
    Idle,
    Warm,
    Alone,
    Routes,
    Noise,
    Before,
    Sweep,
    After,
    Overload,
    Proof,
    Over,
}

/// A tuning.
#[derive(Debug, Clone)]
pub struct Course {
    /// What is known before the first measurement.
    pub input: CourseInput,
    times: Times,
    budget: Option<Budget>,
    phase: Phase,
    last: Setting,
    /// How long the queue of the last load may take to drain, in seconds.
    patience: f64,
    half: Option<Measurement>,
    /// The share of the processors that other processes used without load.
    pub background: Option<f64>,
    /// The machine's state without load.
    pub at_rest: IdleSample,
    looks_at_others: usize,
    windows: Vec<(f64, Option<f64>)>,
    /// Windows in which nothing was served: the page takes longer.
    empty_windows: usize,
    /// The throughput of the last window of the warm-up, in requests a second.
    usual_rate: Option<f64>,
    /// Whether latencies became steady.
    pub settled: bool,
    /// One user alone; without times if these broke a law.
    pub alone: Option<Measurement>,
    /// The average latency of one user alone, in seconds; if times broke a law, computed from the
    /// throughput.
    pub pace: Option<f64>,
    /// Each route alone.
    pub profile: Profile,
    /// The goal, the user's or the default one.
    pub goal: Option<Goal>,
    /// The original setting compared with itself.
    pub noise: Noise,
    /// Reasons to stop that `--despite-noise` overrides.
    pub troubles: Vec<String>,
    /// The highest rate of the original setting.
    pub before: Option<RateSearch>,
    /// Throughput by workers.
    pub sweep: Option<Sweep>,
    growth_samples: GrowthSamples,
    boots: Vec<WorkerStart>,
    /// The timeline, second by second.
    pub moments: Vec<TimelinePoint>,
    /// The growth of workers with the requests that they serve.
    pub growth: Option<Slope>,
    /// The chosen number of workers.
    pub choice: Option<Choice>,
    /// The highest rate with that.
    pub after: Option<RateSearch>,
    /// Overload.
    pub overload: Option<Overload>,
    /// Pairs of runs, old and new.
    pub pairs: Vec<(Measurement, Measurement)>,
    /// Pairs that were repeated because other processes used the processors.
    pub repeated: usize,
    /// The comparison of the pairs.
    pub rows: Vec<ComparisonRow>,
    /// Measurements that broke a law, and which.
    pub broken: Vec<String>,
    /// What was skipped for lack of time.
    pub left_out: Vec<String>,
    /// The result.
    pub verdict: Option<Verdict>,
}

impl Course {
    /// A tuning before its first step.
    pub fn new(input: CourseInput) -> Course {
        Course {
            times: Times::of(input.seconds),
            goal: input.goal.clone(),
            profile: Profile::of(&input.routes),
            budget: input.ends.then(|| Budget::of(input.seconds)),
            input,
            phase: Phase::Idle,
            last: Setting::AsItWas,
            patience: 0.0,
            half: None,
            background: None,
            at_rest: IdleSample::default(),
            looks_at_others: 0,
            windows: Vec::new(),
            empty_windows: 0,
            usual_rate: None,
            settled: false,
            alone: None,
            pace: None,
            noise: Noise::default(),
            troubles: Vec::new(),
            before: None,
            sweep: None,
            growth_samples: GrowthSamples::default(),
            boots: Vec::new(),
            moments: Vec::new(),
            growth: None,
            choice: None,
            after: None,
            overload: None,
            pairs: Vec::new(),
            repeated: 0,
            rows: Vec::new(),
            broken: Vec::new(),
            left_out: Vec::new(),
            verdict: None,
        }
    }

    /// Whether its results are only indicative.
    pub fn is_indicative(&self) -> bool {
        self.times.is_indicative
    }

    /// The usual latency, in seconds, of the page that the check for an idle server requests: the
    /// first URL.
    pub fn rest(&self) -> Option<f64> {
        let first = self.profile.profiled.first();
        let first = first.and_then(|route| route.seen.mean);
        first.into_iter().chain(self.pace).reduce(f64::max)
    }

    /// Workers were started.
    pub fn booted(&mut self, boot: WorkerStart) {
        self.boots.push(boot);
    }

    /// The median cost of starting workers.
    pub fn boot(&self) -> Option<WorkerStart> {
        let mut boots = self.boots.clone();
        boots.sort_by(|a, b| a.first.total_cmp(&b.first));
        boots.get(boots.len() / 2).copied()
    }

    /// The proposed setting.
    pub fn proposed(&self) -> Setting {
        self.choice.as_ref().map_or(Setting::AsItWas, |choice| Setting::Workers(choice.workers))
    }

    fn is_new_next(&self) -> bool {
        let new_first = b_first(self.pairs.len(), self.input.seed);
        new_first == self.half.is_none()
    }

    /// The machine was observed without load.
    pub fn idled(&mut self, rest: IdleSample) {
        self.at_rest = rest;
        self.background = rest.outside;
        self.looks_at_others += 1;
        let much = rest.outside.filter(|share| *share > MOST_BACKGROUND);
        if let Some(share) = much {
            if self.looks_at_others < LOOKS_AT_OTHERS && !self.input.despite_noise {
                return;
            }
            self.trouble(format!(
                "other processes use {:.0} % of the processors without load; expected at most 10 %",
                share * 100.0
            ));
        }
        if self.phase != Phase::Over {
            self.phase = Phase::Warm;
        }
    }

    /// Ends the tuning, because results would not be the site's, unless `--despite-noise` is given.
    fn trouble(&mut self, why: String) {
        if !self.input.despite_noise {
            return self.end(Verdict::CannotSay(format!(
                "{why}: results would depend on other processes as much as on the site; tune when \
                 the machine is quiet, give more time, or continue with --despite-noise"
            )));
        }
        self.troubles.push(why);
    }

    /// Takes the measurement of the current step.
    pub fn seen(&mut self, seen: Measurement) {
        if let NextStep::Measure(task) = self.next() {
            if self.last != task.setting {
                self.growth_samples.restart();
            }
            self.last = task.setting;
            self.patience = self.patience_after(&task, &seen);
        }
        self.look_at_growth(&seen);
        match self.phase {
            Phase::Idle | Phase::Over => {}
            Phase::Warm => self.warmed(&seen),
            Phase::Alone => self.was_alone(seen),
            Phase::Routes => self.profiled(seen),
            Phase::Noise => self.against_itself(seen),
            Phase::Before => self.tried_before(&seen),
            Phase::Sweep => self.swept(seen),
            Phase::After => self.tried_after(&seen),
            Phase::Overload => self.overloaded(&seen),
            Phase::Proof => self.paired(seen),
        }
    }

    /// Workers of a static pool live from one change of their number to the next.
    fn look_at_growth(&mut self, seen: &Measurement) {
        let is_fixed = matches!(self.last, Setting::Workers(_)) || self.input.now.pm == "static";
        let Some(private) = seen.private.filter(|_| is_fixed && seen.workers > 0) else {
            return;
        };
        let each = seen.served as f64 / f64::from(seen.workers);
        self.growth_samples.add(each, private);
        self.growth = self.growth_samples.slope();
    }

    fn end(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
        self.phase = Phase::Over;
    }

    fn warmed(&mut self, seen: &Measurement) {
        if seen.error_share > MOST_ERRORS {
            return self.end(Verdict::CannotSay(format!(
                "{:.0} % of the requests did not get the expected response ({}); expected less \
                 than 5 %",
                seen.error_share * 100.0,
                seen.cause.as_deref().unwrap_or("no response"),
            )));
        }
        match seen.p50.or(seen.mean) {
            Some(typical) => self.windows.push((typical, seen.private)),
            None => self.empty_windows += 1,
        }
        self.usual_rate = Some(seen.rate).filter(|rate| *rate > 0.0);
        self.settled = self.has_settled();
        if self.settled || self.windows.len() + self.empty_windows >= MOST_WINDOWS {
            self.phase = Phase::Alone;
        }
    }

    /// Whether latencies and the workers' memory have both become steady.
    fn has_settled(&self) -> bool {
        let last = || self.windows.iter().rev().take(SETTLED_WINDOWS);
        let rests = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) = values
                .fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
            high <= low * (1.0 + SETTLED)
        };
        self.windows.len() >= SETTLED_WINDOWS
            && rests(&mut last().map(|(typical, _)| *typical))
            && rests(&mut last().filter_map(|(_, private)| *private))
    }

    fn was_alone(&mut self, seen: Measurement) {
        let Some(mean) = seen.mean.filter(|_| seen.served > 0) else {
            return self.end(Verdict::CannotSay(
                "no request of one user alone was served in time; give more with --time".to_owned(),
            ));
        };
        let lawful = laws::obeys(Some(1), self.input.cores, &seen);
        // The throughput of one user gives the average latency, and counts are never off.
        let alone = match &lawful {
            Ok(()) => mean,
            Err(_) => seen.seconds / seen.served as f64,
        };
        self.pace = Some(alone);
        if self.goal.is_none() {
            let likely = seen.rate * f64::from(self.first_users()) * self.times.step;
            self.goal = Goal::made(alone, likely).ok();
        }
        let limit = self.goal.as_ref().map_or(f64::INFINITY, Goal::limit);
        if lawful.is_ok() && alone >= limit {
            return self.end(Verdict::CannotSay(format!(
                "the goal cannot be met: one request alone takes {:.0} ms, and the goal is {}; \
                 more workers make no request faster, only the application can",
                alone * 1e3,
                self.goal.as_ref().map_or("", |goal| goal.text.as_str()),
            )));
        }
        self.alone = Some(match lawful {
            Ok(()) => seen,
            Err(why) => {
                self.broken.push(format!("{why} (one user alone)"));
                seen.without_times()
            }
        });
        self.phase = match self.profile.next() {
            Some(_) => Phase::Routes,
            None => Phase::Noise,
        };
    }

    fn profiled(&mut self, seen: Measurement) {
        let lawful = laws::obeys(Some(1), self.input.cores, &seen);
        self.profile.tried(match lawful {
            Ok(()) => seen,
            Err(why) => {
                let route = self.profile.next_name().unwrap_or_default();
                self.broken.push(format!("{why} ({route} alone)"));
                seen.without_times()
            }
        });
        if self.profile.next().is_none() {
            self.phase = Phase::Noise;
        }
    }

    fn against_itself(&mut self, seen: Measurement) {
        let pairs = self.times.noise_pairs;
        if !self.noise.tried(seen, pairs, self.input.seed) {
            return;
        }
        self.begin_before();
        if let Some(why) = self.noise.trouble() {
            self.trouble(why);
        }
    }

    fn begin_before(&mut self) {
        // If the comparison with itself was skipped, the warm-up has to do.
        let usual = self.usual_rate.unwrap_or(0.0);
        let rate = self.noise.best().unwrap_or(usual);
        self.before = Some(RateSearch::new(Setting::AsItWas, rate * FIRST_RATE, self.times.steps));
        self.phase = Phase::Before;
    }

    fn tried_before(&mut self, seen: &Measurement) {
        let Some(rate_search) = &mut self.before else {
            return;
        };
        rate_search.tried(seen);
        if rate_search.next().is_none() {
            self.begin_sweep();
        }
    }

    fn begin_sweep(&mut self) {
        let alone = self.alone.as_ref().and_then(|alone| alone.private);
        let private = self.noise.private().or(alone);
        let input = &self.input;
        let ceiling =
            decide::ceiling(&input.memory, private, input.now.workers, input.most_workers);
        let enough = self.enough();
        let sweep = Sweep::new(ceiling, self.background, enough);
        let is_slow = self.budget.is_some() && self.rest().is_some_and(|rest| rest > SLOW);
        self.sweep = Some(if !self.is_indicative() {
            sweep
        } else if is_slow {
            // A measurement that broke a law has no times, and is no point.
            sweep.of_slow(self.alone.as_ref().filter(|alone| alone.mean.is_some()))
        } else {
            sweep.in_haste()
        });
        self.phase = Phase::Sweep;
    }

    /// The share of the highest throughput that is enough: numbers of workers within the spread of
    /// single runs are equal, and the fewest of them are chosen.
    fn enough(&self) -> f64 {
        let spread = self.noise.spread().unwrap_or(0.0);
        let enough = decide::enough(Some(self.noise.floor.unwrap_or(0.0).max(spread)));
        if self.is_indicative() { enough.min(decide::ENOUGH_IN_HASTE) } else { enough }
    }

    fn swept(&mut self, seen: Measurement) {
        let cores = self.input.cores;
        let Some(sweep) = &mut self.sweep else { return };
        sweep.tried(seen, cores);
        if sweep.next().is_none() {
            self.decide();
        }
    }

    fn decide(&mut self) {
        let Some(sweep) = &self.sweep else { return };
        self.broken.extend(sweep.broken.iter().cloned());
        let share = self.alone.as_ref().and_then(|alone| alone.cpu.zip(alone.mean));
        // While a request waits for a processor, another worker could not run either.
        let waited = self.alone.as_ref().and_then(|alone| alone.core_wait).unwrap_or(0.0);
        let knee = share.filter(|(cpu, _)| *cpu > 0.0);
        let knee = knee.map(|(cpu, mean)| self.input.cores * (mean - waited).max(cpu) / cpu);
        let enough = self.enough();
        self.choice = decide::choose(&sweep.curve(), sweep.ceiling(), knee, enough);
        if let (Some(choice), Some(highest)) = (&mut self.choice, sweep.unconfirmed()) {
            let highest = format!(
                "the highest throughput, that of {}, was measured once, and no other is near it",
                maitred_text::humanize::plural(u64::from(highest), "worker")
            );
            choice.doubt = Some(
                choice.doubt.take().map_or(highest.clone(), |doubt| format!("{doubt}; {highest}")),
            );
        }
        let Some(choice) = &self.choice else {
            let why = sweep.broken.first();
            let why = why.map_or("no number of workers served anything", String::as_str);
            let why = why.to_owned();
            return self.end(Verdict::CannotSay(why));
        };
        if let Some(why) = self.sweep.as_ref().and_then(Sweep::is_cut_short) {
            return self.end(Verdict::CannotSay(why));
        }
        let now = &self.input.now;
        if now.pm == "static" && decide::is_same(now.workers, choice.workers) {
            let what = format!("{} is already the best setting found", now.words());
            // Nothing is proposed; the overload phase measures the original setting.
            self.verdict = Some(Verdict::NothingToGain(what));
            return self.go_beyond();
        }
        let setting = Setting::Workers(choice.workers);
        self.after = Some(RateSearch::lasting(setting, choice.rate * FIRST_RATE, self.times.steps));
        self.phase = Phase::After;
    }

    fn tried_after(&mut self, seen: &Measurement) {
        let Some(rate_search) = &mut self.after else {
            return;
        };
        rate_search.tried(seen);
        if rate_search.next().is_none() {
            self.go_beyond();
        }
    }

    /// The highest rate is known: starts the overload phase.
    fn go_beyond(&mut self) {
        self.phase = Phase::Overload;
        self.overload = self.highest().map(Overload::of);
        if self.overload.is_none() {
            self.end_overload();
        }
    }

    fn overloaded(&mut self, seen: &Measurement) {
        let Some(overload) = &mut self.overload else {
            return;
        };
        overload.tried(seen);
        if overload.next().is_none() {
            self.end_overload();
        }
    }

    fn end_overload(&mut self) {
        self.phase = match self.verdict {
            Some(_) => Phase::Over,
            None => Phase::Proof,
        };
    }

    /// The highest rate of the proposed setting, or of the original one if nothing is proposed or
    /// no rate held.
    pub fn highest(&self) -> Option<f64> {
        self.highest_after().or(self.highest_before())
    }

    /// The highest rate of the original setting.
    pub fn highest_before(&self) -> Option<f64> {
        self.before.as_ref()?.highest()
    }

    /// The highest rate of the proposed setting.
    pub fn highest_after(&self) -> Option<f64> {
        self.after.as_ref()?.highest()
    }

    /// The measured numbers of workers.
    pub fn points(&self) -> &[SweepPoint] {
        self.sweep.as_ref().map_or(&[], |sweep| &sweep.points)
    }

    /// The most processors that workers have used in the sweep.
    pub fn most_processors(&self) -> Option<f64> {
        let used = self.points().iter();
        let used = used.filter_map(|point| laws::processors(&point.seen));
        used.reduce(f64::max)
    }

    fn paired(&mut self, seen: Measurement) {
        let is_new = self.is_new_next();
        let Some(first) = self.half.take() else {
            self.half = Some(seen);
            return;
        };
        let is_disturbed =
            |seen: &Measurement| seen.outside.is_some_and(|share| share > MOST_BACKGROUND);
        let is_quiet = !self.background.is_some_and(|share| share > MOST_BACKGROUND);
        let again = is_quiet && !self.is_indicative() && self.repeated < MOST_REPEATED_PAIRS;
        if again && (is_disturbed(&first) || is_disturbed(&seen)) {
            self.repeated += 1;
            return;
        }
        self.pairs.push(if is_new { (first, seen) } else { (seen, first) });
        let (fewest, most) = self.times.pairs;
        if self.pairs.len() < fewest {
            return;
        }
        self.rows = proof::rows(&self.pairs, self.input.seed);
        if self.pairs.len() < most && !proof::is_clear(&self.rows) {
            return;
        }
        let verdict = self.judge();
        self.end(verdict);
    }

    fn judge(&self) -> Verdict {
        if proof::is_gain(&self.rows) {
            return Verdict::Gain;
        }
        if self.input.now.pm == "auto" {
            let why = if proof::is_as_much(&self.rows) {
                "pm = auto serves as much as the best fixed number"
            } else {
                "no fixed number is shown to serve more than pm = auto; the pairs vary too much to \
                 show that it serves as much"
            };
            return Verdict::NothingToGain(why.to_owned());
        }
        Verdict::NoGain("the pairs show no gain that chance does not explain".to_owned())
    }
}

#[cfg(test)]
mod tests;
