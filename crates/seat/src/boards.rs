//! A pool's boards, for somebody who is neither its front nor one of its workers.

use std::io;
use std::os::fd::AsFd;

use crate::board::{PoolBoard, SeatBoard};
use crate::layout::{Layout, MAX_THREADS};

/// A pool's shared file, mapped to read what its workers show.
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

    /// The pool's figures.
    pub fn pool(&self) -> &PoolBoard {
        self.layout.pool_board()
    }

    /// The figures of the worker in a seat; nothing for a seat that there is not.
    pub fn seat(&self, seat: u32) -> Option<&SeatBoard> {
        (seat < self.layout.seats()).then(|| self.layout.seat_board(seat))
    }
}
