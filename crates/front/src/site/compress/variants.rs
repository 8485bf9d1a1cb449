//! Compressed variants of static files: precompressed ones next to a file (nginx's `gzip_static`),
//! and ones created once.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use maitred_rules::content_encoding::ContentEncoding;
use rustix::fs::FileType;

use crate::http::body::blocking;
use crate::http::large_file::FolderOwner;
use crate::runtime::clock;
use crate::runtime::file_identity::Identity;
use crate::site::compress::encoder::{Effort, Encoder};
use crate::site::document_root::Root;
use crate::site::files::{self, FileBody, FilePlace, StaticFile};
use crate::site::name_lookups;
use crate::site::resolver::TableLimits;

/// Largest file that the server compresses, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of compressed files that one thread caches.
const MADE_BYTES: usize = 16 * 1024 * 1024;

/// Most files for which a thread remembers the result.
const MADE_FILES: usize = 4096;

/// Files that are compressed for one thread at a time; others are sent uncompressed.
const MAX_MAKING: usize = 2;

/// Precompressed files in one directory. It is read at most once a second, so that files without
/// variants cost nothing.
pub struct Siblings {
    limits: TableLimits,
    /// The owner of their open files.
    owner: FolderOwner,
    kept: HashMap<Arc<[u8]>, [Option<Precompressed>; ContentEncoding::ALL.len()]>,
    memory: usize,
    open_files: usize,
}

struct Precompressed {
    /// The original file.
    of: Identity,
    /// The time of the check, in seconds since 1970.
    looked: u64,
    /// It was looked at since the last [`Siblings::close_idle`].
    is_recent: bool,
    found: Option<(Identity, Arc<StaticFile>)>,
}

impl Siblings {
    /// An empty table of a folder, within these limits.
    pub fn new(limits: TableLimits, owner: FolderOwner) -> Siblings {
        Siblings {
            owner,
            limits: TableLimits {
                routes: limits.routes / 2,
                memory: limits.memory / 2,
                open_files: limits.open_files / 2,
                ..limits
            },
            kept: HashMap::new(),
            memory: 0,
            open_files: 0,
        }
    }

    /// The precompressed variant of a file below `root`.
    pub fn find(
        &mut self,
        root: &Arc<Root>,
        entry: &StaticFile,
        coding: ContentEncoding,
    ) -> Option<Arc<StaticFile>> {
        let of = entry.identity()?;
        let now = clock::since_1970().as_secs();
        let place = ContentEncoding::ALL.iter().position(|other| *other == coding)?;
        let known = self.kept.get(entry.name()).and_then(|all| all[place].as_ref());
        let known = known.filter(|known| known.of == of);
        if let Some(known) = known.filter(|known| known.looked == now) {
            return known.found.as_ref().map(|(_, found)| found.clone());
        }
        let known = known.and_then(|known| known.found.as_ref());
        let found = self.look(root, entry, coding, known);
        if name_lookups::is_pending() {
            return None;
        }
        let sent = found.as_ref().map(|(_, found)| found.clone());
        let beside = Precompressed { of, looked: now, is_recent: true, found };
        self.keep(entry.name(), place, beside);
        sent
    }

    /// Closes the files that are held open and were not used since the previous call.
    pub fn close_idle(&mut self) {
        if self.open_files == 0 {
            return;
        }
        for known in self.kept.values_mut().flatten() {
            let is_idle =
                |one: &mut Precompressed| !std::mem::take(&mut one.is_recent) && one.holds().1 > 0;
            if known.as_mut().is_some_and(is_idle) {
                *known = None;
                self.open_files -= 1;
            }
        }
        self.kept.retain(|_, all| all.iter().any(Option::is_some));
    }

    /// Checks for a precompressed variant; `known` is the result of the last check.
    fn look(
        &self,
        root: &Arc<Root>,
        entry: &StaticFile,
        coding: ContentEncoding,
        known: Option<&(Identity, Arc<StaticFile>)>,
    ) -> Option<(Identity, Arc<StaticFile>)> {
        let name = [entry.name(), b".", coding.extension().as_bytes()].concat();
        let seen = name_lookups::look(root, &name).ok()?;
        if seen.through_link || seen.kind() != FileType::RegularFile {
            return None;
        }
        if let Some(known) = known.filter(|(identity, _)| *identity == Identity::of(&seen.stat)) {
            return Some(known.clone());
        }
        let opened = name_lookups::open(root, &name).ok()?;
        if opened.through_link || opened.kind() != FileType::RegularFile {
            return None;
        }
        let place = FilePlace { root, path: &name, owner: &self.owner };
        let file = files::load(opened.fd, place).ok()?;
        // An older variant belongs to a former file, and one that changes is incomplete.
        let identity = file.settled.filter(|_| file.entry.is_no_older_than(entry))?;
        Some((identity, Arc::new(entry.beside(coding, &file.entry))))
    }

    fn keep(&mut self, name: &[u8], place: usize, beside: Precompressed) {
        let (memory, open_files) = beside.holds();
        if memory > self.limits.memory || open_files > self.limits.open_files {
            return;
        }
        let is_full = self.memory + memory > self.limits.memory
            || self.open_files + open_files > self.limits.open_files
            || self.kept.len() >= self.limits.routes;
        if is_full {
            // Each costs another check of the folder.
            self.kept.clear();
            (self.memory, self.open_files) = (0, 0);
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
            Some(FileBody::Memory(bytes)) => (bytes.len(), 0),
            Some(FileBody::File(_)) => (0, 1),
        }
    }
}

/// The compressed variants in one thread, finished and in progress.
#[derive(Default)]
pub struct Made(Mutex<VariantStore>);

type Key = (Identity, ContentEncoding);

#[derive(Default)]
struct VariantStore {
    states: HashMap<Key, VariantState>,
    /// In the order of their creation.
    order: VecDeque<Key>,
    memory: usize,
    making: usize,
}

#[derive(Clone)]
enum VariantState {
    VariantInProgress,
    /// The variant would be hardly smaller.
    Worthless,
    Ready(Arc<StaticFile>),
}

impl Made {
    fn lock(&self) -> MutexGuard<'_, VariantStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VariantStore {
    /// The state of a variant; none if the caller is to create it.
    fn ask(&mut self, key: Key) -> Option<VariantState> {
        let known = self.states.get(&key).cloned();
        match known {
            None if self.making < MAX_MAKING => {
                self.making += 1;
                self.states.insert(key, VariantState::VariantInProgress);
                None
            }
            None => Some(VariantState::VariantInProgress),
            known => known,
        }
    }

    /// Stores a variant, or that it could not be created.
    fn made(&mut self, key: Key, state: Option<VariantState>) {
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

fn size(state: &VariantState) -> usize {
    match state {
        VariantState::Ready(entry) => usize::try_from(entry.len()).unwrap_or(usize::MAX),
        VariantState::VariantInProgress | VariantState::Worthless => 0,
    }
}

/// A variant in progress. After a failure, another request may try.
struct VariantInProgress<'a> {
    made: &'a Made,
    key: Key,
    state: Option<VariantState>,
}

impl Drop for VariantInProgress<'_> {
    fn drop(&mut self) {
        self.made.lock().made(self.key, self.state.take());
    }
}

/// The compressed variant of a file, created once. Requests during its creation get the file
/// itself.
pub(crate) async fn made(
    made: &Made,
    entry: Arc<StaticFile>,
    coding: ContentEncoding,
) -> Arc<StaticFile> {
    let Some(identity) = entry.identity().filter(|_| entry.len() <= MAX_FILE_BYTES) else {
        return entry;
    };
    let key = (identity, coding);
    let asked = made.lock().ask(key);
    match asked {
        Some(VariantState::Ready(ready)) if ready.content_type() == entry.content_type() => {
            return ready;
        }
        Some(_) => return entry,
        None => {}
    }
    let mut making = VariantInProgress { made, key, state: None };
    let Ok(Some(bytes)) = contents(&entry, identity).await else {
        return entry;
    };
    let len = entry.len();
    let encode = move || Encoder::new(coding, Effort::Kept)?.last(&bytes);
    let Ok(coded) = blocking(encode).await else {
        return entry;
    };
    // A variant has to save a twentieth.
    if coded.len() as u64 > len - len / 20 {
        making.state = Some(VariantState::Worthless);
        return entry;
    }
    let ready = Arc::new(entry.coded(coding, coded.into()));
    making.state = Some(VariantState::Ready(ready.clone()));
    ready
}

/// The contents of a file; none if it has changed.
async fn contents(entry: &StaticFile, of: Identity) -> io::Result<Option<Bytes>> {
    match entry.body() {
        FileBody::Memory(bytes) => Ok(Some(bytes.clone())),
        FileBody::File(file) => {
            let bytes = file.read_all(entry.len()).await?;
            let now = Identity::of(&rustix::fs::fstat(file.fd())?);
            let is_whole = now == of && bytes.len() as u64 == entry.len();
            Ok(is_whole.then(|| bytes.into()))
        }
    }
}
