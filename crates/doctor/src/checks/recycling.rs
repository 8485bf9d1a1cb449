//! D13: are workers replaced for a reason, and not all at once?

use crate::facts::{Fact, Facts, PhpServer, Pool, Unknown};
use crate::finding::Sheet;
use crate::quantile::quantile;
use maitred_text::humanize::{bytes, duration, percent};

/// Replacing a worker after more requests costs nothing noticeable with the usual boot of an
/// application.
const SELDOM: u64 = 1000;

/// Growth is measured by workers with this many requests, when their caches are full; at least this
/// many workers, whose counts differ by this much.
const GROWN_UP: u64 = 500;
const FEWEST_GROWN_UP: usize = 5;
const APART: u64 = 1_000;

/// Less growth is no leak, in bytes a request.
const LEAK: f64 = 1_024.0;

/// Acceptable growth of a worker before it is replaced, in bytes (the article's own allowance,
/// W16).
const ALLOWANCE: f64 = 20.0 * 1_048_576.0;

/// Acceptable share of the processors' time for starts, and the requests after which a worker's
/// time per request is known.
const COSTS: f64 = 0.005;
const OLD: u64 = 20;

/// Workers whose counts differ by less are replaced at the same time.
const TOGETHER: f64 = 0.1;

/// D13.
pub(super) fn recycling(facts: &Facts, sheet: &mut Sheet) {
    for (service, pool) in facts.pools() {
        if pool.max_requests == 0 {
            never(service.kind, pool, sheet);
        } else {
            often(service.kind, pool, sheet);
        }
    }
}

fn name(kind: PhpServer) -> &'static str {
    match kind {
        PhpServer::Maitred => "max_requests",
        PhpServer::PhpFpm | PhpServer::MaitredFpm => "pm.max_requests",
        PhpServer::ModPhp => "MaxConnectionsPerChild",
    }
}

/// Growth of workers per request, in bytes, from workers with many and with few requests: the
/// median of all pairs, and the value that 95 of 100 pairs exceed (Theil and Sen).
fn growth(pool: &Pool) -> Option<(f64, f64)> {
    let workers = pool.workers().ok()?;
    let known = workers.iter().filter_map(|worker| {
        let (requests, private) = (worker.requests.as_ref().ok()?, worker.private.as_ref().ok()?);
        (*requests >= GROWN_UP).then_some((*requests, *private))
    });
    let known: Vec<(u64, f64)> = known.collect();
    let counts = || known.iter().map(|(requests, _)| *requests);
    if known.len() < FEWEST_GROWN_UP || counts().max()? - counts().min()? < APART {
        return None;
    }
    let pairs = known.iter().enumerate().flat_map(|(at, one)| {
        let others = known[at + 1..].iter();
        others.map(move |other| (one.0 as f64 - other.0 as f64, one.1 - other.1))
    });
    let slopes = pairs.filter(|(requests, _)| *requests != 0.0);
    let slopes: Vec<f64> = slopes.map(|(requests, bytes)| bytes / requests).collect();
    Some((quantile(slopes.clone(), 0.5)?, quantile(slopes, 0.05)?))
}

fn never(kind: PhpServer, pool: &Pool, sheet: &mut Sheet) {
    if let Some((middle, low)) = growth(pool) {
        let seen = format!(
            "{} = 0; workers that have served more requests are larger by {} for each",
            name(kind),
            bytes(middle.max(0.0))
        );
        if low > LEAK {
            sheet.report("recycling.growing-forever", &pool.name, seen).fix(format!(
                "{} = {:.0}, which allows 20 MiB of growth",
                name(kind),
                ALLOWANCE / middle
            ));
        } else {
            sheet.ok(&pool.name, seen);
        }
        return;
    }
    let seen =
        format!("{} = 0, which is the default; whether workers grow was not measured", name(kind));
    sheet.report("recycling.growth-unknown", &pool.name, seen);
}

fn often(kind: PhpServer, pool: &Pool, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    let before = sheet.findings.len();
    let limit = pool.max_requests;
    let cost = cost(pool);
    if let Ok(CpuCost { start, request }) = cost {
        let share = start / (limit as f64 * request);
        if share > COSTS {
            let seen = format!(
                "{} = {limit}; a start takes {} of a processor, a request {}: {} of the \
                 processors' time",
                name(kind),
                duration(start),
                duration(request),
                percent(share)
            );
            let enough = (start / (COSTS * request)).ceil();
            sheet
                .report("recycling.starts-cost", about, seen)
                .fix(format!("{} = {enough:.0} or more", name(kind)));
        }
    }
    let reported = match &cost {
        Ok(CpuCost { start, .. }) => format!("a start takes {} of a processor", duration(*start)),
        Err(why) => format!("what a start costs is not known: {why}"),
    };
    if limit <= SELDOM {
        let seen = format!("{} = {limit}; growth was not measured; {reported}", name(kind));
        sheet.report("recycling.few-requests", about, seen);
    }
    // maitred's workers exit at exactly the limit, too, but each has its replacement before.
    if kind == PhpServer::PhpFpm {
        match counts(pool) {
            Ok(counts) => together(pool, &counts, sheet),
            Err(why) => sheet.cannot_tell(about, "whether all workers are replaced at once", &why),
        }
    }
    if sheet.findings.len() == before {
        sheet.ok(about, format!("{} = {limit}; {reported}", name(kind)));
    }
}

/// Processor time of workers, in seconds.
struct CpuCost {
    /// Until its first request.
    start: f64,
    /// For each request.
    request: f64,
}

/// A worker without requests has used the time of a start; the excess of the others is for
/// requests.
fn cost(pool: &Pool) -> Fact<CpuCost> {
    let workers = pool.workers()?;
    let mut known = Vec::new();
    for worker in workers {
        known.push((worker.requests.clone()?, worker.cpu.clone()?));
    }
    let fresh = known.iter().filter(|(requests, _)| *requests == 0);
    let start = fresh.map(|(_, cpu)| *cpu).reduce(f64::min);
    let start = start.ok_or_else(|| {
        Unknown("no worker is new, with no request served (maitred tune measures it)".to_owned())
    })?;
    let old = known.iter().filter(|(requests, _)| *requests >= OLD);
    let each = old.map(|(requests, cpu)| (cpu - start) / *requests as f64);
    let request = quantile(each.collect(), 0.5).filter(|request| *request > 0.0);
    let none = || Unknown("no worker has served 20 requests".to_owned());
    Ok(CpuCost { start, request: request.ok_or_else(none)? })
}

fn counts(pool: &Pool) -> Fact<Vec<f64>> {
    let workers = pool.workers()?;
    let counts = workers.iter().map(|worker| worker.requests.clone());
    let counts: Fact<Vec<u64>> = counts.collect();
    let counts = counts?;
    if counts.is_empty() {
        return Err(Unknown("there are no workers".to_owned()));
    }
    Ok(counts.into_iter().map(|count| count as f64).collect())
}

fn together(pool: &Pool, counts: &[f64], sheet: &mut Sheet) {
    let least = counts.iter().copied().fold(f64::INFINITY, f64::min);
    let most = counts.iter().copied().fold(0.0, f64::max);
    let is_old = most > 0.1 * pool.max_requests as f64;
    if counts.len() >= 4 && is_old && most - least <= TOGETHER * most {
        let seen = format!(
            "{} workers have served {least:.0} to {most:.0} requests each, and go after {}",
            counts.len(),
            pool.max_requests
        );
        sheet.report("recycling.all-at-once", &pool.name, seen);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::finding::Severity::*;

    #[test]
    fn what_is_replaced_without_a_reason_is_told() {
        expect_ok("D13", &php_fpm());
        let mut facts = php_fpm();
        pool(&mut facts).max_requests = 500;
        expect("D13", &facts, Info, "pm.max_requests = 500");
        pool(&mut facts).max_requests = 0;
        expect("D13", &facts, Info, "pm.max_requests = 0");
    }

    #[test]
    fn starts_that_cost_much_are_told_where_a_worker_is_new() {
        let mut facts = php_fpm();
        pool(&mut facts).max_requests = 1_000;
        let workers = reported(&mut facts).workers.as_mut().unwrap();
        for worker in workers.iter_mut() {
            worker.requests = Ok(100 * worker.pid as u64);
            worker.cpu = Ok(0.06 + 0.002 * 100.0 * f64::from(worker.pid));
        }
        expect("D13", &facts, Info, "what a start costs is not known: no worker is new");
        let workers = reported(&mut facts).workers.as_mut().unwrap();
        (workers[0].requests, workers[0].cpu) = (Ok(0), Ok(0.06));
        expect("D13", &facts, Warn, "a start takes 60 ms of a processor, a request 2 ms: 3.0 %");
        let found = look("D13", &facts);
        assert!(found[0].fix.contains("= 6000 or more"), "{found:?}");
        pool(&mut facts).max_requests = 10_000;
        expect_ok("D13", &facts);
        reported(&mut facts).workers.as_mut().unwrap()[2].cpu = unknown();
        pool(&mut facts).max_requests = 1_000;
        expect("D13", &facts, Info, "is not known: not given");
    }

    #[test]
    fn workers_that_grow_and_are_never_replaced_are_found_and_those_that_do_not_are_well() {
        let mut facts = php_fpm();
        pool(&mut facts).max_requests = 0;
        let mut grow = |each: f64| {
            let workers = reported(&mut facts).workers.as_mut().unwrap();
            for worker in workers {
                let requests = 1_000 * worker.pid as u64;
                worker.requests = Ok(requests);
                worker.private = Ok(30.0 * MB + each * requests as f64);
            }
            facts.clone()
        };
        expect("D13", &grow(3_000.0), Warn, "larger by 2.93 KiB for each");
        assert!(look("D13", &grow(3_000.0))[0].fix.contains("= 6991"));
        expect_ok("D13", &grow(10.0));
        let mut few = grow(3_000.0);
        reported(&mut few).workers.as_mut().unwrap().truncate(4);
        expect("D13", &few, Info, "whether workers grow was not measured");
    }

    #[test]
    fn workers_that_go_together_are_found() {
        let mut facts = php_fpm();
        let workers = reported(&mut facts).workers.as_mut().unwrap();
        workers.iter_mut().for_each(|worker| worker.requests = Ok(6_900 + worker.pid as u64));
        expect("D13", &facts, Warn, "8 workers have served 6901 to 6908 requests");
        reported(&mut facts).workers.as_mut().unwrap()[0].requests = unknown();
        expect("D13", &facts, CannotTell, "replaced at once");
        pool(&mut facts).live = unknown();
        expect("D13", &facts, CannotTell, "not given");
    }
}
