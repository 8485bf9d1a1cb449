//! Pools that are booted anew because their scripts have changed, and nothing else.

use std::collections::BTreeSet;

use crate::listen::OpenedListeners;
use crate::logging::pool_access_logs::PoolAccessLogs;
use crate::reload::pool_changes::PoolChanges;
use crate::run::Supervisor;

use super::Reload;

impl Supervisor {
    /// Gives the pools of these names a new generation by the configuration in use, `outgrown` of them for a
    /// larger OPcache and nothing else. The file of the configuration is not read: whoever writes it says when
    /// it is complete, and a script does not.
    ///
    /// To be called while no reload and no upgrade is going on.
    pub fn renew(&mut self, pools: BTreeSet<String>, outgrown: BTreeSet<String>) {
        self.reloads.last += 1;
        let mut reload = Reload {
            ticket: self.reloads.last,
            config: self.plan.config.clone(),
            opened: OpenedListeners::default(),
            access_log: None,
            door_logs: PoolAccessLogs::default(),
            certificates: None,
            changes: PoolChanges {
                anew: pools,
                ..PoolChanges::default()
            },
            outgrown,
            lets_rest: false,
            // The front has this configuration.
            accepted: true,
            since: self.now(),
            moving_until: None,
            asked: None,
            replaced: Vec::new(),
            kept: Vec::new(),
            stays: Vec::new(),
        };
        self.put_on_trial(&mut reload);
        self.reloads.now = Some(reload);
    }
}
