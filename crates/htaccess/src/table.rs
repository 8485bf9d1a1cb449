//! Headers and variables: names ignore case, and keep their order (APR's tables).

use std::collections::HashMap;
use std::sync::Arc;

use crate::read_log::ReadLog;
use crate::weight::weight_of;

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

    /// Replaces values as [`Table::set`] does one by one. Both have thousands of names.
    pub fn set_all(&mut self, values: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) {
        let mut places = self.places();
        for (name, value) in values {
            match places.get(&name.to_ascii_lowercase()) {
                Some(at) => self.entries[*at].value = value,
                None => {
                    places.insert(name.to_ascii_lowercase(), self.entries.len());
                    self.entries.push(Entry { name, value });
                }
            }
        }
    }

    /// Adds the values of another table, but for those that are the first of their name here.
    pub fn add_others(&mut self, others: &Table) {
        let mut places = self.places();
        for Entry { name, value } in &others.entries {
            let at = *places.entry(name.to_ascii_lowercase()).or_insert(self.entries.len());
            if self.entries.get(at).is_none_or(|first| first.value != *value) {
                self.add(name, &value[..]);
            }
        }
    }

    /// The place of the first value of each name, in lower case.
    fn places(&self) -> HashMap<Vec<u8>, usize> {
        let mut places = HashMap::with_capacity(self.entries.len());
        for (at, entry) in self.entries.iter().enumerate() {
            places.entry(entry.name.to_ascii_lowercase()).or_insert(at);
        }
        places
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

weight_of!(Table: entries);
weight_of!(Entry: name, value);

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

    #[test]
    fn many_values_are_set_and_added_as_one_by_one() {
        let of = |pairs: &[(&str, &str)]| {
            let mut table = Table::default();
            pairs.iter().for_each(|(name, value)| table.add(name.as_bytes(), *value));
            table
        };
        let values = [("b", "1"), ("C", "2"), ("c", "3"), ("a", "4")];
        let (mut together, mut single) = (of(&[("A", "0"), ("B", "0")]), Table::default());
        single.clone_from(&together);
        let owned = |(name, value): (&str, &str)| (name.into(), value.into());
        together.set_all(values.into_iter().map(owned));
        values.iter().for_each(|(name, value)| single.set(name.as_bytes(), *value));
        assert_eq!(together, single);
        let mut table = of(&[("A", "0"), ("A", "1"), ("B", "2")]);
        table.add_others(&of(&[("a", "0"), ("A", "1"), ("C", "3"), ("c", "3"), ("c", "4")]));
        let expected = [("A", "0"), ("A", "1"), ("B", "2"), ("A", "1"), ("C", "3"), ("c", "4")];
        assert_eq!(table, of(&expected));
    }
}
