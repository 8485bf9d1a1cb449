//! The request headers that a response varies on (RFC 9110 §12.5.5, RFC 9111 §4.1).

use crate::headers::{self, Field};

/// Most header names in one `Vary`.
const MAX_NAMES: usize = 16;
/// Most bytes of these names together.
const MAX_NAMES_BYTES: usize = 512;
/// Content encodings that are distinguished, by name.
const CODINGS: [&[u8]; 4] = [b"br", b"gzip", b"zstd", b"deflate"];

/// The headers that a response varies on: lower-case names, sorted, without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vary {
    names: Box<[String]>,
}

/// Why the variants of a response cannot be distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VaryError {
    /// `Vary: *`.
    Star,
    /// More headers than are supported.
    TooMany,
}

impl Vary {
    /// Parses the `Vary` headers of a response.
    ///
    /// # Errors
    /// When a member is `*`, or there are too many.
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Vary, VaryError> {
        let mut names: Vec<String> = Vec::new();
        for name in values.flat_map(headers::members) {
            if name == b"*" {
                return Err(VaryError::Star);
            }
            if names.len() >= MAX_NAMES {
                return Err(VaryError::TooMany);
            }
            names.push(String::from_utf8_lossy(name).to_ascii_lowercase());
        }
        if names.iter().map(String::len).sum::<usize>() > MAX_NAMES_BYTES {
            return Err(VaryError::TooMany);
        }
        names.sort_unstable();
        names.dedup();
        Ok(Vary { names: names.into() })
    }

    /// From stored names, which are sorted again.
    pub fn of_names(names: Vec<String>) -> Vary {
        let mut names = names;
        names.sort_unstable();
        names.dedup();
        Vary { names: names.into() }
    }

    /// Without this name.
    pub fn without(self, name: &str) -> Vary {
        let names = self.names.into_iter().filter(|known| known != name);
        Vary { names: names.collect() }
    }

    /// The names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether it varies on no header.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// The normalised value of a request header; `None` if it is absent. White space around members is
/// dropped (RFC 9111 §4.1), and `Accept-Encoding` is reduced to the known encodings that it
/// accepts. Empty members count: an application that reads the header as one value distinguishes
/// `a,` from `a`. Cookies are what a script gets: a comma in them is a part of a value.
pub fn value<'a>(fields: impl Iterator<Item = Field<'a>> + Clone, name: &str) -> Option<Vec<u8>> {
    if name == "accept-encoding" {
        return Some(codings(headers::values(fields, name)));
    }
    if name == "cookie" {
        let lines: Vec<&[u8]> = headers::values(fields, name).collect();
        return (!lines.is_empty()).then(|| lines.join(&b"; "[..]));
    }
    let mut joined: Option<Vec<u8>> = None;
    for value in headers::values(fields, name) {
        // A comma inside a quoted string is no separator; such values stay unchanged.
        let is_quoted = value.contains(&b'"');
        for member in value.split(|byte| *byte == b',' && !is_quoted) {
            let member = if is_quoted { member } else { member.trim_ascii() };
            match &mut joined {
                None => joined = Some(member.to_vec()),
                Some(joined) => {
                    joined.push(b',');
                    joined.extend_from_slice(member);
                }
            }
        }
    }
    joined
}

/// Whether a request accepts all content encodings of a response. Scripts often search
/// `Accept-Encoding` for the letters `gzip`, and so compress for clients that refuse it.
pub fn takes<'a, 'f>(
    asked: impl Iterator<Item = Field<'a>>,
    response: impl Iterator<Item = Field<'f>>,
) -> bool {
    let taken = codings(headers::values(asked, "accept-encoding"));
    let mut used = headers::values(response, "content-encoding").flat_map(headers::members);
    used.all(|coding| {
        let coding = if headers::is(coding, "x-gzip") { b"gzip" } else { coding };
        let mut taken = taken.split(|byte| *byte == b',');
        headers::is(coding, "identity") || taken.any(|taken| taken.eq_ignore_ascii_case(coding))
    })
}

/// The accepted encodings, in the order of [`CODINGS`].
fn codings<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut will_do = [false; CODINGS.len()];
    for member in values.flat_map(headers::members) {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = match parts.next().unwrap_or_default() {
            // RFC 9110 §8.4.1.3.
            name if headers::is(name, "x-gzip") => b"gzip",
            name => name,
        };
        let is_refused = parts.any(is_zero_weight);
        for (at, coding) in CODINGS.iter().enumerate() {
            if name.eq_ignore_ascii_case(coding) || name == b"*" {
                will_do[at] = !is_refused;
            }
        }
    }
    let named = CODINGS.iter().zip(will_do).filter(|(_, will_do)| *will_do);
    let named: Vec<&[u8]> = named.map(|(coding, _)| *coding).collect();
    named.join(&b","[..])
}

/// `q=0`, `q=0.0`, … (RFC 9110 §12.4.2).
fn is_zero_weight(parameter: &[u8]) -> bool {
    let [b'q' | b'Q', b'=', weight @ ..] = parameter else {
        return false;
    };
    weight.first() == Some(&b'0') && weight.iter().all(|byte| matches!(byte, b'0' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Result<Vary, VaryError> {
        Vary::of(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn a_star_anywhere_means_unknown_variants() {
        for values in [&["*"][..], &["*, *"], &["", "*"], &[", *"], &["*, Foo"], &["Foo, *"]] {
            assert_eq!(of(values), Err(VaryError::Star), "{values:?}");
        }
        let many = vec!["a"; 20].join(",");
        assert_eq!(of(&[&many]), Err(VaryError::TooMany));
        assert_eq!(of(&[&"a".repeat(600)]), Err(VaryError::TooMany));
    }

    #[test]
    fn names_are_put_in_order_and_written_alike() {
        assert_eq!(of(&["Foo,bar", "BAR"]), of(&["bar, foo"]));
        assert!(of(&["", ","]).unwrap().is_empty());
    }

    #[test]
    fn values_differ_only_in_what_counts() {
        let value = |name: &str, fields: &[Field<'static>]| value(fields.iter().copied(), name);
        assert_eq!(value("foo", &[]), None);
        assert_eq!(value("foo", &[(b"Foo", b"")]), Some(Vec::new()));
        let one = value("foo", &[(b"Foo", b"1,  2")]);
        assert_eq!(one, value("foo", &[(b"foo", b"1"), (b"FOO", b"2")]));
        assert_ne!(one, value("foo", &[(b"Foo", b"2, 1")]));
        for other in [&b"1,2,"[..], b",1,2", b"1,,2"] {
            assert_ne!(one, value("foo", &[(b"Foo", other)]));
        }
        let empty = value("foo", &[(b"Foo", b""), (b"Foo", b"1")]);
        assert_ne!(empty, value("foo", &[(b"Foo", b"1")]));
        let quoted = value("foo", &[(b"Foo", b"\"a, b\"")]);
        assert_ne!(quoted, value("foo", &[(b"Foo", b"\"a,b\"")]));
    }

    #[test]
    fn cookies_differ_as_for_the_script_that_gets_them() {
        let of = |lines: &[&'static str]| {
            let fields = lines.iter().map(|line| (&b"Cookie"[..], line.as_bytes()));
            value(fields, "cookie")
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["lang=de", "theme=dark"]), of(&["lang=de; theme=dark"]));
        for other in ["lang=de,theme=dark", "lang=de, theme=dark", "lang=de;theme=dark"] {
            assert_ne!(of(&["lang=de", "theme=dark"]), of(&[other]), "{other}");
        }
        assert_ne!(of(&["list=1, 2"]), of(&["list=1,2"]));
    }

    #[test]
    fn only_known_encodings_distinguish_variants() {
        let coding = |value: &'static [u8]| value_of(&[(&b"Accept-Encoding"[..], value)]);
        fn value_of(fields: &[Field<'static>]) -> Vec<u8> {
            value(fields.iter().copied(), "accept-encoding").unwrap()
        }
        assert_eq!(coding(b"gzip, deflate, br"), coding(b"BR;q=1.0,x-foo,deflate,gzip;q=0.5"));
        assert_eq!(coding(b"gzip;q=0, br"), coding(b"br"));
        assert_eq!(coding(b"identity"), value_of(&[]));
        assert_eq!(coding(b"X-GZip"), coding(b"gzip"));
        assert_eq!(coding(b"*;q=0.1, gzip;q=0.000"), b"br,zstd,deflate");
    }
    #[test]
    fn what_is_in_a_coding_is_for_those_who_take_it() {
        let takes = |asked: &'static [u8], used: &'static [u8]| {
            let asked = [(&b"Accept-Encoding"[..], asked)].into_iter();
            takes(asked, [(&b"content-encoding"[..], used)].into_iter())
        };
        assert!(takes(b"x-gzip", b"gzip") && takes(b"gzip", b"x-gzip"));
        assert!(takes(b"br, gzip", b"GZIP, br") && takes(b"", b"identity"));
        assert!(!takes(b"gzip;q=0", b"gzip") && !takes(b"", b"br"));
        assert!(!takes(b"no-gzip", b"gzip") && !takes(b"gzip", b"gzip, br"));
    }
}
