//! Clients that read every node while nodes and Redis fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use maitred_tests::booted::from_environment;
use maitred_tests::http::{Connection, Request};
use maitred_tests::processes::Signal;
use maitred_tests::redis::Redis;
use maitred_tests::server::Server;
use tempfile::TempDir;

use super::{LEASE, Place, at, await_everywhere, await_hit, get, purges_process, site, write};

const NODES: usize = 3;
const KEYS: usize = 12;

/// What each page was when a purge of it was everywhere.
#[derive(Default)]
struct Promises {
    versions: Mutex<BTreeMap<usize, u64>>,
    stop: AtomicBool,
    hits: AtomicU64,
    reads: AtomicU64,
}

impl Promises {
    fn of(&self, key: usize) -> u64 {
        self.versions.lock().expect("no panic").get(&key).copied().unwrap_or(0)
    }

    fn promise(&self, key: usize, version: u64) {
        let mut versions = self.versions.lock().expect("no panic");
        let promised = versions.entry(key).or_default();
        *promised = version.max(*promised);
    }
}

/// Reads pages of a node, and says which one was older than promised.
fn read(address: std::net::SocketAddr, promises: &Promises, seed: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut connection, mut key) = (None, seed);
    while !promises.stop.load(Ordering::Relaxed) {
        key = (key * 5 + 7) % KEYS;
        let promised = promises.of(key);
        if connection.is_none() {
            connection = Connection::try_open(address).ok();
        }
        let Some(client) = &mut connection else {
            sleep(Duration::from_millis(20));
            continue;
        };
        let request = Request::new("GET", &format!("/k{key}")).header("Host", "a.example");
        match client.ask(&request) {
            Ok(response) if response.status == 200 => {
                let version: u64 = response.text().parse().expect("a version");
                if version < promised {
                    let status = response.header("Cache-Status").unwrap_or_default();
                    wrong.push(format!("k{key} of {address}: {version}, not {promised}: {status}"));
                }
                let is_hit = response.header("Cache-Status").is_some_and(|one| one.contains("hit"));
                promises.hits.fetch_add(u64::from(is_hit), Ordering::Relaxed);
                promises.reads.fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) | Err(_) => connection = None,
        }
        sleep(Duration::from_millis(2));
    }
    wrong
}

struct World {
    root: TempDir,
    redis: Redis,
    places: Vec<Place>,
    nodes: Vec<Option<Server>>,
    /// What is stopped, and until when.
    stopped: Vec<(Instant, Box<dyn Fn()>)>,
    redis_until: Option<Instant>,
}

impl World {
    fn fault(&mut self, number: usize) {
        let at = (number / 4) % NODES;
        let until = Instant::now() + LEASE * 2;
        match number % 4 {
            0 => match self.nodes[at].take() {
                Some(node) => {
                    // All of its processes are to be gone, not only the one that is killed.
                    node.processes();
                    node.signal(Signal::KILL);
                    node.expect_killed();
                }
                None => self.start(at),
            },
            1 => {
                if let Some(node) = &self.nodes[at] {
                    let deaf = purges_process(node);
                    deaf.signal(Signal::STOP);
                    self.stopped.push((until, Box::new(move || deaf.signal(Signal::CONT))));
                }
            }
            2 if self.redis_until.is_none() => match at {
                0 => {
                    self.redis.signal(Signal::STOP);
                    self.redis_until = Some(until);
                }
                // What was added since the last fault is lost.
                1 => self.redis.crash(),
                _ => drop(self.redis.cli(&["FLUSHALL"])),
            },
            _ => (0..NODES).for_each(|at| self.start(at)),
        }
        if self.redis_until.is_none() {
            self.redis.cli(&["SAVE"]);
        }
    }

    fn start(&mut self, at: usize) {
        if self.nodes[at].is_none() {
            self.nodes[at] = Some(self.places[at].start(self.root.path(), &self.redis));
        }
    }

    /// Ends what lasts for a while.
    fn mend(&mut self, now: Instant) {
        self.stopped.retain(|(until, go_on)| {
            if *until <= now {
                go_on();
            }
            *until > now
        });
        if self.redis_until.is_some_and(|until| until <= now) {
            self.redis.signal(Signal::CONT);
            self.redis_until = None;
        }
    }
}

#[test]
fn no_node_serves_a_page_that_was_purged_before_the_command_returned_success() {
    let purges = from_environment("MAITRED_PURGES", 160) as usize;
    let (root, redis) = (site(), Redis::start());
    (0..KEYS).for_each(|key| write(&root, &format!("k{key}"), "0"));
    let places: Vec<Place> = (0..NODES).map(|number| Place::new(number, number > 0)).collect();
    let nodes = places.iter().map(|place| Some(place.start(root.path(), &redis))).collect();
    let (stopped, redis_until) = (Vec::new(), None);
    let mut world = World { root, redis, places, nodes, stopped, redis_until };
    let promises = Arc::new(Promises::default());
    let readers: Vec<JoinHandle<Vec<String>>> = world
        .places
        .iter()
        .enumerate()
        .map(|(seed, place)| {
            let (address, promises) = (place.address, promises.clone());
            std::thread::spawn(move || read(address, &promises, seed))
        })
        .collect();
    await_everywhere(world.nodes[0].as_ref().expect("it runs"), "a.example/none");
    let (mut everywhere, mut next_fault, mut faults) = (0, Instant::now() + LEASE, 0);
    for number in 1..=purges {
        let key = number % KEYS;
        write(&world.root, &format!("k{key}"), &number.to_string());
        let place = &world.places[(number / 3) % NODES];
        let purged = at(place.address, "PURGE", &format!("/k{key}"));
        if purged.is_ok_and(|response| response.status == 200) {
            promises.promise(key, number as u64);
            everywhere += 1;
        }
        let now = Instant::now();
        world.mend(now);
        if now >= next_fault {
            world.fault(faults);
            faults += 1;
            next_fault = Instant::now() + LEASE / 3;
        }
        sleep(Duration::from_millis(5));
    }
    world.mend(Instant::now() + LEASE * 4);
    (0..NODES).for_each(|at| world.start(at));
    let nodes: Vec<&Server> = world.nodes.iter().flatten().collect();
    write(&world.root, "k0", "1000000");
    await_everywhere(nodes[0], "a.example/k0");
    promises.promise(0, 1_000_000);
    for node in &nodes {
        await_hit(node, "/k0");
        assert_eq!(get(node, "/k0"), "1000000");
    }
    promises.stop.store(true, Ordering::Relaxed);
    let wrong: Vec<String> =
        readers.into_iter().flat_map(|one| one.join().expect("no panic")).collect();
    let (reads, hits) =
        (promises.reads.load(Ordering::Relaxed), promises.hits.load(Ordering::Relaxed));
    eprintln!(
        "{purges} purges, {everywhere} everywhere, {faults} faults, {reads} reads, {hits} hits"
    );
    assert!(wrong.is_empty(), "{} of {reads}: {wrong:#?}", wrong.len());
    assert!(everywhere > 5 && hits > 100, "{everywhere} everywhere, {hits} hits");
}
