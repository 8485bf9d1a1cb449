//! Read access to a pool's boards for other processes than its front and workers.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use crate::board::{PoolBoard, SeatBoard};
use crate::layout::{Layout, MAX_THREADS, SLOTS_PER_SEAT};
use crate::slot_words::State;

/// A pool's shared file, mapped to read its boards.
#[derive(Debug)]
pub struct Boards {
    layout: Layout,
}

impl Boards {
    /// Maps a pool's shared file.
    ///
    /// # Errors
    /// When the file is not a pool's, or the address space is full.
    pub fn map(file: impl AsFd) -> io::Result<Boards> {
        let layout = Layout::map(file, MAX_THREADS)?;
        Ok(Boards { layout })
    }

    pub(crate) fn over(layout: Layout) -> Boards {
        Boards { layout }
    }

    /// The pool's board.
    pub fn pool(&self) -> &PoolBoard {
        self.layout.pool_board()
    }

    /// The board of a seat; `None` if there is no such seat.
    pub fn seat(&self, seat: u32) -> Option<&SeatBoard> {
        (seat < self.layout.seats()).then(|| self.layout.seat_board(seat))
    }

    /// Whether the running script of a seat has lost its client. Unverified, as its board is.
    pub fn client_has_left(&self, seat: u32) -> bool {
        seat < self.layout.seats()
            && (0..SLOTS_PER_SEAT).map(|slot| self.layout.slot(seat, slot)).any(|words| {
                words.state.get().0 == State::Claimed
                    && words.front.gone.load(Ordering::Relaxed) != 0
            })
    }
}
