//! Which sizes of a pool's caches are too small, by what the pool reports of them. The limits are
//! those of doctor; no load tells a size better than what is in use.

use maitred_doctor::facts::Opcache;
use maitred_doctor::opcache_shortage::{Shortage, shortages};
use maitred_text::humanize::{bytes, plural};

use super::php_term::{CacheSize, PhpTerm};

const MB: f64 = 1_048_576.0;
const KB: f64 = 1_024.0;

/// A proposed size has room for this multiple of what is in use: a pool that is full does not
/// report what found no room.
const RESERVE: f64 = 2.0;

/// OPcache's memory is a multiple of this, in MB, and its keys of that.
const MEMORY_STEP: f64 = 16.0;
const KEYS_STEP: u64 = 100;

/// Most keys of OPcache (`MAX_ACCEL_FILES` in zend_accelerator_module.c).
const MOST_KEYS: u64 = 1_000_000;

/// Most MB of OPcache's buffer of strings, whose size PHP has in 32 bits.
const MOST_STRINGS: u64 = 4_095;

/// The buffer of strings gets at most this share of OPcache's memory, and together with what is in
/// use at most that.
const MOST_STRINGS_OF_MEMORY: f64 = 0.5;
const MOST_USED: f64 = 0.95;

/// OPcache gets at most this part of the server's memory, as a divisor: the rest is for scripts.
const MEMORY_PART: f64 = 4.0;

/// A worker's cache of real paths is full if more of it is in use: an entry that does not fit is
/// left out.
const MOST_REAL_PATHS: f64 = 0.9;

/// What is wasted is freed by a reload. If less than this share of OPcache remains in use then,
/// that is enough.
const ENOUGH_WITHOUT_WASTE: f64 = 0.7;

/// A cache of real paths, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RealPaths {
    /// Bytes in use, in the worker that uses most.
    pub used: f64,
    /// Its size; with `open_basedir`, PHP uses none of it.
    pub limit: f64,
}

/// What a pool reports of its caches.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PoolCaches {
    /// Its OPcache; `None`: it has none, or its state is unknown.
    pub opcache: Option<Opcache>,
    /// The cache of real paths; `None`: no worker has run a script.
    pub real_paths: Option<RealPaths>,
}

/// The verdict on a size.
#[derive(Debug, Clone, PartialEq)]
pub enum SizeVerdict {
    /// It suffices, or cannot be changed: why, with its figures.
    Stays(String),
    /// It is too small: the proposal, and why.
    Grows(PhpTerm, String),
}

impl PoolCaches {
    /// The verdict on one size. `memory` is that of the server, in bytes, if known; `strings` is
    /// the proposed size of the buffer of strings, in MB, if it is to grow.
    pub fn judge(&self, size: CacheSize, memory: Option<f64>, strings: Option<u64>) -> SizeVerdict {
        let Some(opcache) = &self.opcache else {
            return match size {
                CacheSize::RealPaths => self.real_paths(),
                _ => stays("the pool reports no OPcache"),
            };
        };
        match size {
            CacheSize::Strings => strings_of(opcache),
            CacheSize::Memory => memory_of(&with_strings(opcache, strings), memory),
            CacheSize::Files => files_of(opcache),
            CacheSize::RealPaths => self.real_paths(),
        }
    }

    /// Whether a buffer of strings of this size, in MB, leaves room for scripts in OPcache's memory
    /// of `memory` MB, or else of its current size. PHP does not start with a buffer that its
    /// memory cannot hold.
    pub fn strings_fit(&self, strings: u64, memory: Option<u64>) -> bool {
        let Some(opcache) = &self.opcache else {
            return true;
        };
        let room = memory.map_or(opcache.size(), |memory| memory as f64 * MB);
        strings as f64 <= room / MB * MOST_STRINGS_OF_MEMORY
            && with_strings(opcache, Some(strings)).used <= room * MOST_USED
    }

    fn real_paths(&self) -> SizeVerdict {
        let Some(RealPaths { used, limit }) = self.real_paths else {
            return stays("no worker has reported its cache of real paths");
        };
        if limit <= 0.0 {
            return stays("it is 0, so that PHP caches no real paths");
        }
        if used <= MOST_REAL_PATHS * limit {
            return suffices(used, limit);
        }
        let value = (RESERVE * limit / KB).ceil() as u64;
        grows(CacheSize::RealPaths, value, format!("{} are in use", share(used, limit)))
    }
}

/// The same OPcache with a larger buffer of strings, which is a part of its memory.
fn with_strings(opcache: &Opcache, strings: Option<u64>) -> Opcache {
    let (_, size) = opcache.strings.unwrap_or_default();
    let more = strings.map_or(0.0, |strings| (strings as f64 * MB - size).max(0.0));
    Opcache { used: opcache.used + more, free: opcache.free - more, ..*opcache }
}

fn strings_of(opcache: &Opcache) -> SizeVerdict {
    let Some((used, size)) = opcache.strings else {
        return stays("OPcache has no buffer of strings");
    };
    if !shortages(opcache).contains(&Shortage::Strings) {
        return suffices(used, size);
    }
    let value = ((RESERVE * used / MB).ceil() as u64).min(MOST_STRINGS);
    if value as f64 * MB <= size {
        return stays(&format!("{} are in use, and PHP allows no more", share(used, size)));
    }
    let why =
        format!("{} are in use, and further strings take the memory of scripts", share(used, size));
    grows(CacheSize::Strings, value, why)
}

fn memory_of(opcache: &Opcache, memory: Option<f64>) -> SizeVerdict {
    let size = opcache.size();
    let found = shortages(opcache);
    let is_full = found.iter().any(|shortage| matches!(shortage, Shortage::Memory(_)));
    let emptied = opcache.memory_restarts;
    if !is_full && emptied == 0 {
        return suffices(opcache.used, size);
    }
    let is_wasted = found.iter().any(|shortage| matches!(shortage, Shortage::Wasted(_)));
    if emptied == 0 && is_wasted && opcache.used <= ENOUGH_WITHOUT_WASTE * size {
        return stays(&format!(
            "it suffices: {} are in use; {} of changed scripts are wasted, which a reload frees",
            share(opcache.used, size),
            bytes(opcache.wasted)
        ));
    }
    let why = match emptied {
        0 => format!("{} are in use", share(opcache.used, size)),
        _ => format!(
            "OPcache of {} was emptied {} for lack of memory",
            bytes(size),
            plural(emptied, "time")
        ),
    };
    // What it held before it was emptied is not known, but it was more than fits.
    let needed = if emptied == 0 { opcache.used } else { size };
    let wanted = (RESERVE * needed / MB / MEMORY_STEP).ceil() * MEMORY_STEP;
    let most = memory.map_or(f64::INFINITY, |memory| {
        (memory / MEMORY_PART / MB / MEMORY_STEP).floor() * MEMORY_STEP
    });
    let value = wanted.min(most);
    if value * MB <= size {
        return stays(&format!("{why}, but a quarter of the server's memory is not more"));
    }
    grows(CacheSize::Memory, value as u64, why)
}

fn files_of(opcache: &Opcache) -> SizeVerdict {
    let Some((used, most)) = opcache.keys else {
        return stays("OPcache does not report its keys");
    };
    let is_full = shortages(opcache).iter().any(|found| matches!(found, Shortage::Keys { .. }));
    let emptied = opcache.key_restarts;
    if !is_full && emptied == 0 {
        return stays(&format!("it suffices: {used} of {most} keys are in use"));
    }
    let why = match emptied {
        0 => format!("{used} of {most} keys are in use"),
        _ => format!(
            "OPcache with {most} keys was emptied {} for lack of keys",
            plural(emptied, "time")
        ),
    };
    let needed = if emptied == 0 { used } else { most };
    let wanted = (RESERVE * needed as f64) as u64;
    let value = wanted.max(most.saturating_add(1)).next_multiple_of(KEYS_STEP).min(MOST_KEYS);
    if value <= most {
        return stays(&format!("{why}, and PHP allows no more"));
    }
    grows(CacheSize::Files, value, why)
}

fn share(used: f64, size: f64) -> String {
    format!("{} of {}", bytes(used), bytes(size))
}

fn suffices(used: f64, size: f64) -> SizeVerdict {
    SizeVerdict::Stays(format!("it suffices: {} are in use", share(used, size)))
}

fn stays(why: &str) -> SizeVerdict {
    SizeVerdict::Stays(why.to_owned())
}

fn grows(size: CacheSize, value: u64, why: String) -> SizeVerdict {
    SizeVerdict::Grows(PhpTerm::Size(size, value), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PHP's defaults, of which a third is in use.
    fn caches() -> PoolCaches {
        let opcache = Opcache {
            used: 40.0 * MB,
            free: 88.0 * MB,
            keys: Some((900, 16_229)),
            strings: Some((4.0 * MB, 8.0 * MB)),
            ..Opcache::default()
        };
        let real_paths = RealPaths { used: 71.0 * KB, limit: 4_096.0 * KB };
        PoolCaches { opcache: Some(opcache), real_paths: Some(real_paths) }
    }

    fn with(change: impl Fn(&mut Opcache)) -> PoolCaches {
        let mut caches = caches();
        change(caches.opcache.as_mut().unwrap());
        caches
    }

    fn judge(caches: &PoolCaches, size: CacheSize) -> SizeVerdict {
        caches.judge(size, Some(4_096.0 * MB), None)
    }

    fn proposed(verdict: SizeVerdict) -> (String, String) {
        match verdict {
            SizeVerdict::Grows(term, why) => (term.words(), why),
            SizeVerdict::Stays(why) => panic!("{why}"),
        }
    }

    #[test]
    fn a_size_that_suffices_stays_with_its_figures() {
        for (size, why) in [
            (CacheSize::Strings, "it suffices: 4 MiB of 8 MiB are in use"),
            (CacheSize::Memory, "it suffices: 40 MiB of 128 MiB are in use"),
            (CacheSize::Files, "it suffices: 900 of 16229 keys are in use"),
            (CacheSize::RealPaths, "it suffices: 71 KiB of 4 MiB are in use"),
        ] {
            assert_eq!(judge(&caches(), size), SizeVerdict::Stays(why.to_owned()));
        }
    }

    #[test]
    fn a_buffer_of_strings_that_is_full_is_doubled() {
        let full = with(|opcache| opcache.strings = Some((7.95 * MB, 8.0 * MB)));
        let (value, why) = proposed(judge(&full, CacheSize::Strings));
        assert_eq!(value, "opcache.interned_strings_buffer = 16");
        assert!(why.starts_with("7.95 MiB of 8 MiB are in use"), "{why}");
        let largest = with(|opcache| opcache.strings = Some((4_095.0 * MB, 4_095.0 * MB)));
        let why = "4 GiB of 4 GiB are in use, and PHP allows no more";
        assert_eq!(judge(&largest, CacheSize::Strings), SizeVerdict::Stays(why.to_owned()));
    }

    #[test]
    fn a_memory_that_is_full_or_was_emptied_is_doubled() {
        let full = with(|opcache| (opcache.used, opcache.free) = (126.0 * MB, 2.0 * MB));
        let (value, why) = proposed(judge(&full, CacheSize::Memory));
        assert_eq!(value, "opcache.memory_consumption = 256");
        assert_eq!(why, "126 MiB of 128 MiB are in use");
        let emptied = with(|opcache| opcache.memory_restarts = 2);
        let (value, why) = proposed(judge(&emptied, CacheSize::Memory));
        assert_eq!(value, "opcache.memory_consumption = 256");
        assert_eq!(why, "OPcache of 128 MiB was emptied 2 times for lack of memory");
    }

    #[test]
    fn a_memory_is_no_more_than_a_quarter_of_the_servers() {
        let full = with(|opcache| (opcache.used, opcache.free) = (126.0 * MB, 2.0 * MB));
        let (value, _) = proposed(full.judge(CacheSize::Memory, Some(800.0 * MB), None));
        assert_eq!(value, "opcache.memory_consumption = 192");
        let stays = full.judge(CacheSize::Memory, Some(512.0 * MB), None);
        assert!(
            matches!(&stays, SizeVerdict::Stays(why) if why.contains("a quarter")),
            "{stays:?}"
        );
        let (value, _) = proposed(full.judge(CacheSize::Memory, None, None));
        assert_eq!(value, "opcache.memory_consumption = 256");
    }

    #[test]
    fn a_memory_full_of_changed_scripts_needs_a_reload_and_no_more_memory() {
        let wasted = with(|opcache| (opcache.free, opcache.wasted) = (0.0, 88.0 * MB));
        let SizeVerdict::Stays(why) = judge(&wasted, CacheSize::Memory) else {
            panic!("it is enough after a reload");
        };
        assert!(why.contains("88 MiB of changed scripts are wasted"), "{why}");
        let both = with(|opcache| {
            (opcache.used, opcache.free, opcache.wasted) = (108.0 * MB, 0.0, 20.0 * MB);
        });
        let (value, _) = proposed(judge(&both, CacheSize::Memory));
        assert_eq!(value, "opcache.memory_consumption = 224");
    }

    #[test]
    fn a_larger_buffer_of_strings_takes_memory_of_scripts() {
        let nearly = with(|opcache| (opcache.used, opcache.free) = (118.0 * MB, 10.0 * MB));
        let alone = nearly.judge(CacheSize::Memory, None, None);
        assert!(matches!(alone, SizeVerdict::Stays(_)), "{alone:?}");
        let (value, _) = proposed(nearly.judge(CacheSize::Memory, None, Some(16)));
        assert_eq!(value, "opcache.memory_consumption = 256");
    }

    #[test]
    fn a_buffer_of_strings_fits_into_memory_beside_the_scripts() {
        let caches = caches();
        assert!(caches.strings_fit(64, None), "40 MB and 56 more, of 128");
        assert!(!caches.strings_fit(65, None), "more than half");
        let nearly = with(|opcache| (opcache.used, opcache.free) = (116.0 * MB, 12.0 * MB));
        assert!(nearly.strings_fit(13, None) && !nearly.strings_fit(14, None));
        assert!(nearly.strings_fit(16, Some(256)) && !nearly.strings_fit(16, Some(128)));
        assert!(PoolCaches::default().strings_fit(4_000, None), "nothing is known");
    }

    #[test]
    fn keys_that_are_used_up_are_doubled() {
        let full = with(|opcache| opcache.keys = Some((15_000, 16_229)));
        let (value, why) = proposed(judge(&full, CacheSize::Files));
        assert_eq!(value, "opcache.max_accelerated_files = 30000");
        assert_eq!(why, "15000 of 16229 keys are in use");
        let emptied = with(|opcache| (opcache.key_restarts, opcache.keys) = (1, Some((3, 223))));
        let (value, why) = proposed(judge(&emptied, CacheSize::Files));
        assert_eq!(value, "opcache.max_accelerated_files = 500");
        assert_eq!(why, "OPcache with 223 keys was emptied 1 time for lack of keys");
        let most = with(|opcache| opcache.keys = Some((1_048_793, 1_048_793)));
        assert!(matches!(judge(&most, CacheSize::Files), SizeVerdict::Stays(_)));
    }

    #[test]
    fn a_cache_of_real_paths_that_is_full_is_doubled() {
        let of = |used: f64, limit: f64| PoolCaches {
            real_paths: Some(RealPaths { used: used * KB, limit: limit * KB }),
            ..PoolCaches::default()
        };
        let (value, why) = proposed(judge(&of(4_000.0, 4_096.0), CacheSize::RealPaths));
        assert_eq!(value, "realpath_cache_size = 8192K");
        assert_eq!(why, "3.91 MiB of 4 MiB are in use");
        let off = judge(&of(0.0, 0.0), CacheSize::RealPaths);
        assert!(matches!(&off, SizeVerdict::Stays(why) if why.starts_with("it is 0")), "{off:?}");
    }

    #[test]
    fn what_a_pool_does_not_report_stays() {
        let none = PoolCaches::default();
        for size in [CacheSize::Strings, CacheSize::Memory, CacheSize::Files, CacheSize::RealPaths]
        {
            assert!(matches!(judge(&none, size), SizeVerdict::Stays(_)));
        }
    }
}
