//! Lookups of names in the folders of tenants, which may take as long as a tenant likes.
//!
//! The kernel looks up a name that its cache does not have with the lock of the folder. A tenant
//! can hold the lock of its own folder: it lists the folder into memory that a FUSE file system
//! does not give, and has another process wait to create a file. A thread in such a lookup cannot
//! be interrupted. So a serving thread looks up only what the kernel has cached (`RESOLVE_CACHED`,
//! openat2(2)). Work that needs more ends there; the lookup is done on another thread, within the
//! [limits](turns) of the tenant; then the work begins again.

mod turns;

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use maitred_os::walk::Stopped;
use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

use crate::runtime::sandbox;
use crate::site::document_root::Root;
use crate::site::openat::{self, Opened};
use crate::site::resolver::Refused;

pub use turns::{AllTurns, Tenant};

/// Most lookups on other threads for one piece of work, such as the evaluation of a request.
const LOOKUPS_MAX: usize = 256;

/// The error of a lookup that is still to be done. It ends the work, and has no other effect.
const PENDING: Errno = Errno::INPROGRESS;

/// Whether the kernel has `RESOLVE_CACHED` (from 5.12), and the system allows `openat2`. Without
/// it, serving threads wait for the file system.
static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();

/// A lookup by its arguments.
#[derive(Clone)]
enum Lookup {
    Stat { path: CString, flags: AtFlags },
    Open { root: Arc<Root>, path: Vec<u8>, flags: OFlags },
    Root(RootPlace),
}

/// Where a document root is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootPlace {
    /// Its configured path.
    pub path: PathBuf,
    /// The same as bytes, without trailing slashes.
    pub name: Vec<u8>,
    /// The user id of the front.
    pub front: u32,
}

impl PartialEq for Lookup {
    fn eq(&self, other: &Lookup) -> bool {
        match (self, other) {
            (Lookup::Stat { path, flags }, Lookup::Stat { path: other, flags: others }) => {
                path == other && flags == others
            }
            (
                Lookup::Open { root, path, flags },
                Lookup::Open { root: others, path: other, flags: other_flags },
            ) => Arc::ptr_eq(root, others) && path == other && flags == other_flags,
            (Lookup::Root(place), Lookup::Root(other)) => place == other,
            _ => false,
        }
    }
}

/// The result of a lookup on another thread.
enum LookupOutcome {
    Stat(Result<Stat>),
    Open(Result<Opened>),
    Root(std::result::Result<Arc<Root>, Arc<Stopped>>),
}

impl Lookup {
    /// Waits for the file system.
    fn run(&self) -> LookupOutcome {
        match self {
            Lookup::Stat { path, flags } => {
                LookupOutcome::Stat(fs::statat(fs::CWD, path.as_c_str(), *flags))
            }
            Lookup::Open { root, path, flags } => LookupOutcome::Open(open_now(root, path, *flags)),
            Lookup::Root(place) => LookupOutcome::Root(open_root_now(place)),
        }
    }
}

fn open_now(root: &Root, path: &[u8], flags: OFlags) -> Result<Opened> {
    let opened = openat::open(root.fd.as_fd(), path, flags);
    if matches!(opened, Err(Errno::ACCESS)) {
        sandbox::log_if_replaced(&root.path);
    }
    opened
}

fn open_root_now(place: &RootPlace) -> std::result::Result<Arc<Root>, Arc<Stopped>> {
    Root::open(&place.path, &place.name, place.front).map(Arc::new).map_err(Arc::new)
}

/// The lookups of one piece of work.
#[derive(Default)]
struct Scope {
    done: Vec<(Lookup, LookupOutcome)>,
    /// The first one that is still to be done.
    pending: Option<Lookup>,
}

thread_local! {
    /// That of the work in progress; without one, each lookup waits for the file system.
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// The work and its lookups, with what is left to look up.
struct ScopedRun<T> {
    result: T,
    scope: Scope,
}

fn attempt<T>(scope: Scope, work: impl FnOnce() -> T) -> ScopedRun<T> {
    let outer = SCOPE.replace(Some(scope));
    let result = work();
    let scope = SCOPE.replace(outer).unwrap_or_default();
    ScopedRun { result, scope }
}

/// Runs `work` if the kernel has cached all that it looks up; none otherwise.
pub fn if_cached<T>(work: impl FnOnce() -> T) -> Option<T> {
    let ScopedRun { result, scope } = attempt(Scope::default(), work);
    scope.pending.is_none().then_some(result)
}

/// Runs `work`, again after each lookup on another thread that it needs. What it has done before
/// such a lookup must have no effect but on caches.
///
/// # Errors
/// When a lookup takes too long, or there are too many.
pub async fn run<T>(
    tenant: &Tenant,
    mut work: impl FnMut() -> T,
) -> std::result::Result<T, Refused> {
    let mut scope = Scope::default();
    loop {
        let ended = attempt(scope, &mut work);
        scope = ended.scope;
        let Some(lookup) = scope.pending.take() else { return Ok(ended.result) };
        drop(ended.result);
        if scope.done.len() >= LOOKUPS_MAX {
            let why = "the request needs more lookups on a slow file system than the limit";
            return Err(Refused::notable(503, why));
        }
        let running = lookup.clone();
        let Some(looked_up) = tenant.run(move || running.run()).await else {
            let why = "a lookup in the site's folders takes too long, or too many wait for one";
            return Err(Refused::notable(503, why));
        };
        scope.done.push((lookup, looked_up));
    }
}

/// Whether the work has met a lookup that is still to be done: its results do not matter.
pub fn is_pending() -> bool {
    let is_pending = |scope: &Scope| scope.pending.is_some();
    SCOPE.with_borrow(|scope| scope.as_ref().is_some_and(is_pending))
}

/// Whether work is in progress that lookups end.
pub fn is_within() -> bool {
    SCOPE.with_borrow(Option::is_some)
}

/// How a lookup is to be done.
enum Means<T> {
    /// On this thread.
    AtOnce,
    /// From the kernel's cache.
    FromCache,
    /// Not at all: this is the result.
    Done(T),
}

/// `known` takes the result of this lookup from the ones that were done.
fn means<T>(
    lookup: impl FnOnce() -> Lookup,
    known: impl FnOnce(&LookupOutcome) -> Option<T>,
) -> Means<T> {
    SCOPE.with_borrow(|scope| {
        let Some(scope) = scope.as_ref().filter(|_| is_supported()) else {
            return Means::AtOnce;
        };
        if scope.done.is_empty() {
            return Means::FromCache;
        }
        let lookup = lookup();
        let done = scope.done.iter().find(|(done, _)| *done == lookup);
        match done.and_then(|(_, looked_up)| known(looked_up)) {
            Some(known) => Means::Done(known),
            None => Means::FromCache,
        }
    })
}

/// Leaves a lookup to another thread.
fn defer<T>(lookup: Lookup) -> Result<T> {
    SCOPE.with_borrow_mut(|scope| {
        if let Some(scope) = scope {
            scope.pending.get_or_insert(lookup);
        }
    });
    Err(PENDING)
}

/// Whether an error says nothing about the file: the cache is not enough, or there is no
/// descriptor, which the lookup itself does not need.
fn is_undecided(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::MFILE | Errno::NFILE)
}

fn is_supported() -> bool {
    *IS_SUPPORTED.get_or_init(|| {
        let root = fs::openat2(fs::CWD, "/", openat::LOOK, Mode::empty(), ResolveFlags::CACHED);
        matches!(root, Ok(_) | Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE))
    })
}

/// `stat`.
///
/// # Errors
/// Those of `stat(2)`, and that the lookup is pending.
pub fn stat(path: &CStr) -> Result<Stat> {
    status(path, AtFlags::empty(), OFlags::empty())
}

/// `lstat`.
///
/// # Errors
/// As [`stat`].
pub fn link_stat(path: &CStr) -> Result<Stat> {
    status(path, AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW)
}

fn status(path: &CStr, flags: AtFlags, follows: OFlags) -> Result<Stat> {
    if is_pending() {
        return Err(PENDING);
    }
    let lookup = || Lookup::Stat { path: path.to_owned(), flags };
    let known = |looked_up: &LookupOutcome| match looked_up {
        LookupOutcome::Stat(stat) => Some(*stat),
        LookupOutcome::Open(_) | LookupOutcome::Root(_) => None,
    };
    match means(lookup, known) {
        Means::AtOnce => return fs::statat(fs::CWD, path, flags),
        Means::Done(stat) => return stat,
        Means::FromCache => {}
    }
    let cached = ResolveFlags::CACHED;
    match fs::openat2(fs::CWD, path, openat::LOOK | follows, Mode::empty(), cached) {
        Ok(fd) => fs::fstat(fd),
        Err(error) if is_undecided(error) => defer(lookup()),
        Err(error) => Err(error),
    }
}

/// Opens a directory that is no symbolic link.
///
/// # Errors
/// Those of `open(2)`, and `AGAIN` for one that serving threads would have to wait for.
pub fn open_directory(path: &CStr) -> Result<OwnedFd> {
    let flags = openat::LOOK | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    match is_within() && is_supported() {
        true => fs::openat2(fs::CWD, path, flags, Mode::empty(), ResolveFlags::CACHED),
        false => fs::open(path, flags, Mode::empty()),
    }
}

/// As [`openat::open`].
///
/// # Errors
/// Those of [`openat::open`], and that the lookup is pending.
pub fn open(root: &Arc<Root>, path: &[u8], flags: OFlags) -> Result<Opened> {
    if is_pending() {
        return Err(PENDING);
    }
    let lookup = || Lookup::Open { root: Arc::clone(root), path: path.to_vec(), flags };
    let known = |looked_up: &LookupOutcome| match looked_up {
        LookupOutcome::Open(opened) => {
            Some(opened.as_ref().map_err(|error| *error).and_then(|seen| seen.again(flags)))
        }
        LookupOutcome::Stat(_) | LookupOutcome::Root(_) => None,
    };
    match means(lookup, known) {
        Means::AtOnce => return open_now(root, path, flags),
        Means::Done(opened) => return opened,
        Means::FromCache => {}
    }
    match openat::open_cached(root.fd.as_fd(), path, flags) {
        // Links that leave the root are checked name by name, and refused access is examined.
        Err(Errno::XDEV | Errno::ACCESS) => defer(lookup()),
        Err(error) if is_undecided(error) => defer(lookup()),
        opened => opened,
    }
}

/// As [`Root::open`].
///
/// # Errors
/// Those of [`Root::open`], and that the lookup is pending.
pub fn open_root(place: &RootPlace) -> std::result::Result<Arc<Root>, Arc<Stopped>> {
    let pending = || Arc::new(Stopped::System(place.path.clone(), PENDING.into()));
    if is_pending() {
        return Err(pending());
    }
    let lookup = || Lookup::Root(place.clone());
    let known = |looked_up: &LookupOutcome| match looked_up {
        LookupOutcome::Root(root) => Some(root.clone()),
        LookupOutcome::Stat(_) | LookupOutcome::Open(_) => None,
    };
    match means(lookup, known) {
        Means::AtOnce => open_root_now(place),
        Means::Done(root) => root,
        Means::FromCache => {
            let _ = defer::<()>(lookup());
            Err(pending())
        }
    }
}
