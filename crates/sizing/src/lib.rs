//! How many workers a pool is to have (`pm = auto`).
//!
//! No clock, no descriptor, no async: what was measured and the time come in, a number and its reason
//! come out. The number is the smallest of what is wanted and what there is room for:
//!
//! - [`demand`]: how many would be used, from how many requests were in hand when another came;
//! - [`knee`]: how many the processors can keep busy, from the share of a request that is work;
//! - [`memory`] and [`ledger`]: how many there is memory for, from what one more costs, and how hard
//!   memory is pressed; each worker is paid for before it is forked;
//! - [`downstream`]: how many are enough when all that others do is to wait for the same thing;
//! - the user's `max_children`.
//!
//! [`kinds`] says who gets no worker when most that a pool may have hang.
//!
//! [`Controller`] puts them together and names the one that binds. It is driven by whoever owns the
//! queue, and by the simulator (`tests/simulator`), which is how its constants were chosen.

pub mod controller;
pub mod cost;
pub mod demand;
pub mod downstream;
pub mod kinds;
pub mod knee;
pub mod ledger;
pub mod memory;
pub mod sources;
pub mod terms;

pub use controller::Controller;
pub use cost::{Cost, Spent};
pub use kinds::Kinds;
pub use terms::{Binding, Limits, Load, Machine, Sizing, Terms};
