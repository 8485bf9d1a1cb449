//! Which settings of PHP may be tried in a pool at all, and why each of the others is not.

use maitred_config::{Mode, Pool};
use maitred_doctor::facts::Ini;

use super::php_term::{
    CACHE_SIZES, CacheSize, FILE_CACHE, JIT_ENTRIES, PhpTerm, PhpTerms, VALIDATE_TIMESTAMPS,
};

/// The reason against a file cache without a look at timestamps.
const OLD_CODE: &str =
    "with opcache.validate_timestamps = 0 a start would run the code of before a deploy";

/// The reason against ignored timestamps beside a file cache.
const OLD_FILES: &str =
    "with opcache.file_cache a reload would go on with the code of before a deploy";

/// The reason against a file cache if the compiler may be on.
const UNREAD: &str = "php.ini cannot be read";

/// The reason against a file cache beside the compiler (php-src issues 17770 and 15497, where both
/// together crash PHP 8.2).
const NO_FILES: &str = "OPcache stores no files with opcache.jit";

/// Modes of `opcache.jit` without the compiler (`zend_jit_config` in zend_jit.c).
const NO_JIT: [&str; 6] = ["", "0", "off", "no", "false", "disable"];

/// A pool's configuration.
#[derive(Debug, Clone, Copy)]
pub struct PhpConditions<'c> {
    /// Its settings.
    pub pool: &'c Pool,
    /// php.ini; `None`: it cannot be read.
    pub ini: Option<&'c Ini>,
    /// Each deploy ends with a reload of the pool, as the user says.
    pub deploys_reload: bool,
}

impl PhpConditions<'_> {
    /// Why a setting is not tried; `None` if it is.
    pub fn why_not(&self, term: PhpTerm) -> Option<String> {
        match term {
            PhpTerm::Size(size, _) => self.why_not_size(size),
            PhpTerm::Preload => self.why_not_preload().map(str::to_owned),
            PhpTerm::Jit => self.why_not_jit(),
            PhpTerm::ValidateTimestamps => self.why_not_blind(),
            PhpTerm::FileCache => self.why_not_file_cache(),
        }
    }

    /// The sizes that the pool's report is to decide, and why each of the others stays.
    pub fn sizes(&self) -> (Vec<CacheSize>, Vec<String>) {
        let (mut judged, mut others) = (Vec::new(), Vec::new());
        for size in CACHE_SIZES {
            match self.why_not_size(size) {
                None => judged.push(size),
                Some(why) => others.push(format!("{}: {why}", size.entry())),
            }
        }
        (judged, others)
    }

    /// A size in the pool's section may be too small as well; only a booted application's OPcache
    /// grows by itself.
    fn why_not_size(&self, size: CacheSize) -> Option<String> {
        let grows = self.is_booted() && self.pool.opcache_memory_max > 0;
        (grows && size != CacheSize::RealPaths).then(|| {
            "it grows by itself in a pool that boots its script (opcache_memory_max)".to_owned()
        })
    }

    fn is_booted(&self) -> bool {
        self.pool.mode != Mode::Classic
    }

    fn sets(&self, name: &str) -> bool {
        let pool = self.pool;
        let defined = pool.defines.iter().any(|(other, _)| other == name);
        defined || pool.php_admin_value.contains_key(name) || pool.php_value.contains_key(name)
    }

    /// php.ini with the pool's entries, which hold also if php.ini cannot be read.
    fn ini(&self) -> Ini {
        let mut ini = self.ini.cloned().unwrap_or_default();
        let defines = self.pool.defines.iter().map(|(name, value)| (name, value));
        let values = self.pool.php_value.iter().chain(&self.pool.php_admin_value);
        let own = defines.chain(values).map(|(name, value)| (name.clone(), value.clone()));
        ini.entries.extend(own);
        ini
    }

    fn sets_any(&self, names: &[&str]) -> Option<String> {
        let is_set = names.iter().any(|name| self.sets(name));
        is_set.then(|| "the configuration sets it".to_owned())
    }

    fn why_not_preload(&self) -> Option<&'static str> {
        match self.pool {
            _ if self.is_booted() => Some("the pool boots its script once"),
            pool if pool.preload || self.sets("opcache.preload") => Some("the pool preloads"),
            pool if pool.confinement.chroot.is_some() => Some("it excludes chroot"),
            _ => None,
        }
    }

    fn why_not_jit(&self) -> Option<String> {
        let set = self.sets_any(&JIT_ENTRIES.map(|(name, _)| name));
        set.or_else(|| self.has_file_cache().then(|| NO_FILES.to_owned()))
    }

    fn has_file_cache(&self) -> bool {
        !self.ini().get(FILE_CACHE, "").is_empty()
    }

    fn looks_at_timestamps(&self) -> bool {
        self.ini().is_on(VALIDATE_TIMESTAMPS, "1")
    }

    fn why_not_blind(&self) -> Option<String> {
        if !self.looks_at_timestamps() {
            return Some("it is 0 already".to_owned());
        }
        if let Some(why) = self.sets_any(&[VALIDATE_TIMESTAMPS]) {
            return Some(why);
        }
        if self.has_file_cache() {
            return Some(OLD_FILES.to_owned());
        }
        let (is_watched, name) = (self.pool.watch && self.is_booted(), &self.pool.name);
        if is_watched || self.deploys_reload {
            return None;
        }
        let lack = if self.is_booted() {
            "the pool has no `watch`"
        } else {
            "`watch` is for pools that boot their script"
        };
        Some(format!(
            "a changed file would go unnoticed: {lack}; if each deploy ends with `maitred reload \
             {name}`, --deploys-reload tries it"
        ))
    }

    fn why_not_file_cache(&self) -> Option<String> {
        if self.is_booted() {
            return Some("the pool boots its script before it serves".to_owned());
        }
        if self.sets(FILE_CACHE) || self.has_file_cache() {
            return Some("the configuration sets it".to_owned());
        }
        if self.ini.is_none() {
            return Some(UNREAD.to_owned());
        }
        if self.pool.confinement.chroot.is_some() {
            return Some("PHP would look for its folder in the chroot".to_owned());
        }
        if !self.looks_at_timestamps() {
            return Some(OLD_CODE.to_owned());
        }
        self.has_jit().then(|| NO_FILES.to_owned())
    }

    /// Whether the compiler may be on. PHP 8.3 and before has a mode by default, and no buffer; PHP
    /// 8.4 has a buffer, and no mode. So the one that is set decides.
    fn has_jit(&self) -> bool {
        let ini = self.ini();
        let [mode, room] = JIT_ENTRIES.map(|(name, _)| ini.entries.get(name));
        let is_on = |mode: &String| !NO_JIT.contains(&mode.trim().to_ascii_lowercase().as_str());
        let has_room = |room: &String| room.trim().starts_with(|c: char| ('1'..='9').contains(&c));
        let is_set = mode.is_some() || room.is_some();
        is_set && mode.is_none_or(is_on) && room.is_none_or(has_room)
    }
}

/// Why a setting is not tried on top of those that are accepted.
pub fn excluded(accepted: PhpTerms, term: PhpTerm) -> Option<&'static str> {
    match term {
        PhpTerm::FileCache if accepted.jit => Some(NO_FILES),
        PhpTerm::FileCache if accepted.validate_timestamps => Some(OLD_CODE),
        PhpTerm::ValidateTimestamps if accepted.file_cache => Some(OLD_FILES),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool { name: "blog".to_owned(), ..Pool::default() }
    }

    fn ini(entries: &[(&str, &str)]) -> Ini {
        let entries = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Ini { entries: entries.collect(), ..Ini::default() }
    }

    fn why_not(pool: &Pool, ini: &Ini, term: PhpTerm) -> Option<String> {
        PhpConditions { pool, ini: Some(ini), deploys_reload: false }.why_not(term)
    }

    #[test]
    fn timestamps_are_ignored_only_where_something_tells_of_changes() {
        let term = PhpTerm::ValidateTimestamps;
        let none = ini(&[]);
        let why = why_not(&pool(), &none, term).expect("a reason");
        assert!(why.contains("maitred reload blog") && why.contains("--deploys-reload"), "{why}");
        let reloads = |ini: &Ini| {
            PhpConditions { pool: &pool(), ini: Some(ini), deploys_reload: true }.why_not(term)
        };
        assert_eq!(reloads(&none), None);
        let files = ini(&[(FILE_CACHE, "/var/cache/php")]);
        assert_eq!(reloads(&files).as_deref(), Some(OLD_FILES));
        let watching = Pool { mode: Mode::Snapshot, watch: true, ..pool() };
        assert_eq!(why_not(&watching, &none, term), None);
        let in_classic = Pool { watch: true, ..pool() };
        assert!(why_not(&in_classic, &none, term).is_some(), "a classic pool has no watch");
        let booted = Pool { mode: Mode::Worker, ..pool() };
        let why = why_not(&booted, &none, term).expect("a reason");
        assert!(why.contains("no `watch`"), "{why}");
        let off = ini(&[(VALIDATE_TIMESTAMPS, "0")]);
        assert_eq!(why_not(&watching, &off, term).as_deref(), Some("it is 0 already"));
        assert_eq!(why_not(&watching, &files, term).as_deref(), Some(OLD_FILES));
    }

    #[test]
    fn the_pools_own_entries_hold_also_if_php_ini_cannot_be_read() {
        let unread = |pool: &Pool, term| {
            PhpConditions { pool, ini: None, deploys_reload: true }.why_not(term)
        };
        assert_eq!(unread(&pool(), PhpTerm::FileCache).as_deref(), Some("php.ini cannot be read"));
        assert_eq!(unread(&pool(), PhpTerm::ValidateTimestamps), None);
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let files = Pool { defines: vec![own(FILE_CACHE, "/var/cache/php")], ..pool() };
        assert_eq!(unread(&files, PhpTerm::Jit).as_deref(), Some(NO_FILES));
        assert_eq!(unread(&files, PhpTerm::ValidateTimestamps).as_deref(), Some(OLD_FILES));
        let mut blind = pool();
        blind.php_value.extend([own(VALIDATE_TIMESTAMPS, "0")]);
        let why = unread(&blind, PhpTerm::ValidateTimestamps);
        assert_eq!(why.as_deref(), Some("it is 0 already"));
        let looks = ini(&[(VALIDATE_TIMESTAMPS, "1")]);
        assert_eq!(why_not(&blind, &looks, PhpTerm::FileCache).as_deref(), Some(OLD_CODE));
        blind.php_admin_value.extend([own(VALIDATE_TIMESTAMPS, "1")]);
        assert_eq!(why_not(&blind, &ini(&[]), PhpTerm::FileCache), None);
    }

    #[test]
    fn the_compiler_may_be_on_if_one_of_its_two_entries_is_set() {
        let with = |entries: &[(&str, &str)]| why_not(&pool(), &ini(entries), PhpTerm::FileCache);
        for on in [("opcache.jit_buffer_size", "64M"), ("opcache.jit", "tracing")] {
            assert_eq!(with(&[on]).as_deref(), Some(NO_FILES), "{on:?}");
        }
        for off in [("opcache.jit_buffer_size", "0"), ("opcache.jit", "Off"), ("opcache.jit", "")] {
            assert_eq!(with(&[off]), None, "{off:?}");
        }
    }

    #[test]
    fn a_file_cache_needs_a_pool_that_starts_cold_and_looks_at_timestamps() {
        let term = PhpTerm::FileCache;
        assert_eq!(why_not(&pool(), &ini(&[]), term), None);
        let blind = ini(&[(VALIDATE_TIMESTAMPS, "off")]);
        assert_eq!(why_not(&pool(), &blind, term).as_deref(), Some(OLD_CODE));
        let jit = ini(&[("opcache.jit", "tracing"), ("opcache.jit_buffer_size", "64M")]);
        assert_eq!(why_not(&pool(), &jit, term).as_deref(), Some(NO_FILES));
        for entries in [
            [("opcache.jit", "off"), ("opcache.jit_buffer_size", "64M")],
            [("opcache.jit", "tracing"), ("opcache.jit_buffer_size", "0")],
        ] {
            assert_eq!(why_not(&pool(), &ini(&entries), term), None, "{entries:?}");
        }
        let set = ini(&[(FILE_CACHE, "/var/cache/php")]);
        assert_eq!(why_not(&pool(), &set, term).as_deref(), Some("the configuration sets it"));
        assert_eq!(why_not(&pool(), &set, PhpTerm::Jit).as_deref(), Some(NO_FILES));
        let booted = Pool { mode: Mode::Worker, ..pool() };
        assert!(why_not(&booted, &ini(&[]), term).is_some());
        let jit = PhpTerms::default().with(PhpTerm::Jit);
        assert_eq!(excluded(jit, term), Some(NO_FILES));
        let blind = PhpTerms::default().with(PhpTerm::ValidateTimestamps);
        assert_eq!(excluded(blind, term), Some(OLD_CODE));
        let files = PhpTerms::default().with(term);
        assert_eq!(excluded(files, PhpTerm::ValidateTimestamps), Some(OLD_FILES));
        assert_eq!(excluded(PhpTerms::default().with(PhpTerm::Preload), term), None);
    }

    #[test]
    fn what_the_configuration_sets_is_not_tried() {
        let mut set = pool();
        set.php_admin_value.insert("opcache.jit".to_owned(), "off".to_owned());
        set.preload = true;
        let none = ini(&[]);
        let why = why_not(&set, &none, PhpTerm::Jit);
        assert_eq!(why.as_deref(), Some("the configuration sets it"));
        let why = why_not(&set, &none, PhpTerm::Preload);
        assert_eq!(why.as_deref(), Some("the pool preloads"));
        assert_eq!(why_not(&pool(), &none, PhpTerm::Jit), None);
        assert_eq!(why_not(&pool(), &none, PhpTerm::Preload), None);
    }

    #[test]
    fn the_opcache_of_a_booted_application_grows_by_itself() {
        let none = ini(&[]);
        let (classic, booted) = (pool(), Pool { mode: Mode::Snapshot, ..pool() });
        let sizes = |pool| PhpConditions { pool, ini: Some(&none), deploys_reload: false }.sizes();
        let (judged, others) = sizes(&classic);
        assert_eq!((judged.len(), others.len()), (CACHE_SIZES.len(), 0));
        let (judged, others) = sizes(&booted);
        assert_eq!(judged, [CacheSize::RealPaths]);
        assert!(others.len() == 3 && others[0].contains("opcache_memory_max"), "{others:?}");
        let (judged, _) = sizes(&Pool { opcache_memory_max: 0, ..booted.clone() });
        assert_eq!(judged.len(), CACHE_SIZES.len());
    }
}
