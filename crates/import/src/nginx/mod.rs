//! nginx's configuration as a `maitred.toml`.

mod access_logs;
mod access_rules;
#[cfg(test)]
mod cache_exceptions_tests;
mod cache_patterns;
mod client_tests;
#[cfg(test)]
mod directives_tests;
mod fastcgi_cache;
mod file_types;
mod folder_scripts;
mod https_targets;
mod if_blocks;
mod known;
mod laxer_paths;
#[cfg(test)]
mod laxer_paths_tests;
#[cfg(test)]
mod laxer_tests;
mod listeners;
mod listings;
mod location;
mod location_search;
mod missing_files;
mod named_scripts;
mod own_paths;
mod php_locations;
mod prefix_paths;
mod redirect_target;
mod responses;
mod routing;
mod scope;
mod served_files;
mod served_sites;
mod server;
mod server_block;
mod sites;
#[cfg(test)]
mod sites_tests;
mod standard_parameters;
pub mod tree;

use crate::source_directive::Directive;
use known::{KnownDirective, known};
use scope::Scope;
pub use served_sites::served_sites;
use server::HttpContext;
use sites::SitesImport;

use crate::file_draft::{FileDraft, Placed};
use crate::fpm::PoolPlan;
use crate::report::ImportReport;
use crate::written_site::WrittenSites;
use crate::{FileReader, Imported};

/// Imports nginx's configuration in `main`, with the pools of php-fpm in `fpm`.
///
/// # Errors
/// One sentence: the configuration cannot be read or has a syntax error, or serves nothing.
pub fn import(files: &dyn FileReader, main: &str, fpm: &[String]) -> Result<Imported, String> {
    let mut report = ImportReport::default();
    let mut tree = tree::read(files, main, &mut report)?;
    prefix_paths::complete(&mut tree, folder_of(main), files, &mut report);
    named_scripts::replace(&mut tree, files, &mut report);
    let mut pools = PoolPlan::read(files, fpm, &mut report);
    let none = || format!("{main} has no block `http`");
    let http = tree.iter().find(|directive| directive.name == "http").ok_or_else(none)?;
    let scope = Scope::new(http);
    let context = context(main, &scope, &mut report);
    let mut file = FileDraft::default();
    let mut sites = SitesImport {
        files,
        report: &mut report,
        pools: &mut pools,
        http: &context,
        scope: &scope,
    };
    sites.import(&mut file);
    if file.sites.is_empty() {
        return Err(format!("{main} has no `server` that can be imported:\n{report}"));
    }
    let (drafts, control) = pools.sections(&mut report);
    file.pools = drafts;
    file.name_pools();
    if let Some(control) = control {
        file.server.set("process_control_timeout", control);
    }
    real_ip(&scope, &mut file, &mut report);
    access_logs::access_logs(&scope, &mut file, &mut report);
    cache_paths(&scope, &file, &mut report);
    census(&tree, &mut report);
    let written = WrittenSites::of(&file, main, &mut report);
    laxer_paths::report(&written, &scope, &mut report);
    Ok(Imported { toml: file.to_toml(main), report, user_files: Vec::new() })
}

/// The folder of the configuration.
fn folder_of(main: &str) -> &str {
    main.rsplit_once('/').map_or(".", |(folder, _)| folder)
}

/// What `http` says about upstream servers and zones.
fn context(main: &str, scope: &Scope<'_>, report: &mut ImportReport) -> HttpContext {
    let mut context = HttpContext { folder: folder_of(main).to_owned(), ..HttpContext::default() };
    for upstream in scope.own("upstream") {
        let servers = upstream.block.iter().filter(|one| one.name == "server");
        let servers = servers.map(|one| one.first().to_owned()).collect();
        context.upstreams.insert(upstream.first().to_owned(), servers);
        report.kept(&upstream.place, &upstream.shown());
        report.cover(upstream);
    }
    for map in scope.own("map") {
        redirect_map(map, &mut context, report);
    }
    for zone in scope.own("limit_req_zone").chain(scope.own("limit_conn_zone")) {
        if !["$binary_remote_addr", "$remote_addr"].contains(&zone.first()) {
            report.left_out(&zone.place, &zone.shown(), "clients are counted by address only");
            continue;
        }
        let find = |start: &str| zone.arguments.iter().find_map(|one| one.strip_prefix(start));
        let name = find("zone=").and_then(|zone| zone.split(':').next()).unwrap_or_default();
        match find("rate=") {
            Some(rate) => {
                let rate = rate.replace("r/", "/");
                context.rates.insert(name.to_owned(), rate);
            }
            None => drop(context.by_address.insert(name.to_owned())),
        }
        report.kept(&zone.place, &zone.shown());
    }
    context
}

/// A `map` from paths, without a default: redirects may be made of it.
fn redirect_map(map: &Directive, context: &mut HttpContext, report: &mut ImportReport) {
    let is_empty = |one: &&Directive| one.name == "default" && one.first().is_empty();
    let is_by_path = ["$uri", "$request_uri", "$document_uri"].contains(&map.first());
    let entries: Vec<&Directive> = map.block.iter().filter(|one| !is_empty(one)).collect();
    let is_path = |one: &&Directive| one.name.starts_with(['/', '~']) && one.arguments.len() == 1;
    if !is_by_path || !entries.iter().all(is_path) {
        return;
    }
    let redirects = entries
        .into_iter()
        .map(|one| (one.name.clone(), one.first().to_owned(), one.place.clone()));
    context.redirect_maps.insert(map.argument(1).to_owned(), redirects.collect());
    report.kept(&map.place, &map.shown());
}

/// `set_real_ip_from`: the proxies before nginx.
fn real_ip(scope: &Scope<'_>, file: &mut FileDraft, report: &mut ImportReport) {
    let proxies: Vec<&Directive> = scope.own("set_real_ip_from").collect();
    let Some(first) = proxies.first() else { return };
    let header = scope.own("real_ip_header").last();
    if let Some(header) = header.filter(|one| one.first() == "proxy_protocol") {
        let why = "set `trusted_proxies`, and `proxy_protocol` if all listeners have it";
        return report.access_left_out(&header.place, &header.shown(), why);
    }
    let fixed = proxies.iter().filter(|one| one.first() != "unix:").map(|one| one.first());
    let toml = crate::toml_text::strings(fixed);
    file.server.set("trusted_proxies", Placed::new(toml, &first.place));
    proxies.iter().for_each(|one| report.kept(&one.place, &one.shown()));
    // nginx's default is not maitred's.
    let (name, place) = header.map_or(("X-Real-IP", &first.place), |one| (one.first(), &one.place));
    file.server.set("trusted_headers", Placed::new(crate::toml_text::strings([name]), place));
    let recursive = scope.own("real_ip_recursive").last();
    if recursive.is_none_or(|one| one.first() != "on") {
        let place = recursive.map_or(&first.place, |one| &one.place);
        file.server.set("trusted_recursive", Placed::new("false".to_owned(), place));
    }
    for one in header.into_iter().chain(scope.own("real_ip_recursive")) {
        report.kept(&one.place, &one.shown());
    }
}

/// `fastcgi_cache_path`, if a site has a cache.
fn cache_paths(scope: &Scope<'_>, file: &FileDraft, report: &mut ImportReport) {
    if file.sites.iter().all(|site| site.cache.is_none()) {
        return;
    }
    for line in scope.own("fastcgi_cache_path") {
        let why = "pages are in memory (`cache_memory`); `cache_dir`, `cache_max_size` and \
                   `cache_inactive` keep them in files";
        report.changed(&line.place, &line.shown(), why);
    }
}

/// A finding for each directive that has none yet, so that none is dropped.
fn census(directives: &[Directive], report: &mut ImportReport) {
    for directive in directives {
        let Directive { name, place, block, .. } = directive;
        if name == "http" {
            census(block, report);
            continue;
        }
        if report.is_known(place, name) {
            if ["server", "location"].contains(&name.as_str()) {
                census(block, report);
            }
            continue;
        }
        let shown = directive.shown();
        if name == "ssi" && directive.first() != "off" {
            let why = "server-side includes are not evaluated, and clients would see them: deny \
                       the pages that have some";
            report.access_left_out(place, &shown, why);
            continue;
        }
        match known(name) {
            KnownDirective::NotNeeded => report.kept(place, &shown),
            KnownDirective::ByHand(what) => report.left_out(place, &shown, what),
            KnownDirective::Cache => {
                let why = "a cache that stores too much shows pages to the wrong people: write \
                           `[sites.cache]` by the guide's page on fastcgi_cache";
                report.left_out(place, &shown, why);
            }
            KnownDirective::Misplaced => {
                let why = "no server inherits it, or it has no counterpart in this place";
                report.left_out(place, &shown, why);
            }
            KnownDirective::Access => {
                let why = "it is unknown, or decides who may see what, and has no counterpart: see \
                           what it does, and write it by hand";
                report.access_left_out(place, &shown, why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nginx's configuration, with these lines in `http`.
    struct HttpLines(String);

    impl FileReader for HttpLines {
        fn read(&self, _: &str) -> Result<String, String> {
            Ok(format!("http {{ {} server {{ root /srv; }} }}", self.0))
        }

        fn glob(&self, _: &str) -> Vec<String> {
            Vec::new()
        }

        fn resolved(&self, _: &str) -> Option<String> {
            None
        }
    }

    #[test]
    fn proxies_are_trusted_for_the_header_of_nginx_alone() {
        let of = |lines: &str| {
            let http = HttpLines(format!("set_real_ip_from 10.0.0.0/8; {lines}"));
            import(&http, "/nginx.conf", &[]).expect("a site")
        };
        for (lines, header) in
            [("", "X-Real-IP"), ("real_ip_header CF-Connecting-IP;", "CF-Connecting-IP")]
        {
            let toml = of(lines).toml;
            assert!(toml.contains(&format!("trusted_headers = [\"{header}\"]")), "{toml}");
        }
        for (lines, is_recursive) in
            [("", false), ("real_ip_recursive off;", false), ("real_ip_recursive on;", true)]
        {
            let toml = of(lines).toml;
            assert_eq!(!toml.contains("trusted_recursive = false"), is_recursive, "{toml}");
        }
        let proxied = of("real_ip_header proxy_protocol;");
        assert!(!proxied.report.keeps_access() && !proxied.toml.contains("trusted_"));
    }

    #[test]
    fn server_side_includes_are_left_out_as_access() {
        for (line, is_kept) in [("ssi on;", false), ("ssi $ssi;", false), ("ssi off;", true)] {
            let imported = import(&HttpLines(line.to_owned()), "/nginx.conf", &[]).expect("a site");
            assert_eq!(imported.report.keeps_access(), is_kept, "{line}");
        }
    }
}
