//! Warming the OPcache of a generation on trial with the scripts that the one before holds, so that
//! its first requests find it warm. Best effort, with a timeout: a generation that could not be
//! warmed passes its trial all the same.

use std::os::fd::{AsFd, OwnedFd};

use maitred_control::{Generation, ToZygote};
use maitred_os::shared;
use tracing::{debug, info};

use crate::limits::{LIST_SCRIPTS, Moment, WARM};
use crate::processes::pools::{PoolId, Pools};
use crate::processes::running_pool::RunningPool;

/// The state of the warming of a generation.
#[derive(Debug)]
pub enum OpcacheWarming {
    /// The zygote of `by` writes its scripts to `file`.
    Listing { by: Generation, file: OwnedFd, until: Moment },
    /// Its own zygote compiles them.
    Filling { until: Moment },
}

impl OpcacheWarming {
    /// When it times out.
    pub fn until(&self) -> Moment {
        match self {
            OpcacheWarming::Listing { until, .. } | OpcacheWarming::Filling { until } => *until,
        }
    }
}

impl Pools {
    /// PHP runs in a generation on trial: starts to warm its OPcache. False if there is nothing to
    /// warm it with.
    pub fn warm_opcache(&mut self, id: PoolId, now: Moment) -> bool {
        let Some(old) = self.warmed_generation(id) else {
            return false;
        };
        let file = match shared::file_with("maitred-scripts", b"") {
            Ok(file) => file,
            Err(why) => {
                debug!("pool {}: OPcache is not warmed: {why}", self[id].name());
                return false;
            }
        };
        let by = self[old].generation;
        if let Some(zygote) = &mut self[old].zygote {
            zygote.say(ToZygote::ListScripts, &[file.as_fd()]);
        }
        let until = now + LIST_SCRIPTS;
        self[id].warming = Some(OpcacheWarming::Listing { by, file, until });
        true
    }

    /// The generation whose scripts are useful: of the same pool and the same user.
    fn warmed_generation(&self, id: PoolId) -> Option<PoolId> {
        let new = &self[id].plan.settings;
        let mut same = self.current().filter(|old| {
            let settings = &old.plan.settings;
            settings.pool == new.pool && settings.identity == new.identity
        });
        let old = same.find(|old| old.state.zygote_is_up() && old.zygote.is_some());
        old.map(RunningPool::id)
    }

    /// A zygote has listed its scripts: the generations that wait for them get them.
    pub fn scripts_listed(&mut self, id: PoolId, count: u32, now: Moment) {
        let lister = self[id].generation;
        for running in self.iter_mut() {
            let waits = |warming: &mut OpcacheWarming| match warming {
                OpcacheWarming::Listing { by, .. } => *by == lister,
                _ => false,
            };
            let Some(OpcacheWarming::Listing { file, .. }) = running.warming.take_if(waits) else {
                continue;
            };
            if let Some(zygote) = &mut running.zygote {
                let pool = &running.plan.settings.pool;
                debug!("pool {pool}: {count} scripts to warm");
                zygote.say(ToZygote::Warm, &[file.as_fd()]);
                running.warming = Some(OpcacheWarming::Filling { until: now + WARM });
            }
        }
    }

    /// The generations whose warming has taken too long; it is given up.
    pub fn give_up_warming(&mut self, now: Moment) -> Vec<PoolId> {
        let is_late = |warming: &mut OpcacheWarming| warming.until() <= now;
        let late = self.iter_mut().filter_map(|pool| {
            let given_up = pool.warming.take_if(is_late);
            given_up.map(|_| pool.id())
        });
        late.collect()
    }
}

impl RunningPool {
    /// The zygote has filled its OPcache. False if no warming was going on.
    pub fn opcache_warmed(&mut self, compiled: u32) -> bool {
        let was_warming = self.warming.take().is_some();
        if was_warming {
            info!("pool {}: OPcache warmed with {compiled} scripts", self.name());
        }
        was_warming
    }
}
