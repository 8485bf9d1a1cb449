//! Immutable bytes in an anonymous file: they can be read in place, and the kernel can send them by
//! itself (sendfile(2)).

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// The seals that make the bytes immutable for every owner of the descriptor (fcntl(2),
/// `F_ADD_SEALS`).
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Bytes in an immutable anonymous file, mapped for reading.
#[derive(Debug)]
pub struct Sealed {
    start: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: the mapping is memory that is only read, and stays mapped as long as this value lives.
unsafe impl Send for Sealed {}
// SAFETY: as above.
unsafe impl Sync for Sealed {}

impl Sealed {
    /// Copies bytes into a file of their own.
    ///
    /// # Errors
    /// When there are none, or the system is out of descriptors, memory or address space, or the
    /// file size limit is exceeded, which ends a process that does not ignore `SIGXFSZ`.
    pub fn copy(name: &str, bytes: &[u8]) -> io::Result<Sealed> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = std::fs::File::from(rustix::fs::memfd_create(name, flags)?);
        file.write_all(bytes)?;
        let file = OwnedFd::from(file);
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        // Private: kernels before 6.7 do not map a file as shared that is sealed against writing.
        let (protection, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes.len(), protection, flags, &file, 0)
        }?;
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped memory at address zero"))?;
        Ok(Sealed { start, bytes: bytes.len(), file })
    }

    /// The file: the bytes are all of it.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }
}

impl AsRef<[u8]> for Sealed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes are mapped from `start` on as long as `self` is borrowed. They are
        // those of a sealed file: it can be neither changed nor truncated.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are what `mmap` returned, and no pointer into a mapping may
        // outlive its owner. A failure leaks the mapping, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_where_they_are_and_from_their_file() {
        let bytes: Vec<u8> = (0..10_000u32).map(|number| number as u8).collect();
        let sealed = Sealed::copy("test", &bytes).unwrap();
        assert_eq!(sealed.as_ref(), bytes);
        let mut read = vec![0; 100];
        assert_eq!(rustix::io::pread(sealed.file(), &mut read, 9_950), Ok(50));
        assert_eq!(read[..50], bytes[9_950..]);
    }

    #[test]
    fn nobody_who_has_the_descriptor_can_change_the_bytes() {
        let sealed = Sealed::copy("test", b"as they are").unwrap();
        assert!(rustix::io::pwrite(sealed.file(), b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(sealed.file(), 0).is_err());
        assert!(rustix::fs::fcntl_add_seals(sealed.file(), SealFlags::WRITE).is_err());
        assert_eq!(sealed.as_ref(), b"as they are");
    }

    #[test]
    fn no_bytes_have_no_file() {
        assert!(Sealed::copy("test", b"").is_err());
    }
}
