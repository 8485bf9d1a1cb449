//! A course that has to end by a time: what there is no time for is left out, and said.

use super::budget::Wish;
use super::{Course, NextStep, Phase, Verdict};

/// More than there are parts: each is left out once at most.
const MOST_PARTS: usize = 12;

impl Course {
    /// So much time has passed since the tuning was asked for, in seconds. Where it has to end by a time, what there
    /// is none for is left out.
    pub fn at(&mut self, seconds: f64) {
        let page = self.rest().or(self.input.first).unwrap_or(0.0);
        let Some(budget) = &mut self.budget else {
            return;
        };
        budget.at(seconds, page);
        for _ in 0..MOST_PARTS {
            let proof = self.wish_of_proof();
            if let Some(budget) = &mut self.budget {
                budget.enter(self.phase, &proof);
            }
            let Some(draft) = self.draft() else { break };
            let wish = self.wish(&draft);
            if self
                .budget
                .as_ref()
                .is_none_or(|budget| budget.fit(&wish).is_some())
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

    /// A change of settings took so long, in seconds.
    pub fn reloaded(&mut self, seconds: f64) {
        if let Some(budget) = &mut self.budget {
            budget.reloaded(seconds);
        }
    }

    /// What the proof will ask for.
    fn wish_of_proof(&self) -> Wish {
        Wish {
            changes: true,
            must: false,
            cold: self.times.window,
            ..self.wish(&self.pair())
        }
    }

    /// There is no time for what would come next.
    pub fn leave_out(&mut self) {
        match self.phase {
            Phase::Idle | Phase::Over => {}
            // That latencies have not come to rest is said anyway.
            Phase::Warm => self.phase = Phase::Alone,
            Phase::Alone => self.end(Verdict::CannotSay(
                "there was no time to ask for a page alone; give more with --time".to_owned(),
            )),
            Phase::Routes => {
                self.left_out.push(format!(
                    "{} of {} routes by themselves",
                    self.profile.left(),
                    self.profile.count()
                ));
                self.phase = Phase::Noise;
            }
            Phase::Noise => {
                self.left_out.push("the same against itself".to_owned());
                self.begin_before();
            }
            Phase::Before => {
                let rate_search = self.before.as_mut();
                let tried = rate_search.map_or(0, |rate_search| rate_search.stop());
                self.say_rates(tried, "rates as it was");
                self.begin_sweep();
            }
            Phase::Sweep => self.leave_numbers_out(),
            Phase::After => {
                let rate_search = self.after.as_mut();
                let tried = rate_search.map_or(0, |rate_search| rate_search.stop());
                self.say_rates(tried, "rates as proposed");
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
        // Fewer of them are less near to the highest, no more.
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
