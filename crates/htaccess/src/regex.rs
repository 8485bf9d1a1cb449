//! Regular expressions of Apache: PCRE2 with limits. `.` matches line ends (`RegexDefaultOptions`).

use pcre2::bytes::{Regex as Pcre2, RegexBuilder};

use crate::limits::{MAX_TEXT_BYTES, expanded_bytes};
use crate::weight::{Shared, Weight};

/// Most steps of a match, counted by PCRE2: what needs more ends its request.
const MATCH_STEPS: u32 = 200_000;

/// Most memory of a match in KiB.
const MATCH_KIB: u32 = 4096;

/// Groups of a match that can be referred to: `$0` to `$9` (`AP_MAX_REG_MATCH`).
pub const GROUPS: usize = 10;

/// A match has exceeded its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooCostly;

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct Regex {
    compiled: Pcre2,
    text: Vec<u8>,
}

impl Regex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// PCRE2's reason.
    pub fn new(pattern: &[u8], ignores_case: bool) -> Result<Regex, String> {
        let limits = format!("(*LIMIT_MATCH={MATCH_STEPS})(*LIMIT_HEAP={MATCH_KIB})");
        let text = limits + &escaped(pattern);
        let built = RegexBuilder::new().dotall(true).caseless(ignores_case).build(&text);
        let compiled = built.map_err(|why| why.to_string())?;
        Ok(Regex { compiled, text: pattern.to_vec() })
    }

    /// The expression as it is written.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether there are groups.
    pub fn has_groups(&self) -> bool {
        self.compiled.captures_len() > 1
    }

    /// Whether a text matches.
    ///
    /// # Errors
    /// When the limits are exceeded.
    pub fn is_match(&self, text: &[u8]) -> Result<bool, TooCostly> {
        // The memory of a match ends with it. PCRE2's crate holds that of `is_match` for the next
        // one, which is megabytes for some patterns.
        let mut found = self.compiled.capture_locations();
        let matched = self.compiled.captures_read(&mut found, text).map_err(|_| TooCostly)?;
        Ok(matched.is_some())
    }

    /// The groups of a match.
    ///
    /// # Errors
    /// When the limits are exceeded.
    pub fn captures(&self, text: &[u8]) -> Result<Option<Captures>, TooCostly> {
        let mut found = self.compiled.capture_locations();
        let matched = self.compiled.captures_read(&mut found, text).map_err(|_| TooCostly)?;
        if matched.is_none() {
            return Ok(None);
        }
        let groups = (0..GROUPS).map(|group| found.get(group));
        let groups = groups.map(|group| group.map(|(start, end)| Group { start, end }));
        Ok(Some(Captures { source: text.to_vec(), groups: groups.collect() }))
    }
}

/// PCRE2's crate takes text: bytes of other encodings are written as escapes.
fn escaped(pattern: &[u8]) -> String {
    let mut text = String::with_capacity(pattern.len());
    for chunk in pattern.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    start: usize,
    end: usize,
}

/// The groups of a match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captures {
    source: Vec<u8>,
    groups: Vec<Option<Group>>,
}

impl Captures {
    /// A group; empty if it took no part.
    pub fn group(&self, number: usize) -> &[u8] {
        let group = self.groups.get(number).copied().flatten();
        group.map_or(b"", |group| &self.source[group.start..group.end])
    }

    /// The end of the whole match.
    pub fn end(&self) -> usize {
        self.groups.first().copied().flatten().map_or(0, |group| group.end)
    }

    /// The start of the whole match.
    pub fn start(&self) -> usize {
        self.groups.first().copied().flatten().map_or(0, |group| group.start)
    }

    /// A template with `$0` to `$9` replaced (`ap_pregsub`).
    ///
    /// # Errors
    /// When it becomes too long.
    pub fn expand(&self, template: &[u8]) -> Result<Vec<u8>, TooCostly> {
        let mut out = Vec::with_capacity(template.len());
        let mut at = 0;
        while let Some(&byte) = template.get(at) {
            if out.len() > MAX_TEXT_BYTES {
                return Err(TooCostly);
            }
            let next = template.get(at + 1).copied();
            at += 1;
            match (byte, next) {
                (b'$', Some(digit @ b'0'..=b'9')) => {
                    out.extend_from_slice(self.group(usize::from(digit - b'0')));
                    at += 1;
                }
                (b'\\', Some(escaped @ (b'$' | b'&'))) => {
                    out.push(escaped);
                    at += 1;
                }
                _ => out.push(byte),
            }
        }
        Ok(out)
    }
}

/// What PCRE2 and its crate take for an expression besides its code, in bytes.
const REGEX_BYTES: usize = 1536;

impl Weight for Regex {
    fn heap(&self, _: Shared) -> usize {
        REGEX_BYTES + 4 * self.text.len() + expanded_bytes(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_replace_their_numbers() {
        let regex = Regex::new(b"^a(b)?(.*)$", true).unwrap();
        let found = regex.captures(b"ABc\nd").unwrap().unwrap();
        assert_eq!(found.expand(br"$1-$2-\$1-$9$").unwrap(), b"B-c\nd-$1-$");
        assert_eq!(found.expand(&b"$2".repeat(MAX_TEXT_BYTES)), Err(TooCostly));
        assert!(regex.has_groups() && !regex.is_match(b"x").unwrap());
    }

    #[test]
    fn a_catastrophic_pattern_ends_with_an_error() {
        let regex = Regex::new(b"^(a+)+$", false).unwrap();
        let text = [b'a'; 60].iter().chain(b"!").copied().collect::<Vec<u8>>();
        assert_eq!(regex.is_match(&text), Err(TooCostly));
    }

    #[test]
    fn other_encodings_than_utf_8_match_their_bytes() {
        let regex = Regex::new(b"^\xe4(.)$", false).unwrap();
        assert_eq!(regex.captures(b"\xe4\xf6").unwrap().unwrap().group(1), b"\xf6");
    }
}
