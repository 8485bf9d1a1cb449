//! A request's body, collected whole before a worker is requested: in memory while it is small,
//! then in a temporary file. A slow sender holds a connection and nothing else.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maitred_http1::Refusal;

use crate::http::request_memory::own_bytes_left;
use crate::http::spool_folder::{SpoolPlace, SpoolPurpose, SpooledBytes};

/// Bodies up to this many bytes stay in memory.
pub const MEMORY_BYTES: usize = 64 * 1024;
/// Bytes collected before they are written to the file in one go.
const WRITE_BYTES: usize = 256 * 1024;
/// Bytes that all bodies together may buffer for their files; [`LEAST_WRITE_BYTES`] of each in any
/// case.
const COMMON_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of any body that may stay in memory, however many its connection holds.
const LEAST_MEMORY_BYTES: usize = 8 * 1024;
/// See [`COMMON_BYTES`].
const LEAST_WRITE_BYTES: usize = 64 * 1024;

/// Why a body without space in `spool_dir` is refused, with a 503.
pub const NO_SPACE_FOR_BODY: &str =
    "There is no space for the body now: too many others of this site are stored.";
/// `Retry-After` of such a refusal, in seconds.
pub const RETRY_BODY_SECONDS: u64 = 10;

/// Incomplete bodies that have a file.
static IN_FILES: AtomicUsize = AtomicUsize::new(0);

/// A request's body.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Memory(Vec<u8>),
    /// In an unnamed file.
    File(BodyFile),
}

/// A body in a file.
#[derive(Debug)]
pub struct BodyFile {
    file: Arc<File>,
    length: u64,
    space: SpooledBytes,
}

/// The reason why there is no request body.
#[derive(Debug)]
pub enum BodyError {
    /// It is larger than the site's limit.
    TooLarge,
    /// It arrived too slowly, or not at all.
    TooSlow,
    /// The client has disconnected.
    Gone,
    /// Its framing is invalid.
    Refused(Refusal),
    /// It could not be stored.
    Spool(io::Error),
    /// Its pool has its share of `spool_dir`.
    NoSpace,
}

impl Body {
    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Body::Memory(bytes) => bytes.len() as u64,
            Body::File(file) => file.length,
        }
    }

    /// Bytes of memory that it uses.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Body::Memory(bytes) => bytes.capacity(),
            Body::File(_) => 0,
        }
    }

    /// Reads a piece of it.
    ///
    /// # Errors
    /// When the temporary file cannot be read.
    pub async fn piece(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let length = length.min(usize::try_from(self.len() - offset).unwrap_or(usize::MAX));
        match self {
            Body::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(bytes.len());
                Ok(bytes[start..start + length].to_vec())
            }
            Body::File(BodyFile { file, .. }) => {
                let file = file.clone();
                blocking(move || {
                    let mut buffer = vec![0; length];
                    file.read_exact_at(&mut buffer, offset)?;
                    Ok(buffer)
                })
                .await
            }
        }
    }
}

/// Runs a blocking operation on a thread for such operations.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// An incomplete body.
pub struct Collected {
    memory: Vec<u8>,
    file: Option<BodyFile>,
    in_file: Option<InFile>,
    /// Most bytes in memory before the file is used.
    memory_limit: usize,
    limit: u64,
}

/// Counts an incomplete body that has a file.
struct InFile;

impl InFile {
    fn new() -> InFile {
        IN_FILES.fetch_add(1, Ordering::Relaxed);
        InFile
    }
}

impl Drop for InFile {
    fn drop(&mut self) {
        IN_FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that each of `bodies` buffers before it writes them.
fn write_bytes(bodies: usize) -> usize {
    (COMMON_BYTES / bodies.max(1)).clamp(LEAST_WRITE_BYTES, WRITE_BYTES)
}

impl Collected {
    /// An empty body of at most `limit` bytes.
    pub fn new(limit: u64) -> Collected {
        Collected::within(limit, MEMORY_BYTES)
    }

    /// As [`Collected::new`], for the only request of its connection, which holds `held` bytes for
    /// its header: both stay within what each connection may hold in any case.
    pub fn beside(held: usize, limit: u64) -> Collected {
        let left = own_bytes_left(held).clamp(LEAST_MEMORY_BYTES, MEMORY_BYTES);
        Collected::within(limit, left)
    }

    /// As [`Collected::new`], with at most `memory_limit` bytes in memory.
    pub fn within(limit: u64, memory_limit: usize) -> Collected {
        Collected { memory: Vec::new(), file: None, in_file: None, memory_limit, limit }
    }

    /// Bytes received.
    pub fn len(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, |file| file.length)
    }

    /// Bytes of memory that it uses.
    pub fn memory_bytes(&self) -> usize {
        self.memory.capacity()
    }

    /// Adds received bytes.
    ///
    /// # Errors
    /// When they exceed the limit, or cannot be stored.
    pub async fn add(&mut self, bytes: &[u8], place: SpoolPlace<'_>) -> Result<(), BodyError> {
        if self.len() + bytes.len() as u64 > self.limit {
            return Err(BodyError::TooLarge);
        }
        self.memory.extend_from_slice(bytes);
        let most = if self.file.is_some() {
            let of_connection = self.memory_limit * (WRITE_BYTES / MEMORY_BYTES);
            write_bytes(IN_FILES.load(Ordering::Relaxed)).min(of_connection)
        } else {
            self.memory_limit
        };
        if self.memory.len() > most {
            self.write(place).await?;
        }
        Ok(())
    }

    /// Writes the bytes in memory to the file.
    ///
    /// # Errors
    /// When they cannot be stored.
    pub async fn write(&mut self, place: SpoolPlace<'_>) -> Result<(), BodyError> {
        let bytes = std::mem::take(&mut self.memory);
        let mut stored = match self.file.take() {
            Some(mut stored) => {
                place.look().await;
                take_space(&mut stored.space, bytes.len())?;
                stored
            }
            None => {
                let mut space = place.account(SpoolPurpose::Body).await;
                take_space(&mut space, bytes.len())?;
                let file = place.create().await.map_err(BodyError::Spool)?;
                self.in_file.get_or_insert_with(InFile::new);
                BodyFile { file: Arc::new(file), length: 0, space }
            }
        };
        let (target, count) = (stored.file.clone(), bytes.len() as u64);
        let written = blocking(move || (&*target).write_all(&bytes)).await;
        written.map_err(BodyError::Spool)?;
        stored.length += count;
        self.file = Some(stored);
        Ok(())
    }

    /// Completes the body.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn finish(mut self, place: SpoolPlace<'_>) -> Result<Body, BodyError> {
        if self.file.is_none() {
            return Ok(Body::Memory(self.memory));
        }
        self.write(place).await?;
        match self.file {
            Some(file) => Ok(Body::File(file)),
            None => Ok(Body::Memory(Vec::new())),
        }
    }
}

fn take_space(space: &mut SpooledBytes, bytes: usize) -> Result<(), BodyError> {
    if space.take(bytes) { Ok(()) } else { Err(BodyError::NoSpace) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::spool_folder::SpoolFolder;

    #[test]
    fn the_more_bodies_there_are_the_less_each_collects_before_it_is_written() {
        assert_eq!(write_bytes(0), WRITE_BYTES);
        assert_eq!(write_bytes(256), WRITE_BYTES);
        assert_eq!(write_bytes(512), WRITE_BYTES / 2);
        assert_eq!(write_bytes(1_000_000), LEAST_WRITE_BYTES);
    }

    #[tokio::test]
    async fn a_body_with_a_file_is_counted_until_it_has_come() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder { path: dir.path().to_owned(), space: Arc::default() };
        let place = SpoolPlace { folder: &folder, owner: &"pool www" };
        let mut collected = Collected::within(1 << 30, 10);
        collected.add(b"short", place).await.unwrap();
        assert!(collected.in_file.is_none());
        collected.add(b"and some more", place).await.unwrap();
        assert!(collected.in_file.is_some());
        let body = collected.finish(place).await.unwrap();
        assert_eq!(body.len(), 18);
        assert_eq!(folder.space.used_by("pool www"), 18);
        drop(body);
        assert_eq!(folder.space.used_by("pool www"), 0);
    }

    #[tokio::test]
    async fn a_body_without_space_is_refused_and_gives_its_space_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SpoolFolder { path: dir.path().to_owned(), space: Arc::default() };
        folder.space.configure(Some(300));
        let place = SpoolPlace { folder: &folder, owner: &"pool www" };
        let mut collected = Collected::within(1 << 30, 10);
        collected.add(&[1; 200], place).await.unwrap();
        let refused = collected.add(&[1; 100], place).await;
        assert!(matches!(refused, Err(BodyError::NoSpace)), "{refused:?}");
        assert_eq!(folder.space.used_by("pool www"), 0);
    }
}
