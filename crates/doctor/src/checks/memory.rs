//! D1 to D3: is there memory for all workers?

use super::common::private_p95;
use crate::facts::{Fact, Facts, Machine, Manager, PhpServer, Pool, Service, Unknown, known};
use crate::finding::Sheet;
use crate::ini_value;
use maitred_text::humanize::{bytes, percent, plural, plural_with};

/// PHP's own limit if none is set.
const DEFAULT_MEMORY_LIMIT: &str = "128M";

/// The guides' reserve for the system (R21).
const GUIDE_RESERVE_BYTES: f64 = 512.0 * 1048576.0;

/// A worker's memory, and its source.
pub(super) struct WorkerCost {
    pub bytes: f64,
    pub is_measured: bool,
}

/// The memory of one more worker: measured, or PHP's limit.
pub(super) fn cost(pool: &Pool) -> Fact<WorkerCost> {
    if let Some(bytes) = private_p95(pool) {
        return Ok(WorkerCost { bytes, is_measured: true });
    }
    let ini = known(&pool.ini)?;
    let limit = ini.get("memory_limit", DEFAULT_MEMORY_LIMIT);
    match ini_value::size(limit) {
        Some(bytes) if bytes > 0 => Ok(WorkerCost { bytes: bytes as f64, is_measured: false }),
        _ => Unknown::because(format!(
            "no worker that has served requests was measured, and memory_limit = {limit} bounds \
             none"
        )),
    }
}

fn resident_mean(pool: &Pool) -> Option<f64> {
    let workers = pool.workers().ok()?;
    let resident = workers.iter().filter_map(|worker| worker.resident.as_ref().ok());
    let resident: Vec<f64> = resident.copied().collect();
    (!resident.is_empty()).then(|| resident.iter().sum::<f64>() / resident.len() as f64)
}

/// OPcache's memory, shared by all workers: one per pool with maitred, one in all with php-fpm.
fn shared(service: &Service) -> f64 {
    let of = |pool: &Pool| {
        let megabytes = pool.ini.as_ref().ok().map(|ini| {
            let size = ini.get("opcache.memory_consumption", "128");
            size.trim().parse::<f64>().unwrap_or(128.0)
        });
        megabytes.unwrap_or(128.0) * 1048576.0
    };
    let all = service.pools.iter().map(of);
    match service.kind {
        PhpServer::Maitred | PhpServer::MaitredFpm => all.sum(),
        PhpServer::PhpFpm | PhpServer::ModPhp => all.fold(0.0, f64::max),
    }
}

/// The pools whose size does not follow the memory.
fn counted(service: &Service) -> impl Iterator<Item = &Pool> {
    let pools = service.pools.iter();
    pools.filter(|pool| pool.manager != Manager::Found)
}

/// Memory that the service may need, with its parts as text.
fn need(service: &Service, base: f64) -> Fact<(f64, String, bool)> {
    let mut total = 0.0;
    let mut is_measured = true;
    let mut parts = Vec::new();
    for pool in &service.pools {
        if pool.manager == Manager::Found {
            parts.push("as many workers as there is memory for".to_owned());
            continue;
        }
        let cost = cost(pool)?;
        total += f64::from(pool.max_children) * cost.bytes;
        is_measured &= cost.is_measured;
        let how = if cost.is_measured { "private, p95" } else { "memory_limit: the worst case" };
        parts.push(format!(
            "{} x {} ({how})",
            plural(pool.max_children.into(), "worker"),
            bytes(cost.bytes)
        ));
    }
    let shared = shared(service);
    let parts = format!(
        "{} + {} OPcache + {} for everything else",
        parts.join(" + "),
        bytes(shared),
        bytes(base)
    );
    Ok((total + shared + base, parts, is_measured))
}

/// The memory that a service may use.
struct Budget {
    /// The least of the machine's memory and the groups' limits.
    bytes: f64,
    /// Its source.
    place: String,
    /// The part of it that is in use without the service's workers and OPcache.
    base: f64,
}

fn budget(machine: &Machine, service: &Service) -> Fact<Budget> {
    let memory = known(&machine.memory)?;
    let own: f64 = service.pools.iter().map(Pool::private_of_all).sum();
    Ok(match known(&service.group.memory)? {
        Some((limit, place)) if *limit < memory.total => {
            // The use of a group includes the OPcache of a server that runs in it, as `maitred
            // tune` counts it.
            let own = own + if service.process.is_ok() { shared(service) } else { 0.0 };
            let used = known(&service.group.used)?.unwrap_or(0.0);
            Budget { bytes: *limit, place: place.clone(), base: (used - own).max(0.0) }
        }
        _ => Budget {
            bytes: memory.total,
            place: "the machine's memory".to_owned(),
            base: (memory.total - memory.available - own).max(0.0),
        },
    })
}

/// The other pools of a service.
struct OtherPools {
    /// Memory that their workers may need, or have if their number follows the memory.
    bytes: f64,
    /// Pools without a measured worker.
    unmeasured: u64,
}

/// A worker of a pool without a measured one counts with `private` bytes: by PHP's limit, an idle
/// pool would take the memory of all others.
fn others(service: &Service, pool: &Pool, private: f64) -> OtherPools {
    let mut found = OtherPools { bytes: 0.0, unmeasured: 0 };
    for other in service.pools.iter().filter(|other| other.section != pool.section) {
        if other.manager == Manager::Found {
            found.bytes += other.private_of_all();
            continue;
        }
        let measured = private_p95(other);
        found.unmeasured += u64::from(measured.is_none());
        found.bytes += f64::from(other.max_children) * measured.unwrap_or(private);
    }
    found
}

/// The guides' number for comparison (R21, R57).
fn guide(pool: &Pool, total: f64) -> String {
    let rest = total - GUIDE_RESERVE_BYTES;
    match (resident_mean(pool), cost(pool)) {
        (Some(resident), _) if resident > 0.0 => format!(
            "the guides' rule, by RSS, would say {:.0} workers",
            (rest / resident).max(0.0).floor()
        ),
        (_, Ok(cost)) => format!(
            "the guides' rule, by memory_limit, would say {:.0} workers",
            (rest / cost.bytes).max(0.0).floor()
        ),
        _ => "the guides' rule needs what is not known either".to_owned(),
    }
}

/// D1.
pub(super) fn overcommit(facts: &Facts, sheet: &mut Sheet) {
    for service in &facts.services {
        let Some(first) = service.pools.first() else {
            continue;
        };
        let known = budget(&facts.machine, service)
            .and_then(|budget| Ok((need(service, budget.base)?, budget)));
        let ((need, parts, is_measured), Budget { bytes: budget, place, .. }) = match known {
            Ok(known) => known,
            Err(why) => {
                sheet.cannot_tell(&service.name, "what all workers may need", &why);
                continue;
            }
        };
        let share = need / budget;
        let seen = format!(
            "{parts} = {}, {} of {} ({place}); {}",
            bytes(need),
            percent(share),
            bytes(budget),
            guide(first, budget)
        );
        let key = match share {
            share if share > 0.95 => "memory.overcommitted",
            share if share > 0.85 => "memory.nearly-overcommitted",
            _ => {
                sheet.ok(&service.name, seen);
                continue;
            }
        };
        sheet.report(key, &service.name, seen).fix(advice(service, need, budget, is_measured));
    }
}

fn advice(service: &Service, need: f64, budget: f64, is_measured: bool) -> String {
    let workers: f64 = counted(service)
        .filter_map(|pool| Some(f64::from(pool.max_children) * cost(pool).ok()?.bytes))
        .sum();
    let left = (0.85 * budget - (need - workers)).max(0.0);
    let share = left / workers.max(1.0);
    let name = match service.kind {
        PhpServer::Maitred => "max_children",
        PhpServer::PhpFpm | PhpServer::MaitredFpm => "pm.max_children",
        PhpServer::ModPhp => "MaxRequestWorkers",
    };
    let numbers = counted(service).map(|pool| {
        let fits = (f64::from(pool.max_children) * share).floor().max(1.0);
        format!("{name} = {fits:.0} in {}", pool.name)
    });
    let numbers = numbers.collect::<Vec<_>>().join(", ");
    if numbers.is_empty() {
        return "check what else uses the memory: no number of workers is set too high".to_owned();
    }
    if is_measured {
        format!("set {numbers}")
    } else {
        format!(
            "set {numbers}, or lower memory_limit; measured memory counts for more than this worst \
             case, so check again under load"
        )
    }
}

/// D2.
pub(super) fn sized_from_rss(facts: &Facts, sheet: &mut Sheet) {
    for (service, pool) in facts.pools() {
        let about = pool.name.as_str();
        if pool.manager == Manager::Found {
            sheet.ok(
                about,
                "it finds how many workers there is memory for, by what they have for themselves",
            );
            continue;
        }
        let (Some(private), Some(resident)) = (private_p95(pool), resident_mean(pool)) else {
            let why = Unknown(match &pool.live {
                Err(why) => why.to_string(),
                Ok(_) => "no worker that has served 20 requests could be measured".to_owned(),
            });
            sheet.cannot_tell(about, "what a worker costs", &why);
            continue;
        };
        let Budget { bytes: budget, base, .. } = match budget(&facts.machine, service) {
            Ok(found) => found,
            Err(why) => {
                sheet.cannot_tell(about, "how many workers memory allows", &why);
                continue;
            }
        };
        let others = others(service, pool, private);
        let left = 0.9 * budget - base - shared(service) - others.bytes;
        let allowed = (left / private).floor().max(0.0);
        let counted = [pool.stat(|live| &live.limit_reached), pool.stat(|live| &live.queue_max)];
        let is_short = counted.iter().flatten().any(|count| *count > 0);
        let mut seen = format!(
            "{} private (p95) of {} resident; {} workers, and memory allows {allowed:.0}",
            bytes(private),
            bytes(resident),
            pool.max_children
        );
        if others.unmeasured > 0 {
            let pools = plural_with(others.unmeasured, "other pool", "were");
            seen.push_str(&format!(" ({pools} not measured, and counted with as much a worker)"));
        }
        let is_small = f64::from(pool.max_children) < 0.7 * allowed;
        if private < 0.6 * resident && is_small && is_short {
            sheet.report("memory.few-workers", about, seen).fix(format!(
                "raise max_children, up to {allowed:.0} if processors and database allow it"
            ));
        } else {
            sheet.ok(about, seen);
        }
    }
}

/// D3.
pub(super) fn wrong_limits(facts: &Facts, sheet: &mut Sheet) {
    for service in &facts.services {
        memory_limit(facts, service, sheet);
        core_limit(facts, service, sheet);
    }
}

fn memory_limit(facts: &Facts, service: &Service, sheet: &mut Sheet) {
    let (about, group) = (service.name.as_str(), &service.group);
    let limit = match &group.memory {
        Ok(limit) => limit,
        Err(why) => {
            let seen = format!("the control group of {} cannot be read: {why}", group.whose);
            sheet.report("memory.unreadable-group", about, seen);
            return;
        }
    };
    let Some((limit, place)) = limit else {
        sheet.ok(about, "no control group limits its memory");
        return;
    };
    let total = match &facts.machine.memory {
        Ok(memory) => memory.total,
        Err(why) => return sheet.cannot_tell(about, "how much memory the machine has", why),
    };
    let all: Fact<f64> =
        counted(service).map(|pool| Ok(f64::from(pool.max_children) * cost(pool)?.bytes)).sum();
    let all = match all {
        Ok(all) => all + shared(service),
        Err(why) => return sheet.cannot_tell(about, "what its workers may need", &why),
    };
    let seen = format!(
        "{place} allows {} of {}; its workers may need {}",
        bytes(*limit),
        bytes(total),
        bytes(all)
    );
    if *limit < 0.95 * total && all > *limit {
        sheet.report("memory.above-group-limit", about, seen);
    } else {
        sheet.ok(about, seen);
    }
}

fn core_limit(facts: &Facts, service: &Service, sheet: &mut Sheet) {
    let about = service.name.as_str();
    let (processors, quota) = match (&facts.machine.processors, &service.group.cores) {
        (Ok(processors), Ok(quota)) => (*processors, quota),
        (Err(why), _) | (_, Err(why)) => {
            return sheet.cannot_tell(about, "how many processors it may use", why);
        }
    };
    let Some((cores, place)) =
        quota.as_ref().filter(|(cores, _)| cores.ceil() < f64::from(processors))
    else {
        return sheet.ok(about, format!("all {processors} processors may be used"));
    };
    for pool in &service.pools {
        let n = pool.max_children;
        let multiples = [processors, 2 * processors, 4 * processors, 2 * processors + 1];
        let seen =
            format!("{n} workers on {processors} processors, of which {place} leaves {cores:.1}");
        if multiples.contains(&n) && pool.is_chosen && pool.manager != Manager::Found {
            sheet
                .report("memory.counted-all-processors", &pool.name, seen)
                .fix(format!("count {:.0} processors", cores.ceil()));
        } else {
            sheet.ok(&pool.name, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::facts::Manager;
    use crate::finding::Severity::*;

    #[test]
    fn more_workers_than_memory_is_a_failure_and_what_cannot_be_known_is_said() {
        expect_ok("D1", &php_fpm());
        let mut facts = php_fpm();
        pool(&mut facts).max_children = 110;
        expect("D1", &facts, Fail, "110 workers x 30 MiB (private, p95)");
        pool(&mut facts).max_children = 90;
        expect("D1", &facts, Warn, "by RSS, would say 79 workers");
        reported(&mut facts).workers = unknown();
        expect("D1", &facts, Fail, "90 workers x 128 MiB (memory_limit: the worst case)");
        pool(&mut facts).ini = unknown();
        expect("D1", &facts, CannotTell, "not given");
    }

    #[test]
    fn a_pool_that_finds_its_size_never_has_too_many_workers() {
        let mut facts = php_fpm();
        pool(&mut facts).max_children = 500;
        pool(&mut facts).manager = Manager::Found;
        expect_ok("D1", &facts);
        expect_ok("D4", &facts);
        facts.services[0].group.memory = Ok(Some((2.0 * GB, "/web memory.max".to_owned())));
        expect_ok("D3", &facts);
        // Others use all but 40 MB: the finding names that, and no number of workers.
        facts.services[0].group.memory = Ok(None);
        facts.machine.memory.as_mut().unwrap().available = 40.0 * MB;
        expect("D1", &facts, Fail, "as many workers as there is memory for");
        let found = look("D1", &facts);
        assert!(found[0].fix.starts_with("check what else"), "{found:#?}");
    }

    #[test]
    fn a_limit_of_the_container_bounds_the_memory() {
        let mut facts = php_fpm();
        facts.services[0].group.memory = Ok(Some((GB, "/web memory.max".to_owned())));
        pool(&mut facts).max_children = 40;
        expect("D1", &facts, Fail, "/web memory.max");
        expect("D3", &facts, Fail, "/web memory.max allows 1 GiB of 4 GiB");
    }

    #[test]
    fn within_a_control_group_its_own_use_counts_instead_of_that_of_the_machine() {
        let mut facts = php_fpm();
        facts.machine.memory.as_mut().unwrap().available = 0.5 * GB;
        let group = &mut facts.services[0].group;
        group.memory = Ok(Some((2.0 * GB, "/web memory.max".to_owned())));
        group.used = Ok(Some(500.0 * MB));
        expect_ok("D1", &facts);
        let found = look("D1", &facts);
        let parts = "128 MiB OPcache + 132 MiB for everything else = 500 MiB";
        assert!(found[0].seen.contains(parts), "{found:#?}");
        let found = look("D2", &facts);
        assert!(found[0].seen.contains("and memory allows 52"), "{found:#?}");
        // Others of the group use nearly all of it.
        facts.services[0].group.used = Ok(Some(1.99 * GB));
        expect("D1", &facts, Fail, "of 2 GiB (/web memory.max)");
        facts.services[0].group.used = unknown();
        expect("D1", &facts, CannotTell, "not given");
        expect("D2", &facts, CannotTell, "not given");
    }

    #[test]
    fn the_use_of_a_group_without_the_server_includes_no_opcache() {
        let mut facts = php_fpm();
        facts.services[0].process = unknown();
        pool(&mut facts).live = unknown();
        let group = &mut facts.services[0].group;
        group.memory = Ok(Some((2.0 * GB, "/web memory.max".to_owned())));
        group.used = Ok(Some(500.0 * MB));
        let found = look("D1", &facts);
        let parts = "128 MiB OPcache + 500 MiB for everything else";
        assert!(found[0].seen.contains(parts), "{found:#?}");
    }

    #[test]
    fn few_workers_though_memory_allows_more_were_sized_by_rss() {
        let mut facts = php_fpm();
        let workers = reported(&mut facts).workers.as_mut().unwrap();
        workers.iter_mut().for_each(|worker| worker.private = Ok(20.0 * MB));
        expect_ok("D2", &facts);
        reported(&mut facts).limit_reached = Ok(3);
        expect("D2", &facts, Warn, "20 MiB private (p95) of 45 MiB resident");
        // A pool with `pm = auto` does not use RSS.
        pool(&mut facts).manager = Manager::Found;
        expect_ok("D2", &facts);
        pool(&mut facts).manager = Manager::Static;
        reported(&mut facts).workers = unknown();
        expect("D2", &facts, CannotTell, "could be measured");
        pool(&mut facts).live = unknown();
        expect("D2", &facts, CannotTell, "not given");
    }

    #[test]
    fn a_pool_gets_no_memory_that_another_pool_of_the_server_may_need() {
        let mut facts = php_fpm();
        facts.machine.memory.as_mut().unwrap().available = 2.0 * GB;
        let mut other = pool(&mut facts).clone();
        other.section = "shop".to_owned();
        other.max_children = 40;
        let workers = reported(&mut facts).workers.as_mut().unwrap();
        workers.iter_mut().for_each(|worker| worker.private = Ok(20.0 * MB));
        reported(&mut facts).limit_reached = Ok(3);
        expect("D2", &facts, Warn, "8 workers, and memory allows 83");
        // 40 x 30 MiB; the 240 MiB that eight of them have are no longer in use by anything else.
        facts.services[0].pools.push(other);
        expect("D2", &facts, Warn, "8 workers, and memory allows 35");
        assert!(look("D2", &facts)[0].fix.contains("up to 35"));
        facts.services[0].pools[1].manager = Manager::Found;
        expect("D2", &facts, Warn, "8 workers, and memory allows 83");
    }

    #[test]
    fn a_pool_without_a_measured_worker_leaves_memory_to_the_others() {
        let mut facts = php_fpm();
        facts.machine.memory.as_mut().unwrap().available = 2.0 * GB;
        let workers = reported(&mut facts).workers.as_mut().unwrap();
        workers.iter_mut().for_each(|worker| worker.private = Ok(20.0 * MB));
        reported(&mut facts).limit_reached = Ok(3);
        let mut idle = pool(&mut facts).clone();
        idle.section = "idle".to_owned();
        idle.max_children = 40;
        idle.live.as_mut().unwrap().workers = Ok(Vec::new());
        facts.services[0].pools.push(idle);
        // 83 without it.
        expect("D2", &facts, Warn, "allows 43 (1 other pool was not measured");
        let ini = facts.services[0].pools[1].ini.as_mut().unwrap();
        ini.entries.insert("memory_limit".to_owned(), "-1".to_owned());
        expect("D2", &facts, Warn, "allows 43");
        facts.services[0].pools[1].live = unknown();
        expect("D2", &facts, Warn, "allows 43");
    }

    #[test]
    fn workers_that_are_too_many_to_be_measured_have_as_much_memory_as_the_others() {
        let mut facts = php_fpm();
        facts.machine.memory.as_mut().unwrap().available = 0.5 * GB;
        pool(&mut facts).max_children = 100;
        expect("D1", &facts, Fail, "3.27 GiB for everything else");
        reported(&mut facts).further_workers = 92;
        expect("D1", &facts, Warn, "584 MiB for everything else");
    }

    #[test]
    fn limits_that_the_workers_were_not_counted_by_are_found() {
        expect_ok("D3", &php_fpm());
        let mut facts = php_fpm();
        facts.services[0].group.cores = Ok(Some((1.5, "/web cpu.max".to_owned())));
        expect("D3", &facts, Warn, "8 workers on 4 processors, of which /web cpu.max leaves 1.5");
        pool(&mut facts).max_children = 7;
        expect_ok("D3", &facts);
        facts.services[0].group.memory = unknown();
        expect("D3", &facts, Warn, "cannot be read");
        facts.services[0].group.cores = unknown();
        expect("D3", &facts, CannotTell, "processors");
    }
}
