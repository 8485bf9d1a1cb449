//! Numbers as people read them.

use std::time::Duration;

const KIB: f64 = 1024.0;

/// The longest time that is read anywhere, which is for ever: times are added up later.
pub const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);

/// Bytes with the unit that fits, such as `128 MB`.
pub fn bytes(bytes: f64) -> String {
    let (value, unit) = match bytes {
        b if b < KIB => (b, "B"),
        b if b < KIB * KIB => (b / KIB, "KB"),
        b if b < KIB * KIB * KIB => (b / (KIB * KIB), "MB"),
        b => (b / (KIB * KIB * KIB), "GB"),
    };
    let digits = usize::from(unit == "GB" || (unit == "MB" && value < 10.0));
    format!("{value:.digits$} {unit}")
}

/// Seconds with the unit that fits, such as `35 s` or `20 ms`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 10.0 && s.fract() != 0.0 => format!("{s:.1} s"),
        s => format!("{s:.0} s"),
    }
}

/// The same of a duration.
pub fn duration(duration: Duration) -> String {
    seconds(duration.as_secs_f64())
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    match share.abs() < 0.1 {
        true => format!("{:.1} %", share * 100.0),
        false => format!("{:.0} %", share * 100.0),
    }
}

/// A size as PHP's ini files write it: `128M`, `1G`, bytes; negative is no limit. Nothing if it is none.
pub fn ini_size(text: &str) -> Option<i64> {
    let text = text.trim();
    let (number, factor) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 1_i64 << 10),
        b'm' => (&text[..text.len() - 1], 1 << 20),
        b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    number.trim().parse::<i64>().ok()?.checked_mul(factor)
}

/// Whether PHP's ini files mean yes by it.
pub fn ini_yes(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    matches!(text.as_str(), "on" | "yes" | "true") || text.parse::<i64>().is_ok_and(|n| n != 0)
}

/// The share `p` of them is no larger; nothing if there are none.
pub fn quantile(mut values: Vec<f64>, p: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = (p * values.len() as f64).ceil() as usize;
    values.get(at.saturating_sub(1).min(last)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!(bytes(128.0 * 1048576.0), "128 MB");
        assert_eq!(bytes(2.9 * 1024.0), "3 KB");
        assert_eq!(bytes(3.46 * 1073741824.0), "3.5 GB");
        assert_eq!(seconds(0.05), "50.0 ms");
        assert_eq!(seconds(18.6), "19 s");
        assert_eq!(seconds(2.5), "2.5 s");
        assert_eq!(percent(0.05), "5.0 %");
    }

    #[test]
    fn ini_values_mean_what_php_means_by_them() {
        assert_eq!(ini_size("128M"), Some(134_217_728));
        assert_eq!(ini_size("-1"), Some(-1));
        assert_eq!(ini_size(""), None);
        assert_eq!(ini_size("lots"), None);
        assert!(ini_yes("On") && ini_yes("1") && !ini_yes("Off") && !ini_yes("0") && !ini_yes(""));
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.95), Some(3.0));
        assert_eq!(quantile(Vec::new(), 0.5), None);
    }
}
