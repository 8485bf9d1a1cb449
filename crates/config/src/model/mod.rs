//! The checked settings, as the rest of the program gets them.

pub mod access_format;
pub mod acme;
pub mod admin;
pub mod client_limits;
pub mod collector;
pub mod config;
pub mod confinement;
pub mod development;
pub mod fpm;
pub mod front_user;
pub mod host;
pub mod job;
pub mod listener;
pub mod log_format;
pub mod log_target;
pub mod mode;
pub mod output;
pub mod pool;
pub mod pool_user;
pub mod private_dir;
pub mod purge_log;
pub mod redis;
pub mod root_owner;
pub mod site;
pub mod tls;
pub mod trace_export;
mod with_defaults;
