//! A pool in detail, as text.

use maitred_control::admin::{Measured, Opcache, PoolStatus, Preloading, RealpathCache};
use maitred_scoreboard::{Counter, CounterValue};
use maitred_text::humanize::{bytes, duration, plural};

use super::cells::{counts, p50_p99};
use super::{copies, size, split};

/// All that is known of a pool.
pub fn details(pool: &PoolStatus) -> Vec<String> {
    let workers = &pool.workers;
    let (wait, script) = (&pool.queue_wait, &pool.script_time);
    let memory = &pool.memory;
    let method = match memory.measured {
        Measured::Nothing => "nothing to measure",
        Measured::Private => "private pages",
        Measured::RssMinusShared => "resident less shared pages: no permission to read more",
        Measured::RssMinusSharedLate => "resident less shared pages: not counted in time",
    };
    let php = pool.php.as_deref().unwrap_or("not started yet");
    let mut lines = vec![
        String::new(),
        format!("PHP             {php}"),
        format!("pm              {}", pool.pm),
        format!(
            "workers         {} busy, {} idle, {} starting, at most {}; most busy at once {}",
            workers.busy, workers.idle, workers.starting, workers.limit, workers.max_busy
        ),
        format!("exited          {}", counts(&workers.exited)),
        format!(
            "queue           {} now, at most {} so far, {} allowed",
            pool.queue.now, pool.queue.max, pool.queue.limit
        ),
        format!("wait            {} since the start", p50_p99(&wait.total)),
        format!("script          {} since the start", p50_p99(&script.total)),
    ];
    lines.extend(split::parts(pool));
    lines.extend([
        format!("requests        {}", counts(&pool.outcomes)),
        format!("refused         {}", counts(&pool.refused)),
        format!("failed          {}", counts(&pool.failed)),
        format!(
            "memory          {} private in {} ({method}), {} shared",
            bytes(memory.private_bytes as f64),
            plural(memory.processes, "process"),
            bytes(memory.shared_bytes as f64)
        ),
    ]);
    lines.extend(size::details(pool));
    lines.extend(copies::details(pool));
    lines.extend(split::details(pool));
    lines.extend(Counter::ALL.map(|counter| {
        let value = match pool.counters.value(counter) {
            CounterValue::Events(count) => count.to_string(),
            CounterValue::Seconds(seconds) => duration(seconds),
        };
        format!("{:15} {value}", counter.label())
    }));
    lines.extend(pool.opcache.as_ref().map(opcache));
    lines.extend(pool.realpath_cache.map(realpath_cache));
    lines.extend(pool.preloading.as_ref().map(preloading));
    lines
}

fn realpath_cache(cache: RealpathCache) -> String {
    format!(
        "real paths      {} of {} used, in the worker with most",
        bytes(cache.used_bytes as f64),
        bytes(cache.limit_bytes as f64)
    )
}

fn preloading(preloading: &Preloading) -> String {
    match preloading.classes {
        0 => format!("preloading      off: {}", preloading.state),
        classes => format!("preloading      on: {}", plural(u64::from(classes), "class")),
    }
}

fn opcache(opcache: &Opcache) -> String {
    let figures = &opcache.figures;
    let looks = figures.hits.saturating_add(figures.misses);
    let share = 100.0 * figures.hits as f64 / looks.max(1) as f64;
    let restarts = [figures.oom_restarts, figures.hash_restarts, figures.manual_restarts];
    format!(
        "OPcache         {} used, {} free, {} wasted, {}, {share:.1}% hits, {}",
        bytes(figures.memory_used_bytes as f64),
        bytes(figures.memory_free_bytes as f64),
        bytes(figures.memory_wasted_bytes as f64),
        plural(figures.cached_scripts, "script"),
        plural(restarts.into_iter().fold(0, u64::saturating_add), "restart"),
    )
}
