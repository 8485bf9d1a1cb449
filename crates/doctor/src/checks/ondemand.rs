//! D14: is an ondemand pool one that is asked seldom?

use std::time::Duration;

use crate::facts::{Facts, Kind, Manager};
use crate::finding::Sheet;
use crate::words::duration;

/// A pool that is asked so often, in requests a second, always has work.
const BUSY_RATE: f64 = 1.0;

/// Workers that stay for less are started anew all the time.
const SHORTEST_IDLE: Duration = Duration::from_secs(10);

/// D14.
pub(super) fn misuse(facts: &Facts, sheet: &mut Sheet) {
    for (service, pool) in facts.pools() {
        if pool.manager != Manager::Ondemand {
            continue;
        }
        let about = pool.name.as_str();
        if pool.idle_timeout < SHORTEST_IDLE {
            let seen = format!("process_idle_timeout = {}", duration(pool.idle_timeout));
            sheet
                .warn(about, seen, "process_idle_timeout < 10 s")
                .so("workers go and are started again all the time")
                .fix("process_idle_timeout = 60s")
                .rules(&["R75", "R77", "R108"]);
        }
        let rate = pool.live.as_ref().map_err(Clone::clone);
        let rate = match rate.and_then(|live| live.rate.clone()) {
            Ok(rate) => rate,
            Err(why) => {
                sheet.cannot_tell(about, "how often it is asked", &why);
                continue;
            }
        };
        let seen = format!("{rate:.1} requests a second");
        if rate > BUSY_RATE && service.kind == Kind::PhpFpm {
            sheet
                .warn(about, seen, "ondemand and more than a request a second")
                .so("users wait for workers to be started, and their first request is a slow one")
                .fix("pm = static or dynamic; ondemand is for pools that sleep most of the time")
                .rules(&["R47", "R53", "R54", "R79", "R107", "W18", "W30"]);
        } else {
            sheet.ok(about, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::facts::Manager;
    use crate::finding::Severity::*;
    use std::time::Duration;

    #[test]
    fn a_busy_pool_on_demand_is_found() {
        let mut facts = php_fpm();
        expect_ok("D14", &facts);
        pool(&mut facts).manager = Manager::Ondemand;
        expect("D14", &facts, Warn, "20.0 requests a second");
        told(&mut facts).rate = Ok(0.1);
        expect_ok("D14", &facts);
        pool(&mut facts).idle_timeout = Duration::from_secs(2);
        expect("D14", &facts, Warn, "process_idle_timeout = 2 s");
        pool(&mut facts).live = unknown();
        expect("D14", &facts, CannotTell, "how often");
    }
}
