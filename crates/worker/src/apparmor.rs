//! php-fpm's `apparmor_hat`: workers run under a profile of their own below the server's, by the
//! same steps as libapparmor's `aa_getcon` and `aa_change_profile`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

/// The file for reading and changing a process' profile.
const CURRENT: &str = "/proc/self/attr/current";

/// Longest profile name with its mode, in bytes: one read from the kernel.
const LABEL_BYTES: u64 = 4096;

/// A profile to change to, with the file for that held open: in a new root it may not exist.
#[derive(Debug)]
pub struct Hat {
    pool: String,
    name: String,
    current: File,
}

impl Hat {
    /// Finds the profile `hat` below the current one.
    ///
    /// # Errors
    /// One sentence, in php-fpm's words, when the current profile cannot be read.
    pub fn find(pool: &str, hat: &str) -> Result<Hat, String> {
        let open = || OpenOptions::new().read(true).write(true).open(CURRENT);
        let asked = open().and_then(|current| Ok((label(&current)?, current)));
        let (label, current) = asked.map_err(|error| {
            format!(
                "[pool {pool}] failed to query apparmor confinement. Please check if \
                 \"/proc/*/attr/current\" is read and writeable.: {error}"
            )
        })?;
        Ok(Hat { pool: pool.to_owned(), name: beneath(&label, hat), current })
    }

    /// Changes to it, permanently.
    ///
    /// # Errors
    /// One sentence, in php-fpm's words, when the system refuses.
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

/// The name of a profile below that of a label, which reads `NAME (MODE)` or `unconfined`.
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
        assert_eq!(beneath("/usr/sbin/php-fpm (enforce)\n", "shop"), "/usr/sbin/php-fpm//shop");
        assert_eq!(beneath("my profile (x) (complain)\0", "a"), "my profile (x)//a");
        assert_eq!(beneath("unconfined\n", "a"), "unconfined//a");
    }
}
