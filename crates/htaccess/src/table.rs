//! Headers and variables: names ignore case, and keep their order (APR's tables).

use std::sync::Arc;

use crate::read_log::ReadLog;

/// Names and values.
#[derive(Debug, Clone, Default)]
pub struct Table {
    entries: Vec<Entry>,
    /// Logs what is read.
    log: Option<Arc<ReadLog>>,
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.entries == other.entries
    }
}

impl Eq for Table {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Table {
    /// The same, which logs what is read from now on, also in its clones.
    #[must_use]
    pub fn logged(mut self, log: &Arc<ReadLog>) -> Table {
        self.log = Some(Arc::clone(log));
        self
    }

    /// The first value of this name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        if let Some(log) = &self.log {
            log.header(name);
        }
        let found = self.entries.iter().find(|entry| entry.name.eq_ignore_ascii_case(name));
        found.map(|entry| &entry.value[..])
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        if let Some(log) = &self.log {
            log.unrepeatable();
        }
        self.entries.iter().map(|entry| (&entry.name[..], &entry.value[..]))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Replaces all values of this name.
    pub fn set(&mut self, name: &[u8], value: impl Into<Vec<u8>>) {
        let same = |entry: &Entry| entry.name.eq_ignore_ascii_case(name);
        match self.entries.iter().position(same) {
            Some(at) => {
                self.entries[at].value = value.into();
                let rest = self.entries.split_off(at + 1);
                self.entries.extend(rest.into_iter().filter(|entry| !same(entry)));
            }
            None => self.add(name, value),
        }
    }

    /// Adds another value.
    pub fn add(&mut self, name: &[u8], value: impl Into<Vec<u8>>) {
        self.entries.push(Entry { name: name.to_vec(), value: value.into() });
    }

    /// Appends to the first value, behind a comma.
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        match self.entries.iter_mut().find(|entry| entry.name.eq_ignore_ascii_case(name)) {
            Some(entry) => {
                entry.value.extend_from_slice(b", ");
                entry.value.extend_from_slice(value);
            }
            None => self.add(name, value),
        }
    }

    /// Removes all values of this name.
    pub fn unset(&mut self, name: &[u8]) {
        self.entries.retain(|entry| !entry.name.eq_ignore_ascii_case(name));
    }

    /// Applies a change to each value of this name.
    pub fn edit(&mut self, name: &[u8], mut change: impl FnMut(&[u8]) -> Vec<u8>) {
        for entry in &mut self.entries {
            if entry.name.eq_ignore_ascii_case(name) {
                entry.value = change(&entry.value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ignore_case_and_keep_their_place() {
        let mut table = Table::default();
        table.add(b"A", *b"1");
        table.add(b"B", *b"2");
        table.add(b"a", *b"3");
        table.set(b"A", *b"4");
        table.append(b"b", b"5");
        let all: Vec<_> = table.iter().collect();
        assert_eq!(all, [(&b"A"[..], &b"4"[..]), (b"B", b"2, 5")]);
        table.unset(b"b");
        assert_eq!(table.get(b"B"), None);
    }
}
