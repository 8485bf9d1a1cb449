//! Messages between the supervisor and the process that counts the private memory of others.

use maitred_os::proc::Rollup;
use serde::{Deserialize, Serialize};

/// Most processes of one [`ToMemoryReader::Count`].
pub const COUNTED_AT_ONCE: usize = 128;

/// Orders to the process that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMemoryReader {
    /// The first order. Reply: [`FromMemoryReader::Ready`].
    Begin {
        /// Whether it is sandboxed, like the front.
        restricted: bool,
    },
    /// Count the memory of these processes, [`COUNTED_AT_ONCE`] at most. Reply:
    /// [`FromMemoryReader::Counted`].
    Count {
        /// Their process ids.
        pids: Vec<i32>,
    },
}

/// Reports of the process that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromMemoryReader {
    /// It takes orders.
    Ready,
    /// The memory of the first processes of the order, of one at least: the rest would have taken
    /// too long.
    Counted {
        /// None: the process has ended, or may not be looked at.
        memory: Vec<Option<CountedMemory>>,
    },
}

/// The memory of a process by its page tables, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedMemory {
    /// Pages that no other process maps.
    pub private: u64,
    /// Pages that others map too.
    pub shared: u64,
    /// Its share of swapped pages.
    pub swapped: u64,
}

impl CountedMemory {
    /// Counts the memory of a process now. This waits for the process's memory lock, which its
    /// owner can hold for as long as they like; a signal that kills the caller ends the wait.
    pub fn of(pid: i32) -> Option<CountedMemory> {
        let rollup = Rollup::of(pid)?;
        Some(CountedMemory {
            private: rollup.private,
            shared: rollup.shared(),
            swapped: rollup.swapped,
        })
    }
}
