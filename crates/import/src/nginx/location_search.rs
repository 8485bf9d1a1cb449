//! What nginx serves at a path: its rewrite phase, its choice of a location, and what that does.
//!
//! The order is that of `ngx_http_core_find_location` in nginx's `ngx_http_core_module.c`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

use pcre2::bytes::{Regex, RegexBuilder};

use super::location::Matcher;
use super::own_paths::{is_redirect, leads_elsewhere, tries_own_file};
use super::scope::Scope;
use super::served_files;
use crate::source_directive::Directive;
use crate::written_site::{Behind, Served};

/// Directives that pass requests on to a server that no site has, or respond themselves.
const HANDLERS: [&str; 7] =
    ["uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass", "stub_status", "empty_gif", "perl"];

/// A location, and those in it.
pub struct SearchedLocation<'a> {
    /// Its block.
    pub directive: &'a Directive,
    scope: Scope<'a>,
    matcher: Matcher,
    /// The expression, if it has one.
    regex: Option<Regex>,
    inner: Vec<SearchedLocation<'a>>,
}

/// A server with its locations.
pub struct SearchedServer<'a> {
    scope: Scope<'a>,
    locations: Vec<SearchedLocation<'a>>,
    expressions: Expressions,
}

/// What nginx does at a path, and the block that says so.
pub struct Found<'a> {
    /// What it serves; `None` if that depends on more than the path.
    pub served: Option<Served>,
    /// The file or the script that this is, if that is known.
    pub file: Option<String>,
    /// The block.
    pub by: &'a Directive,
}

impl<'a> SearchedServer<'a> {
    /// The server of this block.
    pub fn new(scope: Scope<'a>) -> SearchedServer<'a> {
        let locations = locations(&scope);
        SearchedServer { scope, locations, expressions: Expressions::default() }
    }

    /// What any client gets at a decoded path, if there is a file with its name.
    pub fn serve(&self, path: &str, server: &'a Directive) -> Found<'a> {
        let phase = RewritePhase { path, expressions: &self.expressions };
        if let Some((served, by)) = phase.lead(self.scope.directives()) {
            return Found { served, file: None, by };
        }
        match choose(&self.locations, path) {
            Some(location) => location.serve(&phase),
            None => {
                let served = of_access(&self.scope, of_tried(&self.scope));
                let file = served_files::file(&self.scope, path);
                Found { served: Some(served), file, by: server }
            }
        }
    }
}

fn locations<'a>(scope: &Scope<'a>) -> Vec<SearchedLocation<'a>> {
    let all = scope.own("location");
    let all = all.map(|directive| {
        let (matcher, scope) = (Matcher::of(directive), scope.inside(directive));
        let regex = match &matcher {
            Matcher::Regex(text) => compiled(text),
            _ => None,
        };
        let inner = locations(&scope);
        SearchedLocation { directive, scope, matcher, regex, inner }
    });
    all.collect()
}

fn compiled(text: &str) -> Option<Regex> {
    RegexBuilder::new().build(text).ok()
}

/// The location of a path: an exact one; those in the longest prefix; the first expression, unless
/// the prefix precedes it, with those in it; the prefix.
fn choose<'l, 'a>(all: &'l [SearchedLocation<'a>], path: &str) -> Option<&'l SearchedLocation<'a>> {
    let is_exact =
        |one: &&SearchedLocation<'_>| matches!(&one.matcher, Matcher::Exact(text) if text == path);
    if let Some(exact) = all.iter().find(is_exact) {
        return Some(exact);
    }
    let length = |one: &SearchedLocation<'_>| match &one.matcher {
        Matcher::Prefix { text, .. } if path.starts_with(text.as_str()) => Some(text.len()),
        _ => None,
    };
    let prefix = all.iter().filter(|one| length(one).is_some()).max_by_key(|one| length(one));
    let mut is_first = false;
    if let Some(prefix) = prefix {
        is_first = matches!(prefix.matcher, Matcher::Prefix { is_first: true, .. });
        let inner = choose(&prefix.inner, path);
        let ends = |one: &SearchedLocation<'_>| {
            matches!(one.matcher, Matcher::Exact(_) | Matcher::Regex(_))
        };
        match inner {
            // A prefix in a prefix does not end the search for expressions around it.
            Some(inner) if ends(inner) || is_first => return Some(inner),
            Some(inner) => return Some(by_expression(all, path).unwrap_or(inner)),
            None => {}
        }
    }
    match is_first {
        true => prefix,
        false => by_expression(all, path).or(prefix),
    }
}

/// The first expression that matches, or the location in it.
fn by_expression<'l, 'a>(
    all: &'l [SearchedLocation<'a>],
    path: &str,
) -> Option<&'l SearchedLocation<'a>> {
    let found = all.iter().find(|one| one.regex.as_ref().is_some_and(|regex| matches(regex, path)));
    found.map(|one| choose(&one.inner, path).unwrap_or(one))
}

fn matches(regex: &Regex, path: &str) -> bool {
    regex.is_match(path.as_bytes()).unwrap_or(false)
}

impl<'a> SearchedLocation<'a> {
    /// What it does with a path that nginx has chosen it for.
    fn serve(&self, phase: &RewritePhase<'_>) -> Found<'a> {
        if let Some((served, by)) = phase.lead(self.scope.directives()) {
            // A page of its own, in the place of one file.
            let is_page = self.is_exact() && by.first() == "200";
            return Found { served: served.filter(|_| !is_page), file: None, by };
        }
        let behind = match self.scope.has("internal") {
            // The script of the front controller, which clients may name here.
            true if self.scope.has("fastcgi_pass") => None,
            true => Some(Behind::Nothing),
            false => self.behind(phase.path),
        };
        let served = behind.map(|behind| of_access(&self.scope, behind));
        let file = match behind {
            Some(Behind::Script) => served_files::script(&self.scope, phase.path),
            _ => served_files::file(&self.scope, phase.path),
        };
        Found { served, file, by: self.directive }
    }

    fn is_exact(&self) -> bool {
        matches!(self.matcher, Matcher::Exact(_))
    }

    /// What is behind a path. `None` if it depends on more.
    fn behind(&self, path: &str) -> Option<Behind> {
        if self.scope.has("fastcgi_pass") {
            return Some(match self.script().is_none_or(|script| script.ends_with(path)) {
                true => Behind::Script,
                false => Behind::Nothing,
            });
        }
        if self.scope.has("proxy_pass") {
            return Some(Behind::Server);
        }
        if HANDLERS.iter().any(|name| self.scope.has(name)) {
            return Some(Behind::Nothing);
        }
        match of_tried(&self.scope) {
            // Another file in the place of one, too.
            Behind::Nothing if self.is_exact() => None,
            behind => Some(behind),
        }
    }

    /// The script that runs for all paths, if it is fixed.
    fn script(&self) -> Option<&'a str> {
        let parameters = self.scope.group(&["fastcgi_param"]);
        let mut named = parameters.iter().filter(|one| one.first() == "SCRIPT_FILENAME");
        let value = named.next_back()?.argument(1);
        let variables = ["$fastcgi_script_name", "$request_filename", "$uri", "$document_uri"];
        let is_of_path = variables.iter().any(|variable| value.contains(variable));
        let is_fixed = value.ends_with(".php") && !is_of_path;
        is_fixed.then_some(value)
    }
}

/// The files that a block sends: that of the path, unless `try_files` names others alone. No block
/// inherits `try_files`.
fn of_tried(scope: &Scope<'_>) -> Behind {
    match scope.own("try_files").last().is_none_or(tries_own_file) {
        true => Behind::File,
        false => Behind::Nothing,
    }
}

/// What the access rules of a block leave of what is behind a path.
fn of_access(scope: &Scope<'_>, behind: Behind) -> Served {
    let users = scope.get("auth_basic").filter(|realm| realm.first() != "off");
    let users = users.and_then(|_| scope.get("auth_basic_user_file"));
    let users = users.map(|file| PathBuf::from(file.first()));
    let is_any = users.is_some() && scope.get("satisfy").is_some_and(|one| one.first() == "any");
    let mut rules = scope.group(&["allow", "deny"]).into_iter();
    let first = rules.find(|rule| rule.first() == "all");
    match first.is_some_and(|rule| rule.name == "deny") && !is_any {
        true => Served::NOTHING,
        false => Served { behind, users: users.filter(|_| behind != Behind::Nothing) },
    }
}

/// Compiled expressions of the rewrite phase; `None` for one that is none of PCRE.
#[derive(Default)]
struct Expressions(RefCell<HashMap<String, Option<Regex>>>);

impl Expressions {
    /// Whether a path matches; `None` if that is unknown.
    fn match_path(&self, text: &str, path: &str) -> Option<bool> {
        let mut known = self.0.borrow_mut();
        if !known.contains_key(text) {
            known.insert(text.to_owned(), compiled(text));
        }
        known.get(text)?.as_ref().map(|regex| matches(regex, path))
    }
}

/// A path in the rewrite phase.
struct RewritePhase<'s> {
    path: &'s str,
    expressions: &'s Expressions,
}

impl RewritePhase<'_> {
    fn matches(&self, text: &str) -> Option<bool> {
        self.expressions.match_path(text, self.path)
    }

    /// What the rewrite phase of a block does with the path: nothing, or what it leads to.
    fn lead<'a>(&self, directives: &'a [Directive]) -> Option<(Option<Served>, &'a Directive)> {
        for directive in directives {
            match directive.name.as_str() {
                "return" => return Some((Some(Served::NOTHING), directive)),
                "rewrite" if self.matches(directive.first()) == Some(true) => {
                    let leads_away = leads_away(directive, self.path);
                    return Some((leads_away.then_some(Served::NOTHING), directive));
                }
                "if" if self.is_true(directive) => {
                    if let Some((served, _)) = self.lead(&directive.block) {
                        return Some((served, directive));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Whether the condition of an `if` about the path alone is true, for one with a file.
    fn is_true(&self, condition: &Directive) -> bool {
        const PATHS: [&str; 4] = ["$uri", "$document_uri", "$request_uri", "$request_filename"];
        let test = condition.arguments.join(" ");
        let inner = test.strip_prefix('(').and_then(|test| test.strip_suffix(')'));
        let parts: Vec<&str> = inner.unwrap_or(&test).trim().splitn(3, ' ').collect();
        match parts.as_slice() {
            ["-f" | "-e", "$request_filename" | "$document_root$uri"] => true,
            [name, how, text] if PATHS.contains(name) => match *how {
                "~" => self.matches(text) == Some(true),
                "~*" => self.matches(&format!("(?i){text}")) == Some(true),
                "!~" => self.matches(text) == Some(false),
                "!~*" => self.matches(&format!("(?i){text}")) == Some(false),
                "=" => *text == self.path,
                "!=" => *text != self.path,
                _ => false,
            },
            _ => false,
        }
    }
}

/// Whether a `rewrite` leads a path to another server, to a script, or to another path.
fn leads_away(rewrite: &Directive, path: &str) -> bool {
    let to_path = rewrite.argument(1).split('?').next().unwrap_or_default();
    is_redirect(rewrite) || to_path.contains(".php") || leads_elsewhere(rewrite) && to_path != path
}
