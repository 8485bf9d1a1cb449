//! What the sections hold that do not apply by the files of the configuration, but may in Apache.

use std::borrow::Cow;
use std::collections::BTreeSet;

use maitred_htaccess::words::LogicalLine;

use super::config_reader::parsed;
use super::defined_names::{lets_in, refuses};
use super::known_directives::{ApacheDirective, known};
use super::module_names::has_module;
use super::{CONDITIONS, SECTIONS};
use crate::report::SourceLine;
use crate::source_directive::Directive;

/// Directives that decide without a finding about access: which host has a name, which folder or
/// application a path, what of a folder is shown, and whether rules apply.
const DECIDING: [&str; 12] = [
    "Alias",
    "AliasMatch",
    "DocumentRoot",
    "Options",
    "ProxyPass",
    "ProxyPassMatch",
    "Redirect",
    "RedirectMatch",
    "RedirectPermanent",
    "RewriteEngine",
    "ServerAlias",
    "ServerName",
];

/// Modules and names of sections that are left out.
#[derive(Debug, Default, Clone)]
pub(super) struct PerhapsNames {
    modules: BTreeSet<String>,
    /// The names of `Define`.
    pub defines: BTreeSet<String>,
}

impl PerhapsNames {
    /// Adds what the directives of a section load and define.
    pub fn extend(&mut self, directives: &[Directive]) {
        for one in directives {
            match () {
                () if one.is("LoadModule") => self.modules.insert(one.first().to_owned()),
                () if one.is("Define") => self.defines.insert(one.first().to_owned()),
                () => continue,
            };
        }
    }

    /// Whether a module is one of these, by its name in `<IfModule>`.
    pub fn has_module(&self, name: &str) -> bool {
        has_module(&self.modules, name)
    }
}

/// The directives of lines, without their sections.
pub(super) fn directives(lines: &[LogicalLine], place: &SourceLine) -> Vec<Directive> {
    let texts = lines.iter().map(|line| (line.number, String::from_utf8_lossy(&line.text)));
    let opening = texts.filter(|(_, text)| !text.starts_with("</"));
    let of =
        |(line, text): (usize, Cow<'_, str>)| parsed(&text, SourceLine { line, ..place.clone() });
    opening.map(of).collect()
}

/// Whether a directive of a section that is left out may decide who may see what.
pub(super) fn may_decide(directive: &Directive) -> bool {
    let is_one = |names: &[&str]| names.iter().any(|name| directive.is(name));
    if directive.is("<VirtualHost") || is_one(&DECIDING) {
        return true;
    }
    // What they hold is looked at on its own.
    if is_one(&SECTIONS) || is_one(&CONDITIONS) {
        return false;
    }
    let is_of_access =
        matches!(known(directive), ApacheDirective::Access | ApacheDirective::AccessByHand(_));
    is_of_access || refuses(directive, false) || lets_in(directive, false)
}
