//! `preload`: a pool gets another generation that preloads the classes of its requests, once its
//! OPcache has them. The generation before serves until then.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use maitred_control::admin::Preloading;
use maitred_control::{CacheFigures, Generation, PRELOADABLE_TIMEOUT, ToZygote, exit};
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use tracing::{debug, info, warn};

use crate::limits::Moment;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;

/// Time from the start of a generation to the first look at its OPcache; it doubles with each look.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// Longest time between two looks.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(300);

/// The scripts of a pool are known when there is no new one for as long as each takes to be used
/// this often, on average.
const USES_OF_A_SCRIPT: u64 = 4;

/// Fewest classes that are worth another generation: a look-up of one takes microseconds.
const CLASSES_MIN: u32 = 16;

/// Preloading is switched off after this number of preloading generations that did not last.
const LOST_MAX: usize = 3;

/// Within this time.
const LOST_WITHIN: Duration = Duration::from_secs(900);

/// A zygote that does not reply within this time has no list.
const REPLY_TIMEOUT: Duration = PRELOADABLE_TIMEOUT.saturating_add(Duration::from_secs(5));

/// The pools with `preload`, by name.
#[derive(Debug, Default)]
pub struct PreloadingPools(BTreeMap<String, PoolPreloading>);

#[derive(Debug)]
struct PoolPreloading {
    /// The current generation.
    generation: Generation,
    stage: PreloadStage,
    /// When the last preloading generations were replaced.
    lost: Vec<Moment>,
    /// The next generation is that of a reload, which is no loss.
    is_reloading: bool,
}

#[derive(Debug)]
enum PreloadStage {
    /// Its OPcache is observed.
    Learning(Learning),
    /// Its zygote looks for scripts that may be preloaded.
    Listing { list: OwnedFd, until: Moment },
    /// The next generation preloads these scripts.
    Listed { list: OwnedFd },
    /// It preloads this number of classes.
    Preloaded { classes: u32 },
    /// It preloads nothing, and why; the next generation does neither if `lasts`.
    Off { why: &'static str, lasts: bool },
}

/// What is known of the scripts of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Learning {
    look_at: Moment,
    pause: Duration,
    /// The reply to a look is due. Replies to others, such as `maitred status`, may come after so
    /// short a time that no script was used.
    is_looking: bool,
    /// Scripts and look-ups at the look before.
    before: Option<(u64, u64)>,
}

impl Learning {
    fn begin(now: Moment) -> Learning {
        Learning { look_at: now + FIRST_LOOK, pause: FIRST_LOOK, is_looking: false, before: None }
    }

    /// The zygote was asked.
    fn look(&mut self, now: Moment) {
        self.pause = (self.pause * 2).min(LOOK_EVERY_MAX);
        self.look_at = now + self.pause;
        self.is_looking = true;
    }

    /// The reply of the zygote. True if all scripts are known.
    fn learn(&mut self, figures: &CacheFigures) -> bool {
        if !std::mem::take(&mut self.is_looking) {
            return false;
        }
        let seen = (figures.cached_scripts, figures.hits);
        let before = self.before.replace(seen);
        before.is_some_and(|(scripts, hits)| {
            let uses = figures.hits.saturating_sub(hits);
            scripts == seen.0 && uses >= scripts.max(1).saturating_mul(USES_OF_A_SCRIPT)
        })
    }
}

impl PreloadingPools {
    /// When a pool is looked at, or a zygote has not replied.
    pub fn deadline(&self, pools: &Pools) -> Option<Moment> {
        let deadlines = self.0.iter().filter_map(|(name, pool)| match &pool.stage {
            PreloadStage::Learning(learning) => {
                pools.current_of(name).filter(|pool| pool.has_php()).map(|_| learning.look_at)
            }
            PreloadStage::Listing { until, .. } => Some(*until),
            PreloadStage::Listed { .. }
            | PreloadStage::Preloaded { .. }
            | PreloadStage::Off { .. } => None,
        });
        deadlines.min()
    }

    /// Follows the current generations, and looks at their OPcaches.
    pub fn keep(&mut self, pools: &mut Pools, now: Moment) {
        let wanted: BTreeMap<String, (Generation, bool)> = pools
            .current()
            .filter(|pool| pool.plan.configured.preload && !pool.is_booted())
            .map(|pool| (pool.name().to_owned(), (pool.generation, pool.preloads())))
            .collect();
        self.0.retain(|name, _| wanted.contains_key(name));
        for (name, (generation, preloads)) in wanted {
            let before = self.0.remove(&name);
            let pool = match before {
                Some(pool) if pool.generation == generation => pool,
                before => PoolPreloading::next(before, generation, preloads, now),
            };
            self.0.entry(name).or_insert(pool);
        }
        for (name, pool) in &mut self.0 {
            pool.act(name, pools, now);
        }
    }

    /// A reload replaces the generations of these pools, which is no loss.
    pub fn reloading(&mut self, restarted: &BTreeSet<String>) {
        for (name, pool) in &mut self.0 {
            if restarted.contains(name) {
                pool.is_reloading = true;
                pool.lost.clear();
            }
        }
    }

    /// A zygote has reported the state of its OPcache.
    pub fn opcache_reported(
        &mut self,
        running: &mut RunningPool,
        figures: &CacheFigures,
        now: Moment,
    ) {
        let Some(pool) = self.0.get_mut(running.name()) else {
            return;
        };
        let PreloadStage::Learning(learning) = &mut pool.stage else {
            return;
        };
        if pool.generation != running.generation || !learning.learn(figures) {
            return;
        }
        let list = shared::file_with("maitred-preloadable", b"");
        let zygote = running.zygote.as_mut();
        if let Some((list, zygote)) = list.ok().zip(zygote) {
            zygote.say(ToZygote::ListPreloadable, &[list.as_fd()]);
            pool.stage = PreloadStage::Listing { list, until: now + REPLY_TIMEOUT };
        }
    }

    /// A zygote has listed the scripts that may be preloaded. True if its pool is to be restarted.
    pub fn listed(&mut self, running: &RunningPool, count: u32) -> bool {
        let Some(pool) = self.0.get_mut(running.name()) else {
            return false;
        };
        if pool.generation != running.generation {
            return false;
        }
        let stage = std::mem::replace(&mut pool.stage, PreloadStage::off("too few classes"));
        let PreloadStage::Listing { list, .. } = stage else {
            pool.stage = stage;
            return false;
        };
        let is_worth_it = count >= CLASSES_MIN;
        if is_worth_it {
            pool.stage = PreloadStage::Listed { list };
        } else {
            info!("pool {}: {count} scripts may be preloaded, which is too few", running.name());
        }
        is_worth_it
    }

    /// Takes the scripts that the next generation of this pool preloads.
    pub fn take_list(&mut self, name: &str) -> Option<OwnedFd> {
        let pool = self.0.get_mut(name)?;
        match std::mem::replace(&mut pool.stage, PreloadStage::off("its start has failed")) {
            PreloadStage::Listed { list } => Some(list),
            other => {
                pool.stage = other;
                None
            }
        }
    }

    /// A worker of this generation has ended. True if its pool is to be restarted without
    /// preloading.
    pub fn worker_ended(&mut self, running: &RunningPool, how: HowEnded) -> bool {
        let why = match how {
            HowEnded::Exited(exit::CONFLICT) => "a script declares a class that is preloaded",
            HowEnded::Signaled(signal) if CRASHES.contains(&signal) => "a worker has crashed",
            HowEnded::Exited(_) | HowEnded::Signaled(_) => return false,
        };
        let name = running.name();
        let pool = self.0.get_mut(name).filter(|_| running.preloads() && running.is_current());
        let is_first = |pool: &&mut PoolPreloading| {
            let is_on = matches!(pool.stage, PreloadStage::Preloaded { .. });
            is_on && pool.generation == running.generation
        };
        let Some(pool) = pool.filter(is_first) else {
            return false;
        };
        warn!("pool {name}: {why}: it is restarted without preloading, until the next reload");
        pool.stage = PreloadStage::Off { why, lasts: true };
        true
    }

    /// The state of a pool, for its status.
    pub fn shown(&self, name: &str) -> Option<Preloading> {
        let (state, classes) = match &self.0.get(name)?.stage {
            PreloadStage::Learning(_)
            | PreloadStage::Listing { .. }
            | PreloadStage::Listed { .. } => ("learning which classes the pool uses", 0),
            PreloadStage::Preloaded { classes } => ("on", *classes),
            PreloadStage::Off { why, .. } => (*why, 0),
        };
        Some(Preloading { state: state.to_owned(), classes })
    }
}

/// SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV.
const CRASHES: [i32; 5] = [4, 6, 7, 8, 11];

impl PreloadStage {
    fn off(why: &'static str) -> PreloadStage {
        PreloadStage::Off { why, lasts: false }
    }
}

impl PoolPreloading {
    /// The state of a new generation. What a reload has brought is learned again: its classes may
    /// be in other files.
    fn next(
        before: Option<PoolPreloading>,
        generation: Generation,
        preloads: bool,
        now: Moment,
    ) -> PoolPreloading {
        let is_reloading = before.as_ref().is_some_and(|pool| pool.is_reloading);
        let (stage, mut lost) =
            before.map_or((None, Vec::new()), |pool| (Some(pool.stage), pool.lost));
        if let Some(PreloadStage::Preloaded { .. }) = stage
            && !is_reloading
        {
            lost.push(now);
            lost.retain(|at| now < *at + LOST_WITHIN);
        }
        let stage = match stage {
            _ if preloads => PreloadStage::Preloaded { classes: 0 },
            Some(PreloadStage::Off { why, lasts: true }) => PreloadStage::off(why),
            _ if lost.len() >= LOST_MAX => {
                lost.clear();
                PreloadStage::off("its scripts change, or are in new folders, again and again")
            }
            _ => PreloadStage::Learning(Learning::begin(now)),
        };
        PoolPreloading { generation, stage, lost, is_reloading: false }
    }

    fn act(&mut self, name: &str, pools: &mut Pools, now: Moment) {
        // Also without a zygote, which may have been dismissed meanwhile.
        if let PreloadStage::Listing { until, .. } = &self.stage
            && *until <= now
        {
            debug!("pool {name}: its zygote has listed no scripts to preload");
            self.stage = PreloadStage::Learning(Learning::begin(now));
        }
        let Some(running) = pools.current_of_mut(name).filter(|pool| pool.has_php()) else {
            return;
        };
        match &mut self.stage {
            PreloadStage::Learning(learning) if learning.look_at <= now => {
                learning.look(now);
                running.query_opcache();
            }
            PreloadStage::Preloaded { classes } => *classes = running.preloaded_classes,
            _ => {}
        }
    }
}

impl RunningPool {
    /// Whether its PHP preloads classes that an earlier generation has used.
    pub fn preloads(&self) -> bool {
        self.plan.settings.preload
    }

    /// Its PHP has started and preloaded this number of classes.
    pub fn preloads_classes(&mut self, classes: u32) {
        self.preloaded_classes = classes;
        if self.preloads() {
            info!("pool {}: {classes} classes are preloaded", self.name());
        }
    }

    fn has_php(&self) -> bool {
        self.zygote.is_some() && self.state.zygote_is_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    fn figures(scripts: u64, hits: u64) -> CacheFigures {
        CacheFigures { cached_scripts: scripts, hits, ..CacheFigures::default() }
    }

    #[test]
    fn scripts_are_known_when_none_is_new_while_each_is_used_several_times() {
        let mut learning = Learning::begin(at(0));
        let mut look = |figures: CacheFigures| {
            learning.look(at(2));
            learning.learn(&figures)
        };
        assert!(!look(figures(100, 1000)), "there is no look before");
        assert!(!look(figures(100, 1399)), "they are used too little");
        assert!(!look(figures(101, 9000)), "one is new");
        assert!(look(figures(101, 9404)));
    }

    #[test]
    fn a_status_between_two_looks_does_not_delay_the_list() {
        let mut learning = Learning::begin(at(0));
        learning.look(at(2));
        assert!(!learning.learn(&figures(100, 1000)));
        assert!(!learning.learn(&figures(100, 1390)), "nothing was looked for");
        learning.look(at(6));
        assert!(learning.learn(&figures(100, 1400)));
    }

    #[test]
    fn a_pool_without_requests_is_looked_at_less_and_less() {
        let mut learning = Learning::begin(at(0));
        let mut looks = Vec::new();
        for _ in 0..10 {
            let now = learning.look_at;
            looks.push(now.as_secs());
            learning.look(now);
            assert!(!learning.learn(&figures(0, 0)));
        }
        assert_eq!(looks, [2, 6, 14, 30, 62, 126, 254, 510, 810, 1110]);
    }

    #[test]
    fn after_a_conflict_one_generation_does_without_and_after_a_reload_it_is_learned_again() {
        let conflict = PreloadStage::Off { why: "a worker has crashed", lasts: true };
        let before = PoolPreloading {
            generation: 1,
            stage: conflict,
            lost: Vec::new(),
            is_reloading: false,
        };
        let without = PoolPreloading::next(Some(before), 2, false, at(0));
        assert!(matches!(without.stage, PreloadStage::Off { lasts: false, .. }), "{without:?}");
        let reloaded = PoolPreloading::next(Some(without), 3, false, at(0));
        assert!(matches!(reloaded.stage, PreloadStage::Learning(_)), "{reloaded:?}");
        let preloads = PoolPreloading::next(Some(reloaded), 4, true, at(0));
        assert!(matches!(preloads.stage, PreloadStage::Preloaded { .. }), "{preloads:?}");
    }

    #[test]
    fn a_pool_whose_preloading_does_not_last_goes_on_without() {
        let mut pool = PoolPreloading::next(None, 0, false, at(0));
        for (generation, minute) in [(1, 1), (3, 5), (5, 9)] {
            let now = at(60 * minute);
            pool = PoolPreloading::next(Some(pool), generation, true, now);
            assert!(matches!(pool.stage, PreloadStage::Preloaded { .. }), "{pool:?}");
            pool = PoolPreloading::next(Some(pool), generation + 1, false, now);
        }
        assert!(matches!(pool.stage, PreloadStage::Off { .. }), "{pool:?}");
        // After the next reload it is learned again.
        pool = PoolPreloading::next(Some(pool), 7, false, at(700));
        assert!(matches!(pool.stage, PreloadStage::Learning(_)), "{pool:?}");
    }
    #[test]
    fn reloads_of_a_pool_are_losses_of_no_pool_but_excuse_none_of_another() {
        let first = || PoolPreloading::next(None, 0, false, at(0));
        let restarted = BTreeSet::from(["reloaded".to_owned()]);
        let mut pools = PreloadingPools::default();
        pools.0.extend([("reloaded".to_owned(), first()), ("other".to_owned(), first())]);
        for generation in [1_u32, 3, 5] {
            let now = at(60 * u64::from(generation));
            pools.reloading(&restarted);
            for name in ["reloaded", "other"] {
                let pool = PoolPreloading::next(pools.0.remove(name), generation, true, now);
                pools.0.insert(name.to_owned(), pool);
            }
            pools.reloading(&restarted);
            for name in ["reloaded", "other"] {
                let pool = PoolPreloading::next(pools.0.remove(name), generation + 1, false, now);
                pools.0.insert(name.to_owned(), pool);
            }
        }
        let stage = |name: &str| &pools.0[name].stage;
        assert!(matches!(stage("reloaded"), PreloadStage::Learning(_)), "{pools:?}");
        assert!(matches!(stage("other"), PreloadStage::Off { .. }), "{pools:?}");
    }
}
