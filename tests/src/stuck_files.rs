//! A file system in user space (FUSE) with two files: writes of one, and reads of the other, wait
//! for as long as the test likes. A process that waits for one holds its locks meanwhile: such as
//! that of its memory, during an mmap(2) that replaces changed pages of the first, or that of a
//! file to which it writes a page of the second.
//!
//! The messages are those of the kernel's include/uapi/linux/fuse.h.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::server::{is_root, public_folder};
use crate::wait;

/// The device of file systems in user space.
const DEVICE: &str = "/dev/fuse";
/// Longest request in bytes, with what it writes.
const REQUEST_BYTES: usize = 64 * 1024;
const IN_HEADER_BYTES: usize = 40;
const FILE_BYTES: u64 = 4096;

/// Operations.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const BATCH_FORGET: u32 = 42;

/// Nodes.
const FOLDER: u64 = 1;
const STUCK_WRITES: u64 = 2;
const STUCK_READS: u64 = 3;

/// The name of the file whose reads wait. All other names are those of the other one.
const UNREADABLE: &str = "unreadable";

/// The error for all other operations (`ENOSYS`).
const NOT_IMPLEMENTED: i32 = -38;

#[derive(Debug, Default)]
struct State {
    waits: u32,
    is_released: bool,
}

/// The mounted file system. Dropping it ends all waits, and unmounts it.
#[derive(Debug)]
pub struct StuckFiles {
    folder: TempDir,
    state: Arc<(Mutex<State>, Condvar)>,
    serves: Option<JoinHandle<()>>,
}

impl StuckFiles {
    /// Mounts it for all users; none where that is not possible.
    pub fn mount() -> Option<StuckFiles> {
        let device = File::options().read(true).write(true).open(DEVICE).ok()?;
        if !is_root() {
            return None;
        }
        let folder = public_folder();
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=40755,user_id=0,group_id=0,allow_other");
        let options = CString::new(options).expect("options have no zero byte");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("stuck", folder.path(), "fuse", flags, Some(options.as_c_str())).ok()?;
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let shared = Arc::clone(&state);
        let serves = std::thread::spawn(move || serve(device, &shared));
        Some(StuckFiles { folder, state, serves: Some(serves) })
    }

    /// The file whose reads wait.
    pub fn unreadable(&self) -> PathBuf {
        self.folder.path().join(UNREADABLE)
    }

    /// The file whose writes wait.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    /// Waits until a process waits for a write, or for a read.
    pub fn wait_for_process(&self) {
        wait::until_true("a process to wait", || {
            self.state.0.lock().expect("no holder has panicked").waits > 0
        });
    }

    /// Ends all waits, also later ones.
    pub fn release(&self) {
        self.state.0.lock().expect("no holder has panicked").is_released = true;
        self.state.1.notify_all();
    }
}

impl Drop for StuckFiles {
    fn drop(&mut self) {
        self.release();
        let _ = unmount(self.folder.path(), UnmountFlags::DETACH | UnmountFlags::FORCE);
        if let Some(serves) = self.serves.take() {
            let _ = serves.join();
        }
    }
}

/// Serves requests until the file system is unmounted.
fn serve(mut device: File, state: &(Mutex<State>, Condvar)) {
    let mut request = vec![0; REQUEST_BYTES];
    while let Ok(length @ IN_HEADER_BYTES..) = device.read(&mut request) {
        let request = &request[..length];
        let (operation, node) = (number::<4>(request, 4) as u32, number::<8>(request, 16));
        let outcome = match (operation, node) {
            (FORGET | BATCH_FORGET, _) => continue,
            (INIT, _) => Ok(init()),
            (LOOKUP, FOLDER) => {
                let is_unreadable = request[IN_HEADER_BYTES..].starts_with(UNREADABLE.as_bytes());
                let node = if is_unreadable { STUCK_READS } else { STUCK_WRITES };
                Ok([words(&[node, 0, 0, 0, 0]), attributes(node)].concat())
            }
            (GETATTR, node) => Ok([words(&[0, 0]), attributes(node)].concat()),
            (OPEN, _) => Ok(words(&[0, 0])),
            (READ, node) => {
                if node == STUCK_READS {
                    wait_for_release(state);
                }
                Ok(vec![b'.'; FILE_BYTES as usize])
            }
            (WRITE, STUCK_WRITES) => {
                wait_for_release(state);
                Ok(words(&[number::<4>(request, IN_HEADER_BYTES + 16)]))
            }
            (FLUSH | RELEASE, _) => Ok(Vec::new()),
            _ => Err(NOT_IMPLEMENTED),
        };
        let (error, body) = outcome.map_or_else(|error| (error, Vec::new()), |body| (0, body));
        let length = u32::try_from(16 + body.len()).expect("replies are short");
        let mut reply = length.to_ne_bytes().to_vec();
        reply.extend(error.to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        // Who asked may be gone.
        let _ = device.write(&reply);
    }
}

/// Lets a process wait.
fn wait_for_release(state: &(Mutex<State>, Condvar)) {
    let mut held = state.0.lock().expect("no holder has panicked");
    held.waits += 1;
    let is_held = |state: &mut State| !state.is_released;
    drop(state.1.wait_while(held, is_held).expect("no holder has panicked"));
}

/// A number of a request.
fn number<const BYTES: usize>(request: &[u8], at: usize) -> u64 {
    let mut all = [0; 8];
    all[..BYTES].copy_from_slice(&request[at..at + BYTES]);
    u64::from_le_bytes(all)
}

fn words(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn halves(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|half| half.to_le_bytes()).collect()
}

/// `fuse_init_out`: version 7.31, nothing optional, and writes of a page.
fn init() -> Vec<u8> {
    let mut all = halves(&[7, 31, 0, 0, 0, 4096, 1]);
    all.resize(64, 0);
    all
}

/// `fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (size, mode, links) = match node {
        FOLDER => (0, 0o040_755, 2),
        _ => (FILE_BYTES, 0o100_666, 1),
    };
    let times = words(&[node, size, size / 512, 0, 0, 0]);
    let rest = halves(&[0, 0, 0, mode, links, 0, 0, 0, 4096, 0]);
    [times, rest].concat()
}
