//! Sub-commands and options of other servers, and what to write here instead: php, nginx, Apache,
//! php-fpm, Caddy, FrankenPHP, RoadRunner, Symfony's and Laravel's development servers.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Foreign names, and what to write; `{}` is the value on the command line.
struct Foreign {
    names: &'static [&'static str],
    /// The value in a sentence about an option that was given none.
    example: &'static str,
    write: &'static str,
}

const fn foreign(
    names: &'static [&'static str],
    example: &'static str,
    write: &'static str,
) -> Foreign {
    Foreign { names, example, write }
}

const COMMANDS: [Foreign; 18] = [
    foreign(&["start", "up", "server", "listen", "php-server", "dev"], "", "`maitred serve`"),
    foreign(
        &["validate", "configtest", "test", "config", "lint", "verify", "config-test"],
        "",
        "`maitred check`",
    ),
    foreign(&["log", "tail"], "", "`maitred logs --follow`"),
    foreign(
        &["restart", "graceful", "force-reload"],
        "",
        "`maitred reload`, which loses no request, or `systemctl restart maitred`",
    ),
    foreign(&["version", "ver"], "", "`maitred --version`"),
    foreign(&["quit", "shutdown", "down", "kill"], "", "`maitred stop`"),
    foreign(&["ps", "workers", "list", "info"], "", "`maitred status`, or `maitred top`"),
    foreign(&["monitor", "watch"], "", "`maitred top`"),
    foreign(&["clear", "cache:clear", "flush", "clear-cache"], "", "`maitred purge --everything`"),
    foreign(
        &["upgrade", "update"],
        "",
        "`kill -USR2` of the server, after its program is replaced",
    ),
    foreign(&["reopen", "rotate"], "", "`kill -USR1` of the server"),
    foreign(&["route", "routes", "dump"], "", "`maitred explain URL`"),
    foreign(&["benchmark", "ab", "wrk"], "", "`maitred bench URL`"),
    foreign(&["completion"], "", "`maitred completions SHELL`"),
    foreign(&["server:ca:install", "ca:install"], "", "`maitred trust`"),
    foreign(&["server:ca:uninstall", "untrust"], "", "`maitred trust --remove`"),
    foreign(&["php-fpm", "fastcgi"], "", "`maitred fpm`"),
    foreign(&["php", "php-cli", "exec"], "", "`php`: maitred only serves"),
];

const OPTIONS: [Foreign; 31] = [
    foreign(&["--port", "-p"], "8000", "`maitred serve --listen {}`"),
    foreign(
        &["--host", "--bind", "-b", "-H", "--address", "--addr"],
        "127.0.0.1",
        "`maitred serve --listen {}:8080`",
    ),
    foreign(&["-S", "-l", "-a", "--http"], "localhost:8000", "`maitred serve --listen {}`"),
    foreign(
        &["--root", "--docroot", "--document-root", "--dir", "--directory", "-r"],
        "public/",
        "`maitred serve {}`",
    ),
    foreign(&["-t", "--test", "--configtest", "-T"], "", "`maitred check`"),
    foreign(&["-c", "-f", "-y", "--conf", "--configuration"], "FILE", "`--config {}`"),
    foreign(&["-s", "-k", "--signal"], "reload", "`maitred {}`"),
    foreign(&["-v", "-version", "--ver"], "", "`maitred --version`"),
    foreign(
        &["-w", "--worker-num", "--max-children", "--num-workers", "--processes"],
        "8",
        "`--workers {}`",
    ),
    foreign(&["--max-requests"], "500", "`max_requests = {}` in the pool of a configuration file"),
    foreign(&["--threads", "--thread"], "2", "`front_threads = {}` in a configuration file"),
    foreign(
        &["--php", "--php-version"],
        "8.2",
        "`MAITRED_POOL_PHP={} maitred serve`, or `php = \"{}\"` in the pool of a file",
    ),
    foreign(&["--define", "--ini-set", "--php-value"], "memory_limit=1G", "`-d {}`"),
    foreign(
        &["--php-ini", "--ini"],
        "php.ini",
        "`MAITRED_POOL_PHP_INI={} maitred serve`, or `php_ini` in the pool of a configuration file",
    ),
    foreign(&["-e", "--environment", "--set-env"], "APP_ENV=dev", "`--env {}`"),
    foreign(&["--env-file", "--envfile"], ".env", "`set -a; . ./{}; maitred serve`"),
    foreign(&["--reload", "--hot", "--poll", "--auto-reload"], "", "`--watch` with `--config`"),
    foreign(
        &["--tls", "--ssl"],
        "",
        "`--https` for a folder during development, or `[tls]` in a configuration file",
    ),
    foreign(&["--browser", "--launch"], "", "`--open`"),
    foreign(&["--domain", "--server-name"], "example.com", "`hosts = [\"{}\"]` in `[[sites]]`"),
    foreign(
        &["--access-log"],
        "stderr",
        "`MAITRED_ACCESS_LOG={} maitred serve`, or `access_log` in a configuration file",
    ),
    foreign(
        &["--error-log", "--log", "--log-file"],
        "FILE",
        "`error_log = \"{}\"` in a configuration file",
    ),
    foreign(&["--quiet", "-q", "--silent"], "", "`--log-level error`"),
    foreign(&["--verbose", "--debug", "-vv", "-vvv"], "", "`--log-level debug`"),
    foreign(
        &["--daemon", "--daemonize", "-D", "--background", "--detach"],
        "",
        "`systemctl start maitred`: `maitred serve` stays in the foreground",
    ),
    foreign(&["--foreground", "-F", "--nodaemonize", "-X"], "", "nothing: it is so by default"),
    foreign(&["--pid", "--pid-file", "--pidfile"], "", "nothing: `maitred stop` needs no pid"),
    foreign(
        &["--user", "-u", "--group", "-g"],
        "www-data",
        "`user` in a pool of a configuration file",
    ),
    foreign(
        &["--worker", "--worker-script"],
        "FILE",
        "`mode = \"worker\"` and `script = \"{}\"` in a pool",
    ),
    foreign(&["--development", "--mode"], "", "`--dev`, or `--production`"),
    foreign(&["--no-dev", "--prod", "--no-debug"], "", "`--production`"),
];

/// One sentence about a wrong command line, if another server has that word.
pub fn advice(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let words: Vec<String> =
        arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            command_advice(&text_of(error, ContextKind::InvalidSubcommand)?)
        }
        ErrorKind::UnknownArgument => {
            option_advice(&text_of(error, ContextKind::InvalidArg)?, &words)
        }
        _ => None,
    }
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

fn command_advice(command: &str) -> Option<String> {
    if let Some(known) = COMMANDS.iter().find(|known| known.names.contains(&command)) {
        return Some(format!("there is no command `{command}`; write {}", known.write));
    }
    let path = Path::new(command);
    let is_file = path.extension().is_some_and(|end| end == "toml") && path.is_file();
    let write = match (path.is_dir(), is_file) {
        (true, _) => format!("`maitred serve {command}`"),
        (_, true) => format!("`maitred serve --config {command}`"),
        _ => return None,
    };
    Some(format!("`{command}` is no command; write {write}"))
}

/// `option` is the unknown one among the words of the command line.
fn option_advice(option: &str, words: &[String]) -> Option<String> {
    let (name, attached) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    let known = OPTIONS.iter().find(|known| known.names.contains(&name))?;
    let given = attached.map(str::to_owned).or_else(|| value_of(name, words));
    let value = match given {
        Some(value) if !known.example.is_empty() => value,
        _ => known.example.to_owned(),
    };
    Some(format!("there is no option `{name}`; write {}", known.write.replace("{}", &value)))
}

/// The value of an option: `--name=value`, `--name value`, `-nvalue` or `-n value`.
fn value_of(name: &str, words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word.starts_with(name))?;
    let rest = words[at][name.len()..].trim_start_matches('=');
    if !rest.is_empty() {
        return Some(rest.to_owned());
    }
    words.get(at + 1).filter(|next| !next.starts_with('-')).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Maitred;
    use clap::{CommandFactory, Parser};
    use std::collections::BTreeSet;

    fn said(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Maitred::try_parse_from(&words).expect_err("it is wrong");
        advice(&error, &words)
    }

    #[test]
    fn a_foreign_word_is_replaced_with_ours_and_its_value() {
        for (line, write) in [
            (
                "maitred serve --port 8000",
                "no option `--port`; write `maitred serve --listen 8000`",
            ),
            ("maitred serve --port=81 public/", "write `maitred serve --listen 81`"),
            ("maitred serve -p8000", "no option `-p`; write `maitred serve --listen 8000`"),
            ("maitred serve -p", "write `maitred serve --listen 8000`"),
            ("maitred -S localhost:9000", "write `maitred serve --listen localhost:9000`"),
            (
                "maitred serve --host 0.0.0.0 --port 1",
                "write `maitred serve --listen 0.0.0.0:8080`",
            ),
            ("maitred serve --root web", "write `maitred serve web`"),
            ("maitred serve --php 8.4", "`php = \"8.4\"` in the pool"),
            ("maitred -t", "write `maitred check`"),
            ("maitred start", "no command `start`; write `maitred serve`"),
            ("maitred validate", "write `maitred check`"),
            ("maitred restart", "write `maitred reload`"),
            ("maitred serve --ssl", "write `--https` for a folder"),
            ("maitred server:ca:install", "write `maitred trust`"),
            ("maitred version", "write `maitred --version`"),
            ("maitred src", "write `maitred serve src`"),
        ] {
            let said = said(line).unwrap_or_default();
            assert!(said.contains(write), "{line}: {said}");
        }
        assert_eq!(said("maitred serve --lisen 80"), None, "clap names the nearest option");
        assert_eq!(said("maitred sevre"), None);
    }

    #[test]
    fn every_foreign_word_stands_once_and_is_none_of_ours() {
        let command = Maitred::command();
        let own: BTreeSet<String> = command
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .chain(command.get_subcommands().flat_map(|sub| {
                sub.get_arguments().filter(|_| sub.get_name() == "serve").flat_map(|argument| {
                    let long = argument.get_long().map(|long| format!("--{long}"));
                    long.into_iter().chain(argument.get_short().map(|short| format!("-{short}")))
                })
            }))
            .collect();
        let mut seen = BTreeSet::new();
        for name in COMMANDS.iter().chain(&OPTIONS).flat_map(|foreign| foreign.names) {
            assert!(seen.insert(*name), "{name} stands twice");
            assert!(!own.contains(*name), "{name} is ours");
        }
    }
}
