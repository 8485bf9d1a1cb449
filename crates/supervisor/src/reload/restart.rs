//! Pools that are booted anew because their scripts have changed, and nothing else.

use std::collections::BTreeSet;

use crate::listen::Opened;
use crate::logging::pool_access_logs::DoorLogs;
use crate::reload::pool_changes::Changes;
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
            opened: Opened::default(),
            access_log: None,
            door_logs: DoorLogs::default(),
            certificates: None,
            changes: Changes {
                anew: pools,
                ..Changes::default()
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
