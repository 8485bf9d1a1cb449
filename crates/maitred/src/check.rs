//! `maitred check`: the errors of a configuration.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use maitred_config::{
    Address, Config, Destination, FastcgiListener, Listening, LoadedConfig, Section,
    SettingMistake, Upstream, mistakes_at,
};

use crate::command::Check;
use crate::exit_code::{EXIT_SUCCESS, complain, refuse};
use crate::wordpress_cron;

/// Prints the errors of a configuration file, or its validity.
pub fn check(check: &Check) -> ExitCode {
    let file = check.file();
    match maitred_config::load_with_remarks(file) {
        Ok(LoadedConfig { config, remarks, files }) => {
            let mistakes = maitred_supervisor::check(&config, file);
            let mut lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            lines.extend(no_addresses(file, &config, check.free_ports));
            let shown = file.display();
            let found = maitred_front::explain::mistakes(&config).into_iter();
            lines.extend(found.map(|why| format!("{shown}: {why}")));
            if !lines.is_empty() {
                return refuse(&lines.join("\n"));
            }
            let warnings = maitred_supervisor::warnings(&config).into_iter();
            let remarks = remarks.iter().map(ToString::to_string);
            let warnings = warnings.chain(of_uploads(file, &config));
            let refused = maitred_front::explain::refused_folders(&config).into_iter();
            let warnings = warnings.chain(refused.map(|why| format!("{shown}: {why}")));
            let warnings = warnings.chain(maitred_front::explain::htaccess_remarks(&config));
            let now = missing_sockets(&config).into_iter().chain(taken_ports(&config));
            for warning in remarks.chain(warnings).chain(now) {
                complain(&format!("warning: {warning}"));
            }
            for host in maitred_supervisor::issued_hosts(&config) {
                println!("{host}");
            }
            for note in maitred_supervisor::clock_changes(&config) {
                println!("{note}");
            }
            for note in wordpress_cron::notes(&config) {
                println!("{note}");
            }
            let (sites, pools) = (config.sites.len(), config.pools.len());
            let files = match files.len() {
                1 => String::new(),
                several => format!("{several} files, "),
            };
            let (sites, pools) = (count(sites, "site"), count(pools, "pool"));
            println!("{shown} is right: {files}{sites}, {pools}");
            ExitCode::from(EXIT_SUCCESS)
        }
        Err(mistakes) => {
            let config = mistakes.readable();
            let further = config.map(|config| maitred_supervisor::check(config, file));
            let further = further.into_iter().flatten().map(|why| why.to_string());
            let mut lines = vec![mistakes.to_string()];
            lines.extend(further);
            refuse(&lines.join("\n"))
        }
    }
}

/// Warnings about upload folders in which PHP runs. They are no errors: it may be intended.
fn of_uploads(file: &Path, config: &Config) -> Vec<String> {
    let uploads = maitred_supervisor::upload_folders(config).into_iter();
    let warnings = uploads.map(|(number, sentence)| {
        let section = Section::Site(number);
        SettingMistake { section, setting: "root", sentence }
    });
    mistakes_at(file, warnings.collect()).iter().map(ToString::to_string).collect()
}

/// Addresses that cannot be listened on here, with their places. One that is in use is an error
/// before a start only: the running server, of which this is the next configuration, may use it.
fn no_addresses(file: &Path, config: &Config, free_ports: bool) -> Vec<String> {
    let addresses = config.listening().into_iter();
    let unusable = addresses.filter_map(|listening| {
        let sentence = no_address(&listening.address(), free_ports)?;
        let (section, setting) = place_of(config, listening);
        Some(SettingMistake { section, setting, sentence })
    });
    mistakes_at(file, unusable.collect()).iter().map(ToString::to_string).collect()
}

fn no_address(address: &Address, free_ports: bool) -> Option<String> {
    match address {
        Address::Tcp(address) => {
            let error = std::net::TcpListener::bind(address).err()?;
            match error.kind() {
                ErrorKind::AddrInUse if !free_ports => None,
                ErrorKind::AddrInUse => Some(format!(
                    "another program listens on {address} (`ss -ltnp` shows which one); stop it, \
                     or choose another address in `listen`"
                )),
                _ => {
                    let address = Address::Tcp(*address);
                    Some(maitred_supervisor::Error::Listen { address, source: error }.to_string())
                }
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
    }
}

/// Ports that another program uses now, each once.
fn taken_ports(config: &Config) -> BTreeSet<String> {
    let addresses = config.listening().into_iter();
    let taken = addresses.filter_map(|listening| {
        let Address::Tcp(address) = listening.address() else {
            return None;
        };
        let error = std::net::TcpListener::bind(address).err()?;
        let holder = maitred_supervisor::other_program_on(address)
            .filter(|_| error.kind() == ErrorKind::AddrInUse)?;
        Some(format!(
            "{holder} listens on {address} now: a start fails as long as it does (`check \
             --free-ports` makes that an error)"
        ))
    });
    taken.collect()
}

/// The section and the setting of a listener.
fn place_of(config: &Config, listening: Listening<'_>) -> (Section, &'static str) {
    match listening {
        Listening::Http(_) => (Section::Server, "listen"),
        Listening::Https(_) => (Section::Tls, "listen"),
        Listening::Admin(_) | Listening::AdminSocket(_) => (Section::Server, "admin"),
        Listening::AgentCheck(_) => (Section::Server, "agent_check"),
        Listening::Fastcgi(listener) => {
            let is_own = |own: &Option<FastcgiListener>| own.as_ref() == Some(listener);
            let mut pools = config.pools.iter();
            let status = pools.clone().find(|pool| is_own(&pool.status_listener));
            let pool = pools.find(|pool| is_own(&pool.listener));
            match (pool, status) {
                (Some(pool), _) => (Section::Pool(pool.name.clone()), "listen"),
                (None, Some(pool)) => (Section::Pool(pool.name.clone()), "status_listen"),
                (None, None) => (Section::Server, "listen"),
            }
        }
    }
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
