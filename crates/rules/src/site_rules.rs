//! Evaluation of a site's rules for a request.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use crate::networks::Networks;
use crate::path::{CleanPath, clean_path, encode_path};
use crate::pattern_table::Table;
use crate::response_headers::{HeaderPolicy, HeaderRules};
use crate::settings::{BasicAuth, PathSettings, Redirect, Rewrite, Rules};
use crate::template::{Template, TemplateVars};

/// Most rewrites of one request (nginx's limit).
pub const MAX_REWRITES: usize = 10;

/// The compiled rules of one site.
#[derive(Debug)]
pub struct SiteRules {
    rules: Rules,
    redirects: TargetTable,
    rewrites: TargetTable,
    allow: Networks,
    deny: Table,
    /// For each of `rules.deny`: the denied networks, and the exceptions.
    denied: Vec<(Networks, Networks)>,
    allow_php: Table,
    deny_php: Table,
    auth: Table,
    headers: HeaderRules,
    autoindex: Table,
    paths: Table,
    limits: Table,
    proxy: Table,
}

/// Patterns with a target template each.
#[derive(Debug)]
struct TargetTable {
    from: Table,
    to: Vec<Template>,
}

/// The settings for one path: each is that of the first entry of `paths` that has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SettingsOfPath<'r> {
    /// The pool that runs the scripts, if not the site's.
    pub pool: Option<&'r str>,
    /// Largest request body in bytes, if not the site's.
    pub max_body_size: Option<u64>,
    /// Whether the scripts get workers before those of other paths, if an entry says so.
    pub urgent: Option<bool>,
}

impl<'r> SettingsOfPath<'r> {
    fn or(self, entry: &'r PathSettings) -> SettingsOfPath<'r> {
        SettingsOfPath {
            pool: self.pool.or(entry.pool.as_deref()),
            max_body_size: self.max_body_size.or(entry.max_body_size),
            urgent: self.urgent.or(entry.urgent),
        }
    }
}

/// The request as the rules see it.
#[derive(Debug, Clone, Copy)]
pub struct RuleRequest<'a> {
    /// The decoded and normalised path.
    pub path: &'a CleanPath<'a>,
    /// The query, if there is one.
    pub query: Option<&'a str>,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The host, without its port.
    pub host: &'a str,
    /// The client's address, as known behind proxies.
    pub client: IpAddr,
}

/// The decision about a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A redirect.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The `Location` header.
        location: String,
    },
    /// A refusal.
    Refuse(Refusal),
    /// The path is served.
    Serve(Serve),
}

/// A refusal of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The response status.
    pub status: u16,
    /// One sentence; it is not sent to the client with 403, 404, or a configuration error.
    pub why: &'static str,
    /// It is an error in the rules, which is logged.
    pub is_config_error: bool,
}

/// How a request is served.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Serve {
    /// The rewritten target, if there is one.
    pub rewritten: Option<Rewritten>,
    /// The required authentication: indexes into the site's `basic_auth`, for the original and for
    /// the rewritten path.
    pub auth: [Option<usize>; 2],
}

/// A rewritten target.
#[derive(Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The path, encoded.
    pub path: String,
    /// The query, if there is one.
    pub query: Option<String>,
}

/// A rule that applied, for `maitred explain`.
#[derive(Debug)]
pub enum Step<'a> {
    /// The client is not in `allow`.
    NotAllowed,
    /// A redirect matches.
    Redirected(&'a Redirect, &'a str),
    /// A `deny` rule with this pattern matches.
    Denied(&'a crate::pattern::Pattern, u16),
    /// Authentication is required.
    NeedsUser(&'a BasicAuth),
    /// A rewrite matches.
    Rewrote(&'a Rewrite, &'a str),
    /// Too many rewrites.
    Looped,
}

const NOT_ALLOWED: Refusal =
    Refusal { status: 403, why: "Access from your address is denied.", is_config_error: false };

const LOOPED: Refusal =
    Refusal { status: 500, why: "The site's rewrites form a loop.", is_config_error: true };

const TOO_LONG: Refusal =
    Refusal { status: 414, why: "The address is too long.", is_config_error: false };

fn denied(status: u16) -> Refusal {
    let why = match status {
        404 => "There is no such page.",
        410 => "This page is gone.",
        _ => "Access to this page is denied.",
    };
    Refusal { status, why, is_config_error: false }
}

impl SiteRules {
    /// Compiles the rules.
    ///
    /// # Errors
    /// The setting that is wrong, and why, as the end of a sentence that begins with it.
    pub fn compile(rules: &Rules) -> Result<SiteRules, (&'static str, String)> {
        fn of(name: &'static str) -> impl Fn(String) -> (&'static str, String) {
            move |why| (name, why)
        }
        let redirects = rules.redirects.iter().map(|rule| (&rule.from, rule.to.as_str()));
        let rewrites = rules.rewrite.iter().map(|rule| (&rule.from, rule.to.as_str()));
        let table = |patterns: &[crate::pattern::Pattern]| Table::new(patterns);
        Ok(SiteRules {
            redirects: TargetTable::new(redirects).map_err(of("redirects"))?,
            rewrites: TargetTable::new(rewrites).map_err(of("rewrite"))?,
            allow: Networks::new(&rules.allow),
            deny: Table::new(rules.deny.iter().map(|rule| &rule.path)).map_err(of("deny"))?,
            denied: (rules.deny.iter())
                .map(|rule| (Networks::new(&rule.from), Networks::new(&rule.except)))
                .collect(),
            allow_php: table(&rules.allow_php).map_err(of("allow_php"))?,
            deny_php: Table::new(rules.deny_php.iter().map(|rule| &rule.path))
                .map_err(of("deny_php"))?,
            auth: Table::new(rules.basic_auth.iter().map(|rule| &rule.path))
                .map_err(of("basic_auth"))?,
            headers: HeaderRules::new(&rules.headers, &rules.expires).map_err(of("headers"))?,
            autoindex: table(&rules.autoindex).map_err(of("autoindex"))?,
            paths: Table::new(rules.paths.iter().map(|rule| &rule.path)).map_err(of("paths"))?,
            limits: Table::new(rules.rate_limit.iter().map(|rule| &rule.path))
                .map_err(of("rate_limit"))?,
            proxy: Table::new(rules.proxy.iter().map(|rule| &rule.path)).map_err(of("proxy"))?,
            rules: rules.clone(),
        })
    }

    /// The rules as configured.
    pub fn settings(&self) -> &Rules {
        &self.rules
    }

    /// Decides on a request.
    pub fn decide(&self, asked: &RuleRequest<'_>) -> Verdict {
        self.decide_and_tell(asked, &mut |_| {})
    }

    /// As [`SiteRules::decide`], and reports each rule that applied to `tell`.
    pub fn decide_and_tell(
        &self,
        asked: &RuleRequest<'_>,
        tell: &mut impl FnMut(Step<'_>),
    ) -> Verdict {
        if !self.allow.is_empty() && !self.allow.contain(asked.client) {
            tell(Step::NotAllowed);
            return Verdict::Refuse(NOT_ALLOWED);
        }
        if let Some(at) = self.redirects.from.first(asked.path.as_bytes()) {
            return self.redirect(at, asked, tell);
        }
        let first = match self.admit(asked.path.as_bytes(), asked.client, tell) {
            Ok(auth) => auth,
            Err(refusal) => return Verdict::Refuse(refusal),
        };
        let rewritten = match self.rewrite(asked, tell) {
            Ok(rewritten) => rewritten,
            Err(refusal) => return Verdict::Refuse(refusal),
        };
        let mut auth = [first, None];
        let rewritten = match rewritten {
            None => None,
            Some((path, rewritten)) => {
                match self.admit(path.as_bytes(), asked.client, &mut |_| {}) {
                    Ok(second) => auth[1] = second.filter(|second| Some(*second) != first),
                    Err(refusal) => return Verdict::Refuse(refusal),
                }
                Some(rewritten)
            }
        };
        Verdict::Serve(Serve { rewritten, auth })
    }

    /// Whether a client may access a path, and the index of the `basic_auth` that it needs. To be
    /// checked for the requested path, the rewritten path, and the script.
    ///
    /// # Errors
    /// The refusal.
    pub fn admit(
        &self,
        path: &[u8],
        client: IpAddr,
        tell: &mut impl FnMut(Step<'_>),
    ) -> Result<Option<usize>, Refusal> {
        let mut next = self.deny.first(path);
        while let Some(at) = next {
            let (from, except) = &self.denied[at];
            if (from.is_empty() || from.contain(client)) && !except.contain(client) {
                let rule = &self.rules.deny[at];
                tell(Step::Denied(&rule.path, rule.status));
                return Err(denied(rule.status));
            }
            next = self.deny.first_from(path, at + 1);
        }
        let auth = self.auth.first(path);
        if let Some(at) = auth {
            tell(Step::NeedsUser(&self.rules.basic_auth[at]));
        }
        Ok(auth)
    }

    /// Whether any rule depends on the script that runs.
    pub fn has_script_rules(&self) -> bool {
        let empty = |table: &Table| table.is_empty();
        let tables = [&self.deny, &self.auth, &self.allow_php, &self.deny_php];
        !tables.into_iter().all(empty)
    }

    /// Whether the script with this name may run.
    pub fn may_run(&self, script: &[u8]) -> bool {
        (self.allow_php.is_empty() || self.allow_php.first(script).is_some())
            && (self.deny_php.first(script)).is_none_or(|at| self.rules.deny_php[at].runs)
    }

    /// The header rules for responses to a path.
    pub fn header_policy(&self, path: &[u8]) -> HeaderPolicy<'_> {
        self.headers.header_policy(path)
    }

    /// Whether a folder gets a directory listing.
    pub fn lists(&self, path: &[u8]) -> bool {
        self.autoindex.first(path).is_some()
    }

    /// The settings for a path. An entry without a setting leaves it to later ones.
    pub fn path_settings(&self, path: &[u8]) -> SettingsOfPath<'_> {
        let entries = self.paths.all(path).into_iter().map(|at| &self.rules.paths[at]);
        entries.fold(SettingsOfPath::default(), SettingsOfPath::or)
    }

    /// The index of the upstream server for a path, instead of files and scripts.
    pub fn proxy(&self, path: &[u8]) -> Option<usize> {
        self.proxy.first(path)
    }

    /// Whether there is any rate limit.
    pub fn limits_rates(&self) -> bool {
        !self.limits.is_empty()
    }

    /// The indexes of the rate limits for a path.
    pub fn rate_limits(&self, path: &[u8]) -> Vec<usize> {
        self.limits.all(path)
    }

    /// The custom error page for a status.
    pub fn error_page(&self, status: u16) -> Option<&str> {
        self.rules.error_pages.get(&status).map(String::as_str)
    }

    fn redirect(
        &self,
        at: usize,
        asked: &RuleRequest<'_>,
        tell: &mut impl FnMut(Step<'_>),
    ) -> Verdict {
        let captures = self.redirects.from.captures(at, asked.path.as_bytes());
        let Some(expanded) = self.redirects.to[at].expand(&captures, &asked.vars()) else {
            return Verdict::Refuse(TOO_LONG);
        };
        let (rule, location) = (&self.rules.redirects[at], expanded.location());
        tell(Step::Redirected(rule, &location));
        Verdict::Redirect { status: rule.status, location }
    }

    /// Applies rewrites until no rule matches; each pass starts at the first rule.
    fn rewrite(
        &self,
        asked: &RuleRequest<'_>,
        tell: &mut impl FnMut(Step<'_>),
    ) -> Result<Option<(CleanPath<'static>, Rewritten)>, Refusal> {
        let mut now: Option<(CleanPath<'static>, Rewritten)> = None;
        let mut passes = 0;
        loop {
            let (path, query) = match &now {
                None => (asked.path.as_bytes(), Cow::Borrowed(asked.query.unwrap_or_default())),
                Some((path, rewritten)) => {
                    let query = rewritten.query.clone().unwrap_or_default();
                    (path.as_bytes(), Cow::Owned(query))
                }
            };
            let Some(at) = self.rewrites.from.first(path) else {
                return Ok(now);
            };
            if passes == MAX_REWRITES {
                tell(Step::Looped);
                return Err(LOOPED);
            }
            passes += 1;
            let captures = self.rewrites.from.captures(at, path);
            let vars = TemplateVars { query: Some(&query), ..asked.vars() };
            let expanded = self.rewrites.to[at].expand(&captures, &vars).ok_or(TOO_LONG)?;
            let clean = clean_path(&expanded.path).map_err(|_| denied(404))?;
            let rule = &self.rules.rewrite[at];
            // The result is a path like any other: decoded once, and inside the document root.
            let clean = clean.into_owned();
            let rewritten =
                Rewritten { path: encode_path(clean.as_bytes()), query: expanded.query };
            tell(Step::Rewrote(rule, &rewritten.path));
            now = Some((clean, rewritten));
            if rule.end {
                return Ok(now);
            }
        }
    }
}

impl TargetTable {
    fn new<'r>(
        rules: impl Iterator<Item = (&'r crate::pattern::Pattern, &'r str)> + Clone,
    ) -> Result<TargetTable, String> {
        let from = Table::new(rules.clone().map(|(from, _)| from))?;
        let to =
            rules.map(|(from, to)| Template::parse(to, from.groups())).collect::<Result<_, _>>()?;
        Ok(TargetTable { from, to })
    }
}

impl<'a> RuleRequest<'a> {
    fn vars(&self) -> TemplateVars<'a> {
        TemplateVars { scheme: self.scheme, host: self.host, query: self.query }
    }
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::NotAllowed => out.write_str("allow: the client is not in the list"),
            Step::Redirected(rule, location) => {
                write!(out, "redirects: {} matches: {} to {location}", rule.from, rule.status)
            }
            Step::Denied(pattern, status) => write!(out, "deny: {pattern} matches: {status}"),
            Step::NeedsUser(auth) => {
                write!(out, "basic_auth: {} matches: a user of {}", auth.path, auth.users.display())
            }
            Step::Rewrote(rule, path) => write!(out, "rewrite: {} matches: now {path}", rule.from),
            Step::Looped => write!(out, "rewrite: still matches after {MAX_REWRITES} times: 500"),
        }
    }
}

/// Validates the target of a redirect or rewrite.
///
/// # Errors
/// What is wrong with `to`, as the end of a sentence that begins with it.
pub fn check_template(from: &crate::pattern::Pattern, to: &str) -> Result<(), String> {
    Template::parse(to, from.groups()).map(drop)
}

#[cfg(test)]
#[path = "site_rules_tests.rs"]
mod tests;
