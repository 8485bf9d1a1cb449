//! Canonical paths and queries: one form for all spellings that an application may treat as equal.
//! Rules and purges use it; keys do not, since scripts see the raw spelling.

/// Bytes that a path contains unescaped: printable ASCII (RFC 3986 §2.3, and what is never quoted
/// in practice), except those that end the path or start an escape.
fn is_plain_in_path(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#')
}

/// The same for a name or value in a query.
fn is_plain_in_query(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'%' | b'&' | b'=' | b'+' | b'#')
}

/// A canonical path: escaped only where necessary, without empty and dot segments.
pub fn path(path: &str) -> String {
    escaped(&plain_path(path.as_bytes()), is_plain_in_path)
}

/// A canonical query: its parameters in order, escaped only where necessary.
pub fn query(query: &str) -> String {
    let part = |part: &str| escaped(&decoded(part.as_bytes(), b' '), is_plain_in_query);
    let parameter = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) => format!("{}={}", part(name), part(value)),
        None => part(parameter),
    };
    let parameters: Vec<String> = query.split('&').map(parameter).collect();
    parameters.join("&")
}

fn escaped(bytes: &[u8], is_plain: fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if is_plain(*byte) {
            text.push(char::from(*byte))
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            text.push('%');
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from(DIGITS[usize::from(digit)]));
            }
        }
    }
    text
}

/// A decoded path without empty and dot segments.
pub(crate) fn plain_path(path: &[u8]) -> Vec<u8> {
    let decoded = decoded(path, b'+');
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in decoded.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    let mut plain = Vec::with_capacity(decoded.len() + 1);
    for part in parts {
        plain.push(b'/');
        plain.extend_from_slice(part);
    }
    let is_folder = decoded.ends_with(b"/") || last_is_dots(&decoded);
    if is_folder || plain.is_empty() {
        plain.push(b'/');
    }
    plain
}

/// Whether the last segment is `.` or `..`, so that the path is a folder (RFC 3986 §5.2.4).
fn last_is_dots(path: &[u8]) -> bool {
    path.ends_with(b"/.") || path.ends_with(b"/..")
}

/// A percent-decoded path, or part of a query; `plus` replaces a `+`.
pub(crate) fn decoded(name: &[u8], plus: u8) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(name.len());
    let mut at = 0;
    while let Some(byte) = name.get(at) {
        let digits = (digit(name.get(at + 1)), digit(name.get(at + 2)));
        let (decoded, length) = match (byte, digits) {
            (b'+', _) => (plus, 1),
            (b'%', (Some(high), Some(low))) => (u8::try_from(high * 16 + low).unwrap_or(0), 3),
            (byte, _) => (*byte, 1),
        };
        out.push(decoded);
        at += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_must_be_escaped_stays_so_and_nothing_else() {
        assert_eq!(path("/%6Eews/%c3%a9%20%3f/"), "/news/%C3%A9%20%3F/");
        assert_eq!(path("/100%/é"), "/100%25/%C3%A9");
        assert_eq!(query("a=%31&b=x+y%2B&c%26d"), "a=1&b=x%20y%2B&c%26d");
        assert_eq!(query("a=b=c&&d="), "a=b%3Dc&&d=");
        assert_eq!(path(""), "/");
        assert_eq!(path("/a/./b/.."), "/a/");
    }

    proptest! {
        #[test]
        fn the_one_form_of_an_address_is_its_own(text in "[-a-c/.%0-9?&=+é ]{0,12}") {
            let (path, query) = (super::path(&text), super::query(&text));
            prop_assert_eq!(super::path(&path), path);
            prop_assert_eq!(super::query(&query), query);
        }
    }
}
