//! php-fpm's configuration, as far as the checks need it. It is read with the grammar of `maitred
//! fpm`, but leniently: errors are reported, and the rest is used. Unlike `php-fpm -t`, it creates
//! no log files.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use maitred_config::fpm::{Statement, read_line};
use maitred_os::users;

use super::world::World;
use super::{ini, processes, status_page, systemd_units};
use crate::facts::*;

/// The paths of distributions and images.
const PLACES: [&str; 3] =
    ["/etc/php/*/fpm/php-fpm.conf", "/etc/php-fpm.conf", "/usr/local/etc/php-fpm.conf"];

/// Deepest include (`fpm_conf_load_ini_file`).
const MAX_DEPTH: usize = 5;

/// Most pools that are read.
const MAX_POOLS: usize = 1000;

/// php-fpm's default backlog (`FPM_BACKLOG_DEFAULT`, fpm_sockets.h, Linux): as much as the kernel
/// allows. It was 511 once, as its own comments still claim.
const DEFAULT_BACKLOG: i64 = -1;

/// Entries of `[global]` or of a pool, with the items of its arrays as `name[key]`.
#[derive(Debug, Default, Clone)]
struct Section {
    name: String,
    file: String,
    entries: BTreeMap<String, String>,
    items: Vec<(String, String, String)>,
}

#[derive(Debug, Default)]
struct Draft {
    global: Section,
    pools: Vec<Section>,
    in_pool: Option<usize>,
    mistakes: Vec<(String, Unknown)>,
    files: Vec<String>,
    includes: Vec<String>,
}

/// The given configuration, or all at the paths of distributions.
pub(super) fn files(world: &World, named: Option<&Path>) -> Vec<String> {
    match named {
        Some(named) => vec![named.display().to_string()],
        None => PLACES.iter().flat_map(|place| world.glob(place)).collect(),
    }
}

/// The services in these files, and their errors.
pub(super) fn services(
    world: &World,
    files: &[String],
    all: &Fact<Vec<processes::Proc>>,
    broken: &mut Vec<(String, Unknown)>,
) -> Vec<Service> {
    let mut services = Vec::new();
    for file in files {
        let mut draft = Draft::default();
        read_file(world, file, &mut draft, 0);
        broken.append(&mut draft.mistakes);
        services.push(service(world, file, draft, all));
    }
    services
}

fn read_file(world: &World, file: &str, draft: &mut Draft, depth: usize) {
    let text = match world.read(file) {
        Ok(text) => text,
        Err(why) => return draft.mistakes.push((file.to_owned(), why)),
    };
    draft.files.push(file.to_owned());
    for (at, line) in text.lines().enumerate() {
        let place = || format!("{file}:{}", at + 1);
        let (statements, unexpected) = read_line(line, &|name| std::env::var(name).ok());
        for statement in statements {
            match statement {
                Statement::Section(name) => enter(draft, file, name),
                Statement::Entry { name, value } if name == "include" => {
                    let pattern = value.unwrap_or_default();
                    if depth + 1 >= MAX_DEPTH {
                        let why = format!("files are included more than {MAX_DEPTH} deep");
                        draft.mistakes.push((place(), Unknown(why)));
                        continue;
                    }
                    for further in world.glob(&pattern) {
                        read_file(world, &further, draft, depth + 1);
                    }
                    draft.includes.push(pattern);
                }
                Statement::Entry { name, value } => {
                    let value = with_pool(draft, value.unwrap_or_default());
                    section(draft).entries.insert(name, value);
                }
                Statement::Item { name, key, value } => {
                    let value = with_pool(draft, value);
                    section(draft).items.push((name, key, value));
                }
            }
        }
        if let Some(found) = unexpected {
            let why = format!("php-fpm does not start with this: unexpected {found}");
            draft.mistakes.push((place(), Unknown(why)));
        }
    }
}

fn enter(draft: &mut Draft, file: &str, name: String) {
    if name.eq_ignore_ascii_case("global") {
        draft.in_pool = None;
        return;
    }
    let known = draft.pools.iter().position(|pool| pool.name.eq_ignore_ascii_case(&name));
    if known.is_none() && draft.pools.len() < MAX_POOLS {
        draft.pools.push(Section { name, file: file.to_owned(), ..Section::default() });
        draft.in_pool = Some(draft.pools.len() - 1);
    } else {
        draft.in_pool = known;
    }
}

fn section(draft: &mut Draft) -> &mut Section {
    match draft.in_pool {
        Some(at) => &mut draft.pools[at],
        None => &mut draft.global,
    }
}

/// A value with `$pool` replaced (`fpm_conf_expand_pool_name`). Outside of pools it has no meaning.
fn with_pool(draft: &Draft, value: String) -> String {
    match draft.in_pool.and_then(|at| draft.pools.get(at)) {
        Some(pool) => value.replace("$pool", &pool.name),
        None => value,
    }
}

impl Section {
    fn get(&self, name: &str) -> Option<&str> {
        self.entries.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.trim().parse().ok()
    }

    fn time(&self, name: &str, default: u64) -> Duration {
        let time = self.get(name).and_then(time);
        time.unwrap_or(Duration::from_secs(default))
    }
}

/// `30`, `30s`, `5m`, `1h`, `1d` (`fpm_conf_set_time`).
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = match &text[end..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return None,
    };
    let seconds = text[..end].parse::<u64>().ok()?.saturating_mul(factor);
    Some(Duration::from_secs(seconds).min(LONGEST))
}

/// Whether a master that calls itself php-fpm is maitred. Only its own user and root may check; for
/// others it counts as php-fpm.
fn is_maitred(world: &World, pid: i32) -> bool {
    let program = world.resolved(&format!("/proc/{pid}/exe"));
    let name = program.as_deref().and_then(|path| path.rsplit('/').next());
    name.is_some_and(|name| name.starts_with("maitred"))
}

fn service(world: &World, file: &str, draft: Draft, all: &Fact<Vec<processes::Proc>>) -> Service {
    let version = file.split('/').find(|part| {
        part.split_once('.')
            .is_some_and(|(a, b)| a.parse::<u32>().is_ok() && b.parse::<u32>().is_ok())
    });
    let name = match version {
        Some(version) => format!("php-fpm {version} ({file})"),
        None => format!("php-fpm ({file})"),
    };
    let master = known(all).and_then(|all| {
        let title = format!("php-fpm: master process ({file})");
        processes::titled(all, &title, rustix::process::geteuid().as_raw())
    });
    let is_ours = master.as_ref().is_ok_and(|pid| is_maitred(world, *pid));
    let unit = match version {
        Some(version) => format!("php{version}-fpm.service"),
        None => "php-fpm.service".to_owned(),
    };
    let ini = ini::of_server(world, "fpm", version);
    let ini = ini.and_then(|(file, beside)| ini::read(world, &file, &beside));
    let mut pools = Vec::new();
    for section in &draft.pools {
        let mut pool = pool(section, &ini);
        let server = master.as_ref().ok().copied();
        pool.user = processes::user_of_workers(all, server).or_else(|| {
            // Another root has other users.
            world.is_here().then(|| user(section)).flatten()
        });
        pool.live = match (&master, all) {
            (Ok(master), Ok(all)) => Ok(live(world, *master, all, &pool)),
            (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        };
        pools.push(pool);
    }
    Service {
        kind: if is_ours { PhpServer::MaitredFpm } else { PhpServer::PhpFpm },
        control_timeout: draft.global.time("process_control_timeout", 0),
        stop_delay: Duration::ZERO,
        has_other_nodes: false,
        unit: systemd_units::unit(world, &unit),
        group: super::cgroups::group(world, &name, master.as_ref().ok().copied()),
        process: master.map(|pid| processes::process(world, pid)),
        name,
        files: draft.files,
        includes: draft.includes,
        connections: None,
        pools,
    }
}

/// The user that php-fpm gives the pool's workers if it runs as root; without one it starts only
/// with --allow-to-run-as-root.
fn user(section: &Section) -> Option<u32> {
    let Some(name) = section.get("user") else { return Some(processes::ROOT) };
    Some(users::look_up(name, None).ok()?.uid)
}

fn pool(section: &Section, ini: &Fact<Ini>) -> Pool {
    let number = |name: &str| section.number(name).and_then(|number| u32::try_from(number).ok());
    let manager = match section.get("pm") {
        Some("dynamic") => Manager::Dynamic,
        Some("ondemand") => Manager::Ondemand,
        _ => Manager::Static,
    };
    let (min, max) = (number("pm.min_spare_servers"), number("pm.max_spare_servers"));
    let spares = min.zip(max).map(|(min, max)| Spares {
        // As php-fpm does (`fpm_conf_process_all_pools`).
        start: number("pm.start_servers").unwrap_or(min + max.saturating_sub(min) / 2),
        min,
        max,
    });
    let ini = ini.clone().map(|mut ini| {
        let names = ["php_value", "php_flag", "php_admin_value", "php_admin_flag"];
        let items = section.items.iter().filter(|(name, ..)| names.contains(&name.as_str()));
        let items: Vec<_> = items.map(|(_, key, value)| (key.as_str(), value.as_str())).collect();
        ini::add_pools(&mut ini, items.into_iter());
        ini
    });
    Pool {
        name: format!("pool {} ({})", section.name, section.file),
        section: section.name.clone(),
        user: None,
        manager,
        max_children: number("pm.max_children").unwrap_or(0),
        is_chosen: true,
        spares: spares.filter(|_| manager == Manager::Dynamic),
        idle_timeout: section.time("pm.process_idle_timeout", 10),
        max_requests: section.number("pm.max_requests").unwrap_or(0),
        wall_limit: section.time("request_terminate_timeout", 0),
        tracks_finished: section
            .get("request_terminate_timeout_track_finished")
            .is_some_and(crate::ini_value::is_yes),
        listen: section.get("listen").map(|listen| Listen {
            address: address(listen),
            backlog: section
                .get("listen.backlog")
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(DEFAULT_BACKLOG),
        }),
        queue: None,
        status_path: section.get("pm.status_path").map(str::to_owned),
        has_status_listen: section.get("pm.status_listen").is_some(),
        status_at: section.get("pm.status_listen").or(section.get("listen")).map(address),
        status_shown_at: Vec::new(),
        ini,
        roots: Vec::new(),
        live: Unknown::because("php-fpm does not run"),
    }
}

/// An address in the form of socket lists, links of folders not followed.
pub(super) fn address(text: &str) -> String {
    let text = text.trim();
    let text = text.strip_prefix("unix:").unwrap_or(text);
    if let Some(rest) = text.strip_prefix("/var/run/") {
        // A link to /run on all systems.
        return format!("/run/{rest}");
    }
    if text.starts_with(['/', '@']) {
        return text.to_owned();
    }
    match text.parse::<u16>() {
        Ok(port) => format!("0.0.0.0:{port}"),
        Err(_) => text.replace("localhost:", "127.0.0.1:").replace("*:", "0.0.0.0:"),
    }
}

/// The ids of the pool's workers. A worker can give itself the title of those of another pool, but
/// not their user.
fn own_processes(master: i32, pool: &Pool, all: &[processes::Proc]) -> Fact<Vec<i32>> {
    let title = format!("php-fpm: pool {}", pool.section);
    let user = processes::known_user(pool)?;
    let own = all.iter().filter(|one| one.parent == master && one.user == Some(user));
    Ok(own.filter(|one| one.title == title).map(|one| one.pid).collect())
}

fn live(world: &World, master: i32, all: &[processes::Proc], pool: &Pool) -> Live {
    let pids = own_processes(master, pool, all);
    let further_workers = pids.as_ref().map_or(0, |pids| processes::further_workers(pids));
    let mut workers = pids.map(|pids| processes::workers(world, &pids));
    let status = match (&pool.status_path, &pool.status_at) {
        (Some(path), Some(listen)) => status_page::ask(world, listen, path),
        _ => Unknown::because("its status page is off (pm.status_path)"),
    };
    if let Ok(status) = &status {
        for worker in workers.iter_mut().flatten() {
            let known = status.workers.iter().find(|known| known.pid == worker.pid);
            let known = known.map(|known| known.requests);
            worker.requests = known.ok_or_else(|| Unknown("it has started just now".to_owned()));
        }
    }
    let of_status = |get: &dyn Fn(&status_page::Status) -> Option<f64>| {
        let status = known(&status)?;
        get(status).ok_or_else(|| Unknown("the status page does not tell".to_owned()))
    };
    Live {
        workers,
        further_workers,
        script_p50: of_status(&|status| status.script(0.5)),
        script_p99: of_status(&|status| status.script(0.99)),
        queue_wait_p99: Unknown::because("php-fpm does not know how long requests wait"),
        cpu_share: Unknown::because(
            "php-fpm does not tell which part of their time scripts compute",
        ),
        contention: Unknown::because("php-fpm does not tell"),
        binding: Ok(None),
        limit_reached: known(&status).map(|status| status.limit_reached),
        queue_max: known(&status).map(|status| status.queue_max),
        rate: of_status(&|status| Some(status.accepted as f64 / (status.seconds as f64).max(1.0))),
        opcache: Unknown::because(
            "php-fpm reports it to its own scripts only (opcache_get_status())",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_addresses_are_php_fpms() {
        assert_eq!(time("35s"), Some(Duration::from_secs(35)));
        assert_eq!(time("2m"), Some(Duration::from_secs(120)));
        assert_eq!(time("soon"), None);
        assert_eq!(time("18446744073709551615"), Some(LONGEST));
        assert_eq!(time("18446744073709551615d"), Some(LONGEST));
        assert_eq!(address("unix:/var/run/php/a.sock"), "/run/php/a.sock");
        assert_eq!(address("9000"), "0.0.0.0:9000");
        assert_eq!(address("localhost:9000"), "127.0.0.1:9000");
    }

    #[test]
    fn a_broken_file_is_told_of_and_the_rest_of_it_is_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/php/8.2/fpm");
        std::fs::create_dir_all(folder.join("pool.d")).unwrap();
        let main =
            "[global]\nprocess_control_timeout = 20s\ninclude = /etc/php/8.2/fpm/pool.d/*.conf\n";
        std::fs::write(folder.join("php-fpm.conf"), main).unwrap();
        let www = "[www]\nlisten = /run/a.sock\npm = dynamic\npm.max_children = 7\nenv[X = 1\n\
                   pm.min_spare_servers = 1\npm.max_spare_servers = 3\n\
                   php_admin_value[memory_limit] = 64M\n";
        std::fs::write(folder.join("pool.d/www.conf"), www).unwrap();
        std::fs::write(folder.join("php.ini"), "memory_limit = 256M\n").unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(60));
        let mut broken = Vec::new();
        let none = processes::list(&world);
        let services = services(&world, &files(&world, None), &none, &mut broken);
        assert_eq!(broken.len(), 1);
        assert_eq!(broken[0].0, "/etc/php/8.2/fpm/pool.d/www.conf:5");
        let service = &services[0];
        assert_eq!(service.files.len(), 2);
        assert_eq!(service.includes, ["/etc/php/8.2/fpm/pool.d/*.conf"]);
        assert_eq!(service.pools[0].section, "www");
        assert_eq!(service.control_timeout, Duration::from_secs(20));
        let pool = &service.pools[0];
        assert_eq!((pool.max_children, pool.manager), (7, Manager::Dynamic));
        assert_eq!(pool.spares.unwrap().start, 2);
        assert_eq!(pool.ini.as_ref().unwrap().get("memory_limit", ""), "64M");
        assert_eq!(pool.listen.as_ref().unwrap().backlog, -1);
        assert!(pool.live.is_err() && service.process.is_err());
    }

    #[test]
    fn a_worker_with_the_title_of_another_pool_and_the_user_of_its_own_is_none_of_it() {
        let section = |user: &str| Section {
            name: "www".to_owned(),
            entries: [("user".to_owned(), user.to_owned())].into(),
            ..Section::default()
        };
        let mut pool = pool(&section("33"), &Ok(Ini::default()));
        pool.user = user(&section("33"));
        let one = |pid, user| processes::Proc {
            pid,
            parent: 7,
            name: "php-fpm".to_owned(),
            title: "php-fpm: pool www".to_owned(),
            user,
        };
        let all = [one(1, Some(33)), one(2, Some(1001)), one(3, None)];
        assert_eq!(own_processes(7, &pool, &all), Ok(vec![1]));
        assert_eq!(user(&section("")), Some(processes::ROOT));
        assert_eq!(user(&section("no such user")), None);
        pool.user = None;
        assert!(own_processes(7, &pool, &all).is_err());
    }

    #[test]
    fn the_name_of_the_pool_stands_for_itself_in_all_its_values() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc");
        std::fs::create_dir_all(&folder).unwrap();
        let text = "[global]\npid = /run/$pool.pid\n[shop]\nlisten = /run/php/$pool.sock\n\
                    pm.status_path = /$pool/status\npm.status_listen = /run/php/$pool-status.sock\n\
                    php_admin_value[error_log] = /var/log/$pool.log\n\
                    [www]\nlisten = /run/php/$pool-$pool.sock\n[SHOP]\nchdir = /srv/$pool\n";
        std::fs::write(folder.join("php-fpm.conf"), text).unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(60));
        let mut draft = Draft::default();
        read_file(&world, "/etc/php-fpm.conf", &mut draft, 0);
        assert!(draft.mistakes.is_empty(), "{:?}", draft.mistakes);
        let ini = Ok(Ini::default());
        let pools: Vec<Pool> = draft.pools.iter().map(|own| pool(own, &ini)).collect();
        let at = |pool: &Pool| pool.listen.as_ref().unwrap().address.clone();
        assert_eq!(at(&pools[0]), "/run/php/shop.sock");
        assert_eq!(at(&pools[1]), "/run/php/www-www.sock");
        assert_eq!(pools[0].status_path.as_deref(), Some("/shop/status"));
        assert_eq!(pools[0].status_at.as_deref(), Some("/run/php/shop-status.sock"));
        let ini = pools[0].ini.as_ref().unwrap();
        assert_eq!(ini.get("error_log", ""), "/var/log/shop.log");
        assert_eq!(draft.pools[0].get("chdir"), Some("/srv/shop"));
        assert_eq!(draft.global.get("pid"), Some("/run/$pool.pid"));
    }
}
