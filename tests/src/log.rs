//! What a process writes to a pipe, collected line by line, and waiting for a line to come.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Sizes of a pipe: what root may have, and everybody else (pipe(7), `pipe-max-size`).
const PIPE_BYTES: [usize; 2] = [4 << 20, 1 << 20];

/// The lines so far, shared with the thread that reads them.
#[derive(Debug, Default)]
struct Lines {
    lines: Mutex<Vec<String>>,
    grew: Condvar,
}

/// A log being written by another process.
#[derive(Debug, Clone, Default)]
pub struct Log {
    shared: Arc<Lines>,
}

impl Log {
    /// Collects everything that comes out of `pipe`, on a thread that ends with it. The pipe is
    /// made as large as can be: servers drop lines without a reader, and that thread may have to
    /// wait.
    pub fn collect(pipe: impl Read + AsFd + Send + 'static) -> Self {
        for bytes in PIPE_BYTES {
            if rustix::pipe::fcntl_setpipe_size(&pipe, bytes).is_ok() {
                break;
            }
        }
        let log = Self::default();
        let shared = Arc::clone(&log.shared);
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                shared.lines.lock().expect("no reader of a log panics").push(line);
                shared.grew.notify_all();
            }
        });
        log
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.shared.lines.lock().expect("no reader of a log panics")
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// How many lines there are so far; a mark for [`Log::since`].
    pub fn mark(&self) -> usize {
        self.lock().len()
    }

    /// The lines after a mark.
    pub fn since(&self, mark: usize) -> Vec<String> {
        self.lock().iter().skip(mark).cloned().collect()
    }

    /// Waits until a line after `mark` satisfies `wanted`; nothing if none comes `within` that
    /// time.
    pub fn find_since(
        &self,
        mark: usize,
        within: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let deadline = Instant::now() + within;
        let mut lines = self.lock();
        loop {
            if let Some(line) = lines.iter().skip(mark).find(|line| wanted(line)) {
                return Some(line.clone());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.shared.grew.wait_timeout(lines, left);
            lines = waited.expect("no reader of a log panics").0;
        }
    }
}

/// Datagrams on a socket, as systemd's and syslog's are, up to one with `last`.
///
/// # Panics
/// Without one before the socket's timeout.
pub fn told(socket: &UnixDatagram, last: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let length = socket.recv(&mut bytes).unwrap_or_else(|why| {
            panic!("no datagram has {last}: {why}; received: {all:#?}");
        });
        all.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        if all.iter().any(|said| said.contains(last)) {
            return all;
        }
    }
}
