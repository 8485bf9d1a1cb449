//! D20: enough connections behind the workers, and enough workers behind connections.

use super::common::{passes_to, unmet};
use crate::facts::{Facts, Manager, PhpServer, Pool, Service, Unknown};
use crate::finding::Sheet;
use maitred_text::humanize::plural;

/// The share that a database reserves for administrators and cron jobs.
const RESERVE: f64 = 1.1;

/// D20.
pub(super) fn budget(facts: &Facts, sheet: &mut Sheet) {
    if facts.pools().next().is_none() {
        return;
    }
    databases(facts, sheet);
    for (service, pool) in facts.pools() {
        kept_connections(facts, service, pool, sheet);
    }
}

fn databases(facts: &Facts, sheet: &mut Sheet) {
    let about = "databases";
    let databases = match &facts.databases {
        Ok(databases) => databases,
        Err(why) => return sheet.cannot_tell(about, "which databases there are", why),
    };
    let workers = workers_of(facts, |_| true);
    // A pool with `pm = auto` and no `max_children` hardly ever grows to its maximum.
    let likely = workers_of(facts, |pool| pool.is_chosen || pool.manager != Manager::Found);
    if databases.is_empty() {
        let why = Unknown(
            "none runs on this machine; its max_connections is to be compared by hand".to_owned(),
        );
        return sheet.cannot_tell(
            about,
            &format!("whether a database has room for {workers} workers"),
            &why,
        );
    }
    for database in databases {
        let seen = format!(
            "{}, each with one connection; {} takes {} ({})",
            plural(workers, "worker"),
            database.name,
            database.max_connections,
            database.place
        );
        let is_short = |workers: u64| workers as f64 * RESERVE > database.max_connections as f64;
        if is_short(likely) {
            sheet.report("database.too-few-connections", &database.name, seen);
        } else if is_short(workers) {
            sheet.report("database.too-few-for-all-pools", &database.name, seen);
        } else {
            sheet.ok(&database.name, seen);
        }
    }
}

fn workers_of(facts: &Facts, counts: impl Fn(&Pool) -> bool) -> u64 {
    let pools = facts.pools().map(|(_, pool)| pool);
    let pools = pools.filter(|pool| counts(pool));
    pools.map(|pool| u64::from(pool.max_children)).sum()
}

/// A keepalive connection of a web server occupies a php-fpm worker, which serves no other
/// meanwhile.
fn kept_connections(facts: &Facts, service: &Service, pool: &Pool, sheet: &mut Sheet) {
    if service.kind != PhpServer::PhpFpm {
        return;
    }
    if let Some(why) = unmet(facts, service, pool) {
        return sheet.cannot_tell(&pool.name, "whether kept connections hold its workers", &why);
    }
    let passes = passes_to(facts, pool);
    let kept = passes.iter().map(|pass| pass.kept).max().unwrap_or(0);
    if kept == 0 {
        return sheet.ok(&pool.name, "no web server here keeps connections to it");
    }
    let workers = facts.nginx.as_ref().and_then(|nginx| nginx.workers.map(u64::from));
    let workers = match (workers, &facts.machine.processors) {
        (Some(workers), _) => workers,
        (None, Ok(processors)) => u64::from(*processors),
        (None, Err(why)) => {
            return sheet.cannot_tell(&pool.name, "how many processes nginx has", why);
        }
    };
    let all = kept * workers;
    let seen = format!(
        "nginx keeps {kept} connections in each of {workers} processes; {} workers",
        pool.max_children
    );
    if all >= u64::from(pool.max_children) {
        sheet.report("database.keepalive-holds-workers", &pool.name, seen);
    } else {
        sheet.ok(&pool.name, seen);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::facts::Manager;
    use crate::finding::Severity::*;

    #[test]
    fn more_workers_than_connections_are_found() {
        expect_ok("D20", &php_fpm());
        let mut facts = php_fpm();
        pool(&mut facts).max_children = 140;
        expect("D20", &facts, Fail, "140 workers, each with one connection; MariaDB takes 151");
        pool(&mut facts).manager = Manager::Found;
        expect("D20", &facts, Fail, "MariaDB takes 151");
        pool(&mut facts).is_chosen = false;
        expect("D20", &facts, Info, "140 workers, each with one connection");
        facts.databases = Ok(Vec::new());
        expect("D20", &facts, CannotTell, "none runs on this machine");
        facts.databases = unknown();
        expect("D20", &facts, CannotTell, "which databases");
    }

    #[test]
    fn connections_that_hold_all_workers_are_found() {
        let mut facts = php_fpm();
        facts.nginx.as_mut().unwrap().passes[0].kept = 1;
        expect_ok("D20", &facts);
        facts.nginx.as_mut().unwrap().passes[0].kept = 2;
        expect("D20", &facts, Fail, "2 connections in each of 4 processes");
        facts.machine.processors = unknown();
        expect("D20", &facts, CannotTell, "how many processes nginx has");
        facts.nginx.as_mut().unwrap().passes[0].to = vec!["php:9000".to_owned()];
        expect("D20", &facts, CannotTell, "whether kept connections");
    }
}
