//! Applications that are booted once, and whose scripts have changed since: their pools get a new
//! generation, and the one before serves until that is ready.

use std::collections::BTreeSet;
use std::time::Duration;

use maitred_control::exit;
use maitred_os::fork::HowEnded;
use tracing::{info, warn};

use crate::limits::Moment;
use crate::reload::Anew;
use crate::run::Supervisor;

/// Least time between two of them: who updates an application says so for each of its files.
const RENEWED_EVERY: Duration = Duration::from_secs(1);

/// Pools that are to be booted anew.
#[derive(Debug, Default)]
pub struct Renewals {
    wanted: BTreeSet<String>,
    not_before: Moment,
}

impl Renewals {
    /// Scripts of this pool have changed.
    fn want(&mut self, pool: &str) {
        self.wanted.insert(pool.to_owned());
    }

    /// The pools whose turn it is now.
    fn due(&mut self, now: Moment) -> Vec<String> {
        if self.wanted.is_empty() || now < self.not_before {
            return Vec::new();
        }
        self.not_before = now + RENEWED_EVERY;
        std::mem::take(&mut self.wanted).into_iter().collect()
    }

    /// When there is something to do.
    fn deadline(&self) -> Option<Moment> {
        (!self.wanted.is_empty()).then_some(self.not_before)
    }
}

impl Supervisor {
    /// A worker of this generation has ended; it may have said that its scripts are outdated.
    pub(crate) fn see_whether_outdated(&mut self, index: usize, how: HowEnded) {
        if how == HowEnded::Exited(exit::RENEW) && self.pools[index].boots() {
            let pool = self.name(index).to_owned();
            self.renewals.want(&pool);
        }
    }

    /// When something is to be booted anew; nothing while something else comes first, whose end is
    /// an event of its own.
    pub(crate) fn renewal_deadline(&self) -> Option<Moment> {
        let is_free = self.phase.is_serving() && self.upgrade.is_none();
        let is_free = is_free && !self.reloads.is_going_on();
        self.renewals.deadline().filter(|_| is_free)
    }

    /// Boots anew what is to be.
    pub(crate) fn renew_outdated(&mut self) {
        if self.renewal_deadline().is_none() {
            return;
        }
        let pools = self.renewals.due(self.now());
        if pools.is_empty() {
            return;
        }
        let names = pools.join("`, `");
        info!("pool `{names}`: its scripts have changed since its boot, and it is booted anew");
        if let Err(why) = self.reload(&Anew::Named(pools)) {
            warn!("pool `{names}` cannot be booted anew: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changes_at_once_are_one_renewal_and_later_ones_wait_a_little() {
        let now = Duration::from_secs(100);
        let mut renewals = Renewals::default();
        assert_eq!(renewals.deadline(), None);
        for _ in 0..100 {
            renewals.want("shop");
        }
        assert_eq!(renewals.due(now), ["shop"]);
        assert_eq!(renewals.deadline(), None);
        renewals.want("shop");
        assert_eq!(renewals.due(now), Vec::<String>::new());
        assert_eq!(renewals.deadline(), Some(now + RENEWED_EVERY));
        assert_eq!(renewals.due(now + RENEWED_EVERY), ["shop"]);
    }
}
