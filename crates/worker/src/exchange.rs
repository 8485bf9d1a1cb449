//! PHP's side of the seat link during a request: FastCGI records in and out.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_control::{ZygoteSettings, exit};
use maitred_fastcgi::{
    FOREIGN_PARAMS, HEADER_LEN, MAX_CONTENT_LEN, ProtocolStatus, RESPONDER, RecordType,
    RequestEvent, RequestReader, WANTS_REPORT, record_header, write_end, write_hints, write_stderr,
};
use maitred_os::clock::monotonic_nanos;
use maitred_os::fork::is_forked_child;
use maitred_php::{
    Admission, Exchange, Foreign, Level, Params, ParamsError, Paths, Purge, Purged, Verdict,
};
use maitred_seat::board::CopyWords;
use maitred_seat::{Spent, WorkerEnd};

use crate::error_page::ErrorPage;
use crate::meter::{self, Meter};
use crate::request_report::RequestReport;
use crate::{foreign, purge, status, stderr};

/// Output that is collected before it is written to the ring, in bytes: the size of a record.
const RECORD_BYTES: usize = 16 * 1024;

/// Most bytes of parameters: the limit for web servers, and the role that the front adds. The ring
/// is smaller, and is drained as they arrive.
const PARAMS_BYTES: usize = maitred_fastcgi::FOREIGN_MAX_PARAMS_BYTES + 64;

/// How many numbers an exchange [keeps](WorkerExchange::kept).
pub const KEPT: usize = meter::KEPT + 2;

/// The running request.
pub struct WorkerExchange<'a> {
    end: WorkerEnd,
    settings: &'a ZygoteSettings,
    reader: RequestReader,
    request_id: u16,
    /// The parameters are a web server's.
    foreign: bool,
    /// The FastCGI role of the request, if `foreign`.
    role: u16,
    /// The request has logged to the web server.
    has_logged: bool,
    /// The report to send before the end of the request, if requested.
    report: Option<RequestReport>,
    /// Measures the cost of requests, if enabled.
    meter: Option<Meter>,
    /// When the request was claimed, in nanoseconds of the monotonic clock.
    claimed_at: u64,
    /// Bytes from the front that are not parsed yet.
    incoming: Vec<u8>,
    parsed: usize,
    /// Bytes of the body that are parsed but not read, in `incoming`.
    body: std::ops::Range<usize>,
    body_ended: bool,
    /// A record of output being filled; the space of its header is reserved.
    output: Vec<u8>,
    /// Records to send after all output, once the response is complete.
    last: Vec<u8>,
    /// Peak memory of the script by then, in bytes.
    peak_memory: u64,
    /// Processor time of the request as far as measured, including its children's.
    cpu: Duration,
    /// The cost when the response was complete, if the script continued.
    before_the_rest: Option<Spent>,
    /// The page about a fatal error, if the client may see it.
    error_page: Option<ErrorPage>,
    finished: bool,
}

impl<'a> WorkerExchange<'a> {
    /// An exchange without a request.
    pub fn new(
        end: WorkerEnd,
        settings: &'a ZygoteSettings,
        meter: Option<Meter>,
    ) -> WorkerExchange<'a> {
        WorkerExchange {
            end,
            settings,
            reader: RequestReader::new(PARAMS_BYTES),
            request_id: 0,
            foreign: false,
            role: RESPONDER,
            has_logged: false,
            report: None,
            meter,
            claimed_at: 0,
            incoming: Vec::new(),
            parsed: 0,
            body: 0..0,
            body_ended: false,
            output: vec![0; HEADER_LEN],
            last: Vec::new(),
            peak_memory: 0,
            cpu: Duration::ZERO,
            before_the_rest: None,
            error_page: None,
            finished: false,
        }
    }

    /// Waits for a request and claims it. False when the seat belongs to another worker by now.
    pub fn claim(&mut self) -> bool {
        self.claim_unless(|| false)
    }

    /// As [`claim`](Self::claim), but returns false as soon as `leaves` returns true; see
    /// [`WorkerEnd::claim_unless`].
    pub fn claim_unless(&mut self, leaves: impl Fn() -> bool) -> bool {
        let has_next = self.end.try_claim();
        let assigned_at = has_next.then(|| self.end.assigned_at());
        let goes_on = self.meter.as_mut().map(|meter| meter.goes_on(assigned_at));
        if !has_next && !self.end.claim_unless(leaves) {
            return false;
        }
        self.claimed_at = goes_on.filter(|_| has_next).unwrap_or_else(monotonic_nanos);
        if let Some(meter) = &mut self.meter {
            meter.begins(self.claimed_at, self.end.assigned_at(), self.end.sleeps());
        }
        self.reader.restart();
        self.incoming.clear();
        (self.parsed, self.body, self.body_ended) = (0, 0..0, false);
        self.output.truncate(HEADER_LEN);
        self.last.clear();
        (self.peak_memory, self.cpu) = (0, Duration::ZERO);
        self.before_the_rest = None;
        self.finished = false;
        self.foreign = false;
        self.has_logged = false;
        true
    }

    /// The numbers that must survive a rewind of the process.
    pub fn kept(&self) -> [u64; KEPT] {
        let mut all = [0; KEPT];
        if let Some(meter) = &self.meter {
            all[..meter::KEPT].copy_from_slice(&meter.kept());
        }
        all[meter::KEPT] = self.end.last_call().into();
        all[meter::KEPT + 1] = self.end.next_slot() as u64;
        all
    }

    /// Restores them after a rewind of the process.
    pub fn go_on(&mut self, kept: [u64; KEPT]) {
        let (of_meter, of_end) = kept.split_at(meter::KEPT);
        if let (Some(meter), Ok(of_meter)) = (&mut self.meter, of_meter.try_into()) {
            meter.go_on(of_meter);
        }
        if let [last_call, next_slot] = of_end {
            self.end.set_last_call(u32::try_from(*last_call).unwrap_or(0));
            self.end.set_next_slot(usize::try_from(*next_slot).unwrap_or(0));
        }
    }

    /// When the running request was claimed, in nanoseconds of the monotonic clock.
    pub fn claimed_at(&self) -> u64 {
        self.claimed_at
    }

    /// The exit code of a worker that leaves in a planned way.
    pub fn exit_code(&self) -> i32 {
        if self.end.is_cut_off() { exit::CUT_OFF } else { exit::RECYCLED }
    }

    /// Whether a request is running.
    pub fn has_request(&self) -> bool {
        self.end.has_request()
    }

    /// Whether the request's parameters are a web server's.
    pub fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Reads the request's parameters. False when there are none that can be used.
    pub fn read_head(&mut self, params: &mut Params) -> bool {
        if self.end.verdict() == maitred_seat::Verdict::ClientGone {
            return false;
        }
        loop {
            match self.next_event() {
                Ok(Some(Step::Begin)) => {}
                Ok(Some(Step::Params)) => {
                    let is_valid = self.take_params(params).is_ok();
                    let shown = self.settings.shows_errors && is_valid;
                    self.error_page = shown.then(|| ErrorPage::of(params)).flatten();
                    return is_valid;
                }
                Ok(Some(Step::BodyEnd)) => self.body_ended = true,
                Ok(Some(Step::Body | Step::Other)) => {}
                Ok(None) if self.read_more() => {}
                Ok(None) | Err(()) => return false,
            }
        }
    }

    fn take_params(&self, params: &mut Params) -> Result<(), ParamsError> {
        if !self.foreign {
            params.clear();
            return params.push_pairs(self.reader.params());
        }
        params.clear_for_foreign();
        params.set(b"FCGI_ROLE", role_name(self.role))?;
        params.set_pairs(self.reader.params())
    }

    /// Ends the request and releases its slot.
    pub fn end_request(&mut self) {
        self.complete();
        if self.write_last().is_none()
            // Work after the response must not be charged to the next request.
            && let (Some(rest), Some(before)) = (self.measure(), self.before_the_rest)
        {
            self.end.report_spent(&before.and(rest));
        }
        if let Some(meter) = &self.meter {
            meter.show(self.end.seat_board(self.end.seat()));
        }
        self.end.finish();
    }

    fn complete(&mut self) {
        if self.finished {
            return;
        }
        if let Some(page) = self.error_page.take().and_then(ErrorPage::end) {
            self.send(page.as_bytes());
        }
        self.finished = true;
        self.write_output();
        if let Some(report) = &self.report {
            report.write(&mut self.last);
        }
        // php-fpm does not report it to web servers.
        let app_status = if self.foreign { 0 } else { maitred_php::exit_status() };
        let complete = ProtocolStatus::RequestComplete;
        write_end(&mut self.last, self.request_id, app_status, complete);
        self.peak_memory = maitred_php::peak_memory() as u64;
    }

    /// Writes the records that follow all output, preceded by the cost of the request, which it
    /// returns. `None` when that has already been done.
    fn write_last(&mut self) -> Option<Option<Spent>> {
        if self.last.is_empty() {
            return None;
        }
        let spent = self.measure();
        if let Some(spent) = &spent {
            self.end.report_spent(spent);
        }
        self.end.write(&self.last);
        self.last.clear();
        Some(spent)
    }

    /// The cost since the previous request; `None` if not measured.
    fn measure(&mut self) -> Option<Spent> {
        let (meter, assigned_at) = (self.meter.as_mut()?, self.end.assigned_at());
        let spent = meter.spent(assigned_at, self.peak_memory);
        self.cpu += spent.cpu + spent.children;
        let board = self.end.seat_board(self.end.seat());
        if !self.settings.measures_cpu {
            let micros = u64::try_from(self.cpu.as_micros()).unwrap_or(u64::MAX);
            board.cpu_micros.store(micros, Ordering::Relaxed);
        }
        (assigned_at > 0).then_some(spent)
    }

    fn next_event(&mut self) -> Result<Option<Step>, ()> {
        let start = self.parsed;
        let mut input = &self.incoming[start..];
        let before = input.len();
        let event = self.reader.next(&mut input).map_err(drop)?;
        self.parsed = start + (before - input.len());
        Ok(event.map(|event| match event {
            RequestEvent::Begin { request_id, role, flags, .. } => {
                (self.request_id, self.role) = (request_id, role);
                self.foreign = flags & FOREIGN_PARAMS != 0;
                let is_wanted = flags & WANTS_REPORT != 0;
                self.report = is_wanted.then(|| RequestReport::begin(self.settings));
                Step::Begin
            }
            RequestEvent::Params => Step::Params,
            RequestEvent::Stdin(bytes) => {
                self.body = self.parsed - bytes.len()..self.parsed;
                Step::Body
            }
            RequestEvent::StdinEnd => Step::BodyEnd,
            _ => Step::Other,
        }))
    }

    /// Waits for more bytes from the front. False when there will be none.
    fn read_more(&mut self) -> bool {
        self.incoming.clear();
        self.parsed = 0;
        self.end.read(&mut self.incoming);
        !self.incoming.is_empty()
    }

    /// A web server's log gets the messages of a request as one, as from php-fpm; our own gets
    /// lines.
    fn log_to_client(&mut self, message: &[u8]) {
        let mut record = Vec::with_capacity(message.len() + 2 * HEADER_LEN);
        if self.foreign {
            let between: &[u8] = if self.has_logged { b"; " } else { b"" };
            write_stderr(&mut record, self.request_id, &[between, message].concat());
        } else {
            write_stderr(&mut record, self.request_id, message);
            write_stderr(&mut record, self.request_id, b"\n");
        }
        self.has_logged = true;
        self.write_output();
        self.end.write(&record);
    }

    fn write_output(&mut self) -> Verdict {
        let length = self.output.len() - HEADER_LEN;
        if length == 0 {
            return verdict(self.end.verdict());
        }
        let header = record_header(
            RecordType::Stdout,
            self.request_id,
            u16::try_from(length).unwrap_or(u16::MAX),
        );
        self.output[..HEADER_LEN].copy_from_slice(&header);
        let said = self.end.write(&self.output);
        self.output.truncate(HEADER_LEN);
        verdict(said)
    }

    /// Initialises this worker's board.
    pub fn show_birth(&self, now_seconds: u64) {
        let board = self.end.seat_board(self.end.seat());
        board.clear();
        board.pid.store(std::process::id(), Ordering::Relaxed);
        board.started_at.store(now_seconds, Ordering::Relaxed);
        board.started_since.store(monotonic_nanos(), Ordering::Relaxed);
        if let Some(meter) = &self.meter {
            meter.show(board);
        }
    }

    /// Reports this worker's private memory to the front.
    pub fn show_private_memory(&self, bytes: u64) {
        let board = self.end.seat_board(self.end.seat());
        board.private_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The counters of copies of a booted application.
    pub fn copy_words(&self) -> &CopyWords {
        &self.end.seat_board(self.end.seat()).copies
    }

    /// Writes the started request to the board.
    pub fn show_request(&self, params: &Params, now_micros: u64) {
        let board = self.end.seat_board(self.end.seat());
        board.requests.fetch_add(1, Ordering::Relaxed);
        board.request_at.store(now_micros, Ordering::Relaxed);
        board.request_since.store(self.claimed_at, Ordering::Relaxed);
        board.running.store(1, Ordering::Relaxed);
        if !self.foreign {
            status::show_request(board, params);
        }
    }

    /// The number of requests that this worker has started, as the front knows it.
    pub fn requests(&self) -> u64 {
        self.end.seat_board(self.end.seat()).requests.load(Ordering::Relaxed)
    }

    /// Writes the end of the request to the board, and reports its duration to the front.
    pub fn show_end(&mut self, took_micros: u64, cpu_micros: u64, peak_memory: u64) {
        self.peak_memory = self.peak_memory.max(peak_memory);
        let board = self.end.seat_board(self.end.seat());
        self.end.report_duration(took_micros);
        board.request_took.store(took_micros, Ordering::Relaxed);
        board.cpu_micros.store(cpu_micros, Ordering::Relaxed);
        board.memory_peak.store(peak_memory, Ordering::Relaxed);
        let realpaths = maitred_php::realpath_cache();
        board.realpath_used.store(realpaths.used, Ordering::Relaxed);
        board.realpath_limit.store(realpaths.limit, Ordering::Relaxed);
        board.running.store(0, Ordering::Relaxed);
    }

    /// Reports to the front that the request has found OPcache full.
    pub fn report_cache_full(&self) {
        self.end.report_cache_full();
    }
}

/// An event of the request, without its bytes.
enum Step {
    Begin,
    Params,
    Body,
    BodyEnd,
    Other,
}

/// The role's name for scripts, as in php-fpm. The front rejects other roles.
fn role_name(role: u16) -> &'static [u8] {
    match role {
        2 => b"AUTHORIZER",
        3 => b"FILTER",
        _ => b"RESPONDER",
    }
}

fn verdict(said: maitred_seat::Verdict) -> Verdict {
    match said {
        maitred_seat::Verdict::Continue => Verdict::Continue,
        maitred_seat::Verdict::ClientGone => Verdict::ClientGone,
    }
}

impl Exchange for WorkerExchange<'_> {
    fn read_body(&mut self, buffer: &mut [u8]) -> Option<usize> {
        while self.body.is_empty() {
            if self.body_ended || is_forked_child() {
                return Some(0);
            }
            match self.next_event() {
                Ok(Some(Step::BodyEnd)) => self.body_ended = true,
                Ok(Some(_)) => {}
                Ok(None) if self.read_more() => {}
                Ok(None) | Err(()) => return None,
            }
        }
        let count = buffer.len().min(self.body.len());
        let from = self.body.start;
        buffer[..count].copy_from_slice(&self.incoming[from..from + count]);
        self.body.start += count;
        Some(count)
    }

    fn send(&mut self, bytes: &[u8]) -> Verdict {
        // The output of a child that the script has forked must not get into the parent's response.
        if is_forked_child() || self.finished {
            return Verdict::Continue;
        }
        if let Some(page) = &mut self.error_page {
            page.send(bytes);
        }
        let mut said = Verdict::Continue;
        for piece in bytes.chunks(MAX_CONTENT_LEN / 2) {
            if self.output.len() + piece.len() > HEADER_LEN + RECORD_BYTES {
                said = self.write_output();
            }
            self.output.extend_from_slice(piece);
        }
        said
    }

    fn flush(&mut self) -> Verdict {
        if is_forked_child() {
            return Verdict::Continue;
        }
        let said = if self.finished {
            if !self.last.is_empty() {
                self.end.report_continuation();
            }
            if let Some(spent) = self.write_last() {
                self.before_the_rest = spent;
            }
            Verdict::Continue
        } else {
            self.write_output()
        };
        self.end.show();
        said
    }

    fn hint(&mut self, lines: &[u8]) -> Verdict {
        // FastCGI has no record for it.
        if is_forked_child() || self.finished || self.foreign {
            return Verdict::Continue;
        }
        let mut record = Vec::with_capacity(lines.len() + HEADER_LEN);
        write_hints(&mut record, lines);
        self.write_output();
        let said = self.end.write(&record);
        self.end.show();
        verdict(said)
    }

    fn finish(&mut self) {
        // Published with the end of the request, which follows at once unless there is a flush
        // first.
        if !is_forked_child() {
            self.complete();
        }
    }

    fn translate(&mut self, params: &mut Params, paths: &Paths<'_>) -> Foreign {
        let nothing = Foreign { script: None, uri: None, admission: Admission::NoScript };
        // If the rules' strings do not fit, there is no script.
        let found = foreign::translate(params, paths, &self.settings.limit_extensions);
        let found = found.unwrap_or(nothing);
        let board = self.end.seat_board(self.end.seat());
        status::show_foreign(board, params, &found);
        if let Some(report) = &mut self.report {
            report.name(params, &found);
        }
        found
    }

    fn log(&mut self, level: Level, to_client: bool, message: &[u8]) {
        if is_forked_child() {
            return;
        }
        if let Some(page) = &mut self.error_page {
            page.log(message);
        }
        let message = &*stderr::message(self.settings, level, message);
        if to_client && !self.finished {
            self.log_to_client(message);
        } else if self.settings.output.is_none() {
            // The response is complete: later messages go to standard error.
            let text = String::from_utf8_lossy(message);
            // `eprintln!` would panic if standard error is closed.
            let script = self.end.seat_board(self.end.seat()).script.get();
            let script = String::from_utf8_lossy(&script);
            let _ = writeln!(std::io::stderr(), "{script}: {text}");
        }
    }

    fn purge(&mut self, asked: &Purge<'_>) -> Purged {
        // The seat belongs to its parent.
        if is_forked_child() {
            return Purged::NoReply;
        }
        purge::purge(&mut self.end, asked)
    }

    fn status(&mut self) -> Option<String> {
        status::of_pool(&self.end, self.settings)
    }
}
