//! The default user of the front.

use nix::unistd::User;

/// Users that the front runs as, the first that exists: its own, which the installation creates,
/// or Debian's user of web servers.
const USERS: [&str; 2] = ["maitred", "www-data"];

/// The user of the front where none is set. A missing one is refused later, by its name.
pub(crate) fn default_user() -> &'static str {
    let is_there = |name: &&str| matches!(User::from_name(name), Ok(Some(_)));
    let [_, last] = USERS;
    USERS.into_iter().find(is_there).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_has_a_user_of_its_own_where_there_is_one() {
        let has_own = std::fs::read_to_string("/etc/passwd")
            .unwrap()
            .lines()
            .any(|line| line.starts_with("maitred:"));
        let expected = if has_own { "maitred" } else { "www-data" };
        assert_eq!(default_user(), expected);
    }
}
