//! `maitred tune`: measures a site as it is served, decides how many workers its pool needs, proves it in
//! pairs of runs, and writes it down.
//!
//! - Pure: what is measured next and what follows from it ([`course`]), the laws that figures have to obey
//!   ([`laws`]), the choice ([`decide`]), what other servers' settings follow ([`settings`]), the report.
//! - Not pure: who sends and changes settings ([`runner`], [`target`]), and what is asked for
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
