//! How long purges take to be everywhere, and what a stopped Redis costs clients. It prints the
//! figures.
//!
//! `MAITRED_SECONDS=30 MAITRED_RATE=200` is the long run.

use std::net::SocketAddr;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use maitred_tests::Target;
use maitred_tests::booted::from_environment;
use maitred_tests::http::{Connection, Request};
use maitred_tests::processes::Signal;
use maitred_tests::redis::Redis;
use maitred_tests::server::Server;

use super::{Place, await_everywhere, await_hit, site};

const CLIENTS: u32 = 8;

/// Sends requests at a fixed rate, in all, and returns how long each took, from when it was due.
fn at_a_rate(
    addresses: &[SocketAddr],
    request: &Request,
    (rate, seconds): (u32, u32),
) -> Vec<Duration> {
    let ask = |number: u32| -> JoinHandle<Vec<Duration>> {
        let (address, request) = (addresses[number as usize % addresses.len()], request.clone());
        std::thread::spawn(move || {
            let mut client = Connection::open(address);
            let every = Duration::from_secs(1) * CLIENTS / rate;
            let mut next = Instant::now() + every * number / CLIENTS;
            let ask = |_| {
                sleep(next.saturating_duration_since(Instant::now()));
                let response = client.ask(&request).expect("it responds");
                assert_eq!(response.status, 200, "{}", response.text());
                let took = next.elapsed();
                next += every;
                took
            };
            (0..rate * seconds / CLIENTS).map(ask).collect()
        })
    };
    let threads: Vec<_> = (0..CLIENTS).map(ask).collect();
    let mut all: Vec<Duration> =
        threads.into_iter().flat_map(|one| one.join().expect("no panic")).collect();
    all.sort_unstable();
    all
}

fn tell(what: &str, times: &[Duration]) {
    let at = |part: usize| times[(times.len() * part / 1000).min(times.len() - 1)];
    eprintln!("{what}: {} in all, p50 {:?}, p99 {:?}", times.len(), at(500), at(990));
}

#[test]
fn purges_at_a_rate_are_everywhere_and_a_stopped_redis_fails_no_request() {
    let load = (from_environment("MAITRED_RATE", 80), from_environment("MAITRED_SECONDS", 1));
    let (root, redis) = (site(), Redis::start());
    let places: Vec<Place> = (0..3).map(|number| Place::new(number, number == 1)).collect();
    let start = |place: &Place| {
        // Longer than Redis is stopped.
        let lease = load.1 + 3;
        let log = format!("lease = {lease}, url = \"unix:{}\"", redis.socket().display());
        place.lasting(root.path(), &log).start()
    };
    let nodes: Vec<Server> = places.iter().map(start).collect();
    let addresses: Vec<SocketAddr> = nodes.iter().map(Server::address).collect();
    await_everywhere(&nodes[0], "a.example/none");
    nodes.iter().for_each(|node| await_hit(node, "/a"));
    let request = |method: &str| Request::new(method, "/a").header("Host", "a.example");
    tell("purges", &at_a_rate(&addresses, &request("PURGE"), load));
    nodes.iter().for_each(|node| await_hit(node, "/a"));
    tell("pages", &at_a_rate(&addresses, &request("GET"), load));
    redis.signal(Signal::STOP);
    tell("pages without Redis", &at_a_rate(&addresses, &request("GET"), load));
    redis.signal(Signal::CONT);
    await_everywhere(&nodes[0], "a.example/none");
}
