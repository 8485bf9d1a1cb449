//! Sizes and last uses of the disk tier's files, for eviction. A lookup does not need it.

use std::collections::HashMap;

/// Files that are sampled for an eviction: the least recently used of them is evicted.
const SAMPLE: usize = 16;

/// The name of a file.
pub type Digest = [u8; 16];

#[derive(Debug, Clone, Copy)]
struct FileEntry {
    digest: Digest,
    bytes: u64,
    /// Milliseconds since 1970.
    used: u64,
}

/// The known files.
#[derive(Debug, Default)]
pub struct Index {
    places: HashMap<Digest, usize>,
    known: Vec<FileEntry>,
    bytes: u64,
    /// Where the next sample is taken.
    seed: u64,
}

impl Index {
    /// Records a file, its size in bytes and its last use.
    pub fn note(&mut self, digest: Digest, bytes: u64, used: u64) {
        if let Some(place) = self.places.get(&digest) {
            let known = &mut self.known[*place];
            self.bytes = self.bytes - known.bytes + bytes;
            (known.bytes, known.used) = (bytes, used.max(known.used));
            return;
        }
        self.places.insert(digest, self.known.len());
        self.known.push(FileEntry { digest, bytes, used });
        self.bytes += bytes;
    }

    /// Records a use of a file, if it is known.
    pub fn touch(&mut self, digest: &Digest, now: u64) {
        if let Some(place) = self.places.get(digest) {
            self.known[*place].used = now;
        }
    }

    /// Records that a file is removed.
    pub fn forget(&mut self, digest: &Digest) {
        let Some(place) = self.places.remove(digest) else {
            return;
        };
        self.bytes -= self.known.swap_remove(place).bytes;
        if let Some(moved) = self.known.get(place) {
            self.places.insert(moved.digest, place);
        }
    }

    /// When a file was last used, if it is known.
    pub fn used(&self, digest: &Digest) -> Option<u64> {
        let place = self.places.get(digest)?;
        Some(self.known[*place].used)
    }

    /// Bytes of all known files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of known files.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no file is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A file other than `but` that has not been used for long (approximate LRU: an exact order
    /// would have to change on every use).
    pub fn victim(&mut self, but: Option<&Digest>) -> Option<Digest> {
        let count = self.known.len();
        let mut oldest: Option<FileEntry> = None;
        for _ in 0..SAMPLE.min(count) {
            // xorshift64 (Marsaglia 2003): the quality of the randomness does not matter.
            self.seed = self.seed.max(0x9e37_79b9);
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            let at = usize::try_from(self.seed % count as u64).unwrap_or(0);
            let mut known = self.known[at];
            if Some(&known.digest) == but {
                known = self.known[(at + 1) % count];
            }
            if oldest.is_none_or(|oldest| known.used < oldest.used) {
                oldest = Some(known);
            }
        }
        oldest.map(|known| known.digest).filter(|digest| Some(digest) != but)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u64) -> Digest {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&number.to_le_bytes());
        digest
    }

    #[test]
    fn bytes_are_those_of_the_files_that_are_there() {
        let mut index = Index::default();
        for number in 0..10 {
            index.note(digest(number), 10, number);
        }
        index.note(digest(3), 30, 0);
        assert_eq!((index.bytes(), index.len(), index.used(&digest(3))), (120, 10, Some(3)));
        for number in [3, 3, 0, 9] {
            index.forget(&digest(number));
        }
        assert_eq!((index.bytes(), index.len()), (70, 7));
        index.touch(&digest(8), 100);
        assert_eq!(index.used(&digest(8)), Some(100));
    }

    #[test]
    fn those_go_first_that_were_not_used_for_long() {
        let mut index = Index::default();
        for number in 0..1000 {
            index.note(digest(number), 1, number);
        }
        let mut used = 0;
        for _ in 0..300 {
            let victim = index.victim(None).unwrap();
            used += index.used(&victim).unwrap();
            index.forget(&victim);
        }
        assert!(used / 300 < 300, "{}", used / 300);
        let mut none = Index::default();
        assert_eq!(none.victim(None), None);
        none.note(digest(0), 1, 0);
        assert_eq!(none.victim(Some(&digest(0))), None);
        none.note(digest(1), 1, 1);
        let mut victims = (0..100).map(|_| none.victim(Some(&digest(0))));
        assert!(victims.all(|victim| victim == Some(digest(1))));
    }
}
