//! Notifications of systemd (sd_notify(3)): that the server serves, reloads or stops, its
//! statistics, and that it is alive. Without `NOTIFY_SOCKET`, nothing is sent, and nothing is due.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_config::fpm::Fpm;
use maitred_seat::Boards;
use sd_notify::NotifyState;
use serde::{Deserialize, Serialize};
use tracing::{debug, info};

use crate::limits::Moment;
use crate::processes::pools::Pools;
use crate::processes::scoreboards::Scoreboards;

/// systemd's socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The watchdog timeout, in microseconds.
const WATCHDOG: &str = "WATCHDOG_USEC";

/// php-fpm uses a watchdog whose half is longer than this.
const WATCHDOG_MIN: Duration = Duration::from_secs(1);

/// Default interval of the statistics (`systemd_interval`).
const INTERVAL: Duration = Duration::from_secs(10);

/// Longest wait for space in systemd's queue, which any local user can fill.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// When what found no space is sent again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The first status, as php-fpm words it.
const READY: &str = "Ready to handle connections";

/// What was sent to systemd, and when more is due.
#[derive(Debug)]
pub struct Systemd {
    /// systemd's socket, if it listens.
    socket: Option<OsString>,
    /// Log lines are php-fpm's.
    speaks: bool,
    /// Interval of the statistics; zero is never.
    interval: Duration,
    has_watchdog: bool,
    notified: SystemdState,
}

/// What systemd knows, which stays true when another program takes over in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemdState {
    state: ServiceState,
    /// When the next notification is due.
    next: Option<Moment>,
    /// When the notification of the state, which found no space, is sent again.
    #[serde(default)]
    resend: Option<Moment>,
    /// Requests at the last report.
    requests: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum ServiceState {
    Starting,
    /// A program that hands over is serving, though an earlier version did not write that down.
    #[default]
    Serving,
    Reloading,
    Stopping,
}

/// Statistics over all pools.
#[derive(Debug, Default, Clone, Copy)]
pub struct ServerStats {
    active: u64,
    idle: u64,
    requests: u64,
    slow: u64,
}

/// Interval, and whether a watchdog depends on it; as php-fpm's `fpm_systemd_conf`.
fn interval(watchdog: Option<&str>, configured: Duration) -> (Duration, bool) {
    let half = watchdog.and_then(|text| text.parse::<u64>().ok());
    let half = Duration::from_micros(half.unwrap_or(0) / 2);
    match half > WATCHDOG_MIN {
        true => (half, true),
        false => (configured, false),
    }
}

/// As php-fpm words it.
fn status(now: &ServerStats, before: u64, interval: Duration) -> String {
    let new = now.requests.saturating_sub(before) as f64;
    let traffic = new / interval.as_secs_f64().max(f64::MIN_POSITIVE);
    format!(
        "Processes active: {}, idle: {}, Requests: {}, slow: {}, Traffic: {traffic:.2}req/sec",
        now.active, now.idle, now.requests, now.slow
    )
}

impl Systemd {
    /// As environment and configuration say.
    pub fn found(fpm: Option<&Fpm>) -> Systemd {
        let configured = fpm.map_or(INTERVAL, |fpm| fpm.systemd_interval);
        let watchdog = std::env::var(WATCHDOG).ok();
        let (interval, has_watchdog) = interval(watchdog.as_deref(), configured);
        Systemd {
            socket: std::env::var_os(SOCKET),
            speaks: fpm.is_some(),
            interval,
            has_watchdog,
            notified: SystemdState { state: ServiceState::Starting, ..SystemdState::default() },
        }
    }

    /// The state for a program that takes over.
    pub fn notified(&self) -> SystemdState {
        self.notified
    }

    /// Resumes from the state of the previous program.
    pub fn go_on(&mut self, notified: SystemdState, now: Moment) {
        self.notified = notified;
        let next = notified.next.unwrap_or(now);
        self.notified.next = self.after(now).map(|last| last.min(next));
    }

    /// When the next notification is due.
    pub fn deadline(&self) -> Option<Moment> {
        self.report_at().into_iter().chain(self.notified.resend).min()
    }

    /// When the next statistics are due. The watchdog continues during a reload, but not when the
    /// server ends.
    fn report_at(&self) -> Option<Moment> {
        match self.notified.state {
            ServiceState::Serving | ServiceState::Reloading => self.notified.next,
            ServiceState::Starting | ServiceState::Stopping => None,
        }
    }

    /// When the next notification is due after one at `now`; none: never.
    fn after(&self, now: Moment) -> Option<Moment> {
        (self.socket.is_some() && !self.interval.is_zero()).then(|| now + self.interval)
    }

    /// Another configuration is in use.
    pub fn follow(&mut self, fpm: Option<&Fpm>, now: Moment) {
        let new = Systemd::found(fpm);
        if self.interval != new.interval {
            (self.interval, self.has_watchdog) = (new.interval, new.has_watchdog);
            self.notified.next = self.after(now);
        }
    }

    /// A reload starts. Whatever its outcome, [`Systemd::keep`] reports when it is over.
    pub fn reloads(&mut self, now: Moment) {
        if matches!(self.notified.state, ServiceState::Serving | ServiceState::Reloading) {
            self.notified.state = ServiceState::Reloading;
            self.send_state(now);
        }
    }

    /// Notifies systemd of what has changed while the server serves, and of the statistics if that
    /// is due. `is_settled`: neither a reload nor an upgrade is going on.
    pub fn keep(&mut self, is_settled: bool, stats: impl FnOnce() -> ServerStats, now: Moment) {
        self.resend(now);
        // systemd waits for a reload's start before its end.
        let is_reload_known = self.notified.resend.is_none();
        match self.notified.state {
            ServiceState::Starting => self.serves(now),
            ServiceState::Reloading if is_settled && is_reload_known => self.serves(now),
            ServiceState::Serving | ServiceState::Reloading | ServiceState::Stopping => {}
        }
        if self.report_at().is_some_and(|due| due <= now) {
            self.report(&stats(), now);
        }
    }

    /// The server ends.
    pub fn stops(&mut self, now: Moment) {
        if self.notified.state != ServiceState::Stopping {
            self.notified.state = ServiceState::Stopping;
            self.send_state(now);
        }
    }

    /// Sends the notification of the state again, if it found no space and that is due.
    pub fn resend(&mut self, now: Moment) {
        if self.notified.resend.is_some_and(|due| due <= now) {
            self.send_state(now);
        }
    }

    /// Notifies systemd of the state, now or, where there is no space, later.
    fn send_state(&mut self, now: Moment) {
        let is_sent = match self.notified.state {
            ServiceState::Starting => true,
            ServiceState::Serving => {
                let pid = NotifyState::MainPid(std::process::id());
                self.notify(&[NotifyState::Ready, NotifyState::Status(READY), pid])
            }
            // systemd needs the time, to distinguish this reload from an earlier one.
            ServiceState::Reloading => match NotifyState::monotonic_usec_now() {
                Ok(since) => self.notify(&[NotifyState::Reloading, since]),
                Err(why) => {
                    debug!("the time is not known: {why}");
                    true
                }
            },
            ServiceState::Stopping => self.notify(&[NotifyState::Stopping]),
        };
        self.notified.resend = (!is_sent).then(|| now + RETRY_AFTER);
    }

    /// The server serves, for the first time or after a reload, which does not delay what is due.
    fn serves(&mut self, now: Moment) {
        let first = self.notified.state == ServiceState::Starting;
        self.notified.state = ServiceState::Serving;
        self.notified.next = self.notified.next.or_else(|| self.after(now));
        self.send_state(now);
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

    /// Sends the statistics. READY=1 would end a reload that is going on.
    fn report(&mut self, figures: &ServerStats, now: Moment) {
        let status = status(figures, self.notified.requests, self.interval);
        self.notified.requests = figures.requests;
        self.notified.next = self.after(now);
        let mut notified = vec![NotifyState::Status(&status)];
        if self.notified.state == ServiceState::Serving {
            notified.insert(0, NotifyState::Ready);
        }
        if self.has_watchdog {
            notified.push(NotifyState::Watchdog);
        }
        if !self.notify(&notified) {
            self.notified.next = Some(now + RETRY_AFTER);
        }
    }

    /// False if there was no space.
    fn notify(&self, notified: &[NotifyState<'_>]) -> bool {
        let Some(socket) = &self.socket else {
            return true;
        };
        let sent = send(socket, notified);
        if let Err(why) = &sent {
            debug!("systemd was not notified {notified:?}: {why}");
        }
        !sent.is_err_and(|why| why.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Sends a notification to a socket, whose name is abstract after an `@`.
fn send(socket: &OsStr, notified: &[NotifyState<'_>]) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let mut message = String::new();
    for state in notified {
        writeln!(message, "{state}").map_err(io::Error::other)?;
    }
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(SEND_TIMEOUT))?;
    sender.connect_addr(&address)?;
    sender.send(message.as_bytes()).map(drop)
}

impl ServerStats {
    /// The sums over all pools.
    pub fn of(scoreboards: &Scoreboards, pools: &Pools) -> ServerStats {
        let mut all = ServerStats::default();
        for page in scoreboards.pages() {
            let reading = page.read();
            all.active += reading.busy;
            all.idle += reading.seated.saturating_sub(reading.busy);
            all.requests += reading.outcomes.iter().sum::<u64>();
        }
        for running in pools {
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
        assert_eq!(interval(Some("soon"), Duration::ZERO), (Duration::ZERO, false));
    }

    fn listened() -> Systemd {
        Systemd {
            // Nothing listens at this name.
            socket: Some("@maitred-no-systemd".into()),
            speaks: false,
            interval: TEN,
            has_watchdog: true,
            notified: SystemdState::default(),
        }
    }

    #[test]
    fn no_reader_of_systemds_socket_is_waited_for_whatever_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("maitred-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}").into()),
        ];
        for (reader, socket) in sockets {
            let mut sent = 0;
            let full = loop {
                match send(&socket, &[NotifyState::Ready, NotifyState::Status(READY)]) {
                    Ok(()) => sent += 1,
                    Err(why) => break why,
                }
            };
            assert!(sent > 0 && full.kind() == io::ErrorKind::WouldBlock, "{full}");
            let mut bytes = [0; 64];
            let length = reader.recv(&mut bytes).unwrap();
            let expected = format!("READY=1\nSTATUS={READY}\n");
            assert_eq!(String::from_utf8_lossy(&bytes[..length]), expected);
            send(&socket, &[NotifyState::Stopping]).unwrap();
        }
    }

    #[test]
    fn a_state_that_finds_no_space_in_systemds_queue_is_sent_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let reader = UnixDatagram::bind(&path).unwrap();
        reader.set_nonblocking(true).unwrap();
        type StateChange = fn(&mut Systemd);
        let steps: [(StateChange, &str); 3] = [
            (|systemd| systemd.serves(TEN), "READY=1\n"),
            (|systemd| systemd.reloads(TEN), "RELOADING=1\n"),
            (|systemd| systemd.stops(TEN), "STOPPING=1\n"),
        ];
        let mut systemd = Systemd { interval: Duration::ZERO, ..listened() };
        systemd.socket = Some(path.clone().into_os_string());
        for (step, expected) in steps {
            while send(path.as_os_str(), &[NotifyState::Status("other")]).is_ok() {}
            step(&mut systemd);
            let due = TEN + RETRY_AFTER;
            assert_eq!(systemd.deadline(), Some(due), "{expected}");
            let mut bytes = [0; 256];
            while reader.recv(&mut bytes).is_ok() {}
            systemd.resend(TEN);
            assert_eq!(systemd.deadline(), Some(due), "it is not due");
            systemd.resend(due);
            let length = reader.recv(&mut bytes).unwrap();
            let sent = String::from_utf8_lossy(&bytes[..length]);
            assert!(sent.starts_with(expected), "{sent}");
            assert_eq!(systemd.deadline(), None);
        }
    }

    #[test]
    fn a_reload_that_was_not_sent_ends_for_systemd_after_it_has_begun() {
        let mut systemd = listened();
        systemd.reloads(TEN);
        systemd.notified.resend = Some(TEN + RETRY_AFTER);
        systemd.keep(true, ServerStats::default, TEN);
        assert_eq!(systemd.notified.state, ServiceState::Reloading);
        systemd.keep(true, ServerStats::default, TEN + RETRY_AFTER);
        assert_eq!(systemd.notified.state, ServiceState::Serving);
    }

    #[test]
    fn no_reload_puts_off_what_is_due() {
        let mut systemd = listened();
        systemd.notified.state = ServiceState::Starting;
        assert_eq!(systemd.deadline(), None);
        systemd.serves(TEN);
        for second in 11..19 {
            systemd.reloads(TEN);
            assert_eq!(systemd.deadline(), Some(TEN * 2), "a watchdog waits");
            systemd.serves(Duration::from_secs(second));
        }
        assert_eq!(systemd.deadline(), Some(TEN * 2));
        systemd.report(&ServerStats::default(), TEN * 2);
        assert_eq!(systemd.deadline(), Some(TEN * 3));
        systemd.stops(TEN);
        assert_eq!(systemd.deadline(), None);
    }

    #[test]
    fn who_takes_over_goes_on_where_the_program_before_was() {
        let mut before = listened();
        before.serves(TEN);
        before.reloads(TEN);
        let notified = serde_json::to_string(&before.notified()).unwrap();
        let mut after = listened();
        after.go_on(serde_json::from_str(&notified).unwrap(), Duration::from_secs(12));
        assert_eq!(after.notified(), before.notified());
        // One that wrote nothing down served, and may have been silent for long.
        after.go_on(SystemdState::default(), TEN);
        assert_eq!((after.notified.state, after.deadline()), (ServiceState::Serving, Some(TEN)));
    }

    #[test]
    fn the_status_is_worded_as_php_fpm_words_it() {
        let now = ServerStats { active: 2, idle: 3, requests: 125, slow: 1 };
        assert_eq!(
            status(&now, 100, TEN),
            "Processes active: 2, idle: 3, Requests: 125, slow: 1, Traffic: 2.50req/sec"
        );
        assert!(status(&now, 200, Duration::ZERO).ends_with("Traffic: 0.00req/sec"));
    }
}
