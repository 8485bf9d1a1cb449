//! Purges: which cached responses are invalidated.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::headers::{self, Field};
use crate::invalidate;
use crate::key::MAX_KEY_BYTES;
use crate::settings::KeyParts;
use crate::tags::{MAX_TAG_BYTES, MAX_TAGS};

/// Most purges that one header of a response requests one by one: as many as a response has tags.
/// More are one of all pages of the site.
pub const MAX_OF_HEADER: usize = MAX_TAGS;

/// Longest path and query in a purge, in bytes. In place of a longer URL, all are purged that begin
/// the same: with its host, it fits into the messages to other fronts and nodes.
pub const MAX_TARGET_BYTES: usize = 4 * 1024;

/// The entries that a purge applies to, within one site.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purge {
    /// All entries of a site.
    All,
    /// All entries of one host.
    Host(String),
    /// One URL, in all its variants, for either scheme.
    Url {
        /// The host.
        host: String,
        /// Path and canonical query.
        target: String,
    },
    /// All URLs of a host with this prefix.
    Prefix {
        /// The host; `None`: any host of the site.
        host: Option<String>,
        /// The prefix of path and query.
        path: String,
    },
    /// All entries with this tag.
    Tag(String),
}

/// Hard or soft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeMode {
    /// The entries are removed.
    Hard,
    /// The entries become stale, and are served until they are replaced.
    Soft,
}

impl Purge {
    /// This purge with names that have room in messages and records: a wider one of the same host
    /// in place of a URL that is too long. None, if no page can have the host or tag.
    pub fn bounded(self) -> Option<Purge> {
        let is_host = |host: &str| host.len() <= MAX_KEY_BYTES;
        match self {
            Purge::All => Some(self),
            Purge::Tag(ref tag) => (tag.len() <= MAX_TAG_BYTES).then_some(self),
            Purge::Host(ref host) => is_host(host).then_some(self),
            Purge::Url { host, target } => is_host(&host).then(|| match start_of(&target) {
                Some(start) => Purge::Prefix { host: Some(host), path: start.to_owned() },
                None => Purge::Url { host, target },
            }),
            Purge::Prefix { host, path } => host.as_deref().is_none_or(is_host).then(|| {
                let path = start_of(&path).map_or(path.clone(), str::to_owned);
                Purge::Prefix { host, path }
            }),
        }
    }
}

/// The first [`MAX_TARGET_BYTES`] of a target that is longer.
fn start_of(target: &str) -> Option<&str> {
    if target.len() <= MAX_TARGET_BYTES {
        return None;
    }
    (0..=MAX_TARGET_BYTES).rev().find_map(|end| target.get(..end))
}

impl fmt::Display for Purge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purge::All => f.write_str("everything"),
            Purge::Host(host) => write!(f, "{host}"),
            Purge::Url { host, target } => write!(f, "{host}{target}"),
            Purge::Prefix { host, path } => write!(f, "{}{path}*", host.as_deref().unwrap_or("*")),
            Purge::Tag(tag) => write!(f, "tag {tag}"),
        }
    }
}

/// The purges in a response's `X-LiteSpeed-Purge` and `X-LiteSpeed-Purge2`; `host` is that of the
/// request.
///
/// `*`, tags (`a, b`, `tag=a, b` or `tag=a b`), and paths, with `stale,` before them for a soft
/// purge, or `~s` or `~stale` after one of them. Directives for private caches are ignored: there
/// are none here.
pub fn litespeed<'a>(
    fields: impl Iterator<Item = Field<'a>>,
    parts: &KeyParts,
    host: &str,
) -> Vec<(Purge, PurgeMode)> {
    let mut purges = Vec::new();
    let is_purge =
        |name| headers::is(name, "x-litespeed-purge") || headers::is(name, "x-litespeed-purge2");
    for (_, value) in fields.filter(|(name, _)| is_purge(name)) {
        for part in value.split(|byte| *byte == b';') {
            read_litespeed(part, parts, host, &mut purges);
        }
    }
    if purges.len() > MAX_OF_HEADER {
        let is_soft = purges.iter().all(|(_, how)| *how == PurgeMode::Soft);
        return vec![(Purge::All, if is_soft { PurgeMode::Soft } else { PurgeMode::Hard })];
    }
    purges
}

fn read_litespeed(part: &[u8], parts: &KeyParts, host: &str, purges: &mut Vec<(Purge, PurgeMode)>) {
    let mut of_part = PurgeMode::Hard;
    for (at, word) in headers::members(part).enumerate() {
        let text = String::from_utf8_lossy(word);
        match &*text {
            "private" if at == 0 => return,
            "public" if at == 0 => continue,
            "stale" => {
                of_part = PurgeMode::Soft;
                continue;
            }
            _ => {}
        }
        let (name, how) = match text.strip_suffix("~stale").or_else(|| text.strip_suffix("~s")) {
            Some(name) => (name, PurgeMode::Soft),
            None => (&*text, of_part),
        };
        if name == "*" {
            purges.push((Purge::All, how));
        } else if name.starts_with('/') {
            let (path, query) = match name.split_once('?') {
                Some((path, query)) => (path, Some(query)),
                None => (name, None),
            };
            let target = invalidate::target(parts, path, query);
            let host = invalidate::host(host);
            purges.extend(Purge::Url { host, target }.bounded().map(|url| (url, how)));
        } else {
            // The plugin for WordPress writes its tags without `tag=`.
            let tags = name.strip_prefix("tag=").unwrap_or(name).split_ascii_whitespace();
            let tags = tags.filter_map(|tag| Purge::Tag(tag.to_owned()).bounded());
            purges.extend(tags.map(|tag| (tag, how)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_address_is_purged_with_all_that_begin_the_same() {
        let host = || "a.example".to_owned();
        let of = |target: String| Purge::Url { host: host(), target }.bounded();
        let most = format!("/{}", "x".repeat(MAX_TARGET_BYTES - 1));
        assert_eq!(of(most.clone()), Some(Purge::Url { host: host(), target: most.clone() }));
        let start = Purge::Prefix { host: Some(host()), path: most.clone() };
        assert_eq!(of(format!("{most}y")), Some(start.clone()));
        let longer = Purge::Prefix { host: Some(host()), path: format!("{most}y") };
        assert_eq!(longer.bounded(), Some(start.clone()));
        assert_eq!(start.clone().bounded(), Some(start));
        // No character is cut in two.
        let path = format!("{}é", "x".repeat(MAX_TARGET_BYTES - 1));
        let path = Purge::Prefix { host: None, path }.bounded();
        let cut = "x".repeat(MAX_TARGET_BYTES - 1);
        assert_eq!(path, Some(Purge::Prefix { host: None, path: cut }));
        let header = format!("/{}", "x".repeat(70_000));
        let fields = [(&b"X-LiteSpeed-Purge"[..], header.as_bytes())];
        let asked = litespeed(fields.into_iter(), &KeyParts::default(), "A.example");
        let start = Purge::Prefix { host: Some(host()), path: most };
        assert_eq!(asked, [(start, PurgeMode::Hard)]);
    }

    #[test]
    fn of_a_header_too_many_purges_are_one_and_too_long_tags_none() {
        let of = |value: String| {
            let fields = [(&b"X-LiteSpeed-Purge"[..], value.as_bytes())];
            litespeed(fields.into_iter(), &KeyParts::default(), "a.example")
        };
        let tags = |count: usize| vec!["tag=t"; count].join(",");
        assert_eq!(of(tags(MAX_OF_HEADER)).len(), MAX_OF_HEADER);
        assert_eq!(of(tags(MAX_OF_HEADER + 1)), [(Purge::All, PurgeMode::Hard)]);
        let soft = of(format!("stale,{}", tags(MAX_OF_HEADER + 1)));
        assert_eq!(soft, [(Purge::All, PurgeMode::Soft)]);
        let mixed = of(format!("/x,stale,{}", tags(MAX_OF_HEADER)));
        assert_eq!(mixed, [(Purge::All, PurgeMode::Hard)]);
        let tag = |more: usize| format!("tag={}", "x".repeat(MAX_TAG_BYTES + more));
        assert_eq!((of(tag(0)).len(), of(tag(1)).len()), (1, 0));
        assert_eq!(of(vec![tag(70_000); 2 * MAX_OF_HEADER].join(",")), []);
    }

    #[test]
    fn no_page_has_a_host_that_no_key_holds() {
        let host = |more: usize| "h".repeat(MAX_KEY_BYTES + more);
        let of = |host: String| {
            let url = Purge::Url { host: host.clone(), target: "/".to_owned() };
            let prefix = Purge::Prefix { host: Some(host.clone()), path: "/".to_owned() };
            [url, prefix, Purge::Host(host)].into_iter().filter_map(Purge::bounded).count()
        };
        assert_eq!((of(host(0)), of(host(1))), (3, 0));
        assert_eq!(Purge::All.bounded(), Some(Purge::All));
    }

    #[test]
    fn litespeeds_purges_are_read() {
        let of = |value: &'static str| {
            let fields = [(&b"X-LiteSpeed-Purge"[..], value.as_bytes())];
            litespeed(fields.into_iter(), &KeyParts::default(), "A.example")
        };
        let tag = |tag: &str, how| (Purge::Tag(tag.to_owned()), how);
        assert_eq!(of("*"), [(Purge::All, PurgeMode::Hard)]);
        let hard = PurgeMode::Hard;
        assert_eq!(of("public, tag=a,tag=b c"), [tag("a", hard), tag("b", hard), tag("c", hard)]);
        assert_eq!(of("stale,tag=a"), [tag("a", PurgeMode::Soft)]);
        let url = Purge::Url { host: "a.example".to_owned(), target: "/x?y=1".to_owned() };
        assert_eq!(of("/x?y=1"), [(url, hard)]);
        assert_eq!(of("private,*; tag=a"), [tag("a", hard)]);
    }

    #[test]
    fn both_headers_of_litespeeds_purges_are_read() {
        let fields: [Field<'_>; 3] = [
            (b"X-LiteSpeed-Purge", b"public,a"),
            (b"X-Litespeed-Purge2", b"tag=PS1_P17,tag=PS1_H"),
            (b"X-LiteSpeed-Purge3", b"b"),
        ];
        let purges = litespeed(fields.into_iter(), &KeyParts::default(), "a.example");
        let tags = ["a", "PS1_P17", "PS1_H"];
        let tags = tags.map(|tag| (Purge::Tag(tag.to_owned()), PurgeMode::Hard));
        assert_eq!(purges, tags);
    }

    #[test]
    fn a_member_of_litespeeds_purges_is_a_tag_unless_it_is_something_else() {
        let of = |value: &'static str| {
            let fields = [(&b"X-LiteSpeed-Purge"[..], value.as_bytes())];
            litespeed(fields.into_iter(), &KeyParts::default(), "a.example")
        };
        let tag = |tag: &str, how| (Purge::Tag(tag.to_owned()), how);
        let (hard, soft) = (PurgeMode::Hard, PurgeMode::Soft);
        assert_eq!(of("public,4c8_Po.1,4c8_"), [tag("4c8_Po.1", hard), tag("4c8_", hard)]);
        assert_eq!(of("public,stale,a,b"), [tag("a", soft), tag("b", soft)]);
        assert_eq!(of("tag=a,b"), [tag("a", hard), tag("b", hard)]);
        assert_eq!(of("public,a;private,b,*"), [tag("a", hard)]);
        assert_eq!(of("private,a"), []);
        assert_eq!(of("a~s,tag=b~stale,c"), [tag("a", soft), tag("b", soft), tag("c", hard)]);
        assert_eq!(of("*~s"), [(Purge::All, soft)]);
        assert_eq!(of("public"), []);
    }
}
