//! The front: the process that owns client connections, static files and every queue.
//!
//! [`run::run`] is the process; `handler/request.rs` is the life of a request and reads as all
//! of the data flow.

mod admin;
mod backend;
mod cache;
mod control;
pub mod explain;
mod handler;
mod http;
mod logging;
mod net;
mod pool;
mod proxy;
mod runtime;
mod server;
mod services;
mod site;

pub use crate::control::run::run;
pub use crate::http::hosts::Hosts;
pub use crate::logging::access_log::way_to;
