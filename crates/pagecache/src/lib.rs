//! What a shared cache of HTTP may keep, and may answer with.
//!
//! No I/O, no clock, no async: heads of requests and answers and the time come in, decisions come
//! out. Rules are those of RFC 9111 (caching), RFC 5861 (stale answers), RFC 9213 (targeted cache
//! control), RFC 9875 (groups) and RFC 9211 (what is told of it), unless a [`settings::Settings`]
//! says otherwise.
//!
//! The life of a request, as whoever drives this sees it:
//!
//! 1. [`asked::Asked::survey`] looks at the request's head once, [`plan::Plan::make`] decides whether
//!    it may be answered from the cache and whether its answer may be kept, and
//!    [`key::Key::primary`] says under which key.
//! 2. What was found is judged: [`reuse::judge`]. If it will do, [`select::select`] says how much of
//!    it the client gets.
//! 3. If not, [`fills::Fills`] says whether to have the answer made, or to wait for whoever does
//!    already; a stored answer that is stale is asked for with [`reuse::validators`].
//! 4. When the head of the answer is there, [`admit::admit`] says whether it is kept, for how long
//!    and under which tags, or why not; after a 304 [`merge::merge`] makes one answer of two.
//! 5. [`invalidate::after`] names what the request has made out of date.
//! 6. [`status::CacheStatus`] tells all that to whoever asked.

pub mod admit;
pub mod apps;
pub mod asked;
pub mod control;
pub mod cookies;
pub mod fields;
pub mod fills;
pub mod freshness;
pub mod invalidate;
pub mod key;
pub mod merge;
mod names;
pub mod plain;
pub mod plan;
pub mod purge;
pub mod reuse;
pub mod select;
pub mod settings;
pub mod status;
pub mod stored;
pub mod tags;
pub mod vary;

/// Milliseconds since 1970, as the machine's clock has them.
pub type Millis = u64;
