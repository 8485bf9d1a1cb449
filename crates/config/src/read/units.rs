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

/// Units of durations in other words, and ours.
const LONG_UNITS: [(&str, &str); 6] =
    [("milli", "ms"), ("msec", "ms"), ("sec", "s"), ("min", "m"), ("hour", "h"), ("day", "d")];

/// Why a number with a unit is no duration, as the end of a sentence; none if it has no unit.
pub(crate) fn wrong_duration(text: &str) -> Option<String> {
    let is_other = |unit: &str| LONG_UNITS.iter().find(|(long, _)| unit.starts_with(long));
    wrong_unit(text, "`ms`, `s`, `m`, `h` or `d`", |number, unit| {
        let unit = match is_other(&unit.to_ascii_lowercase()) {
            Some((_, ours)) => ours,
            None => unit,
        };
        Some(format!("{number}{unit}")).filter(|text| duration(text).is_some())
    })
}

/// As [`wrong_duration`], for a size.
pub(crate) fn wrong_size(text: &str) -> Option<String> {
    wrong_unit(text, "`k`, `M` or `G` (powers of 1024)", |number, unit| {
        let unit = unit.trim_end_matches(['b', 'B']).trim_end_matches('i');
        Some(format!("{number}{}", unit.to_ascii_uppercase())).filter(|text| size(text).is_some())
    })
}

fn wrong_unit(
    text: &str,
    units: &str,
    correct: impl Fn(u64, &str) -> Option<String>,
) -> Option<String> {
    let (number, rest) = split(text)?;
    let unit = rest.trim();
    // A number beyond the limit has a unit that is right.
    let is_known = rest == unit && units.contains(&format!("`{unit}`"));
    if unit.is_empty() || !unit.chars().all(char::is_alphabetic) || is_known {
        return None;
    }
    let example = correct(number, unit).map_or(String::new(), |text| format!(", here \"{text}\""));
    Some(format!(
        "has none of the units {units}; expected a number and a unit without a space{example}"
    ))
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
    fn a_unit_of_another_kind_is_corrected() {
        let duration =
            |text| wrong_duration(text).map(|why| why.rsplit(' ').next().unwrap().to_owned());
        assert_eq!(duration("30sec").as_deref(), Some("\"30s\""));
        assert_eq!(duration("5 minutes").as_deref(), Some("\"5m\""));
        assert_eq!(duration("1w").as_deref(), Some("space"), "there is no week");
        assert_eq!(duration("soon"), None);
        let size = |text| wrong_size(text).map(|why| why.rsplit(' ').next().unwrap().to_owned());
        assert_eq!(size("64MiB").as_deref(), Some("\"64M\""));
        assert_eq!(size("8 kB").as_deref(), Some("\"8K\""));
        assert_eq!(size("1T").as_deref(), Some("space"));
        assert_eq!(size("1.5G"), None);
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
