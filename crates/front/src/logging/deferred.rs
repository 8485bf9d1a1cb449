//! The line of a request whose script goes on though its answer is complete: it is written when the script
//! has ended, and says what all of it has cost. php-fpm's access log does the same.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use maitred_http1::Head;

use crate::logging::access_log::{Time, line};
use crate::logging::record::RequestRecord;
use crate::net::tls::Secured;
use crate::runtime::background;
use crate::services::Thread;

/// Writes the line of such a request, which has been answered now, when its script has ended. There are no
/// more of them than workers.
pub fn write_later(
    thread: &Arc<Thread>,
    (peer, head): (IpAddr, &Head),
    (begun, secured): (Instant, Option<Arc<Secured>>),
    mut record: RequestRecord,
) {
    let Some(exchange) = record.going_on.take() else {
        return;
    };
    let (thread, head, ends) = (thread.clone(), head.clone(), exchange.at_end());
    let time = Time::Over(begun.elapsed());
    drop(exchange);
    background::write(async move {
        if let Ok(Some(all)) = ends.await {
            record.rest = all.held.saturating_sub(record.script.unwrap_or_default());
            (record.script, record.spent) = (Some(all.held), Some(all));
        }
        // The log may be another one by now.
        if let Some(log) = thread.shared.access_log.load().as_ref() {
            let secured = secured.as_deref();
            log.write(&line(peer, &head, (time, secured), &mut record));
        }
    });
}
