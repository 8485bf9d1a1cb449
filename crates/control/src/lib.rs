//! Messages between the processes of maitred, one a frame, over a [`maitred_os::channel::Channel`].
//! Orders are imperative, reports are in the past tense. Orders may have descriptors, reports never
//! do.
//!
//! The supervisor talks with the front ([`ToFront`], [`FromFront`]) and with each zygote
//! ([`ToZygote`], [`FromZygote`]). Workers send nothing here: they and the front share a seat link.

pub mod acme;
pub mod admin;
pub mod episode;
pub mod exit;
pub mod folded;
pub mod front;
pub mod job_status;
pub mod launch;
pub mod log_limit;
pub mod log_opening;
pub mod log_place;
pub mod memory_reader;
pub mod nodes;
pub mod pipe_reader;
mod proxy_figures;
pub mod purge;
pub mod purge_budget;
pub mod purge_log;
mod realpath_cache;
pub mod redis_access;
mod route_figures;
mod running_script;
pub mod scale;
pub mod scripts;
pub mod shared_certificates;
pub mod slowlog_entries;
pub mod stack;
mod supervisor_link;
pub mod token_bucket;
mod zygote;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use maitred_os::channel::{self, Channel, Reports, SupervisorEnd};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use front::{Clients, FromFront, Overrun, ToFront, Wear};
pub use supervisor_link::SupervisorLink;
pub use zygote::{
    CacheFigures, CacheSize, Confinement, FromZygote, PRELOADABLE_TIMEOUT, PhpInfo, PrivateFolder,
    ProfileSamples, Snapshot, ToZygote, WorkersOutput, ZygoteSettings, shows_memory_peak,
};

/// Number of a seat within its pool, from 0.
pub type Seat = u32;

/// Distinguishes the workers that have sat in a seat, from 1. A request is assigned to one
/// incarnation, so that a new worker never takes a request of its predecessor.
pub type Incarnation = u32;

/// A worker within its generation of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerId {
    /// Its seat.
    pub seat: Seat,
    /// Its incarnation: a later worker of the same seat has another one.
    pub incarnation: Incarnation,
}

/// A number for a generation: a pool from one reload to the next, with its seat link, zygote and
/// workers. Counted from 1 over all pools, and never reused while the server runs.
pub type Generation = u32;

/// A received message.
#[derive(Debug)]
pub enum Received<M> {
    /// A message with its descriptors.
    Message(M, Vec<OwnedFd>),
    /// Nothing can be read now.
    Nothing,
    /// The other process has closed its end.
    Closed,
}

/// Sends an order without waiting.
///
/// # Errors
/// As [`SupervisorEnd::send`]; a message that cannot be written as JSON is `InvalidData`.
pub fn order<M: Serialize>(
    channel: &SupervisorEnd,
    message: &M,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    channel.send(&serde_json::to_vec(message)?, fds)
}

/// Sends a report, if the channel has space for it.
///
/// # Errors
/// As [`Reports::send`]; a message that cannot be written as JSON is `InvalidData`.
pub fn say<M: Serialize>(reports: &Reports, message: &M) -> io::Result<()> {
    reports.send(&serde_json::to_vec(message)?)
}

/// Sends a report, and waits for space: a zygote sends each report once, and a busy supervisor must
/// not lose it. The supervisor never waits for a zygote.
///
/// # Errors
/// As [`Reports::send_waiting`]; a message that cannot be written as JSON is `InvalidData`.
pub fn say_waiting<M: Serialize>(reports: &Reports, message: &M) -> io::Result<()> {
    reports.send_waiting(&serde_json::to_vec(message)?)
}

/// Receives the next order; with `wait`, blocks until there is one.
///
/// # Errors
/// As [`Channel::receive`]; bytes that are no message of the expected kind are `InvalidData`.
pub fn hear<M: DeserializeOwned>(channel: &Channel, wait: bool) -> io::Result<Received<M>> {
    heard(channel.receive(wait)?)
}

/// Receives the next report without waiting, if there is one. Reports have no descriptors.
///
/// # Errors
/// As [`SupervisorEnd::receive`]; bytes that are no message of the expected kind are `InvalidData`.
pub fn hear_report<M: DeserializeOwned>(channel: &mut SupervisorEnd) -> io::Result<Received<M>> {
    heard(channel.receive()?)
}

fn heard<M: DeserializeOwned>(received: channel::Received) -> io::Result<Received<M>> {
    match received {
        channel::Received::Message(bytes, fds) => {
            Ok(Received::Message(serde_json::from_slice(&bytes)?, fds))
        }
        channel::Received::Nothing => Ok(Received::Nothing),
        channel::Received::Closed => Ok(Received::Closed),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_message_is_heard_as_it_was_said() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        let said = FromZygote::SeatFilled {
            worker: WorkerId { seat: 3, incarnation: 7 },
            pid: 4711,
            took: Duration::from_micros(900),
        };
        say(theirs.reports(), &said).unwrap();
        match hear_report::<FromZygote>(&mut ours).unwrap() {
            Received::Message(heard, fds) => {
                assert_eq!(heard, said);
                assert!(fds.is_empty());
            }
            other => panic!("expected a message, got {other:?}"),
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error_and_not_a_panic() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        ours.send(b"{\"FillSeat\":{}}", &[]).unwrap();
        assert!(hear::<ToZygote>(&theirs, true).is_err());
        theirs.reports().send(b"{\"Started\":{}}").unwrap();
        assert!(hear_report::<FromZygote>(&mut ours).is_err());
    }
}
