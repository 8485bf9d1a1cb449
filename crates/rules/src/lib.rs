//! The rules of a site about paths and clients, and their evaluation for a request.
//!
//! No I/O, no clock, no async: [`settings::Rules`] is the configuration, [`site::SiteRules`] is its
//! compiled form, and [`site::SiteRules::decide`] evaluates a request. A path is decoded once
//! ([`path::clean_path`]) and then compared as bytes, so that no spelling of a path escapes a rule.

pub mod apps;
pub mod coding;
pub mod dress;
pub mod forwarded;
pub mod networks;
pub mod path;
pub mod pattern;
pub mod rate;
pub mod settings;
pub mod site;
pub mod source;
mod table;
mod template;
pub mod users;

pub use ipnet::IpNet;
pub use pattern::Pattern;
pub use settings::Rules;
pub use site::SiteRules;
