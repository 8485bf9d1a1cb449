//! `maitred leaks`: finds state that requests in worker mode leak to the next request.
//!
//! It starts a server with one worker of the pool. A script that is prepended to the worker's
//! inspects the process between two requests (`look.php`).

mod findings;
mod server;
mod watched_config;

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use maitred_config::{Config, Mode, Pool, Site};
use maitred_front::Hosts;
use maitred_measure::url::Url;
use tempfile::TempDir;

use crate::command::Leaks;
use crate::exit_code::{EXIT_STOPPED, EXIT_SUCCESS, complain, fail, refuse};
use crate::private_server::stop_on_signals;
use findings::{Findings, Visit};
use server::WatchedServer;
use watched_config::Trial;

/// State leaks.
const EXIT_LEAKS: u8 = 3;

/// Sends the requests, and prints the leaks.
pub fn leaks(asked: &Leaks) -> ExitCode {
    let config = match maitred_config::load(&asked.config) {
        Ok(config) => config,
        Err(mistakes) => return refuse(&mistakes),
    };
    let asks: Result<Vec<_>, _> = asked.urls.iter().map(|url| LeakRequest::of(url)).collect();
    let meant = asks.and_then(|asks| meant(&config, &asks).map(|(site, pool)| (asks, site, pool)));
    let (asks, site, pool) = match meant {
        Ok(meant) => meant,
        Err(why) => return refuse(&why),
    };
    let Prepared { users_folder, client, folder, stopped } = match prepare(&config) {
        Ok(prepared) => prepared,
        Err(why) => return fail(&why),
    };
    let users_folder = users_folder.as_deref();
    let trial = Trial { config: &config, site, pool, users_folder, client };
    let server = WatchedServer::start(&trial, folder, &stopped);
    let steps = match server.and_then(|server| watch(server, &asks, asked.rounds)) {
        Ok(steps) => steps,
        Err(_) if stopped.load(Ordering::SeqCst) => {
            complain(&"it was interrupted");
            return ExitCode::from(EXIT_STOPPED);
        }
        Err(why) => return fail(&why),
    };
    let found = Findings::of(&steps, asks.len());
    let json = serde_json::to_string(&found).unwrap_or_default();
    if let Err(why) = asked.json.publish(&json, || found.text()) {
        return fail(&why);
    }
    ExitCode::from(if found.is_clean() { EXIT_SUCCESS } else { EXIT_LEAKS })
}

/// What the server needs besides the configuration.
struct Prepared {
    /// The folder with the private folders of pools' users that `private_dir` does not name.
    users_folder: Option<PathBuf>,
    /// The only client that may use the site.
    client: Ipv6Addr,
    /// The folder of the server's files.
    folder: TempDir,
    /// Whether a signal has arrived.
    stopped: Arc<AtomicBool>,
}

fn prepare(config: &Config) -> Result<Prepared, String> {
    let users_folder = maitred_supervisor::make_users_folder(config).map_err(|why| {
        format!(
            "the folder of the users' private folders cannot be made: {why}; set `private_dir` to \
             a directory of root's"
        )
    })?;
    let (client, folder) = (server::new_client()?, server::new_folder()?);
    let stopped = stop_on_signals(folder.path());
    let stopped = stopped.map_err(|why| format!("cannot wait for signals: {why}"))?;
    Ok(Prepared { users_folder, client, folder, stopped })
}

/// A request to send.
struct LeakRequest {
    /// The host; `None`: that of the first site.
    host: Option<String>,
    target: String,
}

impl LeakRequest {
    fn of(url: &str) -> Result<LeakRequest, String> {
        if url.starts_with('/') {
            return Ok(LeakRequest { host: None, target: url.to_owned() });
        }
        let place = Url::read(url, None)?;
        Ok(LeakRequest { host: Some(place.host), target: place.path })
    }
}

/// The site of all these requests, and its pool in worker mode.
fn meant<'a>(config: &'a Config, asks: &[LeakRequest]) -> Result<(&'a Site, &'a Pool), String> {
    let hosts = Hosts::of(&config.sites);
    let number = |ask: &LeakRequest| match &ask.host {
        Some(host) => {
            hosts.site_for(host).ok_or_else(|| format!("{host} is no host of the configuration"))
        }
        None => Ok(0),
    };
    let numbers: Vec<usize> = asks.iter().map(number).collect::<Result<_, _>>()?;
    let first = numbers.first().copied().unwrap_or(0);
    if numbers.iter().any(|number| *number != first) {
        return Err("the URLs are of several sites; name those of one".to_owned());
    }
    let site = config.sites.get(first);
    let site = site.ok_or("there is no site in the configuration")?;
    let mut pools = config.pools.iter();
    let booted =
        pools.find(|pool| pool.mode == Mode::Worker && site.pools().any(|name| name == pool.name));
    let pool = booted.ok_or_else(|| {
        let root = site.root.display();
        format!(
            "no pool of the site {root} has mode = \"worker\", and where every request starts from \
                 nothing, nothing is left behind"
        )
    })?;
    if pool.confinement.chroot.is_some() {
        return Err(format!(
            "pool `{}` has a chroot, which maitred leaks cannot inspect; try it without",
            pool.name
        ));
    }
    Ok((site, pool))
}

/// Sends all requests in turn, `rounds` times, and inspects the worker after each.
fn watch(
    mut server: WatchedServer,
    asks: &[LeakRequest],
    rounds: u16,
) -> Result<Vec<Visit>, String> {
    if let Some(why) = server.limits_not_kept() {
        complain(&why);
    }
    let mut steps = Vec::new();
    for _ in 0..rounds {
        for ask in asks {
            let host = ask.host.as_deref().unwrap_or("localhost");
            let status = server.get(host, &ask.target)?;
            steps.push(Visit { target: ask.target.clone(), status, look: server.look()? });
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(lines: &str) -> Config {
        let text = format!(
            "[pools.www]\n{lines}\n[[sites]]\nhosts = [\"a.example\"]\nroot = \"/\"\n\
             pool = \"www\"\n"
        );
        maitred_config::parse(&text, Path::new("/maitred.toml")).unwrap()
    }

    fn refused(config: &Config, url: &str) -> String {
        meant(config, &[LeakRequest::of(url).unwrap()]).unwrap_err()
    }

    #[test]
    fn only_a_pool_in_worker_mode_is_watched() {
        let classic = config("");
        assert!(refused(&classic, "/").contains("nothing is left behind"));
        assert!(refused(&classic, "http://b.example/").contains("no host"));
        let worker = config("mode = \"worker\"\nscript = \"/etc/passwd\"");
        let asks = [LeakRequest::of("http://a.example/x?y").unwrap()];
        assert_eq!(asks[0].target, "/x?y");
        assert_eq!(meant(&worker, &asks).unwrap().1.name, "www");
    }
}
