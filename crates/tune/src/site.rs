//! The pool to tune, and doctor's facts about it and the machine.

use maitred_doctor::facts::{Fact, Facts, Ini, Pass, PhpServer, Pool, Service};

use crate::course::PoolSetting;
use crate::decide::MemoryBudget;
use crate::settings::ScriptLimit;

/// Memory that a master and its processes need in addition to the workers of their control group,
/// in bytes.
const OTHERS_OF_GROUP: f64 = 16.0 * 1_048_576.0;

/// OPcache's default size, in MB.
const DEFAULT_OPCACHE: f64 = 128.0;

/// The default size of its buffer of interned strings.
const DEFAULT_STRINGS: f64 = 8.0;

/// The default `max_execution_time`, in seconds.
const DEFAULT_SECONDS: &str = "30";

/// The default `memory_limit`.
const DEFAULT_MEMORY: &str = "128M";

/// A running pool.
#[derive(Debug, Clone)]
pub struct Site {
    /// Its service.
    pub service: Service,
    /// The pool.
    pub pool: Pool,
    /// The master process.
    pub master: i32,
    /// Processors available to it.
    pub cores: f64,
    /// Logical processors of the machine.
    pub processors: u32,
    /// Memory available to it.
    pub memory: MemoryBudget,
    /// The machine's memory, in bytes, if known.
    pub total: Option<f64>,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// The read timeouts of nginx and Apache for this pool, in seconds: the longest of all
    /// locations, since none may become shorter.
    pub reads: (Option<f64>, Option<f64>),
    /// Databases on this machine with their connection limits, or why they are unknown.
    pub downstream: Result<Vec<(String, u64)>, String>,
}

impl Site {
    /// Finds the pool: the one of this name, or the only one that runs.
    ///
    /// # Errors
    /// A message: no pool or several pools match.
    pub fn find(facts: &Facts, wanted: Option<&str>) -> Result<Site, String> {
        let can = |service: &&Service| service.kind != PhpServer::ModPhp;
        let services: Vec<&Service> = facts.services.iter().filter(can).collect();
        let running = services.iter().filter(|service| service.process.is_ok());
        let pools: Vec<(&Service, &Pool)> =
            running.flat_map(|service| service.pools.iter().map(|pool| (*service, pool))).collect();
        let meant = pools.iter().filter(|(_, pool)| wanted.is_none_or(|name| pool.section == name));
        let meant: Vec<&(&Service, &Pool)> = meant.collect();
        match meant.as_slice() {
            [(service, pool)] => Site::of(facts, service, pool),
            [] => match facts.broken.first() {
                Some((place, why)) => Err(format!("{place}: {why}")),
                None => Err(none(&services, &pools, wanted)),
            },
            several => Err(format!(
                "several pools run here; name one with --pool, and its server with --php-fpm FILE \
                 or --config FILE: {}",
                names(several.iter().map(|(service, pool)| (*service, *pool)))
            )),
        }
    }

    fn of(facts: &Facts, service: &Service, pool: &Pool) -> Result<Site, String> {
        let is_its =
            |place: &str| service.files.iter().any(|file| place.starts_with(file.as_str()));
        if let Some((place, why)) = facts.broken.iter().find(|(place, _)| is_its(place)) {
            return Err(format!("{place}: {why}; fix that first, and tune again"));
        }
        let master = service.process.as_ref().map_err(|why| why.to_string())?.pid;
        let machine = &facts.machine;
        let allowed = machine.allowed_processors.as_ref().copied().unwrap_or(1);
        let quota = service.group.cores.as_ref().ok().and_then(|cores| cores.as_ref());
        let cores = quota.map_or(f64::from(allowed), |(cores, _)| cores.min(f64::from(allowed)));
        Ok(Site {
            master,
            cores,
            processors: machine.processors.as_ref().copied().unwrap_or(allowed),
            memory: memory(facts, service, pool),
            total: machine.memory.as_ref().ok().map(|memory| memory.total),
            somaxconn: machine.somaxconn.as_ref().ok().copied(),
            reads: reads(facts, pool),
            downstream: downstream(facts),
            service: service.clone(),
            pool: pool.clone(),
        })
    }

    /// The pool's setting.
    pub fn now(&self) -> PoolSetting {
        PoolSetting { pm: self.pool.manager.name().to_owned(), workers: self.pool.max_children }
    }

    /// The start of its workers' process titles.
    pub fn title(&self) -> String {
        match self.service.kind {
            PhpServer::Maitred => format!("maitred-php: worker pool {}", self.pool.section),
            PhpServer::PhpFpm | PhpServer::MaitredFpm | PhpServer::ModPhp => {
                format!("php-fpm: pool {}", self.pool.section)
            }
        }
    }
}

fn reads(facts: &Facts, pool: &Pool) -> (Option<f64>, Option<f64>) {
    let most = |passes: &[Pass]| {
        let listen = pool.listen.as_ref()?;
        let its = passes.iter().filter(|pass| pass.meets(listen));
        let seconds = its.map(|pass| pass.read_timeout.as_secs_f64());
        seconds.reduce(f64::max)
    };
    let nginx = facts.nginx.as_ref().and_then(|nginx| most(&nginx.passes));
    let apache = facts.apache.as_ref();
    (nginx, apache.and_then(|apache| most(&apache.passes)))
}

fn downstream(facts: &Facts) -> Result<Vec<(String, u64)>, String> {
    let databases = facts.databases.as_ref().map_err(ToString::to_string)?;
    let each = databases.iter();
    Ok(each.map(|database| (database.name.clone(), database.max_connections)).collect())
}

fn none(services: &[&Service], pools: &[(&Service, &Pool)], wanted: Option<&str>) -> String {
    if let (Some(wanted), false) = (wanted, pools.is_empty()) {
        return format!(
            "no pool '{wanted}' runs here; running pools: {}",
            names(pools.iter().copied())
        );
    }
    match services.first() {
        Some(service) => {
            let why = service.process.as_ref().err().map(ToString::to_string);
            stopped(&service.name, why.as_deref())
        }
        None => {
            "no php-fpm and no maitred is configured here; name its configuration with --php-fpm \
                 FILE or --config FILE"
                .to_owned()
        }
    }
}

fn names<'a>(pools: impl Iterator<Item = (&'a Service, &'a Pool)>) -> String {
    let names: Vec<String> =
        pools.map(|(service, pool)| format!("{} of {}", pool.section, service.name)).collect();
    names.join(", ")
}

fn memory(facts: &Facts, service: &Service, pool: &Pool) -> MemoryBudget {
    let text = |why: &maitred_doctor::facts::Unknown| why.to_string();
    let memory = match &facts.machine.memory {
        Ok(memory) => *memory,
        Err(why) => {
            return MemoryBudget { budget: Err(text(why)), base: Err(text(why)) };
        }
    };
    let own = pool.private_of_all();
    let whole = || MemoryBudget {
        budget: Ok((memory.total, "of the machine".to_owned())),
        base: Ok((memory.total - memory.available - own).max(0.0)),
    };
    match &service.group.memory {
        Err(why) => MemoryBudget { budget: Err(text(why)), ..whole() },
        Ok(Some((limit, place))) if *limit < memory.total => MemoryBudget {
            budget: Ok((*limit, place.clone())),
            base: base_of_group(&service.group.used, own, opcache(pool)),
        },
        Ok(_) => whole(),
    }
}

/// The memory of a group without the pool's workers: what else is in use now, including other
/// processes of the group, and at least what the server itself needs with a full OPcache.
fn base_of_group(used: &Fact<Option<f64>>, own: f64, opcache: f64) -> Result<f64, String> {
    let used = used.as_ref().map_err(|why| why.to_string())?;
    Ok((used.unwrap_or(0.0) - own).max(opcache + OTHERS_OF_GROUP))
}

/// The size of a pool's OPcache, in bytes.
pub fn opcache(pool: &Pool) -> f64 {
    megabytes(pool, "opcache.memory_consumption", DEFAULT_OPCACHE)
}

/// The size of its buffer of interned strings, and how much of it is free if that is known, in
/// bytes.
pub fn strings(pool: &Pool) -> (f64, Option<f64>) {
    let live = pool.live.as_ref().ok();
    let cache = live.and_then(|live| live.opcache.as_ref().ok().copied().flatten());
    (
        megabytes(pool, "opcache.interned_strings_buffer", DEFAULT_STRINGS),
        cache.and_then(|cache| cache.strings).map(|(used, size)| size - used),
    )
}

/// A pool's `memory_limit`.
pub fn memory_limit(pool: &Pool) -> ScriptLimit {
    pool.ini.as_ref().map_or(ScriptLimit::Unknown, most_memory)
}

fn most_memory(ini: &Ini) -> ScriptLimit {
    let text = ini.get("memory_limit", DEFAULT_MEMORY).trim();
    let text = text.to_ascii_lowercase();
    let (number, factor) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(number) => (number, text.chars().last()),
        None => (text.as_str(), None),
    };
    let factor = match factor {
        Some('k') => 1_024.0,
        Some('m') => 1_048_576.0,
        Some('g') => 1_073_741_824.0,
        _ => 1.0,
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number > 0.0 => ScriptLimit::Is(number * factor),
        Ok(number) if number < 0.0 => ScriptLimit::Unlimited,
        _ => ScriptLimit::Unknown,
    }
}

/// A pool's `request_terminate_timeout`.
pub fn wall_limit(pool: &Pool) -> ScriptLimit {
    if pool.wall_limit.is_zero() {
        ScriptLimit::Unlimited
    } else {
        ScriptLimit::Is(pool.wall_limit.as_secs_f64())
    }
}

/// A pool's `max_execution_time`, in seconds; 0 is no limit.
pub fn processor_limit(pool: &Pool) -> Option<u64> {
    pool.ini.as_ref().ok().and_then(seconds)
}

fn seconds(ini: &Ini) -> Option<u64> {
    let text = ini.get("max_execution_time", DEFAULT_SECONDS);
    let seconds: i64 = text.trim().parse().ok()?;
    // A negative value is no limit, too.
    Some(u64::try_from(seconds).unwrap_or(0))
}

/// A message that a server does not run.
fn stopped(name: &str, why: Option<&str>) -> String {
    // If the reason says only that, it is not repeated.
    let why = why.filter(|why| !why.ends_with("does not run"));
    let why = why.map_or(String::new(), |why| format!(", or is not visible ({why})"));
    format!("{name} does not run{why}; start it first, and tune again")
}

/// An entry of PHP in megabytes, converted to bytes.
fn megabytes(pool: &Pool, name: &str, default: f64) -> f64 {
    let size = pool.ini.as_ref().ok().map(|ini| ini.get(name, ""));
    let megabytes = size.and_then(|size| size.trim().parse::<f64>().ok());
    megabytes.unwrap_or(default) * 1_048_576.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_doctor::facts::Unknown;

    const MB: f64 = 1_048_576.0;

    #[test]
    fn what_other_pools_of_the_group_use_is_not_there_for_this_one() {
        let base = |used| base_of_group(&Ok(used), 200.0 * MB, 128.0 * MB);
        assert_eq!(base(Some(900.0 * MB)), Ok(700.0 * MB));
        assert_eq!(base(Some(250.0 * MB)), Ok(144.0 * MB), "OPcache may fill");
        assert_eq!(base(None), Ok(144.0 * MB));
        let unknown = Err(Unknown("memory.current cannot be read".to_owned()));
        assert!(base_of_group(&unknown, 0.0, 0.0).is_err());
    }

    /// The read timeouts for the pool of a machine with these configurations.
    fn reads_of(fpm: &str, nginx: &str, apache: &str) -> (Option<f64>, Option<f64>) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("etc/php/8.2/fpm/php-fpm.conf", fpm);
        write("etc/nginx/nginx.conf", nginx);
        write("etc/apache2/apache2.conf", apache);
        let facts = maitred_doctor::read(&maitred_doctor::Options {
            which: maitred_doctor::Scope::PhpFpm,
            config: "/etc/maitred.toml".into(),
            php_fpm: None,
            admin_socket: None,
            user_of_pool: |_, _| None,
            root: Some(root.path().to_owned()),
            access_log: None,
            watch: std::time::Duration::ZERO,
            time: std::time::Duration::from_secs(5),
        });
        reads(&facts, &facts.services[0].pools[0])
    }

    #[test]
    fn how_long_web_servers_wait_is_known_of_a_pool_on_all_addresses() {
        let found = reads_of(
            "[www]\nlisten = 9000\n",
            "http { fastcgi_read_timeout 400s; server { location / { fastcgi_pass 127.0.0.1:9000; \
             } } }",
            "ProxyTimeout 500\nProxyPass / fcgi://localhost:9000/srv/\n",
        );
        assert_eq!(found, (Some(400.0), Some(500.0)));
    }

    #[test]
    fn of_several_places_of_a_web_server_the_one_that_waits_longest_counts() {
        let found = reads_of(
            "[www]\nlisten = 9000\n",
            "http { server { location / { fastcgi_pass 127.0.0.1:9000; } location /export { \
             fastcgi_read_timeout 600s; fastcgi_pass 127.0.0.1:9000; } location /other { \
             fastcgi_read_timeout 900s; fastcgi_pass 127.0.0.1:9001; } } }",
            "ProxyPass /export fcgi://localhost:9000/srv/ timeout=700\nProxyPass / \
             fcgi://localhost:9000/srv/\n",
        );
        assert_eq!(found, (Some(600.0), Some(700.0)));
    }

    #[test]
    fn a_server_that_does_not_run_is_said_once() {
        assert_eq!(
            stopped("php-fpm 8.2", Some("php-fpm does not run")),
            "php-fpm 8.2 does not run; start it first, and tune again"
        );
        assert_eq!(
            stopped("php-fpm 8.2", Some("/proc cannot be read")),
            "php-fpm 8.2 does not run, or is not visible (/proc cannot be read); start it first, \
             and tune again"
        );
    }

    #[test]
    fn a_limit_of_memory_is_what_is_set_or_none_or_phps_default() {
        let of = |text: Option<&str>| {
            let mut ini = Ini::default();
            let entry = text.map(|text| ("memory_limit".to_owned(), text.to_owned()));
            ini.entries.extend(entry);
            most_memory(&ini)
        };
        assert_eq!(of(None), ScriptLimit::Is(128.0 * MB));
        assert_eq!(of(Some("1G")), ScriptLimit::Is(1_024.0 * MB));
        assert_eq!(of(Some("-1")), ScriptLimit::Unlimited);
        assert_eq!(of(Some("much")), ScriptLimit::Unknown);
    }

    #[test]
    fn a_limit_of_processor_time_is_what_is_set_or_phps_default() {
        let of = |text: Option<&str>| {
            let mut ini = Ini::default();
            let entry = text.map(|text| ("max_execution_time".to_owned(), text.to_owned()));
            ini.entries.extend(entry);
            seconds(&ini)
        };
        assert_eq!(of(None), Some(30));
        assert_eq!(of(Some(" 300 ")), Some(300));
        assert_eq!(of(Some("0")), Some(0));
        assert_eq!(of(Some("-1")), Some(0));
        assert_eq!(of(Some("long")), None);
    }
}
