//! Small functions on bytes.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What `ap_escape_uri` leaves as it is in a path (`OS_ESC_PATH`).
const OUTSIDE_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'$')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'+')
    .remove(b'!')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b',')
    .remove(b':')
    .remove(b'@')
    .remove(b'&')
    .remove(b'=')
    .remove(b'/')
    .remove(b'~')
    .remove(b';');

/// `ap_escape_uri`: percent-encodes a path.
pub fn escape_path(path: &[u8]) -> Vec<u8> {
    lower_hex(&percent_encode(path, OUTSIDE_PATH).to_string()).into_bytes()
}

/// Apache writes hexadecimal digits in lower case.
fn lower_hex(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut left = 0;
    for char in text.chars() {
        left = if char == '%' { 3 } else { usize::saturating_sub(left, 1) };
        out.push(if left > 0 { char.to_ascii_lowercase() } else { char });
    }
    out
}

/// `atoi`: leading white space, a sign, digits; 0 without any.
pub fn integer(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0_i64, |value, digit| {
        value.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
    });
    if negative { -value } else { value }
}

/// Whether a shell pattern matches (`apr_fnmatch`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glob {
    /// `*` and `?` do not match a slash.
    Path,
    /// They match anything.
    Text,
    /// As [`Glob::Text`], without case.
    CaseBlind,
}

impl Glob {
    /// Whether the pattern matches the whole text.
    pub fn matches(self, pattern: &[u8], text: &[u8]) -> bool {
        let (mut at, mut read) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while read < text.len() {
            if pattern.get(at) == Some(&b'*') {
                star = Some((at + 1, read));
                at += 1;
                continue;
            }
            match self.single(&pattern[at..], text[read]) {
                Some(length) => {
                    at += length;
                    read += 1;
                }
                None => {
                    let Some((after, from)) = star else { return false };
                    if self == Glob::Path && text[from] == b'/' {
                        return false;
                    }
                    star = Some((after, from + 1));
                    (at, read) = (after, from + 1);
                }
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }

    /// The length of the pattern's first element if it matches a byte.
    fn single(self, pattern: &[u8], byte: u8) -> Option<usize> {
        let fold = |byte: u8| match self {
            Glob::CaseBlind => byte.to_ascii_lowercase(),
            Glob::Path | Glob::Text => byte,
        };
        match pattern.first()? {
            b'?' => (self != Glob::Path || byte != b'/').then_some(1),
            b'[' => self.class(pattern, byte),
            b'\\' if pattern.len() > 1 => (fold(pattern[1]) == fold(byte)).then_some(2),
            own => (fold(*own) == fold(byte)).then_some(1),
        }
    }

    fn class(self, pattern: &[u8], byte: u8) -> Option<usize> {
        let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
        let mut at = 1 + usize::from(negated);
        let (mut found, start) = (false, at);
        while let Some(&low) = pattern.get(at) {
            if low == b']' && at > start {
                return (found != negated).then_some(at + 1);
            }
            let high = match (pattern.get(at + 1), pattern.get(at + 2)) {
                (Some(b'-'), Some(high)) if *high != b']' => {
                    at += 2;
                    *high
                }
                _ => low,
            };
            found |= (low..=high).contains(&byte);
            at += 1;
        }
        // An open bracket is an ordinary byte.
        (byte == b'[').then_some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_as_apache_does() {
        assert_eq!(escape_path(b"/a b/\xe4?#%"), b"/a%20b/%e4%3f%23%25");
        assert_eq!(escape_path(b"/$-_.+!*'(),:@&=~;"), b"/$-_.+!*'(),:@&=~;");
    }

    #[test]
    fn patterns_of_the_shell_match_names() {
        let cases = [
            ("*.php", "a.php", true),
            ("*", "", true),
            ("a?c", "abc", true),
            ("[!a-c]x", "dx", true),
            ("[!a-c]x", "bx", false),
            ("*.p*p", "x.phtmlp", true),
            ("\\*", "*", true),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXbYYd", false),
        ];
        for (pattern, text, matches) in cases {
            let found = Glob::Path.matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, matches, "{pattern} {text}");
        }
        assert!(!Glob::Path.matches(b"*.php", b"a/b.php"));
        assert!(Glob::CaseBlind.matches(b"*.PHP", b"a/b.php"));
    }

    #[test]
    fn numbers_are_read_as_c_does() {
        assert_eq!([integer(b" 12x"), integer(b"-3"), integer(b"x")], [12, -3, 0]);
    }
}
