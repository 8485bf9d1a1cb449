//! A cached page's body. A large one is in a memfd, from which the kernel sends it without a copy
//! for each client; a small one is sent faster from the heap.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use maitred_budget::BudgetPart;
use maitred_os::sealed::Sealed;
use maitred_os::shared::page_bytes;

/// Smallest body in bytes that is stored in a memfd and sent from it: smaller ones the kernel
/// copies faster than it finds their pages (docs/decisions/0009-page-cache.md).
pub const FILE_LEAST_BYTES: usize = 48 * 1024;

/// Kernel memory of a memfd beside its content, in bytes: inode, name, page table.
const FILE_OVERHEAD_BYTES: usize = 3 * 1024;

/// The memfds' name in `/proc/PID/maps`.
const NAME: &str = "cached page";

/// A cached page's body; clones share it.
#[derive(Debug, Clone)]
pub struct Body {
    bytes: Bytes,
    held: Option<Arc<HeldBody>>,
}

impl Body {
    /// Its memfd, which contains exactly the body, if it has one.
    pub fn file(&self) -> Option<&OwnedFd> {
        match &self.held.as_ref()?.content {
            HeldContent::Memfd(sealed, _) => Some(sealed.file()),
            HeldContent::Heap(_) => None,
        }
    }

    /// Its approximate size in memory, in bytes.
    pub fn weight(&self) -> usize {
        match self.file() {
            None => self.bytes.len(),
            Some(_) => weight_in_file(self.bytes.len()),
        }
    }

    /// The body as one whose readers can be charged.
    pub(crate) fn into_held(self) -> Body {
        match self.held {
            None if !self.bytes.is_empty() => Body::of(HeldContent::Heap(self.bytes)),
            _ => self,
        }
    }

    /// What its readers have, if they can be charged.
    pub(crate) fn held(&self) -> Option<Arc<HeldBody>> {
        self.held.clone()
    }

    fn of(content: HeldContent) -> Body {
        let held = Arc::new(HeldBody { content, account: Mutex::default() });
        Body { bytes: Bytes::from_owner(HeldBytes(held.clone())), held: Some(held) }
    }
}

/// What all that read a body have in common.
#[derive(Debug)]
pub(crate) struct HeldBody {
    content: HeldContent,
    account: Mutex<BodyAccount>,
}

#[derive(Debug, Default)]
struct BodyAccount {
    /// Pages in the memory tier that have the body.
    places: usize,
    /// Its memory outside the memory tier.
    charge: Option<BudgetPart>,
}

#[derive(Debug)]
enum HeldContent {
    Heap(Bytes),
    /// A memfd, counted in [`Files`].
    Memfd(Sealed, #[expect(dead_code, reason = "it is given back on drop")] FilePermit),
}

impl HeldBody {
    /// Counts a page in the memory tier, which has the memory of the body in its own account.
    pub(crate) fn enter_tier(&self) {
        let mut account = self.account();
        account.places += 1;
        account.charge = None;
    }

    /// Counts a page that is no longer in the memory tier. If it was the last one, and clients
    /// read the body, `charge` is for its memory until they have.
    pub(crate) fn leave_tier(self: Arc<HeldBody>, charge: impl FnOnce() -> BudgetPart) {
        let mut account = self.account();
        account.places = account.places.saturating_sub(1);
        // A body without a page in the tier gets no new readers.
        if account.places == 0 && Arc::strong_count(&self) > 1 {
            account.charge = Some(charge());
        }
    }

    /// Counts its memory until its last reader has gone.
    pub(crate) fn set_charge(&self, charge: Option<BudgetPart>) {
        self.account().charge = charge;
    }

    fn account(&self) -> MutexGuard<'_, BodyAccount> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Approximate memory of a body in a memfd, in bytes.
pub fn weight_in_file(bytes: usize) -> usize {
    let page = usize::try_from(page_bytes()).unwrap_or(1);
    bytes.next_multiple_of(page) + FILE_OVERHEAD_BYTES
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body { bytes, held: None }
    }
}

impl Deref for Body {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// Limits the number of memfds.
#[derive(Debug, Clone)]
pub struct Files {
    left: Arc<AtomicUsize>,
}

impl Files {
    /// At most `most` memfds.
    pub fn new(most: usize) -> Files {
        Files { left: Arc::new(AtomicUsize::new(most)) }
    }

    /// Moves a large body into a memfd. If the limit or the descriptors are exhausted, it stays on
    /// the heap.
    pub fn into_memfd(&self, body: Body) -> Body {
        if body.file().is_some() || body.len() < FILE_LEAST_BYTES {
            return body;
        }
        let Some(permit) = self.permit() else {
            return body;
        };
        let Ok(sealed) = Sealed::copy(NAME, &body) else {
            return body;
        };
        Body::of(HeldContent::Memfd(sealed, permit))
    }

    fn permit(&self) -> Option<FilePermit> {
        let less = |left: usize| left.checked_sub(1);
        let left = &self.left;
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        Some(FilePermit(left.clone()))
    }
}

#[derive(Debug)]
struct FilePermit(Arc<AtomicUsize>);

impl Drop for FilePermit {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The bytes of a body, as long as there is a reader.
struct HeldBytes(Arc<HeldBody>);

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        match &self.0.content {
            HeldContent::Heap(bytes) => bytes,
            HeldContent::Memfd(sealed, _) => sealed.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: usize) -> Body {
        let bytes: Vec<u8> = (0..bytes).map(|number| number as u8).collect();
        Body::from(Bytes::from(bytes))
    }

    fn in_file(body: &Body) -> Option<Vec<u8>> {
        let mut read = vec![0; body.len() + 1];
        let count = rustix::io::pread(body.file()?, &mut read, 0).unwrap();
        read.truncate(count);
        Some(read)
    }

    #[test]
    fn a_large_body_is_in_a_file_and_a_small_one_is_not() {
        let files = Files::new(10);
        let small = files.into_memfd(body(FILE_LEAST_BYTES - 1));
        assert!(small.file().is_none());
        let large = files.into_memfd(body(FILE_LEAST_BYTES));
        assert_eq!(large[..], body(FILE_LEAST_BYTES)[..]);
        assert_eq!(in_file(&large).unwrap(), large[..]);
        assert!(large.weight() > large.len());
    }

    #[test]
    fn there_are_no_more_files_than_there_may_be_and_each_is_given_back() {
        let files = Files::new(2);
        let kept = [0; 3].map(|_| files.into_memfd(body(FILE_LEAST_BYTES)));
        let with_file = kept.iter().filter(|body| body.file().is_some());
        assert_eq!(with_file.count(), 2);
        let [first, second, third] = kept;
        drop((second, third));
        let again = files.into_memfd(body(FILE_LEAST_BYTES));
        assert!(again.file().is_some(), "the others have gone");
        let shared = files.into_memfd(first.clone());
        assert!(shared.file().is_some(), "it has one already");
        drop((first, again));
        assert_eq!(files.left.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn who_reads_a_body_has_it_also_when_it_is_not_kept_any_more() {
        let files = Files::new(1);
        let large = files.into_memfd(body(FILE_LEAST_BYTES));
        let part = large.slice(1000..2000);
        drop(large);
        assert_eq!(part[..], body(FILE_LEAST_BYTES)[1000..2000]);
        assert_eq!(files.left.load(Ordering::Relaxed), 0);
        drop(part);
        assert_eq!(files.left.load(Ordering::Relaxed), 1);
    }
}
