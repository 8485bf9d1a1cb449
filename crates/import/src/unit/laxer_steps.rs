//! Paths that Unit serves to fewer clients than the written sites do, found by comparing both.
//!
//! This is the last of the rules of the import, and knows none of the others: it looks at paths for
//! all patterns of the routes, at each host.

use std::collections::BTreeSet;

use serde_json::Value;

use super::first_steps::{UnitReply, UnitRequest, UnitSearch};
use super::json_places::pointer_part;
use super::{UnitConfig, names, route_pointers};
use crate::escapes::percent_decoded;
use crate::file_draft::PoolDraft;
use crate::report::{ImportReport, SourceLine};
use crate::rule_examples::crossed;
use crate::served::{RulePaths, ServedRule};
use crate::written_site::{Behind, WrittenSite, WrittenSites};

/// Most hosts that are looked at.
const MAX_HOSTS: usize = 64;

/// A path that no step names.
const UNKNOWN_PATH: &str = "/zz9";

/// A hidden file that is served here.
const WELL_KNOWN: &str = "/.well-known/zz9";

/// A name that no configuration has.
const UNKNOWN_HOST: &str = "zz9.example";

/// What the written sites are, and the pools of their scripts.
#[derive(Clone, Copy)]
pub(super) struct WrittenRoutes<'w> {
    /// The sites.
    pub sites: &'w WrittenSites,
    /// The pools, each of one application.
    pub pools: &'w [PoolDraft],
}

/// Names the steps of Unit whose paths are served to more clients by the written sites.
pub(super) fn report(
    written: WrittenRoutes<'_>,
    config: &UnitConfig,
    pass: &str,
    report: &mut ImportReport,
) {
    let search = UnitSearch::new(config);
    let of_some = front_scripts(config);
    let mut hosts = hosts(config);
    let others = hosts.split_off(MAX_HOSTS.min(hosts.len()));
    if let Some((first, place)) = others.first() {
        let why = format!(
            "the paths of {} hosts such as `{first}` are not compared, as there are more than \
             {MAX_HOSTS}: see their sites",
            others.len()
        );
        report.left_out(place, "match host", &why);
    }
    let named = hosts.into_iter().map(|(host, _)| host);
    let hosts: BTreeSet<String> = named.chain([UNKNOWN_HOST.to_owned()]).collect();
    let rules = rules(config);
    let mut crossed = crossed(&rules);
    crossed.retain(|path| !is_almost_script(path));
    let mut crossed = crossed.within_bounds(rules.len() * hosts.len());
    report.compares(&crossed);
    crossed.paths.insert(WELL_KNOWN.to_owned());
    for host in &hosts {
        let Some(site) = written.sites.of_host(host) else { continue };
        let serve = |path: &str| search.serve(pass, &UnitRequest { host, path });
        let of_all = serve(UNKNOWN_PATH).and_then(|reply| reply.script);
        let fronts = FrontScripts { of_some: &of_some, of_all };
        for path in &crossed.paths {
            let Some(old) = serve(path) else { continue };
            let how = laxer(&old, site, path, &fronts);
            if let Some(how) = how.or_else(|| runs_apart(&old, site, path, written.pools)) {
                add(report, config, &old, &UnitRequest { host, path }, how);
            }
        }
    }
}

/// The files of scripts that run for other paths than their own.
struct FrontScripts<'f> {
    /// For some paths.
    of_some: &'f BTreeSet<String>,
    /// For all that have no file and no step.
    of_all: Option<String>,
}

/// Adds a finding for a step, if none of the steps and actions on the way has one about access.
fn add(
    report: &mut ImportReport,
    config: &UnitConfig,
    old: &UnitReply,
    request: &UnitRequest<'_>,
    how: &str,
) {
    let places: Vec<SourceLine> = old.by.iter().map(|pointer| config.place(pointer)).collect();
    if report.leaves_access_out(|place| places.contains(place)) {
        return;
    }
    let Some(place) = places.last() else { return };
    let host = match request.host {
        UNKNOWN_HOST => String::new(),
        host => format!(" of {host}"),
    };
    let why = format!(
        "at paths such as `{}`{host} {how}: write `deny`, `deny_php` or `paths` of the site",
        request.path
    );
    report.access_left_out(place, "match", &why);
}

/// How a written site is laxer than Unit.
fn laxer(
    old: &UnitReply,
    site: &WrittenSite,
    path: &str,
    fronts: &FrontScripts<'_>,
) -> Option<&'static str> {
    let file = site.file(path);
    match site.serve(path).behind {
        Behind::Nothing => None,
        Behind::Server if old.is_proxied => None,
        Behind::Server => Some("Unit passes no request to that server"),
        Behind::File if old.files.contains(&file) => None,
        // The index of a folder, which is a script for both.
        Behind::File if path.ends_with('/') && runs_in(old, &file) => None,
        Behind::File => Some("Unit sends no such file"),
        Behind::Script => {
            let runs = |script: &Option<String>| script.as_ref() == Some(&file);
            // Unit sends its source, or has no step for its name.
            let has_no_refusal = old.is_unmatched || !old.files.is_empty();
            let is_front = has_no_refusal && fronts.of_some.contains(&file);
            let is_known = runs(&old.script) || runs(&fronts.of_all) || is_front;
            (!is_known).then_some("Unit does not run this script")
        }
    }
}

/// How a path runs a script in another pool than that of its application.
fn runs_apart(
    old: &UnitReply,
    site: &WrittenSite,
    path: &str,
    pools: &[PoolDraft],
) -> Option<&'static str> {
    old.script.as_ref()?;
    let pool = pools.iter().find(|pool| Some(&pool.origin) == old.application.as_ref())?;
    let is_served = site.serve(path).behind != Behind::Nothing;
    let is_own = site.pool(path) == Some(pool.name.as_str());
    (is_served && !is_own).then_some("Unit runs the script of another application")
}

/// Whether Unit runs a script of a folder.
fn runs_in(old: &UnitReply, folder: &str) -> bool {
    let script = old.script.as_ref().and_then(|script| script.strip_prefix(folder));
    script.is_some_and(|name| !name.contains('/'))
}

/// Names such as `/a.phpzz9`: patterns such as `*.php*` are for scripts.
fn is_almost_script(path: &str) -> bool {
    !path.ends_with(".php") && path.rsplit('/').next().is_some_and(|name| name.contains(".php"))
}

/// The scripts of all applications that have one.
fn front_scripts(config: &UnitConfig) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in names(config, "/applications") {
        let pointer = format!("/applications/{}", pointer_part(&name));
        let targets = names(config, &format!("{pointer}/targets")).into_iter();
        let holders = targets.map(|target| format!("{pointer}/targets/{}", pointer_part(&target)));
        for holder in holders.chain([pointer.clone()]) {
            let text = |name: &str| config.get(&format!("{holder}/{name}")).and_then(Value::as_str);
            if let (Some(root), Some(script)) = (text("root"), text("script")) {
                let root = root.trim_end_matches('/');
                found.insert(format!("{root}/{}", script.trim_start_matches('/')));
            }
        }
    }
    found
}

/// The texts of a condition in all steps, without their `!`.
fn texts(config: &UnitConfig, condition: &str) -> Vec<(String, SourceLine)> {
    let mut found = Vec::new();
    for pointer in route_pointers(config) {
        let steps = config.get(&pointer).and_then(Value::as_array).map_or(0, Vec::len);
        for at in (0..steps).map(|step| format!("{pointer}/{step}/match/{condition}")) {
            let all = match config.get(&at) {
                Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
                Some(Value::String(text)) => vec![text.as_str()],
                _ => Vec::new(),
            };
            let place = config.place(&at);
            let plain = all.into_iter().map(|text| text.trim_start_matches('!').to_owned());
            found.extend(plain.map(|text| (text, place.clone())));
        }
    }
    found
}

/// A host for each name, each once.
fn hosts(config: &UnitConfig) -> Vec<(String, SourceLine)> {
    let mut known = BTreeSet::new();
    let texts = texts(config, "host").into_iter();
    let named = texts.filter(|(text, _)| !text.starts_with('~'));
    let named = named.map(|(text, place)| (text.to_ascii_lowercase().replace('*', "zz9"), place));
    named.filter(|(host, _)| known.insert(host.clone())).collect()
}

/// The rules for the paths of all patterns and front controllers.
fn rules(config: &UnitConfig) -> Vec<ServedRule> {
    let texts = texts(config, "uri").into_iter();
    let of_patterns = texts.map(|(text, place)| {
        let paths = match (text.strip_prefix('~'), text.split_once('*')) {
            (Some(expression), _) => RulePaths::Regex(expression.to_owned()),
            (None, None) => RulePaths::Exact(decoded(&text)),
            (None, Some((begin, ""))) => {
                RulePaths::Prefix { text: decoded(begin), is_first: false }
            }
            (None, Some(_)) => {
                let parts = text.split('*').map(|part| regex::escape(&decoded(part)));
                RulePaths::Regex(format!("^{}$", parts.collect::<Vec<_>>().join(".*")))
            }
        };
        ServedRule::new(paths, &place, "match uri")
    });
    let place = config.place("/applications");
    let fronts = front_scripts(config).into_iter().filter_map(|file| {
        let name = file.rsplit('/').next()?.to_owned();
        Some(ServedRule::new(RulePaths::Exact(format!("/{name}")), &place, "script"))
    });
    of_patterns.chain(fronts).collect()
}

fn decoded(text: &str) -> String {
    percent_decoded(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::unit::json_places;

    /// The rest of the paths: files, and a front controller.
    const REST: &str = r#"{"action": {"share": "/srv/a$uri",
        "fallback": {"pass": "applications/a/index"}}}"#;

    /// A site for all hosts, as far as it is the same in all cases.
    const SITE: &str = "[[sites]]\nhosts = [\"*\"]\nfront_controller = \"/index.php\"\n";

    /// What is laxer in sites than in `routes`, whose `main` the listener has.
    fn found(routes: &str, sites: &str) -> String {
        let text = format!(
            r#"{{"routes": {{{}}}, "applications": {{"a": {{"type": "php 8.2", "targets": {{
                "direct": {{"root": "/srv/a"}},
                "index": {{"root": "/srv/a", "script": "index.php"}}}}}},
            "b": {{"type": "php", "root": "/srv/b", "script": "index.php"}}}}}}"#,
            routes.replace("REST", REST)
        );
        let root = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
        let lines = json_places::lines(&text);
        let config = UnitConfig { file: Rc::from("unit.json"), root, lines };
        let parsed = maitred_config::parse(sites, std::path::Path::new("/maitred.toml"));
        let parsed = parsed.unwrap_or_else(|why| panic!("{why}\n{sites}"));
        let mut found = ImportReport::default();
        let written = WrittenSites::of_toml(sites, &vec![""; parsed.sites.len()]);
        let pools = parsed.pools.into_iter().map(|pool| {
            let (name, origin) = (pool.name.clone(), pool.name);
            PoolDraft { name, origin, ..PoolDraft::default() }
        });
        let written = WrittenRoutes { sites: &written, pools: &pools.collect::<Vec<_>>() };
        report(written, &config, "routes/main", &mut found);
        let shown = found.to_string();
        let (compared, differences) = shown.split_once('\n').expect("a line");
        assert!(compared.starts_with("Compared: "), "{shown}");
        differences.to_owned()
    }

    #[test]
    fn what_unit_does_not_serve_is_named_where_it_is_served() {
        let step = |uri: &str, action: &str| {
            format!(r#"{{"match": {{"uri": {uri}}}, "action": {{{action}}}}}"#)
        };
        let (refused, direct) = (r#""return": 403"#, r#""pass": "applications/a/direct""#);
        let closed = format!(r#""closed": [{{"action": {{{refused}}}}}]"#);
        let host = r#"{"match": {"host": "HOST"}, "action": {"pass": "routes/ROUTE"}}"#;
        let host = |name: &str, to: &str| host.replace("HOST", name).replace("ROUTE", to);
        let scripts = step(r#"["*.php", "*.php/*"]"#, refused);
        let one = "allow_php = [\"/index.php\"]";
        // What the import wrote, or might write; and what it has to write.
        for (routes, laxer, strict) in [
            // A host without files is served by the site of all hosts.
            (
                format!(r#""main": [{}, REST], {closed}"#, host("intern.example", "closed")),
                one.to_owned(),
                format!("{one}\n[[sites]]\nhosts = [\"intern.example\"]\ndeny = [\"/*\"]"),
            ),
            // The first step has a host, and here the longest name.
            (
                format!(
                    r#""main": [{}, {}, REST], {closed}, "open": [REST]"#,
                    host("*.a.example", "closed"),
                    host("b.a.example", "open")
                ),
                format!(
                    "{one}\n[[sites]]\nhosts = [\"*.a.example\"]\ndeny = [\"/*\"]\n{SITE}{one}"
                )
                .replacen("\"*\"", "\"b.a.example\"", 1),
                format!("{one}\n[[sites]]\nhosts = [\"*.a.example\"]\ndeny = [\"/*\"]"),
            ),
            // Scripts that are refused after others.
            (
                format!(r#""main": [{}, {scripts}, REST]"#, step(r#"["/api.php"]"#, direct)),
                String::new(),
                "allow_php = [\"/index.php\", \"/api.php\"]".to_owned(),
            ),
            // A script that no step has.
            (
                format!(
                    r#""main": [{}], "rest": [{}, REST]"#,
                    step(r#""!/install.php""#, r#""pass": "routes/rest""#),
                    step(r#""*.php""#, direct)
                ),
                String::new(),
                "deny_php = [\"/install.php\"]".to_owned(),
            ),
            // Files of an application.
            (
                format!(r#""main": [{}, REST]"#, step(r#""/app/*""#, direct)),
                format!("{one}\ndeny_php = [\"/x/*\"]"),
                format!("{one}\ndeny = [\"/app/*\"]"),
            ),
            // An escaped path.
            (
                format!(r#""main": [{}, REST]"#, step(r#""/my%20docs/*""#, refused)),
                format!("{one}\ndeny = [\"~^/my%20docs/\"]"),
                format!("{one}\ndeny = [\"/my docs/*\"]"),
            ),
            // Another server.
            (
                format!(r#""main": [{}, REST]"#, step(r#""/api/*""#, r#""proxy": "http://b:81""#)),
                format!("{one}\nproxy = [{{ path = \"/*\", to = \"http://127.0.0.1:81\" }}]"),
                format!("{one}\nproxy = [{{ path = \"/api/*\", to = \"http://127.0.0.1:81\" }}]"),
            ),
            // Hidden files, of which some are not hidden here.
            (
                format!(r#""main": [{}, REST]"#, step(r#""*/.*""#, refused)),
                one.to_owned(),
                format!("{one}\ndeny = [\"/.well-known/*\"]"),
            ),
        ] {
            let of = |lines: &str| {
                let sites = format!("{SITE}{lines}\n");
                found(&routes, &sites.replace("hosts", "root = \"/srv/a\"\nhosts"))
            };
            assert!(!of(&laxer).is_empty(), "{routes}\n{laxer}");
            assert_eq!(of(&strict), "", "{routes}\n{strict}");
        }
    }

    #[test]
    fn files_and_scripts_are_those_of_the_folder_that_unit_has() {
        let sites = |root: &str| format!("{SITE}root = \"{root}\"\nallow_php = [\"/index.php\"]\n");
        assert!(found(r#""main": [REST]"#, &sites("/srv/b")).contains("Unit sends no such file"));
        assert_eq!(found(r#""main": [REST]"#, &sites("/srv/a")), "");
        let all = r#""main": [{"action": {"pass": "applications/a/direct"}}]"#;
        let scripts = |root: &str| format!("{SITE}root = \"{root}\"\ndeny = [\"~[^p]$\"]\n");
        assert!(found(all, &scripts("/srv/b")).contains("Unit does not run this script"));
        assert_eq!(found(all, &scripts("/srv/a")), "");
    }

    #[test]
    fn scripts_run_in_the_pool_of_their_application() {
        let all = r#""main": [{"action": {"pass": "applications/b"}}]"#;
        let site = |pool: &str| {
            let rules = "root = \"/srv/b\"\nallow_php = [\"/index.php\"]\ndeny = [\"~[^p]$\"]";
            format!("[pools.a]\n[pools.b]\n{SITE}{rules}\npool = \"{pool}\"\n")
        };
        assert_eq!(found(all, &site("b")), "");
        assert!(found(all, &site("a")).contains("the script of another application"));
        let paths = "paths = [{ path = \"/*\", pool = \"b\" }]\n";
        assert_eq!(found(all, &format!("{}{paths}", site("a"))), "");
    }

    #[test]
    fn what_depends_on_more_than_the_host_and_the_path_is_no_difference() {
        let site = format!("{SITE}root = \"/srv/a\"\nallow_php = [\"/index.php\"]\n");
        for step in [
            r#"{"match": {"method": "GET"}, "action": {"return": 403}}"#,
            r#"{"action": {"share": "/srv/$host$uri"}}"#,
            r#"{"action": {"pass": "routes/$host"}}"#,
            r#"{"action": {"pass": "routes/main"}}"#,
            r#"{"action": {"rewrite": "/b$uri", "share": "/srv/a$uri"}}"#,
        ] {
            assert_eq!(found(&format!(r#""main": [{step}, REST]"#), &site), "", "{step}");
        }
    }
}
