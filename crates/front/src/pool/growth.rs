//! A pool that grows and shrinks, as the front sees it. It grows on demand: a request that finds no
//! idle worker requests one. It shrinks slowly: while the pool has more workers than it rests
//! with, a task checks once a second and retires at most one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use maitred_config::{Mode, Pool as Settings, ProcessManager};
use maitred_control::{FromFront, Generation};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::pool::Pool;
use crate::pool::auto::{AutoSize, load};
use crate::pool::generations::PoolQueues;

/// Interval of checks while the pool has more workers than it rests with.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The bounds of a pool's growth, and the last request for workers. A static pool has none.
#[derive(Debug, Default)]
pub struct Growth {
    /// `pm = dynamic` and `ondemand`.
    bounds: Option<SpareBounds>,
    /// `pm = auto`.
    pub(crate) auto: Option<AutoSize>,
    /// `pm = auto`, and workers are ready beyond the serving ones.
    pub(crate) has_more_ready: bool,
    /// Number of workers of the current generation that the supervisor was last asked for.
    pub(crate) requested: usize,
}

/// The limits of spare workers.
#[derive(Debug, Clone, Copy)]
struct SpareBounds {
    /// Most workers.
    limit: usize,
    /// `min_spare_servers`.
    min_spare: usize,
    /// `max_spare_servers`.
    max_spare: usize,
    /// Consecutive checks that find a worker idle before it retires.
    idle_checks: u32,
}

impl SpareBounds {
    /// Number of workers needed when `busy` run a script and `waiting` requests have none.
    fn needs(self, busy: usize, waiting: usize) -> usize {
        (busy + waiting + self.min_spare).min(self.limit)
    }
}

/// Whether to request workers: more are needed than are open, and than were requested.
fn is_short(needs: usize, open: usize, requested: usize) -> bool {
    needs > open && needs > requested
}

impl Growth {
    /// The growth of a pool with these settings, up to `limit` workers.
    pub fn of(pool: &Settings, limit: usize) -> Growth {
        let spare = |servers: Option<u32>| servers.unwrap_or(1) as usize;
        let bounds = match pool.pm {
            ProcessManager::Static | ProcessManager::Auto => None,
            ProcessManager::Dynamic => Some(SpareBounds {
                limit,
                min_spare: spare(pool.min_spare_servers),
                max_spare: spare(pool.max_spare_servers),
                idle_checks: 1,
            }),
            ProcessManager::Ondemand => {
                let timeout = pool.process_idle_timeout;
                let whole = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
                Some(SpareBounds {
                    limit,
                    min_spare: 0,
                    max_spare: 0,
                    // Between the first and the last of n + 1 checks are n seconds.
                    idle_checks: u32::try_from(whole + 1).unwrap_or(u32::MAX),
                })
            }
        };
        let is_auto = pool.pm == ProcessManager::Auto;
        Growth {
            bounds,
            auto: is_auto
                .then(|| AutoSize::new(pool.fewest_found() as usize, limit, pool.rests_after())),
            has_more_ready: is_auto && pool.mode == Mode::Snapshot,
            ..Growth::default()
        }
    }

    /// The growth after a reload: the measurements of `before` are kept.
    pub fn after(mut self, before: Growth) -> Growth {
        self.auto = self.auto.map(|new| new.after(before.auto));
        self
    }
}

impl PoolQueues {
    /// A worker of this generation retires: the supervisor then assumes that no more workers are
    /// needed than are left.
    pub(crate) fn forget_requested(&mut self, generation: Generation) {
        if generation == self.queue.current() {
            self.growth.forget_requested(&self.queue);
        }
    }

    /// Repeats the request for workers while requests wait and there is no worker: the supervisor
    /// may assume fewer, after a worker was given back or the report of a retired one came late.
    fn forget_vain_request(&mut self) {
        if self.queue.open_seats() == 0 && self.queue.waiting() > 0 {
            self.growth.requested = 0;
        }
    }
}

impl Pool {
    /// Requests workers if more are needed than there are, `more` of them for requests that wait
    /// behind others. A request is not repeated. The caller holds the lock, so that the supervisor
    /// gets the requests in order.
    ///
    /// Scripts in a retiring generation count as needed in the current one, which replaces it.
    pub(crate) fn ask_for_workers(&self, state: &mut PoolQueues, more: usize) {
        let Some(needs) = self.needs(state, more) else {
            return;
        };
        if is_short(needs, state.queue.open_current(), state.growth.requested) {
            self.request_workers(state, needs);
        }
        // After the request, so that the supervisor prepares the next ones for the new size.
        if state.growth.has_more_ready && state.queue.limit_serving(needs) {
            self.apply_seat_changes(state);
        }
    }

    /// Number of workers needed, unless the pool is static, or idle.
    fn needs(&self, state: &mut PoolQueues, more: usize) -> Option<usize> {
        if let Some(auto) = &mut state.growth.auto {
            let load = load(&state.queue);
            return auto.needs(load, more);
        }
        let bounds = state.growth.bounds?;
        Some(bounds.needs(state.queue.busy(), state.queue.waiting() + more))
    }

    pub(crate) fn request_workers(&self, state: &mut PoolQueues, needs: usize) {
        let generation = state.queue.current();
        if generation == 0 {
            return;
        }
        let workers = u32::try_from(needs).unwrap_or(u32::MAX);
        let wanted = FromFront::WorkersNeeded { generation, workers };
        if self.supervisor.report(&wanted) {
            state.growth.requested = needs;
        }
        self.dirty.notify_one();
    }

    /// Withdraws requests for workers that are no longer needed, and retires idle workers. False
    /// when the pool rests.
    fn tend(self: &Arc<Pool>) -> bool {
        let mut state = self.lock();
        self.resend_reports(&mut state);
        self.apply_seat_changes(&mut state);
        state.forget_vain_request();
        self.ask_for_workers(&mut state, 0);
        // If two generations have idle workers, those of the old one retire.
        for _ in 0..state.queue.idle_current() {
            let Some(worker) = state.queue.close_retiring() else {
                break;
            };
            self.report_retired(&mut state, worker);
        }
        state.queue.age_idle();
        let is_unfinished = state.queue.has_retiring() || !state.unsent_reports.is_empty();
        if state.growth.auto.is_some() {
            return self.tend_auto(&mut state) || is_unfinished;
        }
        let Some(bounds) = state.growth.bounds else {
            return is_unfinished;
        };
        let needs = bounds.needs(state.queue.busy(), state.queue.waiting());
        if state.growth.requested > needs {
            self.request_workers(&mut state, needs);
        }
        if let Some(worker) = state.queue.retire(bounds.max_spare, bounds.idle_checks) {
            self.report_retired(&mut state, worker);
        }
        is_unfinished
            || state.queue.open_seats() > bounds.max_spare
            || state.queue.waiting() > 0
            || state.growth.requested > needs
    }
}

/// The maintenance task of a pool: shrinks the pool while it exists.
pub async fn tend(pool: Weak<Pool>) {
    let found = pool.upgrade();
    let found = found.map(|pool| (pool.dirty.clone(), pool.stalled.clone()));
    let Some((dirty, stalled)) = found else {
        return;
    };
    loop {
        let Some(rests_at) = pool.upgrade().map(|pool| pool.rests_at()) else { return };
        match rests_at {
            Some(at) => drop(timeout_at(at.into(), dirty.notified()).await),
            None => dirty.notified().await,
        }
        loop {
            until_check(&pool, &stalled).await;
            let Some(pool) = pool.upgrade() else { return };
            if !pool.tend() {
                break;
            }
        }
    }
}

/// Waits for the next check. With `pm = auto`, stalled requests get help before it.
async fn until_check(pool: &Weak<Pool>, stalled: &Notify) {
    let check = Instant::now() + CHECK_EVERY;
    while timeout_at(check, stalled.notified()).await.is_ok() {
        let Some(after) = pool.upgrade().map(|pool| pool.parks_after()) else {
            return;
        };
        let then = Instant::now() + after.min(CHECK_EVERY);
        if then >= check {
            return sleep_until(check).await;
        }
        sleep_until(then).await;
        if let Some(pool) = pool.upgrade() {
            pool.help_stalled();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::queue::tests::come;
    use crate::pool::queue::{Depth, Queue, SeatAction, SeatId, SlotRef, Submission, WorkerRef};
    use proptest::prelude::*;

    const SEATS: u32 = 6;
    const ONE: Depth = Depth { before_waking: 1, when_busy: 1 };

    fn ondemand(idle_checks: u32) -> SpareBounds {
        SpareBounds { limit: SEATS as usize, min_spare: 0, max_spare: 0, idle_checks }
    }

    fn dynamic() -> SpareBounds {
        SpareBounds { limit: SEATS as usize, min_spare: 2, max_spare: 3, idle_checks: 1 }
    }

    fn at(number: u32) -> SeatId {
        SeatId { generation: 1, number }
    }

    fn opened(seats: u32) -> Queue<u32> {
        let mut queue = Queue::new();
        queue.add(1, SEATS, 0);
        queue.replace(1, SEATS as usize, 100);
        for seat in 0..seats {
            queue.arrive(at(seat).worker(1), Vec::new());
        }
        queue
    }

    fn look(queue: &mut Queue<u32>, bounds: SpareBounds) -> Option<WorkerRef> {
        queue.age_idle();
        queue.retire(bounds.max_spare, bounds.idle_checks)
    }

    #[test]
    fn the_worker_that_was_idle_for_longest_goes_first_and_one_at_a_time() {
        let mut queue = opened(3);
        for item in 0..3 {
            come(&mut queue, item, ONE);
        }
        for seat in [1, 0, 2] {
            queue.free(SlotRef { seat: at(seat), slot: 0, incarnation: 1 });
        }
        let bounds = ondemand(2);
        let gone: Vec<_> = (0..6).map(|_| look(&mut queue, bounds)).collect();
        let went = |seat| Some(at(seat).worker(1));
        let seats = [None, went(1), went(0), went(2), None, None];
        assert_eq!(gone, seats);
        assert_eq!(queue.open_seats(), 0);
    }

    #[test]
    fn a_worker_that_was_used_in_between_is_counted_anew() {
        let mut queue = opened(1);
        let bounds = ondemand(2);
        assert_eq!(look(&mut queue, bounds), None);
        let Submission::Placed(place) = come(&mut queue, 1, ONE) else { panic!("a seat is idle") };
        assert_eq!(look(&mut queue, bounds), None);
        queue.free(place);
        assert_eq!(look(&mut queue, bounds), None);
        assert_eq!(look(&mut queue, bounds), Some(at(0).worker(1)));
    }

    #[test]
    fn a_burst_on_an_empty_pool_needs_a_worker_for_each_request_up_to_the_limit() {
        assert_eq!(ondemand(1).needs(0, 4), 4);
        assert_eq!(ondemand(1).needs(3, 40), SEATS as usize);
        assert_eq!(dynamic().needs(0, 0), 2);
        assert_eq!(dynamic().needs(2, 1), 5);
    }

    #[test]
    fn what_was_asked_for_is_not_asked_for_again() {
        let (mut queue, bounds) = (opened(0), ondemand(2));
        let (mut requested, mut asked) = (0, Vec::new());
        for item in 0..20 {
            come(&mut queue, item, ONE);
            let needs = bounds.needs(queue.busy(), queue.waiting());
            if is_short(needs, queue.open_seats(), requested) {
                requested = needs;
                asked.push(needs);
            }
        }
        assert_eq!(asked, [1, 2, 3, 4, 5, 6], "no further than the limit");
    }

    #[derive(Debug, Clone)]
    enum GrowthStep {
        Submit,
        Die { seat: u32 },
        Finish { nth: usize },
        Open,
        Look,
    }

    fn step() -> impl Strategy<Value = GrowthStep> {
        prop_oneof![
            3 => Just(GrowthStep::Submit),
            1 => (0..SEATS).prop_map(|seat| GrowthStep::Die { seat }),
            3 => any::<usize>().prop_map(|nth| GrowthStep::Finish { nth }),
            2 => Just(GrowthStep::Open),
            2 => Just(GrowthStep::Look),
        ]
    }

    proptest! {
        #[test]
        fn no_busy_worker_goes_and_who_waits_has_a_worker_coming(
            spares in any::<bool>(),
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let bounds = if spares { dynamic() } else { ondemand(2) };
            let mut queue = opened(0);
            let mut incarnations = [0; SEATS as usize];
            let mut placed: Vec<SlotRef> = Vec::new();
            let (mut next_item, mut requested) = (0, 0);
            for step in steps {
                match step {
                    GrowthStep::Die { seat } => {
                        queue.close(at(seat).worker(incarnations[seat as usize]));
                        placed.retain(|place| place.seat != at(seat));
                    }
                    GrowthStep::Submit => {
                        next_item += 1;
                        if let Submission::Placed(place) = come(&mut queue, next_item, ONE) {
                            placed.push(place);
                        }
                    }
                    GrowthStep::Finish { nth } if !placed.is_empty() => {
                        let place = placed.swap_remove(nth % placed.len());
                        queue.free(place);
                        if let SeatAction::Run(_, place) = queue.next(place.seat, ONE) {
                            placed.push(place);
                        }
                    }
                    GrowthStep::Open => {
                        let empty = (0..SEATS).find(|seat| queue.incarnation(at(*seat)) == 0);
                        let Some(seat) = empty else { continue };
                        incarnations[seat as usize] += 1;
                        queue.arrive(at(seat).worker(incarnations[seat as usize]), Vec::new());
                        if let SeatAction::Run(_, place) = queue.next(at(seat), ONE) {
                            placed.push(place);
                        }
                    }
                    GrowthStep::Look => {
                        requested = requested.min(bounds.needs(queue.busy(), queue.waiting()));
                        let idle = queue.open_seats() - queue.busy();
                        if let Some(WorkerRef { seat, .. }) = look(&mut queue, bounds) {
                            prop_assert!(idle > bounds.max_spare);
                            prop_assert!(placed.iter().all(|place| place.seat != seat));
                            prop_assert_eq!(queue.open_seats() - queue.busy(), idle - 1);
                        }
                    }
                    GrowthStep::Finish { .. } => {}
                }
                prop_assert_eq!(queue.busy(), placed.len());
                let needs = bounds.needs(queue.busy(), queue.waiting());
                if is_short(needs, queue.open_seats(), requested) {
                    requested = needs;
                }
                // The supervisor starts as many as were requested.
                let prepared = requested.max(queue.open_seats());
                let all_served = prepared >= queue.busy() + queue.waiting();
                prop_assert!(all_served || prepared == bounds.limit, "a request waits in vain");
            }
        }
    }
}
