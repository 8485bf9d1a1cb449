//! The connection of a command to the admin socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use maitred_control::admin::{MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Reply};
use rustix::event::{PollFd, PollFlags};

use crate::limits::Moment;
use crate::reload::Ticket;

use super::status_draft::StatusDraft;

/// Timeout of a command that sends nothing, or reads nothing of its reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connected command. Its stream never blocks.
#[derive(Debug)]
pub struct AdminConnection {
    stream: UnixStream,
    pid: i32,
    /// Received bytes of requests without a reply.
    input: Vec<u8>,
    /// The reply, which is sent up to `sent`.
    output: Vec<u8>,
    sent: usize,
    /// When it times out; none: it waits for the server's end.
    deadline: Option<Moment>,
    waits_for_the_end: bool,
    /// The reload whose outcome it waits for.
    awaited_reload: Option<Ticket>,
    /// The purge whose outcome it waits for.
    awaited_purge: Option<u64>,
    /// The profile whose end it waits for.
    awaited_profile: Option<u64>,
    /// The reply that it gets as soon as it is complete.
    draft: Option<StatusDraft>,
    /// It has closed its writing end.
    silent: bool,
    gone: bool,
}

impl AdminConnection {
    /// The process `pid` at the other end of `stream`.
    pub fn new(stream: UnixStream, pid: i32, now: Moment) -> AdminConnection {
        AdminConnection {
            stream,
            pid,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            deadline: Some(now + PATIENCE),
            waits_for_the_end: false,
            awaited_reload: None,
            awaited_purge: None,
            awaited_profile: None,
            draft: None,
            silent: false,
            gone: false,
        }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What to poll. Nothing while a reply is being completed.
    pub fn interest(&self) -> Option<PollFd<'_>> {
        let flags = match (self.has_unsent(), self.room()) {
            (true, _) => PollFlags::OUT,
            (false, 0) => PollFlags::empty(),
            (false, _) => PollFlags::IN,
        };
        let listens = self.draft.is_none() && self.awaited_purge.is_none();
        listens.then(|| PollFd::new(&self.stream, flags))
    }

    /// When something is due without a further request: at once, if one was received.
    pub fn deadline(&self) -> Option<Moment> {
        if self.has_line() && !self.has_unsent() && !self.awaits() {
            return Some(Moment::ZERO);
        }
        self.deadline
    }

    /// Whether its last request is replied to later.
    pub fn awaits(&self) -> bool {
        self.awaited_reload.is_some()
            || self.awaited_purge.is_some()
            || self.awaited_profile.is_some()
            || self.draft.is_some()
    }

    fn room(&self) -> usize {
        MAX_REQUEST_BYTES.saturating_sub(self.input.len())
    }

    fn has_unsent(&self) -> bool {
        self.sent < self.output.len()
    }

    fn has_line(&self) -> bool {
        self.input.contains(&b'\n')
    }

    /// Reads requests, as far as there is space.
    pub fn read(&mut self, now: Moment) {
        let mut buffer = [0; MAX_REQUEST_BYTES];
        let room = self.room();
        let waits = self.draft.is_some() || self.awaited_purge.is_some();
        if room == 0 || self.has_unsent() || self.silent || waits {
            return;
        }
        match self.stream.read(&mut buffer[..room]) {
            Ok(0) if self.waits_for_the_end || self.awaits() => self.gone = true,
            Ok(0) => self.silent = true,
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                if self.input.len() >= MAX_REQUEST_BYTES && !self.has_line() {
                    let why = format!("a request is a line of at most {MAX_REQUEST_BYTES} bytes");
                    self.reply(&Reply::Refused { why }, now);
                    self.silent = true;
                    self.input.clear();
                }
            }
            Err(why) if is_not_now(why.kind()) => {}
            Err(_) => self.gone = true,
        }
    }

    /// The next request, once the reply to the one before was sent.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.input.iter().position(|byte| *byte == b'\n')?;
        if self.has_unsent() || self.awaits() {
            return None;
        }
        let rest = self.input.split_off(end + 1);
        Some(std::mem::replace(&mut self.input, rest))
    }

    /// Sends a reply, now or as it reads.
    pub fn reply(&mut self, reply: &Reply, now: Moment) {
        let mut line = serde_json::to_vec(reply).unwrap_or_default();
        if line.is_empty() || line.len() >= MAX_REPLY_BYTES {
            let why = "the answer is too long; ask for one pool".to_owned();
            line = serde_json::to_vec(&Reply::Refused { why }).unwrap_or_default();
        }
        line.push(b'\n');
        self.output = line;
        self.awaited_reload = None;
        self.awaited_purge = None;
        self.awaited_profile = None;
        self.draft = None;
        self.sent = 0;
        self.patience(now);
        self.flush(now);
    }

    /// It stays connected until the server has ended, as it requested.
    pub fn wait_for_the_end(&mut self) {
        self.waits_for_the_end = true;
    }

    /// It gets its reply when reload `ticket` is done, however long that takes.
    pub fn wait_for_reload(&mut self, ticket: Ticket) {
        self.awaited_reload = Some(ticket);
        self.deadline = None;
    }

    /// The reload whose outcome it waits for.
    pub fn awaited_reload(&self) -> Option<Ticket> {
        self.awaited_reload
    }

    /// It gets its reply when the purge with this number is done, which has a timeout.
    pub fn wait_for_purge(&mut self, mark: u64) {
        self.awaited_purge = Some(mark);
        self.deadline = None;
    }

    /// It gets its reply at the end of the profile with this number, which has a timeout.
    pub fn wait_for_profile(&mut self, profile: u64) {
        self.awaited_profile = Some(profile);
        self.deadline = None;
    }

    /// The profile whose end it waits for.
    pub fn awaited_profile(&self) -> Option<u64> {
        self.awaited_profile
    }

    /// The purge whose outcome it waits for.
    pub fn awaited_purge(&self) -> Option<u64> {
        self.awaited_purge
    }

    /// It gets this reply when that is complete, or at its timeout.
    pub fn wait_for(&mut self, draft: StatusDraft) {
        self.deadline = Some(draft.until());
        self.draft = Some(draft);
    }

    /// The incomplete reply.
    pub fn draft(&mut self) -> &mut Option<StatusDraft> {
        &mut self.draft
    }

    fn patience(&mut self, now: Moment) {
        self.deadline = (!self.waits_for_the_end).then_some(now + PATIENCE);
    }

    fn flush(&mut self, now: Moment) {
        while self.has_unsent() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => self.gone = true,
                Ok(count) => {
                    self.sent += count;
                    self.patience(now);
                    continue;
                }
                Err(why) if is_not_now(why.kind()) => return,
                Err(_) => self.gone = true,
            }
            return;
        }
        self.output = Vec::new();
        self.sent = 0;
    }

    /// Whether to close it, after another try to send the rest of its reply.
    pub fn is_over(&mut self, now: Moment) -> bool {
        self.flush(now);
        let waits = self.draft.is_some() || self.awaited_purge.is_some();
        let done = self.silent && !self.has_unsent() && !self.has_line() && !waits;
        self.gone || done || self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

fn is_not_now(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Duration::from_secs(1);

    fn guest() -> (AdminConnection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (AdminConnection::new(ours, 1, NOW), theirs)
    }

    fn refusal() -> Reply {
        let why = "x".repeat(1 << 20);
        Reply::Refused { why }
    }

    #[test]
    fn lines_are_answered_one_after_the_other_however_they_come() {
        let (mut guest, mut theirs) = guest();
        theirs.write_all(b"one\ntw").unwrap();
        guest.read(NOW);
        assert_eq!(guest.next_line().as_deref(), Some(&b"one\n"[..]));
        assert_eq!(guest.next_line(), None);
        theirs.write_all(b"o\nthree\n").unwrap();
        guest.read(NOW);
        assert_eq!(guest.next_line().as_deref(), Some(&b"two\n"[..]));
        assert_eq!(guest.deadline(), Some(Moment::ZERO), "another one is there");
        assert_eq!(guest.next_line().as_deref(), Some(&b"three\n"[..]));
        drop(theirs);
        guest.read(NOW);
        assert!(guest.is_over(NOW));
    }

    #[test]
    fn a_line_without_end_is_refused_and_fills_no_memory() {
        let (mut guest, mut theirs) = guest();
        theirs.write_all(&[b'x'; 3 * MAX_REQUEST_BYTES]).unwrap();
        guest.read(NOW);
        assert!(guest.is_over(NOW));
        let mut said = [0; 200];
        let count = theirs.read(&mut said).unwrap();
        assert!(String::from_utf8_lossy(&said[..count]).starts_with(r#"{"refused""#));
    }

    #[test]
    fn who_does_not_read_or_say_anything_is_sent_away_after_a_while() {
        let (mut silent, _theirs) = guest();
        assert!(!silent.is_over(NOW));
        assert!(silent.is_over(NOW + PATIENCE));
        let (mut deaf, mut theirs) = guest();
        theirs.write_all(b"more\n").unwrap();
        deaf.reply(&refusal(), NOW);
        assert!(!deaf.is_over(NOW), "it may still read");
        deaf.read(NOW);
        assert_eq!(deaf.next_line(), None, "nothing more before it has read");
        assert!(deaf.is_over(NOW + PATIENCE));
    }

    #[test]
    fn who_waits_for_the_end_is_not_sent_away() {
        let (mut guest, theirs) = guest();
        guest.wait_for_the_end();
        guest.reply(&Reply::Ending { running: 0 }, NOW);
        assert!(!guest.is_over(NOW + 100 * PATIENCE));
        drop(theirs);
        guest.read(NOW);
        assert!(guest.is_over(NOW), "unless it has gone");
    }
}
