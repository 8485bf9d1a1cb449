//! OPcache's lock for reading in shared memory: the interface of `shim/opcache_lock.c`.

use std::ffi::c_int;
use std::fs;
use std::os::fd::RawFd;

use super::RawEngine;

unsafe extern "C" {
    fn maitred_php_share_opcache_lock(file: c_int, workers: u32) -> bool;
    fn maitred_php_take_opcache_lock(worker: u32);
}

/// The name of OPcache's lock file in its folder begins like this (`SEM_FILENAME_PREFIX` in
/// `zend_shared_alloc.c`). The file is removed as soon as it is open.
const LOCK_FILE: &str = "/.ZendSem.";

/// What proc(5) adds to the path of a removed file.
const REMOVED: &str = " (deleted)";

impl RawEngine {
    pub(crate) fn share_opcache_lock(&mut self, workers: u32) -> bool {
        // Without a file there is no OPcache, or its memory is not shared.
        let Some(file) = lock_file() else {
            return false;
        };
        // SAFETY: PHP is started, and no request runs. C replaces a function that OPcache imports
        // by one that does the same for every descriptor but this one. The caller is the only
        // thread: PHP has one.
        unsafe { maitred_php_share_opcache_lock(file, workers) }
    }

    pub(crate) fn take_opcache_lock(&mut self, worker: u32) {
        // SAFETY: as above; C checks the number.
        unsafe { maitred_php_take_opcache_lock(worker) }
    }
}

/// The descriptor of OPcache's lock file, if there is exactly one.
fn lock_file() -> Option<RawFd> {
    let mut found = None;
    for open in fs::read_dir("/proc/self/fd").ok()?.flatten() {
        let target = fs::read_link(open.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        if target.contains(LOCK_FILE) && target.ends_with(REMOVED) {
            let number = open.file_name().to_str()?.parse().ok()?;
            if found.replace(number).is_some() {
                return None;
            }
        }
    }
    found
}
