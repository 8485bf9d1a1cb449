//! Unit's configuration as a `maitred.toml`.

mod first_steps;
mod host_steps;
mod json_places;
mod laxer_steps;
mod php_applications;
mod share_links;
mod step_refusals;
#[cfg(test)]
mod unit_access_tests;
mod unit_listeners;
mod unit_routes;
mod uri_patterns;

use std::collections::BTreeMap;
use std::rc::Rc;

use json_places::pointer_part;
use laxer_steps::WrittenRoutes;
use serde_json::Value;
use share_links::ShareLinks;
use unit_listeners::{listeners, passes};

use crate::file_draft::{FileDraft, Placed};
use crate::report::{ImportReport, SourceLine};
use crate::written_site::WrittenSites;
use crate::{FileReader, Imported, toml_text};

/// A configuration, with the lines of its values.
pub(super) struct UnitConfig {
    file: Rc<str>,
    root: Value,
    lines: BTreeMap<String, usize>,
}

impl UnitConfig {
    /// The value at a pointer.
    pub fn get(&self, pointer: &str) -> Option<&Value> {
        self.root.pointer(pointer)
    }

    /// The place of a value.
    pub fn place(&self, pointer: &str) -> SourceLine {
        let line = self.lines.get(pointer).copied().unwrap_or(1);
        SourceLine { file: self.file.clone(), line, word: 0 }
    }

    /// The pointer of what a `pass` leads to, such as `routes/main` or `applications/a/direct`.
    pub fn target(pass: &str) -> String {
        let parts = pass.split('/').map(|part| part.replace("%2F", "/").replace("%2f", "/"));
        parts.map(|part| format!("/{}", pointer_part(&part))).collect()
    }
}

/// Imports Unit's configuration: the JSON that `curl --unix-socket … http://localhost/config`
/// prints.
///
/// # Errors
/// One sentence: the file cannot be read, or is no JSON, or serves nothing.
pub fn import(files: &dyn FileReader, main: &str) -> Result<Imported, String> {
    let text = files.read(main).map_err(|why| format!("{main} cannot be read: {why}"))?;
    let root: Value = serde_json::from_str(&text).map_err(|why| {
        format!("{main}:{}: {why}; expected the JSON of Unit's /config", why.line())
    })?;
    // `/` has the configuration in `config`, beside the certificates.
    let root = root.get("config").cloned().unwrap_or(root);
    let is_whole = text.contains("\"config\"") && !text.contains("\"routes/config");
    let mut lines = json_places::lines(&text);
    if is_whole && lines.contains_key("/config") {
        let inner = lines.iter().filter_map(|(pointer, line)| {
            Some((pointer.strip_prefix("/config")?.to_owned(), *line))
        });
        lines = inner.collect();
    }
    let config = UnitConfig { file: Rc::from(main), root, lines };
    let mut report = ImportReport::default();
    let mut file = FileDraft::default();
    if !listeners(&config, &mut file, &mut report) {
        return Err(format!(
            "{main} has no listener whose requests lead to PHP, files or a server:\n{report}"
        ));
    }
    ShareLinks { config: &config, files, report: &mut report }.report();
    settings(&config, &mut file, &mut report);
    access_log(&config, &mut file, &mut report);
    let known = ["listeners", "routes", "applications", "settings", "access_log", "upstreams"];
    for name in names(&config, "") {
        if !known.contains(&name.as_str()) {
            let why = "it is unknown; see what it does, and write it by hand";
            report.access_left_out(&config.place(&format!("/{name}")), &name, why);
        }
    }
    for name in names(&config, "/upstreams") {
        let why = "one server can be behind a path (`[[sites.proxy]]`)";
        report.left_out(&config.place(&format!("/upstreams/{name}")), "upstreams", why);
    }
    if let Some((pass, _)) = passes(&config).first() {
        let sites = WrittenSites::of(&file, main, &mut report);
        let written = WrittenRoutes { sites: &sites, pools: &file.pools };
        laxer_steps::report(written, &config, pass, &mut report);
    }
    Ok(Imported { toml: file.to_toml(main), report, user_files: Vec::new() })
}

/// The pointers of all routes.
fn route_pointers(config: &UnitConfig) -> Vec<String> {
    match config.get("/routes") {
        Some(Value::Array(_)) => vec!["/routes".to_owned()],
        _ => {
            let named = names(config, "/routes").into_iter();
            named.map(|name| format!("/routes/{}", pointer_part(&name))).collect()
        }
    }
}

/// The names of an object's members.
pub(super) fn names(config: &UnitConfig, pointer: &str) -> Vec<String> {
    let object = config.get(pointer).and_then(Value::as_object);
    object.map(|object| object.keys().cloned().collect()).unwrap_or_default()
}

/// `settings`: the size of bodies; time-outs need no counterpart.
fn settings(config: &UnitConfig, file: &mut FileDraft, report: &mut ImportReport) {
    let size = config.get("/settings/http/max_body_size").and_then(Value::as_u64);
    let (toml, place, why) = match size {
        Some(size) => (size.to_string(), config.place("/settings/http/max_body_size"), ""),
        None => ("\"8M\"".to_owned(), config.place(""), "Unit's default"),
    };
    for site in &mut file.sites {
        let value = match why {
            "" => Placed::new(toml.clone(), &place),
            why => Placed::because(toml.clone(), &place, why),
        };
        site.settings.set("max_body_size", value);
    }
    for name in names(config, "/settings/http") {
        let place = config.place(&format!("/settings/http/{name}"));
        match name.as_str() {
            "static" => report.left_out(&place, &name, "types are those of the file's extension"),
            _ => report.kept(&place, &name),
        }
    }
    for name in names(config, "/settings").into_iter().filter(|name| name != "http") {
        let place = config.place(&format!("/settings/{name}"));
        report.left_out(&place, &name, "it has no counterpart");
    }
}

fn access_log(config: &UnitConfig, file: &mut FileDraft, report: &mut ImportReport) {
    let Some(log) = config.get("/access_log") else { return };
    let place = config.place("/access_log");
    let path = log.as_str().or(log.get("path").and_then(Value::as_str));
    let Some(path) = path else { return };
    file.server.set("access_log", Placed::new(toml_text::string(path), &place));
    report.kept(&place, "access_log");
    match log.get("format").and_then(Value::as_str) {
        None => {}
        Some(format) if maitred_config::LogFormat::parse(format).is_ok() => {
            file.server.set("access_log_format", Placed::new(toml_text::string(format), &place));
        }
        Some(_) => {
            let why = "set `access_log_format`, which has other variables";
            report.left_out(&place, "access_log format", why);
        }
    }
    if log.get("if").is_some() {
        report.left_out(&place, "access_log if", "all requests are logged");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::only_file::OnlyFile;
    use crate::report::Outcome;

    /// The result for routes of an application with the targets `direct` and `index`.
    fn of_routes(routes: &str, script: &str) -> Imported {
        let pass = if routes.starts_with('{') { "routes/all" } else { "routes" };
        let text = format!(
            r#"{{"listeners": {{"*:80": {{"pass": "{pass}"}}}}, "routes": {routes},
            "applications": {{"a": {{"type": "php 8.2", "user": "web", "processes": 4,
            "limits": {{"timeout": 30, "requests": 500}},
            "options": {{"file": "/etc/php.ini", "admin": {{"memory_limit": "99M"}}}},
            "environment": {{"APP_ENV": "prod"}},
            "targets": {{"direct": {{"root": "/srv/a"}},
            "index": {{"root": "/srv/a", "script": "{script}"}}}}}}}}}}"#
        );
        import(&OnlyFile(text), "unit.json").expect("it can be imported")
    }

    fn has(toml: &str, lines: &[&str]) {
        for line in lines {
            assert!(toml.contains(line), "{line}\n{toml}");
        }
    }

    #[test]
    fn the_routes_of_wordpress_laravel_and_others_are_a_front_controller() {
        let rest = r#"{"action": {"share": "/srv/a$uri",
                       "fallback": {"pass": "applications/a/index"}}}"#;
        let php = r#"{"match": {"uri": ["*.php", "*.php/*", "/wp-admin/"]},
                      "action": {"pass": "applications/a/direct"}}"#;
        let deny = r#"{"match": {"uri": ["/cache/*", "/config.php*"]}, "action": {"return": 403}}"#;
        let imported = of_routes(&format!("[{deny}, {php}, {rest}]"), "index.php");
        has(
            &imported.toml,
            &[
                "root = \"/srv/a\"",
                "front_controller = \"/index.php\"",
                "max_children = 4",
                "request_terminate_timeout = \"30s\"",
                "php_admin_value.memory_limit = \"99M\"",
                "env.APP_ENV = \"prod\"",
                "\"/cache/*\",",
                "max_body_size = \"8M\"",
            ],
        );
        assert!(!imported.toml.contains("allow_php"), "{}", imported.toml);
        assert!(imported.report.keeps_access(), "{}", imported.report);
        let imported = of_routes(&format!("[{rest}]"), "app.php");
        has(&imported.toml, &["allow_php", "\"/app.php\",", "front_controller = \"/app.php\""]);
        assert!(imported.report.keeps_access(), "{}", imported.report);
    }

    #[test]
    fn the_last_address_of_a_header_is_the_clients_without_recursion() {
        let of = |first: &str, second: &str| {
            let text = format!(
                r#"{{"listeners": {{"*:80": {{"pass": "routes"{first}}}, "*:81": {{"pass": "routes"
                {second}}}}}, "routes": [{{"action": {{"share": "/srv/a$uri"}}}}]}}"#
            );
            let imported = import(&OnlyFile(text), "unit.json").expect("it can be imported");
            let is_last = imported.toml.contains("\ntrusted_recursive = false");
            (is_last, imported.report.keeps_access())
        };
        let proxies = |more: &str| {
            let source = r#""client_ip": "X-Forwarded-For", "source": "10.0.0.0/8""#;
            format!(r#", "forwarded": {{{source}{more}}}"#)
        };
        let (off, on) = (proxies(""), proxies(r#", "recursive": true"#));
        assert_eq!(of(&off, &off), (true, true));
        assert_eq!(of(&on, &on), (false, true));
        for (first, second) in [(&on, &off), (&off, &String::new()), (&String::new(), &on)] {
            assert!(!of(first, second).1, "{first} {second}");
        }
    }

    #[test]
    fn the_routes_of_drupal_run_the_listed_scripts_alone() {
        let imported = of_routes(
            r#"[{"match": {"uri": ["!*/.well-known/*", "/vendor/*", "*.inc", "*/.*"]},
                 "action": {"return": 403}},
                {"match": {"uri": ["/core/install.php", "/update.php"]},
                 "action": {"pass": "applications/a/direct"}},
                {"match": {"uri": ["!/index.php*", "*.php", "*.php/*"]}, "action": {"return": 403}},
                {"action": {"share": "/srv/a$uri",
                 "fallback": {"pass": "applications/a/index"}}}]"#,
            "index.php",
        );
        has(&imported.toml, &["\"/vendor/*\",", "\"/update.php\",", "\"/index.php\",", "inc$"]);
        assert!(imported.report.keeps_access(), "{}", imported.report);
        assert!(!imported.toml.contains("deny_php"), "{}", imported.toml);
    }

    #[test]
    fn files_that_unit_does_not_send_are_named_with_their_line() {
        let imported = of_routes(
            "[\n{\"match\": {\"uri\": \"/images/*\"}, \"action\": {\"share\": \"/srv/a$uri\"}},\n\
             {\"action\": {\"pass\": \"applications/a/index\"}}]",
            "index.php",
        );
        let left = imported.report.findings().iter();
        let left: Vec<usize> = left
            .filter(|one| one.outcome == Outcome::LeftOutAccess)
            .map(|one| one.place.line)
            .collect();
        assert_eq!(left, [2, 3], "{}", imported.report);
    }

    #[test]
    fn a_step_for_some_paths_lets_no_script_of_others_run() {
        let imported = of_routes(
            r#"{"more": [{"match": {"uri": "*.php*"},
                 "action": {"pass": "applications/a/direct"}}],
                "all": [{"match": {"uri": "/up*"}, "action": {"pass": "routes/more"}},
                 {"action": {"share": "/srv/a$uri",
                  "fallback": {"pass": "applications/a/index"}}}]}"#,
            "index.php",
        );
        assert!(imported.toml.contains("allow_php"), "{}", imported.toml);
        assert!(!imported.report.keeps_access(), "{}", imported.report);
    }

    fn config(imported: &Imported) -> maitred_config::Config {
        // That file has to exist.
        let toml = imported.toml.replace("php_ini = ", "# ");
        let parsed = maitred_config::parse(&toml, std::path::Path::new("/x/maitred.toml"));
        parsed.unwrap_or_else(|why| panic!("{why}\n{}", imported.toml))
    }

    /// Whether all clients are refused a path.
    fn is_denied(imported: &Imported, path: &str) -> bool {
        is_denied_by(imported, 0, path)
    }

    /// The same for one of the sites.
    fn is_denied_by(imported: &Imported, site: usize, path: &str) -> bool {
        config(imported).sites[site]
            .rules
            .deny
            .iter()
            .any(|rule| rule.path.matches(path.as_bytes()))
    }

    const SHARE: &str = r#"{"action": {"share": "/srv/a$uri"}}"#;

    #[test]
    fn a_refusal_for_all_paths_but_some_is_written() {
        let of = |uri: &str| {
            let step = format!(r#"{{"match": {{"uri": {uri}}}, "action": {{"return": 403}}}}"#);
            of_routes(&format!("[{step}, {SHARE}]"), "index.php")
        };
        for uri in [r#""!/public/*""#, r#"["!/public/*", "/*"]"#, r#"["!/public/*", "*"]"#] {
            let imported = of(uri);
            assert!(imported.report.keeps_access(), "{}", imported.report);
            assert!(is_denied(&imported, "/a") && is_denied(&imported, "/public"), "{uri}");
            assert!(!is_denied(&imported, "/public/a"), "{uri}\n{}", imported.toml);
        }
        assert!(!of(r#""!*.css""#).report.keeps_access());
        let imported = of(r#"["*.php*", "~\\.(php|inc)$"]"#);
        assert!(is_denied(&imported, "/a.php.bak"), "{}", imported.toml);
        assert!(is_denied(&imported, "/a.inc"), "{}", imported.toml);
    }

    #[test]
    fn each_step_that_passes_to_a_route_has_its_own_paths() {
        let imported = of_routes(
            &format!(
                r#"{{"closed": [{{"action": {{"return": 403}}}}], "all": [
                   {{"match": {{"uri": "/a/*"}}, "action": {{"pass": "routes/closed"}}}},
                   {{"match": {{"uri": "/b/*"}}, "action": {{"pass": "routes/closed"}}}},
                   {{"match": {{"uri": "/c/*"}}, "action": {{"pass": "routes/all"}}}},
                   {SHARE}]}}"#
            ),
            "index.php",
        );
        assert!(imported.report.keeps_access(), "{}", imported.report);
        assert!(is_denied(&imported, "/a/x") && is_denied(&imported, "/b/x"), "{}", imported.toml);
    }

    #[test]
    fn a_step_for_a_host_that_is_no_site_of_its_own_is_named() {
        let of = |step: &str| of_routes(&format!("[{step}, {SHARE}]"), "index.php").report;
        for action in [r#""return": 404"#, r#""share": "/srv/b$uri""#] {
            let step =
                format!(r#"{{"match": {{"host": "!example.com"}}, "action": {{{action}}}}}"#);
            assert!(!of(&step).keeps_access(), "{step}");
            let inner = of_routes(
                &format!(
                    r#"{{"more": [{step}, {SHARE}],
                        "all": [{{"action": {{"pass": "routes/more"}}}}]}}"#
                ),
                "index.php",
            );
            assert!(!inner.report.keeps_access(), "{step}");
        }
        let moved = r#"{"match": {"host": "www.example.com"},
            "action": {"return": 301, "location": "https://example.com$request_uri"}}"#;
        let imported = of_routes(&format!("[{moved}, {SHARE}]"), "index.php");
        assert!(imported.report.keeps_access(), "{}", imported.report);
        has(&imported.toml, &["hosts = [\"www.example.com\"]", "to = \"https://example.com$0\""]);
    }

    #[test]
    fn refusals_before_a_step_for_a_host_are_those_of_its_site() {
        let of = |action: &str| {
            of_routes(
                &format!(
                    r#"{{"a": [{SHARE}], "all": [
                       {{"match": {{"uri": ["/vendor/*", "*.sql"]}}, "action": {{{action}}}}},
                       {{"match": {{"host": "b.example"}}, "action": {{"pass": "routes/a"}}}},
                       {{"match": {{"host": "a.example"}}, "action": {{"pass": "routes/a"}}}},
                       {SHARE}]}}"#
                ),
                "index.php",
            )
        };
        let imported = of(r#""return": 404"#);
        assert!(imported.report.keeps_access(), "{}", imported.report);
        for site in 0..3 {
            for path in ["/vendor/a", "/dump.sql"] {
                assert!(is_denied_by(&imported, site, path), "{path}\n{}", imported.toml);
            }
            assert!(!is_denied_by(&imported, site, "/a"), "{}", imported.toml);
        }
        let imported = of(r#""pass": "applications/a/direct""#);
        assert!(!imported.report.keeps_access(), "{}", imported.report);
    }

    #[test]
    fn scripts_that_an_earlier_step_refuses_do_not_run_by_a_later_one_unnoticed() {
        let of = |refused: &str, runs: &str| {
            let step = |uri: &str, action: &str| {
                format!(r#"{{"match": {{"uri": [{uri}]}}, "action": {{{action}}}}}"#)
            };
            let refused = step(refused, r#""return": 404"#);
            let runs = step(runs, r#""pass": "applications/a/direct""#);
            of_routes(&format!("[{refused}, {runs}, {SHARE}]"), "index.php")
        };
        for runs in [r#""*.php""#, r#""/admin/*""#] {
            for refused in [r#""*.php""#, r#""*.php", "!/index.php""#] {
                let imported = of(refused, runs);
                assert!(!imported.report.keeps_access(), "{}\n{}", imported.toml, imported.report);
            }
        }
        let imported = of(r#""*.php", "!/index.php""#, r#""/index.php""#);
        assert!(imported.report.keeps_access(), "{}\n{}", imported.toml, imported.report);
    }

    #[test]
    fn negated_paths_reach_no_server_and_no_script_of_their_step() {
        let of = |uri: &str, action: &str| {
            let step = format!(r#"{{"match": {{"uri": [{uri}]}}, "action": {{{action}}}}}"#);
            of_routes(&format!("[{step}, {SHARE}]"), "index.php")
        };
        for action in [r#""proxy": "http://127.0.0.1:81""#, r#""pass": "applications/a/index""#] {
            let imported = of(r#""/api/*", "!/api/internal/*""#, action);
            assert!(imported.report.keeps_access(), "{}", imported.report);
            let config = config(&imported);
            let rules = &config.sites[0].rules;
            let proxied = rules.proxy.iter().map(|rule| &rule.path);
            let paths: Vec<_> =
                proxied.chain(rules.rewrite.iter().map(|rule| &rule.from)).collect();
            let is_led = |path: &str| paths.iter().any(|one| one.matches(path.as_bytes()));
            assert!(is_led("/api/a") && !is_led("/api/internal/a"), "{}", imported.toml);
            assert!(!of(r#""/api/*", "!*.sql""#, action).report.keeps_access(), "{action}");
            let is_proxy = action.contains("proxy");
            let all = of(r#""!/static/*""#, action);
            assert_eq!(all.report.keeps_access(), is_proxy, "{}", all.toml);
        }
    }

    #[test]
    fn a_rewrite_of_what_is_shared_or_passed_on_is_named() {
        for action in [
            r#""share": "/srv/a$uri""#,
            r#""pass": "applications/a/index""#,
            r#""proxy": "http://127.0.0.1:81""#,
        ] {
            let step = format!(r#"{{"action": {{"rewrite": "/public$uri", {action}}}}}"#);
            let report = of_routes(&format!("[{step}, {SHARE}]"), "index.php").report;
            assert!(report.to_string().contains("rewrite: write `rewrite`"), "{report}");
            assert!(!report.keeps_access(), "{report}");
        }
        let fallback = r#"[{"action": {"share": "/srv/a$uri",
            "fallback": {"rewrite": "/b", "pass": "applications/a/index"}}}]"#;
        assert!(!of_routes(fallback, "index.php").report.keeps_access());
    }

    #[test]
    fn routes_that_send_no_files_are_named() {
        let direct = r#"{"match": {"uri": "*.php"}, "action": {"pass": "applications/a/direct"}}"#;
        let closed = format!(r#", {{"action": {{"return": 404}}}}, {SHARE}"#);
        for rest in [
            "",
            &closed,
            r#", {"action": {"return": 404}}"#,
            r#", {"match": {"uri": "/*"}, "action": {"return": 404}}"#,
        ] {
            let imported = of_routes(&format!("[{direct}{rest}]"), "index.php");
            assert!(!imported.report.keeps_access(), "{rest}\n{}", imported.toml);
        }
    }

    #[test]
    fn conditions_that_are_not_about_paths_are_named() {
        for part in ["\"method\": \"GET\"", "\"source\": \"10.0.0.0/8\"", "\"scheme\": \"https\""] {
            let imported = of_routes(
                &format!(
                    r#"[{{"match": {{{part}}}, "action": {{"return": 403}}}},
                       {{"action": {{"share": "/srv/a$uri"}}}}]"#
                ),
                "index.php",
            );
            assert!(!imported.report.keeps_access(), "{part}\n{}", imported.toml);
        }
    }
}
