//! What must hold between settings.

pub mod listeners;
pub mod remarks;
pub mod slowlog;
pub mod spare_servers;
