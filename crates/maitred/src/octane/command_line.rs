//! FrankenPHP's command line, as far as Laravel Octane uses it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What a command line in place of FrankenPHP's asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum OctaneCommand {
    /// `build-info`: the versions of what the program is made of.
    BuildInfo,
    /// `version`.
    Version,
    /// `run`: serve the application of this Caddyfile.
    Run {
        /// The Caddyfile.
        caddyfile: PathBuf,
    },
    /// `php-cli`: the system's PHP with these arguments.
    PhpCli(Vec<OsString>),
    /// Nothing that this program does: one sentence.
    Refused(String),
}

/// Reads the arguments after the program's name.
pub fn read(arguments: &[OsString]) -> OctaneCommand {
    let Some((command, rest)) = arguments.split_first() else {
        return OctaneCommand::Refused(unknown(None));
    };
    match command.to_string_lossy().as_ref() {
        "build-info" => OctaneCommand::BuildInfo,
        "version" | "--version" | "-v" => OctaneCommand::Version,
        "php-cli" => OctaneCommand::PhpCli(rest.to_vec()),
        "run" => run(rest),
        _ => OctaneCommand::Refused(unknown(Some(command))),
    }
}

fn unknown(command: Option<&OsStr>) -> String {
    let found = match command {
        Some(command) => format!("`{}` is not one of them", command.to_string_lossy()),
        None => "no command is given".to_owned(),
    };
    format!(
        "{found}: in place of FrankenPHP, maitred has the commands `run`, `build-info`, `version` \
         and `php-cli`, for php artisan octane:start --server=frankenphp; to serve anything else, \
         see `maitred serve --help`"
    )
}

/// `run -c CADDYFILE -a caddyfile`.
fn run(arguments: &[OsString]) -> OctaneCommand {
    let mut caddyfile = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
            _ => (text.as_ref(), None),
        };
        match name {
            "-c" | "--config" => match value.or_else(|| rest.next().cloned()) {
                Some(file) => caddyfile = Some(PathBuf::from(file)),
                None => return OctaneCommand::Refused(format!("{name}: expected a Caddyfile")),
            },
            "-a" | "--adapter" => {
                let adapter = value.or_else(|| rest.next().cloned()).unwrap_or_default();
                if adapter != "caddyfile" {
                    return OctaneCommand::Refused(format!(
                        "{name} {}: maitred reads Caddyfiles only; expected `caddyfile`",
                        adapter.to_string_lossy()
                    ));
                }
            }
            _ => {
                return OctaneCommand::Refused(format!(
                    "run has no option `{name}` in maitred; expected `run -c CADDYFILE`"
                ));
            }
        }
    }
    match caddyfile {
        Some(caddyfile) => OctaneCommand::Run { caddyfile },
        None => OctaneCommand::Refused("run: expected `-c CADDYFILE`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> OctaneCommand {
        read(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_commands_of_octane_are_known() {
        let caddyfile = PathBuf::from("/srv/shop/Caddyfile");
        for words in [
            "run -c /srv/shop/Caddyfile",
            "run --config /srv/shop/Caddyfile --adapter caddyfile",
            "run -a caddyfile --config=/srv/shop/Caddyfile",
        ] {
            assert_eq!(line(words), OctaneCommand::Run { caddyfile: caddyfile.clone() }, "{words}");
        }
        assert_eq!(line("build-info"), OctaneCommand::BuildInfo);
        assert_eq!(line("--version"), OctaneCommand::Version);
        let arguments = ["-r".into(), "echo".into()].to_vec();
        assert_eq!(line("php-cli -r echo"), OctaneCommand::PhpCli(arguments));
    }

    #[test]
    fn everything_else_is_one_sentence() {
        let lines = ["", "php-server --listen :80", "run", "run -c", "run -c a --watch", "start"];
        for words in lines.into_iter().chain(["run -a json -c a"]) {
            let OctaneCommand::Refused(why) = line(words) else {
                panic!("{words} is accepted");
            };
            assert!(!why.contains('\n') && why.contains("expected") || why.contains("php-cli"));
        }
    }
}
