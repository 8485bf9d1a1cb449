//! The call stack of a thread that hangs. A signal makes the thread report the addresses of its
//! calls; the process need not cooperate, and no debugger's rights are needed.
//!
//! The addresses are relative to a function of the program, so that another process of the same
//! program can name them ([`absolute`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::channel::{FRAME_HEADER_BYTES, frame_header};

/// Makes a thread report its stack.
pub const STACK_SIGNAL: Signal = Signal::SIGUSR2;

/// Most calls in a report; it fits one frame of the channel, however large the numbers are.
pub const CALLS_MAX: usize = 64;

/// Calls of the handler itself: itself, and the return from the signal.
const OWN_CALLS: usize = 2;

/// Bytes of a report: [`CALLS_MAX`] numbers of at most 20 characters and a comma, and the rest.
const REPORT_BYTES: usize = CALLS_MAX * 21 + 256;

/// The text of a report around its numbers: `begin`, the thread's id, `middle`, addresses with
/// commas between, `end`.
#[derive(Debug, Clone, Copy)]
pub struct ReportForm {
    /// Before the id of the thread.
    pub begin: &'static str,
    /// Between the id and the first address.
    pub middle: &'static str,
    /// After the last address.
    pub end: &'static str,
}

static PIPE: AtomicI32 = AtomicI32::new(-1);
static FORM: std::sync::OnceLock<ReportForm> = std::sync::OnceLock::new();

/// From now on a thread of this process that gets [`STACK_SIGNAL`] writes its stack to `reports`,
/// the pipe of a [`crate::channel::Channel`], which has to stay open.
///
/// # Errors
/// No known error.
pub fn install(reports: BorrowedFd<'_>, form: ReportForm) -> io::Result<()> {
    let _ = FORM.set(form);
    PIPE.store(reports.as_raw_fd(), Ordering::SeqCst);
    let mut calls = [std::ptr::null_mut(); 1];
    // The first call loads the library that unwinds, which is not safe in a handler.
    // SAFETY: the buffer has room for as many addresses as are passed.
    unsafe { libc::backtrace(calls.as_mut_ptr(), 1) };
    let action = SigAction::new(SigHandler::Handler(report), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler allocates nothing and takes no lock; it calls backtrace(3), which is safe
    // in a handler once its library is loaded, gettid(2) and write(2) (signal-safety(7)).
    unsafe { sigaction(STACK_SIGNAL, &action) }?;
    Ok(())
}

extern "C" fn report(_: i32) {
    let Some(form) = FORM.get() else { return };
    let errno = nix::errno::Errno::last();
    let mut calls = [std::ptr::null_mut(); CALLS_MAX + OWN_CALLS];
    // SAFETY: the buffer has room for as many addresses as are passed.
    let found = unsafe { libc::backtrace(calls.as_mut_ptr(), (CALLS_MAX + OWN_CALLS) as i32) };
    let found = usize::try_from(found).unwrap_or(0).min(calls.len());
    let mut text = Text { bytes: [0; REPORT_BYTES], length: FRAME_HEADER_BYTES };
    text.push(form.begin.as_bytes());
    // SAFETY: gettid(2) only returns a number.
    text.number(i64::from(unsafe { libc::gettid() }));
    text.push(form.middle.as_bytes());
    for (index, call) in calls[..found].iter().skip(OWN_CALLS).enumerate() {
        if index > 0 {
            text.push(b",");
        }
        text.number((*call as i64).wrapping_sub(origin()));
    }
    text.push(form.end.as_bytes());
    let header = frame_header(text.length - FRAME_HEADER_BYTES);
    text.bytes[..FRAME_HEADER_BYTES].copy_from_slice(&header);
    // SAFETY: the bytes are there, and a descriptor that is closed is an error. One write is one
    // frame (pipe(7)); without room in the pipe there is no report.
    let _ = unsafe {
        libc::write(PIPE.load(Ordering::SeqCst), text.bytes.as_ptr().cast(), text.length)
    };
    errno.set();
}

/// What addresses are relative to: a function of this program.
fn origin() -> i64 {
    install as *const () as i64
}

/// The absolute address, in this process, of a call that another process of the same program has
/// reported.
pub fn absolute(call: i64) -> usize {
    call.wrapping_add(origin()) as usize
}

/// Makes a thread of a child report its stack. One that has ended is no error.
///
/// # Errors
/// When we may not send signals to that process.
pub fn request(pid: i32, thread: i32) -> io::Result<()> {
    // SAFETY: tgkill(2) only sends a signal.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, thread, STACK_SIGNAL as libc::c_int) };
    match nix::errno::Errno::result(sent) {
        Ok(_) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A text that is written without an allocation. What does not fit is left out.
struct Text {
    bytes: [u8; REPORT_BYTES],
    length: usize,
}

impl Text {
    fn push(&mut self, more: &[u8]) {
        let room = &mut self.bytes[self.length..];
        let fits = more.len().min(room.len());
        room[..fits].copy_from_slice(&more[..fits]);
        self.length += fits;
    }

    fn number(&mut self, number: i64) {
        if number < 0 {
            self.push(b"-");
        }
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Channel, Received};
    use std::os::fd::AsFd;

    #[test]
    fn a_thread_reports_its_calls_when_it_gets_the_signal() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        let form = ReportForm { begin: "thread ", middle: ": ", end: "." };
        install(theirs.reports().as_fd(), form).unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        // SAFETY: gettid(2) only returns a number.
        let thread = unsafe { libc::gettid() };
        request(pid, thread).unwrap();
        // The signal is for this thread, and has arrived when tgkill(2) returns.
        let Received::Message(report, _) = ours.receive().unwrap() else {
            panic!("no report");
        };
        let report = String::from_utf8(report).unwrap();
        let calls = report.strip_prefix(&format!("thread {thread}: ")).unwrap();
        let calls: Vec<i64> =
            calls.trim_end_matches('.').split(',').map(|n| n.parse().unwrap()).collect();
        assert!(calls.len() > 3, "{calls:?}");
        let here = request as *const () as usize;
        let is_near = |call: &i64| absolute(*call).abs_diff(here) < 1 << 28;
        assert!(calls.iter().any(is_near), "{calls:?}");
    }
}
