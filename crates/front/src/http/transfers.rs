//! Descriptors of transfers: connections to upstream servers, and large files that are open to be
//! sent. A client has one of them over a connection of HTTP/1, and hundreds over one of HTTP/2, for
//! as long as it reads slowly. Each server and each folder has a part of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maitred_budget::SharedBudget;

/// Descriptors that an owner may have for each that is free: one alone has four fifths, files that
/// are only held open included.
const SHARE: u64 = 4;

/// Idle connections stay open while less than one in this many descriptors is in use.
const PART_WITH_IDLE: u64 = 2;

/// `Retry-After` of a request without a descriptor, in seconds.
pub const RETRY_SECONDS: u64 = 5;

static BUDGET: Mutex<SharedBudget> = Mutex::new(SharedBudget::unlimited());

fn budget() -> MutexGuard<'static, SharedBudget> {
    BUDGET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the most descriptors of all transfers together.
pub fn limit_to(most: u64) {
    budget().limit_to(most);
}

/// Whether descriptors are free for connections without a request.
pub fn may_idle() -> bool {
    let budget = budget();
    budget.limit().is_none_or(|most| budget.used() < most / PART_WITH_IDLE)
}

/// The descriptor of a transfer, until it is dropped.
#[derive(Debug)]
pub struct Transfer {
    owner: Arc<str>,
}

impl Transfer {
    /// A descriptor of a server or folder; none: it has its part already.
    pub fn begin(owner: &Arc<str>) -> Option<Transfer> {
        budget().take(owner, 1, SHARE).then(|| Transfer { owner: owner.clone() })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        budget().release(&self.owner, 1);
    }
}
