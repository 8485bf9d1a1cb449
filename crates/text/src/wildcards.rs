//! Wildcards of file names as glob(3) has them, for crate `glob`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// The same pattern for crate `glob`: `[^a]` is `[!a]`, and `**` is no other wildcard than `*`.
pub fn for_glob(pattern: &str) -> String {
    let mut text = pattern.replace("[^", "[!");
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    text
}

/// Whether each hidden name of a path is for a part of the pattern that starts with a dot, and none
/// is the folder itself or the one above. The option of crate `glob` for this panics on names that
/// are not UTF-8, and has `.*` match nothing.
pub fn has_literal_dots(pattern: &Path, path: &Path) -> bool {
    names(path).count() == names(pattern).count() && begins_with_literal_dots(pattern, path)
}

/// As [`has_literal_dots`], for a path above those that the pattern matches.
pub fn begins_with_literal_dots(pattern: &Path, path: &Path) -> bool {
    let is_hidden = |name: &OsStr| name.as_bytes().starts_with(b".");
    let is_shown = |(name, part): (&OsStr, &OsStr)| {
        name == part || name != ".." && (!is_hidden(name) || is_hidden(part))
    };
    names(path).zip(names(pattern)).all(is_shown)
}

/// The names of a path, of which crate `glob` drops a `.` at the start.
fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.map(Component::as_os_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_glob_3() {
        for (pattern, same) in [
            ("a/[^.#]*", "a/[!.#]*"),
            ("***.conf", "*.conf"),
            ("a/**/b", "a/*/b"),
            ("[!a]", "[!a]"),
        ] {
            assert_eq!(for_glob(pattern), same);
        }
    }

    #[test]
    fn a_wildcard_stands_for_no_dot_at_the_start_of_a_name() {
        let has = |pattern: &str, path: &str| has_literal_dots(Path::new(pattern), Path::new(path));
        assert!(has("/a/*", "/a/b") && has("/a/.*", "/a/.b") && has("/.a/*", "/.a/b"));
        assert!(has("./a/*", "a/b") && has("./*", "b") && has("../*/b", "../a/b"));
        assert!(!has("./.*", "./.") && !has("./*", ".b") && !has("/a/*", "/a"));
        assert!(!has("/a/*", "/a/.b") && !has("/*/b", "/.a/b") && !has("/a/.*", "/a/.."));
        assert!(has_literal_dots(Path::new("/a/*"), Path::new(OsStr::from_bytes(b"/a/\xe9"))));
    }
}
