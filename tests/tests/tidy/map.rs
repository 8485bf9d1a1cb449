//! ARCHITECTURE.md: the files, functions and tests that it names exist.

use std::collections::BTreeSet;

use crate::source::{Tree, Violation, root};

/// Names in backticks that are missing in the sources.
pub fn missing(tree: &Tree) -> Vec<Violation> {
    let Some(map) = tree.files.iter().find(|file| file.path == "ARCHITECTURE.md") else {
        panic!("there is no ARCHITECTURE.md");
    };
    let mut words = BTreeSet::new();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    for file in tree.files.iter().filter(|file| !file.path.ends_with(".md")) {
        words.extend(file.text.split(|c| !is_part(c)).filter(|word| !word.is_empty()));
    }
    let mut violations = Vec::new();
    for (index, line) in map.text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2) {
            if !exists(tree, &words, name) {
                violations.push(Violation::new(map, index + 1, format!("`{name}` does not exist")));
            }
        }
    }
    violations
}

fn exists(tree: &Tree, words: &BTreeSet<&str>, name: &str) -> bool {
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
