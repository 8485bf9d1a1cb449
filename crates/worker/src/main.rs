//! `maitred-php`: a pool's zygote and its workers. Started by maitred, one per pool and PHP
//! version; it has one thread, and everything it needs to know comes over its control channel.

mod exchange;
mod memory;
mod package;
mod seat;
mod sight;
mod status;
mod warm;
mod zygote;

use std::process::ExitCode;

const USAGE: &str = "maitred-php is started by maitred and serves nobody by itself; run `maitred \
                     serve` instead.";

fn main() -> ExitCode {
    maitred_os::title::prepare();
    let role = std::env::args().nth(1);
    match role.as_deref() {
        Some("zygote") => zygote::run(),
        Some("--version") => {
            println!("maitred-php {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
