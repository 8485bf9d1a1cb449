//! A second node, which no fault is done to, and the Redis through which purges reach it.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use maitred_tests::Target as _;
use maitred_tests::processes::Signal;
use maitred_tests::redis::Redis;
use maitred_tests::server::{Server, Setup};

use crate::site::{CACHED, Site};

/// How long nodes serve cached pages without Redis: shorter than some faults last, so that both
/// happen, and than a server may take until purges succeed again.
const LEASE: &str = "2s";
/// How long a purge waits for the other node.
const TIMEOUT: &str = "1s";
/// For how long a slow Redis does nothing at a time, and the pause after that.
const SLOW: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(50));

/// Redis and the other node.
#[derive(Debug)]
pub struct Nodes {
    redis: Mutex<Redis>,
    log: String,
    /// The other node.
    pub other: Server,
}

fn purge_log(log: &str, node: &str) -> String {
    format!("purge_log = {{ node = {node:?}, {log} }}")
}

impl Nodes {
    /// Starts them, with the files of the server.
    pub fn start(site: &Site) -> Nodes {
        let redis = Redis::start();
        let url = format!("unix:{}", redis.socket().display());
        let log = format!("url = {url:?}, lease = {LEASE:?}, timeout = {TIMEOUT:?}");
        let other = Setup::new(&site.root.path().join("cached"))
            .hosts(&[CACHED])
            .top(&purge_log(&log, "other"))
            .site("[sites.cache]\nvalid = \"1h\"\npurge_from = \"127.0.0.1\"")
            .start();
        Nodes { redis: Mutex::new(redis), log, other }
    }

    /// The setup of the server, with the purge log.
    pub fn join(&self, setup: Setup) -> Setup {
        setup.top(&purge_log(&self.log, "server"))
    }

    /// Where the other node is.
    pub fn address(&self) -> SocketAddr {
        self.other.address()
    }

    /// Kills Redis, which loses its data, and starts it again.
    pub fn kill_redis(&self) {
        self.redis.lock().unwrap_or_else(PoisonError::into_inner).crash();
    }

    /// Stops Redis for a while.
    pub fn stop_redis(&self, lasts: Duration) {
        let redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        redis.signal(Signal::STOP);
        std::thread::sleep(lasts);
        redis.signal(Signal::CONT);
    }

    /// Has Redis do something now and then only, for a while.
    pub fn slow_redis(&self, lasts: Duration) {
        let redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + lasts;
        let millis = SLOW.0.as_millis().to_string();
        while Instant::now() < end {
            redis.cli(&["CLIENT", "PAUSE", &millis, "ALL"]);
            std::thread::sleep(SLOW.0 + SLOW.1);
        }
    }
}
