//! Paths that nginx serves to fewer clients than the written site does, found by comparing both.
//!
//! The rules of import are many, and each may miss a case. This is the last of them, and knows none
//! of the others: it looks at paths for all expressions and prefixes of a server, and compares.

use std::collections::BTreeSet;

use super::location_search::SearchedServer;
use super::scope::Scope;
use super::served_sites;
use crate::report::{ImportReport, Outcome};
use crate::rule_examples::examples;
use crate::source_directive::Directive;
use crate::written_site::{Behind, Served, WrittenSites};

/// Most folders, and most names, that are combined for a server.
const MAX_PARTS: usize = 48;

/// Names that no configuration has.
const NAMES: [&str; 3] = ["zz9.php", "zz9.txt", "zz9"];

/// Names the blocks of nginx whose paths are served to more clients.
pub fn report(written: &WrittenSites, http: &Scope<'_>, report: &mut ImportReport) {
    for directive in http.own("server") {
        let Some(site) = written.from(&directive.place.to_string()) else { continue };
        let scope = http.inside(directive);
        let paths = paths(&scope);
        let server = SearchedServer::new(scope);
        for path in paths {
            let found = server.serve(&path, directive);
            let Some(old) = found.served else { continue };
            if let Some(how) = laxer(&old, &site.serve(&path)) {
                add(report, found.by, &path, how);
            }
        }
    }
}

/// Adds a finding for a block that has none about access.
fn add(report: &mut ImportReport, by: &Directive, path: &str, how: &str) {
    let is_named = report.findings().iter().any(|finding| {
        finding.outcome == Outcome::LeftOutAccess
            && (finding.place == by.place || by.block.iter().any(|one| one.place == finding.place))
    });
    if !is_named {
        let why =
            format!("at paths such as `{path}` {how}: write `deny` or `deny_php` of the site");
        report.access_left_out(&by.place, &by.shown(), &why);
    }
}

/// How a written site is laxer than nginx.
fn laxer(old: &Served, new: &Served) -> Option<&'static str> {
    match (old.behind, new.behind) {
        (_, Behind::Nothing) => None,
        (Behind::Nothing, Behind::Script) => Some("nginx runs no script with this name"),
        (Behind::Nothing, Behind::File) => Some("nginx sends no file to everybody"),
        (Behind::File, Behind::Script) => Some("nginx runs no script"),
        // A location that passes files to PHP is named by the rules for PHP.
        (Behind::Script, Behind::File) => None,
        _ if old.users.is_some() && !has_users_of(old, new) => {
            Some("nginx requires one of other users")
        }
        _ => None,
    }
}

fn has_users_of(old: &Served, new: &Served) -> bool {
    match (&old.users, &new.users) {
        // A relative path is one in the folder of nginx's configuration.
        (Some(old), Some(new)) => new.ends_with(old.strip_prefix("/").unwrap_or(old)),
        _ => false,
    }
}

/// Paths of all locations, and names of each in the folders of the others.
fn paths(scope: &Scope<'_>) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = BTreeSet::new();
    for rule in served_sites::rules(scope) {
        let found = examples(&rule);
        all.extend(found.matching.into_iter().chain(found.beside));
    }
    let (mut folders, mut names) = (BTreeSet::from(["/".to_owned()]), BTreeSet::new());
    for path in &all {
        let (folder, name) = path.rsplit_once('/').unwrap_or_default();
        folders.insert(format!("{folder}/"));
        names.insert(name.to_owned());
    }
    let names: BTreeSet<String> = names.into_iter().take(MAX_PARTS).collect();
    for folder in folders.iter().take(MAX_PARTS) {
        let names = names.iter().map(String::as_str).chain(NAMES);
        all.extend(names.map(|name| format!("{folder}{name}")));
    }
    // A folder is none of these, and paths below a script are those of the script.
    all.retain(|path| !path.ends_with('/') && !path.contains(".php/"));
    all
}
