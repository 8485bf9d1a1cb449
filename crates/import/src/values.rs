//! Values of nginx: times, sizes, rates, regular expressions.

use std::time::Duration;

/// Headers that say what a client can read or how it is connected, by their begins.
const HARMLESS_HEADERS: [&str; 12] = [
    "ACCEPT",
    "CF_VISITOR",
    "CONNECTION",
    "FORWARDED",
    "FRONT_END_HTTPS",
    "HOST",
    "SAVE_DATA",
    "UPGRADE",
    "USER_AGENT",
    "X_FORWARDED_HOST",
    "X_FORWARDED_PROTO",
    "X_FORWARDED_SSL",
];

/// Whether a header may say who the client is or what it may see: cookies, tokens, users.
pub fn is_identity_header(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    !HARMLESS_HEADERS.iter().any(|begin| name.starts_with(begin))
}

/// A time of nginx, such as `60`, `500ms` or `1h30m`.
pub fn time(text: &str) -> Option<Duration> {
    let mut sum = 0_u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor = match unit {
            "ms" => 1,
            "" | "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            "M" => 2_592_000_000,
            "y" => 31_536_000_000,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        sum = sum.checked_add(number.checked_mul(factor)?)?;
        rest = after.trim_start();
    }
    Some(Duration::from_millis(sum))
}

/// A time as maitred writes it, without fractions of a second if there is a second.
pub fn duration(time: Duration) -> String {
    match time.as_millis() {
        0 => "0s".to_owned(),
        millis if millis % 1000 != 0 => format!("{millis}ms"),
        millis if millis % 86_400_000 == 0 => format!("{}d", millis / 86_400_000),
        millis if millis % 3_600_000 == 0 => format!("{}h", millis / 3_600_000),
        millis if millis % 60_000 == 0 => format!("{}m", millis / 60_000),
        millis => format!("{}s", millis / 1000),
    }
}

/// A size of nginx or php-fpm, such as `64m`, as maitred writes it. `None` for 0 and what is none.
pub fn size(text: &str) -> Option<String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    match unit {
        "" => Some(number.to_string()),
        "k" | "K" => Some(format!("\"{number}k\"")),
        "m" | "M" => Some(format!("\"{number}M\"")),
        "g" | "G" => Some(format!("\"{number}G\"")),
        _ => None,
    }
}

/// The alternatives of a regular expression, at its top.
pub fn alternatives(text: &str) -> Vec<&str> {
    parts(text, '|')
}

/// The parts of a regular expression between separators that are in no group and no class, and are
/// not escaped.
pub fn parts(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut start, mut is_escaped) = (0_i32, 0, false);
    // Where the letters of a class begin: a `]` there is one of them.
    let mut class: Option<usize> = None;
    let mut found = Vec::new();
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => {
                is_escaped = false;
                continue;
            }
            '\\' => is_escaped = true,
            '^' if class == Some(at) => class = Some(at + 1),
            ']' if class.is_some_and(|start| at > start) => class = None,
            _ if class.is_some() => {}
            '[' => class = Some(at + 1),
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if letter == separator && depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_those_of_maitred() {
        assert_eq!(time("1h30m").map(duration).as_deref(), Some("90m"));
        assert_eq!(time("60").map(duration).as_deref(), Some("1m"));
        assert_eq!(time("-1"), None);
        assert_eq!(size("64m").as_deref(), Some("\"64M\""));
        assert_eq!(size("0"), None);
    }

    #[test]
    fn alternatives_within_groups_stay_together() {
        assert_eq!(alternatives(r"\.(php|sh)$|^/\.git"), [r"\.(php|sh)$", r"^/\.git"]);
        assert_eq!(alternatives("[(|]a|[^])]b|[]|]"), ["[(|]a", "[^])]b", "[]|]"]);
    }
}
