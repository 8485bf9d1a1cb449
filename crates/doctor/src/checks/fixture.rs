//! Facts to test the checks with.

use std::time::Duration;

use crate::facts::*;
use crate::finding::{Finding, Severity};

pub const MB: f64 = 1048576.0;
pub const GB: f64 = 1024.0 * MB;

pub fn unknown<T>() -> Fact<T> {
    Unknown::because("not given")
}

/// A machine without services, of which every fact is unknown.
pub fn nothing() -> Facts {
    Facts {
        machine: Machine {
            memory: unknown(),
            processors: unknown(),
            allowed_processors: unknown(),
            pressure: unknown(),
            swappiness: unknown(),
            swaps: unknown(),
            swapped_in: unknown(),
            somaxconn: unknown(),
            kernel: unknown(),
            files: unknown(),
            tasks: unknown(),
            oom_kills: unknown(),
            last_kill: unknown(),
            sockets: unknown(),
            mounts: unknown(),
            syn_backlog_set_in: None,
        },
        services: Vec::new(),
        nginx: None,
        apache: None,
        applications: Vec::new(),
        arrivals: Ok(None),
        databases: unknown(),
        broken: Vec::new(),
        broken_web: Vec::new(),
        installed: Vec::new(),
    }
}

fn machine() -> Machine {
    Machine {
        memory: Ok(Memory { total: 4.0 * GB, available: 3.0 * GB, swap: GB }),
        processors: Ok(4),
        allowed_processors: Ok(4),
        pressure: Ok(Pressure { some: 0.0, full: 0.0, can_watch: true }),
        swappiness: Ok(60),
        swaps: Ok(vec![("/dev/nvme0n1p2".to_owned(), None)]),
        swapped_in: Ok(SwappedIn { pages: 0, seconds: 1.0 }),
        somaxconn: Ok(4096),
        kernel: Ok((6, 1)),
        files: Ok((2_000, 400_000)),
        tasks: Ok((300, 32_768)),
        oom_kills: Ok(0),
        last_kill: Ok(None),
        sockets: Ok(vec![Socket {
            address: "/run/php/www.sock".to_owned(),
            waiting: 0,
            limit: 128,
        }]),
        mounts: Ok(vec![("/".to_owned(), "ext4".to_owned())]),
        syn_backlog_set_in: None,
    }
}

pub fn worker(pid: i32) -> Worker {
    Worker {
        pid,
        private: Ok(30.0 * MB),
        resident: Ok(45.0 * MB),
        swapped: Ok((0.0, 0.0)),
        requests: Ok(100 * pid as u64),
        oom_score_adj: Ok(200),
        cpu: Ok(0.01 + pid as f64),
    }
}

fn live() -> Live {
    Live {
        workers: Ok((1..=8).map(worker).collect()),
        further_workers: 0,
        script_p50: Ok(0.02),
        script_p99: Ok(0.2),
        queue_wait_p99: Ok(0.001),
        cpu_share: Ok(0.6),
        contention: Ok(0.1),
        binding: Ok(None),
        limit_reached: Ok(0),
        queue_max: Ok(0),
        rate: Ok(20.0),
        opcache: Ok(Some(Opcache {
            used: 40.0 * MB,
            free: 88.0 * MB,
            wasted: 0.0,
            memory_restarts: 0,
            key_restarts: 0,
            keys: Some((900, 16_229)),
            strings: Some((6.0 * MB, 8.0 * MB)),
        })),
    }
}

fn ini() -> Ini {
    let entries = [
        ("memory_limit", "128M"),
        ("max_execution_time", "20"),
        ("default_socket_timeout", "10"),
        ("mysqlnd.net_read_timeout", "10"),
        ("opcache.validate_timestamps", "0"),
        ("display_errors", "0"),
    ];
    let entries = entries.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ini {
        entries: entries.into(),
        of_pool: Vec::new(),
        zend_extensions: vec!["opcache.so".to_owned()],
        version: Some((8, 2)),
    }
}

/// php-fpm with nginx, without a finding.
pub fn php_fpm() -> Facts {
    let pool = Pool {
        name: "pool www (www.conf)".to_owned(),
        section: "www".to_owned(),
        user: Some(33),
        manager: Manager::Dynamic,
        max_children: 8,
        is_chosen: true,
        spares: Some(Spares { start: 4, min: 3, max: 6 }),
        idle_timeout: Duration::from_secs(10),
        max_requests: 7_000,
        wall_limit: Duration::from_secs(30),
        tracks_finished: true,
        listen: Some(Listen { address: "/run/php/www.sock".to_owned(), backlog: 128 }),
        queue: None,
        status_path: None,
        has_status_listen: false,
        status_at: None,
        status_shown_at: Vec::new(),
        ini: Ok(ini()),
        roots: vec!["/srv/www".to_owned()],
        live: Ok(live()),
    };
    let settings = [("KillSignal", "SIGQUIT"), ("OOMPolicy", "continue"), ("TimeoutStopSec", "90")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let service = Service {
        kind: PhpServer::PhpFpm,
        name: "php-fpm 8.2".to_owned(),
        files: vec!["/etc/php/8.2/fpm/php-fpm.conf".to_owned()],
        includes: Vec::new(),
        control_timeout: Duration::from_secs(30),
        stop_delay: Duration::ZERO,
        has_other_nodes: false,
        unit: Ok(Some(Unit { name: "php8.2-fpm.service".to_owned(), settings: settings.into() })),
        process: Ok(Process { pid: 100, oom_score_adj: Ok(0), open_files: Ok(1024) }),
        group: Group {
            whose: "php-fpm 8.2".to_owned(),
            memory: Ok(None),
            used: Ok(None),
            cores: Ok(None),
            throttled: Ok(None),
            oom_kills: Ok(Some(0)),
            kills_all: false,
        },
        connections: None,
        pools: vec![pool],
    };
    Facts {
        machine: machine(),
        services: vec![service],
        nginx: Some(nginx()),
        apache: None,
        applications: vec![Application { file: "/srv/.env".to_owned(), shows_errors: Ok(false) }],
        arrivals: Ok(None),
        databases: Ok(vec![Database {
            name: "MariaDB".to_owned(),
            max_connections: 151,
            place: "its default".to_owned(),
            oom_score_adj: Ok(-600),
        }]),
        broken: Vec::new(),
        broken_web: Vec::new(),
        installed: Vec::new(),
    }
}

fn nginx() -> Nginx {
    Nginx {
        file: "/etc/nginx/nginx.conf".to_owned(),
        workers: None,
        connections: 512,
        open_files: Ok(4096),
        passes: vec![Pass {
            place: "/etc/nginx/sites-enabled/www:12".to_owned(),
            to: vec!["/run/php/www.sock".to_owned()],
            read_timeout: Duration::from_secs(60),
            kept: 0,
            location: "~ \\.php$".to_owned(),
            is_restricted: false,
            cache: Some(cache()),
        }],
        roots: vec!["/srv/www".to_owned()],
        idle_proxy_caches: Vec::new(),
        foreign: Vec::new(),
        sendfile_off: Vec::new(),
    }
}

/// A safe cache.
pub fn cache() -> PassCache {
    PassCache {
        zone: "pages".to_owned(),
        hosts: vec!["a.example".to_owned()],
        key: "$scheme$request_method$host$request_uri".to_owned(),
        ignored: Vec::new(),
        bypasses: vec!["$cookie_session".to_owned(), "$http_authorization".to_owned()],
        methods: Vec::new(),
        keeps_any_status: false,
        locks: true,
        sends_stale: true,
    }
}

/// maitred with defaults.
pub fn maitred() -> Facts {
    let mut facts = php_fpm();
    facts.nginx = None;
    let service = &mut facts.services[0];
    service.kind = PhpServer::Maitred;
    service.name = "maitred".to_owned();
    service.control_timeout = Duration::from_secs(60);
    let settings = [("OOMPolicy", "continue"), ("TimeoutStopSec", "120")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    service.unit = Ok(Some(Unit { name: "maitred.service".to_owned(), settings: settings.into() }));
    let pool = &mut service.pools[0];
    pool.manager = Manager::Static;
    pool.spares = None;
    pool.is_chosen = false;
    pool.max_requests = 0;
    pool.wall_limit = Duration::ZERO;
    pool.tracks_finished = false;
    pool.listen = None;
    pool.queue = Some((1000, Duration::from_secs(10)));
    let ini = Ini { zend_extensions: vec!["opcache.so".to_owned()], ..Ini::default() };
    pool.ini = Ok(ini);
    facts
}

/// The findings of a check.
pub fn look(id: &str, facts: &Facts) -> Vec<Finding> {
    let mut checks = super::CHECKS.iter();
    checks.find(|check| check.id == id).unwrap().look(facts)
}

/// Asserts that the check reports this severity, with this text in its observation.
#[track_caller]
pub fn expect(id: &str, facts: &Facts, severity: Severity, seen: &str) {
    let found = look(id, facts);
    let hit =
        found.iter().any(|finding| finding.severity == severity && finding.seen.contains(seen));
    assert!(hit, "{severity:?} with {seen:?} is expected of {found:#?}");
}

/// Asserts that the check reports nothing worse than OK.
#[track_caller]
pub fn expect_ok(id: &str, facts: &Facts) {
    let found = look(id, facts);
    let good = |finding: &Finding| finding.severity == Severity::Well;
    assert!(found.iter().all(good), "{found:#?}");
}

/// The first pool.
pub fn pool(facts: &mut Facts) -> &mut Pool {
    &mut facts.services[0].pools[0]
}

/// Live stats of the first pool.
pub fn reported(facts: &mut Facts) -> &mut Live {
    pool(facts).live.as_mut().unwrap()
}
