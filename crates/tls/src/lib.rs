//! Certificates, keys and tickets: from the bytes of files to what a handshake needs. No I/O.
//!
//! The supervisor reads the files and has all checked here ([`Server::new`]); the front is handed
//! the same [`Material`] and makes the same of it.

mod acme;
mod certificate;
mod choice;
mod client;
mod fault;
mod material;
pub mod names;
mod pem;
mod server;
mod tickets;

pub use acme::{ACME_TLS, Asked, ask_for, with_proofs};
pub use certificate::Validity;
pub use client::{Variables, variables};
pub use fault::Fault;
pub use material::{Clients, Material, Pair, PemFile};
pub use server::{Server, examine};
pub use tickets::Secret;
