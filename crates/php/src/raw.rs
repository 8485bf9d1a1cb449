//! The C interface. The types mirror `shim/shim.h`, field by field.
#![allow(unsafe_code)]

pub(crate) mod connections;
pub(crate) mod metrics_extension;
pub(crate) mod opcache;
mod opcache_lock;
pub(crate) mod opcache_memory;
pub(crate) mod patterns;
pub(crate) mod present;
mod request;
mod settings;
pub(crate) mod stack;
pub(crate) mod text;

use request::{RawParam, RawRequest, fill_foreign, fill_request};
use settings::{REFUSED, RawSettings, ScanDir, SettingTexts, UNKNOWN};

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cgi_names::Name;
use crate::engine::{Outcome, Served, Show, StartError};
use crate::exchange::{Exchange, Level, Purge, Purged, Verdict};
use crate::foreign::Paths;
use crate::params::{Params, Text};
use crate::settings::{IniValue, Settings};

const CONTINUE: c_int = 0;
const CLIENT_GONE: c_int = 1;

const UNHEARD: c_int = 0;
const DROPPED: c_int = 1;

#[repr(C)]
#[derive(Default)]
struct RawServed {
    outcome: c_int,
    response_status: c_int,
    client_gone: bool,
    spent: bool,
    renew: bool,
    cache_full: bool,
    conflicts: bool,
    peak_memory: usize,
}

#[repr(C)]
struct RawPathDirectives {
    fix_pathinfo: bool,
    discard_path: bool,
    decodes_path: bool,
    decodes_path_info: bool,
    doc_root: *const c_char,
}

/// The directives that decide how a web server's variables are interpreted.
#[derive(Debug)]
pub(crate) struct PathDirectives {
    pub(crate) fix_pathinfo: bool,
    pub(crate) discard_path: bool,
    pub(crate) decodes_path: bool,
    pub(crate) decodes_path_info: bool,
    pub(crate) doc_root: Option<Vec<u8>>,
}

#[repr(C)]
struct RawCallbacks {
    send: extern "C" fn(*mut c_void, *const c_char, usize) -> c_int,
    flush: extern "C" fn(*mut c_void) -> c_int,
    finish: extern "C" fn(*mut c_void),
    read_body: extern "C" fn(*mut c_void, *mut c_char, usize) -> usize,
    log: extern "C" fn(*mut c_void, c_int, bool, *const c_char, usize),
    status: extern "C" fn(*mut c_void) -> *const c_char,
    hint: extern "C" fn(*mut c_void, *const c_char, usize) -> c_int,
    purge: extern "C" fn(*mut c_void, bool, bool, *const RawText, usize) -> c_int,
    next: extern "C" fn(*mut c_void) -> *const RawRequest,
    answered: extern "C" fn(*mut c_void, *const RawServed),
    freeze: extern "C" fn(*mut c_void, *const c_char) -> bool,
}

#[repr(C)]
struct RawText {
    start: *const c_char,
    length: usize,
}

unsafe extern "C" {
    fn maitred_php_start(settings: *const RawSettings, callbacks: *const RawCallbacks) -> bool;
    fn maitred_php_settle(folder: *const c_char) -> c_int;
    fn maitred_php_after_fork();
    fn maitred_php_prepare(request: *const RawRequest) -> bool;
    fn maitred_php_path_directives(directives: *mut RawPathDirectives);
    fn maitred_php_resolves(path: *const c_char) -> bool;
    fn maitred_php_serve(request: *const RawRequest, served: *mut RawServed);
    fn maitred_php_interposed() -> bool;
    fn maitred_php_version() -> *const c_char;
    fn maitred_php_built() -> *const c_char;
    fn maitred_php_loaded(version: *mut c_char, size: usize);
    fn maitred_php_show(what: c_int) -> bool;
    fn maitred_php_configured(name: *const c_char) -> *const c_char;
    fn maitred_php_set_default(name: *const c_char, value: *const c_char) -> bool;
    fn maitred_php_fpm_config() -> *const c_char;
    fn maitred_php_is_exposed() -> bool;
    fn maitred_php_stop();
}

static STARTED: AtomicBool = AtomicBool::new(false);

static CALLBACKS: RawCallbacks = RawCallbacks {
    send,
    flush,
    finish,
    read_body,
    log,
    status,
    hint,
    purge,
    next: work::next,
    answered: work::answered,
    freeze: work::freeze,
};

/// The target of a callback's `exchange` pointer. Only shared references to it exist: PHP may call
/// back during a callback that calls into PHP itself, as when an application is booted or paths are
/// looked up.
struct CallbackState<'a> {
    /// The state is borrowed.
    taken: Cell<bool>,
    state: UnsafeCell<State<'a>>,
}

/// The state of a request's callbacks.
struct State<'a> {
    exchange: &'a mut dyn Exchange,
    panic: Option<Box<dyn Any + Send>>,
    /// The last result of [`status`], which C reads.
    status: Option<CString>,
    /// The state of a worker script; `None` for other scripts.
    work: Option<work::Work<'a>>,
}

/// Returns the state of a [`CallbackState`], also on a panic.
struct Taken<'l>(&'l Cell<bool>);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Declares a callback. Its body runs with the request's [`State`] and cannot unwind into C: a
/// panic is stored, and from then on every callback returns its default without running. So does a
/// nested callback.
macro_rules! callback {
    ($vis:vis fn $name:ident($live:ident $(, $arg:ident: $type:ty)*)
        $(-> $result:ty, else $default:expr)?, $body:block) => {
        $vis extern "C" fn $name(exchange: *mut c_void $(, $arg: $type)*) $(-> $result)? {
            // SAFETY: C passes back the pointer that `RawEngine::serve` gave it, during that call
            // only and on the same thread; all references to the `CallbackState` are shared.
            let live = unsafe { &*exchange.cast::<CallbackState<'_>>() };
            let done = live.with(|state| {
                if state.panic.is_some() {
                    return $($default)?;
                }
                let run = AssertUnwindSafe(|| {
                    let $live = &mut *state;
                    $body
                });
                match catch_unwind(run) {
                    Ok(result) => result,
                    Err(panic) => {
                        state.panic = Some(panic);
                        $($default)?
                    }
                }
            });
            match done {
                Some(result) => result,
                None => { $($default)? }
            }
        }
    };
}

mod work;

callback! {
    fn send(live, bytes: *const c_char, length: usize) -> c_int, else CLIENT_GONE, {
        // SAFETY: C passes `length` readable bytes that stay as they are during the call.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), length) };
        code(live.exchange.send(bytes))
    }
}

callback! {
    fn flush(live) -> c_int, else CLIENT_GONE, {
        code(live.exchange.flush())
    }
}

callback! {
    fn finish(live), {
        live.exchange.finish();
    }
}

callback! {
    fn read_body(live, buffer: *mut c_char, capacity: usize) -> usize, else 0, {
        // SAFETY: C passes `capacity` bytes that no other code uses during the call; they are
        // zeroed first, since safe code may read what it was given to fill.
        let buffer = unsafe {
            ptr::write_bytes(buffer, 0, capacity);
            slice::from_raw_parts_mut(buffer.cast::<u8>(), capacity)
        };
        // `MAITRED_BODY_CUT`
        live.exchange.read_body(buffer).map_or(usize::MAX, |count| count.min(capacity))
    }
}

callback! {
    fn log_to_exchange(
        live, level: c_int, to_client: bool, message: *const c_char, length: usize), {
        // SAFETY: as in `send`.
        let message = unsafe { slice::from_raw_parts(message.cast::<u8>(), length) };
        live.exchange.log(level_of(level), to_client, message);
    }
}

/// A message that arrives during another callback goes to standard error, as without a request.
extern "C" fn log(
    exchange: *mut c_void,
    level: c_int,
    to_client: bool,
    message: *const c_char,
    length: usize,
) {
    // SAFETY: as in `callback`.
    let live = unsafe { &*exchange.cast::<CallbackState<'_>>() };
    if !live.taken.get() {
        return log_to_exchange(exchange, level, to_client, message, length);
    }
    // SAFETY: as in `send`.
    let message = unsafe { slice::from_raw_parts(message.cast::<u8>(), length) };
    // A failure cannot be reported.
    let _ = io::stderr().write_all(&[message, b"\n"].concat());
}

callback! {
    fn status(live) -> *const c_char, else ptr::null(), {
        live.status = live.exchange.status().and_then(|status| CString::new(status).ok());
        live.status.as_ref().map_or(ptr::null(), |status| status.as_ptr())
    }
}

callback! {
    fn hint(live, lines: *const c_char, length: usize) -> c_int, else CLIENT_GONE, {
        // SAFETY: as in `send`.
        let lines = unsafe { slice::from_raw_parts(lines.cast::<u8>(), length) };
        code(live.exchange.hint(lines))
    }
}

callback! {
    fn purge(live, urls: bool, soft: bool, names: *const RawText, count: usize)
        -> c_int, else UNHEARD, {
        // SAFETY: C passes `count` texts, of as many bytes each as it says, that stay as they are
        // during the call; also where there is none, `names` is not null.
        let names = unsafe {
            let names = slice::from_raw_parts(names, count).iter();
            names.map(|name| slice::from_raw_parts(name.start.cast::<u8>(), name.length)).collect()
        };
        match live.exchange.purge(&Purge { are_urls: urls, soft, names }) {
            Purged::Done => DROPPED,
            Purged::NoReply => UNHEARD,
            Purged::NoCache => 2,
            Purged::OtherSite => 3,
            Purged::TooLong => 4,
        }
    }
}

fn level_of(code: c_int) -> Level {
    match code {
        0 => Level::Debug,
        1 => Level::Notice,
        2 => Level::Warning,
        _ => Level::Error,
    }
}

fn code(verdict: Verdict) -> c_int {
    match verdict {
        Verdict::Continue => CONTINUE,
        Verdict::ClientGone => CLIENT_GONE,
    }
}

/// The started engine: proof that C may be called.
#[derive(Debug)]
pub(crate) struct RawEngine {
    starter: u32,
    pub(crate) unknown_values: Vec<IniValue>,
    pub(crate) refused_values: Vec<IniValue>,
    /// Reused across requests for its memory; empty between two.
    params: Vec<RawParam>,
}

/// `PHP_VERSION` of the headers that the shim is built with.
pub(crate) fn built_version() -> String {
    // SAFETY: a static string.
    unsafe { CStr::from_ptr(maitred_php_built()) }.to_string_lossy().into_owned()
}

/// `PHP_VERSION` of the loaded libphp, also before PHP is started; empty if it is not found.
pub(crate) fn loaded_version() -> String {
    let mut version = [0; 64];
    // SAFETY: C writes at most this many bytes, of which the last is a NUL, and calls nothing in
    // libphp.
    unsafe { maitred_php_loaded(version.as_mut_ptr(), version.len()) };
    // SAFETY: as above: there is a NUL in it.
    unsafe { CStr::from_ptr(version.as_ptr()) }.to_string_lossy().into_owned()
}

impl RawEngine {
    pub(crate) fn start(settings: &Settings) -> Result<Self, StartError> {
        // Leaked on purpose: PHP keeps pointers to these strings until the process exits.
        let texts: &'static SettingTexts = Box::leak(Box::new(SettingTexts::new(settings)?));
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(StartError::AlreadyStarted);
        }
        let mut values = texts.values();
        let raw = texts.raw(settings, &mut values);
        let scan_dir = ScanDir::set(settings.ini_scan_dir.as_ref().map(|path| path.as_os_str()));
        // SAFETY: called once per process (`STARTED`); `texts` and `CALLBACKS` are static, `values`
        // is C's alone during the call, and C keeps only the strings in it.
        let started = unsafe { maitred_php_start(&raw const raw, &raw const CALLBACKS) };
        scan_dir.restore();
        if !started {
            return Err(StartError::Refused);
        }
        let with_fate = |fate| {
            let both = settings.values.iter().zip(&values);
            let those = both.filter(|(_, raw)| raw.fate == fate);
            those.map(|(value, _)| value.clone()).collect()
        };
        Ok(Self {
            starter: std::process::id(),
            unknown_values: with_fate(UNKNOWN),
            refused_values: with_fate(REFUSED),
            params: Vec::new(),
        })
    }

    pub(crate) fn version(&self) -> String {
        // SAFETY: PHP is started, and the string is static in libphp or in the shim.
        let version = unsafe { CStr::from_ptr(maitred_php_version()) };
        version.to_string_lossy().into_owned()
    }

    pub(crate) fn show(self, what: Show) -> bool {
        let what = match what {
            Show::Version => 0,
            Show::Modules => 1,
            Show::Info => 2,
        };
        // SAFETY: PHP is started, no request runs, and none will: `self` goes. No longjmp leaves
        // it.
        unsafe { maitred_php_show(what) }
    }

    pub(crate) fn is_exposed(&self) -> bool {
        // SAFETY: PHP is started; one variable is read.
        unsafe { maitred_php_is_exposed() }
    }

    pub(crate) fn fixes_path_info(&self) -> bool {
        path_directives().fix_pathinfo
    }

    pub(crate) fn configured(&self, name: &CStr) -> Option<String> {
        // SAFETY: PHP is started, and the name ends with a NUL.
        let text = unsafe { maitred_php_configured(name.as_ptr()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: the entry's own text, which stays as long as PHP runs.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    }

    pub(crate) fn set_default(&mut self, name: &CStr, value: &CStr) -> bool {
        // SAFETY: PHP is started, no request runs, and C copies the texts, which end with a NUL. No
        // longjmp leaves it.
        unsafe { maitred_php_set_default(name.as_ptr(), value.as_ptr()) }
    }

    pub(crate) fn fpm_config(&self) -> Option<String> {
        // SAFETY: PHP is started.
        let text = unsafe { maitred_php_fpm_config() };
        if text.is_null() {
            return None;
        }
        // SAFETY: the value of a directive, which stays while no request runs.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
    }

    /// Changes to `folder` permanently, or only clears the realpath cache.
    pub(crate) fn settle(&mut self, folder: Option<&CStr>) -> io::Result<()> {
        let folder = folder.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: PHP is started, no request runs, and the string outlives the call, which copies
        // it.
        match unsafe { maitred_php_settle(folder) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    pub(crate) fn serve(&mut self, params: &Params, exchange: &mut dyn Exchange) -> Served {
        let live = CallbackState::new(exchange);
        let mut request = fill_request(params, &mut self.params);
        request.exchange = live.for_c();
        let served = if !brings_settings(params) || prepare(&request) {
            run(&request)
        } else {
            not_started()
        };
        self.params.clear();
        live.end(served)
    }

    pub(crate) fn serve_foreign(
        &mut self,
        params: &mut Params,
        exchange: &mut dyn Exchange,
    ) -> Served {
        let live = CallbackState::new(exchange);
        if brings_settings(params) {
            let mut request = fill_request(params, &mut self.params);
            request.exchange = live.for_c();
            let could = prepare(&request);
            // The variables may change now: C no longer points to them.
            self.params.clear();
            if !could {
                return live.end(not_started());
            }
        }
        let paths = Paths { directives: path_directives(), engine: self };
        let foreign = live.with(|state| state.exchange.translate(params, &paths));
        let Some(foreign) = foreign else {
            return live.end(not_started());
        };
        let mut request = fill_request(params, &mut self.params);
        request.exchange = live.for_c();
        fill_foreign(&mut request, params, foreign);
        let served = run(&request);
        self.params.clear();
        live.end(served)
    }

    pub(crate) fn resolves(&self, params: &Params, path: Text) -> bool {
        let path = params.bytes_with_nul(path).as_ptr().cast();
        // SAFETY: PHP is started, and the string ends with a NUL and outlives the call.
        unsafe { maitred_php_resolves(path) }
    }

    pub(crate) fn stop(self) {
        if self.starter == std::process::id() {
            // SAFETY: PHP is started, no request is under way, and `self` is gone afterwards.
            unsafe { maitred_php_stop() };
        }
    }
}

/// Whether the request has PHP values to set.
fn brings_settings(params: &Params) -> bool {
    params.text_of(Name::PhpValue).is_some() || params.text_of(Name::PhpAdminValue).is_some()
}

/// Sets the PHP values of a request. False if PHP could not continue; then a response was sent.
fn prepare(request: &RawRequest) -> bool {
    // SAFETY: as in `run`; the request is C's during the call only.
    unsafe { maitred_php_prepare(request) }
}

fn run(request: &RawRequest) -> RawServed {
    let mut served = RawServed::default();
    // SAFETY: PHP is started and this is its thread (`RawEngine` is not `Send`, and only its
    // methods call this); the request, its strings and the `CallbackState` outlive the call, and
    // Rust touches the `CallbackState` again only when C has returned. No longjmp leaves the call:
    // the shim catches every bailout.
    unsafe { maitred_php_serve(request, &raw mut served) };
    served
}

fn not_started() -> RawServed {
    RawServed { outcome: NOT_STARTED, response_status: 500, ..RawServed::default() }
}

fn path_directives() -> PathDirectives {
    let mut raw = RawPathDirectives {
        fix_pathinfo: false,
        discard_path: false,
        decodes_path: false,
        decodes_path_info: false,
        doc_root: ptr::null(),
    };
    // SAFETY: PHP is started (only `RawEngine` calls this); the string is valid until PHP is called
    // again, and copied before.
    unsafe {
        maitred_php_path_directives(&raw mut raw);
        PathDirectives {
            fix_pathinfo: raw.fix_pathinfo,
            discard_path: raw.discard_path,
            decodes_path: raw.decodes_path,
            decodes_path_info: raw.decodes_path_info,
            doc_root: (!raw.doc_root.is_null())
                .then(|| CStr::from_ptr(raw.doc_root).to_bytes().to_vec()),
        }
    }
}

impl<'a> CallbackState<'a> {
    fn new(exchange: &'a mut dyn Exchange) -> CallbackState<'a> {
        CallbackState {
            taken: Cell::new(false),
            state: UnsafeCell::new(State { exchange, panic: None, status: None, work: None }),
        }
    }

    /// As C passes it back.
    fn for_c(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Calls `act` with the state; does nothing during another callback.
    fn with<T>(&self, act: impl FnOnce(&mut State<'a>) -> T) -> Option<T> {
        if self.taken.replace(true) {
            return None;
        }
        let _taken = Taken(&self.taken);
        // SAFETY: one thread uses a `CallbackState` (it is not `Sync`), and as long as `taken` is
        // set, which it was not, this is the one reference to the state.
        Some(act(unsafe { &mut *self.state.get() }))
    }

    /// The result of the request, after C has returned.
    fn end(self, served: RawServed) -> Served {
        if let Some(panic) = self.state.into_inner().panic {
            resume_unwind(panic);
        }
        served.known()
    }
}

impl RawServed {
    fn known(&self) -> Served {
        Served {
            outcome: outcome(self.outcome),
            status: u16::try_from(self.response_status).unwrap_or(0),
            client_gone: self.client_gone,
            spent: self.spent,
            renew: self.renew,
            cache_full: self.cache_full,
            conflicts: self.conflicts,
            peak_memory: self.peak_memory,
        }
    }
}

pub(crate) fn after_fork() {
    // SAFETY: the caller has a `RawEngine`, so PHP is started, and no request is under way.
    unsafe { maitred_php_after_fork() };
}

pub(crate) fn is_interposed() -> bool {
    // SAFETY: no preconditions.
    unsafe { maitred_php_interposed() }
}

const NOT_STARTED: c_int = 3;

fn outcome(code: c_int) -> Outcome {
    match code {
        0 => Outcome::Finished,
        2 => Outcome::ClientGone,
        NOT_STARTED => Outcome::NotStarted,
        _ => Outcome::Fatal,
    }
}

#[cfg(test)]
mod tests;
