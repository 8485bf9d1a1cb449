//! D14: is an ondemand pool idle most of the time?

use std::time::Duration;

use super::common::{OF_ALL_POOLS, setting_time};
use crate::facts::{Arrivals, Fact, Facts, Manager, PhpServer, Pool, Unknown};
use crate::finding::Sheet;
use maitred_text::humanize::duration;

/// A pool with more requests a second always has work.
const BUSY_RATE: f64 = 1.0;

/// A pool that has a worker for a larger share of the time does not sleep.
const MOSTLY_AWAKE: f64 = 0.5;

/// Workers with a shorter idle timeout are restarted all the time.
const SHORTEST_IDLE: Duration = Duration::from_secs(10);

/// D14.
pub(super) fn misuse(facts: &Facts, sheet: &mut Sheet) {
    for (service, pool) in facts.pools() {
        if pool.manager != Manager::Ondemand {
            continue;
        }
        let about = pool.name.as_str();
        if pool.idle_timeout < SHORTEST_IDLE {
            let seen = format!("process_idle_timeout = {}", setting_time(pool.idle_timeout));
            sheet.report("ondemand.short-idle-timeout", about, seen);
        }
        let (seen, is_busy) = match how_often(facts, pool) {
            Ok(found) => found,
            Err(why) => {
                sheet.cannot_tell(about, "how often it gets requests", &why);
                continue;
            }
        };
        if is_busy && service.kind == PhpServer::PhpFpm {
            sheet.report("ondemand.busy-pool", about, seen);
        } else {
            sheet.ok(about, seen);
        }
    }
}

/// How often a pool gets requests, and whether that is too often for ondemand: by the access log,
/// or since the server's start.
fn how_often(facts: &Facts, pool: &Pool) -> Fact<(String, bool)> {
    let live = || pool.stat(|live| &live.rate);
    let since_start = |rate: f64| format!("{rate:.1} requests a second since the start");
    match &facts.arrivals {
        Ok(Some(arrivals)) if facts.pools().count() == 1 => Ok(by_log(arrivals, pool)),
        Ok(Some(_)) => match live() {
            Ok(rate) => Ok((format!("{} ({OF_ALL_POOLS})", since_start(rate)), rate > BUSY_RATE)),
            Err(why) => Err(Unknown(format!("{OF_ALL_POOLS}; {why}"))),
        },
        Ok(None) => live().map(|rate| (since_start(rate), rate > BUSY_RATE)),
        Err(why) => Err(why.clone()),
    }
}

/// By a log of its requests alone.
fn by_log(arrivals: &Arrivals, pool: &Pool) -> (String, bool) {
    let (rate, gap) = (arrivals.busiest_rate, arrivals.gap_p95());
    let awake = arrivals.awake(pool.idle_timeout);
    let seen = format!(
        "{rate:.1} requests a second in the busiest hour, 95 of 100 within {} of the one before, \
         a worker there for {:.0} % of the time",
        duration(gap),
        awake * 100.0
    );
    // A crawler sends its requests close together, and the pool sleeps the rest of the day.
    let stays = gap < pool.idle_timeout.as_secs_f64() && awake > MOSTLY_AWAKE;
    (seen, rate > BUSY_RATE || stays)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::facts::{Arrivals, Manager};
    use crate::finding::Severity::*;
    use std::time::Duration;

    #[test]
    fn a_busy_pool_on_demand_is_found() {
        let mut facts = php_fpm();
        expect_ok("D14", &facts);
        pool(&mut facts).manager = Manager::Ondemand;
        expect("D14", &facts, Warn, "20.0 requests a second");
        reported(&mut facts).rate = Ok(0.1);
        expect_ok("D14", &facts);
        pool(&mut facts).idle_timeout = Duration::from_secs(2);
        expect("D14", &facts, Warn, "process_idle_timeout = 2 s");
        pool(&mut facts).live = unknown();
        expect("D14", &facts, CannotTell, "how often");
    }

    #[test]
    fn an_access_log_tells_of_the_busiest_hour_and_of_the_gaps() {
        let mut facts = php_fpm();
        pool(&mut facts).manager = Manager::Ondemand;
        let arrivals = |busiest_rate, gaps: &[f64]| {
            Ok(Some(Arrivals {
                requests: 1_000,
                rise: 1.0,
                rise_at: String::new(),
                busiest_rate,
                gaps: gaps.to_vec(),
            }))
        };
        facts.arrivals = arrivals(0.01, &[400.0; 50]);
        expect_ok("D14", &facts);
        facts.arrivals = arrivals(3.0, &[400.0; 50]);
        expect("D14", &facts, Warn, "3.0 requests a second in the busiest hour");
        facts.arrivals = arrivals(0.5, &[4.0; 50]);
        let seen = "within 4 s of the one before, a worker there for 100 % of the time";
        expect("D14", &facts, Warn, seen);
        let crawler = [vec![1.0; 120], vec![86_280.0], vec![1.0; 120]].concat();
        facts.arrivals = arrivals(0.1, &crawler);
        expect_ok("D14", &facts);
        facts.arrivals = unknown();
        expect("D14", &facts, CannotTell, "how often");
    }

    #[test]
    fn a_log_of_several_pools_tells_nothing_of_one_of_them() {
        let mut facts = php_fpm();
        pool(&mut facts).manager = Manager::Ondemand;
        let second = facts.services[0].pools[0].clone();
        facts.services[0].pools.push(second);
        facts.arrivals = Ok(Some(Arrivals {
            requests: 1_000,
            rise: 1.0,
            rise_at: String::new(),
            busiest_rate: 0.1,
            gaps: vec![400.0; 50],
        }));
        expect("D14", &facts, Warn, "since the start (the access log is of all pools");
        pool(&mut facts).live = unknown();
        expect("D14", &facts, CannotTell, "how often");
    }
}
