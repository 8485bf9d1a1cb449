//! `maitred-php`: a pool's zygote and its workers. Started by maitred, one per pool and PHP
//! version; it has one thread, and receives all its settings over its control channel.

mod apparmor;
mod booted;
mod confine;
mod copies;
mod error_page;
mod exchange;
mod foreign;
mod fpm_info;
mod ini_files;
mod launch;
mod memory;
mod meter;
mod opcache_stats;
mod package;
mod pool_values;
mod preload;
mod private_folder;
mod purge;
mod request_report;
mod seat;
mod shared_descriptors;
mod snapshot;
mod stack_reader;
mod stack_sampler;
mod status;
mod stderr;
mod warm;
mod zygote;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use maitred_control::launch::{CLI_ROLE, LAUNCH_ROLE};
use maitred_php::{Engine, PHP_BRANCH, Settings, write_direct_calls};

const USAGE: &str = "maitred-php is started by maitred; run `maitred serve` instead.";

/// Prints the PHP version that this program was built for and the one it runs with. maitred parses
/// the last word when it searches for the program of a PHP version.
fn version() {
    let bare = Settings {
        ini_path: Some("/dev/null".into()),
        ini_scan_dir: Some(PathBuf::new()),
        ..Settings::default()
    };
    let own = env!("CARGO_PKG_VERSION");
    match Engine::start(&bare) {
        Ok(engine) => {
            println!("maitred-php {own}, built for PHP {PHP_BRANCH}, runs PHP {}", engine.version())
        }
        Err(why) => println!("maitred-php {own}, built for PHP {PHP_BRANCH}, runs none: {why}"),
    }
}

/// Writes a copy of libphp's code, with direct calls, to standard output: an anonymous file that
/// maitred passes to zygotes.
fn direct_calls() -> ExitCode {
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    match output.and_then(|file| write_direct_calls(&File::from(file))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("maitred-php: libphp's code could not be copied: {error}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    maitred_os::title::prepare();
    let role = std::env::args().nth(1);
    match role.as_deref() {
        Some("zygote") => zygote::run(),
        Some("fpm-info") => fpm_info::run(std::env::args().skip(2)),
        Some("direct-calls") => direct_calls(),
        Some(LAUNCH_ROLE) => launch::run(),
        Some(CLI_ROLE) => launch::find_cli(),
        Some("--version") => {
            version();
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
