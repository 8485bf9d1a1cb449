//! Scripts that outlive `request_slowlog_timeout`, as the supervisor is told of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_control::{FromFront, Overrun, WorkerId};
use maitred_fastcgi::{FOREIGN_MAX_PARAMS_BYTES, RequestEvent, RequestReader, params};
use maitred_seat::Began;

use super::Pool;
use super::exchange::SlotLease;

/// Most bytes of a request's id that are told; a web server in front can give it any.
const MAX_ID_BYTES: usize = 64;

/// What there is to be said of a script that is slow, by the word of its worker. Nothing when it
/// does not run any more.
pub fn report(loan: &SlotLease, ran: Duration, request: &[u8]) -> Option<FromFront> {
    let (link, seat) = (loan.generation.link(), loan.lent.seat());
    let board = link.seat_board(seat);
    let report = FromFront::SlowScriptFound {
        generation: loan.generation.number,
        worker: WorkerId {
            seat,
            incarnation: loan.lent.incarnation(),
        },
        request: board.requests.load(Ordering::Relaxed),
        overrun: overrun(loan, ran),
        id: request_id(request),
    };
    // What the worker shows is about this request only if the request still runs afterwards.
    (link.progress(&loan.lent) == Ok(Began::Running)).then_some(report)
}

/// What its worker says of a script that has `ran` for so long.
pub fn overrun(loan: &SlotLease, ran: Duration) -> Overrun {
    let seat = loan.lent.seat();
    let board = loan.generation.link().seat_board(seat);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(char::is_control, "?");
    let (method, uri) = (text(&board.method.get()), text(&board.uri.get()));
    Overrun {
        ran,
        script: loan.generation.script_in(seat),
        target: format!("{method} {uri}"),
        query: text(&board.query.get()),
    }
}

/// The id that its script finds in `REQUEST_ID`, out of a request's first records; empty if there is
/// none. It is looked for here, and not carried along by the requests that are not slow.
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
    id.map_or_else(String::new, |id| {
        String::from_utf8_lossy(id).replace(char::is_control, "?")
    })
}

impl Pool {
    /// Counts a slow script and tells the supervisor of it.
    pub fn report_slow(&self, report: &FromFront) {
        let mut inner = self.lock();
        inner.figures.slow = inner.figures.slow.wrapping_add(1);
        inner.show_figures();
        drop(inner);
        self.supervisor.report(report);
    }
}
