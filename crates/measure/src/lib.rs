//! A load generator that tells the truth.
//!
//! - Pure: when requests are due ([`arrivals`]), what answers say ([`answer`], [`script`]), what is
//!   counted ([`latency`], [`tally`]), what is made of it.
//! - Not pure: [`generate`], which sends.
//!
//! It shares no code with what it measures, but for the bytes of FastCGI.

pub mod arrivals;
pub mod capacity;
pub mod clock;
pub mod compare;
pub mod endpoints;
pub mod fastcgi;
pub mod generate;
pub mod har;
pub mod html;
pub mod latency;
pub mod live;
pub mod other_tools;
pub mod outcome;
pub mod outside;
pub mod plan;
pub mod replay;
pub mod report;
pub mod request;
pub mod response;
pub mod series;
pub mod slo;
pub mod statistics;
pub mod stream;
pub mod tally;
pub mod text;
pub mod url;
pub mod usage;
pub mod watched;
