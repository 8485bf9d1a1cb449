//! Limits the memory of output that clients have not read yet, of all clients together. The more of
//! it is in use, the less each response may hold: its limit is a part of the memory that is still
//! free (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998). So a few slow clients are
//! served from memory, and a thousand of them leave memory to the next.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that all clients together may hold, beyond [`LEAST_BYTES`] of each.
pub const TOTAL_BYTES: usize = 24 * 1024 * 1024;
/// Bytes that each client may hold in any case. They do not count.
pub const LEAST_BYTES: usize = 8 * 1024;
/// The part of the free memory that one client may hold: N clients together hold
/// N / (N + `SHARES`) of the total.
const SHARES: usize = 32;

/// The memory that all clients of this process use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Most bytes that a client may hold now, of the `most` that it may hold by itself.
pub fn limit(most: usize) -> usize {
    share(USED.load(Ordering::Relaxed), most)
}

/// The limit of a client while all clients together use `used` bytes.
fn share(used: usize, most: usize) -> usize {
    let free = TOTAL_BYTES.saturating_sub(used);
    most.min((free / SHARES).max(LEAST_BYTES))
}

/// The bytes of one client, until it is dropped.
#[derive(Debug, Default)]
pub struct ClientMemory {
    counted: usize,
}

impl ClientMemory {
    /// Updates the account: the client holds `bytes` now. What it holds beyond its share counts for
    /// no others, who have theirs all the same.
    pub fn holds(&mut self, bytes: usize) {
        let others = USED.load(Ordering::Relaxed).saturating_sub(self.counted);
        // What has been counted stays so until the client holds less.
        let most = share(others, bytes).saturating_sub(LEAST_BYTES).max(self.counted);
        let bytes = bytes.saturating_sub(LEAST_BYTES).min(most);
        if bytes > self.counted {
            USED.fetch_add(bytes - self.counted, Ordering::Relaxed);
        } else if bytes < self.counted {
            USED.fetch_sub(self.counted - bytes, Ordering::Relaxed);
        }
        self.counted = bytes;
    }
}

impl Drop for ClientMemory {
    fn drop(&mut self) {
        if self.counted > 0 {
            USED.fetch_sub(self.counted, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 512 * 1024;

    #[test]
    fn one_client_may_hold_all_it_wants_and_many_less_each() {
        assert_eq!(share(0, MOST), MOST);
        assert_eq!(share(TOTAL_BYTES / 3, MOST), MOST);
        assert_eq!(share(TOTAL_BYTES / 3 * 2, MOST), MOST / 2);
        assert_eq!(share(TOTAL_BYTES, MOST), LEAST_BYTES);
        assert_eq!(share(2 * TOTAL_BYTES, MOST), LEAST_BYTES);
        assert_eq!(share(TOTAL_BYTES, LEAST_BYTES / 2), LEAST_BYTES / 2);
    }

    #[test]
    fn clients_that_hold_more_than_their_shares_leave_the_others_theirs() {
        let mut clients: Vec<ClientMemory> = (0..40).map(|_| ClientMemory::default()).collect();
        clients.iter_mut().for_each(|client| client.holds(1 << 20));
        assert!(limit(MOST) > LEAST_BYTES);
        let counted =
            |clients: &[ClientMemory]| clients.iter().map(|one| one.counted).sum::<usize>();
        let before = counted(&clients);
        clients.iter_mut().for_each(|client| client.holds(1 << 20));
        assert!(counted(&clients) >= before, "what is held is counted as long as it is");
    }

    #[test]
    fn any_number_of_clients_stay_within_the_total() {
        let mut used = 0;
        for clients in 1..=100_000 {
            used += share(used, MOST) - LEAST_BYTES;
            assert!(used <= TOTAL_BYTES, "{clients} clients");
        }
        assert!(used > TOTAL_BYTES / 10 * 9, "the memory is there to be used: {used}");
    }
}
