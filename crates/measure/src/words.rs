//! Times and numbers in words, read and written.

/// The longest duration that can be configured, in seconds: a week.
const LONGEST: f64 = 7.0 * 86_400.0;

/// Reads `500ms`, `30s`, `5m`, `1h`, or a number of seconds, as seconds.
///
/// # Errors
/// One sentence about what was expected.
pub fn read_duration(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let units = [
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3_600.0),
    ];
    let ends = units.iter().find_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?;
        // "5ms" ends in "s", too.
        let number: f64 = number.trim().parse().ok()?;
        Some(number * seconds)
    });
    let seconds = ends.or_else(|| text.parse().ok());
    let fits = seconds.filter(|seconds| (0.0..=LONGEST).contains(seconds));
    fits.ok_or_else(|| format!("'{text}' is no time; expected one such as 500ms, 30s, 5m or 1h"))
}

/// So many of something: `1 worker`, `2 workers`.
pub fn some(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", count(number))
}

/// A foreign text with terminal control characters and line ends escaped.
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
pub fn read_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim();
    let percent: Option<f64> = number.parse().ok();
    let fits = percent.filter(|percent| (0.0..=100.0).contains(percent));
    fits.ok_or_else(|| format!("'{text}' is no share; expected one such as 0.1%"))
}

/// Seconds in the unit that fits: `31 µs`, `1.27 s`.
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

/// Three significant digits, and all of what is before the point.
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

/// A number as short as it can be said.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        digits(value)
    }
}

/// A number with its thousands apart: `60 000`.
pub fn count(value: u64) -> String {
    let plain = value.to_string();
    let mut text = String::with_capacity(plain.len() + plain.len() / 3);
    for (place, digit) in plain.chars().enumerate() {
        if place > 0 && (plain.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the unit that fits: `3.4 MB`.
pub fn bytes(value: f64) -> String {
    match value {
        _ if value < 1e3 => format!("{value:.0} B"),
        _ if value < 1e6 => format!("{} kB", digits(value / 1e3)),
        _ if value < 1e9 => format!("{} MB", digits(value / 1e6)),
        _ => format!("{} GB", digits(value / 1e9)),
    }
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
            let read = read_duration(text).expect("a time");
            assert!((read - seconds).abs() < 1e-9, "{text} {read}");
        }
        for text in ["", "s", "-1s", "soon", "1d", "inf", "9999h"] {
            assert!(read_duration(text).is_err(), "{text}");
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
        assert_eq!(count(60_000), "60 000");
        assert_eq!(count(123), "123");
        assert_eq!(number(200.0), "200");
        assert_eq!(bytes(3_400_000.0), "3.4 MB");
    }
}
