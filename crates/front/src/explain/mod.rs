//! How a request would be answered, rule by rule, without asking it: `maitred explain`. Nothing of a
//! running server is touched; files and folders are looked at as they are now.

pub(crate) mod cache;

use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use maitred_config::{Config, Destination, Mode, Site, Upstream};
use maitred_os::users;
use maitred_os::walk::{self, Rule};
use maitred_rules::SiteRules;
use maitred_rules::coding::Coding;
use maitred_rules::path::{CleanPath, clean_path, encode_path};
use maitred_rules::settings::PathSettings;
use maitred_rules::site::{Asked, Step, Verdict};

use crate::handler::route_rules::{PathTarget, RouteChecks, RouteRules, target_of};
use crate::http::hosts::{Hosts, host_name, https_address};
use crate::site::compress::Compression;
use crate::site::files::Entry;
use crate::site::resolver::{Limits, Resolver, Route, SiteFiles};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// `http` or `https`.
    pub scheme: String,
    /// The host, and a port if there is one.
    pub authority: String,
    /// The path, as it would come.
    pub path: String,
    /// The query, without its `?`.
    pub query: Option<String>,
    /// The method.
    pub method: String,
    /// The client.
    pub client: IpAddr,
    /// Header fields that the page cache looks at.
    pub fields: Vec<(String, String)>,
}

/// What it comes to.
#[derive(Debug, Default)]
pub struct Explanation {
    /// One thing a line: what it is about, and what is so.
    pub lines: Vec<(String, String)>,
}

impl Explanation {
    fn say(&mut self, about: &str, what: impl Into<String>) {
        self.lines.push((about.to_owned(), what.into()));
    }

    /// Says what a rule does.
    fn say_step(&mut self, step: &str) {
        let (about, what) = step.split_once(": ").unwrap_or(("rule", step));
        self.say(about, what);
    }
}

/// Explains how a request would be answered.
///
/// # Errors
/// When a folder that the configuration names cannot be opened, or its rules are wrong.
pub fn explain(config: &Config, asked: &Question) -> Result<Explanation, String> {
    let mut said = Explanation::default();
    let site = Hosts::of(&config.sites)
        .site_for(&asked.authority)
        .and_then(|number| config.sites.get(number));
    let Some(site) = site else {
        said.say("answer", "404: no site has this host");
        return Ok(said);
    };
    let hosts: Vec<String> = site.hosts.iter().map(ToString::to_string).collect();
    said.say(
        "site",
        format!("{} ({})", site.root.display(), hosts.join(", ")),
    );
    if let Some(location) = to_https(config, asked) {
        said.say("redirect", "plain HTTP is sent to HTTPS ([tls] redirect)");
        said.say("answer", location);
        return Ok(said);
    }
    if let Some(app) = site.rules.app {
        said.say(
            "app",
            format!("{}, whose rules follow the site's own", app.name()),
        );
    }
    let rules =
        SiteRules::compile(&site.rules).map_err(|(setting, why)| format!("`{setting}` {why}"))?;
    let clean = match clean_path(&asked.path) {
        Ok(clean) => clean,
        Err(refused) => {
            said.say("answer", format!("{}: {}", refused.status, refused.why));
            return Ok(said);
        }
    };
    if clean.as_bytes() != asked.path.as_bytes() {
        said.say("path", String::from_utf8_lossy(clean.as_bytes()));
    }
    limits(&mut said, &rules, &clean);
    decide(&mut said, config, (site, &rules), asked, &clean)?;
    header(&mut said, &rules, &clean);
    Ok(said)
}

/// What the rules make of it, and what then becomes of it.
fn decide(
    said: &mut Explanation,
    config: &Config,
    (site, rules): (&Site, &SiteRules),
    asked: &Question,
    clean: &CleanPath<'_>,
) -> Result<(), String> {
    let question = Asked {
        path: clean,
        query: asked.query.as_deref(),
        scheme: &asked.scheme,
        host: host_name(&asked.authority),
        client: asked.client,
    };
    let mut told = Vec::new();
    let verdict = rules.decide_and_tell(&question, &mut |step| told.push(step.to_string()));
    for step in &told {
        said.say_step(step);
    }
    match verdict {
        Verdict::Redirect { status, location } => {
            said.say("answer", format!("{status} to {location}"));
        }
        Verdict::Refuse(refusal) => refuse(said, rules, refusal.status, refusal.why),
        Verdict::Serve(serve) => {
            let rewritten = serve.rewritten.as_ref();
            let path = rewritten.map_or(asked.path.as_str(), |rewritten| &rewritten.path);
            let query = match rewritten {
                Some(rewritten) => rewritten.query.as_deref(),
                None => asked.query.as_deref(),
            };
            if rewritten.is_some() {
                let limits = route_rules(site, rules, asked, path).limits_of_rewritten();
                rate_limits(said, rules, &limits);
            }
            needs_user(said, rules, serve.auth);
            return target(said, config, (site, rules), asked, path, query);
        }
    }
    Ok(())
}

/// The answer to plain HTTP, if it is sent to HTTPS.
fn to_https(config: &Config, asked: &Question) -> Option<String> {
    let tls = config.tls.as_ref().filter(|_| asked.scheme == "http")?;
    let query = asked.query.as_ref().map(|query| format!("?{query}"));
    let target = [asked.path.as_str(), query.as_deref().unwrap_or_default()].concat();
    let location = https_address(host_name(&asked.authority), tls.port(), &target);
    Some(format!("{} to {location}", tls.redirect?))
}

fn limits(said: &mut Explanation, rules: &SiteRules, path: &CleanPath<'_>) {
    rate_limits(said, rules, &rules.rate_limits(path.as_bytes()));
    if let Some(limit) = rules.settings().connection_limit {
        said.say(
            "connection_limit",
            format!("{limit} requests of a client at a time; then 429"),
        );
    }
}

fn rate_limits(said: &mut Explanation, rules: &SiteRules, places: &[usize]) {
    let limits = &rules.settings().rate_limit;
    for limit in places.iter().filter_map(|at| limits.get(*at)) {
        let (requests, per, burst) = (limit.requests, limit.per, limit.burst);
        let path = &limit.path;
        let what = format!("{path} matches: {requests} in {per:?}, and {burst} at once; then 429");
        said.say("rate_limit", what);
    }
}

/// Says which users are asked for, by these places in `basic_auth`, unless that has been said: one may
/// hold for each path that a request leads to.
fn needs_user(said: &mut Explanation, rules: &SiteRules, auths: [Option<usize>; 2]) {
    let known = &rules.settings().basic_auth;
    for auth in auths.into_iter().flatten().filter_map(|at| known.get(at)) {
        let step = Step::NeedsUser(auth).to_string();
        let is_it = |(about, what): &(String, String)| format!("{about}: {what}") == step;
        if !said.lines.iter().any(is_it) {
            said.say_step(&step);
        }
    }
}

fn refuse(said: &mut Explanation, rules: &SiteRules, status: u16, why: &str) {
    said.say("answer", format!("{status}: {why}"));
    if let Some(page) = rules.error_page(status) {
        said.say("error_pages", format!("{page} is sent with it"));
    }
}

/// What the path stands for, once the rules have let it pass.
fn target(
    said: &mut Explanation,
    config: &Config,
    (site, rules): (&Site, &SiteRules),
    asked: &Question,
    path: &str,
    query: Option<&str>,
) -> Result<(), String> {
    let Ok(clean) = clean_path(path) else {
        said.say("answer", "400: the path cannot be read");
        return Ok(());
    };
    let settings = rules.path_settings(clean.as_bytes());
    let runner = Runner::of(settings, &site.destination);
    let method = asked.method.as_str();
    let path_target = target_of(rules, &clean, method);
    if let PathTarget::Proxy(server) = path_target
        && let Some(rule) = rules.settings().proxy.get(server)
    {
        said.say("proxy", format!("{} matches: {}", rule.path, rule.server()));
        said.say("answer", "what that server says");
        own_body_size(said, settings);
        return Ok(());
    }
    if cache::purge(said, site, asked) {
        return Ok(());
    }
    let (mut resolver, inner) = resolver_for(config, site, &clean, said)?;
    if path_target == PathTarget::Listing
        && let Ok(inner) = clean_path(&inner)
        && resolver.open_folder(&inner).is_some()
    {
        said.say("answer", "a list of the folder's files (autoindex)");
        return Ok(());
    }
    if let Runner::Pool { name, .. } = runner
        && let Some(page) = page_of(config, name, &asked.path)
    {
        said.say("answer", page);
        return Ok(());
    }
    let mut route = resolver.resolve(&inner, query);
    if let Route::Refused(refused) = &route
        && let Some(instead) = resolver.in_place_of(refused)
    {
        let why = refused.why;
        said.say("refused", format!("{why}; it is as good as missing"));
        route = instead;
    }
    match route {
        Route::File(entry) => {
            let size = format!("{}, {} bytes", entry.content_type(), entry.len());
            said.say("file", size);
            let checks = route_rules(site, rules, asked, path).of_file(&entry);
            rate_limits(said, rules, &checks.limits);
            if admit(said, rules, checks, "the folder's index is denied") {
                file_coding(said, site, &mut resolver, &entry);
                match method {
                    "GET" | "HEAD" => said.say("answer", "200 with the file"),
                    _ => refuse(said, rules, 405, "a file is asked for with GET or HEAD"),
                }
            }
        }
        Route::Script(script) => {
            let checks = route_rules(site, rules, asked, path).of_script(&script);
            rate_limits(said, rules, &checks.limits);
            script_coding(said, site);
            said.say("script", String::from_utf8_lossy(&script.script_filename));
            if !script.path_info.is_empty() {
                said.say("PATH_INFO", String::from_utf8_lossy(&script.path_info));
            }
            let denied = "the script is denied (deny, allow_php or deny_php)";
            if admit(said, rules, checks, denied) {
                cache::cache(said, site, asked);
                said.say("answer", runner.answer(config));
            }
        }
        Route::RedirectSlash(location) => {
            said.say("answer", format!("301 to {location}: it is a folder"));
        }
        Route::Refused(refused) => refuse(said, rules, refused.status, refused.why),
    }
    own_body_size(said, settings);
    if settings.is_some_and(|settings| settings.urgent) {
        said.say("queue", "urgent: before all others (paths)");
    }
    Ok(())
}

fn route_rules<'r>(
    site: &'r Site,
    rules: &'r SiteRules,
    asked: &'r Question,
    path: &'r str,
) -> RouteRules<'r> {
    RouteRules {
        site,
        rules,
        client: asked.client,
        requested: &asked.path,
        path,
    }
}

/// Says which users a file or script needs, or that it is `denied`. False if it is.
fn admit(said: &mut Explanation, rules: &SiteRules, checks: RouteChecks, denied: &str) -> bool {
    match checks.admitted {
        Ok(auths) => needs_user(said, rules, auths),
        Err(refusal) => {
            said.say("deny", denied);
            refuse(said, rules, refusal.status, refusal.why);
        }
    }
    checks.admitted.is_ok()
}

fn script_coding(said: &mut Explanation, site: &Site) {
    if !site.output.compression.is_empty() {
        let names = names(&site.output.compression);
        let what = format!("{names}, as the client takes it, if type and length are worth it");
        said.say("compression", what);
    }
}

/// What a pool answers itself at this path, as the client wrote it.
fn page_of(config: &Config, pool: &str, path: &str) -> Option<String> {
    let settings = config.pool(pool)?;
    let is = |page: &Option<String>| page.as_deref() == Some(path);
    match (is(&settings.ping_path), is(&settings.status_path)) {
        (true, _) => Some(format!("the ping of pool {pool} (ping_path)")),
        (_, true) => Some(format!("the status page of pool {pool} (status_path)")),
        _ => None,
    }
}

fn own_body_size(said: &mut Explanation, settings: Option<&PathSettings>) {
    if let Some(most) = settings.and_then(|settings| settings.max_body_size) {
        said.say("max_body_size", format!("{most} bytes (paths)"));
    }
}

fn names(codings: &[Coding]) -> String {
    let names: Vec<&str> = codings.iter().map(|coding| coding.name()).collect();
    names.join(", ")
}

/// In which coding a file is sent to those who take it.
fn file_coding(said: &mut Explanation, site: &Site, resolver: &mut Resolver, entry: &Entry) {
    let Some(compression) = Compression::of(&site.output) else {
        return;
    };
    if !entry.varies() {
        said.say("compression", "none: type or length are not worth it");
        return;
    }
    let mut beside = Vec::new();
    for coding in Coding::SMALLEST {
        if compression.precompressed() && resolver.sibling(entry, coding).is_some() {
            beside.push(format!(
                "{}.{}",
                String::from_utf8_lossy(entry.name()),
                coding.extension()
            ));
        }
    }
    match (beside.is_empty(), compression.kept()) {
        (false, _) => {
            let files = beside.join(", ");
            said.say("precompressed", format!("{files}, as the client takes it"));
        }
        (true, []) => {}
        (true, codings) => {
            let names = names(codings);
            said.say("compression", format!("{names}, as the client takes it"));
        }
    }
}

/// Who runs the scripts of a path.
#[derive(Clone, Copy)]
enum Runner<'a> {
    Pool { name: &'a str, is_of_paths: bool },
    Upstream(&'a Upstream),
}

impl<'a> Runner<'a> {
    fn of(settings: Option<&'a PathSettings>, destination: &'a Destination) -> Runner<'a> {
        let own = settings.and_then(|settings| settings.pool.as_deref());
        match (own, destination) {
            (Some(name), _) => Runner::Pool {
                name,
                is_of_paths: true,
            },
            (None, Destination::Pool(name)) => Runner::Pool {
                name,
                is_of_paths: false,
            },
            (None, Destination::Upstream(upstream)) => Runner::Upstream(upstream),
        }
    }

    /// What the answer is, and that of another script than the one that is asked for, if one was booted.
    fn answer(self, config: &Config) -> String {
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

fn header(said: &mut Explanation, rules: &SiteRules, path: &CleanPath<'_>) {
    let dressing = rules.dressing(path.as_bytes());
    for (name, value) in dressing.fields() {
        let (name, value) = (
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value),
        );
        said.say("header", format!("{name}: {value}"));
    }
}

/// The resolver of the folder that a path lies in, and the path in there.
fn resolver_for(
    config: &Config,
    site: &Site,
    path: &CleanPath<'_>,
    said: &mut Explanation,
) -> Result<(Resolver, String), String> {
    let chroot = match &site.destination {
        Destination::Pool(name) => config.pool(name),
        Destination::Upstream(_) => None,
    };
    let mut files = SiteFiles {
        chroot: chroot.and_then(|pool| pool.confinement.chroot.clone()),
        root: site.root.clone(),
        index: site.index.clone(),
        front_controller: site.front_controller.clone(),
        prefix: String::new(),
        front: front_of(config),
    };
    let mut inner = path.as_bytes();
    let mut aliases: Vec<_> = site.rules.aliases.iter().collect();
    aliases.sort_by_key(|alias| std::cmp::Reverse(alias.path.len()));
    for alias in aliases {
        let prefix = alias.path.trim_end_matches('/');
        let rest = inner.strip_prefix(prefix.as_bytes());
        if let Some(rest) = rest.filter(|rest| rest.starts_with(b"/")) {
            said.say(
                "aliases",
                format!("{} is {}", alias.path, alias.folder.display()),
            );
            files.root.clone_from(&alias.folder);
            prefix.clone_into(&mut files.prefix);
            files.front_controller = None;
            inner = rest;
            break;
        }
    }
    let root = files.root.display().to_string();
    let mut resolver = Resolver::new(files, Limits::default())
        .map_err(|error| format!("the folder {root} cannot be opened: {error}"))?;
    if let Some(why) = resolver.refusal() {
        said.say("root", format!("{root} is not served: {why}"));
    }
    resolver.compress(Compression::of(&site.output).map(Arc::new));
    Ok((resolver, encode_path(inner)))
}

/// The user that the front runs as; who it is where this process is not root.
fn front_of(config: &Config) -> u32 {
    let own = users::current().uid;
    match own {
        0 => users::look_up(&config.front_user, None).map_or(own, |front| front.uid),
        own => own,
    }
}

/// Folders of sites that are not served because of the links that lead to them: one sentence each.
pub fn refused_folders(config: &Config) -> Vec<String> {
    let of_site = |site| refused_folders_of(config, site);
    config.sites.iter().flat_map(of_site).collect()
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

/// What is wrong with the files that the rules of sites name, beyond that they are there: one
/// sentence each.
pub fn mistakes(config: &Config) -> Vec<String> {
    let mut mistakes = Vec::new();
    for site in &config.sites {
        let root = site.root.display();
        for auth in &site.rules.basic_auth {
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
        mistakes.extend(unreadable(&site.root));
        for root in &site.output.sendfile_roots {
            mistakes.extend(unreadable(&root.folder));
        }
    }
    mistakes
}

/// Why no server can ever be at a Unix socket, as it looks now. One that is not there may come.
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

fn unreadable(root: &Path) -> Option<String> {
    let error = std::fs::read_dir(root).err()?;
    let root = root.display();
    Some(format!("the folder {root} cannot be read: {error}"))
}

fn leads_somewhere(config: &Config, site: &Site, page: &str) -> bool {
    let Ok(clean) = clean_path(page) else {
        return false;
    };
    match resolver_for(config, site, &clean, &mut Explanation::default()) {
        Ok((mut resolver, inner)) => {
            matches!(
                resolver.resolve(&inner, None),
                Route::File(_) | Route::Script(_)
            )
        }
        Err(_) => false,
    }
}
