//! The access log of a site.

use std::sync::Arc;

use maitred_config as config;

use crate::logging::pool_access_log::{LogFile, PoolAccessLogs};

/// The destination of a site's access log.
#[derive(Debug, Clone, Default)]
pub enum SiteLog {
    /// The server's log.
    #[default]
    Server,
    /// No access log.
    Off,
    /// A separate file.
    File(Arc<LogFile>),
}

impl SiteLog {
    /// Whether lines go to the same place.
    pub fn is_same_as(&self, other: &SiteLog) -> bool {
        match (self, other) {
            (SiteLog::File(one), SiteLog::File(other)) => Arc::ptr_eq(one, other),
            (SiteLog::Server, SiteLog::Server) | (SiteLog::Off, SiteLog::Off) => true,
            _ => false,
        }
    }

    /// The log of a site's settings. A file that the supervisor has not sent counts as none: it
    /// could not open it, and has logged why.
    pub fn of(settings: &config::SiteLog, files: &PoolAccessLogs) -> SiteLog {
        match settings {
            config::SiteLog::Server => SiteLog::Server,
            config::SiteLog::Off => SiteLog::Off,
            config::SiteLog::File(path) => match files.file(path) {
                Some(file) => SiteLog::File(file),
                None => SiteLog::Off,
            },
        }
    }
}
