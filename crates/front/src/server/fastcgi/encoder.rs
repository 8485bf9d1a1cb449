//! Encodes a response as FastCGI records for a web server; the output of a script is passed on
//! unchanged.

use std::convert::Infallible;
use std::time::Duration;

use maitred_fastcgi::{ProtocolStatus, ResponseEvent, write_end, write_stderr, write_stdout};

use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::Failure;
use crate::http::error_body::in_words;
use crate::http::server_timing;
use crate::logging::pool_access_log::Entry;

/// Overhead of a short response's records in bytes: two record headers, and the end.
const FRAME_BYTES: usize = 24;

/// A response to one request over FastCGI.
pub struct FastcgiEncoder<'a> {
    request_id: u16,
    /// Records that are not framed yet.
    out: Vec<u8>,
    /// Bytes that are framed.
    framed: u64,
    /// The script has written part of its response.
    has_said: bool,
    /// The status in the first part of it; none: it is not wanted.
    status: Option<u16>,
    /// Its entry in the access log, if it gets one.
    log: Option<&'a mut Entry>,
}

impl<'a> FastcgiEncoder<'a> {
    /// An unwritten response. `reads_status`: its status is looked for.
    pub fn new(
        request_id: u16,
        log: Option<&'a mut Entry>,
        reads_status: bool,
    ) -> FastcgiEncoder<'a> {
        let status = reads_status.then_some(200);
        FastcgiEncoder { request_id, out: Vec::new(), framed: 0, has_said: false, status, log }
    }

    /// Whether another response may replace it after `sent` bytes: no script output is among them,
    /// and no record is incomplete.
    pub fn can_be_replaced(&self, sent: u64) -> bool {
        !self.has_said && sent == self.framed
    }

    /// Logs that the response failed, and the status of its replacement, if there is one.
    pub fn log_failure(&mut self, status: u16) {
        if let Some(log) = &mut self.log {
            log.write(status);
        }
    }

    /// The status of the script's response; 200 if it is not looked for.
    pub fn status(&self) -> u16 {
        self.status.unwrap_or(200)
    }

    /// Number of bytes of all its records.
    pub fn length(&self) -> u64 {
        self.framed
    }
}

impl ResponseEncoder for FastcgiEncoder<'_> {
    type Head = Infallible;

    fn take(&mut self, said: ResponseEvent<'_>) -> Result<(), Failure> {
        match said {
            ResponseEvent::Stdout(content) => {
                if let (Some(status), false) = (&mut self.status, self.has_said) {
                    *status = status_of(content);
                }
                self.has_said = true;
                if let Some(log) = &mut self.log {
                    log.said(content);
                }
                self.out.reserve(content.len() + FRAME_BYTES);
                write_stdout(&mut self.out, self.request_id, content);
            }
            ResponseEvent::Stderr(content) => write_stderr(&mut self.out, self.request_id, content),
            ResponseEvent::Report(content) => {
                if let Some(log) = &mut self.log {
                    log.reported(content);
                }
            }
            ResponseEvent::Hints(_) => {}
            ResponseEvent::End { .. } if !self.has_said => {
                return Err(Failure::invalid("it ended without output"));
            }
            ResponseEvent::End { app_status, .. } => {
                if let Some(log) = &mut self.log {
                    log.answered();
                }
                let status = ProtocolStatus::RequestComplete;
                write_end(&mut self.out, self.request_id, app_status, status);
            }
        }
        Ok(())
    }

    async fn settle(&mut self) {}

    fn frame(&mut self, _over: bool) -> Result<Vec<u8>, Failure> {
        self.framed += self.out.len() as u64;
        Ok(std::mem::take(&mut self.out))
    }

    fn head(&mut self) -> Option<Infallible> {
        None
    }

    fn needs_yield(&self) -> bool {
        false
    }

    fn record_duration(&mut self, _time: Duration) {}

    fn has_begun(&self) -> bool {
        self.has_said
    }

    fn timed(&mut self, value: String) {
        // The first bytes of the script are the response header, unless that is sent.
        if self.has_said && self.framed == 0 {
            let line = [server_timing::NAME, b": ", value.as_bytes(), b"\r\n"].concat();
            let mut out = Vec::with_capacity(self.out.len() + line.len() + FRAME_BYTES);
            write_stdout(&mut out, self.request_id, &line);
            out.append(&mut self.out);
            self.out = out;
        }
    }
}

/// The status in a script's header (RFC 3875 §6.3.3), of which PHP writes it first.
fn status_of(content: &[u8]) -> u16 {
    let lines = content.split(|byte| *byte == b'\n');
    let lines = lines.map(<[u8]>::trim_ascii).take_while(|line| !line.is_empty());
    let status = lines.filter_map(|line| {
        let (name, value) = line.split_at_checked(7)?;
        let digits = name.eq_ignore_ascii_case(b"status:").then(|| value.trim_ascii().get(..3))?;
        std::str::from_utf8(digits?).ok()?.parse().ok()
    });
    status.take(1).next().unwrap_or(200)
}

/// A complete response: a CGI header with these headers, and a body if it has one.
pub fn whole(request_id: u16, headers: &str, body: Option<&str>) -> Vec<u8> {
    let cgi = format!("{headers}\r\n{}", body.unwrap_or_default());
    let mut out = Vec::with_capacity(cgi.len() + 64);
    write_stdout(&mut out, request_id, cgi.as_bytes());
    write_end(&mut out, request_id, 0, ProtocolStatus::RequestComplete);
    out
}

/// A response of the server: status, reason, and a sentence for visitors. `retry_after` is in
/// seconds.
pub fn plain(request_id: u16, status: u16, why: &str, retry_after: Option<u64>) -> Vec<u8> {
    let reason = maitred_http1::reason_phrase(status);
    let again = retry_after
        .map_or_else(String::new, |s| format!("Retry-After: {s}\r\nCache-Control: no-store\r\n"));
    let headers =
        format!("Status: {status} {reason}\r\n{again}Content-type: text/plain; charset=utf-8\r\n");
    whole(request_id, &headers, Some(&in_words(status, why)))
}
