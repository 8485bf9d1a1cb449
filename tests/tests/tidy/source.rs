//! The sources of the workspace.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A place that breaks a rule.
#[derive(Debug)]
pub struct Violation {
    /// The path of its file, from the root of the repository.
    pub file: String,
    /// The number of its line, from 1.
    pub line: usize,
    /// The violation, in some words.
    pub what: String,
}

impl Violation {
    /// One in a file.
    pub fn new(file: &File, line: usize, what: impl Into<String>) -> Violation {
        Violation { file: file.path.clone(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// A text file of the repository.
#[derive(Debug)]
pub struct File {
    /// Its path from the root of the repository.
    pub path: String,
    /// Its contents.
    pub text: String,
}

impl File {
    /// The name of its crate, if it is in `crates`.
    pub fn crate_name(&self) -> Option<&str> {
        let path = self.path.strip_prefix("crates/")?;
        path.split('/').next()
    }

    /// Whether it is source of Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is source of C.
    pub fn is_c(&self) -> bool {
        self.path.ends_with(".c") || self.path.ends_with(".h")
    }
}

/// All text files of the repository that are written by hand.
#[derive(Debug)]
pub struct Tree {
    /// The files, by path.
    pub files: Vec<File>,
}

impl Tree {
    /// The tree, read once.
    pub fn get() -> &'static Tree {
        static TREE: OnceLock<Tree> = OnceLock::new();
        TREE.get_or_init(|| {
            let root = root();
            let mut files = Vec::new();
            read(&root, &root, &mut files);
            files.sort_by(|a, b| a.path.cmp(&b.path));
            Tree { files }
        })
    }

    /// The sources of Rust below `folder`.
    pub fn rust(&self, folder: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.is_rust() && file.path.starts_with(folder))
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Folders that hold nothing written by hand, or what others have written.
const SKIPPED: [&str; 4] = ["target", "node_modules", "corpus", "http-cache-tests"];

fn read(root: &Path, folder: &Path, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap_or(".").to_owned();
        if name.starts_with('.') || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            // `src/target` is no build folder.
            if folder.ends_with("src") || !SKIPPED.contains(&name.as_str()) {
                read(root, &path, files);
            }
        } else if [".rs", ".c", ".h", ".md"].iter().any(|end| name.ends_with(end)) {
            let relative = path.strip_prefix(root).unwrap();
            files.push(File {
                path: relative.to_str().unwrap().to_owned(),
                text: fs::read_to_string(&path).unwrap(),
            });
        }
    }
}
