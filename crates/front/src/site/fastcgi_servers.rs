//! The FastCGI servers of the configuration: a handler of a `.htaccess` file may name one that does
//! not run the scripts of its site.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use maitred_config::{Address, Config, Destination, Upstream};
use maitred_htaccess::handlers::fcgi_server;

use crate::backend::fastcgi_upstream;

/// The host of this machine in a handler.
const LOCALHOST: &str = "localhost:";

/// FastCGI servers by their addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastcgiServers(HashMap<String, FastcgiServer>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum FastcgiServer {
    /// The pool of this name, which has a `listen`.
    Pool(String),
    /// The `upstream` of a site.
    Upstream,
}

/// What runs the scripts of a path.
#[derive(Debug, Clone, Copy)]
pub enum ScriptRunner<'a> {
    /// The pool of this name.
    Pool(&'a str),
    /// An upstream FastCGI server.
    Upstream(&'a Upstream),
}

impl FastcgiServers {
    /// The servers of a configuration with `.htaccess` files; none without such files.
    pub fn of(config: &Config) -> FastcgiServers {
        if !config.sites.iter().any(|site| site.rules.htaccess) {
            return FastcgiServers::default();
        }
        let upstreams = config.sites.iter().filter_map(|site| match &site.destination {
            Destination::Upstream(upstream) => Some((key_of(upstream), FastcgiServer::Upstream)),
            Destination::Pool(_) => None,
        });
        let pools = config.pools.iter().filter_map(|pool| {
            let listen = &pool.listener.as_ref()?.listen;
            Some((key(&listened(listen)), FastcgiServer::Pool(pool.name.clone())))
        });
        FastcgiServers(upstreams.chain(pools).collect())
    }

    /// Why a script does not run by a handler, in small letters, that passes it to a server of the
    /// configuration: another one runs the scripts here.
    pub fn refusal(&self, handler: &[u8], runner: ScriptRunner<'_>) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let address = key(&fcgi_server(handler)?);
        let server = match (self.0.get(&address)?, runner) {
            (FastcgiServer::Pool(pool), ScriptRunner::Pool(own)) if pool == own => return None,
            (_, ScriptRunner::Upstream(own)) if key_of(own) == address => return None,
            (FastcgiServer::Pool(pool), _) => format!("the pool {pool}"),
            (FastcgiServer::Upstream, _) => "the upstream of another site".to_owned(),
        };
        Some(format!(
            "its handler passes it to {address}, which is {server}: serve its folder as a site of \
             its own"
        ))
    }
}

fn key_of(upstream: &Upstream) -> String {
    key(&fastcgi_upstream::name(upstream))
}

/// An address as it is compared: files have handlers in small letters.
fn key(address: &str) -> String {
    let address = address.to_ascii_lowercase();
    match address.strip_prefix(LOCALHOST) {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        None => address,
    }
}

/// The address of a listener on this machine.
fn listened(listen: &Address) -> String {
    match listen {
        Address::Unix(path) => format!("unix:{}", path.display()),
        Address::Tcp(address) if address.ip().is_unspecified() => {
            SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())).to_string()
        }
        Address::Tcp(address) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_config::parse;
    use std::path::Path;

    #[test]
    fn a_handler_that_names_another_server_of_the_configuration_runs_no_script() {
        let text = "[pools.alice]\nlisten = \"/run/php/Alice.sock\"\n\
                    [pools.bob]\nlisten = \"0.0.0.0:9000\"\n[[sites]]\nhosts = [\"a\"]\n\
                    root = \"/srv/a\"\npool = \"alice\"\nhtaccess = true\n[[sites]]\n\
                    hosts = [\"c\"]\nroot = \"/srv/c\"\nupstream = \"unix:/run/php/carol.sock\"\n";
        let config = parse(text, Path::new("/maitred.toml")).unwrap();
        let servers = FastcgiServers::of(&config);
        let Destination::Upstream(carol) = &config.sites[1].destination else { panic!("{text}") };
        let runners =
            [ScriptRunner::Pool("alice"), ScriptRunner::Pool("bob"), ScriptRunner::Upstream(carol)];
        let refuses = |handler: &str| {
            runners.map(|runner| servers.refusal(handler.as_bytes(), runner).is_some())
        };
        for (handler, refused) in [
            ("proxy:unix:/run/php/alice.sock|fcgi://localhost", [false, true, true]),
            ("proxy:fcgi://localhost:9000/php", [true, false, true]),
            ("proxy:fcgi://127.0.0.1:9000", [true, false, true]),
            ("proxy:unix:/run/php/carol.sock|fcgi://localhost", [true, true, false]),
            ("proxy:unix:/run/php/old.sock|fcgi://localhost", [false; 3]),
            ("application/x-httpd-php", [false; 3]),
        ] {
            assert_eq!(refuses(handler), refused, "{handler}");
        }
        let none = text.replace("htaccess = true\n", "");
        let none = FastcgiServers::of(&parse(&none, Path::new("/maitred.toml")).unwrap());
        assert_eq!(none, FastcgiServers::default());
    }
}
