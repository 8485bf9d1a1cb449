//! Numbers with units: durations and sizes as text.

use std::time::Duration;

/// The longest duration of a setting: one year, so that no deadline overflows a clock.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The largest size of a setting, in bytes: file offsets are signed.
pub(crate) const MAX_SIZE_BYTES: u64 = i64::MAX as u64;

/// A duration: `30s`, `5m`, `1h`, `1d`, `500ms`, and a bare number of seconds.
///
/// The units are php-fpm's (`fpm_conf_set_time`), and `ms`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let milliseconds_per_unit: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return None,
    };
    let duration = Duration::from_millis(number.checked_mul(milliseconds_per_unit)?);
    (duration <= MAX_DURATION).then_some(duration)
}

/// A size in bytes: `512k`, `64M`, `1G` in either case, powers of 1024 as in php.ini
/// (`zend_atol`), and a bare number of bytes.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let bytes_per_unit: u64 = match unit {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(bytes_per_unit).filter(|bytes| *bytes <= MAX_SIZE_BYTES)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_time_is_read() {
        let read = |text| duration(text).map(|duration| duration.as_millis());
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("90"), Some(90_000));
        assert_eq!(read("500ms"), Some(500));
        assert_eq!(read("30s"), Some(30_000));
        assert_eq!(read("5m"), Some(300_000));
        assert_eq!(read("1h"), Some(3_600_000));
        assert_eq!(read("1d"), Some(86_400_000));
        assert_eq!(read("366d"), Some(31_622_400_000));
    }

    #[test]
    fn a_duration_that_is_none_is_refused() {
        for text in ["", "s", "-1", "+1", "1 s", "1.5s", "5M", "1w", "367d", "99999999999999999999"]
        {
            assert_eq!(duration(text), None, "{text}");
        }
        assert_eq!(duration("18446744073709551615d"), None);
    }

    #[test]
    fn every_unit_of_size_is_read() {
        assert_eq!(size("0"), Some(0));
        assert_eq!(size("1000"), Some(1000));
        assert_eq!(size("8k"), Some(8192));
        assert_eq!(size("8K"), Some(8192));
        assert_eq!(size("64M"), Some(64 << 20));
        assert_eq!(size("2g"), Some(2 << 30));
    }

    #[test]
    fn a_size_that_is_none_is_refused() {
        for text in
            ["", "M", "-1", "1MB", "1 M", "1T", "1.5G", "9223372036854775808", "8589934592G"]
        {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
