//! The `Range` header (RFC 9110 §14).

use crate::http::content::Slice;

/// Maximum number of parts of a response. A request with more parts after merging gets the whole
/// file (RFC 9110 §14.2): such requests are usually attacks.
pub const MOST_PARTS: usize = 16;

/// Most ranges of one header, before merging.
const MOST_RANGES: usize = 64;

/// The ranges that a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WantedRange {
    /// The whole file: no ranges, or ignored ones.
    Whole,
    /// These disjoint pieces, at least one and at most [`MOST_PARTS`].
    Parts(Vec<Slice>),
    /// No range is within the file: 416.
    Unsatisfiable,
}

/// Parses the header for a file of `len` bytes. An invalid header is ignored (§14.2), and so is any
/// range of an empty file, which no `Content-Range` could describe.
pub(crate) fn parse(field: &str, len: u64) -> WantedRange {
    let Some((unit, set)) = field.split_once('=') else {
        return WantedRange::Whole;
    };
    if len == 0 || !unit.trim().eq_ignore_ascii_case("bytes") {
        return WantedRange::Whole;
    }
    let mut parts: Vec<Slice> = Vec::new();
    // A list may have empty elements (§5.6.1.2).
    let specs = set.split(',').map(|spec| spec.trim_matches([' ', '\t']));
    let mut read = 0;
    for (count, spec) in specs.enumerate().filter(|(_, spec)| !spec.is_empty()) {
        let Some(range) = parse_one(spec, len).filter(|_| count < MOST_RANGES) else {
            return WantedRange::Whole;
        };
        read += 1;
        if range.len > 0 {
            merge(&mut parts, range);
        }
    }
    match parts.len() {
        0 if read > 0 => WantedRange::Unsatisfiable,
        1..=MOST_PARTS => WantedRange::Parts(parts),
        _ => WantedRange::Whole,
    }
}

/// `first-last`, `first-` or `-suffix` (§14.1.1), cut to the file; of length 0 if the file has none
/// of it.
fn parse_one(spec: &str, len: u64) -> Option<Slice> {
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let suffix = number(last)?.min(len);
        return Some(Slice { offset: len - suffix, len: suffix });
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    let end = last.saturating_add(1).min(len);
    Some(Slice { offset: first, len: end.saturating_sub(first) })
}

/// Digits only. A number too large for the type is larger than any file, too.
fn number(digits: &str) -> Option<u64> {
    let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Adds `range`, merged with every part that it overlaps or touches (§15.3.7.2 allows it); the
/// order of the request stays. One pass is enough: parts do not touch each other.
fn merge(parts: &mut Vec<Slice>, mut range: Slice) {
    let touch = |a: &Slice, b: &Slice| a.offset <= b.end() && b.offset <= a.end();
    let place = parts.iter().position(|part| touch(part, &range)).unwrap_or(parts.len());
    parts.retain(|part| {
        if !touch(part, &range) {
            return true;
        }
        let offset = part.offset.min(range.offset);
        range = Slice { offset, len: part.end().max(range.end()) - offset };
        false
    });
    parts.insert(place, range);
}
