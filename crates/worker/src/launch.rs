//! Becomes a command or a schedule of a pool: this process takes the pool's user, limits, root and
//! environment, as its zygote does, and executes the program. PHP does not run before that.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use maitred_control::ZygoteSettings;
use maitred_control::launch::{Launch, LaunchIo, LaunchPolicy, NOT_STARTED};
use maitred_os::limits::{self, DiskPriority, GiveWay};
use maitred_os::signals::Signal;
use maitred_os::{roots, shared, signals, spawn};
use maitred_php::{METRICS_EXTENSION, METRICS_VARIABLE, PHP_BRANCH};

use crate::apparmor::Hat;
use crate::private_folder::PrivateFolder;
use crate::{confine, ini_files, zygote};

/// Largest settings that are read, in bytes.
const MAX_LAUNCH_BYTES: u64 = 4 << 20;

/// `PATH` where neither the pool nor the command has one: that of a login on Debian.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The variable with the folders of programs.
const PATH: &str = "PATH";

/// The variable with the folder of further INI files.
const SCAN_DIR: &str = "PHP_INI_SCAN_DIR";

/// The folder of the process's own descriptors (proc(5)).
const OWN_DESCRIPTORS: &str = "/proc/self/fd";

/// Start of the names of the variables with the values of PHP's settings.
const VALUE: &str = "MAITRED_INI_";

/// The highest nice value.
const LEAST_PRIORITY: i32 = 19;

/// The setting of the folder of sessions.
const SAVE_PATH: &str = "session.save_path";

/// Reads the settings from the first inherited descriptor, and becomes the program.
pub fn run() -> ExitCode {
    let failed = ExitCode::from(u8::try_from(NOT_STARTED).unwrap_or(1));
    let launch = match read() {
        Ok(launch) => launch,
        Err(why) => {
            eprintln!("maitred-php: a command is started by maitred only: {why}");
            return failed;
        }
    };
    let why = match prepare(&launch) {
        Ok(program) => {
            let mut words = vec![program.name];
            words.extend(program.arguments);
            // This program ignores it, and what is ignored stays so.
            signals::reset(&[Signal::SIGPIPE]);
            let why = spawn::become_program(&program.path, &words);
            format!("{} cannot be run: {why}", program.path.display())
        }
        Err(why) => why,
    };
    eprintln!("maitred-php: {} cannot be started: {why}", launch.title);
    failed
}

fn read() -> Result<Launch, String> {
    let file = spawn::inherited(0).map_err(|why| why.to_string())?;
    let mut text = Vec::new();
    let read = std::fs::File::from(file).take(MAX_LAUNCH_BYTES).read_to_end(&mut text);
    read.map_err(|why| why.to_string())?;
    serde_json::from_slice(&text).map_err(|why| why.to_string())
}

/// A program to execute.
struct Target {
    path: PathBuf,
    name: OsString,
    arguments: Vec<OsString>,
}

fn prepare(launch: &Launch) -> Result<Target, String> {
    let settings = &launch.settings;
    let counts = if launch.counts { spawn::inherited(1).ok() } else { None };
    spawn::enter_group(1 + i32::from(launch.counts))
        .map_err(|error| format!("it cannot enter its pool's control group: {error}"))?;
    let confinement = &settings.confinement;
    confine::limit(confinement)?;
    give_way(launch)?;
    confine::give_up_capabilities(confinement)?;
    confine::become_user(settings)?;
    let folder = PrivateFolder::prepare(settings)?;
    let mut more = vec![(PATH.to_owned(), DEFAULT_PATH.to_owned())];
    more.extend(folder.as_ref().and_then(|folder| folder.variable(settings)));
    more.retain(|(name, _)| !settings.env.iter().any(|(own, _)| own == name));
    launch.php.as_ref().map_or(Ok(()), |_| ini_files::find_ini_files(settings))?;
    let php = php_settings(settings, folder.as_ref());
    if launch.php.is_some() {
        more.extend(php.variables);
    }
    zygote::set_environment(settings, more);
    let hat = settings.apparmor_hat.as_deref();
    let hat = hat.map(|hat| Hat::find(&settings.pool, hat)).transpose()?;
    if let Some(root) = &confinement.chroot {
        roots::change_for_good(root)
            .map_err(|error| format!("`chroot` cannot be {}: {error}", root.display()))?;
    }
    let dir = launch.dir.as_deref().or(confinement.chdir.as_deref());
    let dir = dir.unwrap_or(Path::new("/"));
    std::env::set_current_dir(dir).map_err(|error| {
        format!("`dir` cannot be {}: {error}; the pool's user must enter it", dir.display())
    })?;
    let extension = launch.php.as_ref().and_then(|_| Extension::open(counts));
    hat.map_or(Ok(()), Hat::put_on)?;
    confine::forbid_beside(settings, || None)?;
    let (program, arguments) = launch.command.split_first().ok_or("it has no program")?;
    let mut words = Vec::new();
    let path = match &launch.php {
        Some(cli) => {
            words = php.arguments;
            words.extend(extension.into_iter().flat_map(Extension::hand_over));
            cli.clone()
        }
        None => found(program)?,
    };
    words.extend(arguments.iter().map(OsString::from));
    Ok(Target { path, name: program.into(), arguments: words })
}

/// The functions by which the application counts, as an extension in an anonymous file: PHP's
/// command line need not have one installed.
struct Extension {
    library: OwnedFd,
    /// The memory that it counts in. Without, the functions are there, and count nothing.
    memory: Option<OwnedFd>,
}

impl Extension {
    /// None without `/proc`, through which PHP would load it: within a `chroot`.
    fn open(memory: Option<OwnedFd>) -> Option<Extension> {
        let library = shared::file_with("maitred-metrics", METRICS_EXTENSION).ok()?;
        Path::new(OWN_DESCRIPTORS).is_dir().then_some(Extension { library, memory })
    }

    /// The arguments with which PHP loads it. It closes both descriptors.
    fn hand_over(self) -> [OsString; 2] {
        let Extension { library, memory } = self;
        let library = for_program(library);
        let memory = memory.map_or(String::new(), |memory| for_program(memory).to_string());
        maitred_os::environment::add(METRICS_VARIABLE, &format!("{library},{memory}"));
        ["-d".into(), format!("extension={OWN_DESCRIPTORS}/{library}").into()]
    }
}

/// Leaves a descriptor to the program that this process becomes.
fn for_program(file: OwnedFd) -> RawFd {
    let number = file.into_raw_fd();
    // It can only fail for a number that is not open.
    let _ = spawn::keep_across_exec(number, true);
    number
}

/// Has this process leave processors and disks to the pool's workers, as configured.
fn give_way(launch: &Launch) -> Result<(), String> {
    if launch.nicer > 0 {
        let nicer = |nice: i32| nice.saturating_add(launch.nicer).min(LEAST_PRIORITY);
        limits::set_nice(nicer(limits::nice().unwrap_or(0)))
            .map_err(|why| format!("`cpu_weight` cannot be set: {why}"))?;
        // A server with a nice value of its own has workers in sessions without one.
        if let Some(nice) = limits::session_nice() {
            limits::set_session_nice(nicer(nice));
        }
    }
    let set = match launch.policy {
        LaunchPolicy::Normal => Ok(()),
        LaunchPolicy::Batch => limits::give_way(GiveWay::AtWakeUp),
        LaunchPolicy::Idle => limits::give_way(GiveWay::Always),
    };
    set.map_err(|why| format!("`cpu_weight` cannot be set: {why}"))?;
    let priority = launch.io.map(|io| match io {
        LaunchIo::Idle => DiskPriority::Idle,
        LaunchIo::BestEffort(level) => DiskPriority::BestEffort(level),
    });
    let set = priority.map_or(Ok(()), limits::set_disk_priority);
    set.map_err(|why| format!("`io` cannot be set: {why}"))
}

/// The program of this name in `PATH`, unless the name is a path.
fn found(name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Ok(name.into());
    }
    let folders = std::env::var_os(PATH).unwrap_or_default();
    let all: Vec<PathBuf> = std::env::split_paths(&folders).map(|dir| dir.join(name)).collect();
    let path = all.into_iter().find(|path| is_program(path));
    let folders = folders.display();
    path.ok_or_else(|| format!("there is no `{name}` in {folders}; write its whole path"))
}

fn is_program(path: &Path) -> bool {
    let is_executable = |meta: std::fs::Metadata| meta.permissions().mode() & 0o111 != 0;
    path.is_file() && path.metadata().is_ok_and(is_executable)
}

/// How PHP's command line gets the pool's settings: values are variables of the environment, since
/// every user of the machine can read arguments, and a value may be a password.
struct PhpSettings {
    arguments: Vec<OsString>,
    variables: Vec<(String, String)>,
}

fn php_settings(settings: &ZygoteSettings, folder: Option<&PrivateFolder>) -> PhpSettings {
    let fpm = zygote::fpm_folder().filter(|_| !settings.no_php_ini);
    let beside = |name: &str| fpm.as_ref().map(|folder| folder.join(name));
    let mut php = PhpSettings { arguments: Vec::new(), variables: Vec::new() };
    if settings.no_php_ini {
        php.arguments.push("-n".into());
    } else if let Some(file) = settings.php_ini.clone().or_else(|| beside("php.ini")) {
        php.arguments.extend(["-c".into(), file.into_os_string()]);
    }
    let own = [&settings.defines, &settings.php_values, &settings.php_admin_values];
    let is_set = |name: &str| own.iter().any(|all| all.iter().any(|(own, _)| own == name));
    let sessions = folder.map(PrivateFolder::sessions).filter(|_| !is_set(SAVE_PATH));
    if let Some(sessions) = sessions {
        php.define(SAVE_PATH, &sessions.display().to_string());
    }
    for name in &settings.extensions {
        php.define("extension", name);
    }
    for (name, value) in own.into_iter().flatten() {
        php.define(name, value);
    }
    if let Some(folder) = settings.php_ini_scan_dir.clone().or_else(|| beside("conf.d")) {
        php.variables.push((SCAN_DIR.to_owned(), folder.display().to_string()));
    }
    php
}

impl PhpSettings {
    /// PHP takes the value of a variable in an INI line literally (`zend_ini_get_var`).
    fn define(&mut self, name: &str, value: &str) {
        let variable = format!("{VALUE}{}", self.variables.len());
        self.arguments.extend(["-d".into(), format!("{name}=\"${{{variable}}}\"").into()]);
        self.variables.push((variable, value.to_owned()));
    }
}

/// Prints the path of PHP's command line of the version that this program is built for.
pub fn find_cli() -> ExitCode {
    let exact = format!("php{PHP_BRANCH}");
    let folders = std::env::var_os(PATH).unwrap_or_else(|| DEFAULT_PATH.into());
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let usual = PathBuf::from("/usr/bin").join(&exact);
    let exact = std::iter::once(usual).chain(folders.iter().map(|dir| dir.join(&exact)));
    // The images of Docker have no version in the name.
    let plain = folders.iter().map(|dir| dir.join("php")).filter(|path| runs_our_branch(path));
    match exact.chain(plain).find(|path| is_program(path)) {
        Some(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        None => {
            eprintln!(
                "PHP {PHP_BRANCH} has no command line here, which a command that begins with \
                 \"php\" needs: apt-get install php{PHP_BRANCH}-cli"
            );
            ExitCode::FAILURE
        }
    }
}

/// Whether a program is PHP's command line of this program's version.
fn runs_our_branch(path: &Path) -> bool {
    if !is_program(path) {
        return false;
    }
    let code = "echo PHP_MAJOR_VERSION, '.', PHP_MINOR_VERSION;";
    let output = Command::new(path).args(["-n", "-r", code]).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.stdout == PHP_BRANCH.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_reach_php_as_they_are() {
        for value in ["256M", "a;b", "it's", "\"x\" '${HOME}'", "E_ALL & ~E_NOTICE", "\\n '\\n", ""]
        {
            let mut php = PhpSettings { arguments: Vec::new(), variables: Vec::new() };
            php.define("user_agent", value);
            let output = Command::new(format!("/usr/bin/php{PHP_BRANCH}"))
                .arg("-n")
                .args(&php.arguments)
                .args(["-r", "echo ini_get('user_agent');"])
                .envs(php.variables)
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
    }
}
