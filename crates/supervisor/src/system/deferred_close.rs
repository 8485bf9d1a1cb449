//! Descriptors whose close may wait for as long as a tenant likes. Any owner may drop one anywhere;
//! the process that reads pipes closes them (`processes/pipe_reader.rs`).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

static WAITING: Mutex<Vec<Arc<OwnedFd>>> = Mutex::new(Vec::new());

/// These are to be closed by that process.
pub fn close_later(ends: Vec<Arc<OwnedFd>>) {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).extend(ends);
}

/// Takes ends that are to be closed, this many at most.
pub fn take(most: usize) -> Vec<Arc<OwnedFd>> {
    let mut all = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    // One that is still to be read is closed afterwards: ours would be the last descriptor.
    let (mut free, read): (Vec<_>, Vec<_>) =
        std::mem::take(&mut *all).into_iter().partition(|end| Arc::strong_count(end) == 1);
    let taken = free.split_off(free.len().saturating_sub(most));
    free.extend(read);
    *all = free;
    taken
}

/// Whether ends are to be closed.
pub fn are_waiting() -> bool {
    !WAITING.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}
