//! The memory that a pool's workers share with the front, written to as a hostile worker could: by
//! native code of its own, or from a process that a script has left behind. Needs root.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::processes::Process;

/// Bytes written at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// The rest between two times that all of the memory is written over.
const REST: Duration = Duration::from_millis(20);

/// A pool's shared memory, as its supervisor has it open.
#[derive(Debug)]
pub struct PoolMemory {
    file: File,
    /// Its inode, which names it.
    pub number: u64,
}

/// A copy of a descriptor: memory in which no holes can be made is opened by no path.
fn copied(process: &Process, number: i32) -> File {
    let pid = Pid::from_raw(process.pid).expect("it runs");
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
    let file = pidfd_getfd(process, number, PidfdGetfdFlags::empty());
    File::from(file.expect("a pool's memory can be copied"))
}

impl PoolMemory {
    /// The memory of all generations of a pool.
    ///
    /// # Panics
    /// When the supervisor's descriptors cannot be read.
    pub fn of(supervisor: &Process, pool: &str) -> Vec<PoolMemory> {
        let folder = format!("/proc/{}/fd", supervisor.pid);
        let name = format!("/memfd:maitred-{pool} (deleted)");
        let entries = fs::read_dir(folder).expect("root may look at the supervisor");
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let paths =
            paths.filter(|path| fs::read_link(path).is_ok_and(|link| link.as_os_str() == &*name));
        paths
            .map(|path| {
                let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
                let file = copied(supervisor, number.expect("descriptors are numbers"));
                let stat = rustix::fs::fstat(&file).expect("it is a file");
                PoolMemory { file, number: stat.st_ino }
            })
            .collect()
    }

    /// Writes random words over all of it; another `seed` gives others.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn spoil(&self, seed: u64) {
        let length = self.file.metadata().expect("it is a file").len();
        let mut state = seed | 1;
        let mut piece = vec![0; PIECE_BYTES];
        for at in (0..length).step_by(PIECE_BYTES) {
            for word in piece.chunks_exact_mut(8) {
                // Xorshift, of which every word is another.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_ne_bytes());
            }
            let rest = usize::try_from(length - at).unwrap_or(usize::MAX);
            let piece = &piece[..PIECE_BYTES.min(rest)];
            self.file.write_all_at(piece, at).expect("it can be written");
        }
    }

    /// Goes on writing until what is returned is dropped.
    pub fn keep_spoiling(self) -> Spoiler {
        let goes_on = Arc::new(AtomicBool::new(true));
        let told = goes_on.clone();
        let thread = std::thread::spawn(move || {
            for seed in 1.. {
                if !told.load(Ordering::Relaxed) {
                    return;
                }
                self.spoil(seed);
                std::thread::sleep(REST);
            }
        });
        Spoiler { goes_on, thread: Some(thread) }
    }
}

/// A process that writes to a pool's memory all the time.
#[derive(Debug)]
pub struct Spoiler {
    goes_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Spoiler {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
