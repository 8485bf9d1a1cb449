//! Messages between the supervisor and a process that it has started: orders and their descriptors
//! go down through a socket that only sends, reports come up through a pipe or another socket.
//!
//! The supervisor is root and does not trust the others. No process can send a descriptor through a
//! pipe, so none has to be closed here, which may block for as long as its sender likes; and no
//! process can send anything at all to the socket of orders ([`Packets::one_way`]).
//!
//! A writer can hold the lock of a pipe for as long as it likes: the kernel reads the written bytes
//! with it, and they may be in a page of a file system in user space. Code of tenants does so to
//! the supervisor, whose read waits for the lock. The reports of processes that run such code
//! therefore come through a stream socket, whose bytes the kernel reads before it locks anything.
//! It is read without its descriptors ([`wary`]).
//!
//! Neither has messages, and several processes may write to one: a zygote and its workers that
//! boot. Reports are therefore cut into frames of at most `PIPE_BUF` bytes, which the kernel writes
//! whole or not at all (pipe(7), and `unix_stream_sendmsg` of Linux, which splits nothing shorter
//! than half of the buffer). A report in one frame may come between the frames of a long one. Of
//! long ones only one is written at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::packets::Packets;
pub use crate::packets::{MAX_FDS_PER_MESSAGE, MAX_MESSAGE_BYTES, Received};
use crate::sockets::unix::refuse_descriptors;
use crate::sockets::wary::{self, StreamRead};
use crate::spawn;

/// Longest frame in bytes: what the kernel writes to a pipe in one piece (`PIPE_BUF`).
const FRAME_BYTES: usize = 4096;
/// A frame begins with the length of what follows (native) and its kind.
pub(crate) const FRAME_HEADER_BYTES: usize = 3;
/// Longest part of a report in one frame.
const PART_BYTES: usize = FRAME_BYTES - FRAME_HEADER_BYTES;
/// How many descriptors a process inherits for its channel: the first ones.
pub const CHANNEL_DESCRIPTORS: RawFd = 2;
/// Size of the buffer for reports that the supervisor has not read yet, in bytes. Less is enough.
pub const REPORT_BUFFER_BYTES: usize = 256 * 1024;
/// What is set as the size of a socket's buffer: the kernel doubles it, and fills it beyond that by
/// one frame (socket(7)).
const SOCKET_BUFFER_BYTES: usize = REPORT_BUFFER_BYTES / 2 - 2 * FRAME_BYTES;

/// A report in one frame.
const WHOLE: u8 = 1;
/// A frame of a longer report, and not its last. It is full.
const PART: u8 = 2;
/// The last frame of a longer report.
const LAST: u8 = 3;

/// The supervisor's end: sends orders and receives reports.
#[derive(Debug)]
pub struct SupervisorEnd {
    orders: Packets,
    reports: Arc<OwnedFd>,
    source: Source,
    taken: Taken,
    /// Bytes of reports that were read.
    received: u64,
}

/// What reports come through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Pipe,
    Socket,
}

/// Bytes that were read and are no report yet.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The beginning of a frame.
    pub frame: Vec<u8>,
    /// The beginning of a report.
    pub report: Vec<u8>,
}

/// The other end: receives orders and sends reports.
#[derive(Debug)]
pub struct Channel {
    orders: Packets,
    reports: Reports,
}

/// The end that reports are written to. Nothing arrives at it.
#[derive(Debug)]
pub struct Reports {
    end: OwnedFd,
    /// Held while a report of several frames is written.
    long: Mutex<()>,
}

impl SupervisorEnd {
    /// A channel to a running process.
    pub fn over(orders: OwnedFd, reports: OwnedFd, taken: Taken) -> SupervisorEnd {
        let is_socket = fstat(&reports)
            .is_ok_and(|facts| FileType::from_raw_mode(facts.st_mode) == FileType::Socket);
        let source = if is_socket { Source::Socket } else { Source::Pipe };
        let (orders, reports) = (Packets::from_fd(orders), Arc::new(reports));
        SupervisorEnd { orders, reports, source, taken, received: 0 }
    }

    /// Sends an order. Never waits.
    ///
    /// # Errors
    /// As [`Packets::send`].
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.orders.send(message, fds)
    }

    /// The next report, if one is there. Never waits, and reads no more than one.
    ///
    /// # Errors
    /// Errors of `read(2)`, and `InvalidData` when the other end violates the format or sends
    /// descriptors.
    pub fn receive(&mut self) -> io::Result<Received> {
        loop {
            let wanted = self.taken.wanted()?;
            let have = self.taken.frame.len();
            if have == wanted {
                match self.taken.end_frame()? {
                    Some(report) => return Ok(Received::Message(report, Vec::new())),
                    None => continue,
                }
            }
            self.taken.frame.resize(wanted, 0);
            let read = self.source.read(self.reports.as_fd(), &mut self.taken.frame[have..]);
            let count = read.as_ref().map_or(0, |count| *count);
            self.taken.frame.truncate(have + count);
            self.received += count as u64;
            match read {
                Ok(0) => return Ok(Received::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Received::Nothing);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// No report is read any more. The end is returned if its close might wait, since descriptors
    /// may be in its queue: it has to be closed elsewhere, and not before this value is dropped.
    pub fn end_reports(&self) -> Option<Arc<OwnedFd>> {
        let waits = self.source == Source::Socket && !wary::is_free_to_close(self.reports.as_fd());
        waits.then(|| Arc::clone(&self.reports))
    }

    /// How many bytes of reports were read, frames' headers included.
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// The socket of the orders, to poll for free space.
    pub fn orders(&self) -> BorrowedFd<'_> {
        self.orders.as_fd()
    }

    /// The pipe or socket of the reports, to poll for one.
    pub fn reports(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }

    /// Bytes that were read and are no report yet, for a program that takes this end over.
    pub fn taken(&self) -> &Taken {
        &self.taken
    }
}

impl Source {
    fn read(self, reports: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Pipe => {
                Ok(rustix::io::retry_on_intr(|| rustix::io::read(reports, &mut *into))?)
            }
            Source::Socket => match wary::receive(reports, into)? {
                StreamRead::Bytes(count) => Ok(count),
                StreamRead::Descriptors => {
                    Err(io::Error::new(io::ErrorKind::InvalidData, "it sends descriptors"))
                }
            },
        }
    }
}

impl Taken {
    /// The bytes of a frame that are needed before it can be handled.
    fn wanted(&self) -> io::Result<usize> {
        let Some(header) = self.frame.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(FRAME_HEADER_BYTES);
        };
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let fits = match header[2] {
            WHOLE | LAST => (1..=PART_BYTES).contains(&length),
            // All of them are full: a flood does not cause more frames to be read at a time
            // than the longest report has.
            PART => length == PART_BYTES,
            _ => false,
        };
        if fits { Ok(FRAME_HEADER_BYTES + length) } else { Err(malformed()) }
    }

    /// The report that ends with this frame, which is complete.
    fn end_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut frame = std::mem::take(&mut self.frame);
        let kind = frame.get(FRAME_HEADER_BYTES - 1).copied();
        if kind == Some(WHOLE) {
            frame.drain(..FRAME_HEADER_BYTES);
            return Ok(Some(frame));
        }
        let part = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        if self.report.len() + part.len() > MAX_MESSAGE_BYTES {
            return Err(malformed());
        }
        self.report.extend_from_slice(part);
        Ok((kind == Some(LAST)).then(|| std::mem::take(&mut self.report)))
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it does not keep to the form of reports")
}

impl Channel {
    /// Both ends of a new channel to a process that runs no code of tenants, closed on exec.
    ///
    /// # Errors
    /// When the process or the system is out of descriptors.
    pub fn pair() -> io::Result<(SupervisorEnd, Channel)> {
        // Each end has flags of its own, which the other cannot change.
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // There is a limit per user (pipe(7)). The pipe is large enough without.
        let _ = fcntl_setpipe_size(&write, REPORT_BUFFER_BYTES);
        Channel::with_reports(read, write)
    }

    /// Both ends of a new channel to a process that runs code of a tenant, closed on exec. That
    /// code cannot have a read wait.
    ///
    /// # Errors
    /// As [`Channel::pair`].
    pub fn pair_with_tenant() -> io::Result<(SupervisorEnd, Channel)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (read, write) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_send_buffer_size(&write, SOCKET_BUFFER_BYTES)?;
        wary::prepare(read.as_fd());
        // A kernel that cannot do so has them stay in the queue.
        let _ = refuse_descriptors(read.as_fd());
        Channel::with_reports(read, write)
    }

    fn with_reports(read: OwnedFd, write: OwnedFd) -> io::Result<(SupervisorEnd, Channel)> {
        let (sends, receives) = Packets::one_way()?;
        let ours = SupervisorEnd::over(sends.into(), read, Taken::default());
        let theirs = Channel { orders: receives, reports: Reports::over(write) };
        Ok((ours, theirs))
    }

    /// The channel that the supervisor passed to this process, from [`Channel::descriptors`].
    ///
    /// # Errors
    /// When there is none: the program was started by hand.
    pub fn inherited() -> io::Result<Channel> {
        Ok(Channel {
            orders: Packets::from_fd(spawn::inherited(0)?),
            reports: Reports::over(spawn::inherited(1)?),
        })
    }

    /// The descriptors that a process has to inherit to use this end.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; CHANNEL_DESCRIPTORS as usize] {
        [self.orders.as_fd(), self.reports.as_fd()]
    }

    /// The next order; waits for it when `wait` is set.
    ///
    /// # Errors
    /// As [`Packets::receive`].
    pub fn receive(&self, wait: bool) -> io::Result<Received> {
        self.orders.receive(wait, MAX_FDS_PER_MESSAGE)
    }

    /// The reporting part.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Closes the orders' socket.
    pub fn into_reports(self) -> Reports {
        self.reports
    }
}

/// The socket of the orders, to poll for one or for the supervisor's end.
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.orders.as_fd()
    }
}

impl Reports {
    fn over(end: OwnedFd) -> Reports {
        Reports { end, long: Mutex::new(()) }
    }

    /// Sends a report, if there is space for it. One longer than a frame, once started, is
    /// completed, however long the supervisor takes.
    ///
    /// # Errors
    /// `WouldBlock` when there is no space, `BrokenPipe` when the supervisor has exited,
    /// `InvalidInput` for a message over [`MAX_MESSAGE_BYTES`].
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        self.transmit(message, false)
    }

    /// Sends a report and waits for space. The supervisor never waits, so this ends.
    ///
    /// # Errors
    /// As [`Reports::send`], but for `WouldBlock`.
    pub fn send_waiting(&self, message: &[u8]) -> io::Result<()> {
        self.transmit(message, true)
    }

    fn transmit(&self, message: &[u8], mut waits: bool) -> io::Result<()> {
        if message.is_empty() || message.len() > MAX_MESSAGE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "message over the limit"));
        }
        if message.len() <= PART_BYTES {
            return self.write_frame(WHOLE, message, waits);
        }
        let _alone = self.long.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut parts = message.chunks(PART_BYTES).peekable();
        while let Some(part) = parts.next() {
            let kind = match parts.peek() {
                Some(_) => PART,
                None => LAST,
            };
            self.write_frame(kind, part, waits)?;
            waits = true;
        }
        Ok(())
    }

    fn write_frame(&self, kind: u8, part: &[u8], waits: bool) -> io::Result<()> {
        let length = u16::try_from(part.len()).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + part.len());
        frame.extend_from_slice(&length.to_ne_bytes());
        frame.push(kind);
        frame.extend_from_slice(part);
        loop {
            match rustix::io::write(&self.end, &frame) {
                Ok(count) if count == frame.len() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if waits => self.wait_for_room()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wait_for_room(&self) -> io::Result<()> {
        let mut room = [PollFd::new(&self.end, PollFlags::OUT)];
        match poll(&mut room, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The pipe or socket, to poll for space.
impl AsFd for Reports {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// The header of a report of `length` bytes in one frame.
pub(crate) fn frame_header(length: usize) -> [u8; FRAME_HEADER_BYTES] {
    let length = u16::try_from(length.min(PART_BYTES)).unwrap_or(0).to_ne_bytes();
    [length[0], length[1], WHOLE]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::closer;
    use crate::sockets::closer::tests::{lingering, send_descriptor};
    use rustix::net::SendFlags;
    use std::os::unix::net::UnixStream;

    /// A channel of each kind.
    fn pairs() -> [(SupervisorEnd, Channel); 2] {
        [Channel::pair().unwrap(), Channel::pair_with_tenant().unwrap()]
    }

    fn next(end: &mut SupervisorEnd) -> Vec<u8> {
        match end.receive().unwrap() {
            Received::Message(report, fds) => {
                assert!(fds.is_empty());
                report
            }
            other => panic!("expected a report, got {other:?}"),
        }
    }

    #[test]
    fn reports_arrive_whole_and_in_order_however_long_they_are() {
        let lengths =
            [1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, MAX_MESSAGE_BYTES];
        for (mut ours, theirs) in pairs() {
            for length in lengths {
                let report: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
                theirs.reports().send(&report).unwrap();
                theirs.reports().send(b"next").unwrap();
                assert_eq!(next(&mut ours), report);
                assert_eq!(next(&mut ours), b"next");
            }
            let too_long = vec![0; MAX_MESSAGE_BYTES + 1];
            for refused in [&too_long[..], &[]] {
                let error = theirs.reports().send(refused).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            }
        }
    }

    #[test]
    fn a_short_report_may_come_within_a_long_one() {
        for (mut ours, theirs) in pairs() {
            let reports = theirs.reports();
            reports.write_frame(PART, &[b'a'; PART_BYTES], true).unwrap();
            reports.write_frame(WHOLE, b"short", true).unwrap();
            reports.write_frame(LAST, b"b", true).unwrap();
            assert_eq!(next(&mut ours), b"short");
            let long = next(&mut ours);
            assert_eq!((long.len(), long.last()), (PART_BYTES + 1, Some(&b'b')));
        }
    }

    #[test]
    fn a_full_buffer_refuses_who_does_not_wait_and_loses_nothing_of_who_does() {
        for (mut ours, theirs) in pairs() {
            let mut sent = 0;
            while theirs.reports().send(&[b'x'; 100]).is_ok() {
                sent += 1;
            }
            let sender = std::thread::spawn(move || theirs.reports().send_waiting(&[b'y'; 9000]));
            let mut left = sent;
            loop {
                match ours.receive().unwrap() {
                    Received::Message(report, _) if report == [b'x'; 100] => left -= 1,
                    Received::Message(report, _) => break assert_eq!(report, [b'y'; 9000]),
                    _ => std::thread::yield_now(),
                }
            }
            assert_eq!(left, 0);
            assert!(ours.received_bytes() <= (REPORT_BUFFER_BYTES + 4 * FRAME_BYTES) as u64);
            sender.join().unwrap().unwrap();
        }
    }

    #[test]
    fn what_is_taken_over_in_the_middle_of_a_report_goes_on() {
        for (mut ours, theirs) in pairs() {
            let reports = theirs.reports();
            reports.write_frame(PART, &[b'a'; PART_BYTES], true).unwrap();
            rustix::io::write(&reports.end, &[1]).unwrap();
            assert!(matches!(ours.receive().unwrap(), Received::Nothing));
            let SupervisorEnd { orders, reports: end, taken, source, .. } = ours;
            assert!(!taken.frame.is_empty() && !taken.report.is_empty());
            let end = Arc::into_inner(end).unwrap();
            let mut ours = SupervisorEnd::over(orders.into(), end, taken);
            assert_eq!(ours.source, source);
            rustix::io::write(&reports.end, &[0, LAST, b'b']).unwrap();
            assert_eq!(next(&mut ours).len(), PART_BYTES + 1);
            drop(theirs);
            assert!(matches!(ours.receive().unwrap(), Received::Closed));
        }
    }

    #[test]
    fn bytes_that_are_no_report_are_an_error_and_never_more_than_one_report_is_held() {
        let full = |kind| {
            let mut frame = u16::try_from(PART_BYTES).unwrap().to_ne_bytes().to_vec();
            frame.push(kind);
            frame.resize(FRAME_BYTES, 0);
            frame
        };
        let mut endless = Vec::new();
        for _ in 0..20 {
            endless.extend(full(PART));
        }
        let cases: [&[u8]; 6] = [
            &[0, 0, WHOLE],
            &[1, 0, PART, 0],
            &[1, 0, 0, 0],
            &[1, 0, 9, 0],
            &[0xff, 0xff, WHOLE],
            &endless,
        ];
        for bytes in cases {
            for (mut ours, theirs) in pairs() {
                rustix::io::write(&theirs.reports.end, bytes).unwrap();
                let error = ours.receive().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{:?}", &bytes[..3]);
                assert!(ours.taken.report.len() <= MAX_MESSAGE_BYTES);
            }
        }
    }

    #[test]
    fn an_empty_channel_says_nothing_and_a_lost_one_says_closed_on_either_side() {
        for (mut ours, theirs) in pairs() {
            assert!(matches!(ours.receive().unwrap(), Received::Nothing));
            assert!(matches!(theirs.receive(false).unwrap(), Received::Nothing));
            drop(theirs);
            assert!(matches!(ours.receive().unwrap(), Received::Closed));
            assert_eq!(ours.send(b"order", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
        for (ours, theirs) in pairs() {
            drop(ours);
            assert!(matches!(theirs.receive(true).unwrap(), Received::Closed));
            let lost = theirs.reports().send_waiting(b"report").unwrap_err();
            assert_eq!(lost.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn no_process_can_send_a_descriptor_to_the_supervisors_orders() {
        for (_ours, theirs) in pairs() {
            let foreign = std::fs::File::open("/dev/null").unwrap();
            let orders = Packets::from_fd(theirs.orders.as_fd().try_clone_to_owned().unwrap());
            let refused = orders.send(b"x", &[foreign.as_fd()]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    /// A channel to a process of a tenant on a kernel that does not refuse descriptors.
    fn unrefused() -> (SupervisorEnd, UnixStream) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        wary::prepare(ours.as_fd());
        let (orders, _) = Packets::one_way().unwrap();
        (SupervisorEnd::over(orders.into(), ours.into(), Taken::default()), theirs)
    }

    #[test]
    fn a_descriptor_among_the_reports_is_never_received_and_its_close_is_left_to_others() {
        for is_seen in [true, false] {
            let (mut ours, theirs) = unrefused();
            rustix::io::write(&theirs, &[1, 0, WHOLE, b'a']).unwrap();
            send_descriptor(&theirs, &lingering(), SendFlags::NOSIGNAL);
            if is_seen {
                // The kernel reports it before the bytes in front of it are read.
                let error = ours.receive().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            }
            let end = ours.end_reports().expect("it has a descriptor");
            drop(ours);
            closer::close(Arc::into_inner(end).unwrap());
        }
    }

    #[test]
    fn an_end_without_descriptors_is_closed_at_once() {
        for (ours, theirs) in pairs() {
            theirs.reports().send(b"unread").unwrap();
            assert!(ours.end_reports().is_none());
        }
    }
}
