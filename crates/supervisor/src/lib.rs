//! The supervisor: the process that owns the process tree, the listening sockets and the
//! configuration. One thread, no PHP, no async; it never reads a byte that a client sent.
//!
//! Read [`run`] first: wait, decide, apply. What is decided is in [`phase`] (the whole server),
//! [`pool`] (zygote and seats), [`life`] (a process that must always be there) and [`backoff`]:
//! pure functions of state, event and time.

mod adopt;
mod apply;
mod backoff;
mod changes;
mod error;
mod front;
mod growth;
mod identity;
mod life;
mod limits;
mod listen;
mod obituary;
mod peer;
mod phase;
mod plan;
mod pool;
mod reason;
mod reload;
mod run;
mod source;
mod voice;
mod words;

use std::ffi::OsStr;

use maitred_config::Config;
use maitred_os::{fork, signals, sockets, title};

pub use error::Error;
pub use source::Source;

use plan::Plan;
use run::{SIGNALS, Supervisor};

/// The argument that makes our program the front.
pub const FRONT_ROLE: &str = "front";

/// The environment variable that tells our processes how much to log.
pub const LOG_VARIABLE: &str = "MAITRED_LOG";

/// Serves what `source` says until somebody asks the server to stop, and returns the exit code: 0 after a
/// stop, 1 when a process that the start needs failed. The processes it starts log as much as
/// `log_level` says. Call it while the process has one thread, after
/// [`maitred_os::title::prepare`].
///
/// # Errors
/// When the server cannot even be set up; nothing has been started then.
pub fn serve(source: Source, log_level: &str) -> Result<i32, Error> {
    title::set("maitred: supervisor");
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
    let (plan, pools) = Plan::make(config, source, log_level)?;
    Ok(Supervisor::new(plan, pools, signals).run())
}

/// What is wrong with a configuration on this machine, beside what its text says: users that do
/// not exist or may not be taken on, and logs that have no folder.
pub fn check(config: &Config) -> Vec<Error> {
    let mut mistakes = identity::mistakes(config);
    mistakes.extend(words::log_mistakes(config));
    mistakes
}

/// A name for a process we start, padded so that there is room for every title it may take: a
/// title is written over the arguments and the environment it was started with.
fn roomy_name(title: &str) -> std::ffi::OsString {
    const TITLE_ROOM_BYTES: usize = 128;
    OsStr::new(&format!("{title:<TITLE_ROOM_BYTES$}")).to_owned()
}
