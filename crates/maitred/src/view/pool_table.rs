//! The pools as a table.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use maitred_control::admin::{PoolStatus, ServerStatus};
use maitred_text::humanize::{bytes, compact_count, plural, shorten};

use super::aligned_table::Table;
use super::cells::{of_limit, p50_p99, sum};

/// Most pools of a server whose idle pools have a line each.
const MAX_UNFOLDED_POOLS: usize = 10;

/// Most pools in each of the other tables.
pub const MAX_OTHER_POOLS: usize = 20;

/// Columns of the pools.
const POOLS: &str = "POOL -14 | BUSY 7 | IDLE 4? | QUEUE 9 | WAIT 11 | SCRIPT 11 | REQUESTS 8 | \
    REFUSED 7 | FAILED 6 | PRIVATE 8?";

/// The meaning of some columns.
const LEGEND: &str = "BUSY now/limit; QUEUE now/max; WAIT and SCRIPT p50/p99 of the last 10 s";

/// An order of pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PoolOrder {
    /// Pools with waiting requests, then busy ones, then those with recent requests.
    #[default]
    Load,
    /// Most finished requests first.
    Requests,
    /// Most refused and failed requests first.
    Failures,
    /// Longest scripts first, by the recent 99th percentile.
    Duration,
    /// Most private memory first.
    Memory,
    /// By name.
    Name,
}

impl PoolOrder {
    /// Its name, as `maitred top` shows it.
    pub fn name(self) -> &'static str {
        match self {
            PoolOrder::Load => "load",
            PoolOrder::Requests => "requests",
            PoolOrder::Failures => "failures",
            PoolOrder::Duration => "duration",
            PoolOrder::Memory => "memory",
            PoolOrder::Name => "name",
        }
    }

    /// The next order, or the first one after the last.
    pub fn next(self) -> PoolOrder {
        match self {
            PoolOrder::Load => PoolOrder::Requests,
            PoolOrder::Requests => PoolOrder::Failures,
            PoolOrder::Failures => PoolOrder::Duration,
            PoolOrder::Duration => PoolOrder::Memory,
            PoolOrder::Memory => PoolOrder::Name,
            PoolOrder::Name => PoolOrder::Load,
        }
    }

    /// Sorts pools; equal ones by name.
    pub fn sort(self, pools: &mut [&PoolStatus]) {
        pools.sort_by(|a, b| self.compare(b, a).then_with(|| a.name.cmp(&b.name)));
    }

    fn compare(self, a: &PoolStatus, b: &PoolStatus) -> Ordering {
        let p99 = |pool: &PoolStatus| pool.script_time.recent.p99_seconds.unwrap_or(0.0);
        match self {
            PoolOrder::Load => load(a).cmp(&load(b)),
            PoolOrder::Requests => a.requests.cmp(&b.requests),
            PoolOrder::Failures => failures(a).cmp(&failures(b)),
            PoolOrder::Duration => p99(a).total_cmp(&p99(b)),
            PoolOrder::Memory => a.memory.private_bytes.cmp(&b.memory.private_bytes),
            PoolOrder::Name => Ordering::Equal,
        }
    }
}

fn load(pool: &PoolStatus) -> [u64; 3] {
    [pool.queue.now, pool.workers.busy, pool.script_time.recent.count]
}

fn failures(pool: &PoolStatus) -> u64 {
    count(&pool.refused).saturating_add(count(&pool.failed))
}

fn count(counts: &BTreeMap<String, u64>) -> u64 {
    sum(counts, |_| true)
}

/// Whether nothing runs or waits in a pool, and nothing has in the last ten seconds.
fn is_idle(pool: &PoolStatus) -> bool {
    let recent = [&pool.queue_wait.recent, &pool.script_time.recent];
    load(pool) == [0; 3] && pool.scripts == 0 && recent.iter().all(|times| times.count == 0)
}

/// How the pools are shown.
#[derive(Debug, Clone, Copy)]
pub struct PoolView {
    /// Columns of the screen.
    pub columns: usize,
    /// The order.
    pub order: PoolOrder,
    /// Whether each idle pool has a line.
    pub all: bool,
}

/// A table of the pools. Idle pools are one line, where there are many pools.
pub fn pool_table(server: &ServerStatus, view: &PoolView) -> Vec<String> {
    let folds = !view.all && server.pools.len() > MAX_UNFOLDED_POOLS;
    let (idle, mut shown): (Vec<&PoolStatus>, Vec<&PoolStatus>) =
        server.pools.iter().partition(|pool| folds && is_idle(pool));
    view.order.sort(&mut shown);
    let table = Table::new(POOLS, shown.iter().map(|pool| &*pool.name), view.columns);
    let mut lines = Vec::from(table.head());
    lines.extend(shown.iter().map(|pool| table.row(row(pool))));
    lines.extend(folded(&idle));
    lines.extend([String::new(), LEGEND.to_owned()]);
    lines.iter().map(|line| shorten(line, view.columns)).collect()
}

fn row(pool: &PoolStatus) -> [String; 10] {
    let (workers, queue) = (&pool.workers, &pool.queue);
    [
        pool.name.clone(),
        of_limit(workers.busy, workers.limit),
        compact_count(workers.idle, 4),
        format!("{}/{}", compact_count(queue.now, 4), compact_count(queue.max, 4)),
        p50_p99(&pool.queue_wait.recent),
        p50_p99(&pool.script_time.recent),
        compact_count(pool.requests, 8),
        compact_count(count(&pool.refused), 7),
        compact_count(count(&pool.failed), 6),
        bytes(pool.memory.private_bytes as f64),
    ]
}

/// One line for all idle pools, with what they have done before.
fn folded(idle: &[&PoolStatus]) -> Option<String> {
    if idle.is_empty() {
        return None;
    }
    let total = |of: fn(&PoolStatus) -> u64| idle.iter().map(|pool| of(pool)).sum::<u64>();
    let (requests, refused) = (total(|pool| pool.requests), total(|pool| count(&pool.refused)));
    let (failed, private) =
        (total(|pool| count(&pool.failed)), total(|pool| pool.memory.private_bytes));
    Some(format!(
        "{} idle ({}, {refused} refused, {failed} failed, {})",
        plural(idle.len() as u64, "pool"),
        plural(requests, "request"),
        bytes(private as f64)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_control::admin::{Memory, Quantiles, Queue, Times, Workers};

    fn times(p50: f64, p99: f64) -> Times {
        let quantiles = Quantiles { count: 1, p50_seconds: Some(p50), p99_seconds: Some(p99) };
        Times { total: quantiles.clone(), recent: quantiles }
    }

    fn quiet(name: &str) -> PoolStatus {
        PoolStatus {
            name: name.to_owned(),
            workers: Workers { idle: 3, limit: 4, ..Workers::default() },
            requests: 12345,
            memory: Memory { private_bytes: 12_900_000, ..Memory::default() },
            ..PoolStatus::default()
        }
    }

    fn busy(name: &str) -> PoolStatus {
        PoolStatus {
            workers: Workers { busy: 1, idle: 3, limit: 4, ..Workers::default() },
            queue_wait: times(0.000_003, 0.0021),
            script_time: times(0.012, 1.25),
            refused: [("shed".to_owned(), 2)].into(),
            failed: [("terminated".to_owned(), 1), ("worker_died".to_owned(), 3)].into(),
            ..quiet(name)
        }
    }

    fn shown(pools: Vec<PoolStatus>, view: &PoolView) -> Vec<String> {
        pool_table(&ServerStatus { pools, ..ServerStatus::default() }, view)
    }

    const WIDE: PoolView = PoolView { columns: 100, order: PoolOrder::Load, all: false };

    #[test]
    fn refused_and_failed_requests_have_a_column_each() {
        let lines = shown(vec![busy("www")], &WIDE);
        assert_eq!(
            lines.join("\n"),
            "\n\
             POOL    BUSY IDLE     QUEUE        WAIT      SCRIPT REQUESTS REFUSED FAILED  PRIVATE\n\
             www      1/4    3       0/0   3µs/2.1ms   12ms/1.2s    12345       2      4 12.3 MiB\n\
             \n\
             BUSY now/limit; QUEUE now/max; WAIT and SCRIPT p50/p99 of the last 10 s"
        );
    }

    #[test]
    fn busy_and_waiting_pools_come_first_and_idle_ones_are_one_line() {
        let mut pools: Vec<PoolStatus> = (0..60).map(|n| quiet(&format!("t{n:03}"))).collect();
        pools[30] = busy("t030");
        let queue = Queue { now: 5, max: 9, limit: 100 };
        pools[55] = PoolStatus { queue, ..busy("t055") };
        let recent = PoolStatus { script_time: times(0.1, 0.2), ..quiet("t007") };
        pools[7] = recent;
        let lines = shown(pools.clone(), &WIDE);
        let names: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names[..6], ["", "POOL", "t055", "t030", "t007", "57"]);
        assert_eq!(lines[5], "57 pools idle (703665 requests, 0 refused, 0 failed, 701 MiB)");
        let lines = shown(pools.clone(), &PoolView { all: true, ..WIDE });
        assert_eq!(lines.len(), 64);
        let lines = shown(pools, &PoolView { all: true, order: PoolOrder::Name, ..WIDE });
        assert!(lines[2].starts_with("t000") && lines[61].starts_with("t059"), "{lines:?}");
    }

    #[test]
    fn each_order_has_a_successor_and_all_are_reached() {
        let mut names = vec![];
        let mut order = PoolOrder::Load;
        while !names.contains(&order.name()) {
            names.push(order.name());
            order = order.next();
        }
        assert_eq!(names, ["load", "requests", "failures", "duration", "memory", "name"]);
        let (a, mut b) = (quiet("a"), busy("b"));
        b.memory.private_bytes += 1;
        b.requests += 1;
        for order in ["load", "requests", "failures", "duration", "memory"] {
            let mut pools = [&a, &b];
            let named = |found: &PoolOrder| found.name() == order;
            let all = std::iter::successors(Some(PoolOrder::Load), |order| Some(order.next()));
            all.take(6).find(named).expect("an order").sort(&mut pools);
            assert_eq!(pools[0].name, "b", "{order}");
        }
    }

    #[test]
    fn a_narrow_screen_has_fewer_columns_and_no_line_is_cut() {
        let huge: BTreeMap<String, u64> = [("shed".to_owned(), u64::MAX / 8)].into();
        let pool = PoolStatus {
            name: "n".repeat(32),
            workers: Workers { busy: 10_000, idle: 10_000, limit: 10_000, ..Workers::default() },
            queue: Queue { now: 1_000_000, max: 1_000_000, limit: u64::MAX },
            queue_wait: times(0.000_999, 0.000_999),
            script_time: times(4000.0, 4000.0),
            requests: u64::MAX / 2,
            refused: huge.clone(),
            failed: huge,
            memory: Memory { private_bytes: 1 << 50, ..Memory::default() },
            ..PoolStatus::default()
        };
        for columns in [80, 100] {
            let lines = shown(vec![pool.clone()], &PoolView { columns, ..WIDE });
            for line in &lines {
                assert!(line.chars().count() <= columns, "{line}");
                assert!(!line.ends_with('…'), "{line}");
            }
            assert_eq!(lines[1].contains("PRIVATE"), columns == 100, "{lines:?}");
            assert!(lines[1].contains("REFUSED FAILED"), "{lines:?}");
        }
    }
}
