//! How a pool's workers run an application, and what must hold between the settings of that.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::config::Pool;

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

/// Checks a pool's mode against the settings it goes with.
pub(crate) fn check_mode(pool: &Pool, settings: &DeTable<'_>) -> Vec<Fault> {
    let mode = pool.mode.name();
    let span = |name| settings.get(name).map_or(0..0, |value| value.span());
    let mut faults = Vec::new();
    // A wrong `script` has been told already.
    if pool.mode != Mode::Classic && pool.script.is_none() && !settings.contains_key("script") {
        let sentence = format!(
            "`mode` is \"{mode}\", which needs `script`; add the script that is to be booted"
        );
        faults.push(Fault::new(span("mode"), sentence));
    }
    let both = pool
        .script
        .as_deref()
        .zip(pool.confinement.chroot.as_deref());
    if let Some((script, chroot)) = both.filter(|(script, chroot)| !script.starts_with(chroot)) {
        let sentence = format!(
            "`script` is {}, which does not lie beneath {}, the pool's `chroot`; move it there",
            script.display(),
            chroot.display()
        );
        faults.push(Fault::new(span("script"), sentence));
    }
    faults
}

impl Pool {
    /// The script that is booted as the pool's PHP sees it, if one is.
    pub fn booted_script(&self) -> Option<std::path::PathBuf> {
        let script = self
            .script
            .as_ref()
            .filter(|_| self.mode != Mode::Classic)?;
        let inside = self.confinement.chroot.as_ref();
        let inside = inside.and_then(|chroot| script.strip_prefix(chroot).ok());
        Some(match inside {
            Some(rest) => std::path::Path::new("/").join(rest),
            None => script.clone(),
        })
    }
}
