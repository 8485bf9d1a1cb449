//! Servers on this machine: those that run, and those that are installed.

use std::fs;
use std::path::Path;

use super::options::ForeignServer;

/// A server, the names of its processes, and its configuration at the paths of distributions.
struct KnownServer {
    server: ForeignServer,
    processes: &'static [&'static str],
    places: &'static [&'static str],
}

/// The servers, in the order in which they are taken.
const KNOWN: [KnownServer; 4] = [
    KnownServer {
        server: ForeignServer::Nginx,
        processes: &["nginx"],
        places: &["/etc/nginx/nginx.conf"],
    },
    KnownServer {
        server: ForeignServer::Apache,
        processes: &["apache2", "httpd"],
        places: &["/etc/apache2/apache2.conf", "/etc/httpd/conf/httpd.conf"],
    },
    KnownServer {
        server: ForeignServer::Unit,
        processes: &["unitd", "unit: router"],
        places: &["/var/lib/unit/conf.json"],
    },
    KnownServer {
        server: ForeignServer::Caddy,
        processes: &["caddy", "frankenphp"],
        places: &["/etc/caddy/Caddyfile", "/etc/frankenphp/Caddyfile"],
    },
];

/// The paths of a server's configuration.
pub fn places(server: ForeignServer) -> &'static [&'static str] {
    let known = KNOWN.iter().find(|known| known.server == server);
    known.map(|known| known.places).unwrap_or_default()
}

/// The name of a server in texts.
pub fn name(server: ForeignServer) -> &'static str {
    match server {
        ForeignServer::Nginx => "nginx",
        ForeignServer::Apache => "Apache",
        ForeignServer::Unit => "Unit",
        ForeignServer::Caddy => "Caddy",
    }
}

/// The service of a server with this configuration: Apache's is `httpd` in Fedora's packages.
pub fn service(server: ForeignServer, main: &str) -> &'static str {
    match server {
        ForeignServer::Nginx => "nginx",
        ForeignServer::Apache if main.ends_with("/httpd.conf") => "httpd",
        ForeignServer::Apache => "apache2",
        ForeignServer::Unit => "unit",
        ForeignServer::Caddy => "caddy",
    }
}

/// The server that runs here, or else the one that is installed.
pub fn found() -> Option<ForeignServer> {
    let running = running();
    let runs = |known: &&KnownServer| {
        known.processes.iter().any(|name| running.iter().any(|one| one == name))
    };
    let is_there = |known: &&KnownServer| known.places.iter().any(|file| Path::new(file).exists());
    let installed = || KNOWN.iter().filter(is_there);
    installed().find(runs).or_else(|| installed().next()).map(|known| known.server)
}

/// The names of all processes.
fn running() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = processes.filter_map(|one| fs::read_to_string(one.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}
