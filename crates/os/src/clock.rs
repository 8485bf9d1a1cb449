//! The time of day where the machine is.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Nanoseconds on the clock that never goes backwards (`CLOCK_MONOTONIC`): that of all processes of a
/// machine, and of [`std::time::Instant`].
pub fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Most bytes that [`format_local`] and [`format_utc`] write.
const FORMATTED_BYTES: usize = 1024;

/// The local time of a second since 1970 in a format of `strftime(3)`. Empty for a year that no `int`
/// holds, and for a text longer than a kilobyte.
pub fn format_local(second: i64, format: &CStr) -> Vec<u8> {
    self::format(second, format, libc::localtime_r)
}

/// As [`format_local`], in UTC.
pub fn format_utc(second: i64, format: &CStr) -> Vec<u8> {
    self::format(second, format, libc::gmtime_r)
}

type BreakDown = unsafe extern "C" fn(*const libc::time_t, *mut libc::tm) -> *mut libc::tm;

fn format(second: i64, format: &CStr, break_down: BreakDown) -> Vec<u8> {
    let mut broken_down = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are good for the call. The environment, in which the time zone is
    // looked up, does not change while there are threads (`environment::replace`).
    let done = unsafe { break_down(&raw const second, broken_down.as_mut_ptr()) };
    if done.is_null() {
        return Vec::new();
    }
    let mut text = vec![0_u8; FORMATTED_BYTES];
    // SAFETY: `text` has `FORMATTED_BYTES` bytes, the format ends with a NUL, and `break_down` has
    // filled the time, since it did not return NULL.
    let length = unsafe {
        libc::strftime(
            text.as_mut_ptr().cast(),
            FORMATTED_BYTES,
            format.as_ptr(),
            broken_down.as_ptr(),
        )
    };
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_written_in_any_form() {
        let second = 1_795_166_070;
        let text = format_local(second, c"%d/%b/%Y:%H:%M:%S %z");
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("/Nov/2026:"), "{text}");
        assert_eq!(format_local(second, c"%%"), b"%");
        assert!(format_local(i64::MAX, c"%Y").is_empty());
        let long = std::ffi::CString::new("x".repeat(2000)).unwrap();
        assert!(format_local(second, &long).is_empty());
    }

    #[test]
    fn a_second_of_utc_is_the_same_everywhere() {
        let text = format_utc(1_795_166_070, c"%d-%b-%Y %H:%M:%S %z");
        assert_eq!(text, b"20-Nov-2026 09:14:30 +0000");
    }
}
