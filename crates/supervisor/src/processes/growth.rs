//! How many workers a pool is to have, how quickly it may get them, and whether its zygote may
//! rest. The front reports how many are needed: it has the queue.

use std::collections::VecDeque;
use std::time::Duration;

use maitred_config::{Mode, Pool, ProcessManager};

use crate::limits::Moment;
use crate::processes::generation::SPARE_SEATS;

/// The period of `max_spawn_rate`.
const RATE_PERIOD: Duration = Duration::from_secs(1);

/// A pool's size: its bounds, and the wanted number of workers.
#[derive(Debug)]
pub struct Growth {
    /// Most workers (`max_children`).
    limit: u32,
    /// Fewest workers.
    floor: u32,
    wanted: u32,
    /// Workers there is memory for.
    room: u32,
    /// Most workers that other generations of the pool leave to this one.
    allowed: u32,
    /// Workers beyond the limit that wait until another has left.
    ahead: u32,
    /// Such workers are started however many are wanted.
    always_ahead: bool,
    rate: Option<Rate>,
    zygote_rest: Option<Duration>,
    /// The same while the pool is idle.
    idle_rest: Duration,
    /// The pool has had no request for long, and needs no worker.
    is_idle: bool,
}

/// Most workers ordered in any [`RATE_PERIOD`].
#[derive(Debug)]
struct Rate {
    most: usize,
    /// Workers that may be ordered besides: those of the start.
    free: u32,
    /// When the last `most` workers were ordered.
    orders: VecDeque<Moment>,
}

impl Growth {
    /// The size of a pool with these settings and `limit` seats.
    pub fn of(pool: &Pool, limit: u32) -> Growth {
        let min_spare = pool.min_spare_servers.unwrap_or(0);
        let (floor, start) = match pool.pm {
            ProcessManager::Static => (limit, limit),
            ProcessManager::Dynamic => (min_spare, pool.start_servers.unwrap_or(min_spare)),
            ProcessManager::Ondemand => (0, 0),
            ProcessManager::Auto => (pool.fewest_found(), pool.fewest_found()),
        };
        let is_copied = pool.mode == Mode::Snapshot;
        // Every request uses a copy up, so that a rate would limit requests. A pool that finds its
        // size is limited only by its capacity.
        let heeds_rate = matches!(pool.pm, ProcessManager::Dynamic | ProcessManager::Ondemand);
        let bounded = heeds_rate && !is_copied;
        let rests = match pool.pm {
            ProcessManager::Ondemand => true,
            ProcessManager::Auto => pool.fewest_found() == 0,
            ProcessManager::Static | ProcessManager::Dynamic => false,
        };
        Growth {
            limit,
            floor: floor.min(limit),
            wanted: start,
            room: u32::MAX,
            allowed: u32::MAX,
            ahead: if is_copied { SPARE_SEATS } else { 0 },
            // Such a pool has no configured number of idle workers.
            always_ahead: pool.pm == ProcessManager::Auto,
            rate: bounded.then(|| Rate {
                most: (pool.max_spawn_rate as usize).max(1),
                free: start.min(limit),
                orders: VecDeque::new(),
            }),
            zygote_rest: rests.then_some(pool.process_idle_timeout),
            idle_rest: pool.process_idle_timeout,
            is_idle: false,
        }
    }

    /// How many workers are wanted now.
    pub fn wants(&self) -> usize {
        if self.is_idle {
            return 0;
        }
        let wanted = self.wanted.min(self.room);
        wanted.max(self.floor).min(self.limit) as usize
    }

    /// How many workers are to be ready beyond those that serve, where each leaves after a few
    /// requests: if the limit is wanted or the pool finds its size, as far as there is memory for
    /// them.
    pub fn ahead(&self) -> usize {
        let wants = self.wants();
        let room = (self.room as usize).saturating_sub(wants);
        match self.always_ahead && wants > 0 || wants == self.limit as usize {
            true => room.min(self.ahead as usize),
            false => 0,
        }
    }

    /// The front reports how many are needed. A front that has ended needs none.
    pub fn want(&mut self, workers: u32) {
        self.is_idle &= workers == 0;
        self.wanted = workers;
    }

    /// The front reports that the pool needs no worker before the next request.
    pub fn rest(&mut self) {
        self.is_idle = true;
        self.wanted = 0;
    }

    /// The front has given a worker up: there are `workers` now, and no more are needed.
    pub fn gave_up(&mut self, workers: usize) {
        self.wanted = self.wanted.min(u32::try_from(workers).unwrap_or(u32::MAX));
    }

    /// There is memory for this many workers.
    pub fn give_room(&mut self, workers: u32) {
        self.room = workers;
    }

    /// Whether more workers are wanted than there is memory for.
    pub fn lacks_room(&self) -> bool {
        self.wanted.min(self.limit) > self.room
    }

    /// Other generations of the pool leave this one as many workers.
    pub fn allow(&mut self, workers: u32) {
        self.allowed = workers;
    }

    /// Most workers now, including those that wait for another to leave.
    pub fn allowed(&self) -> usize {
        self.allowed as usize
    }

    /// When the next worker may be ordered; in the past: now.
    pub fn next_order(&self) -> Moment {
        match &self.rate {
            Some(rate) if rate.free == 0 && rate.orders.len() >= rate.most => {
                let first = rate.orders.front();
                first.map_or(Moment::ZERO, |first| *first + RATE_PERIOD)
            }
            Some(_) | None => Moment::ZERO,
        }
    }

    /// A worker has been ordered.
    pub fn ordered(&mut self, now: Moment) {
        let Some(rate) = &mut self.rate else { return };
        if rate.free > 0 {
            rate.free -= 1;
            return;
        }
        rate.orders.push_back(now);
        if rate.orders.len() > rate.most {
            rate.orders.pop_front();
        }
    }

    /// How long a zygote stays without workers; none: for ever.
    pub fn zygote_rest(&self) -> Option<Duration> {
        self.zygote_rest.or(self.is_idle.then_some(self.idle_rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_finds_its_size_may_be_allowed_to_have_no_worker() {
        let mut settings = Pool::named("www");
        settings.mode = Mode::Snapshot;
        let one = Growth::of(&settings, 8);
        assert_eq!((one.wants(), one.zygote_rest()), (1, None));
        settings.min_spare_servers = Some(0);
        let mut none = Growth::of(&settings, 8);
        assert_eq!((none.wants(), none.ahead()), (0, 0));
        assert_eq!(none.zygote_rest(), Some(settings.process_idle_timeout));
        none.want(3);
        assert_eq!((none.wants(), none.ahead()), (3, SPARE_SEATS as usize));
    }
}
