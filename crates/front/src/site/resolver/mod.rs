//! Maps a path to a file or a script.
//!
//! The rules are those of nginx's `try_files $uri $uri/ /index.php?$args` with `index` and a
//! PATH_INFO that is found in the file system and never guessed. Results are cached, and checked
//! with one `stat` per request.

mod by_name;
mod site_files;
#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use maitred_os::walk::Stopped;
use maitred_rules::content_encoding::ContentEncoding;
use maitred_rules::{path, php_source};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::http::large_file::FolderOwner;
use crate::runtime::lookup_turns::Tenant;
use crate::site::compress::{Compression, Siblings};
use crate::site::document_root::{self, Root, beneath_chroot};
use crate::site::files::{self, FileBody, FilePlace, StaticFile};
use crate::site::name_lookups::{self, RootPlace};
use crate::site::openat::{Opened, Seen};
use crate::site::resolver_table::{self, Expect, FileWatch, PathTable};

pub use crate::site::listing::Folder;
pub use crate::site::resolver_table::TableLimits;
pub use by_name::RootVersion;
pub use maitred_rules::path::{CleanPath, Refused, clean_path};
pub use site_files::SiteFiles;

/// Files with this ending are run, and never sent.
const SCRIPT_EXTENSION: &[u8] = b".php";

/// The reason why a root is refused that no script of its pool can see.
const OUTSIDE: &str = "the document root is outside of its pool's chroot";

/// The reason why a root is refused. The log has the link and its owners.
pub const FOREIGN_LINK: &str =
    "a symbolic link leads to the document root that may not be followed";

/// Why a file behind another user's link gets a 404; the link is logged when it is refused.
pub const FOREIGN_FILE: &str = "a symbolic link leads out of the root to another owner's file";

/// The route of a request path.
#[derive(Clone, Debug)]
pub enum Route {
    /// A file to send.
    File(Arc<StaticFile>),
    /// A script to run.
    Script(Arc<Script>),
    /// A directory without its trailing slash: 301 to this path (and query).
    RedirectSlash(String),
    /// The path is refused.
    Refused(Refused),
}

/// A script, with the names of CGI (RFC 3875 §4.1). Paths are bytes: file names need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// `SCRIPT_FILENAME`: the document root and the script's name.
    pub script_filename: Vec<u8>,
    /// `DOCUMENT_ROOT`, without symbolic links: after a deployment that changes the link, OPcache
    /// must not run the code cached under the link's name.
    pub document_root: Arc<[u8]>,
    /// `SCRIPT_NAME`: decoded, starts with a slash.
    pub script_name: Vec<u8>,
    /// `PATH_INFO`: decoded, empty or starts with a slash.
    pub path_info: Vec<u8>,
}

/// A cached route.
#[derive(Clone)]
pub(crate) enum Target {
    File(Arc<StaticFile>),
    Script(Arc<Script>),
    Redirect(Arc<str>),
    Nothing,
}

impl Target {
    /// Bytes of file contents, and descriptors, that the cache entry holds.
    pub(crate) fn holds(&self) -> (usize, usize) {
        match self {
            Target::File(entry) => match entry.body() {
                FileBody::Memory(bytes) => (bytes.len(), 0),
                FileBody::File(_) => (0, 1),
            },
            _ => (0, 0),
        }
    }
}

/// A target and the watches by which it may be cached; none if it must not be.
struct Found {
    target: Target,
    watches: Option<Vec<FileWatch>>,
}

/// Resolves the paths of one site in one front thread.
pub struct Resolver {
    pub(crate) site: SiteFiles,
    /// The owner of its open files.
    owner: FolderOwner,
    /// The root's name without symbolic links.
    real_root: Arc<[u8]>,
    /// The same as seen by scripts, also without a trailing slash; none: it is invisible to them.
    script_root: Option<Arc<[u8]>>,
    place: RootPlace,
    /// The root; or why it is not open.
    root: Result<Arc<Root>, Arc<Stopped>>,
    /// How often it was opened again.
    reopened: u64,
    /// The arrival of the last check by [`Resolver::refresh`].
    refreshed: u64,
    table: PathTable,
    /// The encodings of files, if some are compressed.
    compression: Option<Arc<Compression>>,
    siblings: Siblings,
    /// Files with PHP source are refused.
    looks_inside: bool,
}

impl Resolver {
    /// The document root is opened by the first request, and one that cannot be opened, or is
    /// behind a refused link, is tried again with each request.
    pub fn new(site: SiteFiles, tenant: &Arc<Tenant>, limits: TableLimits) -> Resolver {
        let mut name = site.root.clone().into_os_string().into_vec();
        while name.last() == Some(&b'/') {
            name.pop();
        }
        let real_root: Arc<[u8]> = name.as_slice().into();
        let place = RootPlace { path: site.root.clone(), name, front: site.front };
        let folder = site.root.to_string_lossy().into();
        let owner = FolderOwner { folder, tenant: Arc::clone(tenant) };
        let unopened = Stopped::System(site.root.clone(), Errno::NOENT.into());
        Resolver {
            script_root: beneath_chroot(&real_root, site.chroot.as_deref()),
            real_root,
            site,
            place,
            root: Err(Arc::new(unopened)),
            reopened: 0,
            refreshed: 0,
            table: PathTable::new(limits),
            compression: None,
            siblings: Siblings::new(limits, owner.clone()),
            owner,
            looks_inside: true,
        }
    }

    /// Serves files with any content, including PHP source, since a script chooses them.
    pub fn send_any_content(&mut self) {
        self.looks_inside = false;
    }

    /// The reason why the root is not open: there is no such folder, the front must not enter it,
    /// or it is behind a symbolic link that must not be followed.
    pub fn refusal(&self) -> Option<&Stopped> {
        self.root.as_ref().err().map(|why| &**why)
    }

    /// Enables compression of files.
    pub fn compress(&mut self, compression: Option<Arc<Compression>>) {
        self.compression = compression;
    }

    /// The precompressed variant of a file, if there is one.
    pub fn sibling(
        &mut self,
        entry: &StaticFile,
        coding: ContentEncoding,
    ) -> Option<Arc<StaticFile>> {
        let root = self.root.as_ref().ok()?;
        self.siblings.find(root, entry, coding)
    }

    /// Closes the files that are held open and were not requested since the previous call.
    pub fn close_idle(&mut self) {
        self.table.close_idle();
        self.siblings.close_idle();
    }

    /// Sets the moment, a number that is never 0 and changes at least whenever the thread has
    /// waited for events. Entries that were checked in the same moment are not checked again.
    pub fn set_moment(&mut self, moment: u64) {
        self.table.set_moment(moment);
    }

    /// The route of `raw_path` (the path of the request target, as received). `query` only becomes
    /// part of a redirect.
    pub fn resolve(&mut self, raw_path: &str, query: Option<&str>) -> Route {
        let path = match clean_path(raw_path) {
            Ok(path) => path,
            Err(refused) => return Route::Refused(refused),
        };
        if let Err(refused) = self.follow_link() {
            return Route::Refused(refused);
        }
        let whole = path.names_end() == path.as_bytes().len();
        if whole && let Some(target) = self.table.fresh(path.as_bytes()) {
            return route(target, query);
        }
        match self.look_up(&path) {
            Ok(found) => {
                if whole && let Some(watches) = found.watches {
                    self.table.insert(path.as_bytes(), &found.target, watches);
                }
                route(found.target, query)
            }
            Err(refused) => Route::Refused(refused),
        }
    }

    /// The route for a path with an existing but refused file: that of a missing file, so that a
    /// client sees no difference. None if that is the refusal.
    pub fn in_place_of(&self, refused: &Refused) -> Option<Route> {
        let found = match refused.is_notable && refused.status < 500 {
            true => self.fall_back(Vec::new()).ok()?,
            false => return None,
        };
        match route(found.target, None) {
            Route::Refused(_) => None,
            route => Some(route),
        }
    }

    /// The folder, by its configured name.
    pub fn folder(&self) -> &Path {
        &self.site.root
    }

    /// The real paths of the directory for scripts, without a trailing slash.
    pub fn names(&self) -> [Option<&[u8]>; 2] {
        match &self.site.chroot {
            Some(_) => [self.script_root.as_deref(), None],
            None => [Some(&self.real_root), Some(&self.place.name)],
        }
    }

    #[cfg(test)]
    /// Numbers of cached paths, bytes of file contents in memory, and open files.
    pub fn kept(&self) -> (usize, usize, usize) {
        let (memory, open_files) = self.table.held();
        (self.table.len(), memory, open_files)
    }

    fn look_up(&mut self, path: &CleanPath<'_>) -> Result<Found, Refused> {
        self.follow_root()?;
        let name = path.as_bytes();
        if path.names_end() < name.len() {
            return match self.script_before(name, path.names_end())? {
                Some(found) => Ok(found),
                None if path.is_hidden() => {
                    Err(not_found("names that begin with a dot are hidden"))
                }
                None => self.fall_back(Vec::new()),
            };
        }
        match self.look(name) {
            Ok(opened) => match opened.kind() {
                FileType::RegularFile if !path.ends_with_slash() => {
                    self.regular(name, &opened, Vec::new())
                }
                FileType::RegularFile => self.script_or_fall_back(name),
                FileType::Directory => self.directory(path),
                _ => Err(not_found("the path names neither a regular file nor a directory")),
            },
            Err(Errno::NOTDIR) => self.script_or_fall_back(name),
            Err(error) if resolver_table::is_absence(error) => self.missing(name),
            Err(error) => Err(refusal(error)),
        }
    }

    fn script_or_fall_back(&self, name: &[u8]) -> Result<Found, Refused> {
        match self.script_before(name, name.len())? {
            Some(found) => Ok(found),
            None => self.missing(name),
        }
    }

    fn missing(&self, name: &[u8]) -> Result<Found, Refused> {
        let mut found = self.fall_back(vec![self.absent(name)?])?;
        // A script appears inside the path only because the whole is no file: no watch could
        // notice.
        if script_ends(name, name.len()).next().is_some() {
            found.watches = None;
        }
        Ok(found)
    }

    /// The script that ends at a slash at or before `names_end`, with the rest as its PATH_INFO.
    /// From the left, so that a path has as many checks as existing directories that end in `.php`,
    /// and one more.
    fn script_before(&self, name: &[u8], names_end: usize) -> Result<Option<Found>, Refused> {
        for end in script_ends(name, names_end) {
            match self.look(&name[..end]) {
                Ok(opened) if opened.kind() == FileType::RegularFile => {
                    return Ok(Some(self.script(
                        &name[..end],
                        &name[end..],
                        &opened,
                        Vec::new(),
                    )?));
                }
                Ok(opened) if opened.kind() == FileType::Directory => {}
                Ok(_) => return Ok(None),
                Err(error) if resolver_table::is_absence(error) => return Ok(None),
                Err(error) => return Err(refusal(error)),
            }
        }
        Ok(None)
    }

    fn directory(&self, path: &CleanPath<'_>) -> Result<Found, Refused> {
        let name = path.as_bytes();
        let mut watches = Vec::new();
        for index in &self.site.index {
            let slash: &[u8] = if path.ends_with_slash() { b"" } else { b"/" };
            let candidate = [name, slash, index.as_bytes()].concat();
            match self.look(&candidate) {
                Ok(opened) if opened.kind() != FileType::RegularFile => {
                    watches.push(self.watch(&candidate, Expect::Directory)?);
                }
                Ok(opened) if path.ends_with_slash() => {
                    return self.regular(&candidate, &opened, watches);
                }
                Ok(opened) => {
                    let prefix = path::encode_path(self.site.prefix.as_bytes());
                    let location = prefix + &path::encode_path(name) + "/";
                    let watches = vec![self.watch(&candidate, still_there(&opened))?];
                    return Ok(keep(Target::Redirect(location.into()), watches));
                }
                Err(error) if resolver_table::is_absence(error) => {
                    watches.push(self.absent(&candidate)?)
                }
                Err(error) => return Err(refusal(error)),
            }
        }
        // An application whose own page this is would respond to a redirect to the slash with one
        // back.
        watches.push(self.watch(name, Expect::Directory)?);
        self.fall_back(watches)
    }

    /// A regular file: a script, a file to send, or source that must not be sent.
    fn regular(
        &self,
        name: &[u8],
        seen: &Seen,
        mut watches: Vec<FileWatch>,
    ) -> Result<Found, Refused> {
        if is_script(name) {
            return self.script(name, b"", seen, watches);
        }
        if path::is_php_source(name) {
            return Err(Refused::notable(
                404,
                "the file holds PHP source by its name, and is not a .php script",
            ));
        }
        let opened = self.open(name).map_err(refusal)?;
        if opened.kind() != FileType::RegularFile {
            return Err(not_found("the path names neither a regular file nor a directory"));
        }
        if opened.through_link {
            let own = opened.real_name().map_err(refusal)?;
            if path::is_dot_name(&own) || path::is_php_source(&own) {
                return Err(Refused::notable(
                    404,
                    "a symbolic link gives PHP source or a hidden file another name",
                ));
            }
        }
        let failed = |error| refusal(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let root = self.root.as_ref().map_err(|_| refusal(Errno::NOENT))?;
        let place = FilePlace { root, path: name, owner: &self.owner };
        let loaded = files::load(opened.fd, place).map_err(failed)?;
        let entry = loaded.entry;
        if self.looks_inside && is_source(place, &entry).map_err(failed)? {
            return Err(Refused::notable(
                404,
                "the file begins as PHP source, and is not a .php script",
            ));
        }
        let length = Some(entry.len());
        let suits = |compression: &Arc<Compression>| {
            compression.suits(entry.content_type().as_bytes(), length)
        };
        let varies = self.compression.as_ref().is_some_and(suits);
        let entry = if varies { entry.varying() } else { entry };
        let target = Target::File(Arc::new(entry));
        let Some(identity) = loaded.settled else {
            return Ok(Found { target, watches: None });
        };
        watches.push(self.watch(name, Expect::Unchanged(identity))?);
        Ok(keep(target, watches))
    }

    fn script(
        &self,
        name: &[u8],
        path_info: &[u8],
        seen: &Seen,
        mut watches: Vec<FileWatch>,
    ) -> Result<Found, Refused> {
        watches.push(self.watch(name, still_there(seen))?);
        let Some(root) = &self.script_root else {
            return Err(Refused::notable(503, OUTSIDE));
        };
        let script = Script {
            script_filename: [&root[..], name].concat(),
            document_root: match root.is_empty() {
                true => b"/"[..].into(),
                false => Arc::clone(root),
            },
            script_name: [self.site.prefix.as_bytes(), name].concat(),
            path_info: path_info.to_vec(),
        };
        Ok(keep(Target::Script(Arc::new(script)), watches))
    }

    /// The front controller, as long as `watches` (the reason why the path is no file) hold.
    fn fall_back(&self, mut watches: Vec<FileWatch>) -> Result<Found, Refused> {
        let Some(controller) = self.site.front_controller.as_deref().map(str::as_bytes) else {
            return Ok(keep(Target::Nothing, watches));
        };
        match self.look(controller) {
            Ok(opened) if opened.kind() == FileType::RegularFile => {
                let mut found = self.regular(controller, &opened, Vec::new())?;
                if matches!(found.target, Target::Script(_)) {
                    // The worker reports a missing script: that saves a check per request.
                    found.watches = Some(watches);
                } else if let Some(own) = &mut found.watches {
                    own.append(&mut watches);
                }
                Ok(found)
            }
            Ok(_) => Err(not_found("the front controller is not a regular file")),
            Err(error) if resolver_table::is_absence(error) => {
                watches.push(self.absent(controller)?);
                Ok(keep(Target::Nothing, watches))
            }
            Err(error) => Err(refusal(error)),
        }
    }

    /// A deployment may have changed a link in the root's name.
    ///
    /// Where no link leads to the root, its files keep their names whatever happens to it, and it
    /// is enough to check when one of them has changed.
    pub(crate) fn follow_link(&mut self) -> Result<(), Refused> {
        match self.root.is_ok() && *self.real_root == *self.place.name {
            true => Ok(()),
            false => self.follow_root(),
        }
    }

    pub(crate) fn follow_root(&mut self) -> Result<(), Refused> {
        let gone = || Refused::notable(503, "the document root cannot be opened at the moment");
        let path = CString::new(self.place.path.as_os_str().as_bytes()).map_err(|_| gone())?;
        let now = name_lookups::stat(&path).map_err(|_| gone())?;
        if self.root.as_ref().is_ok_and(|root| root.id == (now.st_dev, now.st_ino)) {
            return Ok(());
        }
        let opened = name_lookups::open_root(&self.place, &now);
        if name_lookups::is_pending() {
            return Err(gone());
        }
        self.table.clear();
        self.reopened += 1;
        if opened.as_ref().is_ok_and(|root| !self.site.scripts_see(&root.real)) {
            let why = Stopped::System(self.site.root.clone(), io::Error::other(OUTSIDE));
            self.root = Err(Arc::new(why));
            return Err(Refused::notable(503, OUTSIDE));
        }
        self.root = opened;
        match &self.root {
            Ok(root) => {
                self.real_root = Arc::clone(&root.real);
                self.script_root = beneath_chroot(&self.real_root, self.site.chroot.as_deref());
                Ok(())
            }
            Err(why) if matches!(**why, Stopped::Foreign(_)) => {
                document_root::log_refused(&self.site.root, why);
                Err(Refused::notable(503, FOREIGN_LINK))
            }
            Err(_) => Err(gone()),
        }
    }

    /// The document root, if it is open.
    pub(crate) fn open_root(&self) -> Option<Arc<Root>> {
        self.root.as_ref().ok().map(Arc::clone)
    }

    pub(crate) fn look(&self, name: &[u8]) -> rustix::io::Result<Seen> {
        name_lookups::look(self.root.as_ref().map_err(|_| Errno::NOENT)?, name)
    }

    pub(crate) fn open(&self, name: &[u8]) -> rustix::io::Result<Opened> {
        name_lookups::open(self.root.as_ref().map_err(|_| Errno::NOENT)?, name)
    }

    fn absent(&self, name: &[u8]) -> Result<FileWatch, Refused> {
        self.watch(name, Expect::Absent)
    }

    /// Watches use names, not the root's descriptor, so that they notice a changed root.
    fn watch(&self, name: &[u8], expect: Expect) -> Result<FileWatch, Refused> {
        let wrong = |_| Refused::plain(400, "the path holds a control byte");
        let path = CString::new(self.file_name(name)).map_err(wrong)?;
        Ok(FileWatch { path, expect })
    }

    fn file_name(&self, name: &[u8]) -> Vec<u8> {
        [&self.place.name, name].concat()
    }
}

/// The positions, up to `names_end`, at which a script's name could end and its PATH_INFO start.
fn script_ends(name: &[u8], names_end: usize) -> impl Iterator<Item = usize> {
    let slashes = memchr::memchr_iter(b'/', name).take_while(move |end| *end <= names_end);
    slashes.filter(|end| is_script(&name[..*end]))
}

pub(crate) fn is_script(name: &[u8]) -> bool {
    let stem = name.strip_suffix(SCRIPT_EXTENSION);
    stem.is_some_and(|stem| !stem.is_empty() && !stem.ends_with(b"/"))
}

fn still_there(opened: &Seen) -> Expect {
    Expect::SameFile { dev: opened.stat.st_dev, ino: opened.stat.st_ino }
}

fn keep(target: Target, watches: Vec<FileWatch>) -> Found {
    Found { target, watches: Some(watches) }
}

fn route(target: Target, query: Option<&str>) -> Route {
    match target {
        Target::File(entry) => Route::File(entry),
        Target::Script(script) => Route::Script(script),
        Target::Redirect(path) => Route::RedirectSlash(match query {
            Some(query) => format!("{path}?{}", utf8_percent_encode(query, CONTROLS)),
            None => path.to_string(),
        }),
        Target::Nothing => Route::Refused(not_found("there is no such file")),
    }
}

/// Whether a file's first bytes are PHP source. Checked once, when it is loaded.
fn is_source(place: FilePlace<'_>, entry: &StaticFile) -> io::Result<bool> {
    if !php_source::may_be_source(place.path, entry.content_type()) {
        return Ok(false);
    }
    let beginning = entry.beginning(place, php_source::CHECKED_BYTES)?;
    Ok(php_source::is_source(place.path, &beginning))
}

fn not_found(why: &'static str) -> Refused {
    Refused::plain(404, why)
}

/// The refusal of a path that could not be opened.
pub fn refusal(error: Errno) -> Refused {
    match error {
        Errno::ACCESS => {
            Refused::notable(403, "the front may not read the file or search its directory")
        }
        Errno::XDEV => Refused::notable(404, FOREIGN_FILE),
        Errno::LOOP => Refused::notable(404, "too many symbolic links"),
        Errno::NOENT | Errno::NOTDIR => not_found("the file was just removed"),
        Errno::MFILE | Errno::NFILE => {
            Refused::notable(503, "no file descriptor is free: raise the limit on open files")
        }
        _ => Refused::notable(503, "the file system failed to open the file"),
    }
}
