//! All generations of all pools that run.

use std::ops::{Index, IndexMut};

use maitred_control::Generation;

use super::plan::PoolPlan;
use super::running_pool::RunningPool;

/// A running generation of a pool. It stays valid while others are added and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolId(Generation);

impl PoolId {
    /// The id of the generation of this number.
    pub fn of(generation: Generation) -> PoolId {
        PoolId(generation)
    }
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
}

impl Pools {
    /// A first generation of each pool, without processes, for the first front.
    pub fn new(plans: Vec<PoolPlan>) -> Pools {
        let last = u32::try_from(plans.len()).unwrap_or(u32::MAX);
        let plans = (1..).zip(plans);
        let running = plans.map(|(generation, plan)| RunningPool::new(generation, 1, plan));
        Pools {
            running: running.collect(),
            last,
        }
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
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

    /// The generations of one pool, the oldest first.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &RunningPool> {
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
