//! D8: do timeouts end in the right order?

use std::time::Duration;

use super::common::{passes_to, setting_time, unmet};
use crate::facts::{Facts, Ini, Pass, PhpServer, Pool, Service};
use crate::finding::Sheet;
use maitred_text::humanize::plural;

/// Least distance between two timeouts.
const LEAST_STEP: Duration = Duration::from_secs(2);

/// The same as a share of the longer one.
const LEAST_STEP_SHARE: f64 = 0.05;

/// PHP's timeouts of requests to other servers, unless its ini sets them, in seconds.
const CLIENT_TIMEOUTS: [(&str, &str); 2] =
    [("default_socket_timeout", "60"), ("mysqlnd.net_read_timeout", "86400")];

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
            clients(service, pool, sheet);
            finished(service, pool, sheet);
        }
        if sheet.findings.len() == before {
            let beat = heartbeat(service);
            let seen = format!(
                "scripts end after {}, or within {} more",
                setting_time(pool.wall_limit),
                setting_time(beat)
            );
            let exact = format!("scripts end after {} at most", setting_time(pool.wall_limit));
            sheet.ok(&pool.name, if beat.is_zero() { exact } else { seen });
        }
    }
}

/// php-fpm's interval of checking for overrun: a third of the shortest limit
/// (`fpm_conf_set_heartbeat`, fpm_conf.c). maitred sets a timer.
fn heartbeat(service: &Service) -> Duration {
    if service.kind != PhpServer::PhpFpm {
        return Duration::ZERO;
    }
    let limits = service.pools.iter().map(|pool| pool.wall_limit);
    limits.filter(|limit| !limit.is_zero()).min().unwrap_or_default() / 3
}

/// No script has a limit.
fn endless(service: &Service, pool: &Pool, passes: &[&Pass], sheet: &mut Sheet) {
    let script = pool.ini.as_ref().ok().map(|ini| execution_limit(ini).unwrap_or_default());
    let script = match script {
        Some(limit) if !limit.is_zero() => format!(
            "; max_execution_time = {} counts processor time, so it never ends a script that waits",
            setting_time(limit)
        ),
        _ => String::new(),
    };
    let name = match service.kind {
        PhpServer::ModPhp => "Apache cannot end a script by the clock on the wall".to_owned(),
        _ => "request_terminate_timeout = 0".to_owned(),
    };
    let seen = format!("{name}{script}");
    if service.kind == PhpServer::Maitred {
        let (_, wait) = pool.queue.unwrap_or_default();
        sheet.report("timeouts.no-limit", &pool.name, seen).so(format!(
            "a script that hangs keeps its worker; others wait {} for one at most",
            setting_time(wait)
        ));
        return;
    }
    let web = passes.iter().map(|pass| pass.read_timeout).min();
    let consequence = match web {
        Some(web) => format!(
            "the web server gives up after {}, and the script runs on without a client; \
             a database that \
             hangs takes all of {}",
            setting_time(web),
            plural(pool.max_children.into(), "worker")
        ),
        None => {
            let workers = plural(pool.max_children.into(), "worker");
            format!("a database that hangs takes all of {workers}")
        }
    };
    let key = match service.kind {
        PhpServer::ModPhp => "timeouts.no-wall-limit-in-apache",
        _ => "timeouts.no-wall-limit",
    };
    sheet.report(key, &pool.name, seen).so(consequence);
}

fn is_wide_enough(short: Duration, long: Duration) -> bool {
    let least = LEAST_STEP.as_secs_f64().min(LEAST_STEP_SHARE * long.as_secs_f64());
    long.as_secs_f64() - short.as_secs_f64() >= least
}

/// The web server has to wait longer than scripts may run.
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
            setting_time(pass.read_timeout),
            setting_time(wall),
            setting_time(beat)
        );
        let key = if pass.read_timeout <= wall {
            "timeouts.read-timeout-first"
        } else if !is_wide_enough(wall + beat, pass.read_timeout) {
            "timeouts.read-timeout-close"
        } else {
            continue;
        };
        let enough = (wall + beat + LEAST_STEP).max(wall.mul_f64(1.4));
        sheet.report(key, &pass.place, seen).fix(format!(
            "a read timeout of {} or longer, or a shorter request_terminate_timeout",
            setting_time(enough)
        ));
    }
}

fn web_server(facts: &Facts, pass: &Pass) -> &'static str {
    let is_apache = facts.apache.as_ref().is_some_and(|apache| apache.passes.contains(pass));
    if is_apache { "Apache" } else { "nginx" }
}

/// `max_execution_time`. `None` if it is no number.
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
            "max_execution_time = {} of processor time, request_terminate_timeout = {} by the \
             clock",
            limit.as_secs(),
            setting_time(pool.wall_limit)
        );
        sheet.report("timeouts.execution-time-later", about, seen);
    }
}

fn clients(service: &Service, pool: &Pool, sheet: &mut Sheet) {
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
        setting_time(pool.wall_limit)
    );
    let status = if service.kind == PhpServer::Maitred { 504 } else { 502 };
    sheet.report("timeouts.client-longer", &pool.name, seen).so(format!(
        "an upstream server that hangs ends the script with {status} instead of an error it could \
         handle"
    ));
}

fn finished(service: &Service, pool: &Pool, sheet: &mut Sheet) {
    if pool.tracks_finished || matches!(service.kind, PhpServer::Maitred | PhpServer::ModPhp) {
        return;
    }
    let seen = "request_terminate_timeout_track_finished = no";
    sheet.report("timeouts.no-limit-after-finish", &pool.name, seen);
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
        expect("D8", &facts, Fail, "max_execution_time = 20 s counts processor time");
        expect("D8", &maitred(), Info, "request_terminate_timeout = 0");
    }

    #[test]
    fn a_web_server_that_gives_up_first_is_found() {
        let mut facts = php_fpm();
        facts.nginx.as_mut().unwrap().passes[0].read_timeout = Duration::from_secs(30);
        expect("D8", &facts, Fail, "nginx waits 30 s");
        // The article's ladder: 35 s may take effect after 46.
        facts.nginx.as_mut().unwrap().passes[0].read_timeout = Duration::from_secs(40);
        pool(&mut facts).wall_limit = Duration::from_secs(35);
        expect("D8", &facts, Warn, "end within 11.7 s more");
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
        assert!(look("D8", &facts).iter().all(|found| found.severity != Well));
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

    #[test]
    fn a_script_that_is_ended_gets_the_status_of_its_server() {
        for (mut facts, status) in [(php_fpm(), "with 502"), (maitred(), "with 504")] {
            let pool = pool(&mut facts);
            pool.wall_limit = Duration::from_secs(30);
            pool.ini.as_mut().unwrap().entries.clear();
            let found = look("D8", &facts);
            let seen = "default_socket_timeout = 60";
            let clients = found.iter().find(|finding| finding.seen.contains(seen));
            let clients = clients.expect("clients outlast the script");
            assert!(clients.consequence.contains(status), "{clients:?}");
        }
    }
}
