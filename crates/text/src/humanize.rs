//! Numbers, sizes and times as people read and write them.

use std::time::Duration;

/// Bytes in a kilobyte of PHP's settings.
const KIB: f64 = 1024.0;

/// The longest duration that is accepted, in seconds: a week.
const LONGEST: f64 = 7.0 * 86_400.0;

/// Reads `500ms`, `30s`, `5m`, `1h`, or a number of seconds, as seconds.
///
/// # Errors
/// One sentence about what was expected.
pub fn parse_duration(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
    let ends = units.iter().find_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?;
        // "5ms" ends in "s", too.
        let number: f64 = number.trim().parse().ok()?;
        Some(number * seconds)
    });
    let seconds = ends.or_else(|| text.parse().ok());
    let accepted = seconds.filter(|seconds| (0.0..=LONGEST).contains(seconds));
    accepted
        .ok_or_else(|| format!("'{text}' is no time; expected one such as 500ms, 30s, 5m or 1h"))
}

/// A count with its noun: `1 worker`, `2 workers`.
pub fn plural(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", count(number))
}

/// Text from outside with control characters escaped, so that a terminal takes none for a command.
pub fn printable(text: &str) -> String {
    let mut shown = String::new();
    for sign in text.chars() {
        match sign {
            '"' | '\'' => shown.push(sign),
            sign => shown.extend(sign.escape_debug()),
        }
    }
    shown
}

/// Reads `0.1%`, or the same without its sign.
///
/// # Errors
/// One sentence about what was expected.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim();
    let percent: Option<f64> = number.parse().ok();
    let fits = percent.filter(|percent| (0.0..=100.0).contains(percent));
    fits.ok_or_else(|| format!("'{text}' is no share; expected one such as 0.1%"))
}

/// A time in the unit that fits, with three digits: `31 µs`, `1.27 s`, `2.5 min`.
pub fn duration(seconds: f64) -> String {
    let micros = seconds * 1e6;
    match micros {
        _ if micros < 999.5 => format!("{} µs", digits(micros)),
        _ if micros < 999_500.0 => format!("{} ms", digits(micros / 1e3)),
        _ if seconds < 120.0 => format!("{} s", digits(seconds)),
        _ if seconds < 7_200.0 => format!("{} min", digits(seconds / 60.0)),
        _ => format!("{} h", digits(seconds / 3_600.0)),
    }
}

/// Three significant digits, and all digits before the point.
pub fn digits(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A number, without a point if it is whole.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value:.0}") } else { digits(value) }
}

/// A count in all its digits: `60000`.
pub fn count(value: u64) -> String {
    value.to_string()
}

/// A size in the decimal unit that fits, with three digits: `3.4 MB`.
pub fn bytes(value: f64) -> String {
    match value {
        _ if value < 1e3 => format!("{value:.0} B"),
        _ if value < 1e6 => format!("{} kB", digits(value / 1e3)),
        _ if value < 1e9 => format!("{} MB", digits(value / 1e6)),
        _ => format!("{} GB", digits(value / 1e9)),
    }
}

/// A size in the binary unit that fits, as PHP's settings count: `128 MB`, `3.5 GB`.
pub fn binary_bytes(bytes: f64) -> String {
    let (value, unit) = match bytes / KIB {
        kib if kib < 1.0 => (bytes, "B"),
        kib if kib < KIB => (kib, "KB"),
        kib if kib < KIB * KIB => (kib / KIB, "MB"),
        kib => (kib / KIB / KIB, "GB"),
    };
    let digits = usize::from(unit == "GB" || (unit == "MB" && value < 10.0));
    format!("{value:.digits$} {unit}")
}

/// A time beside settings in seconds: `35 s`, `2.5 s` or `20.0 ms`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 10.0 && s.fract() != 0.0 => format!("{s:.1} s"),
        s => format!("{s:.0} s"),
    }
}

/// How long something lasted, in log lines: `19.0 s`.
pub fn lasted(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    let digits = usize::from(share.abs() < 0.1);
    format!("{:.digits$} %", share * 100.0)
}

/// A short time in at most five characters: `850µs`, `1.2ms`, `12ms`, `1.2s`, `62s`.
pub fn compact_time(seconds: f64) -> String {
    let scaled = |value: f64, unit: &str| {
        let digits = usize::from(value < 9.95);
        format!("{value:.digits$}{unit}")
    };
    match seconds {
        ..0.000_999_5 => format!("{:.0}µs", seconds * 1e6),
        ..0.999_5 => scaled(seconds * 1e3, "ms"),
        ..999.5 => scaled(seconds, "s"),
        _ => format!("{:.0}m", seconds / 60.0),
    }
}

/// A long time in two units: `12.3 s`, `2 m 13 s`, `5 h 2 m`, `3 d 4 h`.
pub fn long_time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        ..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} m {} s", whole / 60, whole % 60),
        3600..86400 => format!("{} h {} m", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86400, whole / 3600 % 24),
    }
}

/// A count in at most `columns` characters, four at least.
pub fn compact_count(count: u64, columns: usize) -> String {
    let text = count.to_string();
    if text.len() <= columns {
        return text;
    }
    match count {
        ..1_000_000 => format!("{}k", count / 1000),
        1_000_000..1_000_000_000 => format!("{}M", count / 1_000_000),
        1_000_000_000..1_000_000_000_000 => format!("{}G", count / 1_000_000_000),
        _ => format!("{}T", (count / 1_000_000_000_000).min(999)),
    }
}

/// An amount of memory in at most seven characters, in binary units.
pub fn compact_bytes(bytes: u64) -> String {
    let megabytes = bytes as f64 / (KIB * KIB);
    match megabytes {
        ..9.95 => format!("{megabytes:.1} MB"),
        ..9999.5 => format!("{megabytes:.0} MB"),
        ..10_239_999.0 => format!("{:.0} GB", megabytes / KIB),
        _ => format!("{:.0} TB", megabytes / KIB / KIB),
    }
}

/// A text in at most `columns` characters.
pub fn shorten(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let start = text.chars().take(columns.saturating_sub(1));
    start.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_unit() {
        for (text, seconds) in [
            ("30s", 30.0),
            ("500ms", 0.5),
            ("50us", 5e-5),
            ("5m", 300.0),
            ("1h", 3_600.0),
            ("2", 2.0),
            (" 1.5 s", 1.5),
        ] {
            let read = parse_duration(text).expect("a time");
            assert!((read - seconds).abs() < 1e-9, "{text} {read}");
        }
        for text in ["", "s", "-1s", "soon", "1d", "inf", "9999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_written_with_three_digits() {
        for (seconds, text) in [
            (0.0000312, "31.2 µs"),
            (0.00127, "1.27 ms"),
            (0.1, "100 ms"),
            (1.2714, "1.27 s"),
            (0.9996, "1 s"),
            (150.0, "2.5 min"),
        ] {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(count(60_000), "60000");
        assert_eq!(count(123), "123");
        assert_eq!(number(200.0), "200");
        assert_eq!(bytes(3_400_000.0), "3.4 MB");
    }

    #[test]
    fn sizes_and_times_beside_settings_are_short() {
        assert_eq!(binary_bytes(128.0 * 1048576.0), "128 MB");
        assert_eq!(binary_bytes(2.9 * 1024.0), "3 KB");
        assert_eq!(binary_bytes(3.46 * 1073741824.0), "3.5 GB");
        assert_eq!(seconds(0.05), "50.0 ms");
        assert_eq!(seconds(18.6), "19 s");
        assert_eq!(seconds(2.5), "2.5 s");
        assert_eq!(percent(0.05), "5.0 %");
    }

    #[test]
    fn times_in_tables_are_short() {
        let read = [0.0, 0.000_85, 0.0012, 0.012, 0.9996, 1.25, 62.0, 4000.0].map(compact_time);
        let expected = ["0µs", "850µs", "1.2ms", "12ms", "1.0s", "1.2s", "62s", "67m"];
        assert_eq!(read, expected);
        let read = [0.04, 75.0, 3700.0, 200_000.0].map(long_time);
        assert_eq!(read, ["0.0 s", "1 m 15 s", "1 h 1 m", "2 d 7 h"]);
    }
}
