//! D11: does the status page tell the truth, and to whom?

use super::timeouts::passes_to;
use crate::facts::{Facts, Kind, Manager, Pool, Unknown};
use crate::finding::Sheet;

/// What comes of a page for everybody.
const READABLE: &str = "anybody can read which scripts run, with their addresses and users";

/// D11.
pub(super) fn blind(facts: &Facts, sheet: &mut Sheet) {
    for (service, pool) in facts.pools() {
        let Some(path) = &pool.status_path else {
            continue;
        };
        if service.kind == Kind::PhpFpm {
            php_fpms(pool, path, sheet);
        } else {
            sheet.ok(
                &pool.name,
                "its queue is counted where it is, and its status needs no worker",
            );
        }
        shown(pool, path, sheet);
        open(facts, pool, path, sheet);
        if service.kind == Kind::PhpFpm && passes_to(facts, pool).is_empty() {
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
        sheet
            .warn(about, seen, "a status page of a pool on a Unix socket")
            .so("its listen queue is 0 whatever waits: php-fpm reads it of TCP sockets only")
            .fix("watch `ss -xl` (Recv-Q) instead, or listen on 127.0.0.1")
            .rules(&["R10", "R11", "R87", "W9"]);
    }
    if pool.manager == Manager::Static {
        let seen = format!("{path} shows max children reached, and pm = static");
        sheet
            .warn(about, seen, "a status page of a static pool")
            .so("the counter never moves: it counts wishes for workers, and a static pool has none")
            .fix("watch active processes = max_children, and the socket's queue")
            .rules(&["R12", "R36", "W10"]);
    }
    if !pool.has_status_listen {
        let seen = format!("{path} is answered by the pool's own workers");
        sheet
            .warn(about, seen, "pm.status_path without pm.status_listen")
            .so("when all workers are busy, which is when it matters, the page waits with everybody")
            .fix("pm.status_listen = 127.0.0.1:9001, or a Unix socket of its own")
            .rules(&["R10"]);
    }
}

/// Does maitred hand it to everybody?
fn shown(pool: &Pool, path: &str, sheet: &mut Sheet) {
    for host in &pool.status_shown_at {
        let seen = format!("http://{host}{path} is answered to every client");
        sheet
            .fail(
                &pool.name,
                seen,
                "status_path, and no deny, allow or basic_auth for it",
            )
            .so(READABLE)
            .fix(format!(
                "deny = [{{ path = \"{path}\", except = [\"127.0.0.1\"] }}] in that site; or leave status_path \
                 out: `maitred status` and `admin` need none"
            ))
            .rules(&["R10"]);
    }
}

/// Does a web server hand it to everybody? A pattern that matches the path by chance is not found.
fn open(facts: &Facts, pool: &Pool, path: &str, sheet: &mut Sheet) {
    let passes = passes_to(facts, pool);
    let is_meant = |location: &str| {
        let pattern = location.trim_start_matches(['=', '^', '~', '*', ' ']);
        let plain: String = pattern
            .chars()
            .filter(|c| !matches!(c, '\\' | '$' | '^'))
            .collect();
        plain == path || pattern.contains(path.trim_start_matches('/'))
    };
    for pass in passes {
        if is_meant(&pass.location) && !pass.is_restricted {
            let seen = format!("{} passes {path} for every client", pass.place);
            sheet
                .fail(
                    &pool.name,
                    seen,
                    "a location for the status page without allow and deny",
                )
                .so(READABLE)
                .fix("allow 127.0.0.1; deny all; in that location")
                .rules(&["R10"]);
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
        expect("D11", &facts, Fail, "http://a.example/status is answered");
    }

    #[test]
    fn a_pool_without_a_status_page_is_said_to_have_none() {
        let found = look("D11", &nothing());
        assert_eq!(found[0].seen, "there is no status page here");
    }
}
