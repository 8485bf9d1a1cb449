//! The open loop: requests are sent when they are due, whatever the server does. Each takes an idle
//! connection or a new one, or waits for one if the limit is reached.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::connection::Connection;
use super::thread::{ScheduledRequest, Thread};
use super::timer::Timer;

/// Most requests of a thread that wait for a connection. Further ones are not sent.
const MAX_WAITING: u64 = 1_000_000;

/// Number of overdue requests after which other tasks get to run.
const OVERDUE_BETWEEN_YIELDS: u32 = 16;

/// A connection that waits for a request.
#[derive(Default)]
struct IdleConnection {
    job: Cell<Option<ScheduledRequest>>,
    waker: RefCell<Option<Waker>>,
    /// The server has closed it.
    is_useless: Cell<bool>,
}

/// Idle connections to one server, and requests that wait for one.
#[derive(Default)]
struct EndpointQueue {
    idle: RefCell<Vec<Rc<IdleConnection>>>,
    waiting: RefCell<VecDeque<ScheduledRequest>>,
}

/// The connections of a thread.
pub struct Connections {
    thread: Rc<Thread>,
    queues: Vec<EndpointQueue>,
    open: Cell<usize>,
    most: usize,
    /// Requests that were given to a connection and have not ended.
    given: Cell<u64>,
}

impl Connections {
    /// Starts without connections; `most` is the limit.
    pub fn new(thread: &Rc<Thread>, most: usize) -> Rc<Connections> {
        let queues = thread.plan().endpoints.iter().map(|_| EndpointQueue::default());
        Rc::new(Connections {
            thread: thread.clone(),
            queues: queues.collect(),
            open: Cell::new(0),
            most,
            given: Cell::new(0),
        })
    }

    /// Sends requests when they are due; `next` returns the next one, and `None` at the end.
    ///
    /// # Errors
    /// When no timer can be created.
    pub async fn send_all(
        self: &Rc<Self>,
        mut next: impl AsyncFnMut() -> Option<ScheduledRequest>,
    ) -> io::Result<()> {
        let timer = Timer::new()?;
        let mut overdue = 0;
        while let Some(job) = next().await {
            if timer.wait_until(job.due).await {
                overdue = 0;
            } else {
                overdue += 1;
                if overdue % OVERDUE_BETWEEN_YIELDS == 0 {
                    tokio::task::yield_now().await;
                }
            }
            self.dispatch(job);
        }
        Ok(())
    }

    /// Whether all requests have ended.
    pub fn is_idle(&self) -> bool {
        self.given.get() == 0
    }

    /// The run is over: waiting requests are not sent any more.
    pub fn give_up_waiting(&self) {
        for queue in &self.queues {
            for job in queue.waiting.take() {
                self.thread.unsent(job.due);
            }
        }
        self.thread.waiting.set(0);
    }

    fn dispatch(self: &Rc<Self>, mut job: ScheduledRequest) {
        let endpoint = self.endpoint_of(&job);
        let Some(queue) = self.queues.get(endpoint) else {
            return;
        };
        while let Some(idle) = queue.idle.borrow_mut().pop() {
            if idle.is_useless.get() {
                continue;
            }
            self.given.set(self.given.get() + 1);
            idle.job.set(Some(job));
            if let Some(waker) = idle.waker.borrow().as_ref() {
                waker.wake_by_ref();
            }
            return;
        }
        if self.open.get() < self.most {
            self.open_with(endpoint, job);
        } else if self.thread.waiting.get() < MAX_WAITING {
            job.waited = true;
            queue.waiting.borrow_mut().push_back(job);
            self.thread.waiting.set(self.thread.waiting.get() + 1);
        } else {
            self.thread.unsent(job.due);
        }
    }

    fn endpoint_of(&self, job: &ScheduledRequest) -> usize {
        let requests = &self.thread.plan().requests;
        requests.get(job.row).map_or(0, |request| request.endpoint)
    }

    fn open_with(self: &Rc<Self>, endpoint: usize, job: ScheduledRequest) {
        self.open.set(self.open.get() + 1);
        self.given.set(self.given.get() + 1);
        let this = self.clone();
        tokio::task::spawn_local(async move {
            this.work(endpoint, job).await;
            this.open.set(this.open.get() - 1);
            // Another server's request may now open a connection.
            let next = (0..this.queues.len())
                .find_map(|endpoint| Some((endpoint, this.take_waiting(endpoint)?)));
            if let Some((endpoint, job)) = next {
                this.open_with(endpoint, job);
            }
        });
    }

    fn take_waiting(&self, endpoint: usize) -> Option<ScheduledRequest> {
        let job = self.queues.get(endpoint)?.waiting.borrow_mut().pop_front()?;
        self.thread.waiting.set(self.thread.waiting.get() - 1);
        Some(job)
    }

    /// A connection's life: one request after another, as long as the server keeps it open.
    async fn work(&self, endpoint: usize, first: ScheduledRequest) {
        let idle = Rc::new(IdleConnection::default());
        let mut connection = None;
        let mut job = first;
        loop {
            self.thread.execute(&job, &mut connection, None).await;
            self.given.set(self.given.get() - 1);
            job = match (self.take_waiting(endpoint), &mut connection) {
                (Some(next), _) => {
                    self.given.set(self.given.get() + 1);
                    next
                }
                (None, None) => return,
                (None, Some(open)) => match self.idle(endpoint, &idle, open).await {
                    Some(next) => next,
                    None => break,
                },
            };
        }
    }

    /// Waits for the next request; `None` if the server closes the connection first.
    async fn idle(
        &self,
        endpoint: usize,
        idle: &Rc<IdleConnection>,
        open: &mut Connection,
    ) -> Option<ScheduledRequest> {
        self.queues.get(endpoint)?.idle.borrow_mut().push(idle.clone());
        poll_fn(|cx| {
            if let Some(job) = idle.job.take() {
                return Poll::Ready(Some(job));
            }
            if open.poll_useless(cx).is_ready() {
                idle.is_useless.set(true);
                return Poll::Ready(None);
            }
            let mut waker = idle.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
