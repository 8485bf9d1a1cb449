//! An entry of a pool's access log, from the start of the request until its response.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use maitred_config::fpm::access_format::{Cpu, Duration as Unit, Memory, Token};
use maitred_fastcgi::{MAX_REPORT_BYTES, Report, basic_user, params};

use crate::logging::access_log::put_visible;
use crate::logging::pool_access_log::{LINE_BYTES, PoolAccessLog};
use crate::runtime::clock;

/// Most bytes of a response header that are buffered for `%o` and `%s`.
const HEAD_BYTES: usize = 64 * 1024;

/// A request to be logged.
#[derive(Debug)]
pub struct Entry {
    log: Arc<PoolAccessLog>,
    /// The time of its arrival, in seconds since 1970.
    came: i64,
    begun: Instant,
    peer: Option<IpAddr>,
    method: Vec<u8>,
    query: Vec<u8>,
    script_name: Vec<u8>,
    content_length: u64,
    user: Vec<u8>,
    /// By the index of its token: the value of the parameter that the token names.
    variables: Vec<(usize, Vec<u8>)>,
    /// The response header as far as it has been sent, and whether it is complete.
    head: Vec<u8>,
    has_head: bool,
    report: Vec<u8>,
    is_written: bool,
}

impl Entry {
    pub(crate) fn new(log: Arc<PoolAccessLog>, stream: &[u8], peer: Option<IpAddr>) -> Entry {
        let mut entry = Entry {
            log,
            came: second(),
            begun: Instant::now(),
            peer,
            method: Vec::new(),
            query: Vec::new(),
            script_name: Vec::new(),
            content_length: 0,
            user: Vec::new(),
            variables: Vec::new(),
            head: Vec::new(),
            has_head: false,
            report: Vec::new(),
            is_written: false,
        };
        // A cut pair ends the parameters.
        for (name, value) in params(stream).map_while(Result::ok) {
            entry.param(name, value);
        }
        entry
    }

    /// As in php-fpm, the last of a name counts.
    fn param(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"REQUEST_METHOD" => self.method = value.to_vec(),
            b"QUERY_STRING" => self.query = value.to_vec(),
            b"SCRIPT_NAME" => self.script_name = value.to_vec(),
            b"CONTENT_LENGTH" => self.content_length = leading_number(value),
            b"HTTP_AUTHORIZATION" => self.user = basic_user(value).unwrap_or_default(),
            _ => {}
        }
        for (index, token) in self.log.format.0.iter().enumerate() {
            if matches!(token, Token::Parameter(wanted) if wanted.as_bytes() == name) {
                self.variables.retain(|(known, _)| *known != index);
                self.variables.push((index, value.to_vec()));
            }
        }
    }

    /// Processes a piece of the response.
    pub fn said(&mut self, response: &[u8]) {
        if self.has_head {
            return;
        }
        let from = self.head.len().saturating_sub(3);
        let room = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(&response[..response.len().min(room)]);
        let end = memchr::memmem::find(&self.head[from..], b"\r\n\r\n");
        if let Some(end) = end {
            self.head.truncate(from + end + 2);
        }
        self.has_head = end.is_some() || self.head.len() == HEAD_BYTES;
    }

    /// Processes a piece of the worker's report.
    pub fn reported(&mut self, report: &[u8]) {
        let room = MAX_REPORT_BYTES - self.report.len().min(MAX_REPORT_BYTES);
        self.report.extend_from_slice(&report[..report.len().min(room)]);
    }

    /// Writes the line at the end of the script's response, unless it was written before.
    pub fn answered(&mut self) {
        let said = || header(&self.head, b"Status").map_or(200, leading_number);
        let status = match Report::read(&self.report) {
            Some(Report { status, .. }) if status != 0 => status,
            _ => u16::try_from(said()).unwrap_or(0),
        };
        self.write(status);
    }

    /// Writes the line after a response of the server with this status, unless it was written
    /// before.
    pub fn write(&mut self, status: u16) {
        if std::mem::replace(&mut self.is_written, true) {
            return;
        }
        let report = Report::read(&self.report).unwrap_or(Report {
            uri: &self.script_name,
            took_micros: u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            ..Report::default()
        });
        if self.is_suppressed(status, &report) {
            return;
        }
        let mut line = Vec::with_capacity(256);
        for (index, token) in self.log.format.0.iter().enumerate() {
            self.put(&mut line, index, token, status, &report);
        }
        if line.is_empty() {
            return;
        }
        cut(&mut line);
        line.push(b'\n');
        self.log.add(&line);
    }

    /// `access.suppress_path` (`fpm_access_log_suppress`).
    fn is_suppressed(&self, status: u16, report: &Report<'_>) -> bool {
        let is_plain = self.query.is_empty()
            && matches!(&self.method[..], b"GET" | b"HEAD")
            && (200..300).contains(&status)
            && self.content_length == 0;
        let mut paths = self.log.suppress_path.iter();
        is_plain && paths.any(|path| path.as_bytes() == report.uri)
    }

    fn put(
        &self,
        line: &mut Vec<u8>,
        index: usize,
        token: &Token,
        status: u16,
        report: &Report<'_>,
    ) {
        // Writing to memory cannot fail.
        let _ = match token {
            Token::Text(text) => return line.extend_from_slice(text.as_bytes()),
            Token::Cpu(which) => write!(line, "{:.2}", cpu_share(*which, report)),
            Token::Duration(unit) => put_duration(line, *unit, report.took_micros),
            Token::Parameter(_) => {
                let known = self.variables.iter().find(|(known, _)| *known == index);
                return put_text(line, known.map_or(b"-", |(_, value)| value));
            }
            Token::Script => return put_text(line, or_dash(report.script)),
            Token::ContentLength => write!(line, "{}", self.content_length),
            Token::Method => return put_text(line, or_dash(&self.method)),
            Token::Memory(unit) => {
                let divisor = match unit {
                    Memory::Bytes => 1,
                    Memory::Kilobytes => 1 << 10,
                    Memory::Megabytes => 1 << 20,
                };
                write!(line, "{}", report.peak_memory / divisor)
            }
            Token::Pool => return put_text(line, self.log.pool.as_bytes()),
            Token::Header(name) => {
                return put_text(line, header(&self.head, name.as_bytes()).unwrap_or(b"-"));
            }
            Token::Pid => write!(line, "{}", report.pid),
            Token::ParentPid => write!(line, "{}", self.log.supervisor),
            Token::Query => return put_text(line, &self.query),
            Token::QuestionMark if self.query.is_empty() => return,
            Token::QuestionMark => return line.push(b'?'),
            Token::Uri => return put_text(line, report.uri),
            Token::RemoteAddress => match self.peer {
                Some(peer) => write!(line, "{}", peer.to_canonical()),
                None => return line.push(b'-'),
            },
            Token::Status => write!(line, "{status}"),
            Token::Start(_) => return line.extend(self.log.time(index, self.came)),
            Token::End(_) => return line.extend(self.log.time(index, second())),
            Token::User => return put_text(line, &self.user),
        };
    }
}

fn second() -> i64 {
    i64::try_from(clock::since_1970().as_secs()).unwrap_or(i64::MAX)
}

fn cpu_share(which: Cpu, report: &Report<'_>) -> f64 {
    let micros = match which {
        Cpu::Total => report.user_micros.saturating_add(report.system_micros),
        Cpu::User => report.user_micros,
        Cpu::System => report.system_micros,
    };
    micros as f64 / report.took_micros.max(1) as f64 * 100.0
}

fn put_duration(line: &mut Vec<u8>, unit: Unit, micros: u64) -> std::io::Result<()> {
    match unit {
        Unit::Seconds => write!(line, "{:.3}", micros as f64 / 1e6),
        Unit::Milliseconds => write!(line, "{:.3}", micros as f64 / 1e3),
        Unit::Microseconds => write!(line, "{micros}"),
    }
}

/// No byte from a client ends a line, or moves a terminal's cursor. Quotes stay, as in php-fpm.
fn put_text(line: &mut Vec<u8>, text: &[u8]) {
    put_visible(line, text, &[]);
}

/// Cuts a line to the limit, at a character's boundary: a terminal may take part of one for
/// another.
fn cut(line: &mut Vec<u8>) {
    if line.len() >= LINE_BYTES {
        line.truncate(LINE_BYTES - 1);
        let whole = line.utf8_chunks().next().map_or(0, |part| part.valid().len());
        line.truncate(whole);
    }
}

fn or_dash(text: &[u8]) -> &[u8] {
    if text.is_empty() { b"-" } else { text }
}

/// The value of the first header with exactly this name and a value.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut lines = head.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(b": ")?;
        let value = value.strip_suffix(b"\r").unwrap_or(value);
        (!value.is_empty()).then_some(value)
    })
}

/// The number that a text starts with, as `atoi(3)` reads it; 0 if there is none.
fn leading_number(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0_u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}
