//! How a pool's workers run an application.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Default of `boot_timeout`.
pub(crate) const DEFAULT_BOOT_TIMEOUT: Duration = Duration::from_secs(60);

/// How a pool's workers run an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every request runs its script from the start, as in php-fpm.
    #[default]
    Classic,
    /// Each worker boots one script, which handles requests in a loop.
    Worker,
    /// One script is booted once, and all workers are copies of that process.
    Snapshot,
}

/// The handling of connections that are still open after the boot of an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootConnections {
    /// The boot fails, and the log names them.
    #[default]
    Refuse,
    /// The connections are closed; code in a copy has to connect again.
    Close,
}

impl Mode {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Classic => "classic",
            Mode::Worker => "worker",
            Mode::Snapshot => "snapshot",
        }
    }
}
