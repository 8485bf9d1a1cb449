//! Of pools whose workers are copies of a booted application (`mode = "snapshot"`).

use maitred_scoreboard::{Copies, STAYED_FOR};

use crate::admin::metrics::Text;

/// Copies of a pool, by its name, and how many of them are ready.
pub type Pool<'p> = (&'p str, &'p Copies, u64);

/// Writes the families, if there is such a pool.
pub fn write(out: &mut Text, pools: &[Pool<'_>]) {
    if pools.is_empty() {
        return;
    }
    let mut family = |name: &str, kind: &str, help: &str, value: fn(&Pool<'_>) -> u64| {
        out.family(name, kind, help);
        for pool in pools {
            out.value(name, &[("pool", pool.0)], value(pool));
        }
    };
    family(
        "maitred_pool_copies_generation",
        "gauge",
        "The generation whose copies serve; higher after each boot for new code.",
        |(_, copies, _)| copies.generation,
    );
    family(
        "maitred_pool_copies_spare",
        "gauge",
        "Copies that are ready and serve nobody.",
        |(.., spare)| *spare,
    );
    family(
        "maitred_pool_copies_went_back_total",
        "counter",
        "Times that a copy has gone back to what it was (rewinds_per_child).",
        |(_, copies, _)| copies.went_back,
    );
    family(
        "maitred_pool_copies_pages_total",
        "counter",
        "Pages of memory that copies had for themselves at their end, of those that were measured.",
        |(_, copies, _)| copies.pages,
    );
    family(
        "maitred_pool_copies_measured_total",
        "counter",
        "Copies whose memory was measured at their end.",
        |(_, copies, _)| copies.measured,
    );
    let name = "maitred_pool_copies_ended_total";
    let help = "Copies that were to go back and ended instead, by reason.";
    out.family(name, "counter", help);
    for (pool, copies, _) in pools {
        for (reason, count) in STAYED_FOR.iter().zip(copies.stayed) {
            out.value(name, &[("pool", pool), ("reason", reason)], count);
        }
    }
    let forks: Vec<_> = pools
        .iter()
        .map(|(pool, copies, _)| (*pool, &copies.forks))
        .collect();
    let help = "How long forking a copy took.";
    out.times("maitred_pool_copies_fork_seconds", help, &forks);
}
