//! PHP's cache of real paths (`realpath_cache_size`): each worker has its own.

use serde::{Deserialize, Serialize};

/// That of the worker that uses most of it, as the workers report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealpathCache {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Its size in bytes. With `open_basedir`, PHP uses none of it.
    pub limit_bytes: u64,
}
