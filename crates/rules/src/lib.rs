//! The rules of a site about paths and clients, and their evaluation for a request.
//!
//! No I/O, no clock, no async: [`settings::Rules`] is the configuration, [`site_rules::SiteRules`]
//! is its compiled form, and [`site_rules::SiteRules::decide`] evaluates a request. A path is
//! decoded once ([`path::clean_path`]) and then compared as bytes, so that no spelling of a path
//! escapes a rule.

pub mod apps;
mod apr1;
mod argon2_hash;
pub mod content_encoding;
mod crypt_hash;
pub mod forwarded;
mod hash_cost;
pub mod htpasswd;
pub mod networks;
pub mod path;
pub mod pattern;
pub mod pattern_table;
pub mod php_source;
pub mod proxy_header;
pub mod rate;
pub mod response_headers;
pub mod settings;
pub mod site_rules;
mod template;

pub use ipnet::IpNet;
pub use pattern::Pattern;
pub use settings::Rules;
pub use site_rules::SiteRules;
