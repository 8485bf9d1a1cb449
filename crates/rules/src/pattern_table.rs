//! A table of patterns: exact paths and folders are looked up by hash, regular expressions in one
//! set.

use std::collections::HashMap;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexSet};

use crate::pattern::{self, Pattern};

/// The patterns of one list of rules, in order.
#[derive(Debug, Default)]
pub struct Table {
    patterns: Vec<Pattern>,
    /// Indexes of patterns that match every path.
    always: Vec<usize>,
    exact: HashMap<Box<[u8]>, Vec<usize>>,
    /// By folder, with a trailing slash.
    below: HashMap<Box<[u8]>, Vec<usize>>,
    /// Length of the longest folder in bytes.
    longest_folder: usize,
    extensions: HashMap<Box<[u8]>, Vec<usize>>,
    /// Extensions with a dot inside, such as `tar.gz`.
    long_extensions: Vec<usize>,
    expressions: Vec<Expression>,
    set: Option<RegexSet>,
}

#[derive(Debug)]
struct Expression {
    at: usize,
    /// Compiled on the first use of its groups; most are never used.
    regex: OnceLock<Option<Regex>>,
}

impl Table {
    /// A table of `patterns`.
    ///
    /// # Errors
    /// When their regular expressions take too much memory together, as the end of a sentence.
    pub fn new<'p>(patterns: impl IntoIterator<Item = &'p Pattern>) -> Result<Table, String> {
        let mut table = Table::default();
        for (at, pattern) in patterns.into_iter().enumerate() {
            table.patterns.push(pattern.clone());
            let bytes = |text: &str| text.as_bytes().into();
            match pattern {
                Pattern::Below(folder) if folder == "/" => table.always.push(at),
                Pattern::Exact(path) => table.exact.entry(bytes(path)).or_default().push(at),
                Pattern::Below(folder) => {
                    table.longest_folder = table.longest_folder.max(folder.len());
                    table.below.entry(bytes(folder)).or_default().push(at);
                }
                Pattern::Extension(extension) if extension.contains('.') => {
                    table.long_extensions.push(at);
                }
                Pattern::Extension(extension) => {
                    let places = table.extensions.entry(bytes(extension)).or_default();
                    places.push(at);
                }
                Pattern::Regex(_) => {
                    table.expressions.push(Expression { at, regex: OnceLock::new() })
                }
            }
        }
        let texts = table.patterns.iter().filter_map(|pattern| match pattern {
            Pattern::Regex(text) => Some(text.as_str()),
            _ => None,
        });
        let set = (!table.expressions.is_empty()).then(|| pattern::compile_set(texts));
        table.set = set.transpose()?;
        Ok(table)
    }

    /// Whether it has no pattern.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The index of the first pattern that matches `path`.
    pub fn first(&self, path: &[u8]) -> Option<usize> {
        self.first_from(path, 0)
    }

    /// The same from index `least` on.
    pub fn first_from(&self, path: &[u8], least: usize) -> Option<usize> {
        let mut first = None;
        if !self.is_empty() {
            self.visit(path, |at| {
                if at >= least && first.is_none_or(|first| at < first) {
                    first = Some(at);
                }
            });
        }
        first
    }

    /// The indexes of all patterns that match `path`, in order.
    pub fn all(&self, path: &[u8]) -> Vec<usize> {
        let mut places = Vec::new();
        if !self.is_empty() {
            self.visit(path, |at| places.push(at));
            places.sort_unstable();
        }
        places
    }

    /// The groups of the pattern at index `at`: the whole path, then `$1` and so on.
    pub fn captures<'a>(&'a self, at: usize, path: &'a [u8]) -> Captures<'a> {
        match self.patterns.get(at) {
            Some(Pattern::Below(folder)) => {
                Captures::Rest(path, path.get(folder.len()..).unwrap_or_default())
            }
            Some(Pattern::Regex(text)) => {
                let expression = self.expressions.iter().find(|one| one.at == at);
                let regex = expression
                    .and_then(|one| one.regex.get_or_init(|| pattern::compile(text).ok()).as_ref());
                match regex.and_then(|regex| regex.captures(path)) {
                    Some(groups) => Captures::Regex(groups),
                    None => Captures::Whole(path),
                }
            }
            _ => Captures::Whole(path),
        }
    }

    fn visit(&self, path: &[u8], mut found: impl FnMut(usize)) {
        self.always.iter().copied().for_each(&mut found);
        if let Some(places) = self.exact.get(path) {
            places.iter().copied().for_each(&mut found);
        }
        if !self.below.is_empty() {
            let reach = path.len().min(self.longest_folder);
            for slash in memchr::memchr_iter(b'/', &path[..reach]) {
                if let Some(places) = self.below.get(&path[..=slash]) {
                    places.iter().copied().for_each(&mut found);
                }
            }
        }
        if !self.extensions.is_empty()
            && let Some(extension) = pattern::extension(path)
            && let Some(places) = self.extensions.get(extension.to_ascii_lowercase().as_slice())
        {
            places.iter().copied().for_each(&mut found);
        }
        for at in &self.long_extensions {
            if self.patterns[*at].matches(path) {
                found(*at);
            }
        }
        if let Some(set) = &self.set {
            for one in &set.matches(path) {
                found(self.expressions[one].at);
            }
        }
    }
}

/// The groups of a match.
pub enum Captures<'a> {
    /// No groups: the whole path.
    Whole(&'a [u8]),
    /// The whole path, and the part after the folder.
    Rest(&'a [u8], &'a [u8]),
    /// The groups of a regular expression.
    Regex(regex::bytes::Captures<'a>),
}

impl Captures<'_> {
    /// The group with this number; empty if it did not take part in the match.
    pub fn group(&self, number: usize) -> &[u8] {
        match (self, number) {
            (Captures::Whole(path) | Captures::Rest(path, _), 0) => path,
            (Captures::Rest(_, rest), 1) => rest,
            (Captures::Regex(groups), number) => {
                groups.get(number).map_or(&[], |group| group.as_bytes())
            }
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regular expression for random patterns.
    const PATTERNS: &str = "(/[ab]{1,2}){1,3}(/\\*)?|\\*\\.[ab]{1,2}|~[ab/]{1,3}";

    fn table(patterns: &[&str]) -> Table {
        let patterns: Vec<_> = patterns.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        Table::new(&patterns).unwrap()
    }

    #[test]
    fn the_first_of_the_file_wins_whatever_its_form() {
        let table = table(&["/a/b", "*.css", "/a/*", "~^/a/", "/*", "*.tar.gz"]);
        assert_eq!(table.all(b"/a/b"), [0, 2, 3, 4]);
        assert_eq!(table.all(b"/a/x.CSS"), [1, 2, 3, 4]);
        assert_eq!(table.first(b"/a/c"), Some(2));
        assert_eq!(table.first_from(b"/a/c", 3), Some(3));
        assert_eq!(table.first(b"/b"), Some(4));
        assert_eq!(table.all(b"/b.tar.gz"), [4, 5]);
    }

    #[test]
    fn groups_are_what_follows_the_folder_or_what_the_expression_says() {
        let table = table(&["/old/*", "~^/p/(\\d+)(x)?$", "/one"]);
        assert_eq!(table.captures(0, b"/old/a/b").group(1), b"a/b");
        assert_eq!(table.captures(1, b"/p/12").group(1), b"12");
        assert_eq!(table.captures(1, b"/p/12").group(2), b"");
        assert_eq!(table.captures(2, b"/one").group(0), b"/one");
    }

    proptest::proptest! {
        /// The table says what each pattern says alone.
        #[test]
        fn it_agrees_with_each_pattern_alone(
            path in "(/[ab.]{0,3}){1,4}",
            wanted in proptest::collection::vec(PATTERNS, 0..12),
        ) {
            let patterns = wanted.iter().map(|text| Pattern::parse(text).unwrap());
            let patterns: Vec<_> = patterns.collect();
            let table = Table::new(&patterns).unwrap();
            let alone: Vec<usize> = (0..patterns.len())
                .filter(|at| patterns[*at].matches(path.as_bytes()))
                .collect();
            proptest::prop_assert_eq!(table.first(path.as_bytes()), alone.first().copied());
            proptest::prop_assert_eq!(table.all(path.as_bytes()), alone);
        }
    }
}
