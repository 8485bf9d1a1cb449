//! How a pool's workers run an application.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Default of `boot_timeout`.
pub(crate) const DEFAULT_BOOT_TIMEOUT: Duration = Duration::from_secs(60);

/// How a pool's workers run an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every request runs its own script.
    #[default]
    Classic,
    /// Each worker boots one script, which takes its requests in a loop.
    Worker,
    /// One script is booted, and all workers are copies of that process.
    Snapshot,
}

/// The handling of connections that the boot of an application has left open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootConnections {
    /// The boot fails, and the log names them.
    #[default]
    Refuse,
    /// They are closed; code that needs one in a copy connects again.
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
