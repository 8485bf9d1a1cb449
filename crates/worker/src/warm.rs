//! Handing OPcache's scripts from a zygote to the next. What needs PHP is done in a child: a zygote
//! itself never runs a request, since whatever a request leaves behind would be in every worker.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use maitred_control::{FromZygote, ToZygote, scripts};
use maitred_os::channel::Channel;
use maitred_os::fork::{HowEnded, OwnProc, exit_now};
use maitred_os::timed_child::{ChildResult, TimedChild, TimedFork, fork_timed};
use maitred_os::{shared, signals};
use maitred_php::Engine;

/// How long the list may take.
const LISTING: Duration = Duration::from_secs(1);

/// How long a new zygote may be kept from forking its first worker by filling its OPcache.
const WARMING: Duration = Duration::from_secs(10);

/// What a script is left of [`WARMING`] when it is begun, so that only one that hangs is killed.
const LAST_SCRIPT: Duration = Duration::from_secs(1);

/// What is to be done with a list of scripts.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Write it.
    List,
    /// Compile what is in it.
    Warm,
}

/// An order that needs a child.
#[derive(Debug)]
pub struct Order {
    what: What,
    list: File,
    /// How many scripts the child is through with, as a native `u32`: its word also if it is killed.
    count: File,
}

/// Which process returned from [`Order::fork`].
pub enum Side {
    /// The child, with what it has to do.
    Child(Order),
    /// The zygote, with the answer.
    Zygote(FromZygote),
}

/// The answer of a zygote that can do nothing of it.
pub fn nothing_done(order: &ToZygote) -> FromZygote {
    What::of(order).answer(0)
}

/// Carries out [`ToZygote::ListScripts`] or [`ToZygote::Warm`]. Returns in the zygote when that is
/// over, and before in the child, which has to let go of the control channel and `proc`, and to
/// [`run`](Order::run).
pub fn carry_out(order: &ToZygote, fds: Vec<OwnedFd>, control: &Channel, proc: &OwnProc) -> Side {
    let what = What::of(order);
    // Why nothing was done is not told: the scripts are compiled when they are asked for, then.
    match Order::new(what, fds).and_then(|order| order.fork(control, proc)) {
        Ok(side) => side,
        Err(_) => Side::Zygote(what.answer(0)),
    }
}

impl What {
    fn of(order: &ToZygote) -> What {
        match order {
            ToZygote::ListScripts => What::List,
            _ => What::Warm,
        }
    }

    fn answer(self, count: u32) -> FromZygote {
        match self {
            What::List => FromZygote::ScriptsListed { count },
            What::Warm => FromZygote::Warmed { compiled: count },
        }
    }
}

impl Order {
    fn new(what: What, fds: Vec<OwnedFd>) -> io::Result<Order> {
        let list = fds.into_iter().next();
        let list = list.ok_or_else(|| io::Error::other("the list of scripts is missing"))?;
        let count = shared::file_with("maitred-count", &0_u32.to_ne_bytes())?;
        Ok(Order {
            what,
            list: list.into(),
            count: count.into(),
        })
    }

    fn fork(self, control: &Channel, proc: &OwnProc) -> io::Result<Side> {
        if let What::List = self.what {
            self.list.set_len(0)?;
        }
        match fork_timed(proc)? {
            TimedFork::Child => Ok(Side::Child(self)),
            TimedFork::Parent(child) => Ok(Side::Zygote(self.await_child(child, control))),
        }
    }

    fn await_child(&self, child: TimedChild, control: &Channel) -> FromZygote {
        let limit = match self.what {
            What::List => LISTING,
            What::Warm => WARMING,
        };
        let returned = child.wait(limit, control.as_fd());
        let is_well = matches!(returned, Ok(ChildResult::Ended(HowEnded::Exited(0))));
        if let (What::List, false) = (self.what, is_well) {
            // Half a list is none.
            let _ = self.list.set_len(0);
            return self.what.answer(0);
        }
        let mut count = [0; 4];
        let count = match self.count.read_exact_at(&mut count, 0) {
            Ok(()) => u32::from_ne_bytes(count),
            Err(_) => 0,
        };
        self.what.answer(count)
    }

    /// In the child: does it, and ends.
    pub fn run(self, engine: &mut Engine) -> ! {
        let deadline = Instant::now() + WARMING - LAST_SCRIPT;
        signals::reset(&[]);
        engine.after_fork();
        let done = match self.what {
            What::List => self.list(engine),
            What::Warm => self.warm(engine, deadline),
        };
        exit_now(i32::from(done.is_err()))
    }

    fn list(&self, engine: &mut Engine) -> io::Result<()> {
        let cached = engine.cached_scripts();
        let paths = cached.iter().map(|script| Path::new(&script.path));
        let (list, count) = scripts::write(paths);
        self.list.write_all_at(&list, 0)?;
        self.tell(count)
    }

    fn warm(&self, engine: &mut Engine, deadline: Instant) -> io::Result<()> {
        let paths = scripts::read(&self.read_list()?);
        let compiled = engine.compile_scripts(&paths, |compiled| {
            self.tell(compiled).is_ok() && Instant::now() < deadline
        });
        self.tell(compiled)
    }

    /// The file's position is shared with every process that has had it, and is left alone.
    fn read_list(&self) -> io::Result<Vec<u8>> {
        let mut list = Vec::new();
        let from_start = FromStart {
            file: &self.list,
            at: 0,
        };
        from_start
            .take(scripts::LIST_BYTES_MAX as u64)
            .read_to_end(&mut list)?;
        Ok(list)
    }

    fn tell(&self, count: usize) -> io::Result<()> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.count.write_all_at(&count.to_ne_bytes(), 0)
    }
}

/// Reads a file from its beginning without its position.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}
