//! `types`: the types of files by their endings. Here they are always the usual ones.

use super::location::{Location, Matcher};
use super::scope::Scope;
use super::server::ServerImport;
use crate::active_types::ACTIVE;
use crate::regex_shapes::never_ends_in;
use crate::source_directive::Directive;

/// nginx's type of a file whose ending has none.
const DEFAULT_TYPE: &str = "text/plain";

impl<'a> ServerImport<'_, 'a> {
    /// Says what types of files are not those of nginx.
    pub(super) fn file_types(&mut self, scope: &Scope<'a>, location: Option<&Location<'a>>) {
        let sends = ["return", "proxy_pass", "fastcgi_pass"].iter().all(|name| !scope.has(name));
        let own: Vec<&Directive> = scope.own("types").collect();
        let Some(first) = own.first().filter(|_| sends) else { return };
        let default = scope.get("default_type").map_or(DEFAULT_TYPE, |one| one.first());
        let entries: Vec<&Directive> = own.iter().flat_map(|one| &one.block).collect();
        let is_other = |(ending, usual): &&(&str, &[&str])| {
            let has = |one: &&&Directive| {
                one.arguments.iter().any(|name| name.eq_ignore_ascii_case(ending))
            };
            let kind = entries.iter().rfind(has).map_or(default, |one| one.name.as_str());
            may_end_in(location, ending) && !usual.iter().any(|end| kind.ends_with(end))
        };
        let others: Vec<&str> = ACTIVE.iter().filter(is_other).map(|one| one.0).collect();
        let (place, shown) = (&first.place, first.shown());
        match others.is_empty() {
            true => {
                let why = "the type of a file is that of its ending";
                self.report.changed(place, &shown, why);
            }
            false => {
                let why = format!(
                    "browsers run files that end in {} here: set `Content-Type` in `headers` of \
                     the site for these paths, or deny them",
                    others.join(", ")
                );
                self.report.access_left_out(place, &shown, &why);
            }
        }
        own.iter().for_each(|one| self.report.cover(one));
    }
}

/// Whether a path of a location may have an ending.
fn may_end_in(location: Option<&Location<'_>>, ending: &str) -> bool {
    let ending = format!(".{ending}");
    match location.map(|one| &one.matcher) {
        Some(Matcher::Exact(path)) => path.ends_with(&ending),
        Some(Matcher::Regex(text)) => !never_ends_in(text, ending.as_bytes()),
        _ => true,
    }
}
