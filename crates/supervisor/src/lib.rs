//! The supervisor: the process that owns the process tree, the listening sockets and the
//! configuration. One thread, no PHP, no async; it never reads a byte that a client sent.
//!
//! Read [`run`] first: wait, decide, apply. What is decided is in [`phase`] (the whole server),
//! [`pool`] (zygote and seats), [`life`] (a process that must always be there) and [`backoff`]:
//! pure functions of state, event and time.

mod admin;
mod capacity;
mod error;
mod fpm;
mod fronts;
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

use std::ffi::OsStr;
use std::os::fd::RawFd;
use std::path::Path;

use maitred_config::{Config, Pool};
use maitred_os::{fork, signals, sockets, spawn, title};

pub use error::Error;
pub use logging::log_files::open_as_fpm;
pub use plan::config_source::{Host, Invocation, Source};
pub use tls::acme::ACME_ROLE;
pub use upgrade::{CAN_TAKE_OVER, TAKE_OVER, TRY_TAKE_OVER};

use plan::Plan;
use run::{SIGNALS, Supervisor};
use system::programs::Programs;
use tls::certificates::Certificates;
use upgrade::handover::HandoverState;

/// The argument that makes our program the front.
pub const FRONT_ROLE: &str = "front";

/// The environment variable that tells our processes how much to log.
pub const LOG_VARIABLE: &str = "MAITRED_LOG";

/// The supervisor's title.
const TITLE: &str = "maitred: supervisor";

/// The id of the user that a pool's workers get; none: they stay who this process is.
///
/// # Errors
/// One sentence, for a user that does not exist, is root, or cannot be had.
pub fn user_of_pool(pool: &Pool, config: &Config) -> Result<Option<u32>, Error> {
    let identity = system::identity::of_pool(pool, config)?;
    Ok(identity.map(|identity| identity.uid))
}

/// Shows whom scripts look for that know php-fpm, if we were started as that: its master, and
/// Debian's name for the program.
fn show_title(config: &Config) {
    let Some(fpm) = &config.fpm else {
        return;
    };
    let version = config.pools.first().and_then(|pool| pool.php.as_deref());
    let name = ["php-fpm", version.unwrap_or_default()].concat();
    let title = format!("php-fpm: master process ({})", fpm.file.display());
    title::set_with_name(&title, &name);
}

/// Serves what `source` says until somebody asks the server to stop, and returns the exit code: 0 after a
/// stop, 1 when a process that the start needs failed. The processes it starts log as much as
/// `log_level` says. Call it while the process has one thread, after
/// [`maitred_os::title::prepare`].
///
/// # Errors
/// When the server cannot even be set up; nothing has been started then.
pub fn serve(source: Source, invocation: Invocation, log_level: &str) -> Result<i32, Error> {
    title::set(TITLE);
    if let Some(state) = invocation.take_over {
        return take_over(state, source, invocation, log_level);
    }
    let inherited = listen::InheritedSockets::from_environment();
    // A signal that whoever started us ignores would never show: a shell ignores SIGINT for what
    // it starts in the background, and ignoring SIGCHLD takes the dead away unseen.
    signals::reset(&SIGNALS);
    let signals = signals::SignalEvents::take_over(&SIGNALS)
        .map_err(Error::system("signals could not be taken over"))?;
    sockets::raise_descriptor_limit()
        .map_err(Error::system("the limit of open files could not be read"))?;
    fork::become_subreaper().map_err(Error::system(
        "the supervisor could not become its workers' parent",
    ))?;
    let config = source.load().map_err(Error::Mistakes)?;
    show_title(&config);
    let (plan, pools) = Plan::make(config, source, invocation, log_level, inherited)?;
    let admin = admin::Admin::open(&plan.config)?;
    let mut scores = processes::scoreboards::Scoreboards::new(plan.threads);
    scores.add_all(pools.iter().map(|pool| pool.settings.pool.as_str()))?;
    let mut supervisor = Supervisor::new(plan, pools, signals, admin, scores);
    let host = &mut supervisor.plan.invocation.host;
    host.set_up(&supervisor.plan.config)
        .map_err(Error::Configuration)?;
    Ok(supervisor.run())
}

/// Serves what the program before us in this process has left running. Its signals are still
/// blocked, so none is lost.
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
    system::identity::distrust_groups(&config);
    // A version that is not there any more is told when it is needed: what runs goes on.
    let (programs, _) = Programs::find(&config);
    let since = (state.elapsed, state.last_generation);
    let (reload_later, told) = (state.reload_later, state.systemd);
    let cookies = state.cookies.clone();
    let inherited = state.inherit().map_err(Error::system(what))?;
    let mut plan = Plan {
        terminal: match &config.fpm {
            Some(_) => logging::text::Terminal::silent(),
            None => inherited.terminal,
        },
        access_log: inherited.access_log.or_else(|| opened_anew(&config)),
        certificates: inherited.certificates.or_else(|| read_anew(&config)),
        door_logs: inherited.door_logs,
        ..Plan::over(
            config.clone(),
            source,
            invocation,
            log_level,
            (inherited.listeners, programs),
        )?
    };
    if plan.config.fpm.is_some() {
        listen::announce(&plan.listeners);
    }
    plan.follow_configuration();
    let fronts = (inherited.front, inherited.old_fronts);
    let mut scores =
        processes::scoreboards::Scoreboards::inherited(plan.threads, inherited.scoreboards);
    let pools = inherited.pools.iter();
    scores.add_all(pools.map(|pool| pool.plan.settings.pool.as_str()))?;
    let outside = (admin::Admin::reopen(&plan.config), scores);
    let mut supervisor =
        Supervisor::resumed(plan, since, fronts, inherited.pools, signals, outside);
    let now = supervisor.now();
    supervisor.systemd.go_on(told, now);
    supervisor.reload_later = reload_later;
    supervisor.cookies = cookies;
    supervisor.tidings.reload_announced = reload_later;
    supervisor.tidings.upgrade_tried = reload_later;
    supervisor.begin_trials();
    Ok(supervisor.run())
}

/// The access log, which a program of another version may not have left. That it cannot be had is
/// no reason to end what runs.
fn opened_anew(config: &Config) -> Option<std::fs::File> {
    logging::log_files::open_access_log(config).unwrap_or_else(|why| {
        tracing::error!("{why}");
        None
    })
}

/// The certificates, which a program of another version may not have left.
fn read_anew(config: &Config) -> Option<Certificates> {
    Certificates::of(config, None).unwrap_or_else(|why| {
        tracing::error!("{why}");
        None
    })
}

/// Whether this program could take over what another has written down in the file behind
/// descriptor `state`.
///
/// # Errors
/// Why not.
pub fn try_take_over(state: RawFd, source: &Source) -> Result<(), Error> {
    let what = "what the other program left could not be read";
    let state = spawn::inherited_fd(state).map_err(Error::system(what))?;
    let state = HandoverState::read(&state).map_err(Error::Configuration)?;
    // Whatever could end the server once it is ours, and with it all that runs.
    system::identity::of_front(&state.config)?;
    source.load().map(drop).map_err(Error::Mistakes)
}

/// What is wrong with a configuration on this machine, beside what its text says: users that do
/// not exist or may not be taken on, PHP versions that are not there, logs that have no folder, and
/// certificates that are not in order. `file` is what the configuration was read from.
pub fn check(config: &Config, file: &Path) -> Vec<Error> {
    let mut mistakes = examine(config, Some(file)).0;
    mistakes.extend(Certificates::of(config, None).err());
    mistakes
}

/// What of a configuration this machine does not give, though the server would run: one sentence
/// each.
pub fn warnings(config: &Config) -> Vec<String> {
    let own = system::confinement::warnings(config);
    let own = own.chain(system::identity::shared_with_front(config));
    let own = own.chain(system::identity::admin_is_open(config));
    // What is wrong with them is a mistake, and told as one.
    let certificates = Certificates::of(config, None).ok().flatten();
    let complaints = certificates.map(|certificates| certificates.complaints());
    own.chain(system::cgroups::obstacle(config))
        .chain(complaints.into_iter().flatten())
        .chain(logging::log_files::warnings(config))
        .collect()
}

/// The sites, by their number, whose document root the front could not look into: one sentence each.
/// For a process with one thread.
pub fn closed_roots(config: &Config) -> Vec<(usize, String)> {
    system::identity::closed_roots(config)
}

/// The sites, by their number, with folders that people upload to and in which PHP would run: one
/// sentence each. For a process with one thread.
pub fn upload_folders(config: &Config) -> Vec<(usize, String)> {
    system::upload_folders::warnings(config)
}

/// What is kept of the hosts whose certificates are got by ACME: one sentence each.
pub fn issued_hosts(config: &Config) -> Vec<String> {
    let certificates = Certificates::of(config, None).ok().flatten();
    let hosts = certificates.iter().flat_map(Certificates::wanted);
    hosts.map(tls::acme::hosts::in_words).collect()
}

/// The program that runs PHP of this version, as `8.2`, or else the one that is there.
///
/// # Errors
/// One sentence that says where it was looked for.
pub fn php_program(version: Option<&str>) -> Result<std::path::PathBuf, Error> {
    Programs::find_one(version)
}

/// All that is wrong, said with where it is written in `file`, and the programs that were found meanwhile.
fn examine(config: &Config, file: Option<&Path>) -> (Vec<Error>, Programs) {
    system::identity::distrust_groups(config);
    let (programs, lacking) = Programs::find(config);
    let mut mistakes = system::identity::mistakes(config);
    mistakes.extend(system::confinement::mistakes(config));
    mistakes.extend(lacking);
    mistakes.extend(logging::text::log_mistakes(config));
    mistakes.extend(listen::mistakes(config));
    mistakes.extend(config.admin_socket.as_deref().and_then(admin::mistake));
    if let Some(file) = file {
        mistakes = mistakes.into_iter().map(|why| why.located(file)).collect();
    }
    (mistakes, programs)
}

/// A name for a process we start, padded so that there is room for every title it may take: a
/// title is written over the arguments and the environment it was started with.
fn roomy_name(title: &str) -> std::ffi::OsString {
    const TITLE_ROOM_BYTES: usize = 128;
    OsStr::new(&format!("{title:<TITLE_ROOM_BYTES$}")).to_owned()
}
