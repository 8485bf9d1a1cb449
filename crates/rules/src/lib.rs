//! What a site says about paths and clients, and what that means for a request.
//!
//! No I/O, no clock, no async: [`settings::Rules`] is what was read, [`site::SiteRules`] is the same
//! ready to be asked, and [`site::SiteRules::decide`] tells what becomes of a request. A path is
//! decoded once ([`path::clean_path`]) and then compared as bytes, so that no way of writing it
//! escapes a rule.

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
