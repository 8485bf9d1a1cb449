//! Timeouts of slow clients: a timeout is extended as long as bytes flow at a minimum rate. Pure:
//! times and bytes in, deadlines out.

use std::time::Duration;

use tokio::time::Instant;

/// Grace period for the first bytes of a request body (as in Apache's `RequestReadTimeout`).
pub const REQUEST_GRACE: Duration = Duration::from_secs(20);
/// Timeout without progress of a client that reads a response (nginx's `send_timeout`).
pub const ANSWER_GRACE: Duration = Duration::from_secs(60);
/// Interval at which the kernel's send buffer is checked for progress.
const LOOK: Duration = Duration::from_secs(10);

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The minimum rates of clients in bytes per second; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// The rate of request bodies.
    pub request: u32,
    /// The rate of responses.
    pub response: u32,
}

/// One direction of a connection, or of a stream. Its peer has a time budget, at first the grace. A
/// wait for the peer uses it up, and each byte refills some of it, never beyond the grace: a fast
/// start does not allow a long stall.
///
/// It is small without a wait: idle connections have one.
#[derive(Debug)]
pub struct Pace {
    /// Bytes per second; 0 is none.
    rate: u32,
    grace_seconds: u32,
    waits: Option<Box<Waits>>,
}

/// The account of a peer that had to be waited for.
#[derive(Debug)]
struct Waits {
    left: Duration,
    /// Bytes that are accounted for.
    counted: u64,
    /// The start of the current wait.
    since: Option<Instant>,
    /// The last progress of the kernel's buffer, and its time.
    seen: Option<(u64, Instant)>,
}

impl Pace {
    /// The pace of a peer before the first wait; of the grace, whole seconds count.
    pub fn new(rate: u32, grace: Duration) -> Pace {
        Pace {
            rate,
            grace_seconds: u32::try_from(grace.as_secs()).unwrap_or(u32::MAX),
            waits: None,
        }
    }

    /// Refills the budget for a new message.
    pub fn begin(&mut self) {
        self.waits = None;
    }

    /// Starts a wait for the peer, which has moved `total` bytes so far. Returns the deadline.
    /// Without [`Pace::came`], the time of an earlier wait counts, too, unless the peer has moved
    /// something.
    pub fn wait(&mut self, total: u64, now: Instant) -> Instant {
        let (rate, grace) = (self.rate, self.grace());
        let waits = self.waits.get_or_insert_with(|| {
            Box::new(Waits { left: grace, counted: total, since: None, seen: None })
        });
        match total.saturating_sub(waits.counted) {
            0 => waits.came(|| now),
            bytes => waits.earn(time_for(bytes, rate), grace),
        }
        (waits.counted, waits.since) = (total, Some(now));
        now + waits.left
    }

    /// Ends the wait, with progress.
    pub fn came(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(waits) = &mut self.waits {
            waits.came(now);
        }
    }

    /// At the deadline, with `total` bytes acknowledged so far of all that was handed to the
    /// kernel: whether they flow at the least rate. Then the wait may continue for a while. A
    /// socket with a buffer of megabytes reports free space only after a long time.
    pub fn goes_on(&mut self, total: u64, now: Instant) -> bool {
        let (rate, grace) = (self.rate, self.grace());
        let Some(waits) = self.waits.as_mut().filter(|_| rate > 0) else {
            return false;
        };
        let goes_on = waits.seen.is_none_or(|(before, then)| {
            time_for(total.saturating_sub(before), rate) >= now - then
        });
        (waits.seen, waits.since) = (Some((total, now)), None);
        waits.left = if goes_on { LOOK.min(grace) } else { Duration::ZERO };
        goes_on
    }

    fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds.into())
    }
}

impl Waits {
    fn earn(&mut self, time: Duration, grace: Duration) {
        self.left = self.left.saturating_add(time).min(grace);
        if self.left == grace {
            self.seen = None;
        }
    }

    fn came(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(now() - since);
        }
    }
}

/// The time for bytes at a rate; without a rate, the whole budget.
fn time_for(bytes: u64, rate: u32) -> Duration {
    let each = NANOS_PER_SECOND.checked_div(rate.into());
    Duration::from_nanos(bytes.saturating_mul(each.unwrap_or(u64::MAX)))
}

/// The direction in which a client is too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooSlow {
    /// Sending its request.
    Sending,
    /// Reading its response.
    Reading,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(20);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// For how long a peer lasts that moves `bytes` after each `pause`, or an hour.
    fn lasts(rate: u32, bytes: u64, pause: Duration) -> Duration {
        let began = Instant::now();
        let (mut pace, mut now, mut total) = (Pace::new(rate, GRACE), began, 0);
        while now < began + seconds(3600) {
            let deadline = pace.wait(total, now);
            if deadline < now + pause {
                return deadline - began;
            }
            now += pause;
            pace.came(|| now);
            total += bytes;
        }
        now - began
    }

    #[test]
    fn who_keeps_to_the_rate_lives_and_who_does_not_is_cut_after_its_grace() {
        assert_eq!(lasts(500, 500, seconds(1)), seconds(3600));
        assert_eq!(lasts(500, 10_000, seconds(1)), seconds(3600));
        assert_eq!(lasts(500, 5_000, seconds(10)), seconds(3600));
        // Half the rate uses up half a second of grace a second.
        assert_eq!(lasts(500, 250, seconds(1)), seconds(39) + seconds(1) / 2);
        let drip = lasts(500, 1, seconds(1));
        assert!(drip > GRACE && drip < seconds(21), "{drip:?}");
        assert_eq!(lasts(500, 1 << 40, seconds(21)), GRACE);
    }

    #[test]
    fn without_a_rate_any_byte_is_enough() {
        assert_eq!(lasts(0, 1, seconds(19)), seconds(19 * 190));
        assert_eq!(lasts(0, 1, seconds(21)), GRACE);
    }

    #[test]
    fn who_begins_fast_cannot_be_slow_for_long() {
        let now = Instant::now();
        let mut pace = Pace::new(500, GRACE);
        assert_eq!(pace.wait(1 << 40, now), now + GRACE);
        pace.came(|| now + seconds(15));
        assert_eq!(pace.wait((1 << 40) + 500, now + seconds(100)), now + seconds(106));
    }

    #[test]
    fn a_wait_that_was_broken_off_counts_unless_something_moved() {
        let now = Instant::now();
        let mut pace = Pace::new(500, GRACE);
        pace.wait(0, now);
        assert_eq!(pace.wait(0, now + seconds(5)), now + GRACE);
        assert_eq!(pace.wait(500, now + seconds(10)), now + seconds(26));
        pace.begin();
        assert_eq!(pace.wait(500, now), now + GRACE);
    }

    #[test]
    fn what_the_kernel_gets_rid_of_counts_when_it_takes_nothing() {
        let now = Instant::now();
        let mut pace = Pace::new(500, GRACE);
        let over = pace.wait(1_000_000, now);
        assert!(pace.goes_on(200_000, over), "who knows how fast it is");
        let over = pace.wait(1_000_000, over);
        assert_eq!(over, now + GRACE + LOOK);
        assert!(pace.goes_on(205_000, over));
        let over = pace.wait(1_000_000, over);
        assert!(!pace.goes_on(209_999, over));
        assert!(!Pace::new(0, GRACE).goes_on(1_000_000, now));
    }

    #[test]
    fn whatever_happens_nobody_has_more_time_than_the_grace() {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for rate in [0, 1, 500, u32::MAX] {
            let (mut pace, mut now, mut total) = (Pace::new(rate, GRACE), Instant::now(), 0);
            for _ in 0..10_000 {
                total += next(3) * next(100_000);
                let deadline = pace.wait(total, now);
                assert!(deadline <= now + GRACE);
                now += Duration::from_millis(next(25_000));
                match next(3) {
                    0 => pace.came(|| now),
                    1 => drop(pace.goes_on(total, now)),
                    _ => {}
                }
            }
        }
    }
}
