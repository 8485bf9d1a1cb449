//! A second node, which no fault is done to, and the way of purges to it: Redis, or a connection
//! between the nodes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use maitred_tests::Target as _;
use maitred_tests::ports::free_address;
use maitred_tests::processes::Signal;
use maitred_tests::redis::Redis;
use maitred_tests::server::{Server, Setup, public_folder, set_mode};
use tempfile::TempDir;

use crate::site::{CACHED, Site};

/// How long nodes serve cached pages without Redis or each other: shorter than some faults last, so
/// that both happen, and than a server may take until purges succeed again.
const LEASE: &str = "2s";
/// How long a purge waits for the other node.
const TIMEOUT: &str = "1s";
/// For how long a slow Redis does nothing at a time, and the pause after that.
const SLOW: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(50));
/// The secret of nodes without Redis.
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The way of purges.
#[derive(Debug)]
enum PurgeWay {
    Redis(Mutex<Redis>),
    /// The addresses of the server and of the other node, and the folder of their secret.
    Peers {
        server: SocketAddr,
        other: SocketAddr,
        folder: TempDir,
    },
}

/// The other node, and the way to it.
#[derive(Debug)]
pub struct Nodes {
    way: PurgeWay,
    /// The other node.
    pub other: Server,
}

/// The two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Server,
    Other,
}

impl PurgeWay {
    fn redis() -> PurgeWay {
        PurgeWay::Redis(Mutex::new(Redis::start()))
    }

    fn peers() -> PurgeWay {
        let folder = public_folder();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, SECRET).expect("a secret can be written");
        set_mode(&secret, 0o600);
        let at = |host: u8| {
            SocketAddr::new(IpAddr::from(Ipv4Addr::new(127, 0, 0, host)), free_address().port())
        };
        PurgeWay::Peers { server: at(2), other: at(3), folder }
    }

    /// The setting of a node.
    fn setting(&self, of: Node) -> String {
        let way = match self {
            PurgeWay::Redis(redis) => {
                let redis = redis.lock().unwrap_or_else(PoisonError::into_inner);
                format!("url = \"unix:{}\"", redis.socket().display())
            }
            PurgeWay::Peers { server, other, folder } => {
                let (listen, peer) = match of {
                    Node::Server => (server, other),
                    Node::Other => (other, server),
                };
                let secret = folder.path().join("secret");
                format!("listen = \"{listen}\", peers = [\"{peer}\"], secret_file = {secret:?}")
            }
        };
        let name = if of == Node::Server { "server" } else { "other" };
        format!(
            "purge_log = {{ node = {name:?}, {way}, lease = {LEASE:?}, timeout = {TIMEOUT:?} }}"
        )
    }
}

impl Nodes {
    /// Starts the other node, with the files of the server, and Redis unless the nodes are peers.
    pub fn start(site: &Site, are_peers: bool) -> Nodes {
        let way = if are_peers { PurgeWay::peers() } else { PurgeWay::redis() };
        let other = Setup::new(&site.root.path().join("cached"))
            .hosts(&[CACHED])
            .top(&way.setting(Node::Other))
            .site("[sites.cache]\nvalid = \"1h\"\npurge_from = \"127.0.0.1\"")
            .start();
        Nodes { way, other }
    }

    /// The setup of the server, with the purge log.
    pub fn join(&self, setup: Setup) -> Setup {
        setup.top(&self.way.setting(Node::Server))
    }

    /// Where the other node is.
    pub fn address(&self) -> SocketAddr {
        self.other.address()
    }

    /// Redis, if the nodes need it.
    pub fn redis(&self) -> Option<&Mutex<Redis>> {
        match &self.way {
            PurgeWay::Redis(redis) => Some(redis),
            PurgeWay::Peers { .. } => None,
        }
    }

    fn with_redis(&self, act: impl FnOnce(&mut Redis)) {
        if let Some(redis) = self.redis() {
            act(&mut redis.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Kills Redis, which loses its data, and starts it again.
    pub fn kill_redis(&self) {
        self.with_redis(Redis::crash);
    }

    /// Stops Redis for a while.
    pub fn stop_redis(&self, lasts: Duration) {
        self.with_redis(|redis| {
            redis.signal(Signal::STOP);
            std::thread::sleep(lasts);
            redis.signal(Signal::CONT);
        });
    }

    /// Has Redis do something now and then only, for a while.
    pub fn slow_redis(&self, lasts: Duration) {
        self.with_redis(|redis| {
            let end = Instant::now() + lasts;
            let millis = SLOW.0.as_millis().to_string();
            while Instant::now() < end {
                redis.cli(&["CLIENT", "PAUSE", &millis, "ALL"]);
                std::thread::sleep(SLOW.0 + SLOW.1);
            }
        });
    }
}
