use std::cmp::Reverse;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::engine::Engine;
pub use crate::raw::cache::CacheFigures;
use crate::raw::cache::Compiled;

/// A script that OPcache holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedScript {
    /// Its full path.
    pub path: PathBuf,
    /// How often it was found in the cache.
    pub hits: u64,
}

impl Engine {
    /// What OPcache holds, most used first: nothing when there is no OPcache, when it is off, and
    /// when it has no shared memory (`opcache.file_cache_only`). `opcache.restrict_api` and
    /// `disable_functions` hide nothing from the server.
    ///
    /// It is a request to PHP. Call it in a forked child that ends afterwards, after
    /// [`after_fork`](Self::after_fork).
    pub fn cached_scripts(&mut self) -> Vec<CachedScript> {
        let mut scripts = Vec::new();
        let done = self.raw.cached_scripts(&mut |path, hits| {
            scripts.push(CachedScript {
                path: OsStr::from_bytes(path).into(),
                hits,
            });
        });
        if !done {
            return Vec::new();
        }
        scripts.sort_by(|a, b| (Reverse(a.hits), &a.path).cmp(&(Reverse(b.hits), &b.path)));
        scripts
    }

    /// How OPcache is doing: nothing when there is none, when it is off, and when it has no shared
    /// memory.
    ///
    /// It is a request to PHP. Call it in a forked child that ends afterwards, after
    /// [`after_fork`](Self::after_fork).
    pub fn cache_figures(&mut self) -> Option<CacheFigures> {
        self.raw.cache_figures()
    }

    /// Puts scripts into OPcache, in their order, each in a request of its own: nothing of them is
    /// executed, and nothing they declare stays declared. A script that is gone, is no file, does
    /// not compile, or that OPcache holds already or has no room for (an eighth of its memory and
    /// keys is left to requests) is passed over in silence; what a script that compiles makes PHP
    /// warn of is not said either. One that `short_open_tag` makes a difference to (it has a `<?` that
    /// begins neither `<?php` nor `<?=`) is passed over, too, since that may be another for the
    /// request that will include it. `go_on` is asked before each with the number of scripts that
    /// were put there, which is also returned. It ends early when PHP cannot go on, as when one of
    /// them needs more than `memory_limit`.
    ///
    /// A script can make the call wait for as long as its file system does. Call it in a forked
    /// child that ends afterwards, after [`after_fork`](Self::after_fork).
    pub fn compile_scripts(
        &mut self,
        paths: &[PathBuf],
        mut go_on: impl FnMut(usize) -> bool,
    ) -> usize {
        let mut compiled = 0;
        for path in paths {
            if !go_on(compiled) {
                break;
            }
            let Some(bytes) = size_of(path) else {
                continue;
            };
            let Ok(path) = CString::new(path.clone().into_os_string().into_vec()) else {
                continue;
            };
            match self.raw.compile_script(&path, bytes) {
                Compiled::Yes => compiled += 1,
                Compiled::PassedOver => {}
                Compiled::Exhausted => break,
            }
        }
        compiled
    }
}

/// Bytes of a script; 0 when it lies in an archive. Nothing when there is no such file: opening a
/// pipe would wait for somebody to write to it.
fn size_of(path: &Path) -> Option<usize> {
    if path.as_os_str().as_bytes().starts_with(b"phar://") {
        return Some(0);
    }
    let metadata = fs::metadata(path).ok()?;
    let is_script = path.is_absolute() && metadata.is_file();
    is_script.then(|| usize::try_from(metadata.len()).unwrap_or(usize::MAX))
}
