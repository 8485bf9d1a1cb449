//! The settings of PHP that are tried, and their lines in the configuration.

use serde::{Serialize, Serializer};

/// Entries of php.ini that [`PhpTerm::Jit`] sets. The buffer is 0 by default in PHP 8.3 and before,
/// which switches the compiler off.
pub const JIT_ENTRIES: [(&str, &str); 2] =
    [("opcache.jit", "tracing"), ("opcache.jit_buffer_size", "64M")];

/// The entry of [`PhpTerm::ValidateTimestamps`].
pub const VALIDATE_TIMESTAMPS: &str = "opcache.validate_timestamps";

/// The entry of [`PhpTerm::FileCache`].
pub const FILE_CACHE: &str = "opcache.file_cache";

/// A size whose need a pool reports by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSize {
    /// OPcache's buffer of strings.
    Strings,
    /// OPcache's memory, of which that buffer is a part.
    Memory,
    /// OPcache's keys.
    Files,
    /// A worker's cache of real paths.
    RealPaths,
}

/// All of them. A larger buffer of strings needs more memory, so it is judged first.
pub const CACHE_SIZES: [CacheSize; 4] =
    [CacheSize::Strings, CacheSize::Memory, CacheSize::Files, CacheSize::RealPaths];

impl CacheSize {
    /// Its entry in php.ini.
    pub fn entry(self) -> &'static str {
        match self {
            CacheSize::Strings => "opcache.interned_strings_buffer",
            CacheSize::Memory => "opcache.memory_consumption",
            CacheSize::Files => "opcache.max_accelerated_files",
            CacheSize::RealPaths => "realpath_cache_size",
        }
    }

    /// A value as PHP reads it: MB of the first two, keys, and KB.
    pub fn text(self, value: u64) -> String {
        match self {
            CacheSize::RealPaths => format!("{value}K"),
            _ => value.to_string(),
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// A setting of PHP that is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhpTerm {
    /// Another size of a cache: its value, in the unit of [`CacheSize::text`].
    Size(CacheSize, u64),
    /// `preload = true`.
    Preload,
    /// The tracing compiler of OPcache (`opcache.jit`), with room for its code.
    Jit,
    /// `opcache.validate_timestamps = 0`.
    ValidateTimestamps,
    /// `opcache.file_cache`: compiled scripts on disk.
    FileCache,
}

/// Those without a value, in the order of their trials.
pub const PHP_TERMS: [PhpTerm; 4] =
    [PhpTerm::Preload, PhpTerm::Jit, PhpTerm::ValidateTimestamps, PhpTerm::FileCache];

/// What the lines of a term refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TunedPool {
    /// The name of its section.
    pub section: String,
    /// Its user, if that is another one than the server's.
    pub user: Option<String>,
    /// Whether saved files start a new boot of the pool (`watch`).
    pub watches: bool,
}

impl PhpTerm {
    /// Its lines in a `[pools]` section, with what makes it safe as comments.
    pub fn lines(self, pool: &TunedPool) -> Vec<String> {
        let entry = |name: &str, value: &str| format!("php_admin_value.\"{name}\" = \"{value}\"");
        match self {
            PhpTerm::Size(size, value) => vec![entry(size.entry(), &size.text(value))],
            PhpTerm::Preload => vec!["preload = true".to_owned()],
            PhpTerm::Jit => JIT_ENTRIES.map(|(name, value)| entry(name, value)).to_vec(),
            PhpTerm::ValidateTimestamps => {
                let when = if pool.watches { "what `watch` does not see" } else { "each deploy" };
                vec![
                    format!("# after {when}: maitred reload {}", pool.section),
                    entry(VALIDATE_TIMESTAMPS, "0"),
                ]
            }
            PhpTerm::FileCache => {
                let folder = pool.file_cache();
                let owner = pool.user.as_ref().map_or(String::new(), |user| format!("-o {user} "));
                vec![
                    format!("# before: install -d {owner}-m 700 {folder}"),
                    "# each deploy into a new folder has to empty it".to_owned(),
                    entry(FILE_CACHE, &folder),
                ]
            }
        }
    }

    /// Whether the pool's report alone shows that it is better.
    pub fn is_reported(self) -> bool {
        matches!(self, PhpTerm::Size(size, _) if size != CacheSize::RealPaths)
    }

    /// Its name, for people.
    pub fn words(self) -> String {
        match self {
            PhpTerm::Size(size, value) => format!("{} = {}", size.entry(), size.text(value)),
            PhpTerm::Preload => "preload".to_owned(),
            PhpTerm::Jit => "opcache.jit = tracing".to_owned(),
            PhpTerm::ValidateTimestamps => format!("{VALIDATE_TIMESTAMPS} = 0"),
            PhpTerm::FileCache => FILE_CACHE.to_owned(),
        }
    }

    /// Its name in reports for programs, and in the command line.
    pub fn name(self) -> &'static str {
        let entry = match self {
            PhpTerm::Size(size, _) => size.entry(),
            PhpTerm::Preload => "preload",
            PhpTerm::Jit => "opcache.jit",
            PhpTerm::ValidateTimestamps => VALIDATE_TIMESTAMPS,
            PhpTerm::FileCache => FILE_CACHE,
        };
        entry.strip_prefix("opcache.").unwrap_or(entry)
    }
}

impl Serialize for PhpTerm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl TunedPool {
    /// The folder of [`PhpTerm::FileCache`] in the proposed lines.
    fn file_cache(&self) -> String {
        format!("/var/cache/{}-opcache", self.section)
    }
}

/// A set of settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PhpTerms {
    /// The other sizes, in the order of [`CACHE_SIZES`].
    pub sizes: [Option<u64>; CACHE_SIZES.len()],
    /// [`PhpTerm::Preload`].
    pub preload: bool,
    /// [`PhpTerm::Jit`].
    pub jit: bool,
    /// [`PhpTerm::ValidateTimestamps`].
    pub validate_timestamps: bool,
    /// [`PhpTerm::FileCache`].
    pub file_cache: bool,
}

impl PhpTerms {
    /// The same set with another member. A size takes the place of another one of the same cache.
    pub fn with(mut self, term: PhpTerm) -> PhpTerms {
        match term {
            PhpTerm::Size(size, value) => self.sizes[size.index()] = Some(value),
            PhpTerm::Preload => self.preload = true,
            PhpTerm::Jit => self.jit = true,
            PhpTerm::ValidateTimestamps => self.validate_timestamps = true,
            PhpTerm::FileCache => self.file_cache = true,
        }
        self
    }

    /// Whether it has this member.
    pub fn has(self, term: PhpTerm) -> bool {
        match term {
            PhpTerm::Size(size, value) => self.size(size) == Some(value),
            PhpTerm::Preload => self.preload,
            PhpTerm::Jit => self.jit,
            PhpTerm::ValidateTimestamps => self.validate_timestamps,
            PhpTerm::FileCache => self.file_cache,
        }
    }

    /// The size of a cache, if it is another one.
    pub fn size(self, size: CacheSize) -> Option<u64> {
        self.sizes[size.index()]
    }

    /// Its members.
    pub fn terms(self) -> Vec<PhpTerm> {
        let size = |size: CacheSize| Some(PhpTerm::Size(size, self.size(size)?));
        let sizes = CACHE_SIZES.into_iter().filter_map(size);
        sizes.chain(PHP_TERMS.into_iter().filter(|term| self.has(*term))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> TunedPool {
        TunedPool { section: "blog".to_owned(), user: Some("ann".to_owned()), watches: false }
    }

    #[test]
    fn the_lines_of_a_setting_have_what_makes_it_safe() {
        let lines = PhpTerm::ValidateTimestamps.lines(&pool());
        assert_eq!(
            lines,
            [
                "# after each deploy: maitred reload blog",
                "php_admin_value.\"opcache.validate_timestamps\" = \"0\""
            ]
        );
        let watching = TunedPool { watches: true, ..pool() };
        let lines = PhpTerm::ValidateTimestamps.lines(&watching);
        assert_eq!(lines[0], "# after what `watch` does not see: maitred reload blog");
        let lines = PhpTerm::FileCache.lines(&pool());
        assert_eq!(lines[0], "# before: install -d -o ann -m 700 /var/cache/blog-opcache");
        assert_eq!(
            lines[2],
            "php_admin_value.\"opcache.file_cache\" = \"/var/cache/blog-opcache\""
        );
        let own = TunedPool { user: None, ..pool() };
        let lines = PhpTerm::FileCache.lines(&own);
        assert_eq!(lines[0], "# before: install -d -m 700 /var/cache/blog-opcache");
    }

    #[test]
    fn a_size_is_written_in_the_unit_that_php_reads() {
        let line = |size, value| PhpTerm::Size(size, value).lines(&pool()).remove(0);
        let strings = line(CacheSize::Strings, 16);
        assert_eq!(strings, "php_admin_value.\"opcache.interned_strings_buffer\" = \"16\"");
        let real_paths = line(CacheSize::RealPaths, 8192);
        assert_eq!(real_paths, "php_admin_value.\"realpath_cache_size\" = \"8192K\"");
    }

    #[test]
    fn a_set_has_one_size_of_a_cache() {
        let set = PhpTerms::default()
            .with(PhpTerm::Jit)
            .with(PhpTerm::Size(CacheSize::Strings, 16))
            .with(PhpTerm::Size(CacheSize::Strings, 32));
        assert_eq!(set.terms(), [PhpTerm::Size(CacheSize::Strings, 32), PhpTerm::Jit]);
        assert!(!set.has(PhpTerm::Size(CacheSize::Strings, 16)));
        let names = set.terms().into_iter().map(PhpTerm::name).collect::<Vec<_>>();
        assert_eq!(names, ["interned_strings_buffer", "jit"]);
    }
}
