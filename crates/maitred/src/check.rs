//! `maitred check`: is this configuration right?

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use maitred_config::{Address, Config, Destination, Mistake, Section, Upstream, place_of_setting};

use crate::command::Check;
use crate::{EXIT_SUCCESS, complain, refuse};

/// Says what is wrong with a configuration file, or that nothing is.
pub fn check(check: &Check) -> ExitCode {
    match maitred_config::load_with_remarks(&check.config) {
        Ok((config, remarks)) => {
            let mistakes = maitred_supervisor::check(&config, &check.config);
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
            let warnings = maitred_supervisor::warnings(&config).into_iter();
            let remarks = remarks.iter().map(ToString::to_string);
            let warnings = warnings.chain(of_roots(&check.config, &config));
            let refused = maitred_front::explain::refused_folders(&config).into_iter();
            let warnings = warnings.chain(refused.map(|why| format!("{file}: {why}")));
            for warning in remarks.chain(warnings).chain(nobody_behind(&config)) {
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

/// Document roots that are closed to the front, which would end, and that have folders for uploads
/// in which PHP runs. No mistakes: the former may be opened yet, and the latter may be meant so.
fn of_roots(file: &Path, config: &Config) -> Vec<String> {
    let closed = maitred_supervisor::closed_roots(config).into_iter();
    let uploads = maitred_supervisor::upload_folders(config).into_iter();
    let warnings = closed.chain(uploads).map(|(number, sentence)| Mistake {
        file: file.to_path_buf(),
        place: place_of_setting(file, &Section::Site(number), "root"),
        sentence,
    });
    warnings.map(|warning| warning.to_string()).collect()
}

/// Addresses that nobody could listen on here. One that is in use may well be so by the server that
/// this is the next configuration of.
fn no_addresses(config: &Config) -> impl Iterator<Item = String> + '_ {
    let addresses = config.listening().into_iter();
    addresses.filter_map(|listening| match listening.address() {
        Address::Tcp(address) => {
            let error = std::net::TcpListener::bind(address).err()?;
            let is_wrong = error.kind() != std::io::ErrorKind::AddrInUse;
            is_wrong.then(|| format!("{address} cannot be listened on: {error}"))
        }
        Address::Unix(path) => {
            let has_folder = path.parent().is_some_and(Path::is_dir);
            (!has_folder).then(|| {
                format!(
                    "{} cannot be listened on: its folder does not exist; make it, or correct \
                         `listen`",
                    path.display()
                )
            })
        }
    })
}

/// Sockets of other servers (`upstream`, `proxy`) that are not there now, each once. These may be
/// started later.
fn nobody_behind(config: &Config) -> BTreeSet<String> {
    let sites = config.sites.iter();
    let servers = sites.flat_map(|site| {
        let upstream = match &site.destination {
            Destination::Upstream(upstream) => Some(upstream),
            Destination::Pool(_) => None,
        };
        let proxies = site.rules.proxy.iter().map(|rule| &rule.to);
        upstream.into_iter().chain(proxies)
    });
    let missing = servers.filter_map(|server| match server {
        Upstream::Unix(path) if !path.exists() => Some(format!(
            "nobody listens on {} yet: what is asked of that server is a 502 until somebody does",
            path.display()
        )),
        _ => None,
    });
    missing.collect()
}

fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}
