//! The server's state as text, at most [`cells::COLUMNS`] wide.

mod aligned_table;
mod cache;
mod cells;
mod copies;
mod proxies;
mod size;
mod split;

use maitred_control::admin::{
    CertificateStatus, Measured, Opcache, PoolStatus, Running, ServerStatus,
};

use maitred_scoreboard::{Counter, CounterValue};
use maitred_text::humanize::{compact_bytes, compact_count, long_time, shorten};

pub use cache::page_cache;
pub use copies::copies;
pub use proxies::proxies;
pub use size::advice;
pub use split::split;

use aligned_table::{Table, limited};
use cells::{counts, cut, p50_p99};

/// Most running scripts that `maitred status` shows.
pub const MAX_RUNNING_LINES: usize = 10;

/// Most hosts that `maitred status` shows: those whose certificates fail come first.
const MAX_HOST_LINES: usize = 20;

/// Columns of the pools.
const POOLS: &str = "POOL -14 | PM -8 | BUSY 5 | IDLE 5 | MAX 5 | QUEUE 9 | WAIT 11 | SCRIPT 11 | \
    REQUESTS 8 | FAILED 7 | PRIVATE 7";

/// Columns of running scripts. The pool's name is cut to the width of its column.
const RUNNING: &str = "RUNNING 8 | PID 7 | POOL -14 | REQUEST 0";

/// Columns of hosts with certificates.
const CERTIFICATES: &str = "CERTIFICATE -30 | EXPIRES 10 | NEXT 11 | PROBLEM 0";

/// One line for the server, and a table of its pools.
pub fn overview(server: &ServerStatus) -> Vec<String> {
    let ServerStatus { version, pid, phase, .. } = server;
    let up = long_time(server.uptime_seconds);
    let listen = server.listen.join(", ");
    let table = Table::new(POOLS, server.pools.iter().map(|pool| &*pool.name));
    let mut lines =
        vec![cut(&format!("maitred {version}, process {pid}, {phase} for {up} on {listen}"))];
    lines.extend(table.head());
    lines.extend(server.pools.iter().map(|pool| table.row(row(pool))));
    lines.push(String::new());
    lines.push("QUEUE now/max; WAIT and SCRIPT p50/p99 of the last 10 s".to_owned());
    lines
}

fn row(pool: &PoolStatus) -> [String; 11] {
    let (workers, queue) = (&pool.workers, &pool.queue);
    [
        pool.name.clone(),
        pool.pm.clone(),
        workers.busy.to_string(),
        workers.idle.to_string(),
        workers.limit.to_string(),
        format!("{}/{}", compact_count(queue.now, 4), compact_count(queue.max, 4)),
        p50_p99(&pool.queue_wait.recent),
        p50_p99(&pool.script_time.recent),
        compact_count(pool.requests, 8),
        compact_count(pool.failed.values().sum(), 7),
        compact_bytes(pool.memory.private_bytes),
    ]
}

/// All that is known of a pool.
pub fn details(pool: &PoolStatus) -> Vec<String> {
    let workers = &pool.workers;
    let (wait, script) = (&pool.queue_wait, &pool.script_time);
    let memory = &pool.memory;
    let method = match memory.measured {
        Measured::Nothing => "nothing to measure",
        Measured::Private => "private pages",
        Measured::RssMinusShared => "resident less shared pages: no permission to read more",
    };
    let php = pool.php.as_deref().unwrap_or("not started yet");
    let mut lines = vec![
        String::new(),
        format!("PHP             {php}"),
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
        format!(
            "memory          {} private in {} processes ({method}), {} shared",
            compact_bytes(memory.private_bytes),
            memory.processes,
            compact_bytes(memory.shared_bytes)
        ),
    ]);
    lines.extend(size::details(pool));
    lines.extend(copies::details(pool));
    lines.extend(split::details(pool));
    lines.extend(Counter::ALL.map(|counter| {
        let value = match pool.counters.value(counter) {
            CounterValue::Events(count) => count.to_string(),
            CounterValue::Seconds(seconds) => format!("{seconds:.3} s"),
        };
        format!("{:15} {value}", counter.label())
    }));
    lines.extend(pool.opcache.as_ref().map(opcache));
    lines.iter_mut().for_each(|line| *line = cut(line));
    lines
}

fn opcache(opcache: &Opcache) -> String {
    let figures = &opcache.figures;
    let looks = figures.hits.saturating_add(figures.misses);
    let share = 100.0 * figures.hits as f64 / looks.max(1) as f64;
    let restarts = [figures.oom_restarts, figures.hash_restarts, figures.manual_restarts];
    format!(
        "OPcache         {} used, {} free, {} wasted, {} scripts, {share:.1}% hits, {} restarts",
        compact_bytes(figures.memory_used_bytes),
        compact_bytes(figures.memory_free_bytes),
        compact_bytes(figures.memory_wasted_bytes),
        figures.cached_scripts,
        restarts.into_iter().fold(0, u64::saturating_add),
    )
}

/// The longest-running scripts of all pools and where they are; at most `most`.
pub fn running(server: &ServerStatus, most: usize) -> Vec<String> {
    let scripts = server.pools.iter().flat_map(|pool| {
        let scripts = pool.running.iter();
        scripts.map(|script| (pool.name.as_str(), script))
    });
    let mut scripts: Vec<_> = scripts.collect();
    scripts.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    if scripts.is_empty() {
        return Vec::new();
    }
    let table = Table::new(RUNNING, std::iter::empty());
    let mut lines = Vec::from(table.head());
    for (pool, script) in scripts.into_iter().take(most) {
        lines.push(table.row([
            long_time(script.seconds),
            script.pid.to_string(),
            shorten(pool, 14),
            request_of(script),
        ]));
        lines.extend(split::so_far(script));
        let stack = script.stack.iter();
        lines.extend(stack.map(|frame| cut(&format!("{:17}{frame}", ""))));
    }
    lines
}

fn request_of(script: &Running) -> String {
    let Running { method, uri, .. } = script;
    if *uri == script.script || script.script.ends_with(uri) {
        format!("{method} {uri}")
    } else {
        format!("{method} {uri} ({})", script.script)
    }
}

/// What single sites and pools lack.
pub fn faults(server: &ServerStatus) -> Vec<String> {
    let head = ["".to_owned(), "FAULTS".to_owned()];
    let faults = server.faults.iter().cloned();
    head.into_iter().filter(|_| !server.faults.is_empty()).chain(faults).collect()
}

/// The hosts whose certificates are got by ACME; `now` in seconds since 1970.
pub fn certificates(server: &ServerStatus, now: u64) -> Vec<String> {
    let mut hosts: Vec<&CertificateStatus> = server.certificates.iter().collect();
    if hosts.is_empty() {
        return Vec::new();
    }
    hosts.sort_by_key(|host| (host.error.is_none(), host.expires));
    let table = Table::new(CERTIFICATES, hosts.iter().map(|host| &*host.name));
    let mut lines = Vec::from(table.head());
    let row = |host: &&CertificateStatus| vec![table.row(certificate(host, now))];
    lines.extend(limited(&hosts, MAX_HOST_LINES, row));
    lines
}

fn certificate(host: &CertificateStatus, now: u64) -> [String; 4] {
    let until = |time: u64| long_time(time.saturating_sub(now) as f64);
    let expires = match host.expires {
        None => "none yet".to_owned(),
        Some(past) if past <= now => "expired".to_owned(),
        Some(time) => until(time),
    };
    let next = match host.next {
        Some(time) if time > now => until(time),
        _ => "now".to_owned(),
    };
    let failed = match host.failures {
        1 => "failed once".to_owned(),
        times => format!("failed {times} times"),
    };
    let problem = host.error.as_ref();
    let problem = problem.map(|error| format!("{failed}: {error}"));
    [host.name.clone(), expires, next, problem.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::cells::COLUMNS;
    use super::*;
    use maitred_control::admin::Quantiles;
    use maitred_control::admin::{Memory, Queue, Running, Times, Workers};
    use std::collections::BTreeMap;

    fn times(p50: f64, p99: f64) -> Times {
        let quantiles = Quantiles { count: 1, p50_seconds: Some(p50), p99_seconds: Some(p99) };
        Times { total: quantiles.clone(), recent: quantiles }
    }

    fn server(pool: PoolStatus) -> ServerStatus {
        ServerStatus {
            version: "0.1.0".to_owned(),
            pid: 17,
            phase: "serving".to_owned(),
            uptime_seconds: 8000.0,
            listen: vec!["[::]:80".to_owned()],
            pools: vec![pool],
            ..ServerStatus::default()
        }
    }

    fn quiet() -> PoolStatus {
        PoolStatus {
            name: "www".to_owned(),
            pm: "static".to_owned(),
            workers: Workers { busy: 1, idle: 3, limit: 4, ..Workers::default() },
            queue_wait: times(0.000_003, 0.0021),
            script_time: times(0.012, 1.25),
            requests: 12345,
            memory: Memory { private_bytes: 12_900_000, ..Memory::default() },
            ..PoolStatus::default()
        }
    }

    #[test]
    fn a_quiet_server_is_shown_in_a_table() {
        assert_eq!(
            overview(&server(quiet())).join("\n"),
            "maitred 0.1.0, process 17, serving for 2 h 13 m on [::]:80\n\
             \n\
             POOL PM        BUSY  IDLE   MAX     QUEUE        WAIT      SCRIPT REQUESTS  FAILED \
             PRIVATE\n\
             www  static       1     3     4       0/0   3µs/2.1ms   12ms/1.2s    12345       0   \
             12 MB\n\
             \n\
             QUEUE now/max; WAIT and SCRIPT p50/p99 of the last 10 s"
        );
    }

    #[test]
    fn nothing_makes_a_line_too_wide() {
        let huge: BTreeMap<String, u64> = [
            "max_private_memory",
            "client_closed",
            "worker_died",
            "queue_timeout",
            "invalid_response",
        ]
        .map(|name| (name.to_owned(), u64::MAX / 8))
        .into();
        let script = Running {
            pid: i32::MAX,
            seconds: 1e9,
            method: "PROPFINDER".to_owned(),
            uri: "/x".repeat(128),
            script: "/y".repeat(128),
            stack: vec!["z".repeat(300)],
            ..Running::default()
        };
        let pool = PoolStatus {
            name: "n".repeat(32),
            pm: "ondemand".to_owned(),
            workers: Workers {
                busy: 10_000,
                idle: 10_000,
                limit: 10_000,
                exited: huge.clone(),
                ..Workers::default()
            },
            queue: Queue { now: 1_000_000, max: 1_000_000, limit: u64::MAX },
            queue_wait: times(0.000_999, 0.000_999),
            script_time: times(4000.0, 4000.0),
            requests: u64::MAX / 2,
            outcomes: huge.clone(),
            failed: huge,
            memory: Memory { private_bytes: 1 << 50, ..Memory::default() },
            running: vec![script],
            ..PoolStatus::default()
        };
        let server = ServerStatus { listen: vec!["[::]:80".to_owned(); 100], ..server(pool) };
        let mut lines = overview(&server);
        lines.extend(details(&server.pools[0]));
        lines.extend(running(&server, 10));
        for line in lines {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
    }

    #[test]
    fn hosts_whose_certificates_fail_come_first() {
        let host = |name: &str, expires: Option<u64>| CertificateStatus {
            name: name.to_owned(),
            expires,
            next: Some(30 * 86_400),
            ..CertificateStatus::default()
        };
        let mut server = ServerStatus::default();
        assert!(certificates(&server, 0).is_empty());
        server.certificates = vec![
            host("shop.example.com", Some(60 * 86_400)),
            CertificateStatus {
                failures: 2,
                next: Some(150),
                error: Some("the authority refuses the order: no".to_owned()),
                ..host("away.example.com", None)
            },
        ];
        let lines = certificates(&server, 0);
        let expected = [
            "",
            "CERTIFICATE         EXPIRES        NEXT PROBLEM",
            "away.example.com   none yet    2 m 30 s failed 2 times: the authority refuses the \
             order: no",
            "shop.example.com   60 d 0 h    30 d 0 h",
        ];
        assert_eq!(lines, expected);
        server.certificates = vec![host("shop.example.com", None); 25];
        let lines = certificates(&server, 0);
        assert_eq!((lines.len(), lines[22].as_str()), (23, "and 5 more"));
    }
}
