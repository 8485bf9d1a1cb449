//! Lines of access logs: the common and the combined format of Apache and nginx, and every other
//! format with a time in brackets before a request line in quotes: `… [22/Nov/2026:07:00:00 +0000]
//! … "GET / …" …`.

use time::OffsetDateTime;
use time::format_description::StaticFormatDescription;
use time::macros::format_description;

/// The time of a line.
const TIME: StaticFormatDescription = format_description!(
    "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] \
     [offset_hour sign:mandatory][offset_minute]"
);

/// The largest offset of a time zone, in hours.
const MAX_OFFSET_HOURS: i8 = 14;

/// The request of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'l> {
    /// Its time, in seconds since 1970.
    pub second: i64,
    /// The method.
    pub method: &'l str,
    /// The request target, with its query.
    pub path: &'l str,
    /// The status of the response, where it follows the request.
    pub status: Option<u16>,
}

impl<'l> Entry<'l> {
    /// `None` for a line of another format, and for a request target that is no path.
    pub fn parse(line: &'l str) -> Option<Entry<'l>> {
        let (before, rest) = line.split_at(request_line(line)?);
        // A user name comes before the time, and clients choose it: the last bracket is the
        // server's.
        let (before, _) = before.rsplit_once(']')?;
        let (_, time) = before.rsplit_once('[')?;
        let request = &rest[1..];
        // Apache writes a backslash before a quote of the client's.
        let (line, after) = request.split_at(request_line(request).unwrap_or(request.len()));
        let mut words = line.split('"').next()?.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        let status = after.strip_prefix("\" ").and_then(|after| after.split(' ').next());
        let status = status.and_then(|status| status.parse().ok());
        path.starts_with('/').then_some(Entry { second: seconds(time)?, method, path, status })
    }
}

/// The position of the request line's quote: the first that is not part of a user name, where
/// Apache writes a backslash before it.
fn request_line(line: &str) -> Option<usize> {
    let mut quotes = line.match_indices('"').map(|(position, _)| position);
    quotes.find(|position| !line[..*position].ends_with('\\'))
}

/// `22/Nov/2026:07:00:00 +0000` in seconds since 1970.
fn seconds(time: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(time, TIME).ok()?;
    let offset = time.offset().whole_hours().abs();
    (offset <= MAX_OFFSET_HOURS).then(|| time.unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Entry<'_> =
        Entry { second: 1_709_208_000, method: "GET", path: "/", status: None };

    #[test]
    fn the_status_is_that_of_the_server_whatever_a_client_requests() {
        let time = "192.0.2.1 - - [29/Feb/2024:12:00:00 +0000]";
        let status = |rest: &str| Entry::parse(&format!("{time} {rest}")).unwrap().status;
        assert_eq!(status(r#""GET / HTTP/1.1" 403 5 "-" "curl""#), Some(403));
        assert_eq!(status(r#""GET /\" 200 HTTP/1.1" 403 5 "-" "curl""#), Some(403));
        assert_eq!(status(r#""GET /" "-" 200"#), None);
        assert_eq!(status(r#""GET / HTTP/1.1"#), None);
    }

    #[test]
    fn a_request_is_read_whatever_the_user_is_called() {
        let request = r#"[29/Feb/2024:12:00:00 +0000] "GET /a?x=1 HTTP/1.1" 200 5 "-" "curl""#;
        let expected = Entry { path: "/a?x=1", status: Some(200), ..REQUEST };
        for name in [
            "-",
            "[31/Dec/9999/23/59/59 -2300]",
            "[31/Dec/9999:23:59:59 +0000]",
            "[31/Dec/9999:23:59:59 +9223372036854775807]",
            "a[",
            "]a",
            r#"[31/Dec/9999:23:59:59 +0000] \"GET /x"#,
        ] {
            let line = format!("192.0.2.1 - {name} {request}");
            assert_eq!(Entry::parse(&line), Some(expected), "{name}");
        }
        for other in ["", "what is no line", r#"{"ts": 1, "path": "/"}"#] {
            assert_eq!(Entry::parse(other), None, "{other}");
        }
        assert_eq!(Entry::parse(&request.replace("/a?", "a?")), None);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, expected) in [
            ("01/Jan/1970:00:00:00 +0000", Some(0)),
            ("29/Feb/2024:12:00:00 -0130", Some(1_709_213_400)),
            ("01/Mar/2024:00:00:00 +0000", Some(1_709_251_200)),
            ("22/Nov/2026:07:00:00 +0100", Some(1_795_327_200)),
            ("22/Nov/2026:01:30:00 -0430", Some(1_795_327_200)),
            ("32/Nov/2026:07:00:00 +0000", None),
            ("00/Mar/2024:00:00:00 +0000", None),
            ("22/Nov/2026:07:00:00", None),
            ("22/Nov/2026/07/00/00 +0000", None),
            ("22/Nov/2026:07:00:00:00 +0000", None),
            ("22/Nov/2026:07:00:00 +9223372036854775807", None),
            ("22/Nov/2026:07:00:00 -2300", None),
            ("22/Nov/2026:07:00:00 0000", None),
            ("22/Nov/12026:07:00:00 +0000", None),
            ("+1/Mar/2024:00:00:00 +0000", None),
            ("22/Foo/2026:07:00:00 +0000", None),
            ("é", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
