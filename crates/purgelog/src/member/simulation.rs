//! Nodes, a Redis and a network with faults of all kinds, in virtual time. No node may serve a page
//! that was purged everywhere before it was asked.

use std::collections::BTreeMap;

use super::*;

const LEASE: Millis = 1000;
const TIMEOUT: Millis = 200;
const NODES: usize = 3;
const KEYS: u32 = 150;
/// The faults of a simulation, by their numbers in [`World::fault`], and the entries of the stream.
const PROFILES: [(&[u32], usize); 4] = [
    (&[0, 1, 2, 3, 4, 5, 6], 40),
    // Nodes are away, and the stream is trimmed meanwhile.
    (&[0, 0, 1], 6),
    // Nodes are away while another Redis takes over.
    (&[0, 0, 1, 4], 200),
    (&[4, 4, 6], 6),
];

#[derive(Debug, Clone, Default)]
struct Data {
    stream: Vec<Entry>,
    last: EntryId,
    nodes: BTreeMap<String, String>,
    era: Option<(String, u64, Millis)>,
}

#[derive(Debug, Default)]
struct Redis {
    data: Data,
    /// Its data in the past three seconds.
    saved: VecDeque<Data>,
    run: u64,
    is_up: bool,
    ahead: Millis,
    length: usize,
}

impl Redis {
    fn execute(&mut self, node: &str, round: &Round, now: Millis) -> RoundReply {
        let clock = now + self.ahead;
        let data = &mut self.data;
        let registered = data.nodes.insert(node.to_owned(), round.registration.clone());
        for name in &round.forget {
            data.nodes.remove(name);
        }
        if let Some(era) = &round.establish {
            data.era = Some((era.clone(), self.run, clock));
        }
        let mut added = Vec::new();
        for addition in &round.add {
            let least = EntryId { millis: data.last.millis, number: data.last.number + 1 };
            let id = least.max(EntryId { millis: clock, number: 0 });
            let Addition { token, payload } = addition.clone();
            data.stream.push(Entry { id, token, payload });
            data.last = id;
            added.push(id);
        }
        let more = data.stream.len().saturating_sub(self.length);
        data.stream.drain(..more);
        let era = data.era.as_ref().filter(|(_, run, _)| *run == self.run);
        let later = data.stream.iter().filter(|one| Some(one.id) > round.read_after);
        let entries = match round.read_after {
            Some(_) => later.take(MAX_READ).cloned().collect(),
            None => Vec::new(),
        };
        RoundReply {
            era: era.map(|(name, ..)| name.clone()),
            era_age: era.map_or(0, |(.., since)| clock.saturating_sub(*since)),
            registered,
            added,
            ends: data
                .stream
                .first()
                .map(|first| (first.id, data.stream[data.stream.len() - 1].id)),
            entries,
            nodes: data.nodes.clone().into_iter().collect(),
        }
    }
}

#[derive(Debug)]
struct InFlight {
    round: Round,
    run: u64,
    arrives: Millis,
    reply: Option<(Millis, RoundReply)>,
    given_up: Millis,
}

#[derive(Debug)]
struct Node {
    name: String,
    /// Its clock, in thousandths of the true one.
    rate: Millis,
    member: Option<Member>,
    starts: u64,
    has_disk: bool,
    is_cut: bool,
    stopped_until: Millis,
    connected: Option<u64>,
    retry_at: Millis,
    in_flight: Option<InFlight>,
    /// Rounds that were given up but may still arrive.
    strays: Vec<InFlight>,
    fronts: Vec<(Millis, u64, String)>,
    lease: Millis,
    pages: BTreeMap<u32, u64>,
    saved: Option<Position>,
    last_number: u64,
    sent: BTreeMap<u64, (u32, u64)>,
}

impl Node {
    fn clock(&self, now: Millis) -> Millis {
        now * self.rate / 1000
    }

    fn start(&mut self) {
        self.starts += 1;
        let start = match (self.has_disk, &self.saved) {
            (true, Some(position)) => Start::At(position.clone()),
            (true, None) => Start::Unknown,
            (false, _) => {
                self.pages.clear();
                Start::Cold
            }
        };
        let settings = MemberSettings {
            node: self.name.clone(),
            instance: format!("{}{}", self.name, self.starts),
            lease: LEASE,
            timeout: TIMEOUT,
            everything: "all".to_owned(),
        };
        self.member = Some(Member::new(settings, start));
        (self.lease, self.connected, self.in_flight) = (0, None, None);
        self.fronts.clear();
        self.sent.clear();
    }

    fn kill(&mut self) {
        self.member = None;
        self.strays.extend(self.in_flight.take());
        self.connected = None;
    }

    fn apply(&mut self, payload: &str) {
        match payload.parse::<u32>() {
            Ok(key) => drop(self.pages.remove(&key)),
            Err(_) => self.pages.clear(),
        }
    }
}

struct World {
    random: fastrand::Rng,
    faults: &'static [u32],
    now: Millis,
    redis: Redis,
    nodes: Vec<Node>,
    truth: BTreeMap<u32, u64>,
    promised: BTreeMap<u32, u64>,
    /// Purges, those that were everywhere, hits.
    counts: [u64; 3],
    drops: u64,
    /// No fault any more.
    is_calm: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut nodes = Vec::new();
        for number in 0..NODES {
            let mut node = Node {
                name: format!("n{number}"),
                rate: random.u64(960..1040),
                member: None,
                starts: 0,
                has_disk: number > 0,
                is_cut: false,
                stopped_until: 0,
                connected: None,
                retry_at: 0,
                in_flight: None,
                strays: Vec::new(),
                fronts: Vec::new(),
                lease: 0,
                pages: BTreeMap::new(),
                saved: None,
                last_number: 0,
                sent: BTreeMap::new(),
            };
            node.start();
            nodes.push(node);
        }
        let (faults, length) = PROFILES[seed as usize % PROFILES.len()];
        World {
            random,
            faults,
            now: 100_000,
            redis: Redis { run: 1, is_up: true, ahead: 5_000, length, ..Redis::default() },
            nodes,
            truth: BTreeMap::new(),
            promised: BTreeMap::new(),
            counts: [0; 3],
            drops: 0,
            is_calm: false,
        }
    }

    fn steps(&mut self, at: usize, steps: Vec<Step>) {
        for step in steps {
            let node = &mut self.nodes[at];
            match step {
                Step::Apply { mark, payload } => {
                    self.drops += u64::from(payload == "all");
                    let is_slow = !self.is_calm && self.random.u32(0..100) == 0;
                    let slow = if is_slow { LEASE } else { 5 };
                    let due = self.now + self.random.u64(0..slow);
                    node.fronts.push((due, mark, payload));
                }
                Step::Lease(until) => node.lease = until,
                Step::Report(number, Outcome::Everywhere) => {
                    let (key, version) = node.sent[&number];
                    let promised = self.promised.entry(key).or_default();
                    *promised = version.max(*promised);
                    self.counts[1] += 1;
                }
                Step::Report(..) => {}
                Step::Say(_) => {}
            }
        }
    }

    fn fault(&mut self) {
        let at = self.random.usize(0..NODES);
        let until = self.now + self.random.u64(1..4 * LEASE);
        let fault = self.faults[self.random.usize(0..self.faults.len())];
        let node = &mut self.nodes[at];
        match fault {
            0 => node.is_cut = !node.is_cut,
            1 => node.stopped_until = until,
            2 if node.member.is_some() => node.kill(),
            2 => node.start(),
            3 => self.redis.is_up = !self.redis.is_up,
            4 => {
                // It restarts, or another one takes over: some seconds are lost.
                let redis = &mut self.redis;
                let back = self.random.usize(0..redis.saved.len().max(1));
                redis.data = redis.saved.get(back).cloned().unwrap_or_default();
                redis.run += 1;
                redis.ahead = self.random.u64(4_000..6_000);
                redis.is_up = true;
            }
            5 => self.redis.data = Data::default(),
            _ => {
                // A restart without data.
                self.redis.data = Data::default();
                self.redis.run += 1;
            }
        }
    }

    fn redis_tick(&mut self) {
        let now = self.now;
        if now.is_multiple_of(20) {
            self.redis.saved.push_front(self.redis.data.clone());
            self.redis.saved.truncate(150);
        }
        for at in 0..NODES {
            let node = &mut self.nodes[at];
            let mut strays = std::mem::take(&mut node.strays);
            let mut arrived: Vec<InFlight> = Vec::new();
            arrived.extend(strays.extract_if(.., |one| one.arrives <= now));
            node.strays = strays;
            let back = now + self.random.u64(0..8);
            for one in arrived {
                if self.redis.is_up && one.run == self.redis.run && !node.is_cut {
                    self.redis.execute(&node.name, &one.round, now);
                }
            }
            let Some(one) = node.in_flight.as_mut() else { continue };
            let is_open = self.redis.is_up && one.run == self.redis.run && !node.is_cut;
            if one.reply.is_none() && one.arrives <= now && is_open {
                one.reply = Some((back, self.redis.execute(&node.name, &one.round, now)));
            }
        }
    }

    fn node_tick(&mut self, at: usize) {
        let now = self.now;
        let clock = self.nodes[at].clock(now);
        let node = &mut self.nodes[at];
        if node.stopped_until > now {
            return;
        }
        let Some(member) = &mut node.member else { return };
        let mut steps = member.tick(clock);
        if now.is_multiple_of(300) {
            node.saved = member.position().cloned().or(node.saved.take());
        }
        if let Some(due) = node.fronts.iter().position(|(due, ..)| *due <= now) {
            let (_, mark, payload) = node.fronts.remove(due);
            steps.extend(member.applied(mark));
            node.apply(&payload);
        }
        let Some(member) = &mut node.member else { return };
        let is_back = |one: &InFlight| one.reply.as_ref().is_some_and(|(back, _)| *back <= now);
        if node.in_flight.as_ref().is_some_and(is_back) && !node.is_cut {
            if let Some((_, reply)) = node.in_flight.take().and_then(|one| one.reply) {
                steps.extend(member.replied(reply, clock));
            }
        } else if let Some(one) = node.in_flight.take_if(|one| one.given_up <= now) {
            steps.extend(member.lost(clock));
            if one.reply.is_none() {
                node.strays.push(one);
            }
            (node.connected, node.retry_at) = (None, now + 30);
        }
        if node.connected.is_none() && node.retry_at <= now {
            match self.redis.is_up && !node.is_cut {
                true => node.connected = Some(self.redis.run),
                false => {
                    steps.extend(member.lost(clock));
                    node.retry_at = now + 30;
                }
            }
        }
        if let (Some(run), None) = (node.connected, &node.in_flight) {
            // A push of new entries, which may be late or lost.
            if self.random.u32(0..10) == 0 {
                member.hint();
            }
            if member.round_at() <= clock {
                let round = member.round(clock);
                let slow =
                    if !self.is_calm && self.random.u32(0..50) == 0 { 3 * TIMEOUT } else { 8 };
                let arrives = now + self.random.u64(0..slow);
                let given_up = now + TIMEOUT;
                node.in_flight = Some(InFlight { round, run, arrives, reply: None, given_up });
            }
        }
        self.steps(at, steps);
    }

    fn client(&mut self, at: usize, key: u32) {
        let node = &mut self.nodes[at];
        if node.stopped_until > self.now || node.member.is_none() {
            return;
        }
        let has_lease = node.clock(self.now) < node.lease;
        if let Some(version) = node.pages.get(&key).filter(|_| has_lease) {
            let promised = self.promised.get(&key).copied().unwrap_or_default();
            assert!(*version >= promised, "{}: {key} of {version}, not {promised}", node.name);
            self.counts[2] += 1;
            return;
        }
        node.pages.insert(key, self.truth.get(&key).copied().unwrap_or_default());
    }

    fn purge(&mut self, at: usize, key: u32) {
        let (now, node) = (self.now, &mut self.nodes[at]);
        let clock = node.clock(now);
        if node.stopped_until > now {
            return;
        }
        let Some(member) = &mut node.member else { return };
        let version = self.truth.entry(key).or_default();
        *version += 1;
        node.last_number += 1;
        node.sent.insert(node.last_number, (key, *version));
        node.pages.remove(&key);
        self.counts[0] += 1;
        let steps = member.submit(node.last_number, key.to_string(), clock);
        self.steps(at, steps);
    }

    fn run(&mut self, until: Millis, faults: u32) {
        self.is_calm = faults == 0;
        while self.now < until {
            self.now += 1;
            if faults > 0 && self.random.u32(0..faults) == 0 {
                self.fault();
            }
            self.redis_tick();
            for at in 0..NODES {
                self.node_tick(at);
                let key = self.random.u32(0..KEYS);
                self.client(at, key);
                if self.random.u32(0..60) == 0 {
                    self.purge(at, key);
                }
            }
        }
    }
}

fn live(seed: u64, faults: u32) -> World {
    let mut world = World::new(seed);
    world.run(130_000, faults);
    // Everything is mended, and a while later each purge is applied everywhere.
    world.redis.is_up = true;
    for node in &mut world.nodes {
        (node.is_cut, node.stopped_until) = (false, 0);
        if node.member.is_none() {
            node.start();
        }
    }
    world.run(130_000 + 6 * LEASE, 0);
    world.counts = [0; 3];
    world.run(130_000 + 8 * LEASE, 0);
    world
}

#[test]
fn whatever_happens_no_node_serves_a_page_that_was_purged_everywhere() {
    let mut all = [0; 3];
    for seed in 0..48 {
        let faults = [150, 400, 900, 2000][seed as usize / 4 % 4];
        let mut world = World::new(seed);
        world.run(115_000, faults);
        all.iter_mut().zip(world.counts).for_each(|(sum, count)| *sum += count);
    }
    let [purges, everywhere, hits] = all;
    assert!(everywhere > purges / 10 && hits > 40_000, "{all:?}");
}

#[test]
fn once_all_is_well_again_each_purge_is_everywhere_in_time() {
    for seed in (100..120).step_by(2) {
        let world = live(seed, 400);
        let [purges, everywhere, hits] = world.counts;
        assert!(everywhere + 5 > purges && purges > 50, "{seed}: {:?}", world.counts);
        assert!(hits > 1000, "{seed}: {:?}", world.counts);
    }
}

#[test]
fn a_redis_that_keeps_its_data_costs_no_page_when_it_restarts() {
    let mut world = World::new(2);
    world.run(105_000, 0);
    world.drops = 0;
    world.redis.run += 1;
    world.run(110_000, 0);
    assert_eq!(world.drops, 0);
}
