//! Claims of runs of schedules, of which one of several nodes has each: a key of Redis that the
//! first one sets. They have a connection of their own, so that rounds do not wait for them.

use std::sync::Arc;
use std::time::Duration;

use maitred_control::purge_log::{ClaimOutcome, FromPurgeLog};
use rustls::ClientConfig;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::Connection;
use crate::link::Link;
use crate::redis_log::RedisLog;
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
    pub settings: Arc<RedisLog>,
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
        let (mut connection, mut is_lost) = (None, false);
        while let Some(claim) = claims.recv().await {
            let decided = self.decide(&claim, &mut connection).await;
            if let Err(why) = &decided
                && !is_lost
            {
                tracing::error!("no run of a schedule can be claimed in the purge log: {why}");
            }
            is_lost = decided.is_err();
            let outcome = match decided {
                Ok(true) => ClaimOutcome::Here,
                Ok(false) => ClaimOutcome::Elsewhere,
                Err(_) => ClaimOutcome::Undecided,
            };
            let report = FromPurgeLog::Claimed { number: claim.number, outcome };
            if self.link.say(&report).is_err() {
                return;
            }
        }
    }

    /// Whether this node has a run. Repeated, it has the same result: a reply that was lost does no
    /// harm.
    async fn decide(
        &self,
        claim: &Claim,
        connection: &mut Option<Connection>,
    ) -> Result<bool, String> {
        let mut why = "it has not replied in time".to_owned();
        while Instant::now() < claim.until {
            let soon = (Instant::now() + self.settings.timeout).min(claim.until);
            match timeout_at(soon, self.try_once(claim, connection.take())).await {
                Ok(Ok((open, is_ours))) => {
                    *connection = Some(open);
                    return Ok(is_ours);
                }
                Ok(Err(error)) => why = error,
                Err(_) => {}
            }
            sleep(RETRY).await;
        }
        Err(why)
    }

    async fn try_once(
        &self,
        claim: &Claim,
        connection: Option<Connection>,
    ) -> Result<(Connection, bool), String> {
        let mut open = match connection {
            Some(connection) => connection,
            None => Connection::open(&self.settings, self.tls.clone()).await?,
        };
        let key = self.keys.run(&claim.run);
        let is_ours = open.claim(&key, &self.settings.node, claim.lifetime).await?;
        Ok((open, is_ours))
    }
}
