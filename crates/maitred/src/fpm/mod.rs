//! `maitred fpm`, and the same program under a name that begins with `php-fpm`: php-fpm's command
//! line, files, log and exit codes around our server.

mod background;
mod flags;
mod master;
mod php;
mod settings;
mod supervisor_host;
mod system_error;
mod usage_text;

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use maitred_config::Config;
use maitred_config::fpm::Level;
use maitred_supervisor::{CAN_TAKE_OVER, Invocation, Source, TAKE_OVER, TRY_TAKE_OVER};
use tracing::{debug, error, info};

use crate::exit_code::complain;
use crate::log;
use background::{ForkSide, StarterPipe};
use flags::{Flags, FpmCommand};
use settings::Settings;
use supervisor_host::FpmHost;
use system_error::{EXIT_CONFIG, EXIT_OK, EXIT_SOFTWARE, EXIT_USAGE, system_error};

/// The subcommand for php-fpm under any name of the program.
pub const SUBCOMMAND: &str = "fpm";

/// The prefix of the program's name where it is php-fpm.
const NAME: &str = "php-fpm";

/// How this program was started as php-fpm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FpmInvocation {
    /// Its name in the usage text.
    name: OsString,
    /// The PHP version in its name, as `8.2`.
    version: Option<String>,
    /// Arguments before php-fpm's own.
    before: Vec<OsString>,
    /// Arguments as php-fpm has them.
    arguments: Vec<OsString>,
}

/// Whether this program is php-fpm, by the name it was started under or by its first argument.
pub fn is_meant(arguments: &[OsString]) -> Option<FpmInvocation> {
    let (name, rest) = arguments.split_first()?;
    if let Some(version) = named(Path::new(name).file_name()?) {
        return Some(FpmInvocation {
            name: name.clone(),
            version,
            before: Vec::new(),
            arguments: rest.to_vec(),
        });
    }
    let (first, rest) = rest.split_first()?;
    (first == SUBCOMMAND).then(|| FpmInvocation {
        name: OsString::from("/maitred fpm"),
        version: None,
        before: vec![first.clone()],
        arguments: rest.to_vec(),
    })
}

/// Whether a program of this name is php-fpm, and of which version: `php-fpm`, `php-fpm8.2` or
/// `php-fpm-8.2`. Not `php-fpm: pool www`, which is the title of a process.
fn named(name: &OsStr) -> Option<Option<String>> {
    let rest = name.to_str()?.strip_prefix(NAME)?;
    if rest.contains([':', ' ']) {
        return None;
    }
    let version = rest.strip_prefix('-').unwrap_or(rest);
    let (major, minor) = version.split_once('.').unwrap_or_default();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|one| one.is_ascii_digit());
    Some((is_number(major) && is_number(minor)).then(|| version.to_owned()))
}

/// Runs this command line as php-fpm would.
pub fn run(mut started: FpmInvocation) -> ExitCode {
    let order = take_over(&mut started.arguments);
    let code = match flags::read(&started.arguments) {
        FpmCommand::Usage { wanted } => {
            let usage = usage_text::usage(&started.name);
            // A closed reader is no error.
            let _ = std::io::stdout().write_all(usage.as_bytes());
            if wanted { EXIT_OK } else { EXIT_USAGE }
        }
        FpmCommand::Version(php) => php::show("version", &php, started.version.as_deref()),
        FpmCommand::Modules(php) => php::show("modules", &php, started.version.as_deref()),
        FpmCommand::Info(php) => php::show("phpinfo", &php, started.version.as_deref()),
        FpmCommand::Serve(flags) => {
            // A trial only reports errors.
            let is_trial = matches!(order, Some(TakeOverOrder::Try(_)));
            log::fpm::begin(if is_trial { Level::Error } else { Level::Notice });
            match order {
                Some(TakeOverOrder::Try(state)) => try_take_over(state, &started, flags),
                Some(TakeOverOrder::TakeOver(state)) => go_on(&started, flags, state),
                None => serve(&started, flags),
            }
        }
    };
    ExitCode::from(code)
}

/// The order of the previous program, when it starts this one in its place.
#[derive(Debug, PartialEq, Eq)]
enum TakeOverOrder {
    Try(RawFd),
    TakeOver(RawFd),
}

/// Removes the order from the end of the command line, if there is one.
fn take_over(arguments: &mut Vec<OsString>) -> Option<TakeOverOrder> {
    let [.., name, descriptor] = arguments.as_slice() else {
        return None;
    };
    let descriptor: RawFd = descriptor.to_str()?.parse().ok()?;
    let order = match name.to_str()? {
        TAKE_OVER => TakeOverOrder::TakeOver(descriptor),
        TRY_TAKE_OVER => TakeOverOrder::Try(descriptor),
        _ => return None,
    };
    arguments.truncate(arguments.len() - 2);
    Some(order)
}

fn try_take_over(state: RawFd, started: &FpmInvocation, flags: Flags) -> u8 {
    let settings = Settings::new(flags, started.version.clone());
    match maitred_supervisor::try_take_over(state, &source(settings)) {
        Ok(()) => u8::try_from(CAN_TAKE_OVER).unwrap_or(EXIT_SOFTWARE),
        Err(why) => refuse(&why.to_string()),
    }
}

fn source(settings: Settings) -> Source {
    Source::new(move || settings.load_again())
}

/// Takes over the server that the previous program in this process left running, with its
/// configuration: newer files apply at the next reload.
fn go_on(started: &FpmInvocation, flags: Flags, state: RawFd) -> u8 {
    let settings = Settings::new(flags, started.version.clone());
    run_server(started, settings, Some(state), FpmHost::new(None), Level::Notice)
}

/// Serves, or tests the configuration.
fn serve(started: &FpmInvocation, flags: Flags) -> u8 {
    let end_of_test = (flags.tests > 0).then(|| end_of_test(&flags, started.version.as_deref()));
    let settings = Settings::new(flags, started.version.clone());
    let config = match settings.load() {
        Ok(config) => config,
        Err(messages) => {
            settings::say(&messages);
            return refuse("");
        }
    };
    if let Some(end) = end_of_test {
        let file = config.fpm.as_ref().map(|fpm| fpm.file.clone());
        let file = file.unwrap_or_default();
        let file = file.display();
        info!(target: "fpm", "configuration file {file} test is successful{end}");
        return EXIT_OK;
    }
    if let Err(why) = detach_streams() {
        return refuse(&format!("failed to init stdio: {}", system_error(&why)));
    }
    let level = config.fpm.as_ref().map_or(Level::Notice, |fpm| fpm.log_level);
    match prepare(&config, &settings) {
        Ok(NextStep::Server(waiting)) => {
            run_server(started, settings, None, FpmHost::new(waiting), level)
        }
        Ok(NextStep::Done(code)) => {
            if code == EXIT_OK && !started.before.is_empty() && started.arguments.is_empty() {
                say_background(&config);
            }
            code
        }
        Err(why) => refuse(&why),
    }
}

/// Says on a terminal what `maitred fpm` without arguments has started. Under php-fpm's name the
/// command is as silent as php-fpm.
fn say_background(config: &Config) {
    let Some(fpm) = config.fpm.as_ref().filter(|_| std::io::stderr().is_terminal()) else {
        return;
    };
    let listeners = config.pools.iter().filter_map(|pool| pool.listener.as_ref());
    let listeners: Vec<&str> = listeners.map(|listener| listener.asked.as_str()).collect();
    let pid =
        fpm.pid.as_ref().map_or(String::new(), |path| format!(", pid file {}", path.display()));
    complain(&format!(
        "serves {} in the background, on {}{pid}; `maitred stop` ends it, `maitred fpm -F` stays \
         in the foreground, `maitred fpm -h` lists the flags",
        fpm.file.display(),
        listeners.join(", "),
    ));
}

/// The end of the message of a successful test: an empty line until PHP 8.3 (php-src pull request
/// 11074).
fn end_of_test(flags: &Flags, version: Option<&str>) -> &'static str {
    let branch_of_php = || php::ask_where(&flags.php, None).branch;
    match version.map(str::to_owned).or_else(branch_of_php).as_deref() {
        Some("8.1" | "8.2") => "\n",
        _ => "",
    }
}

/// The next step.
enum NextStep {
    Server(Option<StarterPipe>),
    Done(u8),
}

/// Steps before the server's own setup: log, limits, going to the background.
fn prepare(config: &Config, settings: &Settings) -> Result<NextStep, String> {
    let Some(fpm) = &config.fpm else {
        return Ok(NextStep::Server(None));
    };
    master::limit(fpm)?;
    let mut waiting = None;
    if fpm.daemonize {
        debug!("going to the background");
        match background::go()
            .map_err(|why| format!("failed to daemonize{}", system_error(&why)))?
        {
            ForkSide::Server(starter) => waiting = Some(starter),
            ForkSide::Starter(Ok(())) => return Ok(NextStep::Done(EXIT_OK)),
            ForkSide::Starter(Err(why)) => {
                error!(target: "fpm", "{why}");
                return Ok(NextStep::Done(EXIT_SOFTWARE));
            }
        }
    } else {
        // Fails, and changes nothing, for the leader of a process group.
        let _ = rustix::process::setsid();
    }
    master::prioritize(fpm)?;
    settings.warn_of_root(config);
    settings.log_front_user(config);
    Ok(NextStep::Server(waiting))
}

fn run_server(
    started: &FpmInvocation,
    settings: Settings,
    take_over: Option<RawFd>,
    host: FpmHost,
    level: Level,
) -> u8 {
    let program = match program(&started.name, &started.before) {
        Ok(program) => program,
        Err(why) => {
            let why = system_error(&why);
            return refuse(&format!("cannot find the file of this program{why}"));
        }
    };
    let arguments = started.before.iter().chain(&started.arguments);
    let invocation = Invocation {
        program,
        arguments: arguments.cloned().collect(),
        strict: false,
        take_over,
        host: Box::new(host),
    };
    let served = maitred_supervisor::serve(source(settings), invocation, &log::as_fpm(level));
    match served {
        Ok(0) => EXIT_OK,
        Ok(_) => EXIT_SOFTWARE,
        Err(why) => {
            let code = refuse(&why.to_string());
            // After php-fpm's own lines, which programs expect in sequence.
            if let Some(remedy) = why.remedy() {
                error!(target: "fpm", "{remedy}");
            }
            code
        }
    }
}

/// The file of this program. A bare name is looked up in PATH, as by the shell: an upgrade runs the
/// file that is at the same path then, under the same name.
fn program(name: &OsStr, before: &[OsString]) -> std::io::Result<PathBuf> {
    if !before.is_empty() {
        return std::env::current_exe();
    }
    if Path::new(name).components().count() > 1 {
        return std::path::absolute(name);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
    match paths.find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => std::env::current_exe(),
    }
}

/// Redirects standard input and output to /dev/null, as php-fpm does: messages go to the log.
fn detach_streams() -> std::io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// Logs why there is no server, one line for each line of `why`, and that there is none.
fn refuse(why: &str) -> u8 {
    for line in why.lines() {
        error!(target: "fpm", "{line}");
    }
    error!(target: "fpm", "FPM initialization failed");
    EXIT_CONFIG
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(line: &str) -> Option<FpmInvocation> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        is_meant(&words)
    }

    #[test]
    fn a_name_that_begins_with_php_fpm_or_the_subcommand_means_php_fpm() {
        let version = |line: &str| started(line).and_then(|started| started.version);
        assert_eq!(version("/usr/sbin/php-fpm8.2 -F"), Some("8.2".to_owned()));
        assert_eq!(version("php-fpm-8.3"), Some("8.3".to_owned()));
        for line in ["php-fpm", "./php-fpm -t", "php-fpm.new", "maitred fpm -F"] {
            assert!(started(line).is_some(), "{line}");
            assert_eq!(version(line), None, "{line}");
        }
        for line in ["maitred serve", "maitred", "php-fpmfront: front", "maitred check fpm"] {
            assert_eq!(started(line), None, "{line}");
        }
        let title = OsString::from("php-fpm: front   ");
        assert_eq!(is_meant(&[title, "front".into()]), None);
    }

    #[test]
    fn the_order_to_take_over_stands_at_the_end() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        let mut line = words("-y f --take-over 7");
        assert_eq!(take_over(&mut line), Some(TakeOverOrder::TakeOver(7)));
        assert_eq!(line, words("-y f"));
        let mut line = words("--try-take-over 3");
        assert_eq!(take_over(&mut line), Some(TakeOverOrder::Try(3)));
        assert!(line.is_empty());
        assert_eq!(take_over(&mut words("-y --take-over")), None);
        assert_eq!(take_over(&mut words("--take-over 7 -F")), None);
    }

    #[test]
    fn what_the_system_says_is_added_as_php_fpm_adds_it() {
        let why = std::io::Error::from_raw_os_error(2);
        assert_eq!(system_error(&why), ": No such file or directory (2)");
    }
}
