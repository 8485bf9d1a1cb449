//! Routes whose requests end their workers. Each such end costs the pool a worker and a fork; a
//! route that causes too many is refused for a while, so that the other routes of the pool keep
//! their workers. Pure: the caller provides the time.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use maitred_control::token_bucket::TokenBucket;

use crate::pool::route_metrics::name_class;

/// Workers that the requests of one route may end in a second. At 5 ms of processor time for the
/// end of a worker and the fork of another, that is a fortieth of a processor.
const CRASHES_PER_SECOND: u32 = 5;

/// The same for a burst.
const CRASHES_AT_ONCE: u32 = 10;

/// Requests that pay for one end of a worker: a route that rarely crashes is never refused.
const REQUESTS_PER_CRASH: f64 = 20.0;

/// Most routes of a pool that are observed. Beyond that, the one with the oldest crash is
/// forgotten.
const MAX_ROUTES: usize = 32;

thread_local! {
    /// A buffer for the route of a request.
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The route of a request, as a hash: the file of its script, and its path without the parts of a
/// single page (`/product/17` is `/product/*`).
pub fn route_of(script: &str, target: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    script.hash(&mut hasher);
    NAME.with_borrow_mut(|name| {
        name_class(target, name);
        name.hash(&mut hasher);
    });
    hasher.finish()
}

/// The routes that have crashed recently, the latest crash last.
#[derive(Debug, Default)]
pub struct CrashLimit {
    routes: Vec<CrashingRoute>,
}

#[derive(Debug)]
struct CrashingRoute {
    route: u64,
    budget: TokenBucket,
    /// It has used its budget up: until that is full again, each request takes a part of it from
    /// the start, so that no more of them run at once than may crash.
    is_limited: bool,
}

/// Whether a request may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteAdmission {
    /// Its route has used its budget up.
    Refused,
    /// It may.
    Free,
    /// It may, and has taken a part of the budget for a worker that it may end.
    Paid,
}

impl CrashLimit {
    /// A request of this route has ended its worker.
    pub fn crashed(&mut self, route: u64, now: Duration) {
        let mut entry = match self.position(route) {
            Some(index) => self.routes.remove(index),
            None => CrashingRoute {
                route,
                budget: TokenBucket::full(CRASHES_AT_ONCE, CRASHES_PER_SECOND),
                is_limited: false,
            },
        };
        // A limited route has paid when the request was admitted.
        if !entry.is_limited {
            entry.is_limited = !entry.budget.take(now);
        }
        if self.routes.len() == MAX_ROUTES {
            self.routes.remove(0);
        }
        self.routes.push(entry);
    }

    /// A request of this route has ended, and its worker lives.
    pub fn survived(&mut self, route: u64) {
        if let Some(index) = self.position(route) {
            self.routes[index].budget.give(1.0 / REQUESTS_PER_CRASH);
        }
    }

    /// A request of this route that has paid ([`RouteAdmission::Paid`]) has ended no worker.
    pub fn refund(&mut self, route: u64) {
        if let Some(index) = self.position(route) {
            self.routes[index].budget.give(1.0);
        }
    }

    /// Whether this route has crashed recently. For one that has not, no clock need be read.
    pub fn knows(&self, route: u64) -> bool {
        self.position(route).is_some()
    }

    /// Whether a request of this route may run. It counts as running.
    pub fn admit(&mut self, route: u64, now: Duration) -> RouteAdmission {
        let Some(index) = self.position(route) else {
            return RouteAdmission::Free;
        };
        let entry = &mut self.routes[index];
        if entry.budget.is_full(now) {
            self.routes.remove(index);
            return RouteAdmission::Free;
        }
        match entry.is_limited {
            false => RouteAdmission::Free,
            true if entry.budget.take(now) => RouteAdmission::Paid,
            true => RouteAdmission::Refused,
        }
    }

    fn position(&self, route: u64) -> Option<usize> {
        self.routes.iter().position(|entry| entry.route == route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many of `requests` crashing requests within a second are admitted.
    fn crashes(limit: &mut CrashLimit, route: u64, requests: u32, from: Duration) -> u32 {
        let admitted = (0..requests).filter(|number| {
            let now = from + SECOND * *number / requests;
            let is_admitted = limit.admit(route, now) != RouteAdmission::Refused;
            if is_admitted {
                limit.crashed(route, now);
            }
            is_admitted
        });
        u32::try_from(admitted.count()).unwrap()
    }

    #[test]
    fn a_route_that_crashes_is_refused_beyond_its_budget_and_others_are_not() {
        let mut limit = CrashLimit::default();
        let first = crashes(&mut limit, 1, 100, SECOND);
        assert!((CRASHES_AT_ONCE..=CRASHES_AT_ONCE + CRASHES_PER_SECOND + 1).contains(&first));
        for second in 2..10 {
            let later = crashes(&mut limit, 1, 100, SECOND * second);
            assert!(later.abs_diff(CRASHES_PER_SECOND) <= 1, "{later}");
        }
        assert_eq!(limit.admit(2, SECOND * 10), RouteAdmission::Free);
    }

    #[test]
    fn requests_that_run_at_once_end_no_more_workers_than_the_budget_has() {
        let mut limit = CrashLimit::default();
        crashes(&mut limit, 1, 100, SECOND);
        let later = SECOND * 3;
        let admitted = (0..50).filter(|_| limit.admit(1, later) != RouteAdmission::Refused).count();
        assert!(admitted <= CRASHES_AT_ONCE as usize, "{admitted}");
    }

    #[test]
    fn a_route_that_crashes_once_in_a_hundred_requests_is_never_refused() {
        let mut limit = CrashLimit::default();
        for request in 0..100_000u32 {
            let now = SECOND * request / 2000;
            assert_eq!(limit.admit(1, now), RouteAdmission::Free, "request {request}");
            match request % 100 {
                99 => limit.crashed(1, now),
                _ => limit.survived(1),
            }
        }
    }

    #[test]
    fn a_route_that_is_mended_is_forgotten() {
        let mut limit = CrashLimit::default();
        crashes(&mut limit, 1, 100, SECOND);
        for tenth in 0..40 {
            let admission = limit.admit(1, SECOND * 2 + SECOND * tenth / 10);
            if admission == RouteAdmission::Paid {
                limit.refund(1);
            }
            if admission != RouteAdmission::Refused {
                limit.survived(1);
            }
        }
        assert_eq!(limit.admit(1, SECOND * 6), RouteAdmission::Free);
        assert!(limit.routes.is_empty());
    }

    #[test]
    fn no_more_routes_are_observed_than_the_table_has() {
        let mut limit = CrashLimit::default();
        for route in 0..1000 {
            limit.crashed(route, SECOND);
        }
        assert_eq!(limit.routes.len(), MAX_ROUTES);
        assert!(limit.position(999).is_some());
    }

    #[test]
    fn pages_of_one_kind_are_one_route_and_those_of_another_script_are_not() {
        assert_eq!(route_of("/i.php", "/product/17?a"), route_of("/i.php", "/product/18"));
        assert_ne!(route_of("/i.php", "/cart"), route_of("/i.php", "/product/18"));
        assert_ne!(route_of("/j.php", "/cart"), route_of("/i.php", "/cart"));
    }
}
