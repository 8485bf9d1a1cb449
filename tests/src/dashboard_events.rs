//! The stream of events of a dashboard.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::wait;
use serde_json::{Value, json};

/// The stream of a dashboard.
#[derive(Debug)]
pub struct Events {
    /// What has arrived and is not read yet.
    pub input: BufReader<TcpStream>,
    /// Bytes that were read.
    pub bytes: usize,
}

impl Events {
    /// Opens it, with this query and these headers.
    ///
    /// # Panics
    /// When it is refused.
    pub fn open(admin: SocketAddr, query: &str, headers: &str) -> Events {
        let mut stream = TcpStream::connect(admin).expect("it works");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it works");
        let request =
            format!("GET /dashboard/events{query} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("it works");
        let mut events = Events { input: BufReader::new(stream), bytes: 0 };
        let status = events.line();
        assert!(status.contains(" 200 "), "{status}");
        while !events.line().is_empty() {}
        events
    }

    /// The next line.
    ///
    /// # Panics
    /// When it is broken off.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.bytes += self.input.read_line(&mut line).expect("the stream goes on");
        line.trim_end().to_owned()
    }

    /// Waits until the server ends the stream.
    ///
    /// # Panics
    /// When it goes on for too long.
    pub fn wait_for_end(&mut self) {
        let mut line = String::new();
        wait::until_true("the end of the stream", || {
            line.clear();
            self.input.read_line(&mut line).expect("the stream ends in order") == 0
        });
    }

    /// The next event of this name.
    ///
    /// # Panics
    /// When the stream ends or is malformed.
    pub fn next(&mut self, name: &str) -> Value {
        loop {
            let line = self.line();
            let Some(found) = line.strip_prefix("event: ") else { continue };
            let data = self.line();
            if found == name {
                let data = data.strip_prefix("data: ").expect("an event has data");
                return serde_json::from_str(data).expect("the data is JSON");
            }
        }
    }
}

/// Applies a merge patch (RFC 7396 §2).
///
/// # Panics
/// Never: a target that is no object becomes one.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, change) in changes {
        match change {
            Value::Null => drop(target.as_object_mut().expect("it works").remove(name)),
            change => merge(&mut target[name.as_str()], change),
        }
    }
}
