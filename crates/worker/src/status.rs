//! The data of `fpm_get_status()`.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_control::{ZygoteSettings, shows_memory_peak};
use maitred_fastcgi::basic_user;
use maitred_php::{Foreign, Name, PHP_BRANCH, Params, Text};
use maitred_seat::board::SeatBoard;
use maitred_seat::{PoolState, WorkerEnd, WorkerState};
use serde::Serialize;

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
    board.content_length.store(length.and_then(|text| text.parse().ok()).unwrap_or(0), Relaxed);
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

/// The keys of `fpm_get_status()`, in its order.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct FpmStatus<'a> {
    pool: &'a str,
    process_manager: &'a str,
    start_time: u64,
    start_since: u64,
    accepted_conn: u64,
    listen_queue: u32,
    max_listen_queue: u32,
    listen_queue_len: u32,
    idle_processes: u32,
    active_processes: u32,
    total_processes: u32,
    max_active_processes: u32,
    max_children_reached: u32,
    slow_requests: u64,
    /// From PHP 8.4 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_peak: Option<u64>,
    procs: Vec<FpmProcess>,
}

/// The keys of each of its workers.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct FpmProcess {
    pid: u32,
    state: &'static str,
    start_time: u64,
    start_since: u64,
    requests: u64,
    request_duration: u64,
    request_method: String,
    request_uri: String,
    query_string: String,
    request_length: u64,
    user: String,
    script: String,
    last_request_cpu: f64,
    last_request_memory: u64,
}

/// The current status of the pool, as JSON.
pub fn of_pool(end: &WorkerEnd, settings: &ZygoteSettings) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seats = (0..end.seats()).map(|seat| end.seat_board(seat));
    let state = PoolState::take(end.pool_board(), seats, now);
    let status = FpmStatus {
        pool: &settings.pool,
        process_manager: &settings.process_manager,
        start_time: state.start_time,
        start_since: state.start_since,
        accepted_conn: state.accepted,
        listen_queue: state.queued,
        max_listen_queue: state.max_queued,
        listen_queue_len: state.queue_limit,
        idle_processes: state.idle,
        active_processes: state.active,
        total_processes: state.idle + state.active,
        max_active_processes: state.max_active,
        max_children_reached: state.max_children_reached,
        slow_requests: state.slow,
        memory_peak: shows_memory_peak(PHP_BRANCH).then_some(state.memory_peak),
        procs: state.processes.into_iter().map(of_worker).collect(),
    };
    serde_json::to_string(&status).ok()
}

fn of_worker(worker: WorkerState) -> FpmProcess {
    let or_dash = |text: String| Some(text).filter(|text| !text.is_empty()).unwrap_or("-".into());
    FpmProcess {
        last_request_cpu: worker.cpu_share(),
        pid: worker.pid,
        state: if worker.running { "Running" } else { "Idle" },
        start_time: worker.start_time,
        start_since: worker.start_since,
        requests: worker.requests,
        request_duration: worker.duration,
        request_method: or_dash(worker.method),
        request_uri: worker.uri,
        query_string: worker.query,
        request_length: worker.content_length,
        user: or_dash(worker.user),
        script: or_dash(worker.script),
        last_request_memory: worker.memory_peak,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_worker_are_php_fpms() {
        let json = serde_json::to_string(&of_worker(WorkerState::default())).unwrap();
        let keys: Vec<&str> = json.split('"').filter(|word| word.contains("-")).collect();
        let expected = "start-time start-since request-duration request-method - request-uri \
            query-string request-length - - last-request-cpu last-request-memory";
        assert_eq!(keys.join(" "), expected);
    }
}
