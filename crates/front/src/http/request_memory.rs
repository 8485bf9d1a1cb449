//! How much memory the heads of requests in hand may take. A few bytes of HTTP/2 can be a large head
//! (HPACK), and a request may wait for long: for its body, or for a worker.
//!
//! Each connection has a share of its own, so that a flood over some connections has no others refused.
//! What goes beyond that, all connections share, and a request that finds no room there is refused. Of this,
//! clients of one address have a part at most, so that one address cannot have those of others refused.
//! Addresses of which many clients come (`net/client_addresses.rs`) are exempt from that: on a server behind a proxy,
//! everything comes from one.
//!
//! Only a connection that goes beyond its own share takes a lock, and one of sixteen.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::net::client_addresses::Address;

/// Bytes that each connection may hold for its requests in any case: about eleven ordinary ones of HTTP/2.
/// More would need a smaller default of `request_memory`: 200 connections that fill both hold 67 MiB.
const OWN_BYTES: usize = 96 * 1024;
/// Addresses that fill the common memory together: each has one part of so many.
const PARTS: usize = 8;
/// Parts of the addresses' bytes that are locked apart.
const SHARDS: usize = 16;
/// Why a request is refused for which there is no room.
const NO_ROOM: &str = "the requests in hand would hold more than `request_memory` with their heads";
/// Why a request is refused whose address holds too much.
const NO_SHARE: &str = "the requests of its address would hold more than an eighth of \
                        `request_memory` with their heads";

/// What all requests in hand hold.
#[derive(Debug, Default)]
pub struct RequestMemory {
    /// Bytes beyond the connections' own shares. Below zero for a moment if what gives some back is ahead of
    /// what took it.
    common: AtomicIsize,
    /// Most of it (`request_memory`).
    most: AtomicUsize,
    /// The part of it that each address holds.
    by_address: ByAddress,
    refused: AtomicU64,
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    memory: &'a RequestMemory,
    address: Option<Address>,
    bytes: usize,
}

impl RequestMemory {
    /// From now on, connections together may hold so many bytes beyond what each may in any case.
    pub fn limit(&self, bytes: u64) {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.most.store(most, Ordering::Relaxed);
    }

    /// A connection of this address, if that is not exempt, holds `after` bytes in place of `before`. They are
    /// counted in any case: a caller for which there is no room gives them back with
    /// [`RequestMemory::shrink`]. So the steps of a connection always add up to what it holds.
    ///
    /// # Errors
    /// Why there is no room.
    pub fn grow(
        &self,
        address: Option<Address>,
        before: usize,
        after: usize,
    ) -> Result<(), &'static str> {
        let more = beyond(after) - beyond(before);
        if more <= 0 {
            return Ok(());
        }
        let most = self.most.load(Ordering::Relaxed);
        let all = self.common.fetch_add(more, Ordering::Relaxed) + more;
        let own = address.map_or(0, |address| self.by_address.add(address, more));
        if own > bounded(most / PARTS) {
            return Err(NO_SHARE);
        }
        match all > bounded(most) {
            true => Err(NO_ROOM),
            false => Ok(()),
        }
    }

    /// A connection of this address holds `after` bytes in place of `before`, which were more.
    pub fn shrink(&self, address: Option<Address>, before: usize, after: usize) {
        let less = beyond(before) - beyond(after);
        if less > 0 {
            self.common.fetch_sub(less, Ordering::Relaxed);
            if let Some(address) = address {
                self.by_address.add(address, -less);
            }
        }
    }

    /// Counts `bytes` of the only request of a connection. Its address is asked for only if it matters.
    ///
    /// # Errors
    /// Why there is no room.
    pub fn hold(
        &self,
        bytes: usize,
        address: impl FnOnce() -> Option<Address>,
    ) -> Result<Held<'_>, &'static str> {
        let held = Held {
            memory: self,
            address: if beyond(bytes) > 0 { address() } else { None },
            bytes,
        };
        // What is counted and refused is given back as it is dropped.
        self.grow(held.address, 0, bytes).map(|()| held)
    }

    /// A request was refused because there is no room.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes that connections hold beyond what each may in any case.
    pub fn common_bytes(&self) -> usize {
        let bytes = self.common.load(Ordering::Relaxed);
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Requests that were refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.memory.shrink(self.address, self.bytes, 0);
    }
}

/// Bytes that addresses hold. Who holds none is not remembered.
#[derive(Debug, Default)]
struct ByAddress {
    hasher: RandomState,
    shards: [Mutex<HashMap<Address, isize>>; SHARDS],
}

impl ByAddress {
    /// An address holds so many bytes more. Returns how many that makes.
    fn add(&self, address: Address, more: isize) -> isize {
        let hash = self.hasher.hash_one(address);
        let shard = &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        match shard.entry(address) {
            Entry::Vacant(entry) => *entry.insert(more),
            Entry::Occupied(mut entry) => {
                *entry.get_mut() += more;
                let bytes = *entry.get();
                if bytes == 0 {
                    entry.remove();
                }
                bytes
            }
        }
    }
}

/// Those of a connection's bytes that are beyond its own share.
fn beyond(bytes: usize) -> isize {
    bounded(bytes.saturating_sub(OWN_BYTES))
}

fn bounded(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

#[cfg(test)]
mod tests {
    use maitred_rules::networks::Networks;

    use super::*;

    const COMMON_BYTES: usize = 64 * 1024 * 1024;
    const PART_BYTES: usize = COMMON_BYTES / PARTS;

    fn memory() -> RequestMemory {
        let memory = RequestMemory::default();
        memory.limit(COMMON_BYTES as u64);
        memory
    }

    fn address(text: &str) -> Option<Address> {
        Address::of(text.parse().unwrap(), &Networks::default())
    }

    fn addresses(memory: &RequestMemory) -> usize {
        let shards = memory.by_address.shards.iter();
        shards.map(|shard| shard.lock().unwrap().len()).sum()
    }

    #[test]
    fn what_each_connection_may_hold_in_any_case_is_not_counted() {
        let (memory, client) = (memory(), address("192.0.2.1"));
        assert!(memory.grow(client, 0, OWN_BYTES).is_ok());
        assert_eq!((memory.common_bytes(), addresses(&memory)), (0, 0));
        assert!(memory.grow(client, OWN_BYTES, OWN_BYTES + 7).is_ok());
        assert_eq!((memory.common_bytes(), addresses(&memory)), (7, 1));
        memory.shrink(client, OWN_BYTES + 7, OWN_BYTES - 1);
        assert_eq!((memory.common_bytes(), addresses(&memory)), (0, 0));
    }

    #[test]
    fn one_too_many_is_refused_and_the_others_go_on() {
        let memory = memory();
        let most = memory.hold(OWN_BYTES + COMMON_BYTES, || None);
        assert!(most.is_ok());
        assert_eq!(memory.hold(OWN_BYTES + 1, || None).err(), Some(NO_ROOM));
        assert!(memory.hold(OWN_BYTES, || None).is_ok());
        drop(most);
        assert_eq!(memory.common_bytes(), 0);
        assert!(memory.hold(OWN_BYTES + 1, || None).is_ok());
    }

    #[test]
    fn an_address_holds_its_part_and_no_more_and_others_theirs() {
        let (memory, one) = (memory(), || address("192.0.2.1"));
        let part = memory.hold(OWN_BYTES + PART_BYTES, one);
        assert!(part.is_ok());
        assert_eq!(memory.hold(OWN_BYTES + 1, one).err(), Some(NO_SHARE));
        assert_eq!(memory.common_bytes(), PART_BYTES);
        for other in ["192.0.2.2", "2001:db8::1", "2001:db8:0:1::1"] {
            let other = memory.hold(OWN_BYTES + PART_BYTES, || address(other));
            assert!(other.is_ok());
        }
        let network = memory.hold(OWN_BYTES + PART_BYTES, || address("2001:db8::1"));
        let neighbour = memory.hold(OWN_BYTES + 1, || address("2001:db8::2"));
        assert_eq!(neighbour.err(), Some(NO_SHARE));
        drop((part, network));
        assert_eq!((memory.common_bytes(), addresses(&memory)), (0, 0));
        assert!(memory.hold(OWN_BYTES + 1, one).is_ok());
    }

    #[test]
    fn steps_out_of_order_add_up() {
        let (memory, client) = (memory(), address("192.0.2.1"));
        memory.shrink(client, OWN_BYTES + 9, OWN_BYTES);
        assert_eq!(memory.common_bytes(), 0);
        assert!(memory.grow(client, OWN_BYTES, OWN_BYTES + 9).is_ok());
        assert_eq!((memory.common_bytes(), addresses(&memory)), (0, 0));
    }
}
