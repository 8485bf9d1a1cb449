//! Samples the server during a run, once a second, on its own thread.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use maitred_control::admin::{Reply, Request, ServerStatus};
use maitred_measure::request::RequestSpec;
use maitred_measure::response::{Http1Reader, ReadOptions, ReadResponse};
use maitred_measure::url::Url;
use maitred_measure::watched::{ProcessTree, ServerSample, ServerSamples};

use super::bench_error::BenchError;
use crate::client::Client;

/// Sampling interval.
const EVERY: Duration = Duration::from_secs(1);

/// Polling interval for the end of the run.
const LOOK: Duration = Duration::from_millis(20);

/// Timeout of a status page.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest status page in bytes.
const MAX_PAGE_BYTES: usize = 1 << 20;

/// The source of samples.
#[derive(Debug)]
enum SampleSource {
    /// maitred: its admin socket, or the default one.
    Admin(Option<PathBuf>),
    /// A status page of php-fpm or maitred, in JSON.
    StatusPage(Url),
    /// `/proc`, for this process and its descendants.
    Process(i32),
}

/// A running watch.
pub struct ServerWatch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<ServerSamples>,
}

impl ServerWatch {
    /// Starts watching the argument of `--watch`: `maitred`, an admin socket, the URL of a status
    /// page or a process id.
    ///
    /// # Errors
    /// One sentence, if there is nothing to sample.
    pub fn start(what: &str) -> Result<ServerWatch, BenchError> {
        let source = source(what)?;
        let mut seer = Sampler::new(source);
        let first = seer.look().map_err(BenchError::Now)?;
        let over = Arc::new(AtomicBool::new(false));
        let (is_over, what) = (over.clone(), what.to_owned());
        let thread = std::thread::Builder::new().spawn(move || seer.watch(what, first, &is_over));
        let thread =
            thread.map_err(|why| BenchError::Now(format!("cannot start a thread: {why}")))?;
        Ok(ServerWatch { over, thread })
    }

    /// Stops, and returns the samples.
    pub fn end(self) -> ServerSamples {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn source(what: &str) -> Result<SampleSource, String> {
    if what == "maitred" {
        return Ok(SampleSource::Admin(None));
    }
    if let Ok(pid) = what.parse() {
        return Ok(SampleSource::Process(pid));
    }
    if !what.starts_with("http://") {
        return Ok(SampleSource::Admin(Some(what.into())));
    }
    let mut place = Url::read(what, None)?;
    if !place.path.contains('?') {
        place.path.push_str("?json");
    }
    Ok(SampleSource::StatusPage(place))
}

struct Sampler {
    source: SampleSource,
    began: Instant,
    client: Option<Client>,
    /// Clock ticks of the process tree at the first sample, and ticks per second.
    ticks: Option<u64>,
    ticks_per_second: f64,
}

impl Sampler {
    fn new(source: SampleSource) -> Sampler {
        Sampler {
            source,
            began: Instant::now(),
            client: None,
            ticks: None,
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
        }
    }

    fn watch(mut self, source: String, first: ServerSample, over: &AtomicBool) -> ServerSamples {
        let mut samples = vec![first];
        let mut lost = None;
        let mut next = self.began + EVERY;
        while !over.load(Ordering::Relaxed) && lost.is_none() {
            std::thread::sleep(LOOK);
            if Instant::now() >= next {
                next += EVERY;
                match self.look() {
                    Ok(sample) => samples.push(sample),
                    Err(why) => lost = Some(why),
                }
            }
        }
        if lost.is_none() {
            // The last partial second counts, too.
            samples.extend(self.look());
        }
        ServerSamples::of(source, samples, lost)
    }

    fn look(&mut self) -> Result<ServerSample, String> {
        let mut sample = match &self.source {
            SampleSource::Admin(path) => {
                let client = match self.client.take() {
                    Some(client) => client,
                    None => Client::connect(path.as_deref())?,
                };
                let client = self.client.insert(client);
                let Reply::Status(status) = client.ask(&Request::Status { pool: None })? else {
                    return Err(crate::client::UNEXPECTED.to_owned());
                };
                let pid = i32::try_from(status.pid).unwrap_or(0);
                let family = self.family(pid);
                ServerSample { cpu: family.and_then(|family| family.cpu), ..of_status(&status) }
            }
            SampleSource::StatusPage(place) => of_page(&fetch(place)?)?,
            SampleSource::Process(pid) => {
                let pid = *pid;
                self.family(pid).ok_or_else(|| format!("there is no process {pid}"))?
            }
        };
        sample.second = self.began.elapsed().as_secs_f64();
        Ok(sample)
    }

    fn family(&mut self, pid: i32) -> Option<ServerSample> {
        let family = ProcessTree::of(pid)?;
        let first = *self.ticks.get_or_insert(family.ticks);
        let ticks = family.ticks.saturating_sub(first);
        Some(ServerSample {
            processes: Some(family.processes),
            cpu: Some(ticks as f64 / self.ticks_per_second),
            private_bytes: family.private_bytes,
            ..ServerSample::default()
        })
    }
}

fn of_status(status: &ServerStatus) -> ServerSample {
    let sum =
        |of: fn(&maitred_control::admin::PoolStatus) -> u64| status.pools.iter().map(of).sum();
    ServerSample {
        busy: Some(sum(|pool| pool.workers.busy)),
        idle: Some(sum(|pool| pool.workers.idle)),
        queue: Some(sum(|pool| pool.queue.now)),
        processes: Some(sum(|pool| pool.memory.processes)),
        private_bytes: Some(sum(|pool| pool.memory.private_bytes)),
        ..ServerSample::default()
    }
}

/// Reads php-fpm's status page in JSON.
fn of_page(page: &[u8]) -> Result<ServerSample, String> {
    let page: serde_json::Value = serde_json::from_slice(page)
        .map_err(|why| format!("the status page is no JSON ({why}); php-fpm's is at ?json"))?;
    let figure = |name: &str| page.get(name).and_then(serde_json::Value::as_u64);
    Ok(ServerSample {
        busy: figure("active processes"),
        idle: figure("idle processes"),
        queue: figure("listen queue"),
        processes: figure("total processes"),
        ..ServerSample::default()
    })
}

fn fetch(place: &Url) -> Result<Vec<u8>, String> {
    let failed = |why: std::io::Error| format!("the status page {place} cannot be read: {why}");
    let mut addresses = (place.host.as_str(), place.port).to_socket_addrs().map_err(failed)?;
    let address = addresses.next().ok_or_else(|| format!("{} has no address", place.host))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let request = RequestSpec::get(place.clone()).http1(None, None, false);
    stream.write_all(&request).map_err(failed)?;
    let mut bytes = Vec::new();
    let bounded = stream.take(MAX_PAGE_BYTES as u64).read_to_end(&mut bytes);
    bounded.map_err(failed)?;
    let mut reader = Http1Reader::default();
    reader.begin(ReadOptions::default());
    let response = match reader.read(&bytes) {
        Ok(Some(response)) => Ok(response),
        Ok(None) => reader.ended(),
        Err(why) => Err(why),
    };
    let response = response.map_err(|why| format!("the status page {place}: {why}"))?;
    if response.status != 200 {
        return Err(format!("the status page {place} responds with {}", response.status));
    }
    // A page this small is one chunk, if it is chunked at all.
    let object = object_in(&bytes).ok_or_else(|| format!("{place} is no status page in JSON"))?;
    Ok(object.to_vec())
}

/// From the first brace to the last.
fn object_in(bytes: &[u8]) -> Option<&[u8]> {
    let first = bytes.iter().position(|byte| *byte == b'{')?;
    let last = bytes.iter().rposition(|byte| *byte == b'}')?;
    bytes.get(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_watched_is_told_apart() {
        assert!(matches!(source("maitred"), Ok(SampleSource::Admin(None))));
        assert!(matches!(source("/run/x.sock"), Ok(SampleSource::Admin(Some(_)))));
        assert!(matches!(source("4711"), Ok(SampleSource::Process(4711))));
        let Ok(SampleSource::StatusPage(place)) = source("http://127.0.0.1/status") else {
            panic!("a page")
        };
        assert_eq!(place.path, "/status?json");
    }

    #[test]
    fn php_fpms_page_is_understood() {
        let page = br#"{"pool":"www","listen queue":3,"idle processes":1,"active processes":4,
            "total processes":5}"#;
        let sample = of_page(page).expect("a page");
        assert_eq!((sample.busy, sample.idle, sample.queue), (Some(4), Some(1), Some(3)));
        assert!(of_page(b"pool: www").is_err());
    }
}
