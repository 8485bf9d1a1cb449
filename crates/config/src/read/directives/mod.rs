//! The tables of directives, one file per group.

mod booted;
pub mod cache;
pub(crate) mod classic;
mod confinement;
pub mod doors;
mod mode;
pub mod output;
pub mod pools;
mod proxy_item;
mod queue;
mod rule_items;
pub mod rules;
pub mod sites;
pub mod tls;
pub mod top;

/// The section in which a setting of this name belongs.
pub(crate) fn section_of(name: &str) -> Option<&'static str> {
    if top::DIRECTIVES
        .iter()
        .any(|directive| directive.name == name)
    {
        return Some("the part of the file before the first section");
    }
    let in_pools = pools::DIRECTIVES.iter().map(|directive| directive.name);
    let of_doors = doors::DIRECTIVES.iter().map(|directive| directive.name);
    if in_pools.chain(of_doors).any(|known| known == name) {
        return Some("[pools.NAME]");
    }
    let of_sites = sites::DIRECTIVES.iter().map(|directive| directive.name);
    let of_rules = rules::DIRECTIVES.iter().map(|directive| directive.name);
    let of_output = output::DIRECTIVES.iter().map(|directive| directive.name);
    let mut of_sites = of_sites.chain(of_rules).chain(of_output);
    if of_sites.any(|known| known == name) {
        return Some("[[sites]]");
    }
    if cache::DIRECTIVES
        .iter()
        .any(|directive| directive.name == name)
    {
        return Some("[sites.cache]");
    }
    tls::DIRECTIVES
        .iter()
        .any(|directive| directive.name == name)
        .then_some("[tls]")
}
