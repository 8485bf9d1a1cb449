//! Headers and variables: names ignore case, and keep their order (APR's tables).

/// Names and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Table {
    /// The first value of this name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.0.iter().find(|entry| entry.name.eq_ignore_ascii_case(name));
        found.map(|entry| &entry.value[..])
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|entry| (&entry.name[..], &entry.value[..]))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces all values of this name.
    pub fn set(&mut self, name: &[u8], value: impl Into<Vec<u8>>) {
        let same = |entry: &Entry| entry.name.eq_ignore_ascii_case(name);
        match self.0.iter().position(same) {
            Some(at) => {
                self.0[at].value = value.into();
                let rest = self.0.split_off(at + 1);
                self.0.extend(rest.into_iter().filter(|entry| !same(entry)));
            }
            None => self.add(name, value),
        }
    }

    /// Adds another value.
    pub fn add(&mut self, name: &[u8], value: impl Into<Vec<u8>>) {
        self.0.push(Entry { name: name.to_vec(), value: value.into() });
    }

    /// Appends to the first value, behind a comma.
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        match self.0.iter_mut().find(|entry| entry.name.eq_ignore_ascii_case(name)) {
            Some(entry) => {
                entry.value.extend_from_slice(b", ");
                entry.value.extend_from_slice(value);
            }
            None => self.add(name, value),
        }
    }

    /// Removes all values of this name.
    pub fn unset(&mut self, name: &[u8]) {
        self.0.retain(|entry| !entry.name.eq_ignore_ascii_case(name));
    }

    /// Applies a change to each value of this name.
    pub fn edit(&mut self, name: &[u8], change: impl Fn(&[u8]) -> Vec<u8>) {
        for entry in &mut self.0 {
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
