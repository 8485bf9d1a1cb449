//! A client of Redis or Valkey: its protocol, and a connection that is ready for commands. The
//! server may be slow, gone or hostile: replies are limited in length, elements and depth, and
//! callers limit the time.

mod connection;
pub mod resp;

pub use connection::{Connection, plain, tls};
