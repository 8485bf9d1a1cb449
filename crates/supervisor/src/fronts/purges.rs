//! Purges on their way to the fronts. Usually there is one front, which carries out what a command
//! requests. During an upgrade there are several, and each is notified of what another one has
//! dropped before that counts as done.

use maitred_config::{PurgeLog, PurgeLogPlace};
use maitred_control::ToFront;
use maitred_control::admin::Reply;
use maitred_control::purge::{DroppedPages, PurgeOrder, PurgeRequest};
use maitred_control::purge_log::{PurgeReach, ToPurgeLog};

use tracing::warn;

use crate::fronts::Fronts;
use crate::fronts::site_budgets::{
    MAX_COLLECTED, MERGED_EVERY, PURGES_PER_SECOND, Passage, SiteBudgets,
};
use crate::fronts::unconfirmed_purges::{bytes_of, merged, shortened};
use crate::limits::{Moment, PURGE_ANSWER};

/// Most pending purges. Those of scripts and clients are not among them while there is one front.
const MAX_PENDING: usize = 4096;

/// Most pending purges of other nodes. The process that applies them has no more than 256 under
/// way, and those of its predecessor may be pending as well.
const MAX_OF_NODES: usize = 1024;

/// Most bytes, about, of purges that wait for the process that passes them on. More become one of
/// all pages of their sites.
const MAX_FOR_LOG_BYTES: usize = 4 * 1024 * 1024;

/// Who waits for a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PurgeRequester {
    /// A command, which polls the outcome by the purge's number.
    Command,
    /// The front of this line, by the number of its report.
    Front(u32, u64),
    /// A front that has ended: the next one of its line counts its own reports from 1.
    EndedFront,
    /// An upgrade, before there is a second front.
    Upgrade,
    /// Another node, by the number of the process that passes purges on and that of its report.
    Node(u32, u64),
}

/// What comes after a front that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextFront {
    /// Another one of its line, which reads the pages on disk.
    Comes,
    /// Another one of its line, or that of the program that is being replaced goes on.
    MayCome,
    /// None.
    None,
}

/// A front's report of dropped pages.
#[derive(Debug)]
pub struct PagesDropped {
    /// Its line.
    pub line: u32,
    /// The number of the report.
    pub mark: u64,
    /// Which pages.
    pub dropped: Vec<DroppedPages>,
    /// Whether the front waits for other nodes as well.
    pub awaits_nodes: bool,
    /// Whether the method of a client's request alone is the cause.
    pub by_method: bool,
}

impl PurgeRequester {
    /// Whether a front has to do it, even if none runs now: one that is being started has pages of
    /// the disk.
    fn wants_a_front(self) -> bool {
        matches!(self, PurgeRequester::Command | PurgeRequester::Node(..))
    }
}

/// What a purge waits for beside the fronts.
#[derive(Debug, PartialEq, Eq)]
enum OtherNodes {
    /// Nothing.
    NotAwaited,
    /// The report of the purge log.
    Awaited,
    /// Nothing more.
    Reported(PurgeReach),
}

/// A purge that not all fronts have carried out.
#[derive(Debug)]
struct PendingPurge {
    mark: u64,
    order: PurgeOrder,
    requester: PurgeRequester,
    /// The lines of the fronts that have not carried it out.
    missing: Vec<u32>,
    /// The result of a front, if there is one.
    outcome: Option<(u32, Result<Vec<String>, String>)>,
    nodes: OtherNodes,
    /// The number under which other nodes get it, alone or with others.
    sent_as: u64,
    until: Moment,
}

impl PendingPurge {
    /// The front of a line has carried it out. Of several results, that of the newest front counts:
    /// it has the configuration in use.
    fn done_by(&mut self, line: u32, outcome: Result<Vec<String>, String>) {
        self.missing.retain(|missing| *missing != line);
        if self.outcome.as_ref().is_none_or(|(by, _)| *by < line) {
            self.outcome = Some((line, outcome));
        }
    }

    /// The front of a line has ended.
    fn lost(&mut self, line: u32, next: NextFront) {
        if !self.missing.contains(&line) {
            return;
        }
        let is_for_next = self.requester != PurgeRequester::Upgrade;
        if next == NextFront::Comes && is_for_next {
            self.outcome = None;
            return;
        }
        self.missing.retain(|missing| *missing != line);
        if next == NextFront::MayCome && is_for_next {
            self.outcome = None;
        } else if !self.requester.wants_a_front() && self.missing.is_empty() {
            self.outcome.get_or_insert((0, Ok(Vec::new())));
        }
    }

    /// The reply to the command that has requested it.
    fn reply(self) -> Reply {
        let complaint = self.complaint();
        match self.outcome.filter(|_| self.missing.is_empty()) {
            Some((_, Ok(what))) => match complaint {
                Some(why) => Reply::PurgedHere { what, why },
                None => Reply::Purged { what },
            },
            Some((_, Err(why))) => Reply::Refused { why },
            None => Reply::Failed {
                why: format!(
                    "not every front has said within {} s that it is done; look at the log and try \
                     again",
                    PURGE_ANSWER.as_secs()
                ),
            },
        }
    }

    /// Why other nodes may still serve the pages, in one clause.
    fn complaint(&self) -> Option<String> {
        match &self.nodes {
            OtherNodes::NotAwaited | OtherNodes::Awaited => None,
            OtherNodes::Reported(reach) => reach.complaint(),
        }
    }

    /// Whether the fronts have done it.
    fn is_done_here(&self) -> bool {
        self.missing.is_empty() && self.outcome.is_some()
    }

    fn is_over(&self, now: Moment) -> bool {
        let is_refused = self.outcome.as_ref().is_some_and(|(_, outcome)| outcome.is_err());
        let awaits_nodes = self.nodes == OtherNodes::Awaited && !is_refused;
        self.until <= now || (self.is_done_here() && !awaits_nodes)
    }
}

/// Pending purges, and outcomes that commands have not polled.
#[derive(Debug, Default)]
pub struct PurgeCoordinator {
    last: u64,
    pending: Vec<PendingPurge>,
    /// Outcomes for commands, by number.
    outcomes: Vec<(u64, Reply)>,
    /// There is a purge log.
    has_log: bool,
    /// The other nodes, if there is no Redis.
    peers: Vec<String>,
    log_runs: bool,
    /// The next program takes over soon, and passes on what this one does not.
    is_upgrading: bool,
    /// For the process that passes purges on.
    for_log: Vec<ToPurgeLog>,
    /// Bytes of the purges among that, about.
    for_log_bytes: usize,
    budgets: SiteBudgets,
    /// The number of that process.
    log_process: u32,
}

impl PurgeCoordinator {
    /// One without purges.
    pub fn new(log: Option<&PurgeLog>) -> PurgeCoordinator {
        let peers = match log.map(|log| &log.place) {
            Some(PurgeLogPlace::Peers(peers)) => {
                peers.addresses.iter().map(ToString::to_string).collect()
            }
            Some(PurgeLogPlace::Redis { .. }) | None => Vec::new(),
        };
        PurgeCoordinator {
            has_log: log.is_some(),
            peers,
            budgets: SiteBudgets::new(log.map_or(0, |log| log.length)),
            ..PurgeCoordinator::default()
        }
    }

    /// What has become of a purge of which the log has reported nothing.
    fn not_reported(&self) -> PurgeReach {
        match self.peers.is_empty() {
            _ if self.is_upgrading => PurgeReach::Upgrading,
            true => PurgeReach::Queued,
            false => PurgeReach::Missing(self.peers.clone()),
        }
    }

    fn begin(
        &mut self,
        order: PurgeOrder,
        requester: PurgeRequester,
        missing: Vec<u32>,
        now: Moment,
    ) -> u64 {
        self.last += 1;
        // Without a front to wait for, it is done; but a command wants the report of one.
        let outcome =
            (missing.is_empty() && !requester.wants_a_front()).then(|| (0, Ok(Vec::new())));
        self.pending.push(PendingPurge {
            mark: self.last,
            order,
            requester,
            missing,
            outcome,
            nodes: OtherNodes::NotAwaited,
            sent_as: self.last,
            until: now + PURGE_ANSWER,
        });
        self.last
    }

    /// Whether nothing is pending.
    pub fn are_done(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the old front has not confirmed yet that it will report its purges.
    pub fn prepares_upgrade(&self) -> bool {
        let mut requesters = self.pending.iter().map(|pending| pending.requester);
        requesters.any(|requester| requester == PurgeRequester::Upgrade)
    }

    /// The outcome of the purge of a command, once that is known.
    pub fn outcome(&mut self, mark: u64) -> Option<Reply> {
        let at = self.outcomes.iter().position(|(of, _)| *of == mark)?;
        Some(self.outcomes.swap_remove(at).1)
    }

    /// When a purge times out.
    pub fn deadline(&self) -> Option<Moment> {
        let pending = self.pending.iter().map(|pending| pending.until);
        pending.chain(self.budgets.deadline()).min()
    }

    /// Has all fronts drop what a command requests. Returns the number by which the outcome is
    /// found.
    ///
    /// # Errors
    /// When too many purges are pending.
    pub fn purge(
        &mut self,
        request: PurgeRequest,
        fronts: &mut Fronts,
        now: Moment,
    ) -> Result<u64, String> {
        if self.pending.len() >= MAX_PENDING {
            return Err("too many purges are on their way; try again in a moment".to_owned());
        }
        let lines = fronts.lines_to_purge();
        let order = PurgeOrder::Asked(request);
        let mark = self.order(order.clone(), PurgeRequester::Command, lines, fronts, now);
        self.publish(mark, order, true, now);
        Ok(mark)
    }

    /// Passes a purge on to the other nodes, at once or with others of its site.
    fn publish(&mut self, number: u64, order: PurgeOrder, is_awaited: bool, now: Moment) {
        if !self.has_log {
            return;
        }
        let sent_as = match self.budgets.pass(number, &order, now) {
            Passage::Now => {
                self.pass_on(number, order);
                number
            }
            Passage::Merged { number, is_news } => {
                if is_news {
                    warn_of_budget(&order);
                }
                number
            }
        };
        let not_reported = self.not_reported();
        if let Some(one) = self.pending.iter_mut().find(|one| one.mark == number && is_awaited) {
            one.sent_as = sent_as;
            one.nodes = match self.log_runs {
                true => OtherNodes::Awaited,
                false => OtherNodes::Reported(not_reported),
            };
        }
    }

    /// The same for what the method of a client's request drops: nothing waits for other nodes, and
    /// other purges of its site are not merged with it.
    fn publish_by_method(&mut self, number: u64, order: PurgeOrder, now: Moment) {
        if !self.has_log {
            return;
        }
        match self.budgets.pass_by_method(number, &order, now) {
            Passage::Now => self.pass_on(number, order),
            Passage::Merged { is_news: true, .. } => warn_of_methods(&order),
            Passage::Merged { .. } => {}
        }
    }

    fn pass_on(&mut self, number: u64, order: PurgeOrder) {
        // Those of a site may have been merged with others that a front has named.
        let order = shortened(order);
        self.for_log_bytes += bytes_of(&order);
        self.for_log.push(ToPurgeLog::Publish { number, order });
        if self.for_log.len() > MAX_PENDING || self.for_log_bytes > MAX_FOR_LOG_BYTES {
            let order = merged(self.for_log.iter().filter_map(published));
            self.for_log.retain(|order| published(order).is_none());
            self.for_log_bytes = bytes_of(&order);
            self.for_log.push(ToPurgeLog::Publish { number, order });
        }
    }

    /// Whether the process that passes purges on runs. Otherwise it is not waited for.
    pub fn set_log_runs(&mut self, log_runs: bool) {
        self.log_runs = log_runs;
    }

    /// Whether the next program takes over soon: then no purge waits for other nodes, which get it
    /// from that one.
    pub fn set_upgrading(&mut self, is_upgrading: bool) {
        self.is_upgrading = is_upgrading;
        if is_upgrading {
            let reach = self.not_reported();
            let awaited = self.pending.iter_mut().filter(|one| one.nodes == OtherNodes::Awaited);
            awaited.for_each(|one| one.nodes = OtherNodes::Reported(reach.clone()));
        }
    }

    /// The purges that the process that passes them on was not sent.
    pub fn unsent(&self) -> impl Iterator<Item = &PurgeOrder> {
        self.for_log.iter().filter_map(published).chain(self.budgets.waiting())
    }

    /// Takes what the process that passes purges on is to be sent; `is_last`: it is sent nothing
    /// later.
    pub fn take_for_log(&mut self, is_last: bool) -> Vec<ToPurgeLog> {
        if is_last {
            self.pass_on_merged(Moment::MAX);
        }
        self.for_log_bytes = 0;
        std::mem::take(&mut self.for_log)
    }

    fn pass_on_merged(&mut self, now: Moment) {
        for (number, order) in self.budgets.take_due(now) {
            self.pass_on(number, order);
        }
    }

    /// The process has reported the outcome of a purge.
    pub fn reached(&mut self, number: u64, reach: &PurgeReach) {
        let awaited = self.pending.iter_mut().filter(|one| one.nodes == OtherNodes::Awaited);
        for one in awaited.filter(|one| one.sent_as == number) {
            one.nodes = OtherNodes::Reported(reach.clone());
        }
    }

    /// Another node has purged pages. False: the process that reports it has more under way than it
    /// may have, and this one is left out.
    #[must_use]
    pub fn purge_of_node(
        &mut self,
        mark: u64,
        order: PurgeOrder,
        fronts: &mut Fronts,
        now: Moment,
    ) -> bool {
        let of_nodes = |one: &&PendingPurge| matches!(one.requester, PurgeRequester::Node(..));
        if self.pending.iter().filter(of_nodes).count() >= MAX_OF_NODES {
            return false;
        }
        let order = match order {
            PurgeOrder::Asked(asked) => PurgeOrder::OfNode(asked),
            other => other,
        };
        let order = shortened(order);
        let requester = PurgeRequester::Node(self.log_process, mark);
        let lines = fronts.lines_to_purge();
        self.order(order, requester, lines, fronts, now);
        true
    }

    /// The process that passes purges on has ended. The next one is sent again what it was sent.
    pub fn log_process_ended(&mut self) {
        self.log_process += 1;
        self.for_log.retain(|order| published(order).is_some());
    }

    /// A front has dropped pages: the others drop them, too.
    pub fn dropped(&mut self, report: PagesDropped, fronts: &mut Fronts, now: Moment) {
        let PagesDropped { line, mark, dropped, awaits_nodes, by_method } = report;
        let mut others = fronts.lines_to_purge();
        others.retain(|other| *other != line);
        let order = shortened(PurgeOrder::Dropped(dropped));
        let requester = PurgeRequester::Front(line, mark);
        let number = self.order(order.clone(), requester, others, fronts, now);
        match by_method {
            true => self.publish_by_method(number, order, now),
            false => self.publish(number, order, awaits_nodes, now),
        }
        self.finish(fronts, now);
    }

    /// Before there is a second front, the first one has to report what it drops.
    pub fn prepare_second_front(&mut self, fronts: &mut Fronts, now: Moment) {
        self.order_peers(true, fronts, now);
        self.finish(fronts, now);
    }

    fn order_peers(&mut self, has_peers: bool, fronts: &mut Fronts, now: Moment) {
        let order = PurgeOrder::Company(has_peers);
        let lines = fronts.lines();
        self.order(order, PurgeRequester::Upgrade, lines, fronts, now);
    }

    fn order(
        &mut self,
        order: PurgeOrder,
        requester: PurgeRequester,
        lines: Vec<u32>,
        fronts: &mut Fronts,
        now: Moment,
    ) -> u64 {
        let mark = self.begin(order.clone(), requester, lines.clone(), now);
        for line in lines {
            let order = order.clone();
            fronts.tell(line, ToFront::Purge { order, mark });
        }
        mark
    }

    /// The orders for a front that is being started: whether there are others, and the pending
    /// purges. It may have read pages from disk that were purged before.
    pub fn orders_for_new_front(&mut self, fronts: &Fronts) -> Vec<ToFront> {
        let line = fronts.line();
        let has_peers = fronts.iter().any(|(other, _)| other != line);
        let mut orders = Vec::new();
        if has_peers {
            let order = PurgeOrder::Company(true);
            // The report to number 0 is not waited for.
            orders.push(ToFront::Purge { order, mark: 0 });
        }
        for pending in &mut self.pending {
            if pending.requester != PurgeRequester::Upgrade {
                if !pending.missing.contains(&line) {
                    pending.missing.push(line);
                }
                let (order, mark) = (pending.order.clone(), pending.mark);
                orders.push(ToFront::Purge { order, mark });
            }
        }
        orders
    }

    /// A front has carried a purge out.
    pub fn purged(&mut self, line: u32, mark: u64, outcome: Result<Vec<String>, String>) {
        let mut pending = self.pending.iter_mut();
        if let Some(pending) = pending.find(|pending| pending.mark == mark) {
            pending.done_by(line, outcome);
        }
    }

    /// A front has ended, and its memory cache with it. Its files are taken over by the next front
    /// of its line, which gets the purges that this one may not have carried out. `is_alone`: no
    /// upgrade is going on, so a single front need not report what it drops.
    pub fn front_ended(&mut self, line: u32, is_alone: bool, fronts: &mut Fronts, now: Moment) {
        let next = match line == fronts.line() {
            true if fronts.awaited_line() == Some(line) => NextFront::Comes,
            true => NextFront::MayCome,
            false => NextFront::None,
        };
        for pending in &mut self.pending {
            pending.lost(line, next);
            if matches!(pending.requester, PurgeRequester::Front(of, _) if of == line) {
                pending.requester = PurgeRequester::EndedFront;
            }
        }
        self.finish(fronts, now);
        if is_alone && fronts.iter().count() == 1 {
            self.order_peers(false, fronts, now);
        }
    }

    /// Reports purges that are over to those that wait for them.
    pub fn finish(&mut self, fronts: &mut Fronts, now: Moment) {
        self.pass_on_merged(now);
        let pending = std::mem::take(&mut self.pending);
        let (over, pending): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|one| one.is_over(now));
        self.pending = pending;
        for mut one in over {
            if one.nodes == OtherNodes::Awaited {
                one.nodes = OtherNodes::Reported(self.not_reported());
            }
            match one.requester {
                PurgeRequester::Upgrade | PurgeRequester::EndedFront => {}
                PurgeRequester::Front(line, mark) => {
                    let complaint = one.complaint();
                    fronts.tell(line, ToFront::ConfirmPurge { mark, complaint });
                }
                PurgeRequester::Node(process, mark) if process == self.log_process => {
                    let is_done = one.is_done_here();
                    self.for_log.push(ToPurgeLog::Applied { mark, is_done });
                }
                PurgeRequester::Node(..) => {}
                PurgeRequester::Command => {
                    let mark = one.mark;
                    self.outcomes.push((mark, one.reply()));
                }
            }
        }
    }
}

/// The purge that an order to the process is about.
fn published(order: &ToPurgeLog) -> Option<&PurgeOrder> {
    match order {
        ToPurgeLog::Publish { order, .. } => Some(order),
        _ => None,
    }
}

fn site_of(order: &PurgeOrder) -> Option<&str> {
    let PurgeOrder::Dropped(dropped) = order else { return None };
    dropped.first().map(|one| one.site.as_str())
}

fn warn_of_methods(order: &PurgeOrder) {
    let Some(site) = site_of(order) else { return };
    warn!(
        "site {site}: clients change more than {PURGES_PER_SECOND} pages a second (POST, PUT, \
         DELETE); other nodes drop those pages every {} s, {MAX_COLLECTED} at most, and keep \
         others until they expire",
        MERGED_EVERY.as_secs()
    );
}

fn warn_of_budget(order: &PurgeOrder) {
    let Some(site) = site_of(order) else { return };
    warn!(
        "site {site}: more than {PURGES_PER_SECOND} purges a second are passed on to other nodes \
         as one of all its pages, every {} s",
        MERGED_EVERY.as_secs()
    );
}

#[cfg(test)]
#[path = "purges_tests.rs"]
mod tests;
