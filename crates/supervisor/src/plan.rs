//! What a configuration comes to on this machine, with everything the processes share made.

pub mod config_source;

use std::fs::File;
use std::path::PathBuf;

use maitred_config::Config;
use maitred_os::users::Identity;
use tracing::warn;

use crate::LOG_VARIABLE;
use crate::error::Error;
use crate::listen::{self, InheritedSockets, Listener};
use crate::logging::log_files;
use crate::logging::pool_access_logs::PoolAccessLogs;
use crate::logging::text::Terminal;
use crate::plan::config_source::{Invocation, Source};
use crate::processes::plan::{PoolPlan, processors};
use crate::system::cgroups::Groups;
use crate::system::programs::Programs;
use crate::system::{confinement, identity};
use crate::tls::certificates::Certificates;

/// What our own environment hands on to our processes. Scripts get what their pool's `env` says.
const HANDED_ON: [&str; 5] = ["PATH", "TZ", "LANG", "TMPDIR", "RUST_BACKTRACE"];

/// Everything that is decided before the first process is started.
#[derive(Debug)]
pub struct Plan {
    /// The configuration, as the front gets it.
    pub config: Config,
    /// Where it comes from.
    pub source: Source,
    /// How we were started.
    pub invocation: Invocation,
    /// Threads of the front.
    pub threads: u32,
    /// Whom the front becomes.
    pub front_identity: Option<Identity>,
    /// Where clients are listened for.
    pub listeners: Vec<Listener>,
    /// The environment of our processes.
    pub environment: Vec<(String, String)>,
    /// The programs of zygotes and workers.
    pub programs: Programs,
    /// The control groups of pools that have limits, where the machine lets us.
    pub groups: Option<Groups>,
    /// The access log, if it is a file.
    pub access_log: Option<File>,
    /// The access logs of doors.
    pub door_logs: PoolAccessLogs,
    /// The certificates and keys of TLS, if it is spoken.
    pub certificates: Option<Certificates>,
    /// Where the person who started the server reads.
    pub terminal: Terminal,
}

impl Plan {
    /// Makes the plan, and that of each pool, and with them sockets, memory and events.
    ///
    /// # Errors
    /// What the configuration asks for and cannot be had here.
    pub fn make(
        config: Config,
        source: Source,
        invocation: Invocation,
        log_level: &str,
        inherited: InheritedSockets,
    ) -> Result<(Plan, Vec<PoolPlan>), Error> {
        let (mistakes, programs) = crate::examine(&config, source.file());
        if let Some(mistake) = mistakes.into_iter().next() {
            return Err(mistake);
        }
        let certificates = Certificates::of(&config, None)?;
        let threads = threads(&config);
        let pools = config
            .pools
            .iter()
            .map(|pool| PoolPlan::make(pool, &config, &programs, threads));
        let pools = pools.collect::<Result<_, _>>()?;
        let listeners = listen::open(&config, inherited, threads)?;
        let plan = Plan {
            terminal: match &config.fpm {
                Some(_) => Terminal::silent(),
                None => Terminal::redirect(&config.error_log)?,
            },
            access_log: log_files::open_access_log(&config)?,
            door_logs: PoolAccessLogs::at_start(&config)?,
            certificates,
            ..Plan::over(config, source, invocation, log_level, (listeners, programs))?
        };
        Ok((plan, pools))
    }

    /// The plan of a server that the program before this one has left running.
    ///
    /// # Errors
    /// What the configuration asks for and cannot be had here any more.
    pub fn over(
        config: Config,
        source: Source,
        invocation: Invocation,
        log_level: &str,
        (listeners, programs): (Vec<Listener>, Programs),
    ) -> Result<Plan, Error> {
        let mut plan = Plan {
            listeners,
            threads: threads(&config),
            front_identity: identity::of_front(&config)?,
            environment: environment(log_level),
            programs,
            groups: None,
            access_log: None,
            door_logs: PoolAccessLogs::default(),
            certificates: None,
            terminal: Terminal::over(None),
            config: config.clone(),
            source,
            invocation,
        };
        plan.limit(&config);
        Ok(plan)
    }

    /// Has the program around the supervisor do as the configuration says that is in use from now on.
    pub fn follow_configuration(&mut self) {
        let Some(log) = self.invocation.host.follow(&self.config) else {
            return;
        };
        let variables = self.environment.iter_mut();
        for (_, value) in variables.filter(|(name, _)| name == LOG_VARIABLE) {
            value.clone_from(&log);
        }
    }

    /// Puts the limits of pools into force that hold for all of a pool's processes together, and
    /// says what the machine does not give.
    pub fn limit(&mut self, config: &Config) {
        let lacking = Groups::arrange(&mut self.groups, config).err();
        for warning in confinement::warnings(config).chain(lacking) {
            warn!("{warning}");
        }
    }

    /// The folder of a pool's control group, if that may limit its memory.
    pub fn memory_group(&self, pool: &str) -> Option<PathBuf> {
        let folder = self.groups.as_ref()?.memory_folder(pool)?;
        Some(folder.to_owned())
    }
}

/// Threads of the front.
fn threads(config: &Config) -> u32 {
    let threads = match config.front_threads {
        // A thread answers tens of thousands of requests a second; the scripts need the rest of
        // the machine (docs/decisions/0003-front-runtime.md).
        0 => processors().div_ceil(2),
        asked => asked,
    };
    threads.min(maitred_seat::MAX_THREADS)
}

fn environment(log_level: &str) -> Vec<(String, String)> {
    let handed_on = |name: &str| HANDED_ON.contains(&name) || name.starts_with("LC_");
    let all = std::env::vars_os();
    let text =
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let level = (LOG_VARIABLE.to_owned(), log_level.to_owned());
    text.filter(|(name, _)| handed_on(name))
        .chain([level])
        .collect()
}
