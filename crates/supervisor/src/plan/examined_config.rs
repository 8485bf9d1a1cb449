//! A configuration with all that the supervisor needs to know of folders of tenants for it.

use maitred_config::Config;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::plan::{self, Plan};
use crate::reload::pool_changes::keep_chroots;
use crate::system::faults::{Examined, Faults, Findings};
use crate::system::{confinement, identity};

/// The configuration that is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Examination {
    /// The one of the source, which is read again.
    New,
    /// The one in use.
    InUse,
    /// The sections with faults of the one in use.
    Faults,
}

/// The configuration, and what is wrong with it, but for what only the supervisor finds out: the
/// programs that it needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExaminedConfig {
    /// The configuration.
    pub config: Config,
    /// Why it cannot be used.
    pub mistakes: Vec<String>,
    /// The faults of single sites and pools.
    pub faults: Faults,
    /// What this machine does not have for it.
    pub warnings: Vec<String>,
}

impl ExaminedConfig {
    /// Looks up all names. For a process that may wait, and that has one thread.
    ///
    /// # Errors
    /// The mistakes in the text of the configuration.
    pub fn find(examination: Examination, plan: &Plan) -> Result<ExaminedConfig, String> {
        let file = plan.source.file();
        let config = match examination {
            Examination::New => plan.source.load()?,
            Examination::InUse => with_owners(&plan.config, &Examined::Of(plan.faults.sections())),
            Examination::Faults => {
                let config = with_owners(&plan.config, &Examined::Of(plan.faults.sections()));
                let front = plan.front_identity.as_ref();
                let faults = plan::examine_again(&config, file, front, &plan.faults);
                return Ok(ExaminedConfig { faults, ..ExaminedConfig::without_findings(config) });
            }
        };
        let mut kept = config.clone();
        identity::find_users(&mut kept);
        keep_chroots(&plan.config, &mut kept, |name| !plan.faults.stops_pool(name));
        let found = plan::examine_folders(&kept, file);
        Ok(ExaminedConfig {
            mistakes: found.mistakes.iter().map(ToString::to_string).collect(),
            faults: found.faults,
            warnings: confinement::warnings(&kept).collect(),
            ..ExaminedConfig::without_findings(config)
        })
    }

    fn without_findings(config: Config) -> ExaminedConfig {
        ExaminedConfig {
            config,
            mistakes: Vec::new(),
            faults: Faults::default(),
            warnings: Vec::new(),
        }
    }

    /// Takes what is wrong with it.
    pub fn take_findings(&mut self) -> Findings {
        let mistakes = std::mem::take(&mut self.mistakes).into_iter();
        let faults = std::mem::take(&mut self.faults);
        Findings { mistakes: mistakes.map(Error::Mistakes).collect(), faults }
    }
}

/// The configuration with the owners of document roots by now.
fn with_owners(config: &Config, examined: &Examined) -> Config {
    let mut config = config.clone();
    identity::find_root_owners(&mut config, examined);
    config
}
