//! The pool as its scripts see it: what `fpm_get_status()` tells.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_control::ZygoteSettings;
use maitred_php::{Params, PoolStatus, ProcessStatus};
use maitred_seat::WorkerEnd;
use maitred_seat::board::SeatBoard;

/// Writes down what a request is.
pub fn show_request(board: &SeatBoard, params: &Params) {
    let value = |name: &[u8]| params.get(name).unwrap_or(b"");
    board.method.set(value(b"REQUEST_METHOD"));
    let uri = value(b"REQUEST_URI");
    let path = uri.split(|byte| *byte == b'?').next().unwrap_or(uri);
    board.uri.set(path);
    board.query.set(value(b"QUERY_STRING"));
    board.script.set(value(b"SCRIPT_FILENAME"));
    board.user.set(value(b"REMOTE_USER"));
    let length = std::str::from_utf8(value(b"CONTENT_LENGTH")).ok();
    board.content_length.store(
        length.and_then(|text| text.parse().ok()).unwrap_or(0),
        Relaxed,
    );
}

/// The pool now.
pub fn of_pool(end: &WorkerEnd, settings: &ZygoteSettings) -> PoolStatus {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let (seconds, micros) = (now.as_secs(), u64::try_from(now.as_micros()).unwrap_or(0));
    let board = end.pool_board();
    let opened = board.opened_at.load(Relaxed);
    let processes: Vec<ProcessStatus> = (0..end.seats())
        .map(|seat| end.seat_board(seat))
        .filter(|board| board.pid.load(Relaxed) != 0)
        .map(|board| of_worker(board, seconds, micros))
        .collect();
    let active = i64::from(board.active.load(Relaxed));
    PoolStatus {
        pool: settings.pool.clone(),
        process_manager: settings.process_manager.clone(),
        start_time: signed(opened),
        start_since: signed(seconds.saturating_sub(opened)),
        accepted_conn: signed(board.accepted.load(Relaxed)),
        listen_queue: i64::from(board.queued.load(Relaxed)),
        max_listen_queue: i64::from(board.max_queued.load(Relaxed)),
        listen_queue_len: i64::from(board.queue_limit.load(Relaxed)),
        idle_processes: (signed(processes.len() as u64) - active).max(0),
        active_processes: active,
        max_active_processes: i64::from(board.max_active.load(Relaxed)),
        max_children_reached: i64::from(board.max_children_reached.load(Relaxed)),
        slow_requests: 0,
        processes,
    }
}

fn of_worker(board: &SeatBoard, seconds: u64, micros: u64) -> ProcessStatus {
    let running = board.running.load(Relaxed) != 0;
    let started = board.started_at.load(Relaxed);
    let duration = if running {
        micros.saturating_sub(board.request_at.load(Relaxed))
    } else {
        board.request_took.load(Relaxed)
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    ProcessStatus {
        pid: i64::from(board.pid.load(Relaxed)),
        state: if running { "Running" } else { "Idle" }.to_owned(),
        start_time: signed(started),
        start_since: signed(seconds.saturating_sub(started)),
        requests: signed(board.requests.load(Relaxed)),
        request_duration: signed(duration),
        request_method: text(board.method.get()),
        request_uri: text(board.uri.get()),
        query_string: text(board.query.get()),
        request_length: signed(board.content_length.load(Relaxed)),
        user: or_dash(text(board.user.get())),
        script: or_dash(text(board.script.get())),
        last_request_cpu: 0.0,
        last_request_memory: signed(board.memory_peak.load(Relaxed)),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
