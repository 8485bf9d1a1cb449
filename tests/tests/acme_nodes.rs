//! Certificates by ACME on several nodes that share them: one order for all, and challenges that
//! any node serves.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use maitred_tests::acme::{Site, status, text};
use maitred_tests::pebble::{Habits, Pebble};
use maitred_tests::processes::Signal;
use maitred_tests::redis::Redis;
use maitred_tests::server::{Server, Setup, give_to_web_user, public_folder};
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// What the log says when nothing can be shared.
const ALONE: &str = "certificates cannot be shared with other nodes";

/// The key of all nodes.
const KEY: &str = "0Zr1kq1ZbC6q2H0m2gJ3X0qk3b2yV9r5mJ7yqf6nX4c=\n";

/// A node: its address among those of this machine, and its state.
struct Node {
    number: u8,
    site: Site,
}

/// What all nodes have in common.
struct Cluster {
    pebble: Pebble,
    keys: TempDir,
    /// The beginning of `shared`.
    place: String,
    challenge: &'static str,
}

impl Node {
    fn new(number: u8) -> Node {
        Node { number, site: Site::default() }
    }

    fn at(&self, address: SocketAddr) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, self.number)), address.port())
    }

    fn setup(&self, cluster: &Cluster, hosts: &[&str]) -> Setup {
        let Cluster { pebble, place, challenge, .. } = cluster;
        let shared = format!(
            ", challenge = \"{challenge}\", shared = {{ {place}, key_file = {:?} }}",
            cluster.key()
        );
        let lines = [pebble.toml(self.site.state.path(), &shared)];
        let setup = Setup::new(self.site.root.path()).at(self.at(pebble.http)).hosts(hosts);
        setup.tls(self.at(pebble.tls), &lines)
    }

    /// Waits until the node serves a page of this host with a certificate of the authority.
    fn serves(&self, cluster: &Cluster, host: &str) {
        let (pebble, mut said) = (&cluster.pebble, String::new());
        let served = wait::poll(wait::DEADLINE, || {
            said = text(&pebble.curl_at(self.at(pebble.tls), host, "/hello.php"));
            (said == "hello").then_some(())
        });
        assert!(served.is_some(), "{host} at node {}: {said}", self.number);
    }

    fn certificate(&self, cluster: &Cluster, host: &str) -> Vec<u8> {
        let folder = cluster.pebble.folder_in(self.site.state.path());
        fs::read(folder.join(format!("{host}.pem"))).expect("the node has the certificate")
    }
}

impl Cluster {
    fn new(place: String, challenge: &'static str, habits: Habits) -> Cluster {
        let keys = public_folder();
        let key = keys.path().join("key");
        fs::write(&key, KEY).expect("a key can be written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is ours");
        Cluster { pebble: Pebble::with(habits), keys, place, challenge }
    }

    fn key(&self) -> PathBuf {
        self.keys.path().join("key")
    }
}

fn in_redis(redis: &Redis) -> String {
    format!("url = \"unix:{}\"", redis.socket().display())
}

fn shared_folder() -> TempDir {
    let folder = public_folder();
    give_to_web_user(folder.path());
    folder
}

/// What the nodes go through wherever they share.
fn one_order_for_all(cluster: &Cluster, spoil: impl FnOnce(&Cluster)) {
    let pebble = &cluster.pebble;
    // The authority looks at node 2 only, whichever node orders.
    for host in ["shop.test", "late.test"] {
        pebble.move_host(host, "127.0.0.2");
    }
    let nodes = [1, 2, 3].map(Node::new);
    let start = |node: &Node| node.setup(cluster, &["shop.test"]).start();
    let servers: Vec<Server> = nodes.iter().map(start).collect();
    nodes.iter().for_each(|node| node.serves(cluster, "shop.test"));
    assert_eq!(pebble.orders(), 1);
    let first = nodes[0].certificate(cluster, "shop.test");
    nodes.iter().for_each(|node| assert_eq!(node.certificate(cluster, "shop.test"), first));

    // A host that only node 1 knows yet is proven by node 2, which does not know it.
    servers[0].configure(&nodes[0].setup(cluster, &["shop.test", "late.test"]));
    servers[0].reload();
    nodes[0].serves(cluster, "late.test");
    for (node, server) in nodes.iter().zip(&servers).skip(1) {
        server.configure(&node.setup(cluster, &["shop.test", "late.test"]));
        server.reload();
        node.serves(cluster, "late.test");
    }
    assert_eq!(pebble.orders(), 2);
    let accounts = pebble.log_text().matches("accounts in memory").count();
    assert_eq!(accounts, 1, "one account for all");

    // What others have written there is refused, and replaced.
    drop(servers);
    spoil(cluster);
    let fresh = Node::new(2);
    let server = fresh.setup(cluster, &["shop.test", "late.test"]).start();
    server.expect_log(0, "cannot be opened with");
    fresh.serves(cluster, "shop.test");
    fresh.serves(cluster, "late.test");
    assert_eq!(pebble.orders(), 3, "{}", server.log_text());
    assert_eq!(fresh.certificate(cluster, "shop.test"), first);
    assert!(!server.log_text().contains("PRIVATE"));
}

#[test]
fn nodes_with_one_redis_order_once_and_any_of_them_serves_the_challenge() {
    let redis = Redis::start();
    let cluster = Cluster::new(in_redis(&redis), "http-01", Habits::default());
    one_order_for_all(&cluster, |cluster| {
        let folder = cluster.pebble.folder_in(Path::new(""));
        let key = |name: &str| format!("maitred:acme:{}:{name}", folder.display());
        let shop = redis.cli(&["GET", &key("certificate.shop.test")]);
        assert!(shop.len() > 1000 && !shop.contains("PRIVATE"), "{shop}");
        // That of one host in place of another one's.
        redis.cli(&["SET", &key("certificate.late.test"), shop.trim()]);
        redis.cli(&["SET", &key("proofs"), "7 garbage"]);
    });
}

#[test]
fn nodes_with_one_folder_order_once_and_any_of_them_serves_the_challenge() {
    let folder = shared_folder();
    let place = format!("folder = {:?}", folder.path());
    let cluster = Cluster::new(place, "tls-alpn-01", Habits::default());
    one_order_for_all(&cluster, |cluster| {
        let file = |name: &str| cluster.pebble.folder_in(folder.path()).join(name);
        let late = fs::read(file("certificate.late.test")).expect("it is shared");
        assert!(!String::from_utf8_lossy(&late).contains("PRIVATE"));
        fs::write(file("certificate.late.test"), &late[..late.len() - 9]).expect("it is spoilt");
        fs::write(file("account"), [0xff; 100]).expect("it is spoilt");
    });
}

#[test]
fn another_authority_after_a_reload_gets_the_orders_and_no_registration_stays_at_the_first() {
    let folder = shared_folder();
    let place = format!("folder = {:?}", folder.path());
    let cluster = || Cluster::new(place.clone(), "tls-alpn-01", Habits::default());
    let [first, second] = [cluster(), cluster()];
    let node = Node::new(1);
    let server = node.setup(&first, &["shop.test"]).start();
    node.serves(&first, "shop.test");
    server.configure(&node.setup(&second, &["shop.test"]));
    server.reload();
    node.serves(&second, "shop.test");
    assert_eq!((first.pebble.orders(), second.pebble.orders()), (1, 1));
    // At a stop, it may be killed before.
    let nodes = first.pebble.folder_in(folder.path()).join("nodes");
    wait::until_true("no registration", || {
        fs::read_dir(&nodes).is_ok_and(|mut nodes| nodes.next().is_none())
    });
}

#[test]
fn a_process_that_says_nothing_is_replaced_and_the_order_goes_on() {
    let folder = shared_folder();
    let place = format!("folder = {:?}", folder.path());
    let cluster = Cluster::new(place, "tls-alpn-01", Habits::default());
    let node = Node::new(1);
    let server = node.setup(&cluster, &["shop.test"]).start();
    node.serves(&cluster, "shop.test");
    let all = server.processes();
    let sharing = all.iter().find(|process| process.title.trim_end() == "maitred: certificates");
    let sharing = sharing.expect("it runs");
    sharing.signal(Signal::STOP);
    let mark = server.log().mark();
    server.configure(&node.setup(&cluster, &["shop.test", "late.test"]));
    server.reload();
    server.expect_log(mark, "what there is cannot be read in time");
    server.expect_log(mark, "shared with other nodes again");
    node.serves(&cluster, "late.test");
    assert!(!sharing.is_running());
    assert_eq!(cluster.pebble.orders(), 2);
}

#[test]
fn a_renewal_is_one_order_and_without_redis_what_there_is_is_served_and_orders_wait() {
    let mut redis = Redis::start();
    let habits = Habits { valid_seconds: 30, ..Habits::default() };
    let cluster = Cluster::new(in_redis(&redis), "http-01", habits);
    let nodes = [1, 2].map(Node::new);
    let start = |node: &Node| node.setup(&cluster, &["shop.test"]).start();
    let servers: Vec<Server> = nodes.iter().map(start).collect();
    nodes.iter().for_each(|node| node.serves(&cluster, "shop.test"));
    let first = nodes[0].certificate(&cluster, "shop.test");
    wait::until_true("a renewal on both nodes", || {
        let now = nodes.each_ref().map(|node| node.certificate(&cluster, "shop.test"));
        now[0] != first && now[0] == now[1]
    });
    assert_eq!(cluster.pebble.orders(), 2);

    let mark = servers[0].log().mark();
    redis.signal(Signal::STOP);
    servers[0].expect_log(mark, ALONE);
    nodes.iter().for_each(|node| node.serves(&cluster, "shop.test"));
    wait::until_true("the reason in the status", || {
        let error = status(&servers[0])[0]["error"].as_str().unwrap_or_default().to_owned();
        error.contains("has not replied")
    });
    assert_eq!(cluster.pebble.orders(), 2, "orders wait");
    let mark = servers[0].log().mark();
    redis.signal(Signal::CONT);
    servers[0].expect_log(mark, "shared with other nodes again");
    wait::until_true("an order", || cluster.pebble.orders() > 2);
    assert_eq!(servers[0].log_text().matches(ALONE).count(), 1, "it is said once");

    // Redis without its data: what the nodes have is shared again.
    redis.crash();
    nodes.iter().for_each(|node| node.serves(&cluster, "shop.test"));
    let folder = cluster.pebble.folder_in(Path::new(""));
    let key = format!("maitred:acme:{}:certificate.shop.test", folder.display());
    wait::until_true("the certificate in Redis", || redis.cli(&["EXISTS", &key]) == "1\n");
}
