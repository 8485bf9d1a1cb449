//! A request's body, collected whole before a worker is requested: in memory while it is small,
//! then in a temporary file. A slow sender holds a connection and nothing else.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maitred_http1::Refusal;

/// Bodies up to this many bytes stay in memory.
pub const MEMORY_BYTES: usize = 64 * 1024;
/// Bytes collected before they are written to the file in one go.
const WRITE_BYTES: usize = 256 * 1024;
/// Bytes that all bodies together may buffer for their files; [`LEAST_WRITE_BYTES`] of each in any
/// case.
const COMMON_BYTES: usize = 64 * 1024 * 1024;
/// See [`COMMON_BYTES`].
const LEAST_WRITE_BYTES: usize = 64 * 1024;

/// Incomplete bodies that have a file.
static IN_FILES: AtomicUsize = AtomicUsize::new(0);

/// A request's body.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Memory(Vec<u8>),
    /// In an unnamed file, and its length.
    File(Arc<File>, u64),
}

/// The reason why there is no request body.
#[derive(Debug)]
pub enum NoBody {
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
}

impl Body {
    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Body::Memory(bytes) => bytes.len() as u64,
            Body::File(_, length) => *length,
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
            Body::File(file, _) => {
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
    file: Option<(Arc<File>, u64)>,
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

    /// As [`Collected::new`], with at most `memory_limit` bytes in memory.
    pub fn within(limit: u64, memory_limit: usize) -> Collected {
        Collected { memory: Vec::new(), file: None, in_file: None, memory_limit, limit }
    }

    /// Bytes received.
    pub fn len(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, |(_, length)| *length)
    }

    /// Adds received bytes.
    ///
    /// # Errors
    /// When they exceed the limit, or cannot be stored.
    pub async fn add(&mut self, bytes: &[u8], spool_dir: &Path) -> Result<(), NoBody> {
        if self.len() + bytes.len() as u64 > self.limit {
            return Err(NoBody::TooLarge);
        }
        self.memory.extend_from_slice(bytes);
        let most = if self.file.is_some() {
            let of_connection = self.memory_limit * (WRITE_BYTES / MEMORY_BYTES);
            write_bytes(IN_FILES.load(Ordering::Relaxed)).min(of_connection)
        } else {
            self.memory_limit
        };
        if self.memory.len() > most {
            self.write(spool_dir).await.map_err(NoBody::Spool)?;
        }
        Ok(())
    }

    async fn write(&mut self, spool_dir: &Path) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.memory);
        let (file, length) = match self.file.take() {
            Some(file) => file,
            None => {
                let dir = spool_dir.to_owned();
                let file = blocking(move || tempfile::tempfile_in(dir)).await?;
                self.in_file.get_or_insert_with(InFile::new);
                (Arc::new(file), 0)
            }
        };
        let target = file.clone();
        let count = bytes.len() as u64;
        blocking(move || (&*target).write_all(&bytes)).await?;
        self.file = Some((file, length + count));
        Ok(())
    }

    /// Completes the body.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn finish(mut self, spool_dir: &Path) -> Result<Body, NoBody> {
        if self.file.is_none() {
            return Ok(Body::Memory(self.memory));
        }
        self.write(spool_dir).await.map_err(NoBody::Spool)?;
        match self.file {
            Some((file, length)) => Ok(Body::File(file, length)),
            None => Ok(Body::Memory(Vec::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut collected = Collected::within(1 << 30, 10);
        collected.add(b"short", dir.path()).await.unwrap();
        assert!(collected.in_file.is_none());
        collected.add(b"and some more", dir.path()).await.unwrap();
        assert!(collected.in_file.is_some());
        let body = collected.finish(dir.path()).await.unwrap();
        assert_eq!(body.len(), 18);
    }
}
