//! Fingerprints that another process computes from the same bytes.

/// FNV-1a of bytes, 64 bits.
pub fn fingerprint(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    let next = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(start, next)
}
