use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::board::TEXT_BYTES;
use crate::layout::Layout;
use crate::{PoolState, create};

/// Ten seconds and a half after 1970 began.
const NOW: Duration = Duration::from_millis(10_500);

fn layout() -> Layout {
    Layout::map(create("test", 3, 1).unwrap(), 1).unwrap()
}

fn take(layout: &Layout) -> PoolState {
    let seats = (0..layout.seats()).map(|seat| layout.seat_board(seat));
    PoolState::take(layout.pool_board(), seats, NOW)
}

#[test]
fn a_request_that_runs_is_timed_until_now_and_one_that_ended_by_its_worker() {
    let layout = layout();
    let board = layout.seat_board(1);
    board.pid.store(7, Relaxed);
    board.request_at.store(10_000_000, Relaxed);
    board.request_took.store(30, Relaxed);
    board.cpu_micros.store(15, Relaxed);
    board.memory_peak.store(4096, Relaxed);
    let idle = take(&layout).processes.remove(0);
    assert_eq!((idle.pid, idle.duration, idle.memory_peak), (7, 30, 4096));
    assert_eq!(idle.cpu_share(), 50.0);
    board.running.store(1, Relaxed);
    let busy = take(&layout).processes.remove(0);
    assert!(busy.running);
    assert_eq!((busy.duration, busy.memory_peak), (500_000, 0));
    assert_eq!(busy.cpu_share(), 0.0);
}

#[test]
fn an_empty_seat_is_no_process_and_who_is_not_active_is_idle() {
    let layout = layout();
    layout.seat_board(0).pid.store(7, Relaxed);
    layout.seat_board(2).pid.store(8, Relaxed);
    layout.pool_board().active.store(1, Relaxed);
    layout.pool_board().opened_at.store(4, Relaxed);
    let snapshot = take(&layout);
    assert_eq!((snapshot.active, snapshot.idle), (1, 1));
    assert_eq!((snapshot.start_time, snapshot.start_since), (4, 6));
    assert_eq!(snapshot.processes.len(), 2);
}

#[test]
fn figures_from_the_future_and_endless_texts_do_no_harm() {
    let layout = layout();
    let board = layout.seat_board(0);
    board.pid.store(u32::MAX, Relaxed);
    board.running.store(9, Relaxed);
    board.started_at.store(u64::MAX, Relaxed);
    board.request_at.store(u64::MAX, Relaxed);
    board.uri.set(&[0xff; 10 * TEXT_BYTES]);
    layout.pool_board().active.store(u32::MAX, Relaxed);
    let snapshot = take(&layout);
    let process = &snapshot.processes[0];
    assert_eq!((process.start_since, process.duration), (0, 0));
    assert_eq!(process.uri.chars().count(), TEXT_BYTES);
    assert_eq!(snapshot.idle, 0);
}
