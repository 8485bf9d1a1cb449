//! Simulates a pool of workers in virtual time, to judge how it is sized. For development only.
//!
//! [`plant`] describes the load and the machine, [`world`] simulates it event by event,
//! [`policies`] decide the number of workers, ours with the code of the server, and [`search`]
//! finds the best fixed number by trying all. [`cluster`] simulates several nodes and an
//! autoscaler. The same seed gives the same run.

pub mod arrivals;
pub mod chance;
pub mod cluster;
pub mod cores;
pub mod outcome;
pub mod plant;
pub mod plants;
pub mod policies;
pub mod search;
pub mod world;
