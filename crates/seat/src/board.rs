//! The figures that a pool's scripts can ask for (`fpm_get_status`), and its status page shows:
//! the pool's, written by the front, and each seat's, written by its worker. Plain stores; readers
//! see some recent state.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Longest text kept of a request in bytes; more is cut.
pub const TEXT_BYTES: usize = 256;

/// A figure that cannot be had.
pub const NOT_KNOWN: u64 = u64::MAX;

/// A pool's figures since it was opened. Written by the front.
#[derive(Debug)]
#[repr(C)]
pub struct PoolBoard {
    /// Requests that were handed to a worker.
    pub accepted: AtomicU64,
    /// Requests that wait for a worker now.
    pub queued: AtomicU32,
    /// Most requests that ever waited at once.
    pub max_queued: AtomicU32,
    /// Limit of waiting requests.
    pub queue_limit: AtomicU32,
    /// Workers that run a script now.
    pub active: AtomicU32,
    /// Most workers that ever ran a script at once.
    pub max_active: AtomicU32,
    /// Times a request found every worker busy.
    pub max_children_reached: AtomicU32,
    /// When the pool was opened, in seconds since 1970.
    pub opened_at: AtomicU64,
    /// Scripts that ran for longer than `request_slowlog_timeout`.
    pub slow: AtomicU64,
}

/// A seat's figures. Written by its worker.
#[derive(Debug)]
#[repr(C)]
pub struct SeatBoard {
    /// Process id; 0: nobody sits here.
    pub pid: AtomicU32,
    /// Not 0 while a script runs.
    pub running: AtomicU32,
    /// When the worker was forked, in seconds since 1970.
    pub started_at: AtomicU64,
    /// When the last request began, in microseconds since 1970, by a clock that may be set meanwhile.
    pub request_at: AtomicU64,
    /// How long the last finished request took, in microseconds.
    pub request_took: AtomicU64,
    /// Requests begun by this worker.
    pub requests: AtomicU64,
    /// Length of the last request's body in bytes.
    pub content_length: AtomicU64,
    /// Processor time of the last finished request in microseconds, if it was measured.
    pub cpu_micros: AtomicU64,
    /// Peak memory of the last finished script in bytes.
    pub memory_peak: AtomicU64,
    /// Memory of the worker's own in bytes, if it measures it, as last measured.
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
    /// Processor time of the worker when it was last measured, before the request that runs, in
    /// microseconds; 0 where nothing is measured.
    pub used_cpu: AtomicU64,
    /// How long the worker had waited for a processor by then, in nanoseconds; [`NOT_KNOWN`] where the
    /// kernel does not tell.
    pub used_core_wait: AtomicU64,
    /// What copies of a booted application that have sat here have counted, one after the other.
    pub copies: CopyWords,
    /// When the last request began, in nanoseconds on the clock that never goes backwards: who decides
    /// goes by this one, and who shows it to people by `request_at`. 0: the worker does not say.
    pub request_since: AtomicU64,
    /// The most memory that a program has had resident that the worker's scripts have run and waited for, in bytes;
    /// 0: none, or no more than the worker has had itself, or nothing is measured.
    pub program_most: AtomicU64,
}

impl SeatBoard {
    /// Forgets the worker that has sat here, and what anybody has written in its name. What copies
    /// count goes on.
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

    /// Since when its script runs, on the clock that never goes backwards and says `now`; nothing if none
    /// does. A worker of an older program tells it by the wall clock only, and no two looks have quite the
    /// same of that.
    pub fn runs_since(&self, now: Duration) -> Option<Duration> {
        if self.running.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let since = Duration::from_nanos(self.request_since.load(Ordering::Relaxed));
        let told = Some(since).filter(|since| !since.is_zero());
        Some(told.unwrap_or_else(|| now.saturating_sub(self.ran_by_wall_clock())))
    }

    fn ran_by_wall_clock(&self) -> Duration {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began = Duration::from_micros(self.request_at.load(Ordering::Relaxed));
        wall.unwrap_or_default().saturating_sub(began)
    }
}

/// How many reasons of [`Stays`] there are.
pub const STAYED: usize = 7;

/// Why a copy ended that was to go back to what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// It has forked, or has children.
    Forked,
    /// It has more than one thread.
    Threads,
    /// What the kernel keeps for it is not what it was: signals, limits, identity, folder.
    Process,
    /// Its memory cannot be put back.
    Memory,
    /// Its script has called a function whose effect stays.
    LastingCall,
    /// Its script could not go on.
    FatalError,
    /// Anything else.
    Other,
}

/// What copies of a booted application count of themselves.
#[derive(Debug)]
#[repr(C)]
pub struct CopyWords {
    /// Times that one has gone back to what it was.
    pub went_back: AtomicU64,
    /// How often one ended instead, by reason ([`Stays`]).
    pub stayed: [AtomicU64; STAYED],
    /// Pages of memory that they had for themselves at their end, of those that were measured.
    pub pages: AtomicU64,
    /// How many those were.
    pub measured: AtomicU64,
}

/// A short text in shared memory: one writer, readers that may see it half changed.
#[derive(Debug)]
#[repr(C)]
pub struct Text<const N: usize> {
    length: AtomicU32,
    bytes: [AtomicU8; N],
}

impl<const N: usize> Text<N> {
    /// Writes `text`, cut to the room there is.
    pub fn set(&self, text: &[u8]) {
        let length = text.len().min(N);
        for (place, byte) in self.bytes.iter().zip(text) {
            place.store(*byte, Ordering::Relaxed);
        }
        self.length
            .store(u32::try_from(length).unwrap_or(0), Ordering::Release);
    }

    /// Reads the text.
    pub fn get(&self) -> Vec<u8> {
        let length = (self.length.load(Ordering::Acquire) as usize).min(N);
        self.bytes[..length]
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect()
    }
}
