//! What HAProxy's agent check reads: the state of this node, and its weight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maitred_control::admin::Readiness;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most connections at a time: half of those of the admin listener, among which they count. Further
/// ones are closed at once.
const CONNECTIONS: usize = 32;

/// Least weight in percent: with none, a node would never show that it has room again.
const LEAST: f64 = 5.0;

/// Time constant at which the weight follows the load. The load is an average over 15 to 60
/// seconds, and a weight that followed it at once would swing.
const FOLLOWS: Duration = Duration::from_secs(60);

/// How long the front of a new server says that it is ready, which undoes the `drain` of the server
/// before it. Later, or after an upgrade, that would undo what an administrator has set in HAProxy.
const NEW: Duration = Duration::from_secs(60);

/// The agent of a front.
#[derive(Debug)]
pub struct Agent {
    weight: Mutex<Weight>,
    connections: Arc<Semaphore>,
    /// The server has just started.
    pub undoes_drain: AtomicBool,
}

impl Default for Agent {
    fn default() -> Agent {
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        Agent { weight: Mutex::default(), connections, undoes_drain: AtomicBool::new(false) }
    }
}

/// The weight of a node.
#[derive(Debug, Default, Clone, Copy)]
struct Weight {
    /// The first read, and the last one.
    times: Option<(Duration, Duration)>,
    percent: f64,
}

impl Weight {
    /// The weight at `now`, in percent.
    fn follow(&mut self, now: Duration, saturation: f64) -> f64 {
        let target = (100.0 * (1.0 - saturation)).clamp(LEAST, 100.0);
        let (first, last) = *self.times.get_or_insert((now, now));
        if first == now {
            self.percent = target;
        }
        let passed = now.saturating_sub(last).as_secs_f64();
        let share = 1.0 - (-passed / FOLLOWS.as_secs_f64()).exp();
        self.percent += share * (target - self.percent);
        self.times = Some((first, now));
        self.percent
    }
}

impl Agent {
    /// A place for a connection; none: there are too many.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.connections.clone().try_acquire_owned().ok()
    }

    /// The line for a check at `now`.
    pub fn line(
        &self,
        now: Duration,
        readiness: &Readiness,
        stops: bool,
        saturation: f64,
    ) -> String {
        let mut weight = self.weight.lock().unwrap_or_else(PoisonError::into_inner);
        let percent = weight.follow(now, saturation).round();
        let first = weight.times.map_or(now, |(first, _)| first);
        let is_new = now.saturating_sub(first) < NEW;
        match &readiness.reason {
            _ if stops => "drain\n".to_owned(),
            Some(reason) => format!("down #{reason}\n"),
            None if is_new && self.undoes_drain.load(Ordering::Relaxed) => {
                format!("ready up {percent}%\n")
            }
            None => format!("up {percent}%\n"),
        }
    }

    /// The line of a front that another has replaced: the state is the other's to say. Its `drain`
    /// would stay.
    pub fn line_of_replaced(&self, now: Duration, saturation: f64) -> String {
        let mut weight = self.weight.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{}%\n", weight.follow(now, saturation).round())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_line_has_the_state_and_the_weight() {
        let agent = Agent::default();
        let ready = Readiness { ready: true, ..Readiness::default() };
        assert_eq!(agent.line(seconds(9), &ready, false, 0.37), "up 63%\n", "after an upgrade");
        let agent = Agent::default();
        agent.undoes_drain.store(true, Ordering::Relaxed);
        assert_eq!(agent.line(seconds(10), &ready, false, 0.37), "ready up 63%\n");
        assert_eq!(agent.line(seconds(70), &ready, false, 0.37), "up 63%\n");
        assert_eq!(agent.line_of_replaced(seconds(70), 0.37), "63%\n");
        assert_eq!(agent.line(seconds(71), &ready, true, 0.37), "drain\n");
        let down = Readiness::not("no pool has a worker");
        let line = agent.line(seconds(72), &down, false, 0.37);
        assert_eq!(line, "down #no pool has a worker\n");
        assert_eq!(agent.line(seconds(9000), &ready, false, 7.0), "up 5%\n");
    }

    /// The load of nodes with these capacities, a second each: measured over a quarter of a minute,
    /// and shared by HAProxy by the weights.
    fn share(capacities: [f64; 3], load: f64) -> Vec<[f64; 3]> {
        let mut weights = [Weight::default(); 3];
        let mut loads: Vec<[f64; 3]> = Vec::new();
        for second in 0..1200 {
            let recent = &loads[loads.len().saturating_sub(15)..];
            let percents: Vec<f64> = (0..3)
                .map(|node| {
                    let sum: f64 = recent.iter().map(|loads| loads[node]).sum();
                    let measured = sum / recent.len().max(1) as f64;
                    weights[node].follow(seconds(second), measured).round()
                })
                .collect();
            let all: f64 = percents.iter().sum();
            let share = |node: usize| load * percents[node] / all / capacities[node];
            loads.push([share(0), share(1), share(2)]);
        }
        loads
    }

    #[test]
    fn a_node_with_a_third_of_the_processors_gets_less_and_the_weights_do_not_swing() {
        let capacities = [1.0, 1.0, 1.0 / 3.0];
        for part in [0.5, 0.6, 0.7] {
            let loads = share(capacities, part * capacities.iter().sum::<f64>());
            let even = part * capacities.iter().sum::<f64>() / 3.0 / capacities[2];
            for node in 0..3 {
                let late = loads[900..].iter().map(|loads| loads[node]);
                let (least, most) = late.fold((f64::MAX, 0.0_f64), |(least, most), load| {
                    (least.min(load), most.max(load))
                });
                assert!(most - least < 0.05, "{part}, node {node}: {least} to {most}");
                assert!(most < 0.95 && most < even, "{part}, node {node}: {most}, evenly {even}");
            }
        }
    }
}
