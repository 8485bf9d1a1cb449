//! Clients that read a large page slowly: the front spools it to disk.

use std::net::SocketAddr;
use std::time::Duration;

use fastrand::Rng;
use maitred_tests::http::{Connection, Request};

use super::{Client, Reply, failure, judge};
use crate::kind::Kind;
use crate::ledger::Outcome;
use crate::site::CLASSIC;

/// Repetitions of the id in the page: about 4 MB.
const TIMES: usize = 200_000;
/// The pause before the client reads.
const PAUSE: Duration = Duration::from_millis(700);

struct SlowReader {
    address: SocketAddr,
    random: Rng,
}

/// One of these.
pub fn clients(address: SocketAddr) -> Vec<Box<dyn Client>> {
    vec![Box::new(SlowReader { address, random: Rng::new() })]
}

impl Client for SlowReader {
    fn kind(&self) -> Kind {
        Kind::SlowReader
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let id = self.random.u64(..);
        let target = format!("/page.php?id={id}&times={TIMES}");
        let request = Request::new("GET", &target).header("Host", CLASSIC);
        let Ok(mut connection) = Connection::try_open(self.address) else {
            return Ok(Outcome::Unconnected);
        };
        if connection.send(&request.to_bytes()).is_err() {
            return Ok(Outcome::Cut);
        }
        std::thread::sleep(PAUSE);
        match connection.read_response(false) {
            Ok(response) => {
                let body = format!("{id} ").repeat(TIMES);
                judge(&Reply::Whole(response), &target, 200, body.as_bytes())
            }
            Err(error) => failure(&error, &target),
        }
    }
}
