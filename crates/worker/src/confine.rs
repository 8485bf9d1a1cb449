//! The limits and the environment of a pool's processes: applied step by step while the zygote
//! starts, and inherited by its workers.

use std::io;
use std::path::PathBuf;

use maitred_control::{Confinement, ZygoteSettings};
use maitred_os::{capabilities, fork, holes, keyring, limits, roots, users};
use maitred_php::Engine;

/// PHP's setting with the command for mail.
const SENDMAIL: &str = "sendmail_path";

/// Applies the resource limits, while this process still has the privileges of the server's user.
///
/// # Errors
/// One sentence, for a limit that the system rejects.
pub fn limit(confinement: &Confinement) -> Result<(), String> {
    let Confinement { rlimit_files, rlimit_core, process_priority, oom_score_adj, .. } =
        confinement;
    set("rlimit_files", *rlimit_files, limits::set_open_files)?;
    set("rlimit_core", *rlimit_core, limits::set_core_bytes)?;
    set("process_priority", *process_priority, limits::set_nice)?;
    if let Some(nice) = process_priority {
        limits::set_session_nice(*nice);
    }
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

/// Prevents programs that scripts start from gaining one of root's capabilities, if none may gain
/// privileges.
///
/// # Errors
/// One sentence, when the system refuses.
pub fn give_up_capabilities(confinement: &Confinement) -> Result<(), String> {
    match confinement.no_new_privileges {
        Some(true) => capabilities::bound_to_none()
            .map_err(|error| format!("it cannot drop capabilities: {error}")),
        // Mailers and the like need some of them.
        Some(false) | None => Ok(()),
    }
}

/// The same before PHP starts, which runs the pool's preloading, where that is certain already. A
/// hat of AppArmor is put on later, and may be refused to a process that gains no privileges.
///
/// # Errors
/// One sentence, when the system refuses.
pub fn forbid_before_php(settings: &ZygoteSettings) -> Result<(), String> {
    let is_certain = settings.confinement.no_new_privileges == Some(true);
    if !is_certain || settings.apparmor_hat.is_some() {
        return Ok(());
    }
    gain_no_more()
}

fn gain_no_more() -> Result<(), String> {
    capabilities::gain_no_more().map_err(|error| format!("`no_new_privileges` cannot be: {error}"))
}

/// Prevents programs that scripts start from gaining privileges, unless one needs them. To be
/// called when the process is in the pool's root.
///
/// # Errors
/// One sentence, when the system refuses.
pub fn forbid_new_privileges(settings: &ZygoteSettings, engine: &Engine) -> Result<(), String> {
    forbid_beside(settings, || engine.configured(SENDMAIL))
}

/// The same for a process without PHP; `mailer` is php.ini's command for mail, if it is known.
///
/// # Errors
/// One sentence, when the system refuses.
pub fn forbid_beside(
    settings: &ZygoteSettings,
    mailer: impl FnOnce() -> Option<String>,
) -> Result<(), String> {
    let forbids = match settings.confinement.no_new_privileges {
        Some(asked) => asked,
        None => !gaining(settings, mailer).iter().any(|path| path.exists()),
    };
    if forbids { gain_no_more() } else { Ok(()) }
}

/// Programs that scripts may start and that usually gain privileges: the mailer of PHP's mail(),
/// the default mailer of libraries, and sudo.
fn gaining(settings: &ZygoteSettings, mailer: impl FnOnce() -> Option<String>) -> Vec<PathBuf> {
    let mut values = settings.php_values.iter().chain(&settings.php_admin_values);
    let own = values.rfind(|(name, _)| name == SENDMAIL);
    let command = own.map(|(_, value)| value.clone());
    let command = command.or_else(mailer);
    let mut programs = ["/usr/sbin/sendmail", "/usr/bin/sudo"].map(PathBuf::from).to_vec();
    programs.extend(command.and_then(|command| {
        let program = command.split_ascii_whitespace().next()?;
        // The command runs in a shell: a relative name may be found in PATH, so `/` stands for it,
        // which always exists.
        let is_path = program.starts_with('/');
        Some(PathBuf::from(if is_path { program } else { "/" }))
    }));
    programs
}

/// Becomes the pool's user, but keeps the capability to change the root if that is still to be
/// done. The process gets a session keyring of its own: that of the user who started the server is
/// not the pool's, nor are those of other pools. It is at the cost of root's keys, since the pool's
/// user could have used up its own, or at the cost of the pool's user where root's are used up: in
/// a user namespace root has as few as other users. A server that is not root leaves its
/// capabilities to no pool: programs that scripts start would inherit ambient ones.
///
/// # Errors
/// One sentence, when the system refuses.
pub fn become_user(settings: &ZygoteSettings) -> Result<(), String> {
    let Some(identity) = &settings.identity else {
        let dropped = if users::is_root() { Ok(()) } else { capabilities::hold_none() };
        return dropped.map_err(|error| format!("it cannot drop capabilities: {error}"));
    };
    let has_session = has_begun_session(keyring::begin_session())?;
    let become_user = match settings.confinement.chroot {
        Some(_) => users::become_user_keeping_chroot,
        None => users::become_user,
    };
    become_user(identity)
        .map_err(|error| format!("it cannot become user {}: {error}", identity.name))?;
    // A change of user clears it.
    fork::die_with_parent(settings.supervisor);
    if has_session { Ok(()) } else { keyring::begin_session().map_err(|error| no_session(&error)) }
}

/// Whether root has begun a session keyring; it has not if its quota of keys is used up.
fn has_begun_session(begun: io::Result<()>) -> Result<bool, String> {
    match begun {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => Ok(false),
        Err(error) => Err(no_session(&error)),
    }
}

fn no_session(error: &io::Error) -> String {
    format!("it cannot begin a session keyring: {error}; raise the limits in kernel.keys")
}

/// Whether processes of a pool can make holes in the memory that they share with the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// Nothing forbids it.
    Possible,
    /// They cannot.
    Forbidden,
}

impl Holes {
    /// Forbids them, if they are to be. To be called before the process becomes the pool's user: it
    /// needs the right to do that, unless its programs may gain no privileges.
    pub fn forbid(confinement: &Confinement) -> Holes {
        let is_needed = confinement.forbids_holes && !confinement.has_solid_memory;
        if !is_needed || holes::forbid().is_ok() {
            return Holes::Forbidden;
        }
        Holes::Possible
    }

    /// Forbids them if that has failed, as a process whose programs may gain no privileges, if it
    /// is one. Otherwise the log says so: other pools serve all the same.
    pub fn forbid_at_last(self, pool: &str) {
        if self == Holes::Possible
            && let Err(error) = holes::forbid()
        {
            eprintln!(
                "maitred-php: pool {pool}: its processes can make the front wait for holes in \
                 shared memory ({error}); set no_new_privileges = true for the pool, or give the \
                 server CAP_LINUX_IMMUTABLE (from Linux 6.1 on) or CAP_SYS_ADMIN"
            );
        }
    }
}

/// Changes to the pool's root and working directory, after PHP was started: its php.ini, its
/// extensions and their libraries need not exist there.
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
