//! Claims of runs of schedules, of which one of several nodes has each: a key of Redis that the
//! first one sets. They have a connection of their own, so that rounds do not wait for them.

use std::sync::Arc;
use std::time::Duration;

use maitred_control::purge_log::{ClaimOutcome, FromPurgeLog, PurgeLogSettings};
use rustls::ClientConfig;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::Connection;
use crate::link::Link;
use crate::wire::Keys;

/// Most claims that wait; a schedule has one at a time.
pub const MAX_CLAIMS: usize = 1000;

/// Time between two attempts.
const RETRY: Duration = Duration::from_millis(100);

/// A run that this node claims.
#[derive(Debug)]
pub struct Claim {
    /// Its number, for the report.
    pub number: u64,
    /// The run: the same text on all nodes.
    pub run: String,
    /// How long the claim lasts.
    pub lifetime: Duration,
    /// When it is to be decided.
    pub until: Instant,
}

/// What claims need.
pub struct Claimer {
    /// The settings.
    pub settings: Arc<PurgeLogSettings>,
    /// The keys.
    pub keys: Arc<Keys>,
    /// TLS, if the server has it.
    pub tls: Option<Arc<ClientConfig>>,
    /// The supervisor.
    pub link: Link,
}

impl Claimer {
    /// Decides claims, one after the other, until no more come.
    pub async fn run(self, mut claims: mpsc::Receiver<Claim>) {
        let mut connection = None;
        while let Some(claim) = claims.recv().await {
            let outcome = self.decide(&claim, &mut connection).await;
            let report = FromPurgeLog::Claimed { number: claim.number, outcome };
            if self.link.say(&report).is_err() {
                return;
            }
        }
    }

    /// Repeated, it has the same result: a reply that was lost does no harm.
    async fn decide(&self, claim: &Claim, connection: &mut Option<Connection>) -> ClaimOutcome {
        let Claim { run, lifetime, until, .. } = claim;
        while Instant::now() < *until {
            let taken = match connection.take() {
                Some(connection) => Ok(Ok(connection)),
                None => {
                    let soon = (Instant::now() + self.settings.timeout).min(*until);
                    let opened = Connection::open(&self.settings, self.tls.clone());
                    timeout_at(soon, opened).await
                }
            };
            if let Ok(Ok(mut open)) = taken {
                let key = self.keys.run(run);
                let soon = (Instant::now() + self.settings.timeout).min(*until);
                let claimed = open.claim(&key, &self.settings.node, *lifetime);
                if let Ok(Ok(is_ours)) = timeout_at(soon, claimed).await {
                    *connection = Some(open);
                    let outcome =
                        if is_ours { ClaimOutcome::Here } else { ClaimOutcome::Elsewhere };
                    return outcome;
                }
            }
            sleep(RETRY).await;
        }
        ClaimOutcome::Undecided
    }
}
