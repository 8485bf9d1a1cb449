//! The FastCGI servers of the configuration: a handler of a `.htaccess` file may name one that does
//! not run the scripts of its site.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use maitred_config::{Address, Config, Destination, Upstream};
use maitred_htaccess::handlers::fcgi_server;

use crate::backend::fastcgi_upstream;

/// The host of this machine in a handler.
const LOCALHOST: &str = "localhost:";

/// The same folder as `/run` on Debian and others.
const VAR_RUN: &str = "unix:/var/run/";

/// FastCGI servers by their addresses, in small letters: sockets may differ by case alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastcgiServers(HashMap<String, Vec<FastcgiServer>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum FastcgiServer {
    /// The pool of this name, which has a `listen`.
    Pool(String),
    /// The `upstream` of a site.
    Upstream,
}

impl FastcgiServer {
    /// Whether it runs the scripts of a path at this address.
    fn is(&self, runner: ScriptRunner<'_>, address: &str) -> bool {
        match (self, runner) {
            (FastcgiServer::Pool(pool), ScriptRunner::Pool(own)) => pool == own,
            (FastcgiServer::Upstream, ScriptRunner::Upstream(own)) => key_of(own) == address,
            _ => false,
        }
    }
}

/// What runs the scripts of a path.
#[derive(Debug, Clone, Copy)]
pub enum ScriptRunner<'a> {
    /// The pool of this name.
    Pool(&'a str),
    /// An upstream FastCGI server.
    Upstream(&'a Upstream),
}

impl<'a> ScriptRunner<'a> {
    /// What runs the scripts of a site, but for those of `paths`.
    pub fn of_site(destination: &'a Destination) -> ScriptRunner<'a> {
        match destination {
            Destination::Pool(name) => ScriptRunner::Pool(name),
            Destination::Upstream(upstream) => ScriptRunner::Upstream(upstream),
        }
    }
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
        let pools = config.pools.iter().flat_map(|pool| {
            let listens = pool.listener.iter().flat_map(|listener| listened(&listener.listen));
            listens.map(|listen| (key(&listen), FastcgiServer::Pool(pool.name.clone())))
        });
        let mut servers: HashMap<String, Vec<FastcgiServer>> = HashMap::new();
        for (address, server) in upstreams.chain(pools) {
            servers.entry(address).or_default().push(server);
        }
        FastcgiServers(servers)
    }

    /// Why a script does not run by a handler, in small letters, that passes it to a server of the
    /// configuration: it is none of the `runners`, that of the path and that of its site. Folders
    /// inherit the handlers of the document root, also those with a pool of their own by `paths`.
    pub fn refusal(&self, handler: &[u8], runners: [ScriptRunner<'_>; 2]) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let address = key(&fcgi_server(handler)?);
        let servers = self.0.get(&address)?;
        let runs = |one: &FastcgiServer| runners.iter().any(|runner| one.is(*runner, &address));
        if servers.iter().any(runs) {
            return None;
        }
        let server = match servers.first()? {
            FastcgiServer::Pool(pool) => format!("the pool {pool}"),
            FastcgiServer::Upstream => "the upstream of another site".to_owned(),
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
    if let Some(port) = address.strip_prefix(LOCALHOST) {
        return format!("{}:{port}", Ipv4Addr::LOCALHOST);
    }
    match address.strip_prefix(VAR_RUN) {
        Some(socket) => format!("unix:/run/{socket}"),
        None => address,
    }
}

/// The addresses of a listener on this machine.
fn listened(listen: &Address) -> Vec<String> {
    let address = match listen {
        Address::Unix(path) => return vec![format!("unix:{}", path.display())],
        Address::Tcp(address) => address,
    };
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()));
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => vec![v4.to_string()],
        IpAddr::V6(ip) if ip.is_unspecified() => vec![v4.to_string(), v6.to_string()],
        _ => vec![address.to_string()],
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
                    [pools.bob]\nlisten = \"[::]:9000\"\n[[sites]]\nhosts = [\"a\"]\n\
                    root = \"/srv/a\"\npool = \"alice\"\nhtaccess = true\n[[sites]]\n\
                    hosts = [\"c\"]\nroot = \"/srv/c\"\nupstream = \"unix:/run/php/carol.sock\"\n";
        let config = parse(text, Path::new("/maitred.toml")).unwrap();
        let servers = FastcgiServers::of(&config);
        let Destination::Upstream(carol) = &config.sites[1].destination else { panic!("{text}") };
        let runners =
            [ScriptRunner::Pool("alice"), ScriptRunner::Pool("bob"), ScriptRunner::Upstream(carol)];
        let refuses = |handler: &str| {
            runners.map(|runner| servers.refusal(handler.as_bytes(), [runner; 2]).is_some())
        };
        for (handler, refused) in [
            ("proxy:unix:/run/php/alice.sock|fcgi://localhost", [false, true, true]),
            ("proxy:fcgi://localhost:9000/php", [true, false, true]),
            ("proxy:fcgi://127.0.0.1:9000", [true, false, true]),
            ("proxy:fcgi://[::1]:9000", [true, false, true]),
            ("proxy:unix:/var/run/php/alice.sock|fcgi://localhost", [false, true, true]),
            ("proxy:unix:/run/php/carol.sock|fcgi://localhost", [true, true, false]),
            ("proxy:unix:/run/php/old.sock|fcgi://localhost", [false; 3]),
            ("application/x-httpd-php", [false; 3]),
        ] {
            assert_eq!(refuses(handler), refused, "{handler}");
        }
        // A path of the site of alice that bob runs.
        let of_path = [ScriptRunner::Pool("bob"), ScriptRunner::Pool("alice")];
        let of_alice = b"proxy:unix:/run/php/alice.sock|fcgi://localhost";
        assert_eq!(servers.refusal(of_alice, of_path), None);
        let of_carol = b"proxy:unix:/run/php/carol.sock|fcgi://localhost";
        assert!(servers.refusal(of_carol, of_path).is_some());
        let both = format!("[pools.big]\nlisten = \"/run/php/ALICE.sock\"\n{text}");
        let both = FastcgiServers::of(&parse(&both, Path::new("/maitred.toml")).unwrap());
        for (pool, is_refused) in [("alice", false), ("big", false), ("bob", true)] {
            let why = both.refusal(of_alice, [ScriptRunner::Pool(pool); 2]);
            assert_eq!(why.is_some(), is_refused, "{pool}");
        }
        let none = text.replace("htaccess = true\n", "");
        let none = FastcgiServers::of(&parse(&none, Path::new("/maitred.toml")).unwrap());
        assert_eq!(none, FastcgiServers::default());
    }
}
