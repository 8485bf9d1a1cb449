//! Early hints (RFC 8297): headers that a script sends before its response.

use memchr::{memchr, memmem};

/// Longest incomplete hints that are buffered, in bytes; longer ones are dropped.
const MAX_BYTES: usize = 16 * 1024;

/// Most hints of one script.
const MAX_TIMES: usize = 8;

/// Headers that browsers use before the response. Cookies, and instructions to the server, are left
/// out.
const USED: [&str; 4] =
    ["link", "content-security-policy", "content-security-policy-report-only", "referrer-policy"];

/// Incomplete hints.
#[derive(Debug, Default)]
pub struct Hints {
    lines: Vec<u8>,
    times: usize,
}

impl Hints {
    /// Takes the next bytes of hints; returns the lines when they are complete.
    pub fn take(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.times == MAX_TIMES {
            return None;
        }
        if self.lines.len() + bytes.len() > MAX_BYTES {
            // The rest is ignored.
            self.times = MAX_TIMES;
            return None;
        }
        self.lines.extend_from_slice(bytes);
        if !(self.lines.ends_with(b"\r\n\r\n") || self.lines == b"\r\n") {
            return None;
        }
        self.times += 1;
        Some(std::mem::take(&mut self.lines))
    }
}

/// The headers among these lines that are hints.
pub fn fields(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        let end = memmem::find(rest, b"\r\n")?;
        let line = &rest[..end];
        rest = &rest[end + 2..];
        Some(line)
    })
    .filter_map(|line| {
        let colon = memchr(b':', line)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        is_used(name).then_some((name, value))
    })
}

/// Whether a header of this name is passed on as a hint.
pub fn is_used(name: &[u8]) -> bool {
    let mut used = USED.iter();
    used.any(|used| name.eq_ignore_ascii_case(used.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_whole_with_their_empty_line_however_they_come() {
        let lines = b"Link: </a.css>; rel=preload\r\nSet-Cookie: a=b\r\nlink:</b>\r\n\r\n";
        let mut hints = Hints::default();
        for byte in &lines[..lines.len() - 1] {
            assert_eq!(hints.take(&[*byte]), None);
        }
        let whole = hints.take(b"\n").expect("they are whole");
        let found: Vec<_> = fields(&whole).collect();
        let expected: [(&[u8], &[u8]); 2] =
            [(b"Link", b"</a.css>; rel=preload"), (b"link", b"</b>")];
        assert_eq!(found, expected);
    }

    #[test]
    fn hints_without_end_and_too_many_of_them_are_dropped() {
        let mut hints = Hints::default();
        assert_eq!(hints.take(&vec![b'x'; MAX_BYTES + 1]), None);
        assert_eq!(hints.take(b"Link: </a>\r\n\r\n"), None);
        let mut hints = Hints::default();
        for _ in 0..MAX_TIMES {
            assert!(hints.take(b"Link: </a>\r\n\r\n").is_some());
        }
        assert_eq!(hints.take(b"Link: </a>\r\n\r\n"), None);
    }
}
