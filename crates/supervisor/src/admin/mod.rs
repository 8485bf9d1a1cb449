//! The admin socket, which `maitred status`, `top`, `stop` and `drain` connect to. It is part of
//! the supervisor's loop, so nothing here blocks.

mod advice;
mod connection;
mod socket;
pub mod status;
pub mod status_draft;

use maitred_config::Config;
use rustix::event::PollFd;
use tracing::warn;

use crate::capacity::memory_reader::MemoryReader;
use crate::capacity::memory_reads::{MemoryReading, WantedMemory};
use crate::capacity::private_memory::Measures;
use crate::error::Error;
use crate::limits::Moment;
use crate::processes::pools::Pools;
use crate::processes::scoreboards::Scoreboards;

pub use connection::AdminConnection;
use socket::AdminSocket;
pub use socket::{mistake, unwritable_folder};

/// Most connected commands.
const MAX_CONNECTIONS: usize = 16;

/// The admin socket, and its connections.
#[derive(Debug)]
pub struct Admin {
    socket: Option<AdminSocket>,
    connections: Vec<AdminConnection>,
    measures: Measures,
    /// Number of the last status reply.
    last_draft: u64,
}

impl Admin {
    /// Opens the socket that `config` names, or else the default one.
    ///
    /// # Errors
    /// When the configured socket cannot be opened. Without the default one the server runs all the
    /// same, and logs that.
    pub fn open(config: &Config) -> Result<Admin, Error> {
        let socket = match &config.admin_socket {
            Some(path) => Some(AdminSocket::open(path)?),
            None => AdminSocket::open_default(config.fpm.is_some()).unwrap_or_else(|why| {
                warn!("{why}; maitred's commands cannot reach this server");
                None
            }),
        };
        Ok(Admin::behind(socket))
    }

    /// Opens it again in a program that takes over. A failure is no reason to end the server.
    pub fn reopen(config: &Config) -> Admin {
        Admin::open(config).unwrap_or_else(|why| {
            warn!("{why}; maitred's commands cannot reach this server");
            Admin::behind(None)
        })
    }

    fn behind(socket: Option<AdminSocket>) -> Admin {
        Admin { socket, connections: Vec::new(), measures: Measures::default(), last_draft: 0 }
    }

    /// What to poll.
    pub fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let socket = self.socket.as_ref().filter(|_| self.connections.len() < MAX_CONNECTIONS);
        let connections = self.connections.iter().filter_map(AdminConnection::interest);
        socket.map(AdminSocket::interest).into_iter().chain(connections)
    }

    /// Whether there is anything to do: `is_ready`, a connection can be read or accepted; or else a
    /// reply or a timeout is due.
    pub fn is_due(&self, is_ready: bool, now: Moment) -> bool {
        let is_late = self.deadline().is_some_and(|due| due <= now);
        is_ready || is_late || self.connections.iter().any(AdminConnection::awaits)
    }

    /// Takes all connections, new ones included.
    pub fn take_connections(&mut self, now: Moment) -> Vec<AdminConnection> {
        let mut connections = std::mem::take(&mut self.connections);
        let free = MAX_CONNECTIONS.saturating_sub(connections.len());
        if let Some(socket) = &self.socket {
            connections.extend(socket.accept(now).take(free));
        }
        connections
    }

    /// Puts connections back that are not over.
    pub fn put_back(&mut self, mut connections: Vec<AdminConnection>, now: Moment) {
        connections.retain_mut(|connection| !connection.is_over(now));
        self.connections = connections;
    }

    /// Whether a command waits for this profile.
    pub fn awaits_profile(&self, profile: u64) -> bool {
        self.connections.iter().any(|one| one.awaited_profile() == Some(profile))
    }

    /// Has the memory of all pools' processes measured, and shows it on their scoreboards when it
    /// is: now, if `reader` has yet to be started.
    pub fn measure(
        &mut self,
        pools: &mut Pools,
        scoreboards: &Scoreboards,
        reader: &mut MemoryReader,
        now: Moment,
    ) {
        for running in pools.iter_mut() {
            running.show_copy_counters(scoreboards);
        }
        let wanted = pools.iter().flat_map(|running| {
            let pool = running.name();
            running.pids().map(move |pid| WantedMemory { pool: pool.to_owned(), pid })
        });
        self.measures.measure(wanted.collect(), &mut reader.reads, now);
        if !(self.measures.are_awaited() && reader.is_ready()) {
            self.show_memory(pools, scoreboards);
        }
    }

    /// The pages of processes were counted, or could not be.
    pub fn take_readings(
        &mut self,
        readings: &[MemoryReading],
        pools: &Pools,
        scoreboards: &Scoreboards,
        now: Moment,
    ) {
        if self.measures.read(readings, now) {
            self.show_memory(pools, scoreboards);
        }
    }

    fn show_memory(&self, pools: &Pools, scoreboards: &Scoreboards) {
        for name in pools.names() {
            let memory = self.measures.of(&pools.pids_of(name));
            if let Some(page) = scoreboards.page(name) {
                let (private, shared) = (memory.private_bytes, memory.shared_bytes);
                page.workers().measured(private, shared);
            }
        }
    }

    /// The memory of processes, as it was measured last.
    pub fn measures(&self) -> &Measures {
        &self.measures
    }

    /// When something is due without a request.
    pub fn deadline(&self) -> Option<Moment> {
        self.connections.iter().filter_map(AdminConnection::deadline).min()
    }
}
