//! Directory listings. Directories are read on other threads, a few at a time: a large directory
//! takes a while, and its disk may be slow.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_rules::path::{CleanPath, encode_path, is_dot_name, is_php_source};
use rustix::fs::{self, AtFlags, Dir, FileType};
use tokio::sync::Semaphore;

use crate::site::openat;
use crate::site::resolver::{Resolver, is_script};

/// Most names of one listing; the page notes that there are more.
const MAX_NAMES: usize = 10_000;

/// Folders that are read at a time, for all threads together; further requests wait.
const AT_A_TIME: usize = 4;

static READING: Semaphore = Semaphore::const_new(AT_A_TIME);

/// An open directory for a listing.
#[derive(Debug)]
pub struct Folder(OwnedFd);

/// The files of a folder.
#[derive(Debug, PartialEq, Eq)]
struct Listing {
    /// Sorted: folders first, then by name.
    names: Vec<Name>,
    /// There are more.
    is_cut: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    /// Folders come first.
    is_file: bool,
    name: Vec<u8>,
    bytes: u64,
    /// Seconds since 1970.
    modified: u64,
}

impl Resolver {
    /// Opens the directory at a path with a trailing slash. None if it is no directory, may not be
    /// read, or has an index file.
    pub fn open_folder(&self, path: &CleanPath<'_>) -> Option<Folder> {
        let name = path.as_bytes();
        if !path.ends_with_slash() || path.names_end() < name.len() {
            return None;
        }
        let folder = self.open(name, openat::READ).ok()?;
        if folder.kind() != FileType::Directory {
            return None;
        }
        let is_there = |index: &String| {
            let index = [name, index.as_bytes()].concat();
            self.open(&index, openat::LOOK)
                .is_ok_and(|opened| opened.kind() == FileType::RegularFile)
        };
        (!self.site.index.iter().any(is_there)).then_some(Folder(folder.fd))
    }
}

/// The listing of the directory at `path`, opened by `open`, without the names that are `ignored`;
/// none without a directory to list.
pub async fn page(
    open: impl FnOnce() -> Option<Folder>,
    path: &[u8],
    ignored: impl Fn(&[u8]) -> bool + Send + 'static,
) -> Option<String> {
    // Before the folder is opened: a waiting request holds no descriptor.
    let turn = READING.acquire().await.ok()?;
    let folder = open()?;
    let path = path.to_vec();
    let made = tokio::task::spawn_blocking(move || {
        // Released here, so that a client that disconnects frees the slot only after its folder is
        // read.
        let _held = turn;
        folder.list(ignored).map(|listing| listing.page(&path))
    });
    made.await.ok()?
}

impl Folder {
    /// Its files, without those that are never sent.
    fn list(&self, ignored: impl Fn(&[u8]) -> bool) -> Option<Listing> {
        let mut listing = Listing { names: Vec::new(), is_cut: false };
        for entry in Dir::read_from(&self.0).ok()?.flatten() {
            let name = entry.file_name().to_bytes();
            let is_hidden =
                is_dot_name(name) || is_php_source(name) || is_script(name) || ignored(name);
            // A link is shown by its target, and may still be refused later.
            let Ok(stat) = fs::statat(&self.0, entry.file_name(), AtFlags::empty()) else {
                continue;
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if is_hidden || !matches!(kind, FileType::RegularFile | FileType::Directory) {
                continue;
            }
            if listing.names.len() == MAX_NAMES {
                listing.is_cut = true;
                break;
            }
            listing.names.push(Name {
                is_file: kind == FileType::RegularFile,
                name: name.to_vec(),
                bytes: u64::try_from(stat.st_size).unwrap_or(0),
                modified: u64::try_from(stat.st_mtime).unwrap_or(0),
            });
        }
        listing.names.sort();
        Some(listing)
    }
}

impl Listing {
    /// The page for the folder at `path`.
    fn page(&self, path: &[u8]) -> String {
        let title = escape(path);
        let mut page = format!(
            "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>Index of {title}</title>\
             </head>\n<body><h1>Index of {title}</h1>\n<table>\n"
        );
        if path != b"/" {
            page += "<tr><td><a href=\"../\">../</a></td></tr>\n";
        }
        for one in &self.names {
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
        if self.is_cut {
            page += "<p>There are more.</p>\n";
        }
        page + "</body></html>\n"
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
