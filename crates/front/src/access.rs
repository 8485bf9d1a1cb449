//! The access log: one line for every request, with the time it waited and the time its script
//! took.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use maitred_config::{AccessLogFormat, Config, LogTarget};
use maitred_http1::Head;
use maitred_os::stderr;

use crate::clock;
use crate::troubles::Troubles;

/// Lines are written together up to this many bytes.
const BUFFER_BYTES: usize = 32 * 1024;

/// Where lines go, and how they look.
#[derive(Debug)]
pub struct AccessLog {
    sink: Sink,
    format: AccessLogFormat,
    troubles: Arc<Troubles>,
}

#[derive(Debug)]
enum Sink {
    /// Among the messages, wherever those go at the moment.
    Stderr,
    /// The file that the supervisor opened last.
    File(RwLock<File>),
}

/// What a line says of an answer.
#[derive(Debug, Default, Clone, Copy)]
pub struct Answered {
    /// The status sent.
    pub status: u16,
    /// Bytes of body that the client was really sent, its framing included.
    pub bytes: u64,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// The client, if a proxy has named another than who connected.
    pub client: Option<IpAddr>,
    /// How long the request waited for a worker.
    pub queued: Option<Duration>,
    /// How long its script took.
    pub script: Option<Duration>,
}

thread_local! {
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static SECOND: Cell<u64> = const { Cell::new(0) };
    static STAMP: RefCell<String> = const { RefCell::new(String::new()) };
}

impl AccessLog {
    /// A log in `file`, or among the messages if there is none. What cannot be written is told to
    /// `troubles`.
    pub fn new(
        file: Option<OwnedFd>,
        format: AccessLogFormat,
        troubles: Arc<Troubles>,
    ) -> AccessLog {
        let sink = match file {
            None => Sink::Stderr,
            Some(file) => Sink::File(RwLock::new(file.into())),
        };
        AccessLog {
            sink,
            format,
            troubles,
        }
    }

    /// The log that a configuration asks for, which writes to `file` if it is one.
    ///
    /// # Errors
    /// When it is a file and none came.
    pub fn of(
        config: &Config,
        file: Option<OwnedFd>,
        troubles: &Arc<Troubles>,
    ) -> Result<Option<AccessLog>, String> {
        let (file, format) = match (&config.access_log, file) {
            (None, _) => return Ok(None),
            (Some(LogTarget::File(_)), None) => return Err("no access log came".to_owned()),
            (Some(LogTarget::Stderr | LogTarget::Syslog), _) => (None, config.access_log_format),
            (Some(LogTarget::File(_)), file) => (file, config.access_log_format),
        };
        Ok(Some(AccessLog::new(file, format, troubles.clone())))
    }

    /// Further lines go to `file`; when this returns, nobody writes to the former one any more.
    pub fn reopened(&self, file: OwnedFd) {
        if let Sink::File(sink) = &self.sink {
            *sink.write().unwrap_or_else(PoisonError::into_inner) = file.into();
        }
    }

    /// Adds a line. It is written when the thread has a moment, or enough of them.
    pub fn write(&self, peer: IpAddr, head: &Head, begun: Instant, answered: &Answered) {
        let full = LINES.with_borrow_mut(|lines| {
            let peer = peer.to_canonical();
            match self.format {
                AccessLogFormat::Combined => combined(lines, peer, head, answered),
                AccessLogFormat::Json => json(lines, peer, head, begun, answered),
            }
            lines.len() >= BUFFER_BYTES
        });
        if full {
            self.flush();
        }
    }

    /// Adds a line about what was no request.
    pub fn write_refused(&self, peer: IpAddr, status: u16, bytes: u64) {
        LINES.with_borrow_mut(|lines| {
            let peer = peer.to_canonical();
            let _ = match self.format {
                AccessLogFormat::Combined => {
                    let stamp = stamp();
                    writeln!(
                        lines,
                        "{peer} - - [{stamp}] \"-\" {status} {bytes} \"-\" \"-\" - -"
                    )
                }
                AccessLogFormat::Json => {
                    let time = clock::since_1970().as_secs_f64();
                    let line = serde_json::json!({
                        "time": time,
                        "remote_addr": peer.to_string(),
                        "status": status,
                        "bytes": bytes,
                    });
                    writeln!(lines, "{line}")
                }
            };
        });
    }

    /// Writes this thread's lines to the file.
    pub fn flush(&self) {
        LINES.with_borrow_mut(|lines| {
            if lines.is_empty() {
                return;
            }
            let written = match &self.sink {
                // What was lost is told as a trouble.
                Sink::Stderr => stderr::write_line(lines, |_| Vec::new()),
                Sink::File(file) => {
                    let file = file.read().unwrap_or_else(PoisonError::into_inner);
                    (&*file).write_all(lines)
                }
            };
            // A log that cannot be written must not stop the server it is about.
            if let Err(why) = written {
                let count = memchr::memchr_iter(b'\n', lines).count();
                self.troubles.lines_lost(count as u64, &why);
            }
            lines.clear();
        });
    }
}

fn combined(lines: &mut Vec<u8>, peer: IpAddr, head: &Head, answered: &Answered) {
    let stamp = stamp();
    let _ = write!(lines, "{peer} - - [{stamp}] \"{} ", head.method());
    escape(lines, head.target().as_bytes());
    let Answered { status, bytes, .. } = answered;
    let _ = write!(lines, " {}\" {status} {bytes} \"", head.version().as_str());
    escape(lines, head.header("referer").unwrap_or(b"-"));
    lines.extend_from_slice(b"\" \"");
    escape(lines, head.header("user-agent").unwrap_or(b"-"));
    let seconds = |time: Option<Duration>| match time {
        Some(time) => format!("{:.6}", time.as_secs_f64()),
        None => "-".to_owned(),
    };
    let _ = writeln!(
        lines,
        "\" {} {}",
        seconds(answered.queued),
        seconds(answered.script)
    );
}

fn json(lines: &mut Vec<u8>, peer: IpAddr, head: &Head, begun: Instant, answered: &Answered) {
    let text =
        |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let line = serde_json::json!({
        "time": clock::since_1970().as_secs_f64(),
        "remote_addr": peer.to_string(),
        "host": head.host(),
        "method": head.method(),
        "target": head.target(),
        "protocol": head.version().as_str(),
        "status": answered.status,
        "bytes": answered.bytes,
        "referer": text(head.header("referer")),
        "user_agent": text(head.header("user-agent")),
        "request_time": begun.elapsed().as_secs_f64(),
        "queue_time": answered.queued.map(|time| time.as_secs_f64()),
        "script_time": answered.script.map(|time| time.as_secs_f64()),
    });
    let _ = writeln!(lines, "{line}");
}

/// `20/Nov/2026:09:14:30 +0000`, made once a second and thread.
fn stamp() -> String {
    let second = clock::since_1970().as_secs();
    if SECOND.get() != second {
        SECOND.set(second);
        STAMP.set(clock::common_log_time(second));
    }
    STAMP.with_borrow(Clone::clone)
}

/// Nothing a client sends can end a line or a quoted field.
fn escape(lines: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => lines.extend_from_slice(&[b'\\', byte]),
            0x20..=0x7e | 0x80.. => lines.push(byte),
            _ => {
                let _ = write!(lines, "\\x{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_control_bytes_are_escaped() {
        let mut line = Vec::new();
        escape(&mut line, b"a\"b\\c\nd\x7f");
        assert_eq!(line, b"a\\\"b\\\\c\\x0Ad\\x7F");
    }
}
