//! Plays a pool of workers in virtual time, to judge how it is sized. For development only.
//!
//! [`plant`] says what comes and what there is to do it with, [`world`] plays it event by event,
//! [`policies`] decide how many workers there are, ours with the very code of the server, and
//! [`search`] finds the best fixed number by trying all. The same seed plays the same.

pub mod arrivals;
pub mod chance;
pub mod cores;
pub mod outcome;
pub mod plant;
pub mod plants;
pub mod policies;
pub mod search;
pub mod world;
