//! Rewind: a forked process returns to its state at a mark, as if it had been forked again, for a
//! fraction of the cost (`rewind.c`).
//!
//! All of its memory is restored, page by page, except shared memory. Descriptors opened since are
//! closed. Its state in the kernel is restored or compared; in doubt, it does not rewind.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use crate::descriptors;
use crate::fork::{OwnProc, has_forked};

/// Most descriptors open at the mark; as `KNOWN_MAX` in `rewind.h`.
const OPEN_MAX: usize = 256;

/// Numbers that a process can pass to itself.
pub const CARRIED: usize = 12;

/// Opaque state of the C part.
#[repr(C)]
struct CImage {
    _private: [u8; 0],
}

#[repr(C)]
struct CRewind {
    _private: [u8; 0],
}

/// As `struct rewind_files` in `rewind.h`.
#[repr(C)]
struct CFiles {
    maps: c_int,
    pagemap: c_int,
    statm: c_int,
    status: c_int,
}

/// Memory that a fork empties, by addresses; as `struct wiped` in `rewind.h`.
#[repr(C)]
#[derive(Debug, PartialEq, Eq)]
struct Wiped {
    from: usize,
    to: usize,
}

/// Memory that forks empty, from `/proc/self/smaps` (proc(5)): mappings with the flag `wf`, and
/// those that may vanish at any time, `dp`.
fn wiped(smaps: &str) -> Vec<Wiped> {
    let mut all = Vec::new();
    let mut range = None;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let is_wiped = flags.split(' ').any(|flag| flag == "wf" || flag == "dp");
            all.extend(range.take().filter(|_| is_wiped));
        } else if let Some((from, to)) =
            line.split_once(' ').and_then(|(range, _)| range.split_once('-'))
        {
            let number = |text| usize::from_str_radix(text, 16);
            range = number(from).ok().zip(number(to).ok()).map(|(from, to)| Wiped { from, to });
        }
    }
    all
}

unsafe extern "C" {
    fn maitred_rewind_image(
        files: *const CFiles,
        wiped: *const Wiped,
        wiped_count: usize,
    ) -> *mut CImage;
    fn maitred_rewind_prepare(
        image: *mut CImage,
        files: *const CFiles,
        numbers: *const c_int,
        count: usize,
    ) -> *mut CRewind;
    fn maitred_rewind_mark(rewind: *mut CRewind) -> c_int;
    fn maitred_rewind_back(rewind: *mut CRewind) -> *const c_char;
    fn maitred_rewind_tells(image: *mut CImage) -> bool;
    fn maitred_rewind_carried(rewind: *mut CRewind) -> *mut u64;
}

/// A file of `/proc/self`.
#[derive(Debug)]
struct Files {
    maps: File,
    pagemap: File,
    statm: File,
    status: File,
}

impl Files {
    fn open(proc: &OwnProc) -> io::Result<Files> {
        Ok(Files {
            maps: proc.file("maps")?,
            pagemap: proc.own_file("pagemap")?,
            statm: proc.file("statm")?,
            status: proc.file("status")?,
        })
    }

    fn numbers(&self) -> CFiles {
        CFiles {
            maps: self.maps.as_raw_fd(),
            pagemap: self.pagemap.as_raw_fd(),
            statm: self.statm.as_raw_fd(),
            status: self.status.as_raw_fd(),
        }
    }
}

/// The memory of the process whose copies rewind. They inherit it.
#[derive(Debug, Clone, Copy)]
pub struct Image(NonNull<CImage>);

/// Makes the C library keep later allocations in one heap, for a process whose copies are to
/// rewind: a block with a mapping of its own would be unmapped with it, and could not be restored.
pub fn keep_together() {
    // SAFETY: it sets numbers that the C library's allocator looks at.
    unsafe { libc::mallopt(libc::M_MMAP_MAX, 0) };
}

/// Keeps the kernel from changing pages that this process and its copies have written: into huge
/// pages, which are written to without a fault (`PR_SET_THP_DISABLE`), and into merged pages of
/// equal content (`PR_SET_MEMORY_MERGE`, since Linux 6.4). Copies inherit both.
fn keep_pages_apart() -> io::Result<()> {
    let none: libc::c_ulong = 0;
    // SAFETY: they change and read flags of this process's memory, and take numbers.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1 as libc::c_ulong, none, none, none);
        if libc::prctl(libc::PR_GET_THP_DISABLE, none, none, none, none) != 1 {
            return Err(io::Error::other(
                "the kernel does not let go of huge pages (PR_SET_THP_DISABLE)",
            ));
        }
        libc::prctl(libc::PR_SET_MEMORY_MERGE, none, none, none, none);
        // An error is fine, too: such a kernel merges only pages that are offered to it.
        if libc::prctl(libc::PR_GET_MEMORY_MERGE, none, none, none, none) == 1 {
            return Err(io::Error::other(
                "the kernel does not stop merging equal pages (PR_SET_MEMORY_MERGE)",
            ));
        }
    }
    Ok(())
}

/// The C library's default (mallopt(3)).
const MAPPINGS_OF_THEIR_OWN: c_int = 65_536;

impl Image {
    /// Takes the image. It stays until the process ends.
    ///
    /// # Errors
    /// When the process's memory cannot be read or no memory is left, when its pages are not of
    /// 4096 bytes, or when the kernel keeps making huge or merged pages of them.
    pub fn take(proc: &OwnProc) -> io::Result<Image> {
        let files = Files::open(proc)?;
        keep_pages_apart()?;
        // State that a library sets up at the first call has to exist.
        let mut bytes = [0_u8; 8];
        // SAFETY: there is room for this number.
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        let wiped = wiped(&io::read_to_string(proc.file("smaps")?)?);
        // SAFETY: it reads memory that is mapped and readable, in a process with one thread, and
        // writes to new memory of its own; the list is copied.
        let image = unsafe { maitred_rewind_image(&files.numbers(), wiped.as_ptr(), wiped.len()) };
        NonNull::new(image)
            .map(Image)
            .ok_or_else(|| io::Error::other("the memory of this process could not be copied aside"))
    }

    /// True once among all processes with this image: for messages to be logged once only.
    pub fn speaks_for_all(self) -> bool {
        // SAFETY: it exchanges a number in memory that stays mapped.
        unsafe { maitred_rewind_tells(self.0.as_ptr()) }
    }
}

/// The return of [`Rewind::mark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The first one.
    First,
    /// After a rewind.
    Again,
}

/// A process that can rewind.
#[derive(Debug)]
pub struct Rewind {
    inner: NonNull<CRewind>,
    /// The process reads them until it ends.
    _files: Files,
}

impl Rewind {
    /// Prepares a process that was forked from the one whose image was taken.
    ///
    /// # Errors
    /// When a second thread runs here, when more descriptors are open than can be recorded, or when
    /// the system is out of descriptors or memory.
    pub fn prepare(proc: &OwnProc, image: Image) -> io::Result<Rewind> {
        if proc.threads()? != 1 {
            return Err(io::Error::other("a process that goes back must have one thread"));
        }
        // SAFETY: as in `keep_together`. Later allocations are dropped anyway, and earlier ones
        // stay.
        unsafe {
            libc::mallopt(libc::M_MMAP_MAX, MAPPINGS_OF_THEIR_OWN);
            libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
        }
        let files = Files::open(proc)?;
        let mut open = descriptors::numbers(proc)?;
        if open.len() > OPEN_MAX {
            return Err(io::Error::other(format!(
                "{} descriptors are open, and {OPEN_MAX} can be kept in mind",
                open.len()
            )));
        }
        open.sort_unstable();
        // SAFETY: the image was taken before the fork and is there as long as the process; the
        // numbers are copied.
        let inner = unsafe {
            maitred_rewind_prepare(image.0.as_ptr(), &files.numbers(), open.as_ptr(), open.len())
        };
        let inner = NonNull::new(inner).ok_or_else(io::Error::last_os_error)?;
        Ok(Rewind { inner, _files: files })
    }

    /// Sets the mark, and returns; and returns again after each rewind. The process is then in the
    /// state of the first return, except for shared memory, its [`carried`](Self::carried) numbers
    /// and the time.
    ///
    /// # Errors
    /// When the state to restore cannot be read.
    pub fn mark(&self) -> io::Result<Turn> {
        // SAFETY: it returns more than once, each time on a stack and with registers that are those
        // of the first; there is one thread, and no reference from the time between remains.
        match unsafe { maitred_rewind_mark(self.inner.as_ptr()) } {
            0 => Ok(Turn::First),
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(Turn::Again),
        }
    }

    /// Rewinds to the mark, which has to be set; or returns why it does not, in a few words.
    pub fn back(&self) -> String {
        if has_forked() {
            // Pages that a child shares would count as not written to.
            return "it has forked".to_owned();
        }
        // SAFETY: all that this process has done since the mark is undone, what it has opened since
        // included, so nothing is left that could point to anything.
        let why = unsafe { maitred_rewind_back(self.inner.as_ptr()) };
        // SAFETY: it is a literal, or lies in memory that stays mapped and ends with a zero.
        unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned()
    }

    /// Numbers that a rewind does not restore.
    pub fn carried(&mut self) -> &mut [u64; CARRIED] {
        // SAFETY: there are this many (`REWIND_CARRIED`), without another reference.
        unsafe { &mut *maitred_rewind_carried(self.inner.as_ptr()).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_a_fork_empties_is_found() {
        let page = crate::shared::page_bytes() as usize;
        // SAFETY: it is new memory.
        let memory = unsafe {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let memory = libc::mmap(std::ptr::null_mut(), page, rights, kind, -1, 0);
            assert_eq!(libc::madvise(memory, page, libc::MADV_WIPEONFORK), 0);
            memory as usize
        };
        let proc = OwnProc::open().unwrap();
        let smaps = io::read_to_string(proc.file("smaps").unwrap()).unwrap();
        let expected = Wiped { from: memory, to: memory + page };
        assert!(wiped(&smaps).contains(&expected));
        assert!(wiped(&smaps).len() < smaps.lines().count() / 20);
    }
}
