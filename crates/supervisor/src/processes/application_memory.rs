//! The memory in which the applications of pools count (crate `scoreboard`, `application.rs`), by
//! pool and user: it outlives the pool's processes, and no other user gets it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use maitred_scoreboard::{create_application_memory, is_application_memory};
use tracing::error;

/// All memory of applications.
#[derive(Debug, Default)]
pub struct ApplicationMemories {
    files: BTreeMap<(String, u32), OwnedFd>,
}

/// The memory of an application, as one program hands it to the next.
pub type LeftMemory<D> = (String, u32, D);

impl ApplicationMemories {
    /// The memory that the previous program has handed over. That of another version is dropped:
    /// counting starts again.
    pub fn inherited(left: Vec<LeftMemory<OwnedFd>>) -> ApplicationMemories {
        let left = left.into_iter().filter(|(_, _, file)| is_application_memory(file.as_fd()));
        let files = left.map(|(pool, user, file)| ((pool, user), file));
        ApplicationMemories { files: files.collect() }
    }

    /// All of it, with the descriptors.
    pub fn descriptors(&self) -> Vec<LeftMemory<RawFd>> {
        let files = self.files.iter();
        files.map(|((pool, user), file)| (pool.clone(), *user, file.as_raw_fd())).collect()
    }

    /// Creates the memory of a pool with this user, if there is none. Without it, nothing is
    /// counted.
    pub fn add(&mut self, pool: &str, user: u32) {
        if self.of(pool, user).is_some() {
            return;
        }
        match create_application_memory(pool) {
            Ok(file) => {
                self.files.insert((pool.to_owned(), user), file);
            }
            Err(why) => error!(
                "the application of pool `{pool}` cannot count, since there is no memory for it: \
                 {why}"
            ),
        }
    }

    /// The memory of a pool with this user.
    pub fn of(&self, pool: &str, user: u32) -> Option<BorrowedFd<'_>> {
        self.files.get(&(pool.to_owned(), user)).map(AsFd::as_fd)
    }

    /// Removes the memory of a removed pool.
    pub fn forget(&mut self, pool: &str) {
        self.files.retain(|(name, _), _| name != pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_its_memory_until_it_is_removed_and_another_user_gets_another() {
        let mut all = ApplicationMemories::default();
        let inode = |all: &ApplicationMemories, user| {
            let file = all.of("shop", user)?;
            rustix::fs::fstat(file).ok().map(|stat| stat.st_ino)
        };
        all.add("shop", 33);
        let first = inode(&all, 33);
        all.add("shop", 33);
        assert_eq!((inode(&all, 33), inode(&all, 34)), (first, None));
        all.add("shop", 34);
        assert!(first.is_some() && inode(&all, 34).is_some());
        assert_ne!(first, inode(&all, 34));
        all.forget("shop");
        assert_eq!(all.descriptors(), []);
    }
}
