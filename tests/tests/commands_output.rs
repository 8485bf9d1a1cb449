//! Commands whose ends are held, since processes that they leave behind always have written
//! something that was not read: their numbers may be used again, and upgrades do not wait for them.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use maitred_tests::jobs::{command, running};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, is_root};
use maitred_tests::{Target, wait};
use rustix::fs::{Mode, OFlags, open};
use tempfile::TempDir;

/// The number after which the kernel looks for one that is free (`pid_namespaces(7)`).
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// How often a number is tried: other processes of the machine may get it first.
const TRIES: usize = 30;

/// How long a process is waited for that is to get a certain number.
const SOON: Duration = Duration::from_secs(1);

/// Ends when it is sent a line, or after a time, and leaves a process in a session of its own that
/// writes to the pipe without end, of which a read takes a byte (`O_DIRECT`, pipe(2)).
const LEAVES_OUTPUT: &str = r#"
use Fcntl;
use POSIX ();
my ($released, $fifo, $first) = @ARGV;
sub unread { my $count = pack 'i', 0; ioctl STDOUT, 0x541B, $count; unpack 'i', $count }
if ($first) {
    select undef, undef, undef, -e "$fifo.began" ? 1.1 : $first;
    open my $began, '>', "$fifo.began" or die;
} else {
    open my $line, '<', $fifo or die; <$line>;
}
if (!fork) {
    POSIX::setsid();
    fcntl STDOUT, F_SETFL, O_WRONLY | O_DIRECT or die;
    1 until -e $released || !syswrite STDOUT, '.';
    exit;
}
1 until unread();
"#;

struct TwoCommands {
    server: Server,
    folder: TempDir,
}

impl TwoCommands {
    /// `first` leaves output, and `second` ends with its line.
    fn start() -> TwoCommands {
        let folder = document_root(&[("leaves.pl", LEAVES_OUTPUT)]);
        give_to_web_user(folder.path());
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in ["first", "second"] {
            let made = Command::new("mkfifo").args(["-m", "666", &path(name)]).status();
            assert!(made.unwrap().success());
        }
        let leaves = ["perl", &path("leaves.pl"), &path("released"), &path("first"), "0"];
        let ends = ["sh", "-c", &format!("read line <{}", path("second"))];
        let server = Setup::new(folder.path())
            .pool(&command("first", &[&format!("command = {leaves:?}")]))
            .pool(&command("second", &[&format!("command = {ends:?}")]))
            .start();
        TwoCommands { server, folder }
    }

    /// Has a command end.
    fn end(&self, name: &str) {
        let path = self.folder.path().join(name);
        let fifo = wait::until("its reader", || {
            open(&path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok()
        });
        rustix::io::write(&fifo, b"\n").unwrap();
    }

    /// The process of a command.
    fn process(&self, name: &str) -> Process {
        Process::read(running(&self.server, name, 1)[0]).expect("it runs")
    }

    /// Has the end of the first command be held while the process of the second one has its number,
    /// unless another process of the machine gets that.
    fn reuse_number(&self) -> Option<Process> {
        let _ = fs::remove_file(self.folder.path().join("released"));
        let (first, second) = (self.process("first"), self.process("second"));
        self.end("first");
        wait::until_true("the number to be free", || Process::read(first.pid).is_none());
        let aim = || fs::write(LAST_PID, (first.pid - 1).to_string()).unwrap();
        aim();
        self.end("second");
        let until = Instant::now() + SOON;
        let mut started = None;
        // Without pauses: other processes of the machine are started as well.
        while started.is_none() && Instant::now() < until {
            if second.is_running() {
                aim();
            }
            started = Process::read(first.pid);
        }
        // Threads have such numbers as well.
        started.filter(|found| self.process("second") == *found)
    }

    /// The output of what the first command has left ends.
    fn release(&self) {
        fs::write(self.folder.path().join("released"), "").unwrap();
    }

    /// As [`TwoCommands::reuse_number`], until that succeeds.
    fn with_number(&self) -> Process {
        for _ in 0..TRIES {
            if let Some(found) = self.reuse_number() {
                return found;
            }
            self.release();
        }
        panic!("others have got the number each time:\n{}", self.server.log_text())
    }
}

/// Whether the number can be chosen here.
fn has_choice() -> bool {
    let last = fs::read_to_string(LAST_PID);
    is_root() && last.is_ok_and(|last| fs::write(Path::new(LAST_PID), last.trim()).is_ok())
}

#[test]
fn a_command_whose_process_has_the_number_of_one_whose_end_is_held_ends_and_starts_as_any() {
    if !has_choice() {
        return eprintln!("skipped: only root of the machine chooses numbers of processes");
    }
    let commands = TwoCommands::start();
    // It ends before the end of the other one is known,
    let reused = commands.with_number();
    commands.end("second");
    wait::until_true("its end", || !reused.is_running());
    commands.release();
    assert_ne!(commands.process("first"), reused);
    assert_ne!(commands.process("second"), reused);
    // or goes on after that.
    let reused = commands.with_number();
    commands.release();
    assert_ne!(commands.process("first"), reused);
    assert!(reused.is_running(), "{}", commands.server.log_text());
    assert_eq!(commands.process("second"), reused);
    commands.server.stop();
}

#[test]
fn an_upgrade_waits_for_no_commands_whose_ends_are_held_one_after_the_other() {
    let folder = document_root(&[("leaves.pl", LEAVES_OUTPUT)]);
    give_to_web_user(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut setup = Setup::new(folder.path());
    // Each is held for 5 s: at any time there is one.
    let names = ["one", "two", "three"];
    for (name, first) in names.iter().zip(["1.1", "3.1", "5.1"]) {
        let leaves = ["perl", &path("leaves.pl"), &path("released"), &path(name), first];
        setup = setup.pool(&command(name, &[&format!("command = {leaves:?}")]));
    }
    let server = setup.start();
    let has_begun = |name: &&str| folder.path().join(format!("{name}.began")).exists();
    wait::until_true("all to have ended once", || names.iter().all(has_begun));
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    let is_over =
        |line: &str| line.contains("upgraded to") || line.contains("the upgrade is refused");
    let outcome = server.log().find_since(mark, wait::DEADLINE, is_over);
    let outcome = outcome.unwrap_or_else(|| panic!("it is not over:\n{}", server.log_text()));
    assert!(outcome.contains("upgraded to"), "{outcome}");
    for name in names {
        running(&server, name, 1);
    }
    fs::write(path("released"), "").unwrap();
    server.stop();
}
