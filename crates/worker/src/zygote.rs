//! The zygote: PHP started with a pool's settings, forking workers when it is told to. It serves
//! nobody.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use maitred_control::{
    CacheSize, FromZygote, Received, ToZygote, WorkerId, ZygoteSettings, exit, hear, say_waiting,
};
use maitred_os::channel::{Channel, Reports};
use maitred_os::errand::{Errand, fork_errand};
use maitred_os::fork::{self, OwnProc, Side};
use maitred_os::signals::Signal;
use maitred_os::{signals, title, users};
use maitred_php::{Engine, IniValue, Mode, PHP_BRANCH, Settings, is_fixed};

use crate::apparmor::Hat;
use crate::sight::StackReader;
use crate::{booted, confine, figures, package, seat, snapshot, warm, words};

/// A pool's descriptors: its shared memory, and one event per front thread.
pub struct Link {
    /// The shared memory.
    pub memory: OwnedFd,
    /// The events.
    pub events: Vec<OwnedFd>,
}

/// Runs the zygote; in a forked worker, it does not return.
pub fn run() -> ExitCode {
    let Ok(control) = Channel::inherited() else {
        eprintln!("maitred-php: no control channel; a zygote is started by maitred only");
        return ExitCode::from(2);
    };
    // Rust's handlers for a stack overflow would take a crash of PHP for one of ours.
    signals::reset(&[Signal::SIGSEGV, Signal::SIGBUS]);
    match prepare(&control) {
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

/// A zygote in which PHP runs.
pub struct Zygote {
    control: Channel,
    /// What it was told.
    pub settings: &'static ZygoteSettings,
    link: Link,
    sight: StackReader,
    /// What the system says of this process.
    pub proc: OwnProc,
    /// A script stands still in the middle of a request: PHP can do nothing else.
    pub is_frozen: bool,
}

/// What a zygote has when PHP runs.
struct Ready {
    settings: &'static ZygoteSettings,
    link: Link,
    sight: StackReader,
    engine: Engine,
    proc: OwnProc,
    started: FromZygote,
}

impl Ready {
    fn with(self, control: Channel) -> (Zygote, Engine, FromZygote) {
        let zygote = Zygote {
            control,
            settings: self.settings,
            link: self.link,
            sight: self.sight,
            proc: self.proc,
            is_frozen: false,
        };
        (zygote, self.engine, self.started)
    }
}

fn prepare(control: &Channel) -> Result<Ready, String> {
    let Ok(Received::Message(ToZygote::Configure(settings), fds)) = hear(control, true) else {
        return Err("the zygote was not told its settings".to_owned());
    };
    // They are needed as long as the process lives, and so are its workers' copies.
    let settings: &'static ZygoteSettings = Box::leak(settings);
    match settings.fpm {
        // No name that `killall php-fpm` would take for a worker of php-fpm.
        true => title::set_with_name(
            &format!("php-fpm: zygote pool {}", settings.pool),
            "maitred-zygote",
        ),
        false => title::set(&format!("maitred-php: zygote pool {}", settings.pool)),
    }
    let mut fds = fds.into_iter();
    let memory = fds.next().ok_or("the pool's shared memory is missing")?;
    let link = Link {
        memory,
        events: fds.collect(),
    };
    confine::limit(&settings.confinement)?;
    let sight = StackReader::new(settings.seats)
        .map_err(|error| format!("it cannot prepare for reading stacks of scripts: {error}"))?;
    confine::give_up_capabilities(&settings.confinement)?;
    if let Some(identity) = &settings.identity {
        confine::become_user(identity, &settings.confinement)
            .map_err(|error| format!("it cannot become user {}: {error}", identity.name))?;
        // Keys of the user who started the server are none of theirs, nor are those of other pools.
        let _ = maitred_os::keyring::begin_session();
        // A change of user clears the wish.
        fork::die_with_parent(settings.supervisor);
    }
    set_environment(settings);
    let mut engine = Engine::start(&php_settings(settings)).map_err(|error| error.to_string())?;
    // Not before: PHP's start runs what is to be preloaded.
    let proc = OwnProc::open().map_err(|error| error.to_string())?;
    judge_values(settings, &engine)?;
    let version = engine.version();
    // Where nobody can tell, nobody is warned: a distribution may have fixed an older release.
    let fixed = is_fixed(version, package::version_of_libphp(version).as_deref()).unwrap_or(true);
    let hat = settings.apparmor_hat.as_deref();
    let hat = hat.map(|hat| Hat::find(&settings.pool, hat)).transpose()?;
    confine::settle(&mut engine, &settings.confinement)?;
    hat.map_or(Ok(()), Hat::put_on)?;
    confine::forbid_new_privileges(settings, &engine)?;
    let started = FromZygote::Started {
        php: version.to_string(),
        fixed,
        exposed: engine.is_exposed(),
        by_path_info: engine.is_by_path_info(),
    };
    Ok(Ready {
        settings,
        link,
        sight,
        engine,
        proc,
        started,
    })
}

/// A setting that PHP does not take is an error; if php-fpm's rules hold, those that it does not
/// know are told, and the others stay as they were.
fn judge_values(settings: &ZygoteSettings, engine: &Engine) -> Result<(), String> {
    let unknown = engine.unknown_values();
    if settings.fpm {
        for value in unknown {
            let kind = if value.admin {
                "php_admin_value"
            } else {
                "php_value"
            };
            eprintln!("ERROR: Unable to set {kind} '{}'", value.name);
        }
        return Ok(());
    }
    if let Some(IniValue { name, .. }) = unknown.first() {
        return Err(format!(
            "PHP does not know the setting `{name}` of this pool; correct its name, or load the \
             extension that has it"
        ));
    }
    match engine.refused_values().first() {
        Some(IniValue { name, value, .. }) => Err(format!(
            "PHP does not take `{name} = {value}` of this pool, or not after its start"
        )),
        None => Ok(()),
    }
}

/// Scripts see the pool's environment, at its end their user as php-fpm tells it unless that names
/// another, and nothing of ours.
fn set_environment(settings: &ZygoteSettings) {
    if settings.fpm {
        // Its configuration has settled who the user is, if anybody (`fpm_unix_conf_wp`).
        return maitred_os::environment::replace(&settings.env);
    }
    let me = users::current();
    let mut all = settings.env.clone();
    for (name, value) in [("USER", me.name), ("HOME", me.home)] {
        let given = all.iter().position(|(given, _)| given == name);
        let given = given.map(|at| all.remove(at).1);
        all.push((name.to_owned(), given.unwrap_or(value)));
    }
    maitred_os::environment::replace(&all);
}

/// php-fpm's own settings, where it is installed: whoever comes from there has tuned those.
pub fn fpm_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(format!("/etc/php/{PHP_BRANCH}/fpm"));
    folder.join("php.ini").is_file().then_some(folder)
}

fn php_settings(settings: &ZygoteSettings) -> Settings {
    let values = |list: &[(String, String)], admin| -> Vec<IniValue> {
        list.iter()
            .map(|(name, value)| IniValue {
                name: name.clone(),
                value: value.clone(),
                admin,
            })
            .collect()
    };
    let mut all = values(&settings.php_values, false);
    all.extend(values(&settings.php_admin_values, true));
    let mut defines = settings.defines.clone();
    let mut define = |name: &str, value: u64| defines.push((name.to_owned(), value.to_string()));
    for (name, value) in settings.cache_size.iter().flat_map(cache_values) {
        // What the pool's own settings say comes later, and is what was outgrown.
        all.retain(|own| own.name != name);
        // php.ini may have been given more since: the larger of the two holds.
        define(&format!("maitred.{name}"), value);
    }
    if settings.worker_script.is_some() || settings.snapshot.is_some() {
        // OPcache would kill whoever has used it for so long when it is to be emptied.
        define("opcache.force_restart_timeout", 0);
    }
    if settings.snapshot.is_some() {
        // It passes over files that are younger than two seconds at the request, and that of a
        // zygote which stands still gets no later: every copy would compile what was deployed just
        // before the boot.
        define("opcache.file_update_protection", 0);
        // For the same reason no time would ever pass until it looks at a file again that copies
        // load: they look each time.
        define("opcache.revalidate_freq", 0);
    }
    let fpm = fpm_folder().filter(|_| !settings.no_php_ini);
    let beside = |name: &str| fpm.as_ref().map(|folder| folder.join(name));
    Settings {
        no_ini_files: settings.no_php_ini,
        defines,
        extensions: settings.extensions.clone(),
        fpm: settings.fpm,
        mode: mode(settings),
        ini_path: settings.php_ini.clone().or_else(|| beside("php.ini")),
        ini_scan_dir: settings
            .php_ini_scan_dir
            .clone()
            .or_else(|| beside("conf.d")),
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

/// What makes OPcache as large as it has to be.
fn cache_values(size: &CacheSize) -> [(&'static str, u64); 3] {
    [
        ("opcache.memory_consumption", size.memory_mb),
        ("opcache.interned_strings_buffer", size.strings_mb),
        ("opcache.max_accelerated_files", size.keys),
    ]
}

/// Serves as long as the supervisor is there; in a forked process, it does not return.
fn serve(mut zygote: Zygote, mut engine: Engine) -> ExitCode {
    match zygote.obey() {
        Came::Worker(place) => {
            let (seat, incarnation) = (place.seat, place.incarnation);
            let (settings, (link, proc), reports) = zygote.become_worker(&place);
            let (Some(script), Some(reports)) = (&settings.worker_script, reports) else {
                engine.after_fork();
                seat::serve(settings, (link, proc), &mut engine, seat, incarnation)
            };
            // Without, it is killed when it is to leave.
            let _ = booted::heed_sigterm(&link, seat);
            engine.after_fork();
            let own = (link, proc, reports);
            booted::serve(settings, script, own, engine, (seat, incarnation))
        }
        Came::Compiler(order) => {
            drop(zygote);
            order.run(&mut engine)
        }
        Came::Looker(look) => {
            drop(zygote);
            look.run(&mut engine)
        }
        Came::End => ExitCode::SUCCESS,
    }
}

/// A worker's place.
pub struct Placed {
    /// Its seat.
    pub seat: u32,
    /// Which worker of that seat it is.
    pub incarnation: u32,
    /// What is to be its standard output and error, if not the zygote's.
    output: Vec<OwnedFd>,
}

/// What [`Zygote::obey`] came to.
pub enum Came {
    /// This is a new worker, which has to [`become one`](Zygote::become_worker).
    Worker(Placed),
    /// This is a child that fills or lists OPcache. It has to let go of the zygote.
    Compiler(warm::Order),
    /// This is a child that looks at OPcache. It has to let go of the zygote.
    Looker(figures::Look),
    /// This is the zygote, and the supervisor has gone.
    End,
}

impl Zygote {
    /// Does what the supervisor orders. Returns in every process that is forked for it, and in this
    /// one when it is not needed any more.
    pub fn obey(&mut self) -> Came {
        loop {
            let order = hear(&self.control, true);
            self.sight.look();
            match order {
                Ok(Received::Message(
                    ToZygote::FillSeat {
                        worker: WorkerId { seat, incarnation },
                    },
                    output,
                )) => {
                    if self.fill(seat, incarnation) {
                        return Came::Worker(Placed {
                            seat,
                            incarnation,
                            output,
                        });
                    }
                }
                Ok(Received::Message(order @ (ToZygote::ListScripts | ToZygote::Warm), fds)) => {
                    if self.is_frozen {
                        self.say(&warm::nothing_done(&order));
                        continue;
                    }
                    match warm::carry_out(&order, fds, &self.control, &self.proc) {
                        warm::Side::Zygote(answer) => self.say(&answer),
                        warm::Side::Child(order) => return Came::Compiler(order),
                    }
                }
                Ok(Received::Message(ToZygote::ReportOpcache, _)) => {
                    match figures::look(&self.control, &self.proc) {
                        figures::Side::Zygote(figures) => {
                            self.say(&FromZygote::OpcacheReported { figures });
                        }
                        figures::Side::Child(look) if self.is_frozen => look.run_within(),
                        figures::Side::Child(look) => return Came::Looker(look),
                    }
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
                    let stack = self.sight.stack(seat, incarnation, request, depth);
                    self.say(&FromZygote::Traced { trace, stack });
                }
                Ok(Received::Message(ToZygote::Configure(_), _) | Received::Nothing) => {}
                Ok(Received::Closed) | Err(_) => return Came::End,
            }
        }
    }

    /// Forks a child that is waited for, for `limit` at most. True in the child.
    pub fn sends_ahead(&self, limit: Duration) -> bool {
        match fork_errand(&self.proc) {
            Ok(Errand::Child) => {
                signals::reset(&[]);
                true
            }
            Ok(Errand::Parent(child)) => {
                let _ = child.wait(limit, self.control.as_fd());
                false
            }
            // It would have been of use, and nothing more.
            Err(_) => false,
        }
    }

    /// Tells the supervisor. One that has gone is noticed when it is listened to.
    pub fn say(&self, report: &FromZygote) {
        let _ = say_waiting(self.control.reports(), report);
    }

    /// Takes hold of `/proc` again, which it had let go of while a script ran. Within another root
    /// it does without: the folder is a way out of that root, for whatever runs there.
    ///
    /// # Errors
    /// One sentence, when it is not to be had.
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
                self.say(&FromZygote::ForkFailed {
                    worker: WorkerId { seat, incarnation },
                    why,
                });
                false
            }
        }
    }

    /// In a new worker: lets go of what is the zygote's, and keeps what it needs to serve. A worker
    /// that boots has where to tell the supervisor of it, which is to be dropped as soon as that is
    /// told.
    ///
    /// What it keeps of `/proc` is to be dropped before a script runs, and `settings` are to be
    /// [settled](settle) then.
    pub fn become_worker(
        self,
        place: &Placed,
    ) -> (&'static ZygoteSettings, (Link, OwnProc), Option<Reports>) {
        let Zygote {
            control,
            settings,
            link,
            sight,
            proc,
            ..
        } = self;
        words::speak_into(&place.output);
        signals::reset(&[]);
        // Before the process can be looked into, be it for a moment and by nobody.
        let boots = settings.worker_script.is_some();
        let reports = Some(control.into_reports()).filter(|_| boots);
        // Without, there are no stacks of its scripts, which is told when one is asked for.
        let _ = sight.show_oneself(&proc, (place.seat, place.incarnation));
        fork::wait_for_new_parent();
        fork::die_with_parent(settings.supervisor);
        (settings, (link, proc), reports)
    }
}

/// In a worker that holds nothing any more but what its scripts may have: lets others of its user
/// look into it, if they are to. To be called before the first script runs, or, where that boots,
/// when it has.
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
    /// The worker's end of the link for one seat.
    ///
    /// # Errors
    /// When the pool's memory does not fit.
    pub fn worker_end(
        self,
        seat: u32,
        incarnation: u32,
    ) -> std::io::Result<maitred_seat::WorkerEnd> {
        maitred_seat::WorkerEnd::new(self.memory.as_fd(), self.events, seat, incarnation)
    }
}
