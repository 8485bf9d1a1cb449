//! Limits and priority of the supervisor, from php-fpm's settings for its master.

use maitred_config::CoreSize;
use maitred_config::fpm::Fpm;
use maitred_os::{limits, users};
use tracing::info;

use super::system_error::system_error;

/// Sets `rlimit_core`, and `rlimit_files` where it raises the limit.
///
/// php-fpm also lowers its own limit of open files, and its workers inherit it. Here workers get it
/// directly (see `Settings`), and the front, which holds the connections of all pools, keeps the
/// higher one.
///
/// # Errors
/// php-fpm's words for what the system refuses.
pub fn limit(fpm: &Fpm) -> Result<(), String> {
    let refused = |name: &str, setting: &str, value: &str, why: &std::io::Error| {
        let why = system_error(why);
        format!(
            "failed to set {name} for this pool. Please check your system limits or decrease \
             {name}. setrlimit({setting}, {value}){why}"
        )
    };
    if let Some(files) = fpm.rlimit_files
        && limits::open_files().is_ok_and(|most| files > most)
    {
        limits::set_open_files(files)
            .map_err(|why| refused("rlimit_files", "RLIMIT_NOFILE", &files.to_string(), &why))?;
    }
    if let Some(core) = fpm.rlimit_core {
        let bytes = match core {
            CoreSize::Bytes(bytes) => bytes,
            CoreSize::Unlimited => limits::UNLIMITED,
        };
        limits::set_core_bytes(bytes)
            .map_err(|why| refused("rlimit_core", "RLIMIT_CORE", &bytes.to_string(), &why))?;
    }
    Ok(())
}

/// Sets `process.priority`, which only root may.
///
/// # Errors
/// php-fpm's words for what the system refuses.
pub fn prioritize(fpm: &Fpm) -> Result<(), String> {
    let Some(value) = fpm.process_priority else {
        return Ok(());
    };
    if !users::is_root() {
        info!(
            target: "fpm",
            "'process.priority' directive is ignored when FPM is not running as root"
        );
        return Ok(());
    }
    limits::set_nice(value).map_err(|why| {
        let why = system_error(&why);
        format!("Unable to set priority for the master process{why}")
    })
}
