//! Resolves a path by descriptors, from `/` and name by name, so that the checked file is the
//! opened one, whatever is renamed meanwhile. Symbolic links are followed by a [`Rule`]: one that a
//! tenant may have created leads only to the tenant's own files.
//!
//! The rule is that of Apache's `SymLinksIfOwnerMatch` and nginx's `disable_symlinks if_not_owner`,
//! without their race (nginx checks, then opens by name where it has no `openat`), and with links
//! of root leading anywhere.

mod groups;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::users;

pub use groups::{Untrusted, distrust_groups_of};
pub use rule::{Facts, Reach, Rule, only_root_changes, others_list, reach};

/// Most links on a path (`MAXSYMLINKS` of the kernel).
const MAX_LINKS: usize = 40;

/// Most names on a path, those in links included: `PATH_MAX` holds half as many.
const MAX_NAMES: usize = 4096;

/// Flags for a file that is not opened for reading or writing.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An opened file or folder.
#[derive(Debug)]
pub struct OpenedPath {
    /// A descriptor that was opened with `O_PATH`.
    pub fd: OwnedFd,
    /// Its attributes.
    pub facts: Facts,
}

impl OpenedPath {
    /// A path to this very file, whatever has its name by now. It is followed as a link.
    pub fn path(&self) -> PathBuf {
        path_of(&self.fd)
    }
}

/// A name on the path.
#[derive(Debug, Clone)]
pub struct Step {
    /// The folder's name, without links.
    pub name: PathBuf,
    /// The folder.
    pub folder: Facts,
    /// The file of that name in it, which may be a link; `None`: there is none.
    pub entry: Option<Facts>,
}

impl Step {
    /// Whether only root can have decided the target of this step.
    pub fn is_roots(&self) -> bool {
        only_root_changes(&self.folder, self.entry.as_ref())
    }
}

/// The end of a path.
#[derive(Debug)]
pub struct Reached {
    /// The folder in which the last name is looked up.
    pub folder: OpenedPath,
    /// The last name, which is none of a link; `.` for the folder itself.
    pub name: OsString,
    /// The file of that name; `None`: there is none yet.
    pub entry: Option<OpenedPath>,
    /// The folder's own name, without links.
    pub folder_name: PathBuf,
    /// All names on the path.
    pub steps: Vec<Step>,
}

impl Reached {
    /// The first folder in which others than root may change the target of the path, if any.
    pub fn changed_by_others(&self) -> Option<&Step> {
        self.steps.iter().find(|step| !step.is_roots())
    }

    /// The path without links.
    pub fn real_name(&self) -> PathBuf {
        match self.name.as_bytes() {
            b"." => self.folder_name.clone(),
            _ => self.folder_name.join(&self.name),
        }
    }
}

/// Why a path cannot be resolved.
#[derive(Debug)]
pub enum Stopped {
    /// The system's error for a name.
    System(PathBuf, io::Error),
    /// A link leads to a target that its owner must not link to.
    Foreign(Box<Foreign>),
}

/// A link that is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// The link.
    pub link: PathBuf,
    /// Its owner.
    pub owner: u32,
    /// The owner of its folder.
    pub folder_owner: u32,
    /// Its target.
    pub target: PathBuf,
    /// The target's owner.
    pub target_owner: u32,
}

impl Stopped {
    fn system(at: PathBuf, why: Errno) -> Stopped {
        Stopped::System(at, why.into())
    }

    /// Whether a link is the reason.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Stopped::Foreign(_))
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::System(_, why) => write!(to, "{why}"),
            Stopped::Foreign(foreign) => foreign.fmt(to),
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (link, target) = (printable(&self.link), printable(&self.target));
        let [owner, folder, owned] =
            [self.owner, self.folder_owner, self.target_owner].map(users::name_of);
        if self.owner == 0 {
            write!(
                to,
                "the symbolic link {link} leads to {target}, which is of user `{owned}`, and lies \
                 in a folder that others than root may write to (of user `{folder}`), who may \
                 have moved it there; make it in a folder that is root's alone"
            )
        } else {
            write!(
                to,
                "the symbolic link {link} is of user `{owner}` and leads to {target}, which is of \
                 user `{owned}`; a link leads only to what its owner has: give the target to \
                 `{owner}`, or have root make the link in a folder of root's"
            )
        }
    }
}

impl From<Stopped> for io::Error {
    fn from(stopped: Stopped) -> io::Error {
        match stopped {
            Stopped::System(_, why) => why,
            Stopped::Foreign(foreign) => {
                io::Error::new(io::ErrorKind::PermissionDenied, foreign.to_string())
            }
        }
    }
}

/// A path with control characters escaped: a tenant chooses the names of its folders and files, and
/// may not write lines to a log or commands to a terminal by them.
pub fn printable(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}

/// Follows `path` to its end. The last name may be missing; all before are folders.
///
/// # Errors
/// Where the path ends before, and why.
pub fn to(path: &Path, rule: Rule) -> Result<Reached, Stopped> {
    let mut walker = Walker::at_start(path, rule)?;
    while let Some(name) = walker.ahead.pop_front() {
        walker.step(&name)?;
        walker.check(name == "..")?;
    }
    walker.end()
}

/// As [`to`], as long as the path leads through folders that `is_trusted` accepts with their
/// entries. No name is looked up in another folder, whose lock a tenant can hold; `None`: the path
/// leads through one.
///
/// # Errors
/// As [`to`].
pub fn to_while(
    path: &Path,
    rule: Rule,
    is_trusted: impl Fn(&Facts, Option<&Facts>) -> bool,
) -> Result<Option<Reached>, Stopped> {
    let mut walker = Walker::at_start(path, rule)?;
    while let Some(name) = walker.ahead.pop_front() {
        let folder = &walker.here.facts;
        // A folder such as `/tmp` is trusted for its entries of root's.
        if !is_trusted(folder, None) && !rule::is_sticky_of_root(folder) {
            return Ok(None);
        }
        walker.step(&name)?;
        let step = walker.steps.last();
        if step.is_some_and(|step| !is_trusted(&step.folder, step.entry.as_ref())) {
            return Ok(None);
        }
        walker.check(name == "..")?;
    }
    walker.end().map(Some)
}

/// Opens the target of `path` without reading it (`O_PATH`).
///
/// # Errors
/// As [`to`]; also when there is nothing of that name.
pub fn look(path: &Path, rule: Rule) -> Result<OpenedPath, Stopped> {
    let reached = to(path, rule)?;
    reached.entry.ok_or_else(|| Stopped::system(path.to_path_buf(), Errno::NOENT))
}

/// The file of this name in a folder, which is not followed if it is a link; `None`: there is none.
///
/// # Errors
/// Errors of `open(2)`.
pub fn look_in(folder: &OpenedPath, name: &OsStr) -> io::Result<Option<OpenedPath>> {
    match rustix::fs::openat(&folder.fd, name, LOOK, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        opened => Ok(Some(place(opened?, Rule::Any)?)),
    }
}

/// Opens a regular file to read it. Anything else is refused before it is opened: the open alone
/// has effects on some devices, and waits for a writer of a FIFO.
///
/// # Errors
/// As [`look`], and errors of `open(2)`; also for what is no regular file.
pub fn open_to_read(path: &Path, rule: Rule) -> io::Result<std::fs::File> {
    let place = look(path, rule)?;
    match place.facts.kind() {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR.into()),
        _ => return Err(io::Error::other("it is no regular file")),
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(place.path(), flags, Mode::empty())?.into())
}

/// A link that was followed, and whose target has to be checked.
struct Bound {
    link: PathBuf,
    reach: Reach,
    owner: u32,
    folder: Facts,
    /// The number of folders above the link's folder.
    depth: usize,
    /// The number of names ahead when the link's own are used up.
    due: usize,
    /// They are used up.
    is_over: bool,
}

struct Walker {
    rule: Rule,
    here: OpenedPath,
    /// The name of `here`, without links.
    name: PathBuf,
    /// The folders above `here`, the root first.
    above: Vec<Facts>,
    ahead: VecDeque<OsString>,
    links: usize,
    bounds: Vec<Bound>,
    steps: Vec<Step>,
    last: Option<(OsString, Option<OpenedPath>)>,
}

impl Walker {
    fn at_start(path: &Path, rule: Rule) -> Result<Walker, Stopped> {
        // As the kernel does for an empty name.
        if path.as_os_str().is_empty() {
            return Err(Stopped::system(PathBuf::new(), Errno::NOENT));
        }
        let absolute =
            std::path::absolute(path).map_err(|why| Stopped::System(path.to_path_buf(), why))?;
        Ok(Walker {
            rule,
            here: root(rule)?,
            name: PathBuf::from("/"),
            above: Vec::new(),
            ahead: names(&absolute),
            links: 0,
            bounds: Vec::new(),
            steps: Vec::new(),
            last: None,
        })
    }

    /// Resolves one name.
    fn step(&mut self, name: &OsStr) -> Result<(), Stopped> {
        if self.steps.len() > MAX_NAMES {
            return Err(self.stop(name, Errno::NAMETOOLONG));
        }
        if name == ".." {
            return self.up();
        }
        let found = self.find(name)?;
        self.steps.push(Step {
            name: self.name.clone(),
            folder: self.here.facts,
            entry: found.as_ref().map(|place| place.facts),
        });
        match found {
            Some(place) if place.facts.kind() == FileType::Symlink => self.follow(name, &place),
            found if self.ahead.is_empty() => {
                self.last = Some((name.to_owned(), found));
                Ok(())
            }
            Some(place) if place.facts.kind() == FileType::Directory => {
                self.above.push(self.here.facts);
                self.name.push(name);
                self.here = place;
                Ok(())
            }
            Some(_) => Err(self.stop(name, Errno::NOTDIR)),
            None => Err(self.stop(name, Errno::NOENT)),
        }
    }

    /// The file of this name here. It is opened as a folder first, since that triggers an
    /// automount, which may take as long as another machine likes: not for a link of a tenant
    /// ([`Walker::may_mount`]).
    fn find(&self, name: &OsStr) -> Result<Option<OpenedPath>, Stopped> {
        let open = |flags| rustix::fs::openat(&self.here.fd, name, flags, Mode::empty());
        let first = if self.may_mount() { LOOK | OFlags::DIRECTORY } else { LOOK };
        let opened = match open(first) {
            Err(Errno::NOTDIR | Errno::LOOP) => open(LOOK),
            opened => opened,
        };
        let fd = match opened {
            Err(Errno::NOENT) if self.ahead.is_empty() => return Ok(None),
            opened => opened.map_err(|why| self.stop(name, why))?,
        };
        let place = place(fd, self.rule).map_err(|why| self.stop(name, why))?;
        Ok(Some(place))
    }

    /// Whether opening the next folder may trigger an automount: every link on the path is root's,
    /// or has been checked. A process that only reads waits for no more than its own files, and
    /// follows its tenants' links to automounted folders.
    fn may_mount(&self) -> bool {
        let may = |bound: &Bound| bound.is_over || bound.reach == Reach::Anywhere;
        self.rule != Rule::Change || self.bounds.iter().all(may)
    }

    fn up(&mut self) -> Result<(), Stopped> {
        let Some(expected) = self.above.pop() else {
            return Ok(());
        };
        let flags = LOOK | OFlags::DIRECTORY;
        let opened = rustix::fs::openat(&self.here.fd, "..", flags, Mode::empty());
        let above = opened.and_then(|fd| place(fd, self.rule));
        let above = above.map_err(|why| self.stop(OsStr::new(".."), why))?;
        // The folder was moved meanwhile.
        if above.facts.id != expected.id {
            return Err(self.stop(OsStr::new(".."), Errno::AGAIN));
        }
        self.here = above;
        self.name.pop();
        Ok(())
    }

    fn follow(&mut self, name: &OsStr, link: &OpenedPath) -> Result<(), Stopped> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(self.stop(name, Errno::LOOP));
        }
        if self.ahead.is_empty() && is_of_proc(&self.here.fd) {
            return self.follow_in_proc(name);
        }
        let target = rustix::fs::readlinkat(&link.fd, "", Vec::new());
        let target = target.map_err(|why| self.stop(name, why))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        let folder = Facts { has_list: has_list(&self.here.fd), ..self.here.facts };
        self.bounds.push(Bound {
            link: self.name.join(name),
            reach: reach(self.rule, &folder, &link.facts),
            owner: link.facts.uid,
            folder,
            depth: self.above.len(),
            due: self.ahead.len(),
            is_over: false,
        });
        if target.is_absolute() {
            self.here = root(self.rule)?;
            self.above.clear();
            self.name = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            self.ahead.push_front(name);
        }
        Ok(())
    }

    /// A link such as `/proc/self/fd/1` leads to a file without a name. Only root may use one.
    fn follow_in_proc(&mut self, name: &OsStr) -> Result<(), Stopped> {
        let is_roots = |bound: &Bound| bound.reach == Reach::Anywhere;
        if !self.bounds.iter().all(is_roots) {
            return Err(self.stop(name, Errno::LOOP));
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.here.fd, name, flags, Mode::empty());
        let place = opened.and_then(|fd| place(fd, self.rule));
        let place = place.map_err(|why| self.stop(name, why))?;
        self.last = Some((name.to_owned(), Some(place)));
        Ok(())
    }

    /// Checks the links on the path: when their names are used up, and after every `..`.
    fn check(&mut self, went_up: bool) -> Result<(), Stopped> {
        let left = self.ahead.len();
        for index in 0..self.bounds.len() {
            let bound = &mut self.bounds[index];
            let is_due = !bound.is_over && bound.due == left;
            bound.is_over |= is_due;
            let is_judged = is_due || (went_up && bound.is_over);
            if is_judged && let Some(foreign) = self.foreign(&self.bounds[index]) {
                return Err(Stopped::Foreign(Box::new(foreign)));
            }
        }
        Ok(())
    }

    /// The violation of a link on the path.
    fn foreign(&self, bound: &Bound) -> Option<Foreign> {
        let (facts, depth) = match &self.last {
            Some((_, Some(entry))) => (&entry.facts, self.above.len() + 1),
            Some((_, None)) | None => (&self.here.facts, self.above.len()),
        };
        let ancestor = if bound.depth == self.above.len() {
            Some(&self.here.facts)
        } else {
            self.above.get(bound.depth)
        };
        let is_its = ancestor.is_some_and(|folder| folder.id == bound.folder.id);
        let holds = bound.reach.holds(facts, is_its && depth >= bound.depth);
        (!holds).then(|| Foreign {
            link: bound.link.clone(),
            owner: bound.owner,
            folder_owner: bound.folder.uid,
            target: match &self.last {
                Some((name, _)) => self.name.join(name),
                None => self.name.clone(),
            },
            target_owner: facts.uid,
        })
    }

    fn end(self) -> Result<Reached, Stopped> {
        let (name, entry) = match self.last {
            Some(last) => last,
            None => {
                let fd = self.here.fd.try_clone();
                let fd = fd.map_err(|why| Stopped::System(self.name.clone(), why))?;
                let facts = self.here.facts;
                (OsString::from("."), Some(OpenedPath { fd, facts }))
            }
        };
        Ok(Reached { folder: self.here, name, entry, folder_name: self.name, steps: self.steps })
    }

    fn stop(&self, name: &OsStr, why: Errno) -> Stopped {
        Stopped::system(self.name.join(name), why)
    }
}

fn root(rule: Rule) -> Result<OpenedPath, Stopped> {
    let opened = rustix::fs::open("/", LOOK | OFlags::DIRECTORY, Mode::empty());
    let opened = opened.and_then(|fd| place(fd, rule));
    opened.map_err(|why| Stopped::system(PathBuf::from("/"), why))
}

fn place(fd: OwnedFd, rule: Rule) -> rustix::io::Result<OpenedPath> {
    let stat = rustix::fs::fstat(&fd)?;
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    // A reader needs the list only of a folder with a link, and reads it there.
    let has_list = is_folder && !matches!(rule, Rule::Read { .. }) && has_list(&fd);
    let facts = Facts {
        uid: stat.st_uid,
        gid: stat.st_gid,
        group_counts: match rule {
            Rule::Read { .. } => stat.st_gid != rule::ROOT_GROUP,
            Rule::Change | Rule::Any => groups::is_untrusted(stat.st_gid),
        },
        mode: stat.st_mode,
        names: stat.st_nlink,
        id: (stat.st_dev, stat.st_ino),
        has_list,
    };
    Ok(OpenedPath { fd, facts })
}

/// Whether a file or folder has an access control list beyond its mode, or a default one. An
/// unreadable one counts.
pub fn has_list(file: &OwnedFd) -> bool {
    const LISTS: [&str; 2] = [crate::sockets::acl::ATTRIBUTE, crate::sockets::acl::OF_NEW_FILES];
    let path = path_of(file);
    // Nothing is read: only its length is requested.
    let has = |list| match rustix::fs::getxattr(&path, list, &mut [0_u8; 0]) {
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => false,
        Ok(_) | Err(_) => true,
    };
    LISTS.into_iter().any(has)
}

fn is_of_proc(folder: &OwnedFd) -> bool {
    rustix::fs::fstatfs(folder).is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

fn path_of(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn names(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}
