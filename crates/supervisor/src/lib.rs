//! The supervisor: the process that owns the process tree, the listening sockets and the
//! configuration. One thread, no PHP, no async; it never reads a byte that a client sent.
//!
//! Read [`run`] first: wait, decide, apply. The decisions are pure functions of state, event and
//! time: [`run::phase`] (the whole server), [`processes::generation`] (zygote and seats),
//! [`processes::life`] (a process that must always run) and [`processes::backoff`].
//!
//! Folders, from top to bottom. A file imports from its own folder and from those below it:
//!
//! ```text
//! run          the loop, and the steps that apply what was decided
//! upgrade      the state of an upgrade, and what it hands over
//! jobs         commands and schedules of pools
//! plan         the resources of a configuration: sockets, logs, programs
//! admin        the admin socket and the status reply
//! reload       the state of a reload; restarts of pools; watched applications
//! fpm          the parts of php-fpm's master: its log lines, process.max, emergency restart
//! capacity     pm = auto: processors, memory, spare zygotes
//! tls          certificates of files, and by ACME
//! fronts       the front processes, and what they share: purges, cookies, logs, statistics
//! systemd      notifications of the service manager
//! processes    a generation of a pool: its state, its zygote, its workers
//! logging      log files, and what is written to them
//! listen       the listening sockets
//! peer         a child process with a channel
//! system       users, programs, control groups
//! error, limits
//! ```

mod admin;
mod capacity;
mod error;
mod fpm;
mod fronts;
mod jobs;
mod limits;
mod listen;
mod logging;
mod peer;
mod plan;
mod processes;
mod reload;
mod run;
mod system;
mod systemd;
mod tls;
mod upgrade;

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use maitred_config::{Config, Pool, Section};
use maitred_os::users::Identity;
use maitred_os::{fork, signals, sockets, spawn, title};

pub use capacity::memory_reader::MEMORY_READER_ROLE;
pub use error::Error;
pub use fronts::purge_log::PURGE_LOG_ROLE;
pub use listen::other_program_on;
pub use logging::log_files::{open_as_fpm, open_log};
pub use plan::FRONT_ROLE;
pub use plan::config_source::{Host, Invocation, LOG_VARIABLE, Source};
pub use processes::pipe_reader::PIPE_READER_ROLE;
pub use system::programs::is_version;
pub use tls::acme::ACME_ROLE;
pub use tls::acme::shared_process::SHARED_ROLE;
pub use upgrade::{CAN_TAKE_OVER, TAKE_OVER, TRY_TAKE_OVER};

use fronts::log_manager::LogManager;
use fronts::{Front, Fronts};
use jobs::Jobs;
use logging::log_files;
use logging::log_openers::LogOpeners;
use logging::terminal::Terminal;
use plan::{Found, Plan, examine};
use processes::application_memory::ApplicationMemories;
use processes::php_trial;
use processes::pools::Pools;
use processes::running_pool::RunningPool;
use processes::scoreboards::Scoreboards;
use run::{Parts, Resumed, SIGNALS, Supervisor};
use system::programs::Programs;
use system::{cgroups, confinement, identity, private_folders};
use tls::certificates::Certificates;
use upgrade::handover::HandoverState;

/// The supervisor's title.
const TITLE: &str = "maitred: supervisor";

/// The user of a pool's workers; none: that of this process.
///
/// # Errors
/// One sentence, for a user that does not exist, is root, or cannot be adopted.
pub fn user_of_pool(pool: &Pool, config: &Config) -> Result<Option<Identity>, Error> {
    identity::of_pool(pool, config)
}

/// The folder with the private folders of pools' users, made if it is absent; none: a server with
/// this configuration makes none, or `private_dir` names it.
///
/// # Errors
/// When it cannot be made, or is not root's alone.
pub fn make_users_folder(config: &Config) -> std::io::Result<Option<PathBuf>> {
    private_folders::make_users_folder(config)
}

/// Shows php-fpm's process title and Debian's program name, if the server was started as php-fpm:
/// scripts look for them.
fn show_title(config: &Config) {
    let Some(fpm) = &config.fpm else {
        return;
    };
    let version = config.pools.first().and_then(|pool| pool.php.as_deref());
    let name = ["php-fpm", version.unwrap_or_default()].concat();
    let title = format!("php-fpm: master process ({})", fpm.file.display());
    title::set_with_name(&title, &name);
}

/// Runs the server of the configuration from `source` until it is stopped, and returns the exit
/// code: 0 after a stop, 1 when a process failed that the start needs. `log_level` is the log level
/// of the processes it starts. Call it while the process has one thread, after
/// [`maitred_os::title::prepare`].
///
/// # Errors
/// When the server cannot be set up; nothing has been started then.
pub fn serve(source: Source, invocation: Invocation, log_level: &str) -> Result<i32, Error> {
    title::set(TITLE);
    if let Some(state) = invocation.take_over {
        return take_over(state, source, invocation, log_level);
    }
    let inherited = listen::InheritedSockets::from_environment();
    // An inherited ignored signal would never arrive: a shell ignores SIGINT for what it starts in
    // the background, and ignoring SIGCHLD reaps children unseen.
    signals::reset(&SIGNALS);
    let signals = signals::SignalEvents::take_over(&SIGNALS)
        .map_err(Error::system("signals could not be taken over"))?;
    sockets::raise_descriptor_limit()
        .map_err(Error::system("the limit of open files could not be read"))?;
    fork::become_subreaper()
        .map_err(Error::system("the supervisor could not become its workers' parent"))?;
    let config = source.load().map_err(Error::Mistakes)?;
    show_title(&config);
    let (mut plan, pools) = Plan::make(config, source, invocation, log_level, inherited)?;
    let admin = admin::Admin::open(&plan.config)?;
    let mut scoreboards = Scoreboards::new(plan.threads);
    scoreboards.add_all(pools.iter().map(|pool| pool.settings.pool.as_str()))?;
    for pool in &pools {
        scoreboards.applications.add(&pool.settings.pool, pool.uid);
    }
    let pools = Pools::new(pools);
    let host = &mut plan.invocation.host;
    host.set_up(&plan.config).map_err(Error::Configuration)?;
    for fault in plan.faults.iter() {
        plan.log_failure(&fault.to_string());
    }
    let supervisor = Supervisor::new(Parts {
        plan,
        pools,
        fronts: Fronts::new(Front::new(1, 0), Vec::new()),
        signals,
        admin,
        scoreboards,
        jobs: Jobs::default(),
    });
    Ok(supervisor.run())
}

/// Runs the server that the previous program in this process has left running. Its signals are
/// still blocked, so none is lost.
fn take_over(
    state: RawFd,
    source: Source,
    invocation: Invocation,
    log_level: &str,
) -> Result<i32, Error> {
    let signals = signals::SignalEvents::take_over(&SIGNALS)
        .map_err(Error::system("signals could not be taken over"))?;
    let what = "what the program before this one left could not be taken over";
    let state = spawn::inherited_fd(state).map_err(Error::system(what))?;
    let state = HandoverState::read(&state).map_err(Error::Configuration)?;
    let config = state.config.clone();
    show_title(&config);
    if let Some(groups) = state.untrusted_groups.clone() {
        groups.apply();
    }
    identity::distrust_groups(&config);
    // A missing PHP version is reported when it is needed: running pools continue.
    let (programs, lacking) = Programs::find(&config);
    let faults = state.faults.clone();
    let last_generation = state.last_generation;
    let resumed = Resumed {
        elapsed: state.elapsed,
        systemd: state.systemd,
        cookies: state.cookies.clone(),
        reload_later: state.reload_later,
        purge_log: state.purge_log.clone(),
        stuck_lookups: state.stuck_lookups.clone(),
        stuck_pipe_readers: state.stuck_pipe_readers.clone(),
    };
    let inherited = state.inherit().map_err(Error::system(what))?;
    let terminal = match &config.fpm {
        Some(_) => Terminal::silent(),
        None => inherited.terminal,
    };
    let found = Found { listeners: inherited.listeners, programs };
    let mut plan = Plan {
        terminal,
        logs: LogManager::inherited(
            inherited.access_log,
            inherited.pool_access_logs,
            LogOpeners::new(plan::environment(log_level), inherited.stuck_log_openers),
            &config,
        ),
        certificates: inherited.certificates.or_else(|| read_anew(&config)),
        ..Plan::over(config, source, invocation, log_level, found)?
    };
    if plan.is_fpm() {
        listen::announce(&plan.listeners);
    }
    plan.take_faults_over(faults, lacking);
    plan.follow_configuration();
    let mut scoreboards = Scoreboards::inherited(plan.threads, inherited.scoreboards);
    scoreboards.add_all(inherited.pools.iter().map(RunningPool::name))?;
    scoreboards.applications = ApplicationMemories::inherited(inherited.applications);
    for pool in &inherited.pools {
        scoreboards.applications.add(pool.name(), pool.plan.uid);
    }
    let parts = Parts {
        admin: admin::Admin::reopen(&plan.config),
        plan,
        pools: Pools::inherited(inherited.pools, last_generation),
        fronts: inherited.fronts,
        signals,
        scoreboards,
        jobs: inherited.jobs,
    };
    Ok(Supervisor::resumed(parts, resumed).run())
}

/// The certificates, which a program of another version may not have handed over.
fn read_anew(config: &Config) -> Option<Certificates> {
    Certificates::of(config, None).unwrap_or_else(|why| {
        tracing::error!("{why}");
        None
    })
}

/// Whether this program could take over the state that another has written to descriptor `state`.
///
/// # Errors
/// Why not.
pub fn try_take_over(state: RawFd, source: &Source) -> Result<(), Error> {
    let what = "what the other program left could not be read";
    let state = spawn::inherited_fd(state).map_err(Error::system(what))?;
    let state = HandoverState::read(&state).map_err(Error::Configuration)?;
    // Everything that could end the running server after the take-over.
    identity::of_front(&state.config)?;
    source.load().map(drop).map_err(Error::Mistakes)
}

/// All mistakes of a configuration on this machine, besides those of its text: users that do not
/// exist or may not be adopted, missing PHP versions, logs without a folder or that this
/// user may not write, and bad certificates.
/// `file` is the file that the configuration was read from.
pub fn check(config: &Config, file: &Path) -> Vec<Error> {
    let (mut findings, programs) = examine(config, Some(file));
    if findings.mistakes.is_empty() {
        let environment = plan::environment("error");
        let is_tried = |pool: &Pool| !findings.faults.stops_pool(&pool.name);
        let found = php_trial::mistakes(config, &programs, &environment, is_tried);
        findings.mistakes.extend(Error::located(found, file));
    }
    let wrong =
        |said: String| Error::Setting { section: Section::Tls, setting: "certificates", said };
    let found = match certificates_of(config) {
        Ok(certificates) => {
            let faults = certificates.iter().flat_map(Certificates::faults);
            faults.map(|fault| wrong(fault.sentence)).collect()
        }
        Err(Error::Configuration(said)) => vec![wrong(said)],
        Err(why) => vec![why],
    };
    findings.mistakes.extend(Error::located(found, file));
    findings.mistakes.extend(Error::located(log_files::mistakes_of_tenants(config), file));
    let mut unwritable = log_files::unwritable(config);
    unwritable.extend(config.admin_socket.as_deref().and_then(admin::unwritable_folder));
    findings.mistakes.extend(Error::located(unwritable, file));
    findings.all()
}

/// The certificates as the server reads them: their files yield by the users of pools.
fn certificates_of(config: &Config) -> Result<Option<Certificates>, Error> {
    let mut config = config.clone();
    identity::find_users(&mut config);
    Certificates::of(&config, None)
}

/// The mistakes of a configuration that concern PHP: missing programs and libraries, unknown
/// settings, extensions that cannot be loaded. PHP is started for each kind of pool.
///
/// # Errors
/// Why PHP cannot be started by this user, as one sentence.
pub fn check_php(config: &Config, file: &Path) -> Result<Vec<Error>, String> {
    let has_user = |pool: &Pool| identity::of_pool(pool, config).is_ok();
    if !maitred_os::users::is_root() && !config.pools.iter().all(has_user) {
        return Err("only root can start PHP as the users of the pools".to_owned());
    }
    let (programs, lacking) = Programs::find(config);
    let environment = plan::environment("error");
    let lacks = |pool: &Pool| {
        let section = Section::Pool(pool.name.clone());
        lacking
            .iter()
            .any(|why| matches!(why, Error::Setting { section: of, .. } if *of == section))
    };
    let is_tried = |pool: &Pool| !lacks(pool) && has_user(pool);
    let found = php_trial::mistakes(config, &programs, &environment, is_tried);
    Ok(Error::located(lacking.into_iter().chain(found).collect(), file))
}

/// What this machine does not provide of a configuration, though the server would run: one sentence
/// each.
pub fn warnings(config: &Config) -> Vec<String> {
    let own = confinement::warnings(config);
    let own = own.chain(identity::shared_with_front(config));
    let own = own.chain(identity::admin_is_open(config));
    let own = own.chain(identity::fuse_is_open(config));
    // Bad certificates are mistakes, and reported as such.
    let certificates = certificates_of(config).ok().flatten();
    let complaints = certificates.map(|certificates| certificates.complaints());
    own.chain(cgroups::obstacle(config))
        .chain(complaints.into_iter().flatten())
        .chain(logging::log_files::warnings(config))
        .chain(system::peer_secret::note(config))
        .collect()
}

/// The sites, by their number, with upload folders in which PHP would run: one sentence each. For a
/// process with one thread.
pub fn upload_folders(config: &Config) -> Vec<(usize, String)> {
    system::upload_folders::warnings(config)
}

/// The stored certificates of the hosts with ACME: one sentence each.
pub fn issued_hosts(config: &Config) -> Vec<String> {
    let certificates = certificates_of(config).ok().flatten();
    let hosts = certificates.iter().flat_map(Certificates::wanted);
    hosts.map(tls::acme::hosts::in_words).collect()
}

/// What changes of the clock within a year do to schedules: one sentence each.
pub fn clock_changes(config: &Config) -> Vec<String> {
    jobs::clock_changes(config)
}

/// All programs that run PHP, and their PHP versions, as `8.2.35`.
pub fn php_programs() -> Vec<(std::path::PathBuf, String)> {
    Programs::all()
}

/// The program that runs PHP of this version, as `8.2`, or else the default one.
///
/// # Errors
/// One sentence that lists the searched folders.
pub fn php_program(version: Option<&str>) -> Result<std::path::PathBuf, Error> {
    Programs::find_one(version)
}
