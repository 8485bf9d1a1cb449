//! Numbers, sizes and times as people read and write them.

use std::time::Duration;

/// Bytes in a kibibyte.
const KIB: f64 = 1024.0;

/// The shortest duration that is written in two units, in seconds.
const LONG: f64 = 120.0;

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

/// A count with its noun: `1 worker`, `2 workers`, `2 processes`, `2 entries`.
pub fn plural(number: u64, thing: &str) -> String {
    let number_text = count(number);
    match (number, thing.strip_suffix('y')) {
        (1, _) => format!("{number_text} {thing}"),
        (_, Some(stem)) if !stem.ends_with(['a', 'e', 'o', 'u']) => {
            format!("{number_text} {stem}ies")
        }
        _ if thing.ends_with('s') => format!("{number_text} {thing}es"),
        _ => format!("{number_text} {thing}s"),
    }
}

/// A count with its noun and the plural of a verb: `1 request waits`, `2 requests wait`, `1 line
/// was`.
pub fn plural_with(number: u64, thing: &str, verb: &str) -> String {
    let subject = plural(number, thing);
    match (number, verb) {
        (1, "are") => format!("{subject} is"),
        (1, "were") => format!("{subject} was"),
        (1, "have") => format!("{subject} has"),
        (1, _) => format!("{subject} {verb}s"),
        _ => format!("{subject} {verb}"),
    }
}

/// Text from outside with control characters escaped, so that a terminal takes none for a command.
pub fn printable(text: &str) -> String {
    escaped(text, &['"', '\''])
}

/// As [`printable`], for text with patterns: backslashes are not doubled.
pub fn printable_pattern(text: &str) -> String {
    escaped(text, &['"', '\'', '\\'])
}

/// As [`printable_pattern`], for text of several lines.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable_pattern).collect::<Vec<_>>().join("\n")
}

/// Escapes all but printable characters and `plain` ones.
fn escaped(text: &str, plain: &[char]) -> String {
    let mut shown = String::new();
    for sign in text.chars() {
        match plain.contains(&sign) {
            true => shown.push(sign),
            false => shown.extend(sign.escape_debug()),
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

/// A time in the unit that fits, with three digits, from two minutes on in two units: `31 µs`,
/// `1.27 s`, `2 m 13 s`, `5 h 2 m`, `3 d`.
pub fn duration(seconds: f64) -> String {
    let micros = seconds * 1e6;
    match micros {
        0.0 => "0 s".to_owned(),
        _ if micros < 999.5 => format!("{} µs", digits(micros)),
        _ if micros < 999_500.0 => format!("{} ms", digits(micros / 1e3)),
        _ if seconds < LONG => format!("{} s", digits(seconds)),
        _ => long_duration(seconds.round() as u64),
    }
}

/// Whole seconds in the two largest units of `d`, `h`, `m` and `s`.
fn long_duration(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let parts = units.windows(2).find(|pair| seconds >= pair[0].0);
    let [(large, large_name), (small, small_name)] =
        parts.map_or([units[2], units[3]], |pair| [pair[0], pair[1]]);
    let rest = match seconds % large / small {
        0 => String::new(),
        rest => format!(" {rest} {small_name}"),
    };
    format!("{} {large_name}{rest}", seconds / large)
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

/// A size in the binary unit that fits, as `K`, `M` and `G` of settings and of php.ini count, with
/// three digits and all before the point: `3.4 MiB`, `1020 MiB`.
pub fn bytes(bytes: f64) -> String {
    match bytes / KIB {
        kib if kib < 1.0 => format!("{bytes:.0} B"),
        kib if kib < KIB => format!("{} KiB", digits(kib)),
        kib if kib < KIB * KIB => format!("{} MiB", digits(kib / KIB)),
        kib if kib < KIB * KIB * KIB => format!("{} GiB", digits(kib / KIB / KIB)),
        kib => format!("{} TiB", digits(kib / KIB / KIB / KIB)),
    }
}

/// [`duration`] of a [`Duration`].
pub fn lasted(time: Duration) -> String {
    duration(time.as_secs_f64())
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    let digits = usize::from(share.abs() < 0.1);
    format!("{:.digits$} %", share * 100.0)
}

/// A duration in a cell of a table, in at most five characters: two digits, and no space before the
/// unit: `850µs`, `1.2ms`, `12ms`, `1.2s`, `62s`.
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
            (0.0, "0 s"),
            (75.0, "75 s"),
            (150.0, "2 m 30 s"),
            (300.0, "5 m"),
            (3700.0, "1 h 1 m"),
            (200_000.0, "2 d 7 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(count(60_000), "60000");
        assert_eq!(count(123), "123");
        assert_eq!(number(200.0), "200");
        assert_eq!(bytes(3_400_000.0), "3.24 MiB");
    }

    #[test]
    fn a_terminal_takes_no_text_for_a_command_and_lines_stay_lines() {
        let text = "a \x1b]52;c\x07 × 'b'\n\u{9b}2J \\d\r\n";
        let shown = "a \\u{1b}]52;c\\u{7} × 'b'\n\\u{9b}2J \\d\\r\n";
        assert_eq!(printable_lines(text), shown);
    }

    #[test]
    fn counts_have_their_nouns_and_verbs() {
        assert_eq!(plural(1, "process"), "1 process");
        assert_eq!(plural(0, "process"), "0 processes");
        assert_eq!(plural(2, "entry"), "2 entries");
        assert_eq!(plural(2, "day"), "2 days");
        assert_eq!(plural_with(1, "request", "wait"), "1 request waits");
        assert_eq!(plural_with(2, "request", "wait"), "2 requests wait");
        assert_eq!(plural_with(1, "line", "were"), "1 line was");
        assert_eq!(plural_with(0, "line", "are"), "0 lines are");
    }

    #[test]
    fn sizes_are_in_the_units_of_settings() {
        assert_eq!(bytes(1000.0), "1000 B");
        assert_eq!(bytes(2.9 * 1024.0), "2.9 KiB");
        assert_eq!(bytes(128.0 * 1_048_576.0), "128 MiB");
        assert_eq!(bytes(3.46 * 1_073_741_824.0), "3.46 GiB");
        assert_eq!(bytes(1_125_899_906_842_624.0), "1024 TiB");
        assert_eq!(percent(0.05), "5.0 %");
    }

    #[test]
    fn times_in_tables_are_short() {
        let read = [0.0, 0.000_85, 0.0012, 0.012, 0.9996, 1.25, 62.0, 4000.0].map(compact_time);
        let expected = ["0µs", "850µs", "1.2ms", "12ms", "1.0s", "1.2s", "62s", "67m"];
        assert_eq!(read, expected);
    }
}
