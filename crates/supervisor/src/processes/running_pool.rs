//! What the supervisor has running: the generations of pools, their zygotes, and the fronts. What is done
//! with them is in `run.rs`.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use maitred_control::{Generation, PhpInfo, ToFront, ToZygote};
use maitred_scoreboard::CopiesTold;

use crate::limits::{FRONT_START, Moment};
use crate::logging::repeated_errors::RepeatedErrors;
use crate::logging::worker_output::WorkerOutputs;
use crate::peer::Peer;
use crate::processes::generation::GenerationState;
use crate::processes::life::Life;
use crate::processes::opcache_size::OpcacheGrowth;
use crate::processes::opcache_stats::OpcacheStats;
use crate::processes::opcache_warming::OpcacheWarming;
use crate::processes::plan::PoolPlan;
use crate::processes::protocol_errors::ProtocolErrors;
use crate::processes::slow_scripts::SlowScripts;

/// A generation of a pool: what is decided about it, and the processes it has.
#[derive(Debug)]
pub struct RunningPool {
    pub generation: Generation,
    /// Which line of fronts uses it.
    pub line: u32,
    /// The front knows it.
    pub introduced: bool,
    /// It is leaving, and its pool with it.
    pub closed: bool,
    /// How many workers it was told the other generations of its pool leave it.
    pub allowed: u32,
    /// How many workers its pool had when it took over.
    pub replaces: u32,
    /// Why its zygote did not start, if that was said.
    pub complaint: Option<String>,
    /// It could not be started: a server that begins as php-fpm begins without it.
    pub failed: bool,
    /// Workers that died so that php-fpm says who takes their place.
    pub to_be_replaced: u32,
    /// When its workers get no more time, if it leaves and their time is limited.
    pub leave_by: Option<Moment>,
    /// Its OPcache is being warmed.
    pub warming: Option<OpcacheWarming>,
    pub plan: PoolPlan,
    pub pool: GenerationState,
    pub zygote: Option<Zygote>,
    /// The PHP it runs, once a zygote has said so.
    pub php: Option<String>,
    /// What has to be known of that PHP to answer in its stead.
    pub manner: PhpInfo,
    /// Descriptors of the processes that sit in its seats.
    pub workers: HashMap<i32, OwnedFd>,
    /// What its workers print, if that is caught for each of them.
    pub outputs: WorkerOutputs,
    pub slow: SlowScripts,
    /// What goes wrong with its processes.
    pub troubles: RepeatedErrors,
    /// Its workers as the pool's scoreboard shows them: those in seats, those on their way.
    pub shown: (u64, u64),
    /// What its copies have counted, as far as the scoreboard shows it.
    pub told: CopiesTold,
    /// Its OPcache, if that is full.
    pub outgrown: OpcacheGrowth,
    /// What its workers have done to the memory they share.
    pub breaches: ProtocolErrors,
}

impl RunningPool {
    /// A generation without processes, which is used from the start.
    pub fn new(generation: Generation, line: u32, plan: PoolPlan) -> RunningPool {
        RunningPool {
            generation,
            line,
            introduced: true,
            closed: false,
            allowed: u32::MAX,
            replaces: 0,
            complaint: None,
            failed: false,
            to_be_replaced: 0,
            leave_by: None,
            warming: None,
            pool: GenerationState::new(plan.settings.seats, plan.growth())
                .booting(plan.boots_within()),
            slow: SlowScripts::new(&plan.pool, plan.settings.identity.as_ref()),
            plan,
            zygote: None,
            php: None,
            manner: PhpInfo::default(),
            workers: HashMap::new(),
            outputs: WorkerOutputs::new(),
            troubles: RepeatedErrors::default(),
            shown: (0, 0),
            told: CopiesTold::default(),
            outgrown: OpcacheGrowth::default(),
            breaches: ProtocolErrors::default(),
        }
    }

    /// A generation without processes, which is used once it has shown that it works.
    /// It begins with as many workers as the generation before it has, as far as it may.
    pub fn on_trial(
        generation: Generation,
        line: u32,
        plan: PoolPlan,
        workers: u32,
    ) -> RunningPool {
        let pool = GenerationState::on_trial(plan.settings.seats, plan.growth());
        let mut pool = pool.booting(plan.boots_within());
        pool.expect(workers);
        RunningPool {
            introduced: false,
            pool,
            ..RunningPool::new(generation, line, plan)
        }
    }

    /// A generation without processes that needs none: the first request starts its PHP.
    pub fn at_rest(generation: Generation, line: u32, plan: PoolPlan) -> RunningPool {
        RunningPool {
            introduced: false,
            ..RunningPool::new(generation, line, plan)
        }
    }

    /// Whether its zygote boots an application, which may fail for reasons of its own.
    pub fn boots(&self) -> bool {
        self.plan.settings.snapshot.is_some()
    }

    /// Whether nobody is being forked for it.
    pub fn is_still(&self) -> bool {
        let reaped = |zygote: &Zygote| zygote.reaped.is_some() || zygote.peer.is_behind();
        self.pool.is_still() && !self.zygote.as_ref().is_some_and(reaped)
    }

    /// Whether it is the one that its pool's requests go to.
    pub fn is_current(&self) -> bool {
        self.introduced && !self.pool.is_leaving()
    }
}

/// A pool's zygote.
#[derive(Debug)]
pub struct Zygote {
    pub peer: Peer<ToZygote>,
    /// When it was reaped. Its last intermediate process may still speak for it.
    pub reaped: Option<Moment>,
    pub cache: OpcacheStats,
}

impl Zygote {
    /// A process that is talked with.
    pub fn new(peer: Peer<ToZygote>) -> Zygote {
        Zygote {
            peer,
            reaped: None,
            cache: OpcacheStats::default(),
        }
    }
}

/// The front that accepts clients.
#[derive(Debug)]
pub struct Front {
    pub life: Life,
    /// A front and those that are started after its death are one line; each upgrade begins
    /// another. Every generation of a pool belongs to one.
    pub line: u32,
    pub epoch: u32,
    pub peer: Option<Peer<ToFront>>,
    pub drained: bool,
}

/// A front that has handed over to another and finishes what it has.
#[derive(Debug)]
pub struct DrainingFront {
    pub line: u32,
    pub epoch: u32,
    pub peer: Peer<ToFront>,
    /// When it is ended whatever it still has.
    pub until: Moment,
    pub drained: bool,
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
}
