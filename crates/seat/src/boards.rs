//! Read access to a pool's boards for other processes than its front and workers.

use std::io;
use std::os::fd::AsFd;

use crate::board::{PoolBoard, SeatBoard};
use crate::layout::{Layout, MAX_THREADS};

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

    /// The pool's board.
    pub fn pool(&self) -> &PoolBoard {
        self.layout.pool_board()
    }

    /// The board of a seat; `None` if there is no such seat.
    pub fn seat(&self, seat: u32) -> Option<&SeatBoard> {
        (seat < self.layout.seats()).then(|| self.layout.seat_board(seat))
    }
}
