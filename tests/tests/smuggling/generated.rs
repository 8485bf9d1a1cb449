//! Random connections ([`super::generator`]): what maitred takes, nginx, Apache and HAProxy read in
//! the same way or refuse; and behind them, it sees what they have forwarded.
//!
//! `MAITRED_CONNECTIONS` and `MAITRED_SEED` make longer and other runs.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use maitred_tests::Target;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::web::Web;
use tempfile::TempDir;

use super::generator;
use super::origin::{self, UNREADABLE};
use super::reading::{Reading, SEEN, Step};

/// Connections of a run of `make test`.
const CONNECTIONS: u64 = 300;
/// Most findings that a failed run shows.
const SHOWN: usize = 20;

/// Says which request it is.
const ECHO: &str = "<?php header('@: ' . implode('.', array_map('bin2hex', [
    $_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'], $_SERVER['HTTP_HOST'] ?? '',
    file_get_contents('php://input')]))); header('Content-Length: 0');";

fn site() -> TempDir {
    document_root(&[("echo.php", &ECHO.replace('@', SEEN))])
}

/// A server whose only site takes every host; its access log has the targets of requests.
struct Ours {
    server: Server,
    log: PathBuf,
    _folder: TempDir,
}

impl Ours {
    fn start(root: &TempDir) -> Ours {
        let folder = maitred_tests::server::public_folder();
        let log = folder.path().join("access.log");
        fs::write(&log, "").expect("a file can be written");
        give_to_web_user(&log);
        let server = Setup::new(root.path())
            .site("front_controller = \"\"")
            .top(&format!("access_log = {log:?}"))
            .top("access_log_format = \"$status $request_uri\"")
            .start();
        Ours { server, log, _folder: folder }
    }

    /// The targets of the requests that a script has seen, once the server has stopped.
    fn targets(self) -> BTreeSet<String> {
        drop(self.server);
        let log = fs::read_to_string(&self.log).expect("there is a log");
        log.lines().filter_map(|line| line.strip_prefix("200 ")).map(name).collect()
    }
}

/// The part of a target that names the request; servers write the rest in several ways.
fn name(target: &str) -> String {
    let is_name = |c: &char| c.is_ascii_alphanumeric() || "/.?=".contains(*c);
    target.chars().take_while(is_name).collect()
}

/// nginx before an HTTP server.
fn nginx_before(server: SocketAddr) -> Web {
    let http = format!("lingering_close off; upstream origin {{ server {server}; keepalive 8; }}");
    let location = "location / { proxy_pass http://origin; proxy_http_version 1.1; \
        proxy_set_header Connection \"\"; proxy_set_header Host $http_host; }";
    Web::nginx(&http, location)
}

fn apache(root: &Path) -> Web {
    let site = format!(
        "DocumentRoot {root}\n<Directory {root}>\n\
         Require all granted\n</Directory>",
        root = root.display()
    );
    Web::apache_with_php(&site)
}

/// Without HTTP/0.9, whose responses have no header to say what a script has seen.
fn apache_before(root: &Path, server: SocketAddr) -> Web {
    let lines = format!(
        "LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so\n\
         HttpProtocolOptions Require1.0\nProxyPreserveHost On\nProxyPass / http://{server}/"
    );
    Web::apache(root, &lines)
}

fn haproxy_before(server: SocketAddr) -> Web {
    Web::haproxy(&format!("    server origin {server}"))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn count() -> u64 {
    number("MAITRED_CONNECTIONS", CONNECTIONS)
}

/// Has `check` look at each connection of this run, several at a time, and returns what it finds.
fn find(check: impl Fn(&[u8]) -> Vec<String> + Sync) -> Vec<String> {
    let seed = number("MAITRED_SEED", 1);
    let all: Vec<u64> = (0..count()).collect();
    let found = super::ask_all(&all, |number| {
        let bytes = generator::connection(seed, *number);
        let found = check(&bytes);
        match found.is_empty() {
            true => String::new(),
            false => {
                let bytes = bytes.escape_ascii().to_string();
                let bytes = bytes.replace(&generator::padding(), "…");
                format!("seed {seed}, connection {number}:\n  {bytes}\n  {}", found.join("\n  "))
            }
        }
    });
    found.into_iter().filter(|text| !text.is_empty()).collect()
}

#[track_caller]
fn assert_none(found: &[String]) {
    let shown = &found[..found.len().min(SHOWN)];
    assert!(found.is_empty(), "{} connections:\n{}", found.len(), shown.join("\n"));
}

/// How two servers read the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Same,
    /// One refuses what the other takes, or closes the connection before it; until then, both see
    /// the same requests.
    OneRefuses,
    /// They see other requests, or another number of them.
    Differs,
}

/// Compares request by request, up to the first that only one of them takes.
fn compare(ours: &Reading, peer: &Reading) -> Comparison {
    for position in 0.. {
        let (our, their) = (ours.steps.get(position), peer.steps.get(position));
        match (our, their) {
            (Some(Step::Seen(our)), Some(Step::Seen(their))) if our == their => {}
            (Some(Step::Seen(_)), Some(Step::Seen(_))) => return Comparison::Differs,
            // Apache sends a response only when it has read the request after it.
            (Some(Step::Seen(_)), None) if peer.waits && ours.is_taken() => {
                return Comparison::Differs;
            }
            (None, Some(Step::Seen(_))) if ours.waits => return Comparison::Differs,
            // Or it closes the connection: after `Connection: close` and then `keep-alive` in a
            // line of its own, nginx goes on.
            (Some(Step::Seen(_)), _) | (_, Some(Step::Seen(_))) => return Comparison::OneRefuses,
            _ => return Comparison::Same,
        }
    }
    Comparison::Same
}

#[test]
fn what_maitred_takes_of_random_requests_the_peers_read_as_it_does_or_refuse() {
    let root = site();
    let ours = Ours::start(&root);
    let origin = origin::start();
    let peers = [
        ("nginx", nginx_before(origin)),
        ("Apache", apache(root.path())),
        ("HAProxy", haproxy_before(origin)),
    ];
    let taken = AtomicU64::new(0);
    let found = find(|bytes| {
        let our = Reading::of(ours.server.address(), bytes);
        taken.fetch_add(u64::from(our.is_taken()), Ordering::Relaxed);
        let mut found = Vec::new();
        for (name, peer) in &peers {
            let their = Reading::of(peer.address(), bytes);
            if compare(&our, &their) == Comparison::Differs {
                found.push(format!("maitred: {our}\n  {name}: {their}"));
            }
        }
        found
    });
    assert_none(&found);
    let taken = taken.into_inner();
    assert!(taken >= count() / 5, "maitred takes all of {taken} connections of {}", count());
}

/// What a proxy has its origin see, and what maitred sees in the origin's place: the same, and
/// nothing that the proxy has not sent.
#[track_caller]
fn passes_on(proxy: &str, before: impl Fn(SocketAddr) -> Web) {
    let root = site();
    let ours = Ours::start(&root);
    let proxies = [before(origin::start()), before(ours.server.address())];
    let known = Mutex::new(BTreeSet::new());
    let found = find(|bytes| {
        let [forwarded, seen] = proxies.each_ref().map(|web| Reading::of(web.address(), bytes));
        let targets = seen.seen().map(|seen| name(&seen.target));
        known.lock().expect("no thread panics").extend(targets);
        let is_unreadable = forwarded.steps.contains(&Step::Status(UNREADABLE));
        match compare(&seen, &forwarded) {
            Comparison::Differs => vec![format!("{proxy}: {forwarded}\n  maitred: {seen}")],
            _ if is_unreadable => vec![format!("{proxy}: {forwarded}")],
            _ => Vec::new(),
        }
    });
    assert_none(&found);
    drop(proxies);
    let known = known.into_inner().expect("no thread panicked");
    let hidden: Vec<_> = ours.targets().difference(&known).cloned().collect();
    assert!(hidden.is_empty(), "{proxy} does not know of {hidden:?}");
}

#[test]
fn behind_nginx_maitred_sees_of_random_requests_what_nginx_sends() {
    passes_on("nginx", nginx_before);
}

#[test]
fn behind_haproxy_maitred_sees_of_random_requests_what_haproxy_sends() {
    passes_on("HAProxy", haproxy_before);
}

#[test]
fn behind_apache_maitred_sees_of_random_requests_what_apache_sends() {
    let root = site();
    passes_on("Apache", |server| apache_before(root.path(), server));
}
