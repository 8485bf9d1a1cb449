//! How long what runs in a generation that has been replaced is waited for, as php-fpm's
//! `process_control_timeout` has it.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_control::Seat;
use maitred_seat::Boards;

use crate::limits::Moment;
use crate::pool;
use crate::run::Supervisor;

/// Whether the worker in a seat has run the same script for so long, as far as its board says.
fn has_run_for(boards: &Boards, seat: Seat, time: Duration) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let Some(board) = boards.seat(seat) else {
        return true;
    };
    let began = Duration::from_micros(board.request_at.load(Ordering::Relaxed));
    let ran = now.unwrap_or_default().saturating_sub(began);
    board.running.load(Ordering::Relaxed) != 0 && ran >= time
}

impl Supervisor {
    /// The scripts that run when their generation is replaced may have `process_control_timeout`, if
    /// it is set; then their workers are ended, as php-fpm ends them. What began later is no old
    /// request: php-fpm would have given it to a new worker.
    pub(crate) fn hurry_leaving(&mut self) {
        let limit = self.plan.config.process_control_timeout;
        if !self.is_fpm() || limit.is_zero() {
            return;
        }
        let now = self.now();
        for index in 0..self.pools.len() {
            let running = &mut self.pools[index];
            if !running.pool.is_leaving() {
                continue;
            }
            let leave_by = *running.leave_by.get_or_insert(now + limit);
            if leave_by > now {
                continue;
            }
            running.leave_by = Some(Moment::MAX);
            let since = (now - leave_by).saturating_add(limit);
            let boards = Boards::map(&running.plan.memory);
            let seated: Vec<_> = running.pool.seated().collect();
            for pool::Seated {
                seat, incarnation, ..
            } in seated
            {
                let is_old = |boards: &Boards| has_run_for(boards, seat, since);
                if boards.as_ref().map_or(true, is_old) {
                    self.pool_event(index, pool::Event::TerminateWorker { seat, incarnation });
                }
            }
        }
    }

    /// When workers of a generation that leaves get no more time.
    pub(crate) fn leaving_deadline(&self) -> Option<Moment> {
        let leaving = self.pools.iter().filter_map(|pool| pool.leave_by);
        leaving.filter(|by| *by != Moment::MAX).min()
    }
}
