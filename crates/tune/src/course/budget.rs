//! The time budget of a tuning with `--quick`: each phase gets its share of the remaining time when
//! it starts, and is skipped if that is too little for it to show anything.

use super::Phase;
use super::times::warm_up;

/// The relative shares of the phases: about as many seconds as they take behind nginx and php-fpm
/// with a page of some ten milliseconds.
const WEIGHTS: [(Phase, f64); 9] = [
    (Phase::Warm, 5.0),
    (Phase::Alone, 4.0),
    (Phase::Routes, 4.0),
    (Phase::Noise, 18.0),
    (Phase::Before, 12.0),
    (Phase::Sweep, 36.0),
    (Phase::After, 18.0),
    (Phase::Overload, 12.0),
    (Phase::Proof, 26.0),
];

/// Reserved for restoring the settings, or writing them and requesting a page, in seconds, and in
/// reloads.
const LAST: f64 = 2.0;
const LAST_RELOADS: f64 = 2.0;

/// The largest share of the time that is reserved for the proof, if that is enough for it.
const MOST_FOR_PROOF: f64 = 0.5;

/// Initial estimates of a measurement's overhead, in seconds: with the same setting, and with
/// another, whose workers have to be started.
const BESIDE: [f64; 2] = [0.2, 1.0];

/// In the proof three of four runs change the setting, half of them back to the original one: the
/// overhead of a change counts by this share.
const CHANGES_OF_PAIRS: f64 = 0.5;

/// Decay of the overhead after a measurement that took longer than the others.
const FORGOTTEN: f64 = 0.7;

/// The time that a measurement needs. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeNeed {
    /// Its desired duration.
    pub seconds: f64,
    /// The shortest duration that shows anything.
    pub least: f64,
    /// How many of its kind may follow, including it.
    pub steps: usize,
    /// They are useless unless all of them fit.
    pub all: bool,
    /// The tuning is useless without it, so it may take the time of later phases.
    pub must: bool,
    /// It changes the setting.
    pub changes: bool,
    /// Warm-up of new workers.
    pub cold: f64,
    /// How long the server may recover afterwards, for each second that was measured.
    pub recovery: f64,
    /// The additional time in the worst case: a queue that drains, responses that time out.
    pub worst: f64,
}

impl TimeNeed {
    /// Its total time with everything before and after it, except the worst case.
    fn whole(&self, seconds: f64, beside: f64) -> f64 {
        seconds * (1.0 + self.recovery) + warm_up(seconds).max(self.cold) + beside
    }
}

/// The time budget, in seconds since the start of the tuning.
#[derive(Debug, Clone)]
pub struct Budget {
    total: f64,
    now: f64,
    phase: Phase,
    /// When the current phase has to be over.
    until: f64,
    /// The longest reload so far.
    reload: f64,
    /// How long the page takes that the check for an idle server requests.
    page: f64,
    /// The overhead of measurements: with the same setting, and with another.
    beside: [f64; 2],
    /// The planned time of the current measurement, and whether it changes the setting.
    planned: Option<(f64, bool)>,
}

impl Budget {
    /// A budget of this many seconds.
    pub fn of(total: f64) -> Budget {
        Budget {
            total,
            now: 0.0,
            phase: Phase::Idle,
            until: total,
            reload: BESIDE[1],
            page: 0.0,
            beside: BESIDE,
            planned: None,
        }
    }

    /// Updates the elapsed time, and the time of a page.
    pub fn at(&mut self, now: f64, page: f64) {
        self.page = page;
        if let Some((planned, changes)) = self.planned.take() {
            let beside = &mut self.beside[usize::from(changes)];
            *beside = (now - self.now - planned).max(*beside * FORGOTTEN);
        }
        self.now = self.now.max(now);
    }

    /// A reload took this long.
    pub fn reloaded(&mut self, seconds: f64) {
        self.reload = self.reload.max(seconds);
    }

    /// The longest reload.
    pub fn reload(&self) -> f64 {
        self.reload
    }

    /// When the last measurement has to be over.
    pub fn end(&self) -> f64 {
        self.total - LAST - LAST_RELOADS * self.reload - self.page
    }

    /// The remaining time, in seconds.
    pub fn left(&self) -> f64 {
        (self.end() - self.now).max(0.0)
    }

    /// Enters a phase, unless it is the current one. The phase gets its share of the remaining time
    /// without the reserve for the proof.
    pub fn enter(&mut self, phase: Phase, proof: &TimeNeed) {
        if phase == self.phase {
            return;
        }
        self.phase = phase;
        let needed =
            proof.steps as f64 * proof.whole(proof.least, self.beside(proof)) + proof.worst;
        let reserved = if phase < Phase::Proof && needed <= MOST_FOR_PROOF * self.total {
            needed.max(self.left() * share(Phase::Proof, |other| other >= phase))
        } else {
            0.0
        };
        let of = |other: Phase| other >= phase && (reserved == 0.0 || other < Phase::Proof);
        self.until = self.now + (self.left() - reserved).max(0.0) * share(phase, of);
    }

    /// The overhead of a measurement.
    fn beside(&self, need: &TimeNeed) -> f64 {
        let [same, other] = self.beside;
        match (need.changes, need.all) {
            (false, _) => same,
            (true, false) => other,
            (true, true) => same + (other - same) * CHANGES_OF_PAIRS,
        }
    }

    /// The duration of the measurement that fits into the budget, if one does.
    pub fn fit(&self, need: &TimeNeed) -> Option<f64> {
        let beside = self.beside(need);
        let all = self.left() - need.worst;
        let share = (self.until - self.now).min(all);
        let room =
            if need.must { share.max(need.whole(need.least, beside)).min(all) } else { share };
        let each = room / need.steps.max(1) as f64 - beside;
        // warm_up() is a tenth, or the warm-up of new workers.
        let warmed = each / (1.1 + need.recovery);
        let cold = (each - need.cold.max(warm_up(0.0))) / (1.0 + need.recovery);
        let seconds = warmed.min(cold).clamp(need.least, need.seconds.max(need.least));
        let steps = if need.all { need.steps } else { 1 };
        let whole = steps as f64 * need.whole(seconds, beside);
        (whole <= room + 1e-6).then_some(seconds)
    }

    /// Records the next measurement, to learn its overhead.
    pub fn plan(&mut self, seconds: f64, changes: bool) {
        self.planned = Some((seconds, changes));
    }
}

/// The share of a phase among the selected ones, of 1.
fn share(phase: Phase, of: impl Fn(Phase) -> bool) -> f64 {
    let all = WEIGHTS.iter().filter(|(other, _)| of(*other));
    let all: f64 = all.map(|(_, weight)| weight).sum();
    let own = WEIGHTS.iter().find(|(other, _)| *other == phase);
    own.map_or(1.0, |(_, weight)| weight / all.max(*weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(seconds: f64, least: f64, steps: usize) -> TimeNeed {
        TimeNeed {
            seconds,
            least,
            steps,
            all: false,
            must: false,
            changes: false,
            cold: 0.0,
            recovery: 0.0,
            worst: 0.0,
        }
    }

    fn short() -> TimeNeed {
        need(1.0, 0.5, 10)
    }

    #[test]
    fn a_part_has_its_share_of_what_is_left_and_what_one_does_not_need_is_for_the_others() {
        let of = |now: f64| {
            let mut budget = Budget::of(120.0);
            budget.at(now, 0.0);
            budget.enter(Phase::Sweep, &short());
            budget.until - now
        };
        assert!(of(20.0) > of(60.0) && of(60.0) > 10.0 && of(110.0) >= 0.0);
        assert!(of(130.0) <= 0.0, "there is nothing left");
    }

    #[test]
    fn there_is_enough_left_for_the_proof_unless_that_takes_too_long_anyway() {
        let until = |least: f64| {
            let mut budget = Budget::of(120.0);
            budget.at(20.0, 0.0);
            budget.enter(Phase::Sweep, &need(least, least, 10));
            budget.until
        };
        let end = Budget::of(120.0).end();
        assert!(end - until(4.0) >= 10.0 * 4.0, "{}", until(4.0));
        assert!(until(4.0) < until(0.5) && until(4.0) < until(20.0));
    }

    #[test]
    fn a_measurement_is_as_long_as_there_is_time_and_none_where_that_shows_nothing() {
        let mut budget = Budget::of(120.0);
        budget.until = 10.0;
        assert_eq!(budget.fit(&need(1.0, 0.5, 4)), Some(1.0));
        let shorter = budget.fit(&need(5.0, 0.5, 4)).unwrap();
        assert!((1.5..2.5).contains(&shorter), "{shorter}");
        assert_eq!(budget.fit(&need(5.0, 8.0, 4)), Some(8.0), "fewer of them");
        assert_eq!(budget.fit(&need(5.0, 20.0, 4)), None);
        let all = TimeNeed { all: true, ..need(5.0, 8.0, 4) };
        assert_eq!(budget.fit(&all), None);
        let must = TimeNeed { must: true, ..need(5.0, 20.0, 4) };
        assert_eq!(budget.fit(&must), Some(20.0), "it takes what others are to have");
        let worst = TimeNeed { worst: 119.0, ..need(1.0, 0.5, 1) };
        assert_eq!(budget.fit(&worst), None, "it may take longer");
    }

    #[test]
    fn what_measurements_take_beside_their_time_is_learned() {
        let mut budget = Budget::of(120.0);
        budget.plan(1.0, true);
        budget.at(5.0, 0.0);
        assert_eq!(budget.beside, [BESIDE[0], 4.0]);
        budget.plan(1.0, true);
        budget.at(6.5, 0.0);
        assert!((budget.beside[1] - 2.8).abs() < 1e-9);
        let before = budget.end();
        budget.reloaded(3.0);
        assert_eq!(budget.end(), before - 4.0);
    }
}
