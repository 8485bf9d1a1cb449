//! Pipes that tenants' code can write to are read by a process of their own, since a tenant can
//! hold the lock that this needs: the supervisor goes on, whatever that process waits for.

use maitred_tests::fpm::{Daemon, Params, usual};
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::installed::{install, installed};
use maitred_tests::jobs::command;
use maitred_tests::outside::status;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, WEB_USER, document_root, write_file};
use maitred_tests::stuck_files::StuckFiles;
use maitred_tests::{Target, maitred_program, wait};
use rustix::process::{Pid, kill_process};

/// Writes to the pool's pipe what the kernel reads from a file only after it has locked the pipe,
/// and has put other bytes into it.
const HOLDS: &str = "<?php
$c = FFI::cdef('int open(const char *, int);
    void *mmap(void *, size_t, int, int, int, long);
    struct part { void *from; size_t bytes; };
    long writev(int, const struct part *, int);', 'libc.so.6');
$line = $c->new('char[4096]');
FFI::memset($line, 120, 4096);
$parts = $c->new('struct part[2]');
$parts[0]->from = $c->cast('void *', FFI::addr($line));
$parts[1]->from = $c->mmap(null, 4096, 1, 0x02, $c->open($_GET['file'], 0), 0);
$parts[0]->bytes = $parts[1]->bytes = 4096;
$c->writev(2, FFI::addr($parts[0]), 2);
echo 'released';";

/// A program that writes to a pipe with nothing else in it what the kernel reads from a file only
/// after it has locked the pipe.
const HOLDS_EMPTY: &str = "<?php
$c = FFI::cdef('int open(const char *, int);
    void *mmap(void *, size_t, int, int, int, long);
    long write(int, const void *, size_t);', 'libc.so.6');
$c->write((int) $argv[2], $c->mmap(null, 4096, 1, 0x02, $c->open($argv[1], 0), 0), 4096);";

/// Has such a program hold the lock of the pipe of the worker's errors.
const STARTS_HOLDER: &str = "<?php
$php = 'setsid php -n -d extension=ffi -d ffi.enable=1';
exec(\"$php {$_GET['program']} {$_GET['file']} 2 > /dev/null &\");
sleep(1000);";

/// A worker script that writes as [`HOLDS`] does, at its second boot, to each pipe and socket that
/// it has beside its output.
const HOLDS_AT_BOOT: &str = "<?php
$c = FFI::cdef('int open(const char *, int);
    void *mmap(void *, size_t, int, int, int, long);
    struct part { void *from; size_t bytes; };
    long writev(int, const struct part *, int);', 'libc.so.6');
$line = $c->new('char[4096]');
$parts = $c->new('struct part[2]');
$parts[0]->from = $c->cast('void *', FFI::addr($line));
$parts[1]->from = $c->mmap(null, 4096, 1, 0x02, $c->open(getenv('FILE'), 0), 0);
$parts[0]->bytes = $parts[1]->bytes = 4096;
foreach (scandir('/proc/self/fd') as $fd) {
    if (file_exists(__DIR__ . '/again') && $fd > 2
        && preg_match('/^(pipe|socket):/', @readlink(\"/proc/self/fd/$fd\"))) {
        $c->writev((int) $fd, FFI::addr($parts[0]), 2);
    }
}
while (frankenphp_handle_request(function () { echo getmypid(); })) {}";

/// Writes a line to the pool's pipe.
const SAYS: &str =
    "<?php file_put_contents('php://stderr', \"it says {$_GET['what']}\\n\"); echo 'said';";

const FFI: &str = "php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }";

/// The process that reads pipes.
fn reader(server: &Server) -> Option<Process> {
    let all = server.processes().into_iter();
    let mut readers = all.filter(|process| process.title.trim_end() == "maitred: pipes");
    readers.next()
}

fn ask(server: &Server, host: &str, target: &str) -> String {
    http::ask(server.address(), &Request::new("GET", target).header("Host", host)).text()
}

/// Kills the only worker of the pool of a host, and returns its process id.
fn kill_worker(server: &Server, host: &str) -> String {
    let worker = ask(server, host, "/pid.php");
    let pid = Pid::from_raw(worker.parse().expect("a process id")).expect("a process id");
    kill_process(pid, Signal::KILL).expect("the worker runs");
    worker
}

/// Kills the only worker of the pool of a host, and waits for the response of another one.
fn replace_worker(server: &Server, host: &str) {
    let before = kill_worker(server, host);
    assert_ne!(ask(server, host, "/pid.php"), before);
}

#[test]
fn a_worker_that_holds_the_lock_of_its_pools_pipe_delays_no_other_and_only_its_output_is_lost() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let scripts = [("holds.php", HOLDS), ("pid.php", "<?php echo getmypid();"), ("says.php", SAYS)];
    let root = document_root(&scripts);
    let other = format!(
        "[pools.other]\npm = \"static\"\nmax_children = 1\n[[sites]]\nhosts = [\"other\"]\n\
         pool = \"other\"\nroot = {:?}",
        root.path()
    );
    let server = Setup::new(root.path()).workers(1).pool(FFI).site(&other).start();
    // They are dropped before the server, which waits for its processes.
    let files = files;
    ask(&server, "localhost", "/says.php?what=before");
    server.expect_log(0, "pool www: it says before");
    let mark = server.log().mark();
    let mut held = Connection::open(server.address());
    let target = format!("/holds.php?file={}", files.unreadable().display());
    held.send(&Request::get(&target).to_bytes()).expect("the server takes a request");
    files.wait_for_process();
    replace_worker(&server, "other");
    status(&server);
    server.expect_log(mark, "pool www: reading the output of its processes took more than 2 s");
    server.expect_log(mark, "pool www: its output cannot be read (a read took more than 2 s)");
    ask(&server, "other", "/says.php?what=more");
    server.expect_log(mark, "pool other: it says more");
    replace_worker(&server, "other");
    files.release();
    assert_eq!(held.read_response(false).expect("a response").text(), "released");
    server.stop();
}

#[test]
fn a_process_that_reads_pipes_and_is_stopped_or_killed_is_replaced_and_no_line_is_lost() {
    let root = document_root(&[("says.php", SAYS)]);
    let server = Setup::new(root.path()).workers(1).start();
    let says = |what: &str| {
        ask(&server, "localhost", &format!("/says.php?what={what}"));
        server.expect_log(0, &format!("pool www: it says {what}"));
    };
    assert!(reader(&server).is_none(), "there was nothing to read yet");
    says("one");
    let first = reader(&server).expect("it has read");
    server.signal(Signal::USR2);
    server.expect_log(0, "upgraded to maitred");
    assert!(!first.is_running(), "a new program starts its own");
    says("two");
    let killed = reader(&server).expect("it has read");
    killed.signal(Signal::KILL);
    server.expect_log(0, "the process that reads the output of pools was ended by signal 9");
    says("three");
    let stopped = reader(&server).expect("it has read");
    stopped.signal(Signal::STOP);
    // No lock is held, so no pipe is given up.
    says("four");
    says("five");
    wait::until_true("the stopped one to be gone", || !stopped.is_running());
    server.stop();
}

#[test]
fn a_worker_script_that_writes_an_unreadable_page_where_it_reports_its_boot_delays_no_other_pool() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let scripts = [("boots.php", HOLDS_AT_BOOT), ("pid.php", "<?php echo getmypid();")];
    let root = document_root(&scripts);
    let hostile = format!(
        "[pools.hostile]\npm = \"static\"\nmax_children = 1\nmode = \"worker\"\nscript = {:?}\n\
         env = {{ FILE = {:?} }}\n{FFI}\n\
         [[sites]]\nhosts = [\"hostile\"]\npool = \"hostile\"\nroot = {:?}",
        root.path().join("boots.php"),
        files.unreadable(),
        root.path()
    );
    let server = Setup::new(root.path()).workers(1).site(&hostile).start();
    // They are dropped before the server, which waits for its processes.
    let files = files;
    write_file(root.path(), "again", b"");
    let mark = server.log().mark();
    kill_worker(&server, "hostile");
    files.wait_for_process();
    replace_worker(&server, "localhost");
    status(&server);
    replace_worker(&server, "localhost");
    files.release();
    server.expect_log(mark, "is killed: it does not keep to the form of reports");
    server.stop();
}

#[test]
fn an_upgrade_does_not_wait_for_the_lock_of_a_probes_pipe() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let root = document_root(&[("holds.php", HOLDS_EMPTY)]);
    let probe = format!(
        "setsid php -n -d extension=ffi -d ffi.enable=1 {} {} 1 & exec sleep 1000",
        root.path().join("holds.php").display(),
        files.unreadable().display()
    );
    let queue = [
        "command = [\"sleep\", \"1000\"]",
        "processes = \"auto\"",
        &format!("probe = [\"sh\", \"-c\", {probe:?}]"),
    ];
    let server = Setup::new(root.path()).pool(&command("queue", &queue)).start();
    // They are dropped before the server, which waits for its processes.
    let files = files;
    files.wait_for_process();
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to maitred");
    status(&server);
    files.release();
    server.stop();
}

/// How often the log says that something of pool `bad` could not be closed.
fn late_closes(daemon: &Daemon) -> usize {
    let text = "pool bad: closing the output of its processes took more than 2 s";
    daemon.log().lines().iter().filter(|line| line.contains(text)).count()
}

/// Kills the only worker of a pool, and waits for the next one.
fn replace_worker_of(daemon: &Daemon, pool: &str) {
    let before = daemon.workers(pool);
    before.iter().for_each(|worker| worker.signal(Signal::KILL));
    wait::until_true("another worker", || {
        let now = daemon.workers(pool);
        !now.is_empty() && !now.iter().any(|worker| before.contains(worker))
    });
}

fn descriptors(daemon: &Daemon) -> usize {
    let all = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid()));
    all.expect("the supervisor runs").count()
}

#[test]
fn a_pool_whose_workers_leave_locked_pipes_behind_costs_no_other_its_output_and_no_upgrade() {
    let Some(files) = (0..4).map(|_| StuckFiles::mount()).collect::<Option<Vec<_>>>() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let scripts = [("holds.php", HOLDS_EMPTY), ("starts.php", STARTS_HOLDER), ("says.php", SAYS)];
    let root = document_root(&scripts);
    let lines = format!(
        "catch_workers_output = yes\n[global]\nlog_level = debug\n[bad]\n\
         listen = @FOLDER@/bad.sock\nuser = {WEB_USER}\ngroup = {WEB_USER}\npm = static\n\
         pm.max_children = 1\ncatch_workers_output = yes\n"
    );
    let folder = installed();
    let mut daemon = Daemon::start_program(&folder.path().join("maitred"), &usual(&lines));
    // They are dropped before the server, which waits for its processes.
    let files = files;
    let params = |target: &str| Params::get(&root.path().display().to_string(), target);
    let program = root.path().join("holds.php");
    for (late, files) in (1..).zip(&files) {
        let file = files.unreadable();
        let target = format!("/starts.php?program={}&file={}", program.display(), file.display());
        let mut client = daemon.place().listener("bad.sock").connect();
        client.begin(&params(&target), b"", false).expect("it is open");
        files.wait_for_process();
        replace_worker_of(&daemon, "bad");
        wait::until_true("a close to be late", || late_closes(&daemon) >= late);
    }
    daemon.expect_log(0, "the locks of 4 pipes of its processes are held");
    replace_worker_of(&daemon, "bad");
    let open = descriptors(&daemon);
    for _ in 0..4 {
        replace_worker_of(&daemon, "bad");
    }
    assert!(descriptors(&daemon) < open + 4, "no pipe is made for it");
    let says = |daemon: &mut Daemon, pool: &str, what: &str| {
        let listener = daemon.place().listener(&format!("{pool}.sock"));
        let params = params(&format!("/says.php?what={what}"));
        wait::until_true("a response", || {
            listener.ask(&params, b"").is_ok_and(|response| response.body() == "said")
        });
        daemon.expect_log(0, &format!("it says {what}"));
    };
    says(&mut daemon, "www", "before");
    for name in ["maitred", "maitred-php"] {
        install(&maitred_program().with_file_name(name), folder.path());
    }
    daemon.signal(Signal::USR2);
    daemon.expect_log(0, "upgraded to maitred");
    says(&mut daemon, "www", "after");
    files.iter().for_each(StuckFiles::release);
    says(&mut daemon, "bad", "released");
    daemon.stop();
}
