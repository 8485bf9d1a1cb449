//! The border to C. The types mirror `shim/shim.h`, field by field.
#![allow(unsafe_code)]

pub(crate) mod cache;
pub(crate) mod request;
pub(crate) mod stack;

use std::any::Any;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::{Outcome, Served, Show, StartError};
use crate::exchange::{Exchange, Level, PoolStatus, ProcessStatus, Verdict};
use crate::foreign::{Admission, Foreign, Paths};
use crate::params::{Params, Text};
use crate::settings::{IniValue, Settings};

const CONTINUE: c_int = 0;
const CLIENT_GONE: c_int = 1;

#[repr(C)]
#[derive(Debug)]
struct RawParam {
    name: *const c_char,
    name_length: usize,
    value: *const c_char,
    value_length: usize,
}

#[repr(C)]
struct RawRequest {
    exchange: *mut c_void,
    params: *const RawParam,
    param_count: usize,
    method: *const c_char,
    script_name: *const c_char,
    path_info: *const c_char,
    script_filename: *const c_char,
    query_string: *const c_char,
    content_type: *const c_char,
    cookie: *const c_char,
    authorization: *const c_char,
    document_root: *const c_char,
    server_name: *const c_char,
    php_value: *const c_char,
    php_admin_value: *const c_char,
    content_length: i64,
    foreign: bool,
    admission: c_int,
    path_translated: *const c_char,
    request_uri: *const c_char,
    body_file: *const c_char,
}

#[repr(C)]
#[derive(Default)]
struct RawServed {
    outcome: c_int,
    response_status: c_int,
    client_gone: bool,
    spent: bool,
    peak_memory: usize,
}

#[repr(C)]
struct RawPathDirectives {
    fix_pathinfo: bool,
    discard_path: bool,
    doc_root: *const c_char,
}

/// The directives that decide what a web server's variables mean.
#[derive(Debug)]
pub(crate) struct PathDirectives {
    pub(crate) fix_pathinfo: bool,
    pub(crate) discard_path: bool,
    pub(crate) doc_root: Option<Vec<u8>>,
}

#[repr(C)]
struct RawProcessStatus {
    pid: i64,
    state: *const c_char,
    start_time: i64,
    start_since: i64,
    requests: i64,
    request_duration: i64,
    request_method: *const c_char,
    request_uri: *const c_char,
    query_string: *const c_char,
    request_length: i64,
    user: *const c_char,
    script: *const c_char,
    last_request_cpu: f64,
    last_request_memory: i64,
}

#[repr(C)]
struct RawPoolStatus {
    pool: *const c_char,
    process_manager: *const c_char,
    start_time: i64,
    start_since: i64,
    accepted_conn: i64,
    listen_queue: i64,
    max_listen_queue: i64,
    listen_queue_len: i64,
    idle_processes: i64,
    active_processes: i64,
    total_processes: i64,
    max_active_processes: i64,
    max_children_reached: i64,
    slow_requests: i64,
    processes: *const RawProcessStatus,
    process_count: usize,
}

#[repr(C)]
struct RawCallbacks {
    send: extern "C" fn(*mut c_void, *const c_char, usize) -> c_int,
    flush: extern "C" fn(*mut c_void) -> c_int,
    finish: extern "C" fn(*mut c_void),
    read_body: extern "C" fn(*mut c_void, *mut c_char, usize) -> usize,
    log: extern "C" fn(*mut c_void, c_int, bool, *const c_char, usize),
    status: extern "C" fn(*mut c_void) -> *const RawPoolStatus,
}

#[repr(C)]
#[derive(Debug)]
struct RawIniValue {
    name: *const c_char,
    value: *const c_char,
    admin: bool,
    fate: c_int,
}

/// PHP has no such directive.
const UNKNOWN: c_int = 1;
/// The directive does not take the value.
const REFUSED: c_int = 2;

#[repr(C)]
struct RawSettings {
    sapi_name: *const c_char,
    executable: *const c_char,
    ini_path: *const c_char,
    ini_entries: *const c_char,
    values: *mut RawIniValue,
    value_count: usize,
    no_ini_files: bool,
    fpm: bool,
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
    fn maitred_php_show(what: c_int) -> bool;
    fn maitred_php_fpm_config() -> *const c_char;
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
};

/// What a callback finds behind its `exchange` pointer.
struct Live<'a> {
    exchange: &'a mut dyn Exchange,
    panic: Option<Box<dyn Any + Send>>,
    status: Option<StatusTexts>,
}

/// Declares a callback. Its body runs with the request's [`Live`] and cannot unwind into C: a panic
/// is kept, and from then on every callback returns its default without running.
macro_rules! callback {
    (fn $name:ident($live:ident $(, $arg:ident: $type:ty)*)
        $(-> $result:ty, else $default:expr)?, $body:block) => {
        extern "C" fn $name(exchange: *mut c_void $(, $arg: $type)*) $(-> $result)? {
            // SAFETY: C passes back the pointer that `Engine::serve` gave it, during that call
            // only, on the same thread, and never from within another callback, so this is the
            // one reference to the `Live`.
            let live = unsafe { &mut *exchange.cast::<Live<'_>>() };
            if live.panic.is_some() {
                return $($default)?;
            }
            let run = AssertUnwindSafe(|| {
                let $live = &mut *live;
                $body
            });
            match catch_unwind(run) {
                Ok(result) => result,
                Err(panic) => {
                    live.panic = Some(panic);
                    $($default)?
                }
            }
        }
    };
}

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
        // SAFETY: C passes `capacity` bytes that nobody else uses during the call; they are zeroed
        // first, since safe code may read what it was given to fill.
        let buffer = unsafe {
            ptr::write_bytes(buffer, 0, capacity);
            slice::from_raw_parts_mut(buffer.cast::<u8>(), capacity)
        };
        live.exchange.read_body(buffer).min(capacity)
    }
}

callback! {
    fn log(live, level: c_int, to_client: bool, message: *const c_char, length: usize), {
        // SAFETY: as in `send`.
        let message = unsafe { slice::from_raw_parts(message.cast::<u8>(), length) };
        live.exchange.log(level_of(level), to_client, message);
    }
}

callback! {
    fn status(live) -> *const RawPoolStatus, else ptr::null(), {
        live.status = live.exchange.status().map(|status| StatusTexts::new(&status));
        live.status.as_ref().map_or(ptr::null(), |texts| &raw const *texts.raw)
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

/// A status for C, with all it points to.
struct StatusTexts {
    raw: Box<RawPoolStatus>,
    _processes: Vec<RawProcessStatus>,
    _texts: Vec<CString>,
}

impl StatusTexts {
    fn new(status: &PoolStatus) -> Self {
        let mut texts = Vec::new();
        let processes: Vec<RawProcessStatus> = status
            .processes
            .iter()
            .map(|process| raw_process(process, &mut texts))
            .collect();
        let raw = RawPoolStatus {
            pool: text(&mut texts, &status.pool),
            process_manager: text(&mut texts, &status.process_manager),
            start_time: status.start_time,
            start_since: status.start_since,
            accepted_conn: status.accepted_conn,
            listen_queue: status.listen_queue,
            max_listen_queue: status.max_listen_queue,
            listen_queue_len: status.listen_queue_len,
            idle_processes: status.idle_processes,
            active_processes: status.active_processes,
            total_processes: status.idle_processes + status.active_processes,
            max_active_processes: status.max_active_processes,
            max_children_reached: status.max_children_reached,
            slow_requests: status.slow_requests,
            processes: processes.as_ptr(),
            process_count: processes.len(),
        };
        Self {
            raw: Box::new(raw),
            _processes: processes,
            _texts: texts,
        }
    }
}

fn raw_process(process: &ProcessStatus, texts: &mut Vec<CString>) -> RawProcessStatus {
    RawProcessStatus {
        pid: process.pid,
        state: text(texts, &process.state),
        start_time: process.start_time,
        start_since: process.start_since,
        requests: process.requests,
        request_duration: process.request_duration,
        request_method: text(texts, &process.request_method),
        request_uri: text(texts, &process.request_uri),
        query_string: text(texts, &process.query_string),
        request_length: process.request_length,
        user: text(texts, &process.user),
        script: text(texts, &process.script),
        last_request_cpu: process.last_request_cpu,
        last_request_memory: process.last_request_memory,
    }
}

/// A pointer to `string` up to its first NUL; the bytes stay in `texts`.
fn text(texts: &mut Vec<CString>, string: &str) -> *const c_char {
    let bytes = string
        .bytes()
        .take_while(|byte| *byte != 0)
        .collect::<Vec<u8>>();
    let owned = CString::new(bytes).unwrap_or_default();
    let pointer = owned.as_ptr();
    texts.push(owned);
    pointer
}

/// The strings of [`Settings`] as C reads them, for as long as the process lives.
struct SettingTexts {
    sapi_name: CString,
    executable: Option<CString>,
    ini_path: Option<CString>,
    ini_entries: CString,
    values: Vec<(CString, CString, bool)>,
}

impl SettingTexts {
    fn new(settings: &Settings) -> Result<Self, StartError> {
        let values = settings.values.iter().map(|value| {
            let name = c_string(value.name.as_bytes(), &value.name)?;
            Ok((
                name,
                c_string(value.value.as_bytes(), &value.name)?,
                value.admin,
            ))
        });
        let path = |path: &OsStr, setting| c_string(path.as_bytes(), setting);
        Ok(Self {
            sapi_name: c_string(settings.sapi_name.as_bytes(), "sapi_name")?,
            executable: std::env::current_exe()
                .ok()
                .and_then(|executable| CString::new(executable.as_os_str().as_bytes()).ok()),
            ini_path: settings
                .ini_path
                .as_ref()
                .map(|ini_path| path(ini_path.as_os_str(), "php_ini"))
                .transpose()?,
            ini_entries: c_string(settings.ini_entries().as_bytes(), "php_value")?,
            values: values.collect::<Result<_, StartError>>()?,
        })
    }
}

fn c_string(bytes: &[u8], setting: &str) -> Result<CString, StartError> {
    CString::new(bytes).map_err(|_| StartError::Nul {
        setting: setting.to_owned(),
    })
}

fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(ptr::null(), |text| text.as_ptr())
}

/// The started engine: proof that C may be called.
#[derive(Debug)]
pub(crate) struct Engine {
    starter: u32,
    pub(crate) unknown_values: Vec<IniValue>,
    pub(crate) refused_values: Vec<IniValue>,
    /// Kept from request to request for its memory; empty between two.
    params: Vec<RawParam>,
}

impl Engine {
    pub(crate) fn start(settings: &Settings) -> Result<Self, StartError> {
        // Leaked on purpose: PHP keeps pointers to these strings until the process ends.
        let texts: &'static SettingTexts = Box::leak(Box::new(SettingTexts::new(settings)?));
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(StartError::AlreadyStarted);
        }
        let mut values: Vec<RawIniValue> = texts
            .values
            .iter()
            .map(|(name, value, admin)| RawIniValue {
                name: name.as_ptr(),
                value: value.as_ptr(),
                admin: *admin,
                fate: 0,
            })
            .collect();
        let raw = RawSettings {
            sapi_name: texts.sapi_name.as_ptr(),
            executable: pointer(texts.executable.as_ref()),
            ini_path: pointer(texts.ini_path.as_ref()),
            ini_entries: texts.ini_entries.as_ptr(),
            values: values.as_mut_ptr(),
            value_count: values.len(),
            no_ini_files: settings.no_ini_files,
            fpm: settings.fpm,
        };
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
        // SAFETY: PHP is started, no request runs, and none will: `self` goes. No longjmp leaves it.
        unsafe { maitred_php_show(what) }
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

    /// Moves to `folder` for good, or only forgets what paths led to.
    pub(crate) fn settle(&mut self, folder: Option<&CStr>) -> io::Result<()> {
        let folder = folder.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: PHP is started, no request runs, and the string outlives the call, which copies it.
        match unsafe { maitred_php_settle(folder) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    pub(crate) fn serve(&mut self, params: &Params, exchange: &mut dyn Exchange) -> Served {
        let mut live = Live::new(exchange);
        let mut request = fill_request(params, &mut self.params);
        request.exchange = (&raw mut live).cast();
        let served = if prepare(&request) {
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
        let mut live = Live::new(exchange);
        let mut request = fill_request(params, &mut self.params);
        request.exchange = (&raw mut live).cast();
        if !prepare(&request) {
            return live.end(not_started());
        }
        // The variables may change now: nothing points to them any more.
        self.params.clear();
        let paths = Paths {
            directives: path_directives(),
            engine: self,
        };
        let foreign = live.exchange.translate(params, &paths);
        let mut request = fill_request(params, &mut self.params);
        request.exchange = (&raw mut live).cast();
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

/// Sets what came with a request for PHP to be set. False if PHP could not go on; then an answer was
/// given.
fn prepare(request: &RawRequest) -> bool {
    if request.php_value.is_null() && request.php_admin_value.is_null() {
        return true;
    }
    // SAFETY: as in `run`; the request is C's during the call only.
    unsafe { maitred_php_prepare(request) }
}

fn run(request: &RawRequest) -> RawServed {
    let mut served = RawServed::default();
    // SAFETY: PHP is started and this is its thread (`Engine` is not `Send`, and only its methods
    // call this); the request, its strings and the `Live` outlive the call, and Rust touches the
    // `Live` again only when C has returned. No longjmp leaves the call: the shim catches every
    // bailout.
    unsafe { maitred_php_serve(request, &raw mut served) };
    served
}

fn not_started() -> RawServed {
    RawServed {
        outcome: NOT_STARTED,
        response_status: 500,
        ..RawServed::default()
    }
}

fn path_directives() -> PathDirectives {
    let mut raw = RawPathDirectives {
        fix_pathinfo: false,
        discard_path: false,
        doc_root: ptr::null(),
    };
    // SAFETY: PHP is started (only `Engine` calls this); the string is valid until PHP is called
    // again, and copied before.
    unsafe {
        maitred_php_path_directives(&raw mut raw);
        PathDirectives {
            fix_pathinfo: raw.fix_pathinfo,
            discard_path: raw.discard_path,
            doc_root: (!raw.doc_root.is_null())
                .then(|| CStr::from_ptr(raw.doc_root).to_bytes().to_vec()),
        }
    }
}

impl<'a> Live<'a> {
    fn new(exchange: &'a mut dyn Exchange) -> Live<'a> {
        Live {
            exchange,
            panic: None,
            status: None,
        }
    }

    /// What is known of the request, when C has returned.
    fn end(mut self, served: RawServed) -> Served {
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
        Served {
            outcome: outcome(served.outcome),
            status: u16::try_from(served.response_status).unwrap_or(0),
            client_gone: served.client_gone,
            spent: served.spent,
            peak_memory: served.peak_memory,
        }
    }
}

pub(crate) fn after_fork() {
    // SAFETY: the caller has an `Engine`, so PHP is started, and no request is under way.
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

/// One pass over the variables. The pointers live as long as `params` and `list` stay as they are.
fn fill_request(params: &Params, list: &mut Vec<RawParam>) -> RawRequest {
    let mut request = RawRequest {
        exchange: ptr::null_mut(),
        params: ptr::null(),
        param_count: 0,
        method: ptr::null(),
        script_name: ptr::null(),
        path_info: ptr::null(),
        script_filename: ptr::null(),
        query_string: c"".as_ptr(),
        content_type: c"".as_ptr(),
        cookie: ptr::null(),
        authorization: ptr::null(),
        document_root: ptr::null(),
        server_name: ptr::null(),
        php_value: ptr::null(),
        php_admin_value: ptr::null(),
        content_length: 0,
        foreign: false,
        admission: 0,
        path_translated: ptr::null(),
        request_uri: ptr::null(),
        body_file: ptr::null(),
    };
    list.clear();
    for (name, value) in params.iter_nul_terminated() {
        let pointer = value.as_ptr().cast::<c_char>();
        let field = match name {
            b"REQUEST_METHOD\0" => Some(&mut request.method),
            b"SCRIPT_NAME\0" => Some(&mut request.script_name),
            b"PATH_INFO\0" => Some(&mut request.path_info),
            b"SCRIPT_FILENAME\0" => Some(&mut request.script_filename),
            b"QUERY_STRING\0" => Some(&mut request.query_string),
            b"CONTENT_TYPE\0" => Some(&mut request.content_type),
            b"HTTP_COOKIE\0" => Some(&mut request.cookie),
            b"HTTP_AUTHORIZATION\0" => Some(&mut request.authorization),
            b"DOCUMENT_ROOT\0" => Some(&mut request.document_root),
            b"SERVER_NAME\0" => Some(&mut request.server_name),
            b"PHP_VALUE\0" => Some(&mut request.php_value),
            b"PHP_ADMIN_VALUE\0" => Some(&mut request.php_admin_value),
            b"REQUEST_BODY_FILE\0" => Some(&mut request.body_file),
            b"CONTENT_LENGTH\0" => {
                request.content_length = content_length(value);
                None
            }
            _ => None,
        };
        if let Some(field) = field {
            *field = pointer;
        }
        list.push(RawParam {
            name: name.as_ptr().cast(),
            name_length: name.len() - 1,
            value: pointer,
            value_length: value.len() - 1,
        });
    }
    request.params = list.as_ptr();
    request.param_count = list.len();
    request
}

/// Adds what php-fpm's rules have made of a web server's variables.
fn fill_foreign(request: &mut RawRequest, params: &Params, foreign: Foreign) {
    let pointer = |text: Option<Text>| {
        text.map_or(ptr::null(), |text| {
            params.bytes_with_nul(text).as_ptr().cast::<c_char>()
        })
    };
    request.foreign = true;
    request.path_translated = pointer(foreign.script);
    request.request_uri = pointer(foreign.uri);
    request.admission = match foreign.admission {
        Admission::Admitted => 0,
        Admission::NoMethod => 1,
        Admission::NoScript => 2,
        Admission::Extension => 3,
    };
}

/// As atol(3) reads it, as php-fpm does; what is less than nothing is nothing.
fn content_length(value: &[u8]) -> i64 {
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(0);
    let text = value.get(start..).unwrap_or_default();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0_i64, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
    })
}

/// `PHP_INI_SCAN_DIR` is the only way to tell PHP where further ini files are; scripts must not see
/// it afterwards.
struct ScanDir {
    before: Option<Option<std::ffi::OsString>>,
}

const SCAN_DIR: &str = "PHP_INI_SCAN_DIR";

impl ScanDir {
    fn set(value: Option<&OsStr>) -> Self {
        let Some(value) = value else {
            return Self { before: None };
        };
        let before = std::env::var_os(SCAN_DIR);
        // SAFETY: `Engine::start` asks its callers to start PHP before there are threads.
        unsafe { std::env::set_var(SCAN_DIR, value) };
        Self {
            before: Some(before),
        }
    }

    fn restore(self) {
        match self.before {
            None => {}
            // SAFETY: as in `set`.
            Some(Some(before)) => unsafe { std::env::set_var(SCAN_DIR, before) },
            // SAFETY: as in `set`.
            Some(None) => unsafe { std::env::remove_var(SCAN_DIR) },
        }
    }
}
