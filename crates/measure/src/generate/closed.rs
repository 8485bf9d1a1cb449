//! The closed loop: users who wait for each answer, think, and ask again.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::thread::{Jar, Job, Thread};
use crate::clock;
use crate::plan::{Choice, Think};

/// What all users have in common.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
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
pub async fn users(thread: &Rc<Thread>, habits: Habits) {
    let threads = thread.plan().threads;
    let ours = (thread.number..habits.users).step_by(threads);
    let users: Vec<_> = ours
        .map(|number| tokio::task::spawn_local(user(thread.clone(), number, habits)))
        .collect();
    for user in users {
        // Nobody cancels them, and they do not panic.
        let _ = user.await;
    }
}

async fn user(thread: Rc<Thread>, number: usize, habits: Habits) {
    let plan = thread.plan();
    let share = number as f64 / habits.users as f64;
    let begins = thread.shared.start + clock::nanos(clock::seconds(habits.ramp) * share);
    tokio::time::sleep_until(thread.instant(begins)).await;
    let mut connections: Vec<_> = plan.doors.iter().map(|_| None).collect();
    let mut jar = plan.cookies.then(Jar::new);
    let mut choice = Choice::new(plan, number);
    loop {
        let due = clock::now();
        if !thread.is_time(due) || habits.counted && !take_one(&thread) {
            break;
        }
        let row = choice.pick(&mut thread.random.borrow_mut());
        let job = Job {
            due,
            row,
            own: None,
            waited: false,
        };
        let door = plan.requests.get(row).map_or(0, |request| request.door);
        let Some(connection) = connections.get_mut(door) else {
            break;
        };
        thread.carry_out(&job, connection, jar.as_mut()).await;
        let think = habits.think.pick(&mut thread.random.borrow_mut());
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
