//! The tables of directives, one file per group.

mod confinement;
pub mod pools;
pub mod sites;
pub mod top;

/// The section in which a setting of this name belongs.
pub(crate) fn section_of(name: &str) -> Option<&'static str> {
    if top::DIRECTIVES
        .iter()
        .any(|directive| directive.name == name)
    {
        return Some("the part of the file before the first section");
    }
    if pools::DIRECTIVES
        .iter()
        .any(|directive| directive.name == name)
    {
        return Some("[pools.NAME]");
    }
    sites::DIRECTIVES
        .iter()
        .any(|directive| directive.name == name)
        .then_some("[[sites]]")
}
