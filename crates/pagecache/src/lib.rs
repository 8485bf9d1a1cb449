//! The policy of a shared HTTP cache: which responses are stored, and which requests they serve.
//!
//! No I/O, no clock, no async: request headers, response headers and the time go in, decisions come
//! out. The rules are RFC 9111 (caching), RFC 5861 (stale responses), RFC 9213 (targeted cache
//! control), RFC 9875 (cache groups) and RFC 9211 (`Cache-Status`), unless a [`settings::Settings`]
//! overrides them.
//!
//! The life of a request:
//!
//! 1. [`cache_request::CacheRequest::survey`] scans the request header once,
//!    [`eligibility::Plan::make`] decides whether the cache may serve the request and whether the
//!    response may be stored, and [`key::Key::primary`] computes the cache key.
//! 2. [`reuse::judge`] checks the cache entry that was found. If it is usable, [`select::select`]
//!    chooses the full response, a range or a 304.
//! 3. On a miss, [`fills::Fills`] (the cache lock) starts a fill or waits for the one that is
//!    running; a stale entry is revalidated with [`reuse::validators`].
//! 4. When the response header arrives, [`admit::admit`] decides whether the response is stored,
//!    for how long and under which tags, or why not; [`stored::Stored::merge`] combines a 304 with
//!    the cached response.
//! 5. [`invalidate::after`] lists the entries that the request has invalidated.
//! 6. [`cache_status::CacheStatus`] reports the outcome to the client and the log.

/// Defines an enum of reasons with their names in the `Cache-Status` header and metrics. After `..`
/// it may have one more reason that contains the reason of another enum.
macro_rules! reasons {
    (
        $(#[doc = $enum_doc:literal])*
        pub enum $Enum:ident {
            $($(#[doc = $doc:literal])* $Reason:ident = $name:literal,)*
            $(.. $(#[doc = $other_doc:literal])* $Other:ident($Inner:ident))?
        }
    ) => {
        $(#[doc = $enum_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Enum {
            $($(#[doc = $doc])* $Reason,)*
            $($(#[doc = $other_doc])* $Other($Inner),)?
        }

        impl $Enum {
            /// All reasons of its own.
            pub const ALL: &'static [$Enum] = &[$($Enum::$Reason),*];

            /// Name in the `Cache-Status` header and metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($Enum::$Reason => $name,)*
                    $($Enum::$Other(why) => why.as_str(),)?
                }
            }
        }

        impl std::fmt::Display for $Enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

mod accept_header;
pub mod admit;
pub mod apps;
pub mod cache_control;
pub mod cache_request;
pub mod cache_status;
pub mod canonical_url;
pub mod codec;
pub mod coded_tags;
pub mod cookies;
pub mod eligibility;
pub mod fills;
pub mod fingerprint;
pub mod freshness;
pub mod headers;
pub mod invalidate;
pub mod key;
pub mod merge;
mod php_names;
pub mod purge;
pub mod reuse;
pub mod select;
pub mod settings;
pub mod stored;
pub mod tags;
pub mod vary;

/// Milliseconds since 1970, by the system clock.
pub type Millis = u64;
