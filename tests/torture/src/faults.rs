//! The faults, done to a running server.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use fastrand::Rng;
use maitred_tests::Target as _;
use maitred_tests::http::{self, Request};
use maitred_tests::lowered::Lowered;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::processor_group::ProcessorGroup;
use maitred_tests::server::{Server, Setup, WEB_USER};
use maitred_tests::{traced, wait};

use crate::groups::Group;
use crate::jobs::CONSUMER;
use crate::names::Names;
use crate::network::BadNetwork;
use crate::nodes::Nodes;
use crate::plan::{Fault, Step};
use crate::site::{CLASSIC, POOLS, Site};
use crate::trace_collector::{CollectorState, TraceCollector};
use crate::upstream::Upstream;

/// Clients that leave, for each of the step's amount.
const LEAVING: u32 = 100;
/// Requests that need a name, for each of the step's amount: at most more than the front has
/// threads for work that blocks.
const NAMED: u32 = 150;
/// Processors while there is little of them, and afterwards.
const PROCESSORS: (f64, f64) = (0.3, 64.0);
/// strace's option for a slow disk: opened files are delayed, in microseconds.
const SLOW_DISK: &str = "inject=openat,openat2:delay_enter=20000";
/// strace's option for a lack of memory: the 5th of these calls fails, and each 11th after it.
const NO_MEMORY: &str = "inject=mmap,mremap,brk:error=ENOMEM:when=5+11";
/// What the title of the process that passes purges on contains.
const PURGES: &str = "maitred: purges";

/// What the title of the process that reads the output of pools contains.
const PIPES: &str = "maitred: pipes";
/// The log's lines at the end of an upgrade.
const UPGRADED: [&str; 3] = ["upgraded to", "upgrade is refused", "upgrade again"];

/// A server, and what faults need of it.
pub struct Victim<'a> {
    /// The server.
    pub server: &'a Server,
    /// Its files.
    pub site: &'a Site,
    /// Its configuration.
    pub setup: Setup,
    /// The upstream of `proxy`.
    pub upstream: &'a Upstream,
    /// The collector of its traces.
    pub collector: &'a TraceCollector,
    /// The other node, and the way to it.
    pub nodes: &'a Nodes,
    /// The group of its processes, where one can be made.
    pub processors: Option<&'a ProcessorGroup>,
    /// The name server, where the network is the run's own.
    pub names: Option<&'a Names>,
    /// What this system can do to it besides.
    pub can: Abilities,
}

/// What only some systems can do.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    memory: bool,
    network: bool,
}

impl Abilities {
    /// Tries them.
    pub fn find() -> Abilities {
        let memory = Group::short(&[]).is_some();
        let found = Abilities { memory, network: BadNetwork::begin(0).is_some() };
        if !found.network {
            println!("torture: skipped: bad-network, since this kernel has no netem");
        }
        found
    }
}

/// Gives the group of a server the processors that it has without a fault.
pub fn all_processors() -> Option<ProcessorGroup> {
    ProcessorGroup::with_cores(PROCESSORS.1)
}

impl Victim<'_> {
    /// Whether a fault can be caused here.
    pub fn suffers(&self, fault: Fault) -> bool {
        match fault {
            Fault::FullDisk => self.site.spool.is_some(),
            Fault::LittleProcessor => self.processors.is_some(),
            Fault::LittleMemory => self.can.memory,
            Fault::BadNetwork => self.can.network,
            Fault::SilentNames => self.names.is_some(),
            Fault::KillRedis | Fault::StopRedis | Fault::SlowRedis => self.nodes.redis().is_some(),
            _ => true,
        }
    }

    /// Does what a step says, and undoes it after its time.
    ///
    /// # Errors
    /// A sentence, if the server does not do what it has to.
    pub fn suffer(&self, step: &Step) -> Result<(), String> {
        let mut random = Rng::with_seed(step.choice);
        match step.fault {
            Fault::KillWorkers => {
                let victims = self.some(" worker ", step.amount as usize, &mut random);
                signal(&victims, Signal::KILL);
            }
            Fault::KillZygote => signal(&self.some(" zygote ", 1, &mut random), Signal::KILL),
            Fault::KillFront => signal(&self.some(" front", 1, &mut random), Signal::KILL),
            Fault::KillAll => signal(&self.all_but_the_supervisor(), Signal::KILL),
            Fault::StopWorkers => {
                stop(&self.some(" worker ", step.amount as usize, &mut random), step.lasts);
            }
            Fault::StopZygote => stop(&self.some(" zygote ", 1, &mut random), step.lasts),
            Fault::StopFront => stop(&self.some(" front", 1, &mut random), step.lasts),
            Fault::StopSupervisor => stop(&[self.server.supervisor()], step.lasts),
            Fault::StopAll => stop(&self.server.processes(), step.lasts),
            Fault::Reload => return self.reload("reloaded"),
            Fault::ReloadBurst => {
                for _ in 0..step.amount {
                    self.server.signal(Signal::HUP);
                    std::thread::sleep(step.lasts / 100);
                }
                return self.reload("reloaded");
            }
            Fault::BadReload => {
                self.server.configure(&self.setup.clone().pool("max_childern = 3"));
                let refused = self.reload("reload is refused");
                self.server.configure(&self.setup);
                return refused.and_then(|()| self.reload("reloaded"));
            }
            Fault::Upgrade => return self.upgrade(|| {}),
            Fault::KillDuringUpgrade => {
                return self.upgrade(|| {
                    std::thread::sleep(step.lasts / 10);
                    signal(&self.some(" front", 1, &mut random), Signal::KILL);
                });
            }
            Fault::CrashingPage => self.crash(step.amount),
            Fault::FewDescriptors => self.lack_descriptors(step.lasts),
            Fault::FullDisk => {
                let _full = self.site.spool.as_ref().map(|disk| disk.fill());
                std::thread::sleep(step.lasts);
            }
            Fault::SlowDisk => self.trace(&self.some(" front", 1, &mut random), SLOW_DISK, step),
            Fault::NoMemory => {
                self.trace(&self.some(" worker ", 1, &mut random), NO_MEMORY, step);
            }
            Fault::LittleProcessor => {
                if let Some(group) = self.processors {
                    group.cores(PROCESSORS.0);
                    std::thread::sleep(step.lasts);
                    group.cores(PROCESSORS.1);
                }
            }
            Fault::LeavingClients => leave(self.server.address(), step.amount * LEAVING),
            Fault::NoUpstream => {
                self.upstream.refuse(true);
                std::thread::sleep(step.lasts);
                self.upstream.refuse(false);
            }
            Fault::FreezePool => self.freeze(step.lasts, &mut random),
            Fault::LittleMemory => self.lack_memory(step.amount),
            Fault::BadNetwork => {
                let _bad = BadNetwork::begin(step.choice);
                std::thread::sleep(step.lasts);
            }
            Fault::SilentNames => self.silence_names(step),
            Fault::KillConsumer => {
                for _ in 0..step.amount {
                    signal(&self.some(CONSUMER, 1, &mut random), Signal::KILL);
                    std::thread::sleep(step.lasts / 10);
                }
            }
            Fault::KillRedis => self.nodes.kill_redis(),
            Fault::StopRedis => self.nodes.stop_redis(step.lasts),
            Fault::SlowRedis => self.nodes.slow_redis(step.lasts),
            Fault::KillPurges => signal(&self.some(PURGES, 1, &mut random), Signal::KILL),
            Fault::StopPurges => stop(&self.some(PURGES, 1, &mut random), step.lasts),
            Fault::KillPipes => signal(&self.some(PIPES, 1, &mut random), Signal::KILL),
            Fault::StopPipes => stop(&self.some(PIPES, 1, &mut random), step.lasts),
            Fault::NoCollector => self.disturb_collector(CollectorState::Away, step),
            Fault::SlowCollector => self.disturb_collector(CollectorState::Slow, step),
            Fault::BrokenCollector => self.disturb_collector(CollectorState::Broken, step),
        }
        Ok(())
    }

    fn disturb_collector(&self, state: CollectorState, step: &Step) {
        self.collector.be(state);
        std::thread::sleep(step.lasts);
        self.collector.be(CollectorState::Well);
    }

    /// Freezes the processes of a pool, or stops them where nothing can be frozen.
    fn freeze(&self, lasts: Duration, random: &mut Rng) {
        let pool = POOLS[random.usize(..POOLS.len())];
        let victims = self.some(&format!(" pool {pool}"), usize::MAX, random);
        match Group::frozen(&victims) {
            Some(_frozen) => std::thread::sleep(lasts),
            None => stop(&victims, lasts),
        }
    }

    /// Has scripts allocate more than the pools may have together.
    fn lack_memory(&self, scripts: u32) {
        let victims = self.some(" pool ", usize::MAX, &mut Rng::new());
        let _short = Group::short(&victims);
        for _ in 0..scripts {
            let request = Request::new("GET", "/hungry.php")
                .header("Host", CLASSIC)
                .header("Connection", "close");
            let _ = http::try_ask(self.server.address(), &request);
        }
    }

    /// Has many requests wait for a name, while the name server is silent.
    fn silence_names(&self, step: &Step) {
        let Some(names) = self.names else { return };
        names.silence(true);
        let request = Request::new("GET", "/named/x").header("Host", CLASSIC).to_bytes();
        let waiting: Vec<TcpStream> = (0..step.amount * NAMED)
            .filter_map(|_| {
                let mut stream = TcpStream::connect(self.server.address()).ok()?;
                stream.write_all(&request).ok()?;
                Some(stream)
            })
            .collect();
        std::thread::sleep(step.lasts);
        names.silence(false);
        drop(waiting);
    }

    /// Some processes whose title contains a word.
    fn some(&self, word: &str, count: usize, random: &mut Rng) -> Vec<Process> {
        let mut found = self.server.processes();
        found.retain(|process| process.title.contains(word));
        random.shuffle(&mut found);
        found.truncate(count);
        found
    }

    fn all_but_the_supervisor(&self) -> Vec<Process> {
        let supervisor = self.server.supervisor();
        let mut all = self.server.processes();
        all.retain(|process| *process != supervisor);
        all
    }

    fn reload(&self, expected: &str) -> Result<(), String> {
        let line = self.server.reload();
        match line.contains(expected) {
            true => Ok(()),
            false => Err(format!("a reload ends with {line:?} instead of {expected:?}")),
        }
    }

    fn upgrade(&self, meanwhile: impl FnOnce()) -> Result<(), String> {
        let mark = self.server.log().mark();
        self.server.signal(Signal::USR2);
        meanwhile();
        let over = |line: &str| UPGRADED.iter().any(|said| line.contains(said));
        let line = self.server.log().find_since(mark, wait::DEADLINE, over);
        line.map(|_| ()).ok_or_else(|| "an upgrade does not end".to_owned())
    }

    fn crash(&self, times: u32) {
        for _ in 0..times {
            let request = Request::new("GET", "/crash.php")
                .header("Host", CLASSIC)
                .header("Connection", "close");
            let _ = http::try_ask(self.server.address(), &request);
        }
    }

    fn lack_descriptors(&self, lasts: Duration) {
        let Some(front) = self.server.front() else { return };
        let open = fs::read_dir(format!("/proc/{}/fd", front.pid));
        let limit = open.map_or(0, |open| open.count() as u64);
        let _lowered = Lowered::new(front, WEB_USER, "Max open files", "--nofile", limit);
        std::thread::sleep(lasts);
    }

    fn trace(&self, victims: &[Process], option: &str, step: &Step) {
        let options = ["-o", "/dev/null", "-e", option];
        let traced: Vec<_> =
            victims.iter().filter_map(|victim| traced::attach(victim, &options)).collect();
        std::thread::sleep(step.lasts);
        // Asked to end, strace waits for a pause of the process, which a busy one does not make.
        for strace in traced.iter().filter_map(|traced| Process::read(traced.pid())) {
            strace.signal(Signal::KILL);
        }
    }
}

fn signal(victims: &[Process], signal: Signal) {
    victims.iter().for_each(|victim| victim.signal(signal));
}

fn stop(victims: &[Process], lasts: Duration) {
    signal(victims, Signal::STOP);
    std::thread::sleep(lasts);
    signal(victims, Signal::CONT);
}

/// Connections that send a part of a request, or a whole one, and close.
fn leave(address: SocketAddr, clients: u32) {
    let request = Request::post("/upload.php?id=1", "text/plain", &[b'x'; 5_000]);
    let bytes = request.to_bytes();
    for client in 0..clients as usize {
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _ = stream.write_all(&bytes[..bytes.len() * client / clients as usize]);
        }
    }
}
