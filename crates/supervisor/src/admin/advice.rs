//! The number of workers that `pm = "auto"` would choose where it is fixed: computed from counters
//! that exist anyway, so it costs requests nothing, and has no effect.

use std::collections::BTreeMap;

use maitred_control::admin::Size;
use maitred_scoreboard::{RECENT, Reading};
use maitred_sizing::demand::offered;
use maitred_sizing::knee::knee;
use maitred_sizing::memory::Capacity;
use maitred_sizing::sources::Memory;
use maitred_sizing::{Binding, Terms};

/// Fewest requests from which their cost is known.
const ENOUGH: u64 = 20;

/// Average span of the recent counters, in seconds: the last fifth is being filled.
const RECENT_SECONDS: f64 = RECENT.as_secs() as f64 * 0.9;

/// The available resources.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resources {
    /// Processors.
    pub cores: f64,
    /// Memory, if it can be read.
    pub memory: Option<Memory>,
    /// Average private memory of a worker, in bytes; 0: not measured.
    pub worker: f64,
    /// Most workers (`max_children`).
    pub limit: u32,
}

/// That number; none where too few requests were measured.
pub(super) fn advice(reading: &Reading, means: &Resources) -> Option<Size> {
    let count = reading.total.cpu.count();
    if count < ENOUGH {
        return None;
    }
    let each = |sum: std::time::Duration| sum.as_secs_f64() / count as f64;
    let (cpu, blocked) = (each(reading.total.cpu.sum()), each(reading.total.blocked.sum()));
    let rate = reading.recent.cpu.count() as f64 / RECENT_SECONDS;
    let terms = Terms {
        demand: offered(rate * (cpu + blocked)),
        cpu: knee(means.cores, cpu / (cpu + blocked).max(f64::MIN_POSITIVE)),
        memory: means.memory.and_then(|memory| room(reading, &memory, means)),
        downstream: None,
        user: means.limit as usize,
    };
    let (workers, binding) = terms.least();
    let count = |workers: usize| workers as u64;
    let named = [
        (Binding::Demand, Some(terms.demand)),
        (Binding::Cpu, Some(terms.cpu)),
        (Binding::Memory, terms.memory),
        (Binding::Downstream, terms.downstream),
        (Binding::User, Some(terms.user)),
    ];
    let named = named.map(|(term, workers)| (term.name().to_owned(), workers.map(count)));
    Some(Size {
        workers: count(workers.max(1)),
        binding: binding.name().to_owned(),
        terms: BTreeMap::from(named),
        cores: means.cores,
        cpu_seconds: Some(cpu),
        blocked_seconds: blocked,
        hanging: 0,
    })
}

/// How many workers there is memory for: the present ones, and more in free memory.
fn room(reading: &Reading, memory: &Memory, means: &Resources) -> Option<usize> {
    let own = means.worker * reading.seated as f64;
    let room = Capacity {
        limit: memory.limit,
        base: (memory.used - own).max(0.0),
        worker: means.worker,
        ..Capacity::default()
    };
    room.workers()
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_scoreboard::{Page, RequestTimes};
    use std::time::Duration;

    const MB: f64 = 1024.0 * 1024.0;

    fn reading(requests: u32, cpu_ms: u64, blocked_ms: u64) -> Reading {
        let page = Page::create("www", 1).unwrap();
        let took = RequestTimes {
            cpu: Some(Duration::from_millis(cpu_ms)),
            core_wait: Some(Duration::ZERO),
            blocked: Some(Duration::from_millis(blocked_ms)),
            ..RequestTimes::default()
        };
        for _ in 0..requests {
            page.thread(0).observe(&took, maitred_scoreboard::now());
        }
        page.workers().show((0, 0), (10, 0));
        page.read()
    }

    fn means(memory: Option<Memory>) -> Resources {
        Resources { cores: 4.0, memory, worker: 50.0 * MB, limit: 200 }
    }

    #[test]
    fn what_requests_cost_says_how_many_workers_there_would_be() {
        let advice = advice(&reading(9000, 1, 9), &means(None)).unwrap();
        // 1000 a second of 10 ms are 10 workers on average, and 2 x the root of that more.
        assert_eq!((advice.workers, advice.binding.as_str()), (17, "demand"));
        assert_eq!(advice.terms["cpu"], Some(49));
        assert_eq!(advice.terms["memory"], None);
    }

    #[test]
    fn processors_and_memory_bind_where_they_are_short() {
        let full = advice(&reading(9000, 20, 0), &means(None)).unwrap();
        assert_eq!((full.workers, full.binding.as_str()), (4, "cpu"));
        let small = Memory { limit: 1000.0 * MB, used: 700.0 * MB, by_group: true };
        let small = advice(&reading(9000, 1, 9), &means(Some(small))).unwrap();
        // 900 MB but for 200 of others.
        assert_eq!((small.workers, small.binding.as_str()), (14, "memory"));
    }

    #[test]
    fn nothing_is_advised_of_what_was_not_measured() {
        assert_eq!(advice(&reading(3, 1, 1), &means(None)), None);
    }
}
