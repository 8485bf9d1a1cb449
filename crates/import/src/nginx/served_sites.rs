//! The sites of nginx as its clients see them.

use super::listeners;
use super::location::Matcher;
use super::scope::Scope;
use super::{folder_of, prefix_paths, tree};
use crate::FileReader;
use crate::listen_addresses::Listen;
use crate::report::{ImportReport, SourceLine};
use crate::served::{RuleChoice, RulePaths, ServedAddress, ServedRule, ServedSite};
use crate::source_directive::Directive;

/// The access log of nginx's packages, which is used without a directive.
const DEFAULT_LOG: &str = "/var/log/nginx/access.log";

/// The directives that decide what a location does, in the order in which they take effect.
const DECIDING: [&str; 12] = [
    "rewrite",
    "return",
    "internal",
    "deny",
    "auth_basic",
    "auth_request",
    "fastcgi_pass",
    "proxy_pass",
    "try_files",
    "alias",
    "root",
    "add_header",
];

/// The sites of nginx's configuration in `main`.
///
/// # Errors
/// One sentence: the configuration cannot be read or has a syntax error.
pub fn served_sites(files: &dyn FileReader, main: &str) -> Result<Vec<ServedSite>, String> {
    let mut unreported = ImportReport::default();
    let mut tree = tree::read(files, main, &mut unreported)?;
    prefix_paths::complete(&mut tree, folder_of(main), files, &mut unreported);
    let Some(http) = tree.iter().find(|one| one.name == "http") else { return Ok(Vec::new()) };
    let scope = Scope::new(http);
    let mut sites: Vec<ServedSite> =
        scope.own("server").map(|server| site(&scope.inside(server), server)).collect();
    if !sites.iter().any(|site| site.is_default)
        && let Some(first) = sites.first_mut()
    {
        first.is_default = true;
    }
    Ok(sites)
}

fn site(scope: &Scope<'_>, server: &Directive) -> ServedSite {
    let (listens, _) = listeners::of(scope);
    let names = scope.own("server_name").flat_map(|one| &one.arguments).filter_map(|one| name(one));
    let logs = scope.group(&["access_log"]);
    let mut access_logs: Vec<String> = logs
        .iter()
        .map(|log| log.first().to_owned())
        .filter(|log| log.starts_with('/') && !log.contains('$'))
        .collect();
    if logs.is_empty() {
        access_logs.push(DEFAULT_LOG.to_owned());
    }
    let of_root = scope.own("location").find(|one| one.arguments == ["/"]);
    let inner = of_root.and_then(|one| {
        one.block.iter().find(|one| ["root", "alias"].contains(&one.name.as_str()))
    });
    let root = inner.or(scope.get("root"));
    let is_rule = |one: &&Directive| one.name != "location";
    ServedSite {
        place: server.place.clone(),
        names: names.collect(),
        is_default: listens.iter().any(|listen| listen.is_default),
        addresses: listens.iter().map(address).collect(),
        root: root.map(|root| root.first().to_owned()).filter(|root| root.starts_with('/')),
        aliases: Vec::new(),
        access_logs,
        rules: rules(scope),
        general: server.block.iter().filter(is_rule).map(|one| one.place.clone()).collect(),
        choice: RuleChoice::Location,
    }
}

/// The rules of a server for paths.
pub(super) fn rules(scope: &Scope<'_>) -> Vec<ServedRule> {
    let mut rules = Vec::new();
    before_locations(scope, &mut rules);
    locations(scope, None, &mut rules);
    rules
}

fn address(listen: &Listen) -> ServedAddress {
    ServedAddress { host: listen.host.clone(), port: listen.port, is_tls: listen.is_tls }
}

/// A name that a client can send: one below a wildcard.
fn name(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    match text.as_str() {
        "" | "_" | "*" => None,
        _ if text.starts_with("*.") => Some(format!("www{}", &text[1..])),
        _ if text.starts_with('.') => Some(text[1..].to_owned()),
        _ if text.ends_with(".*") => Some(format!("{}example", &text[..text.len() - 1])),
        _ if text.contains(['~', '$', '*']) => None,
        _ => Some(text),
    }
}

/// `rewrite`, `return` and `if` of the server.
fn before_locations(scope: &Scope<'_>, rules: &mut Vec<ServedRule>) {
    for directive in scope.directives() {
        if directive.name == "if" && directive.arguments.join(" ").contains("!-") {
            for rewrite in directive.block.iter().filter(|one| one.name == "rewrite") {
                let mut rule = rewritten(rewrite, rewrite.first().to_owned());
                rule.inner.push(directive.place.clone());
                rules.push(rule);
            }
            continue;
        }
        let expression = match directive.name.as_str() {
            "rewrite" => Some(directive.first().to_owned()),
            "return" => Some(String::new()),
            "if" => by_path(directive),
            _ => None,
        };
        let Some(expression) = expression else { continue };
        rules.push(rewritten(directive, expression));
        if directive.name == "return" {
            return;
        }
    }
}

/// A rule before all locations.
fn rewritten(directive: &Directive, expression: String) -> ServedRule {
    let paths = RulePaths::Regex(expression);
    let mut rule = ServedRule::new(paths, &directive.place, &shown(directive));
    rule.is_before = true;
    rule.inner = places(directive);
    rule
}

/// The expression of an `if` for paths.
fn by_path(condition: &Directive) -> Option<String> {
    let test = condition.arguments.join(" ");
    let test = test.trim_start_matches('(').trim_end_matches(')').trim();
    let parts: Vec<&str> = test.splitn(3, ' ').collect();
    match parts.as_slice() {
        ["$uri" | "$request_uri" | "$document_uri", "~", text] => Some((*text).to_owned()),
        ["$uri" | "$request_uri" | "$document_uri", "~*", text] => Some(format!("(?i){text}")),
        ["$uri" | "$request_uri", "=", path] => Some(format!("^{}$", regex::escape(path))),
        _ => None,
    }
}

fn locations(scope: &Scope<'_>, around: Option<&str>, rules: &mut Vec<ServedRule>) {
    for directive in scope.own("location") {
        let paths = match Matcher::of(directive) {
            Matcher::Exact(text) => RulePaths::Exact(text),
            Matcher::Prefix { text, is_first } => RulePaths::Prefix { text, is_first },
            Matcher::Regex(text) => RulePaths::Regex(text),
            Matcher::Named(_) => continue,
        };
        let inside = scope.inside(directive);
        let prefix = match &paths {
            RulePaths::Prefix { text, .. } | RulePaths::Exact(text) => Some(text.clone()),
            RulePaths::Folder(_) | RulePaths::Regex(_) => around.map(str::to_owned),
        };
        locations(&inside, prefix.as_deref(), rules);
        let mut rule = ServedRule::new(paths, &directive.place, &shown(directive));
        rule.around = around.map(str::to_owned);
        rule.inner = places(directive);
        // Those of the location around it are inherited.
        rule.inner.extend(inside.group(&["error_page"]).iter().map(|one| one.place.clone()));
        rule.inner.extend(named(scope, directive).iter().flat_map(|one| places(one)));
        rules.push(rule);
    }
}

/// The named locations to which `try_files` and `error_page` of a location lead.
fn named<'a>(scope: &Scope<'a>, location: &Directive) -> Vec<&'a Directive> {
    let leads = |one: &&Directive| ["try_files", "error_page"].contains(&one.name.as_str());
    let names: Vec<&str> = location
        .block
        .iter()
        .filter(leads)
        .filter_map(|one| one.arguments.last())
        .map(String::as_str)
        .filter(|name| name.starts_with('@'))
        .collect();
    scope.own("location").filter(|one| names.contains(&one.first())).collect()
}

/// The places of the directives in a block, without those of inner locations.
fn places(directive: &Directive) -> Vec<SourceLine> {
    let own = directive.block.iter().filter(|one| one.name != "location");
    own.flat_map(|one| [vec![one.place.clone()], places(one)].concat()).collect()
}

/// A block with the directive in it that decides.
fn shown(directive: &Directive) -> String {
    let find = |name: &str| directive.block.iter().find(|one| one.name == name);
    match DECIDING.iter().find_map(|name| find(name)) {
        Some(deciding) => format!("{} {{ {}; }}", directive.shown(), deciding.shown()),
        None => directive.shown(),
    }
}
