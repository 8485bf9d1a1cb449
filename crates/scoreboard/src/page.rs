//! A pool's page: the position of each word, and its writer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use maitred_os::shared::{SharedMap, create_sealed};

use crate::copies::{COPIES_WORDS, Copies, CopyCounters, NOT_REWOUND};
use crate::counters::Counter;
use crate::histogram::{self, Histogram};
use crate::names::Cause;
use crate::opcache::OpcacheStats;
use crate::reading::Reading;
use crate::request_outcome::RequestOutcome;
use crate::request_times::{RequestTimes, TIMES_WORDS};
use crate::size::Size;
use crate::{RECENT, now};

/// Most front threads of a page.
const MAX_THREADS: usize = 64;

/// The first word of every page: our mark, and the layout of this version.
const MAGIC: u64 = layout(&[Counter::NAMES, RequestOutcome::NAMES, Cause::NAMES, &NOT_REWOUND]);

/// Most fronts at a time: the one that serves, and draining ones before it.
const MAX_FRONTS: usize = 8;

/// Highest number of a signal (signal(7)).
const MAX_SIGNAL: usize = 64;

/// Words of a cache line: no two writers share one.
const LINE: usize = 8;

// The header: the mark, and what is stored once for the pool.
const MAGIC_AT: usize = 0;
const MAX_QUEUED: usize = LINE;
const MAX_BUSY: usize = MAX_QUEUED + 1;
const FRONT_COUNTERS: usize = MAX_QUEUED + 2;
const SEATED: usize = after(FRONT_COUNTERS, COUNTERS);
const COMING: usize = SEATED + 1;
const PRIVATE_BYTES: usize = SEATED + 2;
const SHARED_BYTES: usize = SEATED + 3;
const MEASURED_AT: usize = SEATED + 4;
const SUPERVISOR_COUNTERS: usize = SEATED + 5;
const ENDED: usize = after(SUPERVISOR_COUNTERS, COUNTERS);
const SIGNALS: usize = after(ENDED, Cause::ALL.len());
const FRONTS: usize = after(SIGNALS, MAX_SIGNAL + 1);
const CACHE: usize = after(FRONTS, 2 * MAX_FRONTS);
const CACHE_AT: usize = CACHE + OpcacheStats::WORDS;
const CACHE_ASKED_AT: usize = CACHE_AT + 1;
const SIZE: usize = after(CACHE, OpcacheStats::WORDS + 2);
const COPIES: usize = after(SIZE, Size::WORDS);
const FORKS: usize = after(COPIES, COPIES_WORDS);
const HEAD_WORDS: usize = after(FORKS, histogram::WORDS);

/// Words of all counters. Each writer has its own: the fronts, the supervisor, each front thread.
const COUNTERS: usize = Counter::ALL.len();

/// Where the cache line after `words` words at `start` begins.
const fn after(start: usize, words: usize) -> usize {
    (start + words).next_multiple_of(LINE)
}

/// A hash (FNV-1a) of the names that words are stored under: another version's page is not read.
const fn layout(lists: &[&[&str]]) -> u64 {
    let mut hash = u64::from_le_bytes(*b"maitred6");
    let (mut list, mut name, mut byte) = (0, 0, 0);
    while list < lists.len() {
        while name < lists[list].len() {
            let bytes = lists[list][name].as_bytes();
            while byte < bytes.len() {
                hash = (hash ^ bytes[byte] as u64).wrapping_mul(0x100_0000_01b3);
                byte += 1;
            }
            (name, byte) = (name + 1, 0);
        }
        (list, name) = (list + 1, 0);
    }
    hash
}

/// Parts of the recent past; each has its own histograms.
const PARTS: usize = 5;
/// Length of a part, in seconds.
const PART_SECONDS: u64 = RECENT.as_secs() / PARTS as u64;
const _: () = assert!(PART_SECONDS * PARTS as u64 == RECENT.as_secs());

// A thread's block: outcomes, the part of time that each recent histogram covers, counters, sets of
// histograms (one for each time of `RequestTimes`), and one of the peak memory of scripts in
// kilobytes.
const STAMPS: usize = after(0, RequestOutcome::ALL.len());
const THREAD_COUNTERS: usize = STAMPS + PARTS;
const TOTALS: usize = after(THREAD_COUNTERS, COUNTERS);
const MEMORY: usize = TOTALS + (1 + PARTS) * TIMES_WORDS;
const BLOCK_WORDS: usize = after(MEMORY, histogram::WORDS);

/// A pool's page, mapped.
#[derive(Debug)]
pub struct Page {
    file: OwnedFd,
    map: SharedMap,
    threads: usize,
}

impl Page {
    /// Creates the page of the pool `pool`, all zero, for a front with `threads` threads.
    ///
    /// # Errors
    /// If there are too many threads, or the system is out of descriptors or memory.
    pub fn create(pool: &str, threads: u32) -> io::Result<Page> {
        let threads = threads as usize;
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a scoreboard is for 1 to 64 threads",
            ));
        }
        let bytes = (HEAD_WORDS + threads * BLOCK_WORDS) * size_of::<AtomicU64>();
        let page = Page::mapped(create_sealed(&format!("maitred-score-{pool}"), bytes)?)?;
        page.word(MAGIC_AT).store(MAGIC, Relaxed);
        Ok(page)
    }

    /// Maps a page of another process.
    ///
    /// # Errors
    /// If it is no page, or one of a version with another layout.
    pub fn open(file: OwnedFd) -> io::Result<Page> {
        let page = Page::mapped(file)?;
        if page.word(MAGIC_AT).load(Relaxed) != MAGIC {
            return Err(wrong());
        }
        Ok(page)
    }

    fn mapped(file: OwnedFd) -> io::Result<Page> {
        let map = SharedMap::map(&file)?;
        let blocks = map.words().len().checked_sub(HEAD_WORDS).ok_or_else(wrong)?;
        let threads = blocks / BLOCK_WORDS;
        if blocks % BLOCK_WORDS != 0 || !(1..=MAX_THREADS).contains(&threads) {
            return Err(wrong());
        }
        Ok(Page { file, map, threads })
    }

    /// Threads of the front that it has blocks for.
    pub fn threads(&self) -> u32 {
        self.threads as u32
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.map.words()[at]
    }

    fn block(&self, thread: usize) -> &[AtomicU64] {
        let start = HEAD_WORDS + thread * BLOCK_WORDS;
        &self.map.words()[start..start + BLOCK_WORDS]
    }

    /// The block of front thread number `thread`; the last one if the number is too high.
    pub fn thread(&self, thread: u32) -> ThreadBoard<'_> {
        ThreadBoard(self.block((thread as usize).min(self.threads - 1)))
    }

    /// When the pool's memory was last measured, by the clock of [`now`].
    pub fn measured_at(&self) -> Duration {
        Duration::from_nanos(self.word(MEASURED_AT).load(Relaxed))
    }

    /// When [`Reading::cache`] was last updated, or found too fresh for an update, by the clock of
    /// [`now`].
    pub fn cache_asked_at(&self) -> Duration {
        Duration::from_nanos(self.word(CACHE_ASKED_AT).load(Relaxed))
    }

    /// Number of requests that their scripts responded to.
    pub fn answered(&self) -> u64 {
        let threads = (0..self.threads).map(|thread| self.block(thread));
        let answered = threads.map(|words| words[RequestOutcome::Responded as usize].load(Relaxed));
        answered.sum()
    }

    /// Number of requests by how they ended, without the rest of a [`Reading`].
    pub fn outcomes(&self) -> [u64; RequestOutcome::ALL.len()] {
        let of = |outcome: usize| {
            let words = (0..self.threads).map(|thread| &self.block(thread)[outcome]);
            words.map(|word| word.load(Relaxed)).sum()
        };
        std::array::from_fn(of)
    }

    /// Adds an event, for a front. Its threads have counters of their own for what happens often.
    pub fn add(&self, counter: Counter) {
        self.word(FRONT_COUNTERS + counter as usize).fetch_add(1, Relaxed);
    }

    /// Adds a time, for a front.
    pub fn add_time(&self, counter: Counter, time: Duration) {
        self.word(FRONT_COUNTERS + counter as usize).fetch_add(micros(time), Relaxed);
    }

    /// Stores how `pm = auto` chose the number of workers; `None` with another `pm`.
    pub fn show_size(&self, size: Option<Size>) {
        for (place, word) in size.unwrap_or_default().to_words().into_iter().enumerate() {
            self.word(SIZE + place).store(word, Relaxed);
        }
    }

    /// Front number `epoch` starts, or has exited: its queue length and busy workers are 0.
    pub fn clear_front(&self, epoch: u32) {
        for gauge in 0..2 {
            self.of_front(epoch, gauge).store(0, Relaxed);
        }
    }

    /// The word of one of the two gauges of a front.
    fn of_front(&self, epoch: u32, gauge: usize) -> &AtomicU64 {
        self.word(FRONTS + 2 * (epoch as usize % MAX_FRONTS) + gauge)
    }

    /// The sum of one of the two gauges over all fronts.
    fn of_fronts(&self, gauge: usize) -> u64 {
        let fronts = (0..MAX_FRONTS).map(|front| self.word(FRONTS + 2 * front + gauge));
        fronts.fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }

    /// The part of the supervisor.
    pub fn workers(&self) -> WorkerBoard<'_> {
        WorkerBoard(self)
    }

    /// Reads the whole page.
    pub fn read(&self) -> Reading {
        let get = |at| self.word(at).load(Relaxed);
        let signals = (1..=MAX_SIGNAL).map(|signal| (signal as i32, get(SIGNALS + signal)));
        let mut reading = Reading {
            queued: self.of_fronts(0),
            max_queued: get(MAX_QUEUED),
            busy: self.of_fronts(1),
            max_busy: get(MAX_BUSY),
            seated: get(SEATED),
            coming: get(COMING),
            private_bytes: get(PRIVATE_BYTES),
            shared_bytes: get(SHARED_BYTES),
            cache: self.cache(),
            size: Some(Size::from_words(std::array::from_fn(|word| get(SIZE + word))))
                .filter(|size| size.workers > 0),
            copies: self.copies(),
            ended: std::array::from_fn(|cause| get(ENDED + cause)),
            signals: signals.filter(|(_, times)| *times > 0).collect(),
            ..Reading::default()
        };
        for start in [FRONT_COUNTERS, SUPERVISOR_COUNTERS] {
            let words = (start..start + COUNTERS).map(get);
            reading.counters.add_words(words);
        }
        let present = part_of(now());
        for thread in 0..self.threads {
            ThreadBoard(self.block(thread)).read(present, &mut reading);
        }
        reading
    }
}

impl Page {
    fn cache(&self) -> Option<(OpcacheStats, Duration)> {
        let get = |at| self.word(at).load(Relaxed);
        let words = std::array::from_fn(|word| get(CACHE + word));
        let at = get(CACHE_AT);
        (at > 0).then(|| (OpcacheStats::from_words(words), Duration::from_nanos(at)))
    }
}

impl Page {
    fn copies(&self) -> Option<Copies> {
        let words = std::array::from_fn(|word| self.word(COPIES + word).load(Relaxed));
        let mut forks = Histogram::default();
        forks.read(&self.map.words()[FORKS..FORKS + histogram::WORDS]);
        Copies::read(words, forks)
    }
}

impl AsFd for Page {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is not the scoreboard of a pool")
}

/// The time, not rounded, so that a comparison with an earlier [`now`] is exact. Never 0.
fn nanos_now() -> u64 {
    u64::try_from(now().as_nanos()).unwrap_or(u64::MAX).max(1)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The number of the part of time that contains `now`. Never 0, which marks an empty page.
fn part_of(now: Duration) -> u64 {
    now.as_secs() / PART_SECONDS + 1
}

/// The block of a front thread.
#[derive(Debug, Clone, Copy)]
pub struct ThreadBoard<'p>(&'p [AtomicU64]);

impl ThreadBoard<'_> {
    /// Counts a request that has ended.
    pub fn count(self, outcome: RequestOutcome) {
        self.0[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Adds the times of a request that has ended.
    pub fn observe(self, took: &RequestTimes, now: Duration) {
        let part = part_of(now);
        let place = part as usize % PARTS;
        let stamp = &self.0[STAMPS + place];
        let recent = self.set(1 + place);
        if stamp.load(Relaxed) != part {
            recent.iter().for_each(|word| word.store(0, Relaxed));
            stamp.store(part, Relaxed);
        }
        for set in [self.set(0), recent] {
            took.add(set);
        }
        // The start of its worker is counted with the wait that it is a part of.
        for (counter, time) in
            [(Counter::ChildrenCpu, took.children), (Counter::BootWait, took.boot)]
        {
            if !time.is_zero() {
                self.0[THREAD_COUNTERS + counter as usize].fetch_add(micros(time), Relaxed);
            }
        }
        if took.peak_memory > 0 {
            let kilobytes = Duration::from_micros(took.peak_memory / 1024);
            histogram::add(&self.0[MEMORY..MEMORY + histogram::WORDS], kilobytes);
        }
    }

    fn set(&self, number: usize) -> &[AtomicU64] {
        let start = TOTALS + number * TIMES_WORDS;
        &self.0[start..start + TIMES_WORDS]
    }

    fn read(self, present: u64, into: &mut Reading) {
        for (total, ours) in into.outcomes.iter_mut().zip(self.0) {
            *total = total.wrapping_add(ours.load(Relaxed));
        }
        let counters = &self.0[THREAD_COUNTERS..THREAD_COUNTERS + COUNTERS];
        into.counters.add_words(counters.iter().map(|word| word.load(Relaxed)));
        let stamps = || self.0[STAMPS..STAMPS + PARTS].iter().map(|stamp| stamp.load(Relaxed));
        if stamps().all(|stamp| stamp == 0) {
            // Nothing was ever counted: reading would allocate pages of zeroes.
            return;
        }
        into.peak_memory.read(&self.0[MEMORY..MEMORY + histogram::WORDS]);
        into.total.read(self.set(0));
        for (place, stamp) in stamps().enumerate() {
            if stamp <= present && stamp + PARTS as u64 > present {
                into.recent.read(self.set(1 + place));
            }
        }
    }
}

/// The share of one queue in the gauges of its pool: a front has a queue for each generation of the
/// pool. The writer holds the queue's lock.
#[derive(Debug)]
pub struct QueueShare {
    epoch: u32,
    /// The queue's length, and its busy workers.
    shown: [AtomicU64; 2],
}

impl QueueShare {
    /// The share of an empty queue, in front number `epoch`.
    pub fn new(epoch: u32) -> QueueShare {
        let shown = [AtomicU64::new(0), AtomicU64::new(0)];
        QueueShare { epoch, shown }
    }

    /// Sets the queue's length and its busy workers.
    pub fn show(&self, page: &Page, queued: u32, busy: u32) {
        for (gauge, value) in [queued, busy].into_iter().enumerate() {
            let value = u64::from(value);
            let before = self.shown[gauge].load(Relaxed);
            if before == value {
                continue;
            }
            self.shown[gauge].store(value, Relaxed);
            let more = value.wrapping_sub(before);
            page.of_front(self.epoch, gauge).fetch_add(more, Relaxed);
            if value > before {
                let (now, highest) = (page.of_fronts(gauge), page.word(MAX_QUEUED + gauge));
                highest.fetch_max(now, Relaxed);
            }
        }
    }
}

/// The part of the supervisor.
#[derive(Debug, Clone, Copy)]
pub struct WorkerBoard<'p>(&'p Page);

impl WorkerBoard<'_> {
    /// Replaces the share of a generation of the pool in [`Reading::seated`] and
    /// [`Reading::coming`].
    pub fn show(self, before: (u64, u64), now: (u64, u64)) {
        let (seated, coming) = (self.0.word(SEATED), self.0.word(COMING));
        seated.fetch_add(now.0.wrapping_sub(before.0), Relaxed);
        coming.fetch_add(now.1.wrapping_sub(before.1), Relaxed);
    }

    /// Resets both: another program counts the pool's workers from now on.
    pub fn forget_shown(self) {
        self.0.word(SEATED).store(0, Relaxed);
        self.0.word(COMING).store(0, Relaxed);
    }

    /// Adds an event, for the supervisor.
    pub fn add(self, counter: Counter) {
        self.0.word(SUPERVISOR_COUNTERS + counter as usize).fetch_add(1, Relaxed);
    }

    /// Counts a worker that has exited; `signal` is one that killed it and that we did not send.
    pub fn ended(self, cause: Cause, signal: Option<i32>) {
        self.0.word(ENDED + cause as usize).fetch_add(1, Relaxed);
        let number = signal.and_then(|signal| usize::try_from(signal).ok());
        if let Some(number) = number.filter(|number| (1..=MAX_SIGNAL).contains(number)) {
            self.0.word(SIGNALS + number).fetch_add(1, Relaxed);
        }
    }

    /// Stores measured memory: [`Reading::private_bytes`] and [`Reading::shared_bytes`].
    pub fn measured(self, private_bytes: u64, shared_bytes: u64) {
        self.0.word(PRIVATE_BYTES).store(private_bytes, Relaxed);
        self.0.word(SHARED_BYTES).store(shared_bytes, Relaxed);
        self.0.word(MEASURED_AT).store(nanos_now(), Relaxed);
    }

    /// Copies of this generation serve from now on; 0: workers are no copies.
    pub fn copies_of(self, generation: u32) {
        self.0.word(COPIES).store(generation.into(), Relaxed);
    }

    /// Adds the time to fork a copy.
    pub fn forked(self, took: Duration) {
        histogram::add(&self.0.map.words()[FORKS..FORKS + histogram::WORDS], took);
    }

    /// Adds to the counters of copies.
    pub fn copies_counted(self, more: CopyCounters) {
        for (place, more) in (COPIES + 1..).zip(more.words()) {
            self.0.word(place).fetch_add(more, Relaxed);
        }
    }

    /// Stores OPcache statistics; `None`: unknown.
    pub fn show_cache(self, cache: Option<OpcacheStats>) {
        for (place, word) in cache.unwrap_or_default().to_words().into_iter().enumerate() {
            self.0.word(CACHE + place).store(word, Relaxed);
        }
        let at = cache.map_or(0, |_| nanos_now());
        self.0.word(CACHE_AT).store(at, Relaxed);
        self.cache_is_fresh();
    }

    /// The stored OPcache statistics are as fresh as possible.
    pub fn cache_is_fresh(self) {
        self.0.word(CACHE_ASKED_AT).store(nanos_now(), Relaxed);
    }
}

#[cfg(test)]
mod tests;
