//! Percent-encoding in the patterns of other servers: the paths here are decoded.

/// A text without its escapes. `None` if one has no two hexadecimal digits, or the result is no
/// UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let digits = after.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit))?;
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_the_bytes_that_they_stand_for() {
        assert_eq!(percent_decoded("/my%20docs/%c3%A9").as_deref(), Some("/my docs/é"));
        for text in ["/a%", "/a%2", "/a%zz", "/%+1", "/%ff"] {
            assert_eq!(percent_decoded(text), None, "{text}");
        }
    }
}
