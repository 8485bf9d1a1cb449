//! Booted applications whose OPcache is full. It restarts only while no process uses it, and a
//! script that is booted once uses it all its life: what does not fit is compiled by every request.
//! So the pool gets another generation with a larger OPcache, while the one before serves.

use maitred_config::{Config, Pool};
use maitred_control::{CacheFigures, CacheSize, ToZygote};
use tracing::{info, warn};

use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;

const MB: u64 = 1 << 20;

/// Most keys of OPcache (`MAX_ACCEL_FILES` in ZendAccelerator.h).
const KEYS_MAX: u64 = 1_000_000;

/// OPcache gets at most this part of the pool's memory (a quarter): the rest is for scripts.
const MEMORY_PART: u64 = 4;

/// A new OPcache of the same size helps for a while when more than this part (an eighth) is wasted.
const WASTED_PART: u64 = 8;

/// Largest plausible OPcache, in MB (16 TiB).
const MEMORY_MB_MAX: u64 = 1 << 24;

/// State of the growth of a full OPcache.
#[derive(Debug, Default)]
pub struct OpcacheGrowth {
    /// The size of that of the next generation.
    next: Option<CacheSize>,
    /// It was logged that it does not grow. It is checked again all the same: a limit may have been
    /// raised since, or many entries be outdated.
    stays: bool,
    /// A larger one has failed.
    has_failed: bool,
}

impl OpcacheGrowth {
    /// The next generation has failed; `for_it_alone`: its only purpose was a larger OPcache. Then
    /// that is not tried again, and the result is true. Otherwise it may have failed for any
    /// reason, and the next report of a full OPcache is checked again.
    fn failed(&mut self, for_it_alone: bool) -> bool {
        let was_tried = self.next.take().is_some();
        self.has_failed |= was_tried && for_it_alone;
        was_tried && for_it_alone
    }

    /// Further reports change nothing.
    fn is_settled(&self) -> bool {
        self.next.is_some() || self.has_failed
    }
}

/// The size at which a full OPcache would not be full; none: there is none. It has `most` bytes at
/// most, or as many as now: then it may get more keys, or start again at the same size. With `most`
/// = 0, none.
fn larger(figures: &CacheFigures, most: u64) -> Option<CacheSize> {
    let used = figures.memory_used_bytes.div_ceil(MB);
    let wasted = figures.memory_wasted_bytes;
    let all = used_and_free(figures).saturating_add(wasted);
    let (keys, all_keys) = figures.keys;
    let present = CacheSize {
        memory_mb: all / MB,
        strings_mb: figures.strings_bytes.1 / MB,
        keys: all_keys.min(KEYS_MAX),
    };
    let is_possible = (1..=MEMORY_MB_MAX).contains(&present.memory_mb);
    if most == 0 || !is_possible || present.strings_mb > present.memory_mb {
        return None;
    }
    let (mut size, most) = (present, (most / MB).max(present.memory_mb));
    if figures.is_full && keys >= all_keys {
        // OPcache rounds it up to the next one of its own list, each about twice the one before.
        size.keys = all_keys.saturating_add(1).min(KEYS_MAX);
    } else if figures.is_full {
        size.memory_mb = doubled_for(used, present.memory_mb).min(most);
    }
    // Wasted memory is free in the next one.
    let lasts = size != present || figures.is_full && wasted > all / WASTED_PART;
    let with_strings = size.memory_mb.saturating_add(present.strings_mb);
    if figures.strings_are_full && (lasts || !figures.is_full) && with_strings <= most {
        size.memory_mb = with_strings;
        size.strings_mb *= 2;
    }
    (lasts || size != present).then_some(size)
}

fn used_and_free(figures: &CacheFigures) -> u64 {
    let used = figures.memory_used_bytes;
    used.saturating_add(figures.memory_free_bytes)
}

/// `memory`, doubled until the used part is half of it at most.
fn doubled_for(used: u64, mut memory: u64) -> u64 {
    while memory < used.saturating_mul(2) && memory > 0 {
        memory = memory.saturating_mul(2);
    }
    memory
}

/// What it lacks, as text.
fn run_out_of(figures: &CacheFigures) -> &'static str {
    let (keys, all_keys) = figures.keys;
    match figures.is_full {
        true if keys >= all_keys => "keys",
        true => "memory",
        false => "room for strings",
    }
}

/// Why it does not grow, within `most` bytes.
fn why_it_stays(figures: &CacheFigures, most: u64) -> String {
    match run_out_of(figures) {
        _ if most == 0 => "`opcache_memory_max` is 0".to_owned(),
        "keys" => format!("it may have {KEYS_MAX} keys at most"),
        _ => format!(
            "it may have {} MiB at most (`opcache_memory_max`, and a quarter of the memory there \
             is)",
            most / MB
        ),
    }
}

/// Its usage, as text.
fn in_words(figures: &CacheFigures) -> String {
    let mb = |bytes: u64| bytes as f64 / MB as f64;
    let all = used_and_free(figures).saturating_add(figures.memory_wasted_bytes);
    let (keys, all_keys) = figures.keys;
    let (strings, all_strings) = figures.strings_bytes;
    format!(
        "{:.1} of {:.0} MiB in use and {:.1} MiB wasted, {keys} of {all_keys} keys, {:.1} of {:.0} \
         MiB of strings",
        mb(figures.memory_used_bytes),
        mb(all),
        mb(figures.memory_wasted_bytes),
        mb(strings),
        mb(all_strings)
    )
}

impl RunningPool {
    /// Workers report that the OPcache of their generation is full. Its zygote is queried, which
    /// has the numbers.
    pub fn opcache_filled(&mut self) {
        if self.opcache_growth.is_settled() || !self.is_current() || !self.is_booted() {
            return;
        }
        let is_up = self.state.zygote_is_up();
        if let Some(zygote) = self.zygote.as_mut().filter(|_| is_up)
            && zygote.opcache.query_whether_full()
        {
            zygote.say(ToZygote::ReportOpcache, &[]);
        }
    }

    /// Decides whether the next generation gets a larger OPcache, of `most` bytes at most. True if
    /// it does.
    pub fn grow_opcache(&mut self, figures: &CacheFigures, most: u64) -> bool {
        if !figures.is_full && !figures.strings_are_full || !self.is_current() {
            return false;
        }
        let pool = &self.plan.settings.pool;
        let what = in_words(figures);
        let growth = &mut self.opcache_growth;
        let Some(size) = larger(figures, most) else {
            if !std::mem::replace(&mut growth.stays, true) {
                warn!(
                    "pool `{pool}`: OPcache is full ({what}): it has run out of {} and stays so, \
                     since {}: what finds no room is compiled by every request",
                    run_out_of(figures),
                    why_it_stays(figures, most)
                );
            }
            return false;
        };
        growth.next = Some(size);
        info!(
            "pool `{pool}`: OPcache is full ({what}): it is restarted with {} MiB, {} keys and {} \
             MiB for strings",
            size.memory_mb, size.keys, size.strings_mb
        );
        true
    }
}

impl Pools {
    /// The size of the OPcache of the next generation of `pool`: what one before it needed, unless
    /// its settings have changed since.
    pub fn opcache_size(&self, pool: &Pool, config: &Config) -> Option<CacheSize> {
        let running = self.current_of(&pool.name)?;
        let size = running.opcache_growth.next.or(running.plan.settings.cache_size);
        size.filter(|_| !running.plan.differs(pool, config))
    }

    /// Whether the pool of this name waits for a larger OPcache: a reload may have brought it
    /// since.
    pub fn has_outgrown_opcache(&self, name: &str) -> bool {
        let mut current = self.current().filter(|pool| pool.name() == name);
        current.any(|pool| pool.opcache_growth.next.is_some())
    }

    /// The next generation of this pool has failed, or could not even be tried; `for_it_alone`: its
    /// only purpose was a larger OPcache.
    pub fn larger_opcache_failed(&mut self, name: &str, for_it_alone: bool) {
        let before = self.current_of_mut(name);
        if before.is_some_and(|before| before.opcache_growth.failed(for_it_alone)) {
            warn!(
                "pool `{name}`: its boot with a larger OPcache has failed: what serves keeps the \
                 one it has, and what finds no room is compiled by every request"
            );
        }
    }
}

/// The largest size of this pool's OPcache, in bytes, where there is `memory` for it; 0: it does
/// not grow.
pub fn largest_opcache(pool: &Pool, memory: Option<f64>) -> u64 {
    let together = &pool.confinement.together;
    let limits = [memory.map(|limit| limit as u64), together.memory_max, together.memory_high];
    let limits = limits.into_iter().flatten();
    let part = limits.map(|limit| limit / MEMORY_PART).min();
    part.map_or(pool.opcache_memory_max, |part| part.min(pool.opcache_memory_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of 64 MB of memory, 8 of them for strings, with 16,229 keys.
    fn figures() -> CacheFigures {
        CacheFigures {
            memory_used_bytes: 40 * MB,
            memory_free_bytes: 24 * MB,
            keys: (900, 16_229),
            strings_bytes: (2 * MB, 8 * MB),
            ..CacheFigures::default()
        }
    }

    fn size(memory_mb: u64, strings_mb: u64, keys: u64) -> Option<CacheSize> {
        Some(CacheSize { memory_mb, strings_mb, keys })
    }

    fn full() -> CacheFigures {
        CacheFigures {
            memory_used_bytes: 63 * MB,
            memory_free_bytes: MB,
            is_full: true,
            ..figures()
        }
    }

    #[test]
    fn what_is_full_is_doubled_and_the_rest_stays() {
        assert_eq!(larger(&full(), 512 * MB), size(128, 8, 16_229));
        let keys = CacheFigures { keys: (16_229, 16_229), is_full: true, ..figures() };
        assert_eq!(larger(&keys, 512 * MB), size(64, 8, 16_230));
        let strings =
            CacheFigures { strings_bytes: (8 * MB, 8 * MB), strings_are_full: true, ..figures() };
        // They are a part of the memory, of which scripts are to have as much as before.
        assert_eq!(larger(&strings, 512 * MB), size(72, 16, 16_229));
        let both =
            CacheFigures { strings_bytes: (8 * MB, 8 * MB), strings_are_full: true, ..full() };
        assert_eq!(larger(&both, 512 * MB), size(136, 16, 16_229));
    }

    #[test]
    fn nothing_grows_beyond_the_limit_and_nothing_begins_anew_that_would_be_as_full() {
        assert_eq!(larger(&full(), 100 * MB), size(100, 8, 16_229));
        assert_eq!(larger(&full(), 64 * MB), None);
        assert_eq!(larger(&full(), 1), None);
        assert_eq!(larger(&full(), 0), None);
        let strings =
            CacheFigures { strings_bytes: (8 * MB, 8 * MB), strings_are_full: true, ..figures() };
        assert_eq!(larger(&strings, 71 * MB), None);
        // More room for strings does not help scripts that find none.
        let both = CacheFigures {
            is_full: true,
            memory_used_bytes: 64 * MB,
            memory_free_bytes: 0,
            ..strings
        };
        assert_eq!(larger(&both, 64 * MB), None);
        let keys = CacheFigures { keys: (1_048_793, 1_048_793), is_full: true, ..figures() };
        assert_eq!(larger(&keys, 512 * MB), None);
    }

    #[test]
    fn one_that_is_full_of_what_is_outdated_begins_anew_as_it_is() {
        let wasted = CacheFigures {
            memory_used_bytes: 20 * MB,
            memory_free_bytes: 0,
            memory_wasted_bytes: 44 * MB,
            is_full: true,
            ..figures()
        };
        assert_eq!(larger(&wasted, 512 * MB), size(64, 8, 16_229));
        let partly =
            CacheFigures { memory_used_bytes: 50 * MB, memory_wasted_bytes: 14 * MB, ..wasted };
        assert_eq!(larger(&partly, 512 * MB), size(128, 8, 16_229));
        assert_eq!(larger(&partly, 64 * MB), size(64, 8, 16_229));
        assert_eq!(larger(&wasted, 0), None, "it is to stay as it is");
    }

    #[test]
    fn one_that_is_larger_than_it_may_get_keeps_its_memory_and_may_have_keys_and_begin_anew() {
        let wasted = CacheFigures {
            memory_used_bytes: 20 * MB,
            memory_free_bytes: 0,
            memory_wasted_bytes: 44 * MB,
            is_full: true,
            ..figures()
        };
        let keys = CacheFigures { keys: (16_229, 16_229), is_full: true, ..figures() };
        for most in [1, 20 * MB, 63 * MB] {
            assert_eq!(larger(&wasted, most), size(64, 8, 16_229));
            assert_eq!(larger(&keys, most), size(64, 8, 16_230));
            assert_eq!(larger(&full(), most), None);
        }
    }

    #[test]
    fn why_one_stays_as_it_is_names_what_it_has_run_out_of() {
        let keys = CacheFigures { keys: (1_048_793, 1_048_793), is_full: true, ..figures() };
        let strings = CacheFigures { strings_are_full: true, ..figures() };
        let all = [full(), keys, strings];
        let names = all.map(|figures| run_out_of(&figures));
        assert_eq!(names, ["memory", "keys", "room for strings"]);
        let of_memory = "it may have 64 MiB at most (`opcache_memory_max`, and a quarter of the \
                         memory there is)";
        let of_keys = "it may have 1000000 keys at most";
        let why = all.map(|figures| why_it_stays(&figures, 64 * MB));
        assert_eq!(why, [of_memory, of_keys, of_memory]);
        assert_eq!(why_it_stays(&keys, 0), "`opcache_memory_max` is 0");
    }

    #[test]
    fn only_a_boot_that_failed_for_it_alone_ends_growth() {
        let waits = || OpcacheGrowth { next: size(128, 8, 16_229), ..OpcacheGrowth::default() };
        let mut outgrown = waits();
        assert!(outgrown.failed(true));
        assert!(outgrown.is_settled() && outgrown.next.is_none());
        assert!(!outgrown.failed(true), "it is said once");
        let mut outgrown = waits();
        assert!(!outgrown.failed(false));
        assert!(!outgrown.is_settled(), "who finds it full next is heard");
        let mut serves = OpcacheGrowth::default();
        assert!(!serves.failed(true) && !serves.is_settled());
        let growth = OpcacheGrowth { stays: true, ..OpcacheGrowth::default() };
        assert!(!growth.is_settled(), "it may be of use to look again");
    }

    #[test]
    fn growing_again_and_again_comes_to_an_end() {
        let mut now = full();
        for round in 0.. {
            assert!(round < 5, "{now:?}");
            let Some(size) = larger(&now, 512 * MB) else {
                break;
            };
            now.memory_used_bytes = size.memory_mb * MB;
            now.memory_free_bytes = 0;
        }
        assert_eq!(now.memory_used_bytes, 512 * MB);
    }

    #[test]
    fn figures_that_no_opcache_has_come_to_nothing_worse_than_the_limit() {
        let wrong = CacheFigures {
            memory_used_bytes: u64::MAX,
            memory_free_bytes: u64::MAX,
            memory_wasted_bytes: u64::MAX,
            keys: (u64::MAX, u64::MAX),
            strings_bytes: (u64::MAX, u64::MAX),
            is_full: true,
            strings_are_full: true,
            ..CacheFigures::default()
        };
        assert_eq!(larger(&wrong, 512 * MB), None);
        assert_eq!(
            larger(&CacheFigures { is_full: true, ..CacheFigures::default() }, 512 * MB),
            None
        );
    }
}
