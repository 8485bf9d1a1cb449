//! `maitred check`: is this configuration right?

use std::process::ExitCode;

use maitred_config::{Address, Config};

use crate::command::Check;
use crate::{EXIT_SUCCESS, complain, refuse};

/// Says what is wrong with a configuration file, or that nothing is.
pub fn check(check: &Check) -> ExitCode {
    match maitred_config::load(&check.config) {
        Ok(config) => {
            let mistakes = maitred_supervisor::check(&config);
            let mut lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            let file = check.config.display();
            let found = maitred_front::explain::mistakes(&config).into_iter();
            lines.extend(
                found
                    .chain(no_addresses(&config))
                    .map(|why| format!("{file}: {why}")),
            );
            if !lines.is_empty() {
                return refuse(&lines.join("\n"));
            }
            for warning in maitred_supervisor::warnings(&config) {
                complain(&format!("warning: {warning}"));
            }
            for host in maitred_supervisor::issued_hosts(&config) {
                println!("{host}");
            }
            let (sites, pools) = (config.sites.len(), config.pools.len());
            println!(
                "{file} is right: {}, {}",
                count(sites, "site"),
                count(pools, "pool")
            );
            ExitCode::from(EXIT_SUCCESS)
        }
        Err(mistakes) => refuse(&mistakes),
    }
}

/// Addresses that nobody could listen on here. One that is in use may well be so by the server that
/// this is the next configuration of.
fn no_addresses(config: &Config) -> impl Iterator<Item = String> + '_ {
    let addresses = config.listening().into_iter();
    addresses.filter_map(|listening| {
        let Address::Tcp(address) = listening.address() else {
            return None;
        };
        let error = std::net::TcpListener::bind(address).err()?;
        let is_wrong = error.kind() != std::io::ErrorKind::AddrInUse;
        is_wrong.then(|| format!("{address} cannot be listened on: {error}"))
    })
}

fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}
