//! The outcome of a cache lookup, as `Cache-Status` reports it (RFC 9211).

use std::fmt;

use crate::admit::NotStored;
use crate::eligibility::Bypass;

/// This cache's name in the `Cache-Status` header.
const NAME: &str = "maitred";

/// Why a request was forwarded to a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forward {
    /// It bypassed the cache.
    Bypass(Bypass),
    /// No entry for its URL.
    UriMiss,
    /// An entry for its URL, but none for its variant.
    VaryMiss,
    /// The entry was stale.
    Stale,
}

/// The outcome of a cache lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheStatus {
    /// Served from the cache.
    Hit {
        /// Seconds for which the entry remains fresh; negative if it is stale.
        ttl: i64,
        /// Why a stale entry was used, if it is stale.
        detail: Option<&'static str>,
    },
    /// Forwarded to a script.
    Forwarded {
        /// The reason.
        why: Forward,
        /// The response's status.
        status: Option<u16>,
        /// Seconds for which the response is stored, or why it is not.
        stored: Result<u64, NotStored>,
        /// The response of another request was waited for.
        is_collapsed: bool,
    },
}

impl CacheStatus {
    /// One word, as in nginx's `$upstream_cache_status`.
    pub fn word(&self) -> &'static str {
        match self {
            CacheStatus::Hit { detail: None, .. } => "HIT",
            CacheStatus::Hit { detail: Some(REVALIDATED), .. } => "REVALIDATED",
            CacheStatus::Hit { detail: Some(UPDATING), .. } => "UPDATING",
            CacheStatus::Hit { .. } => "STALE",
            CacheStatus::Forwarded { why, .. } => match why {
                Forward::Bypass(_) => "BYPASS",
                Forward::UriMiss | Forward::VaryMiss => "MISS",
                Forward::Stale => "EXPIRED",
            },
        }
    }
}

/// A stale entry is served while a fill runs.
pub const UPDATING: &str = "updating";
/// A stale entry is served because the fill failed.
pub const ON_ERROR: &str = "error";
/// The script has confirmed the cached response with a 304.
pub const REVALIDATED: &str = "revalidated";

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)?;
        match self {
            CacheStatus::Hit { ttl, detail } => {
                write!(f, "; hit; ttl={ttl}")?;
                match detail {
                    Some(detail) => write!(f, "; detail={detail}"),
                    None => Ok(()),
                }
            }
            CacheStatus::Forwarded { why, status, stored, is_collapsed } => {
                let (why, detail) = match why {
                    Forward::Bypass(Bypass::Method) => ("method", None),
                    Forward::Bypass(Bypass::Request) => ("request", None),
                    Forward::Bypass(why) => ("bypass", Some(why.as_str())),
                    Forward::UriMiss => ("uri-miss", None),
                    Forward::VaryMiss => ("vary-miss", None),
                    Forward::Stale => ("stale", None),
                };
                write!(f, "; fwd={why}")?;
                if let Some(status) = status {
                    write!(f, "; fwd-status={status}")?;
                }
                if *is_collapsed {
                    f.write_str("; collapsed")?;
                }
                match (stored, detail) {
                    (Ok(ttl), _) => write!(f, "; stored; ttl={ttl}"),
                    (Err(_), Some(detail)) => write!(f, "; detail={detail}"),
                    (Err(NotStored::Bypassed(_)), None) => Ok(()),
                    (Err(not), None) => write!(f, "; detail={not}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sfv::{List, Parser};

    use super::*;

    fn forwarded(why: Forward, stored: Result<u64, NotStored>) -> CacheStatus {
        CacheStatus::Forwarded { why, status: Some(200), stored, is_collapsed: false }
    }

    #[test]
    fn a_request_is_told_what_happened_in_words_that_others_read() {
        let bypass = |why| forwarded(Forward::Bypass(why), Err(NotStored::Bypassed(why)));
        let cases = [
            (CacheStatus::Hit { ttl: 9, detail: None }, "maitred; hit; ttl=9", "HIT"),
            (
                CacheStatus::Hit { ttl: -3, detail: Some(ON_ERROR) },
                "maitred; hit; ttl=-3; detail=error",
                "STALE",
            ),
            (
                forwarded(Forward::UriMiss, Ok(60)),
                "maitred; fwd=uri-miss; fwd-status=200; stored; ttl=60",
                "MISS",
            ),
            (
                forwarded(Forward::VaryMiss, Err(NotStored::SetCookie)),
                "maitred; fwd=vary-miss; fwd-status=200; detail=set-cookie",
                "MISS",
            ),
            (bypass(Bypass::Method), "maitred; fwd=method; fwd-status=200", "BYPASS"),
            (
                bypass(Bypass::PrivateCookie),
                "maitred; fwd=bypass; fwd-status=200; detail=private-cookie",
                "BYPASS",
            ),
        ];
        for (status, text, word) in cases {
            assert_eq!(status.to_string(), text);
            assert_eq!(status.word(), word);
            assert!(Parser::new(text).parse::<List>().is_ok(), "{text}");
        }
    }
}
