//! A process of ours that we talk with: the front or a zygote.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use maitred_control::{Heard, hear_report, order};
use maitred_os::channel::{Channel, SupervisorEnd, Taken};
use maitred_os::signals::{self, Signal};
use maitred_os::spawn::{self, Program};
use rustix::event::{PollFd, PollFlags};
use serde::{Serialize, de::DeserializeOwned};
use tracing::error;

use crate::limits::OUTBOX_MESSAGES;

/// A child that gets orders `Out`.
#[derive(Debug)]
pub struct Peer<Out> {
    pid: i32,
    pidfd: OwnedFd,
    channel: SupervisorEnd,
    /// What did not fit into the channel yet.
    outbox: VecDeque<(Out, Vec<OwnedFd>)>,
    closed: bool,
}

impl<Out: Serialize> Peer<Out> {
    /// Starts `program`, which inherits one end of a new channel and nothing else.
    ///
    /// # Errors
    /// When the program cannot be executed or the system is out of something.
    pub fn start(program: &Program<'_>) -> io::Result<Peer<Out>> {
        let (ours, theirs) = Channel::pair()?;
        let pid = spawn::start(&Program {
            inherit: &theirs.descriptors(),
            ..*program
        })?;
        let pidfd = signals::pidfd(pid)?;
        Ok(Peer {
            pid,
            pidfd,
            channel: ours,
            outbox: VecDeque::new(),
            closed: false,
        })
    }

    /// A child that is talked with already, over `channel`.
    ///
    /// # Errors
    /// When it has gone and was reaped, or no descriptor is left.
    pub fn over(pid: i32, channel: SupervisorEnd) -> io::Result<Peer<Out>> {
        Ok(Peer {
            pid,
            pidfd: signals::pidfd(pid)?,
            channel,
            outbox: VecDeque::new(),
            closed: false,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Gives an order, now or when there is room in the channel. A process that has gone gets
    /// none; one that does not read for too long is killed.
    pub fn say(&mut self, order: Out, fds: &[BorrowedFd<'_>]) {
        if let Err(why) = self.try_say(order, fds) {
            self.give_up(&why);
        }
    }

    fn try_say(&mut self, said: Out, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if self.outbox.is_empty() {
            match order(&self.channel, &said, fds) {
                Err(full) if full.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
        if self.outbox.len() >= OUTBOX_MESSAGES {
            return Err(io::Error::other("it does not read its orders"));
        }
        let fds: io::Result<Vec<OwnedFd>> =
            fds.iter().map(BorrowedFd::try_clone_to_owned).collect();
        self.outbox.push_back((said, fds?));
        Ok(())
    }

    /// Gives the orders that wait, as far as there is room.
    pub fn flush(&mut self) {
        while let Some((said, fds)) = self.outbox.front() {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match order(&self.channel, said, &fds) {
                Err(full) if full.kind() == io::ErrorKind::WouldBlock => return,
                Err(why) => return self.give_up(&why),
                Ok(()) => {}
            }
            self.outbox.pop_front();
        }
    }

    /// Takes the next report, if there is one. None also when the other end has gone or does not
    /// keep to the language.
    pub fn hear<In: DeserializeOwned>(&mut self) -> Option<In> {
        match hear_report(&mut self.channel) {
            Ok(Heard::Message(report, _)) => return Some(report),
            Ok(Heard::Nothing) => {}
            Ok(Heard::Closed) => self.closed = true,
            Err(why) => {
                self.closed = true;
                self.give_up(&why);
            }
        }
        None
    }

    /// Whether nothing will ever be heard again.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Sends it a signal. A failure means that it has gone.
    pub fn signal(&self, signal: Signal) {
        let _ = signals::send_to(self.pidfd.as_fd(), signal);
    }

    fn give_up(&mut self, why: &io::Error) {
        self.outbox.clear();
        // Whoever closed its end is ending, and how is told when it has ended.
        if why.kind() != io::ErrorKind::BrokenPipe && why.kind() != io::ErrorKind::ConnectionReset {
            error!("process {} is killed: {why}", self.pid);
            self.signal(Signal::SIGKILL);
        }
    }
}

impl<Out> Peer<Out> {
    /// What to wait for: a report, and room for orders if some wait for it.
    pub fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let report = PollFd::from_borrowed_fd(self.channel.reports(), PollFlags::IN);
        // Nobody waits for the socket otherwise: that its other end has gone would be told each
        // time.
        let room = self
            .is_behind()
            .then(|| PollFd::from_borrowed_fd(self.channel.orders(), PollFlags::OUT));
        std::iter::once(report).chain(room)
    }

    /// Whether any of [`Peer::interests`] has come, each of which `next` tells.
    pub fn is_ready(&self, mut next: impl FnMut() -> bool) -> bool {
        let (spoke, has_room) = (next(), self.is_behind() && next());
        spoke || has_room
    }

    /// Whether orders wait for room in the channel.
    pub fn is_behind(&self) -> bool {
        !self.outbox.is_empty() && !self.closed
    }

    /// The descriptors of orders and of reports, and what was taken from those.
    pub fn channel(&self) -> (RawFd, RawFd, &Taken) {
        let (orders, reports) = (self.channel.orders(), self.channel.reports());
        let taken = self.channel.taken();
        (orders.as_raw_fd(), reports.as_raw_fd(), taken)
    }
}
