//! The closed loop: users who wait for each answer, think, and ask again.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::thread::{CookieJar, ScheduledRequest, Thread};
use crate::clock;
use crate::plan::{Choice, Think};

/// What all users have in common.
#[derive(Debug, Clone, Copy)]
pub struct UserBehaviour {
    /// How many there are in all threads.
    pub users: usize,
    /// How long they think.
    pub think: Think,
    /// How long it takes until all are there, in nanoseconds.
    pub ramp: u64,
    /// Whether the number of requests is bounded.
    pub counted: bool,
}

/// Lets this thread's users do what they do, until the end.
pub async fn users(thread: &Rc<Thread>, behaviour: UserBehaviour) {
    let threads = thread.plan().threads;
    let ours = (thread.number..behaviour.users).step_by(threads);
    let users: Vec<_> = ours
        .map(|number| tokio::task::spawn_local(user(thread.clone(), number, behaviour)))
        .collect();
    for user in users {
        // Nobody cancels them, and they do not panic.
        let _ = user.await;
    }
}

/// How long users were there to be served in the measured time, altogether: each from its first
/// request in it to the moment at which its next one would be due after it. So whole rounds are counted, of
/// those who wait long, too, and not only what ends in the measured time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Presence {
    users: u32,
    seconds: f64,
}

impl Presence {
    /// One more user, who was there for so many nanoseconds.
    pub fn add(&mut self, nanos: u64) {
        self.users += 1;
        self.seconds += clock::seconds(nanos);
    }

    /// Those of another thread, too.
    pub fn merge(&mut self, other: Presence) {
        self.users += other.users;
        self.seconds += other.seconds;
    }

    /// How long a user was there on average, in seconds; nothing if there were none.
    pub fn mean(&self) -> Option<f64> {
        (self.users > 0).then(|| self.seconds / f64::from(self.users))
    }
}

async fn user(thread: Rc<Thread>, number: usize, behaviour: UserBehaviour) {
    let plan = thread.plan();
    let share = number as f64 / behaviour.users as f64;
    let begins = thread.shared.start + clock::nanos(clock::seconds(behaviour.ramp) * share);
    tokio::time::sleep_until(thread.instant(begins)).await;
    let warm = thread.shared.start.saturating_add(plan.warm_up);
    // Who comes later was missing, and that counts.
    let mut first = (begins > warm).then_some(warm);
    let mut connections: Vec<_> = plan.endpoints.iter().map(|_| None).collect();
    let mut jar = plan.cookies.then(CookieJar::new);
    let mut choice = Choice::new(plan, number);
    loop {
        let due = clock::now();
        if !thread.is_time(due) || behaviour.counted && !take_one(&thread) {
            thread.was_present(due.saturating_sub(first.unwrap_or(warm)));
            break;
        }
        if due >= warm {
            first.get_or_insert(due);
        }
        let row = choice.pick(&mut thread.random.borrow_mut());
        let job = ScheduledRequest {
            due,
            row,
            own: None,
            waited: false,
        };
        let endpoint = plan.requests.get(row).map_or(0, |request| request.endpoint);
        let Some(connection) = connections.get_mut(endpoint) else {
            break;
        };
        thread.carry_out(&job, connection, jar.as_mut()).await;
        let think = behaviour.think.pick(&mut thread.random.borrow_mut());
        if think > 0 {
            let until = thread.instant(clock::now().saturating_add(think));
            tokio::time::sleep_until(until).await;
        } else if connection.is_none() {
            // A server that refuses at once must not keep the others from running.
            tokio::task::yield_now().await;
        }
    }
}

/// Takes one of the requests that may still be sent, if there is one.
fn take_one(thread: &Thread) -> bool {
    let less = |left: u64| left.checked_sub(1);
    let quota = &thread.shared.quota;
    quota
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        .is_ok()
}
