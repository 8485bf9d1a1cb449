//! Exit codes of the commands, and what they print.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use maitred_text::humanize::printable_pattern;

/// Success.
pub const EXIT_SUCCESS: u8 = 0;

/// The command is valid, but failed.
pub const EXIT_FAILURE: u8 = 1;

/// Wrong usage or configuration; clap's exit code for usage errors.
pub const EXIT_USAGE: u8 = 2;

/// `maitred purge`: done here, but other nodes may still serve the pages.
pub const EXIT_UNCONFIRMED: u8 = 3;

/// A signal has interrupted it; the exit code of a shell for SIGINT.
pub const EXIT_STOPPED: u8 = 130;

/// Prints an error of usage or configuration.
pub fn refuse(why: &impl Display) -> ExitCode {
    complain(why);
    ExitCode::from(EXIT_USAGE)
}

/// Prints why a valid command failed.
pub fn fail(why: &impl Display) -> ExitCode {
    complain(why);
    ExitCode::from(EXIT_FAILURE)
}

/// Prints messages on standard error, each line with the program's name; an indented one continues
/// the one before it. `eprintln!` would panic if standard error is closed, and change the exit
/// code.
pub fn complain(why: &impl Display) {
    let _ = std::io::stderr().write_all(complaint(&why.to_string()).as_bytes());
}

/// The lines for standard error. Messages may have text of sites' pages and files.
fn complaint(why: &str) -> String {
    let mut text = String::new();
    for line in why.lines() {
        if !line.starts_with(char::is_whitespace) {
            text.push_str("maitred: ");
        }
        text.push_str(&printable_pattern(line));
        text.push('\n');
    }
    text
}

/// Prints a line. A closed standard output is no error.
pub fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_programs_name_and_none_has_a_control_character() {
        let why = "http://a.example/\u{9b}2J fails\n  \x1b]0;x\x07";
        let text = "maitred: http://a.example/\\u{9b}2J fails\n  \\u{1b}]0;x\\u{7}\n";
        assert_eq!(complaint(why), text);
    }
}
