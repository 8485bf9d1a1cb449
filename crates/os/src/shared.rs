//! Memory shared between processes: an anonymous file of fixed size, mapped by every owner of its
//! descriptor.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{IFlags, MemfdFlags, Mode, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// An anonymous file that only its owner could open through `/proc`: its mode is 0777 otherwise
/// (memfd_create(2)), so that any process that reaches its link there may write to it.
fn owners_file(name: &str, flags: MemfdFlags) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | flags)?;
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    Ok(fd)
}

/// Creates an anonymous file of `bytes` zero bytes that cannot be resized, so that a mapping of it
/// can never raise `SIGBUS` in another process.
///
/// # Errors
/// When the system is out of descriptors or memory.
pub fn create_sealed(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = owners_file(name, MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Has the system refuse holes in an anonymous file, from any process. Mappings of it, also later
/// ones, are readable and writable as before.
///
/// # Errors
/// Without `CAP_LINUX_IMMUTABLE`, and before Linux 6.1.
pub fn forbid_holes(file: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::ioctl_getflags(&file)?;
    Ok(rustix::fs::ioctl_setflags(&file, flags | IFlags::IMMUTABLE)?)
}

/// Whether no process can make holes in this file.
pub fn is_solid(file: impl AsFd) -> bool {
    rustix::fs::ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::IMMUTABLE))
}

/// An anonymous file with the given contents, read from its start by its receiver.
///
/// # Errors
/// When the system is out of descriptors or memory.
pub fn file_with(name: &str, contents: &[u8]) -> io::Result<OwnedFd> {
    use std::io::{Seek, Write};
    let mut file = File::from(owners_file(name, MemfdFlags::empty())?);
    file.write_all(contents)?;
    file.rewind()?;
    Ok(file.into())
}

/// Writes the contents of an anonymous file from its start. Its position stays.
///
/// # Errors
/// When the system is out of memory.
pub fn fill(fd: &OwnedFd, contents: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < contents.len() {
        done += rustix::io::pwrite(fd, &contents[done..], done as u64)?;
    }
    Ok(())
}

/// An empty anonymous file that can be [sealed](seal) once it is complete.
///
/// # Errors
/// When the system is out of descriptors or memory.
pub fn writable_file(name: &str) -> io::Result<File> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    Ok(fd.into())
}

/// Makes contents and size of an anonymous file final. Private mappings of it may still be written.
///
/// # Errors
/// When a process has mapped it writable, or it is sealed already.
pub fn seal(file: impl AsFd) -> io::Result<()> {
    let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    Ok(rustix::fs::fcntl_add_seals(file, all)?)
}

/// Size of a page of memory in bytes.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// A shared mapping of a whole sealed file, readable and writable, unmapped when the last copy of
/// this value is dropped.
#[derive(Debug, Clone)]
pub struct SharedMap {
    start: NonNull<u8>,
    bytes: usize,
    /// Held for its end alone: every access would go through it otherwise.
    _mapped: Arc<Mapped>,
}

// SAFETY: the mapping is plain memory that stays mapped as long as this value lives; all access
// goes through raw pointers and atomics whose users follow their own rules.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

/// A mapping, which is unmapped when dropped.
#[derive(Debug)]
struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it has an address that nothing is read from or written to, and that only its end uses.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl SharedMap {
    /// Maps the whole of `fd`, which must be sealed against shrinking.
    ///
    /// # Errors
    /// When the file is empty or not sealed, or the address space is full.
    pub fn map(fd: impl AsFd) -> io::Result<SharedMap> {
        if !rustix::fs::fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "shared file is not sealed"));
        }
        let bytes = usize::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped shared memory at address zero"))?;
        Ok(SharedMap { start, bytes, _mapped: Arc::new(Mapped { start, bytes }) })
    }

    /// First byte of the mapping. Valid while this value lives.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Size of the mapping in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The mapping as words that every process may read and write at any time; a rest of less than
    /// a word is left out.
    pub fn words(&self) -> &[AtomicU64] {
        let count = self.bytes / size_of::<AtomicU64>();
        // SAFETY: a mapping starts at a page, so it is aligned; `count` words are inside it, and it
        // stays mapped as long as `self` is borrowed. Every bit pattern is a valid `AtomicU64`, and
        // atomics may be written by others, in this process and in another.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<AtomicU64>(), count) }
    }

    /// Gives the memory of these bytes back to the system, in all mappings of the file: they are
    /// zero afterwards. They begin and end at a page.
    ///
    /// # Errors
    /// When they are not inside the mapping, or the system cannot make holes in its files.
    pub fn discard(&self, range: Range<usize>) -> io::Result<()> {
        let bytes = range.len();
        if range.end > self.bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "beyond the shared file"));
        }
        // SAFETY: the range is inside the mapping (checked). It stays mapped, and all other
        // processes may write to its bytes at any time, so that none relies on their values.
        unsafe {
            let start = self.start.as_ptr().add(range.start).cast();
            rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxRemove)?;
        }
        Ok(())
    }

    /// Whether the mapping has no bytes; it never has none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are what `mmap` returned, and no pointer into a mapping may
        // outlive its owners, of which this was the last. A failure leaks the mapping, which is
        // harmless.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_cannot_change_its_size_and_is_shared_by_its_mappings() {
        let fd = create_sealed("test", 4096).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        let (a, b) = (SharedMap::map(&fd).unwrap(), SharedMap::map(&fd).unwrap());
        // SAFETY: both mappings are 4096 bytes long.
        unsafe {
            a.start().add(7).write_volatile(42);
            assert_eq!(b.start().add(7).read_volatile(), 42);
        }
    }

    #[test]
    fn no_other_user_could_open_a_file_through_proc() {
        let files = [create_sealed("test", 4096).unwrap(), file_with("test", b"contents").unwrap()];
        for file in files {
            let mode = rustix::fs::fstat(&file).unwrap().st_mode;
            assert_eq!(mode & 0o7777, 0o600);
        }
    }

    #[test]
    fn words_are_shared_by_all_mappings() {
        use std::sync::atomic::Ordering::Relaxed;
        let fd = create_sealed("test", 8 * 512 + 7).unwrap();
        let (a, b) = (SharedMap::map(&fd).unwrap(), SharedMap::map(&fd).unwrap());
        assert_eq!(a.words().len(), 512);
        a.words()[511].store(42, Relaxed);
        assert_eq!(b.words()[511].load(Relaxed), 42);
    }

    #[test]
    fn discarded_bytes_take_no_memory_and_are_zero_in_all_mappings() {
        use std::sync::atomic::Ordering::Relaxed;
        let page = usize::try_from(page_bytes()).unwrap();
        let fd = create_sealed("test", 8 * page).unwrap();
        let (a, b) = (SharedMap::map(&fd).unwrap(), SharedMap::map(&fd).unwrap());
        a.words().iter().for_each(|word| word.store(42, Relaxed));
        let pages = || rustix::fs::fstat(&fd).unwrap().st_blocks as usize * 512 / page;
        assert_eq!(pages(), 8);
        a.discard(page..4 * page).unwrap();
        assert_eq!(pages(), 5);
        let at = |index: usize| b.words()[index * page / 8].load(Relaxed);
        assert_eq!([0, 1, 3, 4].map(at), [42, 0, 0, 42]);
        assert!(a.discard(page..9 * page).is_err());
    }

    #[test]
    fn a_file_that_can_have_no_holes_is_mapped_and_written_as_before() {
        use std::sync::atomic::Ordering::Relaxed;
        let page = usize::try_from(page_bytes()).unwrap();
        let fd = create_sealed("test", 4 * page).unwrap();
        let before = SharedMap::map(&fd).unwrap();
        before.words()[0].store(41, Relaxed);
        assert!(!is_solid(&fd));
        if let Err(why) = forbid_holes(&fd) {
            return eprintln!("skipped: only root can, from Linux 6.1 on ({why})");
        }
        assert!(is_solid(&fd));
        let after = SharedMap::map(&fd).unwrap();
        after.words()[0].store(42, Relaxed);
        assert!(before.discard(0..page).is_err() && after.discard(0..page).is_err());
        let (holes, keep) =
            (rustix::fs::FallocateFlags::PUNCH_HOLE, rustix::fs::FallocateFlags::KEEP_SIZE);
        assert!(rustix::fs::fallocate(&fd, holes | keep, 0, page as u64).is_err());
        assert!(rustix::fs::fallocate(&fd, keep, 0, page as u64).is_err());
        assert_eq!(before.words()[0].load(Relaxed), 42);
    }

    #[test]
    fn an_unsealed_file_is_refused() {
        let fd = file_with("test", b"contents").unwrap();
        assert!(SharedMap::map(&fd).is_err());
    }
}
