//! D19: does a page cache store responses of single users?

use crate::facts::{Facts, Nginx, Pass, PassCache, PhpServer};
use crate::finding::Sheet;

/// Variables that contain the host.
const HOST_VARIABLES: [&str; 3] = ["$host", "$http_host", "$server_name"];

/// D19.
pub(super) fn safety(facts: &Facts, sheet: &mut Sheet) {
    if let Some(nginx) = &facts.nginx {
        for pass in &nginx.passes {
            if let Some(cache) = &pass.cache {
                place(nginx, pass, cache, sheet);
            }
        }
        inert(nginx, sheet);
    }
    for (file, why) in &facts.broken_web {
        sheet.cannot_tell(file, "which pages it has kept", why);
    }
    // maitred never caches a response with Set-Cookie and bypasses sessions (decision 9).
    let ours = facts.services.iter().filter(|service| service.kind == PhpServer::Maitred);
    for service in ours {
        sheet.ok(
            &service.name,
            "responses with Set-Cookie, and to requests with a session, are not cached",
        );
    }
}

fn place(nginx: &Nginx, pass: &Pass, cache: &PassCache, sheet: &mut Sheet) {
    let before = sheet.findings.len();
    let about = pass.place.as_str();
    sessions(about, cache, sheet);
    if cache.methods.iter().any(|method| method.eq_ignore_ascii_case("POST")) {
        sheet.report("page-cache.post-cached", about, "fastcgi_cache_methods has POST");
    }
    if cache.keeps_any_status {
        sheet.report("page-cache.any-status-cached", about, "fastcgi_cache_valid any");
    }
    if !cache.locks || !cache.sends_stale {
        let seen = match (cache.locks, cache.sends_stale) {
            (false, false) => "neither fastcgi_cache_lock nor use_stale updating",
            (false, true) => "no fastcgi_cache_lock",
            _ => "no fastcgi_cache_use_stale updating",
        };
        sheet.report("page-cache.no-lock", about, seen);
    }
    if !HOST_VARIABLES.iter().any(|name| cache.key.contains(name)) && serves_several(nginx, cache) {
        let seen =
            format!("zone {} is used for several hosts, and the key is {}", cache.zone, cache.key);
        sheet.report("page-cache.key-without-host", about, seen);
    }
    if sheet.findings.len() == before {
        sheet.ok(about, format!("zone {} keeps sessions apart", cache.zone));
    }
}

/// nginx itself does not cache a response with Set-Cookie. A configuration that ignores the header
/// must recognise sessions another way.
fn sessions(about: &str, cache: &PassCache, sheet: &mut Sheet) {
    let ignores = cache.ignored.iter().any(|name| name == "set-cookie");
    let knows = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.contains("cookie") || text.contains("authorization")
    };
    // A variable of another name comes from a map, most likely of a cookie.
    let is_bypassed = !cache.bypasses.is_empty();
    if ignores && !is_bypassed && !knows(&cache.key) {
        let seen = format!(
            "fastcgi_ignore_headers Set-Cookie; no fastcgi_cache_bypass or fastcgi_no_cache; key \
             {}",
            cache.key
        );
        sheet.report("page-cache.sessions-cached", about, seen);
    }
}

fn serves_several(nginx: &Nginx, cache: &PassCache) -> bool {
    let caches = nginx.passes.iter().filter_map(|pass| pass.cache.as_ref());
    let same = caches.filter(|other| other.zone == cache.zone);
    let mut hosts: Vec<&String> = same.flat_map(|other| &other.hosts).collect();
    hosts.sort();
    hosts.dedup();
    hosts.len() > 1
}

fn inert(nginx: &Nginx, sheet: &mut Sheet) {
    for place in &nginx.idle_proxy_caches {
        sheet.report(
            "page-cache.proxy-cache-unused",
            place,
            "proxy_cache where nothing is proxied",
        );
    }
    for (name, place) in &nginx.foreign {
        sheet.report(
            "page-cache.foreign-directive",
            place,
            format!("{name} is not in the free nginx"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::facts::Unknown;
    use crate::finding::Severity::*;

    #[test]
    fn a_cache_that_may_show_sessions_to_others_is_a_failure() {
        expect_ok("D19", &php_fpm());
        expect_ok("D19", &maitred());
        let mut facts = php_fpm();
        let cache = facts.nginx.as_mut().unwrap().passes[0].cache.as_mut().unwrap();
        cache.ignored = vec!["cache-control".to_owned(), "set-cookie".to_owned()];
        expect_ok("D19", &facts);
        facts.nginx.as_mut().unwrap().passes[0].cache.as_mut().unwrap().bypasses.clear();
        expect("D19", &facts, Fail, "fastcgi_ignore_headers Set-Cookie");
    }

    #[test]
    fn what_is_kept_without_care_is_found() {
        let mut facts = php_fpm();
        let nginx = facts.nginx.as_mut().unwrap();
        let cache = nginx.passes[0].cache.as_mut().unwrap();
        cache.methods = vec!["POST".to_owned()];
        cache.keeps_any_status = true;
        cache.locks = false;
        cache.key = "$request_uri".to_owned();
        cache.hosts.push("b.example".to_owned());
        nginx.idle_proxy_caches = vec!["site:9".to_owned()];
        nginx.foreign = vec![("fastcgi_cache_purge".to_owned(), "site:12".to_owned())];
        expect("D19", &facts, Warn, "has POST");
        expect("D19", &facts, Warn, "valid any");
        expect("D19", &facts, Warn, "no fastcgi_cache_lock");
        expect("D19", &facts, Fail, "is used for several hosts");
        expect("D19", &facts, Info, "nothing is proxied");
        expect("D19", &facts, Info, "fastcgi_cache_purge");
    }

    #[test]
    fn where_there_is_no_cache_that_is_said() {
        assert_eq!(look("D19", &nothing())[0].seen, "there is no page cache here");
    }

    #[test]
    fn a_web_server_that_cannot_be_read_may_have_one() {
        let mut facts = php_fpm();
        let why = Unknown("Permission denied".to_owned());
        facts.broken_web = vec![("/etc/nginx/nginx.conf".to_owned(), why)];
        expect("D19", &facts, CannotTell, "which pages it has kept");
    }
}
