//! Rules about lines and words.

use crate::source::{File, Tree, Violation};

const COLUMNS: usize = 100;
const LINES: usize = 600;

/// Words that hide the noun that is meant, and words of a dialect.
const BANNED: [&str; 15] = [
    "nobody",
    "somebody",
    "whoever",
    "whom",
    "whomever",
    "anew",
    "thereof",
    "betake",
    "is told",
    "are told",
    "is asked",
    "are asked",
    "has been told",
    "so many",
    "in hand",
];

/// Names that contain a banned word: a user of Unix, in quotes or configurations, and an option of
/// systemctl.
const NAMES: [&str; 8] = [
    "\\\"nobody\\\"",
    "\"nobody\"",
    "`nobody`",
    "'nobody'",
    "= nobody",
    ",nobody",
    "u:nobody:",
    "--kill-whom",
];

/// Lines with too many columns.
pub fn columns(tree: &Tree) -> Vec<Violation> {
    let files = tree.files.iter().filter(|file| file.is_rust() || file.is_c());
    let long = files.flat_map(|file| {
        let lines = file.text.lines().enumerate();
        // A line has as many bytes as characters or more, and to count those takes longer.
        let long = lines.filter(|(_, line)| line.len() > COLUMNS);
        let long = long.filter(|(_, line)| line.chars().count() > COLUMNS);
        long.map(|(index, line)| {
            let columns = line.chars().count();
            Violation::new(file, index + 1, format!("{columns} columns, at most {COLUMNS}"))
        })
    });
    long.collect()
}

/// Files with too many lines.
pub fn lines(tree: &Tree) -> Vec<Violation> {
    let files = tree.files.iter().filter(|file| file.is_rust() || file.is_c());
    let long = files.filter(|file| file.text.lines().count() > LINES);
    let violations = long.map(|file| {
        let lines = file.text.lines().count();
        Violation::new(file, LINES + 1, format!("{lines} lines, at most {LINES}"))
    });
    violations.collect()
}

/// Banned words, wherever a reader or an operator meets them.
pub fn words(tree: &Tree) -> Vec<Violation> {
    let is_prose = |file: &&File| {
        let is_own = file.path.starts_with("tests/tests/tidy/");
        let is_past = file.path == "CHANGELOG.md";
        !is_own && !is_past
    };
    let banned = BANNED.iter().flat_map(|word| [(*word).to_owned(), capitalised(word)]);
    let banned: Vec<String> = banned.collect();
    let mut violations = Vec::new();
    for file in tree.files.iter().filter(is_prose) {
        // Most words are in no file: a look at all of its lines at once is a quick one.
        let in_file: Vec<_> = banned.iter().filter(|word| file.text.contains(*word)).collect();
        if in_file.is_empty() {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            let line = NAMES.iter().fold(line.to_owned(), |line, name| line.replace(name, ""));
            for word in in_file.iter().filter(|word| has_word(&line, word)) {
                violations.push(Violation::new(file, index + 1, format!("`{word}`")));
            }
        }
    }
    violations
}

/// A word at the start of a sentence.
fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !is_part(before) && !is_part(after)
    })
}
