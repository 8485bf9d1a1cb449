//! Tags (cache groups), by which related responses are purged together (RFC 9875).

use sfv::{BareItem, List, ListEntry, Parser};

use crate::headers::{self, Field};
use crate::settings::Settings;

/// Most tags of one response. RFC 9875 §2 requires at least 32.
pub const MAX_TAGS: usize = 256;
/// Longest tag in bytes. RFC 9875 §2 requires at least 32.
pub const MAX_TAG_BYTES: usize = 256;

/// More or longer tags than are supported: a purge could not find the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

/// The tags of a response: its `Cache-Groups`, and the tag headers of the site.
///
/// # Errors
/// When there are too many, or one is too long.
pub fn of_response<'a>(
    settings: &Settings,
    fields: impl Iterator<Item = Field<'a>> + Clone,
) -> Result<Vec<String>, TooMany> {
    let mut tags = Vec::new();
    if let Some(groups) = groups(fields.clone(), "cache-groups") {
        tags.extend(groups);
    }
    for name in &settings.tag_headers {
        for value in headers::values(fields.clone(), name) {
            tags.extend(words(value));
        }
    }
    if settings.litespeed {
        for value in headers::values(fields, "x-litespeed-tag") {
            tags.extend(headers::members(value).map(litespeed_tag));
        }
    }
    tags.sort_unstable();
    tags.dedup();
    let fits = tags.len() <= MAX_TAGS && tags.iter().all(|tag| tag.len() <= MAX_TAG_BYTES);
    fits.then_some(tags).ok_or(TooMany)
}

/// Groups that this response invalidates (RFC 9875 §3); its request had an unsafe method.
pub fn invalidated<'a>(fields: impl Iterator<Item = Field<'a>>) -> Vec<String> {
    groups(fields, "cache-group-invalidation").unwrap_or_default()
}

/// The groups in a header: a list of strings (RFC 9651 §3.1). `None` if it is absent or malformed.
pub fn groups<'a>(fields: impl Iterator<Item = Field<'a>>, name: &str) -> Option<Vec<String>> {
    let values: Vec<&[u8]> = headers::values(fields, name).collect();
    if values.is_empty() {
        return None;
    }
    let members = Parser::new(&values.join(&b", "[..])).parse::<List>().ok()?;
    let string = |member: &ListEntry| match member {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::String(text) => Some(text.as_str().to_owned()),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    };
    members.iter().map(string).collect()
}

/// Tags separated by spaces or commas, as in the `Surrogate-Key` header.
fn words(value: &[u8]) -> impl Iterator<Item = String> {
    let ends = |byte: &u8| matches!(byte, b' ' | b',' | b'\t');
    let words = value.split(ends).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned())
}

/// A LiteSpeed tag; the prefix `public:` is redundant, since all entries are public.
fn litespeed_tag(tag: &[u8]) -> String {
    let tag = tag.strip_prefix(b"public:").unwrap_or(tag);
    String::from_utf8_lossy(tag).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &Settings, fields: &[Field<'static>]) -> Result<Vec<String>, TooMany> {
        of_response(settings, fields.iter().copied())
    }

    #[test]
    fn groups_are_strings_of_a_list_or_nothing() {
        let settings = Settings::default();
        let groups = of(
            &settings,
            &[(b"Cache-Groups", b"\"b, c\";x=1, \"a\""), (b"cache-groups", b"\"A\"")],
        );
        assert_eq!(groups.unwrap(), ["A", "a", "b, c"]);
        assert_eq!(of(&settings, &[(b"Cache-Groups", b"a, b")]).unwrap(), [""; 0]);
        assert_eq!(
            invalidated([(&b"Cache-Group-Invalidation"[..], &b"\"a\""[..])].into_iter()),
            ["a"]
        );
        let unread = [(&b"Cache-Group-Invalidation"[..], &b"\"a"[..])];
        assert!(invalidated(unread.into_iter()).is_empty());
    }

    #[test]
    fn other_fields_hold_tags_where_the_site_says_so() {
        let fields: [Field<'_>; 2] =
            [(b"Surrogate-Key", b"post-1  post-2"), (b"X-LiteSpeed-Tag", b"public:W_, T.1,T.1")];
        assert!(of(&Settings::default(), &fields).unwrap().is_empty());
        let settings = Settings {
            litespeed: true,
            tag_headers: vec!["surrogate-key".to_owned()],
            ..Settings::default()
        };
        assert_eq!(of(&settings, &fields).unwrap(), ["T.1", "W_", "post-1", "post-2"]);
    }

    #[test]
    fn more_tags_than_are_remembered_are_no_tags_at_all() {
        let settings = Settings { tag_headers: vec!["t".to_owned()], ..Settings::default() };
        let many: Vec<String> = (0..=MAX_TAGS).map(|tag| tag.to_string()).collect();
        let many = many.join(" ");
        let of = |value: &str| of_response(&settings, [(&b"t"[..], value.as_bytes())].into_iter());
        assert_eq!(of(&many), Err(TooMany));
        assert_eq!(of(&"a".repeat(MAX_TAG_BYTES + 1)), Err(TooMany));
        assert_eq!(of(&vec!["same"; 1000].join(" ")).unwrap(), ["same"]);
    }
}
