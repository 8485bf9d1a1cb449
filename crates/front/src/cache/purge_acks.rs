//! What a purge waits for before it counts as done.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::cache::purge_journal::{PATIENCE, PurgeRecord};

/// Longest time that a response waits for other fronts to drop the pages that it invalidates.
const OTHERS_ANSWER: Duration = Duration::from_secs(5);

/// A purge that is being recorded, and was sent to other fronts.
#[derive(Debug, Default)]
pub struct PurgeAcks {
    record: Option<PurgeRecord>,
    pub(super) awaited: Vec<oneshot::Receiver<Option<String>>>,
    /// Part of it could not be sent.
    pub(super) is_unsent: bool,
}

impl PurgeAcks {
    /// A purge that no other front has to know.
    pub(super) fn of(record: PurgeRecord) -> PurgeAcks {
        PurgeAcks { record: Some(record), ..PurgeAcks::default() }
    }

    /// Both of two purges.
    pub(super) fn both(mut self, other: PurgeAcks) -> PurgeAcks {
        self.record = self.record.into_iter().chain(other.record).reduce(PurgeRecord::later);
        self.awaited.extend(other.awaited);
        self.is_unsent |= other.is_unsent;
        self
    }

    /// Waits until it is recorded and all of them have acknowledged it. Returns why the pages may
    /// still be served, here after a restart or by other nodes, in one clause, if they may.
    pub async fn done(mut self) -> Option<String> {
        let record = self.record.take();
        let recorded = async {
            match record {
                Some(record) => record.written(PATIENCE).await,
                None => true,
            }
        };
        let (is_recorded, complaint) = tokio::join!(recorded, self.done_elsewhere());
        let unrecorded = "not recorded in cache_dir, which does not respond";
        complaint.or((!is_recorded).then(|| unrecorded.to_owned()))
    }

    async fn done_elsewhere(self) -> Option<String> {
        let all = async {
            let mut complaint =
                self.is_unsent.then(|| "not sent to other fronts and nodes".to_owned());
            for one in self.awaited {
                // The sender is dropped with the server.
                complaint = complaint.or(one.await.unwrap_or_default());
            }
            complaint
        };
        tokio::time::timeout(OTHERS_ANSWER, all).await.unwrap_or_else(|_| {
            let limit = OTHERS_ANSWER.as_secs();
            tracing::error!(
                "another front has not confirmed within {limit} s that it has dropped the pages \
                 that were purged here; its clients may get them until it exits"
            );
            Some("not confirmed by another front".to_owned())
        })
    }
}
