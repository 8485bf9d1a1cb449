//! Cached decisions of `.htaccess` files. A decision holds for requests that are the same in all
//! that its evaluation has read, and as long as the file system is as it has seen it.

use std::ffi::CString;
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};

use maitred_htaccess::process::Outcome;
use maitred_htaccess::request::{Client, Request};
use maitred_http1::Head;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use rustix::fs::{FileType, Stat};

use crate::runtime::file_identity::Identity;
use crate::site::directory_watch::{self, DirectoryId, TRUSTED_FOR};
use crate::site::files::StaticFile;
use crate::site::name_lookups;
use crate::site::resolver::Script;
use crate::site::resolver_table::{Expect, FileWatch};

/// A usual decision in bytes.
const DECISION_BYTES: usize = 4096;

/// Most bytes of a configuration that sections make for one request, to be held with its decision.
const PRIVATE_CONF_BYTES_MAX: usize = 64 * 1024;

/// Longest key of a cached decision, in bytes.
const KEY_BYTES_MAX: usize = 2048;

/// Most paths that an evaluation may look at and be cached.
const WATCHES_MAX: usize = 32;

/// What a decision serves.
#[derive(Debug, Clone, Default)]
pub struct CachedVerdict {
    /// The last round; none where no directive applies.
    pub round: Option<CachedRound>,
    /// The script to run.
    pub script: Option<Arc<Script>>,
    /// The file to send, as long as the cache of routes has it.
    pub file: Weak<StaticFile>,
    /// Another client may get something else for the same URL.
    pub depends_on_client: bool,
}

/// The last round of a request.
#[derive(Debug, Clone)]
pub struct CachedRound {
    /// The request, without the headers of the client.
    pub request: Arc<Request>,
    /// The client; its addresses are those of the first request.
    pub client: Arc<Client>,
    /// What becomes of it.
    pub outcome: Outcome,
    /// It has the path and the query of the first round.
    pub is_same_url: bool,
}

/// A request header that an evaluation has read.
#[derive(Debug)]
pub struct ReadHeader {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value, if the request has it.
    pub value: Option<Vec<u8>>,
}

impl ReadHeader {
    fn bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, Vec::len);
        size_of::<ReadHeader>() + self.name.len() + value
    }
}

/// The paths that an evaluation has looked at.
#[derive(Default)]
pub struct WatchedPaths {
    watches: Vec<FileWatch>,
    /// A later change of one would not show.
    is_uncertain: bool,
}

impl WatchedPaths {
    /// A path was looked at, with this result. None: its later changes would not show.
    pub fn add(&mut self, path: &[u8], expect: Option<Expect>) {
        let known = |watch: &FileWatch| watch.path.as_bytes() == path;
        if self.watches.iter().any(known) {
            return;
        }
        match (CString::new(path), expect) {
            (Ok(path), Some(expect)) if self.watches.len() < WATCHES_MAX => {
                self.watches.push(FileWatch { path, expect });
            }
            _ => self.is_uncertain = true,
        }
    }

    /// What has to hold; none if that cannot be checked.
    pub fn into_watches(self) -> Option<Vec<FileWatch>> {
        (!self.is_uncertain).then_some(self.watches)
    }
}

struct VerdictSlot {
    headers: Vec<ReadHeader>,
    watches: Vec<FileWatch>,
    /// The directories of all those paths; none if one cannot be watched.
    directories: Option<Vec<DirectoryId>>,
    /// When the paths were last checked, and the last change of a directory before that.
    checked_at: Instant,
    since: u64,
    /// The moment of the last check.
    seen: u64,
    verdict: CachedVerdict,
    /// Its memory, with its key.
    bytes: usize,
}

/// The memory of decisions.
#[derive(Clone)]
struct VerdictWeight;

impl Weighter<Vec<u8>, VerdictSlot> for VerdictWeight {
    fn weight(&self, _key: &Vec<u8>, slot: &VerdictSlot) -> u64 {
        slot.bytes as u64
    }
}

impl CachedVerdict {
    fn bytes(&self) -> usize {
        let script = self.script.as_ref().map_or(0, |script| {
            let Script { script_filename, script_name, path_info, .. } = &**script;
            size_of::<Script>() + script_filename.len() + script_name.len() + path_info.len()
        });
        let round = self.round.as_ref().map_or(0, |round| {
            let CachedRound { request, client, .. } = round;
            request.bytes() + client.bytes()
        });
        script + round
    }

    /// Whether sections have made a large configuration for this request alone.
    fn has_large_conf(&self) -> bool {
        let bytes = self.round.as_ref().map_or(0, |round| round.request.private_conf_bytes());
        bytes > PRIVATE_CONF_BYTES_MAX
    }
}

impl VerdictSlot {
    /// Whether a request has the headers that the evaluation has read.
    fn is_for(&self, head: &Head) -> bool {
        self.headers.iter().all(|read| {
            value_of(head, &read.name).is_ok_and(|value| value == read.value.as_deref())
        })
    }

    /// Whether all paths are as they were: by what the kernel reports, or else by one `stat` each.
    fn holds(&mut self, moment: u64) -> bool {
        if moment != 0 && self.seen == moment {
            return true;
        }
        if let Some(directories) = &self.directories
            && let Some(until) = directory_watch::unchanged_until(directories, self.since, moment)
            && self.checked_at.elapsed() < TRUSTED_FOR
        {
            (self.seen, self.since) = (moment, until);
            return true;
        }
        let since = directory_watch::last_change();
        // A later change in a directory that has moved would not be reported.
        let are_watched = |own: &Vec<DirectoryId>| directory_watch::are_watched(own);
        if !self.directories.as_ref().is_none_or(are_watched)
            || !self.watches.iter().all(FileWatch::holds)
        {
            return false;
        }
        (self.seen, self.since, self.checked_at) = (moment, since, Instant::now());
        true
    }
}

/// The decisions of one site in one front thread.
pub struct VerdictTable {
    slots: Cache<Vec<u8>, VerdictSlot, VerdictWeight>,
}

impl std::fmt::Debug for VerdictTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerdictTable").field("len", &self.slots.len()).finish()
    }
}

impl VerdictTable {
    /// A table with this much memory, in bytes.
    pub fn new(bytes: usize) -> VerdictTable {
        let slots = Cache::with_weighter(bytes / DECISION_BYTES, bytes as u64, VerdictWeight);
        VerdictTable { slots }
    }

    /// The decision for a request, if it is cached and still holds. Checks of one `moment` are not
    /// repeated; 0: every check is a moment of its own.
    pub fn fresh(&mut self, key: &[u8], head: &Head, moment: u64) -> Option<CachedVerdict> {
        let mut slot = self.slots.get_mut(key)?;
        if !slot.is_for(head) {
            return None;
        }
        if slot.holds(moment) {
            return Some(slot.verdict.clone());
        }
        drop(slot);
        if !name_lookups::is_pending() {
            self.slots.remove(key);
        }
        None
    }

    /// Caches a decision. `root`: the document root, without symbolic links.
    pub fn insert(&mut self, root: &[u8], key: Vec<u8>, cached: NewVerdict) {
        let NewVerdict { headers, paths, verdict } = cached;
        if key.len() > KEY_BYTES_MAX || verdict.has_large_conf() {
            return;
        }
        if let Some(watches) = paths.into_watches() {
            let directories = directories_of(root, &watches);
            let read = headers.iter().map(ReadHeader::bytes).sum::<usize>();
            let paths = watches.iter().map(|watch| watch.path.as_bytes().len()).sum::<usize>();
            let watched = watches.len() * size_of::<FileWatch>() + paths;
            let ids = directories.as_ref().map_or(0, Vec::len) * size_of::<DirectoryId>();
            let slot = VerdictSlot {
                bytes: size_of::<VerdictSlot>()
                    + key.len()
                    + read
                    + watched
                    + ids
                    + verdict.bytes(),
                headers,
                directories,
                watches,
                checked_at: Instant::now(),
                // The first check is one of each path.
                since: 0,
                seen: 0,
                verdict,
            };
            self.slots.insert(key, slot);
        }
    }

    /// Drops all decisions.
    pub fn clear(&mut self) {
        self.slots.clear();
    }
}

/// The directories of all watched paths; none if one of them cannot be watched.
fn directories_of(root: &[u8], watches: &[FileWatch]) -> Option<Vec<DirectoryId>> {
    let mut all = Vec::new();
    for watch in watches {
        for directory in directory_watch::watch(root, watch.path.as_bytes())? {
            if !all.contains(&directory) {
                all.push(directory);
            }
        }
    }
    Some(all)
}

/// A decision to be cached.
pub struct NewVerdict {
    /// The headers that its evaluation has read.
    pub headers: Vec<ReadHeader>,
    /// The paths that it has looked at.
    pub paths: WatchedPaths,
    /// The decision.
    pub verdict: CachedVerdict,
}

/// More than one header has the name.
pub struct Repeated;

/// The value of a header that a request has at most once.
///
/// # Errors
/// When it has more of them.
pub fn value_of<'h>(head: &'h Head, name: &[u8]) -> Result<Option<&'h [u8]>, Repeated> {
    let mut found = head.headers().filter(|(own, _)| own.eq_ignore_ascii_case(name));
    let first = found.next().map(|(_, value)| value);
    match found.next() {
        None => Ok(first),
        Some(_) => Err(Repeated),
    }
}

/// What a path has to be as long as a decision holds; none if a later change may not show.
pub fn expected(stat: Option<&Stat>) -> Option<Expect> {
    let Some(stat) = stat else { return Some(Expect::Absent) };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Some(Expect::Directory),
        FileType::RegularFile => {
            let identity = Identity::of(stat);
            identity.is_settled(SystemTime::now()).then_some(Expect::Unchanged(identity))
        }
        _ => None,
    }
}
