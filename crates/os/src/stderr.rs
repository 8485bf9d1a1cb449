//! Standard error, without waiting for its reader: a log that is not read must not stop the server.
//! Lost lines are counted.
//!
//! The descriptor itself stays as it is, since others share it: making it non-blocking would make
//! it so for the shell that started us.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// How long writes wait, in total, in each [`SPELL`] for a slow reader.
const PATIENCE: Duration = Duration::from_millis(100);

/// See [`PATIENCE`].
const SPELL: Duration = Duration::from_secs(1);

/// Most bytes that a pipe takes at once without waiting (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

/// Standard error under a name that it can be opened by.
const NAME: &str = "/proc/self/fd/2";

static WRITER: Mutex<Writer> =
    Mutex::new(Writer { spell: None, waited: Duration::ZERO, is_torn: false, lost: 0 });

/// Writes a line. A line that is not taken soon is lost, and the next one that is taken follows
/// `notice` with their number.
///
/// # Errors
/// Why the line, or a part of it, was lost.
pub fn write_line(line: &[u8], notice: impl FnOnce(u64) -> Vec<u8>) -> io::Result<()> {
    let mut writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    let stderr = rustix::stdio::stderr();
    writer.write_line(&WriteMode::to(stderr), line, notice)
}

/// Standard error shared with other writers, opened again and non-blocking if possible.
///
/// # Errors
/// When the process is out of descriptors.
pub fn another() -> io::Result<OwnedFd> {
    let stderr = rustix::stdio::stderr();
    match WriteMode::to(stderr) {
        WriteMode::Reopened(again) => Ok(again),
        WriteMode::Socket(_) | WriteMode::Shared(_) => stderr.try_clone_to_owned(),
    }
}

/// How to write without waiting.
#[derive(Debug)]
enum WriteMode<'a> {
    /// A pipe or a terminal, opened again: non-blocking, whatever the first one is.
    Reopened(OwnedFd),
    /// Each message can be sent without waiting.
    Socket(BorrowedFd<'a>),
    /// A file, which never waits; or a target that cannot be opened again, which is polled before
    /// each piece.
    Shared(BorrowedFd<'a>),
}

impl WriteMode<'_> {
    fn to(stderr: BorrowedFd<'_>) -> WriteMode<'_> {
        let kind = fstat(stderr).map(|data| FileType::from_raw_mode(data.st_mode));
        let again = || {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::open(NAME, flags, Mode::empty())
        };
        match kind {
            Ok(FileType::Socket) => WriteMode::Socket(stderr),
            Ok(FileType::Fifo | FileType::CharacterDevice) => {
                again().map_or(WriteMode::Shared(stderr), WriteMode::Reopened)
            }
            _ => WriteMode::Shared(stderr),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            WriteMode::Reopened(fd) => fd.as_fd(),
            WriteMode::Socket(fd) | WriteMode::Shared(fd) => *fd,
        }
    }

    fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self {
            WriteMode::Reopened(fd) => rustix::io::write(fd, bytes),
            WriteMode::Socket(fd) => {
                rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            }
            WriteMode::Shared(fd) if is_ready(*fd, Duration::ZERO) => {
                rustix::io::write(fd, &bytes[..bytes.len().min(PIECE_BYTES)])
            }
            WriteMode::Shared(_) => Err(Errno::AGAIN),
        }
    }
}

fn is_ready(fd: BorrowedFd<'_>, within: Duration) -> bool {
    let within = Timespec { tv_sec: 0, tv_nsec: i64::from(within.subsec_nanos()) };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    poll(&mut fds, Some(&within)).is_ok_and(|ready| ready > 0)
}

/// State from one line to the next.
#[derive(Debug)]
struct Writer {
    /// When the spell began, if a write had to wait in one.
    spell: Option<Instant>,
    /// How long writes have waited in it.
    waited: Duration,
    /// The last line was taken in part.
    is_torn: bool,
    /// Lines lost since the last one that was taken.
    lost: u64,
}

impl Writer {
    fn write_line(
        &mut self,
        way: &WriteMode<'_>,
        line: &[u8],
        notice: impl FnOnce(u64) -> Vec<u8>,
    ) -> io::Result<()> {
        let mut text = Vec::new();
        if self.is_torn {
            text.push(b'\n');
        }
        if self.lost > 0 {
            text.extend(notice(self.lost));
        }
        let before = text.len();
        text.extend_from_slice(line);
        let (taken, outcome) = self.write(way, &text);
        if outcome.is_ok() || taken > before {
            self.lost = 0;
        }
        if taken > 0 {
            self.is_torn = outcome.is_err();
        }
        if outcome.is_err() {
            self.lost += 1;
        }
        Ok(outcome?)
    }

    /// Bytes that were taken, and why no more.
    fn write(&mut self, way: &WriteMode<'_>, bytes: &[u8]) -> (usize, rustix::io::Result<()>) {
        let mut taken = 0;
        while taken < bytes.len() {
            match way.write(&bytes[taken..]) {
                Ok(count) => taken += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.wait(way.fd()) => {}
                Err(why) => return (taken, Err(why)),
            }
        }
        (taken, Ok(()))
    }

    /// Waits for space as long as the patience lasts. False when there is none.
    fn wait(&mut self, fd: BorrowedFd<'_>) -> bool {
        let before = Instant::now();
        let left = self.patience(before);
        if left.is_zero() {
            return false;
        }
        let has_room = is_ready(fd, left);
        self.waited += before.elapsed();
        has_room
    }

    fn patience(&mut self, now: Instant) -> Duration {
        let is_over = self.spell.is_none_or(|began| now >= began + SPELL);
        if is_over {
            (self.spell, self.waited) = (Some(now), Duration::ZERO);
        }
        PATIENCE.saturating_sub(self.waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::pipe::{PipeFlags, pipe_with};

    fn writer() -> Writer {
        Writer { spell: None, waited: Duration::ZERO, is_torn: false, lost: 0 }
    }

    fn lost(count: u64) -> Vec<u8> {
        format!("{count} lost\n").into_bytes()
    }

    /// Writes until no more is taken; returns the number of lines.
    fn fill(writer: &mut Writer, way: &WriteMode<'_>) -> usize {
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let taken = (0..100_000).take_while(|_| writer.write_line(way, &line, lost).is_ok());
        taken.count()
    }

    fn empty(reader: &OwnedFd) -> Vec<u8> {
        let mut all = Vec::new();
        let mut bytes = vec![0; 1 << 20];
        while is_readable(reader) {
            let count = rustix::io::read(reader, &mut bytes).unwrap();
            all.extend_from_slice(&bytes[..count]);
        }
        all
    }

    fn is_readable(fd: &OwnedFd) -> bool {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn nobody_is_waited_for_and_what_was_lost_is_told_to_who_reads_again() {
        let (reader, pipe) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (peer, socket) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        for (reader, way) in
            [(reader, WriteMode::Shared(pipe.as_fd())), (peer, WriteMode::Socket(socket.as_fd()))]
        {
            let mut writer = writer();
            assert!(fill(&mut writer, &way) > 10, "{way:?}");
            assert!(writer.write_line(&way, b"lost\n", lost).is_err());
            let first = empty(&reader);
            writer.write_line(&way, b"again\n", lost).unwrap();
            writer.write_line(&way, b"and again\n", lost).unwrap();
            let all = [first, empty(&reader)].concat();
            let all = String::from_utf8(all).unwrap();
            assert!(all.ends_with("x\n2 lost\nagain\nand again\n"), "{way:?}");
        }
    }

    #[test]
    fn a_line_that_was_taken_in_part_ends_before_the_next_begins() {
        let (reader, pipe) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let way = WriteMode::Shared(pipe.as_fd());
        let mut writer = writer();
        let long = vec![b'y'; 1 << 20];
        assert!(writer.write_line(&way, &long, lost).is_err());
        let first = empty(&reader);
        assert!(!first.is_empty() && first.iter().all(|byte| *byte == b'y'));
        writer.write_line(&way, b"again\n", lost).unwrap();
        assert_eq!(empty(&reader), b"\n1 lost\nagain\n");
    }

    #[test]
    fn patience_is_for_each_spell_and_not_for_each_line() {
        let mut writer = writer();
        let begin = Instant::now();
        assert_eq!(writer.patience(begin), PATIENCE);
        writer.waited = PATIENCE * 2;
        assert_eq!(writer.patience(begin + SPELL / 2), Duration::ZERO);
        assert_eq!(writer.patience(begin + SPELL), PATIENCE);
    }

    #[test]
    fn a_file_takes_lines_of_any_length() {
        let file = tempfile::tempfile().unwrap();
        let mut writer = writer();
        let way = WriteMode::to(file.as_fd());
        writer.write_line(&way, &vec![b'z'; 100_000], lost).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100_000);
        let full = std::fs::File::options().write(true).open("/dev/full");
        let full = full.unwrap();
        let why = writer.write_line(&WriteMode::Shared(full.as_fd()), b"no\n", lost);
        assert_eq!(why.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
}
