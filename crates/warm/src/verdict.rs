//! What a cache has done with a page, by its `Cache-Status` header (RFC 9211).

use sfv::{BareItem, Item, List, ListEntry, Parser};

/// The result of a page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It was not cached, and is now.
    Stored,
    /// It was cached already.
    There,
    /// It is not cached, and why.
    NotStored(String),
    /// It could not be requested, and why.
    Failed(String),
}

/// Parses the `Cache-Status` header of a response with this status for the cache of this name.
pub fn verdict(cache: &str, status: u16, field: Option<&str>) -> Verdict {
    let Some(field) = field else {
        return Verdict::NotStored(format!("no cache has seen it (status {status})"));
    };
    let list = Parser::new(field).parse::<List>().ok();
    // The last member is that of the cache closest to the client (RFC 9211 §2).
    let member = list.iter().flatten().rev().find_map(|member| match member {
        ListEntry::Item(item) if is_named(item, cache) => Some(item),
        _ => None,
    });
    let Some(member) = member else {
        return Verdict::NotStored(format!("its Cache-Status is not {cache}'s: {field}"));
    };
    let has = |name: &str| {
        let value = member.params.get(name);
        matches!(value, Some(BareItem::Boolean(true)))
    };
    if has("stored") {
        return Verdict::Stored;
    }
    if has("hit") {
        return Verdict::There;
    }
    let text = |name: &str| match member.params.get(name) {
        Some(BareItem::Token(token)) => Some(token.as_str().to_owned()),
        Some(BareItem::String(text)) => Some(text.as_str().to_owned()),
        _ => None,
    };
    let why = text("detail").or_else(|| text("fwd"));
    let why = why.unwrap_or_else(|| "no reason is given".to_owned());
    Verdict::NotStored(match status {
        200 => why,
        status => format!("{why} (status {status})"),
    })
}

fn is_named(item: &Item, name: &str) -> bool {
    match &item.bare_item {
        BareItem::Token(token) => token.as_str() == name,
        BareItem::String(text) => text.as_str() == name,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cache_says_is_what_became_of_it() {
        let of = |status, field: &str| verdict("maitred", status, Some(field));
        let stored = "maitred; fwd=uri-miss; fwd-status=200; stored; ttl=600";
        assert_eq!(of(200, stored), Verdict::Stored);
        assert_eq!(of(200, "maitred; hit; ttl=3"), Verdict::There);
        let refused = |why: &str| Verdict::NotStored(why.to_owned());
        let cookie = "maitred; fwd=uri-miss; fwd-status=200; detail=set-cookie";
        assert_eq!(of(200, cookie), refused("set-cookie"));
        assert_eq!(of(404, "maitred; fwd=bypass"), refused("bypass (status 404)"));
        assert_eq!(of(200, "\"CDN\"; hit, maitred; fwd=uri-miss; stored"), Verdict::Stored);
        assert_eq!(
            of(200, "maitred; hit, maitred; fwd=uri-miss; stored, cdn; hit"),
            Verdict::Stored
        );
    }

    #[test]
    fn an_answer_without_a_word_of_our_cache_was_not_stored_by_it() {
        let without = [None, Some("cdn; hit"), Some("\""), Some("")];
        for field in without {
            let said = verdict("maitred", 301, field);
            assert!(matches!(said, Verdict::NotStored(_)), "{field:?}: {said:?}");
        }
    }
}
