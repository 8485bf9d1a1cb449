//! The log of a server whose messages go to a collector (`error_log = "syslog"` or `"journald"`).
//!
//! Writing never waits. Messages that do not fit are dropped; their number is logged before the
//! next one that fits. Without a collector, messages go to standard error.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_config::LogTarget;
use maitred_os::clock::local_iso_8601;
use maitred_os::collector::{Collector, Field, Severity};
use maitred_os::stderr;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format};
use tracing_subscriber::registry::LookupSpan;

/// The collector, if one is configured.
static COLLECTED: RwLock<Option<Arc<CollectedLog>>> = RwLock::new(None);

/// A collector, and how many messages found no space there.
#[derive(Debug)]
pub struct CollectedLog {
    collector: Collector,
    /// Messages dropped since the last one that was sent.
    lost: AtomicU64,
}

/// Sends messages to the collector that `log` names, or else to standard error.
pub fn follow(log: &LogTarget) {
    let new = match log {
        LogTarget::Collector(collector) => {
            Some(Arc::new(CollectedLog::new(maitred_front::way_to(collector))))
        }
        LogTarget::Stderr | LogTarget::File(_) | LogTarget::Syslog => None,
    };
    *COLLECTED.write().unwrap_or_else(PoisonError::into_inner) = new;
}

fn collected() -> Option<Arc<CollectedLog>> {
    let collected = COLLECTED.read();
    collected.unwrap_or_else(PoisonError::into_inner).clone()
}

impl CollectedLog {
    /// The log of this collector.
    pub fn new(collector: Collector) -> CollectedLog {
        CollectedLog { collector, lost: AtomicU64::new(0) }
    }

    /// Writes a line, after a `notice` of those that were dropped before. False if no collector
    /// listens.
    pub fn write(
        &self,
        severity: Severity,
        line: &[u8],
        notice: impl FnOnce(u64) -> Vec<u8>,
    ) -> bool {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let is_sent = lost == 0 || self.send(Severity::Warning, &notice(lost)).is_ok();
        if !is_sent {
            self.lost.fetch_add(lost, Ordering::Relaxed);
        }
        match self.send(severity, line) {
            Err(why) if is_full(&why) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                true
            }
            sent => sent.is_ok(),
        }
    }

    fn send(&self, severity: Severity, line: &[u8]) -> io::Result<()> {
        let fields: [Field<'_>; 1] = [("MAITRED_LOG", b"error")];
        let message = self.collector.message(severity as u8, line, &fields);
        self.collector.send(&message)
    }
}

fn is_full(why: &io::Error) -> bool {
    let no_buffers = rustix::io::Errno::NOBUFS.raw_os_error();
    why.kind() == io::ErrorKind::WouldBlock || why.raw_os_error() == Some(no_buffers)
}

/// The time of an event in the machine's time zone, which is written out.
struct LocalTime;

impl FormatTime for LocalTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        writer.write_str(&local_iso_8601(since.as_secs().cast_signed()))
    }
}

/// The format of events: a collector adds time and level itself.
pub struct EventFormat {
    usual: Format<Full, LocalTime>,
    bare: Format<Full, ()>,
}

impl Default for EventFormat {
    fn default() -> EventFormat {
        let usual = format().with_target(false).with_timer(LocalTime);
        let bare = format().with_target(false).with_level(false);
        EventFormat { usual, bare: bare.with_ansi(false).without_time() }
    }
}

impl<S, N> FormatEvent<S, N> for EventFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        match collected() {
            Some(_) => self.bare.format_event(context, writer, event),
            None => self.usual.format_event(context, writer, event),
        }
    }
}

/// The destination of lines.
pub struct LogWriter;

/// The destination of one line.
pub struct LineWriter(Severity);

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter(Severity::Info)
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LineWriter {
        LineWriter(match *metadata.level() {
            tracing::Level::ERROR => Severity::Error,
            tracing::Level::WARN => Severity::Warning,
            tracing::Level::INFO => Severity::Info,
            _ => Severity::Debug,
        })
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let notice = |lines| super::lost(lines).into_bytes();
        let is_taken = collected().is_some_and(|collected| collected.write(self.0, line, notice));
        if !is_taken {
            let notice = |lines| format!("maitred: {}\n", super::lost(lines)).into_bytes();
            stderr::write_line(line, notice)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
