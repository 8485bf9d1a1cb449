//! How a pool's workers run an application, and what must hold between the settings of that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Longest that booting a script may take, if nothing else is said.
pub(crate) const DEFAULT_BOOT_TIMEOUT: Duration = Duration::from_secs(60);

/// For what an older program hands over, which does not know of scripts that boot.
pub(crate) fn default_boot_timeout() -> Duration {
    DEFAULT_BOOT_TIMEOUT
}

/// How a pool's workers run an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every request runs its own script from the beginning.
    #[default]
    Classic,
    /// Each worker boots one script, which asks for one request after the other.
    Worker,
    /// One script is booted for all workers, which are copies of that process.
    Snapshot,
}

/// What becomes of connections that the boot of an application has left open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootConnections {
    /// The boot has failed, and the log names them.
    #[default]
    Refuse,
    /// They are closed, and whoever needs one in a copy has to connect again.
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
