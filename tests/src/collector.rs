//! A collector of traces: a receiver of OTLP in JSON over HTTP, as an OpenTelemetry Collector is,
//! which Debian does not have. It refuses what the specification does not allow.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::wait;

/// A span as it arrived.
#[derive(Debug, Clone)]
pub struct ReceivedSpan {
    /// The span.
    pub json: Value,
    /// The attributes of its resource.
    pub resource: Value,
    /// The headers of its export.
    pub headers: Vec<String>,
}

/// A running collector.
pub struct Collector {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    spans: Mutex<Vec<ReceivedSpan>>,
    status: AtomicU16,
    exports: AtomicUsize,
    is_stuck: AtomicBool,
    ends: AtomicBool,
}

impl Collector {
    /// A collector that takes everything.
    pub fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let shared = Arc::new(Shared {
            spans: Mutex::default(),
            status: AtomicU16::new(200),
            exports: AtomicUsize::new(0),
            is_stuck: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        });
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.ends.load(Ordering::SeqCst) {
                    return;
                }
                let shared = of_thread.clone();
                std::thread::spawn(move || shared.serve(stream.expect("a connection")));
            }
        });
        Collector { address, shared, thread: Some(thread) }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Responds with this status from now on.
    pub fn respond_with(&self, status: u16) {
        self.shared.status.store(status, Ordering::SeqCst);
    }

    /// Responds to nothing from now on, or to everything again.
    pub fn be_stuck(&self, is_stuck: bool) {
        self.shared.is_stuck.store(is_stuck, Ordering::SeqCst);
    }

    /// The number of exports that have arrived.
    pub fn exports(&self) -> usize {
        self.shared.exports.load(Ordering::SeqCst)
    }

    /// The spans that have arrived.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.shared.spans.lock().expect("no thread has panicked").clone()
    }

    /// Waits until the spans of the request for this path are here, and returns those of its trace.
    pub fn trace_of(&self, path: &str) -> Vec<ReceivedSpan> {
        wait::until(&format!("the spans of {path}"), || {
            let all = self.spans();
            let root = all.iter().find(|span| span.text("url.path").as_deref() == Some(path))?;
            let id = root.json["traceId"].clone();
            Some(all.into_iter().filter(|span| span.json["traceId"] == id).collect())
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.is_stuck.store(false, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut out = stream.try_clone().expect("a second descriptor");
        let mut input = BufReader::new(stream);
        while let Some((headers, body)) = export(&mut input) {
            self.exports.fetch_add(1, Ordering::SeqCst);
            while self.is_stuck.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let status = self.status.load(Ordering::SeqCst);
            if status == 200 {
                let spans = spans(&headers, &body);
                self.spans.lock().expect("no thread has panicked").extend(spans);
            }
            let response = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\n{{}}");
            if out.write_all(response.as_bytes()).is_err() {
                break;
            }
        }
        let _ = out.shutdown(Shutdown::Both);
    }
}

/// Headers and body of the next export.
fn export(input: &mut impl BufRead) -> Option<(Vec<String>, Vec<u8>)> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        headers.push(line);
    }
    let length = headers.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.expect("an export has a length")];
    input.read_exact(&mut body).ok()?;
    Some((headers, body))
}

/// The spans of an export, which have the form that the specification asks for.
fn spans(headers: &[String], body: &[u8]) -> Vec<ReceivedSpan> {
    let json: Value = serde_json::from_slice(body).expect("an export is JSON");
    let mut all = Vec::new();
    for group in json["resourceSpans"].as_array().expect("a list") {
        for scope in group["scopeSpans"].as_array().expect("a list") {
            assert_eq!(scope["scope"]["name"], "maitred");
            for span in scope["spans"].as_array().expect("a list") {
                let is_hex = |name: &str, digits: usize| {
                    let id = span[name].as_str().expect("an id");
                    id.len() == digits && id.bytes().all(|byte| byte.is_ascii_hexdigit())
                };
                assert!(is_hex("traceId", 32) && is_hex("spanId", 16), "{span}");
                let at = |name: &str| -> u64 {
                    span[name].as_str().and_then(|text| text.parse().ok()).expect("a time")
                };
                assert!(at("startTimeUnixNano") <= at("endTimeUnixNano"), "{span}");
                all.push(ReceivedSpan {
                    json: span.clone(),
                    resource: group["resource"].clone(),
                    headers: headers.to_vec(),
                });
            }
        }
    }
    all
}

/// The value of an attribute as text.
fn attribute(of: &Value, name: &str) -> Option<String> {
    let value = of["attributes"].as_array()?.iter().find(|one| one["key"] == name)?;
    let value = value["value"].as_object()?.values().next()?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

impl ReceivedSpan {
    /// The value of an attribute as text.
    pub fn text(&self, name: &str) -> Option<String> {
        attribute(&self.json, name)
    }

    /// The value of an attribute of its resource as text.
    pub fn resource_text(&self, name: &str) -> Option<String> {
        attribute(&self.resource, name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.json["name"].as_str().expect("a name")
    }

    /// Its duration in milliseconds.
    pub fn milliseconds(&self) -> f64 {
        let at = |name: &str| {
            let text = self.json[name].as_str().expect("a time");
            text.parse::<u64>().expect("a number") as f64 / 1e6
        };
        at("endTimeUnixNano") - at("startTimeUnixNano")
    }
}
