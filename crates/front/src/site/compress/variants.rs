//! Static files in a coding: those that lie beside a file, and those that are made of it once.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use maitred_rules::coding::Coding;
use rustix::fs::FileType;

use crate::http::body::blocking;
use crate::runtime::clock;
use crate::runtime::file_identity::Identity;
use crate::site::compress::encoder::{Effort, Encoder};
use crate::site::files::{self, Body, Entry, read_all};
use crate::site::openat;
use crate::site::resolver::Limits;

/// Largest file that is coded by the server itself, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of coded files that one thread keeps.
const MADE_BYTES: usize = 16 * 1024 * 1024;

/// Files of which a thread knows what came of coding them.
const MADE_FILES: usize = 4096;

/// Files that are being coded for one thread at a time; those beyond are sent as they are.
const MAX_MAKING: usize = 2;

/// What lies beside the files of one folder. Looked at once a second at most, so that a file without
/// siblings costs nothing.
pub struct Siblings {
    limits: Limits,
    kept: HashMap<Arc<[u8]>, [Option<Precompressed>; Coding::ALL.len()]>,
    memory: usize,
    open_files: usize,
}

struct Precompressed {
    /// The file that it was looked for.
    of: Identity,
    /// When, in seconds since 1970.
    looked: u64,
    found: Option<(Identity, Arc<Entry>)>,
}

impl Siblings {
    /// Knows nothing yet; keeps less than these.
    pub fn new(limits: Limits) -> Siblings {
        Siblings {
            limits: Limits {
                routes: limits.routes / 2,
                memory: limits.memory / 2,
                open_files: limits.open_files / 2,
            },
            kept: HashMap::new(),
            memory: 0,
            open_files: 0,
        }
    }

    /// What lies beside a file of the folder `root` in this coding.
    pub fn find(
        &mut self,
        root: BorrowedFd<'_>,
        entry: &Entry,
        coding: Coding,
    ) -> Option<Arc<Entry>> {
        let of = entry.identity()?;
        let now = clock::since_1970().as_secs();
        let place = Coding::ALL.iter().position(|other| *other == coding)?;
        let known = self
            .kept
            .get(entry.name())
            .and_then(|all| all[place].as_ref());
        let known = known.filter(|known| known.of == of);
        let found = match known {
            Some(known) if known.looked == now => {
                return known.found.as_ref().map(|(_, found)| found.clone());
            }
            Some(known) => look(root, entry, coding, known.found.as_ref()),
            None => look(root, entry, coding, None),
        };
        let sent = found.as_ref().map(|(_, found)| found.clone());
        let beside = Precompressed {
            of,
            looked: now,
            found,
        };
        self.keep(entry.name(), place, beside);
        sent
    }

    fn keep(&mut self, name: &[u8], place: usize, beside: Precompressed) {
        let (memory, open_files) = beside.holds();
        let is_full = self.memory + memory > self.limits.memory
            || self.open_files + open_files > self.limits.open_files
            || self.kept.len() >= self.limits.routes;
        if is_full {
            // All that is lost is a look at the folder for each.
            self.kept.clear();
            (self.memory, self.open_files) = (0, 0);
        }
        if memory > self.limits.memory || open_files > self.limits.open_files {
            return;
        }
        let all = match self.kept.get_mut(name) {
            Some(all) => all,
            None => self.kept.entry(name.into()).or_default(),
        };
        if let Some(before) = all[place].replace(beside) {
            let (memory, open_files) = before.holds();
            self.memory -= memory;
            self.open_files -= open_files;
        }
        self.memory += memory;
        self.open_files += open_files;
    }
}

impl Precompressed {
    /// Bytes of contents, and descriptors.
    fn holds(&self) -> (usize, usize) {
        match self.found.as_ref().map(|(_, found)| found.body()) {
            None => (0, 0),
            Some(Body::Memory(bytes)) => (bytes.len(), 0),
            Some(Body::File(_)) => (0, 1),
        }
    }
}

/// Looks beside a file; `known` is what lay there when it was looked before.
fn look(
    root: BorrowedFd<'_>,
    entry: &Entry,
    coding: Coding,
    known: Option<&(Identity, Arc<Entry>)>,
) -> Option<(Identity, Arc<Entry>)> {
    let name = [entry.name(), b".", coding.extension().as_bytes()].concat();
    let seen = openat::open(root, &name, openat::LOOK).ok()?;
    if seen.through_link || seen.kind() != FileType::RegularFile {
        return None;
    }
    if let Some(known) = known.filter(|(identity, _)| *identity == Identity::of(&seen.stat)) {
        return Some(known.clone());
    }
    let opened = openat::open(root, &name, openat::READ).ok()?;
    if opened.through_link || opened.kind() != FileType::RegularFile {
        return None;
    }
    let file = files::load(opened.fd, &name).ok()?;
    // One that is older was made of another file, and one that changes is not whole yet.
    let identity = file
        .settled
        .filter(|_| file.entry.is_no_older_than(entry))?;
    Some((identity, Arc::new(entry.beside(coding, &file.entry))))
}

/// What one thread has made of files, and what it is making.
#[derive(Default)]
pub struct Made(Mutex<Shelf>);

type Key = (Identity, Coding);

#[derive(Default)]
struct Shelf {
    states: HashMap<Key, State>,
    /// In the order in which they came.
    order: VecDeque<Key>,
    memory: usize,
    making: usize,
}

#[derive(Clone)]
enum State {
    Making,
    /// It would hardly be smaller.
    Worthless,
    Ready(Arc<Entry>),
}

impl Made {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// What there is; nothing if it is to be made by whoever asks.
    fn ask(&mut self, key: Key) -> Option<State> {
        let known = self.states.get(&key).cloned();
        match known {
            None if self.making < MAX_MAKING => {
                self.making += 1;
                self.states.insert(key, State::Making);
                None
            }
            None => Some(State::Making),
            known => known,
        }
    }

    /// It has been made, or could not be.
    fn made(&mut self, key: Key, state: Option<State>) {
        self.making -= 1;
        self.states.remove(&key);
        let Some(state) = state else { return };
        self.memory += size(&state);
        self.states.insert(key, state);
        self.order.push_back(key);
        while self.memory > MADE_BYTES || self.order.len() > MADE_FILES {
            let Some(first) = self.order.pop_front() else {
                break;
            };
            let gone = self.states.remove(&first);
            self.memory -= gone.as_ref().map_or(0, size);
        }
    }
}

fn size(state: &State) -> usize {
    match state {
        State::Ready(entry) => usize::try_from(entry.len()).unwrap_or(usize::MAX),
        State::Making | State::Worthless => 0,
    }
}

/// A file is being coded. Whatever becomes of it, somebody may try again.
struct Making<'a> {
    made: &'a Made,
    key: Key,
    state: Option<State>,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.made.lock().made(self.key, self.state.take());
    }
}

/// The file in a coding that is made of it, once. Who asks while it is being made gets the file itself.
pub(crate) async fn made(made: &Made, entry: Arc<Entry>, coding: Coding) -> Arc<Entry> {
    let Some(identity) = entry.identity().filter(|_| entry.len() <= MAX_FILE_BYTES) else {
        return entry;
    };
    let key = (identity, coding);
    let asked = made.lock().ask(key);
    match asked {
        Some(State::Ready(ready)) if ready.content_type() == entry.content_type() => return ready,
        Some(_) => return entry,
        None => {}
    }
    let mut making = Making {
        made,
        key,
        state: None,
    };
    let (body, len) = (entry.body().clone(), entry.len());
    let coded = blocking(move || code(&body, len, identity, coding)).await;
    let Ok(Some(coded)) = coded else {
        return entry;
    };
    // Less than a twentieth saved is not worth anybody's time.
    if coded.len() as u64 > len - len / 20 {
        making.state = Some(State::Worthless);
        return entry;
    }
    let ready = Arc::new(entry.coded(coding, coded.into()));
    making.state = Some(State::Ready(ready.clone()));
    ready
}

/// The bytes of a file in a coding; nothing if it is not what it was any more.
fn code(body: &Body, len: u64, of: Identity, coding: Coding) -> io::Result<Option<Vec<u8>>> {
    let bytes = match body {
        Body::Memory(bytes) => bytes.clone(),
        Body::File(fd) => {
            let bytes = read_all(fd, len)?;
            let now = Identity::of(&rustix::fs::fstat(fd)?);
            if now != of || bytes.len() as u64 != len {
                return Ok(None);
            }
            Bytes::from(bytes)
        }
    };
    Encoder::new(coding, Effort::Kept)?.last(&bytes).map(Some)
}
