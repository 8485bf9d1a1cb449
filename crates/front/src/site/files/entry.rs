//! One file as it was when it was opened.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use maitred_rules::coding::Coding;

use crate::runtime::file_identity::{Identity, LAST_HTTP_SECOND};

/// Files up to this many bytes are kept in memory; larger ones stay open for `sendfile`.
pub const SMALL_FILE: u64 = 64 << 10;

/// How often a small file that changes while it is read is read again.
const READ_ATTEMPTS: usize = 3;

/// Where a file's bytes are.
#[derive(Clone, Debug)]
pub enum Body {
    /// All of them, here.
    Memory(Bytes),
    /// In a regular file that is open for reading.
    File(Arc<OwnedFd>),
}

/// A file that can be sent, with all that its answers need prepared.
#[derive(Clone, Debug)]
pub struct Entry {
    name: Arc<[u8]>,
    content_type: Cow<'static, str>,
    etag: String,
    modified: SystemTime,
    last_modified: String,
    /// When it was last written, in seconds since 1970, by the file system's word.
    written: i64,
    len: u64,
    body: Body,
    /// What tells it from what it was and will be; none if that is not certain.
    identity: Option<Identity>,
    /// Its coding, if the bytes are not those of the file itself.
    coding: Option<Coding>,
    /// Another client may get it in another coding.
    varies: bool,
    header_lines: Bytes,
}

impl Entry {
    fn new(name: &[u8], mtime: (i64, u32), len: u64, body: Body, now: SystemTime) -> Entry {
        let modified = http_time(mtime, now);
        Entry {
            name: name.into(),
            content_type: content_type(name),
            // Strong (RFC 9110 §8.8.3): the bytes are the same whenever time and size are.
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

    fn prepared(mut self) -> Entry {
        let Entry {
            content_type,
            len,
            last_modified,
            etag,
            ..
        } = &self;
        let coding = self.coding.map(|coding| coding.name());
        let coding = coding.map_or(String::new(), |name| {
            format!("Content-Encoding: {name}\r\n")
        });
        let ranges = if self.coding.is_none() {
            "Accept-Ranges: bytes\r\n"
        } else {
            ""
        };
        let vary = self.vary_line();
        let lines = format!(
            "Content-Type: {content_type}\r\n{coding}Content-Length: {len}\r\n\
             Last-Modified: {last_modified}\r\nETag: {etag}\r\n{ranges}{vary}"
        );
        self.header_lines = lines.into();
        self
    }

    /// The same file as one of another type.
    pub fn typed(&self, content_type: &str) -> Entry {
        Entry {
            content_type: Cow::Owned(content_type.to_owned()),
            ..self.clone()
        }
        .prepared()
    }

    /// The same, of which another client may get another coding.
    pub fn varying(self) -> Entry {
        Entry {
            varies: true,
            ..self
        }
        .prepared()
    }

    /// The same in a coding that was made of it: these bytes.
    pub fn coded(&self, coding: Coding, bytes: Bytes) -> Entry {
        Entry {
            len: bytes.len() as u64,
            body: Body::Memory(bytes),
            // Not byte for byte the same, whoever codes it (RFC 9110 §8.8.1).
            etag: format!("W/{}", self.etag),
            coding: Some(coding),
            varies: true,
            ..self.clone()
        }
        .prepared()
    }

    /// The same in a coding that lies beside it: this file.
    pub fn beside(&self, coding: Coding, file: &Entry) -> Entry {
        let (tag, coding_name) = (file.etag.trim_end_matches('"'), coding.name());
        Entry {
            len: file.len,
            body: file.body.clone(),
            etag: format!("{tag}-{coding_name}\""),
            coding: Some(coding),
            varies: true,
            ..self.clone()
        }
        .prepared()
    }

    /// Its path in the site's root, or in the folder of the alias that led to it.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What tells it from what it was and will be; none if that is not certain.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Whether it was written no earlier than another. Programs that give a file the time of the one
    /// it was made of may lose the part that is less than a second.
    pub fn is_no_older_than(&self, other: &Entry) -> bool {
        self.written >= other.written
    }

    /// Whether another client may get it in another coding.
    pub fn varies(&self) -> bool {
        self.varies
    }

    /// The header line that says so, if it is so, with its CR LF.
    pub fn vary_line(&self) -> &'static str {
        match self.varies {
            true => "Vary: Accept-Encoding\r\n",
            false => "",
        }
    }

    /// `Content-Type`, with a charset where it is text.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// `ETag`, strong, with its quotes.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// `Last-Modified`.
    pub fn last_modified(&self) -> &str {
        &self.last_modified
    }

    /// The time that `Last-Modified` says, in whole seconds.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Where the bytes are.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Its first bytes, up to `length` of them, as they lie in the file.
    ///
    /// # Errors
    /// What `read` says.
    pub fn beginning(&self, length: usize) -> io::Result<Cow<'_, [u8]>> {
        match &self.body {
            Body::Memory(bytes) => Ok(Cow::Borrowed(&bytes[..bytes.len().min(length)])),
            Body::File(fd) => read_all(fd, length as u64).map(Cow::Owned),
        }
    }

    /// The header lines of a plain 200, each with its CR LF: Content-Type, Content-Length,
    /// Last-Modified, ETag and Accept-Ranges.
    pub fn header_lines(&self) -> &Bytes {
        &self.header_lines
    }
}

/// What [`load`] found.
#[derive(Debug)]
pub struct Loaded {
    /// The file.
    pub entry: Entry,
    /// What to compare with before the entry is used again; none if it must not be kept.
    pub settled: Option<Identity>,
}

impl Loaded {
    fn of(mut entry: Entry, settled: Option<Identity>) -> Loaded {
        entry.identity = settled;
        Loaded { entry, settled }
    }
}

/// Makes the entry of the regular file `fd`, open for reading, that is called `name`. Reads it if
/// it is small.
///
/// # Errors
///
/// What `fstat` and `read` say.
pub fn load(fd: OwnedFd, name: &[u8]) -> io::Result<Loaded> {
    let mut attempt = 1;
    loop {
        let now = SystemTime::now();
        let before = Identity::of(&rustix::fs::fstat(&fd)?);
        if before.size > SMALL_FILE {
            let body = Body::File(Arc::new(fd));
            let entry = Entry::new(name, before.mtime, before.size, body, now);
            return Ok(Loaded::of(entry, before.is_settled(now).then_some(before)));
        }
        let bytes = read_all(&fd, before.size)?;
        let after = Identity::of(&rustix::fs::fstat(&fd)?);
        let whole = after == before && bytes.len() as u64 == before.size;
        if whole || attempt == READ_ATTEMPTS {
            let len = bytes.len() as u64;
            let entry = Entry::new(name, after.mtime, len, Body::Memory(bytes.into()), now);
            let is_settled = whole && after.is_settled(now);
            return Ok(Loaded::of(entry, is_settled.then_some(after)));
        }
        attempt += 1;
    }
}

/// Up to `size` bytes from the beginning of `fd`; fewer if the file has become shorter.
///
/// # Errors
///
/// What `read` says.
pub fn read_all(fd: &OwnedFd, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::pread(fd, &mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The media type that the extension of `name` stands for. What browsers would otherwise guess a
/// charset for is said to be UTF-8.
fn content_type(name: &[u8]) -> Cow<'static, str> {
    let name = Path::new(OsStr::from_bytes(name));
    let kind = match mime_guess::from_path(name).first_raw() {
        // RFC 9239 §6 makes this the one name.
        Some("application/javascript") => "text/javascript",
        Some(kind) => kind,
        None => "application/octet-stream",
    };
    let is_text = kind.starts_with("text/") || matches!(kind, "application/json" | "image/svg+xml");
    if is_text {
        Cow::Owned(format!("{kind}; charset=utf-8"))
    } else {
        Cow::Borrowed(kind)
    }
}

/// `mtime` in whole seconds, as an HTTP date can say it: not before 1970, and not later than now
/// (RFC 9110 §8.8.2.1).
fn http_time(mtime: (i64, u32), now: SystemTime) -> SystemTime {
    let now = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let seconds = u64::try_from(mtime.0)
        .unwrap_or(0)
        .min(now)
        .min(LAST_HTTP_SECOND);
    UNIX_EPOCH + Duration::from_secs(seconds)
}
