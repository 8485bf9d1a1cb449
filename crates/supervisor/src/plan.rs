//! The resources of a configuration on this machine: sockets, logs, certificates, programs.

pub mod config_source;
pub mod examined_config;
pub mod folder_lookups;

use std::path::Path;

use maitred_config::fpm::Level;
use maitred_config::{Config, Listening, Pool};
use maitred_control::ToFront;
use maitred_os::users::Identity;
use tracing::{error, warn};

use crate::admin;
use crate::error::Error;
use crate::fronts::log_manager::LogManager;
use crate::listen::{self, InheritedSockets, Listener, OpenedListeners};
use crate::logging::log_files;
use crate::logging::terminal::Terminal;
use crate::peer::Peer;
use crate::plan::config_source::{Invocation, LOG_VARIABLE, Source};
use crate::plan::examined_config::ExaminedConfig;
use crate::processes::plan::{PoolPlan, processors};
use crate::processes::pools::Pools;
use crate::system::cgroups::Groups;
use crate::system::faults::{Examined, Faults, Findings};
use crate::system::programs::Programs;
use crate::system::{
    confinement, identity, peer_secret, pool_files, private_folders, site_folders,
};
use crate::tls::certificates::Certificates;

/// The argument that makes our program the front.
pub const FRONT_ROLE: &str = "front";

/// Environment variables that our processes inherit. Scripts get those of their pool's `env`.
const HANDED_ON: [&str; 5] = ["PATH", "TZ", "LANG", "TMPDIR", "RUST_BACKTRACE"];

/// Everything that is decided before the first process is started.
#[derive(Debug)]
pub struct Plan {
    /// The configuration, as the front gets it.
    pub config: Config,
    /// Its source.
    pub source: Source,
    /// The command line.
    pub invocation: Invocation,
    /// Threads of the front.
    pub threads: u32,
    /// User of the front.
    pub front_identity: Option<Identity>,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// The environment of our processes.
    pub environment: Vec<(String, String)>,
    /// The programs of zygotes and workers.
    pub programs: Programs,
    /// The control groups of pools with limits, where the machine supports them.
    pub groups: Option<Groups>,
    /// The log files.
    pub logs: LogManager,
    /// The certificates and keys, if TLS is configured.
    pub certificates: Option<Certificates>,
    /// The faults of single sites and pools.
    pub faults: Faults,
    /// Standard error of the person who started the server.
    pub terminal: Terminal,
}

/// What was opened and found for a plan.
#[derive(Debug)]
pub struct Found {
    /// The listening sockets.
    pub listeners: Vec<Listener>,
    /// The programs of zygotes and workers.
    pub programs: Programs,
}

impl Plan {
    /// Plans the server and its pools, and opens sockets, memory and events.
    ///
    /// # Errors
    /// Something that the configuration needs and this machine does not have.
    pub fn make(
        mut config: Config,
        source: Source,
        invocation: Invocation,
        log_level: &str,
        inherited: InheritedSockets,
    ) -> Result<(Plan, Vec<PoolPlan>), Error> {
        identity::find_users(&mut config);
        let (mut findings, programs) = examine(&config, source.file());
        let certificates = Certificates::of(&config, None)?;
        findings.faults.extend(certificates.iter().flat_map(Certificates::faults));
        let obstacles = findings.obstacles(&config, invocation.strict);
        if !obstacles.is_empty() {
            return Err(Error::all(obstacles));
        }
        let threads = threads(&config);
        let startable = |pool: &&Pool| !findings.faults.stops_pool(&pool.name);
        let pools = config.pools.iter().filter(startable);
        let pools = pools.map(|pool| PoolPlan::make(pool, &config, &programs, threads));
        let pools: Vec<PoolPlan> = pools.collect::<Result<_, _>>()?;
        let OpenedListeners { new: listeners, lost, .. } =
            listen::open(&config, inherited, threads)?;
        findings.add(Findings::among(lost, &config, source.file()));
        let obstacles = findings.obstacles(&config, invocation.strict);
        if !obstacles.is_empty() {
            return Err(Error::all(obstacles));
        }
        let faults = findings.faults;
        let plan = Plan {
            terminal: match &config.fpm {
                Some(_) => Terminal::silent(),
                None => Terminal::redirect(&config.error_log)?,
            },
            logs: LogManager::at_start(&config, environment(log_level))?,
            certificates,
            faults,
            ..Plan::over(config, source, invocation, log_level, Found { listeners, programs })?
        };
        for warning in confinement::warnings(&plan.config) {
            warn!("{warning}");
        }
        Ok((plan, pools))
    }

    /// The plan of a server that the previous program has left running.
    ///
    /// # Errors
    /// Something that the configuration needs and this machine does not have any more.
    pub fn over(
        config: Config,
        source: Source,
        invocation: Invocation,
        log_level: &str,
        found: Found,
    ) -> Result<Plan, Error> {
        let Found { listeners, programs } = found;
        let mut plan = Plan {
            listeners,
            threads: threads(&config),
            front_identity: identity::of_front(&config)?,
            environment: environment(log_level),
            programs,
            groups: None,
            logs: LogManager::default(),
            certificates: None,
            faults: Faults::default(),
            terminal: Terminal::over(None),
            config: config.clone(),
            source,
            invocation,
        };
        plan.limit(&config);
        Ok(plan)
    }

    /// Has the host program use the configuration from now on.
    pub fn follow_configuration(&mut self) {
        let Some(log) = self.invocation.host.follow(&self.config) else {
            return;
        };
        let variables = self.environment.iter_mut();
        for (_, value) in variables.filter(|(name, _)| name == LOG_VARIABLE) {
            value.clone_from(&log);
        }
    }

    /// Applies the limits that hold for all processes of a pool together, and logs those that the
    /// machine does not support.
    pub fn limit(&mut self, config: &Config) {
        if let Err(lacking) = Groups::arrange(&mut self.groups, config) {
            warn!("{lacking}");
        }
    }

    /// Takes over the faults of the program before an upgrade, and adds the programs that are
    /// lacking. An older program hands over none: the folders are looked up then.
    pub fn take_faults_over(&mut self, faults: Option<Faults>, lacking: Vec<Error>) {
        let (config, file) = (&self.config, self.source.file());
        let mut findings = Findings::among(lacking, config, file);
        let before = || examine_folders(config, file).faults;
        let faults = faults.unwrap_or_else(before);
        findings.add(Findings { mistakes: Vec::new(), faults });
        self.faults = findings.faults;
    }

    /// What is wrong with a configuration that was examined, with the programs that were found.
    pub fn findings(&self, examined: &mut ExaminedConfig) -> (Findings, Programs) {
        let (programs, lacking) = Programs::find(&examined.config);
        let mut findings = examined.take_findings();
        findings.add(Findings::among(lacking, &examined.config, self.source.file()));
        (findings, programs)
    }

    /// The faults by now, where those were examined that it has.
    pub fn faults_by_now(&mut self, mut examined: ExaminedConfig) -> Faults {
        let (sections, file) = (Examined::Of(self.faults.sections()), self.source.file());
        let lacking = self.programs.missing_by_now(&self.config, &sections);
        let mut findings = examined.take_findings();
        findings.add(Findings::among(lacking, &self.config, file));
        findings.faults.extend(self.certificates.iter().flat_map(Certificates::faults));
        findings.faults
    }

    /// Adds the listeners that cannot be opened to the faults of a new configuration.
    ///
    /// # Errors
    /// Why it is not used.
    pub fn with_lost(
        &self,
        faults: Faults,
        opened: &mut OpenedListeners,
        config: &Config,
    ) -> Result<Faults, String> {
        let lost = std::mem::take(&mut opened.lost);
        let mut findings = Findings::among(lost, config, self.source.file());
        findings.add(Findings { mistakes: Vec::new(), faults });
        let obstacles = findings.obstacles(config, self.invocation.strict);
        match obstacles.is_empty() {
            true => Ok(findings.faults),
            false => Err(Error::all(obstacles).to_string()),
        }
    }

    /// Closes the listeners: the kernel rejects new clients at once, and they can go elsewhere.
    pub fn close_listeners(&mut self) {
        for listener in &mut self.listeners {
            listener.close();
        }
    }

    /// Uses the listeners of a new configuration, and has the front do so. A listener whose socket
    /// is replaced is closed before the new one is opened.
    pub fn switch_listeners(&mut self, opened: OpenedListeners, front: Option<&mut Peer<ToFront>>) {
        let wanted = self.config.listening();
        let wanted: Vec<_> = wanted.into_iter().map(Listening::address).collect();
        let stays = |one: &Listener| wanted.contains(&one.asked) && !opened.replaces(one);
        opened.adjust(&mut self.listeners);
        let (mut stay, removed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.listeners).into_iter().partition(stays);
        if let Some(peer) = front {
            for listener in &removed {
                let address = listener.address.to_string();
                peer.say(ToFront::Unlisten { address }, &[]);
            }
            for listener in &opened.new {
                listener.tell(peer);
            }
        }
        stay.extend(opened.new);
        self.listeners = stay;
    }

    /// How many descriptors a new front gets.
    pub fn descriptors_of_front(&self, pools: &Pools) -> usize {
        let sockets = self.listeners.iter().map(|one| one.sockets.len());
        let pools = pools.iter().map(|running| running.plan.descriptors_of_front());
        sockets.chain(pools).fold(0, usize::saturating_add)
    }

    /// Logs why the server does not start, also for the person who started it.
    pub fn log_failure(&self, sentence: &str) {
        error!("{sentence}");
        if self.terminal.is_aside() && !self.is_fpm() {
            self.terminal.tell(sentence);
        }
    }

    /// Whether the server was started as php-fpm.
    pub fn is_fpm(&self) -> bool {
        self.config.fpm.is_some()
    }

    /// php-fpm's `log_level`, if the server was started as php-fpm.
    pub fn fpm_log_level(&self) -> Option<Level> {
        self.config.fpm.as_ref().map(|fpm| fpm.log_level)
    }
}

/// What is wrong with a configuration on this machine, with its place in `file`, and the programs
/// that were found. For a process with one thread.
pub fn examine(config: &Config, file: Option<&Path>) -> (Findings, Programs) {
    let (programs, lacking) = Programs::find(config);
    let mut findings = examine_folders(config, file);
    findings.add(Findings::among(lacking, config, file));
    (findings, programs)
}

/// The same without the programs.
pub fn examine_folders(config: &Config, file: Option<&Path>) -> Findings {
    identity::distrust_groups(config);
    let (front, no_front) = match identity::of_front(config) {
        Ok(front) => (front, None),
        Err(why) => (None, Some(why)),
    };
    let mut found = of_sites_and_pools(config, front.as_ref(), &Examined::All);
    found.errors.extend(no_front);
    found.errors.extend(private_folders::mistakes(config));
    found.errors.extend(peer_secret::mistake(config));
    found.errors.extend(listen::mistakes(config));
    found.errors.extend(config.admin_socket.as_deref().and_then(admin::mistake));
    found.findings(config, file)
}

/// The faults of the sites and pools that have `faults`, by now. Nothing is looked up for the
/// others, which serve: a directory of users may be slow, and a disk with folders may not respond.
/// Programs are left out. For a process with one thread.
pub fn examine_again(
    config: &Config,
    file: Option<&Path>,
    front: Option<&Identity>,
    faults: &Faults,
) -> Faults {
    let examined = Examined::Of(faults.sections());
    let mut found = of_sites_and_pools(config, front, &examined);
    found.errors.extend(listen::still_lost(config, faults));
    found.findings(config, file).faults
}

/// Errors, and the pools whose users cannot be used.
struct SitesAndPools<'a> {
    errors: Vec<Error>,
    stopped: Vec<&'a str>,
}

fn of_sites_and_pools<'a>(
    config: &'a Config,
    front: Option<&Identity>,
    examined: &'a Examined,
) -> SitesAndPools<'a> {
    let mut errors = site_folders::mistakes(config, front, examined);
    let (stopped, users): (Vec<_>, Vec<_>) = identity::mistakes(config, examined).unzip();
    errors.extend(users);
    errors.extend(confinement::mistakes(config, examined));
    errors.extend(pool_files::mistakes(config, examined));
    errors.extend(log_files::mistakes(config, examined));
    SitesAndPools { errors, stopped }
}

impl SitesAndPools<'_> {
    fn findings(self, config: &Config, file: Option<&Path>) -> Findings {
        let mut findings = Findings::among(self.errors, config, file);
        for pool in self.stopped {
            findings.faults.stop_pool(pool);
        }
        findings
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

/// The environment of our processes.
pub fn environment(log_level: &str) -> Vec<(String, String)> {
    let handed_on = |name: &str| HANDED_ON.contains(&name) || name.starts_with("LC_");
    let all = std::env::vars_os();
    let text =
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let level = (LOG_VARIABLE.to_owned(), log_level.to_owned());
    text.filter(|(name, _)| handed_on(name)).chain([level]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use maitred_config::Section;

    use super::*;
    use crate::system::faults::{Fault, Loss};

    /// Sites and pools with nothing that this machine has.
    fn config() -> Config {
        let site = |name: &str| {
            format!(
                "[[sites]]\nhosts = \"{name}.example\"\nroot = \"/nowhere/{name}\"\n\
                 pool = \"{name}\"\naccess_log = \"/nowhere/{name}.log\"\n\
                 [pools.{name}]\nuser = \"no-user-{name}\"\nphp = \"0.1\"\n"
            )
        };
        let text = [site("one"), site("two"), site("three")].concat();
        maitred_config::parse(&text, Path::new("/maitred.toml")).unwrap()
    }

    fn fault(section: Option<Section>) -> Fault {
        Fault { section, loss: Loss::Renewal, sentence: String::new() }
    }

    fn found(faults: &[Fault]) -> BTreeSet<Section> {
        let mut before = Faults::default();
        before.extend(faults.iter().cloned());
        examine_again(&config(), None, None, &before).sections()
    }

    #[test]
    fn only_what_has_a_fault_is_examined_again() {
        assert_eq!(found(&[fault(None)]), BTreeSet::new(), "a certificate");
        let (site, pool) = (Section::Site(0), Section::Pool("two".to_owned()));
        assert_eq!(found(&[fault(Some(site.clone()))]), [site.clone()].into());
        let both = [fault(Some(site.clone())), fault(None), fault(Some(pool.clone()))];
        assert_eq!(found(&both), [site, pool].into());
    }
}
