//! The settings of one generation of a pool, and the memory, events and pipe that it owns.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use maitred_config::fpm::access_format::{AccessFormat, Token};
use maitred_config::{BootConnections, Config, Mode, Pool, PoolUser, ProcessManager};
use maitred_control::{Snapshot, WorkersOutput, ZygoteSettings};
use maitred_os::users::{self, Identity};
use rustix::event::{EventfdFlags, eventfd};

use super::generation::SPARE_SEATS;
use super::growth::Growth;
use crate::error::Error;
use crate::logging::pool_output::PoolOutput;
use crate::system::programs::Programs;
use crate::system::{confinement, identity, private_folders};

/// The argument that makes the PHP program a zygote.
pub const ZYGOTE_ROLE: &str = "zygote";

/// The settings of a generation, and what its front and its workers share.
#[derive(Debug)]
pub struct PoolPlan {
    /// The settings of its zygote.
    pub settings: ZygoteSettings,
    /// Its settings as they are configured.
    pub configured: Pool,
    /// Its settings with all defaults filled in, as the front gets them.
    pub pool: Pool,
    /// The configured PHP version, as `8.2`.
    pub php: Option<String>,
    /// The program of its zygote and workers.
    pub program: PathBuf,
    /// User id of its workers.
    pub uid: u32,
    /// The seat link's memory.
    pub memory: OwnedFd,
    /// One event for each thread of the front.
    pub events: Vec<OwnedFd>,
    /// The output of its processes.
    pub output: PoolOutput,
    /// The list of scripts that its PHP preloads.
    pub preload: Option<OwnedFd>,
}

impl PoolPlan {
    /// The bounds of its size.
    pub fn growth(&self) -> Growth {
        Growth::of(&self.pool, self.max_children())
    }

    /// Timeout of the boot of a worker, zero for no limit; none if workers boot no script.
    pub fn boots_within(&self) -> Option<Duration> {
        let boots = self.settings.worker_script.is_some();
        boots.then_some(self.pool.boot_timeout)
    }

    /// Most workers.
    pub fn max_children(&self) -> u32 {
        self.settings.seats.saturating_sub(SPARE_SEATS)
    }

    /// Whether these settings differ from its own.
    pub fn differs(&self, wanted: &Pool, config: &Config) -> bool {
        *wanted != self.configured
            || identity::of_pool(wanted, config).is_ok_and(|identity| {
                let folder = private_folders::of_pool(wanted, config, identity.as_ref());
                identity != self.settings.identity
                    || folder != self.settings.private_folder
                    || confinement::forbids_holes(config, identity.as_ref())
                        != self.settings.confinement.forbids_holes
            })
    }

    /// Checks that its user and group are those of the generation `before`. A tenant can put
    /// another folder in the place of the document root, whose owner is the default user, and cause
    /// restarts.
    ///
    /// # Errors
    /// One sentence: what can change the user.
    pub fn keeps_user_of(&self, before: &PoolPlan) -> Result<(), String> {
        let (new, old) = (&self.settings.identity, &before.settings.identity);
        let ids = |of: &Option<Identity>| of.as_ref().map(|user| (user.uid, user.gid));
        if ids(new) == ids(old) {
            return Ok(());
        }
        let name = |of: &Option<Identity>| of.as_ref().map_or("", |user| &user.name).to_owned();
        Err(format!(
            "its PHP would run as user `{}` in place of `{}`, the owner of its document root \
             before; if that is intended, `maitred reload` changes the user, and otherwise set \
             `user`",
            name(new),
            name(old)
        ))
    }

    /// Checks that it has the user by which the front knows the pool with these settings.
    ///
    /// # Errors
    /// One sentence: the user has changed since they were read.
    pub fn has_user_of(&self, pool: &Pool) -> Result<(), String> {
        if self.configured.runs_as == pool.runs_as {
            return Ok(());
        }
        Err("its user has changed while the configuration was read; reload again".to_owned())
    }

    /// Plans a pool, and opens the memory, the events and the pipe of one generation.
    ///
    /// # Errors
    /// Something that the pool needs and this machine does not have.
    pub fn make(
        pool: &Pool,
        config: &Config,
        programs: &Programs,
        threads: u32,
    ) -> Result<PoolPlan, Error> {
        PoolPlan::make_as(identity::of_pool(pool, config)?, pool, config, programs, threads)
    }

    /// The same, for a user that is known.
    ///
    /// # Errors
    /// As [`PoolPlan::make`].
    pub fn make_as(
        identity: Option<Identity>,
        pool: &Pool,
        config: &Config,
        programs: &Programs,
        threads: u32,
    ) -> Result<PoolPlan, Error> {
        let uid = identity.as_ref().map_or_else(|| users::current().uid, |identity| identity.uid);
        let configured = Pool { runs_as: PoolUser::of(identity.as_ref()), ..pool.clone() };
        let max_children = pool.most_workers(processors());
        let seats = max_children + SPARE_SEATS;
        let memory = maitred_seat::create(&pool.name, seats, threads)
            .map_err(Error::system("the memory of a pool could not be made"))?;
        let events = (0..threads)
            .map(|_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC))
            .collect::<Result<_, _>>()
            .map_err(|source| {
                Error::system("the events of a pool could not be made")(source.into())
            })?;
        let output = PoolOutput::new(&pool.name)
            .map_err(Error::system("a pipe for a pool could not be made"))?;
        let mut settings = settings(pool, config, seats, identity);
        confinement::make_solid(&memory, &mut settings.confinement);
        Ok(PoolPlan {
            settings,
            pool: Pool { max_children: Some(max_children), ..configured.clone() },
            configured,
            php: pool.php.clone(),
            program: programs.of(pool.php.as_deref()).to_owned(),
            uid,
            memory,
            events,
            output,
            preload: None,
        })
    }

    /// Has its PHP preload a list of scripts.
    pub fn preload(&mut self, list: OwnedFd) {
        self.settings.preload = true;
        self.preload = Some(list);
    }

    /// The descriptors that front and zygote share: the memory, then the events.
    pub fn shared(&self) -> Vec<BorrowedFd<'_>> {
        std::iter::once(&self.memory).chain(&self.events).map(AsFd::as_fd).collect()
    }

    /// Most descriptors that a zygote is sent at once: two pipes for each worker's output.
    pub fn descriptors_of_zygote(&self) -> usize {
        let seats = usize::try_from(self.settings.seats).unwrap_or(usize::MAX);
        seats.saturating_mul(2)
    }

    /// Descriptors of this pool that a front is sent: the shared ones, the settings, the
    /// scoreboard, the memory of the application's counters, and the pidfds of workers.
    pub fn descriptors_of_front(&self) -> usize {
        let seats = usize::try_from(self.settings.seats).unwrap_or(usize::MAX);
        seats.saturating_add(self.events.len() + 4)
    }
}

/// The processors that this process may use.
pub fn processors() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// Variables of a person, which are wrong for another user.
const PERSONAL: [&str; 4] = ["HOME", "USER", "LOGNAME", "MAIL"];

/// The environment of a pool's PHP: its own variables, after those that it is passed. A development
/// server that root starts passes none of root's person.
fn environment(pool: &Pool, identity: Option<&Identity>) -> Vec<(String, String)> {
    let is_other = pool.development.is_some() && identity.is_some();
    let is_own = |name: &str| {
        pool.env.iter().any(|(own, _)| own == name) || is_other && PERSONAL.contains(&name)
    };
    let all = std::env::vars_os();
    let texts =
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let passed = texts.filter(|(name, _)| pool.passes(name) && !is_own(name));
    passed.chain(pool.env.iter().cloned()).collect()
}

fn settings(
    pool: &Pool,
    config: &Config,
    seats: u32,
    identity: Option<Identity>,
) -> ZygoteSettings {
    let env = environment(pool, identity.as_ref());
    let confinement = confinement::of_pool(pool, config, identity.as_ref());
    ZygoteSettings {
        private_folder: private_folders::of_pool(pool, config, identity.as_ref()),
        pool: pool.name.clone(),
        process_manager: pool.pm.to_string(),
        supervisor: i32::try_from(std::process::id()).unwrap_or(0),
        identity,
        php_ini: pool.php_ini.clone(),
        php_ini_scan_dir: pool.php_ini_scan_dir.clone(),
        php_values: pool.php_value.clone().into_iter().collect(),
        php_admin_values: pool.php_admin_value.clone().into_iter().collect(),
        env,
        confinement,
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
        // `pm = auto` needs it to find the size.
        accounts: pool.request_accounting || pool.pm == ProcessManager::Auto,
        no_php_ini: pool.no_php_ini,
        defines: pool.defines.clone(),
        extensions: pool.extensions.clone(),
        limit_extensions: pool.limit_extensions.clone(),
        dumpable: pool.process_dumpable,
        preload: false,
        direct_calls: false,
        counts: false,
        apparmor_hat: pool.apparmor_hat.clone(),
        worker_script: pool.booted_script().filter(|_| pool.mode == Mode::Worker),
        snapshot: snapshot_of(pool),
        sapi_name: (pool.mode != Mode::Classic).then(|| pool.sapi_name.clone()),
        shows_errors: pool.development.is_some_and(|of| of.shows_errors),
        cache_size: None,
    }
}

/// The application of a pool whose workers are copies.
fn snapshot_of(pool: &Pool) -> Option<Snapshot> {
    let script = pool.booted_script().filter(|_| pool.mode == Mode::Snapshot)?;
    Some(Snapshot {
        script,
        requests_per_child: pool.requests_per_child.into(),
        rewinds_per_child: pool.rewinds_per_child.into(),
        closes_connections: pool.boot_connections == BootConnections::Close,
        warm_requests: pool.warm_requests.clone(),
    })
}

/// Whether the processor time of requests is shown anywhere: measuring it costs a system call.
fn shows_cpu(pool: &Pool) -> bool {
    let format = pool.pool_access_log.as_ref().map(|log| log.format.as_str());
    let format = format.and_then(|format| AccessFormat::parse(format).ok());
    let is_cpu = |token: &Token| matches!(token, Token::Cpu(_));
    let is_logged = format.is_some_and(|format| format.0.iter().any(is_cpu));
    is_logged || pool.status_path.is_some() || pool.status_listener.is_some()
}
