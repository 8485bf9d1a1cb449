//! php-fpm's `apparmor_hat`: workers run under a profile of their own beneath the server's, as
//! libapparmor's `aa_getcon` and `aa_change_profile` bring it about.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

/// Where the kernel tells and takes a process's profile.
const CURRENT: &str = "/proc/self/attr/current";

/// Longest profile name with its mode, in bytes: what the kernel gives in one read.
const LABEL_BYTES: u64 = 4096;

/// A profile to be changed to, with the way there held open: from a new root there may be none.
#[derive(Debug)]
pub struct Hat {
    pool: String,
    name: String,
    current: File,
}

impl Hat {
    /// Finds the profile `hat` beneath the present one.
    ///
    /// # Errors
    /// One sentence, in php-fpm's words, when the system does not say which that is.
    pub fn find(pool: &str, hat: &str) -> Result<Hat, String> {
        let open = || OpenOptions::new().read(true).write(true).open(CURRENT);
        let asked = open().and_then(|current| Ok((label(&current)?, current)));
        let (label, current) = asked.map_err(|error| {
            format!(
                "[pool {pool}] failed to query apparmor confinement. Please check if \
                 \"/proc/*/attr/current\" is read and writeable.: {error}"
            )
        })?;
        Ok(Hat {
            pool: pool.to_owned(),
            name: beneath(&label, hat),
            current,
        })
    }

    /// Changes to it, for good.
    ///
    /// # Errors
    /// One sentence, in php-fpm's words, when the system does not let us.
    pub fn put_on(mut self) -> Result<(), String> {
        let order = format!("changeprofile {}", self.name);
        self.current.write_all(order.as_bytes()).map_err(|error| {
            format!(
                "[pool {}] failed to change to new confinement ({}). Please check if \
                 \"/proc/*/attr/current\" is read and writeable and \"change_profile -> {}//*\" is \
                 allowed.: {error}",
                self.pool,
                self.name,
                self.name.rsplit_once("//").map_or("", |(above, _)| above)
            )
        })
    }
}

fn label(current: &File) -> io::Result<String> {
    let mut text = String::new();
    current.take(LABEL_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The name of a profile beneath the one of a label, which reads `NAME (MODE)` or `unconfined`.
fn beneath(label: &str, hat: &str) -> String {
    let label = label.trim_end_matches(['\n', '\0']);
    let name = match label.rsplit_once(" (") {
        Some((name, mode)) if mode.ends_with(')') => name,
        _ => label,
    };
    format!("{name}//{hat}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hat_is_beneath_the_present_profile_whatever_its_mode() {
        assert_eq!(
            beneath("/usr/sbin/php-fpm (enforce)\n", "shop"),
            "/usr/sbin/php-fpm//shop"
        );
        assert_eq!(
            beneath("my profile (x) (complain)\0", "a"),
            "my profile (x)//a"
        );
        assert_eq!(beneath("unconfined\n", "a"), "unconfined//a");
    }
}
