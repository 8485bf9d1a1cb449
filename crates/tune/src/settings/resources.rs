//! Settings of memory, files and worker starts, except a script's own limits.

use super::{MEGABYTE, Recommendation, Server, SettingInputs, megabytes, setting};

/// Sizes are multiples of this, in bytes.
const STEP: f64 = 16.0 * MEGABYTE;

/// Reserve for pages that were not requested, and files that are not open now, as a factor.
pub(super) const RESERVE: f64 = 2.0;

/// Reserve in OPcache for scripts that change before it is emptied, as a factor.
const OPCACHE_RESERVE: f64 = 1.5;

/// The share of OPcache that interned strings have by PHP's defaults: 8 of 128 MB.
const STRINGS: f64 = 1.0 / 16.0;

/// maitred's default `cache_memory`, and how many of the largest page a part of it has to hold.
const DEFAULT_PAGE_CACHE: f64 = 64.0 * MEGABYTE;
const PAGES_OF_A_PART: f64 = 4.0;

/// Open files that any process needs.
const LEAST_FILES: u64 = 1_024;

/// OPcache's default number of scripts, and its primes (ZendAccelerator.c, prime_numbers).
const PRIMES: [u64; 14] =
    [5, 11, 19, 53, 107, 223, 463, 983, 1_979, 3_907, 7_963, 16_229, 32_531, 65_407];
const DEFAULT_SCRIPTS: u64 = 10_000;

/// The share of the processors that worker starts may take.
const STARTS: f64 = 0.5;

/// The highest value of `max_spawn_rate`.
const MOST_STARTS: f64 = 10_000.0;

/// The next multiple of [`STEP`].
pub(super) fn round_up(bytes: f64) -> f64 {
    (bytes / STEP).ceil().max(1.0) * STEP
}

fn whole_megabytes(bytes: f64) -> String {
    format!("{:.0}", (bytes / MEGABYTE).ceil())
}

/// A limit that is at least this many bytes.
pub(super) fn size(bytes: f64) -> String {
    whole_megabytes(bytes) + "M"
}

/// A current value, to a tenth of a megabyte.
pub(super) fn as_set(bytes: f64) -> String {
    format!("{}M", (bytes / MEGABYTE * 10.0).round() / 10.0)
}

/// How many files a process may have open.
pub(super) fn open_files(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let (value, measured) = match inputs.open_files {
        Some(files) => ((files * 2).max(LEAST_FILES), format!("a worker has {files} files open")),
        None => (LEAST_FILES, "the open files of workers are not known".to_owned()),
    };
    setting(server, name, "open_files", value, measured)
}

/// The compiled code that workers share, with its reserve.
fn compiled(inputs: &SettingInputs) -> f64 {
    let shared = inputs.shared;
    shared.map_or(0.0, |shared| round_up(shared * OPCACHE_RESERVE))
}

/// The size of OPcache.
pub(super) fn opcache(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let value = whole_megabytes(compiled(inputs).max(inputs.opcache));
    let measured = format!(
        "workers share {}, OPcache is part of it; it is set to {}",
        megabytes(inputs.shared),
        as_set(inputs.opcache)
    );
    let found = setting(server, name, "opcache", value, measured);
    if server != Server::Maitred {
        return found;
    }
    let why = "the code decides the size; maitred doctor reports whether OPcache was ever full";
    Recommendation { why: why.to_owned(), ..found }
}

/// The size of OPcache's buffer of interned strings.
pub(super) fn strings(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let (now, free) = inputs.strings;
    let value = (compiled(inputs).max(inputs.opcache) * STRINGS).max(now);
    let free = match free {
        Some(free) => format!("{} of it are free", as_set(free)),
        None => "its free space is not visible from outside".to_owned(),
    };
    let measured = format!("it is set to {}; {free}", as_set(now));
    setting(server, name, "strings", whole_megabytes(value), measured)
}

/// The size of maitred's page cache in memory.
pub(super) fn page_cache(server: Server, inputs: &SettingInputs) -> Recommendation {
    let parts = f64::from(inputs.parts.max(1));
    let (needed, measured) = match inputs.pages {
        Some((all, largest)) => (
            round_up((all * RESERVE).max(largest * PAGES_OF_A_PART * parts)),
            format!(
                "the requested pages have {} together, the largest {}",
                megabytes(Some(all)),
                megabytes(Some(largest))
            ),
        ),
        None => (0.0, "no page's size is known".to_owned()),
    };
    let value = size(needed.max(DEFAULT_PAGE_CACHE));
    let name = "cache_memory (top of the file)";
    Recommendation {
        formula: format!(
            "twice all of them, with the largest in a quarter of each of {parts:.0} parts, and not \
             below the default of 64M; for sites with a [sites.cache]"
        ),
        ..setting(server, name, "page_cache", value, measured)
    }
}

/// How many scripts OPcache holds.
pub(super) fn scripts(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let wanted = inputs.scripts.unwrap_or(0).max(DEFAULT_SCRIPTS);
    let measured = match inputs.scripts {
        Some(found) => format!("{found} scripts in the directories of the code"),
        None => "the directories of the code are not known".to_owned(),
    };
    let prime = PRIMES.into_iter().find(|prime| *prime >= wanted);
    let prime = prime.map_or("1048793 at most".to_owned(), |prime| prime.to_string());
    Recommendation {
        why: format!("PHP takes the next number of a list ({prime}), so nearly all are the same"),
        ..setting(server, name, "scripts", wanted, measured)
    }
}

/// The size from which a worker is replaced.
pub(super) fn most_private(server: Server, inputs: &SettingInputs) -> Recommendation {
    let value = inputs.peak.map(|peak| size(round_up(peak * RESERVE)));
    let value = value.unwrap_or_else(|| "0".to_owned());
    let measured = format!("a worker had {} of its own at most", megabytes(inputs.peak));
    setting(server, "max_private_memory", "most_private", value, measured)
}

/// The memory limit of the whole pool.
pub(super) fn memory_max(server: Server, inputs: &SettingInputs) -> Recommendation {
    let all = inputs.private.zip(inputs.peak).map(|(private, peak)| {
        let workers = f64::from(inputs.workers);
        // They are not all at their largest at once.
        let each = private.max(peak / RESERVE);
        round_up(workers * each * OPCACHE_RESERVE + inputs.opcache)
    });
    let value = all.map_or("none".to_owned(), size);
    let measured = format!(
        "{} workers of {} each, at most {}",
        inputs.workers,
        megabytes(inputs.private),
        megabytes(inputs.peak)
    );
    setting(server, "memory_max", "memory_max", value, measured)
}

/// How many workers may be started in a second.
pub(super) fn spawn_rate(server: Server, inputs: &SettingInputs) -> Recommendation {
    let rate = inputs.boot.filter(|boot| *boot > 0.0);
    let rate = rate.map(|boot| (inputs.cores * STARTS / boot).floor());
    let value = rate.map_or(32.0, |rate| rate.clamp(1.0, MOST_STARTS));
    let measured = match inputs.boot {
        Some(boot) => format!("a start takes {:.1} ms of a processor", boot * 1e3),
        None => "the cost of a start is not known".to_owned(),
    };
    setting(server, "max_spawn_rate", "spawn_rate", format!("{value:.0}"), measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1_048_576.0;

    #[test]
    fn sizes_follow_from_the_largest_that_was_seen_and_never_shrink_a_limit() {
        let inputs = super::super::tests::inputs();
        let large =
            SettingInputs { peak: Some(100.0 * MB), shared: Some(200.0 * MB), ..inputs.clone() };
        assert_eq!(opcache(Server::PhpFpm, "opcache", &large).value, "304");
        assert_eq!(opcache(Server::PhpFpm, "opcache", &inputs).value, "128");
        assert_eq!(most_private(Server::Maitred, &large).value, "208M");
        assert_eq!(memory_max(Server::Maitred, &inputs).value, "736M");
        assert_eq!(spawn_rate(Server::Maitred, &inputs).value, "100");
        assert_eq!(open_files(Server::PhpFpm, "rlimit_files", &inputs).value, "1024");
        let scripts = scripts(Server::PhpFpm, "files", &inputs);
        assert!(scripts.value == "12000" && scripts.why.contains("16229"), "{scripts:?}");
    }

    #[test]
    fn what_was_not_measured_changes_nothing() {
        let unknown = SettingInputs {
            peak: None,
            shared: None,
            open_files: None,
            scripts: None,
            boot: None,
            ..super::super::tests::inputs()
        };
        assert_eq!(most_private(Server::Maitred, &unknown).value, "0");
        assert_eq!(memory_max(Server::Maitred, &unknown).value, "none");
        assert_eq!(spawn_rate(Server::Maitred, &unknown).value, "32");
        assert_eq!(opcache(Server::PhpFpm, "opcache", &unknown).value, "128");
    }
}
