//! The twenty checks: facts in, findings out. Each reports something in every case, so that none
//! passes because its facts were missing.

mod backlog;
mod common;
mod cpu;
mod database;
mod descriptors;
mod memory;
mod ondemand;
mod oom;
mod page_cache;
mod pressure;
mod recycling;
mod runtime;
mod spares;
mod status_page;
mod stopping;
mod timeouts;

#[cfg(test)]
pub(crate) mod fixture;

use crate::facts::Facts;
use crate::finding::{Finding, Sheet};

/// A check.
pub struct Check {
    /// `D1` to `D20`.
    pub id: &'static str,
    /// Its name.
    pub title: &'static str,
    /// The object of the check, as the end of "there is no …".
    pub subject: &'static str,
    look: fn(&Facts, &mut Sheet),
}

impl std::fmt::Debug for Check {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.id, self.title)
    }
}

impl Check {
    /// Runs it.
    pub fn look(&'static self, facts: &Facts) -> Vec<Finding> {
        let mut sheet = Sheet::new(self.id, self.title);
        (self.look)(facts, &mut sheet);
        if sheet.findings.is_empty() {
            sheet.ok("here", format!("there is no {} here", self.subject));
        }
        sheet.findings
    }
}

const fn check(
    id: &'static str,
    title: &'static str,
    subject: &'static str,
    look: fn(&Facts, &mut Sheet),
) -> Check {
    Check { id, title, subject, look }
}

/// All of them.
pub static CHECKS: [Check; 20] = [
    check("D1", "memory", "server that runs PHP", memory::overcommit),
    check("D2", "sized from RSS", "pool", memory::sized_from_rss),
    check("D3", "limits of the container", "server that runs PHP", memory::wrong_limits),
    check("D4", "workers for the processors", "pool", cpu::subscription),
    check("D5", "processor quota", "server that runs PHP", cpu::throttled),
    check("D6", "paging", "swap", pressure::paging),
    check("D7", "memory pressure", "machine", pressure::pressure),
    check("D8", "time limits", "pool", timeouts::ladder),
    check("D9", "backlog that the kernel cuts", "socket of a pool", backlog::cut),
    check("D10", "depth of the queue", "queue", backlog::too_deep),
    check("D11", "status page", "status page", status_page::blind),
    check("D12", "spare workers", "dynamic pool", spares::arithmetic),
    check("D13", "recycling", "pool", recycling::recycling),
    check("D14", "workers on demand", "ondemand pool", ondemand::misuse),
    check("D15", "PHP's runtime", "pool", runtime::hygiene),
    check("D16", "open files", "server", descriptors::open_files),
    check("D17", "reload and stop", "server that runs PHP", stopping::stopping),
    check("D18", "out of memory", "server that runs PHP", oom::blast_radius),
    check("D19", "page cache", "page cache", page_cache::safety),
    check("D20", "connections behind and in front", "pool", database::budget),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn the_checks_are_numbered_and_every_one_says_something_of_an_empty_machine() {
        for (at, check) in CHECKS.iter().enumerate() {
            assert_eq!(check.id, format!("D{}", at + 1));
            let found = check.look(&fixture::nothing());
            assert!(!found.is_empty(), "{check:?}");
            assert!(
                found.iter().all(|finding| finding.severity >= Severity::CannotTell),
                "{found:?}"
            );
        }
    }

    #[test]
    fn nothing_is_wrong_with_a_server_that_is_well_set() {
        for facts in [fixture::php_fpm(), fixture::maitred()] {
            for check in &CHECKS {
                for finding in check.look(&facts) {
                    assert!(finding.severity >= Severity::Info, "{finding:?}");
                }
            }
        }
    }
}
