//! The remaining time of a course.

use super::budget::Budget;
use super::times::Times;
use super::{Course, Overload, Phase, RateSearch, SETTLED_WINDOWS, Sweep};

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
        let (swept, of) = self
            .sweep
            .as_ref()
            .map_or((0, USUAL_NUMBERS), Sweep::progress);
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
            (
                Phase::After,
                whole(times.step, search(&self.after)) + confirm,
            ),
            (Phase::Overload, whole(times.beyond, beyond as f64)),
            (Phase::Proof, (times.run + times.window) * proof),
        ];
        let rest = parts.iter().filter(|(phase, _)| *phase >= self.phase);
        let rest = rest.map(|(_, seconds)| seconds).sum::<f64>();
        let most = self.budget.as_ref().map(Budget::left);
        most.map_or(rest, |most| rest.min(most))
    }
}
