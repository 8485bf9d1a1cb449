//! The faults of a run, in their order. The same seed gives the same plan.

use std::time::Duration;

use fastrand::Rng;

use crate::kind::Kind;

/// What is done to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Some workers are killed.
    KillWorkers,
    /// A zygote is killed.
    KillZygote,
    /// The front is killed.
    KillFront,
    /// Every process but the supervisor is killed.
    KillAll,
    /// Some workers are stopped for a while (SIGSTOP).
    StopWorkers,
    /// A zygote is stopped for a while.
    StopZygote,
    /// The front is stopped for a while, shorter than the watchdog's time.
    StopFront,
    /// The supervisor is stopped for a while.
    StopSupervisor,
    /// Every process is stopped for a while, as on a suspended machine.
    StopAll,
    /// The configuration is reloaded.
    Reload,
    /// The configuration is reloaded some times in a row, without a wait.
    ReloadBurst,
    /// A configuration with a mistake is reloaded, and then the right one.
    BadReload,
    /// The program is upgraded in place.
    Upgrade,
    /// The front is killed during an upgrade.
    KillDuringUpgrade,
    /// A script ends its worker with SIGSEGV, some times.
    CrashingPage,
    /// The front gets no new descriptors for a while.
    FewDescriptors,
    /// The file system of `spool_dir` is full for a while.
    FullDisk,
    /// Every opened file takes a while in the front, as on a slow disk.
    SlowDisk,
    /// Some system calls of the workers fail with ENOMEM.
    NoMemory,
    /// All processes share a fraction of a processor for a while.
    LittleProcessor,
    /// Many clients connect and leave amid their requests.
    LeavingClients,
    /// The upstream of `proxy` is away for a while.
    NoUpstream,
    /// All processes of a pool are frozen for a while.
    FreezePool,
    /// Pools get little memory for a while, in which scripts allocate more.
    LittleMemory,
    /// Packets are late and lost for a while.
    BadNetwork,
    /// The name server is silent for a while, and many requests need it.
    SilentNames,
    /// The consumer is killed, some times.
    KillConsumer,
    /// The Redis of the purge log is killed, loses its data, and is started again.
    KillRedis,
    /// It is stopped for a while.
    StopRedis,
    /// It replies late for a while.
    SlowRedis,
    /// The process that passes purges on is killed.
    KillPurges,
    /// It is stopped for a while.
    StopPurges,
    /// The process that reads the output of pools is killed.
    KillPipes,
    /// It is stopped for a while.
    StopPipes,
    /// The collector of traces closes its connections for a while.
    NoCollector,
    /// It responds late for a while.
    SlowCollector,
    /// It responds with errors, and with what is no HTTP, for a while.
    BrokenCollector,
}

/// All faults.
pub const FAULTS: [Fault; 37] = [
    Fault::KillWorkers,
    Fault::KillZygote,
    Fault::KillFront,
    Fault::KillAll,
    Fault::StopWorkers,
    Fault::StopZygote,
    Fault::StopFront,
    Fault::StopSupervisor,
    Fault::StopAll,
    Fault::Reload,
    Fault::ReloadBurst,
    Fault::BadReload,
    Fault::Upgrade,
    Fault::KillDuringUpgrade,
    Fault::CrashingPage,
    Fault::FewDescriptors,
    Fault::FullDisk,
    Fault::SlowDisk,
    Fault::NoMemory,
    Fault::LittleProcessor,
    Fault::LeavingClients,
    Fault::NoUpstream,
    Fault::FreezePool,
    Fault::LittleMemory,
    Fault::BadNetwork,
    Fault::SilentNames,
    Fault::KillConsumer,
    Fault::KillRedis,
    Fault::StopRedis,
    Fault::SlowRedis,
    Fault::KillPurges,
    Fault::StopPurges,
    Fault::KillPipes,
    Fault::StopPipes,
    Fault::NoCollector,
    Fault::SlowCollector,
    Fault::BrokenCollector,
];

/// The requests that may fail by a fault: at most this number, of these kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Kinds of traffic; all, if empty.
    pub kinds: &'static [Kind],
    /// Failed requests.
    pub failures: u64,
}

impl Allowance {
    const NONE: Allowance = Allowance { kinds: &[], failures: 0 };
    const ANY: Allowance = Allowance { kinds: &[], failures: u64::MAX };
}

impl Fault {
    /// Its name on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Fault::KillWorkers => "kill-workers",
            Fault::KillZygote => "kill-zygote",
            Fault::KillFront => "kill-front",
            Fault::KillAll => "kill-all",
            Fault::StopWorkers => "stop-workers",
            Fault::StopZygote => "stop-zygote",
            Fault::StopFront => "stop-front",
            Fault::StopSupervisor => "stop-supervisor",
            Fault::StopAll => "stop-all",
            Fault::Reload => "reload",
            Fault::ReloadBurst => "reload-burst",
            Fault::BadReload => "bad-reload",
            Fault::Upgrade => "upgrade",
            Fault::KillDuringUpgrade => "kill-during-upgrade",
            Fault::CrashingPage => "crashing-page",
            Fault::FewDescriptors => "few-descriptors",
            Fault::FullDisk => "full-disk",
            Fault::SlowDisk => "slow-disk",
            Fault::NoMemory => "no-memory",
            Fault::LittleProcessor => "little-processor",
            Fault::LeavingClients => "leaving-clients",
            Fault::NoUpstream => "no-upstream",
            Fault::FreezePool => "freeze-pool",
            Fault::LittleMemory => "little-memory",
            Fault::BadNetwork => "bad-network",
            Fault::SilentNames => "silent-names",
            Fault::KillConsumer => "kill-consumer",
            Fault::KillRedis => "kill-redis",
            Fault::StopRedis => "stop-redis",
            Fault::SlowRedis => "slow-redis",
            Fault::KillPurges => "kill-purges",
            Fault::StopPurges => "stop-purges",
            Fault::KillPipes => "kill-pipes",
            Fault::StopPipes => "stop-pipes",
            Fault::NoCollector => "no-collector",
            Fault::SlowCollector => "slow-collector",
            Fault::BrokenCollector => "broken-collector",
        }
    }

    /// The requests that may fail by it. A killed worker fails its own request only; a killed
    /// front, one on each of the `connections`; a reload, an upgrade or a pause, none.
    pub fn allowance(self, amount: u32, connections: u64) -> Allowance {
        match self {
            Fault::KillWorkers => Allowance { kinds: &[], failures: u64::from(amount) },
            Fault::KillFront => Allowance { kinds: &[], failures: connections },
            Fault::KillAll | Fault::KillDuringUpgrade | Fault::FewDescriptors | Fault::NoMemory => {
                Allowance::ANY
            }
            Fault::FullDisk => {
                Allowance { kinds: &[Kind::Upload, Kind::SlowReader], failures: u64::MAX }
            }
            Fault::NoUpstream => {
                let kinds = &[Kind::Proxied, Kind::Named, Kind::WebSocket];
                Allowance { kinds, failures: u64::MAX }
            }
            // The kernel may end another worker in place of that of the hungry script.
            Fault::LittleMemory => Allowance { kinds: &[], failures: 2 * u64::from(amount) },
            Fault::SilentNames => Allowance { kinds: &[Kind::Named], failures: u64::MAX },
            _ => Allowance::NONE,
        }
    }
}

/// One fault of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub fault: Fault,
    /// To how many, or how often.
    pub amount: u32,
    /// For how long, where it is undone afterwards.
    pub lasts: Duration,
    /// Undisturbed traffic before it.
    pub pause: Duration,
    /// Chooses the victims.
    pub choice: u64,
}

/// Most victims or repetitions of a step.
const AMOUNT_MAX: u32 = 4;
/// The shortest and the longest time that a fault lasts, in milliseconds: below the 10 s after
/// which the supervisor replaces a front without a sign of life.
const LASTS_MS: (u64, u64) = (50, 4_000);
/// The longest undisturbed time before a step, in milliseconds.
const PAUSE_MS: u64 = 1_500;

/// The steps of a seed, without an end.
#[derive(Debug)]
pub struct Plan {
    random: Rng,
    faults: Vec<Fault>,
    /// Those left of the current turn: each fault comes once in a turn.
    turn: Vec<Fault>,
}

impl Plan {
    /// The plan of this seed, of these faults.
    pub fn new(seed: u64, faults: &[Fault]) -> Plan {
        Plan { random: Rng::with_seed(seed), faults: faults.to_vec(), turn: Vec::new() }
    }
}

impl Iterator for Plan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.turn.is_empty() {
            self.turn.clone_from(&self.faults);
            self.random.shuffle(&mut self.turn);
        }
        let fault = self.turn.pop()?;
        Some(Step {
            fault,
            amount: self.random.u32(1..=AMOUNT_MAX),
            lasts: Duration::from_millis(self.random.u64(LASTS_MS.0..=LASTS_MS.1)),
            pause: Duration::from_millis(self.random.u64(0..=PAUSE_MS)),
            choice: self.random.u64(..),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_steps_and_another_seed_others() {
        let steps = |seed| Plan::new(seed, &FAULTS).take(100).collect::<Vec<_>>();
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
    }

    #[test]
    fn each_fault_comes_once_in_a_turn() {
        let turn: Vec<Fault> =
            Plan::new(1, &FAULTS).take(FAULTS.len()).map(|step| step.fault).collect();
        for fault in FAULTS {
            assert!(turn.contains(&fault), "{fault:?}");
        }
    }

    #[test]
    fn names_of_faults_differ() {
        let mut names: Vec<&str> = FAULTS.iter().map(|fault| fault.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAULTS.len());
    }
}
