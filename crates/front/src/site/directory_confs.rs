//! The `.htaccess` files of a site, in one thread: read when they change, and merged by directory.
//!
//! A file is checked with one `stat` for each directory above a request's file, at most once in
//! an arrival of requests, so that a change applies to the next request.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use maitred_htaccess::conf::Conf;
use maitred_htaccess::conf::core::OptionsConf;
use maitred_htaccess::file::{self, Mistake, Reading};
use maitred_htaccess::overrides::Overrides;
use maitred_htaccess::request::{Kind, LocalTime, Stat, World};
use maitred_htaccess::weight::Shared;
use maitred_http1::Head;
use maitred_rules::Rules;
use maitred_rules::pattern_table::Table;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::runtime::file_identity::Identity;
use crate::site::conf_memory::ConfMemory;
use crate::site::directory_watch;
use crate::site::evaluation_time::EvaluationTime;
use crate::site::name_lookups;
use crate::site::openat::Seen;
use crate::site::resolver::Resolver;
use crate::site::resolver_table::{Expect, is_absence};
use crate::site::verdict_table::{CachedVerdict, NewVerdict, VerdictTable, WatchedPaths, expected};

/// Largest file in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Most directories whose configuration is cached.
const MAX_DIRECTORIES: usize = 4096;

/// The name of the files.
pub const NAME: &[u8] = b".htaccess";

/// The configurations of directories.
#[derive(Debug)]
pub struct DirectoryConfs {
    reading: Reading,
    /// The configuration of the server, above all directories.
    base: Arc<Conf>,
    /// The same with `Options +Indexes`.
    listing_base: Arc<Conf>,
    /// The site's `autoindex`: directories below `listing_base`.
    autoindex: Table,
    known: HashMap<Vec<u8>, KnownDirectory>,
    /// The memory of what is known.
    memory: ConfMemory,
    moment: u64,
    /// The decisions on requests.
    verdicts: VerdictTable,
    /// How often the document root of all this was opened again.
    root_reopened: u64,
}

#[derive(Debug)]
struct KnownDirectory {
    /// The file's identity; none: there is no file.
    identity: Option<Identity>,
    own: Option<Result<MergedConf, Mistake>>,
    /// The moment of the last check.
    seen: u64,
}

/// The configuration of a file, merged with those above it.
#[derive(Debug)]
struct MergedConf {
    own: Arc<Conf>,
    above: Arc<Conf>,
    merged: Arc<Conf>,
}

impl KnownDirectory {
    /// Its memory in bytes, roughly, without that of the directories above.
    fn bytes(&self, directory: &[u8]) -> usize {
        let conf = match &self.own {
            None => 0,
            Some(Err(mistake)) => mistake.file.len() + mistake.why.len(),
            Some(Ok(conf)) => conf.own.bytes(Shared::Counts) + conf.merged.bytes(Shared::DoesNot),
        };
        size_of::<KnownDirectory>() + directory.len() + conf
    }
}

/// What is known of a directory before its file is read.
enum Knowledge {
    /// All: this is its configuration.
    Whole(Result<Arc<Conf>, Mistake>),
    /// Its file, which has to be merged with other ones above.
    Own(ReadFile),
    /// Nothing that still holds.
    Nothing,
}

impl DirectoryConfs {
    /// No directories; `index` are the site's index files, `decision_bytes` is the memory for
    /// decisions.
    pub fn new(
        rules: &Rules,
        index: &[String],
        memory: ConfMemory,
        decision_bytes: usize,
    ) -> DirectoryConfs {
        let mut base = Conf::default();
        base.authz.grant_all();
        base.dir.index = Some(index.iter().map(|name| name.as_bytes().to_vec()).collect());
        let mut listing_base = base.clone();
        listing_base.core.options = OptionsConf::indexes();
        DirectoryConfs {
            reading: reading(rules),
            base: Arc::new(base),
            listing_base: Arc::new(listing_base),
            // The site is not served if its patterns are too large.
            autoindex: Table::new(&rules.autoindex).unwrap_or_default(),
            known: HashMap::new(),
            memory,
            moment: 0,
            verdicts: VerdictTable::new(decision_bytes),
            root_reopened: 0,
        }
    }

    /// Begins an evaluation in this moment, in which files are checked once. Nothing of a former
    /// document root is used.
    pub fn begin(&mut self, resolver: &Resolver, moment: u64) {
        self.moment = name_lookups::at(moment);
        if self.root_reopened != resolver.reopened() {
            self.root_reopened = resolver.reopened();
            self.forget();
            directory_watch::forget_below(resolver.real_root());
        }
        if self.known.len() > MAX_DIRECTORIES {
            self.forget_absent();
            if self.known.len() > MAX_DIRECTORIES / 2 {
                self.forget();
            }
        }
    }

    /// Forgets directories without a file: clients can name any number of them.
    fn forget_absent(&mut self) {
        let DirectoryConfs { known, memory, .. } = self;
        known.retain(|name, directory| {
            let has_file = directory.own.is_some();
            if !has_file {
                memory.give_back(directory.bytes(name));
            }
            has_file
        });
    }

    /// Forgets all configurations, and the decisions by them, which hold them.
    fn forget(&mut self) {
        self.known.clear();
        self.memory.clear();
        self.verdicts.clear();
    }

    /// What the file of a directory has to be as long as a decision holds.
    fn expected(&self, directory: &[u8]) -> Option<Expect> {
        let known = self.known.get(directory)?;
        Some(known.identity.map_or(Expect::Absent, Expect::Unchanged))
    }

    /// Whether a directory has a file.
    fn has_file(&mut self, resolver: &Resolver, directory: &[u8], time: &EvaluationTime) -> bool {
        let moment = self.moment;
        if let Some(known) = self.known.get_mut(directory) {
            let is_fresh = moment != 0 && known.seen == moment;
            if is_fresh || identity_of(directory) == Some(known.identity) {
                known.seen = moment;
                return known.own.is_some();
            }
        }
        let base = Arc::clone(self.base_of(resolver, directory));
        let _ = self.merge(resolver, directory, base, time);
        self.known.get(directory).is_none_or(|known| known.own.is_some())
    }

    /// The configuration above all directories, for this one: a file can turn listings off that the
    /// site's `autoindex` turns on.
    fn base_of(&self, resolver: &Resolver, directory: &[u8]) -> &Arc<Conf> {
        let path = directory.get(resolver.real_root().len()..).unwrap_or_default();
        match self.autoindex.first(path) {
            Some(_) => &self.listing_base,
            None => &self.base,
        }
    }

    fn conf(
        &mut self,
        resolver: &Resolver,
        directory: &[u8],
        time: &EvaluationTime,
    ) -> Result<Arc<Conf>, Mistake> {
        let root = resolver.real_root().len();
        let mut merged = Arc::clone(self.base_of(resolver, directory));
        for end in memchr::memchr_iter(b'/', directory).filter(|end| *end >= root) {
            merged = self.merge(resolver, &directory[..=end], merged, time)?;
        }
        Ok(merged)
    }

    /// The configuration of a directory below that of the one above.
    fn merge(
        &mut self,
        resolver: &Resolver,
        directory: &[u8],
        above: Arc<Conf>,
        time: &EvaluationTime,
    ) -> Result<Arc<Conf>, Mistake> {
        let file = match self.knowledge(directory, &above) {
            Knowledge::Whole(result) => return result,
            // There can be as many files as a path has segments.
            _ if time.is_over() => {
                let file = [directory, NAME].concat();
                let why = "the files down to this one take too long to read".to_owned();
                return Err(Mistake { file, line: 0, why });
            }
            Knowledge::Own(file) => file,
            Knowledge::Nothing => self.read(resolver, directory),
        };
        let ReadFile { identity, own, is_settled } = file;
        let own = own.map(|own| own.and_then(|own| merged_conf(own, &above, directory)));
        let result = match &own {
            None => Ok(above),
            Some(Ok(conf)) => Ok(Arc::clone(&conf.merged)),
            Some(Err(mistake)) => Err(mistake.clone()),
        };
        match own {
            // Those below would hold one version each while the file changes.
            Some(Ok(_)) if !is_settled => self.forget(),
            _ if !is_settled => self.remove(directory),
            own => self.remember(directory, KnownDirectory { identity, own, seen: self.moment }),
        }
        result
    }

    /// What is known of a directory below a configuration.
    fn knowledge(&mut self, directory: &[u8], above: &Arc<Conf>) -> Knowledge {
        let moment = self.moment;
        let Some(known) = self.known.get_mut(directory) else { return Knowledge::Nothing };
        let is_fresh = moment != 0 && known.seen == moment;
        if !is_fresh && identity_of(directory) != Some(known.identity) {
            if name_lookups::is_pending() {
                return Knowledge::Whole(Err(pending(directory)));
            }
            // Those below hold what the file has said.
            if known.own.is_some() {
                self.forget();
            }
            return Knowledge::Nothing;
        }
        known.seen = moment;
        match &known.own {
            None => Knowledge::Whole(Ok(Arc::clone(above))),
            Some(Err(mistake)) => Knowledge::Whole(Err(mistake.clone())),
            Some(Ok(conf)) if Arc::ptr_eq(&conf.above, above) => {
                Knowledge::Whole(Ok(Arc::clone(&conf.merged)))
            }
            Some(Ok(conf)) => {
                let own = Some(Ok(Arc::clone(&conf.own)));
                Knowledge::Own(ReadFile { identity: known.identity, own, is_settled: true })
            }
        }
    }

    fn remove(&mut self, directory: &[u8]) {
        if let Some(before) = self.known.remove(directory) {
            self.memory.give_back(before.bytes(directory));
        }
    }

    /// Remembers a directory. Without room, one with a file takes the place of all others.
    fn remember(&mut self, directory: &[u8], known: KnownDirectory) {
        self.remove(directory);
        let bytes = known.bytes(directory);
        let mut has_room = self.memory.take(bytes);
        if !has_room {
            self.forget_absent();
            has_room = self.memory.take(bytes);
        }
        if !has_room && known.own.is_some() {
            self.forget();
            has_room = self.memory.take(bytes);
        }
        if has_room {
            self.known.insert(directory.to_vec(), known);
        }
    }

    fn read(&self, resolver: &Resolver, directory: &[u8]) -> ReadFile {
        let name = [&directory[resolver.real_root().len()..], NAME].concat();
        let failed = |why: String| {
            let file = [directory, NAME].concat();
            let own = Some(Err(Mistake { file, line: 0, why }));
            ReadFile { identity: None, own, is_settled: false }
        };
        let opened = match resolver.open(&name) {
            Ok(opened) => opened,
            Err(error) if is_absence(error) => {
                return ReadFile { identity: None, own: None, is_settled: true };
            }
            // Apache denies what is below a file that it cannot read.
            Err(error) => return failed(format!("the file cannot be read: {error}")),
        };
        if opened.kind() != FileType::RegularFile {
            return failed("it is no regular file".to_owned());
        }
        let identity = Identity::of(&opened.stat);
        if identity.size > MAX_FILE_BYTES {
            return failed(format!("the file is larger than {MAX_FILE_BYTES} bytes"));
        }
        let content = match resolver.content(&name, &opened, identity.size) {
            Ok(content) => content,
            Err(error) => return failed(format!("the file cannot be read: {error}")),
        };
        // What was there before may have been longer.
        if rustix::fs::fstat(&opened.fd).map(|stat| Identity::of(&stat)) != Ok(identity) {
            return failed("it is being changed".to_owned());
        }
        let parsed = file::parse(&content.bytes, directory, &self.reading);
        let is_settled = identity.is_settled(content.at);
        ReadFile { identity: Some(identity), own: Some(parsed.conf), is_settled }
    }
}

/// The result of an evaluation that begins again after a lookup.
fn pending(directory: &[u8]) -> Mistake {
    let file = [directory, NAME].concat();
    Mistake { file, line: 0, why: "the file is still to be looked up".to_owned() }
}

fn merged_conf(own: Arc<Conf>, above: &Arc<Conf>, directory: &[u8]) -> Result<MergedConf, Mistake> {
    match own.below(above) {
        Ok(merged) => Ok(MergedConf { own, above: Arc::clone(above), merged: Arc::new(merged) }),
        Err(why) => {
            let why = format!("with the files above it, there are {why}");
            Err(Mistake { file: [directory, NAME].concat(), line: 0, why })
        }
    }
}

/// How the files of a site are read.
pub fn reading(rules: &Rules) -> Reading {
    let ignores_unknown = rules.htaccess_ignores_unknown;
    let overrides = Overrides::of(&rules.htaccess_override);
    Reading { ignores_unknown, overrides }
}

struct ReadFile {
    identity: Option<Identity>,
    own: Option<Result<Arc<Conf>, Mistake>>,
    /// A later change would show.
    is_settled: bool,
}

/// The identity of a directory's file: none inside if there is no file, none outside if that is not
/// certain.
fn identity_of(directory: &[u8]) -> Option<Option<Identity>> {
    let path = CString::new([directory, NAME].concat()).ok()?;
    match name_lookups::stat(&path) {
        Ok(stat) => Some(Some(Identity::of(&stat))),
        Err(error) if is_absence(error) => Some(None),
        Err(_) => None,
    }
}

/// Whether an error hides a path: what may not be read, or leads out of the root, is not there.
fn is_closed(error: Errno) -> bool {
    matches!(error, Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP | Errno::INVAL)
}

/// The document root of a site, as the directives see it.
pub struct SiteWorld<'w> {
    /// Its files.
    pub resolver: &'w Resolver,
    /// Its configurations.
    pub confs: RefCell<&'w mut DirectoryConfs>,
    /// The paths that an evaluation has looked at.
    pub paths: RefCell<WatchedPaths>,
    /// The first error for which it is not known whether a path exists.
    pub failure: Cell<Option<Errno>>,
    /// How long it takes.
    pub time: EvaluationTime,
}

impl SiteWorld<'_> {
    /// Whether a directory of a path below the root has a file.
    pub fn has_files(&self, path: &[u8]) -> bool {
        let mut confs = self.confs.borrow_mut();
        let mut directory = self.resolver.real_root().to_vec();
        let mut start = 0;
        memchr::memchr_iter(b'/', path).any(|end| {
            directory.extend_from_slice(&path[start..=end]);
            start = end + 1;
            confs.has_file(self.resolver, &directory, &self.time)
        })
    }

    /// The decision for a request, if it is cached and still holds.
    pub fn cached_verdict(&self, key: &[u8], head: &Head) -> Option<CachedVerdict> {
        let mut confs = self.confs.borrow_mut();
        let moment = confs.moment;
        confs.verdicts.fresh(key, head, moment)
    }

    /// What it depends on that no directive applies to a path.
    pub fn watched(&self, path: &[u8]) -> WatchedPaths {
        let whole = [self.resolver.real_root(), path].concat();
        let slash = memchr::memrchr(b'/', &whole).unwrap_or(0);
        self.watch_confs(&whole[..=slash]);
        let _ = self.stat(&whole);
        if whole.ends_with(b"/") {
            // The first index file that exists is the one of the directory.
            let base = Arc::clone(&self.confs.borrow().base);
            let mut names = base.dir.index.iter().flatten();
            let is_file = |name: &Vec<u8>| {
                let found = self.stat(&[&whole[..], name].concat());
                found.is_some_and(|stat| stat.kind == Kind::File)
            };
            let _ = names.any(is_file);
        }
        self.paths.take()
    }

    /// Caches a decision.
    pub fn cache_verdict(&self, key: Vec<u8>, new: NewVerdict) {
        let mut confs = self.confs.borrow_mut();
        confs.verdicts.insert(self.resolver.real_root(), key, new);
    }

    /// Watches the files of a directory and of those above it.
    fn watch_confs(&self, directory: &[u8]) {
        let (confs, mut paths) = (self.confs.borrow(), self.paths.borrow_mut());
        let root = self.resolver.real_root().len();
        for end in memchr::memchr_iter(b'/', directory).filter(|end| *end >= root) {
            let directory = &directory[..=end];
            paths.add(&[directory, NAME].concat(), confs.expected(directory));
        }
    }

    /// Opens a path below the root for its status. Nothing outside of the root is seen.
    fn look(&self, path: &[u8]) -> Option<Seen> {
        let name = path.strip_prefix(self.resolver.real_root())?;
        if !name.is_empty() && !name.starts_with(b"/") {
            return None;
        }
        let name = if name.is_empty() { b"/" } else { name };
        let opened = match self.resolver.look(name) {
            Ok(opened) => opened,
            Err(error) => {
                if !is_absence(error) && !is_closed(error) && self.failure.get().is_none() {
                    self.failure.set(Some(error));
                }
                return None;
            }
        };
        // Only a directory has a slash at its end.
        let is_whole = !name.ends_with(b"/") || opened.kind() == FileType::Directory;
        is_whole.then_some(opened)
    }
}

impl World for SiteWorld<'_> {
    fn stat(&self, path: &[u8]) -> Option<Stat> {
        let opened = self.look(path);
        let found = opened.as_ref().map(|opened| &opened.stat);
        self.paths.borrow_mut().add(path, expected(found));
        let opened = opened?;
        let kind = match opened.kind() {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            _ => Kind::Other,
        };
        let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
        let is_executable = opened.stat.st_mode & 0o111 != 0;
        Some(Stat { kind, size, is_executable, modified: opened.stat.st_mtime })
    }

    fn is_link(&self, path: &[u8]) -> bool {
        self.paths.borrow_mut().add(path, None);
        // The last segment itself: what is before it has to be below the root.
        let slash = memchr::memrchr(b'/', path).unwrap_or(0);
        if self.look(&path[..slash]).is_none() {
            return false;
        }
        let Ok(path) = CString::new(path) else { return false };
        name_lookups::link_stat(&path)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }

    fn conf(&self, directory: &[u8]) -> Result<Arc<Conf>, Mistake> {
        let conf = self.confs.borrow_mut().conf(self.resolver, directory, &self.time);
        self.watch_confs(directory);
        conf
    }

    fn time(&self) -> LocalTime {
        // Another request comes at another time.
        self.paths.borrow_mut().add(b"", None);
        crate::runtime::clock::local_time()
    }

    fn http_date(&self, seconds: i64) -> Vec<u8> {
        self.paths.borrow_mut().add(b"", None);
        crate::runtime::clock::http_date_in(seconds).into_bytes()
    }

    fn is_late(&self) -> bool {
        // What is evaluated before a lookup that is still to be done is evaluated again.
        self.time.is_over() || name_lookups::is_pending()
    }

    fn variable(&self, _name: &[u8]) -> Option<Vec<u8>> {
        // Nothing of the server's own environment is for a site.
        None
    }
}
