//! The start of a reload, and acting on what was found in folders of tenants. See
//! [`crate::plan::folder_lookups`].

use tracing::error;

use super::Supervisor;
use crate::fpm;
use crate::plan::folder_lookups::{FinishedLookups, LookupOrder};
use crate::reload::{ReloadScope, Ticket};

/// The outcome of a reload that a later one has taken over.
pub(super) const TAKEN_OVER: &str = "a later reload has taken over what this one had not done yet";

impl Supervisor {
    /// Starts a reload: a process of its own reads the configuration again, and the pools that have
    /// changed, and those of the `scope`, get a new generation then. It takes over what a
    /// current reload has not done yet.
    ///
    /// # Errors
    /// One sentence; nothing has been changed then.
    pub(super) fn reload(&mut self, scope: ReloadScope) -> Result<Ticket, String> {
        if !self.phase.is_serving() {
            return Err("the server is starting or ending, and cannot be reloaded now".to_owned());
        }
        if self.upgrader.is_going_on() {
            return Err("an upgrade is going on; reload when it is over".to_owned());
        }
        let scope = match self.lookups.order() {
            Some(LookupOrder::Reload { scope: earlier, .. }) => scope.with(earlier.clone()),
            Some(LookupOrder::Faults) | None => scope,
        };
        let ticket = self.reloader.next_ticket();
        let now = self.now();
        let order = LookupOrder::Reload { ticket, scope };
        let given_up = self.lookups.start(order, &self.plan, now)?;
        self.lookups_given_up(given_up, TAKEN_OVER);
        self.reloader.examine(Some(ticket));
        Ok(ticket)
    }

    /// Goes on with a reload, or with the faults, once all names were looked up.
    pub(super) fn keep_lookups(&mut self) {
        if !self.phase.is_serving() {
            let given_up = self.lookups.give_up();
            let why = "the server was asked to stop before the reload was done";
            return self.lookups_given_up(given_up, why);
        }
        let now = self.now();
        let Some(FinishedLookups { order, outcome }) = self.lookups.keep(&self.plan, now) else {
            return;
        };
        match order {
            LookupOrder::Faults => self.faults_examined(outcome),
            LookupOrder::Reload { ticket, scope } => {
                self.reloader.examine(None);
                let started = outcome.and_then(|examined| self.reload_to(examined, &scope, ticket));
                if let Err(why) = started {
                    log_refused(&why, &scope);
                    self.reloader.refuse(ticket, why);
                }
            }
        }
    }

    /// Lookups were given up, and the reload with them that they were for.
    fn lookups_given_up(&mut self, order: Option<LookupOrder>, why: &str) {
        if let Some(LookupOrder::Reload { ticket, .. }) = order {
            self.reloader.examine(None);
            self.reloader.give_up(ticket, why, self.plan.is_fpm());
        }
    }
}

/// Logs why a reload is refused.
pub(super) fn log_refused(why: &str, scope: &ReloadScope) {
    match scope {
        ReloadScope::All => fpm::log_refused_reload(why),
        ReloadScope::Changed | ReloadScope::Named(_) => {
            error!("the reload is refused, all is as before: {why}");
        }
        ReloadScope::Mended => {
            error!("the mended sites need a reload, which is refused: {why}");
        }
    }
}
