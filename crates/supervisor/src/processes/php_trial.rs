//! Starting PHP as the pools would, before anything serves: `maitred check` finds the settings that
//! PHP does not know or take, and the extensions that it cannot load.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use maitred_config::{Config, Pool, Section};
use maitred_control::{FromZygote, ToZygote};
use maitred_os::signals::Signal;
use maitred_os::spawn::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::error::Error;
use crate::logging::text::one_line;
use crate::peer::{Peer, roomy_name};
use crate::processes::plan::{PoolPlan, ZYGOTE_ROLE, processors};
use crate::system::programs::Programs;

/// Timeout of PHP's start.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// Interval of the checks whether a trial is over.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// Most bytes of PHP's messages that are read.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// PHP's setting for a script that it runs as it starts.
const PRELOAD: &str = "opcache.preload";

/// How PHP's messages about its own start begin (`php_error_docref` before `module_initialized`).
const AT_STARTUP: &str = "PHP Startup: ";

/// A zygote that is started to see whether PHP runs.
struct Trial<'a> {
    pool: &'a Pool,
    peer: Peer<ToZygote>,
    output: OwnedFd,
    messages: Vec<u8>,
    result: Option<Result<(), String>>,
}

/// Starts PHP for each kind of pool among those that `is_tried`, and returns what it reports. For
/// a process without other children.
pub fn mistakes(
    config: &Config,
    programs: &Programs,
    environment: &[(String, String)],
    is_tried: impl Fn(&Pool) -> bool,
) -> Vec<Error> {
    let mut kinds: BTreeMap<String, PoolPlan> = BTreeMap::new();
    for pool in config.pools.iter().filter(|pool| is_tried(pool)) {
        if let Ok(plan) = PoolPlan::make(pool, config, programs, 1) {
            kinds.entry(kind_of(&plan)).or_insert(plan);
        }
    }
    let plans: Vec<PoolPlan> = kinds.into_values().collect();
    let together = processors() as usize * 2;
    plans.chunks(together).flat_map(|plans| try_together(plans, environment)).collect()
}

/// What distinguishes the PHP of a pool: its program and its settings, but not its user.
fn kind_of(plan: &PoolPlan) -> String {
    let settings = &plan.settings;
    format!(
        "{:?}",
        (
            &plan.program,
            (&settings.php_ini, &settings.php_ini_scan_dir, settings.no_php_ini),
            (&settings.php_values, &settings.php_admin_values),
            (&settings.defines, &settings.extensions, &settings.confinement),
        )
    )
}

fn try_together(plans: &[PoolPlan], environment: &[(String, String)]) -> Vec<Error> {
    let mut mistakes = Vec::new();
    let mut trials = Vec::new();
    for plan in plans {
        match Trial::start(plan, environment) {
            Ok(trial) => trials.push(trial),
            Err(why) => {
                let said = format!("{} cannot be started: {why}", plan.program.display());
                mistakes.push(of_pool(&plan.configured, "php", said));
            }
        }
    }
    let until = Instant::now() + STARTS_WITHIN;
    while trials.iter().any(|trial| trial.result.is_none()) && Instant::now() < until {
        wait(&trials);
        trials.iter_mut().for_each(Trial::read);
    }
    mistakes.extend(trials.into_iter().flat_map(Trial::end));
    mistakes
}

fn wait(trials: &[Trial<'_>]) {
    let mut fds: Vec<PollFd<'_>> = trials
        .iter()
        .filter(|trial| trial.result.is_none())
        .flat_map(|trial| trial.peer.interests().chain([PollFd::new(&trial.output, PollFlags::IN)]))
        .collect();
    let timeout = Timespec::try_from(LOOKED_EVERY).unwrap_or_default();
    // A failure only makes the next check earlier.
    let _ = poll(&mut fds, Some(&timeout));
}

impl<'a> Trial<'a> {
    fn start(plan: &'a PoolPlan, environment: &[(String, String)]) -> std::io::Result<Trial<'a>> {
        let (output, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let program = Program {
            path: &plan.program,
            name: &roomy_name("maitred-php: trial"),
            arguments: &[OsStr::new(ZYGOTE_ROLE)],
            environment,
            inherit: &[],
            output: Some(writer.as_fd()),
            group: None,
        };
        let mut peer = Peer::start_of_pool(&program, &plan.settings.pool)?;
        let mut settings = plan.settings.clone();
        // No application is booted, no folder is made, and PHP's messages about its start are
        // logged.
        (settings.snapshot, settings.worker_script) = (None, None);
        settings.private_folder = None;
        // Nor does the pool's code run: nothing would end what it starts, or limit it.
        let values = [&mut settings.php_values, &mut settings.php_admin_values];
        for values in values.into_iter().chain([&mut settings.defines]) {
            values.retain(|(name, _)| name != PRELOAD);
        }
        settings.defines.push((PRELOAD.to_owned(), String::new()));
        settings.defines.push(("display_startup_errors".to_owned(), "0".to_owned()));
        settings.defines.push(("log_errors".to_owned(), "1".to_owned()));
        settings.defines.push(("error_log".to_owned(), String::new()));
        peer.allow(plan.descriptors_of_zygote());
        peer.say(ToZygote::Configure(Box::new(settings)), &plan.shared());
        Ok(Trial { pool: &plan.configured, peer, output, messages: Vec::new(), result: None })
    }

    fn read(&mut self) {
        self.peer.flush();
        match self.peer.hear::<FromZygote>() {
            Some(FromZygote::StartFailed { why }) => self.result = Some(Err(one_line(&why))),
            Some(_) => self.result = Some(Ok(())),
            None if self.peer.is_closed() && self.result.is_none() => {
                self.result = Some(Err("its process ended".to_owned()));
            }
            None => {}
        }
        let mut bytes = [0; 4096];
        while self.messages.len() < MAX_MESSAGE_BYTES
            && let Ok(count @ 1..) = rustix::io::read(&self.output, &mut bytes)
        {
            self.messages.extend_from_slice(&bytes[..count]);
        }
    }

    /// Ends the zygote. What it has reported, as mistakes.
    fn end(mut self) -> Vec<Error> {
        self.read();
        self.peer.signal(Signal::SIGKILL);
        // Only this process can reap it, and after the signal it ends at once.
        let _ = waitpid(Pid::from_raw(self.peer.pid()), WaitOptions::empty());
        let pool = self.pool;
        let failed = match self.result {
            Some(Ok(())) => None,
            Some(Err(why)) => Some(why),
            None => Some(format!("it was not ready within {} s", STARTS_WITHIN.as_secs())),
        };
        let failed = failed.map(|why| {
            let said = format!("PHP could not start for pool `{}`: {why}", pool.name);
            of_pool(pool, setting_in(pool, &why), said)
        });
        let messages = String::from_utf8_lossy(&self.messages);
        let messages = messages.lines().filter_map(|line| line.split_once(AT_STARTUP));
        let messages = messages.map(|(_, message)| {
            let message = message.split(" (tried: ").next().unwrap_or(message);
            let said = format!(
                "PHP says at its start for pool `{}`: {}; install what is missing, or correct its \
                 php.ini",
                pool.name,
                one_line(message)
            );
            of_pool(pool, "php_ini", said)
        });
        failed.into_iter().chain(messages).collect()
    }
}

fn of_pool(pool: &Pool, setting: &'static str, said: String) -> Error {
    Error::Setting { section: Section::Pool(pool.name.clone()), setting, said }
}

/// The table of the pool with the entry that a message of PHP is about.
fn setting_in(pool: &Pool, why: &str) -> &'static str {
    let is_named = |name: &String| why.contains(name.as_str());
    if pool.php_admin_value.keys().any(is_named) {
        "php_admin_value"
    } else if pool.php_value.keys().any(is_named) {
        "php_value"
    } else {
        "php"
    }
}
