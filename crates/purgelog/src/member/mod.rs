//! A node as a member of the log: when it sends a round, what it makes of the reply, and for how
//! long it may serve cached pages. Pure: no clock, connection or process
//! (docs/decisions/0018-purges-everywhere.md).

mod known_entries;
#[cfg(test)]
mod limits_tests;
mod others;
mod outgoing_purges;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod simulation;

use std::collections::{BTreeSet, VecDeque};

use crate::Millis;
use crate::log_entry::{Addition, Entry, EntryId, Position};
use known_entries::KnownEntries;
use others::{Others, Registration};
pub use outgoing_purges::Outcome;
use outgoing_purges::{OutgoingPurges, Sight};

/// Most entries that one round reads.
pub const MAX_READ: usize = 64;

/// Most purges that wait for the fronts to apply them. Until there are fewer, no more are read.
const MAX_APPLYING: usize = 256;

/// Time between rounds while a purge is waited for: in its first tenth of a second, and then.
const POLL: (Millis, Millis) = (2, 20);
/// How long the short one applies.
const POLL_FAST: Millis = 100;

/// Least and longest time between rounds without a cause.
const IDLE: (Millis, Millis) = (20, 1000);

/// The settings of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSettings {
    /// Its name.
    pub node: String,
    /// The name of this process: random.
    pub instance: String,
    /// How long it may serve cached pages after a round.
    pub lease: Millis,
    /// How long a purge waits for others.
    pub timeout: Millis,
    /// The payload of a purge of everything.
    pub everything: String,
}

impl MemberSettings {
    /// How long others wait for a lease that they cannot see end: by their clock, which may be
    /// faster by an eighth.
    fn wait(&self) -> Millis {
        self.lease + self.lease / 8 + 1
    }
}

/// What the cache has at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// No pages.
    Cold,
    /// Pages, to which everything up to this position was applied.
    At(Position),
    /// Pages of which nothing is known.
    Unknown,
}

/// A round: one transaction that registers this node, adds entries, and reads new ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The text to register.
    pub registration: String,
    /// The name of a new era, to be set first.
    pub establish: Option<String>,
    /// Entries to add before any are read.
    pub add: Vec<Addition>,
    /// Read at most [`MAX_READ`] entries after this one; none: read none.
    pub read_after: Option<EntryId>,
    /// Registrations to remove.
    pub forget: Vec<String>,
}

/// The reply to a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoundReply {
    /// The era; none: none is set for this run of Redis.
    pub era: Option<String>,
    /// How long ago it began, by the clock of Redis.
    pub era_age: Millis,
    /// What was registered under this node's name before.
    pub registered: Option<String>,
    /// The ids of the added entries.
    pub added: Vec<EntryId>,
    /// The first and the last entry of the stream.
    pub ends: Option<(EntryId, EntryId)>,
    /// The entries that were read.
    pub entries: Vec<Entry>,
    /// All registrations.
    pub nodes: Vec<(String, String)>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Apply a purge in all fronts, and confirm it ([`Member::applied`]).
    Apply {
        /// Its number.
        mark: u64,
        /// The purge.
        payload: String,
    },
    /// Cached pages may be served until then.
    Lease(Millis),
    /// Report the outcome of a purge.
    Report(u64, Outcome),
    /// Log something.
    Say(Remark),
}

/// Something to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remark {
    /// Another server is registered under the same name.
    NameTaken,
    /// All pages are dropped, since purges may be missing: the stream was trimmed.
    Trimmed,
    /// All pages are dropped, since purges may be missing: Redis has lost data, or is another one.
    Lost,
}

/// Which entries come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Those after this one.
    After(EntryId),
    /// In a new era, all: those before the first known one are older than that; the unknown ones
    /// after it are new. Without a known one, entries may be missing.
    Again { after: EntryId, has_known: bool },
}

/// Entries that the fronts apply.
#[derive(Debug)]
struct Batch {
    last_mark: u64,
    era: u64,
    position: EntryId,
    /// When the round was sent, if it has reached the end of the stream.
    lease_from: Option<Millis>,
}

/// A member.
#[derive(Debug)]
pub struct Member {
    settings: MemberSettings,
    start: Start,
    /// Reached: yes, no; none: not tried.
    is_up: Option<bool>,
    /// When the last round was sent.
    sent: Millis,
    beat: u64,
    has_registered: bool,
    era: Option<String>,
    /// The number of the era among those of this process.
    era_number: u64,
    /// When it was first seen.
    era_since: Millis,
    /// The era has to be set.
    must_establish: bool,
    reading: Reading,
    /// The round in flight reads entries.
    reads: bool,
    /// More entries can be read.
    has_more: bool,
    known: KnownEntries,
    last_mark: u64,
    applying: BTreeSet<u64>,
    batches: VecDeque<Batch>,
    applied: Option<Position>,
    /// Others have to learn what is applied.
    must_tell: bool,
    lease_until: Millis,
    lease_said: Millis,
    /// No lease before then: another server has this name.
    muted_until: Millis,
    /// That was said.
    is_name_said: bool,
    others: Others,
    outgoing: OutgoingPurges,
    /// Numbers of the additions of the round in flight; 0: a mark of having joined.
    adding: Vec<u64>,
}

impl Member {
    /// A member that has not reached the log.
    pub fn new(settings: MemberSettings, start: Start) -> Member {
        Member {
            settings,
            start,
            is_up: None,
            sent: 0,
            beat: 0,
            has_registered: false,
            era: None,
            era_number: 0,
            era_since: 0,
            must_establish: false,
            reading: Reading::After(EntryId::default()),
            reads: false,
            has_more: true,
            known: KnownEntries::default(),
            last_mark: 0,
            applying: BTreeSet::new(),
            batches: VecDeque::new(),
            applied: None,
            must_tell: false,
            lease_until: 0,
            lease_said: 0,
            muted_until: 0,
            is_name_said: false,
            others: Others::default(),
            outgoing: OutgoingPurges::default(),
            adding: Vec::new(),
        }
    }

    /// What is applied, to continue there after a restart.
    pub fn position(&self) -> Option<&Position> {
        self.applied.as_ref()
    }

    /// The last entry that was read, to wait for the next one.
    pub fn last_read(&self) -> EntryId {
        match self.reading {
            Reading::After(id) | Reading::Again { after: id, .. } => id,
        }
    }

    /// Purges that are still to be sent.
    pub fn queued(&self) -> usize {
        self.outgoing.queued()
    }

    /// The other nodes that may serve cached pages.
    pub fn live_nodes(&self, now: Millis) -> impl Iterator<Item = &str> {
        self.others.live(now, self.settings.wait())
    }

    /// Takes a purge that this node applies itself. `number` is from 1, and used once.
    pub fn submit(&mut self, number: u64, payload: String, now: Millis) -> Vec<Step> {
        self.outgoing.submit(number, payload, now.saturating_add(self.settings.timeout));
        self.report_overdue(now)
    }

    /// There are new entries.
    pub fn hint(&mut self) {
        self.has_more = true;
    }

    /// When the next round is to be sent over an idle connection.
    pub fn round_at(&self) -> Millis {
        let is_free = self.applying.len() < MAX_APPLYING;
        if self.must_establish
            || self.must_tell
            || (self.has_more && is_free)
            || self.outgoing.is_queued()
        {
            return self.sent.saturating_add(1);
        }
        let (least, most) = IDLE;
        let idle = (self.settings.lease / 8).clamp(least, most);
        let poll = self.outgoing.awaited_until().map(|until| {
            let begun = until.saturating_sub(self.settings.timeout);
            let is_new = self.sent < begun.saturating_add(POLL_FAST);
            if is_new { POLL.0 } else { POLL.1 }
        });
        self.sent.saturating_add(poll.map_or(idle, |poll| poll.min(idle)))
    }

    /// When [`Member::tick`] has something to do.
    pub fn deadline(&self) -> Option<Millis> {
        self.outgoing.deadline()
    }

    /// Reports what is overdue.
    pub fn tick(&mut self, now: Millis) -> Vec<Step> {
        self.report_overdue(now)
    }

    /// The round to send now.
    pub fn round(&mut self, now: Millis) -> Round {
        self.sent = now;
        self.beat += 1;
        self.must_tell = false;
        let establish = self.must_establish.then(|| {
            let Member { settings, beat, .. } = self;
            format!("{}-{beat}", settings.instance)
        });
        let mut additions = self.outgoing.additions(&self.settings.instance);
        if establish.is_some() || self.era.is_none() {
            // So that the stream is never empty, and shows when it is trimmed.
            let token = format!("{}:joined-{}", self.settings.instance, self.beat);
            additions.push((0, Addition { token, payload: String::new() }));
        }
        let add;
        (self.adding, add) = additions.into_iter().unzip();
        let is_free = self.applying.len() < MAX_APPLYING;
        self.reads = is_free;
        Round {
            registration: self.registration(false),
            establish,
            add,
            read_after: is_free.then(|| self.last_read()),
            forget: self.others.forget(now),
        }
    }

    /// The text to register when the server has ended.
    pub fn farewell(&mut self) -> String {
        self.beat += 1;
        self.registration(true)
    }

    fn registration(&self, has_left: bool) -> String {
        let (instance, beat) = (self.settings.instance.clone(), self.beat);
        Registration { instance, beat, applied: self.applied.clone(), has_left }.to_string()
    }

    /// The log cannot be reached, or the reply to a round was lost.
    pub fn lost(&mut self, now: Millis) -> Vec<Step> {
        self.is_up = Some(false);
        self.adding.clear();
        self.has_more = true;
        self.report_overdue(now)
    }

    /// Takes the reply to the round in flight.
    pub fn replied(&mut self, reply: RoundReply, now: Millis) -> Vec<Step> {
        let mut steps = Vec::new();
        self.is_up = Some(true);
        self.check_name(reply.registered.as_deref(), now, &mut steps);
        let adding = std::mem::take(&mut self.adding);
        let Some(era) = reply.era.clone() else {
            self.must_establish = true;
            return steps;
        };
        self.must_establish = false;
        let RoundReply { added, nodes, era_age, .. } = &reply;
        self.others.saw(nodes.clone(), &self.settings.node, now);
        let added: Vec<(u64, EntryId)> = adding.into_iter().zip(added.iter().copied()).collect();
        let era_age = *era_age;
        if self.era.as_ref() == Some(&era) {
            self.read(reply, &mut steps);
        } else {
            self.enter(era, &reply, now, &mut steps);
        }
        let wait = self.settings.wait();
        let began = now.saturating_sub(era_age).min(self.era_since);
        let sight = Sight {
            others: &self.others,
            era: (self.era_number, self.era.as_deref().unwrap_or_default()),
            sure_at: began.saturating_add(wait),
            sent: self.sent,
            wait,
        };
        self.outgoing.added(&added, sight);
        let settled = self.outgoing.settle(sight);
        steps.extend(settled.into_iter().map(|(number, how)| Step::Report(number, how)));
        self.advance(&mut steps);
        steps.extend(self.report_overdue(now));
        steps
    }

    /// The fronts have applied a purge.
    pub fn applied(&mut self, mark: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        self.applying.remove(&mark);
        self.advance(&mut steps);
        steps
    }

    /// The fronts have not applied a purge in time: everything is dropped in its place.
    pub fn not_applied(&mut self, mark: u64) -> Vec<Step> {
        match self.applying.contains(&mark) {
            true => vec![Step::Apply { mark, payload: self.settings.everything.clone() }],
            false => Vec::new(),
        }
    }

    /// Notices another server with this node's name, which would apply purges in its place.
    fn check_name(&mut self, registered: Option<&str>, now: Millis, steps: &mut Vec<Step>) {
        let other = registered.and_then(Registration::read);
        let is_mine = other.is_none_or(|other| other.instance == self.settings.instance);
        if self.has_registered && !is_mine {
            // Once may be the last word of this node's former process.
            if now < self.muted_until && !std::mem::replace(&mut self.is_name_said, true) {
                steps.push(Step::Say(Remark::NameTaken));
            }
            self.muted_until = now.saturating_add(self.settings.wait());
            (self.lease_until, self.lease_said) = (0, 0);
            steps.push(Step::Lease(0));
        }
        self.has_registered = true;
    }

    /// The first era, or another one than before: Redis was restarted, has lost data, or another
    /// server has taken over.
    fn enter(&mut self, era: String, reply: &RoundReply, now: Millis, steps: &mut Vec<Step>) {
        let end = reply.ends.map_or(EntryId::default(), |(_, last)| last);
        let is_first = self.era.is_none();
        self.era_number += 1;
        self.era_since = now;
        self.has_more = true;
        self.outgoing.send_again();
        let start = std::mem::replace(&mut self.start, Start::Unknown);
        let continues = matches!(&start, Start::At(position) if position.era == era);
        self.era = Some(era);
        match start {
            Start::Cold if is_first => self.reading = Reading::After(end),
            Start::At(position) if is_first && continues => {
                self.reading = Reading::After(position.id);
            }
            _ if !is_first && now < self.lease_until => {
                // Nothing was purged everywhere that this node has not applied: it is among those
                // that others wait for. What was lost, they send again.
                self.reading = Reading::Again { after: EntryId::default(), has_known: false };
            }
            _ => self.drop_all(Some(end), Remark::Lost, steps),
        }
    }

    /// Drops all pages, and continues at the end of the stream.
    fn drop_all(&mut self, end: Option<EntryId>, why: Remark, steps: &mut Vec<Step>) {
        steps.push(Step::Say(why));
        let end = end.unwrap_or_default();
        self.reading = Reading::After(end);
        self.has_more = true;
        let payload = self.settings.everything.clone();
        self.apply(payload, steps);
        self.end_batch(end, None);
    }

    fn apply(&mut self, payload: String, steps: &mut Vec<Step>) {
        self.last_mark += 1;
        self.applying.insert(self.last_mark);
        steps.push(Step::Apply { mark: self.last_mark, payload });
    }

    fn end_batch(&mut self, position: EntryId, lease_from: Option<Millis>) {
        let (last_mark, era) = (self.last_mark, self.era_number);
        self.batches.push_back(Batch { last_mark, era, position, lease_from });
    }

    /// Takes the entries of a round in the present era.
    fn read(&mut self, reply: RoundReply, steps: &mut Vec<Step>) {
        let RoundReply { ends, entries, .. } = reply;
        let last = ends.map(|(_, last)| last);
        // The entry where this node stands is in the stream unless that was trimmed.
        let (stands_at, begins) = match self.reading {
            Reading::After(id) => (id, true),
            Reading::Again { after, .. } => (after, after != EntryId::default()),
        };
        if begins && ends.is_none_or(|(first, _)| first > stands_at) {
            return self.drop_all(last, Remark::Trimmed, steps);
        }
        // A round that read nothing says nothing of what there is to read, whatever was applied
        // meanwhile.
        if !self.reads {
            return;
        }
        let is_complete = entries.len() < MAX_READ;
        let own = format!("{}:", self.settings.instance);
        for entry in entries {
            let is_known = !self.known.add(entry.id, &entry.token);
            let is_old = match &mut self.reading {
                Reading::After(after) => {
                    *after = entry.id;
                    false
                }
                Reading::Again { after, has_known } => {
                    *after = entry.id;
                    *has_known |= is_known;
                    is_known || !*has_known
                }
            };
            if !is_old && !entry.token.starts_with(&own) && !entry.payload.is_empty() {
                self.apply(entry.payload, steps);
            }
        }
        self.has_more = !is_complete;
        let lease_from = is_complete.then_some(self.sent);
        match self.reading {
            Reading::After(position) => self.end_batch(position, lease_from),
            Reading::Again { after, has_known: true } if is_complete => {
                self.reading = Reading::After(after);
                self.end_batch(after, lease_from);
            }
            Reading::Again { .. } if is_complete => self.drop_all(last, Remark::Lost, steps),
            Reading::Again { .. } => {}
        }
    }

    /// Counts what the fronts have applied.
    fn advance(&mut self, steps: &mut Vec<Step>) {
        let next = self.applying.first().copied().unwrap_or(u64::MAX);
        while self.batches.front().is_some_and(|batch| batch.last_mark < next) {
            let Some(batch) = self.batches.pop_front() else { return };
            if batch.era != self.era_number {
                continue;
            }
            let Some(era) = self.era.clone() else { continue };
            let position = Position { era, id: batch.position };
            if self.applied.as_ref() != Some(&position) {
                self.applied = Some(position);
                self.must_tell = true;
            }
            if let Some(from) = batch.lease_from {
                self.extend_lease(from, steps);
            }
        }
    }

    fn extend_lease(&mut self, from: Millis, steps: &mut Vec<Step>) {
        let until = from.saturating_add(self.settings.lease);
        if from < self.muted_until || until <= self.lease_until {
            return;
        }
        self.lease_until = until;
        let step = (self.settings.lease / 16).clamp(1, 500);
        if until >= self.lease_said.saturating_add(step) {
            self.lease_said = until;
            steps.push(Step::Lease(until));
        }
    }

    fn report_overdue(&mut self, now: Millis) -> Vec<Step> {
        let overdue = self.outgoing.overdue(now, self.is_up == Some(false));
        self.outgoing.bound();
        overdue.into_iter().map(|(number, how)| Step::Report(number, how)).collect()
    }
}
