//! The data of `fpm_get_status()`.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_control::ZygoteSettings;
use maitred_fastcgi::basic_user;
use maitred_php::{Foreign, Name, Params, PoolStatus, ProcessStatus, Text};
use maitred_seat::board::SeatBoard;
use maitred_seat::{PoolState, WorkerEnd, WorkerState};

/// Writes a request to the board.
pub fn show_request(board: &SeatBoard, params: &Params) {
    show_common(board, params);
    let value = |name| params.value_of(name).unwrap_or_default();
    let uri = value(Name::RequestUri);
    let path = uri.split(|byte| *byte == b'?').next().unwrap_or(uri);
    board.uri.set(path);
    board.script.set(value(Name::ScriptFilename));
    board.user.set(value(Name::RemoteUser));
}

fn show_common(board: &SeatBoard, params: &Params) {
    let value = |name| params.value_of(name).unwrap_or_default();
    board.method.set(value(Name::RequestMethod));
    board.query.set(value(Name::QueryString));
    let length = std::str::from_utf8(value(Name::ContentLength)).ok();
    board.content_length.store(
        length.and_then(|text| text.parse().ok()).unwrap_or(0),
        Relaxed,
    );
}

/// Writes a web server's request to the board, with the URI and user in php-fpm's sense: the user
/// is that of Basic credentials only.
pub fn show_foreign(board: &SeatBoard, params: &Params, foreign: &Foreign) {
    show_common(board, params);
    let authorization = params.value_of(Name::HttpAuthorization);
    let user = authorization.and_then(basic_user);
    board.user.set(&user.unwrap_or_default());
    let bytes = |text: Option<Text>| text.map_or(&b""[..], |text| params.bytes(text));
    board.uri.set(bytes(foreign.uri));
    board.script.set(bytes(foreign.script));
}

/// The current status of the pool.
pub fn of_pool(end: &WorkerEnd, settings: &ZygoteSettings) -> PoolStatus {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seats = (0..end.seats()).map(|seat| end.seat_board(seat));
    let snapshot = PoolState::take(end.pool_board(), seats, now);
    PoolStatus {
        pool: settings.pool.clone(),
        process_manager: settings.process_manager.clone(),
        start_time: signed(snapshot.start_time),
        start_since: signed(snapshot.start_since),
        accepted_conn: signed(snapshot.accepted),
        listen_queue: i64::from(snapshot.queued),
        max_listen_queue: i64::from(snapshot.max_queued),
        listen_queue_len: i64::from(snapshot.queue_limit),
        idle_processes: i64::from(snapshot.idle),
        active_processes: i64::from(snapshot.active),
        max_active_processes: i64::from(snapshot.max_active),
        max_children_reached: i64::from(snapshot.max_children_reached),
        slow_requests: signed(snapshot.slow),
        processes: snapshot.processes.into_iter().map(of_worker).collect(),
    }
}

fn of_worker(process: WorkerState) -> ProcessStatus {
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let last_request_cpu = process.cpu_share();
    ProcessStatus {
        pid: i64::from(process.pid),
        state: if process.running { "Running" } else { "Idle" }.to_owned(),
        start_time: signed(process.start_time),
        start_since: signed(process.start_since),
        requests: signed(process.requests),
        request_duration: signed(process.duration),
        request_method: or_dash(process.method),
        request_uri: process.uri,
        query_string: process.query,
        request_length: signed(process.content_length),
        user: or_dash(process.user),
        script: or_dash(process.script),
        last_request_cpu,
        last_request_memory: signed(process.memory_peak),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
