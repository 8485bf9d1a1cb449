//! Descriptors, mappings and memory of the processes that live as long as the server.

use std::collections::BTreeMap;
use std::fs;

use maitred_tests::processes::Process;
use maitred_tests::server::Server;
use maitred_tests::wait;

use crate::site::POOLS;

/// The start of a worker's title; its pool and its seat follow.
const WORKER_TITLE: &str = "maitred-php: worker pool ";
/// Processes that run only while they have work: a run may begin without one.
const ON_DEMAND: [&str; 1] = ["maitred: pipes"];
/// Descriptors by which a process may differ: connections that clients have just closed.
const DESCRIPTORS_SLACK: usize = 8;
/// Mappings by which a process may differ: threads and arenas that appear under load.
const MAPPINGS_SLACK: usize = 40;
/// Private memory by which a process may grow, in KiB.
const MEMORY_SLACK_KB: u64 = 32 * 1024;

/// A process's share of the machine.
#[derive(Debug, Clone, Copy)]
struct Share {
    descriptors: usize,
    mappings: usize,
    private_kb: u64,
}

/// The shares of a server's processes, by their titles without numbers.
#[derive(Debug)]
pub struct Footprint(BTreeMap<String, Share>);

impl Footprint {
    /// The footprint of a server with a worker in each pool: a copied one ends after a few
    /// requests, and the next one has its title a moment later.
    pub fn of_whole(server: &Server) -> Footprint {
        let has_all = |now: &Footprint| {
            POOLS.iter().all(|pool| now.0.contains_key(&format!("{WORKER_TITLE}{pool} seat ")))
        };
        let whole = wait::poll(wait::DEADLINE, || Some(Footprint::of(server)).filter(has_all));
        whole.unwrap_or_else(|| Footprint::of(server))
    }

    /// The footprint of a server now.
    pub fn of(server: &Server) -> Footprint {
        let mut shares: BTreeMap<String, Share> = BTreeMap::new();
        for process in server.processes() {
            let Some(now) = share(&process) else { continue };
            let name = process.title.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
            let most = shares.entry(name).or_insert(now);
            most.descriptors = most.descriptors.max(now.descriptors);
            most.mappings = most.mappings.max(now.mappings);
            most.private_kb = most.private_kb.max(now.private_kb);
        }
        Footprint(shares)
    }

    /// Compares the footprint of a server with this earlier one, which was under load.
    ///
    /// # Errors
    /// A sentence for what has grown.
    pub fn compare(&self, server: &Server) -> Result<(), String> {
        // Connections end a moment after their clients.
        let flat = wait::poll(wait::DEADLINE, || {
            self.grown(&Footprint::of(server)).is_empty().then_some(())
        });
        match flat {
            Some(()) => Ok(()),
            None => Err(self.grown(&Footprint::of(server)).join("; ")),
        }
    }

    fn grown(&self, now: &Footprint) -> Vec<String> {
        let mut grown = Vec::new();
        for (title, now) in &now.0 {
            let Some(before) = self.0.get(title) else {
                if !ON_DEMAND.contains(&title.as_str()) {
                    grown.push(format!("`{title}` runs, which did not before"));
                }
                continue;
            };
            if now.descriptors > before.descriptors + DESCRIPTORS_SLACK {
                let (from, to) = (before.descriptors, now.descriptors);
                grown.push(format!("`{title}` has {to} descriptors, before {from}"));
            }
            if now.mappings > before.mappings + MAPPINGS_SLACK {
                let (from, to) = (before.mappings, now.mappings);
                grown.push(format!("`{title}` has {to} mappings, before {from}"));
            }
            if now.private_kb > before.private_kb + MEMORY_SLACK_KB {
                let (from, to) = (before.private_kb, now.private_kb);
                grown.push(format!("`{title}` has {to} KiB of private memory, before {from}"));
            }
        }
        grown
    }
}

fn share(process: &Process) -> Option<Share> {
    let folder = format!("/proc/{}", process.pid);
    let rollup = fs::read_to_string(format!("{folder}/smaps_rollup")).ok()?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    let kilobytes = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Some(Share {
        descriptors: fs::read_dir(format!("{folder}/fd")).ok()?.count(),
        mappings: fs::read_to_string(format!("{folder}/maps")).ok()?.lines().count(),
        private_kb: kilobytes.sum(),
    })
}
