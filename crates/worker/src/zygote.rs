//! The zygote: PHP started with a pool's settings, forking workers on request. It serves no
//! requests.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use maitred_control::{
    CacheSize, FromZygote, Received, ToZygote, WorkerId, ZygoteSettings, exit, hear, say_waiting,
};
use maitred_os::channel::{CHANNEL_DESCRIPTORS, Channel, Reports};
use maitred_os::fork::{self, OwnProc, Side};
use maitred_os::signals::Signal;
use maitred_os::timed_child::{TimedFork, fork_timed};
use maitred_os::{signals, spawn, title, users};
use maitred_php::{
    Engine, IniValue, Mode, PHP_BRANCH, PhpVersion, Settings, is_fixed, use_direct_calls,
};
use maitred_seat::{PoolMap, WorkerEnd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::apparmor::Hat;
use crate::confine::Holes;
use crate::pool_values::judge_values;
use crate::preload::{FileWatch, KnownFolders, Preloaded, read_preload};
use crate::private_folder::PrivateFolder;
use crate::stack_reader::StackReader;
use crate::stack_sampler::{Profile, StackSource};
use crate::{booted, confine, ini_files, opcache_stats, package, seat, snapshot, stderr, warm};

/// Lowest number of a descriptor of the pool's events. Scripts get the lowest free numbers, and
/// open fewer files.
const EVENTS_FROM: i32 = 200;

/// A pool's shared memory, and one eventfd per front thread.
pub struct Link {
    /// The shared memory.
    pub memory: PoolMap,
    /// The events.
    pub events: Vec<OwnedFd>,
}

/// A forked worker that has not taken its seat yet.
pub struct NewWorker {
    /// Its pool's settings.
    pub settings: &'static ZygoteSettings,
    /// Its pool's memory and descriptors.
    pub link: Link,
    /// Its `/proc` directory, to be dropped before a script runs.
    pub proc: OwnProc,
    /// Its seat.
    pub seat: u32,
    /// Its incarnation in that seat.
    pub incarnation: u32,
    /// The folders of its pool's scripts, if classes are preloaded.
    pub known_folders: Option<KnownFolders>,
}

/// Runs the zygote; in a forked worker, it does not return.
pub fn run() -> ExitCode {
    let Ok(control) = Channel::inherited() else {
        eprintln!("maitred-php: no control channel; a zygote is started by maitred only");
        return ExitCode::from(2);
    };
    // Rust's stack overflow handlers would treat a crash of PHP as one of ours.
    signals::reset(&[Signal::SIGSEGV, Signal::SIGBUS]);
    let entered = spawn::enter_group(CHANNEL_DESCRIPTORS)
        .map_err(|error| format!("it cannot enter its pool's control group: {error}"));
    match entered.and_then(|()| prepare(&control)) {
        Ok(ready) => {
            let (zygote, engine, started) = ready.with(control);
            if let Some(snapshot) = &zygote.settings.snapshot {
                return snapshot::boot(zygote, engine, started, snapshot);
            }
            zygote.say(&started);
            serve(zygote, engine)
        }
        Err(why) => {
            let _ = say_waiting(control.reports(), &FromZygote::StartFailed { why });
            ExitCode::from(u8::try_from(exit::START_FAILED).unwrap_or(1))
        }
    }
}

/// A zygote with PHP started.
pub struct Zygote {
    control: Channel,
    /// Its settings.
    pub settings: &'static ZygoteSettings,
    link: Link,
    stacks: StackReader,
    /// Its `/proc` directory.
    pub proc: OwnProc,
    /// A script is suspended inside a request: PHP can do nothing else.
    pub is_frozen: bool,
    preloaded: Preloaded,
    profile: Option<Profile>,
}

/// The state of a zygote after PHP's start.
struct Ready {
    settings: &'static ZygoteSettings,
    link: Link,
    stacks: StackReader,
    engine: Engine,
    proc: OwnProc,
    started: FromZygote,
    preloaded: Preloaded,
}

impl Ready {
    fn with(self, control: Channel) -> (Zygote, Engine, FromZygote) {
        let zygote = Zygote {
            control,
            settings: self.settings,
            link: self.link,
            stacks: self.stacks,
            proc: self.proc,
            is_frozen: false,
            preloaded: self.preloaded,
            profile: None,
        };
        (zygote, self.engine, self.started)
    }
}

/// Moves descriptors to numbers that scripts do not get: a script that closes those of its worker
/// and opens files would otherwise have its files written to instead.
fn out_of_reach(events: impl Iterator<Item = OwnedFd>) -> Result<Vec<OwnedFd>, String> {
    let moved = events.map(|event| match fcntl_dupfd_cloexec(&event, EVENTS_FROM) {
        // The limit of open files is lower.
        Err(Errno::INVAL) => Ok(event),
        moved => moved,
    });
    let moved: Result<Vec<OwnedFd>, Errno> = moved.collect();
    moved.map_err(|error| format!("the pool's events cannot be moved: {error}"))
}

fn prepare(control: &Channel) -> Result<Ready, String> {
    let Ok(Received::Message(ToZygote::Configure(settings), fds)) = hear(control, true) else {
        return Err("the zygote has received no settings".to_owned());
    };
    // They are needed as long as the process and its workers live.
    let settings: &'static ZygoteSettings = Box::leak(settings);
    if settings.fpm {
        // No name that `killall php-fpm` would match.
        title::set_with_name(&format!("php-fpm: zygote pool {}", settings.pool), "maitred-zygote")
    } else {
        title::set(&format!("maitred-php: zygote pool {}", settings.pool))
    }
    let mut fds = fds;
    if let Some(code) = fds.pop_if(|_| settings.direct_calls)
        && let Err(why) = use_direct_calls(&File::from(code))
    {
        eprintln!("maitred-php: pool {} runs PHP without direct calls: {why}", settings.pool);
    }
    let list = fds.pop_if(|_| settings.preload);
    if let Some(memory) = fds.pop_if(|_| settings.counts) {
        maitred_php::count_in(memory.as_fd());
    }
    let mut fds = fds.into_iter();
    let memory = fds.next().ok_or("the pool's shared memory is missing")?;
    let link = Link::open(&memory, out_of_reach(fds)?)?;
    // The pool's code must not find it.
    drop(memory);
    confine::limit(&settings.confinement)?;
    let stacks = StackReader::new(settings.seats)
        .map_err(|error| format!("it cannot prepare to read the stacks of scripts: {error}"))?;
    confine::give_up_capabilities(&settings.confinement)?;
    let holes = Holes::forbid(&settings.confinement);
    confine::become_user(settings)?;
    let folder = PrivateFolder::prepare(settings)?;
    let variable = folder.as_ref().and_then(|folder| folder.variable(settings));
    set_environment(settings, variable);
    let preload = list.and_then(|list| read_preload(settings, list));
    ini_files::find_ini_files(settings)?;
    let mut php = php_settings(settings);
    preload.iter().for_each(|preload| preload.apply(&mut php));
    confine::forbid_before_php(settings)?;
    let mut engine = Engine::start(&php).map_err(|error| error.to_string())?;
    if let Some(folder) = folder {
        folder.apply(settings, &mut engine);
    }
    // Not earlier: PHP's start runs preloading.
    let proc = OwnProc::open().map_err(|error| error.to_string())?;
    if mode(settings) == Mode::Classic {
        // A booted script uses OPcache all the time, and not request by request. If it is refused,
        // workers lock the file.
        let _ = engine.share_opcache_lock(settings.seats);
    }
    judge_values(settings, &engine)?;
    let version = engine.version();
    // No warning if unknown: a distribution may have fixed an older release.
    let fixed = is_fixed(version, package::version_of_libphp(version).as_deref()).unwrap_or(true);
    let hat = settings.apparmor_hat.as_deref();
    let hat = hat.map(|hat| Hat::find(&settings.pool, hat)).transpose()?;
    confine::settle(&mut engine, &settings.confinement)?;
    hat.map_or(Ok(()), Hat::put_on)?;
    confine::forbid_new_privileges(settings, &engine)?;
    holes.forbid_at_last(&settings.pool);
    let classes = if preload.is_some() { engine.watch_preloaded() } else { 0 };
    let preloaded = preload.map(|preload| preload.started(&engine));
    let preloaded = preloaded.unwrap_or_default();
    let built = PhpVersion::built().filter(|built| *built != version);
    let started = FromZygote::Started {
        php: version.to_string(),
        built: built.map(|built| built.to_string()),
        fixed,
        exposed: engine.is_exposed(),
        by_path_info: engine.is_by_path_info(),
        preloaded: classes,
    };
    Ok(Ready { settings, link, stacks, engine, proc, started, preloaded })
}

/// Scripts see the pool's environment, then `more`, followed by USER and HOME as in php-fpm unless
/// it sets them, and nothing of ours.
pub fn set_environment(
    settings: &ZygoteSettings,
    more: impl IntoIterator<Item = (String, String)>,
) {
    if settings.fpm {
        // Its configuration has determined the user, if any (`fpm_unix_conf_wp`).
        return maitred_os::environment::replace(&settings.env);
    }
    let me = users::current();
    let mut all = settings.env.clone();
    all.extend(more);
    for (name, value) in [("USER", me.name), ("HOME", me.home)] {
        let given = all.iter().position(|(given, _)| given == name);
        let given = given.map(|at| all.remove(at).1);
        all.push((name.to_owned(), given.unwrap_or(value)));
    }
    maitred_os::environment::replace(&all);
}

/// php-fpm's own settings, if it is installed: users who migrate have tuned those.
pub fn fpm_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(format!("/etc/php/{PHP_BRANCH}/fpm"));
    folder.join("php.ini").is_file().then_some(folder)
}

fn php_settings(settings: &ZygoteSettings) -> Settings {
    let values = |list: &[(String, String)], admin| -> Vec<IniValue> {
        list.iter()
            .map(|(name, value)| IniValue { name: name.clone(), value: value.clone(), admin })
            .collect()
    };
    let mut all = values(&settings.php_values, false);
    all.extend(values(&settings.php_admin_values, true));
    let mut defines = settings.defines.clone();
    let mut define = |name: &str, value: u64| defines.push((name.to_owned(), value.to_string()));
    if settings.confinement.chroot.is_some() {
        define("maitred.chroot", 1);
    }
    for (name, value) in settings.cache_size.iter().flat_map(cache_values) {
        // The pool's own values come later in the order, and are too small.
        all.retain(|own| own.name != name);
        // php.ini may have larger values by now: the larger ones apply.
        define(&format!("maitred.{name}"), value);
    }
    if settings.worker_script.is_some() || settings.snapshot.is_some() {
        // OPcache would kill processes that have used it this long during a restart.
        define("opcache.force_restart_timeout", 0);
    }
    if settings.snapshot.is_some() {
        // It skips files that are less than two seconds old at the request, and the request of a
        // suspended zygote does not get later: every copy would compile files that were deployed
        // just before the boot.
        define("opcache.file_update_protection", 0);
        // For the same reason its timeout for checking a file again would never expire in copies:
        // they check every time.
        define("opcache.revalidate_freq", 0);
        // PHP 8.4 reserves memory for the JIT, which is off, and warns that the server has handlers
        // of instructions. Copies must not share the JIT's code anyway.
        define("opcache.jit_buffer_size", 0);
    }
    let fpm = fpm_folder().filter(|_| !settings.no_php_ini);
    let beside = |name: &str| fpm.as_ref().map(|folder| folder.join(name));
    let php_fpms = Settings::default().sapi_name;
    Settings {
        sapi_name: settings.sapi_name.clone().unwrap_or(php_fpms),
        no_ini_files: settings.no_php_ini,
        defines,
        extensions: settings.extensions.clone(),
        fpm: settings.fpm,
        mode: mode(settings),
        ini_path: settings.php_ini.clone().or_else(|| beside("php.ini")),
        ini_scan_dir: settings.php_ini_scan_dir.clone().or_else(|| beside("conf.d")),
        values: all,
        ..Settings::default()
    }
}

fn mode(settings: &ZygoteSettings) -> Mode {
    match (&settings.snapshot, &settings.worker_script) {
        (Some(_), _) => Mode::Snapshot,
        (None, Some(_)) => Mode::Worker,
        (None, None) => Mode::Classic,
    }
}

/// The directives that enlarge OPcache.
fn cache_values(size: &CacheSize) -> [(&'static str, u64); 3] {
    [
        ("opcache.memory_consumption", size.memory_mb),
        ("opcache.interned_strings_buffer", size.strings_mb),
        ("opcache.max_accelerated_files", size.keys),
    ]
}

/// Serves until the supervisor exits; in a forked process, it does not return.
fn serve(mut zygote: Zygote, mut engine: Engine) -> ExitCode {
    match zygote.obey() {
        Forked::Worker(place) => {
            let (worker, reports) = zygote.become_worker(&place);
            let (Some(script), Some(reports)) = (&worker.settings.worker_script, reports) else {
                engine.after_fork();
                engine.take_opcache_lock(worker.seat);
                seat::serve(worker, &mut engine)
            };
            // Without it, the worker is killed instead.
            let _ = booted::heed_sigterm(&worker.link, worker.seat);
            engine.after_fork();
            booted::serve(worker, script, reports, engine)
        }
        Forked::Compiler(order) => {
            drop(zygote);
            order.run(&mut engine)
        }
        Forked::StatsReader(look) => {
            drop(zygote);
            look.run(&mut engine)
        }
        Forked::End => ExitCode::SUCCESS,
    }
}

/// A worker's assignment.
pub struct SeatAssignment {
    /// Its seat.
    pub seat: u32,
    /// The incarnation of its worker.
    pub incarnation: u32,
    /// Its standard output and error, if not the zygote's.
    output: Vec<OwnedFd>,
}

/// The outcome of [`Zygote::obey`].
pub enum Forked {
    /// This is a new worker, which must call [`become_worker`](Zygote::become_worker).
    Worker(SeatAssignment),
    /// This is a child that fills or lists OPcache. It must drop the zygote.
    Compiler(warm::ScriptTask),
    /// This is a child that reads OPcache's statistics. It must drop the zygote.
    StatsReader(opcache_stats::StatsTask),
    /// This is the zygote, and the supervisor has exited.
    End,
}

impl Zygote {
    /// Carries out the supervisor's orders. Returns in every process that is forked for one, and in
    /// this one when it is no longer needed.
    pub fn obey(&mut self) -> Forked {
        loop {
            self.await_order();
            let order = hear(&self.control, true);
            self.stacks.receive();
            match order {
                Ok(Received::Message(
                    ToZygote::FillSeat { worker: WorkerId { seat, incarnation } },
                    output,
                )) => {
                    if self.fill(seat, incarnation) {
                        return Forked::Worker(SeatAssignment { seat, incarnation, output });
                    }
                }
                Ok(Received::Message(
                    order @ (ToZygote::ListScripts | ToZygote::ListPreloadable | ToZygote::Warm),
                    fds,
                )) => {
                    if self.is_frozen {
                        self.say(&warm::nothing_done(&order));
                        continue;
                    }
                    match warm::carry_out(&order, fds, &self.control, &self.proc) {
                        warm::WarmSide::Zygote(response) => self.say(&response),
                        warm::WarmSide::Child(order) => return Forked::Compiler(order),
                    }
                }
                Ok(Received::Message(ToZygote::ReportOpcache, _)) => {
                    match opcache_stats::read_stats(&self.control, &self.proc) {
                        opcache_stats::StatsSide::Zygote(figures) => {
                            self.say(&FromZygote::OpcacheReported { figures });
                        }
                        opcache_stats::StatsSide::Child(look) if self.is_frozen => {
                            look.run_within()
                        }
                        opcache_stats::StatsSide::Child(look) => return Forked::StatsReader(look),
                    }
                }
                Ok(Received::Message(ToZygote::Profile { profile, rate, duration }, fds)) => {
                    self.profile = fds.into_iter().next().map(|result| {
                        let source = StackSource::new(&self.proc, self.link.memory.boards());
                        Profile::begin(profile, rate, duration, result, source)
                    });
                }
                Ok(Received::Message(
                    ToZygote::Trace {
                        trace,
                        worker: WorkerId { seat, incarnation },
                        request,
                        depth,
                    },
                    _,
                )) => {
                    let stack = self.stacks.stack(seat, incarnation, request, depth);
                    self.say(&FromZygote::Traced { trace, stack });
                }
                Ok(Received::Message(ToZygote::Configure(_), _) | Received::Nothing) => {}
                Ok(Received::Closed) | Err(_) => return Forked::End,
            }
        }
    }

    /// Waits for an order. Meanwhile, it reports a changed file of a preloaded class, and reads the
    /// stacks of a profile.
    fn await_order(&mut self) {
        while self.preloaded.watch.is_some() || self.profile.is_some() {
            let watch = self.preloaded.watch.as_ref();
            let mut ready = vec![PollFd::new(&self.control, PollFlags::IN)];
            ready.push(PollFd::new(&self.stacks, PollFlags::IN));
            ready.extend(watch.map(|watch| PollFd::new(watch, PollFlags::IN)));
            let wait = self.profile.as_ref().map(Profile::wait);
            let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
            // On an error, the order is awaited without the rest.
            if poll(&mut ready, wait.as_ref()).is_err() || !ready[0].revents().is_empty() {
                return;
            }
            let has_new_workers = !ready[1].revents().is_empty();
            if let Some(file) = watch.and_then(FileWatch::changed) {
                self.say(&FromZygote::PreloadedFileChanged { file });
                self.preloaded.watch = None;
            }
            if has_new_workers {
                self.stacks.receive();
            }
            let stacks = &self.stacks;
            if let Some(profile) = self.profile.take_if(|profile| profile.sample(stacks)) {
                self.say(&profile.finish());
            }
        }
    }

    /// Forks a child and waits for it, for `limit` at most. True in the child.
    pub fn sends_ahead(&self, limit: Duration) -> bool {
        match fork_timed(&self.proc) {
            Ok(TimedFork::Child) => {
                signals::reset(&[]);
                true
            }
            Ok(TimedFork::Parent(child)) => {
                let _ = child.wait(limit, self.control.as_fd());
                false
            }
            // It is optional.
            Err(_) => false,
        }
    }

    /// Reports to the supervisor. Its exit is noticed on the next read.
    pub fn say(&self, report: &FromZygote) {
        let _ = say_waiting(self.control.reports(), report);
    }

    /// Opens `/proc` again, which was closed while a script ran. In a chroot it does without: the
    /// directory would be a way out of that root for code that runs there.
    ///
    /// # Errors
    /// One sentence, when it cannot be opened.
    pub fn find_proc(&mut self) -> Result<(), String> {
        if self.settings.confinement.chroot.is_none() {
            let found = OwnProc::open();
            self.proc = found.map_err(|error| format!("/proc cannot be opened: {error}"))?;
        }
        Ok(())
    }

    /// True in the new worker.
    fn fill(&self, seat: u32, incarnation: u32) -> bool {
        match fork_worker(&self.control, &self.proc, seat, incarnation) {
            Ok(Side::Parent) => false,
            Ok(Side::Orphan) => true,
            Err(error) => {
                let why = error.to_string();
                self.say(&FromZygote::ForkFailed { worker: WorkerId { seat, incarnation }, why });
                false
            }
        }
    }

    /// In a new worker: drops the zygote's resources, and keeps what it needs to serve. A worker
    /// that boots keeps a channel for reporting it to the supervisor, which must be dropped as soon
    /// as that is done.
    ///
    /// Its `/proc` directory must be dropped before a script runs, and `settings` must be
    /// [settled](settle) then.
    pub fn become_worker(self, place: &SeatAssignment) -> (NewWorker, Option<Reports>) {
        let Zygote { control, settings, link, stacks, proc, preloaded, .. } = self;
        stderr::redirect_output(&place.output);
        signals::reset(&[]);
        // Before another process can inspect this one, even briefly.
        let boots = settings.worker_script.is_some();
        let reports = Some(control.into_reports()).filter(|_| boots);
        // Without it, there are no stacks of its scripts, which is reported when one is requested.
        let _ = stacks.send_memory(&proc, place.seat, place.incarnation);
        fork::wait_for_new_parent();
        fork::die_with_parent(settings.supervisor);
        let worker = NewWorker {
            settings,
            link,
            proc,
            seat: place.seat,
            incarnation: place.incarnation,
            known_folders: preloaded.folders,
        };
        (worker, reports)
    }
}

/// In a worker with no descriptors left but those that its scripts may have: allows its user to
/// inspect it, if configured. To be called before the first script runs, or, if that boots, after
/// the boot.
pub fn settle(settings: &ZygoteSettings) {
    users::leave_shield();
    if settings.dumpable {
        let _ = fork::allow_inspection();
    }
}

fn fork_worker(
    control: &Channel,
    proc: &OwnProc,
    seat: u32,
    incarnation: u32,
) -> std::io::Result<Side> {
    let begun = Instant::now();
    fork::fork_orphan(proc, |pid| {
        let filled = FromZygote::SeatFilled {
            worker: WorkerId { seat, incarnation },
            pid,
            took: begun.elapsed(),
        };
        let _ = say_waiting(control.reports(), &filled);
    })
}

impl Link {
    fn open(memory: &OwnedFd, events: Vec<OwnedFd>) -> Result<Link, String> {
        let threads = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let memory = PoolMap::map(memory, threads)
            .map_err(|error| format!("the pool's shared memory cannot be mapped: {error}"))?;
        Ok(Link { memory, events })
    }

    /// The worker's end of the link for one seat.
    ///
    /// # Errors
    /// When the seat does not exist.
    pub fn worker_end(self, seat: u32, incarnation: u32) -> std::io::Result<WorkerEnd> {
        self.memory.worker_end(self.events, seat, incarnation)
    }
}
