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

/// A date and a time of day, in the time zone of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// Year, such as 2026.
    pub year: i64,
    /// Month, from 1.
    pub month: u32,
    /// Day of the month, from 1.
    pub day: u32,
    /// Hour.
    pub hour: u32,
    /// Minute.
    pub minute: u32,
    /// Second; 60 is a leap second.
    pub second: u32,
}

/// The local time of a second since 1970. Nothing for a year that no `int` holds.
pub fn local_time(second: i64) -> Option<LocalTime> {
    let mut broken_down = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are good for the call. The environment, in which the time zone is
    // looked up, is changed by nobody while there are threads (`environment::replace`).
    let done = unsafe { libc::localtime_r(&raw const second, broken_down.as_mut_ptr()) };
    if done.is_null() {
        return None;
    }
    // SAFETY: `localtime_r` has filled it, since it did not return NULL.
    let tm = unsafe { broken_down.assume_init() };
    let part = |number: libc::c_int| u32::try_from(number).ok();
    Some(LocalTime {
        year: i64::from(tm.tm_year) + 1900,
        month: part(tm.tm_mon)? + 1,
        day: part(tm.tm_mday)?,
        hour: part(tm.tm_hour)?,
        minute: part(tm.tm_min)?,
        second: part(tm.tm_sec)?,
    })
}

/// Most bytes that [`format_local`] writes.
const FORMATTED_BYTES: usize = 1024;

/// The local time of a second since 1970 in a form of `strftime(3)`. Empty for a year that no `int`
/// holds, and for what is longer than a kilobyte.
pub fn format_local(second: i64, form: &CStr) -> Vec<u8> {
    let mut broken_down = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: as in `local_time`.
    let done = unsafe { libc::localtime_r(&raw const second, broken_down.as_mut_ptr()) };
    if done.is_null() {
        return Vec::new();
    }
    let mut text = vec![0_u8; FORMATTED_BYTES];
    // SAFETY: there is room for `FORMATTED_BYTES` bytes, the form ends with a NUL, and `localtime_r`
    // has filled the time, since it did not return NULL.
    let length = unsafe {
        libc::strftime(
            text.as_mut_ptr().cast(),
            FORMATTED_BYTES,
            form.as_ptr(),
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
    fn a_second_has_a_date() {
        let time = local_time(1_795_166_070).unwrap();
        // 2026-11-20 09:14:30 UTC, which is no more than a day off anywhere.
        assert_eq!((time.year, time.month), (2026, 11));
        assert!((19..=21).contains(&time.day), "{time:?}");
        assert_eq!(time.second, 30);
        assert_eq!(local_time(i64::MAX), None);
    }
}
