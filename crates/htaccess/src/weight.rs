//! The memory of configurations and requests, roughly.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What an allocation takes besides its content, in bytes.
const ALLOCATION_BYTES: usize = 16;

/// Whether values behind an `Arc` count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// They count.
    Counts,
    /// They do not: they belong to the configuration of a directory.
    DoesNot,
}

/// A value with memory of its own.
pub trait Weight {
    /// The bytes outside of the value itself.
    fn heap(&self, shared: Shared) -> usize;
}

/// Values without such memory.
macro_rules! weightless {
    ($($type:ty),*) => {
        $(impl $crate::weight::Weight for $type {
            fn heap(&self, _: $crate::weight::Shared) -> usize {
                0
            }
        })*
    };
}

/// The memory of a struct is that of these fields.
macro_rules! weight_of {
    ($type:ty: $($field:ident),*) => {
        impl $crate::weight::Weight for $type {
            fn heap(&self, shared: $crate::weight::Shared) -> usize {
                0 $(+ $crate::weight::Weight::heap(&self.$field, shared))*
            }
        }
    };
}
pub(crate) use {weight_of, weightless};

weightless!(u8, u16, usize);

impl<T: Weight> Weight for Vec<T> {
    fn heap(&self, shared: Shared) -> usize {
        let own = self.len() * size_of::<T>() + ALLOCATION_BYTES;
        own + self.iter().map(|one| one.heap(shared)).sum::<usize>()
    }
}

impl<T: Weight> Weight for Option<T> {
    fn heap(&self, shared: Shared) -> usize {
        self.as_ref().map_or(0, |own| own.heap(shared))
    }
}

impl<T: Weight> Weight for Box<T> {
    fn heap(&self, shared: Shared) -> usize {
        size_of::<T>() + ALLOCATION_BYTES + (**self).heap(shared)
    }
}

impl<T: Weight> Weight for Arc<T> {
    fn heap(&self, shared: Shared) -> usize {
        match shared {
            Shared::Counts => size_of::<T>() + 2 * ALLOCATION_BYTES + (**self).heap(shared),
            Shared::DoesNot => 0,
        }
    }
}

impl<K: Weight, V: Weight> Weight for BTreeMap<K, V> {
    fn heap(&self, shared: Shared) -> usize {
        let one = |(key, value): (&K, &V)| {
            size_of::<K>() + size_of::<V>() + key.heap(shared) + value.heap(shared)
        };
        // Nodes are half full at worst.
        2 * self.iter().map(one).sum::<usize>()
    }
}
