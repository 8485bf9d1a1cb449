//! `maitred explain`: how a request would be served, rule by rule, without sending it. A running
//! server is not touched; files and folders are read as they are now.

pub(crate) mod cache;
mod htaccess_explainer;
mod htaccess_files;

pub use htaccess_files::remarks as htaccess_remarks;

use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use maitred_config::{Config, Destination, Mode, Site, Upstream, file_problem};
use maitred_os::users;
use maitred_os::walk::{self, Rule};
use maitred_rules::SiteRules;
use maitred_rules::content_encoding::ContentEncoding;
use maitred_rules::path::{CleanPath, clean_path};
use maitred_rules::site_rules::{Refusal, RuleRequest, SettingsOfPath, Step, Verdict};

use crate::handler::route_rules::{NeededAuth, PathTarget, RouteRules, is_by_htaccess, target_of};
use crate::http::hosts::{Hosts, host_name, https_address};
use crate::runtime::lookup_turns::AllTurns;
use crate::site::compress::Compression;
use crate::site::files::StaticFile;
use crate::site::refused_links;
use crate::site::resolver::{Resolver, Route, Script, SiteFiles, TableLimits};
use crate::site::{chroots, encode_rest, redirect_to_folder};

/// The request to explain.
#[derive(Debug, Clone)]
pub struct Question {
    /// `http` or `https`.
    pub scheme: String,
    /// The host, and a port if there is one.
    pub authority: String,
    /// The path, percent-encoded.
    pub path: String,
    /// The query, without its `?`.
    pub query: Option<String>,
    /// The method.
    pub method: String,
    /// The client.
    pub client: IpAddr,
    /// Headers that the page cache depends on.
    pub fields: Vec<(String, String)>,
}

/// The explanation.
#[derive(Debug, Default)]
pub struct Explanation {
    /// The facts, one per line: the subject, and the fact.
    pub lines: Vec<(String, String)>,
}

impl Explanation {
    fn say(&mut self, about: &str, what: impl Into<String>) {
        self.lines.push((about.to_owned(), what.into()));
    }

    /// Adds the effect of a rule.
    fn say_step(&mut self, step: &str) {
        let (about, what) = step.split_once(": ").unwrap_or(("rule", step));
        self.say(about, what);
    }
}

/// Explains how a request would be served.
///
/// # Errors
/// When a folder that the configuration names cannot be opened, or its rules are wrong.
pub fn explain(config: &Config, asked: &Question) -> Result<Explanation, String> {
    let mut said = Explanation::default();
    let site = Hosts::of(&config.sites)
        .site_for(&asked.authority)
        .and_then(|number| config.sites.get(number));
    let Some(site) = site else {
        said.say("response", "404: no site has this host");
        return Ok(said);
    };
    let hosts: Vec<String> = site.hosts.iter().map(ToString::to_string).collect();
    said.say("site", format!("{} ({})", site.root.display(), hosts.join(", ")));
    if let Some(location) = to_https(config, asked).filter(|_| !cache::may_purge(site, asked)) {
        said.say("redirect", "plain HTTP is sent to HTTPS ([tls] redirect)");
        said.say("response", location);
        return Ok(said);
    }
    if let Some(app) = site.rules.app {
        said.say("app", format!("{}, whose rules follow the site's own", app.name()));
    }
    let rules =
        SiteRules::compile(&site.rules).map_err(|(setting, why)| format!("`{setting}` {why}"))?;
    let clean = match clean_path(&asked.path) {
        Ok(clean) => clean,
        Err(refused) => {
            said.say("response", format!("{}: {}", refused.status, refused.why));
            return Ok(said);
        }
    };
    if clean.as_bytes() != asked.path.as_bytes() {
        said.say("path", String::from_utf8_lossy(clean.as_bytes()));
    }
    let mut explainer = Explainer { said, config, site, rules: &rules, asked };
    explainer.limits(&clean);
    explainer.decide(&clean)?;
    explainer.headers(&clean);
    Ok(explainer.said)
}

/// The response to plain HTTP, if it is redirected to HTTPS.
fn to_https(config: &Config, asked: &Question) -> Option<String> {
    let tls = config.tls.as_ref().filter(|_| asked.scheme == "http")?;
    let query = asked.query.as_ref().map(|query| format!("?{query}"));
    let target = [asked.path.as_str(), query.as_deref().unwrap_or_default()].concat();
    let location = https_address(host_name(&asked.authority), tls.port(), &target);
    Some(format!("{} to {location}", tls.redirect?))
}

/// A path after rewrites.
struct RoutedPath<'p> {
    /// By the rules of the site, which have been evaluated for it.
    evaluated: &'p str,
    /// By `.htaccess` files as well.
    path: &'p str,
}

impl RoutedPath<'_> {
    /// A path without `.htaccess` files.
    fn by_rules(path: &str) -> RoutedPath<'_> {
        RoutedPath { evaluated: path, path }
    }
}

/// A request on its way through the rules of its site.
struct Explainer<'a> {
    said: Explanation,
    config: &'a Config,
    site: &'a Site,
    rules: &'a SiteRules,
    asked: &'a Question,
}

impl Explainer<'_> {
    /// Explains what the rules decide, and what follows.
    fn decide(&mut self, clean: &CleanPath<'_>) -> Result<(), String> {
        let asked = self.asked;
        let question = RuleRequest {
            path: clean,
            query: asked.query.as_deref(),
            scheme: &asked.scheme,
            host: host_name(&asked.authority),
            client: asked.client,
        };
        let said = &mut self.said;
        let mut step = |step: Step<'_>| said.say_step(&step.to_string());
        let serve = match self.rules.decide_and_tell(&question, &mut step) {
            Verdict::Redirect { status, location } => {
                self.said.say("response", format!("{status} to {location}"));
                return Ok(());
            }
            Verdict::Refuse(refusal) => {
                self.refuse(refusal.status, refusal.why);
                return Ok(());
            }
            Verdict::Serve(serve) => serve,
        };
        let (path, query) = match &serve.rewritten {
            Some(rewritten) => (&rewritten.path, rewritten.query.as_deref()),
            None => (&asked.path, asked.query.as_deref()),
        };
        if serve.rewritten.is_some() {
            let limits = self.route_rules(&RoutedPath::by_rules(path)).limits_of_rewritten();
            self.rate_limits(&limits);
        }
        self.needs_user(&serve.auth);
        self.target(path, query)
    }

    /// Explains what serves a path after rewrites.
    fn target(&mut self, path: &str, query: Option<&str>) -> Result<(), String> {
        let Ok(clean) = clean_path(path) else {
            self.said.say("response", "400: the path cannot be read");
            return Ok(());
        };
        let (rules, asked, method) = (self.rules, self.asked, self.asked.method.as_str());
        let settings = rules.path_settings(clean.as_bytes());
        let runner = Runner::of(settings, &self.site.destination);
        let path_target = target_of(rules, &clean, method);
        if let PathTarget::Proxy(server) = path_target
            && let Some(rule) = rules.settings().proxy.get(server)
        {
            let what = format!("{} matches: {}", rule.path, rule.server());
            self.said.say("proxy", what);
            self.said.say("response", "what that server says");
            self.own_body_size(settings);
            return Ok(());
        }
        if cache::purge(&mut self.said, self.site, asked) {
            return Ok(());
        }
        let (mut resolver, inner) = resolver_for(self.config, self.site, &clean, &mut self.said)?;
        if path_target == PathTarget::Listing
            && let Ok(inner) = clean_path(&inner)
            && resolver.open_folder(&inner).is_some()
        {
            let what = "a list of the folder's files (autoindex)";
            self.said.say("response", what);
            return Ok(());
        }
        if let Runner::Pool { name, .. } = runner
            && let Some(page) = page_of(self.config, name, &asked.path)
        {
            self.said.say("response", page);
            return Ok(());
        }
        if is_by_htaccess(rules, &clean) {
            let asked = htaccess_explainer::Asked { path: &clean, query, runner };
            self.by_htaccess(&asked, &mut resolver);
            self.own_body_size(settings);
            return Ok(());
        }
        let mut route = match inner.is_empty() {
            true => redirect_to_folder(&clean, query),
            false => resolver.resolve(&inner, query),
        };
        if let Route::Refused(refused) = &route
            && let Some(instead) = resolver.in_place_of(refused)
        {
            let what = format!("{}; it is as good as missing", refused.why);
            self.said.say("refused", what);
            route = instead;
        }
        match route {
            Route::File(entry) => self.file(&RoutedPath::by_rules(path), &entry, &mut resolver),
            Route::Script(script) => self.script(&RoutedPath::by_rules(path), &script, runner),
            Route::RedirectSlash(location) => {
                let what = format!("301 to {location}: it is a folder");
                self.said.say("response", what);
            }
            Route::Refused(refused) => self.refuse(refused.status, refused.why),
        }
        self.own_body_size(settings);
        if settings.urgent == Some(true) {
            self.said.say("queue", "urgent: before all others (paths)");
        }
        Ok(())
    }

    fn file(&mut self, path: &RoutedPath<'_>, entry: &StaticFile, resolver: &mut Resolver) {
        let what = format!("{}, {} bytes", entry.content_type(), entry.len());
        self.said.say("file", what);
        let checks = self.route_rules(path).of_file(entry);
        self.rate_limits(&checks.limits);
        if !self.admit(checks.admitted, "the folder's index is denied") {
            return;
        }
        self.file_compression(resolver, entry);
        match self.asked.method.as_str() {
            "GET" | "HEAD" => self.said.say("response", "200 with the file"),
            _ => self.refuse(405, "a file is requested with GET or HEAD"),
        }
    }

    fn script(&mut self, path: &RoutedPath<'_>, script: &Script, runner: Runner<'_>) {
        let checks = self.route_rules(path).of_script(script);
        self.rate_limits(&checks.limits);
        if !self.site.output.compression.is_empty() {
            let names = names(&self.site.output.compression);
            let what = format!("{names}, as the client takes it, if type and length are worth it");
            self.said.say("compression", what);
        }
        let name = String::from_utf8_lossy(&script.script_filename);
        self.said.say("script", name);
        if !script.path_info.is_empty() {
            let path_info = String::from_utf8_lossy(&script.path_info);
            self.said.say("PATH_INFO", path_info);
        }
        let denied = "the script is denied (deny, allow_php or deny_php)";
        if self.admit(checks.admitted, denied) {
            cache::cache(&mut self.said, self.site, self.asked);
            self.said.say("response", runner.response(self.config));
        }
    }

    /// The listing of a folder.
    fn listing(&mut self, path: &RoutedPath<'_>) {
        let checks = self.route_rules(path).of_listing();
        if self.admit(checks.admitted, "the folder is denied") {
            self.said.say("response", "a list of the folder's files (Indexes)");
        }
    }

    fn route_rules<'r>(&'r self, path: &RoutedPath<'r>) -> RouteRules<'r> {
        RouteRules {
            site: self.site,
            rules: self.rules,
            client: self.asked.client,
            requested: &self.asked.path,
            evaluated: path.evaluated,
            path: path.path,
        }
    }

    /// Adds the users that a file or script needs, or that it is `denied`. False if it is.
    fn admit(&mut self, admitted: Result<NeededAuth, Refusal>, denied: &str) -> bool {
        match admitted {
            Ok(auths) => self.needs_user(&auths),
            Err(refusal) => {
                self.said.say("deny", denied);
                self.refuse(refusal.status, refusal.why);
            }
        }
        admitted.is_ok()
    }

    /// Adds the users that a request needs, by indexes in `basic_auth`, and each once: several
    /// paths of a request may need the same.
    fn needs_user(&mut self, auths: &[Option<usize>]) {
        let known = &self.rules.settings().basic_auth;
        for auth in auths.iter().flatten().filter_map(|at| known.get(*at)) {
            let step = Step::NeedsUser(auth).to_string();
            let is_it = |(about, what): &(String, String)| format!("{about}: {what}") == step;
            if !self.said.lines.iter().any(is_it) {
                self.said.say_step(&step);
            }
        }
    }

    fn refuse(&mut self, status: u16, why: &str) {
        self.said.say("response", format!("{status}: {why}"));
        if let Some(page) = self.rules.error_page(status) {
            self.said.say("error_pages", format!("{page} is sent with it"));
        }
    }

    fn limits(&mut self, path: &CleanPath<'_>) {
        self.rate_limits(&self.rules.rate_limits(path.as_bytes()));
        if let Some(limit) = self.rules.settings().connection_limit {
            let what = format!("{limit} requests of a client at a time; then 429");
            self.said.say("connection_limit", what);
        }
    }

    fn rate_limits(&mut self, indexes: &[usize]) {
        let limits = &self.rules.settings().rate_limit;
        for limit in indexes.iter().filter_map(|at| limits.get(*at)) {
            let (requests, per, burst) = (limit.requests, limit.per, limit.burst);
            let path = &limit.path;
            let what =
                format!("{path} matches: {requests} in {per:?}, and {burst} at once; then 429");
            self.said.say("rate_limit", what);
        }
    }

    fn own_body_size(&mut self, settings: SettingsOfPath<'_>) {
        if let Some(most) = settings.max_body_size {
            self.said.say("max_body_size", format!("{most} bytes (paths)"));
        }
    }

    /// How a file is compressed for clients that accept it.
    fn file_compression(&mut self, resolver: &mut Resolver, entry: &StaticFile) {
        let Some(compression) = Compression::of(&self.site.output) else {
            return;
        };
        if !entry.varies() {
            let what = "none: type or length are not worth it";
            return self.said.say("compression", what);
        }
        let is_there = |coding: &ContentEncoding| {
            compression.precompressed() && resolver.sibling(entry, *coding).is_some()
        };
        let name = String::from_utf8_lossy(entry.name());
        let found = ContentEncoding::SMALLEST.into_iter().filter(is_there);
        let files: Vec<String> =
            found.map(|coding| format!("{name}.{}", coding.extension())).collect();
        if !files.is_empty() {
            let what = format!("{}, as the client takes it", files.join(", "));
            self.said.say("precompressed", what);
        } else if !compression.kept().is_empty() {
            let names = names(compression.kept());
            self.said.say("compression", format!("{names}, as the client takes it"));
        }
    }

    fn headers(&mut self, path: &CleanPath<'_>) {
        let policy = self.rules.header_policy(path.as_bytes());
        for (name, value) in policy.fields() {
            let name = String::from_utf8_lossy(name);
            let value = String::from_utf8_lossy(value);
            self.said.say("header", format!("{name}: {value}"));
        }
    }
}

/// The page of a pool at this path, as the client sends it.
fn page_of(config: &Config, pool: &str, path: &str) -> Option<String> {
    let settings = config.pool(pool)?;
    let is = |page: &Option<String>| page.as_deref() == Some(path);
    match (is(&settings.ping_path), is(&settings.status_path)) {
        (true, _) => Some(format!("the ping of pool {pool} (ping_path)")),
        (_, true) => Some(format!("the status page of pool {pool} (status_path)")),
        _ => None,
    }
}

fn names(codings: &[ContentEncoding]) -> String {
    let names: Vec<&str> = codings.iter().map(|coding| coding.name()).collect();
    names.join(", ")
}

/// What runs the scripts of a path.
#[derive(Clone, Copy)]
enum Runner<'a> {
    Pool { name: &'a str, is_of_paths: bool },
    Upstream(&'a Upstream),
}

impl<'a> Runner<'a> {
    fn of(settings: SettingsOfPath<'a>, destination: &'a Destination) -> Runner<'a> {
        match (settings.pool, destination) {
            (Some(name), _) => Runner::Pool { name, is_of_paths: true },
            (None, Destination::Pool(name)) => Runner::Pool { name, is_of_paths: false },
            (None, Destination::Upstream(upstream)) => Runner::Upstream(upstream),
        }
    }

    /// The source of the response: the requested script, or the one that the pool has booted.
    fn response(self, config: &Config) -> String {
        let (name, of_paths) = match self {
            Runner::Pool { name, is_of_paths } => (name, if is_of_paths { " (paths)" } else { "" }),
            Runner::Upstream(upstream) => {
                let upstream = crate::backend::fastcgi_upstream::name(upstream);
                return format!("what the script says, run by upstream {upstream}");
            }
        };
        let by = format!("pool {name}{of_paths}");
        let pool = config.pool(name);
        match pool.and_then(|pool| Some((pool.mode, pool.booted_script()?))) {
            Some((Mode::Worker, script)) => {
                let script = script.display();
                format!("what {script} says, which the workers of {by} have booted")
            }
            Some((Mode::Snapshot, script)) => {
                let script = script.display();
                format!("what {script} says, in a copy of it that {by} has booted")
            }
            Some((Mode::Classic, _)) | None => format!("what the script says, run by {by}"),
        }
    }
}

/// The resolver of the folder that contains a path, and the path in it.
fn resolver_for(
    config: &Config,
    site: &Site,
    path: &CleanPath<'_>,
    said: &mut Explanation,
) -> Result<(Resolver, String), String> {
    let (chroot, other_chroots) = chroots(config, site);
    let mut files = SiteFiles {
        chroot,
        other_chroots,
        root: site.root.clone(),
        index: site.index.clone(),
        front_controller: site.front_controller.clone().filter(|_| !site.rules.htaccess),
        prefix: String::new(),
        front: front_of(config),
    };
    let mut inner = encode_rest(path, path.as_bytes());
    let mut aliases: Vec<_> = site.rules.aliases.iter().collect();
    aliases.sort_by_key(|alias| std::cmp::Reverse(alias.path.len()));
    let alias = aliases.into_iter().find_map(|alias| Some((alias, path.in_alias(&alias.path)?)));
    if let Some((alias, rest)) = alias {
        said.say("aliases", format!("{} is {}", alias.path, alias.folder.display()));
        files.root.clone_from(&alias.folder);
        alias.path.trim_end_matches('/').clone_into(&mut files.prefix);
        files.front_controller = None;
        inner = encode_rest(path, rest);
    }
    let root = files.root.display().to_string();
    let tenant = AllTurns::default().of("");
    let mut resolver = Resolver::new(files, &tenant, TableLimits::default());
    let _ = resolver.follow_root();
    if let Some(why) = resolver.refusal() {
        said.say("root", format!("{root} is not served: {why}"));
    }
    resolver.compress(Compression::of(&site.output).map(Arc::new));
    Ok((resolver, inner))
}

/// The user of the front; the current user if this process is not root.
fn front_of(config: &Config) -> u32 {
    let own = users::current().uid;
    match own {
        0 => users::look_up(&config.front_user, None).map_or(own, |front| front.uid),
        own => own,
    }
}

/// Directories of sites that are not served because of untrusted symbolic links, and links in
/// document roots that are not followed: one sentence each.
pub fn refused_folders(config: &Config) -> Vec<String> {
    let of_site = |site| refused_folders_of(config, site);
    let of_links = |site: &Site| refused_links::find(&site.root, front_of(config));
    let links = config.sites.iter().flat_map(of_links);
    config.sites.iter().flat_map(of_site).chain(links).collect()
}

fn refused_folders_of(config: &Config, site: &Site) -> Vec<String> {
    let aliases = site.rules.aliases.iter().map(|alias| &alias.folder);
    let roots = site.output.sendfile_roots.iter().map(|root| &root.folder);
    let own = front_of(config);
    let folders = [&site.root].into_iter().chain(aliases).chain(roots);
    let refused = folders.filter_map(|folder| {
        let stopped = walk::look(folder, Rule::Read { own }).err()?;
        let name = folder.display();
        stopped.is_foreign().then(|| {
            format!(
                "the folder {name} of a site is not served, and requests for it get a 503: \
                 {stopped}"
            )
        })
    });
    refused.collect()
}

/// Errors in the files that site rules name, one sentence each. Files of users that are missing are
/// left out: they are faults of their sites, which the supervisor finds.
pub fn mistakes(config: &Config) -> Vec<String> {
    let mut mistakes = Vec::new();
    for site in &config.sites {
        let root = site.root.display();
        for auth in site.rules.basic_auth.iter().filter(|auth| file_problem(&auth.users).is_none())
        {
            if let Err(why) = crate::site::auth::load(&auth.users) {
                mistakes.push(format!("basic_auth of the site at {root}: {why}"));
            }
        }
        for (status, page) in &site.rules.error_pages {
            if !leads_somewhere(config, site, page) {
                mistakes.push(format!(
                    "error_pages of the site at {root}: {page} for {status} is no file and no \
                     script of the site"
                ));
            }
        }
        let servers = site.rules.proxy.iter();
        let wrong = servers.filter_map(|rule| no_socket(&rule.to));
        mistakes.extend(wrong.map(|why| format!("proxy of the site at {root}: {why}")));
    }
    mistakes
}

/// Why no server can be at a Unix socket. A socket that does not exist yet may be created later.
fn no_socket(server: &Upstream) -> Option<String> {
    let Upstream::Unix(path) = server else {
        return None;
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    match std::fs::metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            Some(format!("{} is no socket", path.display()))
        }
        Err(_) if !folder.is_dir() => Some(format!("the folder {} is not there", folder.display())),
        _ => None,
    }
}

fn leads_somewhere(config: &Config, site: &Site, page: &str) -> bool {
    let Ok(clean) = clean_path(page) else {
        return false;
    };
    match resolver_for(config, site, &clean, &mut Explanation::default()) {
        Ok((mut resolver, inner)) => {
            matches!(resolver.resolve(&inner, None), Route::File(_) | Route::Script(_))
        }
        Err(_) => false,
    }
}
