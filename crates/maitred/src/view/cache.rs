//! The page cache as text.

use std::collections::BTreeMap;

use maitred_control::admin::{CachedSite, PageCache, PageTier, ServerStatus};

use maitred_text::humanize::{bytes, compact_count, duration, plural_with};

use super::aligned_table::{Table, limited};
use super::cells::{fitting, sum};

/// Most sites that are shown: those with the most requests.
const MAX_SITE_LINES: usize = 20;

/// Columns of the sites.
const SITES: &str = "CACHE -24 | REQUESTS 8 | RATE 6 | HITS 8 | STALE 6 | MISSED 6 | BYPASS 6 | \
    STORED 8? | SAVED 8? | PHP 9";

/// How full the cache is, and its effect on each site; empty if no site has a cache.
pub fn page_cache(server: &ServerStatus, columns: usize) -> Vec<String> {
    let Some(cache) = &server.page_cache else {
        return Vec::new();
    };
    let mut lines = vec![String::new()];
    lines.extend(tiers(cache));
    let mut sites: Vec<&CachedSite> = cache.sites.iter().collect();
    sites.sort_by_key(|site| std::cmp::Reverse(sum(&site.requests, |_| true)));
    let table = Table::new(SITES, sites.iter().map(|site| &*site.site), columns);
    lines.extend(table.head());
    let of_site = |site: &&CachedSite| {
        let reasons =
            [reasons("bypassed", &site.bypasses), reasons("not stored", &site.not_stored)];
        let lines = [Some(table.row(row(site)))].into_iter().chain(reasons);
        lines.flatten().collect()
    };
    lines.extend(limited(&sites, MAX_SITE_LINES, of_site));
    fitting(lines, columns)
}

fn tiers(cache: &PageCache) -> Vec<String> {
    let tier = |name: &str, tier: &PageTier| {
        let (have, limit) = (bytes(tier.bytes as f64), bytes(tier.limit_bytes as f64));
        let (pages, evicted) = (compact_count(tier.pages, 8), compact_count(tier.evicted, 8));
        let noun = if tier.pages == 1 { "page" } else { "pages" };
        format!("{name} {pages} {noun}, {have} of {limit}, {evicted} evicted")
    };
    let mut lines = vec![format!("page cache: {}", tier("memory", &cache.memory))];
    let mut more = |text: String| lines.push(format!("{:12}{text}", ""));
    if let Some(disk) = &cache.disk {
        let errors = match cache.write_errors {
            0 => String::new(),
            errors => format!(", {} not written", compact_count(errors, 5)),
        };
        more(tier("disk", disk) + &errors);
    }
    if cache.filling > 0 || cache.waiting > 0 {
        let filling = compact_count(cache.filling, 5);
        let waiting = plural_with(cache.waiting, "request", "wait");
        more(format!("{filling} being generated, {waiting} for one"));
    }
    lines
}

fn row(site: &CachedSite) -> [String; 10] {
    let of = |names: &[&str]| sum(&site.requests, |name| names.contains(&name));
    let all = sum(&site.requests, |_| true);
    let from_cache = of(&["hit", "updating", "stale", "revalidated"]);
    let share = 100.0 * from_cache as f64 / all.max(1) as f64;
    [
        site.site.clone(),
        compact_count(all, 8),
        format!("{share:.1}%"),
        compact_count(of(&["hit"]), 8),
        compact_count(of(&["updating", "stale", "revalidated"]), 6),
        compact_count(of(&["miss", "vary_miss", "expired"]), 6),
        compact_count(of(&["bypass"]), 6),
        compact_count(site.stored, 8),
        bytes(site.saved_bytes as f64),
        duration(site.saved_script_seconds),
    ]
}

/// The reasons, the most frequent first.
fn reasons(about: &str, counts: &BTreeMap<String, u64>) -> Option<String> {
    let mut some: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
    some.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let some: Vec<String> = some
        .iter()
        .map(|(reason, count)| format!("{} {reason}", compact_count(**count, 8)))
        .collect();
    (!some.is_empty()).then(|| format!("  {about}: {}", some.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(site: CachedSite) -> ServerStatus {
        let memory = PageTier { pages: 1200, bytes: 30 << 20, limit_bytes: 64 << 20, evicted: 3 };
        ServerStatus {
            page_cache: Some(PageCache {
                disk: Some(memory.clone()),
                memory,
                sites: vec![site],
                ..PageCache::default()
            }),
            ..ServerStatus::default()
        }
    }

    fn counts(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
        let all = all.iter();
        all.map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn a_site_is_a_line_with_the_reasons_below() {
        let site = CachedSite {
            site: "shop.example".to_owned(),
            requests: counts(&[("hit", 900), ("stale", 50), ("miss", 40), ("bypass", 10)]),
            bypasses: counts(&[("method", 2), ("private-cookie", 8), ("rule", 0)]),
            stored: 30,
            not_stored: counts(&[("set-cookie", 10)]),
            purges: 1,
            saved_bytes: 25 << 20,
            saved_script_seconds: 75.0,
        };
        assert_eq!(
            page_cache(&server(site), 100).join("\n"),
            "\n\
             page cache: memory 1200 pages, 30 MiB of 64 MiB, 3 evicted\n            \
             disk 1200 pages, 30 MiB of 64 MiB, 3 evicted\n\
             \n\
             CACHE        REQUESTS   RATE     HITS  STALE MISSED BYPASS   STORED    SAVED       \
             PHP\n\
             shop.example     1000  95.0%      900     50     40     10       30   25 MiB      75 \
             s\n  \
             bypassed: 8 private-cookie, 2 method\n  \
             not stored: 10 set-cookie"
        );
        assert!(page_cache(&ServerStatus::default(), 100).is_empty());
    }

    #[test]
    fn nothing_makes_a_line_too_wide() {
        let huge = u64::MAX / 16;
        let many = counts(&[("hit", huge), ("stale", huge), ("miss", huge), ("bypass", huge)]);
        let site = CachedSite {
            site: "x".repeat(300),
            requests: many.clone(),
            bypasses: many.clone(),
            stored: huge,
            not_stored: many,
            purges: huge,
            saved_bytes: huge,
            saved_script_seconds: 1e12,
        };
        for line in page_cache(&server(site), 80) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
