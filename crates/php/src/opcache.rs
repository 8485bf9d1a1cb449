use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::engine::Engine;
pub use crate::raw::opcache::CacheFigures;
use crate::raw::opcache::Compiled;

/// A script in OPcache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedScript {
    /// Its full path.
    pub path: PathBuf,
    /// Its cache hits.
    pub hits: u64,
}

impl Engine {
    /// The scripts in OPcache, most used first: none when there is no OPcache, when it is off, and
    /// when it has no shared memory (`opcache.file_cache_only`). `opcache.restrict_api` and
    /// `disable_functions` hide nothing from the server.
    ///
    /// It is a request to PHP. Call it in a forked child that exits afterwards, after
    /// [`after_fork`](Self::after_fork).
    pub fn cached_scripts(&mut self) -> Vec<CachedScript> {
        let mut scripts = Vec::new();
        let done = self.raw.cached_scripts(&mut |path, hits| {
            scripts.push(CachedScript { path: OsStr::from_bytes(path).into(), hits });
        });
        if !done {
            return Vec::new();
        }
        scripts.sort_by(|a, b| (Reverse(a.hits), &a.path).cmp(&(Reverse(b.hits), &b.path)));
        scripts
    }

    /// The OPcache statistics: `None` when there is no OPcache, when it is off, and when it has no
    /// shared memory.
    ///
    /// It is a request to PHP. Call it in a forked child that exits afterwards, after
    /// [`after_fork`](Self::after_fork).
    pub fn cache_figures(&mut self) -> Option<CacheFigures> {
        self.raw.cache_figures()
    }

    /// Puts scripts into OPcache, in order, each in a request of its own, without executing or
    /// declaring anything. Skipped silently are scripts that are missing, not regular files, do not
    /// compile, are already cached, or do not fit (an eighth of OPcache's memory and keys is
    /// reserved for requests); warnings of compiling scripts are not logged either. Scripts that
    /// depend on `short_open_tag` (with a `<?` that starts neither `<?php` nor `<?=`) are skipped,
    /// too, since the request that includes them may have another setting. `go_on` is called before
    /// each script with the number of compiled scripts, which is also returned. It ends early when
    /// PHP cannot continue, for example when a script exceeds `memory_limit`.
    ///
    /// It may block as long as a script's file system does. Call it in a forked child that exits
    /// afterwards, after [`after_fork`](Self::after_fork).
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

    /// The scripts of `paths` that OPcache may preload, in order: those that declare one class at
    /// their top level and do nothing else. A class that another of the scripts declares as well is
    /// left out, however it does: which of them a request includes is the application's decision.
    /// None where php.ini sets `opcache.preload`, and where not all could be inspected: `go_on` is
    /// called before each, and PHP may be unable to continue.
    ///
    /// Call it in a forked child that exits afterwards, after [`after_fork`](Self::after_fork).
    pub fn preloadable_scripts(
        &mut self,
        paths: &[PathBuf],
        mut go_on: impl FnMut() -> bool,
    ) -> Vec<PathBuf> {
        let (mut alone, mut files) = (Vec::new(), HashMap::<Vec<u8>, usize>::new());
        for path in paths.iter().filter(|path| size_of(path).is_some_and(|bytes| bytes > 0)) {
            let Ok(text) = CString::new(path.as_os_str().as_bytes()) else {
                continue;
            };
            let declared = go_on().then(|| self.raw.declared_classes(&text)).flatten();
            let Some(declared) = declared else {
                return Vec::new();
            };
            let mut names: Vec<&[u8]> = declared.names.split_inclusive(|b| *b == b'\n').collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                *files.entry(name.to_vec()).or_default() += 1;
            }
            if declared.is_alone {
                alone.push((declared.names, path));
            }
        }
        let unique = alone.iter().filter(|(name, _)| files.get(name) == Some(&1));
        unique.map(|(_, path)| (*path).clone()).collect()
    }

    /// Returns the number of classes that PHP has preloaded at its start. From now on, scripts that
    /// outdate one or conflict with one are reported ([`Served::renew`](crate::Served),
    /// [`Served::conflicts`](crate::Served)). Once, before the first request.
    pub fn watch_preloaded(&mut self) -> u32 {
        self.raw.watch_preloaded()
    }

    /// Whether OPcache looks for changes of scripts (`opcache.validate_timestamps`).
    pub fn validates_scripts(&self) -> bool {
        self.raw.validates_scripts()
    }
}

/// Size of a script in bytes; 0 inside an archive. `None` when it is no regular file: opening a
/// FIFO would block until there is a writer.
fn size_of(path: &Path) -> Option<usize> {
    if path.as_os_str().as_bytes().starts_with(b"phar://") {
        return Some(0);
    }
    let metadata = fs::metadata(path).ok()?;
    let is_script = path.is_absolute() && metadata.is_file();
    is_script.then(|| usize::try_from(metadata.len()).unwrap_or(usize::MAX))
}
