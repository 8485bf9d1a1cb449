//! The time in the formats of HTTP and logs, formatted once a second per thread.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_htaccess::request::LocalTime;
use maitred_os::clock::{format_local, local_iso_8601, monotonic_nanos};

/// 9999-12-31 23:59:59, the last second of an HTTP date, in seconds since 1970.
const LAST_SECOND_OF_9999: u64 = 253_402_300_799;

thread_local! {
    static LAST: Cell<(u64, [u8; 29])> = const { Cell::new((0, [b' '; 29])) };
}

/// Now, as an IMF-fixdate (RFC 9110 §5.6.7).
pub fn http_date() -> [u8; 29] {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
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

/// The time on the monotonic clock.
pub fn monotonic() -> Duration {
    Duration::from_nanos(monotonic_nanos())
}

/// The time since 1970; zero if the clock is set to an earlier time.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A second since 1970 in Apache's common log format and the machine's time zone:
/// `20/Nov/2026:10:14:30 +0100`.
pub fn common_log_time(second: u64) -> String {
    let second = second.min(LAST_SECOND_OF_9999).cast_signed();
    let text = format_local(second, c"%d/%b/%Y:%H:%M:%S %z");
    String::from_utf8_lossy(&text).into_owned()
}

/// The value of the `Expires` header for a response that is fresh for `after` (RFC 9111 §5.3). For
/// zero it is a time in the past, as in nginx.
pub fn expires(after: Duration) -> String {
    let second = match after.is_zero() {
        true => 1,
        false => since_1970().saturating_add(after).as_secs(),
    };
    let second = second.min(LAST_SECOND_OF_9999);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second))
}

/// A second since 1970 by ISO 8601 in the machine's time zone: `2026-11-20T10:14:30+01:00`.
pub fn iso_8601(second: u64) -> String {
    local_iso_8601(second.min(LAST_SECOND_OF_9999).cast_signed())
}

/// A second since 1970 as an IMF-fixdate.
pub fn http_date_of(second: u64) -> String {
    let second = second.min(LAST_SECOND_OF_9999);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second))
}

/// The HTTP date of the time in `seconds` from now.
pub fn http_date_in(seconds: i64) -> String {
    http_date_of(since_1970().as_secs().saturating_add_signed(seconds))
}

/// Now in the machine's time zone, for the conditions of `.htaccess` files.
pub fn local_time() -> LocalTime {
    let second = since_1970().as_secs().min(LAST_SECOND_OF_9999).cast_signed();
    let text = format_local(second, c"%Y %m %d %H %M %S %w");
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut numbers = text.split(' ').map(|number| number.parse::<u16>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let year = i32::from(next());
    let mut small = || u8::try_from(next()).unwrap_or(0);
    LocalTime {
        year,
        month: small(),
        day: small(),
        hour: small(),
        minute: small(),
        second: small(),
        weekday: small(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_time_is_written_as_apache_writes_it() {
        let stamp = super::common_log_time(1_795_166_070);
        assert_eq!(stamp.len(), "20/Nov/2026:09:14:30 +0000".len(), "{stamp}");
        assert!(stamp.contains("/Nov/2026:"), "{stamp}");
        let latest = super::common_log_time(u64::MAX);
        assert_eq!(latest.len(), stamp.len(), "{latest}");
    }

    #[test]
    fn the_time_by_iso_8601_has_the_month_as_a_number() {
        let stamp = super::iso_8601(1_795_166_070);
        assert!(stamp.starts_with("2026-11-"), "{stamp}");
        assert_eq!(super::iso_8601(u64::MAX).len(), "2026-11-20T09:14:30+00:00".len());
    }

    #[test]
    fn what_expires_at_once_expired_long_ago() {
        use std::time::Duration;
        assert_eq!(super::expires(Duration::ZERO), "Thu, 01 Jan 1970 00:00:01 GMT");
        let hour = Duration::from_secs(3600);
        let date = httpdate::parse_http_date(&super::expires(hour)).unwrap();
        let ahead = date.duration_since(std::time::SystemTime::now()).unwrap();
        assert!(ahead <= hour && ahead > hour / 2);
        let far = super::expires(Duration::from_secs(u64::MAX));
        assert!(far.ends_with("9999 23:59:59 GMT"), "{far}");
    }

    #[test]
    fn the_date_is_one_that_http_can_read_again() {
        let text = super::http_date();
        assert!(httpdate::parse_http_date(std::str::from_utf8(&text).unwrap()).is_ok());
    }
}
