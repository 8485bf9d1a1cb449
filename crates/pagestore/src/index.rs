//! Sizes and last uses of the disk tier's files, for eviction. A lookup does not need it.

use std::collections::HashMap;

/// Files that are sampled for an eviction: the least recently used of them is evicted.
const SAMPLE: usize = 16;

/// The name of a file.
pub type Digest = [u8; 16];

/// A known file.
#[derive(Debug, Clone, Copy)]
struct FileEntry {
    digest: Digest,
    bytes: u64,
    /// Milliseconds since 1970.
    used: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    site: u64,
    /// The index in the site's files.
    at: usize,
}

/// The known files of one site.
#[derive(Debug, Default)]
struct SiteFiles {
    known: Vec<FileEntry>,
    bytes: u64,
}

/// The known files.
#[derive(Debug, Default)]
pub struct Index {
    places: HashMap<Digest, Place>,
    sites: HashMap<u64, SiteFiles>,
    bytes: u64,
    /// Where the next sample is taken.
    seed: u64,
}

impl Index {
    /// Records a file, its site, its size in bytes and its last use; `None`: the site is unknown,
    /// or that of an earlier call.
    pub fn note(&mut self, digest: Digest, site: Option<u64>, bytes: u64, used: u64) {
        let before = self.places.get(&digest).map(|place| place.site);
        let used = self.used(&digest).map_or(used, |before| used.max(before));
        let site = site.or(before).unwrap_or_default();
        if before != Some(site) {
            self.forget(&digest);
            let files = self.sites.entry(site).or_default();
            self.places.insert(digest, Place { site, at: files.known.len() });
            files.known.push(FileEntry { digest, bytes: 0, used });
        }
        let Some(place) = self.places.get(&digest) else { return };
        let Some(files) = self.sites.get_mut(&place.site) else { return };
        let Some(file) = files.known.get_mut(place.at) else { return };
        files.bytes = files.bytes - file.bytes + bytes;
        self.bytes = self.bytes - file.bytes + bytes;
        (file.bytes, file.used) = (bytes, used);
    }

    /// Records a use of a file, if it is known.
    pub fn touch(&mut self, digest: &Digest, now: u64) {
        let place = self.places.get(digest);
        let files = place.and_then(|place| Some((place.at, self.sites.get_mut(&place.site)?)));
        if let Some(file) = files.and_then(|(at, files)| files.known.get_mut(at)) {
            file.used = now;
        }
    }

    /// Records that a file is removed.
    pub fn forget(&mut self, digest: &Digest) {
        let Some(Place { site, at }) = self.places.remove(digest) else { return };
        let Some(files) = self.sites.get_mut(&site) else { return };
        let gone = files.known.swap_remove(at);
        if let Some(moved) = files.known.get(at) {
            self.places.insert(moved.digest, Place { site, at });
        }
        files.bytes -= gone.bytes;
        self.bytes -= gone.bytes;
        if files.known.is_empty() {
            self.sites.remove(&site);
        }
    }

    /// When a file was last used, if it is known.
    pub fn used(&self, digest: &Digest) -> Option<u64> {
        let place = self.places.get(digest)?;
        Some(self.sites.get(&place.site)?.known.get(place.at)?.used)
    }

    /// Bytes of all known files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of known files.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no file is known.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A file other than `but` that has not been used for long (approximate LRU: an exact order
    /// would have to change on every use), of the site with the most bytes: a site that fills the
    /// disk evicts its own.
    pub fn victim(&mut self, but: Option<&Digest>) -> Option<Digest> {
        let is_other = |file: &FileEntry| Some(&file.digest) != but;
        let has_other = |files: &&SiteFiles| files.known.iter().any(is_other);
        let known = &self.sites.values().filter(has_other).max_by_key(|files| files.bytes)?.known;
        let count = known.len();
        let mut oldest: Option<FileEntry> = None;
        for _ in 0..SAMPLE.min(count) {
            // xorshift64 (Marsaglia 2003): the quality of the randomness does not matter.
            self.seed = self.seed.max(0x9e37_79b9);
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            let at = usize::try_from(self.seed % count as u64).unwrap_or(0);
            let file = known[at];
            let file = if is_other(&file) { file } else { known[(at + 1) % count] };
            if oldest.is_none_or(|oldest| file.used < oldest.used) {
                oldest = Some(file);
            }
        }
        oldest.map(|file| file.digest)
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
            index.note(digest(number), Some(number % 2), 10, number);
        }
        index.note(digest(3), None, 30, 0);
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
            index.note(digest(number), None, 1, number);
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
        none.note(digest(0), Some(7), 1, 0);
        assert_eq!(none.victim(Some(&digest(0))), None);
        none.note(digest(1), None, 1, 1);
        let mut victims = (0..100).map(|_| none.victim(Some(&digest(0))));
        assert!(victims.all(|victim| victim == Some(digest(1))));
    }

    #[test]
    fn the_site_with_the_most_bytes_has_room_made_by_its_own_files() {
        let mut index = Index::default();
        for number in 0..1000 {
            index.note(digest(number), Some(1), 1, 0);
        }
        for number in 1000..1010 {
            index.note(digest(number), Some(2), 200, number);
        }
        // The large ones go until no more than as many bytes are left as the other site has.
        for _ in 0..5 {
            let victim = index.victim(None).unwrap();
            assert!(index.used(&victim).unwrap() >= 1000);
            index.forget(&victim);
        }
        index.note(digest(2000), Some(3), 5000, 2000);
        let victim = index.victim(Some(&digest(2000))).unwrap();
        assert!(victim != digest(2000), "it is the only one of its site");
    }
}
