//! The access log of a site.

use std::sync::Arc;

use maitred_config as config;

use crate::logging::pool_access_log::{DoorLogs, LogFile};

/// Where the requests of a site are logged.
#[derive(Debug, Clone, Default)]
pub enum SiteLog {
    /// Where all are.
    #[default]
    Server,
    /// Nowhere.
    Off,
    /// In a file of its own.
    File(Arc<LogFile>),
}

impl SiteLog {
    /// As a site says. A file that the supervisor has not sent is none.
    pub fn of(settings: &config::SiteLog, files: &DoorLogs) -> SiteLog {
        match settings {
            config::SiteLog::Server => SiteLog::Server,
            config::SiteLog::Off => SiteLog::Off,
            config::SiteLog::File(path) => match files.file(path) {
                Some(file) => SiteLog::File(file),
                None => {
                    tracing::error!("the access log {} did not come", path.display());
                    SiteLog::Off
                }
            },
        }
    }
}
