//! Users and groups of `AuthUserFile` and `AuthGroupFile`.

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
pub struct Groups(Vec<UserGroup>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct UserGroup {
    name: Vec<u8>,
    users: Vec<Vec<u8>>,
}

impl Groups {
    /// Parses lines of the form `group: user user`.
    pub fn parse(text: &[u8]) -> Groups {
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let groups = lines.filter(|line| !line.starts_with(b"#")).filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            let users = line[colon + 1..].split(u8::is_ascii_whitespace);
            let users = users.filter(|user| !user.is_empty()).map(<[u8]>::to_vec);
            Some(UserGroup { name: line[..colon].trim_ascii().to_vec(), users: users.collect() })
        });
        Groups(groups.collect())
    }

    /// Whether a user is in one of these groups.
    pub fn have(&self, user: &[u8], names: &[Vec<u8>]) -> bool {
        let mut groups = self.0.iter().filter(|group| names.contains(&group.name));
        groups.any(|group| group.users.iter().any(|own| own == user))
    }
}
