//! All generations of all pools that run.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use maitred_config::Pool;
use maitred_control::Generation;

use super::plan::PoolPlan;
use super::running_pool::RunningPool;
use super::zygote::Zygote;
use crate::limits::Moment;

/// A running generation of a pool. It stays valid while others are added and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolId(Generation);

impl PoolId {
    /// The id of the generation of this number.
    pub fn of(generation: Generation) -> PoolId {
        PoolId(generation)
    }
}

/// How a generation knows a process, the worst claim first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PidClaim {
    /// Its zygote has announced a worker with this pid, which is not known to be our child.
    Announced,
    /// A worker that is our child.
    Worker,
    /// Its zygote.
    Zygote,
}

/// A generation, and its claim to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidOwner {
    /// The generation.
    pub id: PoolId,
    /// Its claim.
    pub claim: PidClaim,
}

/// How far the start of the server has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartState {
    /// Some pool lacks workers.
    Starting,
    /// Every pool has the workers it starts with, or cannot start.
    Full,
    /// No pool can start.
    Failed,
}

/// The running generations, in the order of their numbers.
#[derive(Debug)]
pub struct Pools {
    running: Vec<RunningPool>,
    last: Generation,
}

impl RunningPool {
    /// Its id.
    pub fn id(&self) -> PoolId {
        PoolId::of(self.generation)
    }

    /// The name of its pool.
    pub fn name(&self) -> &str {
        &self.plan.settings.pool
    }

    fn claim_to(&self, pid: i32) -> Option<PidClaim> {
        let is_it = |zygote: &Zygote| zygote.peer.pid() == pid && zygote.reaped.is_none();
        if self.zygote.as_ref().is_some_and(is_it) {
            Some(PidClaim::Zygote)
        } else if self.workers.contains_key(&pid) {
            Some(PidClaim::Worker)
        } else {
            self.state.knows(pid).then_some(PidClaim::Announced)
        }
    }
}

impl Pools {
    /// A first generation of each pool, without processes, for the first front.
    pub fn new(plans: Vec<PoolPlan>) -> Pools {
        let last = u32::try_from(plans.len()).unwrap_or(u32::MAX);
        let plans = (1..).zip(plans);
        let running = plans.map(|(generation, plan)| RunningPool::new(generation, 1, plan));
        Pools { running: running.collect(), last }
    }

    /// Generations that the previous program has left running; `last` is the highest number that
    /// was given out.
    pub fn inherited(running: Vec<RunningPool>, last: Generation) -> Pools {
        Pools { running, last }
    }

    /// The number of the last generation that was added.
    pub fn last_generation(&self) -> Generation {
        self.last
    }

    /// The number of the next generation.
    pub fn next_generation(&mut self) -> Generation {
        self.last += 1;
        self.last
    }

    /// Adds a generation, whose number is the highest so far.
    pub fn push(&mut self, running: RunningPool) -> PoolId {
        let id = running.id();
        self.running.push(running);
        id
    }

    /// Removes a generation.
    pub fn remove(&mut self, id: PoolId) -> RunningPool {
        let position = self.position(id);
        self.running.remove(position)
    }

    /// The ids of all generations, in ascending order.
    pub fn ids(&self) -> Vec<PoolId> {
        self.running.iter().map(RunningPool::id).collect()
    }

    /// The generation of this number, if it runs.
    pub fn find(&self, generation: Generation) -> Option<PoolId> {
        let mut ids = self.running.iter().map(RunningPool::id);
        ids.find(|id| id.0 == generation)
    }

    /// All generations.
    pub fn iter(&self) -> std::slice::Iter<'_, RunningPool> {
        self.running.iter()
    }

    /// All generations, to be changed.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, RunningPool> {
        self.running.iter_mut()
    }

    /// The generations that requests go to.
    pub fn current(&self) -> impl Iterator<Item = &RunningPool> {
        self.running.iter().filter(|pool| pool.is_current())
    }

    /// The generation that the requests of one pool go to.
    pub fn current_of(&self, name: &str) -> Option<&RunningPool> {
        self.running.iter().rfind(|pool| pool.is_current() && pool.name() == name)
    }

    /// The same, to be changed.
    pub fn current_of_mut(&mut self, name: &str) -> Option<&mut RunningPool> {
        let mut all = self.running.iter_mut();
        all.rfind(|pool| pool.is_current() && pool.name() == name)
    }

    /// The current generations of the pools of these names.
    pub fn current_among(&self, names: &BTreeSet<String>) -> Vec<PoolId> {
        let named = self.current().filter(|pool| names.contains(pool.name()));
        named.map(RunningPool::id).collect()
    }

    /// The current generations whose names are not `configured`.
    pub fn current_unless(&self, configured: impl Fn(&str) -> bool) -> Vec<PoolId> {
        let others = self.current().filter(|pool| !configured(pool.name()));
        others.map(RunningPool::id).collect()
    }

    /// How many workers the current generation of a pool has.
    pub fn workers_of(&self, name: &str) -> u32 {
        let current = self.current().filter(|pool| pool.name() == name);
        current.map(|pool| pool.state.workers()).sum()
    }

    /// How many workers the leaving generations have.
    pub fn leaving_workers(&self) -> usize {
        let leaving = self.running.iter().filter(|old| old.state.is_leaving());
        leaving.map(|old| old.state.seated().count()).sum()
    }

    /// Whether the pool of this name has neither workers nor a zygote.
    pub fn is_at_rest(&self, name: &str) -> bool {
        let mut current = self.current().filter(|pool| pool.name() == name);
        current.any(RunningPool::is_at_rest)
    }

    /// Whether every pool has the workers it starts with. A pool that cannot start does not delay
    /// the others, nor does one that starts after others as long as any is full; once it is `late`,
    /// a pool whose scripts boot does not either.
    pub fn start_state(&self, late: bool) -> StartState {
        let boots =
            |pool: &RunningPool| pool.state.boots_in_vain() || late && pool.state.is_seated();
        let is_ready = |pool: &RunningPool| pool.state.is_full() || pool.failed || boots(pool);
        let fails = |pool: &RunningPool| pool.failed && !pool.boots();
        let mut others = self.running.iter().filter(|pool| !is_ready(pool)).peekable();
        let is_delayed = others.peek().is_some();
        let any_serves = self.running.iter().any(|pool| pool.state.is_full() && !pool.failed);
        if others.any(|pool| !pool.state.was_held()) || is_delayed && !any_serves {
            StartState::Starting
        } else if !self.running.is_empty() && self.running.iter().all(fails) {
            StartState::Failed
        } else {
            StartState::Full
        }
    }

    /// How many workers a generation may have beside the others of its pool: together no more than
    /// `max_children` of the newest and the spare ones, and no more than the pool's `share`.
    pub fn allowance(&self, id: PoolId, share: u32) -> u32 {
        let running = &self[id];
        let own: u32 = self.generations_beside(id).map(|pool| pool.state.workers()).sum();
        // Those of another user count for the share alone.
        let others = self.named(running.name()).filter(|other| other.id() != id);
        let all: u32 = others.map(|pool| pool.state.workers()).sum();
        let most = running.plan.settings.seats.saturating_sub(own).min(share.saturating_sub(all));
        // On trial it has to show one worker, and the others may all be busy for long.
        most.max(u32::from(!running.introduced))
    }

    /// The names of the pools, each once.
    pub fn names(&self) -> BTreeSet<&str> {
        self.running.iter().map(RunningPool::name).collect()
    }

    /// The processes of a pool.
    pub fn pids_of(&self, name: &str) -> Vec<i32> {
        self.named(name).flat_map(RunningPool::pids).collect()
    }

    /// The generations with the best claim to a process, all with the same. A hostile zygote can
    /// announce pids that others will get: its claim counts only where there is no better one.
    pub fn owners_of(&self, pid: i32) -> Vec<PidOwner> {
        let claims = self.running.iter().filter_map(|pool| pool.claim_to(pid));
        let Some(best) = claims.max() else {
            return Vec::new();
        };
        let owners = self.running.iter().filter(|pool| pool.claim_to(pid) == Some(best));
        owners.map(|pool| PidOwner { id: pool.id(), claim: best }).collect()
    }

    /// A process was reaped, and its number may be another's: it is no zygote and no worker any
    /// more, though its end may be held until its output was read. Returns the generations whose
    /// zygote or worker it was.
    pub fn reaped(&mut self, pid: i32, now: Moment) -> Vec<PidOwner> {
        let mut owners = self.owners_of(pid);
        owners.retain(|owner| owner.claim != PidClaim::Announced);
        for PidOwner { id, claim } in &owners {
            let running = &mut self[*id];
            running.workers.remove(&pid);
            if let Some(zygote) = running.zygote.as_mut().filter(|_| *claim == PidClaim::Zygote) {
                zygote.reaped = Some(now);
            }
        }
        owners
    }

    /// Whether a process is a zygote, or a worker of another generation than this one.
    pub fn is_others(&self, id: PoolId, pid: i32) -> bool {
        self.owners_of(pid).iter().any(|owner| match owner.claim {
            PidClaim::Announced => false,
            PidClaim::Worker => owner.id != id,
            PidClaim::Zygote => true,
        })
    }

    /// A generation starts to serve its pool. The one extra worker that a pool has while it moves
    /// from one generation to the next is not one more to replace.
    pub fn take_place(&mut self, id: PoolId) {
        let before = self.generations_beside(id).filter(|one| one.id() < id);
        let serving = before.clone().filter(|one| one.state.workers() > 0);
        let moves = serving.clone().any(|one| one.state.is_leaving());
        let workers: u32 = serving.map(|one| one.state.workers()).sum();
        let asked_at = before.map(|one| one.state.asked_at()).max().flatten();
        let new = &mut self[id];
        new.state.was_asked_at(asked_at);
        new.replaces = workers.saturating_sub(u32::from(moves));
        new.introduced = true;
    }

    /// The current generations of the same pool before this one.
    pub fn current_before(&self, id: PoolId) -> Vec<PoolId> {
        let others = self.generations_beside(id).filter(|other| other.is_current());
        others.map(RunningPool::id).filter(|other| *other < id).collect()
    }

    /// The other generations of the pool of this one. One of another user is of another pool.
    fn generations_beside(&self, id: PoolId) -> impl Iterator<Item = &RunningPool> + Clone {
        let Pool { name, runs_as, .. } = &self[id].plan.configured;
        self.named(name)
            .filter(move |other| other.id() != id && other.plan.configured.runs_as == *runs_as)
    }

    /// Whether every pool has moved to its new generation: no old worker is left, or there are as
    /// many new ones as may be open, or as the old ones were. Then the remaining old ones get no
    /// new request, since others are ready in their stead.
    pub fn have_moved(&self) -> bool {
        self.current().all(|new| {
            let beside = self.generations_beside(new.id());
            let mut old = beside.filter(|old| old.state.is_leaving());
            let enough = new.plan.max_children().min(new.replaces);
            let ready = new.state.seated().count() >= enough as usize;
            ready || old.all(|old| old.state.seated().next().is_none())
        })
    }

    /// The generations of one pool, the oldest first.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &RunningPool> + Clone {
        self.running.iter().filter(move |pool| pool.name() == name)
    }

    fn position(&self, id: PoolId) -> usize {
        let found = self.running.binary_search_by_key(&id, RunningPool::id);
        found.unwrap_or(usize::MAX)
    }
}

impl Index<PoolId> for Pools {
    type Output = RunningPool;

    fn index(&self, id: PoolId) -> &RunningPool {
        &self.running[self.position(id)]
    }
}

impl IndexMut<PoolId> for Pools {
    fn index_mut(&mut self, id: PoolId) -> &mut RunningPool {
        let position = self.position(id);
        &mut self.running[position]
    }
}

impl<'a> IntoIterator for &'a Pools {
    type Item = &'a RunningPool;
    type IntoIter = std::slice::Iter<'a, RunningPool>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Pools {
    type Item = &'a mut RunningPool;
    type IntoIter = std::slice::IterMut<'a, RunningPool>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[cfg(test)]
pub mod tests {
    use std::path::Path;

    use maitred_config::{PoolUser, ProcessManager};
    use maitred_control::WorkerId;
    use maitred_os::channel::Channel;
    use maitred_os::{signals, users};

    use super::*;
    use crate::logging::worker_output::WorkerOutput;
    use crate::peer::Peer;
    use crate::processes::generation::GenerationEvent;
    use crate::system::programs::Programs;

    /// Generations of as many pools, without processes.
    pub fn pools(count: usize) -> Pools {
        let user = if users::is_root() { "user = \"nobody\"\n" } else { "" };
        let sections = (0..count).map(|number| {
            format!(
                "[pools.p{number}]\npm = \"static\"\nmax_children = 1\n{user}[[sites]]\n\
                 hosts = \"h{number}\"\nroot = \"/\"\npool = \"p{number}\"\n"
            )
        });
        let text = sections.collect::<String>();
        let config = maitred_config::parse(&text, Path::new("/maitred.toml")).unwrap();
        let plan = |pool| PoolPlan::make(pool, &config, &Programs::default(), 1).unwrap();
        assert_eq!(config.pools[0].pm, ProcessManager::Static);
        Pools::new(config.pools.iter().map(plan).collect())
    }

    /// The zygote of a generation announces this process as its worker.
    pub fn announce(running: &mut RunningPool, pid: i32) {
        let worker = WorkerId { seat: 0, incarnation: 1 };
        for event in [
            GenerationEvent::Tick,
            GenerationEvent::ZygoteStarted,
            GenerationEvent::Announced { worker, pid },
        ] {
            running.state.on(event, Moment::ZERO);
        }
        assert_eq!(running.state.announced(), [pid]);
    }

    #[test]
    fn workers_of_a_former_user_take_no_seat_of_the_pool_that_has_their_name_now() {
        let mut pools = pools(2);
        let [former, new] = pools.ids()[..] else { panic!("two") };
        pools[former].plan.settings.pool = pools[new].name().to_owned();
        announce(&mut pools[former], 2);
        let seats = pools[new].plan.settings.seats;
        assert_eq!(pools.allowance(new, u32::MAX), seats - 1);
        assert_eq!(pools.current_before(new), [former]);
        pools[former].plan.configured.runs_as = PoolUser::Known { uid: 1, gid: 1 };
        assert_eq!(pools.allowance(new, u32::MAX), seats);
        assert_eq!(pools.allowance(new, 2), 1, "of a limit of all pools they have a part");
        assert_eq!(pools.current_before(new), []);
    }

    #[test]
    fn what_a_zygote_merely_announces_is_the_zygote_or_the_worker_of_another_pool() {
        let mut pools = pools(4);
        let [liar, other_liar, honest, third] = pools.ids()[..] else { panic!("four") };
        let pid = i32::try_from(std::process::id()).unwrap();
        let claims = |pools: &Pools| -> Vec<(PoolId, PidClaim)> {
            pools.owners_of(pid).into_iter().map(|owner| (owner.id, owner.claim)).collect()
        };
        assert_eq!(claims(&pools), []);
        for id in [liar, other_liar] {
            announce(&mut pools[id], pid);
        }
        let both = [(liar, PidClaim::Announced), (other_liar, PidClaim::Announced)];
        assert_eq!(claims(&pools), both, "each is to hear of its end");
        assert!(!pools.is_others(honest, pid), "it may be a worker of the honest one");

        pools[honest].workers.insert(pid, signals::pidfd(pid).unwrap());
        assert_eq!(claims(&pools), [(honest, PidClaim::Worker)]);
        assert!(pools.is_others(liar, pid) && !pools.is_others(honest, pid));

        pools[honest].workers.clear();
        let (ours, _theirs) = Channel::pair().unwrap();
        pools[third].zygote = Some(Zygote::new(Peer::over(pid, ours).unwrap()));
        assert_eq!(claims(&pools), [(third, PidClaim::Zygote)]);
        assert!(pools.is_others(liar, pid) && pools.is_others(third, pid));
    }

    #[test]
    fn outputs_of_announced_workers_that_never_become_children_end_with_the_zygote() {
        let mut pools = pools(1);
        let id = pools.ids()[0];
        let running = &mut pools[id];
        let outputs = |running: &RunningPool| running.outputs.len();
        let add = |running: &mut RunningPool, incarnation, pid| {
            let worker = WorkerId { seat: 0, incarnation };
            let (mut output, _ends) = WorkerOutput::new("www").unwrap();
            output.attribute(pid);
            running.outputs.insert(worker, output);
        };
        let (stranger, own, held) = (i32::MAX, i32::MAX - 1, i32::MAX - 2);
        announce(running, stranger);
        add(running, 1, stranger);
        running.state.on(GenerationEvent::ZygoteEnded, Moment::ZERO);
        running.drop_outputs_without_worker(&[]);
        assert_eq!(outputs(running), 0);

        // The number of a process that has a seat is of no use for another worker.
        let mut pools = self::pools(1);
        let running = &mut pools[id];
        announce(running, own);
        running.state.on(GenerationEvent::Adopted { pid: own }, Moment::ZERO);
        for (incarnation, pid) in [(1, own), (2, own), (3, held)] {
            add(running, incarnation, pid);
        }
        running.state.on(GenerationEvent::ZygoteEnded, Moment::ZERO);
        running.drop_outputs_without_worker(&[held]);
        let left: Vec<u32> = running.outputs.keys().map(|worker| worker.incarnation).collect();
        assert_eq!(left, [1, 3]);
    }

    #[test]
    fn a_worker_that_is_announced_as_another_one_too_has_one_output() {
        let mut pools = pools(1);
        let running = &mut pools.running[0];
        let pid = i32::MAX;
        let attribute = |running: &mut RunningPool, worker: WorkerId| {
            let (output, _ends) = WorkerOutput::new("www").unwrap();
            running.outputs.insert(worker, output);
            running.attribute_output(worker, pid);
            running.outputs[&worker].pid()
        };
        let first = WorkerId { seat: 0, incarnation: 1 };
        assert_eq!(attribute(running, first), None, "it is not ordered");
        for event in [GenerationEvent::Tick, GenerationEvent::ZygoteStarted] {
            running.state.on(event, Moment::ZERO);
        }
        assert_eq!(attribute(running, first), Some(pid));
        for event in [
            GenerationEvent::Announced { worker: first, pid },
            GenerationEvent::Adopted { pid },
            GenerationEvent::Worn { worker: first },
        ] {
            running.state.on(event, Moment::ZERO);
        }
        let second = WorkerId { seat: 1, incarnation: 1 };
        assert!(running.state.expects(second, pid - 1), "it is ordered");
        assert_eq!(attribute(running, second), None);
        // The zygote is killed, and the end of the worker is held.
        running.state.on(GenerationEvent::Announced { worker: second, pid }, Moment::ZERO);
        running.state.on(GenerationEvent::ZygoteEnded, Moment::ZERO);
        running.drop_outputs_without_worker(&[pid]);
        assert!(running.outputs.keys().eq([&first]));
        running.end_output(pid, None);
        assert!(running.outputs.is_empty());
    }

    #[test]
    fn the_number_of_a_process_that_was_reaped_may_be_a_worker_of_another_pool() {
        let mut pools = pools(2);
        let [one, other] = pools.ids()[..] else { panic!("two") };
        let pid = i32::try_from(std::process::id()).unwrap();
        announce(&mut pools[one], pid);
        assert_eq!(pools.reaped(pid, Moment::ZERO), [], "it is announced alone");
        pools[one].workers.insert(pid, signals::pidfd(pid).unwrap());
        assert!(pools.is_others(other, pid));
        // Its end may be held until its output was read.
        let owner = PidOwner { id: one, claim: PidClaim::Worker };
        assert_eq!(pools.reaped(pid, Moment::ZERO), [owner]);
        assert!(pools[one].state.knows(pid) && !pools.is_others(other, pid));
        announce(&mut pools[other], pid);
        pools[other].workers.insert(pid, signals::pidfd(pid).unwrap());
        assert_eq!(pools.owners_of(pid), [PidOwner { id: other, claim: PidClaim::Worker }]);
    }

    #[test]
    fn the_number_of_a_zygote_that_was_reaped_may_be_a_worker_of_another_pool() {
        let mut pools = pools(2);
        let [one, other] = pools.ids()[..] else { panic!("two") };
        let pid = i32::try_from(std::process::id()).unwrap();
        let (ours, _theirs) = Channel::pair().unwrap();
        pools[one].zygote = Some(Zygote::new(Peer::over(pid, ours).unwrap()));
        assert!(pools.is_others(other, pid));
        let (owner, now) = (PidOwner { id: one, claim: PidClaim::Zygote }, Moment::from_secs(7));
        assert_eq!(pools.reaped(pid, now), [owner]);
        assert_eq!(pools[one].zygote.as_ref().unwrap().reaped, Some(now));
        assert!(!pools.is_others(other, pid) && pools.reaped(pid, now).is_empty());
    }
}
