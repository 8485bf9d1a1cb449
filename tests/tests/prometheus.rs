//! The dashboard for Grafana and the alerts for Prometheus, with Debian's Prometheus and a server
//! that has each of the faults.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::SocketAddr;

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::lowered::Lowered;
use maitred_tests::prometheus::{Prometheus, check_rules};
use maitred_tests::server::{
    Setup, WEB_USER, document_root, give_to_web_user, is_root, public_folder, set_mode, write_file,
};
use maitred_tests::{Target, ports, project_root, wait};
use serde_json::Value;
use tempfile::TempDir;

/// The alerts of the file, as far as a test can have the fault.
const ALERTS: [&str; 12] = [
    "MaitredDown",
    "MaitredFailed",
    "MaitredForksFailed",
    "MaitredNodeSilent",
    "MaitredOpcacheFull",
    "MaitredPurgeLogDown",
    "MaitredPurgesNotApplied",
    "MaitredQueueWait",
    "MaitredRefused",
    "MaitredSaturated",
    "MaitredSpansLost",
    "MaitredWorkerCrashes",
];

/// Those about other nodes.
const OF_NODES: [&str; 3] = ["MaitredNodeSilent", "MaitredPurgeLogDown", "MaitredPurgesNotApplied"];

/// Where two nodes reach each other.
struct Peers {
    ours: SocketAddr,
    theirs: SocketAddr,
    secrets: TempDir,
}

impl Peers {
    fn new() -> Peers {
        let secrets = public_folder();
        let file = secrets.path().join("secret");
        fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
        set_mode(&file, 0o600);
        let at = |number| SocketAddr::from(([127, 0, 0, number], ports::free_address().port()));
        Peers { ours: at(2), theirs: at(3), secrets }
    }

    /// The setting of a node, the first one or the second.
    fn purge_log(&self, is_first: bool) -> String {
        let (name, own, other) = match is_first {
            true => ("first", self.ours, self.theirs),
            false => ("second", self.theirs, self.ours),
        };
        format!(
            "purge_log = {{ node = \"{name}\", listen = \"{own}\", peers = [\"{other}\"], \
             secret_file = {:?}, lease = \"2s\", timeout = \"1500ms\" }}",
            self.secrets.path().join("secret")
        )
    }
}

/// Scripts that take about 9 MB of OPcache all together.
const PARTS: usize = 100;

/// Bursts of requests, one after the other, between two looks at the alerts: saturation is the load
/// of a minute, looks included.
const BURSTS: u32 = 3;

/// Eight requests at once: one runs, three wait, and the others are refused.
fn overload(address: SocketAddr, name: &str) {
    let mut many: Vec<Connection> = (0..8)
        .map(|number| {
            // Each page is another one for the page cache.
            let request = Request::get(&format!("/sleeps.php?n={name}.{number}"));
            let mut connection = Connection::open(address);
            connection.send(&request.to_bytes()).unwrap();
            connection
        })
        .collect();
    let statuses: Vec<u16> =
        many.iter_mut().map(|one| one.read_response(false).unwrap().status).collect();
    assert!(statuses.contains(&200) && statuses.contains(&503), "{statuses:?}");
}

#[test]
fn each_panel_has_data_and_each_alert_fires_in_its_fault() {
    let file = project_root().join("packaging/prometheus/maitred.rules.yml");
    check_rules(&file);
    let root = document_root(&[
        ("hello.php", "<?php header('Cache-Control: s-maxage=60'); echo 'hello';"),
        ("sleeps.php", "<?php usleep(700000); echo 'rested';"),
        ("dies.php", "<?php posix_kill(getmypid(), SIGKILL);"),
        ("loads.php", "<?php require __DIR__ . \"/parts/{$_GET['n']}.php\";"),
    ]);
    let numbers: String = (0..6000).map(|number| format!("{number},")).collect();
    for part in 0..PARTS {
        let text = format!("<?php return [{part}, {numbers}];");
        write_file(root.path(), &format!("parts/{part}.php"), text.as_bytes());
    }
    give_to_web_user(root.path());
    let (admin, nowhere) = (ports::free_address(), ports::free_address());
    let (peers, other_root) = (Peers::new(), document_root(&[]));
    let other = Setup::new(other_root.path()).workers(1).top(&peers.purge_log(false));
    let other = other.site("\n[sites.cache]\nvalid = \"1m\"").start();
    let server = Setup::new(root.path())
        .workers(1)
        .top(&format!("admin = \"{admin}\""))
        .top(&peers.purge_log(true))
        .pool("request_queue_length = 3")
        .pool("[pools.www.php_admin_value]")
        .pool("\"opcache.memory_consumption\" = \"8\"")
        .pool("\"opcache.interned_strings_buffer\" = \"1\"")
        .site("\n[sites.cache]\nvalid = \"1m\"\npurge_from = [\"127.0.0.1\"]")
        .site(&format!("\n[traces]\nendpoint = \"http://{nowhere}\""))
        .start();
    let address = server.address();
    // The alerts of the file, which a test does not wait minutes for.
    let rules = fs::read_to_string(&file).unwrap();
    let is_patience = |line: &&str| line.trim_start().starts_with("for: ");
    let rules: Vec<&str> = rules.lines().filter(|line| !is_patience(line)).collect();
    let prometheus = Prometheus::start(admin, &rules.join("\n"));
    wait::until_true("the first scrape", || !prometheus.query("maitred_info").is_empty());
    // The other node is reached, and is no more.
    wait::until_true("the other node, and no alert about it", || {
        let fires = prometheus.firing().iter().any(|name| OF_NODES.contains(&name.as_str()));
        let is_known = prometheus.query("maitred_node_announced_seconds{node=\"second\"}");
        let is_reached = prometheus.query("maitred_purge_log_connected == 1");
        !fires && !is_known.is_empty() && !is_reached.is_empty()
    });
    other.stop();
    let purge = Request::new("PURGE", "/hello.php").header("Host", "localhost");
    assert_eq!(http::ask(address, &purge).status, 504);
    for part in 0..PARTS {
        http::get(address, &format!("/loads.php?n={part}"));
    }
    let (mut fired, mut round): (Vec<String>, u32) = (Vec::new(), 0);
    let panels = panels();
    let mut without_data: Vec<&(String, String)> = panels.iter().collect();
    wait::until_within("each panel's data and each alert", wait::DEADLINE * 2, || {
        round += 1;
        (0..BURSTS).for_each(|burst| overload(address, &format!("{round}.{burst}")));
        // A pool whose workers die again and again gets them ever later, and has less to do.
        if !["MaitredWorkerCrashes", "MaitredFailed"]
            .iter()
            .all(|one| fired.iter().any(|f| f == one))
        {
            http::get(address, &format!("/dies.php?n={round}"));
        }
        http::get(address, "/hello.php");
        fired.extend(prometheus.firing());
        without_data.retain(|(_, query)| prometheus.query(query).is_empty());
        let is_later = |name: &str| matches!(name, "MaitredDown" | "MaitredForksFailed");
        let is_missing = |name: &&str| !is_later(name) && !fired.iter().any(|f| f == name);
        let missing: Vec<&str> = ALERTS.into_iter().filter(is_missing).collect();
        eprintln!("missing: {missing:?}, {} panels", without_data.len());
        (missing.is_empty() && without_data.is_empty()).then_some(())
    });
    assert!(!fired.iter().any(|name| matches!(&**name, "MaitredDown" | "MaitredForksFailed")));

    // The user of the pool has as many processes as it may have. Root may have any number.
    if is_root() {
        let zygote = server.zygote().expect("a zygote runs");
        let limited = Lowered::new(zygote, WEB_USER, "Max processes", "--nproc", 1);
        http::get(address, "/dies.php?n=last");
        wait::until_true("the alert about forks", || {
            prometheus.firing().iter().any(|name| name == "MaitredForksFailed")
        });
        drop(limited);
        wait::until_true("a worker again", || {
            http::get(address, "/hello.php?n=last").status == 200
        });
    }
    server.stop();
    wait::until_true("the last alert", || prometheus.firing().iter().any(|f| f == "MaitredDown"));
}

/// Title and query of each target of the dashboard, with Grafana's variables as it would fill them.
fn panels() -> Vec<(String, String)> {
    let file = project_root().join("packaging/grafana/maitred.json");
    let dashboard: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap().iter();
        targets.map(move |target| {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$__rate_interval", "30s");
            (title.to_owned(), query.replace("$instance", ".*").replace("$pool", ".*"))
        })
    });
    let all: Vec<_> = targets.collect();
    assert!(all.len() > 20);
    all
}
