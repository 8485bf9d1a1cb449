//! `autoindex`: the folders that are listed.

use std::ptr;

use maitred_rules::Pattern;

use super::location::{Location, Matcher};
use super::scope::Scope;
use super::server::{ServerImport, refuses};
use crate::file_draft::Placed;
use crate::hidden_names::are_hidden;
use crate::regex_shapes::{matches_no_folder, shapes};
use crate::source_directive::Directive;
use crate::toml_text;

/// What a location does with its paths in place of files and lists.
const OTHERS: [&str; 4] = ["fastcgi_pass", "proxy_pass", "return", "internal"];

impl<'a> ServerImport<'_, 'a> {
    /// `autoindex` of the server and of its locations.
    pub(super) fn listings(&mut self, locations: &[Location<'a>]) {
        let of_server = self.scope.get("autoindex");
        if let Some(list) = of_server {
            self.keep(list);
        }
        if rewrites_folders(&self.scope) {
            let own = locations.iter().flat_map(|one| one.scope.own("autoindex"));
            return own.for_each(|list| self.keep(list));
        }
        if let Some(list) = of_server.filter(|list| list.first() == "on") {
            return self.lists_all(list, locations);
        }
        for (index, location) in locations.iter().enumerate() {
            for list in location.scope.own("autoindex") {
                match list.first() == "on" && !never_lists(&location.scope) {
                    true => self.listing(list, locations, index),
                    false => self.keep(list),
                }
            }
        }
    }

    /// The folders of all locations are listed.
    fn lists_all(&mut self, list: &'a Directive, locations: &[Location<'a>]) {
        self.site.settings.push("autoindex", Placed::new("\"/*\"".to_owned(), &list.place));
        for own in locations.iter().flat_map(|one| one.scope.own("autoindex")) {
            match own.first() {
                "on" => self.keep(own),
                _ => {
                    let why = "`autoindex` of the server lists this folder as well";
                    self.report.access_left_out(&own.place, &own.shown(), why);
                }
            }
        }
        let is_root = |one: &Location<'_>| {
            one.matcher.literal().is_some_and(|path| path.text == "/" && !path.is_exact)
        };
        let other = locations.iter().find(|one| has_files_alone(one));
        match other {
            Some(other) => self.lists_too(list, &other.directive.place.to_string()),
            None if never_lists(&self.scope) && !locations.iter().any(is_root) => {
                self.lists_too(list, &self.place.to_string());
            }
            None => {}
        }
    }

    /// The folders of one location are listed.
    fn listing(&mut self, list: &'a Directive, locations: &[Location<'a>], index: usize) {
        let location = &locations[index];
        let path = match location.pattern_without(&self.literals) {
            Ok(path) => path,
            Err(why) => {
                let why = format!("{why}; write `autoindex` of the site");
                return self.report.left_out(&list.place, &list.shown(), &why);
            }
        };
        self.site.settings.push("autoindex", Placed::new(toml_text::string(&path), &list.place));
        let mut others = locations.iter().enumerate().filter(|(at, other)| {
            // Nested ones precede expressions outside, wherever these stand.
            let is_chosen = *at < index || other.around.is_some() || is_below(other, location);
            *at != index && is_chosen && has_files_alone(other)
        });
        match others.find(|(_, other)| may_match(other, location, &path)) {
            Some((_, other)) => self.lists_too(list, &other.directive.place.to_string()),
            None => self.keep(list),
        }
    }

    fn lists_too(&mut self, list: &Directive, place: &str) {
        let why = format!(
            "folders are listed here, too, where the block at {place} decides, which lists none: \
             write `autoindex` of the site"
        );
        self.report.access_left_out(&list.place, &list.shown(), &why);
    }
}

/// Whether a location serves files in folders that nginx does not list.
fn has_files_alone(location: &Location<'_>) -> bool {
    let has_folders = match &location.matcher {
        Matcher::Exact(path) => path.ends_with('/'),
        Matcher::Prefix { .. } => true,
        Matcher::Regex(text) => !matches_no_folder(text) && !are_hidden(text),
        Matcher::Named(_) => false,
    };
    let lists = location.scope.get("autoindex").is_some_and(|list| list.first() == "on");
    let is_other = OTHERS.iter().any(|name| location.scope.has(name)) || refuses(location);
    has_folders && !is_other && (!lists || never_lists(&location.scope))
}

/// Whether the directives of a block itself lead all folders elsewhere.
fn never_lists(scope: &Scope<'_>) -> bool {
    let without_folders = |tried: &Directive| {
        let names = tried.arguments.split_last().map(|(_, names)| names).unwrap_or_default();
        !names.iter().any(|name| name.ends_with('/'))
    };
    scope.own("try_files").any(without_folders) || rewrites_folders(scope)
}

/// Whether a folder is no file for `if (!-f $request_filename)` of a block, which rewrites it.
fn rewrites_folders(scope: &Scope<'_>) -> bool {
    scope.own("if").any(|condition| {
        let test = condition.arguments.join(" ").replace(['(', ')'], "");
        let leads = |one: &Directive| ["rewrite", "return"].contains(&one.name.as_str());
        test.trim() == "!-f $request_filename" && condition.block.iter().any(leads)
    })
}

/// Whether a location is in another one, or has a longer prefix of its own.
fn is_below(location: &Location<'_>, other: &Location<'_>) -> bool {
    let is_inner = other.directive.block.iter().any(|one| ptr::eq(one, location.directive));
    let (own, prefix) = (location.matcher.literal(), other.matcher.literal());
    is_inner || own.zip(prefix).is_some_and(|(own, prefix)| own.text.starts_with(&prefix.text))
}

/// Whether a location may have folders among the listed ones of another, which are those of `path`.
fn may_match(location: &Location<'_>, lister: &Location<'_>, path: &str) -> bool {
    let (begin, is_prefix) = match &lister.matcher {
        Matcher::Regex(text) => (begin_of(text), false),
        other => (other.literal().map(|one| one.text).unwrap_or_default(), true),
    };
    let is_listed = |text: &str| {
        let folder = format!("{}/", text.trim_end_matches('/'));
        let below = format!("{folder}zz9/");
        Pattern::parse(path)
            .is_ok_and(|path| path.matches(folder.as_bytes()) || path.matches(below.as_bytes()))
    };
    let meets = |text: &str, is_exact: bool| {
        text.starts_with(&begin) && (!is_prefix || is_listed(text))
            || begin.starts_with(text) && !is_exact
    };
    match &location.matcher {
        Matcher::Regex(text) => {
            let around = location.around.as_deref().is_none_or(|around| meets(around, false));
            let found = shapes(text).unwrap_or_default();
            let mut paths = found.iter().map(|one| &one.path);
            around && (found.is_empty() || paths.any(|one| meets(&one.text, one.is_exact)))
        }
        other if is_prefix => other.literal().is_some_and(|one| is_listed(&one.text)),
        other => other.literal().is_some_and(|one| meets(&one.text, one.is_exact)),
    }
}

/// What all paths of an expression begin with, as far as it is plain.
fn begin_of(expression: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    let Some(rest) = expression.strip_prefix('^').filter(|rest| !rest.contains('|')) else {
        return String::new();
    };
    let end = rest.find(|c| !plain(c)).unwrap_or(rest.len());
    let is_repeated = rest[end..].starts_with(['*', '?', '{']);
    rest[..end - usize::from(is_repeated && end > 0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_begin_of_an_expression_is_that_of_all_its_paths() {
        for (expression, begin) in [
            ("^/a/b/.*/$", "/a/b/"),
            ("^/a/b?", "/a/"),
            ("^/a+", "/a"),
            ("/a/", ""),
            ("^/a/|/b/", ""),
            ("^*", ""),
        ] {
            assert_eq!(begin_of(expression), begin, "{expression}");
        }
    }
}
