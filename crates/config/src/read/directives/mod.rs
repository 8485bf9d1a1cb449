//! The tables of directives, one file per group, and the sections they belong to.

mod booted;
pub mod cache;
mod classic;
mod confinement;
mod forwarded_clients;
pub mod global;
pub mod jobs;
pub mod listeners;
mod mode;
pub mod output;
pub mod pools;
mod proxy_item;
mod purge_log;
mod queue;
mod redis_settings;
mod rule_items;
pub mod rules;
pub mod sites;
pub mod tls;
pub mod trace_export;
mod user_dirs;

use super::directive::{Directive, SectionTable};

fn names<T>(directives: &[Directive<T>]) -> impl Iterator<Item = &'static str> {
    directives.iter().map(|directive| directive.name)
}

pub(crate) const TOP: SectionTable = SectionTable {
    home: "the part of the file before the first section",
    settings: || names(global::DIRECTIVES).collect(),
    subsections: &["pools", "sites", "tls", "traces", POOL_DEFAULTS],
};

/// The section with settings of every pool that does not set them itself.
pub(crate) const POOL_DEFAULTS: &str = "pool_defaults";

pub(crate) const POOL: SectionTable = SectionTable {
    home: "[pools.NAME]",
    settings: || names(pools::DIRECTIVES).chain(names(listeners::DIRECTIVES)).collect(),
    subsections: &["commands", "schedules"],
};

pub(crate) const COMMANDS: SectionTable = SectionTable {
    home: "[[pools.NAME.commands]]",
    settings: || names(jobs::COMMANDS).collect(),
    subsections: &[],
};

pub(crate) const SCHEDULES: SectionTable = SectionTable {
    home: "[[pools.NAME.schedules]]",
    settings: || names(jobs::SCHEDULES).collect(),
    subsections: &[],
};

pub(crate) const SITE: SectionTable = SectionTable {
    home: "[[sites]]",
    settings: || {
        let rules = names(rules::DIRECTIVES).chain(names(output::DIRECTIVES));
        names(sites::DIRECTIVES).chain(rules).collect()
    },
    subsections: &["cache"],
};

pub(crate) const CACHE: SectionTable = SectionTable {
    home: "[sites.cache]",
    settings: || names(cache::DIRECTIVES).collect(),
    subsections: &[],
};

pub(crate) const TLS: SectionTable =
    SectionTable { home: "[tls]", settings: || names(tls::DIRECTIVES).collect(), subsections: &[] };

pub(crate) const TRACES: SectionTable = SectionTable {
    home: "[traces]",
    settings: || names(trace_export::DIRECTIVES).collect(),
    subsections: &[],
};

/// Whether a setting of this name takes a number with decimals, as its example shows. To others,
/// `8.2` is text: a version.
pub(crate) fn takes_decimals(name: &str) -> bool {
    fn found<T>(directives: &[Directive<T>], name: &str) -> bool {
        let named = directives.iter().find(|directive| directive.name == name);
        named.is_some_and(|directive| directive.example.parse::<f64>().is_ok())
    }
    found(global::DIRECTIVES, name)
        || found(pools::DIRECTIVES, name)
        || found(listeners::DIRECTIVES, name)
        || found(sites::DIRECTIVES, name)
        || found(rules::DIRECTIVES, name)
        || found(output::DIRECTIVES, name)
        || found(cache::DIRECTIVES, name)
        || found(tls::DIRECTIVES, name)
        || found(trace_export::DIRECTIVES, name)
}

/// The section that takes a setting of this name. Those of commands and schedules have common
/// names, which are no hint.
pub(crate) fn section_of(name: &str) -> Option<&'static str> {
    let sections = [TOP, POOL, SITE, CACHE, TLS, TRACES];
    let home = sections.iter().find(|section| (section.settings)().contains(&name));
    home.map(|section| section.home)
}
