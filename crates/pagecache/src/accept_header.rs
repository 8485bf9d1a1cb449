//! Whether a request asks for another format than browsers do, by its `Accept` header.
//!
//! Many frameworks choose between a page and JSON or XML by this header, and send no `Vary`
//! (Laravel's `wantsJson`, negotiators of Yii and CakePHP, ActivityPub of WordPress). The key of
//! such a request contains the header: its pages and those of browsers are apart.

use crate::headers::{self, Field};

/// Types that browsers ask for first, beside images.
const OF_BROWSERS: [&str; 4] = ["text/html", "application/xhtml+xml", "*/*", "text/css"];

/// Whether the header asks for what browsers ask for, or is absent. Its first member is a type of
/// browsers; others are as well, or have a lower quality, however a framework weighs them.
pub(crate) fn is_ordinary<'a>(fields: impl Iterator<Item = Field<'a>>) -> bool {
    let mut members = headers::values(fields, "accept").flat_map(headers::members);
    members.next().is_none_or(is_of_browsers)
        && members.all(|member| is_of_browsers(type_of(member)) || is_lower(member))
}

fn type_of(member: &[u8]) -> &[u8] {
    member.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

fn is_of_browsers(media_type: &[u8]) -> bool {
    let is_image = media_type.get(..6).is_some_and(|start| headers::is(start, "image/"));
    is_image && !media_type.contains(&b';')
        || OF_BROWSERS.iter().any(|own| headers::is(media_type, own))
        || headers::is(media_type, "application/signed-exchange")
}

/// Whether a member has one quality, which is below 1 (RFC 9110 §12.4.2).
fn is_lower(member: &[u8]) -> bool {
    let parameters = member.split(|byte| *byte == b';').skip(1).map(<[u8]>::trim_ascii);
    let mut qualities = parameters.filter(|parameter| {
        parameter.first().is_some_and(|first| first.eq_ignore_ascii_case(&b'q'))
    });
    let is_low = |parameter: &[u8]| match parameter.get(1..) {
        Some([b'=', b'0']) => true,
        Some([b'=', b'0', b'.', decimals @ ..]) => decimals.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    qualities.next().is_some_and(is_low) && qualities.next().is_none()
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
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
             image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/html,application/xhtml+xml,application/signed-exchange;v=b3,\
             application/xml;q=0.9,*/*;q=0.8",
            "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
            "text/css,*/*;q=0.1",
            "*/*",
            "Text/HTML, application/json;q=0.5",
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
        ] {
            assert!(!of(&[accept]), "{accept}");
        }
        assert!(!of(&["text/html", "application/json"]));
    }
}
