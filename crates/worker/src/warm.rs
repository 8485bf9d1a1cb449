//! Passes OPcache's scripts from one zygote to the next. PHP runs in a child: a zygote itself never
//! runs a request, whose leftovers would be in every worker.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use maitred_control::{FromZygote, PRELOADABLE_TIMEOUT, ToZygote, scripts};
use maitred_os::channel::Channel;
use maitred_os::fork::{HowEnded, OwnProc, exit_now};
use maitred_os::timed_child::{ChildResult, TimedChild, TimedFork, fork_timed};
use maitred_os::{shared, signals};
use maitred_php::Engine;

/// Timeout for the list.
const LIST_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time that filling OPcache may keep a new zygote from forking its first worker.
const WARM_TIMEOUT: Duration = Duration::from_secs(10);

/// Time of [`WARM_TIMEOUT`] that is left for the last script, so that only a hanging one is killed.
const LAST_SCRIPT: Duration = Duration::from_secs(1);

/// A task with a list of scripts.
#[derive(Clone, Copy, Debug)]
enum ListTask {
    /// Write it.
    List,
    /// Write its scripts that may be preloaded.
    Preloadable,
    /// Compile its scripts.
    Warm,
}

/// A task that needs a child.
#[derive(Debug)]
pub struct ScriptTask {
    what: ListTask,
    list: File,
    /// Number of scripts that the child has completed, as a native `u32`: also valid if it is
    /// killed.
    count: File,
}

/// The process in which [`ScriptTask::fork`] returned.
pub enum WarmSide {
    /// The child, with its task.
    Child(ScriptTask),
    /// The zygote, with the reply.
    Zygote(FromZygote),
}

/// The reply of a zygote that cannot do it.
pub fn nothing_done(order: &ToZygote) -> FromZygote {
    ListTask::of(order).reply(0)
}

/// Carries out [`ToZygote::ListScripts`], [`ToZygote::ListPreloadable`] or [`ToZygote::Warm`].
/// Returns in the zygote when that is done, and before that in the child, which must drop the
/// control channel and `proc`, and call [`run`](ScriptTask::run).
pub fn carry_out(
    order: &ToZygote,
    fds: Vec<OwnedFd>,
    control: &Channel,
    proc: &OwnProc,
) -> WarmSide {
    let what = ListTask::of(order);
    // A failure is not reported: the scripts are then compiled on their first request.
    match ScriptTask::new(what, fds).and_then(|order| order.fork(control, proc)) {
        Ok(side) => side,
        Err(_) => WarmSide::Zygote(what.reply(0)),
    }
}

impl ListTask {
    fn of(order: &ToZygote) -> ListTask {
        match order {
            ToZygote::ListScripts => ListTask::List,
            ToZygote::ListPreloadable => ListTask::Preloadable,
            _ => ListTask::Warm,
        }
    }

    fn reply(self, count: u32) -> FromZygote {
        match self {
            ListTask::List => FromZygote::ScriptsListed { count },
            ListTask::Preloadable => FromZygote::PreloadableListed { count },
            ListTask::Warm => FromZygote::Warmed { compiled: count },
        }
    }

    fn writes_list(self) -> bool {
        matches!(self, ListTask::List | ListTask::Preloadable)
    }

    fn timeout(self) -> Duration {
        match self {
            ListTask::List => LIST_TIMEOUT,
            ListTask::Preloadable => PRELOADABLE_TIMEOUT,
            ListTask::Warm => WARM_TIMEOUT,
        }
    }
}

impl ScriptTask {
    fn new(what: ListTask, fds: Vec<OwnedFd>) -> io::Result<ScriptTask> {
        let list = fds.into_iter().next();
        let list = list.ok_or_else(|| io::Error::other("the list of scripts is missing"))?;
        let count = shared::file_with("maitred-count", &0_u32.to_ne_bytes())?;
        Ok(ScriptTask { what, list: list.into(), count: count.into() })
    }

    fn fork(self, control: &Channel, proc: &OwnProc) -> io::Result<WarmSide> {
        if self.what.writes_list() {
            self.list.set_len(0)?;
        }
        match fork_timed(proc)? {
            TimedFork::Child => Ok(WarmSide::Child(self)),
            TimedFork::Parent(child) => Ok(WarmSide::Zygote(self.await_child(child, control))),
        }
    }

    fn await_child(&self, child: TimedChild, control: &Channel) -> FromZygote {
        let returned = child.wait(self.what.timeout(), control.as_fd());
        let is_well = matches!(returned, Ok(ChildResult::Ended(HowEnded::Exited(0))));
        if self.what.writes_list() && !is_well {
            // An incomplete list is dropped.
            let _ = self.list.set_len(0);
            return self.what.reply(0);
        }
        let mut count = [0; 4];
        let count = match self.count.read_exact_at(&mut count, 0) {
            Ok(()) => u32::from_ne_bytes(count),
            Err(_) => 0,
        };
        self.what.reply(count)
    }

    /// In the child: runs the task and exits.
    pub fn run(self, engine: &mut Engine) -> ! {
        let deadline = Instant::now() + self.what.timeout().saturating_sub(LAST_SCRIPT);
        signals::reset(&[]);
        engine.after_fork();
        let done = match self.what {
            ListTask::List => self.list(engine),
            ListTask::Preloadable => self.list_preloadable(engine, deadline),
            ListTask::Warm => self.warm(engine, deadline),
        };
        exit_now(i32::from(done.is_err()))
    }

    fn list(&self, engine: &mut Engine) -> io::Result<()> {
        let cached = engine.cached_scripts();
        let paths = cached.iter().map(|script| Path::new(&script.path));
        let (list, count) = scripts::write(paths);
        self.list.write_all_at(&list, 0)?;
        self.tell(count)
    }

    fn list_preloadable(&self, engine: &mut Engine, deadline: Instant) -> io::Result<()> {
        let cached = engine.cached_scripts();
        let mut folders: Vec<&Path> =
            cached.iter().filter_map(|script| script.path.parent()).collect();
        folders.sort_unstable();
        folders.dedup();
        let folders: Vec<PathBuf> = folders.into_iter().map(|folder| folder.join("")).collect();
        let paths: Vec<PathBuf> = cached.iter().map(|script| script.path.clone()).collect();
        let scripts = engine.preloadable_scripts(&paths, || Instant::now() < deadline);
        let (list, _) = scripts::write(folders.iter().chain(&scripts).map(PathBuf::as_path));
        self.list.write_all_at(&list, 0)?;
        self.tell(scripts.len())
    }

    fn warm(&self, engine: &mut Engine, deadline: Instant) -> io::Result<()> {
        let paths = scripts::read(&read_list(&self.list)?);
        let compiled = engine.compile_scripts(&paths, |compiled| {
            self.tell(compiled).is_ok() && Instant::now() < deadline
        });
        self.tell(compiled)
    }

    fn tell(&self, count: usize) -> io::Result<()> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.count.write_all_at(&count.to_ne_bytes(), 0)
    }
}

/// Reads a list. The file's position is shared with every process that has had it, and is left
/// unchanged.
///
/// # Errors
/// When the file cannot be read.
pub fn read_list(file: &File) -> io::Result<Vec<u8>> {
    let mut list = Vec::new();
    let from_start = FromStart { file, at: 0 };
    from_start.take(scripts::LIST_BYTES_MAX as u64).read_to_end(&mut list)?;
    Ok(list)
}

/// Reads a file from its start without its position.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}
