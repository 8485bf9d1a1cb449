//! The interface of `shim/opcache.c` and `shim/preload.c`.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;

use super::RawEngine;

type RawVisitor = extern "C" fn(*mut c_void, *const c_char, usize, u64);

unsafe extern "C" {
    fn maitred_php_cached_scripts(visit: RawVisitor, context: *mut c_void) -> bool;
    fn maitred_php_cache_figures(figures: *mut CacheFigures) -> bool;
    fn maitred_php_cache_figures_within(figures: *mut CacheFigures) -> bool;
    fn maitred_php_compile_script(path: *const c_char, bytes: usize) -> c_int;
    fn maitred_php_declared_classes(
        path: *const c_char,
        names: *mut c_char,
        capacity: usize,
        alone: *mut bool,
    ) -> c_int;
    fn maitred_php_watch_preloaded() -> u32;
    fn maitred_php_validates_scripts() -> bool;
}

/// OPcache statistics since its memory was allocated. `shim.h` has the same struct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CacheFigures {
    /// Memory in use, in bytes.
    pub used_bytes: u64,
    /// Free memory, in bytes.
    pub free_bytes: u64,
    /// Memory of outdated scripts, in bytes: it is freed by a restart.
    pub wasted_bytes: u64,
    /// Cached scripts.
    pub scripts: u64,
    /// Lookups of cached scripts.
    pub hits: u64,
    /// Lookups of scripts that were not cached.
    pub misses: u64,
    /// Restarts because memory ran out.
    pub oom_restarts: u64,
    /// Restarts because keys ran out.
    pub hash_restarts: u64,
    /// Requested restarts (`opcache_reset`).
    pub manual_restarts: u64,
    /// Keys in use; a script may have several.
    pub keys: u64,
    /// All keys.
    pub all_keys: u64,
    /// Interned string memory in use, in bytes; it is part of the memory.
    pub strings_bytes: u64,
    /// All of it, in bytes.
    pub all_strings_bytes: u64,
    /// The next script finds no memory, or no key.
    pub is_full: bool,
    /// New strings are stored with the scripts.
    pub strings_are_full: bool,
}

/// The result of compiling a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiled {
    /// OPcache has stored it.
    Yes,
    /// Already cached, not compilable, ambiguous, or too large.
    PassedOver,
    /// PHP could not continue; nor must the process.
    Exhausted,
}

/// Room for the names of the classes of a script, in bytes.
const CLASS_NAMES_MAX: usize = 16 * 1024;

/// The classes of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Their names in lower case, each followed by a newline.
    pub(crate) names: Vec<u8>,
    /// It is one class at its top level, and the script does nothing else.
    pub(crate) is_alone: bool,
}

/// The target of the visitor's context pointer.
struct Visit<'a> {
    take: &'a mut dyn FnMut(&[u8], u64),
    panic: Option<Box<dyn Any + Send>>,
}

extern "C" fn visit(context: *mut c_void, path: *const c_char, length: usize, hits: u64) {
    // SAFETY: C passes back the pointer that `cached_scripts` gave it, during that call only, on
    // the same thread and not from within another visit.
    let visit = unsafe { &mut *context.cast::<Visit<'_>>() };
    if visit.panic.is_some() {
        return;
    }
    // SAFETY: C passes `length` readable bytes that stay as they are during the call.
    let path = unsafe { slice::from_raw_parts(path.cast::<u8>(), length) };
    // A panic must not unwind into C.
    visit.panic = catch_unwind(AssertUnwindSafe(|| (visit.take)(path, hits))).err();
}

/// The OPcache statistics, if there is one, during a suspended request: in a child of a process
/// within [`Exchange::freeze`](crate::Exchange::freeze).
pub fn cache_figures_within() -> Option<CacheFigures> {
    let mut figures = CacheFigures::default();
    // SAFETY: a process within `freeze` runs PHP, has one thread, which is this one, and a script
    // that waits in a function of the shim's; `figures` is laid out as C wants it and outlives the
    // call, and no longjmp leaves it.
    let found = unsafe { maitred_php_cache_figures_within(&raw mut figures) };
    found.then_some(figures)
}

impl RawEngine {
    /// Whether PHP completed it.
    pub(crate) fn cached_scripts(&mut self, take: &mut dyn FnMut(&[u8], u64)) -> bool {
        let mut context = Visit { take, panic: None };
        // SAFETY: PHP is started, this is its thread and no request is under way; `context`
        // outlives the call. No longjmp leaves it, and none crosses `visit`, which calls nothing of
        // PHP's.
        let done = unsafe { maitred_php_cached_scripts(visit, (&raw mut context).cast()) };
        if let Some(panic) = context.panic.take() {
            resume_unwind(panic);
        }
        done
    }

    /// The OPcache statistics, if there is one.
    pub(crate) fn cache_figures(&mut self) -> Option<CacheFigures> {
        let mut figures = CacheFigures::default();
        // SAFETY: PHP is started, this is its thread and no request is under way; `figures` is laid
        // out as C wants it and outlives the call, and no longjmp leaves it.
        let found = unsafe { maitred_php_cache_figures(&raw mut figures) };
        found.then_some(figures)
    }

    pub(crate) fn compile_script(&mut self, path: &CStr, bytes: usize) -> Compiled {
        // SAFETY: PHP is started, this is its thread and no request is under way; `path` outlives
        // the call, and no longjmp leaves it.
        let code = unsafe { maitred_php_compile_script(path.as_ptr(), bytes) };
        match code {
            0 => Compiled::Yes,
            1 => Compiled::PassedOver,
            _ => Compiled::Exhausted,
        }
    }

    /// None when PHP could not continue; nor must the process.
    pub(crate) fn declared_classes(&mut self, path: &CStr) -> Option<Declared> {
        let (mut names, mut is_alone) = (vec![0_u8; CLASS_NAMES_MAX], false);
        let start = names.as_mut_ptr().cast();
        // SAFETY: PHP is started, this is its thread and no request is under way; `path`, `names`
        // and `is_alone` outlive the call, `names` has that many bytes, and no longjmp leaves it.
        let length = unsafe {
            let capacity = names.len();
            maitred_php_declared_classes(path.as_ptr(), start, capacity, &raw mut is_alone)
        };
        names.truncate(usize::try_from(length).ok()?);
        Some(Declared { names, is_alone })
    }

    pub(crate) fn watch_preloaded(&mut self) -> u32 {
        // SAFETY: PHP is started, this is its thread, and no request is under way.
        unsafe { maitred_php_watch_preloaded() }
    }

    pub(crate) fn validates_scripts(&self) -> bool {
        // SAFETY: PHP is started, and this is its thread.
        unsafe { maitred_php_validates_scripts() }
    }
}
