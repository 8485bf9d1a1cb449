//! A load generator that tells the truth.
//!
//! - Pure: when requests are due ([`arrivals`]), what answers say ([`answer`], [`script`]), what is
//!   counted ([`latency`], [`tally`]), what is made of it.
//! - Not pure: [`generate`], which sends.
//!
//! It shares no code with what it measures, but for the bytes of FastCGI.

pub mod answer;
pub mod arrivals;
pub mod capacity;
pub mod clock;
pub mod compare;
pub mod doors;
pub mod familiar;
pub mod generate;
pub mod har;
pub mod html;
pub mod latency;
pub mod live;
pub mod machine;
pub mod outcome;
pub mod outside;
pub mod place;
pub mod plan;
pub mod replay;
pub mod report;
pub mod request;
pub mod script;
pub mod series;
pub mod slo;
pub mod statistics;
pub mod stream;
pub mod tally;
pub mod text;
pub mod watched;
pub mod words;
