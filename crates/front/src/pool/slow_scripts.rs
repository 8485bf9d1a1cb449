//! Reports of scripts that exceed `request_slowlog_timeout`, and the script of a dead worker.

use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_control::{FromFront, Overrun, WorkerId};
use maitred_fastcgi::{FOREIGN_MAX_PARAMS_BYTES, RequestEvent, RequestReader, params};
use maitred_seat::SlotProgress;
use maitred_seat::board::TEXT_BYTES;

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

/// The script of a request whose worker has died. The worker's board has it as PHP knows it, but a
/// successor in the seat may have cleared the board since, or have its own script there.
pub fn script_of_dead(request: &[u8], shown: String) -> String {
    let script = parameter(request, b"SCRIPT_FILENAME", TEXT_BYTES);
    match script.is_empty() || (!shown.is_empty() && script.contains(&shown)) {
        true => shown,
        false => script,
    }
}

/// The `REQUEST_ID` parameter in a request's first records; empty if there is none.
fn request_id(request: &[u8]) -> String {
    parameter(request, b"REQUEST_ID", MAX_ID_BYTES)
}

/// At most `most` bytes of a parameter in a request's first records; empty if there is none. It is
/// decoded here, so that fast requests need not carry it.
fn parameter(mut request: &[u8], name: &[u8], most: usize) -> String {
    let mut reader = RequestReader::new(FOREIGN_MAX_PARAMS_BYTES);
    while let Ok(Some(event)) = reader.next(&mut request) {
        if event == RequestEvent::Params {
            break;
        }
    }
    let mut all = params(reader.params()).flatten();
    let value = all.find(|(other, _)| *other == name);
    let value = value.map(|(_, value)| value.get(..most).unwrap_or(value));
    value.map_or_else(String::new, |value| {
        String::from_utf8_lossy(value).replace(char::is_control, "?")
    })
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

#[cfg(test)]
mod tests {
    use maitred_fastcgi::RequestWriter;

    use super::*;

    fn request(script: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = RequestWriter::new(&mut bytes, 1, true);
        writer.param(b"REQUEST_ID", b"7f").unwrap();
        writer.param(b"SCRIPT_FILENAME", script).unwrap();
        writer.finish();
        bytes
    }

    #[test]
    fn a_dead_worker_ran_the_script_of_its_request_whatever_its_successor_shows() {
        let script = |sent: &[u8], shown: &str| script_of_dead(&request(sent), shown.to_owned());
        let page = b"/srv/shop/page.php";
        for shown in ["", "/srv/shop/page.php", "/srv/shop/other.php"] {
            assert_eq!(script(page, shown), "/srv/shop/page.php", "{shown}");
        }
        // What a web server has sent, as PHP knows it.
        let sent = b"proxy:fcgi://localhost:9000/srv/shop/page.php";
        assert_eq!(script(sent, "/srv/shop/page.php"), "/srv/shop/page.php");
        assert_eq!(script(b"", "/srv/shop/page.php"), "/srv/shop/page.php");
        assert_eq!(script_of_dead(b"no request", "/srv/a.php".to_owned()), "/srv/a.php");
        assert_eq!(script(b"/srv/a\nb.php", ""), "/srv/a?b.php");
        assert_eq!(script(&[b'x'; 1000], "").len(), TEXT_BYTES);
        assert_eq!(request_id(&request(page)), "7f");
    }
}
