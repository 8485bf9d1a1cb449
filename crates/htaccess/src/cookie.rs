//! Cookies of the rewrite flag CO (`add_cookie`).

use crate::request::World;
use crate::table::Table;
use crate::text::integer;

/// The header of a cookie.
pub const SET_COOKIE: &[u8] = b"Set-Cookie";

/// Adds the header of a cookie, unless there is one of its name: the first one counts.
pub fn add(headers: &mut Table, cookie: Vec<u8>) {
    let name = cookie.split_inclusive(|byte| *byte == b'=').next().unwrap_or_default();
    let is_set = |(known, value): (&[u8], &[u8])| {
        known.eq_ignore_ascii_case(SET_COOKIE) && value.starts_with(name)
    };
    if !headers.iter().any(is_set) {
        headers.add(SET_COOKIE, cookie);
    }
}

/// The value of `Set-Cookie` for a name, a value, a domain, minutes, a path, `secure`, `httponly`
/// and `samesite`, of which all behind the domain may be left off. They are separated by colons; a
/// text that begins with a semicolon is separated by semicolons. None without a domain.
pub fn header_of(text: &[u8], world: &dyn World) -> Option<Vec<u8>> {
    let (separator, text) = match text.strip_prefix(b";") {
        Some(rest) => (b';', rest),
        None => (b':', text),
    };
    let mut parts = text.split(|byte| *byte == separator).filter(|part| !part.is_empty());
    let (name, value, domain) = (parts.next()?, parts.next()?, parts.next()?);
    let minutes = parts.next().map_or(0, integer);
    let path = parts.next().unwrap_or(b"/");
    let is = |part: Option<&[u8]>, word: &str| {
        let words = ["true", "1", word];
        part.is_some_and(|part| words.iter().any(|word| part.eq_ignore_ascii_case(word.as_bytes())))
    };
    let is_secure = is(parts.next(), "secure");
    let is_http_only = is(parts.next(), "HttpOnly");
    let same_site = parts.next().filter(|word| !word.is_empty() && *word != b"0");
    let mut cookie = [name, b"=", value, b"; path=", path, b"; domain=", domain].concat();
    if minutes != 0 {
        cookie.extend_from_slice(b"; expires=");
        cookie.extend(dashed(world.http_date(minutes.saturating_mul(60))));
    }
    if is_secure {
        cookie.extend_from_slice(b"; secure");
    }
    if is_http_only {
        cookie.extend_from_slice(b"; HttpOnly");
    }
    if let Some(word) = same_site {
        cookie.extend_from_slice(b"; SameSite=");
        cookie.extend_from_slice(word);
    }
    Some(cookie)
}

/// A date with dashes, as cookies have it: `Sun, 06-Nov-1994 08:49:37 GMT`.
fn dashed(mut date: Vec<u8>) -> Vec<u8> {
    for at in [7, 11] {
        if let Some(space) = date.get_mut(at) {
            *space = b'-';
        }
    }
    date
}
