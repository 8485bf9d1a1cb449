use std::ffi::CString;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::exchange::Exchange;
use crate::params::Params;
use crate::raw;
use crate::settings::{IniValue, Settings};
use crate::version::PhpVersion;

/// The PHP engine of this process: there is one, it stays on the thread that started it, and
/// children inherit it.
///
/// Dropping it does nothing. PHP must not be shut down in a forked child, so a child ends with
/// `_exit` and only the process that started the engine may call [`stop`](Self::stop).
#[derive(Debug)]
pub struct Engine {
    pub(crate) raw: raw::RawEngine,
    version: PhpVersion,
    /// Not `Send`: PHP's state belongs to a thread.
    _thread: PhantomData<*const ()>,
}

/// Why PHP did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// A setting contains a NUL byte.
    Nul {
        /// Its name.
        setting: String,
    },
    /// The loaded libphp is of another minor version than the headers that the shim is built with.
    /// All of them have the same SONAME, so the loader takes any.
    OtherBranch {
        /// The version of the headers.
        built: PhpVersion,
        /// The version of libphp.
        loaded: PhpVersion,
    },
    /// The process already has an engine.
    AlreadyStarted,
    /// PHP's own startup failed; its message went to standard error.
    Refused,
    /// PHP reports a malformed version.
    Version {
        /// The reported version.
        reported: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nul { setting } => {
                write!(out, "the PHP setting {setting} contains a NUL byte; remove it")
            }
            Self::OtherBranch { built, loaded } => write!(
                out,
                "libphp is PHP {loaded}, and this program is built for PHP {}.{}; install the \
                 library of that version, or maitred's program for PHP {}.{}",
                built.major, built.minor, loaded.major, loaded.minor
            ),
            Self::AlreadyStarted => {
                out.write_str("PHP is started in this process already and can be started only once")
            }
            Self::Refused => out.write_str(
                "PHP did not start; its own message is on standard error, and the cause is most \
                 often a php.ini directive or an extension that does not fit this PHP",
            ),
            Self::Version { reported } => {
                write!(out, "libphp reports the version `{reported}`, which is no PHP version")
            }
        }
    }
}

impl std::error::Error for StartError {}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The script ended, with `exit` or an uncaught exception, too. The process can serve another
    /// request.
    Finished,
    /// PHP bailed out of the script with a fatal error (memory, time, a compile error…). The
    /// process must end: the state of the failed request is not safe to continue with.
    Fatal,
    /// PHP bailed out of the script because the client had disconnected. The process must end, for
    /// the same reason.
    ClientGone,
    /// PHP could not start the request. A response with status 500 was sent. The process must end.
    NotStarted,
}

impl Outcome {
    /// Whether this process may serve another request.
    pub fn process_is_clean(self) -> bool {
        self == Self::Finished
    }
}

/// The information that PHP can print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Version, build time and Zend extensions.
    Version,
    /// Modules, then Zend extensions.
    Modules,
    /// `phpinfo()`.
    Info,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// How it ended.
    pub outcome: Outcome,
    /// HTTP status of the response.
    pub status: u16,
    /// An [`Exchange`] call reported that the client had disconnected. The script may have
    /// continued regardless.
    pub client_gone: bool,
    /// Values in `PHP_ADMIN_VALUE` (`disable_functions`, `extension`) have changed the process
    /// irreversibly, so it must serve no other request.
    pub spent: bool,
    /// The script has invalidated scripts that are loaded (`opcache_reset`, `opcache_invalidate`),
    /// in a copy of a booted process or in one with preloaded classes.
    pub renew: bool,
    /// A booted script has compiled code and found OPcache full.
    pub cache_full: bool,
    /// It has failed because it declares a name that exists, in a process with preloaded classes.
    pub conflicts: bool,
    /// Peak memory that PHP's allocator took from the system, in bytes.
    pub peak_memory: usize,
}

/// The result of a worker script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worked {
    /// It has waited for a request.
    pub booted: bool,
    /// It ended while handling a request, with `exit` or because PHP could not continue.
    pub in_hand: bool,
    /// The result of that request, or else of the script.
    pub last: Served,
}

impl Engine {
    /// Starts PHP: php.ini, extensions, OPcache with its shared memory, preloading. Handlers of
    /// signals other than SIGPROF stay the caller's; SIGPIPE is ignored from here on. Call it
    /// before any thread is started.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        let (built, loaded) = (PhpVersion::built(), PhpVersion::loaded());
        if let Some((built, loaded)) = built.zip(loaded).filter(|(b, l)| !b.is_same_branch(*l)) {
            return Err(StartError::OtherBranch { built, loaded });
        }
        let raw = raw::RawEngine::start(settings)?;
        let reported = raw.version();
        let version = reported.parse().map_err(|_| StartError::Version { reported })?;
        Ok(Self { raw, version, _thread: PhantomData })
    }

    /// The version of the loaded libphp, which may be newer than the one compiled against.
    pub fn version(&self) -> PhpVersion {
        self.version
    }

    /// Prints information to standard output, as php-fpm's `-v`, `-m` and `-i` do; `false` when PHP
    /// failed. It is a request to PHP, after which this process serves no other.
    pub fn show(self, what: Show) -> bool {
        self.raw.show(what)
    }

    /// Whether responses name the PHP version (`expose_php`).
    pub fn is_exposed(&self) -> bool {
        self.raw.is_exposed()
    }

    /// Whether the request URI of a foreign request is its path info (`cgi.fix_pathinfo = 0`).
    pub fn is_by_path_info(&self) -> bool {
        !self.raw.fixes_path_info()
    }

    /// The value of a name in php.ini, its additional files or [`Settings::defines`]; PHP need not
    /// know the name.
    pub fn configured(&self, name: &str) -> Option<String> {
        self.raw.configured(&CString::new(name).ok()?)
    }

    /// Makes `value` the default of a directive, before the first request: scripts and .user.ini
    /// files may change it. False if PHP does not know the directive or rejects the value.
    pub fn set_default(&mut self, name: &str, value: &str) -> bool {
        let texts = CString::new(name).ok().zip(CString::new(value).ok());
        texts.is_some_and(|(name, value)| self.raw.set_default(&name, &value))
    }

    /// `fpm.config` of php.ini: php-fpm's configuration file, if it is set.
    pub fn fpm_config(&self) -> Option<String> {
        self.raw.fpm_config()
    }

    /// The directives in [`Settings::values`] that PHP does not know.
    pub fn unknown_values(&self) -> &[IniValue] {
        &self.raw.unknown_values
    }

    /// The directives in [`Settings::values`] whose value PHP rejects.
    pub fn refused_values(&self) -> &[IniValue] {
        &self.raw.refused_values
    }

    /// Whether this program exports the symbols by which the shim saves system calls and notices a
    /// script's `chdir()`. Without them everything works, with a few more system calls per request.
    /// See `build.rs`.
    pub fn is_interposed(&self) -> bool {
        raw::is_interposed()
    }

    /// Sets the working directory, before the first request and after this process may have changed
    /// its root: every request starts and ends in `folder`; `None`: in the directory of the
    /// previous request.
    ///
    /// # Errors
    /// When the folder cannot be entered.
    pub fn settle(&mut self, folder: Option<&Path>) -> io::Result<()> {
        let folder = folder.map(|folder| CString::new(folder.as_os_str().as_bytes()));
        self.raw.settle(folder.transpose()?.as_deref())
    }

    /// Prepares a forked child: random numbers, timers, and (PHP 8.5) the heap's secrets. Signal
    /// handlers that must survive scripts with pcntl have to be installed before.
    pub fn after_fork(&mut self) {
        raw::after_fork();
    }

    /// Has the next `workers` forked children say in shared memory that they use OPcache, instead
    /// of locking a file: two system calls less for each request. Call it once, after the start and
    /// with `/proc`. False if all stays as it was, since OPcache is off or not as expected.
    pub fn share_opcache_lock(&mut self, workers: u32) -> bool {
        self.raw.share_opcache_lock(workers)
    }

    /// In the child with this number below `workers` of
    /// [`share_opcache_lock`](Self::share_opcache_lock), before its first request. A second process
    /// with the same number locks the file while the first uses OPcache.
    pub fn take_opcache_lock(&mut self, worker: u32) {
        self.raw.take_opcache_lock(worker);
    }

    /// Serves one request.
    ///
    /// # Panics
    ///
    /// A panic of `exchange` ends the script and is resumed here.
    pub fn serve(&mut self, params: &Params, exchange: &mut dyn Exchange) -> Served {
        self.raw.serve(params, exchange)
    }

    /// Serves one request with the variables of a web server; [`Exchange::translate`] interprets
    /// them.
    ///
    /// # Panics
    ///
    /// As [`serve`](Self::serve).
    pub fn serve_foreign(&mut self, params: &mut Params, exchange: &mut dyn Exchange) -> Served {
        self.raw.serve_foreign(params, exchange)
    }

    /// Runs a worker script, which boots once and then takes one request after the other
    /// ([`Exchange::next`]), until there are none. `boot` is its request until the first one. This
    /// process serves nothing else.
    ///
    /// # Panics
    ///
    /// As [`serve`](Self::serve).
    pub fn work(self, boot: &Params, exchange: &mut dyn Exchange) -> Worked {
        self.raw.work(boot, exchange)
    }

    /// Boots an application: runs a script until it calls `maitred_snapshot()`, or waits for a
    /// request and [`Exchange::next`] has none. There [`Exchange::freeze`] is called, and the
    /// script continues in copies of this process. Returns in a copy when the script has ended, and
    /// in this process if it ended before.
    ///
    /// # Panics
    ///
    /// As [`serve`](Self::serve).
    pub fn boot(self, boot: &Params, exchange: &mut dyn Exchange) -> Worked {
        self.raw.boot(boot, exchange)
    }

    /// Shuts PHP down in the process that started it; in a forked child it does nothing.
    pub fn stop(self) {
        self.raw.stop();
    }
}
