//! OPcache's memory as this process has it mapped.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

unsafe extern "C" {
    fn maitred_php_opcache_address() -> *const c_void;
}

/// Bytes that are read at once.
const WORD_BYTES: usize = size_of::<u64>();

/// The memory that OPcache shares between a process and its forks, for reading.
#[derive(Debug)]
pub struct OpcacheMemory(Range<u64>);

impl OpcacheMemory {
    /// Finds it in `maps`, which is `/proc/self/maps` (proc_pid_maps(5)) of this process after the
    /// start of PHP. `None` without OPcache.
    pub fn find(maps: &str) -> Option<OpcacheMemory> {
        // SAFETY: reads a variable of the engine's, which is set at its start and at no other time.
        let address = unsafe { maitred_php_opcache_address() } as u64;
        shared_around(maps, address).map(OpcacheMemory)
    }

    /// Fills `into` from `address` on. False when not all of it is in this memory.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let end = address.checked_add(into.len() as u64);
        if address < self.0.start || end.is_none_or(|end| end > self.0.end) {
            return false;
        }
        let mut from = address;
        for piece in into.chunks_mut(WORD_BYTES) {
            if piece.len() == WORD_BYTES && from.is_multiple_of(WORD_BYTES as u64) {
                // SAFETY: OPcache maps this memory readable until PHP ends, which does not happen
                // before the end of this process's last walk, and the word is within it. Other
                // processes write there meanwhile, hence volatile; any bits are a number.
                let word = unsafe { ptr::read_volatile(from as *const u64) };
                piece.copy_from_slice(&word.to_ne_bytes());
            } else {
                for (at, byte) in piece.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *byte = unsafe { ptr::read_volatile((from as *const u8).wrapping_add(at)) };
                }
            }
            from += piece.len() as u64;
        }
        true
    }
}

/// The mapping that has this address, if it is readable and shared.
fn shared_around(maps: &str, address: u64) -> Option<Range<u64>> {
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let range = hexadecimal(start)?..hexadecimal(end)?;
        let flags = words.next()?.as_bytes();
        let is_shared = flags.first() == Some(&b'r') && flags.get(3) == Some(&b's');
        (range.contains(&address) && is_shared).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_readable_shared_mapping_is_found() {
        let maps = "\
1000-2000 r--p 00000000 08:01 12 /usr/bin/a b
2000-4000 rw-s 00000000 00:01 13 /dev/zero (deleted)
4000-5000 ---s 00000000 00:01 14 /dev/zero (deleted)
odd
";
        assert_eq!(shared_around(maps, 0x2000), Some(0x2000..0x4000));
        assert_eq!(shared_around(maps, 0x3fff), Some(0x2000..0x4000));
        for elsewhere in [0, 0x1000, 0x4000, 0x5000, u64::MAX] {
            assert_eq!(shared_around(maps, elsewhere), None, "{elsewhere:#x}");
        }
    }

    #[test]
    fn nothing_beyond_its_ends_is_read() {
        let bytes: Vec<u8> = (0..32).collect();
        let start = bytes.as_ptr() as u64;
        let memory = OpcacheMemory(start..start + 32);
        for (offset, length) in [(0, 32), (0, 8), (1, 9), (5, 3), (24, 8), (31, 1), (32, 0)] {
            let mut copy = vec![0xff; length];
            assert!(memory.read(start + offset as u64, &mut copy));
            assert_eq!(copy, bytes[offset..offset + length], "{offset}, {length}");
        }
        for (address, length) in [(start - 1, 2), (start + 31, 2), (start + 32, 1), (u64::MAX, 2)] {
            assert!(!memory.read(address, &mut vec![0; length]));
        }
    }
}
