//! Sockets, TLS, and the least rate of clients.

pub(crate) mod admin_peer;
pub(crate) mod client_addresses;
pub(crate) mod client_memory;
pub(crate) mod client_rate;
pub(crate) mod client_verification;
pub(crate) mod descriptor_guard;
pub(crate) mod handshake_limit;
pub(crate) mod proxy_protocol;
pub(crate) mod readable;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod tls;
