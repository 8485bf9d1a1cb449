//! Settings of memory, files and starts, but for what one script may take.

use super::{Recommendation, Server, SettingInputs, line, megabytes};

/// Sizes are said in steps of that, in bytes.
const STEP: f64 = 16.0 * MEGABYTE;

/// Room for what was not seen: pages that nobody asked for, files that are not open now.
pub(super) const ROOM: f64 = 2.0;

/// Room in OPcache, for what changes before it is emptied.
const ROOM_IN_OPCACHE: f64 = 1.5;

/// The share of OPcache that strings have by PHP's defaults: 8 of 128 MB.
const STRINGS: f64 = 1.0 / 16.0;

/// maitred's memory for kept pages where nobody sets it, and how many of the largest a part of it has to hold.
const DEFAULT_PAGE_CACHE: f64 = 64.0 * MEGABYTE;
const PAGES_OF_A_PART: f64 = 4.0;

const MEGABYTE: f64 = 1_048_576.0;

/// Open files that no process can do without.
const LEAST_FILES: u64 = 1_024;

/// OPcache's keys by default, and its primes (ZendAccelerator.c, prime_numbers).
const PRIMES: [u64; 14] = [
    5, 11, 19, 53, 107, 223, 463, 983, 1_979, 3_907, 7_963, 16_229, 32_531, 65_407,
];
const DEFAULT_SCRIPTS: u64 = 10_000;

/// The share of the processors that starts of workers may take.
const STARTS: f64 = 0.5;

/// Most starts a second that can be set.
const MOST_STARTS: f64 = 10_000.0;

pub(super) fn up(bytes: f64) -> f64 {
    (bytes / STEP).ceil().max(1.0) * STEP
}

/// A limit of so much memory: no less than that.
pub(super) fn size(bytes: f64) -> String {
    format!("{:.0}M", (bytes / MEGABYTE).ceil())
}

/// What is set now, to a tenth of a megabyte.
pub(super) fn as_set(bytes: f64) -> String {
    format!("{}M", (bytes / MEGABYTE * 10.0).round() / 10.0)
}

/// How many files a process may have open.
pub(super) fn open_files(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let seen = inputs.open_files;
    let value = seen.map_or(LEAST_FILES, |files| (files * 2).max(LEAST_FILES));
    let measured = seen.map_or("what workers have open is not known".to_owned(), |files| {
        format!("a worker has {files} files open")
    });
    line(server, name, value, &["R1", "R211"])
        .measured(measured, "twice that, at least 1024")
        .guide(
            "65535",
            "a worker has one client; it is the web server that has many",
        )
}

/// How much code is kept compiled.
pub(super) fn opcache(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let needed = inputs
        .shared
        .map_or(0.0, |shared| up(shared * ROOM_IN_OPCACHE));
    let value = needed.max(inputs.opcache);
    line(
        server,
        name,
        format!("{:.0}", (value / MEGABYTE).ceil()),
        &["R6", "R57"],
    )
    .measured(
        format!(
            "workers share {}, OPcache is part of it; it is set to {}",
            megabytes(inputs.shared),
            as_set(inputs.opcache)
        ),
        "one and a half times what is shared, and no less than it is",
    )
    .guide(
        "128 to 256",
        match server {
            Server::Maitred => {
                "what is right is what the code needs; maitred doctor says whether it was ever full"
            }
            _ => "what is right is what the code needs; opcache_get_status() says whether it was ever full",
        },
    )
}

/// How much of what is compiled is strings that scripts have in common.
pub(super) fn strings(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let (now, free) = inputs.strings;
    let compiled = inputs
        .shared
        .map_or(0.0, |shared| up(shared * ROOM_IN_OPCACHE));
    let value = (compiled.max(inputs.opcache) * STRINGS).max(now);
    let free = free.map_or(
        "what of it is free is not seen from outside".to_owned(),
        |free| format!("{} of it are free", as_set(free)),
    );
    line(
        server,
        name,
        format!("{:.0}", (value / MEGABYTE).ceil()),
        &["R6"],
    )
    .measured(
        format!("it is set to {}; {free}", as_set(now)),
        "a sixteenth of OPcache, as PHP's defaults have it, and no less than it is",
    )
    .guide(
        "8 to 64",
        "what does not fit is kept once in each worker: dearer, but nothing fails",
    )
}

/// How much memory maitred has for pages that it keeps.
pub(super) fn page_cache(server: Server, inputs: &SettingInputs) -> Recommendation {
    let parts = f64::from(inputs.parts.max(1));
    let needed = inputs.pages.map(|(all, largest)| {
        let fits = largest * PAGES_OF_A_PART * parts;
        up((all * ROOM).max(fits))
    });
    let value = needed.unwrap_or(0.0).max(DEFAULT_PAGE_CACHE);
    let measured = inputs
        .pages
        .map_or("no page's size is known".to_owned(), |(all, largest)| {
            format!(
                "the pages that were asked for have {} together, the largest {}",
                megabytes(Some(all)),
                megabytes(Some(largest))
            )
        });
    line(server, "cache_memory (top of the file)", size(value), &["R114", "R116"])
        .measured(
            measured,
            format!(
                "twice all of them, room for the largest in a quarter of each of {parts:.0} parts, and no less \
                 than the default of 64M; for sites with a [sites.cache]"
            ),
        )
        .guide(
            "a zone of 10 MB, a folder of 10 GB",
            "a zone holds keys alone, 8000 a MB; what counts is the pages' own size",
        )
}

/// How many scripts are kept.
pub(super) fn scripts(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let found = inputs.scripts.unwrap_or(0);
    let wanted = found.max(DEFAULT_SCRIPTS);
    let measured = match inputs.scripts {
        Some(found) => format!("{found} scripts in the folders of the code"),
        None => "the folders of the code are not known".to_owned(),
    };
    let prime = PRIMES.into_iter().find(|prime| *prime >= wanted);
    line(server, name, wanted, &["R6"])
        .measured(measured, "as many, and no less than PHP's default of 10000")
        .guide(
            "10000 to 20000",
            format!(
                "PHP takes the next number of a list ({}), so nearly all of them are the same",
                prime.map_or("1048793 at most".to_owned(), |prime| prime.to_string())
            ),
        )
}

/// From which size on a worker is replaced.
pub(super) fn most_private(server: Server, inputs: &SettingInputs) -> Recommendation {
    let value = inputs
        .peak
        .map_or("0".to_owned(), |peak| size(up(peak * ROOM)));
    line(server, "max_private_memory", value, &["R23", "R66"])
        .measured(
            format!("a worker had {} of its own at most", megabytes(inputs.peak)),
            "twice that: a worker that is larger has a leak, or made a page that nobody asked for here",
        )
        .guide(
            "pm.max_requests = 500",
            "what grows is to be replaced when it has grown, whatever it has served",
        )
}

/// What all of a pool may have together.
pub(super) fn memory_max(server: Server, inputs: &SettingInputs) -> Recommendation {
    let all = inputs.private.zip(inputs.peak).map(|(private, peak)| {
        let workers = f64::from(inputs.workers);
        // They are not all at their largest at once.
        up(workers * private.max(peak / ROOM) * ROOM_IN_OPCACHE + inputs.opcache)
    });
    let value = all.map_or("none".to_owned(), size);
    line(server, "memory_max", value, &["R22", "R64"])
        .measured(
            format!(
                "{} workers of {} each, at most {}",
                inputs.workers,
                megabytes(inputs.private),
                megabytes(inputs.peak)
            ),
            "half as much again as all of them, and OPcache",
        )
        .guide(
            "none",
            "without it the kernel ends whichever process it likes, a database too",
        )
}

/// How many workers may be started in a second.
pub(super) fn spawn_rate(server: Server, inputs: &SettingInputs) -> Recommendation {
    let rate = inputs.boot.filter(|boot| *boot > 0.0);
    let rate = rate.map(|boot| {
        (inputs.cores * STARTS / boot)
            .floor()
            .clamp(1.0, MOST_STARTS)
    });
    let value = rate.map_or("32".to_owned(), |rate| format!("{rate:.0}"));
    let measured = inputs
        .boot
        .map_or("what a start costs is not known".to_owned(), |boot| {
            format!("a start takes {:.1} ms of a processor", boot * 1e3)
        });
    line(server, "max_spawn_rate", value, &["R53", "R55"])
        .measured(
            measured,
            "as many as half of the processors can start in a second",
        )
        .guide(
            "32",
            "php-fpm's own number, from which it begins with one a second",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1_048_576.0;

    #[test]
    fn sizes_follow_from_the_largest_that_was_seen_and_never_shrink_a_limit() {
        let inputs = super::super::tests::inputs();
        let large = SettingInputs {
            peak: Some(100.0 * MB),
            shared: Some(200.0 * MB),
            ..inputs.clone()
        };
        assert_eq!(opcache(Server::PhpFpm, "opcache", &large).value, "304");
        assert_eq!(opcache(Server::PhpFpm, "opcache", &inputs).value, "128");
        assert_eq!(most_private(Server::Maitred, &large).value, "208M");
        assert_eq!(memory_max(Server::Maitred, &inputs).value, "736M");
        assert_eq!(spawn_rate(Server::Maitred, &inputs).value, "100");
        assert_eq!(
            open_files(Server::PhpFpm, "rlimit_files", &inputs).value,
            "1024"
        );
        let scripts = scripts(Server::PhpFpm, "files", &inputs);
        assert!(
            scripts.value == "12000" && scripts.why.contains("16229"),
            "{scripts:?}"
        );
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
