//! A throttle for log lines: a recurring event is logged when it starts, at growing intervals while
//! it lasts, and when it is over, each time with numbers. Pure: the caller provides time and text.

use std::time::Duration;

/// A point in time: the time since a fixed one, on the monotonic clock.
pub type Moment = Duration;

/// Time until an episode is first logged again; it doubles each time.
const SAID_AGAIN_FIRST: Duration = Duration::from_secs(60);

/// Longest time between two lines about an episode.
const SAID_AGAIN_LONGEST: Duration = Duration::from_secs(3600);

/// One kind of event, with a total `T` over the current episode.
#[derive(Debug)]
pub struct LogThrottle<T> {
    calm: Duration,
    going: Option<Going<T>>,
}

#[derive(Debug)]
struct Going<T> {
    began: Moment,
    last: Moment,
    times: u64,
    say_at: Moment,
    pause: Duration,
    total: T,
}

/// The log message that is due for an episode after its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News<T> {
    /// It has lasted for this long, and is not over.
    GoesOn(Account<T>),
    /// It is over.
    Over(Account<T>),
}

/// The numbers of an episode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account<T> {
    /// Its duration, from the first event to the last.
    pub lasted: Duration,
    /// Number of events.
    pub times: u64,
    /// The total.
    pub total: T,
}

impl<T: Clone + Default> LogThrottle<T> {
    /// No event yet. An episode ends after a time of `calm` without an event.
    pub fn new(calm: Duration) -> LogThrottle<T> {
        LogThrottle { calm, going: None }
    }

    /// The event has happened (again); `count` adds to the total. Returns the number of events in
    /// this episode: 1 means that it starts.
    pub fn happened(&mut self, now: Moment, count: impl FnOnce(&mut T)) -> u64 {
        let going = self.going.get_or_insert_with(|| Going {
            began: now,
            last: now,
            times: 0,
            say_at: now + SAID_AGAIN_FIRST,
            pause: SAID_AGAIN_FIRST,
            total: T::default(),
        });
        going.last = going.last.max(now);
        going.times += 1;
        count(&mut going.total);
        going.times
    }

    /// The log message that is due; it counts as logged.
    pub fn due(&mut self, now: Moment) -> Option<News<T>> {
        let going = self.going.as_mut()?;
        if now >= going.last + self.calm {
            let going = self.going.take()?;
            return Some(News::Over(going.account(going.last)));
        }
        if now < going.say_at {
            return None;
        }
        going.pause = (going.pause * 2).min(SAID_AGAIN_LONGEST);
        going.say_at = now + going.pause;
        Some(News::GoesOn(going.account(now)))
    }

    /// The time at which [`LogThrottle::due`] returns a message if no event happens before.
    pub fn deadline(&self) -> Option<Moment> {
        let going = self.going.as_ref()?;
        Some((going.last + self.calm).min(going.say_at))
    }

    /// Whether no episode is going on.
    pub fn is_quiet(&self) -> bool {
        self.going.is_none()
    }
}

impl<T: Clone> Going<T> {
    fn account(&self, until: Moment) -> Account<T> {
        Account {
            lasted: until.saturating_sub(self.began),
            times: self.times,
            total: self.total.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);

    fn add(number: u32) -> impl FnOnce(&mut u32) {
        move |total| *total += number
    }

    fn account(lasted: u64, times: u64, total: u32) -> Account<u32> {
        let lasted = Duration::from_secs(lasted);
        Account { lasted, times, total }
    }

    #[test]
    fn an_episode_begins_once_and_its_end_tells_the_total() {
        let mut episode = LogThrottle::new(CALM);
        assert_eq!(episode.deadline(), None);
        assert_eq!(episode.happened(SECOND, add(5)), 1);
        assert_eq!(episode.happened(SECOND * 4, add(7)), 2);
        assert_eq!(episode.due(SECOND * 13), None);
        assert_eq!(episode.deadline(), Some(SECOND * 14));
        let over = episode.due(SECOND * 14);
        assert_eq!(over, Some(News::Over(account(3, 2, 12))));
        assert_eq!(episode.due(SECOND * 99), None, "it is said once");
        assert!(episode.is_quiet());
        assert_eq!(episode.happened(SECOND * 99, add(1)), 1, "a new one");
    }

    #[test]
    fn an_episode_that_goes_on_for_a_day_is_spoken_of_less_than_thirty_times() {
        let mut episode = LogThrottle::new(CALM);
        let mut said = Vec::new();
        for second in 0..24 * 3600 {
            let now = SECOND * second;
            episode.happened(now, add(1));
            if let Some(news) = episode.due(now) {
                said.push((second, news));
            }
        }
        assert_eq!(said[0], (60, News::GoesOn(account(60, 61, 61))));
        let seconds: Vec<u32> = said.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds[..4], [60, 180, 420, 900]);
        assert_eq!(seconds[6..9], [7380, 10_980, 14_580]);
        assert_eq!(seconds.len(), 28);
    }

    #[test]
    fn what_happened_long_ago_is_over_and_does_not_go_on() {
        let mut episode = LogThrottle::new(CALM);
        episode.happened(SECOND, add(1));
        let late = episode.due(SECOND * 500);
        assert_eq!(late, Some(News::Over(account(0, 1, 1))));
    }

    #[test]
    fn a_moment_before_the_last_one_does_no_harm() {
        let mut episode = LogThrottle::new(CALM);
        episode.happened(SECOND * 5, add(1));
        episode.happened(SECOND, add(1));
        assert_eq!(episode.due(SECOND), None);
        let over = episode.due(SECOND * 15);
        assert_eq!(over, Some(News::Over(account(0, 2, 2))));
    }
}
