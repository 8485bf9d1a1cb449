//! `/metrics`: every figure of every pool for Prometheus, in its text format or in OpenMetrics.
//! The names keep to <https://prometheus.io/docs/practices/naming/>.

use std::fmt::{Display, Write};
use std::time::Duration;

use maitred_control::admin::FrontFigures;
use maitred_scoreboard::{Cache, Cause, Outcome, Reading, Times};

use crate::admin::{cache_metrics, copies_metrics, proxy_metrics, request_metrics, size_metrics};
use crate::http::request_memory::RequestMemory;
use crate::net::client_addresses::Addresses;
use crate::pool::route_metrics::{Figures, PARTS, POWERS as POWERS_OF_ROUTES};
use crate::pool::status::{Page, View};
use crate::services::Shared;

/// The bounds of the histograms' buckets, as powers of two in microseconds: 128 µs to 67 s. They
/// are exact, since they are bounds of the scoreboard's own buckets.
const POWERS: std::ops::RangeInclusive<u32> = 7..=26;

/// The same of memory, in kilobytes: 1 MB to 1 GB.
const MEMORY_POWERS: std::ops::RangeInclusive<u32> = 10..=20;

/// How long figures of OPcache are shown that were not told anew. They are asked for with each page,
/// so that those of a zygote that hangs are not shown for ever.
const OPCACHE_KNOWN: Duration = Duration::from_secs(60);

/// A sample of a family: its label and what it tells of an OPcache.
type CacheSample = (Option<(&'static str, &'static str)>, fn(&Cache) -> u64);

/// The two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// The text format 0.0.4, which everything reads.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// A pool and its figures.
struct Pool {
    name: String,
    queue_limit: u32,
    workers_limit: u32,
    reading: Reading,
    classes: Vec<(String, Figures)>,
}

/// What clients take of the server: memory, and connections.
type Clients<'a> = (&'a RequestMemory, &'a Addresses);

/// The page, in the form that a client with this `Accept` header reads.
pub fn page(shared: &Shared, accept: &[u8], view: View) -> Page {
    let pools = shared.pools.all().into_iter().filter_map(|pool| {
        let settings = pool.settings();
        let tally = pool.tally()?;
        Some(Pool {
            name: pool.name.to_string(),
            queue_limit: settings.request_queue_length,
            workers_limit: settings.max_children.unwrap_or(0),
            reading: tally.page().read(),
            classes: match view {
                View::Whole | View::WithoutQueries => tally.classes.read(),
                View::WithoutRequests => Vec::new(),
            },
        })
    });
    let pools: Vec<Pool> = pools.collect();
    let open = String::from_utf8_lossy(accept).contains("application/openmetrics-text");
    let (form, kind) = match open {
        true => (
            Format::OpenMetrics,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        false => (
            Format::Prometheus,
            "text/plain; version=0.0.4; charset=utf-8",
        ),
    };
    let figures = FrontFigures {
        page_cache: shared.cache.as_ref().and_then(|cache| cache.figures()),
        proxies: shared.proxies.read(),
    };
    Page::new(
        kind,
        all(
            &pools,
            &figures,
            (&shared.requests, &shared.addresses),
            form,
        ),
    )
}

fn all(pools: &[Pool], figures: &FrontFigures, clients: Clients<'_>, form: Format) -> String {
    let mut out = Text {
        form,
        text: String::new(),
    };
    out.family("maitred_info", "gauge", "The version that runs.");
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(out.text, "maitred_info{{version=\"{version}\"}} 1");
    queue(&mut out, pools);
    split(&mut out, pools);
    routes(&mut out, pools);
    requests(&mut out, pools);
    workers(&mut out, pools);
    ends_of_workers(&mut out, pools);
    memory(&mut out, pools);
    opcache(&mut out, pools);
    let sizes = pools.iter();
    let sizes = sizes.filter_map(|pool| Some((pool.name.as_str(), pool.reading.size?)));
    size_metrics::write(&mut out, &sizes.collect::<Vec<_>>());
    let copies = pools.iter().filter_map(|pool| {
        let Reading { seated, busy, .. } = pool.reading;
        let copies = pool.reading.copies.as_ref()?;
        Some((pool.name.as_str(), copies, seated.saturating_sub(busy)))
    });
    copies_metrics::write(&mut out, &copies.collect::<Vec<_>>());
    if let Some(cache) = &figures.page_cache {
        cache_metrics::write(&mut out, cache);
    }
    if !figures.proxies.is_empty() {
        proxy_metrics::write(&mut out, &figures.proxies);
    }
    request_metrics::write(&mut out, clients.0, clients.1);
    if form == Format::OpenMetrics {
        out.text.push_str("# EOF\n");
    }
    out.text
}

fn queue(out: &mut Text, pools: &[Pool]) {
    out.gauge(
        "maitred_pool_queue_length",
        "Requests that wait for a worker.",
        pools,
        |pool| pool.reading.queued,
    );
    out.gauge(
        "maitred_pool_queue_length_max",
        "Most requests that ever waited at once.",
        pools,
        |pool| pool.reading.max_queued,
    );
    out.gauge(
        "maitred_pool_queue_length_limit",
        "Requests that may wait (request_queue_length).",
        pools,
        |pool| pool.queue_limit.into(),
    );
    out.histogram(
        "maitred_pool_queue_wait_seconds",
        "How long requests waited for a worker.",
        pools,
        |pool| &pool.reading.waits,
    );
    out.histogram(
        "maitred_pool_script_seconds",
        "How long scripts took.",
        pools,
        |pool| &pool.reading.scripts,
    );
}

/// Where the time of scripts went.
fn split(out: &mut Text, pools: &[Pool]) {
    out.histogram(
        "maitred_pool_cpu_seconds",
        "How long requests used a processor, in their worker.",
        pools,
        |pool| &pool.reading.cpu,
    );
    out.histogram(
        "maitred_pool_core_wait_seconds",
        "How long requests were ready to run in their worker, and had no processor.",
        pools,
        |pool| &pool.reading.core_waits,
    );
    out.histogram(
        "maitred_pool_blocked_seconds",
        "How long scripts waited for anything else than a processor.",
        pools,
        |pool| &pool.reading.blocked,
    );
    let name = "maitred_pool_children_cpu_seconds_total";
    let help = "Processor time of programs that scripts have started and waited for.";
    out.family(name, "counter", help);
    for pool in pools {
        let (pool, seconds) = (&pool.name, pool.reading.children.as_secs_f64());
        let _ = writeln!(out.text, "{name}{{pool=\"{pool}\"}} {seconds}");
    }
    out.memory_histogram(
        "maitred_pool_peak_memory_bytes",
        "The most memory that PHP had for each script.",
        pools,
        |pool| &pool.reading.peak_memory,
    );
}

/// The same by what the paths of requests have in common. Names of classes need no escapes either.
fn routes(out: &mut Text, pools: &[Pool]) {
    let name = "maitred_pool_route_script_seconds";
    let help = "How long scripts took, by the class of their path.";
    out.family(name, "histogram", help);
    let all = || {
        let of_pool = |pool| {
            let Pool { name, classes, .. }: &Pool = pool;
            classes
                .iter()
                .map(move |(class, figures)| (name, class, figures))
        };
        pools.iter().flat_map(of_pool)
    };
    for (pool, class, figures) in all() {
        let labels = format!("pool=\"{pool}\",route=\"{class}\"");
        let mut below = 0;
        for (power, count) in POWERS_OF_ROUTES.iter().zip(figures.below) {
            below += count;
            let bound = (1u64 << power) as f64 / 1e6;
            let _ = writeln!(out.text, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let (count, sum) = (figures.requests, figures.script.as_secs_f64());
        let _ = writeln!(
            out.text,
            "{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n\
             {name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}"
        );
    }
    let name = "maitred_pool_route_seconds_total";
    let help = "Where the time of requests went, by the class of their path.";
    out.family(name, "counter", help);
    for (pool, class, figures) in all() {
        for (part, time) in PARTS.iter().zip(figures.parts) {
            let labels = format!("pool=\"{pool}\",route=\"{class}\",part=\"{part}\"");
            let _ = writeln!(out.text, "{name}{{{labels}}} {}", time.as_secs_f64());
        }
    }
}

fn requests(out: &mut Text, pools: &[Pool]) {
    let outcomes = |pool: &Pool, which: fn(Outcome) -> bool| -> Vec<(String, u64)> {
        let all = Outcome::ALL.into_iter().filter(|outcome| which(*outcome));
        let count = |outcome: Outcome| pool.reading.outcomes[outcome as usize];
        all.map(|outcome| (outcome.name().to_owned(), count(outcome)))
            .collect()
    };
    out.counters(
        "maitred_pool_requests_total",
        "Requests by how they ended.",
        ("outcome", pools),
        |pool| outcomes(pool, |_| true),
    );
    out.counters(
        "maitred_pool_refusals_total",
        "Requests that were refused or failed, by cause.",
        ("cause", pools),
        |pool| outcomes(pool, Outcome::is_refusal),
    );
    out.counter(
        "maitred_pool_limit_reached_total",
        "Requests that found all workers busy and no further one allowed (max_children).",
        pools,
        |pool| pool.reading.limit_reached,
    );
    let name = "maitred_pool_newest_first_seconds_total";
    let help = "How long newer requests came before older ones, because there were too many.";
    out.family(name, "counter", help);
    for pool in pools {
        let seconds = pool.reading.newest_first.as_secs_f64();
        out.value(name, &[("pool", &pool.name)], seconds);
    }
}

fn workers(out: &mut Text, pools: &[Pool]) {
    let name = "maitred_pool_workers";
    out.family(name, "gauge", "Workers by state.");
    for pool in pools {
        let busy = pool.reading.busy.min(pool.reading.seated);
        let idle = pool.reading.seated - busy;
        let coming = pool.reading.coming;
        for (state, count) in [("busy", busy), ("idle", idle), ("starting", coming)] {
            out.sample(name, &pool.name, Some(("state", state)), count);
        }
    }
    out.gauge(
        "maitred_pool_workers_limit",
        "Workers that there may be (max_children).",
        pools,
        |pool| pool.workers_limit.into(),
    );
    out.gauge(
        "maitred_pool_workers_busy_max",
        "Most workers that ever ran a script at once.",
        pools,
        |pool| pool.reading.max_busy,
    );
    out.counter(
        "maitred_pool_workers_started_total",
        "Workers that were started.",
        pools,
        |pool| pool.reading.spawned,
    );
    out.counter(
        "maitred_pool_forks_failed_total",
        "Workers that could not be started.",
        pools,
        |pool| pool.reading.fork_failed,
    );
}

fn ends_of_workers(out: &mut Text, pools: &[Pool]) {
    out.counters(
        "maitred_pool_workers_ended_total",
        "Workers that have ended, by reason.",
        ("reason", pools),
        |pool| {
            let count = |cause: Cause| pool.reading.ended[cause as usize];
            let all = Cause::ALL.into_iter();
            all.map(|cause| (cause.name().to_owned(), count(cause)))
                .collect()
        },
    );
    out.counters(
        "maitred_pool_worker_crashes_total",
        "Workers that a signal ended, by its number.",
        ("signal", pools),
        |pool| {
            let signals = pool.reading.signals.iter();
            signals
                .map(|(signal, count)| (signal.to_string(), *count))
                .collect()
        },
    );
}

fn memory(out: &mut Text, pools: &[Pool]) {
    out.gauge(
        "maitred_pool_private_memory_bytes",
        "Memory that the pool's processes have for themselves, all of them together.",
        pools,
        |pool| pool.reading.private_bytes,
    );
    out.gauge(
        "maitred_pool_shared_memory_bytes",
        "Memory that a process of the pool shares with others; that of the one with the most.",
        pools,
        |pool| pool.reading.shared_bytes,
    );
}

/// Only of pools that have an OPcache, and whose zygote has told of it lately.
fn opcache(out: &mut Text, pools: &[Pool]) {
    let now = maitred_scoreboard::now();
    let known = pools.iter().filter_map(|pool| {
        let (cache, at) = pool.reading.cache?;
        let age = now.saturating_sub(at);
        (age <= OPCACHE_KNOWN).then_some((pool.name.as_str(), cache, age))
    });
    let known: Vec<(&str, Cache, Duration)> = known.collect();
    let mut family = |name: &str, kind, help, samples: &[CacheSample]| {
        out.family(name, kind, help);
        for (pool, cache, _) in &known {
            for (label, value) in samples {
                out.sample(name, pool, *label, value(cache));
            }
        }
    };
    family(
        "maitred_pool_opcache_memory_bytes",
        "gauge",
        "Memory of OPcache, by what it holds.",
        &[
            (Some(("state", "used")), |cache| cache.used_bytes),
            (Some(("state", "free")), |cache| cache.free_bytes),
            (Some(("state", "wasted")), |cache| cache.wasted_bytes),
        ],
    );
    family(
        "maitred_pool_opcache_scripts",
        "gauge",
        "Scripts that OPcache holds.",
        &[(None, |cache| cache.scripts)],
    );
    family(
        "maitred_pool_opcache_hits_total",
        "counter",
        "Scripts that were wanted and in OPcache.",
        &[(None, |cache| cache.hits)],
    );
    family(
        "maitred_pool_opcache_misses_total",
        "counter",
        "Scripts that were wanted and not in OPcache.",
        &[(None, |cache| cache.misses)],
    );
    family(
        "maitred_pool_opcache_restarts_total",
        "counter",
        "Times that OPcache threw everything away, by reason.",
        &[
            (Some(("reason", "oom")), |cache| cache.oom_restarts),
            (Some(("reason", "hash")), |cache| cache.hash_restarts),
            (Some(("reason", "manual")), |cache| cache.manual_restarts),
        ],
    );
    let name = "maitred_pool_opcache_age_seconds";
    out.family(
        name,
        "gauge",
        "For how long the figures of OPcache have been known.",
    );
    for (pool, _, age) in &known {
        out.sample(name, pool, None, age.as_secs());
    }
}

/// A page being written. Names of pools are letters, digits, `_` and `-`, so labels need no
/// escapes.
pub struct Text {
    form: Format,
    text: String,
}

impl Text {
    /// Begins a family.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let name = match self.form {
            Format::Prometheus => name,
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a sample of the family that was begun last.
    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (at, (label, of)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{of}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }

    fn sample(&mut self, name: &str, pool: &str, label: Option<(&str, &str)>, value: u64) {
        let _ = match label {
            Some((label, of)) => {
                writeln!(
                    self.text,
                    "{name}{{pool=\"{pool}\",{label}=\"{of}\"}} {value}"
                )
            }
            None => writeln!(self.text, "{name}{{pool=\"{pool}\"}} {value}"),
        };
    }

    fn gauge(&mut self, name: &str, help: &str, pools: &[Pool], value: fn(&Pool) -> u64) {
        self.family(name, "gauge", help);
        for pool in pools {
            self.sample(name, &pool.name, None, value(pool));
        }
    }

    fn counter(&mut self, name: &str, help: &str, pools: &[Pool], value: fn(&Pool) -> u64) {
        self.family(name, "counter", help);
        for pool in pools {
            self.sample(name, &pool.name, None, value(pool));
        }
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        (label, pools): (&str, &[Pool]),
        values: impl Fn(&Pool) -> Vec<(String, u64)>,
    ) {
        self.family(name, "counter", help);
        for pool in pools {
            for (of, value) in values(pool) {
                self.sample(name, &pool.name, Some((label, &of)), value);
            }
        }
    }

    fn histogram(&mut self, name: &str, help: &str, pools: &[Pool], of: fn(&Pool) -> &Times) {
        self.family(name, "histogram", help);
        for pool in pools {
            self.buckets(name, &pool.name, of(pool), (POWERS, 1e6));
        }
    }

    /// Writes a family of times, each of a pool.
    pub fn times(&mut self, name: &str, help: &str, pools: &[(&str, &Times)]) {
        self.family(name, "histogram", help);
        for (pool, times) in pools {
            self.buckets(name, pool, times, (POWERS, 1e6));
        }
    }

    /// One of kilobytes.
    fn memory_histogram(
        &mut self,
        name: &str,
        help: &str,
        pools: &[Pool],
        of: fn(&Pool) -> &Times,
    ) {
        self.family(name, "histogram", help);
        for pool in pools {
            self.buckets(name, &pool.name, of(pool), (MEMORY_POWERS, 1.0 / 1024.0));
        }
    }

    /// A histogram whose buckets end at these powers of two, divided by `divisor`.
    fn buckets(
        &mut self,
        name: &str,
        pool: &str,
        of: &Times,
        (powers, divisor): (std::ops::RangeInclusive<u32>, f64),
    ) {
        let bucket = format!("{name}_bucket");
        for power in powers {
            let bound = ((1u64 << power) as f64 / divisor).to_string();
            let count = of.below_power(power);
            self.sample(&bucket, pool, Some(("le", &bound)), count);
        }
        let count = of.count();
        self.sample(&bucket, pool, Some(("le", "+Inf")), count);
        let sum = of.sum().as_micros() as f64 / divisor;
        let _ = writeln!(self.text, "{name}_sum{{pool=\"{pool}\"}} {sum}");
        self.sample(&format!("{name}_count"), pool, None, count);
    }
}

#[cfg(test)]
mod tests;
