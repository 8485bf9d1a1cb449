//! The next measurement.

use super::budget::TimeNeed;
use super::rate_search::{NextRate, RateSearch};
use super::time_limit::sweep_left;
use super::times::warm_up;
use super::{Course, NextStep, Phase, SETTLED_WINDOWS, sweep};
use crate::measurement::{Load, Measurement, Setting, Task, TaskLimits};

/// A rate is kept up for at least this multiple of the goal's limit.
const OVERLOAD_SHOWS: f64 = 3.0;

/// The proof compares both settings at this share of the higher of their highest rates.
const PROOF_RATE: f64 = 0.9;

/// The shortest measurement of a route, in seconds.
const SHORTEST_ROUTE: f64 = 0.3;

/// Initial number of users for each processor, for a pool with `pm = auto`.
const USERS_PER_CORE: f64 = 2.0;

/// Most initial users.
const MOST_FIRST_USERS: u32 = 64;

/// On a slow site each user gets this many responses, but the measurement is no longer than the
/// limit, in seconds.
const ROUNDS: f64 = 4.0;
const LONGEST_ROUNDS: f64 = 30.0;

/// Fewest requests of a run of the original setting against itself: with few, one more or less
/// looks like a difference. The run is no longer than the limit, in seconds, or twice as long as
/// planned if there is little time.
const ALIKE: f64 = 60.0;
const LONGEST_ALIKE: f64 = 15.0;

/// A low rate is kept up for at most this multiple of the usual time.
const MOST_STEP: f64 = 4.0;

/// With `--quick`, the number of responses that each user of a closed loop gets, and one user
/// alone.
const FEW_RESPONSES: f64 = 1.5;
const RESPONSES_ALONE: f64 = 2.5;

/// With `--quick`, the share of a measurement's usual time that suffices.
const SHORT: f64 = 0.5;

/// The timeout of a response as a multiple of the goal's limit, with `--quick` as well, and at
/// least, in seconds.
const TIMEOUT: f64 = 4.0;
const TIMEOUT_IN_HASTE: f64 = 1.25;
const LEAST_TIMEOUT: f64 = 2.0;

/// The timeout before a goal is known.
const FIRST_TIMEOUT: f64 = 10.0;

/// How long a server may take to become idle, and to respond at all after a reload, with `--quick`
/// as well, in seconds.
const REST: f64 = 10.0;
const RETURN: f64 = 60.0;
const RETURN_IN_HASTE: f64 = 20.0;

/// With `--quick`: how long the page of the check for an idle server may take, and a queue may take
/// to drain, as a multiple of the usual latency, and at least, in seconds.
const PATIENCE: f64 = 3.0;
const LEAST_PATIENCE: f64 = 2.0;

/// How long to wait for a server to recover from overload: as a multiple of the overload's time,
/// with `--quick` as well, and within these bounds, in seconds.
const RECOVERY: f64 = 2.0;
const RECOVERY_IN_HASTE: f64 = 0.5;
const RECOVERY_SECONDS: (f64, f64) = (2.0, 60.0);
const LEAST_RECOVERY_IN_HASTE: f64 = 1.0;

/// A measurement without its final duration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draft {
    what: &'static str,
    setting: Setting,
    load: Load,
    /// Its usual and its shortest duration, in seconds.
    seconds: f64,
    least: f64,
    /// How many of its kind may follow, including it, and whether they are useless unless all fit.
    steps: usize,
    all: bool,
    route: Option<usize>,
    recovers: bool,
}

impl Course {
    /// The next step.
    pub fn next(&self) -> NextStep {
        if self.phase == Phase::Idle {
            return NextStep::Idle(self.times.idle);
        }
        self.draft().map_or(NextStep::Over, |draft| NextStep::Measure(self.task(&draft)))
    }

    pub(super) fn draft(&self) -> Option<Draft> {
        match self.phase {
            Phase::Idle | Phase::Over => None,
            Phase::Warm => Some(self.window()),
            Phase::Alone => Some(self.one_user()),
            Phase::Routes => Some(self.route()),
            Phase::Noise => Some(self.the_same()),
            Phase::Before => {
                self.rate("highest rate before", Setting::AsItWas, self.before.as_ref())
            }
            Phase::Sweep => self.number(),
            Phase::After => self.rate("highest rate after", self.proposed(), self.after.as_ref()),
            Phase::Overload => self.beyond(),
            Phase::Proof => Some(self.pair()),
        }
    }

    fn task(&self, draft: &Draft) -> Task {
        let seconds = match &self.budget {
            Some(budget) => {
                let need = self.need(draft);
                budget.fit(&need).unwrap_or(need.least)
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

    /// The time that the measurement needs.
    pub(super) fn need(&self, draft: &Draft) -> TimeNeed {
        // In the proof, the measurement after it changes the setting if it does not.
        let changes = draft.setting != self.last || self.phase == Phase::Proof;
        let limits = self.limits_but_response(draft, 0.0);
        let pages =
            f64::from(u8::from(limits.checks_idle) + u8::from(changes && limits.times_second));
        let recovery = if draft.recovers { RECOVERY_IN_HASTE } else { 0.0 };
        let reload = self.budget.as_ref().filter(|_| changes);
        TimeNeed {
            seconds: draft.seconds,
            least: draft.least,
            steps: draft.steps,
            all: draft.all,
            must: self.must(),
            changes,
            cold: if changes { self.times.window } else { 0.0 },
            recovery,
            worst: limits.timeout
                + pages * limits.page
                + limits.recovery.unwrap_or(0.0)
                + reload.map_or(0.0, |budget| budget.reload()),
        }
    }

    /// Whether the tuning is useless without the next measurement, whatever its share of the time.
    fn must(&self) -> bool {
        let tried = self.sweep.as_ref().map_or(0, |sweep| sweep.points.len());
        self.phase == Phase::Alone || (self.phase == Phase::Sweep && tried < sweep::FEWEST)
    }

    /// The warm-up of the workers of another setting, in seconds, since they are new.
    fn cold(&self, draft: &Draft) -> f64 {
        if draft.setting == self.last { 0.0 } else { self.times.window }
    }

    fn limits(&self, draft: &Draft, seconds: f64) -> TaskLimits {
        let limits = self.limits_but_response(draft, seconds);
        let Some(budget) = &self.budget else {
            return limits;
        };
        let own = seconds + warm_up(seconds).max(self.cold(draft)) + limits.timeout;
        let left = budget.left() - budget.reload() - own - limits.recovery.unwrap_or(0.0);
        TaskLimits {
            response: left.clamp(limits.page, RETURN_IN_HASTE),
            is_cut: left < RETURN_IN_HASTE,
            ..limits
        }
    }

    fn limits_but_response(&self, draft: &Draft, seconds: f64) -> TaskLimits {
        let is_short = self.budget.is_some();
        let times = if is_short { TIMEOUT_IN_HASTE } else { TIMEOUT };
        let goal = self.goal.as_ref();
        let recovery = if is_short {
            (seconds * RECOVERY_IN_HASTE).max(LEAST_RECOVERY_IN_HASTE)
        } else {
            (seconds * RECOVERY).clamp(RECOVERY_SECONDS.0, RECOVERY_SECONDS.1)
        };
        let page =
            if is_short { self.responses(PATIENCE).clamp(LEAST_PATIENCE, REST) } else { REST };
        let rest = if is_short { self.patience.min(page) } else { self.patience };
        TaskLimits {
            checks_idle: !is_short || self.patience > 0.0 || draft.setting != self.last,
            times_second: !is_short || self.boots.is_empty(),
            rest,
            page,
            response: RETURN,
            is_cut: false,
            timeout: goal.map_or(FIRST_TIMEOUT, |goal| (goal.limit() * times).max(LEAST_TIMEOUT)),
            recovery: draft.recovers.then_some(recovery),
        }
    }

    /// How long the queue that a load leaves may take to drain, in seconds.
    pub(super) fn patience_after(&self, task: &Task, seen: &Measurement) -> f64 {
        match task.load {
            // A closed loop leaves no queue.
            Load::Users(_) => 0.0,
            // Neither does a rate that held, or from which the server has recovered; without
            // `--quick` the server is checked all the same.
            Load::Rate(_) if self.budget.is_some() && (seen.holds || seen.recovery.is_some()) => {
                0.0
            }
            Load::Rate(_) => task.seconds.min(REST),
        }
    }

    /// With `--quick`, how long this many consecutive responses take, in seconds.
    fn responses(&self, count: f64) -> f64 {
        let each = self.rest().or(self.input.first).unwrap_or(0.0);
        if self.budget.is_some() { each * count } else { 0.0 }
    }

    fn draft_with(&self, what: &'static str, setting: Setting, load: Load, seconds: f64) -> Draft {
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
        let seconds = self.times.window.max(self.responses(FEW_RESPONSES));
        Draft {
            steps: SETTLED_WINDOWS.saturating_sub(self.windows.len()).max(1),
            ..self.draft_with("warming up", Setting::AsItWas, users, seconds)
        }
    }

    fn one_user(&self) -> Draft {
        let seconds = self.times.alone.max(self.responses(RESPONSES_ALONE));
        let draft = self.draft_with("one user", Setting::AsItWas, Load::Users(1), seconds);
        Draft { least: (seconds * SHORT).max(self.responses(FEW_RESPONSES)), ..draft }
    }

    fn the_same(&self) -> Draft {
        let users = Load::Users(self.first_users());
        let least = self.times.noise.max(self.responses(FEW_RESPONSES));
        let draft = self.draft_with(
            "noise floor",
            Setting::AsItWas,
            users,
            self.noise_seconds().max(least),
        );
        Draft {
            least: self.responses(FEW_RESPONSES).max(self.times.noise * SHORT),
            steps: self.noise.left(self.times.noise_pairs.0),
            all: true,
            ..draft
        }
    }

    fn noise_seconds(&self) -> f64 {
        let needed = self.usual_rate.map_or(0.0, |rate| ALIKE / rate.max(1e-9));
        let longest = if self.is_indicative() { self.times.noise * 2.0 } else { LONGEST_ALIKE };
        self.times.noise.max(needed.min(longest))
    }

    fn route(&self) -> Draft {
        let seconds = (self.times.routes / self.profile.count().max(1) as f64).max(SHORTEST_ROUTE);
        Draft {
            route: self.profile.next(),
            least: SHORTEST_ROUTE,
            steps: self.profile.left(),
            ..self.draft_with("each route", Setting::AsItWas, Load::Users(1), seconds)
        }
    }

    fn number(&self) -> Option<Draft> {
        let sweep = self.sweep.as_ref()?;
        let (users, setting) = sweep.next()?;
        let expected = sweep.expected();
        let rounds = (expected.unwrap_or(0.0) * ROUNDS).min(LONGEST_ROUNDS);
        let seconds = self.times.sweep.max(rounds);
        let few = expected.map_or(self.responses(FEW_RESPONSES), |each| each * FEW_RESPONSES);
        let draft = self.draft_with("numbers of workers", setting, Load::Users(users), seconds);
        Some(Draft {
            seconds: seconds.max(self.responses(FEW_RESPONSES)),
            least: (self.times.sweep * SHORT).max(few).max(self.responses(FEW_RESPONSES)),
            steps: sweep_left(sweep),
            ..draft
        })
    }

    fn beyond(&self) -> Option<Draft> {
        let overload = self.overload.as_ref()?;
        let rate = overload.next()?;
        let seconds = self.times.beyond.max(self.overload_shows());
        // The overload of a setting without a proposal is that of the original one.
        let setting = match self.verdict {
            Some(_) => Setting::AsItWas,
            None => self.proposed(),
        };
        Some(Draft {
            least: (self.times.beyond * SHORT).max(self.overload_shows()),
            steps: overload.left(),
            recovers: true,
            ..self.draft_with("overload", setting, Load::Rate(rate), seconds)
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
        let draft = self.draft_with(what, setting, Load::Rate(rate), seconds);
        Some(if confirms {
            Draft { seconds: seconds.max(confirm), least: least.max(confirm * SHORT), ..draft }
        } else {
            Draft {
                least,
                steps: rate_search.left() + self.steps_of_confirming(rate_search),
                ..draft
            }
        })
    }

    /// The number of rates that could be tried in the time of confirming the highest.
    fn steps_of_confirming(&self, rate_search: &RateSearch) -> usize {
        if rate_search.will_confirm() {
            (self.times.confirm / self.times.step).ceil() as usize
        } else {
            0
        }
    }

    pub(super) fn pair(&self) -> Draft {
        let setting = if self.is_new_next() { self.proposed() } else { Setting::AsItWas };
        let seconds = self.times.run.max(self.overload_shows());
        let draft = self.draft_with("proof in pairs", setting, self.proof_load(), seconds);
        Draft {
            least: (self.times.run * SHORT).max(self.responses(FEW_RESPONSES)),
            steps: self.runs_left(),
            all: true,
            ..draft
        }
    }

    /// Runs that the proof still needs at least.
    fn runs_left(&self) -> usize {
        let runs = 2 * self.times.pairs.0.saturating_sub(self.pairs.len());
        runs.saturating_sub(usize::from(self.half.is_some())).max(1)
    }

    /// The shortest time, in seconds, in which a rate that is too high shows: the queue has to grow
    /// beyond the goal's limit.
    fn overload_shows(&self) -> f64 {
        self.goal.as_ref().map_or(0.0, |goal| goal.limit() * OVERLOAD_SHOWS)
    }

    /// As many users as there are workers, as far as their number is known.
    pub(super) fn first_users(&self) -> u32 {
        let most = match self.input.now.pm.as_str() {
            "auto" => (self.input.cores * USERS_PER_CORE).ceil() as u32,
            _ => self.input.now.workers,
        };
        most.clamp(1, MOST_FIRST_USERS)
    }

    /// Both settings get the load that the better one can serve.
    fn proof_load(&self) -> Load {
        let highest = [self.highest_before(), self.highest_after()];
        match highest.into_iter().flatten().reduce(f64::max) {
            Some(rate) => Load::Rate(rate * PROOF_RATE),
            None => Load::Users(self.choice.as_ref().map_or(1, |choice| choice.workers)),
        }
    }
}
