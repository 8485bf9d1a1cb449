//! Texts that bodies have to contain.

use std::sync::Arc;

use memchr::memmem::Finder;

/// A text that a body has to contain.
#[derive(Debug, Clone)]
pub struct Marker(Arc<Finder<'static>>);

impl Marker {
    /// The text to look for.
    pub fn new(text: &str) -> Marker {
        Marker(Arc::new(Finder::new(text.as_bytes()).into_owned()))
    }
}

/// Searches a body for a marker, part by part.
#[derive(Debug, Default)]
pub struct MarkerSearch {
    marker: Option<Marker>,
    /// The end of the last part, which may be the start of the marker.
    tail: Vec<u8>,
    found: bool,
}

impl MarkerSearch {
    /// Starts with another body.
    pub fn begin(&mut self, marker: Option<&Marker>) {
        self.found = marker.is_none();
        self.tail.clear();
        self.marker = marker.cloned();
    }

    /// Searches the next part of the body.
    pub fn see(&mut self, part: &[u8]) {
        let Some(Marker(finder)) = self.marker.as_ref().filter(|_| !self.found) else {
            return;
        };
        let keep = finder.needle().len().saturating_sub(1);
        self.tail.extend_from_slice(&part[..part.len().min(keep)]);
        self.found = finder.find(&self.tail).is_some() || finder.find(part).is_some();
        if part.len() >= keep {
            self.tail.clear();
            self.tail.extend_from_slice(&part[part.len() - keep..]);
        } else {
            let surplus = self.tail.len().saturating_sub(keep);
            self.tail.drain(..surplus);
        }
    }

    /// Whether it was found; true without a marker.
    pub fn found(&self) -> bool {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_wherever_the_parts_meet() {
        let marker = Marker::new("needle");
        for size in 1..20 {
            let mut search = MarkerSearch::default();
            search.begin(Some(&marker));
            b"some hay, a nneedle, hay".chunks(size).for_each(|part| search.see(part));
            assert!(search.found(), "{size}");
            search.begin(Some(&marker));
            b"some hay, a needl, needl e".chunks(size).for_each(|part| search.see(part));
            assert!(!search.found(), "{size}");
        }
    }
}
