//! Limits how many compressed variants of cached pages are created at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use maitred_pagecache::key::Key;

/// The pages that are being compressed, by the keys of the results.
#[derive(Debug, Default)]
pub struct CompressingKeys(Mutex<Vec<Key>>);

pub(crate) fn lock(compressing: &CompressingKeys) -> MutexGuard<'_, Vec<Key>> {
    compressing.0.lock().unwrap_or_else(PoisonError::into_inner)
}
