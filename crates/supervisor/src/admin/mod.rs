//! The admin socket: where `maitred status`, `top`, `stop` and `drain` reach the supervisor. It is
//! part of the supervisor's one loop, so nobody here is ever waited for.

mod advice;
mod connection;
mod memory;
mod socket;
mod status;
mod status_draft;

use maitred_config::Config;
use maitred_control::admin::{Answer, Request};
use rustix::event::PollFd;
use tracing::{info, warn};

use crate::error::Error;
use crate::limits::Moment;
use crate::reload::ReloadScope;
use crate::run::Supervisor;
use crate::run::phase;

use connection::AdminConnection;
use memory::Measures;
pub use memory::private_bytes;
use socket::AdminSocket;

pub use socket::{lock_folder, mistake};
pub use status_draft::StackPosition;

/// Most commands that are connected at once.
const MAX_GUESTS: usize = 16;

/// Most requests of one command that are answered before the others have their turn.
const REQUESTS_PER_TURN: usize = 4;

/// The admin socket, and who is connected to it.
#[derive(Debug)]
pub struct Admin {
    door: Option<AdminSocket>,
    guests: Vec<AdminConnection>,
    measures: Measures,
    /// Number of the last answer that stacks were asked for.
    last_draft: u64,
}

impl Admin {
    /// Opens the socket that `config` names, or else the default one.
    ///
    /// # Errors
    /// When the one that it names cannot be had. Without the default one the server runs all the
    /// same, and says so.
    pub fn open(config: &Config) -> Result<Admin, Error> {
        let door = match &config.admin_socket {
            Some(path) => Some(AdminSocket::open(path)?),
            None => AdminSocket::open_default(config.fpm.is_some()).unwrap_or_else(|why| {
                warn!("{why}; maitred's commands cannot reach this server");
                None
            }),
        };
        Ok(Admin::behind(door))
    }

    /// Opens it again in a program that takes over from another. That the socket cannot be had is
    /// no reason to end what runs.
    pub fn reopen(config: &Config) -> Admin {
        Admin::open(config).unwrap_or_else(|why| {
            warn!("{why}; maitred's commands cannot reach this server");
            Admin::behind(None)
        })
    }

    fn behind(door: Option<AdminSocket>) -> Admin {
        Admin {
            door,
            guests: Vec::new(),
            measures: Measures::default(),
            last_draft: 0,
        }
    }

    /// What to wait for.
    pub fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let door = self
            .door
            .as_ref()
            .filter(|_| self.guests.len() < MAX_GUESTS);
        let guests = self.guests.iter().filter_map(AdminConnection::interest);
        door.map(AdminSocket::interest).into_iter().chain(guests)
    }

    /// Whether a command waits for a reload to be done, or for an answer to be complete.
    fn owes_answers(&self) -> bool {
        self.guests.iter().any(AdminConnection::awaits)
    }

    /// When something is due without anybody saying anything.
    pub fn deadline(&self) -> Option<Moment> {
        self.guests
            .iter()
            .filter_map(AdminConnection::deadline)
            .min()
    }
}

impl Supervisor {
    /// Lets commands in, answers them, and sends those away that say nothing for too long.
    /// Nothing of that without a reason: `spoke` is one, that something is due another.
    pub fn serve_admin(&mut self, spoke: bool) {
        let now = self.now();
        let due = self.admin.deadline().is_some_and(|due| due <= now);
        if !spoke && !due && !self.admin.owes_answers() {
            return;
        }
        let free = MAX_GUESTS.saturating_sub(self.admin.guests.len());
        if let Some(door) = &self.admin.door {
            let new: Vec<AdminConnection> = door.guests(now).take(free).collect();
            self.admin.guests.extend(new);
        }
        let mut guests = std::mem::take(&mut self.admin.guests);
        for guest in &mut guests {
            guest.read(now);
            self.tell_reloaded(guest);
            self.tell_purged(guest);
            self.tell_drafted(guest, now);
            for _ in 0..REQUESTS_PER_TURN {
                let Some(line) = guest.next_line() else { break };
                self.obey(guest, &line);
            }
        }
        guests.retain_mut(|guest| !guest.is_over(now));
        self.admin.guests = guests;
    }

    fn obey(&mut self, guest: &mut AdminConnection, line: &[u8]) {
        let now = self.now();
        let answer = match serde_json::from_slice(line) {
            Ok(Request::Status { pool }) => match self.draft_status(pool.as_deref()) {
                Ok(draft) => {
                    guest.wait_for(draft);
                    return self.tell_drafted(guest, now);
                }
                Err(why) => Answer::Refused { why },
            },
            Ok(Request::Reload { pools }) => match self.reload(&ReloadScope::Named(pools)) {
                Ok(ticket) => {
                    info!("reload, asked for by process {}", guest.pid());
                    self.systemd.reloads();
                    return guest.wait_for_reload(ticket);
                }
                Err(why) => Answer::Refused { why },
            },
            Ok(Request::Stop) => {
                info!("stop, asked for by process {}", guest.pid());
                guest.wait_for_the_end();
                let running = self.scripts_running();
                self.phase_event(phase::ServerEvent::StopAsked);
                Answer::Ending { running }
            }
            Ok(Request::Drain) => {
                guest.wait_for_the_end();
                let running = self.scripts_running();
                if !self.phase.is_ending() {
                    info!("drain, asked for by process {}", guest.pid());
                    self.phase_event(phase::ServerEvent::StopAsked);
                }
                Answer::Ending { running }
            }
            Ok(Request::Purge(asked)) => match self.purge(asked) {
                Ok(mark) => return guest.wait_for_purge(mark),
                Err(why) => Answer::Refused { why },
            },
            Err(why) => Answer::Refused {
                why: format!("this is no request: {why}"),
            },
        };
        guest.answer(&answer, now);
    }

    /// Tells a command what became of the reload it asked for.
    fn tell_reloaded(&self, guest: &mut AdminConnection) {
        let ticket = guest.awaited_reload();
        let outcome = ticket.and_then(|ticket| self.reloads.outcome(ticket));
        let answer = match outcome.cloned() {
            Some(Ok(what)) => Answer::Reloaded { what },
            Some(Err(why)) => Answer::Refused { why },
            None => return,
        };
        guest.answer(&answer, self.now());
    }

    /// Tells a command what became of the purge it asked for.
    fn tell_purged(&mut self, guest: &mut AdminConnection) {
        let purge = guest.awaited_purge();
        if let Some(answer) = purge.and_then(|mark| self.purges.outcome(mark)) {
            guest.answer(&answer, self.now());
        }
    }

    fn scripts_running(&self) -> u64 {
        self.scores.pages().map(|page| page.read().busy).sum()
    }
}
