//! A program that a pool's user runs against the processes of its pool: it kills workers so that
//! new ones come, and tries to take descriptors of all processes of its user, to trace them and to
//! read their memory. What it gets it prints, and uses: a channel to root is sent descriptors that
//! take minutes to be closed.
//!
//! `hostile-tenant SUPERVISOR KILLS`: ends after this number of killed workers of that server.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use maitred_tests::hostile::{self, Ambush, Lingering, Loot};
use maitred_tests::processes::{self, Process, Signal};
use nix::sys::ptrace;
use nix::unistd::Pid;

/// How long a new worker is waited for in ambush.
const AMBUSH: Duration = Duration::from_millis(100);

/// When it gives up waiting for workers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Descriptors that are sent to root with one message.
const LINGERING: usize = 8;

struct Tenant {
    /// What it has told of.
    told: HashSet<(i32, String)>,
    /// The ends that are never read.
    deaf: Vec<TcpStream>,
}

impl Tenant {
    fn tell(&mut self, pid: i32, what: String) {
        let title = Process::read(pid).map_or(String::new(), |process| process.title);
        if self.told.insert((pid, what.clone())) {
            let _ = writeln!(io::stdout(), "pid {pid} ({title}): {what}");
        }
    }

    fn attack(&mut self, pid: i32) {
        for loot in hostile::plunder(pid) {
            self.use_loot(pid, &loot);
        }
        if File::open(format!("/proc/{pid}/mem")).is_ok() {
            self.tell(pid, "its memory can be read".to_owned());
        }
        if fs::read_link(format!("/proc/{pid}/fd/3")).is_ok() {
            self.tell(pid, "where its descriptors lead can be read".to_owned());
        }
        let target = Pid::from_raw(pid);
        if ptrace::seize(target, ptrace::Options::empty()).is_ok() {
            self.tell(pid, "it is traced".to_owned());
        }
    }

    /// Uses what a process has let be taken, if it is of this server.
    fn took(&mut self, supervisor: i32, pid: i32, loot: Loot) {
        let family = processes::family(supervisor);
        if family.iter().any(|process| process.pid == pid) {
            self.use_loot(pid, &loot);
        }
    }

    fn use_loot(&mut self, pid: i32, loot: &Loot) {
        self.tell(pid, format!("took descriptor {}: {}", loot.number, loot.what));
        if hostile::leads_to_root(loot) {
            self.send_lingering(loot);
        }
    }

    fn send_lingering(&mut self, loot: &Loot) {
        use std::os::fd::AsFd;
        let lingering: Vec<Lingering> = (0..LINGERING).flat_map(|_| Lingering::new()).collect();
        let sent = hostile::send_lingering(loot.fd.as_fd(), b"{}", &lingering);
        let _ =
            writeln!(io::stdout(), "sent {} lingering sockets to root: {sent:?}", lingering.len());
        self.deaf.extend(lingering.into_iter().map(Lingering::let_go));
    }
}

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).flat_map(|word| word.parse()).collect();
    let [supervisor, mut kills] = numbers[..] else {
        panic!("hostile-tenant SUPERVISOR KILLS");
    };
    let supervisor = i32::try_from(supervisor).expect("a process id");
    let mut tenant = Tenant { told: HashSet::new(), deaf: Vec::new() };
    let begun = Instant::now();
    while kills > 0 && begun.elapsed() < PATIENCE {
        let all = hostile::of_own_user(supervisor);
        for process in &all {
            tenant.attack(process.pid);
        }
        let is_worker = |process: &&Process| process.title.contains("worker pool");
        let Some(worker) = all.iter().find(is_worker) else {
            continue;
        };
        let mut ambush = Ambush::lay();
        worker.signal(Signal::KILL);
        kills -= 1;
        let killed_at = Instant::now();
        while killed_at.elapsed() < AMBUSH {
            for (pid, loot) in ambush.take() {
                tenant.took(supervisor, pid, loot);
            }
        }
    }
    let _ = writeln!(io::stdout(), "left {kills} alive, got {} things", tenant.told.len());
    if !tenant.deaf.is_empty() {
        // What lingers does so for as long as this process lives.
        let _ = io::stdin().read_line(&mut String::new());
    }
}
