//! Where the time of requests goes, as text.

use maitred_control::admin::{PoolStatus, Running, ServerStatus, Times};

use maitred_text::humanize::{bytes, duration};

use super::aligned_table::{Table, limited};
use super::cells::p50_p99;
use super::pool_table::{MAX_OTHER_POOLS, PoolOrder};

/// Columns of the pools.
const PARTS: &str = "POOL -14 | CPU 11 | CORE WAIT 11 | BLOCKED 11";

/// A table of the pools with recently measured requests, the busiest first; empty if there is none.
pub fn split(server: &ServerStatus, columns: usize) -> Vec<String> {
    let is_measured = |pool: &&PoolStatus| pool.cpu_time.recent.count > 0;
    let mut pools: Vec<&PoolStatus> = server.pools.iter().filter(is_measured).collect();
    PoolOrder::Load.sort(&mut pools);
    if pools.is_empty() {
        return Vec::new();
    }
    let table = Table::new(PARTS, pools.iter().map(|pool| &*pool.name), columns);
    let mut lines = Vec::from(table.head());
    let row = |pool: &&PoolStatus| {
        vec![table.row([
            pool.name.clone(),
            p50_p99(&pool.cpu_time.recent),
            p50_p99(&pool.core_wait_time.recent),
            p50_p99(&pool.blocked_time.recent),
        ])]
    };
    lines.extend(limited(&pools, MAX_OTHER_POOLS, row));
    lines.push(String::new());
    lines.push("of SCRIPT: on a CPU, runnable without a CPU, blocked on anything else".to_owned());
    lines
}

/// The parts of script time, for the lines below it; empty if nothing is measured.
pub fn parts(pool: &PoolStatus) -> Vec<String> {
    if pool.cpu_time.total.count == 0 {
        return Vec::new();
    }
    let part = |name: &str, times: &Times| match times.total.count {
        0 => format!("  {name:13} unknown: the kernel does not report it (schedstat)"),
        _ => format!("  {name:13} {}", p50_p99(&times.total)),
    };
    vec![
        part("cpu", &pool.cpu_time),
        part("core wait", &pool.core_wait_time),
        part("blocked", &pool.blocked_time),
    ]
}

/// What else is measured of a pool's scripts.
pub fn details(pool: &PoolStatus) -> Option<String> {
    let peak = &pool.peak_memory;
    let (p50, p99) = (bytes(peak.p50_bytes? as f64), bytes(peak.p99_bytes? as f64));
    Some(format!("peak memory     {p50} p50, {p99} p99 of scripts"))
}

/// The parts of a running script's time so far.
pub fn so_far(script: &Running) -> Option<String> {
    let (cpu, waited) = (script.cpu_seconds?, script.core_wait_seconds?);
    let parts = [cpu, waited, script.blocked_seconds?].map(duration);
    let [cpu, waited, blocked] = parts;
    let waits = script.waits_for.as_deref().and_then(waits_for).unwrap_or_default();
    Some(format!("cpu {cpu}, core wait {waited}, blocked {blocked}{waits}"))
}

/// What a running script waits for, by its name in JSON.
fn waits_for(name: &str) -> Option<&'static str> {
    match name {
        "disk" => Some(", waits for the disk"),
        "network" => Some(", waits for a socket"),
        "file_lock" => Some(", waits for a lock of a file"),
        "sleep" => Some(", sleeps"),
        "program" => Some(", waits for a program"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_control::admin::{PeakMemory, Quantiles};

    fn times(p50: f64, p99: f64) -> Times {
        let quantiles = Quantiles { count: 1, p50_seconds: Some(p50), p99_seconds: Some(p99) };
        Times { total: quantiles.clone(), recent: quantiles }
    }

    fn pool() -> PoolStatus {
        PoolStatus {
            name: "www".to_owned(),
            cpu_time: times(0.002, 0.01),
            core_wait_time: times(0.0, 0.001),
            blocked_time: times(0.01, 1.2),
            peak_memory: PeakMemory { p50_bytes: Some(2 << 20), p99_bytes: Some(4 << 20) },
            ..PoolStatus::default()
        }
    }

    #[test]
    fn pools_whose_requests_were_measured_are_shown_in_a_table() {
        let mut server =
            ServerStatus { pools: vec![PoolStatus::default(), pool()], ..ServerStatus::default() };
        let expected = [
            "",
            "POOL         CPU   CORE WAIT     BLOCKED",
            "www   2.0ms/10ms   0µs/1.0ms   10ms/1.2s",
            "",
            "of SCRIPT: on a CPU, runnable without a CPU, blocked on anything else",
        ];
        assert_eq!(split(&server, 100), expected);
        server.pools.pop();
        assert!(split(&server, 100).is_empty());
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_said_to_be_unknown() {
        let unknown = PoolStatus {
            core_wait_time: Times::default(),
            blocked_time: Times::default(),
            ..pool()
        };
        let lines = parts(&unknown);
        assert_eq!(lines[0], "  cpu           2.0ms/10ms");
        assert!(lines[1].contains("core wait     unknown"), "{lines:?}");
        assert!(lines[2].contains("blocked       unknown"), "{lines:?}");
        assert_eq!(
            details(&unknown).as_deref(),
            Some("peak memory     2 MiB p50, 4 MiB p99 of scripts")
        );
        let nothing = PoolStatus::default();
        assert!(parts(&nothing).is_empty() && details(&nothing).is_none());
    }

    #[test]
    fn a_script_that_runs_is_shown_with_what_it_is_known_to_have_used() {
        let mut script = Running {
            cpu_seconds: Some(0.04),
            core_wait_seconds: Some(0.0),
            blocked_seconds: Some(75.0),
            ..Running::default()
        };
        let line = "cpu 40 ms, core wait 0 s, blocked 75 s";
        assert_eq!(so_far(&script).as_deref(), Some(line));
        script.waits_for = Some("disk".to_owned());
        assert_eq!(so_far(&script), Some(format!("{line}, waits for the disk")));
        script.blocked_seconds = None;
        assert_eq!(so_far(&script), None);
    }
}
