//! Directory listings. Directories are read as names are looked up, on other threads: a large
//! directory takes a while, and its disk may be slow.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_os::clock::thread_cpu;
use maitred_rules::path::{CleanPath, encode_path, is_dot_name, is_php_source};
use rustix::fs::{self, AtFlags, Dir, FileType, Stat};
use tokio::sync::OwnedSemaphorePermit;

use crate::runtime::lookup_turns::Deadline;
use crate::site::Site;
use crate::site::document_root::Root;
use crate::site::openat;
use crate::site::resolver::{Refused, Resolver, is_script};

/// Most names of one listing; the page notes that there are more.
const MAX_NAMES: usize = 10_000;

/// Most bytes of the names of one listing; the page notes that there are more.
const MAX_NAME_BYTES: usize = 1 << 20;

/// Bytes of a page from which on it has no more rows, and notes that there are more: it is held in
/// memory until its client has read it, and one name may be ten times as long in it.
const MAX_PAGE_BYTES: usize = 2 << 20;

/// Most processor time for the names of one listing; the page notes that there are more.
const MOST_TIME: Duration = Duration::from_secs(1);

/// An open directory for a listing.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// The document root, and the path of the directory below it, with a slash at the end.
    root: Arc<Root>,
    path: Vec<u8>,
}

/// The files of a folder.
#[derive(Debug)]
pub struct Listing {
    /// Sorted: folders first, then by name.
    names: Vec<Name>,
    /// There are more.
    is_cut: bool,
    /// How many names [`Listing::check`] has looked at.
    checked: usize,
    /// The tenant has few at a time.
    turn: OwnedSemaphorePermit,
}

/// The page of a listing, whose memory has no account yet.
#[derive(Debug)]
pub struct ListingPage {
    /// The page.
    pub text: String,
    /// The tenant has few such pages at a time.
    _turn: OwnedSemaphorePermit,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    /// Folders come first.
    is_file: bool,
    name: Vec<u8>,
    bytes: u64,
    /// Seconds since 1970.
    modified: u64,
    is_denied: bool,
}

impl Resolver {
    /// Opens the directory at a path with a trailing slash. None if it is no directory, may not be
    /// read, or has an index file.
    pub fn open_folder(&self, path: &CleanPath<'_>) -> Option<Folder> {
        let name = path.as_bytes();
        if !path.ends_with_slash() || path.names_end() < name.len() {
            return None;
        }
        let folder = self.open(name).ok()?;
        if folder.kind() != FileType::Directory {
            return None;
        }
        let is_there = |index: &String| {
            let index = [name, index.as_bytes()].concat();
            self.look(&index).is_ok_and(|opened| opened.kind() == FileType::RegularFile)
        };
        if self.site.index.iter().any(is_there) {
            return None;
        }
        let root = self.open_root()?;
        Some(Folder { fd: folder.fd, root, path: name.to_vec() })
    }
}

/// The listing of the directory at a path of a site, without the names that are `ignored`; none
/// without a directory to list.
///
/// # Errors
/// When it takes too long to open or to read.
pub async fn read(
    site: &Site,
    path: &CleanPath<'_>,
    ignored: impl Fn(&[u8]) -> bool + Send + 'static,
) -> Result<Option<Listing>, Refused> {
    let late = || Refused::notable(503, "the folder takes too long to read");
    let until = Deadline::start();
    // Before the folder is opened: a request that waits for its turn holds no descriptor.
    let turn = site.tenant.turn_to_list(until).await.ok_or_else(late)?;
    let Some(folder) = site.look_up(|| site.open_folder(path)).await? else { return Ok(None) };
    let listed = site.tenant.list(until, turn, move |turn| folder.list(turn, ignored)).await;
    listed.ok_or_else(late)
}

/// The page of a listing, for the folder at `path`.
pub async fn page(listing: Listing, path: &[u8]) -> Option<ListingPage> {
    let path = path.to_vec();
    tokio::task::spawn_blocking(move || listing.page(&path)).await.ok()
}

impl Folder {
    /// Its files, without those that are never sent.
    fn list(&self, turn: OwnedSemaphorePermit, ignored: impl Fn(&[u8]) -> bool) -> Option<Listing> {
        let mut listing = Listing { names: Vec::new(), is_cut: false, checked: 0, turn };
        let mut name_bytes = 0;
        let began = thread_cpu();
        for entry in Dir::read_from(&self.fd).ok()?.flatten() {
            let is_late = thread_cpu().saturating_sub(began) > MOST_TIME;
            if listing.names.len() == MAX_NAMES || name_bytes >= MAX_NAME_BYTES || is_late {
                listing.is_cut = true;
                break;
            }
            let name = entry.file_name().to_bytes();
            if is_hidden(name) || ignored(name) {
                continue;
            }
            let Some(stat) = self.stat(entry.file_name()) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if !matches!(kind, FileType::RegularFile | FileType::Directory) {
                continue;
            }
            name_bytes += name.len();
            listing.names.push(Name {
                is_file: kind == FileType::RegularFile,
                name: name.to_vec(),
                bytes: u64::try_from(stat.st_size).unwrap_or(0),
                modified: u64::try_from(stat.st_mtime).unwrap_or(0),
                is_denied: false,
            });
        }
        listing.names.sort();
        Some(listing)
    }

    /// The status of a name. That of a link is its target's if a request may follow it.
    fn stat(&self, name: &CStr) -> Option<Stat> {
        let stat = fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Some(stat);
        }
        let path = [&self.path, name.to_bytes()].concat();
        let target = openat::open_with(&self.root, &path, openat::LOOK).ok()?;
        let own = target.real_name().ok()?;
        (!is_hidden(&own)).then_some(target.stat)
    }
}

/// Whether a file of this name is never sent.
fn is_hidden(name: &[u8]) -> bool {
    is_dot_name(name) || is_php_source(name) || is_script(name)
}

impl Listing {
    /// Leaves out names that may not be requested; stops when `is_allowed` returns none (out of
    /// time). True when all names were checked.
    pub fn check(&mut self, mut is_allowed: impl FnMut(&[u8]) -> Option<bool>) -> bool {
        for name in &mut self.names[self.checked..] {
            let Some(is_allowed) = is_allowed(&name.name) else { return false };
            name.is_denied = !is_allowed;
            self.checked += 1;
        }
        true
    }

    /// How many names were checked.
    pub fn checked(&self) -> usize {
        self.checked
    }

    /// Leaves out the names that were not looked at as well.
    pub fn cut(&mut self) {
        self.is_cut |= self.checked < self.names.len();
        self.names.truncate(self.checked);
    }

    /// The page for the folder at `path`.
    fn page(self, path: &[u8]) -> ListingPage {
        let mut is_cut = self.is_cut;
        let title = escape(path);
        let mut page = format!(
            "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>Index of {title}</title>\
             </head>\n<body><h1>Index of {title}</h1>\n<table>\n"
        );
        if path != b"/" {
            page += "<tr><td><a href=\"../\">../</a></td></tr>\n";
        }
        for one in self.names.iter().filter(|one| !one.is_denied) {
            if page.len() >= MAX_PAGE_BYTES {
                is_cut = true;
                break;
            }
            // `./` prevents a name with a colon from being read as a scheme.
            let slash = if one.is_file { "" } else { "/" };
            let (href, shown) = (encode_path(&one.name), escape(&one.name));
            let modified = UNIX_EPOCH + Duration::from_secs(one.modified);
            let modified = httpdate::fmt_http_date(modified.min(SystemTime::now()));
            let bytes = if one.is_file { one.bytes.to_string() } else { String::new() };
            page += &format!(
                "<tr><td><a href=\"./{}{slash}\">{shown}{slash}</a></td><td>{modified}</td>\
                 <td align=\"right\">{bytes}</td></tr>\n",
                escape(href.as_bytes())
            );
        }
        page += "</table>\n";
        if is_cut {
            page += "<p>There are more.</p>\n";
        }
        page += "</body></html>\n";
        page.shrink_to_fit();
        ListingPage { text: page, _turn: self.turn }
    }
}

fn escape(text: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    fn folder(path: &std::path::Path) -> Folder {
        let fd: OwnedFd = std::fs::File::open(path).unwrap().into();
        let root_fd = fd.try_clone().unwrap();
        let root = Root { fd: root_fd, path: path.into(), id: (0, 0), real: Arc::from(&b"/"[..]) };
        Folder { fd, root: Arc::new(root), path: b"/".to_vec() }
    }

    fn listed(names: impl Iterator<Item = String>) -> Listing {
        let path = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::write(path.path().join(name), "").unwrap();
        }
        let turn = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        folder(path.path()).list(turn, |_| false).unwrap()
    }

    #[test]
    fn a_listing_has_bounded_memory_however_long_its_names_are() {
        let listing = listed((0..5000).map(|number| format!("{number}{}", "n".repeat(240))));
        let bytes: usize = listing.names.iter().map(|one| one.name.len()).sum();
        assert!(listing.is_cut && (MAX_NAME_BYTES..MAX_NAME_BYTES + 255).contains(&bytes));
    }

    #[test]
    fn a_page_has_bounded_memory_however_long_its_names_are_in_it() {
        let listing = listed((0..1000).map(|number| format!("{number}{}", "\"".repeat(240))));
        assert!(!listing.is_cut);
        let page = listing.page(b"/").text;
        assert!((MAX_PAGE_BYTES..MAX_PAGE_BYTES + 8192).contains(&page.len()), "{}", page.len());
        assert!(page.ends_with("<p>There are more.</p>\n</body></html>\n"));
        let listing = listed(["a".to_owned()].into_iter());
        assert!(!listing.page(b"/").text.contains("There are more"));
    }
}
