//! Purges: which cached responses are invalidated.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::headers::{self, Field};
use crate::invalidate;
use crate::settings::KeyParts;

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

/// The purges in a response's `X-LiteSpeed-Purge` header; `host` is the request's.
///
/// `*`, `tag=a, tag=b` (or `tag=a b`), and paths, with `stale,` before them for a soft purge.
/// Directives for private caches are ignored: there are none here.
pub fn litespeed<'a>(
    fields: impl Iterator<Item = Field<'a>>,
    parts: &KeyParts,
    host: &str,
) -> Vec<(Purge, PurgeMode)> {
    let mut purges = Vec::new();
    for value in headers::values(fields, "x-litespeed-purge") {
        for part in value.split(|byte| *byte == b';') {
            read_litespeed(part, parts, host, &mut purges);
        }
    }
    purges
}

fn read_litespeed(part: &[u8], parts: &KeyParts, host: &str, purges: &mut Vec<(Purge, PurgeMode)>) {
    let mut how = PurgeMode::Hard;
    for (at, word) in headers::members(part).enumerate() {
        let text = String::from_utf8_lossy(word).into_owned();
        match text.as_str() {
            "private" if at == 0 => return,
            "public" if at == 0 => {}
            "stale" => how = PurgeMode::Soft,
            "*" => purges.push((Purge::All, how)),
            _ => match text.strip_prefix("tag=") {
                Some(tags) => {
                    let tags = tags.split_ascii_whitespace();
                    purges.extend(tags.map(|tag| (Purge::Tag(tag.to_owned()), how)));
                }
                None if text.starts_with('/') => {
                    let (path, query) = match text.split_once('?') {
                        Some((path, query)) => (path, Some(query)),
                        None => (text.as_str(), None),
                    };
                    let target = invalidate::target(parts, path, query);
                    let host = invalidate::host(host);
                    purges.push((Purge::Url { host, target }, how));
                }
                None => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(of("nonsense"), []);
    }
}
