//! The layout of a pool's shared file.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use maitred_os::shared::{SharedMap, create_sealed};

use crate::board::{PoolBoard, SeatBoard};
use crate::ring::Ring;
use crate::slot_words::{SleepWord, SlotWords};

/// Slots of a seat: one for the running request, the others for queued ones.
pub const SLOTS_PER_SEAT: usize = 16;
/// Size of a request ring in bytes. A request header must fit completely; bodies are streamed.
pub const REQUEST_RING_BYTES: usize = 128 * 1024;
/// Size of a response ring in bytes. Most pages fit, so that a worker finishes without waiting.
pub const ANSWER_RING_BYTES: usize = 128 * 1024;
/// Longest worker call of a script in bytes.
pub const CALL_BYTES: usize = 16 * 1024;
/// Most threads a front may have.
pub const MAX_THREADS: u32 = 64;
/// Most seats a pool may have.
pub const MAX_SEATS: u32 = 16 * 1024;

const PAGE: usize = 4096;
const SLOT_BYTES: usize = PAGE + REQUEST_RING_BYTES + ANSWER_RING_BYTES;
const SEAT_BYTES: usize = 2 * PAGE + CALL_BYTES + SLOTS_PER_SEAT * SLOT_BYTES;
const SLEEP_OFFSET: usize = PAGE;
const BOARD_OFFSET: usize = 2 * PAGE;
const SEATS_OFFSET: usize = 3 * PAGE;

const _: () = assert!(size_of::<Header>() <= PAGE);
const _: () = assert!(size_of::<SleepWord>() * MAX_THREADS as usize <= PAGE);
const _: () = assert!(size_of::<PoolBoard>() <= PAGE);
const _: () = assert!(size_of::<SleepWord>() <= PAGE && size_of::<SeatBoard>() <= PAGE);
const _: () = assert!(size_of::<SlotWords>() <= PAGE);

/// The header does not contain the size of the pool: workers can write to it, and the sealed file
/// size is reliable.
#[repr(C)]
struct Header {
    epoch: AtomicU32,
}

/// Creates a pool's shared file: all slots free, sealed against resizing.
///
/// # Errors
/// For more seats or threads than [`MAX_SEATS`] and [`MAX_THREADS`], or when the system is out of
/// descriptors or memory.
pub fn create(pool: &str, seats: u32, threads: u32) -> io::Result<OwnedFd> {
    if !(1..=MAX_SEATS).contains(&seats) || !(1..=MAX_THREADS).contains(&threads) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many seats or threads"));
    }
    let bytes = SEATS_OFFSET + seats as usize * SEAT_BYTES;
    create_sealed(&format!("maitred-{pool}"), bytes)
}

/// A mapped pool file. Copies share the mapping.
#[derive(Debug, Clone)]
pub struct Layout {
    map: SharedMap,
    seats: u32,
    threads: u32,
}

impl Layout {
    /// Maps a pool's shared file for a front with `threads` threads.
    ///
    /// # Errors
    /// When its size is not valid for a pool.
    pub fn map(fd: impl std::os::fd::AsFd, threads: u32) -> io::Result<Layout> {
        let map = SharedMap::map(fd)?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a pool's shared file");
        let rest = map.len().checked_sub(SEATS_OFFSET).ok_or_else(wrong)?;
        let seats = u32::try_from(rest / SEAT_BYTES).map_err(|_| wrong())?;
        if rest % SEAT_BYTES != 0
            || !(1..=MAX_SEATS).contains(&seats)
            || !(1..=MAX_THREADS).contains(&threads)
        {
            return Err(wrong());
        }
        Ok(Layout { map, seats, threads })
    }

    /// Number of seats.
    pub fn seats(&self) -> u32 {
        self.seats
    }

    /// Number of front threads.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// A shared value at an offset inside the mapping.
    fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.map.len(), "offset within the mapping");
        // SAFETY: the place is inside the mapping (checked) and aligned, since every offset used
        // is a multiple of a page plus a multiple of `T`'s size; `T` is one of the types of this
        // crate made of atomics only, for which every bit pattern is valid.
        unsafe { &*self.map.start().add(offset).cast::<T>() }
    }

    /// Number of the front that owns the link.
    pub fn epoch(&self) -> u32 {
        self.at::<Header>(0).epoch.load(Ordering::Acquire)
    }

    /// Assigns the link to front number `epoch`, or confirms it.
    pub fn set_epoch(&self, epoch: u32) {
        self.at::<Header>(0).epoch.store(epoch, Ordering::SeqCst);
    }

    /// The sleep word of a front thread.
    pub fn front_sleep(&self, thread: u32) -> &SleepWord {
        assert!(thread < self.threads, "a thread of this front");
        self.at(SLEEP_OFFSET + thread as usize * size_of::<SleepWord>())
    }

    /// Writes any value to any word of a slot's first page, as a hostile worker could.
    #[cfg(test)]
    pub fn spoil_slot(&self, at: usize, value: u32) {
        let offset = self.slot_offset(0, 0) + at % (PAGE / 4) * 4;
        self.at::<AtomicU32>(offset).store(value, Ordering::Relaxed);
    }

    /// Writes any value to any word of the pages before the seats.
    #[cfg(test)]
    pub fn spoil_header(&self, at: usize, value: u32) {
        let offset = at * (SEATS_OFFSET / 4 / 64) * 4 % SEATS_OFFSET;
        self.at::<AtomicU32>(offset).store(value, Ordering::Relaxed);
    }

    /// The pool's board, written by the front.
    pub fn pool_board(&self) -> &PoolBoard {
        self.at(BOARD_OFFSET)
    }

    fn seat_offset(&self, seat: u32) -> usize {
        assert!(seat < self.seats, "a seat of this pool");
        SEATS_OFFSET + seat as usize * SEAT_BYTES
    }

    /// The sleep word of a seat's worker.
    pub fn worker_sleep(&self, seat: u32) -> &SleepWord {
        self.at(self.seat_offset(seat))
    }

    /// A seat's board, written by its worker.
    pub fn seat_board(&self, seat: u32) -> &SeatBoard {
        self.at(self.seat_offset(seat) + PAGE)
    }

    /// The buffer for worker calls; one script runs in a seat at a time.
    pub fn call_buffer(&self, seat: u32) -> Ring<'_> {
        self.ring(self.seat_offset(seat) + 2 * PAGE, CALL_BYTES)
    }

    /// Gives the memory of a seat's slots and calls back: all its slots are free then.
    ///
    /// # Errors
    /// When the system cannot.
    pub fn discard_slots(&self, seat: u32) -> io::Result<()> {
        let start = self.seat_offset(seat);
        self.map.discard(start + 2 * PAGE..start + SEAT_BYTES)
    }

    fn slot_offset(&self, seat: u32, slot: usize) -> usize {
        assert!(slot < SLOTS_PER_SEAT, "a slot of this seat");
        self.seat_offset(seat) + 2 * PAGE + CALL_BYTES + slot * SLOT_BYTES
    }

    /// A slot's words.
    pub fn slot(&self, seat: u32, slot: usize) -> &SlotWords {
        self.at(self.slot_offset(seat, slot))
    }

    /// A slot's request ring.
    pub fn request_ring(&self, seat: u32, slot: usize) -> Ring<'_> {
        self.ring(self.slot_offset(seat, slot) + PAGE, REQUEST_RING_BYTES)
    }

    /// A slot's response ring.
    pub fn response_ring(&self, seat: u32, slot: usize) -> Ring<'_> {
        let offset = self.slot_offset(seat, slot) + PAGE + REQUEST_RING_BYTES;
        self.ring(offset, ANSWER_RING_BYTES)
    }

    fn ring(&self, offset: usize, bytes: usize) -> Ring<'_> {
        assert!(offset + bytes <= self.map.len(), "ring within the mapping");
        // SAFETY: the range is inside the mapping (checked), which lives as long as `self`.
        unsafe { Ring::new(self.map.start().add(offset), bytes) }
    }
}
