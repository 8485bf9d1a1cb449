//! The thread that sends spans to a collector: OTLP in JSON over HTTP/1.1, with TLS if its URL has
//! https.

use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use maitred_config as config;
use maitred_trace::Span;
use maitred_trace::otlp::{self, Export};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::services::traces::{TraceStats, collector_tls};

/// Requests whose spans are sent together.
const BATCH_REQUESTS: usize = 512;
/// How long the first of them waits for others. The queue has room for as many as arrive meanwhile.
const DELAY: Duration = Duration::from_millis(200);
/// Timeout of one export.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often an export is repeated that the collector could not take at the moment.
const RETRIES: u32 = 3;
/// The pause before the first repetition; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause that a collector may ask for (`Retry-After`).
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Most bytes that are read of a response.
const RESPONSE_BYTES: usize = 64 * 1024;

/// What sends spans.
pub struct Exporter {
    endpoint: config::CollectorUrl,
    ca_file: Option<PathBuf>,
    headers: HeaderMap,
    resource: Vec<(String, String)>,
    stats: Arc<TraceStats>,
}

/// Why an export has failed.
enum ExportFailure {
    /// It may succeed later: after this time, if the collector says so.
    Later(Option<Duration>, String),
    /// It never will.
    Never(String),
}

/// What has been logged of failures.
#[derive(Default)]
struct Episode {
    /// Spans that were lost since the first failure; none: the last export succeeded.
    lost: Option<u64>,
}

impl Exporter {
    /// The exporter of these settings.
    pub fn new(settings: &config::Traces, stats: Arc<TraceStats>) -> Exporter {
        let pairs = settings.headers.iter().filter_map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(value).ok()?))
        });
        let mut headers: HeaderMap = pairs.collect();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(otlp::CONTENT_TYPE));
        if let Ok(host) = HeaderValue::from_str(&settings.endpoint.authority()) {
            headers.insert(HOST, host);
        }
        let name = ("service.name".to_owned(), settings.service_name.clone());
        let resource = std::iter::once(name).chain(settings.resource.iter().cloned()).collect();
        let (endpoint, ca_file) = (settings.endpoint.clone(), settings.ca_file.clone());
        Exporter { endpoint, ca_file, headers, resource, stats }
    }

    /// Sends what arrives in the queue, until nothing can arrive any more.
    pub fn run(self, mut queue: mpsc::Receiver<Vec<Span>>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.send_all(&mut queue)),
            Err(error) => tracing::error!("traces are not exported: {error}"),
        }
    }

    async fn send_all(&self, queue: &mut mpsc::Receiver<Vec<Span>>) {
        let mut link = None;
        let mut episode = Episode::default();
        while let Some(mut spans) = queue.recv().await {
            let mut count = take(queue, &mut spans, 1);
            // No request wakes this thread meanwhile.
            if count < BATCH_REQUESTS && !queue.is_closed() {
                tokio::time::sleep(DELAY).await;
                count = take(queue, &mut spans, count);
            }
            tracing::trace!("{} spans of {count} requests", spans.len());
            let result = self.send_until_taken(&mut link, &spans, queue).await;
            self.conclude(&mut episode, spans.len() as u64, result);
        }
    }

    /// Counts the outcome, and logs the first failure and the end of failures.
    fn conclude(&self, episode: &mut Episode, spans: u64, result: Result<u64, String>) {
        let add = |counter: &AtomicU64, count: u64| {
            counter.fetch_add(count, Ordering::Relaxed);
        };
        let name = self.endpoint.authority();
        match result {
            Ok(rejected) => {
                let rejected = rejected.min(spans);
                add(&self.stats.exported, spans - rejected);
                add(&self.stats.rejected, rejected);
                if let Some(lost) = episode.lost.take() {
                    tracing::warn!("the collector {name} takes spans again; {lost} were lost");
                }
            }
            Err(why) => {
                add(&self.stats.failed, spans);
                if episode.lost.is_none() {
                    tracing::warn!("spans are lost: the collector {name} {why}");
                }
                *episode.lost.get_or_insert(0) += spans;
            }
        }
    }

    /// Sends a batch, and repeats that a few times. Once the front stops, it is sent once. Returns
    /// the number of rejected spans.
    async fn send_until_taken(
        &self,
        link: &mut Option<SendRequest<String>>,
        spans: &[Span],
        queue: &mpsc::Receiver<Vec<Span>>,
    ) -> Result<u64, String> {
        let (resource, version) = (&*self.resource, env!("CARGO_PKG_VERSION"));
        let body = Export { resource, version, spans }.to_json();
        let body = String::from_utf8(body).map_err(|error| error.to_string())?;
        let mut retries = 0..RETRIES;
        loop {
            let sent = tokio::time::timeout(TIMEOUT, self.send(link, body.clone())).await;
            let failure = match sent {
                Ok(Ok(rejected)) => return Ok(rejected),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    let why = format!("did not respond within {} s", TIMEOUT.as_secs());
                    ExportFailure::Later(None, why)
                }
            };
            *link = None;
            let (asked, why) = match failure {
                ExportFailure::Never(why) => return Err(why),
                ExportFailure::Later(asked, why) => (asked, why),
            };
            let Some(retry) = retries.next().filter(|_| !queue.is_closed()) else {
                return Err(why);
            };
            tokio::time::sleep(asked.unwrap_or(PAUSE * (1 << retry)).min(MAX_PAUSE)).await;
        }
    }

    /// Sends a batch once.
    async fn send(
        &self,
        link: &mut Option<SendRequest<String>>,
        body: String,
    ) -> Result<u64, ExportFailure> {
        let broken =
            |error: hyper::Error| ExportFailure::Later(None, format!("broke off: {error}"));
        let mut sender = match link.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await.map_err(broken)?;
        let mut request = Request::post(&self.endpoint.path)
            .body(body)
            .map_err(|error| ExportFailure::Never(format!("cannot be asked: {error}")))?;
        *request.headers_mut() = self.headers.clone();
        let response = sender.send_request(request).await.map_err(broken)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let text = collect(response.into_body()).await.map_err(broken)?;
        if status.is_success() {
            *link = Some(sender);
            return Ok(otlp::rejected(&text));
        }
        let why = format!("responds with status {}", status.as_u16());
        match is_temporary(status) {
            true => Err(ExportFailure::Later(pause(&headers), why)),
            false => Err(ExportFailure::Never(why)),
        }
    }

    async fn connect(&self) -> Result<SendRequest<String>, ExportFailure> {
        let (host, port) = (self.endpoint.host.as_str(), self.endpoint.port);
        let unreachable = |error: std::io::Error| {
            ExportFailure::Later(None, format!("cannot be reached: {error}"))
        };
        let stream = TcpStream::connect((host, port)).await.map_err(unreachable)?;
        if !self.endpoint.is_https {
            return link_over(stream).await;
        }
        let stream = collector_tls::secured(stream, host, self.ca_file.as_deref()).await;
        link_over(stream.map_err(|why| ExportFailure::Later(None, why))?).await
    }
}

/// Speaks HTTP/1.1 over a connection.
async fn link_over<S>(stream: S) -> Result<SendRequest<String>, ExportFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ExportFailure::Later(None, format!("broke off: {error}")))?;
    tokio::spawn(async move {
        // The request that waits for the response gets the error.
        let _ = connection.await;
    });
    Ok(sender)
}

/// Takes further spans from the queue, up to a batch that has `count` requests so far.
fn take(queue: &mut mpsc::Receiver<Vec<Span>>, spans: &mut Vec<Span>, mut count: usize) -> usize {
    while count < BATCH_REQUESTS {
        let Ok(more) = queue.try_recv() else { break };
        spans.extend(more);
        count += 1;
    }
    count
}

/// The statuses after which an export may be repeated (OTLP/HTTP, "Retryable Response Codes").
fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// The pause that a collector asks for, in seconds.
fn pause(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The beginning of a response's body.
async fn collect(mut body: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Some(data) = frame?.data_ref() {
            let room = RESPONSE_BYTES.saturating_sub(all.len());
            all.extend_from_slice(data.get(..room).unwrap_or(data));
        }
    }
    Ok(all)
}
