//! A dashboard: a client holds its stream of events open, leaves, reads other pages of the admin
//! listener, and returns.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fastrand::Rng;
use maitred_tests::http::{Connection, Request};
use serde_json::Value;

use super::{Client, PAUSE, Persistent, Reply, failure, honest_error};
use crate::kind::Kind;
use crate::ledger::Outcome;

/// The stream. Over HTTP/1.0 its end is that of the connection.
const EVENTS: &str = "GET /dashboard/events?pool=www HTTP/1.0\r\nHost: localhost\r\n\r\n";
/// Most rounds before the client leaves the stream, and before it returns.
const ROUNDS_MAX: u32 = 8;
/// Other pages, and what each contains.
const PAGES: [(&str, &str); 4] = [
    ("/dashboard", "<!doctype html>"),
    ("/dashboard/app.js", "EventSource"),
    ("/metrics", "maitred_info{"),
    ("/scale", "\"saturation\""),
];
/// Most streams in a round: one that ends between two events, as that of a front that has handed
/// over, is opened again, as a browser does.
const STREAMS_MAX: u32 = 4;

/// How long there may be no room for another stream.
const ROOM: Duration = Duration::from_secs(5);

struct Dashboard {
    admin: SocketAddr,
    random: Rng,
    stream: Option<Connection>,
    http: Persistent,
    is_watching: bool,
    /// Rounds until it leaves or returns.
    rounds: u32,
}

/// One of these.
pub fn clients(admin: SocketAddr) -> Vec<Box<dyn Client>> {
    vec![Box::new(Dashboard {
        admin,
        random: Rng::new(),
        stream: None,
        http: Persistent::new(admin),
        is_watching: false,
        rounds: 0,
    })]
}

/// An event of a stream.
enum Next {
    Event(String),
    /// The stream has ended before another one.
    End,
    Failed(Outcome),
}

impl Dashboard {
    fn watch(&mut self) -> Result<Outcome, String> {
        for _ in 0..STREAMS_MAX {
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => match open(self.admin)? {
                    Ok(stream) => stream,
                    Err(outcome) => return Ok(outcome),
                },
            };
            match next(&mut stream)? {
                Next::Event(event) => {
                    check(&event)?;
                    self.stream = Some(stream);
                    return Ok(Outcome::Right);
                }
                Next::End => {}
                Next::Failed(outcome) => return Ok(outcome),
            }
        }
        Ok(Outcome::Cut)
    }

    fn read_page(&mut self) -> Result<Outcome, String> {
        let (target, contains) = PAGES[self.random.usize(..PAGES.len())];
        let request = Request::new("GET", target).header("Host", "localhost");
        match self.http.ask(&request)? {
            Reply::None(outcome) => Ok(outcome),
            Reply::Whole(response)
                if response.status == 200 && response.text().contains(contains) =>
            {
                Ok(Outcome::Right)
            }
            Reply::Whole(response) => honest_error(&response, target),
        }
    }
}

impl Client for Dashboard {
    fn kind(&self) -> Kind {
        Kind::Dashboard
    }

    fn round(&mut self) -> Result<Outcome, String> {
        if self.rounds == 0 {
            self.is_watching = !self.is_watching;
            self.rounds = self.random.u32(1..=ROUNDS_MAX);
            (self.stream, self.http) = (None, Persistent::new(self.admin));
        }
        self.rounds -= 1;
        match self.is_watching {
            true => self.watch(),
            false => self.read_page(),
        }
    }
}

/// Opens the stream. Some can be open at a time, and the server may not know yet that those of
/// before are over.
fn open(admin: SocketAddr) -> Result<Result<Connection, Outcome>, String> {
    let begun = Instant::now();
    loop {
        match try_open(admin)? {
            Err(Outcome::Refused(503)) if begun.elapsed() < ROOM => std::thread::sleep(PAUSE),
            opened => return Ok(opened),
        }
    }
}

fn try_open(admin: SocketAddr) -> Result<Result<Connection, Outcome>, String> {
    let Ok(mut stream) = Connection::try_open(admin) else {
        return Ok(Err(Outcome::Unconnected));
    };
    let head = stream.send(EVENTS.as_bytes()).and_then(|()| stream.read_head());
    match head {
        Ok(response) if response.status == 200 => Ok(Ok(stream)),
        Ok(response) => honest_error(&response, "the events").map(Err),
        Err(error) => failure(&error, "the events").map(Err),
    }
}

fn next(stream: &mut Connection) -> Result<Next, String> {
    let first = match stream.read_bytes(1) {
        Ok(first) => first,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(Next::End),
        Err(error) => return failure(&error, "the events").map(Next::Failed),
    };
    match stream.read_until(b"\n\n") {
        Ok(rest) => {
            let event = [first, rest].concat();
            Ok(Next::Event(String::from_utf8_lossy(&event).into_owned()))
        }
        Err(error) => failure(&error, "an event").map(Next::Failed),
    }
}

/// An event has a known name and an object as its data; a comment has neither.
fn check(event: &str) -> Result<(), String> {
    if event.starts_with(':') {
        return Ok(());
    }
    let wrong = || format!("no event of a dashboard: {:?}", event.get(..200).unwrap_or(event));
    let lines = event.split_once('\n').and_then(|(name, data)| {
        Some((name.strip_prefix("event: ")?, data.strip_prefix("data: ")?))
    });
    let (name, data) = lines.ok_or_else(wrong)?;
    let data: Value = serde_json::from_str(data).map_err(|_| wrong())?;
    match name {
        "state" if data["server"].is_object() && data["pools"].is_object() => Ok(()),
        "patch" | "sample" | "history" if data.is_object() => Ok(()),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_event_is_found() {
        for right in [
            ": there",
            "event: patch\ndata: {}",
            "event: state\ndata: {\"server\":{},\"pools\":{}}",
        ] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for wrong in ["", "event: patch\ndata: {", "event: state\ndata: {}", "event: x\ndata: {}"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
