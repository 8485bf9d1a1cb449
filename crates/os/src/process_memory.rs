//! Reads another process's memory through a descriptor that it has opened itself.
//!
//! Opening `/proc/PID/mem` of another process takes the rights of ptrace(2): the right user, or
//! `CAP_SYS_PTRACE`, and a dumpable process. Opening one's own takes only that the file is one's
//! own, and a receiver of the descriptor reads without any further check (`mem_open` and `mem_rw`
//! in the kernel's `fs/proc/base.c`). It refers to the memory, not to the process id: once the
//! process has ended, nothing can be read, whichever process gets its number.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::fork::OwnProc;

/// The memory of the process that opened it, for reading.
#[derive(Debug)]
pub struct ProcessMemory(OwnedFd);

impl ProcessMemory {
    /// The memory of this process.
    ///
    /// # Errors
    /// As [`OwnProc::own_file`].
    pub fn of_this_process(proc: &OwnProc) -> io::Result<ProcessMemory> {
        let file: File = proc.own_file("mem")?;
        Ok(ProcessMemory(file.into()))
    }

    /// The memory behind a descriptor that its process has sent.
    pub fn from_fd(fd: OwnedFd) -> ProcessMemory {
        ProcessMemory(fd)
    }

    /// Fills `into` from `address` on. False when some of it is not readable, or the process has
    /// ended.
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let mut done = 0;
        while done < into.len() {
            let Some(from) = address.checked_add(done as u64) else {
                return false;
            };
            let read =
                rustix::io::retry_on_intr(|| rustix::io::pread(&self.0, &mut into[done..], from));
            match read {
                Ok(count) if count > 0 => done += count,
                _ => return false,
            }
        }
        true
    }
}

impl AsFd for ProcessMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_nothing_else() {
        let memory = ProcessMemory::of_this_process(&OwnProc::open().unwrap()).unwrap();
        let there = *b"over there";
        let mut copy = [0; 10];
        assert!(memory.read(there.as_ptr() as u64, &mut copy));
        assert_eq!(copy, there);
        for nowhere in [0, 8, u64::MAX - 3, 1 << 63] {
            assert!(!memory.read(nowhere, &mut copy), "{nowhere:#x}");
        }
    }
}
