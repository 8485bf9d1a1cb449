//! The state of a reload: another configuration, or the same pools restarted, while the server
//! serves. The steps are taken in `run/reload.rs`.
//!
//! ```text
//!   requested ──▶ read, checked ──▶ sent to the front ──▶ each changed pool on trial ──▶ done
//!              (in a process of its own)
//!                    │ refused           │ refused                 │ failed
//!                    ▼                   ▼                         ▼
//!            nothing is changed    nothing is changed    that pool keeps its generation
//! ```
//!
//! A generation on trial has a zygote of its own, and no worker. When its PHP runs and its first
//! worker is ready, it is announced to the front, and from then on each of its workers replaces one
//! of the generation before.

pub mod config_watch;
mod outcome;
pub mod pool_changes;
pub mod restart_requests;
pub mod watch;

use std::collections::{BTreeSet, VecDeque};

use maitred_config::Config;
use tracing::{error, info};

pub use outcome::needs_restart;

use crate::fronts::log_manager::LogManager;
use crate::limits::{CONSENT, MOVE_OVER, Moment, TRIAL};
use crate::listen::{Listener, OpenedListeners};
use crate::reload::pool_changes::PoolChanges;
use crate::system::faults::Faults;
use crate::tls::certificates::Certificates;

/// Most outcomes that are stored for the clients that wait for them.
const MAX_OUTCOMES: usize = 64;

/// Number of a reload, from 1.
pub type Ticket = u64;

/// The outcome of a reload: what was done, or why nothing was.
pub type Outcome = Result<String, String>;

/// The current reload, and the outcomes of those before.
#[derive(Debug, Default)]
pub struct Reloader {
    last: Ticket,
    current: Option<Reload>,
    /// The reload whose configuration is being examined.
    examined: Option<Ticket>,
    /// Configurations that the front was sent and has not replied to.
    unanswered: u32,
    /// The front uses the configuration of a reload that was given up.
    is_front_astray: bool,
    /// The last configuration that it was sent is that in use, since then.
    restoring_since: Option<Moment>,
    outcomes: VecDeque<(Ticket, Outcome)>,
    /// A reload was requested when none could start.
    is_postponed: bool,
}

/// What the reply of the front to a configuration means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontReply {
    /// It has been sent another one since, whose reply counts.
    Superseded,
    /// It uses the last one, or has refused it and uses the one in use.
    Final,
    /// It has refused the last one, and uses that of a reload which was given up: it has to get the
    /// one in use.
    Astray,
    /// It has refused even the one in use.
    Lost,
}

/// Which pools a reload gives a new generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadScope {
    /// Those that have changed.
    Changed,
    /// Those of these names, too.
    Named(Vec<String>),
    /// All of them, as php-fpm does. A pool at rest stays at rest: its first request starts PHP.
    All,
    /// Those that have changed, after a fault was mended: no administrator has asked for it.
    Mended,
}

/// A reload that is going on.
#[derive(Debug)]
pub struct Reload {
    /// Its number.
    pub ticket: Ticket,
    /// The new configuration.
    pub config: Config,
    /// The new listeners, and those that stay.
    pub listeners: OpenedListeners,
    /// The log files of the new configuration.
    pub logs: LogManager,
    /// The certificates and keys of TLS.
    pub certificates: Option<Certificates>,
    /// The faults of single sites and pools.
    pub faults: Faults,
    /// What this machine does not have for the configuration.
    pub warnings: Vec<String>,
    /// What becomes of the pools.
    pub changes: PoolChanges,
    /// Pools that are restarted only for a larger OPcache.
    pub outgrown: BTreeSet<String>,
    /// Pools that are restarted to preload classes.
    pub preloading: BTreeSet<String>,
    /// The administrator has asked for it: pools may get another user.
    pub changes_users: bool,
    /// Pools at rest need not show that their PHP starts.
    pub lets_rest: bool,
    /// The front uses the configuration.
    pub accepted: bool,
    /// When it was accepted, or else when it was started.
    pub since: Moment,
    /// Pools that have a new generation.
    pub replaced: Vec<String>,
    /// Pools that keep the old one, and why.
    pub kept: Vec<(String, String)>,
    /// Changed settings that take effect only after a restart.
    pub stays: Vec<&'static str>,
    /// When the old workers are not waited for any longer, once nothing else is waited for.
    pub moving_until: Option<Moment>,
    /// The last [`maitred_control::ToFront::Settle`].
    pub settling: Option<Settling>,
}

/// The front was asked to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settling {
    /// Number of the order.
    pub mark: u64,
    /// How many old workers there were then.
    pub old_workers: usize,
}

impl Reload {
    /// A reload that changes nothing yet.
    pub fn new(ticket: Ticket, config: Config, changes: PoolChanges, now: Moment) -> Reload {
        Reload {
            ticket,
            config,
            listeners: OpenedListeners::default(),
            logs: LogManager::default(),
            certificates: None,
            faults: Faults::default(),
            warnings: Vec::new(),
            changes,
            outgrown: BTreeSet::new(),
            preloading: BTreeSet::new(),
            changes_users: false,
            lets_rest: false,
            accepted: false,
            since: now,
            replaced: Vec::new(),
            kept: Vec::new(),
            stays: Vec::new(),
            moving_until: None,
            settling: None,
        }
    }
}

impl Reloader {
    /// The outcome of a reload; nothing: it is going on, or long forgotten.
    pub fn outcome(&self, ticket: Ticket) -> Option<&Outcome> {
        let mut outcomes = self.outcomes.iter();
        Some(&outcomes.find(|(known, _)| *known == ticket)?.1)
    }

    /// A reload is over, well or not, which is logged.
    pub fn finish(&mut self, ticket: Ticket, outcome: Outcome) {
        match &outcome {
            Ok(done) => info!("{done}"),
            Err(why) => error!("{why}"),
        }
        self.store(ticket, outcome);
    }

    /// A reload is given up, which is logged; as php-fpm, not as an error.
    pub fn give_up(&mut self, ticket: Ticket, why: &str, is_fpm: bool) {
        if is_fpm {
            info!("{why}");
        } else {
            error!("{why}");
        }
        self.store(ticket, Err(why.to_owned()));
    }

    fn store(&mut self, ticket: Ticket, outcome: Outcome) {
        if self.outcomes.len() >= MAX_OUTCOMES {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back((ticket, outcome));
    }

    /// Whether one is going on.
    pub fn is_going_on(&self) -> bool {
        self.current.is_some() || self.examined.is_some()
    }

    /// The reload whose configuration is being examined by now; or none is.
    pub fn examine(&mut self, ticket: Option<Ticket>) {
        self.examined = ticket;
    }

    /// A reload is refused, which its caller logs.
    pub fn refuse(&mut self, ticket: Ticket, why: String) {
        self.store(ticket, Err(why));
    }

    /// A reload was requested, which has to wait; or none waits any more.
    pub fn postpone(&mut self, is_postponed: bool) {
        self.is_postponed = is_postponed;
    }

    /// Whether a reload waits.
    pub fn is_postponed(&self) -> bool {
        self.is_postponed
    }

    /// The number of the next reload.
    pub fn next_ticket(&mut self) -> Ticket {
        self.last += 1;
        self.last
    }

    /// Starts a reload.
    pub fn start(&mut self, reload: Reload) {
        self.current = Some(reload);
    }

    /// Takes the current reload.
    pub fn take(&mut self) -> Option<Reload> {
        self.current.take()
    }

    /// Takes the current reload, if the front has not accepted its configuration.
    pub fn take_unaccepted(&mut self) -> Option<Reload> {
        self.current.take_if(|reload| !reload.accepted)
    }

    /// The current reload.
    pub fn current(&mut self) -> Option<&mut Reload> {
        self.current.as_mut()
    }

    /// The listeners that were opened for the current reload, if the front has not accepted it.
    pub fn unaccepted_listeners(&self) -> &[Listener] {
        let unaccepted = self.current.as_ref().filter(|reload| !reload.accepted);
        unaccepted.map_or(&[], |reload| &reload.listeners.new)
    }

    /// The pools that the current reload has yet to restart, among `configured`.
    pub fn unfinished(&self, configured: &[&str]) -> BTreeSet<String> {
        let current = self.current.iter();
        let unfinished = current.flat_map(|reload| &reload.changes.restarted);
        let unfinished = unfinished.filter(|name| configured.contains(&name.as_str()));
        unfinished.cloned().collect()
    }

    /// Whether this pool is restarted, and none of its scripts has changed.
    pub fn is_for_php_alone(&self, pool: &str) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|reload| {
            reload.outgrown.contains(pool) || reload.preloading.contains(pool)
        })
    }

    /// Whether this pool is restarted only for a larger OPcache.
    pub fn is_for_opcache(&self, pool: &str) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|reload| reload.outgrown.contains(pool))
    }

    /// A pool has its new generation.
    pub fn replaced(&mut self, pool: &str) {
        if let Some(reload) = &mut self.current
            && reload.changes.restarted.contains(pool)
        {
            reload.replaced.push(pool.to_owned());
        }
    }

    /// A pool keeps its old generation.
    pub fn kept(&mut self, pool: &str, why: String) {
        if let Some(reload) = &mut self.current {
            reload.kept.push((pool.to_owned(), why));
        }
    }

    /// The front was sent the configuration of the current reload.
    pub fn configuration_sent(&mut self) {
        self.unanswered += 1;
        self.restoring_since = None;
    }

    /// The front was sent the configuration in use, because it uses another one.
    pub fn restoration_sent(&mut self, now: Moment) {
        self.unanswered += 1;
        self.is_front_astray = true;
        self.restoring_since = Some(now);
    }

    /// The front has accepted or refused a configuration. Only its reply to the last one counts.
    pub fn front_replied(&mut self, is_accepted: bool) -> FrontReply {
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.unanswered > 0 {
            self.is_front_astray |= is_accepted;
            return FrontReply::Superseded;
        }
        let is_astray = std::mem::take(&mut self.is_front_astray) && !is_accepted;
        match self.restoring_since.take() {
            _ if !is_astray => FrontReply::Final,
            None => FrontReply::Astray,
            Some(_) => FrontReply::Lost,
        }
    }

    /// No reply to a configuration is waited for any more.
    fn forget_front(&mut self) -> u32 {
        self.is_front_astray = false;
        self.restoring_since = None;
        std::mem::take(&mut self.unanswered)
    }

    /// Whether the front has a configuration that it has not replied to.
    pub fn awaits_front(&self) -> bool {
        self.unanswered > 0
    }

    /// The front has ended. True if it has not replied to a configuration, and never will.
    pub fn front_ended(&mut self) -> bool {
        if let Some(reload) = &mut self.current {
            reload.settling = None;
        }
        self.forget_front() > 0
    }

    /// Whether the front has not replied in time. It is not waited for any more, then.
    pub fn front_is_silent(&mut self, now: Moment) -> bool {
        let is_late = |reload: &Reload| !reload.accepted && reload.since + CONSENT <= now;
        let is_silent = self.current.as_ref().is_some_and(is_late)
            || self.restoring_since.is_some_and(|since| since + CONSENT <= now);
        if is_silent {
            self.forget_front();
        }
        is_silent
    }

    /// Whether the generations on trial have had enough time.
    pub fn trial_is_over(&self, now: Moment) -> bool {
        let is_late = |reload: &Reload| reload.accepted && reload.since + TRIAL <= now;
        self.current.as_ref().is_some_and(is_late)
    }

    /// No generation is on trial any more. Whether the front is to settle, and whether that is
    /// `late`: its reply is not waited for. `moved`: as
    /// [`crate::processes::pools::Pools::have_moved`].
    pub fn settle(&mut self, moved: bool, old_workers: usize, now: Moment) -> Option<(u64, bool)> {
        let reload = self.current.as_mut().filter(|reload| reload.accepted)?;
        let late = *reload.moving_until.get_or_insert(now + MOVE_OVER) <= now;
        let last = reload.settling;
        let is_new = last.is_none_or(|last| last.old_workers != old_workers);
        if !(late || moved && is_new) {
            return None;
        }
        let mark = last.map_or(1, |last| last.mark + 1);
        reload.settling = Some(Settling { mark, old_workers });
        Some((mark, late))
    }

    /// The front has followed all orders before this one. Takes the reload if it is over: no new
    /// request can reach an old worker.
    pub fn settled(&mut self, settling: Settling) -> Option<Reload> {
        let is_over = |reload: &mut Reload| reload.settling == Some(settling);
        self.current.take_if(is_over)
    }

    /// When the front, or a trial, has taken too long.
    pub fn deadline(&self) -> Option<Moment> {
        let of_reload = self.current.as_ref().map(|reload| match reload.accepted {
            true => reload.moving_until.unwrap_or(reload.since + TRIAL),
            false => reload.since + CONSENT,
        });
        let of_restoration = self.restoring_since.map(|since| since + CONSENT);
        of_reload.into_iter().chain(of_restoration).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_configurations_the_front_is_held_to_the_last_or_to_the_one_in_use() {
        let reply = |first: bool, second: bool| {
            let mut reloader = Reloader::default();
            reloader.configuration_sent();
            reloader.configuration_sent();
            assert_eq!(reloader.front_replied(first), FrontReply::Superseded);
            assert!(reloader.awaits_front());
            (reloader.front_replied(second), reloader.awaits_front())
        };
        assert_eq!(reply(true, true), (FrontReply::Final, false));
        assert_eq!(reply(false, true), (FrontReply::Final, false));
        assert_eq!(reply(false, false), (FrontReply::Final, false));
        assert_eq!(reply(true, false), (FrontReply::Astray, false));
    }

    #[test]
    fn a_front_that_went_astray_gets_the_configuration_in_use_once_and_has_to_reply_to_it() {
        let astray = || {
            let mut reloader = Reloader::default();
            reloader.configuration_sent();
            reloader.configuration_sent();
            reloader.front_replied(true);
            assert_eq!(reloader.front_replied(false), FrontReply::Astray);
            reloader.restoration_sent(Moment::ZERO);
            assert_eq!(reloader.deadline(), Some(CONSENT));
            reloader
        };
        let mut reloader = astray();
        assert_eq!(reloader.front_replied(true), FrontReply::Final);
        assert_eq!(reloader.deadline(), None);
        reloader.configuration_sent();
        assert_eq!(reloader.front_replied(false), FrontReply::Final);

        assert_eq!(astray().front_replied(false), FrontReply::Lost);

        let mut reloader = astray();
        assert!(!reloader.front_is_silent(CONSENT / 2));
        assert!(reloader.front_is_silent(CONSENT));
        assert!(!reloader.awaits_front() && reloader.deadline().is_none());

        // Another reload comes first.
        let mut reloader = astray();
        reloader.configuration_sent();
        assert_eq!(reloader.front_replied(false), FrontReply::Superseded);
        assert_eq!(reloader.front_replied(false), FrontReply::Astray);
        let mut reloader = astray();
        reloader.configuration_sent();
        assert!(reloader.front_ended());
        reloader.configuration_sent();
        assert_eq!(reloader.front_replied(false), FrontReply::Final);
    }
}
