//! D11: is the status page correct, and who may read it?

use super::common::passes_to;
use crate::facts::{Facts, Manager, PhpServer, Pool, Unknown};
use crate::finding::Sheet;

/// D11.
pub(super) fn blind(facts: &Facts, sheet: &mut Sheet) {
    for (service, pool) in facts.pools() {
        let Some(path) = &pool.status_path else {
            continue;
        };
        if service.kind == PhpServer::PhpFpm {
            php_fpms(pool, path, sheet);
        } else {
            sheet
                .ok(&pool.name, "its queue is counted where it is, and its status needs no worker");
        }
        shown(pool, path, sheet);
        open(facts, pool, path, sheet);
        if service.kind == PhpServer::PhpFpm && passes_to(facts, pool).is_empty() {
            let why = "no web server is known here that passes requests to the pool";
            let why = Unknown(why.to_owned());
            sheet.cannot_tell(&pool.name, "who may see its status page", &why);
        }
    }
}

fn php_fpms(pool: &Pool, path: &str, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    if pool.listen.as_ref().is_some_and(|listen| listen.is_unix()) {
        let seen = format!("{path} shows a listen queue, and the pool listens on a Unix socket");
        sheet.report("status-page.on-unix-socket", about, seen);
    }
    if pool.manager == Manager::Static {
        let seen = format!("{path} shows max children reached, and pm = static");
        sheet.report("status-page.of-static-pool", about, seen);
    }
    if !pool.has_status_listen {
        let seen = format!("the pool's own workers serve {path}");
        sheet.report("status-page.behind-busy-workers", about, seen);
    }
}

/// Does maitred serve it to every client?
fn shown(pool: &Pool, path: &str, sheet: &mut Sheet) {
    for host in &pool.status_shown_at {
        let seen = format!("http://{host}{path} is served to every client");
        sheet.report("status-page.public-here", &pool.name, seen).fix(format!(
            "deny = [{{ path = \"{path}\", except = [\"127.0.0.1\"] }}] in that site; or \
                 leave status_path out: `maitred status` and `admin` need none"
        ));
    }
}

/// Does a web server serve it to every client? A pattern that matches the path by chance is not
/// detected.
fn open(facts: &Facts, pool: &Pool, path: &str, sheet: &mut Sheet) {
    let passes = passes_to(facts, pool);
    let is_meant = |location: &str| {
        let pattern = location.trim_start_matches(['=', '^', '~', '*', ' ']);
        let plain: String = pattern.chars().filter(|c| !matches!(c, '\\' | '$' | '^')).collect();
        plain == path || pattern.contains(path.trim_start_matches('/'))
    };
    for pass in passes {
        if is_meant(&pass.location) && !pass.is_restricted {
            let seen = format!("{} passes {path} for every client", pass.place);
            sheet.report("status-page.public-location", &pool.name, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::facts::Manager;
    use crate::finding::Severity::*;

    #[test]
    fn figures_that_never_move_are_found() {
        expect_ok("D11", &php_fpm());
        let mut facts = php_fpm();
        pool(&mut facts).status_path = Some("/status".to_owned());
        expect("D11", &facts, Warn, "listens on a Unix socket");
        expect("D11", &facts, Warn, "the pool's own workers");
        pool(&mut facts).manager = Manager::Static;
        expect("D11", &facts, Warn, "pm = static");
        pool(&mut facts).has_status_listen = true;
        pool(&mut facts).manager = Manager::Dynamic;
        let address = "127.0.0.1:9000".to_owned();
        facts.nginx.as_mut().unwrap().passes[0].to = vec![address.clone()];
        pool(&mut facts).listen.as_mut().unwrap().address = address;
        expect_ok("D11", &facts);
        facts.nginx = None;
        expect("D11", &facts, CannotTell, "who may see its status page");
    }

    #[test]
    fn a_status_page_for_everybody_is_found_and_a_restricted_one_is_not() {
        let mut facts = maitred();
        facts.nginx = php_fpm().nginx;
        pool(&mut facts).listen = php_fpm().services[0].pools[0].listen.clone();
        pool(&mut facts).status_path = Some("/status".to_owned());
        expect_ok("D11", &facts);
        let pass = &mut facts.nginx.as_mut().unwrap().passes[0];
        pass.location = "= /status".to_owned();
        expect("D11", &facts, Fail, "passes /status for every client");
        facts.nginx.as_mut().unwrap().passes[0].location = "~ ^/(status|ping)$".to_owned();
        expect("D11", &facts, Fail, "passes /status for every client");
        facts.nginx.as_mut().unwrap().passes[0].is_restricted = true;
        expect_ok("D11", &facts);
        pool(&mut facts).status_shown_at = vec!["a.example".to_owned()];
        expect("D11", &facts, Fail, "http://a.example/status is served");
    }

    #[test]
    fn a_pool_without_a_status_page_is_said_to_have_none() {
        let found = look("D11", &nothing());
        assert_eq!(found[0].seen, "there is no status page here");
    }
}
