//! The scripts of a folder beside the document root: those alone that a location in it runs.

use super::location::Location;
use super::php_locations::{matches_path, scripts_of};
use super::server::{ANY_SCRIPT, ServerImport};
use crate::file_draft::Placed;
use crate::prefix_complement::{LiteralPath, without};
use crate::source_directive::Directive;
use crate::toml_text;

impl<'a> ServerImport<'_, 'a> {
    /// `deny_php` for the scripts of the folder of a location, as `from` names it, that no location
    /// in it runs. nginx has others in the folder around it. `path` is the prefix, with its slash.
    pub(super) fn folder_scripts(
        &mut self,
        location: &Location<'a>,
        from: &Directive,
        path: &str,
        locations: &[Location<'a>],
    ) {
        let inner = locations.iter().filter(|one| {
            let mut block = location.directive.block.iter();
            one.scope.has("fastcgi_pass") && block.any(|own| std::ptr::eq(own, one.directive))
        });
        let inner: Vec<&Location<'a>> = inner.collect();
        let any = format!("{}{ANY_SCRIPT}", path.trim_end_matches('/'));
        if inner.iter().any(|one| matches_path(one, any.as_bytes())) {
            return;
        }
        let some: Vec<Vec<LiteralPath>> = inner.into_iter().map(literal_scripts).collect();
        if some.iter().any(Vec::is_empty) {
            // The others are not in a list of what runs.
            if self.site.settings.list("allow_php").is_empty() {
                let why = "nginx runs some scripts of this folder alone: write `deny_php` for the \
                           others";
                self.report.access_left_out(&from.place, &from.shown(), why);
            }
            return;
        }
        let (pattern, why) = match some.is_empty() {
            true => (Some(format!("{path}*")), "no PHP in this location"),
            false => (without(path, &some.concat()), "no other PHP in this location"),
        };
        if let Some(pattern) = pattern {
            let item = Placed::because(toml_text::string(&pattern), &from.place, why);
            self.site.settings.push("deny_php", item);
        }
    }
}

/// The scripts that a location runs, with what follows their names. Empty if it does not name them.
fn literal_scripts(location: &Location<'_>) -> Vec<LiteralPath> {
    if let Some(own) = location.matcher.literal() {
        return vec![own];
    }
    let named = scripts_of(location).into_iter().flat_map(|script| {
        let below = LiteralPath { text: format!("{script}/"), is_exact: false };
        [LiteralPath { text: script, is_exact: true }, below]
    });
    named.collect()
}
