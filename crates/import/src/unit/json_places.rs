//! The lines of the values of a JSON text, by their pointers (RFC 6901).

use std::collections::BTreeMap;

/// Deepest value; serde_json refuses deeper ones than 128.
const MAX_DEPTH: usize = 128;

/// The line of each value, from 1. The text has to be valid.
pub(super) fn lines(text: &str) -> BTreeMap<String, usize> {
    let mut scanner = Scanner { bytes: text.as_bytes(), at: 0, line: 1, found: BTreeMap::new() };
    scanner.value("", 0);
    scanner.found
}

/// The name of a member as a part of a pointer.
pub(super) fn pointer_part(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

struct Scanner<'t> {
    bytes: &'t [u8],
    at: usize,
    line: usize,
    found: BTreeMap<String, usize>,
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }

    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.next();
        }
        self.bytes.get(self.at).copied()
    }

    fn value(&mut self, pointer: &str, depth: usize) {
        let first = self.peek();
        self.found.insert(pointer.to_owned(), self.line);
        match first {
            Some(b'{' | b'[') if depth < MAX_DEPTH => self.container(pointer, depth),
            Some(b'"') => drop(self.string()),
            _ => {
                while self.peek().is_some_and(|byte| !b",]}".contains(&byte)) {
                    self.next();
                }
            }
        }
    }

    fn container(&mut self, pointer: &str, depth: usize) {
        let is_object = self.next() == Some(b'{');
        for index in 0_usize.. {
            match self.peek() {
                None => return,
                Some(b'}' | b']') => {
                    self.next();
                    return;
                }
                Some(b',') => {
                    self.next();
                }
                Some(_) => {}
            }
            let name = match is_object && self.peek() == Some(b'"') {
                true => pointer_part(&self.string()),
                false => index.to_string(),
            };
            if self.peek() == Some(b':') {
                self.next();
            }
            let before = self.at;
            self.value(&format!("{pointer}/{name}"), depth + 1);
            if self.at == before {
                return;
            }
        }
    }

    fn string(&mut self) -> String {
        let mut out = Vec::new();
        self.next();
        while let Some(byte) = self.next() {
            match byte {
                b'"' => break,
                b'\\' => out.extend(self.next()),
                byte => out.push(byte),
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_line() {
        let text = "{\n \"a\": [1,\n {\"b/c\": true}],\n \"d\": \"x\\\"}\"\n}";
        let found = lines(text);
        let of = |pointer: &str| found.get(pointer).copied();
        assert_eq!(of("/a/0"), Some(2));
        assert_eq!(of("/a/1/b~1c"), Some(3));
        assert_eq!(of("/d"), Some(4));
    }
}
