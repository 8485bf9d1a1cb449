//! A Redis that sends what none does.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use maitred_tests::node::ByHand;
use maitred_tests::wait;

use super::{Place, get, purge, purges_process, said, site};

#[test]
fn a_hostile_redis_gets_nothing_but_unconfirmed_purges() {
    let root = site();
    let redis = ByHand::start(|mut stream, number| {
        let said: Vec<u8> = match number % 5 {
            0 => b"*1\r\n".repeat(1 << 16),
            1 => b"$99999999999\r\n".to_vec(),
            2 => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            3 => [b"$4000000\r\n".to_vec(), vec![b'x'; 1 << 20]].concat(),
            _ => b"$20\r\nrun_id:a\r\nrole:maste\r\n*-1\r\n".to_vec(),
        };
        let mut heard = [0; 512];
        while stream.read(&mut heard).is_ok_and(|length| length > 0) {
            if stream.write_all(&said).is_err() {
                return;
            }
        }
    });
    let place = Place::new(0, true);
    let log = format!("url = \"{}\", timeout = \"300ms\"", redis.url().replace("http", "redis"));
    let node = place.setup(root.path(), &log).start();
    let process = purges_process(&node);
    wait::until_true("some connections", || redis.accepted() >= 8);
    assert_eq!(purges_process(&node), process, "it has not ended");
    assert_eq!(get(&node, "/a"), "1");
    let (code, why) = said(&purge(&node, "a.example/a"));
    assert_eq!(code, Some(3), "{why}");
    node.stop();
}

#[test]
fn a_redis_that_does_not_block_is_not_asked_without_end() {
    let root = site();
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    let redis = ByHand::start(move |mut stream, _| {
        let mut heard = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut heard) {
            let said = String::from_utf8_lossy(&heard[..length]);
            let info = "run_id:a\r\nrole:master\r\n";
            let reply = match said.contains("XREAD") && said.contains("BLOCK") {
                true => "*-1\r\n".to_owned(),
                false if said.contains("INFO") => format!("${}\r\n{info}\r\n", info.len()),
                false => return,
            };
            count.fetch_add(usize::from(reply.starts_with('*')), Ordering::SeqCst);
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    });
    let place = Place::new(0, false);
    let log = format!("url = \"{}\", timeout = \"300ms\"", redis.url().replace("http", "redis"));
    let node = place.setup(root.path(), &log).start();
    wait::until_true("two reads", || reads.load(Ordering::SeqCst) >= 2);
    let begun = Instant::now();
    wait::until_true("some time", || begun.elapsed() > Duration::from_secs(3));
    let reads = reads.load(Ordering::SeqCst);
    assert!(reads < 500, "{reads} reads, where each is to wait");
    node.stop();
}
