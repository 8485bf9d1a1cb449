//! A load generator that reports what users experience.
//!
//! - Pure: due times ([`arrivals`]), reading responses ([`response`], [`fastcgi`]), counting
//!   ([`latency`], [`tally`]), statistics and reports.
//! - Not pure: [`generate`], which sends requests.
//!
//! It shares no code with the server that it measures, except the encoding of FastCGI.

pub mod arrivals;
pub mod capacity;
pub mod clock;
pub mod compare;
pub mod endpoints;
pub mod fastcgi;
pub mod generate;
pub mod har;
pub mod harmless;
pub mod html;
pub mod latency;
pub mod live;
pub mod marker;
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
