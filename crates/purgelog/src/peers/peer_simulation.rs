//! Three nodes whose connections break, which are stopped, killed and started, taken out of the
//! lists of the others and put back, while clients change a page, purge it and read it: a page that
//! was purged everywhere is served by no node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;

use super::followed_logs::{FollowSettings, FollowedLogs};
use super::own_log::{OwnLog, OwnLogSettings};
use super::peer_messages::{LogName, LogPosition, PeerMessage};
use super::{PeerOutcome, PeerStep};
use crate::Millis;

const NODES: usize = 3;
/// Most are purged a few times only: no later purge hides one that was lost.
const PAGES: usize = 150;
const LEASE: Millis = 800;
const TIMEOUT: Millis = 200;
/// Short, so that it is trimmed at times.
const LENGTH: usize = 6;
const START: Millis = 10_000;
const CHAOS_UNTIL: Millis = START + 15_000;
/// When all is well, all nodes are upgraded with purges on their way: no later fault hides one that
/// is lost.
const UPGRADES: Millis = CHAOS_UNTIL + 1500;
const PURGES_UNTIL: Millis = CHAOS_UNTIL + 4500;
const END: Millis = CHAOS_UNTIL + 5000;

/// A connection, opened by one node to follow the log of another.
struct Line {
    from: usize,
    to: usize,
    /// Messages and when they arrive: those of the follower, and those to it.
    ways: [VecDeque<(Millis, PeerMessage)>; 2],
}

struct SimulatedNode {
    own: OwnLog,
    followed: FollowedLogs,
    is_running: bool,
    /// Nothing of it runs until then.
    stopped_until: Millis,
    server: u64,
    /// The other nodes in its list, in the order of their numbers as peers.
    list: Vec<usize>,
    lease: Millis,
    /// The versions of cached pages.
    pages: [Option<u64>; PAGES],
    has_disk: bool,
    on_disk: BTreeMap<usize, LogPosition>,
    /// What the fronts are applying.
    applying: Vec<FrontOrder>,
    /// By their names, until they are everywhere.
    purges: BTreeMap<u64, PurgedPage>,
}

/// A page is dropped then; none: all are.
struct FrontOrder {
    at: Millis,
    mark: u64,
    page: Option<usize>,
}

/// A page that was purged, and its version from then on.
struct PurgedPage {
    page: usize,
    version: u64,
}

/// A node on its way out of the lists of the others, or back.
struct ListChange {
    node: usize,
    is_back: bool,
    /// The nodes that are still to be restarted with their new list.
    todo: Vec<usize>,
}

struct PeerWorld {
    now: Millis,
    rng: Rng,
    nodes: Vec<SimulatedNode>,
    lines: BTreeMap<u64, Line>,
    last: u64,
    cut: BTreeSet<(usize, usize)>,
    change: Option<ListChange>,
    changes: u64,
    content: [u64; PAGES],
    /// No page that is older may be served.
    floor: [u64; PAGES],
    hits: u64,
    successes: u64,
    seed: u64,
}

fn others(node: usize) -> Vec<usize> {
    (0..NODES).filter(|other| *other != node).collect()
}

fn logs(
    log: LogName,
    list: &[usize],
    on_disk: &BTreeMap<usize, LogPosition>,
    now: Millis,
) -> (OwnLog, FollowedLogs) {
    let own = OwnLogSettings { log, peers: list.len(), length: LENGTH, timeout: TIMEOUT };
    let positions = list.iter().map(|other| on_disk.get(other).copied()).collect();
    let follow = FollowSettings { lease: LEASE, positions };
    (OwnLog::new(own, now), FollowedLogs::new(follow, now))
}

impl PeerWorld {
    fn new(seed: u64) -> PeerWorld {
        let mut rng = Rng::with_seed(seed);
        let node = |number| {
            let log = LogName { server: rng.u64(..), process: rng.u64(..) };
            let (list, on_disk) = (others(number), BTreeMap::new());
            let (own, followed) = logs(log, &list, &on_disk, START);
            SimulatedNode {
                own,
                followed,
                is_running: true,
                stopped_until: 0,
                server: log.server,
                list,
                lease: 0,
                pages: [None; PAGES],
                has_disk: rng.bool(),
                on_disk,
                applying: Vec::new(),
                purges: BTreeMap::new(),
            }
        };
        PeerWorld {
            now: START,
            nodes: (0..NODES).map(node).collect(),
            rng,
            lines: BTreeMap::new(),
            last: 0,
            cut: BTreeSet::new(),
            change: None,
            changes: 0,
            content: [1; PAGES],
            floor: [0; PAGES],
            hits: 0,
            successes: 0,
            seed,
        }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The number of another node among the peers of one, if it is in its list.
    fn number_of(&self, node: usize, other: usize) -> Option<usize> {
        self.nodes[node].list.iter().position(|one| *one == other)
    }

    fn is_awake(&self, node: usize) -> bool {
        self.nodes[node].is_running && self.nodes[node].stopped_until <= self.now
    }

    fn act(&mut self, node: usize, steps: Vec<PeerStep>) {
        for step in steps {
            match step {
                PeerStep::Send(connection, message) => {
                    let at = self.now + self.rng.u64(1..10);
                    if let Some(line) = self.lines.get_mut(&connection) {
                        let way = usize::from(line.from != node);
                        let at = line.ways[way].back().map_or(at, |(last, _)| at.max(*last));
                        line.ways[way].push_back((at, message));
                    }
                }
                PeerStep::Close(connection) => self.break_line(connection),
                PeerStep::Apply { mark, payload } => {
                    let at = self.now + self.rng.u64(0..40);
                    let page = payload.and_then(|page| page.parse().ok());
                    self.nodes[node].applying.push(FrontOrder { at, mark, page });
                }
                PeerStep::Lease(until) => self.nodes[node].lease = until,
                PeerStep::Report(name, PeerOutcome::Everywhere) => {
                    if let Some(PurgedPage { page, version }) =
                        self.nodes[node].purges.remove(&name)
                    {
                        self.floor[page] = self.floor[page].max(version);
                        self.successes += 1;
                    }
                }
                PeerStep::Report(_, PeerOutcome::Missing(missing)) => assert!(!missing.is_empty()),
                PeerStep::Say(..) => {}
            }
        }
    }

    fn break_line(&mut self, connection: u64) {
        let Some(Line { from, to, .. }) = self.lines.remove(&connection) else { return };
        if let Some(peer) = self.number_of(from, to) {
            self.nodes[from].followed.lost(peer, connection);
        }
        if let Some(peer) = self.number_of(to, from) {
            self.nodes[to].own.lost(peer, connection, self.now);
        }
    }

    fn break_lines(&mut self, is_broken: impl Fn(&Line) -> bool) {
        let broken = self.lines.iter().filter(|(_, line)| is_broken(line));
        let broken: Vec<u64> = broken.map(|(connection, _)| *connection).collect();
        broken.into_iter().for_each(|connection| self.break_line(connection));
    }

    fn connect(&mut self, from: usize, to: usize) {
        let is_cut = self.cut.contains(&(from.min(to), from.max(to)));
        let is_there = self.lines.values().any(|line| (line.from, line.to) == (from, to));
        if is_cut || is_there || !self.is_awake(from) || !self.is_awake(to) {
            return;
        }
        let Some(peer) = self.number_of(from, to) else { return };
        let (connection, now) = (self.next(), self.now);
        let known = self.nodes[from].followed.connected(peer, connection);
        let Some(follower) = self.number_of(to, from) else {
            let refused = PeerMessage::Refused;
            let steps = self.nodes[from].followed.received(peer, connection, refused, now);
            self.nodes[from].followed.lost(peer, connection);
            return self.act(from, steps);
        };
        self.lines.insert(connection, Line { from, to, ways: [VecDeque::new(), VecDeque::new()] });
        let steps = self.nodes[to].own.followed_by(follower, connection, known);
        self.act(to, steps);
    }

    fn deliver(&mut self) {
        let connections: Vec<u64> = self.lines.keys().copied().collect();
        for (connection, way) in connections.into_iter().flat_map(|one| [(one, 0), (one, 1)]) {
            while let Some(line) = self.lines.get_mut(&connection) {
                let (from, to) = (line.from, line.to);
                let reader = if way == 0 { to } else { from };
                let is_due = line.ways[way].front().is_some_and(|(at, _)| *at <= self.now);
                if !is_due || !self.is_awake(reader) {
                    break;
                }
                let Some((_, message)) =
                    self.lines.get_mut(&connection).and_then(|line| line.ways[way].pop_front())
                else {
                    break;
                };
                let other = if way == 0 { from } else { to };
                let peer = self.number_of(reader, other).expect("lines end with a list");
                let (now, node) = (self.now, &mut self.nodes[reader]);
                let steps = match message {
                    message if way == 1 => node.followed.received(peer, connection, message, now),
                    PeerMessage::Applied { number } => node.own.applied(peer, connection, number),
                    PeerMessage::Ping { number } => {
                        let last = node.own.last();
                        vec![PeerStep::Send(connection, PeerMessage::Pong { number, last })]
                    }
                    other => panic!("{other:?}"),
                };
                self.act(reader, steps);
            }
        }
    }

    fn run_node(&mut self, node: usize) {
        if !self.is_awake(node) {
            return;
        }
        let now = self.now;
        let (done, applying) = std::mem::take(&mut self.nodes[node].applying)
            .into_iter()
            .partition(|one| one.at <= now);
        self.nodes[node].applying = applying;
        let done: Vec<FrontOrder> = done;
        for FrontOrder { mark, page, .. } in done {
            match page {
                Some(page) => self.nodes[node].pages[page] = None,
                None => self.nodes[node].pages = [None; PAGES],
            }
            let steps = self.nodes[node].followed.applied(mark, true, now);
            self.act(node, steps);
        }
        let steps = self.nodes[node].own.tick(now);
        self.act(node, steps);
        if self.nodes[node].followed.deadline() <= now {
            let steps = self.nodes[node].followed.tick(now);
            self.act(node, steps);
        }
        if self.rng.u8(..30) == 0 {
            self.write_positions(node);
        }
    }

    fn write_positions(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let known = node.list.iter().zip(node.followed.positions());
        node.on_disk = known.filter_map(|(other, position)| Some((*other, position?))).collect();
    }

    fn read(&mut self, node: usize) {
        let page = self.rng.usize(..PAGES);
        let one = &mut self.nodes[node];
        if one.lease > self.now {
            let version = *one.pages[page].get_or_insert(self.content[page]);
            assert!(
                version >= self.floor[page],
                "seed {}: node {node} serves {version} at {}, and {} was purged everywhere",
                self.seed,
                self.now,
                self.floor[page]
            );
            self.hits += 1;
        }
    }

    fn purge(&mut self, node: usize) {
        let page = self.rng.usize(..PAGES);
        self.content[page] += 1;
        let (name, version, now) = (self.next(), self.content[page], self.now);
        let one = &mut self.nodes[node];
        one.pages[page] = None;
        one.purges.insert(name, PurgedPage { page, version });
        let steps = one.own.submit(name, page.to_string(), now);
        self.act(node, steps);
    }

    fn kill(&mut self, node: usize) {
        self.break_lines(|line| line.from == node || line.to == node);
        let one = &mut self.nodes[node];
        (one.is_running, one.lease) = (false, 0);
        one.applying.clear();
        one.purges.clear();
        if !one.has_disk {
            one.pages = [None; PAGES];
        }
    }

    /// A proper stop: what it has purged reaches the peers that are connected.
    fn stop(&mut self, node: usize) {
        self.nodes[node].lease = 0;
        let now = self.now;
        let connections: Vec<u64> = self.lines.keys().copied().collect();
        for connection in connections {
            let Some(line) = self.lines.get_mut(&connection).filter(|line| line.to == node) else {
                continue;
            };
            let (from, rest) = (line.from, std::mem::take(&mut line.ways[1]));
            for (_, message) in rest {
                let Some(peer) = self.number_of(from, node) else { continue };
                let steps = self.nodes[from].followed.received(peer, connection, message, now);
                self.act(from, steps);
            }
        }
        self.write_positions(node);
        self.kill(node);
    }

    fn start(&mut self, node: usize) {
        let log = LogName { server: self.rng.u64(..), process: self.rng.u64(..) };
        let now = self.now;
        let one = &mut self.nodes[node];
        if !one.has_disk {
            one.on_disk.clear();
        }
        (one.own, one.followed) = logs(log, &one.list, &one.on_disk, now);
        (one.is_running, one.server, one.stopped_until) = (true, log.server, 0);
    }

    /// Only the process of the log is replaced, as by an upgrade. The supervisor sends the next one
    /// again what peers may lack, as it was or as one purge of everything.
    fn replace_process(&mut self, node: usize) {
        self.break_lines(|line| line.from == node || line.to == node);
        let (process, is_one, now) = (self.rng.u64(..), self.rng.u8(..4) == 0, self.now);
        let one = &mut self.nodes[node];
        let log = LogName { server: one.server, process };
        let on_disk = if one.has_disk { one.on_disk.clone() } else { BTreeMap::new() };
        (one.own, one.followed) = logs(log, &one.list, &on_disk, now);
        one.applying.clear();
        if is_one && let Some((last, page)) = one.purges.pop_last() {
            one.purges = BTreeMap::from([(last, page)]);
        }
        let payload = |page: usize| if is_one { "all".to_owned() } else { page.to_string() };
        let again = one.purges.iter().map(|(name, purge)| (*name, payload(purge.page)));
        for (name, payload) in again.collect::<Vec<_>>() {
            let steps = self.nodes[node].own.submit(name, payload, now);
            self.act(node, steps);
        }
    }

    /// Begins to take a node out of the lists, which is stopped first, or to put it back.
    fn begin_change(&mut self, node: usize) {
        let out = (0..NODES).find(|one| others(*one).iter().all(|by| !self.has(*by, *one)));
        let (node, is_back) = match out {
            Some(out) => (out, true),
            None => (node, false),
        };
        if !is_back && self.is_awake(node) {
            self.stop(node);
        } else if !is_back {
            self.kill(node);
        }
        self.change = Some(ListChange { node, is_back, todo: others(node) });
        self.changes += 1;
    }

    /// Whether a node has another one in its list.
    fn has(&self, node: usize, other: usize) -> bool {
        self.number_of(node, other).is_some()
    }

    /// Restarts the next node with its new list. One that comes back is started last.
    fn go_on_with_change(&mut self) {
        let Some(ListChange { node, is_back, mut todo }) = self.change.take() else { return };
        let Some(next) = todo.pop() else {
            if is_back {
                // Its pages may have been purged while no node waited for it.
                self.nodes[node].pages = [None; PAGES];
                self.nodes[node].on_disk.clear();
                self.start(node);
            }
            return;
        };
        let was_running = self.nodes[next].is_running;
        if self.is_awake(next) {
            self.stop(next);
        } else {
            self.kill(next);
        }
        self.nodes[next].list = others(next);
        if !is_back {
            self.nodes[next].list.retain(|one| *one != node);
        }
        if was_running {
            self.start(next);
        }
        self.change = Some(ListChange { node, is_back, todo });
    }

    /// Whether a node is to run: all that are in the lists of others, and none on its way back.
    fn may_start(&self, node: usize) -> bool {
        let is_changing = self.change.as_ref().is_some_and(|change| change.node == node);
        !is_changing && others(node).iter().all(|other| self.has(*other, node))
    }

    fn fault(&mut self) {
        let node = self.rng.usize(..NODES);
        let pair = [(0, 1), (0, 2), (1, 2)][self.rng.usize(..3)];
        let is_running = self.nodes[node].is_running;
        match self.rng.u8(..9) {
            0 => drop(self.cut.insert(pair)),
            1 => self.cut.clear(),
            2 | 3 => self.break_lines(|line| line.from == node),
            4 if is_running => self.nodes[node].stopped_until = self.now + self.rng.u64(50..2500),
            5 if self.is_awake(node) => self.kill(node),
            6 if self.is_awake(node) => self.stop(node),
            7 if self.is_awake(node) => self.replace_process(node),
            8 if self.change.is_none() => self.begin_change(node),
            _ if !is_running && self.may_start(node) => self.start(node),
            _ => {}
        }
        let cut = self.cut.clone();
        self.break_lines(|line| cut.contains(&(line.from.min(line.to), line.from.max(line.to))));
    }

    /// All nodes are in all lists again.
    fn end_changes(&mut self) {
        for _ in 0..2 {
            while self.change.is_some() {
                self.go_on_with_change();
            }
            if (0..NODES).any(|node| self.nodes[node].list.len() < NODES - 1) {
                self.begin_change(0);
            }
        }
        while self.change.is_some() {
            self.go_on_with_change();
        }
    }

    fn step(&mut self) {
        self.now += 1;
        let is_chaos = self.now < CHAOS_UNTIL;
        if is_chaos && self.rng.u16(..150) == 0 {
            self.fault();
        }
        if is_chaos && self.rng.u16(..200) == 0 {
            self.go_on_with_change();
        }
        if self.now == CHAOS_UNTIL {
            self.end_changes();
            self.cut.clear();
            for node in 0..NODES {
                self.nodes[node].stopped_until = 0;
                if !self.nodes[node].is_running {
                    self.start(node);
                }
            }
        }
        if self.now == UPGRADES {
            for node in 0..NODES {
                (0..3).for_each(|_| self.purge(node));
                self.replace_process(node);
            }
        }
        for node in 0..NODES {
            // A client may be there before the process of the log.
            if self.is_awake(node) {
                self.read(node);
            }
        }
        for from in 0..NODES {
            for to in others(from) {
                if self.rng.u8(..60) == 0 {
                    self.connect(from, to);
                }
            }
        }
        self.deliver();
        (0..NODES).for_each(|node| self.run_node(node));
        let node = self.rng.usize(..NODES);
        if self.now < PURGES_UNTIL && self.rng.u8(..40) == 0 && self.is_awake(node) {
            self.purge(node);
        }
    }
}

#[test]
fn what_was_purged_everywhere_is_served_by_no_node_whatever_fails() {
    let count = std::env::var("MAITRED_SIMULATIONS").ok().and_then(|text| text.parse().ok());
    let (mut hits, mut successes, mut changes) = (0, 0, 0);
    for seed in 0..count.unwrap_or(40) {
        let mut world = PeerWorld::new(seed);
        while world.now < END {
            world.step();
        }
        hits += world.hits;
        successes += world.successes;
        changes += world.changes;
        // All is well again.
        for node in 0..NODES {
            assert!(world.nodes[node].lease > world.now, "seed {seed}: node {node} has no lease");
            let waiting = world.nodes[node].own.waiting();
            assert_eq!(waiting, 0, "seed {seed}: purges of node {node} wait");
            // Also what no command waits for arrives.
            for (page, content) in world.nodes[node].pages.iter().zip(world.content) {
                let is_new = page.is_none_or(|version| version == content);
                assert!(is_new, "seed {seed}: node {node} has {page:?}, not {content}");
            }
        }
    }
    println!("{hits} pages from caches, {successes} purges everywhere, {changes} changes of lists");
    assert!(hits > 10_000 && successes > 1000 && changes > 10, "{hits} {successes} {changes}");
}
