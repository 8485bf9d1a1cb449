//! Certificates, keys and session tickets: from the bytes of files to a rustls configuration. No
//! I/O.
//!
//! The supervisor reads the files and checks them here ([`Server::new`]); the front gets the same
//! [`Material`] and builds the same configuration.

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
