//! Of pools that find their size (`pm = auto`): the number, what it was made of, and what decides.

use maitred_scoreboard::Size;

use crate::admin::metrics::Text;

/// Writes the families, if there is such a pool.
pub fn write(out: &mut Text, pools: &[(&str, Size)]) {
    if pools.is_empty() {
        return;
    }
    let name = "maitred_pool_workers_target";
    out.family(
        name,
        "gauge",
        "Workers that a pool with pm = auto is to have.",
    );
    for (pool, size) in pools {
        out.value(name, &[("pool", pool)], size.workers);
    }
    let name = "maitred_pool_workers_term";
    out.family(
        name,
        "gauge",
        "Workers that each term allows; those that are no limit are left out.",
    );
    for (pool, size) in pools {
        for (term, workers) in size.terms() {
            if let Some(workers) = workers {
                out.value(name, &[("pool", pool), ("term", term)], workers);
            }
        }
    }
    let name = "maitred_pool_workers_binding";
    out.family(name, "gauge", "1 for the term that decides.");
    for (pool, size) in pools {
        for (term, _) in size.terms() {
            let decides = u8::from(term == size.binding_name());
            out.value(name, &[("pool", pool), ("term", term)], decides);
        }
    }
    let name = "maitred_pool_cores";
    out.family(name, "gauge", "Processors that a pool may use.");
    for (pool, size) in pools {
        out.value(name, &[("pool", pool)], size.cores as f64 / 1000.0);
    }
    let name = "maitred_pool_workers_hanging";
    out.family(
        name,
        "gauge",
        "Workers whose script has run for much longer than one takes.",
    );
    for (pool, size) in pools {
        out.value(name, &[("pool", pool)], size.hanging);
    }
}
