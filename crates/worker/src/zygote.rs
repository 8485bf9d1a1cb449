//! The zygote: PHP started with a pool's settings, forking workers when it is told to. It serves
//! nobody.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use maitred_control::{FromZygote, Heard, ToZygote, ZygoteSettings, exit, hear, say_waiting};
use maitred_os::channel::Channel;
use maitred_os::fork::{self, OwnProc, Side};
use maitred_os::signals::Signal;
use maitred_os::{signals, spawn, title, users};
use maitred_php::{Engine, IniValue, PHP_BRANCH, Settings, is_fixed};

use crate::apparmor::Hat;
use crate::sight::Sight;
use crate::{booted, confine, figures, package, seat, warm, words};

/// A pool's descriptors: its shared memory, and one event per front thread.
pub struct Link {
    /// The shared memory.
    pub memory: OwnedFd,
    /// The events.
    pub events: Vec<OwnedFd>,
}

/// Runs the zygote; in a forked worker, it does not return.
pub fn run() -> ExitCode {
    let Ok(control) = spawn::inherited(0).map(Channel::from_fd) else {
        eprintln!("maitred-php: no control channel; a zygote is started by maitred only");
        return ExitCode::from(2);
    };
    // Rust's handlers for a stack overflow would take a crash of PHP for one of ours.
    signals::reset(&[Signal::SIGSEGV, Signal::SIGBUS]);
    match start(&control) {
        Ok(started) => obey(control, started),
        Err(why) => {
            let _ = say_waiting(&control, &FromZygote::StartFailed { why });
            ExitCode::from(u8::try_from(exit::START_FAILED).unwrap_or(1))
        }
    }
}

/// What a zygote has when PHP runs.
struct Started {
    settings: ZygoteSettings,
    link: Link,
    sight: Sight,
    engine: Engine,
    proc: OwnProc,
}

fn start(control: &Channel) -> Result<Started, String> {
    let Ok(Heard::Message(ToZygote::Configure(settings), fds)) = hear(control, true) else {
        return Err("the zygote was not told its settings".to_owned());
    };
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
    let sight = Sight::new(settings.seats)
        .map_err(|error| format!("it cannot prepare for reading stacks of scripts: {error}"))?;
    if let Some(identity) = &settings.identity {
        confine::become_user(identity, &settings.confinement)
            .map_err(|error| format!("it cannot become user {}: {error}", identity.name))?;
        // A change of user clears the wish.
        fork::die_with_parent(settings.supervisor);
    }
    set_environment(&settings);
    let proc = OwnProc::open().map_err(|error| error.to_string())?;
    let mut engine = Engine::start(&php_settings(&settings)).map_err(|error| error.to_string())?;
    judge_values(&settings, &engine)?;
    let version = engine.version();
    // Where nobody can tell, nobody is warned: a distribution may have fixed an older release.
    let fixed = is_fixed(version, package::version_of_libphp(version).as_deref()).unwrap_or(true);
    let hat = settings.apparmor_hat.as_deref();
    let hat = hat.map(|hat| Hat::find(&settings.pool, hat)).transpose()?;
    confine::settle(&mut engine, &settings.confinement)?;
    hat.map_or(Ok(()), Hat::put_on)?;
    let started = FromZygote::Started {
        php: version.to_string(),
        fixed,
        exposed: engine.is_exposed(),
        by_path_info: engine.is_by_path_info(),
    };
    say_waiting(control, &started).map_err(|error| error.to_string())?;
    Ok(Started {
        settings: *settings,
        link,
        sight,
        engine,
        proc,
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
    match unknown.iter().chain(engine.refused_values()).next() {
        Some(value) => Err(format!(
            "PHP does not take the setting `{}` of this pool",
            value.name
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
    if settings.worker_script.is_some() {
        // OPcache would kill whoever has used it for so long when it is to be emptied.
        defines.push(("opcache.force_restart_timeout".to_owned(), "0".to_owned()));
    }
    let fpm = fpm_folder().filter(|_| !settings.no_php_ini);
    let beside = |name: &str| fpm.as_ref().map(|folder| folder.join(name));
    Settings {
        no_ini_files: settings.no_php_ini,
        defines,
        extensions: settings.extensions.clone(),
        fpm: settings.fpm,
        ini_path: settings.php_ini.clone().or_else(|| beside("php.ini")),
        ini_scan_dir: settings
            .php_ini_scan_dir
            .clone()
            .or_else(|| beside("conf.d")),
        values: all,
        ..Settings::default()
    }
}

fn obey(control: Channel, started: Started) -> ExitCode {
    let Started {
        settings,
        link,
        mut sight,
        mut engine,
        proc,
    } = started;
    loop {
        let order = hear(&control, true);
        sight.look();
        match order {
            Ok(Heard::Message(ToZygote::FillSeat { seat, incarnation }, output)) => {
                match fork_worker(&control, &proc, seat, incarnation) {
                    Ok(Side::Parent) => {}
                    Ok(Side::Orphan) => {
                        words::speak_into(output);
                        signals::reset(&[]);
                        fork::die_with_parent(settings.supervisor);
                        // Without, there are no stacks of its scripts, which is told when one is
                        // asked for.
                        let _ = sight.show_oneself(seat, incarnation);
                        if settings.dumpable {
                            let _ = fork::allow_inspection();
                        }
                        let Some(script) = &settings.worker_script else {
                            drop(control);
                            engine.after_fork();
                            seat::serve(&settings, (link, proc), &mut engine, seat, incarnation)
                        };
                        // Without, it is killed when it is to leave.
                        let _ = booted::heed_sigterm(&link, seat);
                        engine.after_fork();
                        let (own, place) = ((link, proc, control), (seat, incarnation));
                        booted::serve(&settings, script, own, engine, place)
                    }
                    Err(error) => {
                        let why = error.to_string();
                        let failed = FromZygote::ForkFailed {
                            seat,
                            incarnation,
                            why,
                        };
                        let _ = say_waiting(&control, &failed);
                    }
                }
            }
            Ok(Heard::Message(order @ (ToZygote::ListScripts | ToZygote::Warm), fds)) => {
                match warm::carry_out(&order, fds, &control, &proc) {
                    warm::Side::Zygote(answer) => {
                        let _ = say_waiting(&control, &answer);
                    }
                    warm::Side::Child(order) => {
                        drop((control, sight, proc));
                        order.run(&mut engine)
                    }
                }
            }
            Ok(Heard::Message(ToZygote::CacheFigures, _)) => match figures::look(&control, &proc) {
                figures::Side::Zygote(figures) => {
                    let _ = say_waiting(&control, &FromZygote::CacheFigures { figures });
                }
                figures::Side::Child(look) => {
                    drop((control, sight, proc));
                    look.run(&mut engine)
                }
            },
            Ok(Heard::Message(
                ToZygote::Trace {
                    trace,
                    seat,
                    incarnation,
                    request,
                    depth,
                },
                _,
            )) => {
                let stack = sight.stack(seat, incarnation, request, depth);
                let _ = say_waiting(&control, &FromZygote::Traced { trace, stack });
            }
            Ok(Heard::Message(ToZygote::Configure(_), _) | Heard::Nothing) => {}
            Ok(Heard::Closed) | Err(_) => return ExitCode::SUCCESS,
        }
    }
}

fn fork_worker(
    control: &Channel,
    proc: &OwnProc,
    seat: u32,
    incarnation: u32,
) -> std::io::Result<Side> {
    fork::fork_orphan(proc, |pid| {
        let filled = FromZygote::SeatFilled {
            seat,
            incarnation,
            pid,
        };
        let _ = say_waiting(control, &filled);
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
