//! The OPcache of a generation on trial is filled with the scripts that the one before holds, so that
//! its first requests find it warm. Best effort, with a bound: a generation that could not be warmed
//! has passed its trial all the same.

use std::os::fd::{AsFd, OwnedFd};

use maitred_control::{Generation, ToZygote};
use maitred_os::shared;
use tracing::{debug, info};

use crate::limits::{LIST_SCRIPTS, Moment, WARM};
use crate::processes::generation;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::run::Supervisor;

/// What a generation on trial waits for.
#[derive(Debug)]
pub enum OpcacheWarming {
    /// The zygote of `by` writes its scripts to `file`.
    Listing {
        by: Generation,
        file: OwnedFd,
        until: Moment,
    },
    /// Its own zygote compiles them.
    Filling { until: Moment },
}

impl OpcacheWarming {
    /// When it is not waited for any longer.
    pub fn until(&self) -> Moment {
        match self {
            OpcacheWarming::Listing { until, .. } | OpcacheWarming::Filling { until } => *until,
        }
    }
}

impl Supervisor {
    /// PHP runs in a generation on trial: warms it, if there is anything to warm it with.
    pub fn begin_warming(&mut self, id: PoolId) {
        let Some(old) = self.warm_with(id) else {
            return self.pool_event(id, generation::GenerationEvent::Passed);
        };
        let until = self.now() + LIST_SCRIPTS;
        let by = self.pools[old].generation;
        let file = match shared::file_with("maitred-scripts", b"") {
            Ok(file) => file,
            Err(why) => {
                debug!("pool {}: OPcache is not warmed: {why}", self.name(id));
                return self.pool_event(id, generation::GenerationEvent::Passed);
            }
        };
        if let Some(zygote) = &mut self.pools[old].zygote {
            zygote.peer.say(ToZygote::ListScripts, &[file.as_fd()]);
        }
        self.pools[id].warming = Some(OpcacheWarming::Listing { by, file, until });
    }

    /// The generation whose scripts are of use: of the same pool and the same user.
    fn warm_with(&self, id: PoolId) -> Option<PoolId> {
        let new = &self.pools[id].plan.settings;
        let mut all = self.pools.iter();
        let old = all.find(|old| {
            let settings = &old.plan.settings;
            old.is_current()
                && settings.pool == new.pool
                && settings.identity == new.identity
                && old.pool.zygote_is_up()
                && old.zygote.is_some()
        });
        old.map(RunningPool::id)
    }

    /// A zygote has listed its scripts: whoever waits for them gets them.
    pub fn scripts_listed(&mut self, id: PoolId, count: u32) {
        let lister = self.pools[id].generation;
        let until = self.now() + WARM;
        for running in &mut self.pools {
            let waits = |warming: &mut OpcacheWarming| matches!(warming, OpcacheWarming::Listing { by, .. } if *by == lister);
            let Some(OpcacheWarming::Listing { file, .. }) = running.warming.take_if(waits) else {
                continue;
            };
            if let Some(zygote) = &mut running.zygote {
                debug!(
                    "pool {}: {count} scripts to warm",
                    running.plan.settings.pool
                );
                zygote.peer.say(ToZygote::Warm, &[file.as_fd()]);
                running.warming = Some(OpcacheWarming::Filling { until });
            }
        }
    }

    /// A zygote has filled its OPcache.
    pub fn warmed(&mut self, id: PoolId, compiled: u32) {
        if self.pools[id].warming.take().is_some() {
            info!(
                "pool {}: OPcache warmed with {compiled} scripts",
                self.name(id)
            );
            self.pool_event(id, generation::GenerationEvent::Passed);
        }
    }

    /// Lets the generations pass that were being warmed for long enough.
    pub fn end_warming(&mut self) {
        let now = self.now();
        for id in self.pools.ids() {
            let late = |warming: &mut OpcacheWarming| warming.until() <= now;
            if self.pools[id].warming.take_if(late).is_some() {
                self.pool_event(id, generation::GenerationEvent::Passed);
            }
        }
    }
}
