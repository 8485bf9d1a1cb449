//! Mistakes in a configuration, with their positions.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::model::config::Config;

/// Most mistakes that are listed; the rest is counted.
pub(crate) const MAX_MISTAKES_LISTED: usize = 100;

/// Most characters of the user's text that a message quotes.
const MAX_QUOTED_CHARS: usize = 60;

/// A position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The configuration file, or the directory given in its stead.
    pub file: PathBuf,
    /// The position in the file, if the mistake has one.
    pub place: Option<Position>,
    /// The finding, the expected value and the remedy.
    pub sentence: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.file.display())?;
        if let Some(Position { line, column }) = self.place {
            write!(out, "{line}:{column}:")?;
        }
        write!(out, " {}", self.sentence)
    }
}

/// All mistakes of a configuration, at least one; displayed as one line for each.
#[derive(Debug, Clone, PartialEq)]
pub struct Mistakes {
    listed: Vec<Mistake>,
    unlisted: usize,
    /// The settings without a mistake, if the files are TOML.
    readable: Option<Box<Config>>,
}

impl Mistakes {
    /// One mistake without a position in `file`.
    pub(crate) fn about(file: &Path, sentence: String) -> Mistakes {
        let mistake = Mistake { file: file.to_path_buf(), place: None, sentence };
        Mistakes::new(vec![mistake], 0)
    }

    /// These mistakes, at least one, and the number of those that are not listed.
    pub(crate) fn new(listed: Vec<Mistake>, unlisted: usize) -> Mistakes {
        Mistakes { listed, unlisted, readable: None }
    }

    /// These, and further ones.
    pub(crate) fn with(mut self, further: Vec<Mistake>) -> Mistakes {
        self.listed.extend(further);
        self
    }

    /// These, with the settings that have none.
    pub(crate) fn beside(self, config: Config) -> Mistakes {
        Mistakes { readable: Some(Box::new(config)), ..self }
    }

    /// A configuration with the settings that have no mistake, to find what else is wrong with
    /// them. It is not complete and cannot be served. None if the files are no TOML.
    pub fn readable(&self) -> Option<&Config> {
        self.readable.as_deref()
    }

    /// The first hundred mistakes, in the order of the file; the last line has the number of the
    /// others.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.listed.iter()
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.listed.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            write!(out, "{mistake}")?;
        }
        if self.unlisted > 0 {
            write!(out, "\nand {} more", self.unlisted)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// A mistake whose position is a range of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) span: Range<usize>,
    pub(crate) sentence: String,
}

impl Fault {
    pub(crate) fn new(span: Range<usize>, sentence: impl Into<String>) -> Fault {
        let sentence = sentence.into();
        Fault { span, sentence }
    }

    /// A fault at the value of a setting, or at the start of the file if it is not set.
    pub(crate) fn at(settings: &DeTable<'_>, name: &str, sentence: impl Into<String>) -> Fault {
        let span = settings.get(name).map_or(0..0, |value| value.span());
        Fault::new(span, sentence)
    }

    /// The mistake with its position in `text`.
    pub(crate) fn located(self, text: &str, file: &Path) -> Mistake {
        Mistake {
            file: file.to_path_buf(),
            place: Some(position_of(text, self.span.start)),
            sentence: self.sentence,
        }
    }
}

/// The position of a byte in `text`.
pub(crate) fn position_of(text: &str, offset: usize) -> Position {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Position {
        line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

/// The user's text for a message: on one line and not too long.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.escape_debug().to_string()
}

/// A path in a sentence, which is one line.
pub(crate) fn plain_path(path: &Path) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    path.display().to_string().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_write_to_a_terminal() {
        assert_eq!(plain_path(Path::new("/a\x1b[2J\nb")), "/a\u{fffd}[2J\u{fffd}b");
    }

    #[test]
    fn a_column_counts_characters_not_bytes() {
        assert_eq!(position_of("a = \"ü\" x", 9), Position { line: 1, column: 9 });
        assert_eq!(position_of("a\nbc", 3), Position { line: 2, column: 2 });
    }

    #[test]
    fn a_place_beyond_the_text_is_its_end() {
        assert_eq!(position_of("ab\n", 99), Position { line: 2, column: 1 });
        assert_eq!(position_of("", 0), Position { line: 1, column: 1 });
    }

    #[test]
    fn long_and_multiline_text_is_repeated_short_and_on_one_line() {
        assert_eq!(quoted("a\nb"), "a\\nb");
        assert_eq!(quoted(&"x".repeat(70)), format!("{}…", "x".repeat(60)));
    }
}
