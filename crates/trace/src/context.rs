//! The header `traceparent` of W3C Trace Context (<https://www.w3.org/TR/trace-context/>, Level 1
//! of 2021, and <https://www.w3.org/TR/trace-context-2/>).

use crate::ids::{SpanId, TraceId, digit, nibble};

/// Bytes of a value of version 00 (§3.2.2): `00-TRACE-PARENT-FLAGS`.
pub const BYTES: usize = 55;

/// The flag of a caller that may have recorded its span (§3.2.2.5.1).
const SAMPLED: u8 = 1;

/// The flag of a trace id whose last 56 bits are random (Level 2, §3.2.2.5.2).
const RANDOM: u8 = 2;

/// A value of `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace_id: TraceId,
    /// The span of the caller.
    pub parent_id: SpanId,
    /// Whether the caller may have recorded its span.
    pub is_sampled: bool,
    /// Whether the trace id is known to be random.
    pub is_random: bool,
}

impl TraceParent {
    /// Parses a value. None if it is invalid: then a new trace starts (§4.3), and
    /// `tracestate` is ignored.
    ///
    /// Of a later version than 00, the parts of version 00 are read, and what follows them after a
    /// dash is ignored (§4.3, "versioning of traceparent").
    pub fn parse(value: &[u8]) -> Option<TraceParent> {
        let (known, rest) = value.split_at_checked(BYTES)?;
        let version = byte(known.get(..2)?)?;
        let is_long_enough = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let dashes = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
        if !is_long_enough || !dashes {
            return None;
        }
        let flags = byte(known.get(53..)?)?;
        Some(TraceParent {
            trace_id: TraceId::parse(known.get(3..35)?)?,
            parent_id: SpanId::parse(known.get(36..52)?)?,
            is_sampled: flags & SAMPLED != 0,
            // No later version has defined it yet.
            is_random: version == 0 && flags & RANDOM != 0,
        })
    }

    /// Parses the header lines of a request: a second one makes all of them invalid (§3.2).
    pub fn of_header<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> Option<TraceParent> {
        let value = values.next()?;
        values.next().is_none().then(|| TraceParent::parse(value.trim_ascii())).flatten()
    }

    /// The flags, without those that are reserved (§3.2.2.5.3).
    pub fn flags(&self) -> u8 {
        let random = if self.is_random { RANDOM } else { 0 };
        random | u8::from(self.is_sampled)
    }

    /// The value in version 00.
    pub fn value(&self) -> [u8; BYTES] {
        let mut value = *b"00-00000000000000000000000000000000-0000000000000000-00";
        value[3..35].copy_from_slice(&self.trace_id.digits());
        value[36..52].copy_from_slice(&self.parent_id.digits());
        value[54] = digit(self.flags().into());
        value
    }
}

/// The byte that two lowercase hexadecimal digits are.
fn byte(digits: &[u8]) -> Option<u8> {
    match digits {
        [high, low] => Some(nibble(*high)? << 4 | nibble(*low)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn parse(value: &str) -> Option<TraceParent> {
        TraceParent::parse(value.as_bytes())
    }

    fn sent(parent: &TraceParent) -> String {
        String::from_utf8(parent.value().into()).unwrap()
    }

    #[test]
    fn the_examples_of_the_specification_are_read() {
        let sampled = parse(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert_eq!((sampled.is_sampled, sampled.is_random), (true, false));
        assert_eq!(sampled.trace_id.to_string(), TRACE);
        assert_eq!(sampled.parent_id.to_string(), SPAN);
        assert!(!parse(&format!("00-{TRACE}-{SPAN}-00")).unwrap().is_sampled);
        let flags = parse(&format!("00-{TRACE}-{SPAN}-ff")).unwrap();
        assert_eq!(sent(&flags), format!("00-{TRACE}-{SPAN}-03"), "unknown flags are not sent");
    }

    #[test]
    fn of_a_later_version_the_known_parts_are_read() {
        for value in [
            format!("cc-{TRACE}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like"),
            format!("fe-{TRACE}-{SPAN}-03-"),
        ] {
            let read = parse(&value).unwrap();
            assert_eq!(sent(&read), format!("00-{TRACE}-{SPAN}-01"), "{value}");
        }
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        let corpus = include_str!("../tests/malformed.txt");
        let lines: Vec<&str> = corpus.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(lines.len() > 30);
        for line in lines {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn two_headers_are_none() {
        let value = format!("00-{TRACE}-{SPAN}-01");
        let of = |count: usize| TraceParent::of_header((0..count).map(|_| value.as_bytes()));
        assert!(of(0).is_none() && of(1).is_some() && of(2).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(value in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(read) = TraceParent::parse(&value) {
                prop_assert_eq!(parse(&sent(&read)), Some(read));
            }
        }

        #[test]
        fn what_is_written_is_read(trace in 1u128.., span in 1u64.., flags in 0u8..4) {
            let value = format!("00-{trace:032x}-{span:016x}-{flags:02x}");
            prop_assert_eq!(sent(&parse(&value).unwrap()), value);
        }

        #[test]
        fn a_change_of_one_byte_is_no_other_trace(at in 0usize..BYTES, to in any::<u8>()) {
            let mut value = format!("00-{TRACE}-{SPAN}-01").into_bytes();
            value[at] = to;
            let is_ours = to.is_ascii_digit() || (b'a'..=b'f').contains(&to) || to == b'-';
            prop_assert!(is_ours || TraceParent::parse(&value).is_none());
        }
    }
}
