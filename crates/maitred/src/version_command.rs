//! `maitred --version`: the version, the commit, and every PHP that can be served.

use std::process::ExitCode;

use crate::exit_code::{EXIT_SUCCESS, print_line};

/// Prints the version.
pub fn version() -> ExitCode {
    let commit = option_env!("MAITRED_COMMIT").map(|commit| format!(" (commit {commit})"));
    print_line(&format!("maitred {}{}", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default()));
    let programs = maitred_supervisor::php_programs();
    if programs.is_empty() {
        print_line("no PHP: no maitred-php that runs is installed");
    }
    for (program, php) in programs {
        print_line(&format!("PHP {php} ({})", program.display()));
    }
    ExitCode::from(EXIT_SUCCESS)
}
