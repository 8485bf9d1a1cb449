//! Whether a request asks for another format than browsers do, by its `Accept` header.
//!
//! Many frameworks choose between a page and JSON or XML by this header, and send no `Vary`
//! (Laravel's `wantsJson`, negotiators of Yii and CakePHP, ActivityPub of WordPress). The key of
//! such a request contains the header: its pages and those of browsers are apart.

use crate::headers::{self, Field};

/// Types that browsers ask for beside pages and images.
const OF_BROWSERS: [&str; 4] = ["application/xhtml+xml", "*/*", "text/css", "video/*"];

/// Subtypes of images that browsers ask for. Any other may contain the name of a data type, for
/// which some scripts search the whole header.
const IMAGES: [&str; 17] = [
    "*",
    "apng",
    "avif",
    "bmp",
    "gif",
    "heic",
    "heic-sequence",
    "jpeg",
    "jpg",
    "jxl",
    "jxr",
    "pjpeg",
    "png",
    "svg+xml",
    "webp",
    "x-icon",
    "x-xbitmap",
];

/// Whether the header asks for nothing but what browsers ask for, or is absent. A low quality makes
/// no other type ordinary: some frameworks consider only the types that they make beside pages.
pub(crate) fn is_ordinary<'a>(fields: impl Iterator<Item = Field<'a>>) -> bool {
    let mut members = headers::values(fields, "accept").flat_map(headers::members);
    let mut has_page = false;
    members.all(|member| {
        let is_page = headers::is(member, "text/html");
        has_page |= is_page;
        // Browsers prefer a page to XML. Without one, XML would be what the client prefers.
        is_page || is_of_browsers(member) || has_page && is_low_xml(member)
    })
}

/// Whether a member is a type of [`OF_BROWSERS`], an image or a signed exchange, with a valid
/// quality or none. Any other parameter may contain the name of a data type.
fn is_of_browsers(member: &[u8]) -> bool {
    let (media_type, parameters) = split(member);
    let (is_exchange, quality) = match parameters.map(split) {
        Some((version, quality)) if headers::is(version, "v=b3") => (true, quality),
        _ => (false, parameters),
    };
    let is_known = match media_type.split_at_checked(b"image/".len()) {
        _ if is_exchange => headers::is(media_type, "application/signed-exchange"),
        Some((start, subtype)) if headers::is(start, "image/") => {
            IMAGES.iter().any(|own| headers::is(subtype, own))
        }
        _ => OF_BROWSERS.iter().any(|own| headers::is(media_type, own)),
    };
    is_known && quality.is_none_or(is_low_quality)
}

fn is_low_xml(member: &[u8]) -> bool {
    let (media_type, quality) = split(member);
    headers::is(media_type, "application/xml") && quality.is_some_and(is_low_quality)
}

/// Splits a member at its first semicolon.
fn split(member: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b';', member) {
        Some(at) => (member[..at].trim_ascii(), Some(member[at + 1..].trim_ascii())),
        None => (member, None),
    }
}

/// Whether parameters are a quality below 1 and above 0, which excludes a type (RFC 9110 §12.4.2).
fn is_low_quality(parameters: &[u8]) -> bool {
    match parameters {
        [b'q' | b'Q', b'=', b'0', b'.', decimals @ ..] => {
            decimals.len() <= 3
                && decimals.iter().all(u8::is_ascii_digit)
                && decimals.iter().any(|digit| *digit != b'0')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&'static str]) -> bool {
        is_ordinary(values.iter().map(|value| (&b"Accept"[..], value.as_bytes())))
    }

    #[test]
    fn browsers_crawlers_and_tools_ask_for_what_is_ordinary() {
        for accept in [
            // Pages: Chrome and Edge, Safari and Firefox, older Firefoxes and Chromes, Googlebot.
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
             image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
             image/png,image/svg+xml,*/*;q=0.8",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8",
            "text/html,application/xhtml+xml,application/signed-exchange;v=b3,\
             application/xml;q=0.9,*/*;q=0.8",
            "text/html, application/xhtml+xml, image/jxr, */*",
            "text/html,*/*",
            "Text/HTML, */*; Q=0.8",
            // Images: Chrome and Edge, Firefox, Safari.
            "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
            "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5",
            "image/webp,image/avif,image/jxl,image/heic,image/heic-sequence,video/*;q=0.8,\
             image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5",
            "text/css,*/*;q=0.1",
            // Scripts, `fetch`, curl, Wget and most crawlers.
            "*/*",
            "",
        ] {
            assert!(of(&[accept]), "{accept}");
        }
        assert!(of(&[]));
    }

    #[test]
    fn data_that_a_framework_may_prefer_is_not_ordinary() {
        for accept in [
            "application/json",
            "application/json, text/plain, */*",
            "application/activity+json",
            "text/xml, text/html;q=0.5",
            "text/html;q=0.1, application/json",
            "text/html, application/json",
            "text/html, application/json;q=1",
            "text/html, application/json;q=0.5;q=1",
            "text/html, application/json;q=01",
            "text/vnd.turbo-stream.html, text/html",
            "image/png;q=0.1, application/json",
            "text/html, application/json;q=0.5",
            "text/html, application/activity+json;q=0.1",
            "image/png, application/ld+json;q=0.9",
            "text/css, text/xml;q=0.9",
            "text/html, image/json",
            "text/html, image/application/json",
            "text/html, */*;a=application/json",
            "text/html, application/signed-exchange;v=\"application/json\"",
            "text/html, */*;v=b3",
            "text/html, text/*;q=0.5",
        ] {
            assert!(!of(&[accept]), "{accept}");
        }
        assert!(!of(&["text/html", "application/json"]));
    }

    #[test]
    fn pages_with_less_weight_than_data_are_not_ordinary() {
        for accept in [
            "image/png, application/xml;q=0.9",
            "application/xhtml+xml, application/xml;q=0.9",
            "application/xml;q=0.9, text/html",
            "text/html, application/xml",
            "text/html, application/xml;q=1",
            "*/*, text/html;q=0.1",
            "*/*, text/html;q=0",
            "*/*;q=0, text/html",
            "text/html, */*;q=0.000",
            "text/html, application/xml;q=0.9;q=1",
        ] {
            assert!(!of(&[accept]), "{accept}");
        }
    }
}
