//! What a configuration comes to on this machine, with everything the processes share made.

pub mod config_source;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use maitred_config::fpm::access_format::{AccessFormat, Token};
use maitred_config::{BootConnections, Config, Mode, Pool, ProcessManager};
use maitred_control::{Snapshot, WorkersOutput, ZygoteSettings};
use maitred_os::users::{self, Identity};
use rustix::event::{EventfdFlags, eventfd};
use tracing::warn;

use crate::LOG_VARIABLE;
use crate::error::Error;
use crate::listen::{self, Inherited, Listener};
use crate::logging::log_files;
use crate::logging::pool_access_logs::DoorLogs;
use crate::logging::pool_output::Voice;
use crate::logging::text::Terminal;
use crate::plan::config_source::{Invocation, Source};
use crate::processes::generation::SPARE_SEATS;
use crate::processes::growth::Growth;
use crate::system::cgroups::Groups;
use crate::system::programs::Programs;
use crate::system::{confinement, identity};
use crate::tls::certificates::Certificates;

/// What our own environment hands on to our processes. Scripts get what their pool's `env` says.
const HANDED_ON: [&str; 5] = ["PATH", "TZ", "LANG", "TMPDIR", "RUST_BACKTRACE"];

/// Everything that is decided before the first process is started.
#[derive(Debug)]
pub struct Plan {
    /// The configuration, as the front gets it.
    pub config: Config,
    /// Where it comes from.
    pub source: Source,
    /// How we were started.
    pub invocation: Invocation,
    /// Threads of the front.
    pub threads: u32,
    /// Whom the front becomes.
    pub front_identity: Option<Identity>,
    /// Where clients are listened for.
    pub listeners: Vec<Listener>,
    /// The environment of our processes.
    pub environment: Vec<(String, String)>,
    /// The programs of zygotes and workers.
    pub programs: Programs,
    /// The control groups of pools that have limits, where the machine lets us.
    pub groups: Option<Groups>,
    /// The access log, if it is a file.
    pub access_log: Option<File>,
    /// The access logs of doors.
    pub door_logs: DoorLogs,
    /// The certificates and keys of TLS, if it is spoken.
    pub certificates: Option<Certificates>,
    /// Where the person who started the server reads.
    pub terminal: Terminal,
}

/// One pool, and what its front and its workers share.
#[derive(Debug)]
pub struct PoolPlan {
    /// What its zygote is told.
    pub settings: ZygoteSettings,
    /// Its settings as they are configured.
    pub configured: Pool,
    /// Its settings with nothing left open, as the front gets them.
    pub pool: Pool,
    /// The PHP version it asks for, as `8.2`.
    pub php: Option<String>,
    /// The program of its zygote and workers.
    pub program: PathBuf,
    /// User id of its workers.
    pub uid: u32,
    /// The seat link's memory.
    pub memory: OwnedFd,
    /// One event for each thread of the front.
    pub events: Vec<OwnedFd>,
    /// What its processes print.
    pub voice: Voice,
}

impl Plan {
    /// Makes the plan, and that of each pool, and with them sockets, memory and events.
    ///
    /// # Errors
    /// What the configuration asks for and cannot be had here.
    pub fn make(
        config: Config,
        source: Source,
        invocation: Invocation,
        log_level: &str,
        inherited: Inherited,
    ) -> Result<(Plan, Vec<PoolPlan>), Error> {
        let (mistakes, programs) = crate::examine(&config, source.file());
        if let Some(mistake) = mistakes.into_iter().next() {
            return Err(mistake);
        }
        let certificates = Certificates::of(&config, None)?;
        let threads = threads(&config);
        let pools = config
            .pools
            .iter()
            .map(|pool| PoolPlan::make(pool, &config, &programs, threads));
        let pools = pools.collect::<Result<_, _>>()?;
        let listeners = listen::open(&config, inherited, threads)?;
        let plan = Plan {
            terminal: match &config.fpm {
                Some(_) => Terminal::silent(),
                None => Terminal::redirect(&config.error_log)?,
            },
            access_log: log_files::open_access_log(&config)?,
            door_logs: DoorLogs::at_start(&config)?,
            certificates,
            ..Plan::over(config, source, invocation, log_level, (listeners, programs))?
        };
        Ok((plan, pools))
    }

    /// The plan of a server that the program before this one has left running.
    ///
    /// # Errors
    /// What the configuration asks for and cannot be had here any more.
    pub fn over(
        config: Config,
        source: Source,
        invocation: Invocation,
        log_level: &str,
        (listeners, programs): (Vec<Listener>, Programs),
    ) -> Result<Plan, Error> {
        let mut plan = Plan {
            listeners,
            threads: threads(&config),
            front_identity: identity::of_front(&config)?,
            environment: environment(log_level),
            programs,
            groups: None,
            access_log: None,
            door_logs: DoorLogs::default(),
            certificates: None,
            terminal: Terminal::over(None),
            config: config.clone(),
            source,
            invocation,
        };
        plan.limit(&config);
        Ok(plan)
    }

    /// Has the program around the supervisor do as the configuration says that is in use from now on.
    pub fn follow_configuration(&mut self) {
        let Some(log) = self.invocation.host.follow(&self.config) else {
            return;
        };
        let variables = self.environment.iter_mut();
        for (_, value) in variables.filter(|(name, _)| name == LOG_VARIABLE) {
            value.clone_from(&log);
        }
    }

    /// Puts the limits of pools into force that hold for all of a pool's processes together, and
    /// says what the machine does not give.
    pub fn limit(&mut self, config: &Config) {
        let lacking = Groups::arrange(&mut self.groups, config).err();
        for warning in confinement::warnings(config).chain(lacking) {
            warn!("{warning}");
        }
    }

    /// The folder of a pool's control group, if that may limit its memory.
    pub fn memory_group(&self, pool: &str) -> Option<PathBuf> {
        let folder = self.groups.as_ref()?.memory_folder(pool)?;
        Some(folder.to_owned())
    }
}

impl PoolPlan {
    /// How the pool grows.
    pub fn growth(&self) -> Growth {
        Growth::of(&self.pool, self.max_children())
    }

    /// Longest that the script of a worker may take to boot, zero for no limit; nothing if workers
    /// boot none.
    pub fn boots_within(&self) -> Option<Duration> {
        let boots = self.settings.worker_script.is_some();
        boots.then_some(self.pool.boot_timeout)
    }

    /// Most workers.
    pub fn max_children(&self) -> u32 {
        self.settings.seats.saturating_sub(SPARE_SEATS)
    }

    /// Whether the pool would be another one with these settings.
    pub fn differs(&self, wanted: &Pool, config: &Config) -> bool {
        let identity = identity::of_pool(wanted, config);
        *wanted != self.configured
            || identity.is_ok_and(|identity| identity != self.settings.identity)
    }

    /// Makes the plan of a pool, with the memory, the events and the pipe of one generation.
    ///
    /// # Errors
    /// What the pool asks for and cannot be had here.
    pub fn make(
        pool: &Pool,
        config: &Config,
        programs: &Programs,
        threads: u32,
    ) -> Result<PoolPlan, Error> {
        let identity = identity::of_pool(pool, config)?;
        let uid = identity
            .as_ref()
            .map_or_else(|| users::current().uid, |identity| identity.uid);
        let max_children = pool.most_workers(cores());
        let seats = max_children + SPARE_SEATS;
        let memory = maitred_seat::create(&pool.name, seats, threads)
            .map_err(Error::system("the memory of a pool could not be made"))?;
        let events = (0..threads)
            .map(|_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC))
            .collect::<Result<_, _>>()
            .map_err(|source| {
                Error::system("the events of a pool could not be made")(source.into())
            })?;
        let voice = Voice::new().map_err(Error::system("a pipe for a pool could not be made"))?;
        let settings = settings(pool, config, seats, identity);
        Ok(PoolPlan {
            settings,
            configured: pool.clone(),
            pool: Pool {
                max_children: Some(max_children),
                ..pool.clone()
            },
            php: pool.php.clone(),
            program: programs.of(pool.php.as_deref()).to_owned(),
            uid,
            memory,
            events,
            voice,
        })
    }
}

/// Threads of the front.
fn threads(config: &Config) -> u32 {
    let threads = match config.front_threads {
        // A thread answers tens of thousands of requests a second; the scripts need the rest of
        // the machine (docs/decisions/0003-front-runtime.md).
        0 => cores().div_ceil(2),
        asked => asked,
    };
    threads.min(maitred_seat::MAX_THREADS)
}

fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

fn settings(
    pool: &Pool,
    config: &Config,
    seats: u32,
    identity: Option<Identity>,
) -> ZygoteSettings {
    ZygoteSettings {
        pool: pool.name.clone(),
        process_manager: pool.pm.to_string(),
        supervisor: i32::try_from(std::process::id()).unwrap_or(0),
        identity,
        php_ini: pool.php_ini.clone(),
        php_ini_scan_dir: pool.php_ini_scan_dir.clone(),
        php_values: pool.php_value.clone().into_iter().collect(),
        php_admin_values: pool.php_admin_value.clone().into_iter().collect(),
        env: pool.env.clone(),
        confinement: confinement::of_pool(pool),
        max_requests: pool.max_requests,
        max_private_memory: pool.max_private_memory,
        request_terminate_timeout: Some(pool.request_terminate_timeout)
            .filter(|timeout| *timeout != Duration::ZERO),
        seats,
        fpm: config.fpm.is_some(),
        output: config.fpm.as_ref().map(|fpm| WorkersOutput {
            caught: pool.catch_workers_output,
            limit: fpm.log_limit,
            notices: fpm.log_level <= maitred_config::fpm::Level::Notice,
        }),
        measures_cpu: config.fpm.is_some() && shows_cpu(pool),
        // Without it nobody knows how many workers are enough.
        accounts: pool.request_accounting || pool.pm == ProcessManager::Auto,
        no_php_ini: pool.no_php_ini,
        defines: pool.defines.clone(),
        extensions: pool.extensions.clone(),
        limit_extensions: pool.limit_extensions.clone(),
        dumpable: pool.process_dumpable,
        apparmor_hat: pool.apparmor_hat.clone(),
        worker_script: pool.booted_script().filter(|_| pool.mode == Mode::Worker),
        snapshot: snapshot_of(pool),
        cache_size: None,
    }
}

/// What a pool boots whose workers are copies.
fn snapshot_of(pool: &Pool) -> Option<Snapshot> {
    let script = pool
        .booted_script()
        .filter(|_| pool.mode == Mode::Snapshot)?;
    Some(Snapshot {
        script,
        requests_per_child: pool.requests_per_child.into(),
        rewinds_per_child: pool.rewinds_per_child.into(),
        closes_connections: pool.boot_connections == BootConnections::Close,
        warm_requests: pool.warm_requests.clone(),
    })
}

/// Whether somebody is shown how much processor time a request took: it costs a system call.
fn shows_cpu(pool: &Pool) -> bool {
    let format = pool.door_log.as_ref().map(|log| log.format.as_str());
    let format = format.and_then(|format| AccessFormat::parse(format).ok());
    let is_cpu = |token: &Token| matches!(token, Token::Cpu(_));
    let is_logged = format.is_some_and(|format| format.0.iter().any(is_cpu));
    is_logged || pool.status_path.is_some() || pool.status_door.is_some()
}

fn environment(log_level: &str) -> Vec<(String, String)> {
    let handed_on = |name: &str| HANDED_ON.contains(&name) || name.starts_with("LC_");
    let all = std::env::vars_os();
    let text =
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let level = (LOG_VARIABLE.to_owned(), log_level.to_owned());
    text.filter(|(name, _)| handed_on(name))
        .chain([level])
        .collect()
}
