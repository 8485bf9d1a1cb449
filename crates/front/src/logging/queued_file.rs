//! A log file with a thread of its own, which alone writes to it. A process that may open the file
//! can hold its lock in the kernel for as long as it likes (one write(2) of gigabytes, or of memory
//! whose file system does not respond), and a write waits for that lock, whatever `O_NONBLOCK`
//! says. Then lines wait in a bounded queue, and no request waits for them.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use maitred_os::walk;

use crate::logging::line_file::{LineFile, LostLines};
use crate::logging::repeated::RepeatedErrors;

/// Bytes of lines that are written together.
const BUFFER_BYTES: usize = 32 * 1024;
/// Most bytes of lines that wait for one file, or are being written to it. More lines are lost.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// Most bytes that wait for all files together, beyond [`OWN_BYTES`] of each. A file may have as
/// many of them as are free: a tenant may hold the locks of any number of files.
const COMMON_BYTES: usize = 64 * 1024 * 1024;
/// Bytes that may wait for a file whatever waits for others.
const OWN_BYTES: usize = 64 * 1024;
/// A thread without lines ends after this long; the next lines start another.
const IDLE: Duration = Duration::from_secs(10);
/// Bytes of the stack of a thread.
const STACK_BYTES: usize = 128 * 1024;
/// How long a response waits for its line, where that is to be written before.
const LINE_PATIENCE: Duration = Duration::from_millis(20);
/// After a line that was not written in time, no response waits for this long.
const PAUSE: Duration = Duration::from_secs(10);
/// Permissions of users other than a file's owner.
const OTHERS: u32 = 0o007;
/// Permissions of a file's group.
const GROUP: u32 = 0o070;

/// Bytes of lines that wait for all files.
#[derive(Debug, Default)]
pub struct QueuedBytes(AtomicUsize);

/// A log file, and the lines that wait for it.
#[derive(Debug)]
pub struct QueuedFile {
    path: PathBuf,
    all: Arc<QueuedBytes>,
    state: Mutex<State>,
    /// It has lines that no thread was asked to write.
    is_behind: AtomicBool,
    /// Lines are to be written.
    came: Condvar,
    /// Lines were written.
    written: Condvar,
}

#[derive(Debug)]
struct State {
    file: Arc<LineFile>,
    /// Only root may open the file, so nothing else can hold its lock.
    is_roots: bool,
    lines: Vec<u8>,
    /// Bytes that are being written.
    in_write: usize,
    /// Bytes queued since the start.
    queued: u64,
    /// How many of these are written or lost.
    done: u64,
    /// The lines are to be written now.
    is_due: bool,
    /// The thread runs.
    is_running: bool,
    /// Until then, no response waits for its line.
    paused_until: Option<Instant>,
}

/// The reason that lines are lost when the queue is full.
const NO_ROOM: &str = "writes to it take too long (a slow disk, a process that locks the file, or \
                       the limit of threads), or too many lines wait for other files";

impl QueuedFile {
    /// A file that the supervisor has opened at `path`; its lines are part of `all`.
    pub fn new(path: PathBuf, file: OwnedFd, all: Arc<QueuedBytes>) -> QueuedFile {
        let is_roots = only_root_opens(&file);
        QueuedFile {
            path,
            all,
            state: Mutex::new(State {
                file: Arc::new(File::from(file).into()),
                is_roots,
                lines: Vec::new(),
                in_write: 0,
                queued: 0,
                done: 0,
                is_due: false,
                is_running: false,
                paused_until: None,
            }),
            is_behind: AtomicBool::new(false),
            came: Condvar::new(),
            written: Condvar::new(),
        }
    }

    /// Goes on in a file that was opened again. What is being written goes to the former one.
    pub fn reopened(&self, file: OwnedFd) {
        let is_roots = only_root_opens(&file);
        let mut state = self.lock();
        let former = std::mem::replace(&mut state.file, Arc::new(File::from(file).into()));
        state.is_roots = is_roots;
        drop(state);
        drop(former);
    }

    /// Adds a line. It is written when a thread of requests goes to sleep, or when there are
    /// enough lines.
    pub fn add(self: &Arc<Self>, line: &[u8], troubles: &Arc<RepeatedErrors>) {
        let mut state = self.lock();
        if !self.has_room(&state, line) {
            drop(state);
            return troubles.lines_lost(Some(&self.path), 1, &NO_ROOM);
        }
        self.put(&mut state, line);
        match state.lines.len() >= BUFFER_BYTES {
            true => self.write_queued(&mut state, troubles),
            false => self.is_behind.store(true, Ordering::Release),
        }
    }

    /// Adds a line that is to be written before its response ends. The response waits for a moment
    /// at most, and not at all after an earlier timeout.
    pub fn add_now(self: &Arc<Self>, line: &[u8], troubles: &Arc<RepeatedErrors>) {
        let mut state = self.lock();
        if state.is_roots {
            let file = state.file.clone();
            drop(state);
            return self.write(&file, line, troubles);
        }
        if !self.has_room(&state, line) {
            drop(state);
            return troubles.lines_lost(Some(&self.path), 1, &NO_ROOM);
        }
        self.put(&mut state, line);
        self.write_queued(&mut state, troubles);
        let (now, wanted) = (Instant::now(), state.queued);
        if state.paused_until.is_some_and(|until| now < until) {
            return;
        }
        let mut state = self.wait_until_done(state, wanted, LINE_PATIENCE);
        state.paused_until = (state.done < wanted).then(|| now + PAUSE);
    }

    /// Has the lines written that were added.
    pub fn flush(self: &Arc<Self>, troubles: &Arc<RepeatedErrors>) {
        if self.is_behind.load(Ordering::Acquire) {
            self.write_queued(&mut self.lock(), troubles);
        }
    }

    /// Waits until all lines are written that were added, for `patience` at most.
    pub fn finish(self: &Arc<Self>, patience: Duration, troubles: &Arc<RepeatedErrors>) {
        self.flush(troubles);
        let state = self.lock();
        let wanted = state.queued;
        let state = self.wait_until_done(state, wanted, patience);
        let lost = memchr::memchr_iter(b'\n', &state.lines).count() as u64;
        drop(state);
        if lost > 0 {
            troubles.lines_lost(Some(&self.path), lost, &NO_ROOM);
        }
    }

    fn wait_until_done<'a>(
        &self,
        state: MutexGuard<'a, State>,
        wanted: u64,
        patience: Duration,
    ) -> MutexGuard<'a, State> {
        let is_waiting = |state: &mut State| state.done < wanted && state.is_running;
        let waited = self.written.wait_timeout_while(state, patience, is_waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Has the thread write the queue; starts it if needed.
    fn write_queued(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        troubles: &Arc<RepeatedErrors>,
    ) {
        self.is_behind.store(false, Ordering::Release);
        state.is_due = !state.lines.is_empty();
        if !state.is_running && state.is_due {
            let (queue, reports) = (self.clone(), troubles.clone());
            let thread = Builder::new().name("access log".to_owned()).stack_size(STACK_BYTES);
            state.is_running = thread.spawn(move || queue.write_all(&reports)).is_ok();
            if !state.is_running && state.is_roots {
                // No other process can lock the file.
                let lines = std::mem::take(&mut state.lines);
                self.write(&state.file, &lines, troubles);
                self.all.remove(lines.len());
                state.done += lines.len() as u64;
                state.is_due = false;
            }
            // Without a thread, the next flush tries again.
            let is_behind = !state.is_running && !state.lines.is_empty();
            self.is_behind.store(is_behind, Ordering::Release);
        }
        self.came.notify_one();
    }

    /// The thread: writes what is due, until nothing has been for [`IDLE`].
    fn write_all(&self, troubles: &Arc<RepeatedErrors>) {
        let mut state = self.lock();
        loop {
            if std::mem::take(&mut state.is_due) {
                let (file, mut lines) = (state.file.clone(), std::mem::take(&mut state.lines));
                state.in_write = lines.len();
                drop(state);
                self.write(&file, &lines, troubles);
                // The last use of a file that was opened again closes it.
                drop(file);
                state = self.lock();
                self.all.remove(state.in_write);
                state.done += state.in_write as u64;
                state.in_write = 0;
                lines.clear();
                if state.lines.is_empty() && lines.capacity() <= 2 * BUFFER_BYTES {
                    state.lines = lines;
                }
                self.written.notify_all();
                continue;
            }
            let waited = self.came.wait_timeout(state, IDLE);
            let (waited, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if timeout.timed_out() && !state.is_due {
                state.is_running = false;
                return;
            }
        }
    }

    /// Writes lines. A log that cannot be written must not stop the server.
    fn write(&self, file: &LineFile, lines: &[u8], troubles: &RepeatedErrors) {
        if let Err(LostLines { count, why }) = file.write(lines) {
            troubles.lines_lost(Some(&self.path), count, &why);
        }
    }

    fn has_room(&self, state: &State, line: &[u8]) -> bool {
        let wanted = state.lines.len() + state.in_write + line.len();
        wanted <= OWN_BYTES || wanted <= QUEUE_BYTES.min(self.all.free())
    }

    fn put(&self, state: &mut State, line: &[u8]) {
        self.all.add(line.len());
        state.lines.extend_from_slice(line);
        state.queued += line.len() as u64;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QueuedFile {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.all.remove(state.lines.len());
    }
}

impl QueuedBytes {
    fn free(&self) -> usize {
        COMMON_BYTES.saturating_sub(self.0.load(Ordering::Relaxed))
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Whether a file cannot be opened by users other than root, and so not be locked by them. With an
/// access control list, the permissions of the group are the most that any of its users has.
fn only_root_opens(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|found| {
        let is_groups = found.st_mode & GROUP != 0;
        found.st_uid == 0
            && found.st_mode & OTHERS == 0
            && (!is_groups || (found.st_gid == 0 && !walk::has_list(file)))
    })
}

#[cfg(test)]
mod tests {
    use std::io::PipeReader;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A file that takes no more lines than a pipe holds, until its reader is dropped.
    fn slow_file(all: &Arc<QueuedBytes>) -> (PipeReader, Arc<QueuedFile>) {
        let (reader, writer) = std::io::pipe().unwrap();
        let writer = File::from(OwnedFd::from(writer));
        // One that only root opens would be written directly.
        writer.set_permissions(std::fs::Permissions::from_mode(0o666)).unwrap();
        let path = PathBuf::from("/srv/access.log");
        (reader, Arc::new(QueuedFile::new(path, writer.into(), all.clone())))
    }

    #[test]
    fn files_that_take_no_lines_share_a_limit_and_leave_others_room() {
        let (all, troubles) = (Arc::new(QueuedBytes::default()), Arc::default());
        let line = [&[b'x'; BUFFER_BYTES - 1], &b"\n"[..]].concat();
        let files: Vec<_> = (0..50).map(|_| slow_file(&all)).collect();
        for (_, file) in &files {
            for _ in 0..2 * QUEUE_BYTES / BUFFER_BYTES {
                file.add(&line, &troubles);
            }
        }
        let waiting = all.0.load(Ordering::Relaxed);
        let most = COMMON_BYTES + files.len() * OWN_BYTES;
        assert!((COMMON_BYTES / 2..most).contains(&waiting), "{waiting}");
        let (reader, last) = slow_file(&all);
        last.add(&line, &troubles);
        assert_eq!(last.lock().queued, BUFFER_BYTES as u64);
        drop(reader);
        let mut files: Vec<_> = files.into_iter().map(|(_, file)| file).collect();
        files.push(last);
        for file in files {
            file.finish(Duration::from_secs(60), &troubles);
        }
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_file_of_roots_that_a_list_opens_to_another_user_is_not_roots_alone() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root has files of root's");
        }
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = OwnedFd::from(named.reopen().unwrap());
        rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o660)).unwrap();
        assert!(only_root_opens(&file));
        let mut set = std::process::Command::new("setfacl");
        let set = set.args(["-m", "u:nobody:rw"]).arg(named.path()).status();
        assert!(set.expect("the tests need setfacl (package acl)").success());
        assert!(!only_root_opens(&file));
    }
}
