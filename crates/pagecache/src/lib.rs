//! The policy of a shared HTTP cache: which responses are stored, and which requests they serve.
//!
//! No I/O, no clock, no async: request heads, response heads and the time go in, decisions come
//! out. The rules are RFC 9111 (caching), RFC 5861 (stale responses), RFC 9213 (targeted cache
//! control), RFC 9875 (cache groups) and RFC 9211 (`Cache-Status`), unless a [`settings::Settings`]
//! overrides them.
//!
//! The life of a request:
//!
//! 1. [`cache_request::CacheRequest::survey`] scans the request head once,
//!    [`eligibility::Plan::make`] decides whether the cache may serve the request and whether the
//!    response may be stored, and [`key::Key::primary`] computes the cache key.
//! 2. [`reuse::judge`] checks the cache entry that was found. If it is usable, [`select::select`]
//!    chooses the full response, a range or a 304.
//! 3. On a miss, [`fills::Fills`] (the cache lock) starts a fill or waits for the one that is
//!    running; a stale entry is revalidated with [`reuse::validators`].
//! 4. When the response head arrives, [`admit::admit`] decides whether the response is stored, for
//!    how long and under which tags, or why not; [`stored::Stored::merge`] combines a 304 with the
//!    cached response.
//! 5. [`invalidate::after`] lists the entries that the request has invalidated.
//! 6. [`cache_status::CacheStatus`] reports the outcome to the client and the log.

pub mod admit;
pub mod apps;
pub mod cache_control;
pub mod cache_request;
pub mod cache_status;
pub mod canonical_url;
pub mod cookies;
pub mod eligibility;
pub mod fills;
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
