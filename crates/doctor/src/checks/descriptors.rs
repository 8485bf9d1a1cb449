//! D16: limits of open files and of processes.

use crate::facts::{Fact, Facts, Service, known};
use crate::finding::Sheet;

/// Files that a server has open in addition to connections and workers.
const OTHERS: u64 = 64;

/// Descriptors that a service's first process needs.
fn need(service: &Service) -> u64 {
    let workers: u64 = service.pools.iter().map(|pool| u64::from(pool.max_children)).sum();
    service.connections.unwrap_or(0) + 2 * workers + OTHERS
}

/// D16.
pub(super) fn open_files(facts: &Facts, sheet: &mut Sheet) {
    for service in &facts.services {
        let about = service.name.as_str();
        let allowed = known(&service.process);
        match allowed.and_then(|process| process.open_files.clone()) {
            Ok(allowed) => {
                let need = need(service);
                let seen = format!("{allowed} open files allowed, {need} needed at most");
                if (allowed as f64) < 1.5 * need as f64 {
                    sheet.report("descriptors.soft-limit", about, seen);
                } else {
                    sheet.ok(about, seen);
                }
            }
            Err(why) => sheet.cannot_tell(about, "how many files it may open", &why),
        }
    }
    nginx(facts, sheet);
    whole_system(facts, sheet);
    tasks(facts, sheet);
}

fn nginx(facts: &Facts, sheet: &mut Sheet) {
    let Some(nginx) = &facts.nginx else { return };
    let need = 2 * nginx.connections;
    match &nginx.open_files {
        Err(why) => sheet.cannot_tell(&nginx.file, "how many files nginx may open", why),
        Ok(allowed) => {
            let seen = format!(
                "worker_connections {} need {need} open files, {allowed} are allowed",
                nginx.connections
            );
            if need > *allowed {
                sheet
                    .report("descriptors.worker-connections", &nginx.file, seen)
                    .fix(format!("worker_rlimit_nofile {};", (2 * need).next_power_of_two()));
            } else {
                sheet.ok(&nginx.file, seen);
            }
        }
    }
}

fn whole_system(facts: &Facts, sheet: &mut Sheet) {
    let about = "the machine";
    let files: &Fact<(u64, u64)> = &facts.machine.files;
    let (open, allowed) = match files {
        Ok(files) => *files,
        Err(why) => return sheet.cannot_tell(about, "open files of the whole system", why),
    };
    let need: u64 = facts.services.iter().map(need).sum();
    let seen = format!("{open} files are open of {allowed}; {need} more may be needed");
    if allowed < 2 * (open + need) {
        sheet.report("descriptors.file-max", about, seen);
    } else {
        sheet.ok(about, seen);
    }
}

fn tasks(facts: &Facts, sheet: &mut Sheet) {
    let about = "the machine";
    let (all, allowed) = match &facts.machine.tasks {
        Ok(tasks) => *tasks,
        Err(why) => return sheet.cannot_tell(about, "processes of the whole system", why),
    };
    let workers = facts.pools().map(|(_, pool)| u64::from(pool.max_children));
    let need: u64 = workers.sum();
    let seen = format!("{all} processes and threads of {allowed}; {need} more may be needed");
    if allowed < 2 * (all + need) {
        sheet.report("descriptors.tasks-max", about, seen);
    } else {
        sheet.ok(about, seen);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::finding::Severity::*;

    #[test]
    fn too_few_descriptors_are_found_wherever_they_lack() {
        expect_ok("D16", &php_fpm());
        let mut facts = php_fpm();
        facts.services[0].connections = Some(10_000);
        expect("D16", &facts, Fail, "1024 open files allowed, 10080 needed");
        facts.nginx.as_mut().unwrap().open_files = Ok(1000);
        expect("D16", &facts, Warn, "worker_connections 512 need 1024");
        facts.machine.files = Ok((900, 1_000));
        expect("D16", &facts, Warn, "900 files are open of 1000");
        facts.machine.tasks = Ok((300, 600));
        expect("D16", &facts, Warn, "300 processes and threads of 600");
    }

    #[test]
    fn limits_that_cannot_be_read_are_named() {
        let mut facts = php_fpm();
        facts.services[0].process = unknown();
        expect("D16", &facts, CannotTell, "how many files it may open");
        facts.nginx.as_mut().unwrap().open_files = unknown();
        expect("D16", &facts, CannotTell, "nginx");
        facts.machine.files = unknown();
        facts.machine.tasks = unknown();
        expect("D16", &facts, CannotTell, "open files of the whole system");
        expect("D16", &facts, CannotTell, "processes of the whole system");
    }
}
