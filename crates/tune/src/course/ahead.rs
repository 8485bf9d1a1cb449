//! What is measured next.

use super::hunt::{Ask, Hunt};
use super::overload::Overload;
use super::sweep::Sweep;
use super::times::warm_up;
use super::{Course, Next, Phase};
use crate::seen::{Load, Setting, Task};

/// So many times the goal's limit a rate is kept up at least.
const OVERLOAD_SHOWS: f64 = 3.0;

/// Both settings are compared at this share of the highest rate that one of them holds.
const PROOF_RATE: f64 = 0.9;

/// A route is looked at for so long at least, in seconds.
const SHORTEST_ROUTE: f64 = 0.3;

/// Users before anything is known of a pool that finds its size itself, for each processor.
const USERS_PER_CORE: f64 = 2.0;

/// Most users before anything is known.
const MOST_FIRST_USERS: u32 = 64;

/// Each user has to have so many answers of a slow site, but for no longer than that, in seconds.
const ROUNDS: f64 = 4.0;
const LONGEST_ROUNDS: f64 = 30.0;

/// So many requests have to come in a run of the same against itself: of few, one more or less is a difference
/// that nothing has made. For no longer than this, in seconds, or twice as long where there is little time.
const ALIKE: f64 = 60.0;
const LONGEST_ALIKE: f64 = 15.0;

/// A rate at which few requests come is kept up for so many times longer than others at most.
const MOST_STEP: f64 = 4.0;

impl Course {
    /// What comes next.
    pub fn next(&self) -> Next {
        let times = &self.times;
        let users = Load::Users(self.first_users());
        match self.phase {
            Phase::Idle => Next::Idle(times.idle),
            Phase::Warm => self.task("warming up", Setting::AsItWas, users, times.window),
            Phase::Alone => self.task("one user", Setting::AsItWas, Load::Users(1), times.alone),
            Phase::Routes => self.route(),
            Phase::Noise => self.task(
                "the same against itself",
                Setting::AsItWas,
                users,
                self.noise_seconds(),
            ),
            Phase::Before => self.rate("rates as it was", Setting::AsItWas, self.before.as_ref()),
            Phase::Sweep => match self.sweep.as_ref().and_then(Sweep::next) {
                Some((users, setting)) => {
                    let expected = self.sweep.as_ref().and_then(Sweep::expected);
                    let rounds = (expected.unwrap_or(0.0) * ROUNDS).min(LONGEST_ROUNDS);
                    let seconds = times.sweep.max(rounds);
                    self.task("numbers of workers", setting, Load::Users(users), seconds)
                }
                None => Next::Over,
            },
            Phase::After => self.rate("rates as proposed", self.proposed(), self.after.as_ref()),
            Phase::Overload => self.beyond(),
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
                    times.run.max(self.overload_shows()),
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
            route: None,
            recovers: false,
        })
    }

    fn noise_seconds(&self) -> f64 {
        let needed = self.usual_rate.map_or(0.0, |rate| ALIKE / rate.max(1e-9));
        let longest = match self.is_indicative() {
            true => self.times.noise * 2.0,
            false => LONGEST_ALIKE,
        };
        self.times.noise.max(needed.min(longest))
    }

    fn route(&self) -> Next {
        let seconds = (self.times.routes / self.profile.count().max(1) as f64).max(SHORTEST_ROUTE);
        match self.task("each route", Setting::AsItWas, Load::Users(1), seconds) {
            Next::Measure(task) => Next::Measure(Task {
                route: self.profile.next(),
                ..task
            }),
            other => other,
        }
    }

    fn beyond(&self) -> Next {
        let Some(rate) = self.overload.as_ref().and_then(Overload::next) else {
            return Next::Over;
        };
        let seconds = self.times.beyond.max(self.overload_shows());
        // Where there is nothing to gain, nothing is proposed.
        let setting = match self.verdict {
            Some(_) => Setting::AsItWas,
            None => self.proposed(),
        };
        match self.task("overload", setting, Load::Rate(rate), seconds) {
            Next::Measure(task) => Next::Measure(Task {
                recovers: true,
                ..task
            }),
            other => other,
        }
    }

    fn rate(&self, what: &'static str, setting: Setting, hunt: Option<&Hunt>) -> Next {
        let Some(Ask { rate, confirms }) = hunt.and_then(Hunt::next) else {
            return Next::Over;
        };
        let needed = self.goal.as_ref().map_or(0.0, |goal| goal.slo.samples()) * 1.05 / rate;
        let seconds = needed
            .clamp(self.times.step, MOST_STEP * self.times.step)
            .max(self.overload_shows());
        let seconds = if confirms {
            seconds.max(self.times.confirm)
        } else {
            seconds
        };
        self.task(what, setting, Load::Rate(rate), seconds)
    }

    /// How long it takes at least, in seconds, until a rate that is too high shows: a queue has to grow
    /// until it is longer than the goal allows.
    fn overload_shows(&self) -> f64 {
        self.goal
            .as_ref()
            .map_or(0.0, |goal| goal.limit() * OVERLOAD_SHOWS)
    }

    /// As many as there are workers, as far as their number is known.
    pub(super) fn first_users(&self) -> u32 {
        let most = match self.terms.now.pm.as_str() {
            "auto" => (self.terms.cores * USERS_PER_CORE).ceil() as u32,
            _ => self.terms.now.workers,
        };
        most.clamp(1, MOST_FIRST_USERS)
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
}
