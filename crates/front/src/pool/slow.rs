//! Scripts that outlive `request_slowlog_timeout`, as the supervisor is told of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_control::FromFront;
use maitred_seat::Began;

use super::Pool;
use super::exchange::Loan;

/// What there is to be said of a script that is slow, by the word of its worker. Nothing when it
/// does not run any more.
pub fn report(loan: &Loan, ran: Duration) -> Option<FromFront> {
    let (link, seat) = (loan.generation.link(), loan.lent.seat());
    let board = link.seat_board(seat);
    let (method, uri) = (board.method.get(), board.uri.get());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(char::is_control, "?");
    let report = FromFront::SlowScript {
        generation: loan.generation.number,
        seat,
        incarnation: loan.lent.incarnation(),
        request: board.requests.load(Ordering::Relaxed),
        ran,
        script: loan.generation.script_in(seat),
        target: format!("{} {}", text(&method), text(&uri)),
    };
    // What the worker shows is about this request only if the request still runs afterwards.
    (link.progress(&loan.lent) == Ok(Began::Running)).then_some(report)
}

impl Pool {
    /// Counts a slow script and tells the supervisor of it.
    pub fn report_slow(&self, report: &FromFront) {
        self.lock().count_slow();
        self.supervisor.report(report);
    }
}
