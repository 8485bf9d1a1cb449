//! Content encodings: which ones a client accepts (RFC 9110 §12.5.3), and which types are
//! compressed.

use serde::{Deserialize, Serialize};

/// A content encoding that the server can apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentEncoding {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Br,
    /// gzip (RFC 1952).
    Gzip,
}

/// The default quality, in thousandths.
const FULL: u16 = 1000;

impl ContentEncoding {
    /// All encodings, best ratio of savings to CPU time first.
    pub const ALL: [ContentEncoding; 3] =
        [ContentEncoding::Zstd, ContentEncoding::Gzip, ContentEncoding::Br];

    /// Smallest files first, for files that are compressed ahead of time.
    pub const SMALLEST: [ContentEncoding; 3] =
        [ContentEncoding::Br, ContentEncoding::Zstd, ContentEncoding::Gzip];

    /// The encoding with this name in the configuration.
    pub fn named(name: &str) -> Option<ContentEncoding> {
        ContentEncoding::ALL.into_iter().find(|coding| coding.name() == name)
    }

    /// Name in the `Content-Encoding` header.
    pub fn name(self) -> &'static str {
        match self {
            ContentEncoding::Zstd => "zstd",
            ContentEncoding::Br => "br",
            ContentEncoding::Gzip => "gzip",
        }
    }

    /// Extension of a precompressed file, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            ContentEncoding::Zstd => "zst",
            ContentEncoding::Br => "br",
            ContentEncoding::Gzip => "gz",
        }
    }

    fn of_token(token: &[u8]) -> Option<ContentEncoding> {
        // RFC 9110 §8.4.1.3 has a second name for gzip.
        if token.eq_ignore_ascii_case(b"x-gzip") {
            return Some(ContentEncoding::Gzip);
        }
        let is = |coding: &ContentEncoding| token.eq_ignore_ascii_case(coding.name().as_bytes());
        ContentEncoding::ALL.into_iter().find(is)
    }
}

/// The encodings that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Qualities in thousandths, by index of the encoding; 0: not accepted.
    qualities: [u16; 3],
}

impl Accepted {
    /// Parses the values of the `Accept-Encoding` header. Malformed items count as not accepted.
    ///
    /// An encoding with a lower quality than `identity` counts as not accepted.
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Accepted {
        let (mut named, mut others, mut plain) = ([None; 3], None, None);
        for item in values.flat_map(|value| value.split(|byte| *byte == b',')) {
            let (token, quality) = read_item(item);
            if token == b"*" {
                others = Some(quality);
            } else if token.eq_ignore_ascii_case(b"identity") {
                plain = Some(quality);
            } else if let Some(coding) = ContentEncoding::of_token(token) {
                named[coding as usize] = Some(quality);
            }
        }
        let liked = |quality: &Option<u16>| {
            let quality = quality.or(others).unwrap_or(0);
            if quality < plain.unwrap_or(0) { 0 } else { quality }
        };
        Accepted { qualities: [liked(&named[0]), liked(&named[1]), liked(&named[2])] }
    }

    /// Whether no encoding is accepted.
    pub fn is_none(&self) -> bool {
        self.qualities == [0; 3]
    }

    /// The encoding with the highest quality; the first one of equals.
    pub fn best(&self, offered: &[ContentEncoding]) -> Option<ContentEncoding> {
        let quality = |coding: &ContentEncoding| self.qualities[*coding as usize];
        let mut best = None;
        for coding in offered {
            if quality(coding) > best.as_ref().map_or(0, quality) {
                best = Some(*coding);
            }
        }
        best
    }

    /// The same without one of them.
    pub fn without(mut self, coding: ContentEncoding) -> Accepted {
        self.qualities[coding as usize] = 0;
        self
    }
}

fn read_item(item: &[u8]) -> (&[u8], u16) {
    let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let token = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| {
        let value = part.strip_prefix(b"q").or(part.strip_prefix(b"Q"))?;
        value.trim_ascii_start().strip_prefix(b"=")
    });
    let quality = weight.map_or(FULL, |value| thousandths(value.trim_ascii()).unwrap_or(0));
    (token, quality)
}

/// `0`, `0.5`, `1.000` (RFC 9110 §12.4.2).
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, rest) = value.split_first()?;
    let decimals = match rest {
        [] => rest,
        [b'.', decimals @ ..] if decimals.len() <= 3 => decimals,
        _ => return None,
    };
    let mut sum = match whole {
        b'0' => 0,
        b'1' => FULL,
        _ => return None,
    };
    for (digit, worth) in decimals.iter().zip([100, 10, 1]) {
        sum += u16::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?) * worth;
    }
    (sum <= FULL).then_some(sum)
}

/// Why this is no media type that can be compressed, as the end of a sentence that begins with it;
/// `None` if it is one.
pub fn refuse_type(name: &str) -> Option<&'static str> {
    let token = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    let good = match name.split_once('/') {
        Some((kind, "")) => token(kind),
        Some((kind, subtype)) => token(kind) && token(subtype),
        None => name.strip_prefix('+').is_some_and(token),
    };
    let why = "is no media type; expected one such as \"text/css\", \"text/\" for all of text, or \
               \"+json\" for all types that end so";
    (!good).then_some(why)
}

/// Whether a `Content-Type` is one of these. Event streams never are: each event must be sent at
/// once, and some clients do not decompress them.
pub fn is_among(content_type: &[u8], types: &[String]) -> bool {
    let name = content_type.split(|byte| *byte == b';').next();
    let name = name.unwrap_or_default().trim_ascii();
    if name.is_empty() || name.eq_ignore_ascii_case(b"text/event-stream") {
        return false;
    }
    types.iter().any(|wanted| {
        let wanted = wanted.as_bytes();
        let part = match (wanted.first(), wanted.last()) {
            (_, Some(b'/')) => name.get(..wanted.len()),
            (Some(b'+'), _) => name.len().checked_sub(wanted.len()).map(|at| &name[at..]),
            _ => Some(name),
        };
        part.is_some_and(|part| part.eq_ignore_ascii_case(wanted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn best(field: &str) -> Option<&'static str> {
        let accepted = Accepted::of([field.as_bytes()].into_iter());
        accepted.best(&ContentEncoding::ALL).map(ContentEncoding::name)
    }

    #[test]
    fn the_coding_is_the_one_that_the_client_likes_best_and_then_we() {
        for (field, expected) in [
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("gzip, deflate, br", Some("gzip")),
            ("GZIP", Some("gzip")),
            ("x-gzip", Some("gzip")),
            ("gzip;q=1.0, zstd;q=0.5", Some("gzip")),
            ("gzip ; q = 0.4 , br;Q=0.41", Some("br")),
            ("*", Some("zstd")),
            ("*;q=0.5, zstd;q=0", Some("gzip")),
            ("br", Some("br")),
            ("gzip;q=0.5", Some("gzip")),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.2, gzip;q=0.5", Some("gzip")),
            ("identity;q=0", None),
            ("identity", None),
            ("", None),
            (",,", None),
            ("deflate, compress", None),
            ("gzip;q=0", None),
            ("gzip;q=0.000, *;q=0", None),
            ("gzip;q=2, br;q=1.001, zstd;q=x", None),
            ("gzip;q=", None),
            ("gzip;level=3;q=0.1", Some("gzip")),
            ("gzipped, brr", None),
        ] {
            assert_eq!(best(field), expected, "{field}");
        }
        let lines: [&[u8]; 2] = [b"gzip;q=0.2", b"br;q=0.1"];
        let several = Accepted::of(lines.into_iter());
        assert_eq!(several.best(&ContentEncoding::SMALLEST), Some(ContentEncoding::Gzip));
        assert_eq!(
            several.without(ContentEncoding::Gzip).best(&ContentEncoding::ALL),
            Some(ContentEncoding::Br)
        );
        assert_eq!(several.best(&[ContentEncoding::Zstd]), None);
    }

    #[test]
    fn types_are_named_wholly_by_kind_or_by_ending() {
        let types = ["text/", "+json", "image/bmp"].map(str::to_owned);
        for (content_type, expected) in [
            ("text/html; charset=utf-8", true),
            ("TEXT/CSS", true),
            ("application/problem+json", true),
            ("application/json", false),
            ("image/bmp", true),
            ("image/bmpx", false),
            ("image/png", false),
            ("text/event-stream;charset=UTF-8", false),
            ("", false),
        ] {
            assert_eq!(is_among(content_type.as_bytes(), &types), expected, "{content_type}");
        }
        for good in ["text/css", "text/", "+xml", "application/vnd.api+json"] {
            assert_eq!(refuse_type(good), None, "{good}");
        }
        for bad in ["", "text", "/", "+", "text/css; charset=utf-8", "a b/c", "text/*"] {
            assert!(refuse_type(bad).is_some(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_client_says_is_read(field in proptest::collection::vec(any::<u8>(), 0..64)) {
            let accepted = Accepted::of([&field[..]].into_iter());
            let best = accepted.best(&ContentEncoding::ALL);
            prop_assert_eq!(best.is_none(), accepted.is_none());
        }

        #[test]
        fn what_is_refused_is_never_chosen(q in "0(\\.0{0,3})?", other in "[a-z;,=.0-9 ]{0,20}") {
            let field = format!("gzip;q={q},x{other}");
            let accepted = Accepted::of([field.as_bytes()].into_iter());
            let gzip = ContentEncoding::Gzip;
            let is_unnamed = !other.contains("gzip") && !other.contains('*');
            prop_assert_ne!(accepted.best(&[gzip]), is_unnamed.then_some(gzip));
        }
    }
}
