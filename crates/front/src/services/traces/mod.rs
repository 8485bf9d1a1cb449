//! Traces of requests: which ones are exported, and the way of their spans to the collector. A
//! request leaves its spans in a bounded queue; a thread of its own takes them from there, so that
//! no request waits for the collector (docs/decisions/0020-traces.md).

pub(crate) mod collector_tls;
pub(crate) mod export;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::time::Duration;

use maitred_config as config;
use maitred_trace::{RequestTrace, Sampling, Span};
use tokio::sync::mpsc;

use crate::services::traces::export::Exporter;

/// Most requests whose spans wait for their export.
const QUEUE_REQUESTS: usize = 4096;

/// How long a stopping front waits for the export of the last spans.
const FINISH: Duration = Duration::from_secs(2);

/// Counters of spans, since the start of the front.
#[derive(Debug, Default)]
pub struct TraceStats {
    /// Spans that the collector has taken.
    pub exported: AtomicU64,
    /// Spans that the collector has rejected.
    pub rejected: AtomicU64,
    /// Spans that could not be sent.
    pub failed: AtomicU64,
    /// Spans for which the queue had no room.
    pub dropped: AtomicU64,
}

impl TraceStats {
    /// The counters by result.
    pub fn read(&self) -> [(&'static str, u64); 4] {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("exported", of(&self.exported)),
            ("rejected", of(&self.rejected)),
            ("failed", of(&self.failed)),
            ("dropped", of(&self.dropped)),
        ]
    }
}

/// The traces of one configuration.
#[derive(Debug)]
pub struct Traces {
    /// The settings.
    pub settings: config::Traces,
    stats: Arc<TraceStats>,
    /// None: nothing is exported.
    queue: Option<mpsc::Sender<Vec<Span>>>,
    /// Disconnected when the thread of the exporter has ended.
    ended: Mutex<Option<std_mpsc::Receiver<()>>>,
}

impl Traces {
    /// Starts the thread that exports, if spans are exported.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(settings: config::Traces, stats: Arc<TraceStats>) -> Result<Traces, String> {
        let (mut queue, mut ended) = (None, None);
        if settings.is_on {
            let (sender, receiver) = mpsc::channel(QUEUE_REQUESTS);
            let (running, has_ended) = std_mpsc::channel();
            let exporter = Exporter::new(&settings, stats.clone());
            std::thread::Builder::new()
                .name("traces".to_owned())
                .spawn(move || {
                    exporter.run(receiver);
                    drop(running);
                })
                .map_err(|error| format!("the thread of traces cannot be started: {error}"))?;
            (queue, ended) = (Some(sender), Some(has_ended));
        }
        Ok(Traces { settings, stats, queue, ended: Mutex::new(ended) })
    }

    /// The trace of a request with these headers.
    pub fn begin<'h, V: Iterator<Item = &'h [u8]>>(
        &self,
        values: impl Fn(&'static str) -> V,
    ) -> RequestTrace {
        let sampling = Sampling {
            thousandths: self.settings.ratio,
            follows_parent: self.settings.follow_parent,
        };
        RequestTrace::of(sampling, values)
    }

    /// Whether a request of this duration is exported because it is slow.
    pub fn is_slow(&self, took: Duration) -> bool {
        self.settings.slow.is_some_and(|slow| took >= slow)
    }

    /// Whether spans are exported.
    pub fn is_exporting(&self) -> bool {
        self.queue.is_some()
    }

    /// Leaves the spans of a request for their export.
    pub fn export(&self, spans: Vec<Span>) {
        let Some(queue) = &self.queue else { return };
        if let Err(refused) = queue.try_send(spans) {
            let spans = refused.into_inner().len() as u64;
            self.stats.dropped.fetch_add(spans, Ordering::Relaxed);
        }
    }

    /// Waits for the export of the last spans, for a limited time.
    pub fn finish(self: Arc<Self>) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(self);
        if let Some(ended) = ended {
            let _ = ended.recv_timeout(FINISH);
        }
    }
}
