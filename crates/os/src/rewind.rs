//! Going back: a process that was forked becomes again what it was at its mark, as if it had been
//! forked anew, for a fraction of what that costs (`rewind.c`).
//!
//! All of its memory is put back, page by page, except what it shares with others. What it has opened
//! since is closed. What the kernel keeps for it is put back or compared; where that leaves any doubt,
//! it does not go back.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use crate::descriptors;
use crate::fork::{OwnProc, has_forked};

/// Most descriptors that may be open at the mark; as `KNOWN_MAX` in `rewind.h`.
const OPEN_MAX: usize = 256;

/// How many numbers a process can hand to itself.
pub const CARRIED: usize = 8;

/// What C keeps, and nobody here looks into.
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

/// Memory that a fork empties, from address to address; as `struct wiped` in `rewind.h`.
#[repr(C)]
#[derive(Debug, PartialEq, Eq)]
struct Wiped {
    from: usize,
    to: usize,
}

/// What of its memory a process says that forks empty (`/proc/self/smaps`, proc(5)): parts with the
/// flag `wf`, and those that may vanish at any time, `dp`.
fn wiped(smaps: &str) -> Vec<Wiped> {
    let mut all = Vec::new();
    let mut range = None;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let is_wiped = flags.split(' ').any(|flag| flag == "wf" || flag == "dp");
            all.extend(range.take().filter(|_| is_wiped));
        } else if let Some((from, to)) = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'))
        {
            let number = |text| usize::from_str_radix(text, 16);
            range = number(from)
                .ok()
                .zip(number(to).ok())
                .map(|(from, to)| Wiped { from, to });
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

/// What a process reads of itself.
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

/// The memory of the process whose copies go back. They inherit it.
#[derive(Debug, Clone, Copy)]
pub struct Image(NonNull<CImage>);

/// Has the C library keep what is allocated from now on in one place, for a process whose copies are
/// to go back: what has a mapping of its own would go with it, and could not be put back.
pub fn keep_together() {
    // SAFETY: it sets numbers that the C library's allocator looks at.
    unsafe { libc::mallopt(libc::M_MMAP_MAX, 0) };
}

/// Keeps the kernel from moving what this process and its copies have written behind their backs: into
/// huge pages, which are written to without a fault (`PR_SET_THP_DISABLE`), and into pages that are shared
/// because their content is the same (`PR_SET_MEMORY_MERGE`, since Linux 6.4). Copies inherit both.
fn keep_pages_apart() -> io::Result<()> {
    let none: libc::c_ulong = 0;
    // SAFETY: they change and read flags of this process's memory, and take numbers.
    unsafe {
        libc::prctl(
            libc::PR_SET_THP_DISABLE,
            1 as libc::c_ulong,
            none,
            none,
            none,
        );
        if libc::prctl(libc::PR_GET_THP_DISABLE, none, none, none, none) != 1 {
            return Err(io::Error::other(
                "the kernel does not let go of huge pages (PR_SET_THP_DISABLE)",
            ));
        }
        libc::prctl(libc::PR_SET_MEMORY_MERGE, none, none, none, none);
        // An error is an answer, too: such a kernel merges nothing that is not offered to it.
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
    /// Takes it. It stays until the process ends.
    ///
    /// # Errors
    /// When the system says nothing of the process's memory or has none left, when its pages are not of
    /// 4096 bytes, or when it makes huge pages or shared ones of them whatever it is asked for.
    pub fn take(proc: &OwnProc) -> io::Result<Image> {
        let files = Files::open(proc)?;
        keep_pages_apart()?;
        // What a library sets up at the first call has to be there.
        let mut bytes = [0_u8; 8];
        // SAFETY: there is room for so many.
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        let wiped = wiped(&io::read_to_string(proc.file("smaps")?)?);
        // SAFETY: it reads memory that is mapped and readable, in a process with one thread, and
        // writes to new memory of its own; the list is copied.
        let image = unsafe { maitred_rewind_image(&files.numbers(), wiped.as_ptr(), wiped.len()) };
        NonNull::new(image)
            .map(Image)
            .ok_or_else(|| io::Error::other("the memory of this process could not be copied aside"))
    }

    /// True once among all processes that have this image: for whoever wants to say no more than once
    /// what they all have to say.
    pub fn speaks_for_all(self) -> bool {
        // SAFETY: it exchanges a number in memory that stays mapped.
        unsafe { maitred_rewind_tells(self.0.as_ptr()) }
    }
}

/// Which time it is that [`Rewind::mark`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The first.
    First,
    /// The process has gone back.
    Again,
}

/// A process that can go back.
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
    /// When a second thread runs here, when more descriptors are open than can be kept in mind, or when
    /// the system is out of descriptors or memory.
    pub fn prepare(proc: &OwnProc, image: Image) -> io::Result<Rewind> {
        if proc.threads()? != 1 {
            return Err(io::Error::other(
                "a process that goes back must have one thread",
            ));
        }
        // SAFETY: as in `keep_together`. What comes from now on is taken away anyway, and what was there
        // stays.
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
            maitred_rewind_prepare(
                image.0.as_ptr(),
                &files.numbers(),
                open.as_ptr(),
                open.len(),
            )
        };
        let inner = NonNull::new(inner).ok_or_else(io::Error::last_os_error)?;
        Ok(Rewind {
            inner,
            _files: files,
        })
    }

    /// Sets the mark, and returns; and returns again whenever the process has gone back. It is then
    /// what it was when this returned first, but for what it shares with others, its
    /// [`carried`](Self::carried) numbers and the time.
    ///
    /// # Errors
    /// When it cannot be known what would have to be put back.
    pub fn mark(&self) -> io::Result<Turn> {
        // SAFETY: it returns more than once, each time on a stack and with registers that are those of
        // the first; there is one thread, and nobody holds anything from the time between.
        match unsafe { maitred_rewind_mark(self.inner.as_ptr()) } {
            0 => Ok(Turn::First),
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(Turn::Again),
        }
    }

    /// Goes back to the mark, which has to be set; or says why it does not, in a few words.
    pub fn back(&self) -> String {
        if has_forked() {
            // Pages that a child has too would be taken for some that were not written to.
            return "it has forked".to_owned();
        }
        // SAFETY: all that this process has done since the mark is undone, what it has opened since
        // included, so nothing is left that could point to anything.
        let why = unsafe { maitred_rewind_back(self.inner.as_ptr()) };
        // SAFETY: it is a literal, or lies in memory that stays mapped and ends with a zero.
        unsafe { CStr::from_ptr(why) }
            .to_string_lossy()
            .into_owned()
    }

    /// Numbers that are not put back.
    pub fn carried(&mut self) -> &mut [u64; CARRIED] {
        // SAFETY: there are so many (`REWIND_CARRIED`), and nobody else has them.
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
        let expected = Wiped {
            from: memory,
            to: memory + page,
        };
        assert!(wiped(&smaps).contains(&expected));
        assert!(wiped(&smaps).len() < smaps.lines().count() / 20);
    }
}
