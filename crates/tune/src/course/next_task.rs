//! What is measured next.

use super::budget::Wish;
use super::rate_search::{NextRate, RateSearch};
use super::remaining::sweep_left;
use super::times::warm_up;
use super::{Course, NextStep, Phase, SETTLED_WINDOWS, sweep};
use crate::measurement::{Load, Measurement, Setting, Task, TaskLimits};

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

/// Where time is short, users that wait for each answer have so many of them, and one user alone has more.
const FEW_ANSWERS: f64 = 1.5;
const ANSWERS_ALONE: f64 = 2.5;

/// Where time is short, this share of what a measurement is to take may do.
const SHORT: f64 = 0.5;

/// How long an answer may take, as a multiple of what is in time, where time is short, too, and at least, in
/// seconds.
const TIMEOUT: f64 = 4.0;
const TIMEOUT_IN_HASTE: f64 = 1.25;
const LEAST_TIMEOUT: f64 = 2.0;

/// The same before anything is known.
const FIRST_TIMEOUT: f64 = 10.0;

/// How long a server may take until it is at rest again, and until it answers at all after a reload, where time is
/// short, too, in seconds.
const REST: f64 = 10.0;
const RETURN: f64 = 60.0;
const RETURN_IN_HASTE: f64 = 20.0;

/// Where time is short: so many times as long as alone a page may take that is looked with whether the server is
/// at rest, and a queue until it is gone, and at least, in seconds.
const PATIENCE: f64 = 3.0;
const LEAST_PATIENCE: f64 = 2.0;

/// How long it is waited for a server to recover from too much: so many times as long as it had too much, where
/// time is short, too, and within these bounds, in seconds.
const RECOVERY: f64 = 2.0;
const RECOVERY_IN_HASTE: f64 = 0.5;
const RECOVERY_SECONDS: (f64, f64) = (2.0, 60.0);
const LEAST_RECOVERY_IN_HASTE: f64 = 1.0;

/// A measurement, but for how long it may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draft {
    what: &'static str,
    setting: Setting,
    load: Load,
    /// How long it is to be, and how long where time is short, in seconds.
    seconds: f64,
    least: f64,
    /// How many of its kind there may be, and whether they are of no use unless there are so many.
    steps: usize,
    all: bool,
    route: Option<usize>,
    recovers: bool,
}

impl Course {
    /// What comes next.
    pub fn next(&self) -> NextStep {
        if self.phase == Phase::Idle {
            return NextStep::Idle(self.times.idle);
        }
        self.draft()
            .map_or(NextStep::Over, |draft| NextStep::Measure(self.task(&draft)))
    }

    pub(super) fn draft(&self) -> Option<Draft> {
        match self.phase {
            Phase::Idle | Phase::Over => None,
            Phase::Warm => Some(self.window()),
            Phase::Alone => Some(self.one_user()),
            Phase::Routes => Some(self.route()),
            Phase::Noise => Some(self.the_same()),
            Phase::Before => self.rate("rates as it was", Setting::AsItWas, self.before.as_ref()),
            Phase::Sweep => self.number(),
            Phase::After => self.rate("rates as proposed", self.proposed(), self.after.as_ref()),
            Phase::Overload => self.beyond(),
            Phase::Proof => Some(self.pair()),
        }
    }

    fn task(&self, draft: &Draft) -> Task {
        let seconds = match &self.budget {
            Some(budget) => {
                let wish = self.wish(draft);
                budget.fit(&wish).unwrap_or(wish.least)
            }
            None => draft.seconds,
        };
        Task {
            what: draft.what,
            setting: draft.setting,
            load: draft.load,
            seconds,
            warm_up: warm_up(seconds).max(self.cold(draft)),
            route: draft.route,
            limits: self.limits(draft, seconds),
        }
    }

    /// What it asks of the time.
    pub(super) fn wish(&self, draft: &Draft) -> Wish {
        // What comes after it in the proof does, if it does not.
        let changes = draft.setting != self.last || self.phase == Phase::Proof;
        let limits = self.limits_but_answer(draft, 0.0);
        let asks = f64::from(u8::from(limits.looks) + u8::from(changes && limits.asks_again));
        let recovery = if draft.recovers {
            RECOVERY_IN_HASTE
        } else {
            0.0
        };
        let reload = self.budget.as_ref().filter(|_| changes);
        Wish {
            seconds: draft.seconds,
            least: draft.least,
            steps: draft.steps,
            all: draft.all,
            must: self.must(),
            changes,
            cold: if changes { self.times.window } else { 0.0 },
            recovery,
            worst: limits.timeout
                + asks * limits.ask
                + limits.recovery.unwrap_or(0.0)
                + reload.map_or(0.0, |budget| budget.reload()),
        }
    }

    /// Whether there is nothing to be said without what comes next, whatever its share of the time.
    fn must(&self) -> bool {
        let tried = self.sweep.as_ref().map_or(0, |sweep| sweep.points.len());
        self.phase == Phase::Alone || (self.phase == Phase::Sweep && tried < sweep::FEWEST)
    }

    /// How long workers of another setting are warmed up, in seconds: they are new.
    fn cold(&self, draft: &Draft) -> f64 {
        if draft.setting == self.last {
            0.0
        } else {
            self.times.window
        }
    }

    fn limits(&self, draft: &Draft, seconds: f64) -> TaskLimits {
        let limits = self.limits_but_answer(draft, seconds);
        let Some(budget) = &self.budget else {
            return limits;
        };
        let own = seconds + warm_up(seconds).max(self.cold(draft)) + limits.timeout;
        let left = budget.left() - budget.reload() - own - limits.recovery.unwrap_or(0.0);
        TaskLimits {
            answer: left.clamp(limits.ask, RETURN_IN_HASTE),
            is_cut: left < RETURN_IN_HASTE,
            ..limits
        }
    }

    fn limits_but_answer(&self, draft: &Draft, seconds: f64) -> TaskLimits {
        let is_short = self.budget.is_some();
        let times = if is_short { TIMEOUT_IN_HASTE } else { TIMEOUT };
        let goal = self.goal.as_ref();
        let recovery = match is_short {
            true => (seconds * RECOVERY_IN_HASTE).max(LEAST_RECOVERY_IN_HASTE),
            false => (seconds * RECOVERY).clamp(RECOVERY_SECONDS.0, RECOVERY_SECONDS.1),
        };
        let ask = match is_short {
            true => self.answers(PATIENCE).clamp(LEAST_PATIENCE, REST),
            false => REST,
        };
        let rest = if is_short {
            self.patience.min(ask)
        } else {
            self.patience
        };
        TaskLimits {
            looks: !is_short || self.patience > 0.0 || draft.setting != self.last,
            asks_again: !is_short || self.boots.is_empty(),
            rest,
            ask,
            answer: RETURN,
            is_cut: false,
            timeout: goal.map_or(FIRST_TIMEOUT, |goal| {
                (goal.limit() * times).max(LEAST_TIMEOUT)
            }),
            recovery: draft.recovers.then_some(recovery),
        }
    }

    /// What a load may have left in queues, in seconds.
    pub(super) fn patience_after(&self, task: &Task, seen: &Measurement) -> f64 {
        match task.load {
            // Users who wait for their answers leave no queue behind.
            Load::Users(_) => 0.0,
            // Nor does a rate that held, or from which the server has recovered; where there is time that is looked
            // at all the same.
            Load::Rate(_) if self.budget.is_some() && (seen.holds || seen.recovery.is_some()) => {
                0.0
            }
            Load::Rate(_) => task.seconds.min(REST),
        }
    }

    /// How long so many answers take one after the other, in seconds, where time is short and that counts.
    fn answers(&self, count: f64) -> f64 {
        let each = self.rest().or(self.input.first).unwrap_or(0.0);
        if self.budget.is_some() {
            each * count
        } else {
            0.0
        }
    }

    fn asks(&self, what: &'static str, setting: Setting, load: Load, seconds: f64) -> Draft {
        Draft {
            what,
            setting,
            load,
            seconds,
            least: seconds * SHORT,
            steps: 1,
            all: false,
            route: None,
            recovers: false,
        }
    }

    fn window(&self) -> Draft {
        let users = Load::Users(self.first_users());
        let seconds = self.times.window.max(self.answers(FEW_ANSWERS));
        Draft {
            steps: SETTLED_WINDOWS.saturating_sub(self.windows.len()).max(1),
            ..self.asks("warming up", Setting::AsItWas, users, seconds)
        }
    }

    fn one_user(&self) -> Draft {
        let seconds = self.times.alone.max(self.answers(ANSWERS_ALONE));
        let draft = self.asks("one user", Setting::AsItWas, Load::Users(1), seconds);
        Draft {
            least: (seconds * SHORT).max(self.answers(FEW_ANSWERS)),
            ..draft
        }
    }

    fn the_same(&self) -> Draft {
        let users = Load::Users(self.first_users());
        let least = self.times.noise.max(self.answers(FEW_ANSWERS));
        let draft = self.asks(
            "the same against itself",
            Setting::AsItWas,
            users,
            self.noise_seconds().max(least),
        );
        Draft {
            least: self.answers(FEW_ANSWERS).max(self.times.noise * SHORT),
            steps: self.noise.left(self.times.noise_pairs.0),
            all: true,
            ..draft
        }
    }

    fn noise_seconds(&self) -> f64 {
        let needed = self.usual_rate.map_or(0.0, |rate| ALIKE / rate.max(1e-9));
        let longest = match self.is_indicative() {
            true => self.times.noise * 2.0,
            false => LONGEST_ALIKE,
        };
        self.times.noise.max(needed.min(longest))
    }

    fn route(&self) -> Draft {
        let seconds = (self.times.routes / self.profile.count().max(1) as f64).max(SHORTEST_ROUTE);
        Draft {
            route: self.profile.next(),
            least: SHORTEST_ROUTE,
            steps: self.profile.left(),
            ..self.asks("each route", Setting::AsItWas, Load::Users(1), seconds)
        }
    }

    fn number(&self) -> Option<Draft> {
        let sweep = self.sweep.as_ref()?;
        let (users, setting) = sweep.next()?;
        let expected = sweep.expected();
        let rounds = (expected.unwrap_or(0.0) * ROUNDS).min(LONGEST_ROUNDS);
        let seconds = self.times.sweep.max(rounds);
        let few = expected.map_or(self.answers(FEW_ANSWERS), |each| each * FEW_ANSWERS);
        let draft = self.asks("numbers of workers", setting, Load::Users(users), seconds);
        Some(Draft {
            seconds: seconds.max(self.answers(FEW_ANSWERS)),
            least: (self.times.sweep * SHORT)
                .max(few)
                .max(self.answers(FEW_ANSWERS)),
            steps: sweep_left(sweep),
            ..draft
        })
    }

    fn beyond(&self) -> Option<Draft> {
        let overload = self.overload.as_ref()?;
        let rate = overload.next()?;
        let seconds = self.times.beyond.max(self.overload_shows());
        // Where there is nothing to gain, nothing is proposed.
        let setting = match self.verdict {
            Some(_) => Setting::AsItWas,
            None => self.proposed(),
        };
        Some(Draft {
            least: (self.times.beyond * SHORT).max(self.overload_shows()),
            steps: overload.left(),
            recovers: true,
            ..self.asks("overload", setting, Load::Rate(rate), seconds)
        })
    }

    fn rate(
        &self,
        what: &'static str,
        setting: Setting,
        rate_search: Option<&RateSearch>,
    ) -> Option<Draft> {
        let rate_search = rate_search?;
        let NextRate { rate, confirms } = rate_search.next()?;
        let needed = self.goal.as_ref().map_or(0.0, |goal| goal.slo.samples()) * 1.05 / rate;
        let within = |least: f64| needed.clamp(least, MOST_STEP * self.times.step);
        let seconds = within(self.times.step).max(self.overload_shows());
        let least = within(self.times.step * SHORT).max(self.overload_shows());
        let confirm = self.times.confirm;
        let draft = self.asks(what, setting, Load::Rate(rate), seconds);
        Some(match confirms {
            true => Draft {
                seconds: seconds.max(confirm),
                least: least.max(confirm * SHORT),
                ..draft
            },
            false => Draft {
                least,
                steps: rate_search.left() + self.steps_of_confirming(rate_search),
                ..draft
            },
        })
    }

    /// As many rates as could be tried while the highest is kept up.
    fn steps_of_confirming(&self, rate_search: &RateSearch) -> usize {
        match rate_search.will_confirm() {
            true => (self.times.confirm / self.times.step).ceil() as usize,
            false => 0,
        }
    }

    pub(super) fn pair(&self) -> Draft {
        let setting = if self.is_new_next() {
            self.proposed()
        } else {
            Setting::AsItWas
        };
        let seconds = self.times.run.max(self.overload_shows());
        let draft = self.asks("proof in pairs", setting, self.proof_load(), seconds);
        Draft {
            least: (self.times.run * SHORT).max(self.answers(FEW_ANSWERS)),
            steps: self.runs_left(),
            all: true,
            ..draft
        }
    }

    /// Runs that the proof needs at least.
    fn runs_left(&self) -> usize {
        let runs = 2 * self.times.pairs.0.saturating_sub(self.pairs.len());
        runs.saturating_sub(usize::from(self.half.is_some())).max(1)
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
        let most = match self.input.now.pm.as_str() {
            "auto" => (self.input.cores * USERS_PER_CORE).ceil() as u32,
            _ => self.input.now.workers,
        };
        most.clamp(1, MOST_FIRST_USERS)
    }

    /// Both are asked as much as the better one can do.
    fn proof_load(&self) -> Load {
        let highest =
            |rate_search: &Option<RateSearch>| rate_search.as_ref().and_then(RateSearch::highest);
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
