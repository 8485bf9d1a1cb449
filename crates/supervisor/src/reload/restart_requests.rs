//! Restarts of pools: of booted applications whose scripts have changed or whose OPcache is full,
//! and of pools whose memory was corrupted. They get a new generation, and the one before serves
//! until that is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maitred_control::exit;
use maitred_os::fork::HowEnded;
use tracing::info;

use crate::limits::Moment;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;

/// Least time between two restarts of a pool: an application that is updated reports each of its
/// files. It doubles with each restart.
const RENEWED_EVERY: Duration = Duration::from_secs(1);

/// Longest time between two requested restarts: an application that requests one with every request
/// is not booted more often than this, and outdated for this long at most.
const RENEWED_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// A file that is saved during a boot, or this soon after, may have been written by the boot itself
/// or by the first requests: a boot for it may be the first of an endless series.
const AFTERMATH: Duration = Duration::from_secs(1);

/// After this time without a restart, the next one is the first again.
const CALM: Duration = Duration::from_secs(300);

/// Requested restarts, by pool.
#[derive(Debug, Clone, Default)]
pub struct RestartRequests(BTreeMap<String, RestartRequest>);

/// The state of one pool.
#[derive(Debug, Clone, Default)]
struct RestartRequest {
    /// A script has requested it.
    asked: bool,
    /// A watched file was saved.
    saved: bool,
    /// Its OPcache is full.
    outgrown: bool,
    /// Its shared memory was corrupted repeatedly.
    spoilt: bool,
    /// The classes that it may preload are known.
    preloads: bool,
    /// When it was last restarted, and how long requests of scripts wait from then on.
    last: Option<(Moment, Duration)>,
    /// When the last restart was over; none: it is going on, or there was none.
    ended: Option<Moment>,
    /// How long saved files wait from then on.
    rest: Duration,
    /// When the last restart has failed; none: it has not.
    failed: Option<Moment>,
}

/// Pools that are to be restarted.
#[derive(Debug)]
pub struct DueRestarts {
    /// Their names.
    pub pools: BTreeSet<String>,
    /// Those of them that need only a larger OPcache.
    pub outgrown: BTreeSet<String>,
    /// Those of them that need only preload classes.
    pub preloading: BTreeSet<String>,
}

/// What to log about a saved file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveNotice {
    /// It is the reason of the next restart.
    News,
    /// The same, and such files may be written by the boots themselves; the next restart waits this
    /// long.
    Echo(Duration),
    /// Nothing: there is a reason already.
    Known,
}

impl RestartRequest {
    fn is_wanted(&self) -> bool {
        self.saved || self.is_asked()
    }

    /// Whether the wait doubles.
    fn is_asked(&self) -> bool {
        self.asked || self.outgrown || self.spoilt || self.preloads
    }

    /// Whether its scripts have changed.
    fn has_changed(&self) -> bool {
        self.asked || self.saved
    }

    fn not_before(&self) -> Moment {
        // A start that hangs takes longer than any pause: others have their turn after it.
        let begins = |at: Moment| self.failed.map_or(at, |failed| failed.max(at));
        let asked = self.last.map_or(Moment::ZERO, |(at, pause)| begins(at) + pause);
        let saved = self.ended.map_or(Moment::ZERO, |at| at + self.rest);
        match (self.is_asked(), self.saved) {
            (true, true) => asked.min(saved),
            (false, true) => saved,
            (true | false, false) => asked,
        }
    }

    /// A file was saved at this time.
    fn note_saved(&mut self, at: Moment) -> SaveNotice {
        if std::mem::replace(&mut self.saved, true) {
            return SaveNotice::Known;
        }
        let Some((began, _)) = self.last else {
            return SaveNotice::News;
        };
        if at >= began && self.ended.is_none_or(|ended| at < ended + AFTERMATH) {
            self.rest = match self.rest.is_zero() {
                true => RENEWED_EVERY,
                false => (self.rest * 2).min(RENEWED_AT_LEAST_EVERY),
            };
            // The first time may be chance.
            if self.rest == RENEWED_EVERY * 2 {
                return SaveNotice::Echo(self.rest);
            }
        } else if self.ended.is_some_and(|ended| at >= ended + self.rest) {
            self.rest = Duration::ZERO;
        }
        SaveNotice::News
    }

    /// It is restarted now.
    fn begin(&mut self, now: Moment) {
        let pause = match self.last {
            Some((_, pause)) if !self.is_asked() => pause,
            Some((at, pause)) if now < at + CALM => (pause * 2).min(RENEWED_AT_LEAST_EVERY),
            Some(_) | None => RENEWED_EVERY,
        };
        (self.asked, self.saved) = (false, false);
        (self.outgrown, self.spoilt, self.preloads) = (false, false, false);
        self.last = Some((now, pause));
        self.ended = None;
        self.failed = None;
    }

    /// Whether it is to be restarted now.
    fn is_due(&self, now: Moment) -> bool {
        self.is_wanted() && self.not_before() <= now
    }
}

impl RestartRequests {
    fn of(&mut self, pool: &str) -> &mut RestartRequest {
        self.0.entry(pool.to_owned()).or_default()
    }

    /// Scripts of this pool have changed.
    fn want(&mut self, pool: &str) {
        self.of(pool).asked = true;
    }

    /// The OPcache of this pool has to be larger. The wait doubles, as for scripts.
    pub fn want_larger(&mut self, pool: &str) {
        self.of(pool).outgrown = true;
    }

    /// The memory of this pool is corrupted. The wait doubles, as for scripts.
    pub fn want_fresh(&mut self, pool: &str) {
        self.of(pool).spoilt = true;
    }

    /// This pool is to preload classes. The wait doubles, as for scripts.
    pub fn want_preloaded(&mut self, pool: &str) {
        self.of(pool).preloads = true;
    }

    /// This pool is to be restarted without preloading.
    pub fn want_without_preloading(&mut self, pool: &str) {
        self.want_fresh(pool);
    }

    /// Whether the memory of this pool is corrupted.
    fn is_spoilt(&self, pool: &str) -> bool {
        self.0.get(pool).is_some_and(|renewal| renewal.spoilt)
    }

    /// Whether this pool is to preload classes.
    fn preloads(&self, pool: &str) -> bool {
        self.0.get(pool).is_some_and(|renewal| renewal.preloads)
    }

    /// Whether scripts of this pool have changed.
    fn have_changed(&self, pool: &str) -> bool {
        self.0.get(pool).is_some_and(RestartRequest::has_changed)
    }

    /// A watched file of this pool was saved at this time. It does not wait as scripts do, unless
    /// the boots may have written it.
    pub fn want_saved(&mut self, pool: &str, at: Moment) -> SaveNotice {
        self.of(pool).note_saved(at)
    }

    /// No restart is going on.
    pub fn are_over(&mut self, now: Moment) {
        let begun = self.0.values_mut().filter(|one| one.last.is_some());
        for renewal in begun {
            renewal.ended.get_or_insert(now);
        }
    }

    /// The generation that this pool got by a restart has failed: the one before serves on.
    pub fn failed(&mut self, pool: &str, now: Moment) {
        if let Some(renewal) = self.0.get_mut(pool).filter(|renewal| renewal.last.is_some()) {
            renewal.failed = Some(now);
        }
    }

    /// The pools that are due. There is one turn at a time, which a start that hangs makes long:
    /// pools whose last one has failed are last.
    fn due(&mut self, now: Moment) -> BTreeSet<String> {
        let calm = |renewal: &RestartRequest| renewal.last.is_none_or(|(at, _)| at + CALM <= now);
        self.0.retain(|_, renewal| renewal.is_wanted() || !calm(renewal));
        let is_sound = |renewal: &RestartRequest| renewal.failed.is_none();
        let others = self.0.values().any(|renewal| renewal.is_due(now) && is_sound(renewal));
        let due = self.0.iter_mut().filter(|(_, renewal)| renewal.is_due(now));
        let due = due.filter(|(_, renewal)| !others || is_sound(renewal));
        due.map(|(name, renewal)| {
            renewal.begin(now);
            name.clone()
        })
        .collect()
    }

    /// When a restart is due.
    pub fn deadline(&self) -> Option<Moment> {
        let wanted = self.0.values().filter(|renewal| renewal.is_wanted());
        wanted.map(RestartRequest::not_before).min()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A worker of this generation has ended. It may have reported that its scripts are outdated.
    /// One of a former user says nothing about the pool of another (`has_its_user`).
    pub fn worker_ended(&mut self, running: &RunningPool, how: HowEnded, has_its_user: bool) {
        let has_code = has_its_user && (running.boots() || running.preloads());
        if how == HowEnded::Exited(exit::RENEW) && has_code {
            self.want(running.name());
        }
    }

    /// Takes the pools that are to be restarted now, and among them those that need only a larger
    /// OPcache.
    pub fn take_due(&mut self, pools: &Pools, now: Moment) -> DueRestarts {
        let known = self.clone();
        let mut due = self.due(now);
        // A reload may have removed one since, or changed its mode.
        due.retain(|name| {
            let is_due = known.have_changed(name) || pools.has_outgrown_opcache(name);
            let is_for_all = known.is_spoilt(name) || known.preloads(name);
            let mut current = pools.current().filter(|pool| pool.name() == *name);
            current.any(|pool| is_for_all || is_due && (pool.is_booted() || pool.preloads()))
        });
        let others = due.iter().filter(|name| !known.is_spoilt(name)).cloned();
        let (changed, others): (BTreeSet<_>, BTreeSet<_>) =
            others.partition(|name| known.have_changed(name));
        let (preloading, outgrown) = others.into_iter().partition(|name| known.preloads(name));
        if !changed.is_empty() {
            let names = Vec::from_iter(changed).join("`, `");
            info!("pool `{names}`: its scripts have changed since its start, and it is restarted");
        }
        DueRestarts { pools: due, outgrown, preloading }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn shop() -> BTreeSet<String> {
        BTreeSet::from(["shop".to_owned()])
    }

    #[test]
    fn many_changes_at_once_are_one_renewal_and_later_ones_wait_a_little() {
        let mut renewals = RestartRequests::default();
        assert_eq!(renewals.deadline(), None);
        for _ in 0..100 {
            renewals.want("shop");
        }
        assert_eq!(renewals.due(START), shop());
        assert_eq!(renewals.deadline(), None);
        renewals.want("shop");
        assert_eq!(renewals.due(START), BTreeSet::new());
        assert_eq!(renewals.deadline(), Some(START + RENEWED_EVERY));
        assert_eq!(renewals.due(START + RENEWED_EVERY), shop());
    }

    #[test]
    fn a_pool_whose_memory_is_spoilt_again_and_again_is_renewed_less_and_less() {
        let (mut renewals, mut now, mut pauses) = (RestartRequests::default(), START, Vec::new());
        for _ in 0..8 {
            renewals.want_fresh("shop");
            assert!(renewals.is_spoilt("shop") && !renewals.have_changed("shop"));
            let next = renewals.deadline().unwrap().max(now);
            pauses.push((next - now).as_secs());
            now = next;
            assert_eq!(renewals.due(now), shop());
            assert_eq!(renewals.deadline(), None);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60]);
    }

    #[test]
    fn a_pool_whose_restart_has_failed_is_last_and_leaves_others_as_long_as_it_pauses() {
        let (mut renewals, trial) = (RestartRequests::default(), Duration::from_secs(60));
        let mut now = START;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            renewals.want("shop");
            assert_eq!(renewals.due(now), shop(), "no other is in line");
            // Its start hangs, and it asks again; so does another pool, which has to wait.
            now += trial;
            renewals.want("shop");
            renewals.failed("shop", now);
            assert_eq!(renewals.due(now), BTreeSet::new());
            assert_eq!(renewals.deadline(), Some(now + pause));
            // As long as another one is in line, it is not next.
            for wait in [Duration::ZERO, pause] {
                now += wait;
                let other = format!("blog at {now:?}");
                renewals.want_larger(&other);
                assert_eq!(renewals.due(now), BTreeSet::from([other]));
            }
        }
    }

    #[test]
    fn a_restart_that_fails_does_not_delay_who_saves_a_file_and_one_that_works_ends_it() {
        let mut renewals = RestartRequests::default();
        renewals.failed("shop", START);
        assert!(renewals.is_empty(), "none was going on");
        renewals.want("shop");
        assert_eq!(renewals.due(START), shop());
        let mut now = START + RENEWED_AT_LEAST_EVERY;
        renewals.failed("shop", now);
        renewals.are_over(now);
        now += AFTERMATH;
        renewals.want_saved("shop", now);
        assert_eq!(renewals.due(now), shop());
        renewals.are_over(now);
        renewals.want("shop");
        assert_eq!(renewals.deadline(), Some(now + RENEWED_EVERY), "the last one was sound");
    }

    #[test]
    fn who_saves_a_file_waits_for_nothing_and_makes_nobody_wait_longer() {
        let mut renewals = RestartRequests::default();
        for saved in 0..20 {
            let now = START + 2 * AFTERMATH * saved;
            assert_eq!(renewals.want_saved("shop", now), SaveNotice::News);
            assert_eq!(renewals.want_saved("shop", now), SaveNotice::Known);
            assert_eq!(renewals.due(now), shop());
            renewals.are_over(now + AFTERMATH / 2);
        }
        renewals.want("shop");
        let last = START + 2 * AFTERMATH * 19;
        assert_eq!(renewals.deadline(), Some(last + RENEWED_EVERY));
    }

    #[test]
    fn files_that_boots_write_have_them_booted_less_and_less_until_somebody_else_saves() {
        let boot = Duration::from_millis(30);
        // While it boots, or by the first requests.
        for written in [Duration::from_millis(10), boot + AFTERMATH / 2] {
            let mut renewals = RestartRequests::default();
            let (mut now, mut pauses, mut echoes) = (START, Vec::new(), Vec::new());
            let mut saved = START;
            for _ in 0..10 {
                if let SaveNotice::Echo(next) = renewals.want_saved("shop", saved) {
                    echoes.push(next);
                }
                // Asking makes it no faster.
                renewals.want("shop");
                let next = renewals.deadline().unwrap().max(now);
                pauses.push((next - now).as_secs());
                now = next;
                assert_eq!(renewals.due(now), shop());
                saved = now + written;
                renewals.are_over(now + boot);
                now += boot;
                renewals.are_over(now + boot);
            }
            let asked = [0, 0, 1, 3, 7, 15, 31, 59, 59, 59];
            assert_eq!(pauses, asked);
            assert_eq!(echoes, [RENEWED_EVERY * 2]);
            // A file is saved while it rests, then none is, then one is again.
            let other = now + RENEWED_AT_LEAST_EVERY / 2;
            assert_eq!(renewals.want_saved("shop", other), SaveNotice::News);
            assert_eq!(renewals.deadline(), Some(now + RENEWED_AT_LEAST_EVERY));
            now += RENEWED_AT_LEAST_EVERY;
            assert_eq!(renewals.due(now), shop());
            renewals.are_over(now);
            now += RENEWED_AT_LEAST_EVERY;
            assert_eq!(renewals.want_saved("shop", now), SaveNotice::News);
            assert_eq!(renewals.due(now), shop());
        }
    }

    #[test]
    fn a_pool_that_asks_all_the_time_is_renewed_less_and_less_and_no_other_pays_for_it() {
        let mut renewals = RestartRequests::default();
        let mut now = START;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            renewals.want("shop");
            let next = renewals.deadline().unwrap().max(now);
            pauses.push((next - now).as_secs());
            now = next;
            assert_eq!(renewals.due(now), shop());
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        renewals.want("shop");
        renewals.want("blog");
        assert_eq!(renewals.due(now), BTreeSet::from(["blog".to_owned()]));
        now += RENEWED_AT_LEAST_EVERY;
        assert_eq!(renewals.due(now), shop());
        now += CALM;
        renewals.want("shop");
        assert_eq!(renewals.due(now), shop());
        renewals.want("shop");
        assert_eq!(renewals.deadline(), Some(now + RENEWED_EVERY));
    }
}
