//! The status of a pool as C reads it.

use std::ffi::{CString, c_char};

use crate::exchange::{PoolStatus, ProcessStatus};

#[repr(C)]
pub(super) struct RawProcessStatus {
    pid: i64,
    state: *const c_char,
    start_time: i64,
    start_since: i64,
    requests: i64,
    request_duration: i64,
    request_method: *const c_char,
    request_uri: *const c_char,
    query_string: *const c_char,
    request_length: i64,
    user: *const c_char,
    script: *const c_char,
    last_request_cpu: f64,
    last_request_memory: i64,
}

#[repr(C)]
pub(super) struct RawPoolStatus {
    pool: *const c_char,
    process_manager: *const c_char,
    start_time: i64,
    start_since: i64,
    accepted_conn: i64,
    listen_queue: i64,
    max_listen_queue: i64,
    listen_queue_len: i64,
    idle_processes: i64,
    active_processes: i64,
    total_processes: i64,
    max_active_processes: i64,
    max_children_reached: i64,
    slow_requests: i64,
    processes: *const RawProcessStatus,
    process_count: usize,
}

/// A status for C, with its strings.
pub(super) struct StatusTexts {
    raw: Box<RawPoolStatus>,
    _processes: Vec<RawProcessStatus>,
    _texts: Vec<CString>,
}

impl StatusTexts {
    pub(super) fn new(status: &PoolStatus) -> Self {
        let mut texts = Vec::new();
        let processes: Vec<RawProcessStatus> = status
            .processes
            .iter()
            .map(|process| raw_process(process, &mut texts))
            .collect();
        let raw = RawPoolStatus {
            pool: text(&mut texts, &status.pool),
            process_manager: text(&mut texts, &status.process_manager),
            start_time: status.start_time,
            start_since: status.start_since,
            accepted_conn: status.accepted_conn,
            listen_queue: status.listen_queue,
            max_listen_queue: status.max_listen_queue,
            listen_queue_len: status.listen_queue_len,
            idle_processes: status.idle_processes,
            active_processes: status.active_processes,
            total_processes: status.idle_processes + status.active_processes,
            max_active_processes: status.max_active_processes,
            max_children_reached: status.max_children_reached,
            slow_requests: status.slow_requests,
            processes: processes.as_ptr(),
            process_count: processes.len(),
        };
        Self {
            raw: Box::new(raw),
            _processes: processes,
            _texts: texts,
        }
    }

    /// For C; valid as long as this value.
    pub(super) fn raw(&self) -> *const RawPoolStatus {
        &raw const *self.raw
    }
}

fn raw_process(process: &ProcessStatus, texts: &mut Vec<CString>) -> RawProcessStatus {
    RawProcessStatus {
        pid: process.pid,
        state: text(texts, &process.state),
        start_time: process.start_time,
        start_since: process.start_since,
        requests: process.requests,
        request_duration: process.request_duration,
        request_method: text(texts, &process.request_method),
        request_uri: text(texts, &process.request_uri),
        query_string: text(texts, &process.query_string),
        request_length: process.request_length,
        user: text(texts, &process.user),
        script: text(texts, &process.script),
        last_request_cpu: process.last_request_cpu,
        last_request_memory: process.last_request_memory,
    }
}

/// A pointer to `string` up to its first NUL; the bytes are stored in `texts`.
fn text(texts: &mut Vec<CString>, string: &str) -> *const c_char {
    let bytes = string
        .bytes()
        .take_while(|byte| *byte != 0)
        .collect::<Vec<u8>>();
    let owned = CString::new(bytes).unwrap_or_default();
    let pointer = owned.as_ptr();
    texts.push(owned);
    pointer
}
