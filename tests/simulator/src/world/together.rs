//! Pools that share their memory.

use super::World;
use crate::arrivals::Arrival;
use crate::outcome::Outcome;
use crate::plant::Plant;
use crate::policies::Policy;

/// Simulates pools that share their memory and nothing else.
pub fn play_together(
    pools: &[(Plant, Vec<Arrival>)],
    policies: &mut [Box<dyn Policy>],
) -> Vec<Outcome> {
    let worlds = pools.iter().map(|(plant, arrivals)| World::new(plant, arrivals));
    let mut worlds: Vec<World<'_>> = worlds.collect();
    let mut play: Vec<usize> = (0..worlds.len()).collect();
    let next = |worlds: &[World<'_>], play: &[usize]| {
        let first =
            |a: &&usize, b: &&usize| worlds[**a].next_at().total_cmp(&worlds[**b].next_at());
        play.iter().min_by(first).copied()
    };
    while let Some(world) = next(&worlds, &play) {
        let all: f64 = worlds.iter().map(World::taken).sum();
        worlds[world].others = all - worlds[world].taken();
        let policy = &mut *policies[world];
        if worlds[world].now <= 0.0 {
            worlds[world].follow(policy);
        }
        if !worlds[world].step(policy) {
            play.retain(|other| *other != world);
        }
    }
    worlds.into_iter().map(|world| world.outcome).collect()
}
