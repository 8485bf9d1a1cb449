//! Certificates and keys: those of files, and those that ACME issues.

pub mod acme;
pub mod certificates;
pub mod host_owners;
