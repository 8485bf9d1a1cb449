//! D18: which process dies when memory runs out?

use maitred_text::humanize::{plural, plural_with};

use crate::facts::{Facts, PhpServer, Service, known};
use crate::finding::Sheet;

/// D18.
pub(super) fn blast_radius(facts: &Facts, sheet: &mut Sheet) {
    for service in &facts.services {
        policy(service, sheet);
        order(facts, service, sheet);
        killed(service, sheet);
    }
    match &facts.machine.oom_kills {
        Ok(0) => sheet.ok("the machine", "the kernel has killed no process since the boot"),
        Ok(kills) => {
            let seen = format!(
                "the kernel has killed {} for lack of memory since it started; {}",
                plural(*kills, "process"),
                last(facts)
            );
            sheet.report("oom.kills-on-machine", "the machine", seen);
        }
        Err(why) => {
            sheet.cannot_tell("the machine", "whether the kernel has killed a process", why)
        }
    }
}

/// The time and the victim.
fn last(facts: &Facts) -> String {
    match &facts.machine.last_kill {
        Ok(Some(killed)) => format!("the last was {} at {}", killed.who, killed.when),
        Ok(None) => "its log does not go back to that any more, so when is not known".to_owned(),
        Err(why) => format!("the time is not known: {why}"),
    }
}

fn policy(service: &Service, sheet: &mut Sheet) {
    let about = service.name.as_str();
    let workers: u32 = service.pools.iter().map(|pool| pool.max_children).sum();
    let unit = match &service.unit {
        Ok(Some(unit)) => unit,
        Ok(None) => return,
        Err(why) => {
            return sheet.cannot_tell(about, "what systemd does when a worker is killed", why);
        }
    };
    let policy = unit.settings.get("OOMPolicy").map_or("stop", String::as_str);
    let seen = match (policy, service.group.kills_all) {
        ("continue", false) => {
            return sheet
                .ok(&unit.name, "a worker that is killed is replaced, and the rest goes on");
        }
        (_, true) => "memory.oom.group is set".to_owned(),
        (policy, _) => {
            if unit.settings.contains_key("OOMPolicy") {
                format!("OOMPolicy={policy}")
            } else {
                "OOMPolicy is not set, and systemd's default is stop".to_owned()
            }
        }
    };
    if workers > 1 {
        sheet
            .report("oom.kills-all", &unit.name, seen)
            .so(format!("one script with too much memory ends all {workers} workers"));
    }
}

fn order(facts: &Facts, service: &Service, sheet: &mut Sheet) {
    let about = service.name.as_str();
    let first = known(&service.process);
    let first = match first.and_then(|process| process.oom_score_adj.clone()) {
        Ok(first) => first,
        Err(why) => {
            return sheet.cannot_tell(about, "which process the kernel would kill first", &why);
        }
    };
    let databases = facts.databases.as_ref().ok().into_iter().flatten();
    let database = databases.filter_map(|database| database.oom_score_adj.clone().ok()).max();
    // maitred's front and supervisor are small: the kernel kills a worker for its size.
    let others = match service.kind {
        PhpServer::Maitred | PhpServer::MaitredFpm => database,
        PhpServer::PhpFpm | PhpServer::ModPhp => {
            Some(database.map_or(first, |database| database.max(first)))
        }
    };
    for pool in &service.pools {
        let workers = pool.workers().ok();
        let Some(workers) = workers.filter(|workers| !workers.is_empty()) else {
            continue;
        };
        let least = workers.iter().filter_map(|worker| worker.oom_score_adj.clone().ok()).min();
        let (Some(least), Some(others)) = (least, others) else {
            continue;
        };
        if least <= others {
            let seen =
                format!("workers have oom_score_adj {least}, the server or a database {others}");
            // Of equals the kernel kills the largest, and maitred's only large processes are
            // workers.
            match service.kind {
                PhpServer::Maitred => sheet.report("oom.workers-not-first-here", &pool.name, seen),
                PhpServer::MaitredFpm => {
                    sheet.report("oom.workers-not-first-by-size", &pool.name, seen)
                }
                _ => sheet.report("oom.workers-not-first", &pool.name, seen),
            };
        } else {
            sheet.ok(&pool.name, format!("workers go first: oom_score_adj {least}"));
        }
    }
}

fn killed(service: &Service, sheet: &mut Sheet) {
    let about = service.name.as_str();
    match &service.group.oom_kills {
        Ok(None) => {}
        Ok(Some(0)) => sheet.ok(about, "none of its processes was killed for lack of memory"),
        Ok(Some(kills)) => {
            let seen =
                plural_with(*kills, "process", "were") + " killed in its group for lack of memory";
            sheet.report("oom.kills-in-group", about, seen);
        }
        Err(why) => sheet.cannot_tell(about, "whether its group's limit has killed a process", why),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::finding::Severity::*;

    #[test]
    fn what_would_take_others_along_is_found() {
        expect_ok("D18", &php_fpm());
        let mut facts = php_fpm();
        facts.services[0].unit.as_mut().unwrap().as_mut().unwrap().settings.remove("OOMPolicy");
        expect("D18", &facts, Warn, "OOMPolicy is not set");
        facts.services[0].group.kills_all = true;
        expect("D18", &facts, Warn, "memory.oom.group");
        let workers = reported(&mut facts).workers.as_mut().unwrap();
        workers[3].oom_score_adj = Ok(0);
        expect("D18", &facts, Warn, "workers have oom_score_adj 0");
    }

    #[test]
    fn kills_are_found_and_counts_that_cannot_be_read_are_named() {
        let mut facts = php_fpm();
        facts.machine.oom_kills = Ok(2);
        facts.services[0].group.oom_kills = Ok(Some(1));
        expect("D18", &facts, Fail, "killed 2 processes");
        expect("D18", &facts, Fail, "its log does not go back to that");
        facts.machine.last_kill = Ok(Some(crate::facts::Killed {
            when: "2026-11-23T08:41:03+01:00".to_owned(),
            who: "php-fpm8.2 (process 4321)".to_owned(),
        }));
        expect("D18", &facts, Fail, "php-fpm8.2 (process 4321) at 2026-11-23T08:41:03+01:00");
        facts.machine.last_kill = unknown();
        expect("D18", &facts, Fail, "the time is not known");
        expect("D18", &facts, Fail, "1 process was killed in its group");
        facts.machine.oom_kills = unknown();
        facts.services[0].group.oom_kills = unknown();
        facts.services[0].unit = unknown();
        facts.services[0].process = unknown();
        for what in ["killed a process", "its group's limit", "what systemd does", "kill first"] {
            expect("D18", &facts, CannotTell, what);
        }
    }
}
