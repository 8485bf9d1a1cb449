//! The line of a request whose script goes on though its answer is complete: it is written when the script
//! has ended, and says what all of it has cost. php-fpm's access log does the same.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwapOption;
use maitred_http1::Head;

use crate::logging::access_log::{AccessLog, Time, line};
use crate::logging::record::RequestRecord;
use crate::net::tls::Secured;
use crate::runtime::background;

/// The log that is in use: a reload may replace it.
pub type CurrentLog = Arc<ArcSwapOption<AccessLog>>;

/// Writes the line of such a request, which has been answered now, when its script has ended. There are no
/// more of them than workers.
pub fn write_later(
    log: &CurrentLog,
    (peer, head): (IpAddr, &Head),
    (begun, secured): (Instant, Option<Arc<Secured>>),
    mut record: RequestRecord,
) {
    let Some(script_end) = record.script_end.take() else {
        return;
    };
    let (log, head) = (log.clone(), head.clone());
    let time = Time::Over(begun.elapsed());
    background::write(async move {
        if let Ok(Some(all)) = script_end.await {
            record.rest = all.held.saturating_sub(record.script.unwrap_or_default());
            (record.script, record.spent) = (Some(all.held), Some(all));
        }
        if let Some(log) = log.load().as_ref() {
            let secured = secured.as_deref();
            log.write(&line(peer, &head, (time, secured), &mut record));
        }
    });
}
