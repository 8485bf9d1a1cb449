//! Closes Unix streams with descriptors in their queues. The kernel closes those in the context of
//! the thread that closes the stream, and waits as long as their sender likes (a TCP socket with
//! `SO_LINGER`). So a separate thread does it, and a second one interrupts its waits: that of
//! `SO_LINGER` ends with a signal (`sk_stream_wait_close`), for this descriptor and for all others
//! of the same stream.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Streams that may wait to be closed. If there are more, accept no stream whose peer may send
/// descriptors ([`is_full`]); open ones are still queued here.
pub const WAITING: usize = 256;
/// How long one stream may take before its waits are interrupted.
const PATIENCE: Duration = Duration::from_millis(2);
/// The signal that interrupts: it has no other use here.
const INTERRUPT: Signal = Signal::SIGURG;
/// Bytes of the stack of each of the two threads.
const STACK_BYTES: usize = 64 * 1024;

/// The state shared by the two threads.
struct State {
    waiting: VecDeque<OwnedFd>,
    /// The threads run.
    is_running: bool,
    /// A stream is being closed.
    is_closing: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { waiting: VecDeque::new(), is_running: false, is_closing: false });
/// A stream waits to be closed.
static CAME: Condvar = Condvar::new();
/// `is_closing` has changed.
static TURNED: Condvar = Condvar::new();

/// Whether the limit of streams that wait to be closed is reached.
pub fn is_full() -> bool {
    lock().waiting.len() >= WAITING
}

/// Queues a stream to be closed. Never waits.
pub fn close(stream: OwnedFd) {
    let mut state = lock();
    state.waiting.push_back(stream);
    // Without a thread it waits for the next stream, which tries again.
    state.is_running = state.is_running || start().is_ok();
    CAME.notify_one();
}

fn start() -> io::Result<()> {
    let action =
        SigAction::new(SigHandler::Handler(do_nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(INTERRUPT, &action) }?;
    let thread = |name: &str| Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    let closer = thread("closer").spawn(close_all)?;
    let closer = closer.into_pthread_t();
    // With the closer alone, a wait may last; nothing else is affected.
    let _ = thread("closer-watch").spawn(move || interrupt(closer));
    Ok(())
}

extern "C" fn do_nothing(_: libc::c_int) {}

fn close_all() {
    let mut signals = SigSet::empty();
    signals.add(INTERRUPT);
    let _ = signals.thread_unblock();
    let mut state = lock();
    loop {
        match state.waiting.pop_front() {
            Some(stream) => {
                state.is_closing = true;
                drop(state);
                TURNED.notify_one();
                drop(stream);
                state = lock();
                state.is_closing = false;
                TURNED.notify_one();
            }
            None => state = CAME.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Interrupts the closer repeatedly while it closes a stream.
fn interrupt(closer: libc::pthread_t) {
    let mut state = lock();
    loop {
        state = if state.is_closing {
            let waited = TURNED.wait_timeout(state, PATIENCE);
            let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() && state.is_closing {
                // SAFETY: the closer's thread never ends, so this identifies it.
                let _ = unsafe { libc::pthread_kill(closer, INTERRUPT as libc::c_int) };
            }
            state
        } else {
            TURNED.wait(state).unwrap_or_else(PoisonError::into_inner)
        };
    }
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
    use std::io::{IoSlice, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// How long such a socket takes to close: more than tests wait for that (20 s), and not much
    /// more. A program that another test starts meanwhile has a copy until it runs; if it is the
    /// last to close it, that test waits for as long.
    const LINGERS: Duration = Duration::from_secs(25);

    /// A TCP socket that takes long to close, unless it is interrupted. Its other end is leaked.
    pub fn lingering() -> OwnedFd {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        std::mem::forget(listener.accept().unwrap());
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 64 * 1024]).is_ok() {}
        sockopt::set_socket_linger(&stream, Some(LINGERS)).unwrap();
        stream.into()
    }

    /// Sends a byte with a descriptor.
    pub fn send_descriptor(stream: &UnixStream, sent: &OwnedFd, flags: SendFlags) {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut more = SendAncillaryBuffer::new(&mut space);
        let fds = [sent.as_fd()];
        more.push(SendAncillaryMessage::ScmRights(&fds));
        assert_eq!(sendmsg(stream, &[IoSlice::new(b"x")], &mut more, flags), Ok(1));
    }

    #[test]
    fn streams_behind_lingering_descriptors_are_closed_long_before_these_would_be() {
        // The second is in the queue of a stream that is sent itself, where no thread reaches it.
        let (nested, inner) = UnixStream::pair().unwrap();
        send_descriptor(&nested, &lingering(), SendFlags::NOSIGNAL);
        let inner = OwnedFd::from(inner);
        for sent in [lingering(), inner] {
            let (theirs, ours) = UnixStream::pair().unwrap();
            send_descriptor(&theirs, &sent, SendFlags::NOSIGNAL);
            drop(sent);
            close(ours.into());
        }
        let (mut last, ours) = UnixStream::pair().unwrap();
        last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        close(ours.into());
        // A signal to another test's thread may come here, and with a timeout ends one `read`.
        assert_eq!(last.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}
