//! php-fpm's command line, parsed as PHP parses it (`main/getopt.c`, `sapi/fpm/fpm/fpm_main.c`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Flags for PHP itself, before any configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Php {
    /// `-c`: a php.ini, or the folder it is in.
    pub ini: Option<PathBuf>,
    /// `-n`: no php.ini at all.
    pub no_ini: bool,
    /// `-d`: php.ini entries, in their order.
    pub defines: Vec<(String, String)>,
}

/// Flags for the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `-c`, `-n`, `-d`.
    pub php: Php,
    /// `-y`: the configuration file.
    pub config: Option<PathBuf>,
    /// `-p`: the base of relative paths.
    pub prefix: Option<PathBuf>,
    /// `-g`: the pid file, unless the configuration names one.
    pub pid: Option<PathBuf>,
    /// `-t`: test the configuration and exit; how often the flag was given.
    pub tests: u32,
    /// `-R`: pools may run as root.
    pub allow_root: bool,
    /// `-D` or `-F`: whether to go to the background; overrides the configuration.
    pub daemonize: Option<bool>,
    /// `-O`: log to standard error even if it is no terminal.
    pub force_stderr: bool,
}

/// The command of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FpmCommand {
    /// The usage, on request or because the command line is wrong.
    Usage {
        /// On request.
        wanted: bool,
    },
    /// `-v`.
    Version(Php),
    /// `-m`.
    Modules(Php),
    /// `-i`.
    Info(Php),
    /// The server, or a test of its configuration.
    Serve(Flags),
}

/// Letter, whether a value follows, long name.
const OPTIONS: [(u8, bool, &str); 17] = [
    (b'c', true, "php-ini"),
    (b'd', true, "define"),
    (b'e', false, "profile-info"),
    (b'h', false, "help"),
    (b'i', false, "info"),
    (b'm', false, "modules"),
    (b'n', false, "no-php-ini"),
    (b'?', false, "usage"),
    (b'v', false, "version"),
    (b'y', true, "fpm-config"),
    (b't', false, "test"),
    (b'p', true, "prefix"),
    (b'g', true, "pid"),
    (b'R', false, "allow-to-run-as-root"),
    (b'D', false, "daemonize"),
    (b'F', false, "nodaemonize"),
    (b'O', false, "force-stderr"),
];

/// Parses a command line without the name of the program.
pub fn read(arguments: &[OsString]) -> FpmCommand {
    let mut flags = Flags::default();
    let mut info = false;
    let mut options = Options { arguments, next: 0, letter: 0 };
    while let Some(option) = options.next() {
        let Some((letter, value)) = option else {
            return FpmCommand::Usage { wanted: false };
        };
        let path = || PathBuf::from(OsString::from_vec(value.to_vec()));
        match letter {
            b'c' => flags.php.ini = Some(path()),
            b'n' => flags.php.no_ini = true,
            b'd' => flags.php.defines.push(define(value)),
            b'y' => flags.config = Some(path()),
            b'p' => flags.prefix = Some(path()),
            b'g' => flags.pid = Some(path()),
            // Extended opcodes: PHP has them where a debugger or a profiler is loaded.
            b'e' => {}
            b't' => flags.tests += 1,
            b'm' => return FpmCommand::Modules(flags.php),
            b'i' => info = true,
            b'R' => flags.allow_root = true,
            b'D' => flags.daemonize = Some(true),
            b'F' => flags.daemonize = Some(false),
            b'O' => flags.force_stderr = true,
            b'v' => return FpmCommand::Version(flags.php),
            _ => return FpmCommand::Usage { wanted: true },
        }
    }
    if info {
        return FpmCommand::Info(flags.php);
    }
    if options.next < arguments.len() {
        return FpmCommand::Usage { wanted: false };
    }
    FpmCommand::Serve(flags)
}

/// A php.ini entry: `name=value`, or a name that is set to 1.
fn define(text: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(text);
    let (name, value) = text.split_once('=').unwrap_or((&text, "1"));
    (name.to_owned(), value.to_owned())
}

/// One option after another, until something that is none.
struct Options<'a> {
    arguments: &'a [OsString],
    /// The argument to look at.
    next: usize,
    /// The letter in it, if it holds several.
    letter: usize,
}

impl<'a> Options<'a> {
    /// The letter of the next option with its value, or nothing for what there is not.
    fn next(&mut self) -> Option<Option<(u8, &'a [u8])>> {
        let argument = self.arguments.get(self.next)?.as_bytes();
        if self.letter > 0 {
            return Some(self.short(argument));
        }
        match argument {
            b"--" => {
                self.next += 1;
                None
            }
            [b'-', b'-', name @ ..] => Some(self.long(name)),
            [b'-', _, ..] => {
                self.letter = 1;
                Some(self.short(argument))
            }
            _ => None,
        }
    }

    fn long(&mut self, text: &'a [u8]) -> Option<(u8, &'a [u8])> {
        self.next += 1;
        // An equals sign at the very end is part of the name, which there is not.
        let equals = text.iter().position(|byte| *byte == b'=');
        let equals = equals.filter(|at| at + 1 < text.len());
        let (name, value) = match equals {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        let (letter, takes, _) = OPTIONS.iter().find(|(_, _, long)| long.as_bytes() == name)?;
        let value = if *takes { self.value(value)? } else { b"" };
        Some((*letter, value))
    }

    fn short(&mut self, argument: &'a [u8]) -> Option<(u8, &'a [u8])> {
        let byte = argument.get(self.letter).copied();
        let found = OPTIONS.iter().find(|(letter, _, _)| Some(*letter) == byte);
        let rest = argument.get(self.letter + 1..).unwrap_or_default();
        let takes = found.is_some_and(|(_, takes, _)| *takes);
        if takes || rest.is_empty() {
            self.next += 1;
            self.letter = 0;
        } else {
            self.letter += 1;
        }
        let (letter, _, _) = found?;
        if !takes {
            return Some((*letter, b""));
        }
        let value = self.value(Some(rest).filter(|rest| !rest.is_empty()))?;
        Some((*letter, value))
    }

    /// A value in the same argument, after an optional equals sign, or else the next argument.
    fn value(&mut self, here: Option<&'a [u8]>) -> Option<&'a [u8]> {
        if let Some(value) = here {
            return Some(value.strip_prefix(b"=").unwrap_or(value));
        }
        let value = self.arguments.get(self.next)?;
        self.next += 1;
        Some(OsStr::as_bytes(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> FpmCommand {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        read(&words)
    }

    fn flags(line: &str) -> Flags {
        match asked(line) {
            FpmCommand::Serve(flags) => flags,
            other => panic!("{line}: {other:?}"),
        }
    }

    const WRONG: FpmCommand = FpmCommand::Usage { wanted: false };

    #[test]
    fn a_value_stands_after_its_letter_after_an_equals_sign_or_in_the_next_argument() {
        let file = Some(PathBuf::from("/f"));
        for line in ["-y /f", "-y/f", "-y=/f", "--fpm-config /f", "--fpm-config=/f"] {
            assert_eq!(flags(line).config, file, "{line}");
        }
        assert_eq!(flags("-p /p").prefix, Some(PathBuf::from("/p")));
        assert_eq!(flags("--pid=/g").pid, Some(PathBuf::from("/g")));
        assert_eq!(asked("-y"), WRONG);
        assert_eq!(asked("--fpm-config"), WRONG);
        assert_eq!(asked("--fpm-config="), WRONG);
    }

    #[test]
    fn entries_of_php_ini_may_come_in_any_number() {
        let php = flags("-dfoo=bar -d a=b=c -d on -nc /etc --define x=").php;
        let entry = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let all = [entry("foo", "bar"), entry("a", "b=c"), entry("on", "1"), entry("x", "")];
        assert_eq!(php.defines, all);
        assert!(php.no_ini);
        assert_eq!(php.ini, Some(PathBuf::from("/etc")));
    }

    #[test]
    fn letters_may_stand_together() {
        assert_eq!(flags("-tt").tests, 2);
        assert_eq!(flags("-t --test").tests, 2);
        let flags = flags("-FOR -e");
        assert_eq!(flags.daemonize, Some(false));
        assert!(flags.force_stderr && flags.allow_root);
        assert_eq!(self::flags("-F -D").daemonize, Some(true), "the last word counts");
    }

    #[test]
    fn what_is_asked_first_is_answered_with_what_was_said_before() {
        let FpmCommand::Version(php) = asked("-n -v -Z") else { panic!("a version") };
        assert!(php.no_ini);
        assert!(matches!(asked("-v -n"), FpmCommand::Version(php) if !php.no_ini));
        assert!(matches!(asked("-i -n"), FpmCommand::Info(php) if php.no_ini));
        assert!(matches!(asked("--modules"), FpmCommand::Modules(_)));
    }

    #[test]
    fn help_is_no_mistake_and_everything_unknown_is() {
        for line in ["-h", "-?", "--help", "--usage", "-nh"] {
            assert_eq!(asked(line), FpmCommand::Usage { wanted: true }, "{line}");
        }
        for line in ["-Z", "--nothing", "-nZ", "-:", "word", "-t word", "-", "--help=1x"] {
            let wrong = asked(line);
            let help = line.starts_with("--help");
            assert_eq!(wrong, FpmCommand::Usage { wanted: help }, "{line}");
        }
        assert_eq!(flags("-t --").tests, 1);
        assert_eq!(asked("-t -- word"), WRONG);
    }
}
