//! The time of day where the machine is.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// The processor time of this process, all threads together.
pub fn process_cpu() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    std::time::Duration::try_from(time).unwrap_or_default()
}

/// The processor time of the calling thread.
pub fn thread_cpu() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::try_from(time).unwrap_or_default()
}

/// Nanoseconds of the monotonic clock (`CLOCK_MONOTONIC`), which all processes of a machine share,
/// and [`std::time::Instant`].
pub fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Milliseconds since the machine's start, suspended or not (`CLOCK_BOOTTIME`), which all its
/// processes share.
pub fn since_boot_millis() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

/// Most bytes of a formatted time.
const FORMATTED_BYTES: usize = 1024;

/// The local time of a second since 1970 in a format of `strftime(3)`. Empty for a year that no
/// `int` holds, and for a text longer than a kilobyte.
pub fn format_local(second: i64, format: &CStr) -> Vec<u8> {
    let mut broken_down = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are good for the call. The environment, in which the time zone is
    // looked up, does not change while there are threads (`environment::replace`).
    let done = unsafe { libc::localtime_r(&raw const second, broken_down.as_mut_ptr()) };
    if done.is_null() {
        return Vec::new();
    }
    let mut text = vec![0_u8; FORMATTED_BYTES];
    // SAFETY: `text` has `FORMATTED_BYTES` bytes, the format ends with a NUL, and `localtime_r` has
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

/// A second since 1970 in the machine's time zone by ISO 8601: `2026-11-24T01:21:26+01:00`.
pub fn local_iso_8601(second: i64) -> String {
    let mut text =
        String::from_utf8_lossy(&format_local(second, c"%Y-%m-%dT%H:%M:%S%z")).into_owned();
    // strftime(3) writes the zone without a colon.
    let minutes = text.len().saturating_sub(2);
    if text.is_char_boundary(minutes) {
        text.insert(minutes, ':');
    }
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
    fn a_local_time_by_iso_8601_ends_with_its_zone() {
        let text = local_iso_8601(1_795_166_070);
        assert_eq!(text.len(), "2026-11-20T09:14:30+00:00".len(), "{text}");
        assert_eq!(&text[22..23], ":", "{text}");
        assert!(text.starts_with("2026-11-"), "{text}");
    }
}
