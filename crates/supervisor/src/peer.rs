//! A child process with a channel: the front, a zygote, or the process that gets a certificate.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use maitred_control::{Received, hear_report};
use maitred_os::channel::{Channel, MAX_MESSAGE_BYTES, SupervisorEnd, Taken};
use maitred_os::signals::{self, Signal};
use maitred_os::spawn::{self, Program};
use rustix::event::{PollFd, PollFlags};
use serde::{Serialize, de::DeserializeOwned};
use tracing::error;

use crate::limits::{OUTBOX_BYTES, OUTBOX_DESCRIPTORS, OUTBOX_MESSAGES};
use crate::system::deferred_close::{PoolEnds, close_later};

/// The program of this process, even if its file was replaced since.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// A name for a process to start, padded so that every later title fits: a title is written over
/// the arguments and the environment that the process was started with.
pub fn roomy_name(title: &str) -> OsString {
    const TITLE_BYTES: usize = 128;
    OsStr::new(&format!("{title:<TITLE_BYTES$}")).to_owned()
}

/// A child that gets orders `Out`.
#[derive(Debug)]
pub struct Peer<Out> {
    pid: i32,
    pidfd: OwnedFd,
    channel: SupervisorEnd,
    /// The pool whose code it runs, if it does.
    pool: Option<String>,
    /// Orders that did not fit into the channel yet.
    outbox: Outbox,
    closed: bool,
    orders: PhantomData<fn(Out)>,
}

/// Queued orders.
#[derive(Debug, Default)]
struct Outbox {
    orders: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    bytes: usize,
    descriptors: usize,
    /// Descriptors that may be queued beside [`OUTBOX_DESCRIPTORS`].
    allowed: usize,
}

impl Outbox {
    /// Queues an order, with duplicates of its descriptors.
    fn put(&mut self, said: Vec<u8>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (bytes, descriptors) = (self.bytes + said.len(), self.descriptors + fds.len());
        if self.orders.len() >= OUTBOX_MESSAGES
            || bytes > OUTBOX_BYTES
            || descriptors > OUTBOX_DESCRIPTORS.saturating_add(self.allowed)
        {
            return Err(io::Error::other(format!(
                "it does not read its orders ({} wait, with {} bytes and {} descriptors)",
                self.orders.len(),
                self.bytes,
                self.descriptors
            )));
        }
        let fds: io::Result<Vec<OwnedFd>> =
            fds.iter().map(BorrowedFd::try_clone_to_owned).collect();
        self.orders.push_back((said, fds?));
        (self.bytes, self.descriptors) = (bytes, descriptors);
        Ok(())
    }

    /// The first order was sent.
    fn pop(&mut self) {
        if let Some((said, fds)) = self.orders.pop_front() {
            self.bytes -= said.len();
            self.descriptors -= fds.len();
        }
    }

    fn clear(&mut self) {
        let allowed = self.allowed;
        *self = Outbox { allowed, ..Outbox::default() };
    }
}

impl<Out: Serialize> Peer<Out> {
    /// Starts this program in a role of its own, named by its first argument, with `title` for its
    /// title and our standard output and error.
    ///
    /// # Errors
    /// As [`Peer::start`].
    pub fn start_role(
        title: &str,
        role: &str,
        environment: &[(String, String)],
    ) -> io::Result<Peer<Out>> {
        Peer::start(&Program {
            path: Path::new(THIS_PROGRAM),
            name: &roomy_name(title),
            arguments: &[OsStr::new(role)],
            environment,
            inherit: &[],
            output: None,
            group: None,
        })
    }

    /// Starts `program`, which inherits one end of a new channel and nothing else.
    ///
    /// # Errors
    /// When the program cannot be executed or the system is out of a resource.
    pub fn start(program: &Program<'_>) -> io::Result<Peer<Out>> {
        let (ours, theirs) = Channel::pair()?;
        Peer::start_with(program, ours, &theirs)
    }

    /// As [`Peer::start`], for a process that runs code of this pool.
    ///
    /// # Errors
    /// As [`Peer::start`].
    pub fn start_of_pool(program: &Program<'_>, pool: &str) -> io::Result<Peer<Out>> {
        let (ours, theirs) = Channel::pair_with_tenant()?;
        Ok(Peer::start_with(program, ours, &theirs)?.of_pool(pool))
    }

    fn start_with(
        program: &Program<'_>,
        ours: SupervisorEnd,
        theirs: &Channel,
    ) -> io::Result<Peer<Out>> {
        let pid = spawn::start(&Program { inherit: &theirs.descriptors(), ..*program })?;
        let pidfd = signals::pidfd(pid)?;
        Ok(Peer {
            pid,
            pidfd,
            channel: ours,
            pool: None,
            outbox: Outbox::default(),
            closed: false,
            orders: PhantomData,
        })
    }

    /// A running child with an existing channel.
    ///
    /// # Errors
    /// When it was reaped, or no descriptor is left.
    pub fn over(pid: i32, channel: SupervisorEnd) -> io::Result<Peer<Out>> {
        Ok(Peer {
            pid,
            pidfd: signals::pidfd(pid)?,
            channel,
            pool: None,
            outbox: Outbox::default(),
            closed: false,
            orders: PhantomData,
        })
    }

    /// The same, of a process that runs code of this pool.
    pub fn of_pool(self, pool: &str) -> Peer<Out> {
        let mut peer = self;
        peer.pool = Some(pool.to_owned());
        peer
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets this many descriptors be queued beside [`OUTBOX_DESCRIPTORS`]: as many as it may be
    /// sent at once before it has had the time to read any.
    pub fn allow(&mut self, descriptors: usize) {
        self.outbox.allowed = descriptors;
    }

    /// Sends an order, or queues it until there is space in the channel. A process that has ended
    /// gets none; one that does not read for too long is killed. An order that is too long for a
    /// message, and has no descriptors, is logged and left out.
    pub fn say(&mut self, order: Out, fds: &[BorrowedFd<'_>]) {
        if let Err(why) = self.try_say(&order, fds) {
            self.give_up(&why);
        }
    }

    fn try_say(&mut self, order: &Out, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let said = serde_json::to_vec(order)?;
        if said.len() > MAX_MESSAGE_BYTES && fds.is_empty() {
            // The fault is ours. What a process cannot do without has descriptors.
            let (pid, bytes) = (self.pid, said.len());
            error!(
                "an order of {bytes} bytes for process {pid} is left out, since it has more than \
                 {MAX_MESSAGE_BYTES}; report this, it is a bug"
            );
            return Ok(());
        }
        if self.outbox.orders.is_empty() {
            match self.channel.send(&said, fds) {
                Err(full) if full.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
        self.outbox.put(said, fds)
    }

    /// Sends queued orders, as far as there is space.
    pub fn flush(&mut self) {
        while let Some((said, fds)) = self.outbox.orders.front() {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match self.channel.send(said, &fds) {
                Err(full) if full.kind() == io::ErrorKind::WouldBlock => return,
                Err(why) => return self.give_up(&why),
                Ok(()) => {}
            }
            self.outbox.pop();
        }
    }

    /// Takes the next report, if there is one. None also when the other end is closed or breaks the
    /// protocol.
    pub fn hear<In: DeserializeOwned>(&mut self) -> Option<In> {
        match hear_report(&mut self.channel) {
            Ok(Received::Message(report, _)) => return Some(report),
            Ok(Received::Nothing) => {}
            Ok(Received::Closed) => self.closed = true,
            Err(why) => {
                self.closed = true;
                self.give_up(&why);
            }
        }
        None
    }

    /// How many bytes of reports were read.
    pub fn received_bytes(&self) -> u64 {
        self.channel.received_bytes()
    }

    /// It has broken the rules: reads no report any more.
    pub fn hear_no_more(&mut self) {
        self.closed = true;
        self.outbox.clear();
    }

    /// Whether no report will arrive any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Sends it a signal. A failure means that it has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = signals::send_to(self.pidfd.as_fd(), signal);
    }

    fn give_up(&mut self, why: &io::Error) {
        self.outbox.clear();
        // A process that closed its end is exiting, and its end is logged when it is reaped.
        if why.kind() != io::ErrorKind::BrokenPipe && why.kind() != io::ErrorKind::ConnectionReset {
            error!("process {} is killed: {why}", self.pid);
            self.signal(Signal::SIGKILL);
        }
    }
}

impl<Out> Peer<Out> {
    /// What to poll: reports, and space for queued orders.
    pub fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let report = PollFd::from_borrowed_fd(self.channel.reports(), PollFlags::IN);
        // The socket is polled only while orders are queued: that its other end is closed would
        // wake us each time.
        let room = self
            .is_behind()
            .then(|| PollFd::from_borrowed_fd(self.channel.orders(), PollFlags::OUT));
        std::iter::once(report).chain(room)
    }

    /// Whether any of [`Peer::interests`] is ready; `next` returns the results one by one.
    pub fn is_ready(&self, mut next: impl FnMut() -> bool) -> bool {
        let (spoke, has_room) = (next(), self.is_behind() && next());
        spoke || has_room
    }

    /// Whether orders are queued.
    pub fn is_behind(&self) -> bool {
        !self.outbox.orders.is_empty() && !self.closed
    }

    /// The descriptors of orders and of reports, and partly received data.
    pub fn channel(&self) -> (RawFd, RawFd, &Taken) {
        let (orders, reports) = (self.channel.orders(), self.channel.reports());
        let taken = self.channel.taken();
        (orders.as_raw_fd(), reports.as_raw_fd(), taken)
    }
}

/// A tenant may have put descriptors into the socket of its reports, whose close waits.
impl<Out> Drop for Peer<Out> {
    fn drop(&mut self) {
        if let Some(end) = self.channel.end_reports() {
            let pool = self.pool.take().unwrap_or_default();
            close_later(PoolEnds { pool, ends: vec![end] });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// A child that ends when it is killed, and never reads.
    fn deaf() -> (std::process::Child, Peer<String>, Channel) {
        let child = std::process::Command::new("sleep").arg("600").spawn();
        let child = child.unwrap();
        let (ours, theirs) = Channel::pair().unwrap();
        let peer = Peer::over(i32::try_from(child.id()).unwrap(), ours).unwrap();
        (child, peer, theirs)
    }

    /// Sends the same until the peer is given up, and counts how often.
    fn say_until_given_up(peer: &mut Peer<String>, said: &str, fds: &[BorrowedFd<'_>]) -> usize {
        let mut waiting = 0;
        for _ in 0..2 * OUTBOX_MESSAGES {
            peer.say(said.to_owned(), fds);
            match peer.is_behind() {
                true => waiting += 1,
                false if waiting > 0 => break,
                false => {}
            }
        }
        waiting
    }

    #[test]
    fn who_does_not_read_is_killed_before_descriptors_or_bytes_are_many() {
        let file = File::open("/dev/null").unwrap();
        let long = "x".repeat(60_000);
        for (said, fds, most) in [
            ("short", &[file.as_fd(); 2][..], OUTBOX_DESCRIPTORS / 2),
            (&long, &[], OUTBOX_BYTES / 60_002),
        ] {
            let (mut child, mut peer, _theirs) = deaf();
            assert_eq!(say_until_given_up(&mut peer, said, fds), most);
            assert_eq!((peer.outbox.bytes, peer.outbox.descriptors), (0, 0));
            let ended = child.wait().unwrap();
            assert!(!ended.success());
        }
    }

    #[test]
    fn an_order_that_is_too_long_is_left_out_and_its_process_goes_on() {
        let (mut child, mut peer, theirs) = deaf();
        peer.say("x".repeat(MAX_MESSAGE_BYTES), &[]);
        peer.say("next".to_owned(), &[]);
        let received = theirs.receive(true).unwrap();
        let maitred_os::channel::Received::Message(order, _) = received else { panic!("an order") };
        assert_eq!(order, b"\"next\"");
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_a_process_may_be_sent_at_once_finds_room_and_what_is_taken_leaves_some() {
        let file = File::open("/dev/null").unwrap();
        let (mut child, mut peer, theirs) = deaf();
        peer.allow(1000);
        while peer.outbox.descriptors < OUTBOX_DESCRIPTORS + 1000 {
            peer.say("order".to_owned(), &[file.as_fd()]);
        }
        assert!(peer.is_behind());
        while peer.is_behind() {
            theirs.receive(true).unwrap();
            peer.flush();
        }
        assert_eq!((peer.outbox.bytes, peer.outbox.descriptors), (0, 0));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
