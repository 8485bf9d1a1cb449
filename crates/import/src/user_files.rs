//! Files with users and password hashes.

use crate::FileReader;

/// The beginnings of hashes that `basic_auth` accepts.
const STRONG: [&str; 4] = ["$2", "$5$", "$6$", "$argon2"];

/// Why users of a file cannot log in: their passwords have weak hashes.
pub fn weak_hashes(files: &dyn FileReader, file: &str) -> Option<String> {
    let text = files.read(file).ok()?;
    let weak = text.lines().filter_map(|line| line.split_once(':'));
    let weak = weak.filter(|(_, hash)| !STRONG.iter().any(|start| hash.starts_with(start)));
    let names: Vec<&str> = weak.map(|(name, _)| name).filter(|name| !name.is_empty()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the hashes of {} in {file} are weak (MD5, SHA-1 or crypt), and these users cannot log \
             in; set new passwords with `htpasswd -B {file} NAME`",
            names.join(", ")
        )
    })
}

/// The users of a file.
pub fn names(files: &dyn FileReader, file: &str) -> Option<Vec<String>> {
    let text = files.read(file).ok()?;
    let names = text.lines().filter(|line| !line.starts_with('#'));
    let names = names.filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    Some(names.filter(|name| !name.is_empty()).collect())
}

/// A file with users that the imported configuration names, and that has to be written beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFile {
    /// Its name.
    pub name: String,
    /// Its lines, each a user and a hash.
    pub text: String,
}

/// Whether `basic_auth` accepts a hash.
pub fn is_strong(hash: &str) -> bool {
    STRONG.iter().any(|start| hash.starts_with(start))
}
