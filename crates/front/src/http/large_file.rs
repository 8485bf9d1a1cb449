//! A large file, open to be sent.
//!
//! Some file systems take the lock of a file to read it, XFS for one, which a process that writes
//! to the file holds while it copies from its memory. If that is memory of a FUSE file system that
//! does not respond, the read waits as long as a tenant likes, and cannot be interrupted. So
//! serving threads read only what the kernel has in its page cache and does not have to wait for;
//! the rest is for other threads, within the turns of the tenant.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FsWord, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::http::transfers::Transfer;
use crate::runtime::cached_reads;
use crate::runtime::lookup_turns::Tenant;

/// Buffer of a thread that reads ahead: the bytes are irrelevant, only the page cache is to have
/// them, and there may be hundreds of such threads.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// File systems that read contents without a lock that a process can hold: ext2 to ext4, tmpfs,
/// squashfs and erofs (statfs(2)).
const WITHOUT_LOCK: [FsWord; 4] = [0xef53, 0x0102_1994, 0x7371_7368, 0xe0f5_e1e2];

/// The folder of a file, as the owner of its open files, and its tenant.
#[derive(Clone, Debug)]
pub struct FolderOwner {
    /// Its name.
    pub folder: Arc<str>,
    /// Its tenant.
    pub tenant: Arc<Tenant>,
}

/// A large file, open to be sent.
#[derive(Debug)]
pub struct LargeFile {
    fd: OwnedFd,
    tenant: Arc<Tenant>,
    /// Whether a process of the tenant can have each read of it wait, once that is known.
    is_lockable: OnceLock<bool>,
    /// Counts the descriptor.
    _transfer: Transfer,
}

impl LargeFile {
    /// An open file of a folder.
    ///
    /// # Errors
    /// When the folder has as many large files open as it may.
    pub fn new(fd: OwnedFd, owner: &FolderOwner) -> io::Result<LargeFile> {
        let transfer = Transfer::begin(&owner.folder).ok_or(Errno::MFILE)?;
        Ok(LargeFile {
            fd,
            tenant: Arc::clone(&owner.tenant),
            is_lockable: OnceLock::new(),
            _transfer: transfer,
        })
    }

    /// Its descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Its descriptor for sendfile(2), which waits for the lock of the file: none if a tenant could
    /// have others wait with it. A reload can bring the first others.
    pub fn for_sendfile(&self) -> Option<&OwnedFd> {
        let is_lockable = || *self.is_lockable.get_or_init(|| is_lockable(&self.fd));
        (!self.tenant.has_neighbours() || !is_lockable()).then_some(&self.fd)
    }

    /// Reads up to `count` bytes from `at`.
    ///
    /// # Errors
    /// When the file cannot be read; `UnexpectedEof` when it has become shorter, `TimedOut` when
    /// the read takes too long.
    pub async fn read(self: &Arc<LargeFile>, at: u64, count: usize) -> io::Result<Vec<u8>> {
        match self.read_cached(at, count)? {
            Some(bytes) => Ok(bytes),
            None => self.read_elsewhere(at, count).await,
        }
    }

    /// Reads up to `count` bytes from `at` that the kernel has in its page cache; none if it has
    /// none, or the file is locked.
    ///
    /// # Errors
    /// When the file cannot be read; `UnexpectedEof` when it has become shorter.
    pub fn read_cached(&self, at: u64, count: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; count];
        match cached_reads::read(&self.fd, &mut bytes, at) {
            Err(error) if cached_reads::is_undecided(error) => Ok(None),
            read => shortened(read?, bytes).map(Some),
        }
    }

    /// Reads up to `count` bytes from `at` on another thread, which may wait for the file. There is
    /// no buffer before the read has its turn.
    ///
    /// # Errors
    /// As [`LargeFile::read`].
    pub async fn read_elsewhere(
        self: &Arc<LargeFile>,
        at: u64,
        count: usize,
    ) -> io::Result<Vec<u8>> {
        let file = Arc::clone(self);
        let read = move || {
            let mut bytes = vec![0; count];
            shortened(cached_reads::read_now(&file.fd, &mut bytes, at)?, bytes)
        };
        self.on_other_thread(read).await
    }

    /// Has the kernel read a piece into its page cache.
    ///
    /// # Errors
    /// As [`LargeFile::read`].
    pub async fn read_ahead(self: &Arc<LargeFile>, at: u64, length: u64) -> io::Result<()> {
        let file = Arc::clone(self);
        let read = move || {
            let mut buffer = vec![0; READ_AHEAD_BYTES];
            let (mut at, end) = (at, at + length);
            while at < end {
                match cached_reads::read_now(&file.fd, &mut buffer, at)? {
                    0 => break,
                    count => at += count as u64,
                }
            }
            Ok(())
        };
        self.on_other_thread(read).await
    }

    /// Reads `length` bytes from the start; fewer if it has become shorter.
    ///
    /// # Errors
    /// As [`LargeFile::read`]; also when the tenant has other reads that wait.
    pub async fn read_all(self: &Arc<LargeFile>, length: u64) -> io::Result<Vec<u8>> {
        let file = Arc::clone(self);
        let read = move || Ok(cached_reads::read_all_now(&file.fd, length)?);
        self.tenant.read_if_free(read).await.ok_or_else(late)?
    }

    async fn on_other_thread<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.tenant.read_to_send(read).await.ok_or_else(late)?
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a read of the file takes too long")
}

/// Whether reads of a file take a lock: on an unknown file system, and without a page cache (DAX).
fn is_lockable(fd: &OwnedFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let is_dax = rustix::fs::statx(fd, c"", flags, StatxFlags::empty())
        .is_ok_and(|status| status.stx_attributes.contains(StatxAttributes::DAX));
    let is_known =
        rustix::fs::fstatfs(fd).is_ok_and(|file_system| WITHOUT_LOCK.contains(&file_system.f_type));
    is_dax || !is_known
}

/// The bytes that were read.
fn shortened(count: usize, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(count);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::lookup_turns::AllTurns;

    #[test]
    fn sendfile_is_for_file_systems_without_locks_or_for_a_tenant_alone() {
        let all = AllTurns::default();
        let owner = FolderOwner { folder: "/srv".into(), tenant: all.of("a") };
        let in_memory = std::fs::File::open("/dev/shm").unwrap();
        // procfs is not among the known ones.
        let unknown = std::fs::File::open("/proc/self/status").unwrap();
        let files = [in_memory, unknown].map(|file| LargeFile::new(file.into(), &owner).unwrap());
        let for_sendfile = || files.each_ref().map(|file| file.for_sendfile().is_some());
        assert_eq!(for_sendfile(), [true, true]);
        let neighbour = all.of("b");
        assert_eq!(for_sendfile(), [true, false]);
        drop(neighbour);
    }
}
