//! A course with a time limit: what does not fit is skipped and reported.

use super::budget::TimeNeed;
use super::{Course, NextStep, Phase, Verdict};

/// More than there are phases: each is skipped at most once.
const MOST_PARTS: usize = 12;

impl Course {
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
            if self
                .budget
                .as_ref()
                .is_none_or(|budget| budget.fit(&need).is_some())
            {
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
        TimeNeed {
            changes: true,
            must: false,
            cold: self.times.window,
            ..self.need(&self.pair())
        }
    }

    /// Skips the current phase for want of time.
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
