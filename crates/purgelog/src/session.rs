//! What carries the member's decisions out: it waits for orders, for Redis and for the clock.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use maitred_control::purge::PurgeOrder;
use maitred_control::purge_log::{
    FromPurgeLog, MAX_STATE_NODES, PurgeLogState, PurgeReach, ToPurgeLog, plain_node,
};
use maitred_os::clock::since_boot_millis;
use maitred_redis::tls;
use rustls::ClientConfig;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::claims::{Claim, Claimer, MAX_CLAIMS};
use crate::connection::Connection;
use crate::link::Link;
use crate::log_entry::EntryId;
use crate::member::{Member, MemberSettings, Outcome, Remark, RoundReply, Start, Step};
use crate::node_figures::FiguresExchange;
use crate::payloads::{payload_of, purge_of};
use crate::position_file::{PositionFile, WriteFailures};
use crate::redis_log::RedisLog;
use crate::wire::Keys;
use crate::{Millis, millis, random};

/// Least and longest time between two attempts to connect.
const RETRY: (Millis, Millis) = (50, 2000);

/// How often the position is written, in milliseconds.
const WRITE_EVERY: Millis = 1000;

/// How often the state is reported, in milliseconds.
const REPORT_EVERY: Millis = 1000;

/// How much longer than Redis blocks the connection that waits for entries may take.
const BLOCKED: Duration = Duration::from_secs(10);

/// Least time between two reads without an entry: a server that does not block, as Redis does for
/// seconds, is not asked without end.
const EMPTY_EVERY: Duration = Duration::from_secs(1);

/// How long an entry may be unread before it is hinted at again.
const UNREAD: Duration = Duration::from_secs(1);

/// What the one thing at a time that is done with Redis has come to.
enum Done {
    Opened(Result<Connection, String>),
    Replied(Result<(Connection, RoundReply), String>),
    Paused,
}

type Work = Pin<Box<dyn Future<Output = Done>>>;

/// The connection for rounds.
enum RedisLink {
    Idle(Connection),
    Busy(Work),
}

/// The process at work.
pub struct Session {
    settings: Arc<RedisLog>,
    keys: Arc<Keys>,
    tls: Option<Arc<ClientConfig>>,
    link: Link,
    member: Member,
    file: Option<PositionFile>,
    failures: WriteFailures,
    written_at: Millis,
    retry: Millis,
    /// When it was last known to be reached, and whether its loss was logged.
    lost_since: Option<Millis>,
    /// The lease, until its end is logged.
    lease: Option<Millis>,
    last_read: watch::Sender<EntryId>,
    /// Whether Redis is reached, since when, and why not.
    reached: (Option<bool>, Millis, Option<String>),
    /// The state as reported, and when.
    said: PurgeLogState,
    said_at: Millis,
}

impl Session {
    /// A session that has not connected.
    ///
    /// # Errors
    /// One sentence, when there are no root certificates or random numbers.
    pub fn new(settings: RedisLog, link: Link) -> Result<Session, String> {
        let file = settings.folder.as_deref().map(PositionFile::new);
        let start = match file.as_ref().and_then(PositionFile::read) {
            Some(position) => Start::At(position),
            None if settings.is_cold && file.is_none() => Start::Cold,
            None => Start::Unknown,
        };
        let member = MemberSettings {
            node: settings.node.clone(),
            instance: format!("{:016x}", random()?),
            lease: millis(settings.lease),
            timeout: millis(settings.timeout),
            everything: payload_of(&PurgeOrder::everything()),
        };
        Ok(Session {
            keys: Arc::new(Keys::new(&settings.prefix)),
            tls: tls(&settings.access)?,
            link,
            member: Member::new(member, start),
            file,
            failures: WriteFailures::default(),
            written_at: 0,
            retry: 0,
            lost_since: None,
            lease: None,
            last_read: watch::channel(EntryId::default()).0,
            reached: (None, 0, None),
            said: PurgeLogState::default(),
            said_at: 0,
            settings: Arc::new(settings),
        })
    }

    /// Runs until the supervisor has exited, or this process is to leave.
    ///
    /// # Errors
    /// One sentence, when it cannot work.
    pub async fn run(mut self) -> Result<(), String> {
        let mut orders = self.link.orders()?;
        let (hint, mut hints) = mpsc::channel(1);
        tokio::spawn(watch_stream(
            (self.settings.clone(), self.keys.clone(), self.tls.clone()),
            self.last_read.subscribe(),
            hint,
        ));
        let (claims, to_decide) = mpsc::channel(MAX_CLAIMS);
        let claimer = Claimer {
            settings: self.settings.clone(),
            keys: self.keys.clone(),
            tls: self.tls.clone(),
            link: self.link.clone(),
        };
        tokio::spawn(claimer.run(to_decide));
        let (figures, announced) = watch::channel(None);
        let exchange = FiguresExchange {
            settings: self.settings.clone(),
            keys: self.keys.clone(),
            tls: self.tls.clone(),
            link: self.link.clone(),
        };
        tokio::spawn(exchange.run(announced));
        let mut redis = RedisLink::Busy(self.open());
        loop {
            let now = since_boot_millis();
            redis = match redis {
                RedisLink::Idle(connection) if self.member.round_at() <= now => {
                    RedisLink::Busy(self.round(connection, now))
                }
                other => other,
            };
            let due = self.due(&redis).saturating_sub(now);
            tokio::select! {
                order = orders.recv() => match order {
                    None => return Ok(()),
                    Some(ToPurgeLog::Exit) => {
                        self.write_position();
                        return Ok(());
                    }
                    Some(ToPurgeLog::Leave) => {
                        self.leave(redis).await;
                        return Ok(());
                    }
                    Some(ToPurgeLog::Claim { number, run, lifetime, timeout }) => {
                        let until = Instant::now() + timeout;
                        // One that does not fit is not decided, which the supervisor notices.
                        let _ = claims.try_send(Claim { number, run, lifetime, until });
                    }
                    Some(ToPurgeLog::Announce { figures: mine }) => {
                        figures.send_replace(Some(mine));
                    }
                    Some(order) => self.obey(order)?,
                },
                Some(()) = hints.recv() => self.member.hint(),
                done = work(&mut redis) => redis = self.done(done)?,
                () = sleep(Duration::from_millis(due)) => {}
            }
            self.keep()?;
        }
    }

    /// When there is something to do without an event.
    fn due(&self, redis: &RedisLink) -> Millis {
        let round = match redis {
            RedisLink::Idle(_) => Some(self.member.round_at()),
            RedisLink::Busy(_) => None,
        };
        let lease = self.lease.map(|until| until.saturating_add(1));
        let due = [round, self.member.deadline(), lease];
        due.into_iter().flatten().min().unwrap_or(Millis::MAX).min(since_boot_millis() + 60_000)
    }

    /// Does what is due because time has passed.
    fn keep(&mut self) -> Result<(), String> {
        let now = since_boot_millis();
        let steps = self.member.tick(now);
        self.carry_out(steps)?;
        if self.lease.is_some_and(|until| until < now) {
            self.lease = None;
            tracing::warn!(
                "the purge log was not reached for {} s: cached pages are not served until it is, \
                 since other nodes may have purged them",
                self.settings.lease.as_secs()
            );
        }
        if now >= self.written_at.saturating_add(WRITE_EVERY) {
            self.written_at = now;
            self.write_position();
        }
        self.report_state(now)
    }

    /// Reports the state if it has changed, once a second at most, and at once if Redis is reached
    /// or lost.
    fn report_state(&mut self, now: Millis) -> Result<(), String> {
        let (is_reached, since, why) = &self.reached;
        let is_due = self.said.since != *since || now >= self.said_at.saturating_add(REPORT_EVERY);
        let Some(is_connected) = is_reached.filter(|_| is_due) else {
            return Ok(());
        };
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let state = PurgeLogState {
            node: self.settings.node.clone(),
            is_connected,
            since: *since,
            why: why.clone(),
            last_id: self.member.position().map(|position| position.id.to_string()),
            waiting: count(self.member.queued()),
            nodes: self.member.live_nodes(now).take(MAX_STATE_NODES).map(plain_node).collect(),
            node_count: count(self.member.live_nodes(now).count()),
            peers: Vec::new(),
        };
        self.said_at = now;
        if state != self.said {
            self.link.say(&FromPurgeLog::State(state.clone()))?;
            self.said = state;
        }
        Ok(())
    }

    /// Notes whether Redis is reached, and why not: the reason may change while it is not.
    fn note_reached(&mut self, is_reached: bool, why: Option<String>, now: Millis) {
        if self.reached.0 != Some(is_reached) {
            (self.reached.0, self.reached.1) = (Some(is_reached), now);
        }
        self.reached.2 = why;
    }

    fn write_position(&mut self) {
        let (Some(file), Some(position)) = (&mut self.file, self.member.position()) else {
            return;
        };
        let written = file.write(position);
        self.failures.note(file.path(), written);
    }

    fn obey(&mut self, order: ToPurgeLog) -> Result<(), String> {
        let steps = match order {
            ToPurgeLog::Publish { number, order } => {
                self.member.submit(number, payload_of(&order), since_boot_millis())
            }
            ToPurgeLog::Applied { mark, is_done: true } => self.member.applied(mark),
            ToPurgeLog::Applied { mark, is_done: false } => self.member.not_applied(mark),
            ToPurgeLog::Begin
            | ToPurgeLog::Leave
            | ToPurgeLog::Exit
            | ToPurgeLog::Claim { .. }
            | ToPurgeLog::Announce { .. } => Vec::new(),
        };
        self.carry_out(steps)
    }

    fn carry_out(&mut self, steps: Vec<Step>) -> Result<(), String> {
        for step in steps {
            match step {
                Step::Apply { mark, payload } => {
                    let order = purge_of(&payload);
                    self.link.say(&FromPurgeLog::Apply { mark, order })?;
                }
                Step::Lease(until) => {
                    self.lease = Some(until).filter(|until| *until > 0);
                    self.link.say(&FromPurgeLog::Lease { until })?;
                }
                Step::Report(number, outcome) => {
                    let reach = match outcome {
                        Outcome::Everywhere => PurgeReach::Everywhere,
                        Outcome::Missing(nodes) => PurgeReach::missing(&nodes),
                        Outcome::Uncertain => PurgeReach::Uncertain,
                        Outcome::Queued => PurgeReach::Queued,
                    };
                    self.link.say(&FromPurgeLog::Published { number, reach })?;
                }
                Step::Say(remark) => self.log(remark),
            }
        }
        self.last_read.send_if_modified(|last| {
            let before = std::mem::replace(last, self.member.last_read());
            before != *last
        });
        Ok(())
    }

    fn log(&self, remark: Remark) {
        let node = &self.settings.node;
        match remark {
            Remark::NameTaken => tracing::error!(
                "another server has the name {node} in the purge log: cached pages are not served \
                 until each has a `node` of its own in [purge_log]"
            ),
            Remark::Trimmed => tracing::warn!(
                "the purge log was shortened before this node has read it: all cached pages are \
                 dropped; raise `length` in [purge_log] if this happens again"
            ),
            Remark::Lost => tracing::info!(
                "what was purged on other nodes is not known, since the purge log is new here or \
                 was restarted: all cached pages are dropped"
            ),
        }
    }

    fn open(&self) -> Work {
        let (settings, tls) = (self.settings.clone(), self.tls.clone());
        Box::pin(async move {
            let opened = timeout(settings.timeout, Connection::open(&settings, tls)).await;
            Done::Opened(opened.unwrap_or_else(|_| Err(too_slow(&settings))))
        })
    }

    fn round(&mut self, mut connection: Connection, now: Millis) -> Work {
        let round = self.member.round(now);
        let (settings, keys) = (self.settings.clone(), self.keys.clone());
        Box::pin(async move {
            let replied = connection.round(&round, &keys, &settings);
            let replied = timeout(settings.timeout, replied).await;
            let replied = replied.unwrap_or_else(|_| Err(too_slow(&settings)));
            Done::Replied(replied.map(|reply| (connection, reply)))
        })
    }

    fn done(&mut self, done: Done) -> Result<RedisLink, String> {
        let now = since_boot_millis();
        match done {
            Done::Opened(Ok(connection)) => Ok(RedisLink::Idle(connection)),
            Done::Replied(Ok((connection, reply))) => {
                self.retry = 0;
                self.note_reached(true, None, now);
                if let Some(since) = self.lost_since.take() {
                    let seconds = now.saturating_sub(since).div_ceil(1000);
                    tracing::info!("the purge log is reached again, after {seconds} s");
                }
                let steps = self.member.replied(reply, now);
                self.carry_out(steps)?;
                Ok(RedisLink::Idle(connection))
            }
            Done::Opened(Err(why)) | Done::Replied(Err(why)) => {
                self.note_reached(false, Some(why.clone()), now);
                if self.lost_since.is_none() {
                    self.lost_since = Some(now);
                    tracing::error!(
                        "the purge log cannot be reached: {why}; purges are done here, and sent to \
                         the other nodes later"
                    );
                }
                let steps = self.member.lost(now);
                self.carry_out(steps)?;
                let wait = self.retry;
                self.retry = (self.retry * 2).clamp(RETRY.0, RETRY.1);
                Ok(RedisLink::Busy(Box::pin(async move {
                    sleep(Duration::from_millis(wait)).await;
                    Done::Paused
                })))
            }
            Done::Paused => Ok(RedisLink::Busy(self.open())),
        }
    }

    /// The fronts have ended: other nodes need not wait for this one.
    async fn leave(&mut self, redis: RedisLink) {
        self.write_position();
        let connection = match redis {
            RedisLink::Idle(connection) => Some(connection),
            RedisLink::Busy(mut work) => match (&mut work).await {
                Done::Replied(Ok((connection, reply))) => {
                    self.member.replied(reply, since_boot_millis());
                    Some(connection)
                }
                Done::Opened(Ok(connection)) => Some(connection),
                Done::Opened(Err(_)) | Done::Replied(Err(_)) | Done::Paused => None,
            },
        };
        let Some(mut connection) = connection else { return };
        let text = self.member.farewell();
        let said = connection.leave(&self.keys, &self.settings.node, &text);
        if let Ok(Err(why)) = timeout(self.settings.timeout, said).await {
            tracing::debug!("the purge log was not left: {why}");
        }
    }
}

/// The result of what is done with Redis; never, if nothing is.
async fn work(redis: &mut RedisLink) -> Done {
    match redis {
        RedisLink::Busy(work) => work.await,
        RedisLink::Idle(_) => std::future::pending().await,
    }
}

/// Why Redis is given up.
pub fn too_slow(settings: &RedisLog) -> String {
    format!("it has not replied within {} ms", settings.timeout.as_millis())
}

/// Notifies of new entries, over a connection of its own. Without it, rounds find them later.
async fn watch_stream(
    with: (Arc<RedisLog>, Arc<Keys>, Option<Arc<ClientConfig>>),
    mut last_read: watch::Receiver<EntryId>,
    hint: mpsc::Sender<()>,
) {
    let (settings, keys, tls) = with;
    loop {
        let opened = timeout(settings.timeout, Connection::open(&settings, tls.clone())).await;
        let Ok(Ok(mut connection)) = opened else {
            sleep(Duration::from_millis(RETRY.1)).await;
            continue;
        };
        loop {
            let after = *last_read.borrow_and_update();
            let next_empty = Instant::now() + EMPTY_EVERY;
            match timeout(BLOCKED, connection.await_entry(&keys, after)).await {
                Ok(Ok(true)) if *last_read.borrow() == after => {
                    // There may be a hint that was not taken yet.
                    let _ = hint.try_send(());
                    let _ = timeout(UNREAD, last_read.changed()).await;
                }
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => sleep_until(next_empty).await,
                Ok(Err(_)) | Err(_) => break,
            }
        }
    }
}
