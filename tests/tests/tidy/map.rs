//! ARCHITECTURE.md and docs/security.md: the files, functions and tests that they name exist.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::source::{Tree, Violation, root};

/// A name with at least this number of underscores is a test's: a sentence.
const UNDERSCORES_OF_A_TEST: usize = 4;

/// Names in backticks in ARCHITECTURE.md that are missing in the sources.
pub fn missing(tree: &Tree) -> Vec<Violation> {
    let words = words_of_sources();
    missing_in("ARCHITECTURE.md", tree, |name| exists(tree, words, name))
}

/// Tests that docs/security.md names and that are missing in the sources.
pub fn missing_tests(tree: &Tree) -> Vec<Violation> {
    let words = words_of_sources();
    let is_test = |name: &str| name.matches('_').count() >= UNDERSCORES_OF_A_TEST;
    missing_in("docs/security.md", tree, |name| !is_test(name) || words.contains(name))
}

/// All words of the sources; there are millions, so that they are read once.
fn words_of_sources() -> &'static HashSet<&'static str> {
    static WORDS: OnceLock<HashSet<&str>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let sources = Tree::get().files.iter().filter(|file| !file.path.ends_with(".md"));
        let words = sources.flat_map(|file| file.text.split(move |c| !is_part(c)));
        words.filter(|word| !word.is_empty()).collect()
    })
}

fn missing_in(page: &str, tree: &Tree, exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let Some(page) = tree.files.iter().find(|file| file.path == page) else {
        panic!("there is no {page}");
    };
    let mut violations = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2).filter(|name| !exists(name)) {
            violations.push(Violation::new(page, index + 1, format!("`{name}` does not exist")));
        }
    }
    violations
}

fn exists(tree: &Tree, words: &HashSet<&str>, name: &str) -> bool {
    let is_file = [".rs", ".c", ".h", ".md", ".php", ".txt"].iter().any(|end| name.ends_with(end));
    if is_file && !name.contains(' ') {
        let ending = format!("/{name}");
        let is_named = |path: &str| path == name || path.ends_with(&ending);
        return tree.files.iter().any(|file| is_named(&file.path)) || root().join(name).exists();
    }
    let is_path =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let parts: Vec<_> = name.split("::").collect();
    if !parts.iter().all(|part| is_path(part)) {
        return true;
    }
    parts.iter().all(|part| words.contains(part)) || is_setting(tree, name)
}

/// Settings, commands and system calls are described elsewhere.
fn is_setting(tree: &Tree, name: &str) -> bool {
    let docs = tree.files.iter().filter(|file| file.path.starts_with("docs/"));
    let mut docs = docs.filter(|file| file.path.ends_with(".md"));
    docs.any(|file| file.text.contains(name))
}
