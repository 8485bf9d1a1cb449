//! Idle connections of clients: the oldest are closed to make room for new clients, as nginx does
//! with its reusable connections, and all of them sooner while room is short.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Keep-alive timeout between two requests.
pub const IDLE: Duration = Duration::from_secs(75);
/// The timeout at the connection limit.
const LEAST_IDLE: Duration = Duration::from_secs(5);

/// Most connections that are examined to find an idle one.
const MAX_STEPS: usize = 1024;

/// The keep-alive timeout with this number of open connections, of `most`: it falls from the half
/// of the limit on.
pub fn idle_timeout(open: usize, most: usize) -> Duration {
    let half = most / 2;
    let beyond = open.saturating_sub(half);
    if beyond == 0 {
        return IDLE;
    }
    let (beyond, half) = (u32::try_from(beyond), u32::try_from(most - half));
    let (Ok(beyond), Ok(half)) = (beyond, half) else {
        return IDLE;
    };
    let shorter = (IDLE - LEAST_IDLE) * beyond.min(half) / half.max(1);
    IDLE - shorter
}

/// The idle connections of all threads. Each thread has a list with a lock of its own, which others
/// take only while connections are short.
#[derive(Debug)]
pub struct IdleConnections {
    threads: Box<[Mutex<IdleList>]>,
}

impl IdleConnections {
    /// Lists for this number of threads.
    pub fn new(threads: usize) -> IdleConnections {
        let threads = (0..threads.max(1)).map(|_| Mutex::default());
        IdleConnections { threads: threads.collect() }
    }

    /// A connection of this thread, which is not idle yet.
    pub fn connection(&self, thread: u32) -> IdleConnection<'_> {
        IdleConnection { list: self.list(thread), place: None }
    }

    /// Closes up to `count` idle connections: the oldest of this thread, then of the others.
    /// Returns their number.
    pub fn close_oldest(&self, thread: u32, count: usize) -> usize {
        let first = thread as usize % self.threads.len();
        let (before, from) = self.threads.split_at(first);
        let mut closed = 0;
        for list in from.iter().chain(before) {
            while closed < count {
                let Some(waker) = lock(list).close_oldest() else {
                    break;
                };
                waker.wake();
                closed += 1;
            }
        }
        closed
    }

    fn list(&self, thread: u32) -> &Mutex<IdleList> {
        &self.threads[thread as usize % self.threads.len()]
    }
}

/// One connection among the idle ones, until it is dropped. It stays with its task.
#[derive(Debug)]
pub struct IdleConnection<'a> {
    list: &'a Mutex<IdleList>,
    place: Option<(u32, Arc<AtomicU8>)>,
}

impl IdleConnection<'_> {
    /// The connection is idle from now on, if it was not. Ready when it is to be closed.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((_, state)) = &self.place else {
            self.place = Some(lock(self.list).add(cx.waker()));
            return Poll::Pending;
        };
        match state.load(Ordering::Relaxed) {
            CLOSED => return Poll::Ready(()),
            BUSY => state.store(USED, Ordering::Relaxed),
            _ => {}
        }
        Poll::Pending
    }

    /// As [`IdleConnection::poll_closed`].
    pub async fn closed(&mut self) {
        poll_fn(|cx| self.poll_closed(cx)).await;
    }

    /// The connection has a request. If it was to be closed, it is served all the same.
    pub fn leave(&mut self) {
        if let Some((_, state)) = &self.place {
            state.store(BUSY, Ordering::Relaxed);
        }
    }
}

impl Drop for IdleConnection<'_> {
    fn drop(&mut self) {
        if let Some((place, _)) = self.place {
            lock(self.list).remove(place);
        }
    }
}

fn lock(list: &Mutex<IdleList>) -> MutexGuard<'_, IdleList> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The states of a connection: idle, in use since [`IdleList::close_oldest`] saw it last and idle
/// now, with a request, and to be closed.
const IDLE_SINCE: u8 = 0;
const USED: u8 = 1;
const BUSY: u8 = 2;
const CLOSED: u8 = 3;

/// Connections in the order of becoming idle: places in an array, which are linked. A request only
/// sets the state of its connection, which takes no lock; the order is corrected when it matters.
#[derive(Debug, Default)]
struct IdleList {
    places: Vec<Place>,
    oldest: Option<u32>,
    newest: Option<u32>,
    /// Places that are free, as a list linked by `newer`.
    free: Option<u32>,
}

#[derive(Debug)]
struct Place {
    state: Arc<AtomicU8>,
    older: Option<u32>,
    newer: Option<u32>,
    /// None: the place is free.
    waker: Option<Waker>,
}

impl IdleList {
    /// Adds an idle connection as the newest. Returns its place and its state.
    fn add(&mut self, waker: &Waker) -> (u32, Arc<AtomicU8>) {
        let state = Arc::new(AtomicU8::new(IDLE_SINCE));
        let place =
            Place { state: state.clone(), older: None, newer: None, waker: Some(waker.clone()) };
        let index = match self.free {
            Some(index) => {
                self.free = self.places[index as usize].newer;
                self.places[index as usize] = place;
                index
            }
            None => {
                self.places.push(place);
                u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.link(index);
        (index, state)
    }

    fn remove(&mut self, index: u32) {
        self.unlink(index);
        self.places[index as usize].waker = None;
        self.places[index as usize].newer = self.free.replace(index);
    }

    /// Closes the connection that has been idle for longest; one that was in use since the last
    /// look gets a second chance. Returns its waker.
    fn close_oldest(&mut self) -> Option<Waker> {
        for _ in 0..self.places.len().saturating_mul(2).min(MAX_STEPS) {
            let index = self.oldest?;
            self.unlink(index);
            self.link(index);
            let Place { state, waker, .. } = &self.places[index as usize];
            let change = |from, to| {
                let changed =
                    state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
                changed.is_ok()
            };
            if !change(USED, IDLE_SINCE) && change(IDLE_SINCE, CLOSED) {
                return waker.clone();
            }
        }
        None
    }

    /// Makes the connection the newest.
    fn link(&mut self, index: u32) {
        let older = self.newest.replace(index);
        let place = &mut self.places[index as usize];
        (place.older, place.newer) = (older, None);
        match older {
            Some(older) => self.places[older as usize].newer = Some(index),
            None => self.oldest = Some(index),
        }
    }

    fn unlink(&mut self, index: u32) {
        let Place { older, newer, .. } = self.places[index as usize];
        match older {
            Some(older) => self.places[older as usize].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.places[newer as usize].older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(connection: &mut IdleConnection<'_>) -> Poll<()> {
        connection.poll_closed(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_oldest_is_closed_first_and_one_with_a_request_is_not() {
        let idle = IdleConnections::new(1);
        let mut all: Vec<_> = (0..5).map(|_| idle.connection(0)).collect();
        for connection in &mut all {
            assert!(poll(connection).is_pending());
        }
        all[0].leave();
        drop(all.remove(2));
        assert_eq!(idle.close_oldest(0, 1), 1);
        let ready: Vec<bool> = all[1..].iter_mut().map(|one| poll(one).is_ready()).collect();
        assert_eq!(ready, [true, false, false]);
        // It is idle again, and so the newest.
        assert!(poll(&mut all[0]).is_pending());
        assert_eq!(idle.close_oldest(0, 2), 2);
        let ready: Vec<bool> = all.iter_mut().map(|one| poll(one).is_ready()).collect();
        assert_eq!(ready, [false, true, true, true]);
        assert_eq!(idle.close_oldest(0, 2), 1);
        assert_eq!(idle.close_oldest(0, 2), 0);
        // Its request came before it was closed.
        all[0].leave();
        assert!(poll(&mut all[0]).is_pending());
    }

    #[test]
    fn a_place_is_used_again() {
        let idle = IdleConnections::new(1);
        for _ in 0..100 {
            let mut connections = [idle.connection(0), idle.connection(0)];
            assert!(connections.iter_mut().all(|one| poll(one).is_pending()));
            idle.close_oldest(0, 1);
        }
        assert_eq!(lock(&idle.threads[0]).places.len(), 2);
    }

    #[test]
    fn connections_of_other_threads_follow_those_of_the_own() {
        let idle = IdleConnections::new(3);
        let mut all: Vec<_> = (0..3).map(|thread| idle.connection(thread)).collect();
        assert!(all.iter_mut().all(|one| poll(one).is_pending()));
        assert_eq!(idle.close_oldest(1, 2), 2);
        let ready: Vec<bool> = all.iter_mut().map(|one| poll(one).is_ready()).collect();
        assert_eq!(ready, [false, true, true]);
    }

    #[test]
    fn the_timeout_falls_near_the_limit() {
        let of = |open| idle_timeout(open, 1000).as_secs();
        assert_eq!([of(0), of(500), of(750), of(1000), of(1001)], [75, 75, 40, 5, 5]);
        assert_eq!(idle_timeout(1, 1), LEAST_IDLE);
        assert_eq!(idle_timeout(0, 0), IDLE);
    }
}
