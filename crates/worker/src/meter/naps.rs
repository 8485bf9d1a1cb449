//! What it costs a worker to sleep for want of a request. The kernel is asked for that now and then, and
//! in between it is taken to be what it was: a worker that sleeps before each of its requests would
//! otherwise ask for each of them.

/// After so many sleeps the kernel is asked.
const ASKED_AFTER: u32 = 8;

/// What is taken for the cost of a sleep, at most, in nanoseconds. Where there is more, something else
/// uses the processor that no clock of this thread shows, such as a thread of PHP's.
pub const MOST_NANOS: u64 = 20_000;

/// Sleeps since the kernel was asked.
#[derive(Debug, Default)]
pub struct Naps {
    /// What one costs, in nanoseconds of the processor; nothing if that is not known.
    cost: Option<u64>,
    taken: u32,
    /// What was taken for their cost, in nanoseconds.
    guessed: u64,
    began: Option<u64>,
    woke: Option<Woke>,
}

/// How the process woke up, and has kept its processor since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Woke {
    /// When it could be seen first, in nanoseconds on the clock that never goes backwards.
    pub at: u64,
    /// What it had used until it lay down, since it was read last, in nanoseconds.
    pub before: u64,
    /// What the sleep has cost, in nanoseconds; nothing if the kernel is to be asked.
    pub cost: Option<u64>,
}

impl Woke {
    /// What the process has used since it was read last, but for what is unknown.
    pub fn used_by(&self, now: u64) -> u64 {
        self.before + self.cost.unwrap_or_default() + now.saturating_sub(self.at)
    }
}

impl Naps {
    /// The process lies down, and has kept its processor until now.
    pub fn begin(&mut self, now: u64) {
        self.began = Some(now);
    }

    /// The process has something to do without having slept.
    pub fn none(&mut self) {
        (self.began, self.woke) = (None, None);
    }

    /// It has slept, and begins a request. `read_at` is when it was read last. False if nobody knows
    /// what it had used until it lay down.
    pub fn end(&mut self, now: u64, read_at: u64) -> bool {
        let Some(began) = self.began.take() else {
            self.woke = None;
            return false;
        };
        self.taken += 1;
        self.woke = Some(Woke {
            at: now,
            before: began.saturating_sub(read_at),
            cost: self.cost.filter(|_| self.taken < ASKED_AFTER),
        });
        true
    }

    /// How it woke up for its request, which has ended.
    pub fn woke(&mut self) -> Option<Woke> {
        self.woke.take()
    }

    /// The last was counted with that cost.
    pub fn guess(&mut self, cost: u64) {
        self.guessed += cost;
    }

    /// The kernel was asked. It has counted so many nanoseconds of this process, of which so many are known
    /// by clocks and guesses; the rest is what sleeps have cost. Nothing: something else may be in that.
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
    fn sleep(naps: &mut Naps) -> Woke {
        naps.begin(1_500);
        assert!(naps.end(9_000, 1_000));
        let woke = naps.woke().unwrap();
        assert_eq!((woke.at, woke.before), (9_000, 500));
        woke
    }

    #[test]
    fn what_a_sleep_costs_is_asked_first_and_then_now_and_then() {
        let mut naps = Naps::default();
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
        let mut naps = Naps::default();
        sleep(&mut naps);
        naps.ask(Some((KNOWN + 2_000, KNOWN)));
        sleep(&mut naps);
        naps.guess(2_000);
        naps.ask(None);
        assert_eq!(sleep(&mut naps).cost, Some(2_000), "as before");
    }

    #[test]
    fn no_sleep_costs_less_than_nothing_and_one_that_costs_too_much_is_asked_for_again() {
        let mut naps = Naps::default();
        sleep(&mut naps);
        naps.ask(Some((KNOWN - 700, KNOWN)));
        assert_eq!(sleep(&mut naps).cost, Some(0));
        naps.ask(Some((KNOWN + 5_000_000, KNOWN)));
        assert_eq!(sleep(&mut naps).cost, None);
    }

    #[test]
    fn who_was_not_seen_lying_down_is_not_known() {
        let mut naps = Naps::default();
        assert!(!naps.end(9_000, 1_000));
        assert_eq!(naps.woke(), None);
        naps.begin(1_500);
        naps.none();
        assert!(!naps.end(9_000, 1_000));
    }
}
