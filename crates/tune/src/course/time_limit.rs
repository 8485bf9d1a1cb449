//! The time of a course: an estimate of the rest, and what is skipped and reported if there is a
//! time limit.

use super::budget::{Budget, TimeNeed};
use super::times::Times;
use super::{Course, NextStep, Overload, Phase, RateSearch, SETTLED_WINDOWS, Sweep, Verdict};

/// More than there are phases: each is skipped at most once.
const MOST_PARTS: usize = 12;

/// The usual number of steps of a sweep.
const USUAL_NUMBERS: usize = 12;

/// Steps of a sweep between the numbers of its list that are usually made.
const USUALLY_BETWEEN: usize = 2;

/// How many numbers a sweep may still try.
pub(super) fn sweep_left(sweep: &Sweep) -> usize {
    let (swept, of) = sweep.progress();
    of.saturating_sub(swept) + USUALLY_BETWEEN
}

impl Course {
    /// An estimate of the remaining time, in seconds.
    pub fn left(&self) -> f64 {
        let times = &self.times;
        let runs = |pairs: usize, done: usize| pairs.saturating_sub(done) as f64 * 2.0;
        let search = |rate_search: &Option<RateSearch>| {
            rate_search.as_ref().map_or(times.steps, RateSearch::left) as f64
        };
        let (swept, of) = self.sweep.as_ref().map_or((0, USUAL_NUMBERS), Sweep::progress);
        let routes = times.routes * self.profile.left() as f64 / self.profile.count().max(1) as f64;
        let confirms = self.after.as_ref().is_none_or(RateSearch::will_confirm);
        let confirm = if confirms { times.confirm } else { 0.0 };
        let overload = Overload::of(1.0);
        let beyond = self.overload.as_ref().unwrap_or(&overload).left();
        let whole = |seconds: f64, count: f64| Times::whole(seconds) * count;
        let noise = runs(times.noise_pairs.0, self.noise.pairs.len());
        let proof = runs(times.pairs.0, self.pairs.len());
        let numbers = of.saturating_sub(swept) as f64;
        let parts = [
            (Phase::Idle, times.idle),
            (Phase::Warm, whole(times.window, SETTLED_WINDOWS as f64)),
            (Phase::Alone, whole(times.alone, 1.0)),
            (Phase::Routes, routes),
            (Phase::Noise, whole(times.noise, noise)),
            (Phase::Before, whole(times.step, search(&self.before))),
            (Phase::Sweep, whole(times.sweep, numbers)),
            (Phase::After, whole(times.step, search(&self.after)) + confirm),
            (Phase::Overload, whole(times.beyond, beyond as f64)),
            (Phase::Proof, (times.run + times.window) * proof),
        ];
        let rest = parts.iter().filter(|(phase, _)| *phase >= self.phase);
        let rest = rest.map(|(_, seconds)| seconds).sum::<f64>();
        let most = self.budget.as_ref().map(Budget::left);
        most.map_or(rest, |most| rest.min(most))
    }

    /// Updates the elapsed time, in seconds since the start of the tuning. With a time limit, skips
    /// phases that do not fit.
    pub fn at(&mut self, seconds: f64) {
        let page = self.rest().or(self.input.first).unwrap_or(0.0);
        let Some(budget) = &mut self.budget else {
            return;
        };
        budget.at(seconds, page);
        for _ in 0..MOST_PARTS {
            let proof = self.need_of_proof();
            if let Some(budget) = &mut self.budget {
                budget.enter(self.phase, &proof);
            }
            let Some(draft) = self.draft() else { break };
            let need = self.need(&draft);
            if self.budget.as_ref().is_none_or(|budget| budget.fit(&need).is_some()) {
                break;
            }
            self.leave_out();
        }
        let last = self.last;
        if let (NextStep::Measure(task), Some(budget)) = (self.next(), &mut self.budget)
            && task.limits.recovery.is_none()
        {
            budget.plan(task.seconds + task.warm_up, task.setting != last);
        }
    }

    /// A change of settings took this long, in seconds.
    pub fn reloaded(&mut self, seconds: f64) {
        if let Some(budget) = &mut self.budget {
            budget.reloaded(seconds);
        }
    }

    /// The time that the proof will need.
    fn need_of_proof(&self) -> TimeNeed {
        TimeNeed { changes: true, must: false, cold: self.times.window, ..self.need(&self.pair()) }
    }

    /// Skips the current phase for lack of time.
    pub fn leave_out(&mut self) {
        match self.phase {
            Phase::Idle | Phase::Over => {}
            // That latencies are not steady is reported anyway.
            Phase::Warm => self.phase = Phase::Alone,
            Phase::Alone => self.end(Verdict::CannotSay(
                "there was no time to request a page alone; give more with --time".to_owned(),
            )),
            Phase::Routes => {
                self.left_out.push(format!(
                    "{} of {} routes alone",
                    self.profile.left(),
                    self.profile.count()
                ));
                self.phase = Phase::Noise;
            }
            Phase::Noise => {
                self.left_out.push("noise floor".to_owned());
                self.begin_before();
            }
            Phase::Before => {
                let rate_search = self.before.as_mut();
                let tried = rate_search.map_or(0, |rate_search| rate_search.stop());
                self.say_rates(tried, "highest rate before");
                self.begin_sweep();
            }
            Phase::Sweep => self.leave_numbers_out(),
            Phase::After => {
                let rate_search = self.after.as_mut();
                let tried = rate_search.map_or(0, |rate_search| rate_search.stop());
                self.say_rates(tried, "highest rate after");
                self.go_beyond();
            }
            Phase::Overload => {
                let left = self.overload.as_ref().map_or(0, |overload| overload.left());
                let which = if left > 1 { "overload" } else { "overload 3x" };
                self.left_out.push(which.to_owned());
                self.end_overload();
            }
            Phase::Proof => {
                self.left_out.push("proof in pairs".to_owned());
                self.end(Verdict::NoGain(
                    "there was no time for enough pairs of runs; give more with --time".to_owned(),
                ));
            }
        }
    }

    fn say_rates(&mut self, tried: usize, which: &str) {
        // With fewer rates the highest is less exact, but known.
        if tried == 0 {
            self.left_out.push(which.to_owned());
        }
    }

    fn leave_numbers_out(&mut self) {
        if let Some(sweep) = &mut self.sweep
            && let Some((users, _)) = sweep.next()
        {
            let beyond = sweep.points.iter().all(|point| point.workers < users);
            if beyond {
                self.left_out.push(format!("{users} workers and more"));
            }
            sweep.stop();
        }
        self.decide();
    }
}
