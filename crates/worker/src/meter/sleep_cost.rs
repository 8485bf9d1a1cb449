//! The processor time of a worker's sleep without a request. It is measured with the kernel now and
//! then, and assumed to be constant in between: a worker that sleeps before each request would
//! otherwise query the kernel for each of them.

/// Number of sleeps after which the kernel is queried.
const ASKED_AFTER: u32 = 8;

/// Largest plausible cost of a sleep, in nanoseconds. If there is more, something else uses the
/// processor that no clock of this thread shows, such as a thread of PHP's.
pub const MOST_NANOS: u64 = 20_000;

/// Sleeps since the kernel was queried.
#[derive(Debug, Default)]
pub struct SleepCost {
    /// The cost of one, in nanoseconds of processor time; `None` if unknown.
    cost: Option<u64>,
    taken: u32,
    /// The assumed cost of all of them, in nanoseconds.
    guessed: u64,
    began: Option<u64>,
    woke: Option<WakeUp>,
}

/// How the process woke up; it has kept its processor since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeUp {
    /// When it was first running, in nanoseconds of the monotonic clock.
    pub at: u64,
    /// Processor time from the last reading until the sleep, in nanoseconds.
    pub before: u64,
    /// The cost of the sleep, in nanoseconds; `None` if the kernel has to be queried.
    pub cost: Option<u64>,
}

impl WakeUp {
    /// Processor time since the last reading, as far as known.
    pub fn used_by(&self, now: u64) -> u64 {
        self.before + self.cost.unwrap_or_default() + now.saturating_sub(self.at)
    }
}

impl SleepCost {
    /// The process goes to sleep, and has kept its processor until now.
    pub fn begin(&mut self, now: u64) {
        self.began = Some(now);
    }

    /// The process has work without having slept.
    pub fn none(&mut self) {
        (self.began, self.woke) = (None, None);
    }

    /// It has slept, and starts a request. `read_at` is the time of the last reading. False if its
    /// processor time until the sleep is unknown.
    pub fn end(&mut self, now: u64, read_at: u64) -> bool {
        let Some(began) = self.began.take() else {
            self.woke = None;
            return false;
        };
        self.taken += 1;
        self.woke = Some(WakeUp {
            at: now,
            before: began.saturating_sub(read_at),
            cost: self.cost.filter(|_| self.taken < ASKED_AFTER),
        });
        true
    }

    /// How it woke up for its request, which has ended.
    pub fn woke(&mut self) -> Option<WakeUp> {
        self.woke.take()
    }

    /// The last sleep was counted with this cost.
    pub fn guess(&mut self, cost: u64) {
        self.guessed += cost;
    }

    /// The kernel was queried. Of the counted nanoseconds of this process, clocks and assumptions
    /// explain the known ones; the rest is the cost of the sleeps. `None`: the rest may have other
    /// causes.
    pub fn ask(&mut self, counted_and_known: Option<(u64, u64)>) {
        if let Some((counted, known)) = counted_and_known {
            let unknown = counted.saturating_add(self.guessed).saturating_sub(known);
            let cost = unknown / u64::from(self.taken.max(1));
            self.cost = Some(cost).filter(|cost| *cost <= MOST_NANOS);
        }
        (self.taken, self.guessed) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: u64 = 100_000;

    /// Sleeps once, and returns what is known of it.
    fn sleep(naps: &mut SleepCost) -> WakeUp {
        naps.begin(1_500);
        assert!(naps.end(9_000, 1_000));
        let woke = naps.woke().unwrap();
        assert_eq!((woke.at, woke.before), (9_000, 500));
        woke
    }

    #[test]
    fn what_a_sleep_costs_is_asked_first_and_then_now_and_then() {
        let mut naps = SleepCost::default();
        assert_eq!(sleep(&mut naps).cost, None);
        naps.ask(Some((KNOWN + 3_000, KNOWN)));
        for _ in 1..ASKED_AFTER {
            let woke = sleep(&mut naps);
            assert_eq!(woke.cost, Some(3_000));
            assert_eq!(woke.used_by(10_000), 500 + 3_000 + 1_000);
            naps.guess(3_000);
        }
        let woke = sleep(&mut naps);
        assert_eq!((woke.cost, woke.used_by(10_000)), (None, 500 + 1_000));
        // The last cost as much, and each was 200 ns dearer than was thought.
        naps.ask(Some((KNOWN + 3_000 + 200 * u64::from(ASKED_AFTER), KNOWN)));
        assert_eq!(sleep(&mut naps).cost, Some(3_200));
    }

    #[test]
    fn what_may_have_other_reasons_teaches_nothing() {
        let mut naps = SleepCost::default();
        sleep(&mut naps);
        naps.ask(Some((KNOWN + 2_000, KNOWN)));
        sleep(&mut naps);
        naps.guess(2_000);
        naps.ask(None);
        assert_eq!(sleep(&mut naps).cost, Some(2_000), "as before");
    }

    #[test]
    fn no_sleep_costs_less_than_nothing_and_one_that_costs_too_much_is_asked_for_again() {
        let mut naps = SleepCost::default();
        sleep(&mut naps);
        naps.ask(Some((KNOWN - 700, KNOWN)));
        assert_eq!(sleep(&mut naps).cost, Some(0));
        naps.ask(Some((KNOWN + 5_000_000, KNOWN)));
        assert_eq!(sleep(&mut naps).cost, None);
    }

    #[test]
    fn who_was_not_seen_lying_down_is_not_known() {
        let mut naps = SleepCost::default();
        assert!(!naps.end(9_000, 1_000));
        assert_eq!(naps.woke(), None);
        naps.begin(1_500);
        naps.none();
        assert!(!naps.end(9_000, 1_000));
    }
}
