//! A pool that grows and shrinks, as the front sees it. Growing is an event: the request that finds
//! no idle worker asks for one. Shrinking is calm: while the pool has more than it rests with,
//! somebody looks once a second and lets at most one worker go.

use std::sync::{Arc, Weak};
use std::time::Duration;

use maitred_config::{Mode, Pool as Settings, ProcessManager};
use maitred_control::{FromFront, Generation};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Pool;
use super::auto::{Auto, load};
use super::group::Inner;

/// How often a pool is looked at that has more workers than it rests with.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The bounds of a pool's growth, and what the supervisor was told last.
#[derive(Debug)]
pub struct Growth {
    /// None: the pool is static, or finds its size.
    bounds: Option<Bounds>,
    /// The pool finds its size.
    pub(super) auto: Option<Auto>,
    /// It does, and workers are ready beyond those that serve.
    pub(super) has_more_ready: bool,
    /// How many workers the supervisor was told the current generation needs.
    pub(super) told: usize,
}

/// What decides how many workers are needed and which may go.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Most workers.
    limit: usize,
    /// Idle workers there are to be at least.
    min_spare: usize,
    /// Idle workers that are kept.
    max_spare: usize,
    /// Looks in a row that find a worker idle before it may go.
    looks: u32,
}

impl Bounds {
    /// How many workers are needed when `busy` run a script and `waiting` requests have none.
    fn needs(self, busy: usize, waiting: usize) -> usize {
        (busy + waiting + self.min_spare).min(self.limit)
    }
}

/// Whether to ask for workers: more are needed than there are, and than were asked for.
fn asks(needs: usize, open: usize, told: usize) -> bool {
    needs > open && needs > told
}

impl Growth {
    /// Not at all.
    pub fn none() -> Growth {
        Growth {
            bounds: None,
            auto: None,
            has_more_ready: false,
            told: 0,
        }
    }

    /// How a pool with these settings grows, up to `limit` workers.
    pub fn of(pool: &Settings, limit: usize) -> Growth {
        let spare = |servers: Option<u32>| servers.unwrap_or(1) as usize;
        let bounds = match pool.pm {
            ProcessManager::Static | ProcessManager::Auto => None,
            ProcessManager::Dynamic => Some(Bounds {
                limit,
                min_spare: spare(pool.min_spare_servers),
                max_spare: spare(pool.max_spare_servers),
                looks: 1,
            }),
            ProcessManager::Ondemand => {
                let timeout = pool.process_idle_timeout;
                let whole = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
                Some(Bounds {
                    limit,
                    min_spare: 0,
                    max_spare: 0,
                    // Between the first and the last of n + 1 looks lie n seconds.
                    looks: u32::try_from(whole + 1).unwrap_or(u32::MAX),
                })
            }
        };
        let is_auto = pool.pm == ProcessManager::Auto;
        Growth {
            bounds,
            auto: is_auto.then(|| Auto::new(pool.fewest_found() as usize, limit)),
            has_more_ready: is_auto && pool.mode == Mode::Snapshot,
            ..Growth::none()
        }
    }

    /// How a pool grows that has grown as `before` says: what it has learned stays.
    pub fn after(mut self, before: Growth) -> Growth {
        self.auto = self.auto.map(|new| new.after(before.auto));
        self
    }
}

impl Inner {
    /// The supervisor hears that a worker of this generation goes, and takes it that no more are needed than are
    /// left then.
    pub(super) fn forget_told(&mut self, generation: Generation) {
        if generation == self.queue.current() {
            self.growth.forget_told(&self.queue);
        }
    }

    /// Some wait, and there is no worker at all: whatever the supervisor was told, it may go by less, since one
    /// was given back or the news of one that left came after. It is told again.
    fn forget_told_in_vain(&mut self) {
        if self.queue.open_seats() == 0 && self.queue.waiting() > 0 {
            self.growth.told = 0;
        }
    }
}

impl Pool {
    /// Asks for workers if more are needed than there are, `more` of them for requests that wait
    /// behind others. What was asked for already is not asked for again. The caller holds the
    /// queue, so that the supervisor is told in order.
    ///
    /// What runs in a generation that leaves counts as needed in the current one, which is to take
    /// over.
    pub(super) fn ask_for_workers(&self, inner: &mut Inner, more: usize) {
        let Some(needs) = self.needs(inner, more) else {
            return;
        };
        if asks(needs, inner.queue.open_current(), inner.growth.told) {
            self.tell_wanted(inner, needs);
        }
        // Once that is told: the next are to be made ready for those that serve from now on.
        if inner.growth.has_more_ready && inner.queue.serve_at_most(needs) {
            self.turn_over(inner);
        }
    }

    /// How many workers are needed, unless the pool is static.
    fn needs(&self, inner: &mut Inner, more: usize) -> Option<usize> {
        if let Some(auto) = &mut inner.growth.auto {
            let load = load(&inner.queue);
            return Some(auto.needs(load, more));
        }
        let bounds = inner.growth.bounds?;
        Some(bounds.needs(inner.queue.busy(), inner.queue.waiting() + more))
    }

    pub(super) fn tell_wanted(&self, inner: &mut Inner, needs: usize) {
        let generation = inner.queue.current();
        if generation == 0 {
            return;
        }
        let workers = u32::try_from(needs).unwrap_or(u32::MAX);
        let wanted = FromFront::WorkersNeeded {
            generation,
            workers,
        };
        if self.supervisor.report(&wanted) {
            inner.growth.told = needs;
        }
        self.stirred.notify_one();
    }

    /// Takes back what was asked for and is not needed any more, and lets workers go that have had
    /// nothing to do. False when the pool rests.
    fn tend(self: &Arc<Pool>) -> bool {
        let mut inner = self.lock();
        self.say_again(&mut inner);
        self.turn_over(&mut inner);
        inner.forget_told_in_vain();
        self.ask_for_workers(&mut inner, 0);
        // Of two generations that both have idle workers the old one gives its own up.
        for _ in 0..inner.queue.idle_current() {
            let Some((seat, incarnation)) = inner.queue.retire_leaving() else {
                break;
            };
            self.retired(&mut inner, seat, incarnation);
        }
        inner.queue.look_at_idle();
        let stirs = inner.queue.has_leaving() || !inner.unsaid.is_empty();
        if inner.growth.auto.is_some() {
            return self.tend_auto(&mut inner) || stirs;
        }
        let Some(bounds) = inner.growth.bounds else {
            return stirs;
        };
        let needs = bounds.needs(inner.queue.busy(), inner.queue.waiting());
        if inner.growth.told > needs {
            self.tell_wanted(&mut inner, needs);
        }
        if let Some((seat, incarnation)) = inner.queue.retire(bounds.max_spare, bounds.looks) {
            self.retired(&mut inner, seat, incarnation);
        }
        stirs
            || inner.queue.open_seats() > bounds.max_spare
            || inner.queue.waiting() > 0
            || inner.growth.told > needs
    }
}

/// Looks after a pool that shrinks, for as long as there is something to shrink and the pool
/// exists.
pub async fn tend(pool: Weak<Pool>) {
    let found = pool.upgrade();
    let found = found.map(|pool| (pool.stirred.clone(), pool.stalls.clone()));
    let Some((stirred, stalls)) = found else {
        return;
    };
    loop {
        stirred.notified().await;
        loop {
            until_look(&pool, &stalls).await;
            let Some(pool) = pool.upgrade() else { return };
            if !pool.tend() {
                break;
            }
        }
    }
}

/// The time from one look to the next. A pool that finds its size does not wait for that while requests
/// wait for it.
async fn until_look(pool: &Weak<Pool>, stalls: &Notify) {
    let look = Instant::now() + LOOK_EVERY;
    while timeout_at(look, stalls.notified()).await.is_ok() {
        let Some(after) = pool.upgrade().map(|pool| pool.parks_after()) else {
            return;
        };
        let then = Instant::now() + after.min(LOOK_EVERY);
        if then >= look {
            return sleep_until(look).await;
        }
        sleep_until(then).await;
        if let Some(pool) = pool.upgrade() {
            pool.help_stalled();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::tests::come;
    use super::super::queue::{Depth, Next, Place, Queue, SeatId, Submitted};
    use super::*;
    use proptest::prelude::*;

    const SEATS: u32 = 6;
    const ONE: Depth = Depth {
        before_waking: 1,
        when_busy: 1,
    };

    fn ondemand(looks: u32) -> Bounds {
        Bounds {
            limit: SEATS as usize,
            min_spare: 0,
            max_spare: 0,
            looks,
        }
    }

    fn dynamic() -> Bounds {
        Bounds {
            limit: SEATS as usize,
            min_spare: 2,
            max_spare: 3,
            looks: 1,
        }
    }

    fn at(number: u32) -> SeatId {
        SeatId {
            generation: 1,
            number,
        }
    }

    fn opened(seats: u32) -> Queue<u32> {
        let mut queue = Queue::new();
        queue.add(1, SEATS, 0);
        queue.replace(1, SEATS as usize, 100);
        for seat in 0..seats {
            queue.arrive(at(seat), 1, Vec::new());
        }
        queue
    }

    fn look(queue: &mut Queue<u32>, bounds: Bounds) -> Option<(SeatId, u32)> {
        queue.look_at_idle();
        queue.retire(bounds.max_spare, bounds.looks)
    }

    #[test]
    fn the_worker_that_was_idle_for_longest_goes_first_and_one_at_a_time() {
        let mut queue = opened(3);
        for item in 0..3 {
            come(&mut queue, item, ONE);
        }
        for seat in [1, 0, 2] {
            queue.free(Place {
                seat: at(seat),
                slot: 0,
                incarnation: 1,
            });
        }
        let bounds = ondemand(2);
        let gone: Vec<_> = (0..6).map(|_| look(&mut queue, bounds)).collect();
        let went = |seat| Some((at(seat), 1));
        let seats = [None, went(1), went(0), went(2), None, None];
        assert_eq!(gone, seats);
        assert_eq!(queue.open_seats(), 0);
    }

    #[test]
    fn a_worker_that_was_used_in_between_is_counted_anew() {
        let mut queue = opened(1);
        let bounds = ondemand(2);
        assert_eq!(look(&mut queue, bounds), None);
        let Submitted::Placed(place) = come(&mut queue, 1, ONE) else {
            panic!("a seat is idle")
        };
        assert_eq!(look(&mut queue, bounds), None);
        queue.free(place);
        assert_eq!(look(&mut queue, bounds), None);
        assert_eq!(look(&mut queue, bounds), Some((at(0), 1)));
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
        let (mut told, mut asked) = (0, Vec::new());
        for item in 0..20 {
            come(&mut queue, item, ONE);
            let needs = bounds.needs(queue.busy(), queue.waiting());
            if asks(needs, queue.open_seats(), told) {
                told = needs;
                asked.push(needs);
            }
        }
        assert_eq!(asked, [1, 2, 3, 4, 5, 6], "no further than the limit");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Submit,
        Die { seat: u32 },
        Finish { nth: usize },
        Open,
        Look,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Submit),
            1 => (0..SEATS).prop_map(|seat| Step::Die { seat }),
            3 => any::<usize>().prop_map(|nth| Step::Finish { nth }),
            2 => Just(Step::Open),
            2 => Just(Step::Look),
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
            let mut placed: Vec<Place> = Vec::new();
            let (mut next_item, mut told) = (0, 0);
            for step in steps {
                match step {
                    Step::Die { seat } => {
                        queue.close(at(seat), incarnations[seat as usize]);
                        placed.retain(|place| place.seat != at(seat));
                    }
                    Step::Submit => {
                        next_item += 1;
                        if let Submitted::Placed(place) = come(&mut queue, next_item, ONE) {
                            placed.push(place);
                        }
                    }
                    Step::Finish { nth } if !placed.is_empty() => {
                        let place = placed.swap_remove(nth % placed.len());
                        queue.free(place);
                        if let Next::Run(_, place) = queue.next(place.seat, ONE) {
                            placed.push(place);
                        }
                    }
                    Step::Open => {
                        let empty = (0..SEATS).find(|seat| queue.incarnation(at(*seat)) == 0);
                        let Some(seat) = empty else { continue };
                        incarnations[seat as usize] += 1;
                        queue.arrive(at(seat), incarnations[seat as usize], Vec::new());
                        if let Next::Run(_, place) = queue.next(at(seat), ONE) {
                            placed.push(place);
                        }
                    }
                    Step::Look => {
                        told = told.min(bounds.needs(queue.busy(), queue.waiting()));
                        let idle = queue.open_seats() - queue.busy();
                        if let Some((seat, _)) = look(&mut queue, bounds) {
                            prop_assert!(idle > bounds.max_spare);
                            prop_assert!(placed.iter().all(|place| place.seat != seat));
                            prop_assert_eq!(queue.open_seats() - queue.busy(), idle - 1);
                        }
                    }
                    Step::Finish { .. } => {}
                }
                prop_assert_eq!(queue.busy(), placed.len());
                let needs = bounds.needs(queue.busy(), queue.waiting());
                if asks(needs, queue.open_seats(), told) {
                    told = needs;
                }
                // The supervisor sees to it that as many come as it was told of.
                let coming = told.max(queue.open_seats());
                let all_served = coming >= queue.busy() + queue.waiting();
                prop_assert!(all_served || coming == bounds.limit, "a request waits for nobody");
            }
        }
    }
}
