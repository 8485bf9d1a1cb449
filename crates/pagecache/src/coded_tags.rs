//! Entity tags of compressed responses. Two codings of a resource have different strong tags (RFC
//! 9110 §8.8.3.3), so the tag of a compressed response ends with a mark, `"a-maitred-gzip"` for the
//! script's `"a"`. The request headers that return it lose the mark before a script reads them.
//! `If-Range` keeps it: bytes of the compressed response do not continue the uncompressed one.

use std::borrow::Cow;

use memchr::memmem;

use crate::headers::is;

const MARK: &[u8] = b"-maitred-";

/// The content encodings that a mark names.
const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

/// Request headers with entity tags that lose their marks; `If` is WebDAV's (RFC 4918 §10.4).
const CONDITIONS: [&str; 3] = ["if-none-match", "if-match", "if"];

/// Whether a request header has entity tags that lose their marks.
pub fn is_condition(name: &[u8]) -> bool {
    CONDITIONS.iter().any(|condition| is(name, condition))
}

/// The tag of a response in this content encoding. None for a weak tag, which all encodings share,
/// and for a value that is no tag.
pub fn coded(tag: &[u8], coding: &str) -> Option<Vec<u8>> {
    let opaque = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some([b"\"", opaque, MARK, coding.as_bytes(), b"\""].concat())
}

/// A list of entity tags without their marks. None if it has no mark.
pub fn uncoded(list: &[u8]) -> Option<Vec<u8>> {
    let mut plain: Option<Vec<u8>> = None;
    let mut copied = 0;
    for at in memmem::find_iter(list, MARK) {
        let rest = &list[at + MARK.len()..];
        let ends = |coding: &&&str| {
            rest.strip_prefix(coding.as_bytes()).is_some_and(|rest| rest.starts_with(b"\""))
        };
        if let Some(coding) = CODINGS.iter().find(ends) {
            let plain = plain.get_or_insert_default();
            plain.extend_from_slice(&list[copied..at]);
            copied = at + MARK.len() + coding.len();
        }
    }
    let mut plain = plain?;
    plain.extend_from_slice(&list[copied..]);
    Some(plain)
}

/// The tag of a 304: of the encodings of `tag`, the one that the client has named in `sent`. The
/// client's cache updates only a response with the same tag (RFC 9111 §4.3.4). None if it named
/// none.
pub fn as_named(tag: &[u8], sent: &[u8]) -> Option<Vec<u8>> {
    let names = |tag: &&[u8]| !tag.is_empty() && memmem::find(sent, tag).is_some();
    if names(&tag) {
        return None;
    }
    let plain = uncoded(tag).map_or(Cow::Borrowed(tag), Cow::Owned);
    if names(&&*plain) {
        return Some(plain.into_owned());
    }
    let mut coded = CODINGS.iter().filter_map(|coding| coded(&plain, coding));
    coded.find(|tag| names(&&tag[..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: Option<Vec<u8>>) -> Option<String> {
        bytes.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn only_a_strong_tag_gets_a_mark() {
        assert_eq!(text(coded(b"\"a\"", "br")).as_deref(), Some("\"a-maitred-br\""));
        for tag in ["W/\"a\"", "a", "\"", ""] {
            assert_eq!(coded(tag.as_bytes(), "br"), None, "{tag}");
        }
    }

    #[test]
    fn every_tag_of_a_list_loses_one_mark_at_its_end() {
        for (list, plain) in [
            (r#""a-maitred-gzip""#, r#""a""#),
            (r#""a-maitred-br", W/"b-maitred-zstd" ,"c""#, r#""a", W/"b" ,"c""#),
            (r#"(["a-maitred-gzip"] <urn:x>)"#, r#"(["a"] <urn:x>)"#),
            (r#""a-maitred-gzip-maitred-br""#, r#""a-maitred-gzip""#),
            (r#""-maitred-gzip""#, r#""""#),
        ] {
            assert_eq!(text(uncoded(list.as_bytes())).as_deref(), Some(plain), "{list}");
        }
        for list in [r#""a""#, r#""a-gzip""#, r#""a-maitred-gzip2""#, r#""-maitred-x""#, "*", ""] {
            assert_eq!(uncoded(list.as_bytes()), None, "{list}");
        }
    }

    #[test]
    fn a_304_has_the_tag_that_the_client_named() {
        for (tag, sent, named) in [
            (r#""a""#, r#""a-maitred-br""#, Some(r#""a-maitred-br""#)),
            (r#""a""#, r#""x", "a-maitred-gzip""#, Some(r#""a-maitred-gzip""#)),
            (r#""a-maitred-br""#, r#""a-maitred-gzip""#, Some(r#""a-maitred-gzip""#)),
            (r#""a-maitred-br""#, r#""a""#, Some(r#""a""#)),
            (r#""a""#, r#""a", "a-maitred-br""#, None),
            (r#""a""#, r#""b-maitred-br""#, None),
            (r#"W/"a""#, r#""a-maitred-br""#, None),
            ("", r#""a-maitred-br""#, None),
        ] {
            let named = named.map(str::to_owned);
            assert_eq!(text(as_named(tag.as_bytes(), sent.as_bytes())), named, "{tag} {sent}");
        }
    }

    proptest! {
        #[test]
        fn what_a_compressed_response_says_returns_as_the_script_wrote_it(
            opaque in "[!#-~]{0,40}(-maitred-gzip)?",
            coding in prop::sample::select(&CODINGS[..]),
        ) {
            let tag = format!("\"{opaque}\"").into_bytes();
            let sent = coded(&tag, coding).unwrap();
            prop_assert_eq!(uncoded(&sent), Some(tag));
        }
    }
}
