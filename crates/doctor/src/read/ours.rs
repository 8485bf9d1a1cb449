//! maitred's own configuration, and the stats of a running server from its admin socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use maitred_config::{Address, Config, Destination, ProcessManager, Site};
use maitred_control::CacheFigures;
use maitred_control::admin::{
    MAX_REPLY_BYTES, Measured, PoolStatus, Quantiles, Reply, Request, ServerStatus, Times,
    default_socket,
};
use maitred_os::users;
use maitred_rules::SiteRules;
use maitred_rules::path::clean_path;
use maitred_rules::site_rules::{RuleRequest, Verdict};
use maitred_scoreboard::Counter;
use rustix::net::sockopt::socket_peercred;

use super::processes::{self, Proc};
use super::world::{World, within};
use super::{Options, ini, systemd_units};
use crate::facts::*;

/// A client that no rule names: a documentation address (TEST-NET-3, RFC 5737).
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));

/// The time limit of its reply has passed.
const SILENCE: &str = "it sends nothing";

/// Recent stats of fewer requests are less reliable than those since the start, and of very few
/// useless: the first ones differ.
const ENOUGH: u64 = 20;

/// The service of a configuration file, with live stats if it runs.
pub(super) fn service(
    world: &World,
    options: &Options,
    file: &Path,
    all: &Fact<Vec<Proc>>,
    broken: &mut Vec<(String, Unknown)>,
) -> Option<Service> {
    let config = match maitred_config::load(file) {
        Ok(config) => config,
        Err(mistakes) => {
            // Each line names its file already.
            let text = mistakes.to_string();
            let first = text.lines().next().unwrap_or_default().to_owned();
            broken.push((file.display().to_string(), Unknown(first)));
            return None;
        }
    };
    let socket = options.admin_socket.clone();
    let socket = socket.or_else(|| config.admin_socket.clone()).unwrap_or_else(default_socket);
    let status = if world.is_here() {
        ask(world, &socket)
    } else {
        Unknown::because("no server is queried for another root")
    };
    let name = format!("maitred ({})", file.display());
    let pid = status.as_ref().map(|status| i32::try_from(status.pid).unwrap_or_default());
    let front = status.as_ref().ok().and_then(|status| status.front_pid);
    let process = pid.as_ref().map_err(|why| (*why).clone()).map(|pid| Process {
        open_files: processes::open_files(world, front.unwrap_or(*pid)),
        ..processes::process(world, *pid)
    });
    let processors = world.read("/proc/self/status").ok();
    let processors = processors.and_then(|_| std::thread::available_parallelism().ok());
    let processors = processors.map_or(1, usize::from);
    let pools = config.pools.iter().map(|of| {
        let mut pool = pool(world, &config, of, processors);
        let server = pid.as_ref().ok().copied();
        pool.user = processes::user_of_workers(all, server).or_else(|| {
            // Another root has other users.
            world.is_here().then(|| (options.user_of_pool)(of, &config)).flatten()
        });
        pool.live = live(world, &status, &pool, all);
        if let Ok(status) = &status {
            let reported = status.pools.iter().find(|reported| reported.name == of.name);
            let limit = reported.and_then(|reported| u32::try_from(reported.workers.limit).ok());
            pool.max_children = limit.filter(|limit| *limit > 0).unwrap_or(pool.max_children);
        }
        pool
    });
    let pools = pools.collect();
    Some(Service {
        kind: PhpServer::Maitred,
        control_timeout: config.process_control_timeout,
        stop_delay: config.stop_delay,
        has_other_nodes: config.purge_log.is_some(),
        unit: systemd_units::unit(world, "maitred.service"),
        group: super::cgroups::group(world, &name, pid.ok()),
        process,
        name,
        files: vec![file.display().to_string()],
        includes: Vec::new(),
        connections: None,
        pools,
    })
}

fn pool(world: &World, config: &Config, of: &maitred_config::Pool, processors: usize) -> Pool {
    let cores = u32::try_from(processors).unwrap_or(u32::MAX);
    let spares = match (of.start_servers, of.min_spare_servers, of.max_spare_servers) {
        (Some(start), Some(min), Some(max)) => Some(Spares { start, min, max }),
        _ => None,
    };
    let sites = config.sites.iter();
    let roots = sites.filter(|site| site.pools().any(|name| name == of.name));
    Pool {
        name: format!("pool {}", of.name),
        section: of.name.clone(),
        user: None,
        manager: match of.pm {
            ProcessManager::Static => Manager::Static,
            ProcessManager::Dynamic => Manager::Dynamic,
            ProcessManager::Ondemand => Manager::Ondemand,
            ProcessManager::Auto => Manager::Found,
        },
        max_children: of.most_workers(cores),
        is_chosen: of.max_children.is_some(),
        spares,
        idle_timeout: of.process_idle_timeout,
        max_requests: of.max_requests,
        wall_limit: of.request_terminate_timeout,
        tracks_finished: of.request_terminate_timeout_track_finished,
        listen: of.listener.as_ref().map(|listener| Listen {
            address: match &listener.listen {
                Address::Tcp(address) => address.to_string(),
                Address::Unix(path) => path.display().to_string(),
            },
            backlog: listener.backlog.map_or(-1, i64::from),
        }),
        queue: Some((u64::from(of.request_queue_length), of.request_queue_timeout)),
        status_path: of.status_path.clone(),
        has_status_listen: of.status_listener.is_some(),
        status_at: None,
        status_shown_at: status_shown_at(config, of),
        ini: own_ini(world, of),
        roots: roots.map(|site| site.root.display().to_string()).collect(),
        live: Unknown::because("the server does not run"),
    }
}

/// The hosts of sites that serve the pool's status page to every client.
fn status_shown_at(config: &Config, of: &maitred_config::Pool) -> Vec<String> {
    let tls = config.tls.iter().flat_map(|tls| &tls.listen);
    let mut listeners = config.listen.iter().chain(tls);
    let (Some(path), true) =
        (&of.status_path, listeners.any(|listener| !listener.ip().is_loopback()))
    else {
        return Vec::new();
    };
    let shows = config.sites.iter().filter(|site| shows(site, path, of));
    shows.map(host).collect()
}

/// Whether a site serves the status page of this pool to an unknown client.
fn shows(site: &Site, path: &str, of: &maitred_config::Pool) -> bool {
    let (Ok(rules), Ok(clean)) = (SiteRules::compile(&site.rules), clean_path(path)) else {
        return false;
    };
    let asked =
        RuleRequest { path: &clean, query: None, scheme: "http", host: "", client: STRANGER };
    let Verdict::Serve(serve) = rules.decide(&asked) else {
        return false;
    };
    let own = match &site.destination {
        Destination::Pool(name) => Some(name.as_str()),
        Destination::Upstream(_) => None,
    };
    let pool = rules.path_settings(clean.as_bytes()).pool.or(own);
    let is_proxied = rules.proxy(clean.as_bytes()).is_some();
    pool == Some(of.name.as_str()) && serve.auth == [None, None] && !is_proxied
}

fn host(site: &Site) -> String {
    let first = site.hosts.first().map(ToString::to_string);
    first.unwrap_or_else(|| "*".to_owned())
}

/// php.ini with the entries of a pool, the later ones over the earlier ones.
fn own_ini(world: &World, of: &maitred_config::Pool) -> Fact<Ini> {
    let mut ini = if of.no_php_ini { Ini::default() } else { ini_of_files(world, of)? };
    let defines = of.defines.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let set = of.php_value.iter().chain(&of.php_admin_value);
    let set = set.map(|(name, value)| (name.as_str(), value.as_str()));
    ini::add_pools(&mut ini, defines.chain(set));
    Ok(ini)
}

fn ini_of_files(world: &World, of: &maitred_config::Pool) -> Fact<Ini> {
    let found = ini::of_server(world, "fpm", of.php.as_deref());
    let (file, beside) = match &of.php_ini {
        Some(file) => {
            let beside = of.php_ini_scan_dir.as_ref().map(|folder| folder.display().to_string());
            (file.display().to_string(), beside.unwrap_or_default())
        }
        None => match found {
            Ok(found) => found,
            Err(_) => ini::of_server(world, "embed", of.php.as_deref())?,
        },
    };
    ini::read(world, &file, &beside)
}

/// The reply of the server.
fn ask(world: &World, socket: &Path) -> Fact<ServerStatus> {
    let patience = world.patience();
    let place = socket.to_owned();
    // The connection itself may block until it is accepted.
    let reported = within(patience, move || talk(&place, patience));
    let place = socket.display();
    match reported {
        Some(Ok(status)) => Ok(status),
        Some(Err(why)) if why != SILENCE => {
            Unknown::because(format!("no server responds on {place} ({why})"))
        }
        Some(Err(_)) | None => Unknown::because(format!(
            "the server on {place} did not respond within {} ms",
            patience.as_millis()
        )),
    }
}

fn talk(socket: &Path, patience: Duration) -> Result<ServerStatus, String> {
    let said = |why: std::io::Error| match why.kind() {
        std::io::ErrorKind::WouldBlock => SILENCE.to_owned(),
        _ => why.to_string(),
    };
    let stream = UnixStream::connect(socket).map_err(said)?;
    let server = socket_peercred(&stream).map_err(|why| said(why.into()))?.uid.as_raw();
    let is_permitted = users::is_root() || users::current().uid == server;
    stream.set_read_timeout(Some(patience)).map_err(said)?;
    let mut line =
        serde_json::to_vec(&Request::Status { pool: None }).map_err(|why| why.to_string())?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(said)?;
    let mut response = Vec::new();
    let mut stream = BufReader::new(stream).take(MAX_REPLY_BYTES as u64);
    stream.read_until(b'\n', &mut response).map_err(said)?;
    match serde_json::from_slice(&response) {
        Ok(Reply::Status(status)) => Ok(*status),
        Ok(_) => Err("its reply is for another request".to_owned()),
        Err(_) if response.is_empty() && is_permitted => {
            Err("it closed the connection, as when a new program takes over (an upgrade)"
                .to_owned())
        }
        Err(_) if response.is_empty() => Err("it is for its own user and root".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// Those of the last seconds if they cover enough requests.
fn of(times: &Times) -> &Quantiles {
    match times.recent.count {
        count if count >= ENOUGH => &times.recent,
        _ => &times.total,
    }
}

fn half(times: &Times) -> Option<f64> {
    of(times).p50_seconds
}

fn live(
    world: &World,
    status: &Fact<ServerStatus>,
    pool: &Pool,
    all: &Fact<Vec<Proc>>,
) -> Fact<Live> {
    let status = known(status)?;
    let mut pools = status.pools.iter();
    let reported = pools.find(|reported| reported.name == pool.section);
    let reported =
        reported.ok_or_else(|| Unknown("the running server has no such pool".to_owned()))?;
    let served = || Unknown("no script has run yet".to_owned());
    let (cpu, blocked, waited) =
        (half(&reported.cpu_time), half(&reported.blocked_time), half(&reported.core_wait_time));
    let unmeasured = || {
        Unknown(
            "the kernel does not tell, or request_accounting is off, or fewer than 20 scripts \
             have run"
                .to_owned(),
        )
    };
    let is_enough = reported.cpu_time.total.count >= ENOUGH;
    let share = cpu
        .zip(blocked)
        .filter(|_| is_enough)
        .map(|(cpu, blocked)| cpu / (cpu + blocked).max(f64::MIN_POSITIVE));
    let contention = cpu
        .zip(waited)
        .filter(|_| is_enough)
        .map(|(cpu, waited)| waited / cpu.max(f64::MIN_POSITIVE));
    let pids = own_processes(status.pid, pool, all);
    Ok(Live {
        further_workers: pids.as_ref().map_or(0, |pids| processes::further_workers(pids)),
        workers: pids.and_then(|pids| workers(world, reported, &pids)),
        script_p50: half(&reported.script_time).ok_or_else(served),
        script_p99: of(&reported.script_time).p99_seconds.ok_or_else(served),
        queue_wait_p99: of(&reported.queue_wait).p99_seconds.ok_or_else(served),
        cpu_share: share.ok_or_else(unmeasured),
        contention: contention.ok_or_else(unmeasured),
        binding: Ok(reported.size.as_ref().map(|size| size.binding.clone())),
        limit_reached: Ok(reported.counters.count(Counter::LimitReached)),
        queue_max: Ok(reported.queue.max),
        rate: Ok(reported.requests as f64 / status.uptime_seconds.max(1.0)),
        opcache: Ok(reported.opcache.as_ref().map(|cache| opcache(&cache.figures))),
    })
}

/// An OPcache, by the figures of a status. Those of an older server lack keys and strings.
pub fn opcache(figures: &CacheFigures) -> Opcache {
    let (used, size) = figures.strings_bytes;
    Opcache {
        used: figures.memory_used_bytes as f64,
        free: figures.memory_free_bytes as f64,
        wasted: figures.memory_wasted_bytes as f64,
        memory_restarts: figures.oom_restarts,
        key_restarts: figures.hash_restarts,
        keys: (figures.keys.1 > 0).then_some(figures.keys),
        strings: (size > 0).then_some((used as f64, size as f64)),
    }
}

/// The ids of the pool's workers. Any process can have such a title, and the server adopts orphans
/// of all pools: only those of its user are surely the pool's.
fn own_processes(supervisor: u32, pool: &Pool, all: &Fact<Vec<Proc>>) -> Fact<Vec<i32>> {
    let title = format!("maitred-php: worker pool {} ", pool.section);
    let supervisor = i32::try_from(supervisor).unwrap_or_default();
    let user = processes::known_user(pool)?;
    let own = known(all)?.iter().filter(|one| one.parent == supervisor && one.user == Some(user));
    Ok(own.filter(|one| one.title.starts_with(&title)).map(|one| one.pid).collect())
}

/// The pool's workers. The requests of each are not reported, only their sum.
fn workers(world: &World, reported: &PoolStatus, pids: &[i32]) -> Fact<Vec<Worker>> {
    if pids.is_empty() && reported.memory.measured != Measured::Nothing {
        return Unknown::because("/proc does not show the server's workers");
    }
    let mut workers = processes::workers(world, pids);
    let each = reported.requests / (pids.len() as u64).max(1);
    for worker in &mut workers {
        worker.requests = Ok(each);
    }
    Ok(workers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixture;

    #[test]
    fn a_process_of_another_user_with_the_title_of_a_worker_is_none() {
        let mut facts = fixture::maitred();
        let pool = fixture::pool(&mut facts);
        let one = |pid, user| Proc {
            pid,
            parent: 7,
            name: "maitred-php".to_owned(),
            title: format!("maitred-php: worker pool www seat {pid}"),
            user,
        };
        let all = Ok(vec![one(1, Some(33)), one(2, Some(1001)), one(3, None), one(7, Some(0))]);
        assert_eq!(own_processes(7, pool, &all), Ok(vec![1]));
        assert_eq!(processes::user_of_workers(&all, Some(7)), None, "the configuration has it");
        assert_eq!(processes::user_of_workers(&all, Some(2)), Some(1001));
        pool.user = None;
        assert!(own_processes(7, pool, &all).unwrap_err().0.contains("user of pool www"));
    }

    /// Sites at which every client sees the status page of the first pool.
    fn shown(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("public")).unwrap();
        std::fs::write(folder.path().join("users"), "").unwrap();
        let file = folder.path().join("maitred.toml");
        std::fs::write(&file, text).unwrap();
        let config = maitred_config::load(&file).unwrap();
        status_shown_at(&config, &config.pools[0])
    }

    #[test]
    fn a_status_page_is_shown_where_no_rule_keeps_strangers_from_it() {
        let site = "[pools.www]\nstatus_path = \"/status\"\n[[sites]]\nroot = \"public\"\npool = \
                    \"www\"\n";
        let outside = "listen = \"[::]:80\"\n";
        let with = |lines: &str| shown(&format!("{outside}{site}hosts = [\"a.example\"]\n{lines}"));
        assert_eq!(with(""), ["a.example"]);
        assert_eq!(shown(&format!("{outside}{site}")), ["*"]);
        for lines in [
            "deny = [\"/status\"]",
            "deny = { path = \"~^/stat\", except = [\"10.0.0.0/8\"] }",
            "allow = [\"10.0.0.0/8\"]",
            "basic_auth = { path = \"/status\", users = \"users\" }",
            "proxy = { to = \"http://127.0.0.1:3000\" }",
            "redirects = [{ from = \"/status\", to = \"/\" }]",
        ] {
            assert!(with(lines).is_empty(), "{lines}");
        }
        let inside = format!("listen = \"127.0.0.1:80\"\n{site}");
        assert!(shown(&inside).is_empty(), "no other client gets there");
        let other = "paths = [{ path = \"/status\", pool = \"other\" }]\n[pools.other]\n";
        assert!(with(other).is_empty(), "it is the other pool's path");
    }

    #[test]
    fn keys_and_strings_that_an_older_server_does_not_report_are_unknown() {
        let figures = CacheFigures {
            hash_restarts: 2,
            keys: (200, 223),
            strings_bytes: (7, 8),
            ..CacheFigures::default()
        };
        let found = opcache(&figures);
        assert_eq!((found.keys, found.strings), (Some((200, 223)), Some((7.0, 8.0))));
        assert_eq!((found.memory_restarts, found.key_restarts), (0, 2));
        let older = opcache(&CacheFigures::default());
        assert_eq!((older.keys, older.strings), (None, None));
    }
}
