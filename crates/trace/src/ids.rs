//! Ids of traces and spans: random bits, written as lowercase hexadecimal digits.

use std::fmt;

/// Bits of a trace id that are random by Trace Context Level 2 (§3.2.2.5), and that decide about
/// sampling.
const RANDOM_BITS: u32 = 56;

/// The id of a trace: 16 bytes, not all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// The id of a span: 8 bytes, not all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl TraceId {
    /// A new id. All of its bits are random.
    pub fn random() -> TraceId {
        TraceId(fastrand::u128(1..))
    }

    /// The id of 32 lowercase hexadecimal digits, unless all are zero.
    pub fn parse(digits: &[u8]) -> Option<TraceId> {
        let (first, second) = digits.split_at_checked(16)?;
        let number = u128::from(hex(first)?) << 64 | u128::from(hex(second)?);
        (number != 0).then_some(TraceId(number))
    }

    /// Its digits.
    pub fn digits(self) -> [u8; 32] {
        let halves = [(self.0 >> 64) as u64, self.0 as u64].map(digits);
        let mut all = [0; 32];
        all[..16].copy_from_slice(&halves[0]);
        all[16..].copy_from_slice(&halves[1]);
        all
    }

    /// Whether it is in the part of all ids that a ratio in thousandths selects. Ids have the same
    /// result everywhere, and a larger ratio selects those of a smaller one, too.
    pub fn is_within(self, thousandths: u32) -> bool {
        let random = self.0 & ((1 << RANDOM_BITS) - 1);
        random * 1000 < u128::from(thousandths) << RANDOM_BITS
    }
}

impl SpanId {
    /// A new id.
    pub fn random() -> SpanId {
        SpanId(fastrand::u64(1..))
    }

    /// The id of 16 lowercase hexadecimal digits, unless all are zero.
    pub fn parse(digits: &[u8]) -> Option<SpanId> {
        hex(digits).filter(|number| *number != 0).map(SpanId)
    }

    /// Its digits.
    pub fn digits(self) -> [u8; 16] {
        digits(self.0)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

/// A number as lowercase hexadecimal digits. Formatting takes ten times as long, and each request
/// has some.
fn digits(number: u64) -> [u8; 16] {
    std::array::from_fn(|at| digit(number >> (60 - 4 * at)))
}

/// The lowercase hexadecimal digit of the last four bits.
pub(crate) fn digit(number: u64) -> u8 {
    b"0123456789abcdef"[(number & 15) as usize]
}

/// The number that 16 lowercase hexadecimal digits are.
fn hex(digits: &[u8]) -> Option<u64> {
    if digits.len() != 16 {
        return None;
    }
    digits.iter().try_fold(0, |number: u64, digit| Some(number << 4 | u64::from(nibble(*digit)?)))
}

/// The value of a lowercase hexadecimal digit.
pub(crate) fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_selects_its_part_of_all_ids() {
        let ids: Vec<TraceId> = (0..20_000).map(|_| TraceId::random()).collect();
        let selected = |ratio| ids.iter().filter(|id| id.is_within(ratio)).count();
        assert_eq!((selected(0), selected(1000)), (0, ids.len()));
        assert!((9_000..11_000).contains(&selected(500)), "{}", selected(500));
        assert!((100..320).contains(&selected(10)), "{}", selected(10));
        assert!(ids.iter().all(|id| !id.is_within(10) || id.is_within(500)));
    }

    #[test]
    fn the_last_56_bits_decide_to_the_bit() {
        let half = 1u128 << (RANDOM_BITS - 1);
        let others = 0xabu128 << RANDOM_BITS;
        assert!(TraceId(others | (half - 1)).is_within(500));
        assert!(!TraceId(others | half).is_within(500));
        assert!(TraceId(others).is_within(1) && !TraceId(others).is_within(0));
    }

    #[test]
    fn ids_are_digits_of_a_fixed_length() {
        let id = TraceId::random();
        assert_eq!(TraceId::parse(id.to_string().as_bytes()), Some(id));
        let id = SpanId::random();
        assert_eq!(SpanId::parse(id.to_string().as_bytes()), Some(id));
        assert_eq!(SpanId::parse(b"00000000000000ff").map(|id| id.to_string().len()), Some(16));
        let (trace, span) = (TraceId::random(), SpanId::random());
        assert_eq!(trace.digits(), trace.to_string().as_bytes());
        assert_eq!(span.digits(), span.to_string().as_bytes());
        for wrong in [&b"0000000000000000"[..], b"ff", b"00000000000000FF", b"00000000000000f "] {
            assert_eq!(SpanId::parse(wrong), None);
        }
        assert_eq!(TraceId::parse(&[b'0'; 32]), None);
    }
}
