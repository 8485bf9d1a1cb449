//! Rules about names of types and files.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Tree, Violation};
use crate::syntax::{Found, Syntax};

/// Names that two types of a crate have.
pub fn types(_: &Tree) -> Vec<Violation> {
    let mut known: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut violations = Vec::new();
    for Syntax { file, types, .. } in Syntax::of_crates() {
        let Some(name) = file.crate_name() else {
            continue;
        };
        for Found { line, text: ident } in types {
            let place = format!("{}:{line}", file.path);
            match known.get(&(name.to_owned(), ident.clone())) {
                Some(first) => {
                    let what = format!("`{ident}` is a type in {first}, too");
                    violations.push(Violation::new(file, *line, what));
                }
                None => drop(known.insert((name.to_owned(), ident.clone()), place)),
            }
        }
    }
    violations
}

/// File names that every crate may have: their meaning is the language's.
const OF_RUST: [&str; 5] = ["mod", "lib", "main", "tests", "build"];

/// Names of several files, and the one meaning that all of them have.
const MEANINGS: &str = include_str!("meanings.txt");

/// File names that occur more than once and have no meaning in `meanings.txt`.
pub fn files(tree: &Tree) -> Vec<Violation> {
    let meanings: BTreeSet<_> =
        MEANINGS.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    let mut violations = Vec::new();
    let sources = tree.rust("crates/");
    for file in sources.filter(|file| file.path.contains("/src/")) {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let stem = name.trim_end_matches(".rs");
        if OF_RUST.contains(&stem) || meanings.contains(stem) {
            continue;
        }
        match known.get(stem) {
            Some(first) => {
                let what =
                    format!("{first} has this name, too: rename one, or say in meanings.txt");
                violations.push(Violation::new(file, 1, what));
            }
            None => drop(known.insert(stem, &file.path)),
        }
    }
    violations
}
