//! Access log lines of scripts that continue after their response: they are written when the script
//! has ended, with its whole cost, as in php-fpm's access log.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::logging::access_log::{AccessLog, Finished, line};
use crate::logging::request_record::RequestRecord;
use crate::runtime::background;

/// The log in use: a reload may replace it.
pub type CurrentLog = Arc<ArcSwapOption<AccessLog>>;

/// Writes the line when the script has ended. There are at most as many such lines as workers.
pub fn write_later(log: &CurrentLog, request: Finished<'_>, mut record: RequestRecord) {
    let Some(script_end) = record.script_end.take() else {
        return;
    };
    let (log, head) = (log.clone(), request.head.clone());
    let Finished { peer, secured, .. } = request;
    let time = request.time.stop();
    background::write(async move {
        if let Ok(Some(all)) = script_end.await {
            record.rest = all.held.saturating_sub(record.script.unwrap_or_default());
            (record.script, record.spent) = (Some(all.held), Some(all));
        }
        if let Some(log) = log.load().as_ref() {
            let request = Finished { peer, head: &head, time, secured };
            log.write(&line(&request, &mut record));
        }
    });
}
