//! Paths that nginx serves to fewer clients than the written site does, found by comparing both.
//!
//! The rules of import are many, and each may miss a case. This is the last of them, and knows none
//! of the others: it looks at paths for all expressions and prefixes of a server, and compares.

use maitred_rules::path::is_php_source;

use super::location_search::{Found, SearchedServer};
use super::scope::Scope;
use super::served_sites;
use crate::report::{ImportReport, SourceLine};
use crate::rule_examples::crossed;
use crate::source_directive::Directive;
use crate::written_site::{Behind, Served, WrittenSite, WrittenSites};

/// Names the blocks of nginx whose paths are served to more clients.
pub fn report(written: &WrittenSites, http: &Scope<'_>, report: &mut ImportReport) {
    for directive in http.own("server") {
        let Some(site) = written.from(&directive.place.to_string()) else { continue };
        let scope = http.inside(directive);
        let crossed = crossed(&served_sites::rules(&scope));
        report.compares(&crossed);
        let server = SearchedServer::new(scope);
        for path in crossed.paths {
            let found = server.serve(&path, directive);
            if let Some(how) = laxer(&found, site, &path) {
                add(report, found.by, &path, how);
            }
        }
    }
}

/// Adds a finding for a block that has none about access.
fn add(report: &mut ImportReport, by: &Directive, path: &str, how: &str) {
    let is_there =
        |place: &SourceLine| *place == by.place || by.block.iter().any(|one| one.place == *place);
    if !report.leaves_access_out(is_there) {
        let why =
            format!("at paths such as `{path}` {how}: write `deny` or `deny_php` of the site");
        report.access_left_out(&by.place, &by.shown(), &why);
    }
}

/// How a written site is laxer than nginx at a path.
fn laxer(found: &Found<'_>, site: &WrittenSite, path: &str) -> Option<&'static str> {
    let (old, new) = (found.served.as_ref()?, site.serve(path));
    let is_other = || found.file.as_ref().is_some_and(|file| !is_same(file, &site.file(path)));
    match (old.behind, new.behind) {
        // There is no file with the name of a folder.
        (_, Behind::File | Behind::Script) if path.ends_with('/') => None,
        (_, Behind::Nothing) => None,
        (Behind::Nothing, Behind::Script) => Some("nginx runs no script with this name"),
        (Behind::Nothing | Behind::Server, Behind::File) => {
            Some("nginx sends no file to everybody")
        }
        (Behind::Nothing, Behind::Server) => Some("nginx passes nothing to another server"),
        (Behind::File | Behind::Server, Behind::Script) => Some("nginx runs no script"),
        // Static files beside another server are usual, and have an ending.
        (Behind::File, Behind::Server) if !path.rsplit('/').next()?.contains('.') => {
            Some("nginx passes nothing to another server")
        }
        // php-fpm refuses names that are none of scripts, or runs them as scripts.
        (Behind::Script, Behind::File) if has_other_ending(path) => {
            Some("nginx passes it to PHP, and sends no file")
        }
        (Behind::Script, Behind::File) => None,
        (Behind::File, Behind::File) if is_other() => Some("nginx sends no file of this folder"),
        (Behind::Script, Behind::Script) if is_other() => {
            Some("nginx runs no script of this folder")
        }
        _ if old.users.is_some() && !has_users_of(old, &new) => {
            Some("nginx requires one of other users")
        }
        _ => None,
    }
}

/// Whether the name of a path has an ending, and none of a script: a name without one may be a page
/// of php-fpm itself, such as `/fpm-status`.
fn has_other_ending(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    // The dot of `^/update.php` is any letter.
    let is_script = |name: &str| name.ends_with("php") || is_php_source(name.as_bytes());
    name.contains('.') && !path.split('/').any(is_script)
}

/// Whether a file is that of nginx, where a relative name is one below any folder.
fn is_same(old: &str, new: &str) -> bool {
    match old.starts_with('/') {
        true => new == old,
        false => new.strip_suffix(old).is_some_and(|folder| folder.ends_with('/')),
    }
}

fn has_users_of(old: &Served, new: &Served) -> bool {
    match (&old.users, &new.users) {
        // A relative path is one in the folder of nginx's configuration.
        (Some(old), Some(new)) => new.ends_with(old.strip_prefix("/").unwrap_or(old)),
        _ => false,
    }
}
