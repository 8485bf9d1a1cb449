//! The braces of a text (`find_closing_curly`), in a single pass: a site writes long texts, and a
//! search from each brace takes quadratic time.

use std::ops::Range;

/// The opening braces of a text, in its order.
#[derive(Debug, Default)]
pub struct Braces(Vec<OpenBrace>);

#[derive(Debug)]
struct OpenBrace {
    at: usize,
    close: Option<usize>,
    /// Whether there is a colon outside of inner braces (`find_char_in_curlies`).
    has_colon: bool,
}

/// What is between two braces.
#[derive(Debug, PartialEq, Eq)]
pub struct Braced {
    /// Its place in the text.
    pub inner: Range<usize>,
    /// Whether it is a map and a key.
    pub has_colon: bool,
}

impl Braces {
    /// Finds the braces of a text.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let (mut all, mut open) = (Vec::new(), Vec::<usize>::new());
        for (at, byte) in text.iter().enumerate() {
            match byte {
                b'{' => {
                    open.push(all.len());
                    all.push(OpenBrace { at, close: None, has_colon: false });
                }
                b'}' => {
                    if let Some(brace) = open.pop().and_then(|last| all.get_mut(last)) {
                        brace.close = Some(at);
                    }
                }
                b':' => {
                    if let Some(brace) = open.last().and_then(|last| all.get_mut(*last)) {
                        brace.has_colon = true;
                    }
                }
                _ => {}
            }
        }
        Self(all)
    }

    /// What follows an opening brace, up to its closing one.
    #[must_use]
    pub fn after(&self, open: usize) -> Option<Braced> {
        let found = self.0.binary_search_by_key(&open, |one| one.at).ok()?;
        let OpenBrace { at, close, has_colon } = self.0.get(found)?;
        Some(Braced { inner: at + 1..(*close)?, has_colon: *has_colon })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brace_ends_at_its_own_closing_one() {
        let text = b"}{a{b:c}d}{e";
        let braces = Braces::of(text);
        let inner = |at: usize| braces.after(at).map(|one| (&text[one.inner], one.has_colon));
        assert_eq!(inner(1), Some((&b"a{b:c}d"[..], false)));
        assert_eq!(inner(3), Some((&b"b:c"[..], true)));
        assert_eq!(inner(10), None);
        assert_eq!(inner(0), None);
    }
}
