//! Limits the memory of requests in progress: headers, bodies without a file, and what is encoded
//! for a worker. A few bytes of HTTP/2 can be a large header (HPACK), and a request may wait for
//! long: for its body, or for a worker.
//!
//! Each connection has a share of its own, so that a flood over some connections causes no refusal
//! on others. All connections share the memory beyond that; a request that exceeds it is refused.
//! Clients of one address may use a part of it at most, so that one address causes no refusal for
//! others. Addresses shared by many clients (`net/client_addresses.rs`) are exempt: behind a proxy,
//! all requests come from one address.
//!
//! Only a connection beyond its own share takes a lock, and one of sixteen.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::net::client_addresses::Address;

/// Bytes that each connection may hold for its requests in any case: about eleven ordinary ones of
/// HTTP/2. A larger value would need a smaller default of `request_memory`: 200 connections that
/// fill both hold 67 MiB.
const OWN_BYTES: usize = 96 * 1024;
/// The common memory divided by the share of one address.
const PARTS: usize = 8;
/// The memory divided by the part of it that bodies may use. A body beyond it is written to a file;
/// a header would be refused.
const BODY_PARTS: usize = 2;
/// Shards of the addresses' counters, each with its lock.
const SHARDS: usize = 16;
/// Why a request is refused when the common memory is used up.
const NO_ROOM: &str = "all requests in progress would exceed `request_memory`";
/// Why a request is refused when the share of its address is used up.
const NO_SHARE: &str = "its address's requests would exceed an eighth of `request_memory`";

/// The memory of all requests in progress.
#[derive(Debug, Default)]
pub struct RequestMemory {
    /// Bytes beyond the connections' own shares. Briefly below zero if a release overtakes its
    /// allocation.
    common: AtomicIsize,
    /// Its limit (`request_memory`).
    most: AtomicUsize,
    /// The share of each address.
    by_address: ByAddress,
    refused: AtomicU64,
}

/// Bytes that are accounted for until drop.
#[derive(Debug)]
pub struct HeldMemory<'a> {
    memory: &'a RequestMemory,
    address: Option<Address>,
    growth: MemoryGrowth,
}

/// The growth of what a connection holds.
#[derive(Debug, Clone, Copy)]
pub struct MemoryGrowth {
    /// Bytes that it holds already.
    pub before: usize,
    /// Bytes in addition.
    pub more: usize,
}

impl RequestMemory {
    /// Sets the limit in bytes for all connections together, beyond each connection's share.
    pub fn limit(&self, bytes: u64) {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.most.store(most, Ordering::Relaxed);
    }

    /// The size of each of `parts` equal parts of the limit, in bytes.
    pub fn part(&self, parts: usize) -> usize {
        self.most.load(Ordering::Relaxed) / parts
    }

    /// Accounts for growth from `before` to `after` bytes of a connection of this address, if the
    /// address is not exempt. The bytes count even on an error: the caller releases them with
    /// [`RequestMemory::shrink`]. So the steps of a connection always add up to what it holds.
    ///
    /// # Errors
    /// Which limit is exceeded.
    pub fn grow(
        &self,
        address: Option<Address>,
        before: usize,
        after: usize,
    ) -> Result<(), &'static str> {
        self.add(address, beyond(after) - beyond(before), 1)
    }

    /// As [`RequestMemory::grow`], for bytes of bodies, which may use a part of the memory.
    ///
    /// # Errors
    /// Which limit is exceeded.
    pub fn grow_body(
        &self,
        address: Option<Address>,
        before: usize,
        after: usize,
    ) -> Result<(), &'static str> {
        self.add(address, beyond(after) - beyond(before), BODY_PARTS)
    }

    /// Adds bytes beyond connections' own shares, of which there may be one of `parts` of the
    /// limits.
    fn add(&self, address: Option<Address>, more: isize, parts: usize) -> Result<(), &'static str> {
        if more <= 0 {
            return Ok(());
        }
        let most = self.part(parts);
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

    /// Accounts for a release from `before` to `after` bytes of a connection of this address.
    pub fn shrink(&self, address: Option<Address>, before: usize, after: usize) {
        let less = beyond(before) - beyond(after);
        if less > 0 {
            self.common.fetch_sub(less, Ordering::Relaxed);
            if let Some(address) = address {
                self.by_address.add(address, -less);
            }
        }
    }

    /// Accounts for `bytes` of a connection's only request. Its address is computed only if needed.
    ///
    /// # Errors
    /// Which limit is exceeded.
    pub fn hold(
        &self,
        bytes: usize,
        address: impl FnOnce() -> Option<Address>,
    ) -> Result<HeldMemory<'_>, &'static str> {
        self.hold_more(MemoryGrowth { before: 0, more: bytes }, address)
    }

    /// Accounts for more bytes of a connection's only request. Its address is computed only if
    /// needed.
    ///
    /// # Errors
    /// Which limit is exceeded.
    pub fn hold_more(
        &self,
        growth: MemoryGrowth,
        address: impl FnOnce() -> Option<Address>,
    ) -> Result<HeldMemory<'_>, &'static str> {
        let address = if beyond(growth.after()) > 0 { address() } else { None };
        let held = HeldMemory { memory: self, address, growth };
        // Refused bytes are released by drop.
        self.grow(address, growth.before, growth.after()).map(|()| held)
    }

    /// Counts a refused request.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes in use beyond the shares of connections.
    pub fn common_bytes(&self) -> usize {
        let bytes = self.common.load(Ordering::Relaxed);
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Requests refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for HeldMemory<'_> {
    fn drop(&mut self) {
        self.memory.shrink(self.address, self.growth.after(), self.growth.before);
    }
}

impl MemoryGrowth {
    fn after(self) -> usize {
        self.before + self.more
    }
}

/// Bytes of its own share that are left to a connection that holds `held`.
pub fn own_bytes_left(held: usize) -> usize {
    OWN_BYTES.saturating_sub(held)
}

/// Bytes that addresses hold. Addresses without any are not stored.
#[derive(Debug, Default)]
struct ByAddress {
    hasher: RandomState,
    shards: [Mutex<HashMap<Address, isize>>; SHARDS],
}

impl ByAddress {
    /// Adds bytes of an address. Returns its sum.
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

/// The bytes of a connection beyond its own share.
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
    fn bodies_leave_half_of_the_memory_to_headers() {
        let (memory, client) = (memory(), address("192.0.2.1"));
        let half = OWN_BYTES + COMMON_BYTES / 2;
        assert!(memory.grow_body(None, 0, half).is_ok());
        assert_eq!(memory.grow_body(None, half, half + 1), Err(NO_ROOM));
        assert!(memory.hold(OWN_BYTES + PART_BYTES, || client).is_ok());
        memory.shrink(None, half + 1, 0);
        let of_address = OWN_BYTES + PART_BYTES / 2;
        assert!(memory.grow_body(client, 0, of_address).is_ok());
        assert_eq!(memory.grow_body(client, of_address, of_address + 1), Err(NO_SHARE));
    }

    #[test]
    fn what_is_held_beside_a_header_has_no_share_of_its_own() {
        let memory = memory();
        let more = memory.hold_more(MemoryGrowth { before: OWN_BYTES - 3, more: 10 }, || None);
        assert_eq!(memory.common_bytes(), 7);
        drop(more);
        assert_eq!(memory.common_bytes(), 0);
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
