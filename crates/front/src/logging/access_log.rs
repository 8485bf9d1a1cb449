//! The access log: a line per request, with its time in the queue, the time of its script, and its
//! id.

use std::cell::RefCell;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};

use maitred_config as config;
use maitred_config::{Config, LogFormat, LogTarget, SyslogServer};
use maitred_http1::Head;
use maitred_os::collector::{Address, Collector, Field, Form, Severity};
use maitred_os::stderr;

use crate::logging::line_file::{LineFile, LostLines};
use crate::logging::repeated::RepeatedErrors;
use crate::logging::request_record::RequestRecord;
use crate::logging::site_log::SiteLog;
use crate::net::tls::Secured;

pub use crate::logging::access_log_line::{Line, Time, put_visible};
pub use crate::logging::deferred::write_later;

/// Bytes of lines that are written together.
const BUFFER_BYTES: usize = 32 * 1024;

/// The destination and the format of lines.
#[derive(Debug)]
pub struct AccessLog {
    sink: Sink,
    format: LogFormat,
    tells_costs: bool,
    troubles: Arc<RepeatedErrors>,
}

#[derive(Debug)]
enum Sink {
    /// No log of the server; sites may have their own.
    Off,
    /// Standard error, together with the error log.
    Stderr,
    /// The log file, as last opened by the supervisor.
    File(RwLock<LineFile>),
    /// A log collector; lines to syslog have this severity.
    Collector(Collector, u8),
}

thread_local! {
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog {
    /// The access log of a configuration; `file` is its file, if it logs to one. None if no request
    /// is logged.
    ///
    /// # Errors
    /// When it is a file and none was received.
    pub fn of(
        config: &Config,
        file: Option<OwnedFd>,
        troubles: &Arc<RepeatedErrors>,
    ) -> Result<Option<AccessLog>, String> {
        let has_own = |site: &config::Site| matches!(site.access_log, config::SiteLog::File(_));
        let sink = match (&config.access_log, file) {
            (None, _) if config.sites.iter().any(has_own) => Sink::Off,
            (None, _) => return Ok(None),
            (Some(LogTarget::File(_)), None) => {
                return Err("no file for the access log was received".to_owned());
            }
            (Some(LogTarget::File(_)), Some(file)) => {
                Sink::File(RwLock::new(File::from(file).into()))
            }
            (Some(LogTarget::Stderr | LogTarget::Syslog), _) => Sink::Stderr,
            (Some(LogTarget::Collector(collector)), _) => {
                let severity = match collector {
                    config::Collector::Syslog(syslog) => syslog.severity,
                    config::Collector::Journald(_) => Severity::Info as u8,
                };
                Sink::Collector(way_to(collector), severity)
            }
        };
        Ok(Some(AccessLog {
            sink,
            format: config.access_log_format.clone(),
            tells_costs: config.access_log_format.tells_costs(),
            troubles: troubles.clone(),
        }))
    }

    /// Switches to `file`; no thread writes to the former file after this returns.
    pub fn reopened(&self, file: OwnedFd) {
        if let Sink::File(sink) = &self.sink {
            *sink.write().unwrap_or_else(PoisonError::into_inner) = File::from(file).into();
        }
    }

    /// Whether a request with this site log is logged here.
    pub fn wants(&self, site: &SiteLog) -> bool {
        match site {
            SiteLog::Server => !matches!(self.sink, Sink::Off),
            SiteLog::Off => false,
            SiteLog::File(_) => true,
        }
    }

    /// Whether lines contain the cost of scripts.
    pub fn tells_costs(&self) -> bool {
        self.tells_costs
    }

    /// Adds a line. Lines are written when the thread goes to sleep, or when its buffer is full.
    pub fn write(&self, line: &Line<'_>) {
        match (&line.record.log, &self.sink) {
            (SiteLog::Off, _) | (SiteLog::Server, Sink::Off) => {}
            (SiteLog::File(file), _) => self.made(line, |bytes| {
                bytes.push(b'\n');
                file.add(bytes, &self.troubles);
            }),
            (SiteLog::Server, Sink::Collector(collector, severity)) => {
                self.made(line, |bytes| self.send(collector, *severity, bytes, Some(line)));
            }
            (SiteLog::Server, Sink::Stderr | Sink::File(_)) => {
                let full = LINES.with_borrow_mut(|lines| {
                    line.write(lines, &self.format);
                    lines.push(b'\n');
                    lines.len() >= BUFFER_BYTES
                });
                if full {
                    self.flush();
                }
            }
        }
    }

    /// Adds a line about an invalid request.
    pub fn write_refused(&self, peer: IpAddr, status: u16, bytes: u64) {
        let record = RequestRecord { status, bytes, ..RequestRecord::default() };
        self.write(&Line {
            peer: peer.to_canonical(),
            head: None,
            time: None,
            secured: None,
            record: &record,
        });
    }

    /// Writes this thread's lines.
    pub fn flush(&self) {
        LINES.with_borrow_mut(|lines| {
            if lines.is_empty() {
                return;
            }
            let written = match &self.sink {
                // Lost lines are reported as a repeated error.
                Sink::Stderr => stderr::write_line(lines, |_| Vec::new()).map_err(|why| {
                    let count = memchr::memchr_iter(b'\n', lines).count() as u64;
                    LostLines { count, why }
                }),
                Sink::File(file) => {
                    let file = file.read().unwrap_or_else(PoisonError::into_inner);
                    file.write(lines)
                }
                // The lines belong to the file that a reload has replaced.
                Sink::Collector(collector, severity) => {
                    let ended = lines.split(|byte| *byte == b'\n');
                    for line in ended.filter(|line| !line.is_empty()) {
                        self.send(collector, *severity, line, None);
                    }
                    Ok(())
                }
                Sink::Off => Ok(()),
            };
            // A log that cannot be written must not stop the server.
            if let Err(LostLines { count, why }) = written {
                self.troubles.lines_lost(None, count, &why);
            }
            lines.clear();
        });
    }

    /// Calls `with` with the line's bytes, without its end.
    fn made(&self, line: &Line<'_>, with: impl FnOnce(&mut Vec<u8>)) {
        LINE.with_borrow_mut(|bytes| {
            bytes.clear();
            line.write(bytes, &self.format);
            with(bytes);
        });
    }

    /// Sends a line with the fields of the journal.
    fn send(&self, collector: &Collector, severity: u8, text: &[u8], line: Option<&Line<'_>>) {
        let message = match (collector.form(), line) {
            (Form::Journal, Some(line)) => {
                let (head, record) = (line.head, line.record);
                let status = record.status.to_string();
                let peer = (!record.is_client_unknown).then(|| line.peer.to_string());
                let (id, pool) = (record.id.as_ref(), record.pool.as_ref());
                let trace = record.trace.as_ref().map(|trace| trace.trace_id.to_string());
                let all: [(&str, Option<&[u8]>); 9] = [
                    ("MAITRED_REMOTE_ADDR", peer.as_deref().map(str::as_bytes)),
                    ("MAITRED_STATUS", Some(status.as_bytes())),
                    ("MAITRED_HOST", head.map(|head| head.host().as_bytes())),
                    ("MAITRED_METHOD", head.map(|head| head.method().as_bytes())),
                    ("MAITRED_URI", head.map(|head| head.path().as_bytes())),
                    ("MAITRED_POOL", pool.map(|pool| pool.as_bytes())),
                    ("MAITRED_CACHE", record.cache.map(str::as_bytes)),
                    ("MAITRED_TRACE_ID", trace.as_deref().map(str::as_bytes)),
                    ("MAITRED_REQUEST_ID", id.map(|id| id.as_str().as_bytes())),
                ];
                let fields = all.iter().filter_map(|(name, value)| Some((*name, (*value)?)));
                let fields: Vec<Field<'_>> = fields.collect();
                collector.message(severity, text, &fields)
            }
            _ => collector.message(severity, text, &[]),
        };
        if let Err(why) = collector.send(&message) {
            self.troubles.lines_lost(None, 1, &why);
        }
    }
}

/// The log collector of a configuration.
pub fn way_to(collector: &config::Collector) -> Collector {
    match collector {
        config::Collector::Journald(path) => {
            Collector::new(Address::Unix(path.clone()), Form::Journal)
        }
        config::Collector::Syslog(syslog) => {
            let address = match &syslog.server {
                SyslogServer::Unix(path) => Address::Unix(path.clone()),
                SyslogServer::Udp(address) => Address::Udp(*address),
            };
            let form = Form::Syslog {
                facility: syslog.facility,
                tag: syslog.tag.clone(),
                hostname: syslog.hostname,
            };
            Collector::new(address, form)
        }
    }
}

/// The line of a request with a complete response; assigns its id.
pub fn line<'a>(request: &'a Finished<'_>, record: &'a mut RequestRecord) -> Line<'a> {
    record.id();
    Line {
        peer: request.peer.to_canonical(),
        head: Some(request.head),
        time: Some(request.time),
        secured: request.secured.as_deref(),
        record,
    }
}

/// A request with a complete response.
#[derive(Debug, Clone)]
pub struct Finished<'a> {
    /// The client.
    pub peer: IpAddr,
    /// The header of the request.
    pub head: &'a Head,
    /// The time since the complete header.
    pub time: Time,
    /// The TLS connection of the request, if it used TLS.
    pub secured: Option<Arc<Secured>>,
}
