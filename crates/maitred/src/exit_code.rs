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

/// Prints a line on standard error. `eprintln!` would panic if that is closed, and change the exit
/// code.
pub fn complain(why: &impl Display) {
    let _ = writeln!(std::io::stderr(), "maitred: {why}");
}

/// Prints a line. A closed standard output is no error.
pub fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
