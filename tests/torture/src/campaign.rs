//! A run: traffic, one fault after the other, and the state of the server at the end.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use maitred_tests::Target as _;
use maitred_tests::wait;

use crate::faults::{self, Abilities, Victim};
use crate::footprint::Footprint;
use crate::kind::Kind;
use crate::ledger::Outcome;
use crate::names::Names;
use crate::nodes::Nodes;
use crate::plan::{Fault, Plan, Step};
use crate::site::{Site, WORKERS};
use crate::trace_collector::TraceCollector;
use crate::traffic::{Shared, Traffic};
use crate::upstream::Upstream;

/// How long the server may take after a fault until each kind of request is served right, as a
/// shared machine gives it; the report has the real times.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// How long it may take until everything is served for the first time.
const START_MAX: Duration = Duration::from_secs(60);

/// Most lines of the server's log that are printed after a violation.
const LOG_LINES: usize = 400;

/// A run to be.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// Chooses the faults.
    pub seed: u64,
    /// How long faults are injected.
    pub lasts: Duration,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The nodes pass purges on without Redis.
    pub are_peers: bool,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// Outcomes and violations.
    pub shared: Arc<Shared>,
    /// Injected faults.
    pub steps: usize,
    /// The times until everything was served again, sorted.
    pub recoveries: Vec<Duration>,
}

impl Campaign {
    /// Runs it.
    pub fn run(&self) -> Report {
        let (upstream, collector) = (Upstream::start(), TraceCollector::start());
        let names = Names::start();
        let site = Arc::new(Site::write());
        let nodes = Nodes::start(&site, self.are_peers);
        let setup = nodes.join(site.setup(&upstream.url(), &collector.url()));
        let processors = faults::all_processors();
        let group = processors.as_ref();
        let started = group.map_or_else(|| setup.clone(), |group| group.holds(setup.clone()));
        let server = started.start();
        server.wait_for_full_strength(WORKERS as usize, wait::DEADLINE);
        let victim = Victim {
            server: &server,
            site: &site,
            setup,
            upstream: &upstream,
            collector: &collector,
            nodes: &nodes,
            processors: group,
            names: names.as_ref(),
            can: Abilities::find(),
        };
        let traffic = Traffic::start(&site, server.address(), nodes.address());
        let mut run = Run { victim, traffic, recoveries: Vec::new() };
        run.until_all_right(START_MAX);
        let before = Footprint::of_whole(&server);
        let steps = run.faults(self);
        let Run { traffic, mut recoveries, .. } = run;
        let shared = traffic.stop();
        match site.jobs.check() {
            Ok(runs) => println!("torture: {:<14} {runs:>8} right", "runs"),
            Err(why) => shared.violation(&why),
        }
        match collector.check() {
            Ok(exports) => println!("torture: {:<14} {exports:>8} right", "exports"),
            Err(why) => shared.violation(&why),
        }
        if let Err(grown) = before.compare(&server) {
            shared.violation(&grown);
        }
        if shared.violations() > 0 {
            for line in server.log().since(0).iter().rev().take(LOG_LINES).rev() {
                println!("torture: log: {line}");
            }
        }
        server.stop();
        nodes.other.stop();
        recoveries.sort_unstable();
        Report { shared, steps, recoveries }
    }
}

/// A run under way.
struct Run<'a> {
    victim: Victim<'a>,
    traffic: Traffic,
    recoveries: Vec<Duration>,
}

impl Run<'_> {
    /// Injects faults until the time is over; returns how many.
    fn faults(&mut self, campaign: &Campaign) -> usize {
        let mut faults = campaign.faults.clone();
        faults.retain(|fault| self.victim.suffers(*fault));
        let end = Instant::now() + campaign.lasts;
        let mut steps = 0;
        for step in Plan::new(campaign.seed, &faults) {
            if Instant::now() >= end {
                break;
            }
            std::thread::sleep(step.pause);
            self.step(&step);
            steps += 1;
        }
        steps
    }

    fn step(&mut self, step: &Step) {
        let shared = Arc::clone(&self.traffic.shared);
        let allowance = step.fault.allowance(step.amount, self.traffic.connections());
        let from = shared.now();
        shared.ledger().begin(from, allowance);
        if let Err(violation) = self.victim.suffer(step) {
            shared.violation(&format!("{}: {violation}", step.fault.name()));
        }
        let undone = shared.now();
        let recovery = self.until_all_right(RECOVERY_MAX);
        let failed = shared.ledger().end(shared.now());
        match recovery.took {
            Some(took) => self.recoveries.push(took),
            None => shared.violation(&format!(
                "{}: {} not right {} s after its end; load {}",
                step.fault.name(),
                recovery.last.join(", "),
                RECOVERY_MAX.as_secs(),
                std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim_end()
            )),
        }
        println!(
            "torture: {:8.3} s  {:<20} {} × {:.2} s: failed {failed}, recovered in {:.2} s: {}",
            from.as_secs_f64(),
            step.fault.name(),
            step.amount,
            (undone - from).as_secs_f64(),
            recovery.took.unwrap_or(RECOVERY_MAX).as_secs_f64(),
            recovery.last.join(", ")
        );
    }

    /// Waits until all workers run, the consumer does something, and a request of each kind, begun
    /// from now on, has the right response.
    fn until_all_right(&self, within: Duration) -> Recovery {
        let shared = &self.traffic.shared;
        let (from, begun) = (shared.now(), SystemTime::now());
        let mut last = Vec::new();
        let took = wait::poll(within, || {
            let kinds = shared.ledger().not_right_since(from, self.traffic.kinds());
            let mut missing: Vec<&str> = kinds.into_iter().map(Kind::name).collect();
            if self.victim.server.workers().len() != WORKERS as usize {
                missing.push("workers");
            }
            if !self.victim.site.jobs.is_alive_since(begun) {
                missing.push("the consumer");
            }
            if missing.is_empty() {
                return Some(shared.now() - from);
            }
            last = missing;
            None
        });
        Recovery { took, last }
    }
}

/// How everything was served again.
struct Recovery {
    /// How long that took; none: too long.
    took: Option<Duration>,
    /// What was missing until the end.
    last: Vec<&'static str>,
}

impl Report {
    /// Prints outcomes and recoveries.
    pub fn print(&self) {
        for (kind, outcomes) in self.shared.ledger().outcomes() {
            let right = outcomes.get(&Outcome::Right).copied().unwrap_or(0);
            let others: Vec<String> = outcomes
                .iter()
                .filter(|(outcome, _)| **outcome != Outcome::Right)
                .map(|(outcome, count)| format!("{outcome:?} {count}"))
                .collect();
            println!("torture: {:<14} {right:>8} right  {}", kind.name(), others.join(", "));
        }
        if let [.., worst] = self.recoveries[..] {
            let median = self.recoveries[self.recoveries.len() / 2];
            println!(
                "torture: recovered in {:.2} s (median), {:.2} s (worst)",
                median.as_secs_f64(),
                worst.as_secs_f64()
            );
        }
    }
}
