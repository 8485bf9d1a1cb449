//! The number of workers of a pool (`pm = auto`).
//!
//! No clock, no descriptor, no async: measurements and the time are inputs, a number and its reason
//! the result. The number is the least of the demand and these limits:
//!
//! - [`demand`]: workers that would be used, from the requests in flight at each arrival;
//! - [`knee`]: workers that keep the processors busy, from the share of work in a request;
//! - [`memory`] and [`ledger`]: workers that fit into memory, from the cost of one more and the
//!   pressure on memory; each worker reserves its memory before it is forked;
//! - [`downstream`]: workers that are enough if all others only wait for the same thing;
//! - the user's `max_children`.
//!
//! [`kinds`] decides which requests get no worker when most of the possible ones hang.
//!
//! [`saturation`] measures how much of all that a pool uses, for autoscalers and balancers.
//!
//! [`Controller`] combines them and names the limit that binds. Its drivers are the owner of the
//! queue and the simulator (`tests/simulator`), by which its constants were chosen.

pub mod beside;
pub mod controller;
pub mod cost;
pub mod demand;
pub mod downstream;
pub mod kinds;
pub mod knee;
pub mod ledger;
pub mod memory;
pub mod saturation;
pub mod sources;
pub mod terms;

pub use controller::Controller;
pub use cost::{Cost, Spent};
pub use kinds::Kinds;
pub use terms::{Binding, Limits, Load, Machine, Sizing, Terms};
