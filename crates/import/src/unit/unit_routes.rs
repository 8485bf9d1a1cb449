//! Unit's routes as sites: the first step that matches a request decides.

use std::collections::BTreeSet;

use serde_json::Value;

use super::first_steps::{DEFAULT_INDEX, share_texts};
use super::php_applications::{PhpTarget, has_script, target};
use super::uri_patterns::UriList;
use super::{UnitConfig, names};
use crate::file_draft::{FileDraft, Placed, SiteDraft};
use crate::report::{ImportReport, SourceLine};
use crate::toml_text;

/// Deepest chain of routes that lead to routes.
const MAX_DEPTH: usize = 20;

/// Most steps that are read for one site: steps of several may lead to one route.
const MAX_STEPS: usize = 10_000;

/// The document root of a site that serves no files.
const NO_ROOT: &str = "/srv";

/// Lists of a site whose rules respond without a document root.
const RULES: [&str; 3] = ["deny", "proxy", "redirects"];

/// Scripts that tell whether a pattern is for all of them.
const ANY_SCRIPTS: [&str; 2] = ["/zz9/zz9.php", "/zz8.php"];

/// Where a site goes.
pub(super) struct SitePlace<'w> {
    /// The file.
    pub file: &'w mut FileDraft,
    /// The report.
    pub report: &'w mut ImportReport,
    /// The place of the site.
    pub place: &'w SourceLine,
}

/// What has the requests of a site.
pub(super) enum RouteLead<'r> {
    /// The `pass` of a listener.
    Pass(&'r str),
    /// The action of a step, by its pointer.
    Action(&'r str),
}

/// What leads requests to a site.
pub(super) struct SiteRoute<'r> {
    /// What has them.
    pub lead: RouteLead<'r>,
    /// The steps before the one with the site's host.
    pub before: &'r [String],
}

/// Adds a site for these hosts. Whether it serves something.
pub(super) fn site(
    config: &UnitConfig,
    led: &SiteRoute<'_>,
    hosts: &[String],
    at: SitePlace<'_>,
) -> bool {
    let SitePlace { file, report, place } = at;
    let draft = SiteDraft { from: place.to_string(), ..SiteDraft::default() };
    let mut walk = RouteWalk {
        config,
        file: &mut *file,
        report,
        site: draft,
        earlier: Vec::new(),
        direct: Vec::new(),
        refuses_scripts: None,
        still_run: Vec::new(),
        proxied: Vec::new(),
        shares: false,
        hides_files: None,
        runs_all: false,
        is_of_listener: hosts == ["*"],
        steps: 0,
        seen: BTreeSet::new(),
    };
    let hosts = Placed::new(toml_text::strings(hosts), place);
    walk.site.settings.set("hosts", hosts);
    for step in led.before {
        walk.before_host(step);
    }
    match led.lead {
        RouteLead::Pass(pass) => walk.pass(pass, place, None, 0),
        RouteLead::Action(pointer) => walk.action(pointer, None, 0),
    }
    let has_root = walk.site.settings.has("root");
    let has_rules = RULES.iter().any(|list| !walk.site.settings.list(list).is_empty());
    let (is_of_host, is_proxied) = (!walk.is_of_listener, !walk.proxied.is_empty());
    if !has_root {
        walk.close_rest(place);
    }
    let site = walk.finished(place);
    if has_root || has_rules || is_of_host {
        file.sites.push(site);
    }
    has_root || is_proxied
}

/// The walk through the steps of a route.
pub(super) struct RouteWalk<'w> {
    config: &'w UnitConfig,
    file: &'w mut FileDraft,
    pub(super) report: &'w mut ImportReport,
    pub(super) site: SiteDraft,
    /// The paths of earlier steps.
    pub(super) earlier: Vec<UriList>,
    /// Patterns of scripts that run by their own name.
    pub(super) direct: Vec<(String, SourceLine)>,
    /// The first step after which no scripts run but those of `still_run`.
    pub(super) refuses_scripts: Option<SourceLine>,
    pub(super) still_run: Vec<String>,
    /// Patterns of paths that lead to other servers.
    proxied: Vec<String>,
    /// Whether files are served.
    pub(super) shares: bool,
    /// A step with an application for paths that may be files here.
    hides_files: Option<SourceLine>,
    /// Whether all scripts run.
    pub(super) runs_all: bool,
    /// Whether steps for a host are sites of their own.
    is_of_listener: bool,
    /// The number of steps so far.
    steps: usize,
    /// The routes that lead to this step.
    seen: BTreeSet<String>,
}

impl RouteWalk<'_> {
    /// What a `pass` leads to, for the paths of a list, or for all.
    fn pass(&mut self, pass: &str, place: &SourceLine, paths: Option<&UriList>, depth: usize) {
        if depth > MAX_DEPTH {
            return self.report.access_left_out(place, pass, "routes are too deep");
        }
        if pass.starts_with("applications/") {
            return self.application(pass, place, paths);
        }
        if !pass.starts_with("routes") {
            let why = "only routes and applications have a counterpart; write `[[sites.proxy]]` \
                       in place of the `deny`";
            self.report.left_out(place, pass, why);
            return self.nothing_here(place, paths);
        }
        let pointer = UnitConfig::target(pass);
        let steps = self.config.get(&pointer).and_then(Value::as_array).map_or(0, Vec::len);
        if !self.seen.insert(pointer.clone()) {
            return;
        }
        for step in 0..steps {
            // No later step is reached.
            if self.step(&format!("{pointer}/{step}"), paths, depth) {
                break;
            }
        }
        self.seen.remove(&pointer);
    }

    /// A step that precedes the one with the host of this site.
    fn before_host(&mut self, pointer: &str) {
        if names(self.config, &format!("{pointer}/match")).iter().any(|name| name == "host") {
            return;
        }
        if self.config.get(&format!("{pointer}/action/return")).is_some() {
            self.step(pointer, None, 0);
            return;
        }
        let why = "it precedes a step for a host, and only a `return` is written for the site of \
                   this host: write the others by hand";
        self.report.access_left_out(&self.config.place(pointer), "action", why);
    }

    /// A step. Whether it is for all requests that reach it.
    fn step(&mut self, pointer: &str, around: Option<&UriList>, depth: usize) -> bool {
        let place = self.config.place(pointer);
        self.steps += 1;
        if self.steps > MAX_STEPS {
            self.report.access_left_out(&place, "routes", "there are too many steps");
            return true;
        }
        let conditions = names(self.config, &format!("{pointer}/match"));
        if conditions == ["host"] && self.is_of_listener && depth == 0 {
            return false;
        }
        let other = conditions.iter().find(|name| *name != "uri");
        if let Some(other) = other {
            let why = "requests differ by their paths alone here; write `deny`, `redirects` or \
                       `[[sites.proxy]]` of the site";
            self.report.access_left_out(&place, &format!("match {other}"), why);
            return false;
        }
        let paths = match self.config.get(&format!("{pointer}/match/uri")).map(UriList::of) {
            None => None,
            Some(Some(list)) => Some(list),
            Some(None) => {
                let why = "it is no list of paths that can be read";
                self.report.access_left_out(&place, "match uri", why);
                return false;
            }
        };
        let is_for_all = paths.as_ref().is_none_or(UriList::is_all);
        let paths = paths.and_then(|list| self.without_exceptions(list, pointer));
        if paths.is_some() && around.is_some() {
            let why = "paths within routes that are for some paths alone have no counterpart; no \
                       script runs by this step";
            self.report.access_left_out(&place, "match uri", why);
            return false;
        }
        let paths = paths.or_else(|| around.cloned());
        self.action(&format!("{pointer}/action"), paths.as_ref(), depth);
        self.earlier.extend(paths);
        is_for_all
    }

    /// The paths of a step; none for files and a front controller at all paths but some scripts:
    /// scripts are no files here, and run by steps of their own.
    fn without_exceptions(&mut self, list: UriList, pointer: &str) -> Option<UriList> {
        let is_script = |one: &String| {
            let name = one.trim_start_matches("~^").replace('\\', "");
            name.ends_with(".php") && !name.contains(['*', '(', '['])
        };
        let fallback = self.config.get(&format!("{pointer}/action/fallback/pass"));
        let has_front =
            fallback.and_then(Value::as_str).is_some_and(|pass| has_script(self.config, pass));
        if !list.patterns.is_empty() || !list.except.iter().all(is_script) || !has_front {
            return Some(list);
        }
        let place = self.config.place(pointer);
        let why = "the script runs by its own name as well, and Unit has no step for it";
        self.report.changed(&place, "match uri", why);
        self.refuse_scripts(&place, &list.except);
        None
    }

    /// What an action changes of a request or its response.
    fn changes(&mut self, pointer: &str) {
        let place = self.config.place(pointer);
        let Some(action) = self.config.get(pointer) else { return };
        if action.get("response_headers").is_some() {
            self.report.left_out(&place, "response_headers", "write `headers` of the site");
        }
        let why = "write `rewrite` of the site";
        match (action.get("rewrite").is_some(), action.get("return").is_some()) {
            (false, _) => {}
            (true, true) => self.report.left_out(&place, "rewrite", why),
            // It decides which files and scripts these paths lead to.
            (true, false) => self.report.access_left_out(&place, "rewrite", why),
        }
    }

    fn action(&mut self, pointer: &str, paths: Option<&UriList>, depth: usize) {
        let place = self.config.place(pointer);
        let Some(action) = self.config.get(pointer) else { return };
        let text = |name: &str| action.get(name).and_then(Value::as_str);
        self.changes(pointer);
        if let Some(status) = action.get("return").and_then(Value::as_u64) {
            return self.returned(status, text("location"), &place, paths);
        }
        if let Some(pass) = text("pass") {
            self.report.kept(&place, &format!("pass {pass}"));
            return self.pass(pass, &place, paths, depth + 1);
        }
        if let Some(to) = text("proxy") {
            return self.proxy(to, &place, paths);
        }
        if let Some(share) = action.get("share") {
            let texts = share_texts(share).unwrap_or_default();
            if texts.len() > 1 {
                let why = format!("one share of {}: files of the others are not sent", texts.len());
                self.report.left_out(&place, "share", &why);
            }
            self.share(texts.first().copied().unwrap_or_default(), pointer, paths);
            if let Some(Value::String(pass)) = action.pointer("/fallback/pass") {
                self.changes(&format!("{pointer}/fallback"));
                return self.fallback(pass, &place, paths, depth);
            }
            if action.get("fallback").is_some() {
                self.action(&format!("{pointer}/fallback"), paths, depth + 1);
            }
            return;
        }
        self.report.access_left_out(&place, "action", "it is unknown");
    }

    fn proxy(&mut self, to: &str, place: &SourceLine, paths: Option<&UriList>) {
        let to = to.replace("http://unix:", "unix:");
        for path in self.exact_patterns(paths, place) {
            let fields = [("path", toml_text::string(&path)), ("to", toml_text::string(&to))];
            self.site.settings.push("proxy", Placed::new(toml_text::table(fields), place));
            self.proxied.push(path);
        }
        self.report.kept(place, "proxy");
    }

    /// Files of a folder.
    fn share(&mut self, share: &str, pointer: &str, paths: Option<&UriList>) {
        let place = self.config.place(pointer);
        if share.starts_with("/dev/null") {
            self.deny(404, &place, paths);
            return self.report.kept(&place, "share /dev/null");
        }
        let folder = match share.strip_suffix("$uri") {
            Some(folder) => folder.trim_end_matches('/'),
            None if share.contains('$') => share,
            None => return self.one_file(share, pointer),
        };
        if folder.contains('$') || folder.is_empty() {
            let why = "the folder is not fixed; write `root` or `aliases` of the site";
            return self.report.access_left_out(&place, "share", why);
        }
        let known = self.site.settings.value("root").map(str::to_owned);
        match known {
            None => {
                let root = Placed::new(toml_text::string(folder), &place);
                self.site.settings.set("root", root);
            }
            Some(root) if root == toml_text::string(folder) => {}
            Some(_) => {
                let why = "a site has one document root; write `aliases` of the site";
                return self.report.left_out(&place, "share", why);
            }
        }
        if let Some(index) = self.config.get(&format!("{pointer}/index")).and_then(Value::as_str) {
            let index = Placed::new(toml_text::strings([index]), &place);
            self.site.settings.set("index", index);
        }
        if let Some(list) = paths {
            let only = list.patterns.join(", ");
            let is_left = list.except.iter().any(|one| !one.contains("php") && !one.contains("ht"));
            let why = format!(
                "Unit sends files of {only} only; here all files of the document root are sent but \
                 hidden ones, PHP source and those in `deny`: deny the others"
            );
            if is_left || !self.shares {
                self.report.access_left_out(&place, "share", &why);
            }
        }
        if self.config.get(&format!("{pointer}/types")).is_some() {
            let why = "files of all types are sent here: deny the others";
            self.report.access_left_out(&place, "types", why);
        }
        self.shares = true;
        self.report.kept(&place, "share");
    }

    /// A share that is the same file for all paths.
    fn one_file(&mut self, share: &str, pointer: &str) {
        let index = self.config.get(&format!("{pointer}/index")).and_then(Value::as_str);
        let file = match share.ends_with('/') {
            true => format!("{share}{}", index.unwrap_or(DEFAULT_INDEX)),
            false => share.to_owned(),
        };
        let why = format!(
            "Unit sends the one file {file}, and versions before 1.26 sent those of a folder: \
             write `root` if it is that of all files, or `rewrite` to the one file"
        );
        self.report.access_left_out(&self.config.place(pointer), "share", &why);
    }

    /// What serves paths without a file.
    fn fallback(&mut self, pass: &str, place: &SourceLine, paths: Option<&UriList>, depth: usize) {
        if !pass.starts_with("applications/") || paths.is_some() {
            return self.pass(pass, place, paths, depth + 1);
        }
        match target(self.config, pass, self.file, self.report) {
            Err(why) => {
                let why = format!("{why}; paths without a file are a 404");
                self.report.left_out(place, &format!("fallback {pass}"), &why);
            }
            Ok(found) => {
                let script = self.of_application(&found, place);
                self.report.kept(place, &format!("fallback {pass}"));
                match script {
                    Some(script) => self.front_controller(script, place),
                    None => self.run(&["*.php".to_owned()], place),
                }
            }
        }
    }

    fn front_controller(&mut self, script: String, place: &SourceLine) {
        let toml = toml_text::string(&script);
        self.site.settings.set("front_controller", Placed::new(toml, place));
        self.direct.push((script, place.clone()));
    }

    /// The root and the pool of an application. Its script as seen from the document root.
    fn of_application(&mut self, found: &PhpTarget, place: &SourceLine) -> Option<String> {
        let root = Placed::new(toml_text::string(&found.root), place);
        self.site.settings.set("root", root);
        let pool = toml_text::string(&found.pool);
        self.site.settings.set("pool", Placed::new(pool.clone(), place));
        if self.site.settings.value("pool") != Some(&pool) {
            let why = "the pool of the site runs these scripts; write `paths` of the site";
            self.report.access_left_out(place, "pass", why);
        }
        let index = toml_text::strings([&found.index, "index.html"]);
        self.site.settings.set("index", Placed::new(index, place));
        let root = self.site.settings.value("root").unwrap_or_default().trim_matches('"');
        let below = found
            .root
            .strip_prefix(root)
            .filter(|rest| rest.is_empty() || rest.starts_with('/') && found.script.is_some());
        if below.is_none() {
            let why = format!(
                "its scripts are below {}, and those of the site below {root}: write a site for \
                 each, or `aliases`",
                found.root
            );
            self.report.access_left_out(place, "pass", &why);
        }
        let script = found.script.as_ref()?;
        Some(format!("{}/{}", below.unwrap_or_default(), script.trim_start_matches('/')))
    }

    fn application(&mut self, pass: &str, place: &SourceLine, paths: Option<&UriList>) {
        let found = match target(self.config, pass, self.file, self.report) {
            Ok(found) => found,
            Err(why) => {
                let why = format!("{why}; the paths are a 404");
                self.report.left_out(place, pass, &why);
                return self.nothing_here(place, paths);
            }
        };
        match (self.of_application(&found, place), paths) {
            (Some(script), None) => {
                // All other paths: files among them are not sent by Unit.
                self.front_controller(script, place);
                self.hides_files = Some(place.clone());
            }
            (None, None) => {
                self.run(&["*.php".to_owned()], place);
                self.hides_files = Some(place.clone());
            }
            (Some(script), Some(list)) => {
                match list.has_all() && !list.is_all() {
                    // A rewrite would precede what earlier steps have.
                    true => self.hides_files = Some(place.clone()),
                    false => self.rewrite_to(&script, list, place),
                }
                self.direct.push((script, place.clone()));
            }
            (None, Some(list)) => {
                self.run(&list.patterns.clone(), place);
                for except in &list.except {
                    let except = Placed::new(toml_text::string(except), place);
                    self.site.settings.push("deny_php", except);
                }
            }
        }
    }

    /// Has a script run for the paths of a list.
    fn rewrite_to(&mut self, script: &str, list: &UriList, place: &SourceLine) {
        for pattern in self.exact_patterns(Some(list), place) {
            let fields = [
                ("from", toml_text::string(&pattern)),
                ("to", toml_text::string(script)),
                ("end", "true".to_owned()),
            ];
            let item = Placed::new(toml_text::table(fields), place);
            self.site.settings.push("rewrite", item);
        }
    }

    /// Scripts that run by their own name.
    fn run(&mut self, patterns: &[String], place: &SourceLine) {
        let is_refused = |pattern: &String| !self.still_run.contains(pattern);
        if let Some(refused) =
            self.refuses_scripts.clone().filter(|_| patterns.iter().any(is_refused))
        {
            let why = "a later step runs scripts that this one has: write `deny_php` of the site";
            self.report.access_left_out(&refused, "action", why);
        }
        for pattern in patterns {
            let parsed = maitred_rules::Pattern::parse(pattern);
            let is_all =
                parsed.is_ok_and(|one| ANY_SCRIPTS.iter().all(|path| one.matches(path.as_bytes())));
            self.runs_all |= is_all;
            let pattern = match pattern.strip_suffix('/').filter(|_| !pattern.starts_with('~')) {
                Some(folder) => format!("{folder}/index.php"),
                None => pattern.clone(),
            };
            self.direct.push((pattern, place.clone()));
        }
    }

    /// A site without files and scripts: what leads nowhere else is a 404.
    fn close_rest(&mut self, place: &SourceLine) {
        let why = "no files and no PHP";
        let root = Placed::because(toml_text::string(NO_ROOT), place, why);
        self.site.settings.set("root", root);
        self.shares = true;
        let led = UriList { except: self.proxied.clone(), ..UriList::default() };
        let rest = match self.proxied.as_slice() {
            [] => Some("/*".to_owned()),
            all if all.iter().any(|one| one == "/*") => return,
            _ => led.complement(),
        };
        let Some(rest) = rest else {
            let why = "paths that lead to no other server have no pattern: deny them";
            return self.report.access_left_out(place, "routes", why);
        };
        let fields = [("path", toml_text::string(&rest)), ("status", "404".to_owned())];
        self.site.settings.push("deny", Placed::because(toml_text::table(fields), place, why));
    }

    /// `allow_php`, and files that Unit does not send.
    fn finished(mut self, place: &SourceLine) -> SiteDraft {
        if !self.site.settings.has("front_controller") {
            let none = Placed::because("\"\"".to_owned(), place, "no fallback");
            self.site.settings.set("front_controller", none);
        }
        if self.direct.is_empty() {
            let all = Placed::because(toml_text::string("/*"), place, "no application");
            self.site.settings.push("deny_php", all);
        } else if !self.runs_all {
            for (pattern, place) in std::mem::take(&mut self.direct) {
                let item = Placed::new(toml_text::string(&pattern), &place);
                self.site.settings.push("allow_php", item);
            }
        }
        let denies_all = self.site.settings.list("deny").iter().any(|one| one.toml == "\"/*\"");
        if self.site.settings.has("root")
            && !self.shares
            && self.hides_files.is_none()
            && !denies_all
        {
            let why = "no step of Unit sends files, and files of the document root are sent here: \
                       deny them, or move them out of it";
            self.report.access_left_out(place, "routes", why);
        }
        if let Some(hidden) = self.hides_files.take() {
            let why = "Unit passes all of these paths to PHP, and files there are sent here: deny \
                       them, or move them out of the document root";
            self.report.access_left_out(&hidden, "pass", why);
        }
        self.site
    }
}
