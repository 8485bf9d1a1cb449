//! Starts the process of a command or a schedule: the pool's PHP program, which takes the pool's
//! user and limits and then becomes the command (`worker/src/launch.rs`).

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use maitred_config::{IoPriority, Job};
use maitred_control::launch::{LAUNCH_ROLE, Launch, LaunchIo, LaunchPolicy};
use maitred_os::shared;
use maitred_os::spawn::{self, Program};
use maitred_os::users;

use crate::jobs::unit::JobContext;
use crate::processes::pools::Pools;
use crate::processes::scoreboards::Scoreboards;
use crate::system::private_folders;
use crate::system::programs::Programs;

/// What a process is started with, and the program that does it.
#[derive(Debug)]
pub struct Prepared {
    /// The settings.
    pub launch: Launch,
    /// The PHP program.
    pub program: PathBuf,
}

/// The settings of a job: those of the generation of its pool that serves, as its workers have
/// them. So no user is looked up here, which may take long.
///
/// # Errors
/// One sentence.
pub fn prepare(job: &Job, pools: &Pools, programs: &Programs) -> Result<Prepared, String> {
    let pool = &pools.current_of(&job.pool).ok_or("its pool does not run")?.plan;
    let mut settings = pool.settings.clone();
    private_folders::provide(&mut settings);
    settings.env.retain(|(name, _)| !job.env.iter().any(|(own, _)| own == name));
    settings.env.extend(job.env.iter().cloned());
    let confinement = &mut settings.confinement;
    let of_pool = confinement.process_priority;
    confinement.process_priority = job.process_priority.or(of_pool);
    let is_nicer = job.nicer() > 0 || job.process_priority > Some(of_pool.unwrap_or(0));
    let version = pool.php.as_deref();
    let php = match job.is_php() {
        true => Some(programs.command_line(version)?.to_owned()),
        false => None,
    };
    let launch = Launch {
        settings,
        title: format!("{} {}", job.kind(), job.name),
        command: job.command.clone(),
        php,
        dir: job.dir.clone(),
        counts: false,
        nicer: job.nicer(),
        policy: match job.process_priority {
            None if job.cpu_weight == 0 => LaunchPolicy::Idle,
            _ if is_nicer => LaunchPolicy::Batch,
            _ => LaunchPolicy::Normal,
        },
        io: job.io.map(|io| match io {
            IoPriority::Idle => LaunchIo::Idle,
            IoPriority::BestEffort(level) => LaunchIo::BestEffort(level),
        }),
    };
    Ok(Prepared { launch, program: pool.program.clone() })
}

/// A process of a job.
#[derive(Debug, Clone, Copy)]
pub struct Launched {
    /// Its process id.
    pub pid: i32,
    /// The id of its user.
    pub uid: u32,
}

impl Prepared {
    /// The id of its user.
    pub fn uid(&self) -> u32 {
        let user = self.launch.settings.identity.as_ref();
        user.map_or_else(|| users::current().uid, |user| user.uid)
    }

    /// The memory in which it counts, if it is PHP: no other program can.
    pub fn counts<'s>(&self, scoreboards: &'s Scoreboards) -> Option<BorrowedFd<'s>> {
        let Launch { settings, php, .. } = &self.launch;
        php.as_ref()?;
        let confinement = &settings.confinement;
        scoreboards.applications.of_command(&settings.pool, self.uid(), confinement)
    }
}

/// The variable with the time at which a run of a schedule was due, in seconds since 1970.
const DUE: &str = "MAITRED_DUE";

/// Starts a process of a job, with this output. A run of a schedule learns when it was `due`.
///
/// # Errors
/// One sentence.
pub fn start(
    job: &Job,
    due: Option<i64>,
    context: &JobContext<'_>,
    output: BorrowedFd<'_>,
) -> Result<Launched, String> {
    let plan = context.plan;
    let prepared = prepare(job, context.pools, &plan.programs)?;
    let uid = prepared.uid();
    let counts = prepared.counts(context.scoreboards);
    let Prepared { mut launch, program } = prepared;
    launch.counts = counts.is_some();
    launch.settings.env.extend(due.map(|due| (DUE.to_owned(), due.to_string())));
    let json = serde_json::to_vec(&launch).map_err(|why| why.to_string())?;
    let file = shared::file_with("maitred-launch", &json).map_err(|why| why.to_string())?;
    let inherit: Vec<_> = std::iter::once(file.as_fd()).chain(counts).collect();
    let started = spawn::start(&Program {
        path: &program,
        name: OsStr::new("maitred-php"),
        arguments: &[OsStr::new(LAUNCH_ROLE)],
        environment: &plan.environment,
        inherit: &inherit,
        output: Some(output),
        group: plan.groups.as_ref().and_then(|groups| groups.entrance(&job.pool)),
    });
    let pid = started.map_err(|why| format!("{} cannot be started: {why}", program.display()))?;
    Ok(Launched { pid, uid })
}
