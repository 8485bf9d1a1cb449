//! The cost of requests: processor time, waiting for a processor, and waiting for anything else.

use std::time::Duration;

/// An average is over this many requests, at least.
const REMEMBERED: f64 = 500.0;

/// And over the requests that have ended in this many samples.
const REMEMBERED_LOOKS: f64 = 5.0;

/// The decrease of a request's weight with each later one.
const FORGETS: f64 = 1.0 / 16.0;

/// Batches for the least wait of requests have this many requests, or more if more end between two
/// samples.
const BATCH: f64 = 40.0;

/// The increase of the least wait with each sample.
const LEAST_RISES: f64 = 0.003;

/// Fewer finished requests are not enough.
const ENOUGH: f64 = 20.0;

/// Least processor time of a request, in seconds.
const LEAST_CPU_SECONDS: f64 = 1e-6;

/// The percentile for slow requests.
const PERCENTILE: f64 = 95.0;

/// The step of the percentile with each request, as a part of it.
const STEP: f64 = 0.02;

/// The cost of a request, measured by its worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Processor time.
    pub cpu: Duration,
    /// Time in which it was runnable without a processor; `None` if the kernel does not report it:
    /// then it is part of `blocked`.
    pub ready: Option<Duration>,
    /// Time of waiting for something else: a database, a disk, a sleep.
    pub blocked: Duration,
}

/// Average cost of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    long: Sum,
    /// Since the last sample.
    fresh: Sum,
    /// The last few: processor time and other waits of a request, in seconds.
    recent: (f64, f64),
    /// The least average of other waits of a batch of requests, in seconds.
    least_blocked: Option<f64>,
    /// The kernel does not separate waiting for a processor from other waits.
    is_blind: bool,
    /// Since the last batch was full.
    batch: Sum,
    /// 95 of a hundred requests take less work and waiting than this, in seconds.
    slow: f64,
}

/// Sums over this number of requests, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sum {
    count: f64,
    cpu: f64,
    /// Sum of the squares of `cpu`.
    cpu_squares: f64,
    ready: f64,
    blocked: f64,
}

impl Sum {
    fn add(&mut self, spent: Spent) {
        let cpu = spent.cpu.as_secs_f64();
        self.count += 1.0;
        self.cpu += cpu;
        self.cpu_squares += cpu * cpu;
        self.ready += spent.ready.unwrap_or_default().as_secs_f64();
        self.blocked += spent.blocked.as_secs_f64();
    }

    fn cpu_share(&self) -> f64 {
        let cpu = self.cpu.max(self.count * LEAST_CPU_SECONDS);
        cpu / (cpu + self.blocked)
    }
}

impl Cost {
    /// One more request has ended.
    pub fn add(&mut self, spent: Spent) {
        self.is_blind = spent.ready.is_none();
        self.fresh.add(spent);
        self.batch.add(spent);
        // The first ones come before any has to wait for another.
        if self.least_blocked.is_none() {
            self.end_batch();
        }
        let (cpu, blocked) = (spent.cpu.as_secs_f64(), spent.blocked.as_secs_f64());
        self.recent.0 += FORGETS * (cpu - self.recent.0);
        self.recent.1 += FORGETS * (blocked - self.recent.1);
        self.learn_slow(cpu + blocked);
        if !self.is_known() && self.fresh.count >= ENOUGH {
            self.look();
        }
    }

    /// Whether waiting for a processor counts as other waiting, since it is not reported.
    pub fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// The share of work in the time of requests that do not wait for each other.
    pub fn cpu_share_alone(&self) -> f64 {
        self.cpu() / self.alone()
    }

    /// A full batch updates the least wait.
    fn end_batch(&mut self) {
        if self.batch.count < BATCH {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let blocked = batch.blocked / batch.count;
        let least = self.least_blocked.map_or(blocked, |least| least.min(blocked));
        self.least_blocked = Some(least);
    }

    /// The share of work by the last few requests alone.
    pub fn recent_cpu_share(&self) -> f64 {
        let cpu = self.recent.0.max(LEAST_CPU_SECONDS);
        cpu / (cpu + self.recent.1)
    }

    /// The time of requests that do not wait for each other, in seconds: work, and the least recent
    /// average of other waits of a batch.
    pub fn alone(&self) -> f64 {
        self.cpu() + self.least_blocked.unwrap_or_else(|| self.blocked())
    }

    /// Moves the percentile so that the right share of requests stays above it.
    fn learn_slow(&mut self, took: f64) {
        if self.slow == 0.0 {
            self.slow = took;
        }
        let above = (100.0 - PERCENTILE) / 100.0;
        if took > self.slow {
            self.slow *= 1.0 + STEP * (1.0 - above)
        } else {
            self.slow *= 1.0 - STEP * above
        }
    }

    /// Adds the requests since the last sample to the averages; called once a second.
    pub fn look(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        self.least_blocked = self.least_blocked.map(|least| least * (1.0 + LEAST_RISES));
        self.end_batch();
        let most = REMEMBERED.max(REMEMBERED_LOOKS * fresh.count);
        let left = if self.long.count + fresh.count > most {
            (most - fresh.count) / self.long.count
        } else {
            1.0
        };
        let add = |sum: &mut f64, more: f64| *sum = *sum * left + more;
        add(&mut self.long.count, fresh.count);
        add(&mut self.long.cpu, fresh.cpu);
        add(&mut self.long.cpu_squares, fresh.cpu_squares);
        add(&mut self.long.ready, fresh.ready);
        add(&mut self.long.blocked, fresh.blocked);
    }

    /// Whether enough requests have ended.
    pub fn is_known(&self) -> bool {
        self.long.count >= ENOUGH
    }

    /// Processor time of a request, in seconds.
    pub fn cpu(&self) -> f64 {
        (self.long.cpu / self.count()).max(LEAST_CPU_SECONDS)
    }

    /// Other waiting of a request, in seconds.
    pub fn blocked(&self) -> f64 {
        self.long.blocked / self.count()
    }

    /// Waiting of a request for a processor, in seconds.
    pub fn ready(&self) -> f64 {
        self.long.ready / self.count()
    }

    fn count(&self) -> f64 {
        self.long.count.max(1.0)
    }

    /// Time of a request in its worker, in seconds.
    pub fn whole(&self) -> f64 {
        self.cpu() + self.ready() + self.blocked()
    }

    /// The time that 95 of a hundred requests would keep below if a processor were always free, as
    /// a factor of the average. Constant work has 1, exponential times 3.
    pub fn slow_part(&self) -> f64 {
        self.slow / (self.cpu() + self.blocked())
    }

    /// The share of work in a request, without waiting for a processor.
    pub fn cpu_share(&self) -> f64 {
        if self.long.count > 0.0 { self.long.cpu_share() } else { 1.0 }
    }

    /// Variance of the processor time of requests, as a factor of the square of its average.
    pub fn cpu_scatter(&self) -> f64 {
        let mean = self.cpu();
        (self.long.cpu_squares / self.count() / (mean * mean) - 1.0).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(cpu: u64, ready: u64, blocked: u64) -> Spent {
        let ms = Duration::from_millis;
        Spent { cpu: ms(cpu), ready: Some(ms(ready)), blocked: ms(blocked) }
    }

    #[test]
    fn waiting_for_a_processor_is_no_part_of_what_a_request_needs() {
        let mut cost = Cost::default();
        (0..20).for_each(|_| cost.add(spent(7, 40, 3)));
        assert!(cost.is_known());
        assert!((cost.cpu_share() - 0.7).abs() < 1e-9);
        assert!((cost.whole() - 0.050).abs() < 1e-9);
    }

    #[test]
    fn a_change_of_the_work_is_seen_at_once_and_learned_in_a_few_looks() {
        let mut cost = Cost::default();
        for _ in 0..60 {
            (0..200).for_each(|_| cost.add(spent(10, 0, 0)));
            cost.look();
        }
        (0..20).for_each(|_| cost.add(spent(1, 0, 90)));
        assert!(cost.recent_cpu_share() < 0.1);
        assert!(cost.cpu_share() > 0.9, "{}", cost.cpu_share());
        for _ in 0..10 {
            (0..200).for_each(|_| cost.add(spent(1, 0, 9)));
            cost.look();
        }
        assert!(cost.cpu_share() < 0.25, "{}", cost.cpu_share());
    }

    #[test]
    fn what_requests_take_alone_is_remembered_while_they_wait_for_each_other() {
        let mut cost = Cost::default();
        (0..40).for_each(|_| cost.add(spent(2, 0, 5)));
        cost.look();
        for _ in 0..60 {
            (0..200).for_each(|_| cost.add(spent(2, 0, 50)));
            cost.look();
        }
        assert!((0.007..0.009).contains(&cost.alone()), "{}", cost.alone());
        for _ in 0..900 {
            (0..200).for_each(|_| cost.add(spent(2, 0, 50)));
            cost.look();
        }
        assert!(cost.alone() > 0.05, "in the end it is believed");
    }

    #[test]
    fn rare_requests_are_remembered_by_their_number() {
        let mut cost = Cost::default();
        for _ in 0..2000 {
            cost.add(spent(10, 0, 10));
            cost.look();
        }
        (0..100).for_each(|_| {
            cost.add(spent(10, 0, 0));
            cost.look();
        });
        assert!((0.5..0.56).contains(&cost.cpu_share()), "{}", cost.cpu_share());
    }

    #[test]
    fn a_request_without_processor_time_still_has_a_share() {
        let mut cost = Cost::default();
        (0..20).for_each(|_| cost.add(spent(0, 0, 100)));
        assert!(cost.cpu_share() > 0.0);
        assert!(Cost::default().cpu_share() <= 1.0);
    }

    #[test]
    fn one_in_twenty_is_slower_than_what_is_taken_for_slow() {
        let mut cost = Cost::default();
        for number in 0..20_000_u64 {
            // 1 to 100 ms, all as often.
            cost.add(spent(1 + number * 37 % 100, 0, 0));
        }
        cost.look();
        let slow = cost.slow_part() * cost.cpu();
        assert!((0.085..0.101).contains(&slow), "{slow}");
    }

    /// Within a thousandth of it.
    fn is(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected.abs() * 1e-3
    }

    #[test]
    fn each_part_of_the_cost_is_an_average_over_the_requests() {
        let mut cost = Cost::default();
        (0..10).for_each(|_| cost.add(spent(2, 10, 40)));
        (0..10).for_each(|_| cost.add(spent(6, 30, 80)));
        let found = [cost.cpu(), cost.ready(), cost.blocked(), cost.whole()];
        for (found, expected) in found.into_iter().zip([0.004, 0.020, 0.060, 0.084]) {
            assert!(is(found, expected), "{found} instead of {expected}");
        }
        assert!(is(cost.cpu_share(), 4.0 / 64.0), "{}", cost.cpu_share());
    }

    #[test]
    fn before_any_request_the_cost_is_that_of_work_alone() {
        let cost = Cost::default();
        assert!(!cost.is_known() && !cost.is_blind());
        assert_eq!([cost.cpu_share(), cost.recent_cpu_share()], [1.0, 1.0]);
        assert_eq!([cost.ready(), cost.blocked()], [0.0, 0.0]);
    }

    #[test]
    fn the_cost_is_known_from_the_twentieth_request_on() {
        let mut cost = Cost::default();
        (0..19).for_each(|_| cost.add(spent(5, 0, 5)));
        assert!(!cost.is_known());
        cost.add(spent(5, 0, 5));
        assert!(cost.is_known());
        let mut slow = Cost::default();
        (0..19).for_each(|_| slow.add(spent(5, 0, 5)));
        slow.look();
        assert!(!slow.is_known(), "a sample does not make more requests of them");
        slow.add(spent(5, 0, 5));
        slow.look();
        assert!(slow.is_known());
    }

    #[test]
    fn a_kernel_that_does_not_report_waits_for_a_processor_is_noticed() {
        let mut cost = Cost::default();
        cost.add(Spent { ready: None, ..spent(1, 0, 1) });
        assert!(cost.is_blind());
        cost.add(spent(1, 2, 1));
        assert!(!cost.is_blind());
    }

    #[test]
    fn scatter_is_the_variance_as_a_factor_of_the_squared_average() {
        let mut constant = Cost::default();
        (0..20).for_each(|_| constant.add(spent(8, 0, 0)));
        assert!(constant.cpu_scatter() < 1e-9);
        let mut two = Cost::default();
        (0..20).for_each(|number| two.add(spent(if number % 2 == 0 { 1 } else { 3 }, 0, 9)));
        assert!(is(two.cpu_scatter(), 0.25), "{}", two.cpu_scatter());
    }

    #[test]
    fn requests_without_a_wait_for_each_other_take_the_least_wait_of_a_batch() {
        let mut cost = Cost::default();
        // The first batch, then a quieter one, then a busier one.
        for blocked in [6, 3, 9] {
            (0..40).for_each(|_| cost.add(spent(2, 0, blocked)));
            cost.look();
        }
        // Each look raises the least wait by 0.3 %.
        let least = 0.003 * 1.003;
        assert!(is(cost.alone(), 0.002 + least), "{}", cost.alone());
        assert!(is(cost.cpu_share_alone(), 0.002 / (0.002 + least)));
        let mut few = Cost::default();
        (0..39).for_each(|_| few.add(spent(2, 0, 6)));
        few.look();
        few.add(spent(2, 0, 86));
        few.look();
        assert!(is(few.alone(), 0.002 + 0.008 * 1.003), "a batch has 40 requests: {}", few.alone());
    }

    #[test]
    fn a_batch_grows_until_a_sample_ends_it() {
        let mut cost = Cost::default();
        (0..40).for_each(|_| cost.add(spent(1, 0, 10)));
        cost.look();
        // 80 requests between two samples are one batch, with 5.5 ms on average.
        (0..40).for_each(|_| cost.add(spent(1, 0, 1)));
        (0..40).for_each(|_| cost.add(spent(1, 0, 10)));
        cost.look();
        assert!(is(cost.alone(), 0.001 + 0.0055), "{}", cost.alone());
    }

    #[test]
    fn the_share_of_the_last_few_requests_forgets_a_sixteenth_with_each() {
        let mut cost = Cost::default();
        (0..1_000).for_each(|_| cost.add(spent(10, 0, 30)));
        assert!(is(cost.recent_cpu_share(), 0.25));
        cost.add(spent(26, 0, 14));
        // 11 ms of 40 ms.
        assert!(is(cost.recent_cpu_share(), 11.0 / 40.0), "{}", cost.recent_cpu_share());
        let mut waits = Cost::default();
        (0..1_000).for_each(|_| waits.add(spent(0, 0, 1)));
        assert!(is(waits.recent_cpu_share(), 1e-6 / (1e-6 + 1e-3)), "work takes some time");
    }

    #[test]
    fn the_average_is_over_500_requests_or_those_of_five_samples() {
        // As many requests of each kind in turn: an average weighs the later half more.
        let mut few = Cost::default();
        for blocked in [0, 10] {
            for _ in 0..50 {
                (0..10).for_each(|_| few.add(spent(10, 0, blocked)));
                few.look();
            }
        }
        // The last 500 are all of the second kind: 1 - (49/50)^50 of the average.
        let second = 1.0 - (490.0_f64 / 500.0).powi(50);
        assert!(is(few.blocked(), 0.010 * second), "{}", few.blocked());
        let mut many = Cost::default();
        for blocked in [0, 10] {
            for _ in 0..5 {
                (0..1_000).for_each(|_| many.add(spent(10, 0, blocked)));
                many.look();
            }
        }
        let second = 1.0 - 0.8_f64.powi(5);
        assert!(is(many.blocked(), 0.010 * second), "{}", many.blocked());
    }

    #[test]
    fn work_that_is_always_the_same_is_as_slow_as_its_average() {
        let mut cost = Cost::default();
        (0..2_000).for_each(|_| cost.add(spent(4, 100, 6)));
        cost.look();
        assert!((0.97..1.03).contains(&cost.slow_part()), "{}", cost.slow_part());
    }
}
