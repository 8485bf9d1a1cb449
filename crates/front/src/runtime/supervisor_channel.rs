//! The front's end of the control channel.
//!
//! The front never waits for the supervisor: while the pipe is full, reports that must arrive
//! ([`FromFront::must_arrive`]) wait here, in order, and are sent again.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use maitred_control::{FromFront, Received, ToFront, hear};
use maitred_os::channel::Channel;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

/// Most bytes of reports that wait for space in the pipe.
const MAX_UNSENT_BYTES: usize = 2 * 1024 * 1024;
/// Purges, of which clients can cause any number, leave the rest of it to other reports.
const MAX_UNSENT_BYTES_OF_PURGES: usize = 1024 * 1024;
/// Interval at which waiting reports are sent again.
const RESEND_INTERVAL: Duration = Duration::from_millis(100);
/// Least time between two log lines about lost reports.
const LOSS_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The supervisor's side of the channel.
#[derive(Debug)]
pub struct Supervisor {
    channel: Channel,
    unsent: Mutex<Unsent>,
    has_unsent: Notify,
    /// The time of the last log line about a lost report.
    logged_loss: Mutex<Option<Instant>>,
}

/// Reports that wait for space in the pipe, as JSON, the oldest first.
#[derive(Debug, Default)]
struct Unsent {
    reports: VecDeque<Vec<u8>>,
    bytes: usize,
    /// One of them has left the queue to be sent again.
    is_sending: bool,
}

impl Unsent {
    /// Adds a report, if there is space for it.
    fn push(&mut self, report: &FromFront, json: Vec<u8>) -> bool {
        let limit = match report {
            FromFront::PagesDropped { .. } => MAX_UNSENT_BYTES_OF_PURGES,
            _ => MAX_UNSENT_BYTES,
        };
        let fits = self.bytes + json.len() <= limit;
        if fits {
            self.bytes += json.len();
            self.reports.push_back(json);
        }
        fits
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let json = self.reports.pop_front();
        self.is_sending = json.is_some();
        let json = json?;
        self.bytes -= json.len();
        Some(json)
    }

    /// Whether none waits, or is about to be sent.
    fn is_empty(&self) -> bool {
        self.reports.is_empty() && !self.is_sending
    }

    fn put_back(&mut self, json: Vec<u8>) {
        self.is_sending = false;
        self.bytes += json.len();
        self.reports.push_front(json);
    }
}

impl Supervisor {
    /// Wraps the channel to the supervisor.
    pub fn new(channel: Channel) -> Supervisor {
        Supervisor {
            channel,
            unsent: Mutex::default(),
            has_unsent: Notify::new(),
            logged_loss: Mutex::default(),
        }
    }

    /// The channel, to wait on.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Sends a report, or leaves one that must arrive to [`Supervisor::resend`] while the pipe is
    /// full. False if it is lost, which is logged once in [`LOSS_LOG_INTERVAL`].
    pub fn report(&self, report: &FromFront) -> bool {
        let accepted = serde_json::to_vec(report).map_err(io::Error::from);
        let accepted = accepted.and_then(|json| self.send_or_queue(report, json));
        if let Err(error) = &accepted
            && self.may_log_loss(Instant::now())
        {
            tracing::warn!("the supervisor did not take a report: {error}");
        }
        accepted.is_ok()
    }

    /// Whether a lost report is logged at this time. Clients cause reports, and any number may be
    /// lost while the supervisor does not read.
    fn may_log_loss(&self, now: Instant) -> bool {
        let mut last = self.logged_loss.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.duration_since(last) >= LOSS_LOG_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }

    fn send_or_queue(&self, report: &FromFront, json: Vec<u8>) -> io::Result<()> {
        // One that must arrive does not overtake those before it.
        let is_behind = report.must_arrive() && !self.unsent().is_empty();
        let sent = match is_behind {
            true => Err(ErrorKind::WouldBlock.into()),
            false => self.channel.reports().send(&json),
        };
        match sent {
            Err(error) if error.kind() == ErrorKind::WouldBlock && report.must_arrive() => {
                let is_queued = self.unsent().push(report, json);
                self.has_unsent.notify_one();
                if !is_behind && is_queued {
                    tracing::warn!(
                        "the supervisor did not take a report: {error}; it is sent again until the \
                         supervisor reads"
                    );
                }
                if is_queued { Ok(()) } else { Err(error) }
            }
            sent => sent,
        }
    }

    /// Sends waiting reports again as soon as the supervisor reads. Runs until it is dropped.
    pub async fn resend(&self) {
        loop {
            self.has_unsent.notified().await;
            while !self.send_unsent() {
                tokio::time::sleep(RESEND_INTERVAL).await;
            }
        }
    }

    /// Sends waiting reports. False if some still wait.
    fn send_unsent(&self) -> bool {
        loop {
            // Other threads may add reports while this one is sent.
            let Some(json) = self.unsent().pop() else {
                return true;
            };
            match self.channel.reports().send(&json) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.unsent().put_back(json);
                    return false;
                }
                Err(error) => tracing::warn!("the supervisor did not take a report: {error}"),
            }
        }
    }

    /// Sends the last report of this process, after those that wait. It waits for space: the
    /// supervisor reads, or ends the front.
    pub fn report_last(&self, report: &FromFront) {
        let last = serde_json::to_vec(report).ok();
        let waiting = std::iter::from_fn(|| self.unsent().pop());
        for json in waiting.chain(last) {
            if let Err(error) = self.channel.reports().send_waiting(&json) {
                return tracing::warn!("the supervisor did not take a report: {error}");
            }
        }
    }

    fn unsent(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives the next command.
    ///
    /// # Errors
    /// When the message is invalid.
    pub fn order(&self, wait: bool) -> io::Result<Received<ToFront>> {
        hear(&self.channel, wait)
    }
}

/// Reads a JSON value from a received file, which is used for values that exceed a message.
///
/// # Errors
/// When the file cannot be read, or is invalid.
pub fn read_json<T: DeserializeOwned>(file: OwnedFd) -> io::Result<T> {
    // A parser on the file itself reads one byte per system call.
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Replaces the contents of a received file with a value as JSON.
///
/// # Errors
/// When there is no file, or it cannot be written.
pub fn write_json(file: Option<OwnedFd>, what: &impl Serialize) -> io::Result<()> {
    let file =
        file.ok_or_else(|| io::Error::other("the front's limit of open files is reached"))?;
    let mut file = File::from(file);
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(what)?)
}

#[cfg(test)]
mod tests {
    use maitred_control::hear_report;
    use maitred_control::purge::DroppedPages;
    use maitred_os::channel::SupervisorEnd;
    use maitred_pagecache::purge::{Purge, PurgeMode};

    use super::*;

    /// A front whose pipe is full, and the other end.
    fn with_full_pipe() -> (Supervisor, SupervisorEnd) {
        let (theirs, ours) = Channel::pair().unwrap();
        let supervisor = Supervisor::new(ours);
        while supervisor.report(&FromFront::Alive) {}
        (supervisor, theirs)
    }

    /// What has arrived, without the reports that filled the pipe.
    fn arrived(end: &mut SupervisorEnd) -> Vec<FromFront> {
        let mut reports = Vec::new();
        while let Ok(Received::Message(report, _)) = hear_report(end) {
            reports.push(report);
        }
        reports.retain(|report| *report != FromFront::Alive);
        reports
    }

    fn purge(mark: u64) -> FromFront {
        let tag = Purge::Tag("t".repeat(3000));
        let one = DroppedPages { site: "shop".to_owned(), purge: tag, how: PurgeMode::Hard };
        FromFront::PagesDropped { dropped: vec![one], mark, awaits_nodes: true, by_method: false }
    }

    #[tokio::test(start_paused = true)]
    async fn reports_that_must_arrive_wait_for_space_and_stay_in_order() {
        let (supervisor, mut end) = with_full_pipe();
        let sent = [
            FromFront::Reconfigured { refused: None },
            FromFront::Settled { mark: 1 },
            purge(7),
            FromFront::StatsWritten,
        ];
        assert!(sent.iter().all(|report| supervisor.report(report)));
        assert!(!supervisor.send_unsent() && arrived(&mut end).is_empty());
        // There is space now, but this one came later.
        let last = FromFront::Settled { mark: 2 };
        assert!(supervisor.report(&last));
        let seen = tokio::time::timeout(Duration::from_secs(1), supervisor.resend()).await;
        assert!(seen.is_err());
        assert_eq!(arrived(&mut end), [&sent[..], &[last]].concat());
    }

    #[test]
    fn waiting_reports_have_a_limit_and_purges_leave_space_for_others() {
        let (supervisor, _end) = with_full_pipe();
        let accepted = (0..).take_while(|mark| supervisor.report(&purge(*mark))).count();
        assert!((300..350).contains(&accepted), "{accepted}");
        assert!(supervisor.report(&FromFront::Reconfigured { refused: None }));
        let refused = FromFront::Reconfigured { refused: Some("r".repeat(60_000)) };
        let accepted = (0..100).take_while(|_| supervisor.report(&refused)).count();
        assert!((16..18).contains(&accepted), "{accepted}");
        // Nothing is counted that does not wait any more.
        while supervisor.unsent().pop().is_some() {}
        assert!(supervisor.report(&purge(1)));
    }

    #[test]
    fn a_report_that_is_too_long_never_waits() {
        let (supervisor, _end) = with_full_pipe();
        let refused = FromFront::Reconfigured { refused: Some("r".repeat(70_000)) };
        assert!(!supervisor.report(&refused));
        assert!(supervisor.send_unsent());
    }

    #[test]
    fn lost_reports_are_logged_once_in_a_while() {
        let (_theirs, ours) = Channel::pair().unwrap();
        let supervisor = Supervisor::new(ours);
        let begun = Instant::now();
        let logged = (0..100).map(|number| begun + LOSS_LOG_INTERVAL * number / 50);
        assert_eq!(logged.filter(|now| supervisor.may_log_loss(*now)).count(), 2);
    }

    #[test]
    fn the_last_report_of_a_front_follows_those_that_wait() {
        let (supervisor, mut end) = with_full_pipe();
        assert!(supervisor.report(&FromFront::Settled { mark: 1 }));
        let ends = std::thread::spawn(move || supervisor.report_last(&FromFront::Drained));
        let mut all = Vec::new();
        while !ends.is_finished() {
            all.extend(arrived(&mut end));
            std::thread::yield_now();
        }
        all.extend(arrived(&mut end));
        assert_eq!(all, [FromFront::Settled { mark: 1 }, FromFront::Drained]);
    }
}
