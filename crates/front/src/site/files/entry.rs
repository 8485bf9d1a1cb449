//! The metadata and the contents of a static file, as of its opening.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use maitred_rules::content_encoding::ContentEncoding;

use crate::http::large_file::{FolderOwner, LargeFile};
use crate::runtime::file_identity::{Identity, LAST_HTTP_SECOND};
use crate::site::document_root::Root;
use crate::site::name_lookups::FoundFile;

/// Files up to this many bytes are held in memory; larger ones stay open for `sendfile`.
pub const SMALL_FILE: u64 = 64 << 10;

/// Attempts to read a small file that changes meanwhile.
const READ_ATTEMPTS: usize = 3;

/// The bytes of a file.
#[derive(Clone, Debug)]
pub enum FileBody {
    /// All bytes, in memory.
    Memory(Bytes),
    /// An open regular file.
    File(Arc<LargeFile>),
}

/// A file that can be sent, with its prepared headers.
#[derive(Clone, Debug)]
pub struct StaticFile {
    name: Arc<[u8]>,
    content_type: Cow<'static, str>,
    etag: String,
    modified: SystemTime,
    last_modified: String,
    /// The modification time in seconds since 1970.
    written: i64,
    len: u64,
    body: FileBody,
    /// Its identity; none if a change might go unnoticed.
    identity: Option<Identity>,
    /// The content encoding, if the bytes are compressed.
    coding: Option<ContentEncoding>,
    /// Other clients may get another encoding.
    varies: bool,
    header_lines: Bytes,
}

impl StaticFile {
    fn new(
        name: &[u8],
        mtime: (i64, u32),
        len: u64,
        body: FileBody,
        now: SystemTime,
    ) -> StaticFile {
        let modified = http_time(mtime, now);
        StaticFile {
            name: name.into(),
            content_type: content_type(name),
            // Strong (RFC 9110 §8.8.3): the bytes are the same as long as time and size are.
            etag: format!("\"{:x}{:08x}-{len:x}\"", mtime.0, mtime.1),
            modified,
            last_modified: httpdate::fmt_http_date(modified),
            written: mtime.0,
            len,
            body,
            identity: None,
            coding: None,
            varies: false,
            header_lines: Bytes::new(),
        }
        .prepared()
    }

    fn prepared(mut self) -> StaticFile {
        let StaticFile { content_type, len, last_modified, etag, .. } = &self;
        let coding = self.coding.map(|coding| coding.name());
        let coding = coding.map_or(String::new(), |name| format!("Content-Encoding: {name}\r\n"));
        let ranges = if self.coding.is_none() { "Accept-Ranges: bytes\r\n" } else { "" };
        let vary = self.vary_line();
        let lines = format!(
            "Content-Type: {content_type}\r\n{coding}Content-Length: {len}\r\n\
             Last-Modified: {last_modified}\r\nETag: {etag}\r\n{ranges}{vary}"
        );
        self.header_lines = lines.into();
        self
    }

    /// This file with another media type.
    pub fn typed(&self, content_type: &str) -> StaticFile {
        StaticFile { content_type: Cow::Owned(content_type.to_owned()), ..self.clone() }.prepared()
    }

    /// This file, with `Vary: Accept-Encoding`: other clients may get another encoding.
    pub fn varying(self) -> StaticFile {
        StaticFile { varies: true, ..self }.prepared()
    }

    /// A compressed variant of this file, with these bytes.
    pub fn coded(&self, coding: ContentEncoding, bytes: Bytes) -> StaticFile {
        StaticFile {
            len: bytes.len() as u64,
            body: FileBody::Memory(bytes),
            // Compressed bytes may differ between encoders (RFC 9110 §8.8.1).
            etag: format!("W/{}", self.etag),
            coding: Some(coding),
            varies: true,
            ..self.clone()
        }
        .prepared()
    }

    /// A precompressed variant of this file, stored in `file`.
    pub fn beside(&self, coding: ContentEncoding, file: &StaticFile) -> StaticFile {
        let (tag, coding_name) = (file.etag.trim_end_matches('"'), coding.name());
        StaticFile {
            len: file.len,
            body: file.body.clone(),
            etag: format!("{tag}-{coding_name}\""),
            coding: Some(coding),
            varies: true,
            ..self.clone()
        }
        .prepared()
    }

    /// Its path in the site's root, or in the directory of its alias.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its identity; none if a change might go unnoticed.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Whether it is at least as new as another file. Programs that copy modification times may
    /// drop the fraction of a second.
    pub fn is_no_older_than(&self, other: &StaticFile) -> bool {
        self.written >= other.written
    }

    /// Whether other clients may get another encoding.
    pub fn varies(&self) -> bool {
        self.varies
    }

    /// The `Vary` line, if it varies, with its CR LF.
    pub fn vary_line(&self) -> &'static str {
        match self.varies {
            true => "Vary: Accept-Encoding\r\n",
            false => "",
        }
    }

    /// The `Content-Type` header, with a charset where it is text.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The `ETag` header, strong, with its quotes.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// The `Last-Modified` header.
    pub fn last_modified(&self) -> &str {
        &self.last_modified
    }

    /// The time of the `Last-Modified` header, in whole seconds.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The content encoding, if the bytes are compressed.
    pub fn coding(&self) -> Option<ContentEncoding> {
        self.coding
    }

    /// Its contents.
    pub fn body(&self) -> &FileBody {
        &self.body
    }

    /// Its first bytes, up to `length` of them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn beginning(&self, place: FilePlace<'_>, length: usize) -> io::Result<Bytes> {
        match &self.body {
            FileBody::Memory(bytes) => Ok(bytes.slice(..bytes.len().min(length))),
            FileBody::File(file) => {
                let identity = Identity::of(&rustix::fs::fstat(file.fd())?);
                Ok(place.found(file.fd()).read(identity, length as u64)?.bytes)
            }
        }
    }

    /// The header lines of a plain 200, each with its CR LF: Content-Type, Content-Length,
    /// Last-Modified, ETag and Accept-Ranges.
    pub fn header_lines(&self) -> &Bytes {
        &self.header_lines
    }
}

/// The result of [`load`].
#[derive(Debug)]
pub struct Loaded {
    /// The file.
    pub entry: StaticFile,
    /// The identity to compare before the entry is used again; none: it must not be cached.
    pub settled: Option<Identity>,
}

impl Loaded {
    fn of(mut entry: StaticFile, settled: Option<Identity>) -> Loaded {
        entry.identity = settled;
        Loaded { entry, settled }
    }
}

/// Where a file is.
#[derive(Clone, Copy)]
pub struct FilePlace<'p> {
    /// Its document root.
    pub root: &'p Arc<Root>,
    /// Its path below that.
    pub path: &'p [u8],
    /// The owner of its descriptor.
    pub owner: &'p FolderOwner,
}

impl<'p> FilePlace<'p> {
    fn found(self, fd: &'p OwnedFd) -> FoundFile<'p> {
        FoundFile { root: self.root, path: self.path, fd }
    }
}

/// Loads the regular file `fd`, open for reading, of this place. Small files are read into memory.
///
/// # Errors
///
/// When `fstat` or `read` fails, the read is pending, or the folder has as many large files open as
/// it may.
pub fn load(fd: OwnedFd, place: FilePlace<'_>) -> io::Result<Loaded> {
    let name = place.path;
    let mut attempt = 1;
    loop {
        let before = Identity::of(&rustix::fs::fstat(&fd)?);
        if before.size > SMALL_FILE {
            let now = SystemTime::now();
            let body = FileBody::File(Arc::new(LargeFile::new(fd, place.owner)?));
            let entry = StaticFile::new(name, before.mtime, before.size, body, now);
            return Ok(Loaded::of(entry, before.is_settled(now).then_some(before)));
        }
        let content = place.found(&fd).read(before, before.size)?;
        let after = Identity::of(&rustix::fs::fstat(&fd)?);
        let len = content.bytes.len() as u64;
        let whole = after == before && len == before.size;
        if whole || attempt == READ_ATTEMPTS {
            let body = FileBody::Memory(content.bytes);
            let entry = StaticFile::new(name, after.mtime, len, body, content.at);
            let is_settled = whole && after.is_settled(content.at);
            return Ok(Loaded::of(entry, is_settled.then_some(after)));
        }
        attempt += 1;
    }
}

/// The media type of the extension of `name`. Text types get the charset UTF-8, which browsers
/// would otherwise guess.
fn content_type(name: &[u8]) -> Cow<'static, str> {
    let name = Path::new(OsStr::from_bytes(name));
    let kind = match mime_guess::from_path(name).first_raw() {
        // RFC 9239 §6: the only name.
        Some("application/javascript") => "text/javascript",
        Some(kind) => kind,
        None => "application/octet-stream",
    };
    let is_text = kind.starts_with("text/") || matches!(kind, "application/json" | "image/svg+xml");
    if is_text { Cow::Owned(format!("{kind}; charset=utf-8")) } else { Cow::Borrowed(kind) }
}

/// `mtime` in whole seconds, within the range of an HTTP date: not before 1970, and not later than
/// now (RFC 9110 §8.8.2.1).
fn http_time(mtime: (i64, u32), now: SystemTime) -> SystemTime {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = u64::try_from(mtime.0).unwrap_or(0).min(now).min(LAST_HTTP_SECOND);
    UNIX_EPOCH + Duration::from_secs(seconds)
}
