//! Throughput by the number of busy workers. A closed loop keeps as many workers busy as it has
//! users.

use crate::decide::Ceiling;
use crate::laws;
use crate::measurement::{Measurement, Setting};

/// The numbers that are tried: halves and thirds of a doubling.
const TRIED: [u32; 18] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/// The same with `--quick`.
const TRIED_IN_HASTE: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// The same with `--quick` and a slow page; the throughput of 1 is that of one user alone.
const TRIED_OF_SLOW: [u32; 4] = [4, 16, 64, 256];

/// The pool's initial number of workers, and the factor by which it grows.
const FIRST_POOL: u32 = 32;
const NEXT_POOL: u32 = 4;

/// Throughput below this share of the best has fallen.
const FALLEN: f64 = 0.95;

/// Throughput above this multiple of the best has grown.
const MORE: f64 = 1.02;

/// After this many numbers without growth the sweep ends. With `--quick` numbers are twice as far
/// apart, and with a slow page farther.
const WITHOUT_GAIN: usize = 3;
const WITHOUT_GAIN_IN_HASTE: usize = 2;
const WITHOUT_GAIN_OF_SLOW: usize = 1;

/// Fewest numbers that allow a choice.
pub const FEWEST: usize = 3;

/// Why no more workers were tried.
const NO_TIME: &str = "most that there was time to try";

/// How many numbers are tried between the last that is too small and the first that is enough,
/// unless they are this close.
const LOOKS_BETWEEN: usize = 3;
const NEAR: f64 = 1.1;

/// The share of all processors that other processes may use in a measurement. One with a higher
/// share is repeated, up to the limits for one number and for the whole sweep; the best counts.
const OUTSIDE: f64 = 0.1;
const MOST_TRIES: u32 = 3;
const MOST_REPEATS: usize = 12;

/// Measurements that break a law are repeated, once for each number and this often in a sweep.
const MOST_REFUSED: usize = 4;

/// Most repeats of numbers whose throughput no other number comes near: the highest of many may be
/// so by chance.
const MOST_CONFIRMATIONS: usize = 3;

/// A measured number of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepPoint {
    /// Busy workers.
    pub workers: u32,
    /// The measurement.
    pub seen: Measurement,
}

/// A sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    ceiling: Ceiling,
    enough: f64,
    numbers: &'static [u32],
    pool: u32,
    at: usize,
    is_over: bool,
    between: usize,
    tries: u32,
    repeats: usize,
    best: Option<Measurement>,
    /// The measurement of the next number broke a law, and is repeated.
    is_refused: bool,
    refused: usize,
    confirmations: usize,
    confirmed: Vec<u32>,
    /// Measurements that were repeated because other processes used the processors.
    pub repeated: usize,
    /// Points that count although other processes did.
    pub disturbed: usize,
    /// Points that obey the laws.
    pub points: Vec<SweepPoint>,
    /// Which laws the other measurements broke.
    pub broken: Vec<String>,
}

impl Sweep {
    /// A sweep up to a ceiling, for the fewest workers that serve `enough`, a share of the highest
    /// throughput. Disturbed measurements are repeated, unless the machine is always disturbed.
    pub fn new(ceiling: Ceiling, background: Option<f64>, enough: f64) -> Sweep {
        let is_quiet = background.is_none_or(|share| share <= OUTSIDE);
        Sweep {
            repeats: if is_quiet { MOST_REPEATS } else { 0 },
            pool: FIRST_POOL.min(ceiling.workers),
            ceiling,
            enough,
            numbers: &TRIED,
            at: 0,
            is_over: false,
            between: 0,
            tries: 0,
            best: None,
            is_refused: false,
            refused: 0,
            confirmations: 0,
            confirmed: Vec::new(),
            repeated: 0,
            disturbed: 0,
            points: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// The same with fewer numbers, each measured once, for `--quick`.
    pub fn in_haste(self) -> Sweep {
        Sweep { numbers: &TRIED_IN_HASTE, repeats: 0, ..self }
    }

    /// The same with still fewer numbers after one user alone, for a slow page.
    pub fn of_slow(self, alone: Option<&Measurement>) -> Sweep {
        let one = alone.filter(|seen| seen.served > 0 && seen.rate > 0.0);
        Sweep {
            numbers: &TRIED_OF_SLOW,
            points: one
                .map(|seen| SweepPoint { workers: 1, seen: seen.clone() })
                .into_iter()
                .collect(),
            ..self.in_haste()
        }
    }

    /// Ends the sweep for lack of time: the choice is one of the measured numbers.
    pub fn stop(&mut self) {
        self.between = LOOKS_BETWEEN;
        self.confirmations = MOST_CONFIRMATIONS;
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let most = self.points.iter().map(|point| point.workers).max();
        if let Some(most) = most.filter(|most| *most < self.ceiling.workers) {
            self.ceiling = Ceiling { workers: most, why: NO_TIME.to_owned() };
        }
    }

    /// Why nothing follows from the few numbers that were tried, if so.
    pub fn is_cut_short(&self) -> Option<String> {
        let is_short = self.ceiling.why == NO_TIME && self.points.len() < FEWEST;
        is_short.then(|| {
            format!(
                "there was no time to try more than {} with such a slow page; give more with \
                 --time",
                maitred_text::humanize::plural(u64::from(self.ceiling.workers), "worker")
            )
        })
    }

    /// The next number of users, and the setting; `None` at the end.
    pub fn next(&self) -> Option<(u32, Setting)> {
        let users = self.users().or_else(|| self.to_confirm()).or_else(|| self.in_between())?;
        Some((users, Setting::Workers(self.pool.max(users))))
    }

    /// The expected latency of the next step, in seconds: no number so far served more than the
    /// best.
    pub fn expected(&self) -> Option<f64> {
        let best = self.points.iter().map(|point| point.seen.rate);
        let best = best.reduce(f64::max).filter(|rate| *rate > 0.0)?;
        Some(f64::from(self.next()?.0) / best)
    }

    /// Takes the measurement of the next number, on a machine with this many processors.
    pub fn tried(&mut self, seen: Measurement, cores: f64) {
        let Some((workers, _)) = self.next() else {
            return;
        };
        let lawful = laws::obeys(Some(workers), cores, &seen);
        let may_repeat = !self.is_refused && self.refused < MOST_REFUSED;
        self.is_refused = lawful.is_err() && may_repeat;
        if let Err(why) = lawful {
            self.broken.push(why);
            if may_repeat {
                self.refused += 1;
                return;
            }
            // A lawful one of its disturbed measurements counts.
            self.tries = 0;
            let best = self.best.take();
            self.disturbed += usize::from(best.is_some());
            return self.count(workers, best);
        }
        if let Some(seen) = self.undisturbed(seen) {
            self.count(workers, Some(seen));
        }
    }

    /// Adds the measurement of the next number, if there is one, and proceeds.
    fn count(&mut self, workers: u32, seen: Option<Measurement>) {
        let is_of_list = self.users().is_some();
        let is_repeat = !is_of_list && self.to_confirm().is_some();
        match seen {
            _ if is_repeat => self.confirm(workers, seen),
            // Without a response there is no throughput.
            Some(seen) if seen.served == 0 => self.broken.push(format!(
                "nothing was served to {workers} users within {:.1} s",
                seen.seconds
            )),
            Some(seen) => self.points.push(SweepPoint { workers, seen }),
            None => {}
        }
        if !is_of_list {
            self.between += usize::from(!is_repeat);
            return;
        }
        self.at += 1;
        if self.users().is_some_and(|next| next > self.pool) {
            self.pool = self.pool.saturating_mul(NEXT_POOL).min(self.ceiling.workers);
        }
        self.is_over = self.is_over || self.has_seen_enough();
    }

    /// Takes the repeat of a number. The lower of both measurements counts.
    fn confirm(&mut self, workers: u32, seen: Option<Measurement>) {
        self.confirmations += 1;
        self.confirmed.push(workers);
        let mut points = self.points.iter_mut();
        let point = points.find(|point| point.workers == workers);
        if let (Some(point), Some(seen)) = (point, seen.filter(|seen| seen.served > 0))
            && seen.rate < point.seen.rate
        {
            point.seen = seen;
        }
    }

    /// The number with the highest throughput, if no other comes near it and it was measured once.
    pub fn unconfirmed(&self) -> Option<u32> {
        let best = self.points.iter().max_by(|a, b| a.seen.rate.total_cmp(&b.seen.rate))?;
        let others = self.points.iter().filter(|point| point.workers != best.workers);
        let next = others.map(|point| point.seen.rate).reduce(f64::max)?;
        let is_alone = next < best.seen.rate * self.enough;
        (is_alone && !self.confirmed.contains(&best.workers)).then_some(best.workers)
    }

    /// The number to measure again, after all numbers of the list.
    fn to_confirm(&self) -> Option<u32> {
        self.unconfirmed().filter(|_| self.confirmations < MOST_CONFIRMATIONS)
    }

    /// Returns the best measurement, once one is undisturbed or there were enough.
    fn undisturbed(&mut self, seen: Measurement) -> Option<Measurement> {
        let is_disturbed = seen.outside.is_some_and(|share| share > OUTSIDE);
        self.tries += 1;
        let best = match self.best.take() {
            Some(best) if best.rate > seen.rate => best,
            _ => seen,
        };
        if is_disturbed && self.tries < MOST_TRIES && self.repeated < self.repeats {
            self.repeated += 1;
            self.best = Some(best);
            return None;
        }
        self.disturbed += usize::from(is_disturbed);
        self.tries = 0;
        Some(best)
    }

    /// The geometric mean of the two numbers around the fewest that are enough.
    fn in_between(&self) -> Option<u32> {
        let curve = self.curve();
        let best = curve.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let enough = curve.iter().position(|(_, rate)| *rate >= best * self.enough)?;
        let (few, many) = (curve.get(enough.checked_sub(1)?)?.0, curve[enough].0);
        let middle = (few * many).sqrt().round() as u32;
        let is_new = f64::from(middle) > few && f64::from(middle) < many;
        (is_new && many / few > NEAR && self.between < LOOKS_BETWEEN).then_some(middle)
    }

    /// The next number of the list. The ceiling is the last one.
    fn users(&self) -> Option<u32> {
        let users = self.numbers.get(self.at).copied().filter(|_| !self.is_over)?;
        let before = self.at.checked_sub(1).and_then(|before| self.numbers.get(before)).copied();
        match before {
            Some(before) if before >= self.ceiling.workers => None,
            _ => Some(users.min(self.ceiling.workers)),
        }
    }

    fn has_seen_enough(&self) -> bool {
        let mut best = 0.0_f64;
        let mut without = 0;
        let mut last = 0.0;
        for point in &self.points {
            last = point.seen.rate;
            without = if last > best * MORE { 0 } else { without + 1 };
            best = best.max(last);
        }
        let most = match self.numbers.len() {
            all if all >= TRIED.len() => WITHOUT_GAIN,
            all if all > TRIED_OF_SLOW.len() => WITHOUT_GAIN_IN_HASTE,
            _ => WITHOUT_GAIN_OF_SLOW,
        };
        without >= most || (without >= 2 && last < best * FALLEN)
    }

    /// How many numbers have been tried, and of how many.
    pub fn progress(&self) -> (usize, usize) {
        let within = self.numbers.iter().filter(|workers| **workers < self.ceiling.workers).count();
        (self.at, (within + 1).min(self.numbers.len()))
    }

    /// Workers and throughput, ascending by workers.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let points = self.points.iter();
        let mut curve: Vec<(f64, f64)> =
            points.map(|point| (f64::from(point.workers), point.seen.rate)).collect();
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        curve
    }

    /// The upper bound of the number of workers.
    pub fn ceiling(&self) -> &Ceiling {
        &self.ceiling
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{ENOUGH_IN_HASTE, choose, enough};

    fn sweep(most: u32, rate: impl Fn(f64) -> f64) -> Sweep {
        let ceiling = Ceiling { workers: most, why: "memory".to_owned() };
        let mut sweep = Sweep::new(ceiling, None, enough(None));
        while let Some((users, setting)) = sweep.next() {
            assert!(matches!(setting, Setting::Workers(pool) if pool >= users && pool <= most));
            let rate = rate(f64::from(users));
            let mean = f64::from(users) / rate;
            let seen = Measurement {
                seconds: 100.0,
                served: 1_000,
                rate,
                mean: Some(mean),
                ..Measurement::default()
            };
            sweep.tried(seen, 2.0);
        }
        sweep
    }

    fn tried(sweep: &Sweep) -> Vec<u32> {
        sweep.points.iter().map(|point| point.workers).collect()
    }

    #[test]
    fn it_ends_when_more_bring_no_more() {
        let flat = sweep(400, |n| 50.0 * n.min(2.0));
        assert_eq!(tried(&flat), [1, 2, 3, 4, 6]);
        let waits = sweep(400, |n| 25.0 * n.min(40.0));
        assert_eq!(&tried(&waits)[9..], [32, 48, 64, 96, 128, 39, 35, 37]);
    }

    #[test]
    fn where_there_is_little_time_every_second_number_is_tried() {
        let ceiling = Ceiling { workers: 400, why: String::new() };
        let mut sweep = Sweep::new(ceiling, None, enough(None)).in_haste();
        let mut asked = Vec::new();
        while let Some((users, _)) = sweep.next() {
            asked.push(users);
            let rate = 25.0 * f64::from(users).min(40.0);
            let seen = Measurement {
                seconds: 100.0,
                served: 1_000,
                rate,
                mean: Some(f64::from(users) / rate),
                ..Measurement::default()
            };
            sweep.tried(seen, 2.0);
        }
        assert_eq!(asked, [1, 2, 4, 8, 16, 32, 64, 128, 256, 45, 38, 41]);
    }

    #[test]
    fn of_a_slow_page_few_numbers_are_tried_beside_one_user_alone_and_the_time_may_be_over() {
        let ceiling = Ceiling { workers: 400, why: String::new() };
        let seen = |users: f64| {
            let rate = users.min(40.0);
            Measurement {
                seconds: 100.0,
                served: 1_000,
                rate,
                mean: Some(users / rate),
                ..Measurement::default()
            }
        };
        let sweep = Sweep::new(ceiling, None, enough(None)).of_slow(Some(&seen(1.0)));
        let mut whole = sweep.clone();
        while let Some((users, _)) = whole.next() {
            whole.tried(seen(f64::from(users)), 2.0);
        }
        assert_eq!(tried(&whole), [1, 4, 16, 64, 256, 32, 45, 38]);
        let mut cut = sweep;
        for _ in 0..2 {
            let (users, _) = cut.next().unwrap();
            cut.tried(seen(f64::from(users)), 2.0);
        }
        cut.stop();
        assert_eq!((cut.next(), tried(&cut)), (None, vec![1, 4, 16]));
        assert!(cut.ceiling().workers == 16 && cut.ceiling().why.contains("time to try"));
    }

    #[test]
    fn the_ceiling_itself_is_tried_and_nothing_above_it() {
        let bound = sweep(20, |n| 25.0 * n);
        assert_eq!(&tried(&bound)[..9], [1, 2, 3, 4, 6, 8, 12, 16, 20]);
        assert_eq!(sweep(1, |n| n).points.len(), 1);
    }

    #[test]
    fn what_others_disturb_is_measured_again_and_the_best_counts() {
        let ceiling = Ceiling { workers: 1, why: String::new() };
        let mut sweep = Sweep::new(ceiling, None, enough(None));
        let seen = |rate: f64, outside| Measurement {
            seconds: 10.0,
            served: 100,
            rate,
            mean: Some(1.0 / rate),
            outside: Some(outside),
            ..Measurement::default()
        };
        sweep.tried(seen(20.0, 0.5), 2.0);
        assert!(sweep.points.is_empty() && sweep.next().is_some());
        sweep.tried(seen(10.0, 0.05), 2.0);
        assert_eq!((sweep.points.len(), sweep.points[0].seen.rate), (1, 20.0));
        assert_eq!((sweep.repeated, sweep.disturbed, sweep.next()), (1, 0, None));
    }

    #[test]
    fn figures_that_break_a_law_do_not_count() {
        let mut sweep = Sweep::new(Ceiling { workers: 8, why: String::new() }, None, enough(None));
        let wrong =
            Measurement { seconds: 10.0, rate: 10.0, mean: Some(9.0), ..Measurement::default() };
        sweep.tried(wrong, 2.0);
        assert!(sweep.points.is_empty() && sweep.broken.len() == 1);
    }

    #[test]
    fn a_number_that_was_served_nothing_is_no_point_and_slow_answers_get_time() {
        let ceiling = Ceiling { workers: 8, why: String::new() };
        let mut sweep = Sweep::new(ceiling, None, enough(None));
        assert_eq!(sweep.expected(), None);
        sweep.tried(
            Measurement {
                seconds: 10.0,
                served: 20,
                rate: 2.0,
                mean: Some(0.5),
                ..Measurement::default()
            },
            2.0,
        );
        assert_eq!(sweep.expected(), Some(1.0), "two users at two a second");
        sweep.tried(Measurement::default(), 2.0);
        assert_eq!((sweep.points.len(), sweep.broken.len()), (1, 1));
    }

    /// The page of 3 ms of processor time and 10 ms of sleep on two processors, by `--quick`.
    fn recorded(outliers: &[(u32, f64, f64)]) -> (Sweep, Vec<u32>) {
        let ceiling = Ceiling { workers: 400, why: String::new() };
        let mut sweep = Sweep::new(ceiling, None, ENOUGH_IN_HASTE).in_haste();
        let mut asked = Vec::new();
        while let Some((users, _)) = sweep.next() {
            let seen_before = asked.iter().filter(|asked| **asked == users).count();
            let outlier = outliers.iter().find(|(of, ..)| *of == users && seen_before == 0);
            let (rate, cpu) = match (outlier, users) {
                (Some((_, rate, cpu)), _) => (*rate, *cpu),
                (None, 64) => (549.0, 0.0036),
                (None, 65..) => (540.0, 0.0036),
                (None, 32) => (557.0, 0.0035),
                (None, _) => (70.0 * f64::from(users).min(7.6), 0.0033),
            };
            asked.push(users);
            sweep.tried(
                Measurement {
                    seconds: 100.0,
                    served: 1_000,
                    rate,
                    mean: Some(f64::from(users) / rate),
                    cpu: Some(cpu),
                    ..Measurement::default()
                },
                2.0,
            );
        }
        (sweep, asked)
    }

    fn chosen(sweep: &Sweep) -> u32 {
        choose(&sweep.curve(), sweep.ceiling(), None, ENOUGH_IN_HASTE).unwrap().workers
    }

    #[test]
    fn a_sample_that_needs_more_processors_than_there_are_is_refused_and_measured_again() {
        let (sweep, asked) = recorded(&[(128, 609.0, 0.00343)]);
        assert_eq!(asked.iter().filter(|users| **users == 128).count(), 2, "{asked:?}");
        assert!(sweep.broken.len() == 1 && sweep.broken[0].contains("2.09"), "{:?}", sweep.broken);
        assert!(chosen(&sweep) <= 32, "{:?}", sweep.curve());
    }

    #[test]
    fn the_highest_throughput_counts_once_a_repeat_or_another_number_confirms_it() {
        let (sweep, asked) = recorded(&[(128, 609.0, 0.0033)]);
        assert_eq!(asked.iter().filter(|users| **users == 128).count(), 2, "{asked:?}");
        assert!(sweep.broken.is_empty() && sweep.unconfirmed().is_none());
        assert!(chosen(&sweep) <= 32, "{:?}", sweep.curve());
        let (sweep, asked) = recorded(&[(64, 575.0, 0.0034)]);
        assert_eq!(asked.iter().filter(|users| **users == 64).count(), 1, "32 is as good");
        assert!(chosen(&sweep) <= 32, "{:?}", sweep.curve());
    }

    #[test]
    fn a_sweep_without_time_for_the_repeat_leaves_the_highest_throughput_unconfirmed() {
        let grows = sweep(16, |n| 25.0 * n);
        assert_eq!((grows.unconfirmed(), grows.confirmations), (None, 1));
        let mut cut = Sweep { confirmed: Vec::new(), ..grows };
        cut.stop();
        assert_eq!((cut.next(), cut.unconfirmed()), (None, Some(16)));
    }
}
