//! Exit codes of the commands, and what they print.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// Success.
pub const EXIT_SUCCESS: u8 = 0;

/// The command is valid, but failed.
pub const EXIT_FAILURE: u8 = 1;

/// Wrong usage or configuration; clap's exit code for usage errors.
pub const EXIT_USAGE: u8 = 2;

/// `maitred purge`: done here, but other nodes may still serve the pages.
pub const EXIT_UNCONFIRMED: u8 = 3;

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
    let mut text = String::new();
    for line in why.to_string().lines() {
        if !line.starts_with(char::is_whitespace) {
            text.push_str("maitred: ");
        }
        text.push_str(line);
        text.push('\n');
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints a line. A closed standard output is no error.
pub fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
