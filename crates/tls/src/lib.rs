//! Certificates, keys and session tickets: from the bytes of files to a rustls configuration. No
//! I/O.
//!
//! The supervisor reads the files and checks them here ([`Server::new`]); the front gets the same
//! [`Material`] and builds the same configuration.

mod acme;
mod certificate;
mod client_variables;
mod fault;
mod local_authority;
mod material;
pub mod names;
mod pem;
mod server;
mod shared_key;
mod sni;
mod tickets;

pub use acme::{ACME_TLS, KeyAndRequest, ask_for, with_proofs};
pub use certificate::Validity;
pub use client_variables::{Variables, variables};
pub use fault::Fault;
pub use local_authority::{
    AUTHORITY_NAME, CERTIFICATE_AGE, KeyAndCertificate, LocalAuthority, permits,
};
pub use material::{Clients, FileWriter, Material, Pair, PemFile};
pub use server::{Server, examine, expiries, host_names};
pub use shared_key::{MAX_KEY_BYTES, SharedKey, peer_key};
pub use tickets::Secret;
