//! The time as HTTP writes it, once a second and thread.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

thread_local! {
    static LAST: Cell<(u64, [u8; 29])> = const { Cell::new((0, [b' '; 29])) };
}

/// Now, as an IMF-fixdate (RFC 9110 §5.6.7).
pub fn http_date() -> [u8; 29] {
    let now = SystemTime::now();
    let second = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |passed| passed.as_secs());
    let (last, text) = LAST.get();
    if last == second {
        return text;
    }
    let mut fresh = [b' '; 29];
    let text = httpdate::fmt_http_date(now);
    fresh.copy_from_slice(&text.as_bytes()[..29]);
    LAST.set((second, fresh));
    fresh
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_date_is_one_that_http_can_read_again() {
        let text = super::http_date();
        assert!(httpdate::parse_http_date(std::str::from_utf8(&text).unwrap()).is_ok());
    }
}
