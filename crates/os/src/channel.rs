//! Messages between the supervisor and a process that it has started: orders and their descriptors
//! go down through a socket that only sends, reports come up through a pipe.
//!
//! The supervisor is root and does not trust the others. No process can send a descriptor through a
//! pipe, so none has to be closed here, which may block for as long as its sender likes; and no
//! process can send anything at all to the socket ([`Packets::one_way`]).
//!
//! A pipe has no messages, and several processes may write to this one: a zygote and its workers
//! that boot. Reports are therefore cut into frames of at most `PIPE_BUF` bytes, which the kernel
//! writes whole or not at all (pipe(7)). A report in one frame may come between the frames of a
//! long one. Of long ones only one is written at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::packets::Packets;
pub use crate::packets::{MAX_FDS_PER_MESSAGE, MAX_MESSAGE_BYTES, Received};
use crate::spawn;

/// Longest frame in bytes: what the kernel writes to a pipe in one piece (`PIPE_BUF`).
const FRAME_BYTES: usize = 4096;
/// A frame begins with the length of what follows (native) and its kind.
pub(crate) const FRAME_HEADER_BYTES: usize = 3;
/// Longest part of a report in one frame.
const PART_BYTES: usize = FRAME_BYTES - FRAME_HEADER_BYTES;
/// How many descriptors a process inherits for its channel: the first ones.
pub const CHANNEL_DESCRIPTORS: RawFd = 2;
/// Size of the pipe for reports that the supervisor has not read yet, in bytes. Less is enough.
pub const PIPE_BYTES: usize = 256 * 1024;

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
    reports: OwnedFd,
    taken: Taken,
    /// Bytes read from the pipe.
    received: u64,
}

/// Bytes read from the pipe that are no report yet.
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

/// The pipe for reports. Nothing can be received through it.
#[derive(Debug)]
pub struct Reports {
    pipe: OwnedFd,
    /// Held while a report of several frames is written.
    long: Mutex<()>,
}

impl SupervisorEnd {
    /// A channel to a running process.
    pub fn over(orders: OwnedFd, reports: OwnedFd, taken: Taken) -> SupervisorEnd {
        SupervisorEnd { orders: Packets::from_fd(orders), reports, taken, received: 0 }
    }

    /// Sends an order. Never waits.
    ///
    /// # Errors
    /// As [`Packets::send`].
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.orders.send(message, fds)
    }

    /// The next report, if one is there. Never waits, and reads no more than one from the pipe.
    ///
    /// # Errors
    /// Errors of `read(2)`, and `InvalidData` when the other end violates the format.
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
            let read = rustix::io::retry_on_intr(|| {
                rustix::io::read(&self.reports, &mut self.taken.frame[have..])
            });
            self.taken.frame.truncate(have + read.unwrap_or(0));
            self.received += read.unwrap_or(0) as u64;
            match read {
                Ok(0) => return Ok(Received::Closed),
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How many bytes were read from the pipe, frames' headers included.
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// The socket of the orders, to poll for free space.
    pub fn orders(&self) -> BorrowedFd<'_> {
        self.orders.as_fd()
    }

    /// The pipe of the reports, to poll for one.
    pub fn reports(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }

    /// Bytes read from the pipe that are no report yet, for a program that takes this end over.
    pub fn taken(&self) -> &Taken {
        &self.taken
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
            // All of them are full: a flooded pipe does not cause more frames to be read at a time
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
    /// Both ends of a new channel, closed on exec.
    ///
    /// # Errors
    /// When the process or the system is out of descriptors.
    pub fn pair() -> io::Result<(SupervisorEnd, Channel)> {
        let (sends, receives) = Packets::one_way()?;
        // Each end has flags of its own, which the other cannot change.
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // There is a limit per user (pipe(7)). The pipe is large enough without.
        let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
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
        [self.orders.as_fd(), self.reports.pipe.as_fd()]
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
    fn over(pipe: OwnedFd) -> Reports {
        Reports { pipe, long: Mutex::new(()) }
    }

    /// Sends a report, if there is space in the pipe. One longer than a frame, once started, is
    /// completed, however long the supervisor takes.
    ///
    /// # Errors
    /// `WouldBlock` when the pipe is full, `BrokenPipe` when the supervisor has exited,
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

    /// The pipe.
    pub fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    fn write_frame(&self, kind: u8, part: &[u8], waits: bool) -> io::Result<()> {
        let length = u16::try_from(part.len()).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + part.len());
        frame.extend_from_slice(&length.to_ne_bytes());
        frame.push(kind);
        frame.extend_from_slice(part);
        loop {
            match rustix::io::write(&self.pipe, &frame) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if waits => self.wait_for_room()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wait_for_room(&self) -> io::Result<()> {
        let mut room = [PollFd::new(&self.pipe, PollFlags::OUT)];
        match poll(&mut room, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
        let (mut ours, theirs) = Channel::pair().unwrap();
        let lengths =
            [1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, MAX_MESSAGE_BYTES];
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

    #[test]
    fn a_short_report_may_come_within_a_long_one() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        let reports = theirs.reports();
        reports.write_frame(PART, &[b'a'; PART_BYTES], true).unwrap();
        reports.write_frame(WHOLE, b"short", true).unwrap();
        reports.write_frame(LAST, b"b", true).unwrap();
        assert_eq!(next(&mut ours), b"short");
        let long = next(&mut ours);
        assert_eq!((long.len(), long.last()), (PART_BYTES + 1, Some(&b'b')));
    }

    #[test]
    fn a_full_pipe_refuses_who_does_not_wait_and_loses_nothing_of_who_does() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        let mut sent = 0;
        while theirs.reports().send(b"x").is_ok() {
            sent += 1;
        }
        let sender = std::thread::spawn(move || theirs.reports().send_waiting(&[b'y'; 9000]));
        let mut left = sent;
        loop {
            match ours.receive().unwrap() {
                Received::Message(report, _) if report == b"x" => left -= 1,
                Received::Message(report, _) => break assert_eq!(report, [b'y'; 9000]),
                _ => std::thread::yield_now(),
            }
        }
        assert_eq!(left, 0);
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn what_is_taken_over_in_the_middle_of_a_report_goes_on() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        let reports = theirs.reports();
        reports.write_frame(PART, &[b'a'; PART_BYTES], true).unwrap();
        rustix::io::write(&reports.pipe, &[1]).unwrap();
        assert!(matches!(ours.receive().unwrap(), Received::Nothing));
        let SupervisorEnd { orders, reports: pipe, taken, .. } = ours;
        assert!(!taken.frame.is_empty() && !taken.report.is_empty());
        let mut ours = SupervisorEnd::over(orders.into(), pipe, taken);
        rustix::io::write(&reports.pipe, &[0, LAST, b'b']).unwrap();
        assert_eq!(next(&mut ours).len(), PART_BYTES + 1);
        drop(theirs);
        assert!(matches!(ours.receive().unwrap(), Received::Closed));
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
            let (mut ours, theirs) = Channel::pair().unwrap();
            rustix::io::write(&theirs.reports.pipe, bytes).unwrap();
            let error = ours.receive().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{:?}", &bytes[..3]);
            assert!(ours.taken.report.len() <= MAX_MESSAGE_BYTES);
        }
    }

    #[test]
    fn an_empty_channel_says_nothing_and_a_lost_one_says_closed_on_either_side() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        assert!(matches!(ours.receive().unwrap(), Received::Nothing));
        assert!(matches!(theirs.receive(false).unwrap(), Received::Nothing));
        drop(theirs);
        assert!(matches!(ours.receive().unwrap(), Received::Closed));
        assert_eq!(ours.send(b"order", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let (ours, theirs) = Channel::pair().unwrap();
        drop(ours);
        assert!(matches!(theirs.receive(true).unwrap(), Received::Closed));
    }

    #[test]
    fn nobody_can_send_a_descriptor_to_the_supervisor() {
        let (_ours, theirs) = Channel::pair().unwrap();
        let foreign = std::fs::File::open("/dev/null").unwrap();
        let orders = Packets::from_fd(theirs.orders.as_fd().try_clone_to_owned().unwrap());
        let refused = orders.send(b"x", &[foreign.as_fd()]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }
}
