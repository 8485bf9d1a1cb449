//! libphp's machine code in this process: the interface of `shim/text.c`.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::slice;

/// Where libphp is in memory. `shim.h` has the same struct.
#[derive(Debug)]
#[repr(C)]
struct RawLibrary {
    base: usize,
    end: usize,
    code: usize,
    code_bytes: usize,
    constant: usize,
    constant_bytes: usize,
    build_id: *const u8,
    build_id_bytes: usize,
}

unsafe extern "C" {
    fn maitred_php_library(library: *mut RawLibrary);
    fn maitred_php_replace_text(start: usize, bytes: usize, file: c_int) -> bool;
    fn maitred_php_join_pages(file: c_int, bytes: usize);
}

/// libphp as the dynamic linker has loaded it. Addresses are relative to its base.
#[derive(Debug)]
pub(crate) struct Library {
    raw: RawLibrary,
}

impl Library {
    /// The loaded libphp, if it has code, a build id and read-only data.
    pub(crate) fn loaded() -> Option<Library> {
        let mut raw = RawLibrary {
            base: 0,
            end: 0,
            code: 0,
            code_bytes: 0,
            constant: 0,
            constant_bytes: 0,
            build_id: std::ptr::null(),
            build_id_bytes: 0,
        };
        // SAFETY: `raw` is laid out as C wants it and outlives the call.
        unsafe { maitred_php_library(&raw mut raw) };
        let is_usable = raw.code_bytes > 0
            && !raw.build_id.is_null()
            && raw.constant_bytes > 0
            && raw.constant.is_multiple_of(size_of::<usize>());
        is_usable.then_some(Library { raw })
    }

    /// Its machine code: the largest of its executable segments.
    pub(crate) fn code(&self) -> &[u8] {
        // SAFETY: the dynamic linker has mapped this segment readable, nothing writes to it, and
        // libphp is never unloaded: this program is linked with it.
        unsafe {
            let start = (self.raw.base + self.raw.code) as *const u8;
            slice::from_raw_parts(start, self.raw.code_bytes)
        }
    }

    /// Address of the first byte of its code.
    pub(crate) fn code_start(&self) -> u64 {
        self.raw.code as u64
    }

    /// The end of its last segment.
    pub(crate) fn end(&self) -> u64 {
        self.raw.end as u64
    }

    /// Its GNU build id.
    pub(crate) fn build_id(&self) -> &[u8] {
        // SAFETY: as for `code`; `loaded` has checked the pointer, and C has found as many bytes.
        unsafe { slice::from_raw_parts(self.raw.build_id, self.raw.build_id_bytes) }
    }

    /// The value at an address of the data that is read-only since relocation, relative to the
    /// base; `None` if the address is outside that data, or the value outside the library.
    pub(crate) fn constant_at(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address).ok()?.checked_sub(self.raw.constant)?;
        let fits = offset.is_multiple_of(size_of::<usize>())
            && offset + size_of::<usize>() <= self.raw.constant_bytes;
        if !fits {
            return None;
        }
        // SAFETY: as for `code`: an aligned word within a readable segment, which nothing writes to
        // once relocation is done, as it is before a program's first function runs.
        let value = unsafe { *((self.raw.base + self.raw.constant + offset) as *const usize) };
        let value = value.checked_sub(self.raw.base)?;
        (value < self.raw.end).then_some(value as u64)
    }

    /// Replaces the code by the start of `file`. False leaves it unchanged.
    ///
    /// # Safety
    /// The file has code that behaves as this one, instruction for instruction, and nothing can
    /// change the file any more.
    pub(crate) unsafe fn replace_code(&self, file: &File) -> bool {
        let start = self.raw.base + self.raw.code;
        // SAFETY: the mapping is replaced in one step, at the same address, by equal code: that is
        // the caller's promise. No reference into the old mapping continues to be used: `code`
        // borrows the library for each use, and equal bytes would be found there.
        unsafe { maitred_php_replace_text(start, self.raw.code_bytes, file.as_raw_fd()) }
    }
}

/// Has the kernel join the pages of an anonymous file, where it can.
pub(crate) fn join_pages(file: &File, bytes: usize) {
    // SAFETY: C maps the file at an address of its own choice, and unmaps it.
    unsafe { maitred_php_join_pages(file.as_raw_fd(), bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_stays_where_a_file_cannot_be_mapped() {
        let library = Library::loaded().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write_only = File::create(folder.path().join("code")).unwrap();
        // SAFETY: nothing is mapped from a file that cannot be read.
        assert!(!unsafe { library.replace_code(&write_only) });
        assert!(library.code().iter().any(|byte| *byte != 0));
    }
}
