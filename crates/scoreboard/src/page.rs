//! A pool's page: where each word lies, and who writes it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use maitred_os::shared::{SharedMap, create_sealed};

use crate::cache::{CACHE_WORDS, Cache};
use crate::copies::{COPIES_WORDS, Copies, CopiesTold};
use crate::histogram::{self, Times};
use crate::names::Cause;
use crate::reading::Reading;
use crate::request_outcome::RequestOutcome;
use crate::size::{SIZE_WORDS, Size};
use crate::took::{TIMES, Took};
use crate::{RECENT, now};

/// Most threads that a page is made for.
const MAX_THREADS: usize = 64;

/// What the first word of every page says: ours, and of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"maitred5");

/// Most fronts at a time: one that serves, and those before it that finish what they have.
const MAX_FRONTS: usize = 8;

/// Highest number of a signal (signal(7)).
const MAX_SIGNAL: usize = 64;

/// Words of a cache line: no two writers share one.
const LINE: usize = 8;

// The head: what the page is, and the figures that there is one of.
const MAGIC_AT: usize = 0;
const MAX_QUEUED: usize = LINE;
const MAX_BUSY: usize = MAX_QUEUED + 1;
const LIMIT_REACHED: usize = MAX_QUEUED + 2;
const NEWEST_FIRST: usize = MAX_QUEUED + 3;
const SEATED: usize = 2 * LINE;
const COMING: usize = SEATED + 1;
const SPAWNED: usize = SEATED + 2;
const FORK_FAILED: usize = SEATED + 3;
const PRIVATE_BYTES: usize = SEATED + 4;
const SHARED_BYTES: usize = SEATED + 5;
const MEASURED_AT: usize = SEATED + 6;
const ENDED: usize = 3 * LINE;
const SIGNALS: usize = ENDED + 2 * LINE;
const FRONTS: usize = 14 * LINE;
const CACHE: usize = 16 * LINE;
const CACHE_AT: usize = CACHE + CACHE_WORDS;
const CACHE_ASKED_AT: usize = CACHE_AT + 1;
const SIZE: usize = 18 * LINE;
const COPIES: usize = 20 * LINE;
const FORKS: usize = 22 * LINE;
const HEAD_WORDS: usize = (FORKS + histogram::WORDS).next_multiple_of(LINE);
const _: () = assert!(NEWEST_FIRST < SEATED && MEASURED_AT < ENDED);
const _: () = assert!(Cause::ALL.len() <= 2 * LINE && SIGNALS + MAX_SIGNAL < FRONTS);
const _: () = assert!(FRONTS + 2 * MAX_FRONTS <= CACHE && CACHE_ASKED_AT < SIZE);
const _: () = assert!(SIZE + SIZE_WORDS <= COPIES && COPIES + COPIES_WORDS <= FORKS);

/// How many parts the recent past has; each has histograms of its own.
const PARTS: usize = 5;
/// How long one of them is, in seconds.
const PART_SECONDS: u64 = RECENT.as_secs() / PARTS as u64;
const _: () = assert!(PART_SECONDS * PARTS as u64 == RECENT.as_secs());

// A thread's block: outcomes, which part of time each recent histogram is of, processor time of
// programs that scripts have started, histograms in sets (one for each time of `Took`), and one of the
// memory that scripts had, in kilobytes.
const STAMPS: usize = 2 * LINE;
const CHILDREN: usize = STAMPS + PARTS;
const TOTALS: usize = 3 * LINE;
const SET_WORDS: usize = TIMES * histogram::WORDS;
const MEMORY: usize = TOTALS + (1 + PARTS) * SET_WORDS;
const BLOCK_WORDS: usize = (MEMORY + histogram::WORDS).next_multiple_of(LINE);
const _: () = assert!(RequestOutcome::ALL.len() <= STAMPS && CHILDREN < TOTALS);

/// A pool's page, mapped.
#[derive(Debug)]
pub struct Page {
    file: OwnedFd,
    map: SharedMap,
    threads: usize,
}

impl Page {
    /// Makes a page for the pool `pool`, all zero, for a front of `threads` threads.
    ///
    /// # Errors
    /// When there are too many threads, or the system is out of descriptors or memory.
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

    /// Maps a page that another process made.
    ///
    /// # Errors
    /// When it is none of ours, or was made by a maitred that counts other things.
    pub fn open(file: OwnedFd) -> io::Result<Page> {
        let page = Page::mapped(file)?;
        if page.word(MAGIC_AT).load(Relaxed) != MAGIC {
            return Err(wrong());
        }
        Ok(page)
    }

    fn mapped(file: OwnedFd) -> io::Result<Page> {
        let map = SharedMap::map(&file)?;
        let blocks = map
            .words()
            .len()
            .checked_sub(HEAD_WORDS)
            .ok_or_else(wrong)?;
        let threads = blocks / BLOCK_WORDS;
        if blocks % BLOCK_WORDS != 0 || !(1..=MAX_THREADS).contains(&threads) {
            return Err(wrong());
        }
        Ok(Page { file, map, threads })
    }

    /// How many threads it was made for.
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

    /// The part that front thread number `thread` writes; of a number that is too high, the last.
    pub fn thread(&self, thread: u32) -> ThreadBoard<'_> {
        ThreadBoard(self.block((thread as usize).min(self.threads - 1)))
    }

    /// When the pool's memory was measured last, by the clock of [`now`].
    pub fn measured_at(&self) -> Duration {
        Duration::from_nanos(self.word(MEASURED_AT).load(Relaxed))
    }

    /// When the pool's OPcache was last known to be what [`Reading::cache`] tells, or too fresh to
    /// be looked at again, by the clock of [`now`].
    pub fn cache_asked_at(&self) -> Duration {
        Duration::from_nanos(self.word(CACHE_ASKED_AT).load(Relaxed))
    }

    /// How many requests have been answered.
    pub fn answered(&self) -> u64 {
        let threads = (0..self.threads).map(|thread| self.block(thread));
        let answered = threads.map(|words| words[RequestOutcome::Responded as usize].load(Relaxed));
        answered.sum()
    }

    /// A request found all workers busy and no further one allowed.
    pub fn limit_reached(&self) {
        self.word(LIMIT_REACHED).fetch_add(1, Relaxed);
    }

    /// For so long newer requests came before older ones.
    pub fn newest_first(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.word(NEWEST_FIRST).fetch_add(micros, Relaxed);
    }

    /// How the number of workers was found last; nothing: it is not found.
    pub fn show_size(&self, size: Option<Size>) {
        for (place, word) in size.unwrap_or_default().words().into_iter().enumerate() {
            self.word(SIZE + place).store(word, Relaxed);
        }
    }

    /// Front number `epoch` begins, or has gone: nothing waits there, and nothing runs for it.
    pub fn clear_front(&self, epoch: u32) {
        for figure in 0..2 {
            self.of_front(epoch, figure).store(0, Relaxed);
        }
    }

    /// The word in which a front keeps one of its two figures.
    fn of_front(&self, epoch: u32, figure: usize) -> &AtomicU64 {
        self.word(FRONTS + 2 * (epoch as usize % MAX_FRONTS) + figure)
    }

    /// One of the two figures, of all fronts together.
    fn of_fronts(&self, figure: usize) -> u64 {
        let fronts = (0..MAX_FRONTS).map(|front| self.word(FRONTS + 2 * front + figure));
        fronts.fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }

    /// The part that the supervisor writes.
    pub fn workers(&self) -> WorkerBoard<'_> {
        WorkerBoard(self)
    }

    /// Reads all of it.
    pub fn read(&self) -> Reading {
        let get = |at| self.word(at).load(Relaxed);
        let signals = (1..=MAX_SIGNAL).map(|signal| (signal as i32, get(SIGNALS + signal)));
        let mut reading = Reading {
            queued: self.of_fronts(0),
            max_queued: get(MAX_QUEUED),
            busy: self.of_fronts(1),
            max_busy: get(MAX_BUSY),
            limit_reached: get(LIMIT_REACHED),
            newest_first: Duration::from_micros(get(NEWEST_FIRST)),
            seated: get(SEATED),
            coming: get(COMING),
            spawned: get(SPAWNED),
            fork_failed: get(FORK_FAILED),
            private_bytes: get(PRIVATE_BYTES),
            shared_bytes: get(SHARED_BYTES),
            cache: self.cache(),
            size: Size::from_words(std::array::from_fn(|word| get(SIZE + word))),
            copies: self.copies(),
            ended: std::array::from_fn(|cause| get(ENDED + cause)),
            signals: signals.filter(|(_, times)| *times > 0).collect(),
            ..Reading::default()
        };
        let present = part_of(now());
        for thread in 0..self.threads {
            ThreadBoard(self.block(thread)).read(present, &mut reading);
        }
        reading
    }
}

impl Page {
    fn cache(&self) -> Option<(Cache, Duration)> {
        let get = |at| self.word(at).load(Relaxed);
        let words = std::array::from_fn(|word| get(CACHE + word));
        let at = get(CACHE_AT);
        (at > 0).then(|| (Cache::from_words(words), Duration::from_nanos(at)))
    }
}

impl Page {
    fn copies(&self) -> Option<Copies> {
        let words = std::array::from_fn(|word| self.word(COPIES + word).load(Relaxed));
        let mut forks = Times::default();
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
    io::Error::new(
        io::ErrorKind::InvalidData,
        "this is not the scoreboard of a pool",
    )
}

/// In full: who compares it with a moment of its own finds both in one tick of the clock. Never 0.
fn nanos_now() -> u64 {
    u64::try_from(now().as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// The number of the part of time that `now` is in. Never 0, which is what an empty page says.
fn part_of(now: Duration) -> u64 {
    now.as_secs() / PART_SECONDS + 1
}

/// What a front thread counts.
#[derive(Debug, Clone, Copy)]
pub struct ThreadBoard<'p>(&'p [AtomicU64]);

impl ThreadBoard<'_> {
    /// A request has come to its end.
    pub fn count(self, outcome: RequestOutcome) {
        self.0[outcome as usize].fetch_add(1, Relaxed);
    }

    /// A request has ended that took this.
    pub fn observe(self, took: &Took, now: Duration) {
        let part = part_of(now);
        let place = part as usize % PARTS;
        let stamp = &self.0[STAMPS + place];
        let recent = self.set(1 + place);
        if stamp.load(Relaxed) != part {
            recent.iter().for_each(|word| word.store(0, Relaxed));
            stamp.store(part, Relaxed);
        }
        for set in [self.set(0), recent] {
            for (words, time) in set.chunks_exact(histogram::WORDS).zip(took.times()) {
                if let Some(time) = time {
                    histogram::add(words, time);
                }
            }
        }
        if !took.children.is_zero() {
            let micros = u64::try_from(took.children.as_micros()).unwrap_or(u64::MAX);
            self.0[CHILDREN].fetch_add(micros, Relaxed);
        }
        if took.peak_memory > 0 {
            let kilobytes = Duration::from_micros(took.peak_memory / 1024);
            histogram::add(&self.0[MEMORY..MEMORY + histogram::WORDS], kilobytes);
        }
    }

    fn set(&self, number: usize) -> &[AtomicU64] {
        let start = TOTALS + number * SET_WORDS;
        &self.0[start..start + SET_WORDS]
    }

    fn read(self, present: u64, into: &mut Reading) {
        for (total, ours) in into.outcomes.iter_mut().zip(self.0) {
            *total = total.wrapping_add(ours.load(Relaxed));
        }
        let stamps = || {
            self.0[STAMPS..STAMPS + PARTS]
                .iter()
                .map(|stamp| stamp.load(Relaxed))
        };
        if stamps().all(|stamp| stamp == 0) {
            // Nothing was ever counted, and reading zeroes would cost memory to hold them.
            return;
        }
        let children = Duration::from_micros(self.0[CHILDREN].load(Relaxed));
        into.children = into.children.saturating_add(children);
        into.peak_memory
            .read(&self.0[MEMORY..MEMORY + histogram::WORDS]);
        read_set(self.set(0), into.total());
        for (place, stamp) in stamps().enumerate() {
            if stamp <= present && stamp + PARTS as u64 > present {
                read_set(self.set(1 + place), into.recent());
            }
        }
    }
}

fn read_set(set: &[AtomicU64], into: [&mut Times; TIMES]) {
    for (words, times) in set.chunks_exact(histogram::WORDS).zip(into) {
        times.read(words);
    }
}

/// What one of the queues of a pool adds to the pool's figures: a front has one for each
/// generation of the pool. Its writer holds the queue's lock.
#[derive(Debug)]
pub struct QueueShare {
    epoch: u32,
    /// How many requests wait there, and how many workers run one.
    shown: [AtomicU64; 2],
}

impl QueueShare {
    /// The share of an empty queue, in front number `epoch`.
    pub fn new(epoch: u32) -> QueueShare {
        let shown = [AtomicU64::new(0), AtomicU64::new(0)];
        QueueShare { epoch, shown }
    }

    /// So many requests wait there now, and so many workers run one.
    pub fn show(&self, page: &Page, queued: u32, busy: u32) {
        for (figure, value) in [queued, busy].into_iter().enumerate() {
            let value = u64::from(value);
            let before = self.shown[figure].load(Relaxed);
            if before == value {
                continue;
            }
            self.shown[figure].store(value, Relaxed);
            let more = value.wrapping_sub(before);
            page.of_front(self.epoch, figure).fetch_add(more, Relaxed);
            if value > before {
                let (now, highest) = (page.of_fronts(figure), page.word(MAX_QUEUED + figure));
                highest.fetch_max(now, Relaxed);
            }
        }
    }
}

/// What the supervisor counts.
#[derive(Debug, Clone, Copy)]
pub struct WorkerBoard<'p>(&'p Page);

impl WorkerBoard<'_> {
    /// Of a generation of the pool, which showed `before`, so many workers sit in seats `now`, and
    /// so many were ordered and are not there yet.
    pub fn show(self, before: (u64, u64), now: (u64, u64)) {
        let (seated, coming) = (self.0.word(SEATED), self.0.word(COMING));
        seated.fetch_add(now.0.wrapping_sub(before.0), Relaxed);
        coming.fetch_add(now.1.wrapping_sub(before.1), Relaxed);
    }

    /// Nothing was shown yet: another program shows the pool's workers from now on.
    pub fn forget_shown(self) {
        self.0.word(SEATED).store(0, Relaxed);
        self.0.word(COMING).store(0, Relaxed);
    }

    /// A worker was started.
    pub fn spawned(self) {
        self.0.word(SPAWNED).fetch_add(1, Relaxed);
    }

    /// A worker could not be forked.
    pub fn fork_failed(self) {
        self.0.word(FORK_FAILED).fetch_add(1, Relaxed);
    }

    /// A worker has ended; `signal` is the one that ended it, if one did that nobody of us sent.
    pub fn ended(self, cause: Cause, signal: Option<i32>) {
        self.0.word(ENDED + cause as usize).fetch_add(1, Relaxed);
        let number = signal.and_then(|signal| usize::try_from(signal).ok());
        if let Some(number) = number.filter(|number| (1..=MAX_SIGNAL).contains(number)) {
            self.0.word(SIGNALS + number).fetch_add(1, Relaxed);
        }
    }

    /// The pool's memory was measured: see [`Reading::private_bytes`] and
    /// [`Reading::shared_bytes`].
    pub fn measured(self, private_bytes: u64, shared_bytes: u64) {
        self.0.word(PRIVATE_BYTES).store(private_bytes, Relaxed);
        self.0.word(SHARED_BYTES).store(shared_bytes, Relaxed);
        self.0.word(MEASURED_AT).store(nanos_now(), Relaxed);
    }

    /// Copies of what this generation has booted serve from now on; 0: workers are no copies.
    pub fn copies_of(self, generation: u32) {
        self.0.word(COPIES).store(generation.into(), Relaxed);
    }

    /// A copy was forked, which took so long.
    pub fn forked(self, took: Duration) {
        histogram::add(&self.0.map.words()[FORKS..FORKS + histogram::WORDS], took);
    }

    /// Copies have counted so much more of themselves.
    pub fn copies_told(self, more: CopiesTold) {
        for (place, more) in (COPIES + 1..).zip(more.words()) {
            self.0.word(place).fetch_add(more, Relaxed);
        }
    }

    /// How the pool's OPcache is doing; nothing: that is not known.
    pub fn show_cache(self, cache: Option<Cache>) {
        for (place, word) in cache.unwrap_or_default().words().into_iter().enumerate() {
            self.0.word(CACHE + place).store(word, Relaxed);
        }
        let at = cache.map_or(0, |_| nanos_now());
        self.0.word(CACHE_AT).store(at, Relaxed);
        self.cache_is_fresh();
    }

    /// What is shown of the pool's OPcache is as fresh as it gets for now.
    pub fn cache_is_fresh(self) {
        self.0.word(CACHE_ASKED_AT).store(nanos_now(), Relaxed);
    }
}

#[cfg(test)]
mod tests;
