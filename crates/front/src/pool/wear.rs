//! The number of requests after which a worker counts as worn: a little less than `max_requests`,
//! so that its replacement is ready when it exits.

use maitred_control::Incarnation;

/// A replacement is requested when this part of `max_requests` is left.
const LEAD_PART: u64 = 20;
/// Up to this part of `max_requests` earlier, by seat and incarnation: workers that started
/// together must not all be replaced together.
const JITTER_PART: u64 = 10;
/// Below this limit there is no twentieth of it, and one request is left.
const SMALL_LIMIT: u64 = 20;
/// Knuth's multiplier (TAOCP 3, 6.4): neighbouring numbers end up far from each other.
const SCATTER: u64 = 2_654_435_761;

/// The number of requests after which a worker is worn; never, if `max_requests` is 0.
pub fn threshold(max_requests: u64, seat: u32, incarnation: Incarnation) -> u64 {
    match max_requests {
        0 => u64::MAX,
        1..SMALL_LIMIT => (max_requests - 1).max(1),
        _ => {
            let spread = max_requests / JITTER_PART + 1;
            let mixed = (u64::from(seat) << 16 ^ u64::from(incarnation)).wrapping_mul(SCATTER);
            max_requests - max_requests / LEAD_PART - (mixed >> 8) % spread
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_is_asked_for_a_little_before_the_limit() {
        assert_eq!(threshold(0, 0, 1), u64::MAX);
        assert_eq!(threshold(1, 0, 1), 1);
        assert_eq!(threshold(2, 0, 1), 1);
        assert_eq!(threshold(19, 3, 1), 18);
        for seat in 0..100 {
            assert!((850..=950).contains(&threshold(1000, seat, 1)));
        }
    }

    #[test]
    fn workers_that_were_born_together_are_not_worn_together() {
        let mut all: Vec<_> = (0..50).map(|seat| threshold(1000, seat, 1)).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 25, "{all:?}");
        assert_ne!(threshold(1000, 0, 1), threshold(1000, 0, 2));
    }
}
