//! An upstream behind `proxy`: pages and WebSocket messages.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use fastrand::Rng;
use maitred_tests::http::{Connection, Request};
use maitred_tests::websocket;

use super::{Client, Persistent, failure, honest_error, judge};
use crate::kind::Kind;
use crate::ledger::Outcome;
use crate::namespace;
use crate::site::CLASSIC;

/// Messages over one WebSocket. After a fault, all of them are waited for.
const MESSAGES: u32 = 5;

struct Pages {
    kind: Kind,
    http: Persistent,
    random: Rng,
}

struct Socket {
    address: SocketAddr,
    random: Rng,
}

/// One of each.
pub fn clients(address: SocketAddr) -> Vec<Box<dyn Client>> {
    let mut kinds = vec![Kind::Proxied];
    kinds.extend(namespace::is_own().then_some(Kind::Named));
    let pages = kinds.into_iter().map(|kind| {
        let http = Persistent::new(address);
        Box::new(Pages { kind, http, random: Rng::new() }) as Box<dyn Client>
    });
    let socket = Box::new(Socket { address, random: Rng::new() }) as Box<dyn Client>;
    pages.chain([socket]).collect()
}

impl Client for Pages {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let folder = if self.kind == Kind::Named { "named" } else { "upstream" };
        let target = format!("/{folder}/{}", self.random.u64(..));
        let request = Request::new("GET", &target).header("Host", CLASSIC);
        judge(&self.http.ask(&request)?, &target, 200, target.as_bytes())
    }
}

impl Socket {
    fn exchange(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        for _ in 0..MESSAGES {
            let sent: [u8; 32] = std::array::from_fn(|_| self.random.u8(..));
            stream.write_all(&sent)?;
            let mut received = [0; 32];
            stream.read_exact(&mut received)?;
            if sent != received {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Client for Socket {
    fn kind(&self) -> Kind {
        Kind::WebSocket
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let target = "/upstream/socket";
        let Ok(mut connection) = Connection::try_open(self.address) else {
            return Ok(Outcome::Unconnected);
        };
        let mut handshake = websocket::handshake(target);
        handshake.headers.retain(|(name, _)| name != "Host");
        let handshake = handshake.header("Host", CLASSIC);
        let sent = connection.send(&handshake.to_bytes());
        let response = match sent.and_then(|()| connection.read_head()) {
            Ok(response) => response,
            Err(error) => return failure(&error, target),
        };
        if response.status != 101 {
            return honest_error(&response, target);
        }
        let mut stream = connection.stream().try_clone().map_err(|error| error.to_string())?;
        match self.exchange(&mut stream) {
            Ok(true) => Ok(Outcome::Right),
            Ok(false) => Err(format!("{target}: another message than was sent")),
            Err(error) => failure(&error, target),
        }
    }
}
