//! Repeated problems with a pool's processes: logged once when they begin, then with counts. This
//! module decides the wording, and [`LogThrottle`] decides when to log.

use maitred_control::episode::{Account, LogThrottle, News};
pub use maitred_text::humanize::lasted as seconds;
use maitred_text::humanize::plural;

use crate::limits::{MEMORY_CALM, Moment, TROUBLE_CALM, ZYGOTE_CALM};

/// The problems of one pool.
#[derive(Debug)]
pub struct RepeatedErrors {
    /// No worker could be forked.
    forks: LogThrottle<()>,
    /// A zygote did not start, or ended.
    zygotes: LogThrottle<()>,
    /// More workers were needed at once than `max_spawn_rate` allows; the maximum is that of
    /// waiting workers.
    rate: LogThrottle<usize>,
    /// Workers were replaced because they had grown and memory was nearly full.
    grown: LogThrottle<()>,
}

impl Default for RepeatedErrors {
    fn default() -> RepeatedErrors {
        RepeatedErrors {
            forks: LogThrottle::new(TROUBLE_CALM),
            zygotes: LogThrottle::new(ZYGOTE_CALM),
            rate: LogThrottle::new(TROUBLE_CALM),
            grown: LogThrottle::new(MEMORY_CALM),
        }
    }
}

/// How many failures of a zygote are logged in full: what failed, and how the process ended.
const ZYGOTE_LINES: u64 = 2;

/// Workers that wait for `max_spawn_rate` are logged when they exceed this fraction of it.
const RATE_NEWS_PART: usize = 10;

impl RepeatedErrors {
    /// A worker could not be forked. True when that is to be logged.
    #[must_use]
    pub fn fork_failed(&mut self, now: Moment) -> bool {
        self.forks.happened(now, |()| {}) == 1
    }

    /// A zygote failed. True when that is to be logged.
    #[must_use]
    pub fn zygote_failed(&mut self, now: Moment) -> bool {
        self.zygotes.happened(now, |()| {}) <= ZYGOTE_LINES
    }

    /// `held` workers wait because of `rate`, the pool's `max_spawn_rate`. True when that is to be
    /// logged.
    #[must_use]
    pub fn rate_reached(&mut self, now: Moment, held: usize, rate: u32) -> bool {
        if held * RATE_NEWS_PART < (rate as usize).max(RATE_NEWS_PART) {
            return false;
        }
        self.rate.happened(now, |most| *most = held.max(*most)) == 1
    }

    /// A worker is replaced because it has grown. True when that is to be logged.
    #[must_use]
    pub fn grown_replaced(&mut self, now: Moment) -> bool {
        self.grown.happened(now, |()| {}) == 1
    }

    /// The line due now about workers that have grown, which is not an error.
    pub fn grown_due(&mut self, now: Moment) -> Option<String> {
        grown_news(self.grown.due(now)?)
    }

    /// The lines due now, as sentences about the pool.
    pub fn due(&mut self, now: Moment) -> Vec<String> {
        let forks = self.forks.due(now).map(fork_news);
        let zygotes = self.zygotes.due(now).and_then(zygote_news);
        let rate = self.rate.due(now).map(rate_news);
        [forks, zygotes, rate].into_iter().flatten().collect()
    }

    /// When the next line is due, if nothing happens before.
    pub fn deadline(&self) -> Option<Moment> {
        let all = [
            self.forks.deadline(),
            self.zygotes.deadline(),
            self.rate.deadline(),
            self.grown.deadline(),
        ];
        all.into_iter().flatten().min()
    }
}

fn fork_news(news: News<()>) -> String {
    match news {
        News::GoesOn(Account { lasted, times, .. }) => format!(
            "for {} now, no worker can be made; {times} attempts have failed",
            seconds(lasted)
        ),
        News::Over(Account { lasted, times, .. }) => format!(
            "workers can be made again, or are not needed; {times} attempts failed in {}",
            seconds(lasted)
        ),
    }
}

/// Failures that were logged in full need no summary.
fn zygote_news(news: News<()>) -> Option<String> {
    match news {
        News::GoesOn(Account { lasted, times, .. }) => {
            Some(format!("its zygote has been failing for {}: {times} failures", seconds(lasted)))
        }
        News::Over(Account { times, .. }) if times <= ZYGOTE_LINES => None,
        News::Over(Account { lasted, times, .. }) => Some(format!(
            "its zygote has not failed again for {} s; before, {times} failures in {}",
            ZYGOTE_CALM.as_secs(),
            seconds(lasted)
        )),
    }
}

fn rate_news(news: News<usize>) -> String {
    let (lead, Account { lasted, total, .. }) = match news {
        News::GoesOn(account) => ("has been", account),
        News::Over(account) => ("was", account),
    };
    format!(
        "max_spawn_rate {lead} reached for {}; at most {} had to wait for it",
        seconds(lasted),
        plural(total as u64, "worker")
    )
}

/// A single failure was logged in full.
fn grown_news(news: News<()>) -> Option<String> {
    let (verb, Account { lasted, times, .. }) = match news {
        News::GoesOn(account) => ("have been", account),
        News::Over(account) => ("were", account),
    };
    (times > 1).then(|| {
        let lasted = seconds(lasted);
        format!(
            "{times} workers that had grown {verb} replaced in {lasted}, memory being nearly full"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_fork_that_is_refused_for_a_while_is_two_lines() {
        let mut troubles = RepeatedErrors::default();
        let said = (1..=20).filter(|second| troubles.fork_failed(SECOND * *second));
        assert_eq!(said.count(), 1);
        assert!(troubles.due(SECOND * 20).is_empty());
        let over = troubles.deadline().unwrap();
        assert_eq!(over, SECOND * 20 + TROUBLE_CALM);
        assert_eq!(
            troubles.due(over),
            ["workers can be made again, or are not needed; 20 attempts failed in 19 s"]
        );
        assert_eq!(troubles.deadline(), None);
    }

    #[test]
    fn a_zygote_that_dies_once_is_told_once_and_one_that_cannot_start_is_counted() {
        let mut troubles = RepeatedErrors::default();
        assert!(troubles.zygote_failed(SECOND) && troubles.zygote_failed(SECOND));
        assert!(troubles.due(SECOND + ZYGOTE_CALM).is_empty());
        for second in 100..140 {
            let said = troubles.zygote_failed(SECOND * second);
            assert_eq!(said, second < 102);
        }
        assert_eq!(
            troubles.due(SECOND * 139 + ZYGOTE_CALM),
            ["its zygote has not failed again for 120 s; before, 40 failures in 39 s"]
        );
    }

    #[test]
    fn workers_that_grow_again_and_again_and_are_replaced_are_a_few_lines() {
        let mut troubles = RepeatedErrors::default();
        let (mut said, mut news) = (0, Vec::new());
        for second in (0..3600).map(|second| SECOND * second) {
            if second.as_secs() % 30 == 0 {
                said += usize::from(troubles.grown_replaced(second));
            }
            news.extend(troubles.grown_due(second));
        }
        assert_eq!((said, news.len()), (1, 5), "{news:?}");
        assert_eq!(
            news[0],
            "3 workers that had grown have been replaced in 60 s, memory being nearly full"
        );
        let over = SECOND * 3570 + MEMORY_CALM;
        let line =
            "120 workers that had grown were replaced in 59 m 30 s, memory being nearly full";
        assert_eq!(troubles.grown_due(over).as_deref(), Some(line));
        assert_eq!(troubles.deadline(), None);
        assert!(troubles.grown_replaced(over + SECOND));
        let alone = troubles.grown_due(over + SECOND + MEMORY_CALM);
        assert_eq!(alone, None, "that was said in full");
    }

    #[test]
    fn the_spawn_rate_is_told_with_how_many_had_to_wait() {
        let mut troubles = RepeatedErrors::default();
        assert!(!troubles.rate_reached(SECOND, 1, 32), "a single one is no news");
        assert!(!troubles.rate_reached(SECOND, 0, 1));
        assert!(troubles.rate_reached(SECOND, 8, 32));
        assert!(!troubles.rate_reached(SECOND * 2, 4, 32));
        assert_eq!(
            troubles.due(SECOND * 2 + TROUBLE_CALM),
            ["max_spawn_rate was reached for 1 s; at most 8 workers had to wait for it"]
        );
    }
}
