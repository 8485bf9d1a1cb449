//! The boards for `fpm_get_status` and the status page: the pool's, written by the front, and each
//! seat's, written by its worker. Plain stores; readers see a recent state.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Longest text of a request in bytes; longer ones are truncated.
pub const TEXT_BYTES: usize = 256;

/// An unknown value.
pub const UNKNOWN: u64 = u64::MAX;

/// A pool's statistics since it was opened. Written by the front.
#[derive(Debug)]
#[repr(C)]
pub struct PoolBoard {
    /// Requests assigned to a worker.
    pub accepted: AtomicU64,
    /// Requests waiting for a worker.
    pub queued: AtomicU32,
    /// Longest queue so far.
    pub max_queued: AtomicU32,
    /// Limit of the queue.
    pub queue_limit: AtomicU32,
    /// Workers running a script.
    pub active: AtomicU32,
    /// Most workers running a script at the same time.
    pub max_active: AtomicU32,
    /// How often a request found all workers busy.
    pub max_children_reached: AtomicU32,
    /// When the pool was opened, in seconds since 1970.
    pub opened_at: AtomicU64,
    /// Scripts that ran for longer than `request_slowlog_timeout`.
    pub slow: AtomicU64,
    /// Highest peak memory of a script in bytes.
    pub memory_peak: AtomicU64,
}

/// A seat's statistics. Written by its worker.
#[derive(Debug)]
#[repr(C)]
pub struct SeatBoard {
    /// Process id; 0: the seat is empty.
    pub pid: AtomicU32,
    /// Not 0 while a script runs.
    pub running: AtomicU32,
    /// When the worker was forked, in seconds since 1970.
    pub started_at: AtomicU64,
    /// Start of the last request, in microseconds since 1970; the clock may have been set since.
    pub request_at: AtomicU64,
    /// Duration of the last finished request, in microseconds.
    pub request_took: AtomicU64,
    /// Requests that this worker has started.
    pub requests: AtomicU64,
    /// Length of the last request's body in bytes.
    pub content_length: AtomicU64,
    /// Processor time of the last finished request in microseconds, if measured.
    pub cpu_micros: AtomicU64,
    /// Peak memory of the last finished script in bytes.
    pub memory_peak: AtomicU64,
    /// Private memory of the worker in bytes at the last measurement, if it is measured.
    pub private_bytes: AtomicU64,
    /// Method of the last request.
    pub method: Text<16>,
    /// Its target, without the query.
    pub uri: Text<TEXT_BYTES>,
    /// Its query.
    pub query: Text<TEXT_BYTES>,
    /// Its script.
    pub script: Text<TEXT_BYTES>,
    /// Its authenticated user.
    pub user: Text<64>,
    /// Processor time of the worker at the last measurement, before the running request, in
    /// microseconds; 0 if not measured.
    pub used_cpu: AtomicU64,
    /// Time that the worker had waited for a processor by then, in nanoseconds; [`UNKNOWN`] where
    /// the kernel does not report it.
    pub used_core_wait: AtomicU64,
    /// Counters of the copies of a booted application in this seat, across all of them.
    pub copies: CopyWords,
    /// Start of the last request, in nanoseconds of the monotonic clock: decisions use this one,
    /// and displays `request_at`. 0: not reported by the worker.
    pub request_since: AtomicU64,
    /// Peak resident memory of the programs that the worker's scripts have run and waited for, in
    /// bytes; 0: none, or not above the worker's own, or not measured.
    pub program_most: AtomicU64,
    /// When the worker was forked, in nanoseconds of the monotonic clock. 0: not reported.
    pub started_since: AtomicU64,
    /// Bytes of PHP's cache of real paths in use after the last request.
    pub realpath_used: AtomicU64,
    /// Its size, in bytes; 0: there is none, or it is not reported.
    pub realpath_limit: AtomicU64,
}

impl SeatBoard {
    /// Resets the board for a new worker. The counters of copies continue.
    pub fn clear(&self) {
        for word in [&self.pid, &self.running] {
            word.store(0, Ordering::Relaxed);
        }
        let words = [
            &self.started_at,
            &self.request_at,
            &self.request_took,
            &self.requests,
            &self.content_length,
            &self.cpu_micros,
            &self.memory_peak,
            &self.private_bytes,
            &self.used_cpu,
            &self.used_core_wait,
            &self.request_since,
            &self.program_most,
            &self.started_since,
            &self.realpath_used,
            &self.realpath_limit,
        ];
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        self.method.set(b"");
        self.uri.set(b"");
        self.query.set(b"");
        self.script.set(b"");
        self.user.set(b"");
    }

    /// When its script started, on the monotonic clock, which reads `now`; `None` if no script
    /// runs. A worker of an older version only reports the wall clock, for which repeated calls
    /// return slightly different values.
    pub fn runs_since(&self, now: Duration) -> Option<Duration> {
        if self.running.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let since = Duration::from_nanos(self.request_since.load(Ordering::Relaxed));
        let since_start = Some(since).filter(|since| !since.is_zero());
        Some(since_start.unwrap_or_else(|| now.saturating_sub(self.ran_by_wall_clock())))
    }

    fn ran_by_wall_clock(&self) -> Duration {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began = Duration::from_micros(self.request_at.load(Ordering::Relaxed));
        wall.unwrap_or_default().saturating_sub(began)
    }
}

/// Number of reasons in [`RewindFailure`].
pub const REWIND_FAILURES: usize = 7;

/// Why a copy exited instead of being rewound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindFailure {
    /// It has forked, or has children.
    Forked,
    /// It has more than one thread.
    Threads,
    /// Its kernel state has changed: signals, limits, identity, working directory.
    WorkerState,
    /// Its memory cannot be restored.
    Memory,
    /// Its script has called a function with a lasting effect.
    LastingCall,
    /// Its script had a fatal error.
    FatalError,
    /// Any other reason.
    Other,
}

/// Counters of the copies of a booted application.
#[derive(Debug)]
#[repr(C)]
pub struct CopyWords {
    /// Rewinds.
    pub went_back: AtomicU64,
    /// Exits instead of rewinds, by reason ([`RewindFailure`]).
    pub stayed: [AtomicU64; REWIND_FAILURES],
    /// Private pages at the end of a copy, of all measured copies.
    pub pages: AtomicU64,
    /// Number of measured copies.
    pub measured: AtomicU64,
}

/// A short text in shared memory: one writer; readers may see it partly changed.
#[derive(Debug)]
#[repr(C)]
pub struct Text<const N: usize> {
    length: AtomicU32,
    bytes: [AtomicU8; N],
}

impl<const N: usize> Text<N> {
    /// Writes `text`, truncated to the capacity.
    pub fn set(&self, text: &[u8]) {
        let length = text.len().min(N);
        for (place, byte) in self.bytes.iter().zip(text) {
            place.store(*byte, Ordering::Relaxed);
        }
        self.length.store(u32::try_from(length).unwrap_or(0), Ordering::Release);
    }

    /// Reads the text.
    pub fn get(&self) -> Vec<u8> {
        let length = (self.length.load(Ordering::Acquire) as usize).min(N);
        self.bytes[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }
}
