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

/// The PHP engine of this process: there is one, it stays on the thread that started it, and its
/// children inherit it.
///
/// Dropping it does nothing. PHP must not be shut down in a forked child, so a child ends by
/// `_exit` and only the process that started the engine may call [`stop`](Self::stop).
#[derive(Debug)]
pub struct Engine {
    pub(crate) raw: raw::Engine,
    version: PhpVersion,
    /// Not `Send`: PHP's state belongs to a thread.
    _thread: PhantomData<*const ()>,
}

/// Why PHP did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// A setting contains a NUL byte.
    Nul {
        /// Which one.
        setting: String,
    },
    /// There is an engine in this process already.
    AlreadyStarted,
    /// PHP's own start-up failed; what it had to say went to standard error.
    Refused,
    /// PHP reports a version nobody can read.
    Version {
        /// What it reports.
        reported: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nul { setting } => {
                write!(
                    out,
                    "the PHP setting {setting} contains a NUL byte; remove it"
                )
            }
            Self::AlreadyStarted => {
                out.write_str("PHP is started in this process already and can be started only once")
            }
            Self::Refused => out.write_str(
                "PHP did not start; its own message is on standard error, and the cause is most \
                 often a php.ini directive or an extension that does not fit this PHP",
            ),
            Self::Version { reported } => {
                write!(
                    out,
                    "libphp reports the version `{reported}`, which is no PHP version"
                )
            }
        }
    }
}

impl std::error::Error for StartError {}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The script came to its end, by `exit` or an uncaught exception too. The process can serve
    /// another request.
    Finished,
    /// PHP jumped out of a script with a fatal error (memory, time, a compile error…). The process
    /// must end: what the dead request leaves behind is not safe to go on with.
    Fatal,
    /// PHP jumped out of a script because the client had gone. The process must end, for the same
    /// reason.
    ClientGone,
    /// PHP could not even begin the request. An answer with status 500 was sent. The process must
    /// end.
    NotStarted,
}

impl Outcome {
    /// Whether this process may serve another request.
    pub fn process_is_clean(self) -> bool {
        self == Self::Finished
    }
}

/// What can be shown of PHP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Its version, when it was built, and its Zend extensions.
    Version,
    /// Its modules, then its Zend extensions.
    Modules,
    /// `phpinfo()`.
    Info,
}

/// What is known of a request after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// How it ended.
    pub outcome: Outcome,
    /// HTTP status of the answer.
    pub status: u16,
    /// An [`Exchange`] call said that the client had gone. The script may have gone on regardless.
    pub client_gone: bool,
    /// What the web server passed with it (`disable_functions` or `extension` in
    /// `PHP_ADMIN_VALUE`) has changed the process for good, so that it must serve no other.
    pub spent: bool,
    /// The script has said that scripts which are in memory are outdated (`opcache_reset`,
    /// `opcache_invalidate`), in a copy of a process that has booted them.
    pub renew: bool,
    /// A script that is booted once has compiled something and found OPcache full.
    pub cache_full: bool,
    /// The most memory PHP's allocator took from the system for it, in bytes.
    pub peak_memory: usize,
}

/// What is known of a worker script after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worked {
    /// It has asked for a request.
    pub booted: bool,
    /// It ended while it handled one, by `exit` or because PHP could not go on.
    pub in_hand: bool,
    /// How that request ended, or else the script.
    pub last: Served,
}

impl Engine {
    /// Starts PHP: php.ini, extensions, OPcache with its shared memory, preloading. Handlers of
    /// signals other than SIGPROF stay the caller's; SIGPIPE is ignored from here on. Call it
    /// before there are threads.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        let raw = raw::Engine::start(settings)?;
        let reported = raw.version();
        let version = reported
            .parse()
            .map_err(|_| StartError::Version { reported })?;
        Ok(Self {
            raw,
            version,
            _thread: PhantomData,
        })
    }

    /// The version of the loaded libphp, which may be newer than the one compiled against.
    pub fn version(&self) -> PhpVersion {
        self.version
    }

    /// Prints something of PHP on standard output, as php-fpm's `-v`, `-m` and `-i` do; `false` when PHP
    /// could not do it. It is a request to PHP, after which this process serves nobody.
    pub fn show(self, what: Show) -> bool {
        self.raw.show(what)
    }

    /// Whether answers say which PHP made them (`expose_php`).
    pub fn is_exposed(&self) -> bool {
        self.raw.is_exposed()
    }

    /// Whether what a web server's request asks for is its path info (`cgi.fix_pathinfo = 0`).
    pub fn is_by_path_info(&self) -> bool {
        !self.raw.fixes_path_info()
    }

    /// What php.ini, its further files or [`Settings::defines`] say of a name, which need not be one that
    /// PHP knows.
    pub fn configured(&self, name: &str) -> Option<String> {
        self.raw.configured(&CString::new(name).ok()?)
    }

    /// `fpm.config` of php.ini: the configuration file of php-fpm, if one is named.
    pub fn fpm_config(&self) -> Option<String> {
        self.raw.fpm_config()
    }

    /// The directives in [`Settings::values`] that PHP does not know.
    pub fn unknown_values(&self) -> &[IniValue] {
        &self.raw.unknown_values
    }

    /// The directives in [`Settings::values`] whose value PHP does not take.
    pub fn refused_values(&self) -> &[IniValue] {
        &self.raw.refused_values
    }

    /// Whether this program exports the symbols by which the shim saves system calls and sees a
    /// script's `chdir()`. Without, all works, with some more system calls per request. See
    /// `build.rs`.
    pub fn is_interposed(&self) -> bool {
        raw::is_interposed()
    }

    /// Tells PHP where it lives, before the first request and after this process may have changed
    /// its root: every request starts in `folder` and ends there; none: wherever the one before
    /// was.
    ///
    /// # Errors
    /// When the folder cannot be entered.
    pub fn settle(&mut self, folder: Option<&Path>) -> io::Result<()> {
        let folder = folder.map(|folder| CString::new(folder.as_os_str().as_bytes()));
        self.raw.settle(folder.transpose()?.as_deref())
    }

    /// Makes a forked child a process of its own: random numbers, timers, and (PHP 8.5) the heap's
    /// secrets. Signal handlers the child wants to keep through scripts that use pcntl must be
    /// installed before.
    pub fn after_fork(&mut self) {
        raw::after_fork();
    }

    /// Serves one request.
    ///
    /// # Panics
    ///
    /// A panic of `exchange` ends the script and is raised again here.
    pub fn serve(&mut self, params: &Params, exchange: &mut dyn Exchange) -> Served {
        self.raw.serve(params, exchange)
    }

    /// Serves one request whose variables are a web server's own:
    /// [`Exchange::translate`] finds out what they come to.
    ///
    /// # Panics
    ///
    /// As [`serve`](Self::serve).
    pub fn serve_foreign(&mut self, params: &mut Params, exchange: &mut dyn Exchange) -> Served {
        self.raw.serve_foreign(params, exchange)
    }

    /// Runs a worker script, which is booted once and then asks for one request after the other
    /// ([`Exchange::next`]), until there are none. `boot` is what it sees as its request until the
    /// first. This process serves nothing else.
    ///
    /// # Panics
    ///
    /// As [`serve`](Self::serve).
    pub fn work(self, boot: &Params, exchange: &mut dyn Exchange) -> Worked {
        self.raw.work(boot, exchange)
    }

    /// Boots an application: runs a script until it calls `maitred_snapshot()`, or asks for a request
    /// and [`Exchange::next`] has none. There [`Exchange::freeze`] is called, and the script goes on
    /// in copies of this process. Returns there when the script has ended, and in this process if it
    /// has before.
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
