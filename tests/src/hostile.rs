//! What hostile processes do: take descriptors of others, send descriptors that linger, and say
//! what no process of maitred says.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, recvmsg, sockopt,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::Value;

use crate::processes::{self, Process};

/// Highest number of a descriptor that is tried.
const LAST_NUMBER: i32 = 40;

/// The first that a process of ours has which its parent has left it, as long as it does.
const FIRST_INHERITED: i32 = 3;

/// How many of the processes that have just come are tried, and how often before it is seen who has
/// come since.
const NEWCOMERS: usize = 4;
const TRIES_EACH_LOOK: usize = 8;

/// How long closing a lingering socket takes. Longer than any test waits.
const LINGER: Duration = Duration::from_secs(120);

/// Most bytes of an order (`crates/os/src/packets.rs`).
const LONGEST_ORDER: usize = 64 * 1024;

/// Most bytes of a frame of reports (`crates/os/src/channel.rs`).
const FRAME_BYTES: usize = 4096;

/// A descriptor that was taken from another process.
#[derive(Debug)]
pub struct Loot {
    /// Its number there.
    pub number: i32,
    /// What it is.
    pub what: String,
    /// The descriptor.
    pub fd: OwnedFd,
}

/// Takes all descriptors of a process that it lets be taken.
pub fn plunder(pid: i32) -> Vec<Loot> {
    open(pid).map_or(Vec::new(), |process| take(&process, LAST_NUMBER))
}

fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn take(process: &OwnedFd, last: i32) -> Vec<Loot> {
    let take = |number| {
        let fd = pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()?;
        let what = describe(fd.as_fd());
        Some(Loot { number, what, fd })
    };
    (0..=last).filter_map(take).collect()
}

/// Takes descriptors of processes from the moment on in which they are there.
#[derive(Debug)]
pub struct Ambush {
    /// The number of the last process that was there before.
    last: i32,
    newcomers: VecDeque<(i32, OwnedFd)>,
}

impl Ambush {
    /// Waits for processes from now on.
    pub fn lay() -> Ambush {
        Ambush { last: last_process(), newcomers: VecDeque::new() }
    }

    /// What those let be taken that have come, with their numbers. To be called again and again, as
    /// fast as can be.
    pub fn take(&mut self) -> Vec<(i32, Loot)> {
        let last = last_process();
        if last < self.last {
            self.last = last;
        }
        for pid in self.last + 1..=last {
            self.newcomers.extend(open(pid).map(|process| (pid, process)));
        }
        self.last = last;
        while self.newcomers.len() > NEWCOMERS {
            self.newcomers.pop_front();
        }
        for _ in 0..TRIES_EACH_LOOK {
            for (pid, process) in &self.newcomers {
                if pidfd_getfd(process, FIRST_INHERITED, PidfdGetfdFlags::empty()).is_ok() {
                    let loot = take(process, LAST_NUMBER).into_iter();
                    return loot.map(|loot| (*pid, loot)).collect();
                }
            }
        }
        Vec::new()
    }
}

/// The number of the process that was started last (proc(5), `loadavg`).
pub fn last_process() -> i32 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = text.split_ascii_whitespace().last();
    last.and_then(|last| last.parse().ok()).unwrap_or(0)
}

/// What a descriptor leads to, in words.
fn describe(fd: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let target = fs::read_link(link).unwrap_or_default();
    let kind = rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let peer = sockopt::socket_peercred(fd).map(|peer| peer.uid.as_raw());
    match peer {
        Ok(uid) => format!("a socket whose other end user {uid} has made"),
        Err(_) => format!("{} ({kind:?})", target.display()),
    }
}

/// Whether root has made the other end of this socket: the channel of a process to the supervisor.
pub fn leads_to_root(loot: &Loot) -> bool {
    sockopt::socket_peercred(&loot.fd).is_ok_and(|peer| peer.uid.as_raw() == 0)
}

/// Whether others can be given what is written there: the end of a pipe that is written to.
pub fn is_pipe_to_write(loot: &Loot) -> bool {
    use rustix::fs::OFlags;
    let is_pipe = rustix::fs::fstat(&loot.fd)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    let flags = rustix::fs::fcntl_getfl(&loot.fd).unwrap_or(OFlags::empty());
    is_pipe && flags & OFlags::RWMODE == OFlags::WRONLY
}

/// The processes of a server that are this process's user's. Others of that user are left alone:
/// they may be another test's.
pub fn of_own_user(supervisor: i32) -> Vec<Process> {
    let own = rustix::process::getuid().as_raw();
    let uid = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("Uid:"))?;
        line.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let mut family = processes::family(supervisor);
    family.retain(|process| uid(process.pid) == Some(own));
    family
}

/// A connection that takes [`LINGER`] to be closed, since what was sent is never read.
#[derive(Debug)]
pub struct Lingering {
    sender: TcpStream,
    deaf: TcpStream,
}

impl Lingering {
    /// Makes one.
    ///
    /// # Errors
    /// When the system is out of something.
    pub fn new() -> io::Result<Lingering> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let sender = TcpStream::connect(listener.local_addr()?)?;
        let (deaf, _) = listener.accept()?;
        sockopt::set_socket_linger(&sender, Some(LINGER))?;
        sender.set_nonblocking(true)?;
        while rustix::io::write(&sender, &[0; 65_536]).is_ok() {}
        Ok(Lingering { sender, deaf })
    }

    /// Closes the end that lingers and keeps the deaf one: the receiver of the first has the last
    /// copy. Without a receiver this process has it, and only a thread of its own waits.
    pub fn let_go(self) -> TcpStream {
        let sender = self.sender;
        std::thread::spawn(move || drop(sender));
        self.deaf
    }
}

/// Sends bytes over a socket together with descriptors that linger, and lets go of those here.
///
/// # Errors
/// What `sendmsg(2)` says.
pub fn send_lingering(
    to: BorrowedFd<'_>,
    bytes: &[u8],
    lingering: &[Lingering],
) -> rustix::io::Result<usize> {
    let fds: Vec<BorrowedFd<'_>> = lingering.iter().map(|one| one.sender.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, flags)
}

/// How a hostile process speaks to root.
#[derive(Debug)]
pub struct SupervisorLink {
    /// A socket, on which each message is a report; where that is refused, reports go below.
    pub socket: Option<OwnedFd>,
    /// A pipe or a stream, which takes frames.
    pub frames: Option<OwnedFd>,
}

impl SupervisorLink {
    /// What a process has to speak with.
    pub fn of(pid: i32) -> SupervisorLink {
        let mut way = SupervisorLink { socket: None, frames: None };
        // The lowest numbers are those that the supervisor has left it; 1 and 2 are its output.
        for loot in plunder(pid) {
            let kind = sockopt::socket_type(&loot.fd).ok().filter(|_| leads_to_root(&loot));
            let takes_frames = kind == Some(SocketType::STREAM) || is_pipe_to_write(&loot);
            if kind == Some(SocketType::SEQPACKET) && way.socket.is_none() {
                way.socket = Some(loot.fd);
            } else if loot.number > 2 && takes_frames && way.frames.is_none() {
                way.frames = Some(loot.fd);
            }
        }
        way
    }

    /// The next order, which is not waited for longer than this many milliseconds, and the
    /// descriptors that come with it.
    pub fn next_order(&self, within: i64) -> Option<(Value, Vec<OwnedFd>)> {
        let socket = self.socket.as_ref()?;
        let within = Timespec { tv_sec: 0, tv_nsec: within * 1_000_000 };
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&within)).ok()?;
        let mut order = vec![0; LONGEST_ORDER];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut order)];
        let got = recvmsg(socket, parts, &mut ancillary, RecvFlags::DONTWAIT).ok()?;
        let fds = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
            _ => Vec::new(),
        });
        let fds = fds.collect();
        Some((serde_json::from_slice(&order[..got.bytes]).ok()?, fds))
    }

    /// Sends a report in every way there is; false without a receiver.
    pub fn say(&self, report: &[u8]) -> bool {
        let by_socket = self.socket.as_ref().map(|socket| {
            rustix::net::send(socket, report, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(|_| ())
        });
        let by_frames = self.frames.as_ref().map(|frames| write_report(frames, report));
        let is_alive = |said: Option<rustix::io::Result<()>>| {
            said.is_some_and(|said| said != Err(rustix::io::Errno::PIPE))
        };
        let (by_socket, by_frames) = (is_alive(by_socket), is_alive(by_frames));
        by_socket || by_frames
    }
}

/// Writes a report as frames, as the supervisor expects them.
fn write_report(frames: &OwnedFd, report: &[u8]) -> rustix::io::Result<()> {
    const HEADER: usize = 3;
    let mut parts = report.chunks(FRAME_BYTES - HEADER).peekable();
    let is_long = report.len() > FRAME_BYTES - HEADER;
    while let Some(part) = parts.next() {
        let kind = match (is_long, parts.peek()) {
            (false, _) => 1,
            (true, Some(_)) => 2,
            (true, None) => 3,
        };
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        let frame = [&length.to_ne_bytes()[..], &[kind], part].concat();
        rustix::io::write(frames, &frame)?;
    }
    Ok(())
}
