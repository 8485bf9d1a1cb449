//! How long the rest of a course will take.

use super::budget::Budget;
use super::times::Times;
use super::{Course, Overload, Phase, RateSearch, SETTLED_WINDOWS, Sweep};

/// Numbers of workers that a sweep tries where nothing is known of them yet.
const USUAL_NUMBERS: usize = 12;

/// Numbers between those of the list that are usually tried.
const USUALLY_BETWEEN: usize = 2;

/// How many numbers a sweep may still try.
pub(super) fn sweep_left(sweep: &Sweep) -> usize {
    let (swept, of) = sweep.progress();
    of.saturating_sub(swept) + USUALLY_BETWEEN
}

impl Course {
    /// How long the rest will take, in seconds, as far as that can be said.
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
        let parts = [
            (Phase::Idle, times.idle),
            (
                Phase::Warm,
                Times::whole(times.window) * SETTLED_WINDOWS as f64,
            ),
            (Phase::Alone, Times::whole(times.alone)),
            (Phase::Routes, routes),
            (
                Phase::Noise,
                Times::whole(times.noise) * runs(times.noise_pairs.0, self.noise.pairs.len()),
            ),
            (
                Phase::Before,
                Times::whole(times.step) * search(&self.before),
            ),
            (
                Phase::Sweep,
                Times::whole(times.sweep) * of.saturating_sub(swept) as f64,
            ),
            (
                Phase::After,
                Times::whole(times.step) * search(&self.after) + confirm,
            ),
            (Phase::Overload, Times::whole(times.beyond) * beyond as f64),
            (
                Phase::Proof,
                (times.run + times.window) * runs(times.pairs.0, self.pairs.len()),
            ),
        ];
        let rest = parts.iter().filter(|(phase, _)| *phase >= self.phase);
        let rest = rest.map(|(_, seconds)| seconds).sum::<f64>();
        let most = self.budget.as_ref().map(Budget::left);
        most.map_or(rest, |most| rest.min(most))
    }
}
