//! Pages of scripts, in each mode of pools.

use std::net::SocketAddr;

use fastrand::Rng;
use maitred_tests::http::Request;

use super::{Client, Persistent, judge};
use crate::kind::Kind;
use crate::ledger::Outcome;
use crate::site::{CLASSIC, SNAPSHOT, WORKER};

/// The largest page is this number of repetitions of its id.
const TIMES_MAX: usize = 20_000;

struct Pages {
    kind: Kind,
    http: Persistent,
    random: Rng,
}

/// Clients of all modes.
pub fn clients(address: SocketAddr) -> Vec<Box<dyn Client>> {
    [Kind::Page, Kind::Page, Kind::Worker, Kind::Snapshot]
        .into_iter()
        .map(|kind| {
            let http = Persistent::new(address);
            Box::new(Pages { kind, http, random: Rng::new() }) as Box<dyn Client>
        })
        .collect()
}

impl Client for Pages {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let id = self.random.u64(..);
        let (host, target, body) = match self.kind {
            Kind::Worker => (WORKER, format!("/index.php?id={id}"), id.to_string()),
            Kind::Snapshot => (SNAPSHOT, format!("/index.php?id={id}"), format!("{id} 1")),
            _ => {
                // Most pages are small.
                let times = self.random.usize(1..=TIMES_MAX) >> self.random.u32(0..14);
                let times = times.max(1);
                let body = format!("{id} ").repeat(times);
                (CLASSIC, format!("/page.php?id={id}&times={times}"), body)
            }
        };
        let request = Request::new("GET", &target).header("Host", host);
        judge(&self.http.ask(&request)?, &target, 200, body.as_bytes())
    }
}
