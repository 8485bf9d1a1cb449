//! Processes of a pool's user, and processes of maitred that were taken over, against the rest of
//! it: what they may get, and that no client waits for them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use maitred_tests::guard::Guarded;
use maitred_tests::http::{self, Request};
use maitred_tests::jobs;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, give_to_web_user, is_root, user_ids, write_file,
};
use maitred_tests::{Target, maitred_program, wait};
use tempfile::TempDir;

/// A second user, who is on every machine.
const OTHER_USER: &str = "nobody";

/// How many workers a tenant kills.
const KILLS: u32 = 12;

/// How many pids a zygote foresees: others than its victims take some meanwhile.
const FORESEEN: u32 = 32;

/// Longer than any answer to a command takes, and much shorter than what lingers.
const PROMPT: Duration = Duration::from_secs(30);

fn site() -> TempDir {
    document_root(&[("index.php", "<?php echo getmypid();")])
}

/// A site and another, of another user's pool.
fn two_tenants(first: &Path, second: &Path) -> Server {
    tenants(first, second).start()
}

fn tenants(first: &Path, second: &Path) -> Setup {
    Setup::new(first)
        .pool(&format!("user = {WEB_USER:?}"))
        .hosts(&["first.test"])
        .site(&format!("[pools.second]\nuser = {OTHER_USER:?}\npm = \"static\"\nmax_children = 2"))
        .site(&format!(
            "[[sites]]\nhosts = [\"second.test\"]\npool = \"second\"\nroot = {second:?}"
        ))
}

/// Has a zygote and all that it forks from now on stand still for a moment whenever they change
/// what the kernel knows of them, so that none of these moments is missed.
fn slow_down(server: &Server) -> Guarded {
    let zygote = server.zygote().expect("a zygote").pid;
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=prctl"])
        .args(["-e", "inject=prctl:delay_exit=10000", "-p"])
        .arg(zygote.to_string());
    // A stopped strace would wait for ended processes; the traced process goes on without it.
    let strace = Guarded::spawn(&mut strace, Signal::KILL);
    wait::until_true("the zygote to be slow", || {
        let status = fs::read_to_string(format!("/proc/{zygote}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    });
    strace
}

/// What a tenant's program gets from the processes of its user.
fn loot(server: &Server, kills: u32) -> Vec<String> {
    let (uid, gid) = user_ids(WEB_USER);
    let mut tenant = Command::new(env!("CARGO_BIN_EXE_hostile-tenant"));
    let output = tenant
        .args([server.supervisor().pid.to_string(), kills.to_string()])
        .uid(uid)
        .gid(gid)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .expect("a tenant may start programs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (got, last): (Vec<&str>, Vec<&str>) =
        said.lines().partition(|line| !line.starts_with("left "));
    assert!(last.concat().starts_with("left 0 alive"), "{said}");
    got.into_iter().map(str::to_owned).collect()
}

/// Those of a server's processes whose titles begin with this.
fn titled(server: &Server, title: &str) -> Vec<Process> {
    let all = server.processes().into_iter();
    all.filter(|process| process.title.starts_with(title)).collect()
}

/// A process that stands in the place of another until this is dropped.
fn compromise(pid: i32, role: &str, what: &str) -> Guarded {
    compromised(pid, role, what).0
}

/// The same, and what it prints from then on.
fn compromised(
    pid: i32,
    role: &str,
    what: &str,
) -> (Guarded, impl Iterator<Item = String> + use<>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compromised-front"));
    command.args([&pid.to_string(), role, what]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hostile = Guarded::spawn(&mut command, Signal::TERM);
    let said = hostile.child().stdout.take().expect("a pipe");
    let mut lines = BufReader::new(said).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "done"), "it did what it is for");
    (hostile, lines)
}

/// Whether `maitred status` is answered while it may be.
fn answers_commands(server: &Server) -> bool {
    let mut command = Command::new(maitred_program());
    command
        .args(["status", "--json", "--admin-socket"])
        .arg(server.admin_socket())
        .stdout(Stdio::null());
    let mut status = Guarded::spawn(&mut command, Signal::KILL);
    status.wait(PROMPT).is_some_and(|status| status.success())
}

/// Kills a worker of the second pool.
fn kill_worker(server: &Server) -> Process {
    let victim = titled(server, "maitred-php: worker pool second").remove(0);
    victim.signal(Signal::KILL);
    victim
}

/// Kills a worker of the second pool and waits for the one in its place.
fn expect_another_worker(server: &Server) {
    let victim = kill_worker(server);
    expect_worker_instead_of(server, &victim);
}

fn expect_worker_instead_of(server: &Server, victim: &Process) {
    wait::until_true("another worker of the other tenant's", || {
        let workers = titled(server, "maitred-php: worker pool second");
        workers.len() == 2 && !workers.contains(victim)
    });
}

fn answer(server: &Server, host: &str) -> Option<u16> {
    let request = Request::new("GET", "/").header("Host", host);
    http::try_ask(server.address(), &request).ok().map(|answer| answer.status)
}

#[test]
fn a_program_of_a_pools_user_takes_nothing_from_the_pools_processes() {
    if !is_root() {
        return eprintln!("skipped: only root can have the pool run as another user");
    }
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    let slow = slow_down(&server);
    assert_eq!(loot(&server, KILLS), Vec::<String>::new());
    drop(slow);
    server.wait_for_full_strength(2, wait::DEADLINE);
}

#[test]
fn a_program_of_a_pools_user_takes_nothing_from_processes_that_boot_or_are_copied() {
    if !is_root() {
        return eprintln!("skipped: only root can have the pool run as another user");
    }
    let asks = "<?php while (frankenphp_handle_request(fn() => print(1))) {}";
    let copied = "<?php maitred_snapshot(); echo 1;";
    for (mode, boots, more) in [
        ("worker", asks, ""),
        ("snapshot", copied, ""),
        ("snapshot", copied, "rewinds_per_child = 3"),
    ] {
        let root = document_root(&[("index.php", boots)]);
        let script = root.path().join("index.php");
        let server = Setup::new(root.path())
            .workers(2)
            .pool(&format!("mode = {mode:?}\nscript = {script:?}\n{more}"))
            .start();
        assert_eq!(loot(&server, KILLS), Vec::<String>::new(), "{mode}");
        // There is a copy more than serve.
        wait::until_true("workers again", || server.workers().len() >= 2);
    }
}

#[test]
fn nobody_waits_for_descriptors_that_a_hostile_process_sends() {
    if !is_root() {
        return eprintln!("skipped: only root can take the place of a process");
    }
    let (first, second) = (site(), site());
    for role in ["zygote", "front"] {
        let server = two_tenants(first.path(), second.path());
        let victim = match role {
            "zygote" => titled(&server, "maitred-php: zygote pool www").remove(0),
            _ => server.front().expect("a front"),
        };
        let hostile = compromise(victim.pid, role, "linger");
        assert!(answers_commands(&server), "the supervisor stands still");
        expect_another_worker(&server);
        // Nor when what was sent goes with the one whose place it is.
        victim.signal(Signal::KILL);
        assert!(answers_commands(&server), "the supervisor stands still");
        expect_another_worker(&server);
        wait::until_true("the other tenant to be served", || {
            answer(&server, "second.test") == Some(200)
        });
        drop(hostile);
        server.stop();
    }
}

#[test]
fn what_a_compromised_process_says_costs_nobody_else_anything() {
    if !is_root() {
        return eprintln!("skipped: only root can take the place of a process");
    }
    let (first, second) = (site(), site());
    for (role, what) in
        [("front", "absurd"), ("front", "flood"), ("zygote", "absurd"), ("zygote", "flood")]
    {
        let server = two_tenants(first.path(), second.path());
        let supervisor = server.supervisor();
        let victim = match role {
            "zygote" => titled(&server, "maitred-php: zygote pool www").remove(0),
            _ => server.front().expect("a front"),
        };
        let hostile = compromise(victim.pid, role, what);
        assert!(answers_commands(&server), "{role} {what}");
        if role == "zygote" {
            let killed = "the zygote of pool `www` is killed: it did not keep to the rules";
            server.expect_log(0, killed);
        }
        expect_another_worker(&server);
        victim.signal(Signal::KILL);
        drop(hostile);
        for host in ["first.test", "second.test"] {
            wait::until_true("both to be served", || answer(&server, host) == Some(200));
        }
        assert_eq!(server.supervisor(), supervisor, "{role} {what}");
        let log = server.log_text();
        assert!(!log.contains('\u{1b}') && !log.contains("panicked"), "{log}");
        server.stop();
    }
}

/// Kills the workers of the first pool, whose zygote was taken over, and waits until that has named
/// others in their place.
fn expect_announced(server: &Server, mut said: impl Iterator<Item = String>) {
    for worker in titled(server, "maitred-php: worker pool www") {
        worker.signal(Signal::KILL);
    }
    let line = said.find(|line| line.ends_with("workers announced")).expect("it is ordered some");
    assert!(!line.starts_with("0 "), "{line}");
}

#[test]
fn a_zygote_that_foresees_the_pids_of_others_costs_its_own_pool_alone() {
    if !is_root() {
        return eprintln!("skipped: only root can take the place of a process");
    }
    let (first, second) = (site(), site());
    let server = tenants(first.path(), second.path()).workers(FORESEEN).start();
    let zygote =
        |pool: &str| titled(&server, &format!("maitred-php: zygote pool {pool}")).remove(0);
    let (victim, other) = (zygote("www"), zygote("second"));
    let (hostile, said) = compromised(victim.pid, "zygote", "foresee");
    // It forks when the pids are announced.
    other.signal(Signal::STOP);
    let killed = kill_worker(&server);
    expect_announced(&server, said);
    other.signal(Signal::CONT);
    expect_worker_instead_of(&server, &killed);
    // What it has announced never becomes its worker.
    server.expect_log(0, "the zygote of pool `www` is killed");
    drop(hostile);
    for host in ["first.test", "second.test"] {
        wait::until_true("both to be served", || answer(&server, host) == Some(200));
    }
    assert_eq!(zygote("second").pid, other.pid);
    let log = server.log_text();
    assert!(!log.contains("the zygote of pool `second`"), "{log}");
    server.stop();
}

#[test]
fn a_zygote_that_names_its_pools_command_as_a_worker_is_killed_and_leaves_nothing() {
    if !is_root() {
        return eprintln!("skipped: only root can take the place of a process");
    }
    let root = site();
    let sleeper = jobs::command("sleeper", &["command = [\"sleep\", \"1000\"]"]);
    let setup = Setup::new(root.path()).workers(1).pool(&format!("user = {WEB_USER:?}"));
    let server = setup.site(&sleeper).start();
    let [sleeper] = jobs::running(&server, "sleeper", 1)[..] else { panic!("one") };
    let victim = server.zygote().expect("a zygote");
    let (hostile, said) = compromised(victim.pid, "zygote", &sleeper.to_string());
    expect_announced(&server, said);
    server.expect_log(0, "the zygote of pool `www` is killed: it did not keep to the rules");
    drop(hostile);
    Process::read(sleeper).expect("it is no worker").signal(Signal::KILL);
    jobs::running(&server, "sleeper", 1);
    server.wait_for_full_strength(1, wait::DEADLINE);
    let reloaded = jobs::maitred(&server, &["reload", "www"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    wait::until_true("the generation before to go", || {
        let fds = fs::read_dir(format!("/proc/{}/fd", server.supervisor().pid));
        let fds = fds.expect("it runs").flatten().flat_map(|fd| fs::read_link(fd.path()));
        fds.filter(|file| file.starts_with("/memfd:maitred-www (deleted)")).count() == 1
    });
    server.stop();
}

/// Tries to make holes in the pool's memory until there is a file `up/enough`, in each way that
/// there is, and says what came of it.
const PUNCHES: &str = r#"<?php
$c = FFI::cdef('int madvise(long, long, int); int *__errno_location(void);
    long syscall(long, long, long, long, long, long, long);', 'libc.so.6');
$error = fn(int $result) => $result < 0 ? $c->__errno_location()[0] : 0;
$maps = file_get_contents('/proc/self/maps');
preg_match('~^([0-9a-f]+)-([0-9a-f]+) rw-s .*memfd:maitred-www ~m', $maps, $found);
[, $start, $end] = array_map(hexdec(...), $found);
$tried = ['io_uring_setup' => $error($c->syscall(425, 1, 0, 0, 0, 0, 0)),
    'process_madvise' => $error($c->syscall(440, -1, 0, 0, 9, 0, 0)), 'madvise' => []];
$until = time() + 60;
touch(__DIR__ . '/up/punches');
while (!file_exists(__DIR__ . '/up/enough') && time() < $until) {
    $tried['madvise'][$error($c->madvise($start, $end - $start, 9))] = true;
}
echo json_encode($tried);"#;

/// What a worker gets that tries, while another user's pool is served.
fn try_to_punch(under: &[&str], more: &str) -> String {
    let (first, second) = (document_root(&[("punch.php", PUNCHES)]), site());
    let up = first.path().join("up");
    fs::create_dir(&up).expect("a folder");
    give_to_web_user(&up);
    let server = tenants(first.path(), second.path())
        .pool("php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }")
        .pool(more)
        .under(under)
        .start();
    for process in titled(&server, "maitred-php: ") {
        let links = fs::read_dir(format!("/proc/{}/fd", process.pid)).expect("it runs").flatten();
        let memory = links.flat_map(|link| fs::read_link(link.path()));
        let memory = memory.filter(|target| target.starts_with("/memfd:maitred-www (deleted)"));
        assert_eq!(memory.count(), 0, "{process:?} could write to the file or allocate it");
    }
    let address = server.address();
    let tried = std::thread::scope(|scope| {
        let tries = scope.spawn(move || {
            let request = Request::new("GET", "/punch.php").header("Host", "first.test");
            http::ask(address, &request).text()
        });
        wait::until_true("it to punch", || up.join("punches").exists());
        for _ in 0..100 {
            assert_eq!(answer(&server, "second.test"), Some(200));
        }
        fs::write(up.join("enough"), "").expect("a file");
        tries.join().expect("an answer")
    });
    server.stop();
    tried
}

#[test]
fn a_worker_makes_no_holes_in_the_memory_it_shares_with_the_front() {
    if !is_root() {
        return eprintln!("skipped: only root can have pools run as several users");
    }
    // EPERM as where io_uring is off, EOPNOTSUPP as of a file system without holes.
    let filtered = r#"{"io_uring_setup":1,"process_madvise":95,"madvise":{"95":true}}"#;
    assert_eq!(try_to_punch(&["env"], ""), filtered);
    let neither = ["setpriv", "--bounding-set", "-sys_admin,-linux_immutable"];
    assert_eq!(try_to_punch(&neither, "no_new_privileges = true"), filtered);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let numbers = release.split('.').take(2).flat_map(str::parse::<u32>);
    if numbers.collect::<Vec<_>>() >= vec![6, 1] {
        // EFAULT and EBADF: nothing is filtered. EPERM: the memory is solid.
        let solid = r#"{"io_uring_setup":14,"process_madvise":9,"madvise":{"1":true}}"#;
        assert_eq!(try_to_punch(&["setpriv", "--bounding-set", "-sys_admin"], ""), solid);
    }
}

/// Whether it counts, and has the memory of the pool's counters open or mapped.
const COUNTS: &str = r#"<?php
$counted = maitred_metric_add('runs');
$open = array_map(fn ($fd) => (string) @readlink("/proc/self/fd/$fd"), scandir('/proc/self/fd'));
$mapped = file('/proc/self/maps');
echo json_encode([$counted, count(preg_grep('~maitred-application~', [...$open, ...$mapped]))]);"#;

#[test]
fn a_command_has_no_memory_of_the_front_in_which_it_could_make_holes() {
    if !is_root() {
        return eprintln!("skipped: only root can have pools run as several users");
    }
    let (first, second) = (document_root(&[("counts.php", COUNTS)]), site());
    let script = first.path().join("counts.php");
    let command = format!("command = [\"php\", {script:?}]");
    let server = tenants(first.path(), second.path())
        .pool(&jobs::schedule("tick", &[&command, "every = \"1s\""]))
        .under(&["setpriv", "--bounding-set", "-linux_immutable"])
        .start();
    server.expect_log(0, "tick: [false,0]");
    let run = jobs::maitred(&server, &["run", "www/tick"]);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "[false,0]", "{run:?}");
    let log = server.log_text();
    let warning = "commands and schedules of pool `www` do not count";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    server.stop();
}

/// What a process has open that its pool's code must not find: folders outside of `root`, and ways
/// to others.
fn foreign(process: &Process, root: &Path) -> Vec<PathBuf> {
    let links = fs::read_dir(format!("/proc/{}/fd", process.pid)).expect("it runs");
    let is_foreign = |link: &PathBuf| {
        let target = fs::read_link(link).unwrap_or_default();
        let Ok(meta) = fs::metadata(link) else {
            return false;
        };
        let is_other = |target: &Path| {
            let name = target.to_string_lossy();
            // Its own files of /proc name it: what another process has given it would name that.
            name.starts_with("/proc/") && !name.starts_with(&format!("/proc/{}/", process.pid))
        };
        (meta.is_dir() && !target.starts_with(root))
            || meta.file_type().is_socket()
            || is_other(&target)
    };
    let links = links.flatten().map(|entry| entry.path());
    let targets = links.filter(is_foreign).flat_map(fs::read_link);
    targets.collect()
}

/// A site whose script says in `up/runs` that it runs, and goes on when there is `up/go`, wherever
/// it comes to `WAITS`.
struct Halting {
    jail: TempDir,
    setup: Setup,
    /// No process of the pool ever has a folder open, whatever it runs.
    holds_no_folder: bool,
}

impl Halting {
    fn new(mode: &str, script: &str, (is_in_chroot, more): (bool, &str)) -> Halting {
        let jail = document_root(&[]);
        write_file(jail.path(), "usr/share/zoneinfo/none", b"");
        let up = jail.path().join("up");
        fs::create_dir(&up).expect("a folder");
        give_to_web_user(&up);
        let seen = if is_in_chroot { Path::new("/up") } else { &up };
        let waits = format!(
            "file_put_contents('{0}/runs', getmypid());
             while (!file_exists('{0}/go')) {{ clearstatcache(); usleep(2000); }}
             unlink('{0}/go');",
            seen.display()
        );
        let script = script.replace("WAITS", &waits);
        write_file(jail.path(), "public/index.php", script.as_bytes());
        let path = jail.path();
        let mut setup =
            Setup::new(&path.join("public")).workers(1).pool("max_private_memory = \"1G\"");
        if is_in_chroot {
            setup = setup.pool(&format!("chroot = {path:?}"));
        }
        if mode != "classic" {
            let script = path.join("public/index.php");
            setup = setup.pool(&format!("mode = {mode:?}\nscript = {script:?}\n{more}"));
        }
        Halting { jail, setup, holds_no_folder: mode == "snapshot" && is_in_chroot }
    }

    /// Looks at all processes of the pool, of which this is one.
    fn expect_no_folder(&self, pid: i32, when: &str) {
        let root = fs::read_link(format!("/proc/{pid}/root")).expect("it runs");
        assert_eq!(root, self.jail.path(), "{when}");
        let mut seen = 0;
        for entry in fs::read_dir("/proc").expect("processes").flatten() {
            if fs::read_link(entry.path().join("root")).is_ok_and(|of| of == root) {
                seen += 1;
                let links = fs::read_dir(entry.path().join("fd"));
                let links = links.into_iter().flatten().flatten();
                let folders = links.filter(|link| link.path().is_dir());
                let folders: Vec<_> = folders.flat_map(|link| fs::read_link(link.path())).collect();
                assert!(folders.is_empty(), "{when}: {folders:?} in {entry:?}");
            }
        }
        assert!(seen > 0, "{when}");
    }

    /// Looks at what the process has open whose script has come to a halt, and lets that go on.
    fn see(&self, when: &str, boots: bool) {
        let (runs, go) = (self.jail.path().join("up/runs"), self.jail.path().join("up/go"));
        let runner = wait::until("the script to run", || {
            let text = fs::read_to_string(&runs).ok()?;
            Process::read(text.parse().ok()?)
        });
        // A zygote gets orders and reports, also while it boots, and has workers' memory sent to
        // itself; a worker reports its boot.
        let mut sockets = match runner.title.contains("zygote") {
            true => 4,
            false => usize::from(boots),
        };
        let mut open = foreign(&runner, self.jail.path());
        open.retain(|target| {
            let is_socket = target.to_string_lossy().starts_with("socket:");
            let is_known = is_socket && sockets > 0;
            sockets -= usize::from(is_known);
            !is_known
        });
        assert!(open.is_empty(), "{when}: {open:?} in {runner:?}");
        if self.holds_no_folder {
            self.expect_no_folder(runner.pid, when);
        }
        fs::remove_file(&runs).expect("a file");
        fs::write(&go, "").expect("a file");
    }
}

#[test]
fn no_process_has_anything_of_others_open_while_it_runs_the_pools_code() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let classic = "<?php WAITS echo 'served';";
    let asks =
        "<?php WAITS while (frankenphp_handle_request(function() { WAITS echo 'served'; })) {}";
    let copied = "<?php WAITS maitred_snapshot(); WAITS echo 'served';";
    for (mode, script, more) in [
        ("classic", classic, (true, "")),
        ("worker", asks, (true, "")),
        ("snapshot", copied, (false, "")),
        ("snapshot", copied, (true, "")),
        ("snapshot", copied, (true, "rewinds_per_child = 3")),
    ] {
        let site = Halting::new(mode, script, more);
        let server = std::thread::scope(|scope| {
            let started = scope.spawn(|| site.setup.clone().start());
            if mode != "classic" {
                site.see(&format!("{mode} {more:?}, while it boots"), true);
            }
            started.join().expect("it starts")
        });
        let address = server.address();
        std::thread::scope(|scope| {
            let answer = scope.spawn(move || http::get(address, "/").text());
            site.see(&format!("{mode} {more:?}, while it serves"), false);
            assert_eq!(answer.join().expect("an answer"), "served");
        });
        if more.1.contains("rewinds") {
            let said = server.log_text();
            assert!(
                said.contains("through which scripts could leave the pool's `chroot`"),
                "{said}"
            );
        }
    }
}
