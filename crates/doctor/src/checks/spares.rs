//! D12: the spare servers of a dynamic pool, and how fast it grows.

use super::common::OF_ALL_POOLS;
use crate::facts::{Facts, Manager, PhpServer, Pool, Spares, Unknown};
use crate::finding::Sheet;
use maitred_text::humanize::duration;

/// Most workers that php-fpm starts in a second (`FPM_MAX_SPAWN_RATE`, fpm_process_ctl.h).
const MAX_SPAWN_RATE: u32 = 32;

/// `ServerLimit` of Apache's worker and event if nothing is set.
const DEFAULT_SERVER_LIMIT: u64 = 16;

/// D12.
pub(super) fn arithmetic(facts: &Facts, sheet: &mut Sheet) {
    apache(facts, sheet);
    for (service, pool) in facts.pools() {
        if pool.manager != Manager::Dynamic {
            continue;
        }
        let Some(spares) = pool.spares else {
            let why = Unknown("they are not set".to_owned());
            sheet.cannot_tell(&pool.name, "min_spare_servers and max_spare_servers", &why);
            continue;
        };
        let before = sheet.findings.len();
        if order(pool, spares, sheet) {
            start(pool, spares, sheet);
            if service.kind == PhpServer::PhpFpm {
                ramp(facts, pool, spares, sheet);
            }
        }
        if sheet.findings.len() == before {
            let Spares { start, min, max } = spares;
            let seen =
                format!("{start} at the start, {min} to {max} idle, at most {}", pool.max_children);
            sheet.ok(&pool.name, seen);
        }
    }
}

/// Apache counts threads by children (R160, R161), and some names have changed (W27).
fn apache(facts: &Facts, sheet: &mut Sheet) {
    let Some(apache) = &facts.apache else { return };
    for (old, new, place) in &apache.old_names {
        sheet.report("spares.old-name", place, format!("{old} is called {new} since Apache 2.4"));
    }
    let mpm = match &apache.mpm {
        Ok(mpm) => mpm,
        Err(why) => return sheet.cannot_tell(&apache.file, "how Apache runs", why),
    };
    let children = apache.server_limit.unwrap_or(DEFAULT_SERVER_LIMIT);
    let most = children.saturating_mul(apache.threads_per_child);
    let wanted = apache.max_request_workers;
    if mpm != "prefork" && wanted > most {
        let seen = format!(
            "MaxRequestWorkers {wanted}; {children} children of {} threads are {most}",
            apache.threads_per_child
        );
        sheet
            .report("spares.server-limit", &apache.file, seen)
            .fix(format!("ServerLimit {}", wanted.div_ceil(apache.threads_per_child.max(1))));
    }
}

fn order(pool: &Pool, spares: Spares, sheet: &mut Sheet) -> bool {
    let Spares { start, min, max } = spares;
    let is_right = min >= 1 && min <= start && start <= max && max <= pool.max_children;
    if !is_right {
        let seen = format!(
            "min_spare_servers {min}, start_servers {start}, max_spare_servers {max}, \
             max_children {}",
            pool.max_children
        );
        sheet.report("spares.order", &pool.name, seen);
    }
    is_right
}

fn start(pool: &Pool, spares: Spares, sheet: &mut Sheet) {
    let Spares { start, min, max } = spares;
    let middle = (min + max) / 2;
    if start.abs_diff(middle) > 1 {
        let seen = format!("start_servers = {start}; the middle of {min} and {max} is {middle}");
        sheet.report("spares.start-not-middle", &pool.name, seen);
    }
    let n = f64::from(pool.max_children);
    let is_rule = n >= 10.0
        && (f64::from(min) - 0.2 * n).abs() < 1.0
        && (f64::from(max) - 0.6 * n).abs() < 1.0;
    if is_rule {
        let seen = format!("{min} and {max} idle are 20 % and 60 % of {}", pool.max_children);
        sheet
            .report("spares.percent-rule", &pool.name, seen)
            .so(format!("a rule made of the default's 1, 3 and 5; up to {max} workers sit idle"));
    }
}

/// Seconds from the start to full size, as php-fpm grows: once a second, by the doubled rate, but
/// by no more than `min_spare` lacks (`fpm_pctl_perform_idle_server_maintenance`).
fn seconds_to_full(pool: &Pool, spares: Spares) -> u32 {
    let (mut workers, mut rate, mut seconds) = (spares.start, 1, 0);
    while workers < pool.max_children {
        workers += rate.min(spares.min).max(1);
        rate = (rate * 2).min(MAX_SPAWN_RATE);
        seconds += 1;
    }
    seconds
}

/// Its growth compared with the rise of the request rate.
fn ramp(facts: &Facts, pool: &Pool, spares: Spares, sheet: &mut Sheet) {
    let seconds = seconds_to_full(pool, spares);
    if seconds < 2 {
        return;
    }
    let full = format!("{seconds} s from {} to {} workers", spares.start, pool.max_children);
    let arrivals = match &facts.arrivals {
        Ok(Some(arrivals)) if facts.pools().count() == 1 => arrivals,
        Ok(Some(_)) => {
            let why = Unknown(OF_ALL_POOLS.to_owned());
            return sheet.cannot_tell(&pool.name, "how fast its requests come", &why);
        }
        Ok(None) => return untold(pool, &full, sheet),
        Err(why) => return sheet.cannot_tell(&pool.name, "how fast requests come", why),
    };
    let script = match pool.stat(|live| &live.script_p50) {
        Ok(script) => script,
        Err(why) => return sheet.cannot_tell(&pool.name, "how long scripts take", &why),
    };
    let wanted = arrivals.rise * script;
    let seen = format!(
        "{:.0} more requests in a second than in the one before ({}), of {} each: {wanted:.1} \
         more workers at once, and {} spare ones; {full}",
        arrivals.rise,
        arrivals.rise_at,
        duration(script),
        spares.min
    );
    if f64::from(spares.min) >= wanted {
        return sheet.ok(&pool.name, seen);
    }
    sheet.report("spares.slow-growth", &pool.name, seen).fix(match enough(pool, spares, wanted) {
        Some(Spares { start, min, max }) => format!(
            "min_spare_servers = {min}, start_servers = {start}, max_spare_servers = {max}, \
                 or pm = static where memory allows all of them"
        ),
        None => "pm = static".to_owned(),
    });
}

/// Spare servers for this many more workers at once, in an order that php-fpm accepts. `None` if
/// that were all workers.
fn enough(pool: &Pool, spares: Spares, wanted: f64) -> Option<Spares> {
    let most = f64::from(pool.max_children);
    let min = Some(wanted.ceil()).filter(|min| *min < most)? as u32;
    Some(Spares { start: spares.start.max(min), min, max: spares.max.max(min) })
}

/// The request rate is unknown.
fn untold(pool: &Pool, full: &str, sheet: &mut Sheet) {
    sheet.report(
        "spares.growth-unknown",
        &pool.name,
        format!("{full}; how fast requests come is not known (--access-log FILE shows it)"),
    );
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use super::*;
    use crate::facts::Arrivals;
    use crate::finding::Severity::*;

    fn with(max_children: u32, start: u32, min: u32, max: u32) -> Facts {
        let mut facts = php_fpm();
        pool(&mut facts).max_children = max_children;
        pool(&mut facts).spares = Some(Spares { start, min, max });
        facts
    }

    #[test]
    fn bounds_out_of_order_and_the_guides_slip_are_found() {
        expect_ok("D12", &with(8, 7, 6, 8));
        expect("D12", &with(8, 2, 3, 6), Fail, "start_servers 2");
        expect("D12", &with(8, 4, 3, 9), Fail, "max_spare_servers 9");
        expect("D12", &with(125, 37, 25, 75), Info, "the middle of 25 and 75 is 50");
        expect("D12", &with(125, 37, 25, 75), Info, "20 % and 60 % of 125");
    }

    #[test]
    fn the_time_to_full_size_is_that_of_php_fpm() {
        expect("D12", &with(125, 37, 25, 75), Info, "8 s from 37 to 125");
        expect("D12", &with(50, 2, 1, 3), Info, "48 s from 2 to 50");
    }

    #[test]
    fn a_burst_that_a_log_has_is_set_beside_the_spares_there_are() {
        let mut facts = with(50, 10, 5, 15);
        let arrivals = |rise: f64| {
            Ok(Some(Arrivals {
                requests: 1_000,
                rise,
                rise_at: "2026-11-22T07:02:00+01:00".to_owned(),
                busiest_rate: 1.0,
                gaps: vec![1.0],
            }))
        };
        expect("D12", &facts, Info, "--access-log FILE shows it");
        reported(&mut facts).script_p50 = Ok(0.1);
        facts.arrivals = arrivals(40.0);
        expect_ok("D12", &facts);
        facts.arrivals = arrivals(200.0);
        expect(
            "D12",
            &facts,
            Warn,
            "20.0 more workers at once, and 5 spare ones; 10 s from 10 to 50",
        );
        let fix = |facts: &Facts| {
            let report = crate::Report::of(facts);
            let found =
                report.findings.iter().find(|found| found.check == "D12" && found.severity == Warn);
            found.unwrap().fix.clone()
        };
        assert_eq!(
            fix(&facts),
            "min_spare_servers = 20, start_servers = 20, max_spare_servers = 20, or pm = static \
             where memory allows all of them"
        );
        facts.arrivals = arrivals(500.0);
        assert_eq!(fix(&facts), "pm = static", "50 of 50 workers");
        facts.arrivals = arrivals(200.0);
        reported(&mut facts).script_p50 = unknown();
        expect("D12", &facts, CannotTell, "how long scripts take");
        facts.arrivals = unknown();
        expect("D12", &facts, CannotTell, "how fast requests come");
        facts.arrivals = arrivals(200.0);
        let second = facts.services[0].pools[0].clone();
        facts.services[0].pools.push(second);
        expect("D12", &facts, CannotTell, "how fast its requests come");
    }

    #[test]
    fn what_is_proposed_for_a_burst_is_in_an_order_that_php_fpm_takes() {
        for (start, min, max) in [(2, 1, 3), (10, 5, 15), (8, 8, 8), (1, 1, 50)] {
            let facts = with(50, start, min, max);
            let pool = &facts.services[0].pools[0];
            for wanted in [1.2, 5.5, 9.0, 12.0, 48.1, 49.0] {
                let found = enough(pool, pool.spares.unwrap(), wanted).unwrap();
                let Spares { start, min, max } = found;
                assert!(f64::from(min) >= wanted, "{found:?} for {wanted}");
                assert!(min <= start && start <= max && max <= 50, "{found:?}");
            }
            for wanted in [49.5, 50.0, 1e12] {
                assert_eq!(enough(pool, pool.spares.unwrap(), wanted), None, "{wanted}");
            }
        }
    }

    #[test]
    fn more_clients_than_apaches_children_have_threads_are_found() {
        let mut facts = nothing();
        facts.apache = Some(crate::facts::Apache {
            file: "apache2.conf".to_owned(),
            mpm: Ok("event".to_owned()),
            max_request_workers: 500,
            max_connections_per_child: 0,
            threads_per_child: 25,
            server_limit: None,
            old_names: vec![(
                "MaxClients".to_owned(),
                "MaxRequestWorkers".to_owned(),
                "a:1".to_owned(),
            )],
            passes: Vec::new(),
            roots: Vec::new(),
        });
        expect("D12", &facts, Warn, "16 children of 25 threads are 400");
        expect("D12", &facts, Info, "MaxClients is called MaxRequestWorkers");
        facts.apache.as_mut().unwrap().mpm = unknown();
        expect("D12", &facts, CannotTell, "how Apache runs");
    }

    #[test]
    fn spares_that_nobody_set_cannot_be_judged() {
        let mut facts = php_fpm();
        pool(&mut facts).spares = None;
        expect("D12", &facts, CannotTell, "not set");
        pool(&mut facts).manager = Manager::Static;
        expect_ok("D12", &facts);
    }
}
