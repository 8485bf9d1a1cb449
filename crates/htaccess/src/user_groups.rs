//! Users and groups of `AuthUserFile` and `AuthGroupFile`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The client as a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownUser {
    /// `AuthUserFile`.
    pub file: Option<Vec<u8>>,
    /// `AuthGroupFile`.
    pub group_file: Option<Vec<u8>>,
    /// The name.
    pub name: Vec<u8>,
    /// The groups of the file.
    pub groups: Arc<Groups>,
}

/// The groups of `AuthGroupFile`, and their users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups(HashMap<Vec<u8>, HashSet<Vec<u8>>>);

impl Groups {
    /// Parses lines of the form `group: user user`.
    pub fn parse(text: &[u8]) -> Groups {
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let mut groups: HashMap<Vec<u8>, HashSet<Vec<u8>>> = HashMap::new();
        for line in lines.filter(|line| !line.starts_with(b"#")) {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let users = line[colon + 1..].split(u8::is_ascii_whitespace);
            let users = users.filter(|user| !user.is_empty()).map(<[u8]>::to_vec);
            groups.entry(line[..colon].trim_ascii().to_vec()).or_default().extend(users);
        }
        Groups(groups)
    }

    /// Whether a user is in one of these groups.
    pub fn have(&self, user: &[u8], names: &[Vec<u8>]) -> bool {
        names.iter().filter_map(|name| self.0.get(name)).any(|users| users.contains(user))
    }
}
