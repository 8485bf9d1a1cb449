//! The memory in which the applications of pools count (crate `scoreboard`, `application.rs`), by
//! pool and user: it outlives the pool's processes, and no other user gets it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use maitred_control::Confinement;
use maitred_os::shared;
use maitred_scoreboard::{create_application_memory, is_application_memory};
use tracing::{error, warn};

/// All memory of applications.
#[derive(Debug, Default)]
pub struct ApplicationMemories {
    files: BTreeMap<(String, u32), CounterFile>,
}

/// The memory of an application.
#[derive(Debug)]
struct CounterFile {
    fd: OwnedFd,
    /// No process can make holes in it.
    is_solid: bool,
    /// The log says that the commands of the pool do not get it.
    is_refusal_logged: Cell<bool>,
}

impl CounterFile {
    fn new(fd: OwnedFd) -> CounterFile {
        let is_solid = shared::is_solid(&fd);
        CounterFile { fd, is_solid, is_refusal_logged: Cell::new(false) }
    }
}

/// The memory of an application, as one program hands it to the next.
pub type LeftMemory<D> = (String, u32, D);

impl ApplicationMemories {
    /// The memory that the previous program has handed over. That of another version is dropped:
    /// counting starts again.
    pub fn inherited(left: Vec<LeftMemory<OwnedFd>>) -> ApplicationMemories {
        let left = left.into_iter().filter(|(_, _, file)| is_application_memory(file.as_fd()));
        let files = left.map(|(pool, user, file)| ((pool, user), CounterFile::new(file)));
        ApplicationMemories { files: files.collect() }
    }

    /// All of it, with the descriptors.
    pub fn descriptors(&self) -> Vec<LeftMemory<RawFd>> {
        let files = self.files.iter();
        files.map(|((pool, user), file)| (pool.clone(), *user, file.fd.as_raw_fd())).collect()
    }

    /// Creates the memory of a pool with this user, if there is none. Without it, nothing is
    /// counted.
    pub fn add(&mut self, pool: &str, user: u32) {
        if self.of(pool, user).is_some() {
            return;
        }
        match create_application_memory(pool) {
            Ok(file) => {
                self.files.insert((pool.to_owned(), user), CounterFile::new(file));
            }
            Err(why) => error!(
                "the application of pool `{pool}` cannot count, since there is no memory for it: \
                 {why}"
            ),
        }
    }

    /// The memory of a pool with this user.
    pub fn of(&self, pool: &str, user: u32) -> Option<BorrowedFd<'_>> {
        self.files.get(&(pool.to_owned(), user)).map(|file| file.fd.as_fd())
    }

    /// The memory of a pool with this user for a command, which gets the descriptor and has no
    /// filter of system calls: none if it could make holes, for which the front would wait.
    pub fn of_command(
        &self,
        pool: &str,
        user: u32,
        confinement: &Confinement,
    ) -> Option<BorrowedFd<'_>> {
        let file = self.files.get(&(pool.to_owned(), user))?;
        if file.is_solid || !confinement.forbids_holes {
            return Some(file.fd.as_fd());
        }
        if !file.is_refusal_logged.replace(true) {
            warn!(
                "commands and schedules of pool `{pool}` do not count (maitred_metric_add() and \
                 the like return false), since they could make the front wait for holes in the \
                 memory; give the server CAP_LINUX_IMMUTABLE, on Linux 6.1 or newer"
            );
        }
        None
    }

    /// Removes the memory of a removed pool.
    pub fn forget(&mut self, pool: &str) {
        self.files.retain(|(name, _), _| name != pool);
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::IFlags;

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

    #[test]
    fn a_command_gets_memory_without_holes_or_that_of_a_server_with_one_user() {
        let file = create_application_memory("shop").unwrap();
        let can_be_solid = shared::is_solid(&file);
        let confinement = |forbids_holes| Confinement { forbids_holes, ..Confinement::default() };
        let has_it = |all: &ApplicationMemories, forbids_holes| {
            all.of_command("shop", 33, &confinement(forbids_holes)).is_some()
        };
        let all = ApplicationMemories::inherited(vec![("shop".to_owned(), 33, file)]);
        assert!(has_it(&all, false));
        assert_eq!(has_it(&all, true), can_be_solid);

        let file = create_application_memory("shop").unwrap();
        // As where that is not possible.
        let _ = rustix::fs::ioctl_setflags(&file, IFlags::empty());
        let all = ApplicationMemories::inherited(vec![("shop".to_owned(), 33, file)]);
        assert!(has_it(&all, false));
        assert!(!has_it(&all, true));
        // The workers' is mapped by their zygote.
        assert!(all.of("shop", 33).is_some());
    }
}
