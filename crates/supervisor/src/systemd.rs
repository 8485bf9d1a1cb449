//! What systemd is told (sd_notify(3)): that the server serves, reloads or stops, how it is, and
//! that it is alive. Nobody is told, and nothing is due, where there is no `NOTIFY_SOCKET`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_config::fpm::Fpm;
use maitred_seat::Boards;
use sd_notify::NotifyState;
use tracing::{debug, info};

use crate::limits::Moment;
use crate::run::Supervisor;

/// Where systemd listens.
const SOCKET: &str = "NOTIFY_SOCKET";

/// After how many microseconds without a word systemd takes the server for dead.
const WATCHDOG: &str = "WATCHDOG_USEC";

/// php-fpm takes a watchdog seriously whose half is longer than this.
const WATCHDOG_MIN: Duration = Duration::from_secs(1);

/// How often systemd is told how the server is where no configuration says (`systemd_interval`).
const INTERVAL: Duration = Duration::from_secs(10);

/// What systemd reads while nothing has happened yet, as php-fpm says it.
const READY: &str = "Ready to handle connections";

/// What systemd was told, and when it is told more.
#[derive(Debug)]
pub struct Systemd {
    listens: bool,
    /// Words for the log as php-fpm has them.
    speaks: bool,
    /// How often it is told how the server is; zero is never.
    interval: Duration,
    has_watchdog: bool,
    state: State,
    /// Requests at the last report.
    requests: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Serving { next: Option<Moment> },
    Reloading,
    Stopping,
}

/// How the server is, all pools together.
#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    active: u64,
    idle: u64,
    requests: u64,
    slow: u64,
}

/// How often to tell, and whether a watchdog waits for that; as php-fpm's `fpm_systemd_conf`.
fn interval(watchdog: Option<&str>, configured: Duration) -> (Duration, bool) {
    let half = watchdog.and_then(|text| text.parse::<u64>().ok());
    let half = Duration::from_micros(half.unwrap_or(0) / 2);
    match half > WATCHDOG_MIN {
        true => (half, true),
        false => (configured, false),
    }
}

/// As php-fpm words it.
fn status(now: &Figures, before: u64, interval: Duration) -> String {
    let new = now.requests.saturating_sub(before) as f64;
    let traffic = new / interval.as_secs_f64().max(f64::MIN_POSITIVE);
    format!(
        "Processes active: {}, idle: {}, Requests: {}, slow: {}, Traffic: {traffic:.2}req/sec",
        now.active, now.idle, now.requests, now.slow
    )
}

impl Systemd {
    /// As the environment and the configuration say.
    pub fn found(fpm: Option<&Fpm>) -> Systemd {
        let configured = fpm.map_or(INTERVAL, |fpm| fpm.systemd_interval);
        let watchdog = std::env::var(WATCHDOG).ok();
        let (interval, has_watchdog) = interval(watchdog.as_deref(), configured);
        Systemd {
            listens: std::env::var_os(SOCKET).is_some(),
            speaks: fpm.is_some(),
            interval,
            has_watchdog,
            state: State::Starting,
            requests: 0,
        }
    }

    /// When it is told more.
    pub fn deadline(&self) -> Option<Moment> {
        match self.state {
            State::Serving { next } => next,
            State::Starting | State::Reloading | State::Stopping => None,
        }
    }

    /// Another configuration is in use.
    pub fn follow(&mut self, fpm: Option<&Fpm>) {
        let new = Systemd::found(fpm);
        (self.interval, self.has_watchdog) = (new.interval, new.has_watchdog);
    }

    /// A reload was asked for. Whatever comes of it, [`Supervisor::tell_systemd`] says when it is over.
    pub fn reloads(&mut self) {
        if matches!(self.state, State::Serving { .. }) {
            self.state = State::Reloading;
            // systemd wants to know since when, to tell this reload from an earlier one.
            match NotifyState::monotonic_usec_now() {
                Ok(since) => self.tell(&[NotifyState::Reloading, since]),
                Err(why) => debug!("the time is not known: {why}"),
            }
        }
    }

    /// The server ends.
    pub fn stops(&mut self) {
        if self.state != State::Stopping {
            self.state = State::Stopping;
            self.tell(&[NotifyState::Stopping]);
        }
    }

    fn serves(&mut self, now: Moment) {
        let first = self.state == State::Starting;
        let next = (self.listens && !self.interval.is_zero()).then(|| now + self.interval);
        self.state = State::Serving { next };
        let pid = NotifyState::MainPid(std::process::id());
        self.tell(&[NotifyState::Ready, NotifyState::Status(READY), pid]);
        if !first || !self.speaks {
            return;
        }
        if self.has_watchdog {
            let seconds = self.interval.as_secs_f64();
            info!(target: "fpm", "systemd watchdog configured to {seconds:.3}sec");
        }
        match self.interval.as_millis() {
            0 => info!(target: "fpm", "systemd monitor disabled"),
            millis => info!(target: "fpm", "systemd monitor interval set to {millis}ms"),
        }
    }

    fn report(&mut self, figures: &Figures, now: Moment) {
        let status = status(figures, self.requests, self.interval);
        self.requests = figures.requests;
        let next = (!self.interval.is_zero()).then(|| now + self.interval);
        self.state = State::Serving { next };
        let mut told = vec![NotifyState::Ready, NotifyState::Status(&status)];
        if self.has_watchdog {
            told.push(NotifyState::Watchdog);
        }
        self.tell(&told);
    }

    fn tell(&self, told: &[NotifyState<'_>]) {
        if !self.listens {
            return;
        }
        if let Err(why) = sd_notify::notify(told) {
            debug!("systemd was not told {told:?}: {why}");
        }
    }
}

impl Supervisor {
    /// Tells systemd what has changed, and how the server is if that is due.
    pub(crate) fn tell_systemd(&mut self) {
        if !self.phase.is_serving() {
            return;
        }
        let now = self.now();
        match self.systemd.state {
            State::Starting => self.systemd.serves(now),
            State::Reloading if !self.reloads.is_going_on() && self.upgrade.is_none() => {
                self.systemd.serves(now);
            }
            State::Serving { next: Some(next) } if next <= now => {
                let figures = self.figures();
                self.systemd.report(&figures, now);
            }
            State::Serving { .. } | State::Reloading | State::Stopping => {}
        }
    }

    fn figures(&self) -> Figures {
        let mut all = Figures::default();
        for page in self.scores.pages() {
            let reading = page.read();
            all.active += reading.busy;
            all.idle += reading.seated.saturating_sub(reading.busy);
            all.requests += reading.outcomes.iter().sum::<u64>();
        }
        for running in &self.pools {
            if let Ok(boards) = Boards::map(&running.plan.memory) {
                // Its workers can write anything there.
                let slow = boards.pool().slow.load(Ordering::Relaxed);
                all.slow = all.slow.saturating_add(slow);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Duration = Duration::from_secs(10);

    #[test]
    fn a_watchdog_is_told_twice_as_often_as_it_asks_for() {
        assert_eq!(interval(None, TEN), (TEN, false));
        let (often, has) = interval(Some("6000000"), TEN);
        assert_eq!((often, has), (Duration::from_secs(3), true));
        assert_eq!(interval(Some("2000000"), TEN), (TEN, false), "too often");
        assert_eq!(
            interval(Some("soon"), Duration::ZERO),
            (Duration::ZERO, false)
        );
    }

    #[test]
    fn the_status_is_worded_as_php_fpm_words_it() {
        let now = Figures {
            active: 2,
            idle: 3,
            requests: 125,
            slow: 1,
        };
        assert_eq!(
            status(&now, 100, TEN),
            "Processes active: 2, idle: 3, Requests: 125, slow: 1, Traffic: 2.50req/sec"
        );
        assert!(status(&now, 200, Duration::ZERO).ends_with("Traffic: 0.00req/sec"));
    }
}
