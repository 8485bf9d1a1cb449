//! A byte ring in shared memory: one writer, one reader, positions that only grow. The positions
//! themselves are in [`crate::slot_words`]; this module only copies bytes.

use std::marker::PhantomData;
use std::sync::atomic::{Ordering, compiler_fence};

/// The bytes of a ring.
#[derive(Debug, Clone, Copy)]
pub struct Ring<'a> {
    start: *mut u8,
    bytes: usize,
    mapping: PhantomData<&'a u8>,
}

impl<'a> Ring<'a> {
    /// # Safety
    /// `start` must point to `bytes` bytes of mapped memory for `'a`; `bytes` is a power of two.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Ring<'a> {
        debug_assert!(bytes.is_power_of_two());
        Ring { start, bytes, mapping: PhantomData }
    }

    /// The addresses of its bytes.
    #[cfg(test)]
    pub fn place(self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + self.bytes
    }

    /// Size in bytes.
    pub fn capacity(self) -> usize {
        self.bytes
    }

    /// Bytes between two positions; `None` if no correct writer could have reached that position.
    pub fn distance(self, tail: u32, head: u32) -> Option<usize> {
        let distance = head.wrapping_sub(tail) as usize;
        (distance <= self.bytes).then_some(distance)
    }

    /// Copies `from` into the ring at `position`. The caller has checked that it fits.
    pub fn put(self, position: u32, from: &[u8]) {
        assert!(from.len() <= self.bytes, "no more than the ring holds");
        let at = position as usize & (self.bytes - 1);
        let first = from.len().min(self.bytes - at);
        // SAFETY: both parts lie inside the ring (`at + first <= bytes`, the rest from its start
        // and shorter than it); the source is ordinary memory, which cannot overlap a mapping of
        // our own. The other process may read at the same time: it gets some bytes or others and
        // uses none before the position that covers them has been published.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(at), first);
            let rest = from.len() - first;
            std::ptr::copy_nonoverlapping(from.as_ptr().add(first), self.start, rest);
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// Appends `count` bytes from `position` to `to`.
    pub fn take(self, position: u32, count: usize, to: &mut Vec<u8>) {
        assert!(count <= self.bytes, "no more than the ring holds");
        compiler_fence(Ordering::SeqCst);
        to.reserve(count);
        let at = position as usize & (self.bytes - 1);
        let first = count.min(self.bytes - at);
        // SAFETY: as in `put` for the source; the target has `count` bytes reserved past its
        // length, all of which are written before the length covers them. A hostile writer can
        // change the bytes while they are copied; whatever arrives is bytes, and they are parsed
        // only from the copy.
        unsafe {
            let target = to.as_mut_ptr().add(to.len());
            std::ptr::copy_nonoverlapping(self.start.add(at), target, first);
            std::ptr::copy_nonoverlapping(self.start, target.add(first), count - first);
            to.set_len(to.len() + count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in_wherever_the_ring_turns(
            start in any::<u32>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut memory = vec![0u8; 64];
            // SAFETY: the vector is 64 bytes long and outlives the ring.
            let ring = unsafe { Ring::new(memory.as_mut_ptr(), 64) };
            ring.put(start, &bytes);
            let mut out = vec![1, 2];
            ring.take(start, bytes.len(), &mut out);
            prop_assert_eq!(&out[2..], &bytes[..]);
        }
    }

    #[test]
    fn a_head_further_than_the_ring_is_long_is_noticed() {
        let mut memory = vec![0u8; 64];
        // SAFETY: the vector is 64 bytes long and outlives the ring.
        let ring = unsafe { Ring::new(memory.as_mut_ptr(), 64) };
        assert_eq!(ring.distance(u32::MAX, 63), Some(64));
        assert_eq!(ring.distance(0, 65), None);
        assert_eq!(ring.distance(5, 4), None);
    }
}
