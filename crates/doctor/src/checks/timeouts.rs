//! D8: do those who wait give up in the right order?

use std::time::Duration;

use super::shared::duration;
use crate::facts::{Facts, Ini, Kind, Pass, Pool, Service, Unknown};
use crate::finding::Sheet;

/// Least distance between two who wait for each other.
const LEAST_STEP: Duration = Duration::from_secs(2);

/// The same as a share of the longer one.
const LEAST_STEP_SHARE: f64 = 0.05;

/// What PHP waits for a server that it asks, unless its ini says otherwise, in seconds.
const CLIENT_TIMEOUTS: [(&str, &str); 2] = [
    ("default_socket_timeout", "60"),
    ("mysqlnd.net_read_timeout", "86400"),
];

/// D8.
pub(super) fn ladder(facts: &Facts, sheet: &mut Sheet) {
    for (service, pool) in facts.pools() {
        let before = sheet.findings.len();
        let passes = passes_to(facts, pool);
        if pool.wall_limit.is_zero() {
            endless(service, pool, &passes, sheet);
        } else {
            fronts(facts, service, &passes, sheet);
            if let Some(why) = unmet(facts, service, pool) {
                sheet.cannot_tell(
                    &pool.name,
                    "how long the web server waits for its scripts",
                    &why,
                );
            }
            script_limit(pool, sheet);
            clients(pool, sheet);
            finished(service, pool, sheet);
        }
        if sheet.findings.len() == before {
            let beat = heartbeat(service);
            let seen = format!(
                "scripts end after {}, or within {} more",
                duration(pool.wall_limit),
                duration(beat)
            );
            let exact = format!("scripts end after {} at most", duration(pool.wall_limit));
            sheet.ok(&pool.name, if beat.is_zero() { exact } else { seen });
        }
    }
}

/// Where web servers pass requests to a pool.
pub(super) fn passes_to<'f>(facts: &'f Facts, pool: &Pool) -> Vec<&'f Pass> {
    let Some(listen) = &pool.listen else {
        return Vec::new();
    };
    let nginx = facts.nginx.iter().flat_map(|nginx| &nginx.passes);
    let apache = facts.apache.iter().flat_map(|apache| &apache.passes);
    let all = nginx.chain(apache);
    all.filter(|pass| pass.meets(listen)).collect()
}

/// Why nothing can be told of the web server before a pool, if one is configured and none of its places is
/// known to pass requests to it.
pub(super) fn unmet(facts: &Facts, service: &Service, pool: &Pool) -> Option<Unknown> {
    let is_behind = matches!(service.kind, Kind::PhpFpm | Kind::MaitredFpm);
    let has_web_server = facts.nginx.is_some() || facts.apache.is_some();
    (is_behind && has_web_server && passes_to(facts, pool).is_empty()).then(|| {
        let listen = pool.listen.as_ref();
        let address = listen.map_or("which is not set", |listen| listen.address.as_str());
        Unknown(format!(
            "a web server is configured here, but no place of it is seen to pass requests to the pool's \
             address ({address})"
        ))
    })
}

/// How often php-fpm looks whether somebody has run too long: a third of the shortest limit
/// (`fpm_conf_set_heartbeat`, fpm_conf.c). Ours sets a timer.
fn heartbeat(service: &Service) -> Duration {
    if service.kind != Kind::PhpFpm {
        return Duration::ZERO;
    }
    let limits = service.pools.iter().map(|pool| pool.wall_limit);
    limits
        .filter(|limit| !limit.is_zero())
        .min()
        .unwrap_or_default()
        / 3
}

/// No script ever has to end.
fn endless(service: &Service, pool: &Pool, passes: &[&Pass], sheet: &mut Sheet) {
    let script = pool
        .ini
        .as_ref()
        .ok()
        .map(|ini| execution_limit(ini).unwrap_or_default());
    let script = match script {
        Some(limit) if !limit.is_zero() => format!(
            "; max_execution_time = {} counts processor time, so it never ends a script that waits",
            duration(limit)
        ),
        _ => String::new(),
    };
    let name = match service.kind {
        Kind::ModPhp => "Apache cannot end a script by the clock on the wall".to_owned(),
        _ => "request_terminate_timeout = 0".to_owned(),
    };
    let seen = format!("{name}{script}");
    if service.kind == Kind::Maitred {
        let (_, wait) = pool.queue.unwrap_or_default();
        sheet
            .info(&pool.name, seen, "no limit of a script's time")
            .so(format!(
                "a script that hangs keeps its worker; others wait {} for one at most",
                duration(wait)
            ))
            .fix("set request_terminate_timeout, above the longest script that is meant")
            .rules(&["R72", "R73"]);
        return;
    }
    let web = passes.iter().map(|pass| pass.read_timeout).min();
    let consequence = match web {
        Some(web) => format!(
            "the web server gives up after {}, and the script goes on for nobody; a database that \
             hangs takes all {} workers",
            duration(web),
            pool.max_children
        ),
        None => format!(
            "a database that hangs takes all {} workers",
            pool.max_children
        ),
    };
    let fix = match service.kind {
        Kind::ModPhp => "run PHP in php-fpm or maitred, which can",
        _ => "set request_terminate_timeout below the web server's read timeout",
    };
    let severity = match service.kind {
        Kind::ModPhp => crate::finding::Severity::Warn,
        _ => crate::finding::Severity::Fail,
    };
    sheet
        .say(
            severity,
            &pool.name,
            seen,
            "no limit of a script's time by the clock on the wall",
        )
        .so(consequence)
        .fix(fix)
        .rules(&["R70", "R72", "R73", "R74", "W12", "W13"]);
}

fn is_wide_enough(short: Duration, long: Duration) -> bool {
    let least = LEAST_STEP
        .as_secs_f64()
        .min(LEAST_STEP_SHARE * long.as_secs_f64());
    long.as_secs_f64() - short.as_secs_f64() >= least
}

/// The web server has to wait for longer than scripts may run.
fn fronts(facts: &Facts, service: &Service, passes: &[&Pass], sheet: &mut Sheet) {
    let beat = heartbeat(service);
    for pass in passes {
        let pools = service.pools.iter();
        let met = pools.filter(|pool| {
            let listen = pool.listen.as_ref();
            listen.is_some_and(|listen| pass.meets(listen))
        });
        let Some(wall) = met.map(|pool| pool.wall_limit).max() else {
            continue;
        };
        let server = web_server(facts, pass);
        let seen = format!(
            "{server} waits {}, scripts may run {} and end within {} more",
            duration(pass.read_timeout),
            duration(wall),
            duration(beat)
        );
        let finding = if pass.read_timeout <= wall {
            sheet.fail(
                &pass.place,
                seen,
                "read timeout ≤ request_terminate_timeout",
            )
        } else if !is_wide_enough(wall + beat, pass.read_timeout) {
            sheet.warn(
                &pass.place,
                seen,
                "read timeout < request_terminate_timeout, a third of it in which php-fpm looks, and \
                 2 s or 5 %",
            )
        } else {
            continue;
        };
        finding
            .so("the client gets 504 while the script goes on for nobody, with a worker that others wait for")
            .fix(format!(
                "a read timeout of {} or longer, or a shorter request_terminate_timeout",
                duration((wall + beat + LEAST_STEP).max(wall.mul_f64(1.4)))
            ))
            .rules(&["R70", "R71", "R74", "R127", "W13", "W14"]);
    }
}

fn web_server(facts: &Facts, pass: &Pass) -> &'static str {
    let is_apache = facts
        .apache
        .as_ref()
        .is_some_and(|apache| apache.passes.contains(pass));
    if is_apache { "Apache" } else { "nginx" }
}

/// `max_execution_time`; nothing if it is no number.
fn execution_limit(ini: &Ini) -> Option<Duration> {
    let seconds: i64 = ini.get("max_execution_time", "30").trim().parse().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn script_limit(pool: &Pool, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    let ini = match &pool.ini {
        Ok(ini) => ini,
        Err(why) => return sheet.cannot_tell(about, "max_execution_time", why),
    };
    let Some(limit) = execution_limit(ini) else {
        return;
    };
    if limit.is_zero() || limit >= pool.wall_limit {
        let seen = format!(
            "max_execution_time = {} of processor time, request_terminate_timeout = {} by the clock",
            limit.as_secs(),
            duration(pool.wall_limit)
        );
        sheet
            .info(
                about,
                seen,
                "max_execution_time ≥ request_terminate_timeout",
            )
            .so("PHP's own limit, with its error message, will never be met by a script that waits")
            .fix("a max_execution_time below request_terminate_timeout, for scripts that loop")
            .rules(&["R72", "R74", "W12"]);
    }
}

fn clients(pool: &Pool, sheet: &mut Sheet) {
    let Ok(ini) = &pool.ini else { return };
    let too_long = CLIENT_TIMEOUTS.iter().filter_map(|(name, default)| {
        let text = ini.get(name, default);
        let seconds = text.trim().parse::<f64>().ok()?;
        let seconds = Duration::try_from_secs_f64(seconds).ok()?;
        let is_right = is_wide_enough(seconds, pool.wall_limit);
        (!is_right).then(|| format!("{name} = {text}"))
    });
    let too_long: Vec<String> = too_long.collect();
    if too_long.is_empty() {
        return;
    }
    let seen = format!(
        "{}, request_terminate_timeout = {}",
        too_long.join(", "),
        duration(pool.wall_limit)
    );
    sheet
        .warn(&pool.name, seen, "what a script waits for another server > what it may run itself")
        .so("a server behind that hangs ends the script with 502 instead of an error it could handle")
        .fix("shorter timeouts of clients: default_socket_timeout, mysqlnd.net_read_timeout")
        .rules(&["R72", "R74"]);
}

fn finished(service: &Service, pool: &Pool, sheet: &mut Sheet) {
    if pool.tracks_finished || matches!(service.kind, Kind::Maitred | Kind::ModPhp) {
        return;
    }
    let seen = "request_terminate_timeout_track_finished = no";
    sheet
        .warn(
            &pool.name,
            seen,
            "what a script does after fastcgi_finish_request() has no limit",
        )
        .so("work after the answer, and shutdown functions, may keep a worker for ever")
        .fix("request_terminate_timeout_track_finished = yes")
        .rules(&["R73", "W14"]);
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::facts::LONGEST;
    use crate::finding::Severity::*;
    use std::time::Duration;

    #[test]
    fn without_a_limit_of_the_wall_nothing_ends_a_script_that_waits() {
        expect_ok("D8", &php_fpm());
        let mut facts = php_fpm();
        pool(&mut facts).wall_limit = Duration::ZERO;
        expect(
            "D8",
            &facts,
            Fail,
            "max_execution_time = 20 s counts processor time",
        );
        expect("D8", &maitred(), Info, "request_terminate_timeout = 0");
    }

    #[test]
    fn a_web_server_that_gives_up_first_is_found() {
        let mut facts = php_fpm();
        facts.nginx.as_mut().unwrap().passes[0].read_timeout = Duration::from_secs(30);
        expect("D8", &facts, Fail, "nginx waits 30 s");
        // The article's ladder: 35 s may be acted on after 46.
        facts.nginx.as_mut().unwrap().passes[0].read_timeout = Duration::from_secs(40);
        pool(&mut facts).wall_limit = Duration::from_secs(35);
        expect("D8", &facts, Warn, "end within 12 s more");
    }

    #[test]
    fn a_web_server_before_a_pool_on_all_addresses_is_found_and_one_that_is_not_seen_is_said() {
        let mut facts = php_fpm();
        pool(&mut facts).listen.as_mut().unwrap().address = "0.0.0.0:9000".to_owned();
        let pass = &mut facts.nginx.as_mut().unwrap().passes[0];
        pass.to = vec!["127.0.0.1:9000".to_owned()];
        expect_ok("D8", &facts);
        facts.nginx.as_mut().unwrap().passes[0].read_timeout = Duration::from_secs(30);
        expect("D8", &facts, Fail, "nginx waits 30 s");
        facts.nginx.as_mut().unwrap().passes[0].to = vec!["php:9000".to_owned()];
        let seen = "how long the web server waits for its scripts: a web server is configured here";
        expect("D8", &facts, CannotTell, seen);
        assert!(
            look("D8", &facts)
                .iter()
                .all(|found| found.severity != Well)
        );
        facts.nginx = None;
        expect_ok("D8", &facts);
    }

    #[test]
    fn the_longest_times_that_are_read_can_be_added_up() {
        let mut facts = php_fpm();
        pool(&mut facts).wall_limit = LONGEST;
        expect("D8", &facts, Fail, "nginx waits 60 s");
        facts.services[0].control_timeout = LONGEST;
        expect("D17", &facts, Fail, "systemd kills after 90 s");
    }

    #[test]
    fn clocks_and_clients_that_outlast_the_script_are_found() {
        let mut facts = php_fpm();
        pool(&mut facts).tracks_finished = false;
        expect("D8", &facts, Warn, "track_finished = no");
        let ini = pool(&mut facts).ini.as_mut().unwrap();
        ini.entries.clear();
        expect("D8", &facts, Info, "max_execution_time = 30");
        expect("D8", &facts, Warn, "default_socket_timeout = 60");
        pool(&mut facts).ini = unknown();
        expect("D8", &facts, CannotTell, "max_execution_time");
    }
}
