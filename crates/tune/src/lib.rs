//! `maitred tune`: measures a site as it is served, chooses how many workers its pool needs, proves
//! the choice in pairs of runs, and writes it to the configuration.
//!
//! - Pure: the order of measurements and their conclusions ([`course`]), the laws that measurements
//!   have to obey ([`laws`]), the choice ([`decide`]), recommended settings ([`settings`]), the
//!   trials of PHP's settings ([`php_terms`]), the report.
//! - Not pure: measuring and changing settings ([`runner`], [`target`]), and the requests
//!   ([`workload`]).

pub mod course;
pub mod danger;
pub mod decide;
pub mod growth;
pub mod html;
pub mod laws;
pub mod machine;
pub mod measurement;
pub mod php_memory;
pub mod php_terms;
pub mod processes;
pub mod report;
pub mod runner;
pub mod settings;
pub mod site;
pub mod target;
pub mod text;
pub mod timeline;
pub mod usl;
pub mod workload;
