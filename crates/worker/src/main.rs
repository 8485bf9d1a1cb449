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
mod memory;
mod meter;
mod opcache_stats;
mod package;
mod purge;
mod request_report;
mod seat;
mod shared_descriptors;
mod snapshot;
mod stack_reader;
mod status;
mod stderr;
mod warm;
mod zygote;

use std::path::PathBuf;
use std::process::ExitCode;

use maitred_php::{Engine, PHP_BRANCH, Settings};

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

fn main() -> ExitCode {
    maitred_os::title::prepare();
    let role = std::env::args().nth(1);
    match role.as_deref() {
        Some("zygote") => zygote::run(),
        Some("fpm-info") => fpm_info::run(std::env::args().skip(2)),
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
