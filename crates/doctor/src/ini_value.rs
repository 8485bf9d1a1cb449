//! Values of PHP's ini files.

/// A size in bytes: `128M`, `1G`, bytes; negative is no limit. `None` for another text.
pub fn size(text: &str) -> Option<i64> {
    let text = text.trim();
    let (number, factor) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 1_i64 << 10),
        b'm' => (&text[..text.len() - 1], 1 << 20),
        b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    number.trim().parse::<i64>().ok()?.checked_mul(factor)
}

/// Whether a flag is on.
pub fn is_yes(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    matches!(text.as_str(), "on" | "yes" | "true") || text.parse::<i64>().is_ok_and(|n| n != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_mean_what_php_means_by_them() {
        assert_eq!(size("128M"), Some(134_217_728));
        assert_eq!(size("-1"), Some(-1));
        assert_eq!(size(""), None);
        assert_eq!(size("lots"), None);
        assert!(is_yes("On") && is_yes("1") && !is_yes("Off") && !is_yes("0") && !is_yes(""));
    }
}
