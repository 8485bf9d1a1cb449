//! Text from other processes, made safe for a log line.

/// Longest quoted text of another process, in characters.
const MAX_QUOTED_CHARS: usize = 500;

/// Text of another process on one line, without control characters and shortened.
pub fn one_line(words: &str) -> String {
    let mut kept: String = words.chars().take(MAX_QUOTED_CHARS).collect();
    if kept.len() < words.len() {
        kept.push('…');
    }
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    kept.trim_end().chars().map(plain).collect()
}

/// Longest PHP version that is kept, in characters.
const MAX_VERSION_CHARS: usize = 64;

/// The PHP version that a zygote reports, reduced to characters that occur in versions, since it
/// becomes part of a header.
pub fn version_in(words: &str) -> String {
    let is_of_versions = |c: &char| c.is_ascii_alphanumeric() || ".+~-_".contains(*c);
    let kept = words.chars().filter(is_of_versions);
    kept.take(MAX_VERSION_CHARS).collect()
}

/// A number of workers, and the maximum for pools with `pm = "auto"`.
pub fn some_workers(workers: usize, most_of_auto: usize) -> String {
    let some = |number| match number {
        1 => "1 worker".to_owned(),
        _ => format!("{number} workers"),
    };
    match (workers, most_of_auto) {
        (_, 0) => some(workers),
        (0, most) => format!("auto, up to {}", some(most)),
        (_, most) => format!("{} and auto, up to {most} more", some(workers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_php_has_nothing_in_it_that_no_version_has() {
        let debian = "8.2.29-1~deb12u1+b1";
        assert_eq!(version_in(debian), debian);
        assert_eq!(version_in("8.2\r\nSet-Cookie: a=b"), "8.2Set-Cookieab");
        assert_eq!(version_in(&"8".repeat(1000)).len(), MAX_VERSION_CHARS);
    }

    #[test]
    fn the_words_of_others_cannot_add_a_line_to_the_log() {
        assert_eq!(one_line("a\nb\x1b[31m\n"), "a b [31m");
        assert_eq!(one_line(&"x".repeat(600)).chars().count(), MAX_QUOTED_CHARS + 1);
    }

    #[test]
    fn workers_of_a_pool_that_finds_its_size_are_no_fixed_number() {
        let texts = [(0, 0), (1, 0), (4, 0), (0, 64), (0, 1), (1, 64), (4, 64)];
        let texts = texts.map(|(workers, most)| some_workers(workers, most));
        let words = [
            "0 workers",
            "1 worker",
            "4 workers",
            "auto, up to 64 workers",
            "auto, up to 1 worker",
            "1 worker and auto, up to 64 more",
            "4 workers and auto, up to 64 more",
        ];
        assert_eq!(texts, words);
    }
}
