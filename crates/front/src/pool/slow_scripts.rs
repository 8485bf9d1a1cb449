//! Reports of scripts that exceed `request_slowlog_timeout`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_control::{FromFront, Overrun, WorkerId};
use maitred_fastcgi::{FOREIGN_MAX_PARAMS_BYTES, RequestEvent, RequestReader, params};
use maitred_seat::SlotProgress;

use crate::pool::Pool;
use crate::pool::exchange::SlotLease;

/// Most bytes of a request's id in a report; a web server in front may set any id.
const MAX_ID_BYTES: usize = 64;

/// The report of a slow script, from its worker's board; none when it has ended.
pub fn report(lease: &SlotLease, ran: Duration, request: &[u8]) -> Option<FromFront> {
    let (link, seat) = (lease.generation.link(), lease.slot.seat());
    let board = link.seat_board(seat);
    let report = FromFront::SlowScriptFound {
        generation: lease.generation.number,
        worker: WorkerId { seat, incarnation: lease.slot.incarnation() },
        request: board.requests.load(Ordering::Relaxed),
        overrun: overrun(lease, ran),
        id: request_id(request),
    };
    // The board is about this request only if the request still runs afterwards.
    (link.progress(&lease.slot) == Ok(SlotProgress::Running)).then_some(report)
}

/// The report of a script that has run for `ran`, from its worker's board.
pub fn overrun(lease: &SlotLease, ran: Duration) -> Overrun {
    let seat = lease.slot.seat();
    let board = lease.generation.link().seat_board(seat);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(char::is_control, "?");
    let (method, uri) = (text(&board.method.get()), text(&board.uri.get()));
    Overrun {
        ran,
        script: lease.generation.script_in(seat),
        target: format!("{method} {uri}"),
        query: text(&board.query.get()),
    }
}

/// The `REQUEST_ID` parameter in a request's first records; empty if there is none. It is decoded
/// here, so that fast requests need not carry it.
fn request_id(mut request: &[u8]) -> String {
    let mut reader = RequestReader::new(FOREIGN_MAX_PARAMS_BYTES);
    while let Ok(Some(event)) = reader.next(&mut request) {
        if event == RequestEvent::Params {
            break;
        }
    }
    let mut all = params(reader.params()).flatten();
    let id = all.find(|(name, _)| *name == b"REQUEST_ID");
    let id = id.map(|(_, id)| id.get(..MAX_ID_BYTES).unwrap_or(id));
    id.map_or_else(String::new, |id| String::from_utf8_lossy(id).replace(char::is_control, "?"))
}

impl Pool {
    /// Counts a slow script and reports it to the supervisor.
    pub fn report_slow(&self, report: &FromFront) {
        let mut state = self.lock();
        state.counters.slow = state.counters.slow.wrapping_add(1);
        state.show_counters();
        drop(state);
        self.supervisor.report(report);
    }
}
