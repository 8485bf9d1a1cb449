//! The page cache's part of `/metrics`. Names of sites are hosts, so labels need no escapes.

use std::collections::BTreeMap;

use maitred_control::admin::{CachedSite, PageCache, PageTier};

use crate::admin::metrics::Text;

/// A figure of a site.
type OfSite = fn(&CachedSite) -> f64;

/// A figure of a tier.
type OfTier = fn(&PageTier) -> u64;

/// Writes all families.
pub fn write(out: &mut Text, cache: &PageCache) {
    sites(out, &cache.sites);
    tiers(out, cache);
    let gauges = [
        (
            "maitred_cache_filling",
            "Pages that are being made for all who wait for them.",
            cache.filling,
        ),
        (
            "maitred_cache_waiting",
            "Requests that wait for a page that is being made.",
            cache.waiting,
        ),
        (
            "maitred_cache_purges_remembered",
            "Purges that are remembered until nothing is left of what they were about.",
            cache.purges_remembered,
        ),
    ];
    for (name, help, value) in gauges {
        out.family(name, "gauge", help);
        out.value(name, &[], value);
    }
    let counters = [
        (
            "maitred_cache_damaged_files_total",
            "Files of pages that were damaged.",
            cache.damaged_files,
        ),
        (
            "maitred_cache_write_errors_total",
            "Pages that could not be written to the disk.",
            cache.write_errors,
        ),
    ];
    for (name, help, value) in counters {
        out.family(name, "counter", help);
        out.value(name, &[], value);
    }
}

fn sites(out: &mut Text, sites: &[CachedSite]) {
    by(
        out,
        "maitred_cache_requests_total",
        "Requests for scripts at sites with a page cache, by what it has done.",
        (sites, "result", |site| site.requests.iter().collect()),
    );
    by(
        out,
        "maitred_cache_bypasses_total",
        "Requests that were none of the page cache's, by reason.",
        (sites, "reason", |site| some(&site.bypasses)),
    );
    by(
        out,
        "maitred_cache_not_stored_total",
        "Answers of scripts that were not kept, by reason.",
        (sites, "reason", |site| some(&site.not_stored)),
    );
    let counters: [(&str, &str, OfSite); 4] = [
        (
            "maitred_cache_stored_total",
            "Answers of scripts that were kept.",
            |site| site.stored as f64,
        ),
        (
            "maitred_cache_purges_total",
            "Purges of pages, prefixes, hosts, tags and sites.",
            |site| site.purges as f64,
        ),
        (
            "maitred_cache_saved_bytes_total",
            "Bytes of bodies that were sent without a script.",
            |site| site.saved_bytes as f64,
        ),
        (
            "maitred_cache_saved_script_seconds_total",
            "Time that workers would have needed to make what was kept.",
            |site| site.saved_script_seconds,
        ),
    ];
    for (name, help, value) in counters {
        out.family(name, "counter", help);
        for site in sites {
            out.value(name, &[("site", &site.site)], value(site));
        }
    }
}

/// Sites, a label's name, and its values and counts.
type Counts<'a> = (
    &'a [CachedSite],
    &'a str,
    fn(&CachedSite) -> Vec<(&String, &u64)>,
);

fn by(out: &mut Text, name: &str, help: &str, (sites, label, counts): Counts<'_>) {
    out.family(name, "counter", help);
    for site in sites {
        for (of, count) in counts(site) {
            let labels = [("site", site.site.as_str()), (label, of)];
            out.value(name, &labels, count);
        }
    }
}

/// Reasons are many, and most never come.
fn some(counts: &BTreeMap<String, u64>) -> Vec<(&String, &u64)> {
    counts.iter().filter(|(_, count)| **count > 0).collect()
}

fn tiers(out: &mut Text, cache: &PageCache) {
    let families: [(&str, &str, &str, OfTier); 4] = [
        (
            "maitred_cache_pages",
            "gauge",
            "Pages that are kept.",
            |tier| tier.pages,
        ),
        (
            "maitred_cache_bytes",
            "gauge",
            "Bytes of the pages that are kept.",
            |tier| tier.bytes,
        ),
        (
            "maitred_cache_limit_bytes",
            "gauge",
            "Bytes that pages may take (cache_memory, cache_max_size).",
            |tier| tier.limit_bytes,
        ),
        (
            "maitred_cache_evictions_total",
            "counter",
            "Pages that had to make room for others.",
            |tier| tier.evicted,
        ),
    ];
    let disk = cache.disk.iter().map(|tier| ("disk", tier));
    let all: Vec<(&str, &PageTier)> = [("memory", &cache.memory)]
        .into_iter()
        .chain(disk)
        .collect();
    for (name, kind, help, value) in families {
        out.family(name, kind, help);
        for (tier, of) in &all {
            out.value(name, &[("tier", tier)], value(of));
        }
    }
}
