//! php-fpm's status page, requested over FastCGI.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use maitred_fastcgi::{RequestWriter, ResponseEvent, ResponseReader, write_stdin_end};
use serde::Deserialize;

use super::world::{World, within};
use crate::facts::{Fact, Pool, Unknown};
use crate::quantile::quantile;

/// Largest response in bytes: ten thousand workers fit.
const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// The end of a response header.
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// The page.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    #[serde(rename = "accepted conn")]
    pub(super) accepted: u64,
    #[serde(rename = "start since")]
    pub(super) seconds: u64,
    #[serde(rename = "max listen queue")]
    pub(super) queue_max: u64,
    #[serde(rename = "max children reached")]
    pub(super) limit_reached: u64,
    #[serde(rename = "processes", default)]
    pub(super) workers: Vec<StatusProcess>,
}

/// A worker on the page.
#[derive(Debug, Deserialize)]
pub(super) struct StatusProcess {
    pub(super) pid: i32,
    pub(super) requests: u64,
    /// Of the last request, in microseconds.
    #[serde(rename = "request duration")]
    duration: u64,
    state: String,
    /// Of the last request, the peak memory by PHP's count, in bytes.
    #[serde(rename = "last request memory", default)]
    pub(super) memory: u64,
}

/// PHP's own count of a worker's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The worker's process.
    pub pid: i32,
    /// Requests it has served.
    pub requests: u64,
    /// The peak memory of the last one, in bytes.
    pub memory: u64,
}

/// PHP's own count of the memory of all workers of a running php-fpm pool.
///
/// # Errors
/// Why that is unknown.
pub fn counted(pool: &Pool, patience: Duration) -> Fact<Vec<Counted>> {
    let world = World::new(None, patience);
    let listen = pool.status_at.as_ref().zip(pool.status_path.as_ref());
    let (listen, path) =
        listen.ok_or_else(|| Unknown("its status page is off (pm.status_path)".to_owned()))?;
    let status = ask(&world, listen, path)?;
    let workers = status.workers.iter().map(|worker| Counted {
        pid: worker.pid,
        requests: worker.requests,
        memory: worker.memory,
    });
    Ok(workers.collect())
}

impl Status {
    /// The quantile `p` of the time of the workers' last scripts, in seconds.
    pub(super) fn script(&self, p: f64) -> Option<f64> {
        let idle =
            self.workers.iter().filter(|worker| worker.state == "Idle" && worker.requests > 0);
        let times: Vec<f64> = idle.map(|worker| worker.duration as f64 / 1e6).collect();
        // Of fewer, the largest does not represent the slowest of a hundred.
        let enough = if p > 0.9 { 20 } else { 3 };
        (times.len() >= enough).then(|| quantile(times, p)).flatten()
    }
}

/// Requests the page at an address.
pub(super) fn ask(world: &World, listen: &str, path: &str) -> Fact<Status> {
    if !world.is_here() {
        return Unknown::because("no server is queried for another root");
    }
    let patience = world.patience();
    let (address, target) = (listen.to_owned(), path.to_owned());
    let reported = within(patience, move || talk(&address, &target, patience));
    let late =
        || Unknown(format!("its status page did not come within {} ms", patience.as_millis()));
    let response = reported.ok_or_else(late)?;
    let response =
        response.map_err(|why| Unknown(format!("its status page cannot be requested ({why})")))?;
    let at = response.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD);
    let body = at.map(|at| &response[at + END_OF_HEAD.len()..]).unwrap_or_default();
    serde_json::from_slice(body)
        .map_err(|_| Unknown("its status page is none of php-fpm's".to_owned()))
}

trait Connection: Read + Write {}
impl<T: Read + Write> Connection for T {}

fn connect(listen: &str, patience: Duration) -> std::io::Result<Box<dyn Connection>> {
    if listen.starts_with('/') {
        let stream = UnixStream::connect(listen)?;
        stream.set_read_timeout(Some(patience))?;
        return Ok(Box::new(stream));
    }
    let listen = listen.replace("0.0.0.0:", "127.0.0.1:");
    let mut addresses = listen.to_socket_addrs()?;
    let address = addresses.next().ok_or_else(|| std::io::Error::other("no address"))?;
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(Box::new(stream))
}

fn talk(listen: &str, path: &str, patience: Duration) -> std::io::Result<Vec<u8>> {
    let mut stream = connect(listen, patience)?;
    let uri = format!("{path}?json&full");
    let params = [
        ("SCRIPT_FILENAME", path),
        ("SCRIPT_NAME", path),
        ("REQUEST_URI", uri.as_str()),
        ("QUERY_STRING", "json&full"),
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REMOTE_ADDR", "127.0.0.1"),
    ];
    let mut out = Vec::new();
    let mut request = RequestWriter::new(&mut out, 1, false);
    for (name, value) in params {
        let written = request.param(name.as_bytes(), value.as_bytes());
        written.map_err(|_| std::io::Error::other("the path is too long"))?;
    }
    request.finish();
    write_stdin_end(&mut out, 1);
    stream.write_all(&out)?;
    let mut read = Vec::new();
    stream.take(MAX_REPLY_BYTES as u64).read_to_end(&mut read)?;
    response(&read).ok_or_else(|| std::io::Error::other("it is no FastCGI response"))
}

/// The response without FastCGI's records.
fn response(mut read: &[u8]) -> Option<Vec<u8>> {
    let mut reader = ResponseReader::new(1);
    let mut said = Vec::new();
    while let Some(event) = reader.next(&mut read).ok()? {
        if let ResponseEvent::Stdout(bytes) = event {
            said.extend_from_slice(bytes);
        }
    }
    reader.is_over().then_some(said)
}
