//! The memory of seats whose workers were retired is given back to the system.
//!
//! That makes a hole in memory which the pool's processes have mapped, too. The kernel looks at
//! each of their mappings, and they may have very many: so it is done in a thread of its own, and
//! no thread that serves touches the seat meanwhile, since it would wait for the end of the hole.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::OwnedMutexGuard;

use crate::pool::Pool;
use crate::pool::queue::{SeatId, WorkerRef};

/// Most processor time that giving a seat's memory back takes: its 1024 pages take less than a
/// millisecond. A generation in which one takes longer keeps the memory of its seats.
const PROCESSOR_TIME_MAX: Duration = Duration::from_millis(20);

/// The turn of a generation's seats: one of them is opened, or its memory given back, at a time.
#[derive(Debug, Default)]
pub struct MemoryReturn {
    /// It takes too long.
    is_off: bool,
}

impl MemoryReturn {
    /// Giving a seat's memory back has taken this much processor time.
    fn took(&mut self, time: Duration) {
        self.is_off |= time > PROCESSOR_TIME_MAX;
    }
}

impl Pool {
    async fn seats_turn(&self, seat: SeatId) -> Option<OwnedMutexGuard<MemoryReturn>> {
        let generation = self.lock().generation(seat.generation).cloned()?;
        Some(generation.seats_turn().await)
    }

    /// As [`Pool::seat_opened`], once the memory of the seat is not being given back.
    pub async fn open_seat(self: &Arc<Pool>, worker: WorkerRef) {
        let _turn = self.seats_turn(worker.seat).await;
        self.seat_opened(worker);
    }

    /// Gives the memory of a seat back whose worker has ended, if that was retired and no other has
    /// come.
    pub async fn give_memory_back(self: &Arc<Pool>, worker: WorkerRef) {
        if !self.lock().queue.was_retired(worker) {
            // As nearly all: a copied worker may end with each request.
            return;
        }
        let Some(mut turn) = self.seats_turn(worker.seat).await else {
            return;
        };
        let (pool, seat) = (self.clone(), worker.seat);
        let gives_back = move || {
            let state = pool.lock();
            let generation = state.generation(seat.generation).cloned();
            let was_retired = state.queue.was_retired(worker);
            drop(state);
            let Some(generation) = generation.filter(|_| was_retired) else {
                return;
            };
            if turn.is_off {
                return generation.link().vacate(seat.number);
            }
            let begun = processor_time();
            generation.link().abandon(seat.number);
            turn.took(processor_time().saturating_sub(begun));
        };
        // It has no result, and ends with the server at the latest.
        let _ = tokio::task::spawn_blocking(gives_back).await;
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_until_that_takes_far_too_long_once() {
        let mut turn = MemoryReturn::default();
        turn.took(PROCESSOR_TIME_MAX);
        assert!(!turn.is_off);
        turn.took(PROCESSOR_TIME_MAX + Duration::from_nanos(1));
        turn.took(Duration::ZERO);
        assert!(turn.is_off);
    }

    #[test]
    fn the_time_of_a_processor_passes_while_a_thread_computes() {
        let begun = processor_time();
        while processor_time() == begun {}
    }
}
