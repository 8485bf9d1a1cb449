//! The closed loop: users who wait for each response, think, and send the next request.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::thread::{CookieJar, ScheduledRequest, Thread};
use crate::clock;
use crate::plan::{Choice, Think};

/// What all users have in common.
#[derive(Debug, Clone, Copy)]
pub struct UserBehaviour {
    /// The number of users in all threads.
    pub users: usize,
    /// How long they think.
    pub think: Think,
    /// The time until all users have started, in nanoseconds.
    pub ramp: u64,
    /// Whether the number of requests is limited.
    pub counted: bool,
}

/// Runs this thread's users until the end.
pub async fn users(thread: &Rc<Thread>, behaviour: UserBehaviour) {
    let threads = thread.plan().threads;
    let ours = (thread.number..behaviour.users).step_by(threads);
    let users: Vec<_> = ours
        .map(|number| tokio::task::spawn_local(user(thread.clone(), number, behaviour)))
        .collect();
    for user in users {
        // The tasks are never cancelled, and do not panic.
        let _ = user.await;
    }
}

/// How long users were active in the measured time, in total: each from its first request in it
/// until the moment at which its next request after it would be due. So whole rounds are counted,
/// including those of users who wait long, and not only what ends in the measured time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Presence {
    users: u32,
    seconds: f64,
}

impl Presence {
    /// Adds a user who was active for this many nanoseconds.
    pub fn add(&mut self, nanos: u64) {
        self.users += 1;
        self.seconds += clock::seconds(nanos);
    }

    /// Adds the users of another thread.
    pub fn merge(&mut self, other: Presence) {
        self.users += other.users;
        self.seconds += other.seconds;
    }

    /// The average active time of a user, in seconds; `None` without users.
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
    // A user who starts later was absent before, and that counts.
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
        let job = ScheduledRequest { due, row, own: None, waited: false };
        let endpoint = plan.requests.get(row).map_or(0, |request| request.endpoint);
        let Some(connection) = connections.get_mut(endpoint) else {
            break;
        };
        thread.execute(&job, connection, jar.as_mut()).await;
        let think = behaviour.think.pick(&mut thread.random.borrow_mut());
        if think > 0 {
            let until = thread.instant(clock::now().saturating_add(think));
            tokio::time::sleep_until(until).await;
        } else if connection.is_none() {
            // A server that refuses connections at once must not starve the other users.
            tokio::task::yield_now().await;
        }
    }
}

/// Takes one of the requests that may still be sent, if any is left.
fn take_one(thread: &Thread) -> bool {
    let less = |left: u64| left.checked_sub(1);
    let quota = &thread.shared.quota;
    quota.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}
