//! A directive of a configuration file.

use crate::report::SourceLine;

/// Longest directive in the report, in characters.
const MAX_SHOWN: usize = 80;

/// A directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// Its name.
    pub name: String,
    /// Its arguments, without quotes.
    pub arguments: Vec<String>,
    /// Its place.
    pub place: SourceLine,
    /// The directives in its block; empty without one.
    pub block: Vec<Directive>,
}

impl Directive {
    /// The first argument, or nothing.
    pub fn first(&self) -> &str {
        self.argument(0)
    }

    /// An argument, or nothing.
    pub fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map(String::as_str).unwrap_or_default()
    }

    /// Whether it has this name, ignoring case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The directive without its block, shortened.
    pub fn shown(&self) -> String {
        let all = [self.name.as_str()].into_iter();
        let all: Vec<&str> = all.chain(self.arguments.iter().map(String::as_str)).collect();
        let text = all.join(" ").replace(char::is_control, " ");
        match text.char_indices().nth(MAX_SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}
