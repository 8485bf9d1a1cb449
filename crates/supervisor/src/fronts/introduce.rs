//! Orders that introduce a generation of a pool to a front.

use std::os::fd::AsFd;

use maitred_control::ToFront;
use maitred_os::shared;
use tracing::error;

use crate::fronts::Fronts;
use crate::peer::Peer;
use crate::processes::pools::{PoolId, Pools};
use crate::processes::running_pool::RunningPool;
use crate::processes::scoreboards::Scoreboards;

impl RunningPool {
    /// What responses say of this generation's PHP, and how it reads paths. Before its PHP was
    /// started (`pm = ondemand`), the information of another generation that runs the same program
    /// as the same user: no user speaks for another.
    fn php_info(&self, all: &Pools) -> ToFront {
        let is_alike = |other: &&RunningPool| {
            self.php.is_none() && other.php.is_some() && self.shares_php_with(other)
        };
        let alike = all.iter().find(is_alike);
        let info = alike.map_or(&self.php_info, |alike| &alike.php_info);
        ToFront::SetPhpInfo { generation: self.generation, info: info.clone() }
    }

    fn shares_php_with(&self, other: &RunningPool) -> bool {
        let user = |pool: &RunningPool| {
            let identity = pool.plan.settings.identity.as_ref();
            identity.map(|identity| (identity.uid, identity.gid))
        };
        self.plan.program == other.plan.program && user(self) == user(other)
    }

    /// Has a front use this generation from now on.
    pub fn open_in(&self, peer: &mut Peer<ToFront>, scoreboards: &Scoreboards, all: &Pools) {
        let generation = self.generation;
        let settings = serde_json::to_vec(&self.plan.pool).map_err(std::io::Error::from);
        let settings = settings.and_then(|json| shared::file_with("maitred-pool", &json));
        match settings {
            Ok(settings) => {
                let mut fds = vec![settings.as_fd()];
                fds.extend(self.plan.shared());
                fds.extend(scoreboards.page(self.name()).map(AsFd::as_fd));
                fds.extend(scoreboards.applications.of(self.name(), self.plan.uid));
                peer.say(ToFront::OpenPool { generation }, &fds);
                peer.say(ToFront::Replace { new: generation }, &[]);
                peer.say(self.php_info(all), &[]);
                if self.start_error.is_some() {
                    peer.say(ToFront::SuspendPool { generation }, &[]);
                }
            }
            Err(why) => error!("pool `{}` cannot be sent to the front: {why}", self.name()),
        }
    }

    /// Sends a front the workers of this generation.
    pub fn open_seats_in(&self, peer: &mut Peer<ToFront>) {
        for seated in self.state.seated() {
            if let Some(pidfd) = self.workers.get(&seated.pid) {
                let order = ToFront::OpenSeat {
                    generation: self.generation,
                    worker: seated.worker,
                    pid: seated.pid,
                };
                peer.say(order, &[pidfd.as_fd()]);
            }
        }
    }

    /// Has a front reject requests for this generation's pool, which is not configured any more.
    pub fn close_in(&self, peer: &mut Peer<ToFront>) {
        let generation = self.generation;
        peer.say(ToFront::ClosePool { generation }, &[]);
    }
}

impl Fronts {
    /// Sends the current front a generation that it could not open before, with what has changed
    /// since.
    pub fn introduce_again(&mut self, id: PoolId, pools: &Pools, scoreboards: &Scoreboards) {
        let running = &pools[id];
        let line = self.line();
        let is_of_it = running.line == line && running.introduced;
        let Some(peer) = self.peer().filter(|_| is_of_it) else {
            return;
        };
        running.open_in(peer, scoreboards, pools);
        let later = pools.named(running.name()).filter(|other| {
            other.generation > running.generation && other.introduced && !other.closed
        });
        for new in later.map(|later| later.generation) {
            peer.say(ToFront::Replace { new }, &[]);
        }
        running.open_seats_in(peer);
        if running.closed {
            running.close_in(peer);
        }
    }

    /// Sends the current front the PHP of a generation, and of those that have not started theirs
    /// and share it.
    pub fn tell_php_info(&mut self, id: PoolId, pools: &Pools) {
        let line = self.line();
        let Some(peer) = self.peer() else {
            return;
        };
        let is_concerned = |pool: &&RunningPool| {
            let is_asleep = pool.php.is_none() && pool.shares_php_with(&pools[id]);
            (pool.id() == id || is_asleep) && pool.introduced && pool.line == line
        };
        for pool in pools.iter().filter(is_concerned) {
            peer.say(pool.php_info(pools), &[]);
        }
    }
}
