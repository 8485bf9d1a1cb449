//! Pages from disk that have no place in memory: one copy of each, for all that read it at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use maitred_pagecache::key::Key;

use crate::object::Object;

/// Pages from which on those without a reader are forgotten.
const FORGET_FROM: usize = 64;

/// The pages that are being read.
#[derive(Debug, Default)]
pub struct SharedReads(Mutex<ReadTable>);

#[derive(Debug, Default)]
struct ReadTable {
    places: HashMap<Key, Arc<ReadPlace>>,
    /// Pages that remained when those without a reader were last forgotten.
    remaining: usize,
}

/// The place of a page: the thread that locks it reads the page, if there is no copy.
#[derive(Debug, Default)]
pub struct ReadPlace(Mutex<Weak<Object>>);

impl SharedReads {
    /// The place of the page with this key.
    pub fn place(&self, key: &Key) -> Arc<ReadPlace> {
        let mut table = self.lock();
        if let Some(place) = table.places.get(key) {
            return place.clone();
        }
        if table.places.len() >= FORGET_FROM.max(2 * table.remaining) {
            table.places.retain(|_, place| Arc::strong_count(place) > 1 || place.has_copy());
            table.remaining = table.places.len();
        }
        table.places.entry(key.clone()).or_default().clone()
    }

    /// Has the next reader read the page again: there is another one on disk, or none.
    pub fn forget(&self, key: &Key) {
        self.lock().places.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, ReadTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadPlace {
    /// The copy that others have, or the page that `read` returns. Blocks while another thread
    /// reads it.
    pub fn copy_or<E>(
        &self,
        read: impl FnOnce() -> Result<Arc<Object>, E>,
    ) -> Result<Arc<Object>, E> {
        let mut copy = self.lock();
        if let Some(page) = copy.upgrade() {
            return Ok(page);
        }
        let page = read()?;
        *copy = Arc::downgrade(&page);
        Ok(page)
    }

    fn has_copy(&self) -> bool {
        self.lock().strong_count() > 0
    }

    fn lock(&self) -> MutexGuard<'_, Weak<Object>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::{key, page};

    #[test]
    fn all_that_read_a_page_have_one_copy_until_it_is_another_page() {
        let reads = SharedReads::default();
        let read = |body: &str| {
            let read = || Ok::<_, ()>(Arc::new(page("/a", &[], 0, body.as_bytes())));
            reads.place(&key("a")).copy_or(read).unwrap()
        };
        let first = read("first");
        assert!(Arc::ptr_eq(&first, &read("second")));
        reads.forget(&key("a"));
        let second = read("second");
        assert_eq!(second.body[..], b"second"[..]);
        drop((first, second));
        assert_eq!(read("third").body[..], b"third"[..]);
        assert_eq!(reads.place(&key("b")).copy_or(|| Err(7)).unwrap_err(), 7);
    }

    #[test]
    fn pages_without_a_reader_are_forgotten() {
        let reads = SharedReads::default();
        let read = |number: usize| {
            let page = || Ok::<_, ()>(Arc::new(page("/a", &[], 0, b"body")));
            reads.place(&key(&number.to_string())).copy_or(page).unwrap()
        };
        let in_use: Vec<_> = (0..FORGET_FROM).map(read).collect();
        for number in 0..10 * FORGET_FROM {
            read(number);
        }
        assert!(reads.lock().places.len() <= 2 * FORGET_FROM);
        assert!(in_use.iter().enumerate().all(|(at, page)| Arc::ptr_eq(page, &read(at))));
    }
}
