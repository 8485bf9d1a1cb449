//! Headers: names and values, in order.

use std::collections::HashSet;

/// A header: its name and its value.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// The header of a response.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<F> {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: F,
}

/// Names of headers, ignoring case. Any number of them is searched in the same time: a script or an
/// upstream may send thousands.
#[derive(Debug, Clone, Default)]
pub struct NameSet(HashSet<Vec<u8>>);

impl NameSet {
    /// Adds a name. False if it is there already.
    pub fn insert(&mut self, name: &[u8]) -> bool {
        self.0.insert(name.to_ascii_lowercase())
    }

    /// Whether it has this name.
    pub fn contains(&self, name: &[u8]) -> bool {
        !self.0.is_empty() && self.0.contains(&name.to_ascii_lowercase())
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<&'a [u8]> for NameSet {
    fn from_iter<T: IntoIterator<Item = &'a [u8]>>(names: T) -> NameSet {
        NameSet(names.into_iter().map(<[u8]>::to_ascii_lowercase).collect())
    }
}

/// Hop-by-hop headers, which are never stored (RFC 9110 §7.6.1, RFC 9111 §3.1).
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a header has this name, ignoring case.
pub fn is(field: &[u8], name: &str) -> bool {
    field.eq_ignore_ascii_case(name.as_bytes())
}

/// The values of all headers with this name.
pub fn values<'a>(
    fields: impl Iterator<Item = Field<'a>>,
    name: &str,
) -> impl Iterator<Item = &'a [u8]> {
    fields.filter(move |(field, _)| is(field, name)).map(|(_, value)| value)
}

/// The value of the first header with this name.
pub fn first<'a>(mut fields: impl Iterator<Item = Field<'a>>, name: &str) -> Option<&'a [u8]> {
    fields.find(|(field, _)| is(field, name)).map(|(_, value)| value)
}

/// The members of a comma-separated list of unquoted values (RFC 9110 §5.6.1), trimmed, without
/// empty ones.
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// Whether a header is hop-by-hop.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    HOP_BY_HOP.iter().any(|hop| is(name, hop))
}

/// A non-negative integer number of seconds, and nothing else (RFC 9111 §1.2.2). It saturates.
pub fn seconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |sum: u64, byte: &u8| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
    Some(value.iter().fold(0, digit))
}

/// An HTTP date (RFC 9110 §5.6.7), in seconds since 1970. Earlier dates are 0.
pub fn date(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let time = httpdate::parse_http_date(text).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH);
    Some(since.map_or(0, |since| since.as_secs()))
}

/// Parses header lines, each `Name: value` with its CR LF.
pub fn of_lines(lines: &[u8]) -> impl Iterator<Item = Field<'_>> + Clone {
    let mut rest = lines;
    let all = std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', rest)?;
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        Some(line)
    });
    all.filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// Appends a header line. A header that would break the line is left out.
pub fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let breaks = |bytes: &[u8]| memchr::memchr3(b'\r', b'\n', 0, bytes).is_some();
    if name.is_empty() || breaks(name) || breaks(value) || name.contains(&b':') {
        return;
    }
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_once() {
        let mut names: NameSet = [&b"Vary"[..], b"ETag", b"VARY"].into_iter().collect();
        assert_eq!(names.len(), 2);
        assert!(names.contains(b"vary") && names.contains(b"etag") && !names.contains(b"age"));
        assert!(names.insert(b"Age") && !names.insert(b"AGE"));
        assert!(NameSet::default().is_empty() && !NameSet::default().contains(b""));
    }

    #[test]
    fn seconds_are_digits_and_nothing_else() {
        assert_eq!(seconds(b"003600"), Some(3600));
        assert_eq!(seconds(b"99999999999999999999999"), Some(u64::MAX));
        for no in ["", "-1", "1.0", "'1'", "1 ", "abc", "+1", "7;a=b"] {
            assert_eq!(seconds(no.as_bytes()), None, "{no}");
        }
    }

    #[test]
    fn no_field_writes_a_second_line() {
        let mut out = Vec::new();
        write_line(&mut out, b"a", b"1\r\nSet-Cookie: x=y");
        write_line(&mut out, b"b: c", b"1");
        write_line(&mut out, b"", b"1");
        assert!(out.is_empty());
        write_line(&mut out, b"A", b"1, 2");
        assert_eq!(out, b"A: 1, 2\r\n");
        let all: Vec<_> = of_lines(&out).collect();
        assert_eq!(all, [(&b"A"[..], &b"1, 2"[..])]);
    }
}
