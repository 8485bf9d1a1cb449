//! The order of folders in crates whose imports run down.

use std::collections::BTreeSet;

use crate::source::{Tree, Violation};

/// The folders of a crate, top to bottom.
struct Layers {
    source: &'static str,
    folders: &'static [&'static str],
}

const CRATES: [Layers; 2] = [
    Layers {
        source: "crates/front/src/",
        folders: &[
            "control", "server", "explain", "handler", "admin", "services", "site", "proxy",
            "cache", "backend", "pool", "logging", "http", "net", "runtime",
        ],
    },
    Layers {
        source: "crates/supervisor/src/",
        folders: &[
            "run",
            "upgrade",
            "jobs",
            "plan",
            "admin",
            "reload",
            "fpm",
            "capacity",
            "tls",
            "fronts",
            "systemd",
            "processes",
            "logging",
            "listen",
            "peer",
            "system",
            "error",
            "limits",
        ],
    },
];

const MOST_AT_THE_TOP: usize = 18;

/// Imports from a lower folder to a higher one, and folders that have no place in the order.
pub fn upward(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for layers in &CRATES {
        for file in tree.rust(layers.source) {
            let path = &file.path[layers.source.len()..];
            if path == "lib.rs" {
                continue;
            }
            let folder = path.split('/').next().unwrap_or_default();
            let folder = folder.trim_end_matches(".rs");
            let Some(rank) = layers.folders.iter().position(|name| *name == folder) else {
                violations.push(Violation::new(file, 1, "its folder has no place in the layers"));
                continue;
            };
            for (index, line) in file.text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                for (at, _) in code.match_indices("crate::") {
                    let name = &code[at + "crate::".len()..];
                    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
                    let name = &name[..end.unwrap_or(name.len())];
                    let target = layers.folders.iter().position(|folder| *folder == name);
                    if target.is_some_and(|target| target < rank) {
                        let what = format!("{folder} is below {name}, and imports it");
                        violations.push(Violation::new(file, index + 1, what));
                    }
                }
            }
        }
    }
    violations
}

/// Crates with too many modules and folders at their top.
pub fn top(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for layers in &CRATES {
        let mut names = BTreeSet::new();
        for file in tree.rust(layers.source) {
            let path = &file.path[layers.source.len()..];
            let name = path.split('/').next().unwrap_or_default();
            names.insert(name.trim_end_matches(".rs"));
        }
        names.remove("lib");
        if names.len() > MOST_AT_THE_TOP {
            let what = format!("{} at the top, at most {MOST_AT_THE_TOP}", names.len());
            let lib = format!("{}lib.rs", layers.source);
            let lib = tree.files.iter().find(|file| file.path == lib);
            violations.extend(lib.map(|lib| Violation::new(lib, 1, what)));
        }
    }
    violations
}
