//! A token bucket: events up to a rate, and a burst beyond it. Pure: the caller provides the time.

use crate::episode::Moment;

/// Tokens that are taken by events and come back with time.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    burst: f64,
    per_second: f64,
    tokens: f64,
    at: Moment,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens, which gets `per_second` more each second.
    pub fn full(burst: u32, per_second: u32) -> TokenBucket {
        let burst = f64::from(burst);
        TokenBucket { burst, per_second: per_second.into(), tokens: burst, at: Moment::ZERO }
    }

    /// Takes a token. False: there is none.
    pub fn take(&mut self, now: Moment) -> bool {
        self.pass_time(now);
        let has_token = self.tokens >= 1.0;
        if has_token {
            self.tokens -= 1.0;
        }
        has_token
    }

    /// Returns `tokens` to the bucket, as far as it has room.
    pub fn give(&mut self, tokens: f64) {
        self.tokens = (self.tokens + tokens).min(self.burst);
    }

    /// Whether no token is missing.
    pub fn is_full(&mut self, now: Moment) -> bool {
        self.pass_time(now);
        self.tokens >= self.burst
    }

    fn pass_time(&mut self, now: Moment) {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.give(passed.as_secs_f64() * self.per_second);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut bucket = TokenBucket::full(3, 2);
        let now = Duration::from_secs(9);
        let taken = |bucket: &mut TokenBucket, now| (0..10).filter(|_| bucket.take(now)).count();
        assert_eq!(taken(&mut bucket, now), 3);
        assert!(!bucket.is_full(now));
        assert_eq!(taken(&mut bucket, now + Duration::from_secs(1)), 2);
        bucket.give(1.0);
        assert_eq!(taken(&mut bucket, now), 1, "a clock that goes back gives nothing");
        assert!(bucket.is_full(now + Duration::from_secs(60)));
        assert_eq!(taken(&mut bucket, now + Duration::from_secs(60)), 3, "no more than the burst");
    }
}
