//! Tasks that each serve one connection after the other. Creating a task for each connection costs
//! more than reading its request: tokio aligns tasks to cache lines, which is slow in malloc, and
//! lists them.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::runtime::thread::Paced;

/// Most idle tasks of a kind on one thread: as many as one batch accepts. Any task beyond that ends
/// with its connection.
const IDLE_TASKS: usize = 64;

/// The tasks of one kind on one thread.
pub struct Tasks<T> {
    idle: Mutex<Vec<Arc<TaskSlot<T>>>>,
}

/// The slot through which an idle task gets its next connection.
struct TaskSlot<T> {
    next: Mutex<NextConnection<T>>,
}

struct NextConnection<T> {
    connection: Option<T>,
    waker: Option<Waker>,
}

impl<T: Send + 'static> Tasks<T> {
    /// An empty set.
    pub fn new() -> Arc<Tasks<T>> {
        Arc::new(Tasks { idle: Mutex::default() })
    }

    /// Serves a connection with an idle task, or with a new one. `serve` is the same for all tasks
    /// of a kind.
    pub fn serve<F>(self: &Arc<Tasks<T>>, connection: T, serve: impl Fn(T) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let idle = lock(&self.idle).pop();
        match idle {
            Some(slot) => slot.put(connection),
            None => {
                drop(tokio::spawn(Paced::new(self.clone().work(TaskSlot::with(connection), serve))))
            }
        }
    }

    /// The first connection is in the slot, too, since a task stores its arguments as long as it
    /// lives.
    async fn work<F: Future<Output = ()>>(
        self: Arc<Tasks<T>>,
        slot: Arc<TaskSlot<T>>,
        serve: impl Fn(T) -> F,
    ) {
        loop {
            let connection = poll_fn(|cx| slot.poll_next(cx)).await;
            serve(connection).await;
            let mut idle = lock(&self.idle);
            if idle.len() >= IDLE_TASKS {
                return;
            }
            idle.push(slot.clone());
        }
    }
}

impl<T> TaskSlot<T> {
    fn with(connection: T) -> Arc<TaskSlot<T>> {
        Arc::new(TaskSlot {
            next: Mutex::new(NextConnection { connection: Some(connection), waker: None }),
        })
    }

    fn put(&self, connection: T) {
        let mut next = lock(&self.next);
        next.connection = Some(connection);
        if let Some(waker) = next.waker.take() {
            waker.wake();
        }
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut next = lock(&self.next);
        match next.connection.take() {
            Some(connection) => Poll::Ready(connection),
            None => {
                next.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    /// A connection that reports its start and lasts until the shutdown signal.
    type TestConnection = (oneshot::Sender<()>, oneshot::Receiver<()>);

    async fn serve(connection: TestConnection) {
        let (begins, ends) = connection;
        begins.send(()).unwrap();
        let _ = ends.await;
    }

    async fn begin(tasks: &Arc<Tasks<TestConnection>>) -> oneshot::Sender<()> {
        let (begins, begun) = oneshot::channel();
        let (end, ends) = oneshot::channel();
        tasks.serve((begins, ends), serve);
        begun.await.unwrap();
        end
    }

    async fn until_idle<T>(tasks: &Tasks<T>, count: usize) {
        while lock(&tasks.idle).len() < count {
            yield_now().await;
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_task_serves_one_connection_after_the_other() {
        let tasks = Tasks::new();
        for _ in 0..10 {
            let end = begin(&tasks).await;
            assert!(lock(&tasks.idle).is_empty());
            end.send(()).unwrap();
            until_idle(&tasks, 1).await;
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn connections_at_a_time_have_a_task_each_and_no_more_wait_than_may() {
        let tasks = Tasks::new();
        let mut ends = Vec::new();
        for _ in 0..IDLE_TASKS + 2 {
            ends.push(begin(&tasks).await);
        }
        ends.into_iter().for_each(|end| end.send(()).unwrap());
        until_idle(&tasks, IDLE_TASKS).await;
        let metrics = tokio::runtime::Handle::current().metrics();
        while metrics.num_alive_tasks() > IDLE_TASKS {
            yield_now().await;
        }
    }

    /// A connection that may end badly.
    type Risky = (bool, oneshot::Sender<()>);

    async fn serve_risky(connection: Risky) {
        let (is_bad, served) = connection;
        yield_now().await;
        assert!(!is_bad, "a panic that a test causes");
        let _ = served.send(());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_task_that_panics_ends_alone_and_nobody_waits_for_it() {
        let tasks = Tasks::new();
        for is_bad in [false, true, false, true, true, false] {
            let (served, outcome) = oneshot::channel();
            tasks.serve((is_bad, served), serve_risky);
            assert_eq!(outcome.await.is_err(), is_bad);
            if is_bad {
                let metrics = tokio::runtime::Handle::current().metrics();
                while metrics.num_alive_tasks() > lock(&tasks.idle).len() {
                    yield_now().await;
                }
                assert!(lock(&tasks.idle).is_empty(), "it took its place with it");
            } else {
                until_idle(&tasks, 1).await;
            }
        }
    }
}
