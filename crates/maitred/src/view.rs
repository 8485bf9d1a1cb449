//! A server's state as lines for people, at most [`COLUMNS`] wide.

mod cache;
mod copies;
mod proxies;
mod size;
mod split;

use maitred_control::admin::{
    CertificateStatus, Measured, Opcache, PoolStatus, Quantiles, ServerStatus,
};

pub use cache::page_cache;
pub use copies::copies;
pub use proxies::proxies;
pub use size::advice;
pub use split::split;

/// Widest line in characters.
pub const COLUMNS: usize = 100;

/// Most running scripts that `maitred status` shows.
pub const MAX_RUNNING_LINES: usize = 10;

/// Most hosts that `maitred status` shows: those whose certificates fail come first.
const MAX_HOST_LINES: usize = 20;

/// Most characters of a host's name.
const HOST_COLUMNS: usize = 30;

/// Most characters of a pool's name.
const NAME_COLUMNS: usize = 14;

/// A line about the server, and a table of its pools.
pub fn overview(server: &ServerStatus) -> Vec<String> {
    let ServerStatus {
        version,
        pid,
        phase,
        ..
    } = server;
    let up = duration(server.uptime_seconds);
    let listen = server.listen.join(", ");
    let names = server.pools.iter().map(|pool| pool.name.chars().count());
    let wide = names.max().unwrap_or(0).clamp(4, NAME_COLUMNS);
    let mut lines = vec![
        cut(&format!(
            "maitred {version}, process {pid}, {phase} for {up} on {listen}"
        )),
        String::new(),
        format!(
            "{:wide$} {:8} {:>5} {:>5} {:>5} {:>9} {:>11} {:>11} {:>8} {:>7} {:>7}",
            "POOL",
            "PM",
            "BUSY",
            "IDLE",
            "MAX",
            "QUEUE",
            "WAIT",
            "SCRIPT",
            "REQUESTS",
            "REFUSED",
            "PRIVATE"
        ),
    ];
    lines.extend(server.pools.iter().map(|pool| row(pool, wide)));
    lines.push(String::new());
    let legend = "QUEUE now/most; WAIT and SCRIPT p50/p99 of the last 10 s";
    lines.push(legend.to_owned());
    lines
}

fn row(pool: &PoolStatus, wide: usize) -> String {
    let name = shorten(&pool.name, wide);
    let workers = &pool.workers;
    let queue = format!(
        "{}/{}",
        number(pool.queue.now, 4),
        number(pool.queue.max, 4)
    );
    let refused: u64 = pool.refusals.values().sum();
    format!(
        "{name:wide$} {:8} {:>5} {:>5} {:>5} {queue:>9} {:>11} {:>11} {:>8} {:>7} {:>7}",
        pool.pm,
        workers.busy,
        workers.idle,
        workers.limit,
        both(&pool.queue_wait.recent),
        both(&pool.script_time.recent),
        number(pool.requests, 8),
        number(refused, 7),
        bytes(pool.memory.private_bytes),
    )
}

/// All that is known of a pool.
pub fn details(pool: &PoolStatus) -> Vec<String> {
    let workers = &pool.workers;
    let (wait, script) = (&pool.queue_wait, &pool.script_time);
    let memory = &pool.memory;
    let how = match memory.measured {
        Measured::Nothing => "nothing to measure",
        Measured::Private => "private pages",
        Measured::RssMinusShared => "resident less shared pages: more may not be looked at",
    };
    let php = pool.php.as_deref().unwrap_or("not started yet");
    let mut lines = vec![
        String::new(),
        format!("PHP             {php}"),
        format!(
            "workers         {} busy, {} idle, {} starting, at most {}; most busy at once {}",
            workers.busy, workers.idle, workers.starting, workers.limit, workers.max_busy
        ),
        format!("started         {}", workers.spawned),
        format!("ended           {}", counts(&workers.ended)),
        format!("limit reached   {} times", workers.limit_reached),
        format!(
            "queue           {} now, at most {} so far, {} allowed",
            pool.queue.now, pool.queue.max, pool.queue.limit
        ),
        format!("wait            {} since the start", both(&wait.total)),
        format!("script          {} since the start", both(&script.total)),
    ];
    lines.extend(split::parts(pool));
    lines.extend([
        format!("requests        {}", counts(&pool.outcomes)),
        format!(
            "memory          {} private in {} processes ({how}), {} shared",
            bytes(memory.private_bytes),
            memory.processes,
            bytes(memory.shared_bytes)
        ),
    ]);
    lines.extend(size::details(pool));
    lines.extend(copies::details(pool));
    lines.extend(split::details(pool));
    lines.extend(pool.opcache.as_ref().map(opcache));
    lines.iter_mut().for_each(|line| *line = cut(line));
    lines
}

fn opcache(opcache: &Opcache) -> String {
    let figures = &opcache.figures;
    let looks = figures.hits.saturating_add(figures.misses);
    let share = 100.0 * figures.hits as f64 / looks.max(1) as f64;
    let restarts = [
        figures.oom_restarts,
        figures.hash_restarts,
        figures.manual_restarts,
    ];
    format!(
        "OPcache         {} used, {} free, {} wasted, {} scripts, {share:.1}% hits, {} restarts",
        bytes(figures.memory_used_bytes),
        bytes(figures.memory_free_bytes),
        bytes(figures.memory_wasted_bytes),
        figures.cached_scripts,
        restarts.into_iter().fold(0, u64::saturating_add),
    )
}

/// The scripts that have run for longest, with where they are; `most` of them.
pub fn running(server: &ServerStatus, most: usize) -> Vec<String> {
    let scripts = server.pools.iter().flat_map(|pool| {
        let scripts = pool.running.iter();
        scripts.map(|script| (pool.name.as_str(), script))
    });
    let mut scripts: Vec<_> = scripts.collect();
    scripts.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    let mut lines = Vec::new();
    for (pool, script) in scripts.into_iter().take(most) {
        if lines.is_empty() {
            lines.push(String::new());
            let (time, pid) = ("RUNNING", "PID");
            lines.push(format!(
                "{time:>8} {pid:>7} {:NAME_COLUMNS$} REQUEST",
                "POOL"
            ));
        }
        let time = duration(script.seconds);
        let pool = shorten(pool, NAME_COLUMNS);
        let mut line = format!(
            "{time:>8} {:>7} {pool:NAME_COLUMNS$} {} {}",
            script.pid, script.method, script.uri
        );
        if script.uri != script.script && !script.script.ends_with(&script.uri) {
            line.push_str(&format!(" ({})", script.script));
        }
        lines.push(cut(&line));
        lines.extend(split::so_far(script));
        let stack = script.stack.iter();
        lines.extend(stack.map(|frame| cut(&format!("{:17}{frame}", ""))));
    }
    lines
}

/// The hosts whose certificates are got by ACME; `now` in seconds since 1970.
pub fn certificates(server: &ServerStatus, now: u64) -> Vec<String> {
    let mut hosts: Vec<&CertificateStatus> = server.certificates.iter().collect();
    if hosts.is_empty() {
        return Vec::new();
    }
    hosts.sort_by_key(|host| (host.error.is_none(), host.expires));
    let names = hosts.iter().map(|host| host.name.chars().count());
    let wide = names.max().unwrap_or(0).clamp(11, HOST_COLUMNS);
    let header = format!(
        "{:wide$} {:>10} {:>11} PROBLEM",
        "CERTIFICATE", "EXPIRES", "NEXT"
    );
    let mut lines = vec![String::new(), header];
    let shown = hosts.iter().take(MAX_HOST_LINES);
    lines.extend(shown.map(|host| certificate(host, wide, now)));
    match hosts.len().saturating_sub(MAX_HOST_LINES) {
        0 => {}
        more => lines.push(format!("and {more} more")),
    }
    lines
}

fn certificate(host: &CertificateStatus, wide: usize, now: u64) -> String {
    let until = |moment: u64| duration(moment.saturating_sub(now) as f64);
    let expires = match host.expires {
        None => "none yet".to_owned(),
        Some(past) if past <= now => "expired".to_owned(),
        Some(moment) => until(moment),
    };
    let next = match host.next {
        Some(moment) if moment > now => until(moment),
        _ => "now".to_owned(),
    };
    let name = shorten(&host.name, wide);
    let failed = match host.failures {
        1 => "failed once".to_owned(),
        times => format!("failed {times} times"),
    };
    let problem = host.error.as_ref();
    let problem = problem.map(|error| format!(" {failed}: {error}"));
    let problem = problem.unwrap_or_default();
    cut(&format!("{name:wide$} {expires:>10} {next:>11}{problem}"))
}

fn counts(counts: &std::collections::BTreeMap<String, u64>) -> String {
    let some = counts.iter().filter(|(_, count)| **count > 0);
    let some: Vec<String> = some
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    match some.is_empty() {
        true => "none".to_owned(),
        false => some.join(", "),
    }
}

fn both(times: &Quantiles) -> String {
    match (times.p50_seconds, times.p99_seconds) {
        (Some(p50), Some(p99)) => format!("{}/{}", time(p50), time(p99)),
        _ => "-".to_owned(),
    }
}

/// A short time in at most five characters: `850µs`, `1.2ms`, `12ms`, `1.2s`, `62s`.
fn time(seconds: f64) -> String {
    let scaled = |value: f64, unit: &str| match value {
        ..9.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    };
    match seconds {
        ..0.000_999_5 => format!("{:.0}µs", seconds * 1e6),
        ..0.999_5 => scaled(seconds * 1e3, "ms"),
        ..999.5 => scaled(seconds, "s"),
        _ => format!("{:.0}m", seconds / 60.0),
    }
}

/// A long time in two units: `12.3 s`, `2 m 13 s`, `5 h 2 m`, `3 d 4 h`.
fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        ..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} m {} s", whole / 60, whole % 60),
        3600..86400 => format!("{} h {} m", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86400, whole / 3600 % 24),
    }
}

/// A count in at most `columns` characters, four at least.
fn number(count: u64, columns: usize) -> String {
    let text = count.to_string();
    if text.len() <= columns {
        return text;
    }
    match count {
        ..1_000_000 => format!("{}k", count / 1000),
        1_000_000..1_000_000_000 => format!("{}M", count / 1_000_000),
        1_000_000_000..1_000_000_000_000 => format!("{}G", count / 1_000_000_000),
        _ => format!("{}T", (count / 1_000_000_000_000).min(999)),
    }
}

/// An amount of memory in at most seven characters.
fn bytes(bytes: u64) -> String {
    let megabytes = bytes as f64 / (1 << 20) as f64;
    match megabytes {
        ..9.95 => format!("{megabytes:.1} MB"),
        ..9999.5 => format!("{megabytes:.0} MB"),
        ..10_239_999.0 => format!("{:.0} GB", megabytes / 1024.0),
        _ => format!("{:.0} TB", megabytes / 1024.0 / 1024.0),
    }
}

fn shorten(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept = text.chars().take(columns.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// A line that fits.
fn cut(line: &str) -> String {
    shorten(line, COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_control::admin::{Memory, Queue, Running, Times, Workers};

    fn times(p50: f64, p99: f64) -> Times {
        let quantiles = Quantiles {
            count: 1,
            p50_seconds: Some(p50),
            p99_seconds: Some(p99),
        };
        Times {
            total: quantiles.clone(),
            recent: quantiles,
        }
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
            workers: Workers {
                busy: 1,
                idle: 3,
                limit: 4,
                ..Workers::default()
            },
            queue_wait: times(0.000_003, 0.0021),
            script_time: times(0.012, 1.25),
            requests: 12345,
            memory: Memory {
                private_bytes: 12_900_000,
                ..Memory::default()
            },
            ..PoolStatus::default()
        }
    }

    #[test]
    fn a_quiet_server_is_shown_in_a_table() {
        assert_eq!(
            overview(&server(quiet())).join("\n"),
            "maitred 0.1.0, process 17, serving for 2 h 13 m on [::]:80\n\
             \n\
             POOL PM        BUSY  IDLE   MAX     QUEUE        WAIT      SCRIPT REQUESTS REFUSED \
             PRIVATE\n\
             www  static       1     3     4       0/0   3µs/2.1ms   12ms/1.2s    12345       0   \
             12 MB\n\
             \n\
             QUEUE now/most; WAIT and SCRIPT p50/p99 of the last 10 s"
        );
    }

    #[test]
    fn nothing_makes_a_line_too_wide() {
        let huge: std::collections::BTreeMap<String, u64> = [
            "max_private_memory",
            "client_left",
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
                spawned: u64::MAX,
                ended: huge.clone(),
                ..Workers::default()
            },
            queue: Queue {
                now: 1_000_000,
                max: 1_000_000,
                limit: u64::MAX,
            },
            queue_wait: times(0.000_999, 0.000_999),
            script_time: times(4000.0, 4000.0),
            requests: u64::MAX / 2,
            outcomes: huge.clone(),
            refusals: huge,
            memory: Memory {
                private_bytes: 1 << 50,
                ..Memory::default()
            },
            running: vec![script],
            ..PoolStatus::default()
        };
        let server = ServerStatus {
            listen: vec!["[::]:80".to_owned(); 100],
            ..server(pool)
        };
        let mut lines = overview(&server);
        lines.extend(details(&server.pools[0]));
        lines.extend(running(&server, 10));
        for line in lines {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
    }

    #[test]
    fn times_are_short() {
        let read = [0.0, 0.000_85, 0.0012, 0.012, 0.9996, 1.25, 62.0, 4000.0].map(time);
        assert_eq!(
            read,
            [
                "0µs", "850µs", "1.2ms", "12ms", "1.0s", "1.2s", "62s", "67m"
            ]
        );
        let read = [0.04, 75.0, 3700.0, 200_000.0].map(duration);
        assert_eq!(read, ["0.0 s", "1 m 15 s", "1 h 1 m", "2 d 7 h"]);
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
            "away.example.com   none yet    2 m 30 s failed 2 times: the authority refuses the order: no",
            "shop.example.com   60 d 0 h    30 d 0 h",
        ];
        assert_eq!(lines, expected);
        server.certificates = vec![host("shop.example.com", None); 25];
        let lines = certificates(&server, 0);
        assert_eq!((lines.len(), lines[22].as_str()), (23, "and 5 more"));
    }
}
