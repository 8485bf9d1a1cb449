//! A pool's zygote: its process, and the reports that are due from it.

use std::os::fd::BorrowedFd;

use maitred_control::{FromZygote, ToZygote};
use maitred_os::channel::REPORT_BUFFER_BYTES;

use super::due_reports::DueReports;
use super::opcache_stats::OpcacheStats;
use crate::limits::Moment;
use crate::peer::Peer;

/// A pool's zygote.
#[derive(Debug)]
pub struct Zygote {
    /// The process.
    pub peer: Peer<ToZygote>,
    /// When it was reaped. Its last intermediate process may still report for it.
    pub reaped: Option<Moment>,
    /// What it has reported of its OPcache.
    pub opcache: OpcacheStats,
    due: DueReports,
    /// Bytes of reports that may be read in this turn, as a sum over all turns.
    readable: u64,
}

/// What was read from a zygote.
#[derive(Debug)]
pub enum Heard {
    /// A report.
    Report(FromZygote),
    /// A report that was not due. No more is read from it: it has to be killed.
    Unrequested,
    /// Nothing now.
    Nothing,
}

impl Zygote {
    /// A process that is being started.
    pub fn new(peer: Peer<ToZygote>) -> Zygote {
        Zygote::with(peer, DueReports::of_new())
    }

    /// One with this number of seats that the former program has started.
    pub fn inherited(peer: Peer<ToZygote>, seats: u32) -> Zygote {
        Zygote::with(peer, DueReports::of_inherited(seats))
    }

    fn with(peer: Peer<ToZygote>, due: DueReports) -> Zygote {
        Zygote { peer, reaped: None, opcache: OpcacheStats::default(), due, readable: 0 }
    }

    /// Sends an order, as [`Peer::say`].
    pub fn say(&mut self, order: ToZygote, fds: &[BorrowedFd<'_>]) {
        self.due.ordered(&order);
        self.peer.say(order, fds);
    }

    /// A turn begins: as much is read in it as its buffer holds. So no announcement stays behind
    /// the death of its worker, and no flood holds the supervisor.
    pub fn begin_turn(&mut self) {
        self.readable = self.peer.received_bytes().saturating_add(REPORT_BUFFER_BYTES as u64);
    }

    /// Reads the next report of this turn.
    pub fn hear(&mut self) -> Heard {
        if self.peer.is_closed() || self.peer.received_bytes() >= self.readable {
            return Heard::Nothing;
        }
        self.peer.flush();
        match self.peer.hear::<FromZygote>() {
            None => Heard::Nothing,
            Some(report) if self.due.take(&report) => Heard::Report(report),
            Some(_) => {
                self.peer.hear_no_more();
                Heard::Unrequested
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use maitred_control::{WorkerId, say_waiting};
    use maitred_os::channel::Channel;

    use super::*;

    const WORKER: WorkerId = WorkerId { seat: 0, incarnation: 1 };

    fn zygote() -> (Zygote, Channel) {
        let (ours, theirs) = Channel::pair_with_tenant().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        (Zygote::new(Peer::over(own, ours).unwrap()), theirs)
    }

    #[test]
    fn a_report_that_was_not_due_is_the_last_that_is_read() {
        let (mut zygote, theirs) = zygote();
        let booted = FromZygote::Booted { worker: WORKER };
        let forked = FromZygote::ForkFailed { worker: WORKER, why: String::new() };
        zygote.say(ToZygote::FillSeat { worker: WORKER }, &[]);
        for report in [&booted, &forked, &forked, &forked] {
            say_waiting(theirs.reports(), report).unwrap();
        }
        zygote.begin_turn();
        assert!(matches!(zygote.hear(), Heard::Report(report) if report == booted));
        assert!(matches!(zygote.hear(), Heard::Report(report) if report == forked));
        assert!(!zygote.peer.is_closed());
        assert!(matches!(zygote.hear(), Heard::Unrequested));
        assert!(matches!(zygote.hear(), Heard::Nothing) && zygote.peer.is_closed());
    }

    #[test]
    fn in_a_turn_no_more_is_read_than_the_buffer_holds() {
        let (mut zygote, theirs) = zygote();
        zygote.due = DueReports::of_inherited(u32::MAX);
        let failed = FromZygote::ForkFailed { worker: WORKER, why: "x".repeat(2000) };
        let mut turns = Vec::new();
        for _ in 0..2 {
            zygote.begin_turn();
            let mut reports = 0;
            loop {
                // One more for each that is read.
                while say(&theirs, &failed) {}
                match zygote.hear() {
                    Heard::Report(_) => reports += 1,
                    Heard::Nothing => break,
                    Heard::Unrequested => panic!("it is due"),
                }
            }
            turns.push(reports);
        }
        let most = REPORT_BUFFER_BYTES / 2000 + 1;
        assert!(turns.iter().all(|reports| (1..=most).contains(reports)), "{turns:?}");
    }

    /// False if the buffer is full.
    fn say(to: &Channel, report: &FromZygote) -> bool {
        to.reports().send(&serde_json::to_vec(report).unwrap()).is_ok()
    }
}
