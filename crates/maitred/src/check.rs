//! `maitred check`: the errors of a configuration.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use maitred_config::{Address, Config, Destination, Mistake, Section, Upstream, place_of_setting};

use crate::command::Check;
use crate::exit_code::{EXIT_SUCCESS, complain, refuse};

/// Prints the errors of a configuration file, or its validity.
pub fn check(check: &Check) -> ExitCode {
    match maitred_config::load_with_remarks(&check.config) {
        Ok((config, remarks)) => {
            let mistakes = maitred_supervisor::check(&config, &check.config);
            let mut lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            let file = check.config.display();
            let found = maitred_front::explain::mistakes(&config).into_iter();
            lines.extend(
                found
                    .chain(no_addresses(&config, check.free_ports))
                    .map(|why| format!("{file}: {why}")),
            );
            if !lines.is_empty() {
                return refuse(&lines.join("\n"));
            }
            let warnings = maitred_supervisor::warnings(&config).into_iter();
            let remarks = remarks.iter().map(ToString::to_string);
            let warnings = warnings.chain(of_uploads(&check.config, &config));
            let refused = maitred_front::explain::refused_folders(&config).into_iter();
            let warnings = warnings.chain(refused.map(|why| format!("{file}: {why}")));
            for warning in remarks.chain(warnings).chain(missing_sockets(&config)) {
                complain(&format!("warning: {warning}"));
            }
            for host in maitred_supervisor::issued_hosts(&config) {
                println!("{host}");
            }
            let (sites, pools) = (config.sites.len(), config.pools.len());
            println!("{file} is right: {}, {}", count(sites, "site"), count(pools, "pool"));
            ExitCode::from(EXIT_SUCCESS)
        }
        Err(mistakes) => refuse(&mistakes),
    }
}

/// Warnings about upload folders in which PHP runs. They are no errors: it may be intended.
fn of_uploads(file: &Path, config: &Config) -> Vec<String> {
    let uploads = maitred_supervisor::upload_folders(config).into_iter();
    let warnings = uploads.map(|(number, sentence)| Mistake {
        file: file.to_path_buf(),
        place: place_of_setting(file, &Section::Site(number), "root"),
        sentence,
    });
    warnings.map(|warning| warning.to_string()).collect()
}

/// Addresses that cannot be listened on here. One that is in use is an error before a start only:
/// the running server, of which this is the next configuration, may use it.
fn no_addresses(config: &Config, free_ports: bool) -> impl Iterator<Item = String> + '_ {
    let addresses = config.listening().into_iter();
    addresses.filter_map(move |listening| match listening.address() {
        Address::Tcp(address) => {
            let error = std::net::TcpListener::bind(address).err()?;
            match error.kind() {
                ErrorKind::AddrInUse if !free_ports => None,
                ErrorKind::AddrInUse => Some(format!(
                    "another program listens on {address} (`ss -ltnp` shows which one); stop it, \
                     or choose another address in `listen`"
                )),
                _ => Some(format!("cannot listen on {address}: {error}")),
            }
        }
        Address::Unix(path) => {
            let has_folder = path.parent().is_some_and(Path::is_dir);
            (!has_folder).then(|| {
                format!(
                    "cannot listen on {}: its folder does not exist; create it, or correct \
                     `listen`",
                    path.display()
                )
            })
        }
    })
}

/// Missing sockets of other servers (`upstream`, `proxy`), each once. Those may start later.
fn missing_sockets(config: &Config) -> BTreeSet<String> {
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
            "no server listens on {} yet: until one does, its requests get a 502",
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
