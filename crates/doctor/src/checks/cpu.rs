//! D4 and D5: do workers and processors fit each other?

use super::common::private_p95;
use crate::facts::{Fact, Facts, Manager, Pool, Service, known};
use crate::finding::Sheet;
use maitred_text::humanize::{duration, percent, plural};

/// Scripts that compute for at least this share of their time are bound by processors.
const BOUND_BY_PROCESSORS: f64 = 0.5;

/// More workers per processor pay only if scripts do nothing but wait.
const MANY_PER_PROCESSOR: f64 = 20.0;

/// Scripts that wait longer for a processor, per second on one, lack processors.
const CONTENDED: f64 = 0.5;

/// A longer wait for a worker is noticeable, in seconds.
const NOTICED_WAIT: f64 = 0.02;

/// Processors that the service may use.
pub(super) fn cores(facts: &Facts, service: &Service) -> Fact<f64> {
    let allowed = known(&facts.machine.allowed_processors)?;
    let quota = known(&service.group.cores)?;
    let allowed = f64::from(*allowed);
    Ok(quota.as_ref().map_or(allowed, |(cores, _)| cores.min(allowed)))
}

/// D4.
pub(super) fn subscription(facts: &Facts, sheet: &mut Sheet) {
    for (service, pool) in facts.pools() {
        match cores(facts, service) {
            Ok(cores) => pool_for(cores, facts, service, pool, sheet),
            Err(why) => sheet.cannot_tell(&pool.name, "how many processors it may use", &why),
        }
    }
}

fn pool_for(cores: f64, facts: &Facts, service: &Service, pool: &Pool, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    if pool.manager == Manager::Found {
        return found(pool, sheet);
    }
    let workers = f64::from(pool.max_children);
    let share = match pool.stat(|live| &live.cpu_share) {
        Ok(share) if share > 0.0 => share,
        Ok(_) => return sheet.ok(about, "its scripts use no processor to speak of"),
        Err(why) => {
            if workers > MANY_PER_PROCESSOR * cores {
                let seen = format!("{workers:.0} workers on {cores:.1} processors; {why}");
                sheet.report("cpu.many-workers", about, seen);
            }
            return sheet.cannot_tell(about, "which part of their time scripts compute", &why);
        }
    };
    let knee = cores / share;
    let seen = format!(
        "{workers:.0} workers, {cores:.1} processors, scripts compute for {} of their time: \
         {knee:.0} workers fill the processors",
        percent(share)
    );
    let key = match workers / knee {
        times if share >= BOUND_BY_PROCESSORS && times > 4.0 => "cpu.far-too-many-workers",
        times if share >= BOUND_BY_PROCESSORS && times > 2.0 => "cpu.too-many-workers",
        _ => {
            return match contention(pool) {
                Some(contention) => contended(about, contention, "fewer workers", sheet),
                None if is_starved(facts, service, pool, knee) => starved(pool, sheet),
                None => sheet.ok(about, seen),
            };
        }
    };
    let enough = (knee * 1.25).ceil();
    sheet.report(key, about, seen).fix(format!("{enough:.0} workers are enough"));
}

/// A pool with `pm = auto`: whether its size leaves its scripts enough of the processors.
fn found(pool: &Pool, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    let fewer = "a smaller max_children for pools that may do with less of them";
    if let Some(contention) = contention(pool) {
        return contended(about, contention, fewer, sheet);
    }
    let wait = pool.stat(|live| &live.queue_wait_p99).ok();
    let binding = pool.stat(|live| &live.binding).ok().flatten();
    match (wait.filter(|wait| *wait > NOTICED_WAIT), binding.as_deref()) {
        (Some(wait), Some("max_children")) => held_back(pool, wait, sheet),
        (Some(wait), Some(binding)) => {
            let seen = format!(
                "one request in a hundred waited {} or longer for a worker; what decides how many \
                 there are is {binding}, not max_children",
                duration(wait)
            );
            sheet.ok(about, seen);
        }
        _ => sheet.ok(about, "it finds how many workers keep the processors busy"),
    }
}

/// It would have more workers, for which there are processors and memory, but for `max_children`.
fn held_back(pool: &Pool, wait: f64, sheet: &mut Sheet) {
    let seen = format!(
        "one request in a hundred waited {} or longer for a worker, and max_children = {} is what \
         holds more of them back",
        duration(wait),
        pool.max_children
    );
    sheet.report("cpu.max-children-binds", &pool.name, seen);
}

/// Seconds of waiting for a processor per second on one, if that is too long.
fn contention(pool: &Pool) -> Option<f64> {
    let contention = pool.stat(|live| &live.contention).ok();
    contention.filter(|contention| *contention > CONTENDED)
}

fn contended(about: &str, contention: f64, fewer: &str, sheet: &mut Sheet) {
    let seen = format!("scripts wait {contention:.1} s for a processor for each second on one");
    sheet.report("cpu.contention", about, seen).fix(format!("{fewer}, or more processors"));
}

/// Requests wait for a worker although there are processors and memory for more.
fn is_starved(facts: &Facts, service: &Service, pool: &Pool, knee: f64) -> bool {
    let wait = pool.stat(|live| &live.queue_wait_p99);
    let waits = wait.is_ok_and(|wait| wait > NOTICED_WAIT);
    let idle = f64::from(pool.max_children) < 0.6 * knee;
    let more = 0.2 * f64::from(pool.max_children);
    let one = private_p95(pool).unwrap_or(f64::INFINITY);
    let room = left(facts, service).is_some_and(|(left, all)| left > (more * one).max(0.05 * all));
    waits && idle && room
}

/// Free memory, and all memory: of the machine, or of the tightest group around the service.
fn left(facts: &Facts, service: &Service) -> Option<(f64, f64)> {
    let memory = facts.machine.memory.as_ref().ok()?;
    match service.group.memory.as_ref().ok()? {
        Some((limit, _)) if *limit < memory.total => {
            let used = service.group.used.as_ref().ok().copied().flatten()?;
            Some(((limit - used).min(memory.available), *limit))
        }
        _ => Some((memory.available, memory.total)),
    }
}

fn starved(pool: &Pool, sheet: &mut Sheet) {
    let wait = pool.stat(|live| &live.queue_wait_p99);
    let seen = format!(
        "{}; one request in a hundred waited {} or longer for one, with processors and \
         memory left",
        plural(pool.max_children.into(), "worker"),
        duration(wait.unwrap_or_default())
    );
    sheet.report("cpu.too-few-workers", &pool.name, seen);
}

/// D5.
pub(super) fn throttled(facts: &Facts, sheet: &mut Sheet) {
    for service in &facts.services {
        let about = service.name.as_str();
        let throttled = match &service.group.throttled {
            Ok(Some(throttled)) if throttled.periods > 0 => throttled,
            Ok(_) => {
                sheet.ok(about, "no quota bounds its processor time");
                continue;
            }
            Err(why) => {
                sheet.cannot_tell(about, "whether its quota is used up", why);
                continue;
            }
        };
        let share = throttled.throttled as f64 / throttled.periods as f64;
        let over = match throttled.seconds {
            Some(over) => format!("in {}", duration(over)),
            None => "since its group was made (--watch 60 watches a minute)".to_owned(),
        };
        let seen = format!(
            "{} of {} periods ({}) {over} used the quota up",
            throttled.throttled,
            throttled.periods,
            percent(share)
        );
        match share {
            share if share > 0.2 => sheet.report("cpu.throttled-much", about, seen),
            share if share > 0.05 => sheet.report("cpu.throttled", about, seen),
            _ => {
                sheet.ok(about, seen);
                continue;
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::facts::{Manager, Throttled};
    use crate::finding::Severity::*;

    #[test]
    fn too_many_workers_that_compute_and_too_few_that_wait_are_found() {
        expect_ok("D4", &php_fpm());
        let mut facts = php_fpm();
        pool(&mut facts).max_children = 14;
        expect("D4", &facts, Warn, "7 workers fill the processors");
        pool(&mut facts).max_children = 30;
        expect("D4", &facts, Fail, "scripts compute for 60 %");
        let mut facts = php_fpm();
        reported(&mut facts).contention = Ok(0.8);
        expect("D4", &facts, Warn, "wait 0.8 s for a processor");
        let mut facts = php_fpm();
        reported(&mut facts).cpu_share = Ok(0.1);
        reported(&mut facts).queue_wait_p99 = Ok(0.5);
        expect("D4", &facts, Warn, "waited 500 ms or longer");
        // A control group that has room is no reason to be silent, and one that has none is.
        facts.services[0].group.memory = Ok(Some((2.0 * GB, "/web memory.max".to_owned())));
        facts.services[0].group.used = Ok(Some(0.5 * GB));
        expect("D4", &facts, Warn, "waited 500 ms or longer");
        facts.services[0].group.used = Ok(Some(1.99 * GB));
        expect_ok("D4", &facts);
    }

    #[test]
    fn a_pool_that_finds_its_size_is_held_back_by_somebodys_number_only() {
        let mut facts = php_fpm();
        pool(&mut facts).manager = Manager::Found;
        reported(&mut facts).queue_wait_p99 = Ok(0.5);
        for (binding, is_found) in [("max_children", true), ("cpu", false), ("downstream", false)] {
            reported(&mut facts).binding = Ok(Some(binding.to_owned()));
            if is_found {
                expect("D4", &facts, Warn, "max_children = 8 is what holds more")
            } else {
                expect_ok("D4", &facts)
            }
        }
        reported(&mut facts).binding = Ok(Some("max_children".to_owned()));
        reported(&mut facts).queue_wait_p99 = Ok(0.001);
        expect_ok("D4", &facts);
        reported(&mut facts).queue_wait_p99 = unknown();
        expect_ok("D4", &facts);
    }

    #[test]
    fn scripts_of_a_pool_that_finds_its_size_may_wait_for_processors_all_the_same() {
        let mut facts = php_fpm();
        pool(&mut facts).manager = Manager::Found;
        pool(&mut facts).max_children = 500;
        expect_ok("D4", &facts);
        reported(&mut facts).contention = Ok(0.8);
        expect("D4", &facts, Warn, "wait 0.8 s for a processor");
        let found = look("D4", &facts);
        assert!(found[0].fix.contains("max_children"), "{found:#?}");
        reported(&mut facts).contention = unknown();
        expect_ok("D4", &facts);
    }

    #[test]
    fn without_the_split_only_absurd_numbers_are_named() {
        let mut facts = php_fpm();
        reported(&mut facts).cpu_share = unknown();
        expect("D4", &facts, CannotTell, "not given");
        pool(&mut facts).max_children = 125;
        expect("D4", &facts, Info, "125 workers on 4.0 processors");
        facts.machine.allowed_processors = unknown();
        expect("D4", &facts, CannotTell, "processors");
    }

    #[test]
    fn a_quota_that_is_used_up_is_found() {
        let mut facts = php_fpm();
        expect_ok("D5", &facts);
        let mut throttled = Throttled { periods: 600, throttled: 10, seconds: Some(60.0) };
        facts.services[0].group.throttled = Ok(Some(throttled));
        expect_ok("D5", &facts);
        throttled.throttled = 60;
        facts.services[0].group.throttled = Ok(Some(throttled));
        expect("D5", &facts, Warn, "60 of 600 periods (10 %) in 60 s");
        throttled.throttled = 200;
        facts.services[0].group.throttled = Ok(Some(throttled));
        expect("D5", &facts, Fail, "33 %");
        facts.services[0].group.throttled = unknown();
        expect("D5", &facts, CannotTell, "not given");
    }
}
