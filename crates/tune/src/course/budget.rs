//! The time of a tuning that ends by then (`--quick`): each part gets its share of what is left when it begins,
//! and is left out where that is too little for it to show anything.

use super::Phase;
use super::times::warm_up;

/// What each part is to have of the time beside those that are still to come: about as many seconds as it takes
/// behind nginx and php-fpm with a page of some ten milliseconds.
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

/// Kept back for putting the settings back, or writing them down and asking for a page, in seconds, and in reloads.
const LAST: f64 = 2.0;
const LAST_RELOADS: f64 = 2.0;

/// The most of the time that is kept back for the proof, if that is enough for it.
const MOST_FOR_PROOF: f64 = 0.5;

/// What a measurement takes beside its own time before that was seen, in seconds: with the setting that there
/// is, and with another, whose workers have to be started.
const BESIDE: [f64; 2] = [0.2, 1.0];

/// Of the runs of pairs three in four change the setting, half of those back to the one as it was: what a change takes
/// counts by this share.
const CHANGES_OF_PAIRS: f64 = 0.5;

/// How fast a measurement that took longer than the others is forgotten.
const FORGOTTEN: f64 = 0.7;

/// A measurement that a part wants to make. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// How long.
    pub seconds: f64,
    /// How long at least, to show anything.
    pub least: f64,
    /// How many of that kind there may be.
    pub steps: usize,
    /// They are of no use unless there are so many.
    pub all: bool,
    /// Without it nothing can be said: it may take what others are to have.
    pub must: bool,
    /// Another setting is to be in force.
    pub changes: bool,
    /// New workers are warmed up for so long.
    pub cold: f64,
    /// How long it is waited for the server afterwards, for each second that was measured.
    pub recovery: f64,
    /// How much longer it may take than it usually does, whatever happens: a queue that goes, answers that
    /// do not come.
    pub worst: f64,
}

impl Wish {
    /// How long it takes with all that comes before and after it, but for what others make of it.
    fn whole(&self, seconds: f64, beside: f64) -> f64 {
        seconds * (1.0 + self.recovery) + warm_up(seconds).max(self.cold) + beside
    }
}

/// The time there is, in seconds since the tuning was asked for.
#[derive(Debug, Clone)]
pub struct Budget {
    total: f64,
    now: f64,
    phase: Phase,
    /// When the part that is at work has to be over.
    until: f64,
    /// The longest reload.
    reload: f64,
    /// How long the page takes that is looked with whether the site is served.
    page: f64,
    /// What measurements take beside their own time: with the same setting, with another.
    beside: [f64; 2],
    /// What the one that is at work was to take, and whether it changes the setting.
    planned: Option<(f64, bool)>,
}

impl Budget {
    /// So much in all.
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

    /// So much has passed, and a page takes so long.
    pub fn at(&mut self, now: f64, page: f64) {
        self.page = page;
        if let Some((planned, changes)) = self.planned.take() {
            let beside = &mut self.beside[usize::from(changes)];
            *beside = (now - self.now - planned).max(*beside * FORGOTTEN);
        }
        self.now = self.now.max(now);
    }

    /// A reload took so long.
    pub fn reloaded(&mut self, seconds: f64) {
        self.reload = self.reload.max(seconds);
    }

    /// How long the longest of them took.
    pub fn reload(&self) -> f64 {
        self.reload
    }

    /// When the last measurement has to be over.
    pub fn end(&self) -> f64 {
        self.total - LAST - LAST_RELOADS * self.reload - self.page
    }

    /// What is left, in seconds.
    pub fn left(&self) -> f64 {
        (self.end() - self.now).max(0.0)
    }

    /// A part begins, if it has not: it gets its share of what is left, without what the proof needs, as its wish
    /// has it.
    pub fn enter(&mut self, phase: Phase, proof: &Wish) {
        if phase == self.phase {
            return;
        }
        self.phase = phase;
        let needed =
            proof.steps as f64 * proof.whole(proof.least, self.beside(proof)) + proof.worst;
        let kept = if phase < Phase::Proof && needed <= MOST_FOR_PROOF * self.total {
            needed.max(self.left() * share(Phase::Proof, |other| other >= phase))
        } else {
            0.0
        };
        let of = |other: Phase| other >= phase && (kept == 0.0 || other < Phase::Proof);
        self.until = self.now + (self.left() - kept).max(0.0) * share(phase, of);
    }

    /// What a measurement takes beside its own time.
    fn beside(&self, wish: &Wish) -> f64 {
        let [same, other] = self.beside;
        match (wish.changes, wish.all) {
            (false, _) => same,
            (true, false) => other,
            (true, true) => same + (other - same) * CHANGES_OF_PAIRS,
        }
    }

    /// How long the measurement may be, if there is time for it.
    pub fn fit(&self, wish: &Wish) -> Option<f64> {
        let beside = self.beside(wish);
        let all = self.left() - wish.worst;
        let share = (self.until - self.now).min(all);
        let room = if wish.must {
            share.max(wish.whole(wish.least, beside)).min(all)
        } else {
            share
        };
        let each = room / wish.steps.max(1) as f64 - beside;
        // warm_up() is a tenth, or what new workers need.
        let warmed = each / (1.1 + wish.recovery);
        let cold = (each - wish.cold.max(warm_up(0.0))) / (1.0 + wish.recovery);
        let seconds = warmed
            .min(cold)
            .clamp(wish.least, wish.seconds.max(wish.least));
        let steps = if wish.all { wish.steps } else { 1 };
        let whole = steps as f64 * wish.whole(seconds, beside);
        (whole <= room + 1e-6).then_some(seconds)
    }

    /// That is what comes next, and what it takes beside that is learned from.
    pub fn plan(&mut self, seconds: f64, changes: bool) {
        self.planned = Some((seconds, changes));
    }
}

/// What a part has of those that are meant, of 1.
fn share(phase: Phase, of: impl Fn(Phase) -> bool) -> f64 {
    let all = WEIGHTS.iter().filter(|(other, _)| of(*other));
    let all: f64 = all.map(|(_, weight)| weight).sum();
    let own = WEIGHTS.iter().find(|(other, _)| *other == phase);
    own.map_or(1.0, |(_, weight)| weight / all.max(*weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(seconds: f64, least: f64, steps: usize) -> Wish {
        Wish {
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

    fn short() -> Wish {
        wish(1.0, 0.5, 10)
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
            budget.enter(Phase::Sweep, &wish(least, least, 10));
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
        assert_eq!(budget.fit(&wish(1.0, 0.5, 4)), Some(1.0));
        let shorter = budget.fit(&wish(5.0, 0.5, 4)).unwrap();
        assert!((1.5..2.5).contains(&shorter), "{shorter}");
        assert_eq!(budget.fit(&wish(5.0, 8.0, 4)), Some(8.0), "fewer of them");
        assert_eq!(budget.fit(&wish(5.0, 20.0, 4)), None);
        let all = Wish {
            all: true,
            ..wish(5.0, 8.0, 4)
        };
        assert_eq!(budget.fit(&all), None);
        let must = Wish {
            must: true,
            ..wish(5.0, 20.0, 4)
        };
        assert_eq!(
            budget.fit(&must),
            Some(20.0),
            "it takes what others are to have"
        );
        let worst = Wish {
            worst: 119.0,
            ..wish(1.0, 0.5, 1)
        };
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
