//! The course of a tuning, step by step: what is measured next, and what follows from what was seen.
//! It measures and changes nothing itself.

pub mod goal;
pub mod hunt;
pub mod proof;
pub mod sweep;
mod times;

use maitred_measure::compare::b_first;
use serde::Serialize;

use crate::decide::{self, Choice, Memory};
use crate::growth::{self, Slope};
use crate::laws;
use crate::seen::{Load, Seen, Setting, Task};
use goal::Goal;
use hunt::Hunt;
use proof::Row;
use sweep::Sweep;
use times::{Times, warm_up};

/// Most windows of the warm-up, and by how much the median may still change in the last ones.
const MOST_WINDOWS: usize = 8;
const SETTLED: f64 = 0.05;
const SETTLED_WINDOWS: usize = 3;

/// Most requests that may fail before anything is tuned.
const MOST_ERRORS: f64 = 0.05;

/// A search begins with this share of what users without pauses were served.
const FIRST_RATE: f64 = 0.85;

/// So many times the goal's limit a rate is kept up at least.
const OVERLOAD_SHOWS: f64 = 3.0;

/// Both settings are compared at this share of the highest rate that one of them holds.
const PROOF_RATE: f64 = 0.9;

/// Users before anything is known of a pool that finds its size itself, for each processor.
const USERS_PER_CORE: f64 = 2.0;

/// Most users before anything is known.
const MOST_FIRST_USERS: u32 = 64;

/// What is known beforehand.
#[derive(Debug, Clone)]
pub struct Terms {
    /// How long all of it may take, in seconds.
    pub seconds: f64,
    /// Processors there are, a quota's parts included.
    pub cores: f64,
    /// Memory there is.
    pub memory: Memory,
    /// How the pool is set.
    pub now: Now,
    /// No more workers than that, if somebody said so.
    pub most_workers: Option<u32>,
    /// What has to hold, if somebody said it.
    pub goal: Option<Goal>,
    /// What chance begins with.
    pub seed: u64,
}

/// How a pool is set before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Now {
    /// `pm`.
    pub pm: String,
    /// Most workers.
    pub workers: u32,
}

impl Now {
    /// In words.
    pub fn words(&self) -> String {
        format!("pm = {}, at most {} workers", self.pm, self.workers)
    }
}

/// What it came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The choice is proven to be better.
    Gain,
    /// It is not.
    NoGain(String),
    /// What there is needs no change.
    NothingToGain(String),
    /// No choice could be made.
    CannotSay(String),
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Look at the machine for so many seconds, and ask nothing.
    Idle(f64),
    /// Measure this.
    Measure(Task),
    /// It is over.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Phase {
    Idle,
    Warm,
    Alone,
    Noise,
    Before,
    Sweep,
    After,
    Proof,
    Over,
}

/// A tuning that goes on.
#[derive(Debug, Clone)]
pub struct Course {
    /// What is known beforehand.
    pub terms: Terms,
    times: Times,
    phase: Phase,
    last: Setting,
    half: Option<Seen>,
    /// What others used of the processors while nothing was asked.
    pub background: Option<f64>,
    windows: Vec<f64>,
    /// Whether latencies came to rest.
    pub settled: bool,
    /// One user.
    pub alone: Option<Seen>,
    /// The goal, given or made.
    pub goal: Option<Goal>,
    noise: Vec<(Seen, Seen)>,
    /// The setting as it was, against itself.
    pub noise_rows: Vec<Row>,
    /// Rates with the setting as it was.
    pub before: Option<Hunt>,
    /// Throughput by workers.
    pub sweep: Option<Sweep>,
    /// Requests each worker has served and its memory, of a pool of so many.
    looks: Vec<(f64, f64)>,
    looked_at: u32,
    /// How workers grow with what they serve.
    pub growth: Option<Slope>,
    /// The number of workers.
    pub choice: Option<Choice>,
    /// Rates with that.
    pub after: Option<Hunt>,
    /// Pairs of runs, old and new.
    pub pairs: Vec<(Seen, Seen)>,
    /// What they say.
    pub rows: Vec<Row>,
    /// Figures that broke a law, and why they are not told.
    pub broken: Vec<String>,
    /// What it came to.
    pub verdict: Option<Verdict>,
}

impl Course {
    /// At its beginning.
    pub fn new(terms: Terms) -> Course {
        Course {
            times: Times::of(terms.seconds),
            goal: terms.goal.clone(),
            terms,
            phase: Phase::Idle,
            last: Setting::AsItWas,
            half: None,
            background: None,
            windows: Vec::new(),
            settled: false,
            alone: None,
            noise: Vec::new(),
            noise_rows: Vec::new(),
            before: None,
            sweep: None,
            looks: Vec::new(),
            looked_at: 0,
            growth: None,
            choice: None,
            after: None,
            pairs: Vec::new(),
            rows: Vec::new(),
            broken: Vec::new(),
            verdict: None,
        }
    }

    /// Whether its figures are only indicative.
    pub fn is_indicative(&self) -> bool {
        self.times.is_indicative
    }

    /// What comes next.
    pub fn next(&self) -> Next {
        let times = &self.times;
        let users = Load::Users(self.first_users());
        match self.phase {
            Phase::Idle => Next::Idle(times.idle),
            Phase::Warm => self.task("warming up", Setting::AsItWas, users, times.window),
            Phase::Alone => self.task("one user", Setting::AsItWas, Load::Users(1), times.alone),
            Phase::Noise => self.task(
                "the same against itself",
                Setting::AsItWas,
                users,
                times.noise,
            ),
            Phase::Before => self.rate("rates as it was", Setting::AsItWas, self.before.as_ref()),
            Phase::Sweep => match self.sweep.as_ref().and_then(Sweep::next) {
                Some((users, setting)) => self.task(
                    "numbers of workers",
                    setting,
                    Load::Users(users),
                    times.sweep,
                ),
                None => Next::Over,
            },
            Phase::After => self.rate("rates as proposed", self.proposed(), self.after.as_ref()),
            Phase::Proof => {
                let setting = if self.is_new_next() {
                    self.proposed()
                } else {
                    Setting::AsItWas
                };
                self.task(
                    "proof in pairs",
                    setting,
                    self.proof_load(),
                    times.run.max(self.overload()),
                )
            }
            Phase::Over => Next::Over,
        }
    }

    fn task(&self, what: &'static str, setting: Setting, load: Load, seconds: f64) -> Next {
        // New workers are cold.
        let cold = if setting == self.last {
            0.0
        } else {
            self.times.window
        };
        Next::Measure(Task {
            what,
            setting,
            load,
            seconds,
            warm_up: warm_up(seconds).max(cold),
        })
    }

    fn rate(&self, what: &'static str, setting: Setting, hunt: Option<&Hunt>) -> Next {
        let Some(rate) = hunt.and_then(Hunt::next) else {
            return Next::Over;
        };
        let needed = self.goal.as_ref().map_or(0.0, |goal| goal.slo.samples()) * 1.05 / rate;
        let seconds = needed
            .clamp(self.times.step, 2.0 * self.times.step)
            .max(self.overload());
        self.task(what, setting, Load::Rate(rate), seconds)
    }

    /// How long it takes at least, in seconds, until a rate that is too high shows: a queue has to grow
    /// until it is longer than the goal allows.
    fn overload(&self) -> f64 {
        self.goal
            .as_ref()
            .map_or(0.0, |goal| goal.limit() * OVERLOAD_SHOWS)
    }

    /// As many as there are workers, as far as their number is known.
    fn first_users(&self) -> u32 {
        let most = match self.terms.now.pm.as_str() {
            "auto" => (self.terms.cores * USERS_PER_CORE).ceil() as u32,
            _ => self.terms.now.workers,
        };
        most.clamp(1, MOST_FIRST_USERS)
    }

    /// The setting that was chosen.
    pub fn proposed(&self) -> Setting {
        self.choice
            .as_ref()
            .map_or(Setting::AsItWas, |choice| Setting::Workers(choice.workers))
    }

    fn is_new_next(&self) -> bool {
        let new_first = b_first(self.pairs.len(), self.terms.seed);
        new_first == self.half.is_none()
    }

    /// Both are asked as much as the better one can do.
    fn proof_load(&self) -> Load {
        let highest = |hunt: &Option<Hunt>| hunt.as_ref().and_then(Hunt::highest);
        match [highest(&self.before), highest(&self.after)]
            .into_iter()
            .flatten()
            .reduce(f64::max)
        {
            Some(rate) => Load::Rate(rate * PROOF_RATE),
            None => Load::Users(self.choice.as_ref().map_or(1, |choice| choice.workers)),
        }
    }

    /// What others used while nothing was asked.
    pub fn idled(&mut self, outside: Option<f64>) {
        self.background = outside;
        self.phase = Phase::Warm;
    }

    /// What was seen of what came next.
    pub fn seen(&mut self, seen: Seen) {
        if let Next::Measure(task) = self.next() {
            self.last = task.setting;
        }
        match self.phase {
            Phase::Idle | Phase::Over => {}
            Phase::Warm => self.warmed(&seen),
            Phase::Alone => self.was_alone(seen),
            Phase::Noise => self.against_itself(seen),
            Phase::Before => self.tried_before(&seen),
            Phase::Sweep => self.swept(seen),
            Phase::After => self.tried_after(&seen),
            Phase::Proof => self.paired(seen),
        }
    }

    fn end(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
        self.phase = Phase::Over;
    }

    fn warmed(&mut self, seen: &Seen) {
        if seen.error_share > MOST_ERRORS {
            return self.end(Verdict::CannotSay(format!(
                "{:.0} % of the requests did not get the expected answer ({}); expected less than 5 %",
                seen.error_share * 100.0,
                seen.cause.as_deref().unwrap_or("no answer"),
            )));
        }
        self.windows.extend(seen.mean);
        let last = self.windows.iter().rev().take(SETTLED_WINDOWS);
        let (low, high) = last.fold((f64::MAX, 0.0_f64), |(low, high), mean| {
            (low.min(*mean), high.max(*mean))
        });
        let enough = self.windows.len() >= SETTLED_WINDOWS;
        self.settled = enough && high <= low * (1.0 + SETTLED);
        if self.settled || self.windows.len() >= MOST_WINDOWS {
            self.phase = Phase::Alone;
        }
    }

    fn was_alone(&mut self, seen: Seen) {
        if let Err(why) = laws::obeys(Some(1), self.terms.cores, &seen) {
            self.broken.push(why);
        }
        let Some(alone) = seen.mean.filter(|_| seen.served > 0) else {
            return self.end(Verdict::CannotSay(
                "one user alone was served nothing in the time that there is; give more with --time"
                    .to_owned(),
            ));
        };
        if self.goal.is_none() {
            let likely = seen.rate * f64::from(self.first_users()) * self.times.step;
            self.goal = Goal::made(alone, likely).ok();
        }
        let limit = self.goal.as_ref().map_or(f64::INFINITY, Goal::limit);
        if alone >= limit {
            return self.end(Verdict::CannotSay(format!(
                "the goal cannot be met: one request alone takes {:.0} ms, and the goal is {}; workers \
                 make no request faster, only the application can",
                alone * 1e3,
                self.goal.as_ref().map_or("", |goal| goal.text.as_str()),
            )));
        }
        self.alone = Some(seen);
        self.phase = Phase::Noise;
    }

    fn against_itself(&mut self, seen: Seen) {
        let Some(first) = self.half.take() else {
            self.half = Some(seen);
            return;
        };
        let rate = first.rate.max(seen.rate);
        self.noise.push((first, seen));
        if self.noise.len() < self.times.pairs.0 {
            return;
        }
        self.noise_rows = proof::rows(&self.noise, self.terms.seed);
        self.before = Some(Hunt::new(
            Setting::AsItWas,
            rate * FIRST_RATE,
            self.times.steps,
        ));
        self.phase = Phase::Before;
    }

    fn tried_before(&mut self, seen: &Seen) {
        let Some(hunt) = &mut self.before else { return };
        hunt.tried(seen);
        if hunt.next().is_none() {
            let private = self.noise.iter().filter_map(|(_, seen)| seen.private);
            let private = private.reduce(f64::max);
            let terms = &self.terms;
            let ceiling = decide::ceiling(
                &terms.memory,
                private,
                terms.now.workers,
                terms.most_workers,
            );
            self.sweep = Some(Sweep::new(ceiling, self.background));
            self.phase = Phase::Sweep;
        }
    }

    fn swept(&mut self, seen: Seen) {
        let cores = self.terms.cores;
        let Some(sweep) = &mut self.sweep else { return };
        let pool = seen.workers.max(1);
        if self.looked_at != pool {
            // Other workers, which have served nothing.
            self.looks.clear();
            self.looked_at = pool;
        }
        if let Some(private) = seen.private {
            let before = self.looks.last().map_or(0.0, |look| look.0);
            let each = seen.served as f64 / f64::from(pool);
            self.looks.push((before + each, private));
        }
        sweep.tried(seen, cores);
        if sweep.next().is_none() {
            self.decide();
        }
    }

    fn decide(&mut self) {
        let Some(sweep) = &self.sweep else { return };
        self.broken.extend(sweep.broken.iter().cloned());
        self.growth = growth::slope(&self.looks);
        let share = self
            .alone
            .as_ref()
            .and_then(|alone| alone.cpu.zip(alone.mean));
        // Waiting for a processor is no waiting that another worker could use.
        let waited = self
            .alone
            .as_ref()
            .and_then(|alone| alone.core_wait)
            .unwrap_or(0.0);
        let knee = share.filter(|(cpu, _)| *cpu > 0.0);
        let knee = knee.map(|(cpu, mean)| self.terms.cores * (mean - waited).max(cpu) / cpu);
        self.choice = decide::choose(&sweep.curve(), sweep.ceiling(), knee);
        let Some(choice) = &self.choice else {
            let why = self
                .broken
                .first()
                .map_or("no number of workers served anything", String::as_str);
            return self.end(Verdict::CannotSay(why.to_owned()));
        };
        let now = &self.terms.now;
        if now.pm == "static" && decide::is_same(now.workers, choice.workers) {
            let what = format!("{} is what was found", now.words());
            return self.end(Verdict::NothingToGain(what));
        }
        let setting = Setting::Workers(choice.workers);
        self.after = Some(Hunt::new(
            setting,
            choice.rate * FIRST_RATE,
            self.times.steps,
        ));
        self.phase = Phase::After;
    }

    fn tried_after(&mut self, seen: &Seen) {
        let Some(hunt) = &mut self.after else { return };
        hunt.tried(seen);
        if hunt.next().is_none() {
            self.phase = Phase::Proof;
        }
    }

    fn paired(&mut self, seen: Seen) {
        let is_new = self.is_new_next();
        let Some(first) = self.half.take() else {
            self.half = Some(seen);
            return;
        };
        self.pairs
            .push(if is_new { (first, seen) } else { (seen, first) });
        let (fewest, most) = self.times.pairs;
        if self.pairs.len() < fewest {
            return;
        }
        self.rows = proof::rows(&self.pairs, self.terms.seed);
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
        if self.terms.now.pm == "auto" {
            return Verdict::NothingToGain(
                "pm = auto serves as much as the best fixed number".to_owned(),
            );
        }
        Verdict::NoGain("the pairs show no gain that chance does not explain".to_owned())
    }

    /// How long the rest will take, in seconds, as far as that can be said.
    pub fn left(&self) -> f64 {
        let times = &self.times;
        let pairs = |done: usize| (times.pairs.0 - done.min(times.pairs.0)) as f64 * 2.0;
        let search = |hunt: &Option<Hunt>| hunt.as_ref().map_or(times.steps, Hunt::left) as f64;
        let (swept, of) = self.sweep.as_ref().map_or((0, 12), Sweep::progress);
        let parts = [
            (Phase::Idle, times.idle),
            (
                Phase::Warm,
                Times::whole(times.window) * SETTLED_WINDOWS as f64,
            ),
            (Phase::Alone, Times::whole(times.alone)),
            (
                Phase::Noise,
                Times::whole(times.noise) * pairs(self.noise.len()),
            ),
            (
                Phase::Before,
                Times::whole(times.step) * search(&self.before),
            ),
            (
                Phase::Sweep,
                Times::whole(times.sweep) * of.saturating_sub(swept) as f64,
            ),
            (Phase::After, Times::whole(times.step) * search(&self.after)),
            (
                Phase::Proof,
                (times.run + times.window) * pairs(self.pairs.len()),
            ),
        ];
        parts
            .iter()
            .filter(|(phase, _)| *phase >= self.phase)
            .map(|(_, seconds)| seconds)
            .sum()
    }
}

#[cfg(test)]
mod tests;
