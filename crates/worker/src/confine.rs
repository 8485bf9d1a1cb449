//! What a pool's processes may use and where they live: put into force step by step while the
//! zygote starts, and inherited by its workers.

use std::io;

use maitred_control::Confinement;
use maitred_os::users::Identity;
use maitred_os::{limits, roots, users};
use maitred_php::Engine;

/// Limits what this process may use: while it still is who started the server, who may more.
///
/// # Errors
/// One sentence, for a limit that the system refuses.
pub fn limit(confinement: &Confinement) -> Result<(), String> {
    let Confinement {
        rlimit_files,
        rlimit_core,
        process_priority,
        oom_score_adj,
        ..
    } = confinement;
    set("rlimit_files", *rlimit_files, limits::set_open_files)?;
    set("rlimit_core", *rlimit_core, limits::set_core_bytes)?;
    set("process_priority", *process_priority, limits::set_nice)?;
    set("oom_score_adj", *oom_score_adj, limits::set_oom_score_adj)
}

fn set<T: Copy + std::fmt::Display>(
    name: &str,
    value: Option<T>,
    apply: fn(T) -> io::Result<()>,
) -> Result<(), String> {
    let Some(value) = value else {
        return Ok(());
    };
    apply(value).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "`{name}` cannot be {value}: {error}; the server may only make it stricter than it is \
             for itself: start it as root and with all of root's rights, or set another value"
        ),
        _ => format!("`{name}` cannot be {value}: {error}"),
    })
}

/// Becomes the pool's user, keeping the right to change the root where that is still to be done.
///
/// # Errors
/// As [`users::become_user`].
pub fn become_user(identity: &Identity, confinement: &Confinement) -> io::Result<()> {
    match confinement.chroot {
        Some(_) => users::become_user_who_may_change_root(identity),
        None => users::become_user(identity),
    }
}

/// Moves to where the pool lives, after PHP was started: its php.ini, its extensions and what they
/// load need not be there.
///
/// # Errors
/// One sentence, for a folder that cannot be entered.
pub fn settle(engine: &mut Engine, confinement: &Confinement) -> Result<(), String> {
    if let Some(root) = &confinement.chroot {
        roots::change_for_good(root)
            .map_err(|error| format!("`chroot` cannot be {}: {error}", root.display()))?;
    }
    let chdir = confinement.chdir.as_deref();
    engine.settle(chdir).map_err(|error| {
        let folder = chdir.unwrap_or(std::path::Path::new("/")).display();
        format!("`chdir` cannot be {folder}: {error}; the pool's user must be able to enter it")
    })
}
