//! php-fpm and maitred in its place, each started from the same php-fpm.conf in a folder of its
//! own, and asked over FastCGI.

mod case;
mod client;

pub use case::{Case, Step, compare};
pub use client::{Answer, Client, Listener, Params};

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;

use crate::guard::Guarded;
use crate::log::Log;
use crate::peer::fpm_program;
use crate::processes::{self, Process, Signal};
use crate::server::{WEB_USER, is_root, public_folder};
use crate::wait::{self, DEADLINE};
use crate::{maitred_program, ports};

/// How long the processes of a daemon that has ended may take to disappear.
const REMAINS_DEADLINE: Duration = Duration::from_secs(30);

/// How long what a daemon said last may take to be read after it has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How many ports a configuration can name, as `@PORT1@` and so on.
const PORTS: usize = 3;

/// The one variable that a daemon is started with, besides PATH.
pub const OUTSIDE: (&str, &str) = ("FPM_OUTSIDE", "from outside");

/// Whose program runs the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The distribution's php-fpm.
    PhpFpm,
    /// maitred under test, as `maitred fpm`.
    Maitred,
}

impl Which {
    /// Both, php-fpm first.
    pub const BOTH: [Which; 2] = [Which::PhpFpm, Which::Maitred];

    /// A command that starts it, without flags.
    pub fn command(self) -> Command {
        match self {
            Which::PhpFpm => Command::new(fpm_program()),
            Which::Maitred => {
                let mut command = Command::new(maitred_program());
                command.arg("fpm");
                command
            }
        }
    }
}

/// A configuration with what every case needs, before a case's own lines, which continue the pool
/// `www` and may set anything again.
pub fn usual(lines: &str) -> String {
    let mut text = String::from(
        "[global]\ndaemonize = no\n[www]\nlisten = @FOLDER@/www.sock\npm = static\n\
         pm.max_children = 1\n",
    );
    if is_root() {
        text.push_str(&format!(
            "user = {WEB_USER}\ngroup = {WEB_USER}\nlisten.owner = {WEB_USER}\n\
             listen.group = {WEB_USER}\n"
        ));
    }
    text + lines
}

/// Where a daemon runs: a folder and ports of its own.
#[derive(Debug)]
pub struct Place {
    folder: TempDir,
    ports: Vec<SocketAddr>,
}

impl Default for Place {
    fn default() -> Self {
        Self { folder: public_folder(), ports: (0..PORTS).map(|_| ports::free_address()).collect() }
    }
}

impl Place {
    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Text with this folder and these ports in place of the names for them.
    pub fn fill_in(&self, text: &str) -> String {
        let mut text = text.replace("@FOLDER@", &self.folder().display().to_string());
        for (number, address) in (1..).zip(&self.ports) {
            text = text.replace(&format!("@PORT{number}@"), &address.port().to_string());
        }
        text
    }

    /// The reverse of [`Place::fill_in`], so that what two daemons say can be compared.
    pub fn mask(&self, text: &str) -> String {
        let mut text = text.replace(&self.folder().display().to_string(), "@FOLDER@");
        for (number, address) in (1..).zip(&self.ports) {
            text = replace_number(&text, address.port(), &format!("@PORT{number}@"));
        }
        text
    }

    /// What is listened on: `@PORT1@` and so on are ports, all else names a socket in the folder.
    pub fn listener(&self, name: &str) -> Listener {
        let known = (1..).zip(&self.ports);
        let mut named = known.filter(|(number, _)| name == format!("@PORT{number}@"));
        match named.next() {
            Some((_, &address)) => Listener::Tcp(address),
            None => Listener::Unix(self.file(name)),
        }
    }
}

/// Text with `name` in place of a number, but not within a longer one.
pub fn replace_number(text: &str, number: u16, name: &str) -> String {
    let number = number.to_string();
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(&number) {
        let (before, found) = rest.split_at(at);
        let after = &found[number.len()..];
        out.push_str(before);
        let is_part = is_digit(before.chars().next_back()) || is_digit(after.chars().next());
        out.push_str(if is_part { &number } else { name });
        rest = after;
    }
    out + rest
}

/// A running php-fpm, or maitred in its place; it ends when this is dropped, and nothing may be
/// left of it then.
#[derive(Debug)]
pub struct Daemon {
    which: Which,
    master: Guarded,
    log: Log,
    seen: Mutex<HashSet<Process>>,
    stopped: bool,
    place: Place,
}

impl Daemon {
    /// Starts it in the foreground and waits until it says that it is ready. In `configuration`,
    /// `@FOLDER@` stands for a folder of its own and `@PORT1@`… for free ports.
    ///
    /// # Panics
    /// When it ends, or says nothing within the deadline.
    pub fn start(which: Which, configuration: &str) -> Self {
        Self::start_with(which, configuration, Place::default(), &[])
    }

    /// As [`Daemon::start`], in a place that is there already and with further flags.
    ///
    /// # Panics
    /// When it ends, or says nothing within the deadline.
    pub fn start_with(which: Which, configuration: &str, place: Place, flags: &[&str]) -> Self {
        Self::run(which, which.command(), configuration, place, flags)
    }

    /// As [`Daemon::start`], with this maitred instead of the one under test.
    ///
    /// # Panics
    /// When it ends, or says nothing within the deadline.
    pub fn start_program(program: &Path, configuration: &str) -> Self {
        let mut command = Command::new(program);
        command.arg("fpm");
        Self::run(Which::Maitred, command, configuration, Place::default(), &[])
    }

    fn run(
        which: Which,
        mut command: Command,
        configuration: &str,
        place: Place,
        flags: &[&str],
    ) -> Self {
        let file = place.file("php-fpm.conf");
        fs::write(&file, place.fill_in(configuration)).expect("a file can be written");
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env(OUTSIDE.0, OUTSIDE.1)
            .args(["--nodaemonize", "--force-stderr", "--fpm-config"])
            .arg(&file)
            .args(flags)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut master = Guarded::spawn(&mut command, Signal::TERM);
        let pipe = master.child().stderr.take();
        let mut daemon = Self {
            which,
            master,
            log: Log::collect(pipe.expect("stderr is a pipe")),
            seen: Mutex::default(),
            stopped: false,
            place,
        };
        daemon.expect_log(0, "ready to handle connections");
        daemon
    }

    /// Its program.
    pub fn which(&self) -> Which {
        self.which
    }

    /// The master's pid.
    pub fn pid(&self) -> i32 {
        self.master.pid()
    }

    /// Where it runs.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What it writes on stderr.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The listener of the pool `www` of [`usual`].
    pub fn listener(&self) -> Listener {
        self.place.listener("www.sock")
    }

    /// All its processes now. Each is remembered: none may outlive the daemon.
    pub fn processes(&self) -> Vec<Process> {
        let family = processes::family(self.pid());
        let mut seen = self.seen.lock().expect("no thread panics");
        seen.extend(family.iter().cloned());
        family
    }

    /// The workers of a pool now.
    pub fn workers(&self, pool: &str) -> Vec<Process> {
        let title = format!("php-fpm: pool {pool}");
        let mut processes = self.processes();
        processes.retain(|process| process.title.trim_end() == title);
        processes
    }

    /// The lines after `mark` without their times, with every number as `#` and its place masked.
    pub fn said(&self, mark: usize) -> Vec<String> {
        let lines = self.log.since(mark);
        let lines = lines.iter().map(|line| {
            let text = line.split_once("] ");
            let text = text.map_or(line.as_str(), |(_, text)| text);
            let mut masked = String::new();
            for c in text.chars() {
                match c.is_ascii_digit() {
                    true if masked.ends_with('#') => {}
                    true => masked.push('#'),
                    false => masked.push(c),
                }
            }
            self.place.mask(&masked)
        });
        lines.collect()
    }

    /// Sends the master a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(master) = Process::read(self.pid()) {
            master.signal(signal);
        }
    }

    /// Waits for a line after `mark` that contains `text`.
    ///
    /// # Panics
    /// When none comes within the deadline, or the daemon has ended.
    pub fn expect_log(&mut self, mark: usize, text: &str) -> String {
        let says = |line: &str| line.contains(text);
        let which = self.which;
        wait::until(&format!("{which:?} to say {text:?}, or to end"), || {
            let found = self.log.find_since(mark, Duration::ZERO, says);
            if found.is_none() && self.master.ended().is_some() {
                // What it wrote last may not have been read yet.
                let last = self.log.find_since(mark, LAST_WORDS, says);
                assert!(
                    last.is_some(),
                    "{which:?} ended before it said {text:?}:\n{}",
                    self.log.lines().join("\n")
                );
                return last;
            }
            found
        })
    }

    /// Stops it with a signal and insists that nothing is left; its exit status.
    ///
    /// # Panics
    /// When it does not end within the deadline, or leaves something.
    pub fn stop_with(mut self, signal: Signal) -> ExitStatus {
        self.finish(signal)
    }

    /// Stops it with SIGTERM, and insists on exit code 0 and that nothing is left.
    ///
    /// # Panics
    /// When something is otherwise.
    pub fn stop(self) {
        let which = self.which;
        let status = self.stop_with(Signal::TERM);
        assert!(status.success(), "{which:?} stopped with {status}");
    }

    /// As [`Daemon::stop`]; the place, for another to start in.
    ///
    /// # Panics
    /// When something is otherwise.
    pub fn stop_and_keep(mut self) -> Place {
        let status = self.finish(Signal::TERM);
        assert!(status.success(), "{:?} stopped with {status}", self.which);
        std::mem::take(&mut self.place)
    }

    fn finish(&mut self, signal: Signal) -> ExitStatus {
        self.stopped = true;
        self.processes();
        self.signal(signal);
        let status = self.master.wait(DEADLINE);
        let status = status.unwrap_or_else(|| {
            panic!("{:?} did not stop:\n{}", self.which, self.log.lines().join("\n"))
        });
        self.assert_nothing_left();
        status
    }

    fn assert_nothing_left(&self) {
        let seen = self.seen.lock().expect("no thread panics").clone();
        let running = || seen.iter().filter(|p| p.is_running()).collect::<Vec<_>>();
        let gone = wait::poll(REMAINS_DEADLINE, || running().is_empty().then_some(()));
        assert!(gone.is_some(), "{:?} left processes: {:#?}", self.which, running());
        let entries = fs::read_dir(self.place.folder()).expect("the folder can be listed");
        let is_socket = |path: &PathBuf| path.metadata().is_ok_and(|m| m.file_type().is_socket());
        let sockets: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(is_socket).collect();
        assert!(sockets.is_empty(), "{:?} left {sockets:?}", self.which);
        for &address in &self.place.ports {
            let is_free = ports::is_free_again(address);
            assert!(is_free, "{:?} left a listener on {address}", self.which);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.stopped {
            return;
        }
        if std::thread::panicking() {
            eprintln!("{:?} wrote:\n{}", self.which, self.log.lines().join("\n"));
        } else {
            self.finish(Signal::TERM);
        }
    }
}
