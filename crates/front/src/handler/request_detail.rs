//! What the dashboard shows of a slow or failed request: neither its query nor any of its headers.

use std::time::Duration;

use crate::handler::request_spans::{FinishedRequest, SERVER_ERROR};
use crate::runtime::clock;
use crate::services::Shared;
use crate::services::recent_requests::RequestDetail;

/// A request is slow from here on, if `slow` of `[traces]` does not say otherwise.
const SLOW: Duration = Duration::from_secs(1);

/// Longest path in bytes; longer ones are cut.
const MAX_PATH_BYTES: usize = 200;

/// Whether a request with this status and duration is remembered.
pub fn is_notable(shared: &Shared, status: u16, took: Duration) -> bool {
    if !shared.recent_requests.is_wanted() {
        return false;
    }
    let traces = shared.traces.load();
    let slow = traces.as_ref().map_or(Some(SLOW), |traces| traces.settings.slow);
    let is_slow = slow.is_some_and(|slow| took >= slow);
    status >= SERVER_ERROR || is_slow
}

/// Remembers a request, if it was slow or has failed.
pub fn remember(shared: &Shared, request: &FinishedRequest<'_>) {
    let recent = &shared.recent_requests;
    if !recent.is_wanted() {
        return;
    }
    let FinishedRequest { record, took, .. } = *request;
    if !is_notable(shared, record.status, took) {
        return;
    }
    if record.script.is_none() && !recent.takes_without_script(clock::monotonic()) {
        return;
    }
    let ms = |time: Duration| time.as_micros() as f64 / 1e3;
    let spent = record.spent.as_ref();
    let mut path = String::from_utf8_lossy(request.path.as_bytes()).into_owned();
    while path.len() > MAX_PATH_BYTES {
        path.pop();
    }
    let began = clock::since_1970().saturating_sub(took);
    recent.add(RequestDetail {
        at: u64::try_from(began.as_millis()).unwrap_or(u64::MAX),
        pool: record.pool.as_deref().map(str::to_owned),
        request: format!("{} {path}", request.method),
        status: record.status,
        took: ms(took),
        queue: record.queued.map(ms),
        boot: record.boot.map(ms),
        script: record.script.map(ms),
        cpu: spent.map(|spent| ms(spent.cpu)),
        core_wait: spent.and_then(|spent| spent.core_wait).map(ms),
        blocked: spent.and_then(|spent| spent.blocked()).map(ms),
        children: spent.map(|spent| ms(spent.children)),
        memory: spent.map(|spent| spent.peak_memory),
        cache: record.cache,
        upstream: record.upstream.as_deref().map(str::to_owned),
        id: record.id.as_ref().map(|id| id.as_str().to_owned()),
        trace: record.trace.as_ref().map(|trace| trace.trace_id.to_string()),
        lines: record.lines.clone(),
    });
}
