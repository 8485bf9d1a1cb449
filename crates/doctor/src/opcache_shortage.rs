//! What an OPcache lacks, by its own figures: for the checks, and for `maitred tune --php`, which
//! proposes other sizes by the same rules.

/// With less free memory it is full, as a share of its size: a script of some size finds no room.
const LEAST_FREE: f64 = 0.05;

/// With more keys in use it is full, as a share of all keys.
const MOST_KEYS: f64 = 0.9;

/// More memory of outdated scripts is much, as a share of its size.
const MOST_WASTED: f64 = 0.1;

/// The buffer of strings is full with less free space, as a share of its size: the next string may
/// be longer than what is left.
const LEAST_FREE_STRINGS: f64 = 1.0 / 64.0;

/// An OPcache.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Opcache {
    /// Bytes in use.
    pub used: f64,
    /// Bytes that are free.
    pub free: f64,
    /// Bytes wasted until a restart.
    pub wasted: f64,
    /// Restarts for lack of memory.
    pub memory_restarts: u64,
    /// Restarts for lack of keys.
    pub key_restarts: u64,
    /// Keys in use, and their maximum; `None`: unknown.
    pub keys: Option<(u64, u64)>,
    /// Bytes of the string buffer in use, and its size; `None`: unknown.
    pub strings: Option<(f64, f64)>,
}

impl Opcache {
    /// All of its memory, in bytes.
    pub fn size(&self) -> f64 {
        self.used + self.free + self.wasted
    }
}

/// What an OPcache lacks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shortage {
    /// It was emptied for lack of room.
    Emptied {
        /// Times for lack of memory.
        memory: u64,
        /// Times for lack of keys.
        keys: u64,
    },
    /// Its memory is full: this share is free.
    Memory(f64),
    /// Its keys are used up.
    Keys {
        /// Keys in use.
        used: u64,
        /// All keys.
        most: u64,
    },
    /// Its buffer of strings is full.
    Strings,
    /// This share of its memory is outdated.
    Wasted(f64),
}

/// What `opcache` lacks.
pub fn shortages(opcache: &Opcache) -> Vec<Shortage> {
    let (memory, keys) = (opcache.memory_restarts, opcache.key_restarts);
    let size = opcache.size().max(1.0);
    let (free, wasted) = (opcache.free / size, opcache.wasted / size);
    let mut found = Vec::new();
    if memory > 0 || keys > 0 {
        found.push(Shortage::Emptied { memory, keys });
    }
    if free < LEAST_FREE {
        found.push(Shortage::Memory(free));
    }
    let full = opcache.keys.filter(|(used, most)| *used as f64 > MOST_KEYS * *most as f64);
    found.extend(full.map(|(used, most)| Shortage::Keys { used, most }));
    let is_full =
        |(used, size): &(f64, f64)| *size > 0.0 && size - used < size * LEAST_FREE_STRINGS;
    found.extend(opcache.strings.filter(is_full).map(|_| Shortage::Strings));
    if wasted > MOST_WASTED {
        found.push(Shortage::Wasted(wasted));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1_048_576.0;

    #[test]
    fn an_opcache_lacks_what_its_figures_show() {
        let enough = Opcache {
            used: 40.0 * MB,
            free: 24.0 * MB,
            keys: Some((14_600, 16_229)),
            strings: Some((7.8 * MB, 8.0 * MB)),
            ..Opcache::default()
        };
        assert_eq!(shortages(&enough), []);
        let strings = Opcache { strings: Some((7.9 * MB, 8.0 * MB)), ..enough };
        assert_eq!(shortages(&strings), [Shortage::Strings]);
        let keys = Opcache { keys: Some((14_607, 16_229)), ..enough };
        assert_eq!(shortages(&keys), [Shortage::Keys { used: 14_607, most: 16_229 }]);
        let full = Opcache { used: 48.0 * MB, free: 0.0, wasted: 16.0 * MB, ..enough };
        assert_eq!(shortages(&full), [Shortage::Memory(0.0), Shortage::Wasted(0.25)]);
        let emptied = Opcache { memory_restarts: 2, key_restarts: 1, ..enough };
        assert_eq!(shortages(&emptied), [Shortage::Emptied { memory: 2, keys: 1 }]);
        let none = Opcache { strings: None, keys: None, ..enough };
        assert_eq!(shortages(&none), []);
        let without_buffer = Opcache { strings: Some((0.0, 0.0)), ..enough };
        assert_eq!(shortages(&without_buffer), [], "interned_strings_buffer = 0");
    }
}
