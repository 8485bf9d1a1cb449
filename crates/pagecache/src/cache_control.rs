//! Cache directives: `Cache-Control` (RFC 9111 §5.2.2) and the targeted headers (RFC 9213).

use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::headers::{self, Field};

/// The targeted headers, most specific first (RFC 9213 §2.2). The first that is present and valid
/// replaces the `Cache-Control` and `Expires` headers.
pub const TARGETED: [&str; 2] = ["maitred-cache-control", "cdn-cache-control"];

/// Most header names that directives may list; with more, the directive counts as one without a
/// list, which is stricter.
const MAX_LISTED_FIELDS: usize = 64;

/// The cache directives of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// It has any directive.
    pub any: bool,
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache` without a list: revalidate before each use.
    pub no_cache: bool,
    /// `private` without a list: for one user.
    pub private: bool,
    /// `public`.
    pub public: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `max-age` in seconds; 0 if invalid.
    pub max_age: Option<u64>,
    /// `s-maxage` in seconds; 0 if invalid.
    pub s_maxage: Option<u64>,
    /// `stale-while-revalidate` in seconds (RFC 5861 §3).
    pub stale_while_revalidate: Option<u64>,
    /// `stale-if-error` in seconds (RFC 5861 §4).
    pub stale_if_error: Option<u64>,
    /// Headers listed by `no-cache` and `private`, in lower case: they are not stored.
    pub listed: Vec<String>,
}

impl CacheControl {
    /// Parses the `Cache-Control` headers of a response.
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> CacheControl {
        let mut control = CacheControl::default();
        for value in values {
            for (name, argument) in Directives(value) {
                control.take(name, argument.as_deref());
            }
        }
        control
    }

    /// Parses the targeted header (RFC 9213 §2.1), if it is present and a dictionary (RFC 9651
    /// §3.2). An unreadable one counts as absent.
    pub fn targeted<'a>(fields: impl Iterator<Item = Field<'a>> + Clone) -> Option<CacheControl> {
        TARGETED.iter().find_map(|name| {
            let mut joined = Vec::new();
            for value in headers::values(fields.clone(), name) {
                if !joined.is_empty() {
                    joined.extend_from_slice(b", ");
                }
                joined.extend_from_slice(value);
            }
            let members = Parser::new(&joined).parse::<Dictionary>().ok()?;
            if members.is_empty() {
                return None;
            }
            let mut control = CacheControl::default();
            for (name, member) in &members {
                control.take_member(name.as_str(), member);
            }
            Some(control)
        })
    }

    fn take_member(&mut self, name: &str, member: &ListEntry) {
        let ListEntry::Item(item) = member else {
            return;
        };
        match &item.bare_item {
            BareItem::Boolean(false) => {}
            BareItem::Boolean(true) => self.take(name.as_bytes(), None),
            BareItem::Integer(number) => {
                self.take(name.as_bytes(), Some(number.to_string().as_bytes()));
            }
            BareItem::String(text) => self.take(name.as_bytes(), Some(text.as_str().as_bytes())),
            BareItem::Token(text) => self.take(name.as_bytes(), Some(text.as_str().as_bytes())),
            // No directive has a value of such a type: `max-age=1.5` is invalid.
            _ => self.take(name.as_bytes(), Some(b"")),
        }
    }

    /// Applies one directive. Of several with the same name the first counts (RFC 9111 §4.2.1); an
    /// invalid number makes the response stale.
    fn take(&mut self, name: &[u8], argument: Option<&[u8]>) {
        self.any = true;
        let number = || argument.and_then(headers::seconds).unwrap_or(0);
        let is = |wanted: &str| headers::is(name, wanted);
        match name.len() {
            6 if is("public") => self.public = true,
            7 if is("max-age") => _ = self.max_age.get_or_insert_with(number),
            7 if is("private") => self.private |= !list(argument, &mut self.listed),
            8 if is("no-store") => self.no_store = true,
            8 if is("no-cache") => self.no_cache |= !list(argument, &mut self.listed),
            8 if is("s-maxage") => _ = self.s_maxage.get_or_insert_with(number),
            14 if is("stale-if-error") => _ = self.stale_if_error.get_or_insert_with(number),
            15 if is("must-revalidate") => self.must_revalidate = true,
            15 if is("must-understand") => self.must_understand = true,
            16 if is("proxy-revalidate") => self.proxy_revalidate = true,
            22 if is("stale-while-revalidate") => {
                _ = self.stale_while_revalidate.get_or_insert_with(number);
            }
            _ => {}
        }
    }
}

/// Adds the headers that an argument lists; false if it lists none, or too many.
fn list(argument: Option<&[u8]>, listed: &mut Vec<String>) -> bool {
    let before = listed.len();
    for name in argument.into_iter().flat_map(headers::members) {
        if listed.len() >= MAX_LISTED_FIELDS {
            return false;
        }
        listed.push(String::from_utf8_lossy(name).to_ascii_lowercase());
    }
    listed.len() > before
}

/// The cache directives of a request (RFC 9111 §5.2.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `no-cache`, or `Pragma: no-cache` (RFC 9111 §5.4).
    pub no_cache: bool,
    /// `no-store`.
    pub no_store: bool,
    /// `only-if-cached`.
    pub only_if_cached: bool,
    /// `max-age` in seconds.
    pub max_age: Option<u64>,
    /// `min-fresh` in seconds.
    pub min_fresh: Option<u64>,
    /// `max-stale` in seconds; [`u64::MAX`] without a number.
    pub max_stale: Option<u64>,
}

impl RequestDirectives {
    /// Parses the headers of a request.
    pub fn of<'a>(fields: impl Iterator<Item = Field<'a>> + Clone) -> RequestDirectives {
        let mut directives = RequestDirectives::default();
        let mut any = false;
        for value in headers::values(fields.clone(), "cache-control") {
            for (name, argument) in Directives(value) {
                any = true;
                directives.take(name, argument.as_deref());
            }
        }
        if !any {
            let mut pragmas = headers::values(fields, "pragma").flat_map(headers::members);
            directives.no_cache = pragmas.any(|pragma| pragma.eq_ignore_ascii_case(b"no-cache"));
        }
        directives
    }

    fn take(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let number = argument.and_then(headers::seconds);
        let is = |wanted: &str| headers::is(name, wanted);
        match name.len() {
            7 if is("max-age") => self.max_age = self.max_age.or(number),
            8 if is("no-cache") => self.no_cache = true,
            8 if is("no-store") => self.no_store = true,
            9 if is("min-fresh") => self.min_fresh = self.min_fresh.or(number),
            9 if is("max-stale") => {
                let any = argument.is_none().then_some(u64::MAX);
                self.max_stale = self.max_stale.or(number).or(any);
            }
            14 if is("only-if-cached") => self.only_if_cached = true,
            _ => {}
        }
    }
}

/// The directives of one header value: names, and arguments without quotes.
struct Directives<'a>(&'a [u8]);

impl<'a> Iterator for Directives<'a> {
    type Item = (&'a [u8], Option<Vec<u8>>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let skip = |byte: &u8| matches!(byte, b' ' | b'\t' | b',');
            let start = self.0.iter().position(|byte| !skip(byte))?;
            let text = &self.0[start..];
            let end = text.iter().position(|byte| matches!(byte, b'=' | b','));
            let end = end.unwrap_or(text.len());
            // A name with white space before "=" is a different, unknown name.
            let name = match text.get(end) {
                Some(b'=') => &text[..end],
                _ => text[..end].trim_ascii(),
            };
            if text.get(end) != Some(&b'=') {
                self.0 = &text[end..];
                return Some((name, None));
            }
            let (argument, rest) = argument(&text[end + 1..]);
            self.0 = rest;
            if !name.is_empty() {
                return Some((name, Some(argument)));
            }
        }
    }
}

/// A token or a quoted string (RFC 9110 §5.6.4), and the rest from the next comma on.
fn argument(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let upto_comma = |text: &[u8]| memchr::memchr(b',', text).unwrap_or(text.len());
    if text.first() != Some(&b'"') {
        let end = upto_comma(text);
        return (text[..end].trim_ascii_end().to_vec(), &text[end..]);
    }
    let mut value = Vec::new();
    let mut bytes = text.iter().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => {
                let rest = &text[at + 1..];
                let end = upto_comma(rest);
                // Text after the closing quote: the argument is invalid.
                value.extend_from_slice(rest[..end].trim_ascii());
                return (value, &rest[end..]);
            }
            b'\\' => value.extend(bytes.next().map(|(_, escaped)| *escaped)),
            byte => value.push(*byte),
        }
    }
    // An unterminated string: its content is no argument.
    (b"\"".to_vec(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> CacheControl {
        CacheControl::of(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn a_number_in_a_quoted_string_of_another_directive_is_not_ours() {
        assert_eq!(of(&["extension=\"max-age=3600\", max-age=1"]).max_age, Some(1));
        assert_eq!(of(&["max-age=1, extension=\"max-age=3600\""]).max_age, Some(1));
        assert_eq!(of(&["extension=\"a\\\", max-age=9\", max-age=\"1\""]).max_age, Some(1));
        assert_eq!(of(&["extension=\"never ends, max-age=9"]).max_age, None);
    }

    #[test]
    fn a_number_that_is_none_is_zero_and_the_first_of_two_counts() {
        for value in ["max-age='3600'", "max-age=-1", "max-age", "max-age=", "max-age=1.5"] {
            assert_eq!(of(&[value]).max_age, Some(0), "{value}");
        }
        assert_eq!(of(&["max-age=\"1\"x, max-age=2"]).max_age, Some(0));
        assert_eq!(of(&["MAX-AGE=003600", "max-age=1"]).max_age, Some(3600));
        assert_eq!(of(&["max-age =3600"]).max_age, None);
        assert_eq!(of(&["a=b;max-age=3600"]).max_age, None);
    }

    #[test]
    fn lists_of_fields_are_kept_apart_from_the_directives_without() {
        let control = of(&["no-cache=\"A, b\", private=\"Set-Cookie\", max-age=5"]);
        assert!(!control.no_cache && !control.private);
        assert_eq!(control.listed, ["a", "b", "set-cookie"]);
        let control = of(&["no-cache=\"\", private"]);
        assert!(control.no_cache && control.private);
        let many: Vec<String> = (0..100).map(|number| format!("f{number}")).collect();
        assert!(of(&[&format!("private=\"{}\"", many.join(","))]).private);
    }

    #[test]
    fn a_targeted_field_is_a_dictionary_or_nothing() {
        let targeted = |value: &'static str| {
            let fields = [(&b"CDN-Cache-Control"[..], value.as_bytes())];
            CacheControl::targeted(fields.into_iter())
        };
        let control = targeted("max-age=60, private, no-cache=?0").unwrap();
        assert_eq!(control.max_age, Some(60));
        assert!(control.private && !control.no_cache);
        let listed = targeted("private=set-cookie, no-cache=\"a, B\"").unwrap();
        assert!(!listed.private && !listed.no_cache);
        assert_eq!(listed.listed, ["set-cookie", "a", "b"]);
        assert_eq!(targeted("max-age=1.5").unwrap().max_age, Some(0));
        assert_eq!(targeted("Max-Age=60"), None);
        assert_eq!(targeted("max-age=60, ="), None);
        assert_eq!(targeted(""), None);
    }

    #[test]
    fn the_most_particular_targeted_field_counts() {
        let fields = [
            (&b"CDN-Cache-Control"[..], &b"max-age=60"[..]),
            (&b"Maitred-Cache-Control"[..], &b"max-age=5"[..]),
        ];
        assert_eq!(CacheControl::targeted(fields.into_iter()).unwrap().max_age, Some(5));
    }

    #[test]
    fn pragma_counts_where_there_is_no_cache_control() {
        let directives = |fields: &[Field<'static>]| RequestDirectives::of(fields.iter().copied());
        assert!(directives(&[(b"Pragma", b"no-cache")]).no_cache);
        let both: [Field<'_>; 2] = [(b"Pragma", b"no-cache"), (b"Cache-Control", b"max-stale")];
        assert!(!directives(&both).no_cache);
        assert_eq!(directives(&both).max_stale, Some(u64::MAX));
    }
}
