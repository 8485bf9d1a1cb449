//! The front: the process that owns client connections, static files and every queue.
//!
//! [`run::run`] is the process; `request.rs` is the life of a request and reads as all of the
//! data flow.

mod accept;
mod access;
mod admin;
mod afterwards;
mod attempt;
pub mod auth;
mod body;
mod by_rules;
mod by_script;
mod cache;
mod clock;
mod compress;
mod connection;
mod deadline;
mod door_log;
pub mod explain;
mod fastcgi;
pub mod files;
mod handshakes;
mod hints;
mod http1;
mod http2;
mod http_client;
mod http_form;
mod inflow;
mod limits;
mod orders;
mod pace;
mod params;
mod pool;
mod pools;
mod proofs;
mod proxied;
mod proxy;
mod request;
mod request_id;
pub mod route;
mod route_class;
mod ruled;
mod run;
mod sandbox;
mod script;
mod sendfile;
mod server_timing;
mod shared;
mod site;
pub mod sites;
mod socket;
mod source;
mod spool;
mod status;
mod stream;
mod supervisor;
mod tally;
mod tasks;
mod tls;
mod troubles;
mod unaccepted;
mod upstream;

pub use access::way_to;
pub use run::run;
