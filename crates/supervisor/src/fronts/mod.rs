//! The front processes, and the state that they share through the supervisor.

pub mod cookies;
pub mod front_stats;
pub mod introduce;
pub mod liveness;
pub mod log_manager;
pub mod purge_log;
pub mod purges;
pub mod site_budgets;
pub mod unconfirmed_purges;

use std::os::fd::BorrowedFd;

use maitred_control::ToFront;
use maitred_os::signals::Signal;
use tracing::warn;

use crate::fronts::liveness::{Liveness, ThreadStack};
use crate::limits::{DRAIN, FRONT_START, Moment};
use crate::peer::Peer;
use crate::processes::life::Life;

/// A front that accepts clients, or is being started to do so.
#[derive(Debug)]
pub struct Front {
    /// Its start, its end and its restarts.
    pub life: Life,
    /// A front and those that are started after its death are one line; each upgrade starts
    /// another. Every generation of a pool belongs to one line.
    pub line: u32,
    /// Number of this front.
    pub epoch: u32,
    /// The process, if it runs.
    pub peer: Option<Peer<ToFront>>,
    /// No request is in flight any more.
    pub drained: bool,
    /// Its signs of life, once this program has started it and it accepts clients. One of an
    /// earlier program may not know the command.
    pub liveness: Option<Liveness>,
}

/// A front that another has replaced. It finishes the requests it has.
#[derive(Debug)]
pub struct DrainingFront {
    /// Its line.
    pub line: u32,
    /// Its number.
    pub epoch: u32,
    /// The process.
    pub peer: Peer<ToFront>,
    /// When it is killed, whatever requests it still has.
    pub until: Moment,
    /// No request is in flight any more.
    pub drained: bool,
}

/// Which front has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedFront {
    /// The current one.
    Current,
    /// The one that the current front is about to replace.
    Replaced {
        /// Its number.
        epoch: u32,
    },
    /// One that was replaced.
    Draining {
        /// Its number.
        epoch: u32,
        /// Its requests were finished.
        drained: bool,
    },
    /// None that is known.
    Unknown,
}

impl EndedFront {
    /// Its number; `current` is that of the current front.
    pub fn epoch(self, current: u32) -> Option<u32> {
        match self {
            EndedFront::Current => Some(current),
            EndedFront::Replaced { epoch } | EndedFront::Draining { epoch, .. } => Some(epoch),
            EndedFront::Unknown => None,
        }
    }
}

/// All fronts.
#[derive(Debug)]
pub struct Fronts {
    current: Front,
    /// The number of the front that was started last.
    last_epoch: u32,
    /// During an upgrade: the front that accepts clients until the current one does.
    replaced: Option<Front>,
    draining: Vec<DrainingFront>,
    /// Stacks of a front that hung, which are logged once another one serves.
    pub hung_stacks: Vec<ThreadStack>,
}

impl Front {
    /// A front that has not been started; those before it had numbers up to `epoch`.
    pub fn new(line: u32, epoch: u32) -> Front {
        Front {
            life: Life::new(FRONT_START),
            line,
            epoch,
            peer: None,
            drained: false,
            liveness: None,
        }
    }

    /// One that accepts clients already.
    pub fn running(line: u32, epoch: u32, peer: Peer<ToFront>, now: Moment) -> Front {
        Front {
            life: Life::of_running(FRONT_START, now),
            peer: Some(peer),
            ..Front::new(line, epoch)
        }
    }

    fn draining(self, now: Moment) -> Option<DrainingFront> {
        Some(DrainingFront {
            line: self.line,
            epoch: self.epoch,
            peer: self.peer?,
            until: now + DRAIN,
            drained: self.drained,
        })
    }
}

impl Fronts {
    /// `current`, and fronts that were replaced before.
    pub fn new(current: Front, draining: Vec<DrainingFront>) -> Fronts {
        let numbers = draining.iter().map(|old| old.epoch);
        let last_epoch = numbers.fold(current.epoch, u32::max);
        Fronts { current, last_epoch, replaced: None, draining, hung_stacks: Vec::new() }
    }

    /// Numbers up to `epoch` have been used, by fronts that run no more as well.
    pub fn numbered_after(mut self, epoch: u32) -> Fronts {
        self.last_epoch = self.last_epoch.max(epoch);
        self
    }

    /// The number of the front that was started last.
    pub fn last_epoch(&self) -> u32 {
        self.last_epoch
    }

    /// The front that accepts clients, or is to.
    pub fn current(&self) -> &Front {
        &self.current
    }

    /// The same, to be changed.
    pub fn current_mut(&mut self) -> &mut Front {
        &mut self.current
    }

    /// The current front is started: gives it a number that no other has had.
    pub fn number_current(&mut self) -> u32 {
        self.last_epoch += 1;
        self.current.epoch = self.last_epoch;
        self.last_epoch
    }

    /// The line of the current front.
    pub fn line(&self) -> u32 {
        self.current.line
    }

    /// The process of the current front, if it runs.
    pub fn peer(&mut self) -> Option<&mut Peer<ToFront>> {
        self.current.peer.as_mut()
    }

    /// Lets this many descriptors wait for the current front: as many as it may be sent at once.
    pub fn allow(&mut self, descriptors: usize) {
        if let Some(peer) = self.peer() {
            peer.allow(descriptors);
        }
    }

    /// Fronts that were replaced.
    pub fn draining(&self) -> &[DrainingFront] {
        &self.draining
    }

    /// Every front that runs, with its line.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Peer<ToFront>)> {
        let whole = [Some(&self.current), self.replaced.as_ref()];
        let whole = whole.into_iter().flatten();
        let whole = whole.filter_map(|front| Some((front.line, front.peer.as_ref()?)));
        whole.chain(self.draining.iter().map(|old| (old.line, &old.peer)))
    }

    /// The lines of all fronts that run.
    pub fn lines(&self) -> Vec<u32> {
        self.iter().map(|(line, _)| line).collect()
    }

    /// The line of the current front while its process is to be started and no front of a replaced
    /// program has the pages on disk.
    pub fn awaited_line(&self) -> Option<u32> {
        (self.current.peer.is_none() && self.replaced.is_none()).then_some(self.current.line)
    }

    /// The lines of the fronts that have to carry out a purge: all that run, and one that is to be
    /// started, which reads the pages on disk.
    pub fn lines_to_purge(&self) -> Vec<u32> {
        let mut lines = self.lines();
        lines.extend(self.awaited_line());
        lines
    }

    /// The line of the front with this process id.
    pub fn line_of(&self, pid: i32) -> Option<u32> {
        let mut all = self.iter();
        all.find(|(_, peer)| peer.pid() == pid).map(|(line, _)| line)
    }

    /// The front of a line, if it runs.
    pub fn peer_of(&mut self, line: u32) -> Option<&mut Peer<ToFront>> {
        let mut whole = std::iter::once(&mut self.current).chain(&mut self.replaced);
        if let Some(front) = whole.find(|front| front.line == line) {
            return front.peer.as_mut();
        }
        let mut draining = self.draining.iter_mut();
        Some(&mut draining.find(|old| old.line == line)?.peer)
    }

    /// Gives an order to the front of a line, if it runs.
    pub fn tell(&mut self, line: u32, order: ToFront) {
        if let Some(peer) = self.peer_of(line) {
            peer.say(order, &[]);
        }
    }

    /// Gives an order to every front. Returns how many there are.
    pub fn tell_all(&mut self, order: &ToFront, fds: &[BorrowedFd<'_>]) -> usize {
        let lines = self.lines();
        for &line in &lines {
            if let Some(peer) = self.peer_of(line) {
                peer.say(order.clone(), fds);
            }
        }
        lines.len()
    }

    /// Whether the current front accepts clients, and no front has orders that it has not read.
    pub fn are_settled(&self) -> bool {
        let accepts = self.current.peer.is_some() && self.current.life.is_up();
        accepts && !self.iter().any(|(_, peer)| peer.is_behind())
    }

    /// Whether no front has a request in flight.
    pub fn are_drained(&self) -> bool {
        let current = self.current.drained || self.current.peer.is_none();
        let is_drained = |front: &Front| front.drained || front.peer.is_none();
        let replaced = self.replaced.as_ref().is_none_or(is_drained);
        current && replaced && self.draining.iter().all(|old| old.drained)
    }

    /// The front of a line has no request left.
    pub fn drained(&mut self, line: u32) {
        let whole = std::iter::once(&mut self.current).chain(&mut self.replaced);
        for front in whole.filter(|front| front.line == line) {
            front.drained = true;
        }
        let mut draining = self.draining.iter_mut();
        if let Some(old) = draining.find(|old| old.line == line) {
            old.drained = true;
        }
    }

    /// The front of a line has ended.
    pub fn ended(&mut self, line: u32, now: Moment) -> EndedFront {
        if line == self.current.line {
            self.current.peer = None;
            self.current.drained = false;
            self.current.liveness = None;
            self.current.life.ended(now);
            return EndedFront::Current;
        }
        if let Some(old) = self.replaced.as_mut().filter(|old| old.line == line) {
            old.peer = None;
            old.drained = false;
            old.life.ended(now);
            return EndedFront::Replaced { epoch: old.epoch };
        }
        let Some(position) = self.draining.iter().position(|old| old.line == line) else {
            return EndedFront::Unknown;
        };
        let old = self.draining.remove(position);
        EndedFront::Draining { epoch: old.epoch, drained: old.drained }
    }

    /// An upgrade starts a front of the next line. The one before serves until that is ready.
    pub fn replace_current(&mut self) {
        let new = Front::new(self.current.line + 1, self.current.epoch);
        self.replaced = Some(std::mem::replace(&mut self.current, new));
    }

    /// The new front serves: the one before drains. Returns its line, and whether it still runs.
    pub fn hand_over(&mut self, now: Moment) -> Option<(u32, bool)> {
        let mut old = self.replaced.take()?;
        if let Some(peer) = &mut old.peer {
            peer.say(ToFront::HandOver, &[]);
        }
        let line = old.line;
        let draining = old.draining(now);
        let runs = draining.is_some();
        self.draining.extend(draining);
        Some((line, runs))
    }

    /// The new front does not serve: the one before stays. Returns the new one, which is killed, if
    /// it was to be started already.
    pub fn take_back(&mut self) -> Option<Front> {
        let old = self.replaced.take()?;
        let new = std::mem::replace(&mut self.current, old);
        if let Some(peer) = &new.peer {
            peer.signal(Signal::SIGKILL);
        }
        Some(new)
    }

    /// The server stops during an upgrade: both fronts finish their requests.
    pub fn keep_both(&mut self, now: Moment) {
        let old = self.replaced.take();
        let draining = old.and_then(|old| old.draining(now));
        self.draining.extend(draining);
    }

    /// Kills replaced fronts that still have requests after [`DRAIN`].
    pub fn end_overdue(&mut self, now: Moment) {
        for old in self.draining.iter_mut().filter(|old| old.until <= now) {
            warn!(
                "front {} is ended: it still had requests after {} s",
                old.epoch,
                DRAIN.as_secs()
            );
            old.peer.signal(Signal::SIGKILL);
            old.until = Moment::MAX;
        }
    }

    /// When the next replaced front is killed.
    pub fn deadline(&self) -> Option<Moment> {
        self.draining.iter().map(|old| old.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_is_not_drained_because_the_one_that_crashed_was() {
        let mut fronts = Fronts::new(Front::new(1, 0), Vec::new());
        fronts.drained(1);
        assert!(fronts.current().drained);
        fronts.ended(1, Moment::from_secs(1));
        assert!(!fronts.current().drained);
        fronts.replace_current();
        fronts.drained(1);
        fronts.ended(1, Moment::from_secs(2));
        let old = fronts.take_back().map(|_| fronts.current());
        assert!(old.is_some_and(|old| !old.drained));
    }

    #[test]
    fn after_an_upgrade_that_has_failed_each_front_has_its_own_number() {
        let now = Moment::from_secs(1);
        let mut fronts = Fronts::new(Front::new(1, 0), Vec::new());
        assert_eq!(fronts.number_current(), 1);
        fronts.replace_current();
        assert_eq!((fronts.line(), fronts.number_current()), (2, 2));
        let given_up = fronts.take_back().expect("it was to be started");
        assert_eq!((given_up.line, given_up.epoch), (2, 2));
        assert!(fronts.take_back().is_none());
        let ended = fronts.ended(1, now);
        assert_eq!(ended.epoch(fronts.current().epoch), Some(1));
        // The front of the next program is another one, too.
        let next = Fronts::new(Front::new(1, 1), Vec::new());
        let mut next = next.numbered_after(fronts.last_epoch());
        assert_eq!((next.number_current(), fronts.number_current()), (3, 3));
    }
}
