//! Limits how many compressed variants of cached pages are created at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use maitred_pagecache::key::Key;

/// The pages that are being compressed, by the keys of the results.
#[derive(Debug, Default)]
pub struct Making(Mutex<Vec<Key>>);

pub(crate) fn lock(making: &Making) -> MutexGuard<'_, Vec<Key>> {
    making.0.lock().unwrap_or_else(PoisonError::into_inner)
}
