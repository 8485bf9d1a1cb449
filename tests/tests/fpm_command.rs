//! `maitred fpm` beside php-fpm: what the command says, leaves behind and exits with.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use maitred_tests::fpm::{Daemon, Params, Place, Which, usual};
use maitred_tests::guard::Guarded;
use maitred_tests::log::told;
use maitred_tests::processes::{Process, Signal, all, family};
use maitred_tests::server::{document_root, is_root};
use maitred_tests::wait;
use tempfile::TempDir;

/// What `which` says and exits with, given these flags.
fn run(which: Which, flags: &[&str]) -> Output {
    let mut command = which.command();
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    command.args(flags).stdin(Stdio::null()).output().unwrap()
}

/// All that was printed, without what differs from one run to the next.
fn printed(output: &Output) -> Vec<String> {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8(text).unwrap();
    text.lines().map(without_time).collect()
}

/// A line without the time at its beginning.
fn without_time(line: &str) -> String {
    match line.split_once("] ") {
        Some((time, rest)) if time.starts_with('[') && time.contains(':') => rest.to_owned(),
        _ => line.to_owned(),
    }
}

fn configured(lines: &str) -> (Place, String) {
    let place = Place::default();
    let file = place.file("php-fpm.conf");
    fs::write(&file, place.fill_in(&usual(lines))).unwrap();
    let file = file.display().to_string();
    (place, file)
}

#[test]
fn the_version_and_the_modules_are_told_as_php_fpm_tells_them() {
    for flags in [&["-v"][..], &["-n", "-v"], &["-m"], &["-d", "opcache.enable=0", "-nm"]] {
        let [theirs, ours] = Which::BOTH.map(|which| run(which, flags));
        assert_eq!(printed(&ours), printed(&theirs), "{flags:?}");
        assert_eq!(ours.status.code(), Some(0), "{flags:?}");
        assert!(ours.stderr.is_empty(), "{flags:?}: standard output is expected");
    }
}

#[test]
fn phpinfo_differs_in_nothing_but_what_is_ours() {
    /// What depends on the program's own file, on the moment, or on the library's own build.
    const OURS: [&str; 6] = [
        "Configuration File (php.ini) Path",
        "_ =>",
        "$_SERVER['_']",
        "$_SERVER['REQUEST_TIME",
        "Interned Strings",
        "php-fpm => active",
    ];
    let [theirs, ours] = Which::BOTH.map(|which| printed(&run(which, &["-i"])));
    let same = |lines: Vec<String>| -> Vec<String> {
        let own = |line: &&String| !OURS.iter().any(|own| line.starts_with(own));
        let lines = lines.iter().filter(own).filter(|line| *line != "maitred => active");
        lines.cloned().collect()
    };
    let (theirs, ours) = (same(theirs), same(ours));
    let other: Vec<_> = theirs.iter().zip(&ours).filter(|(a, b)| a != b).collect();
    assert!(other.len() <= 4 && theirs.len() == ours.len(), "{other:#?}");
    assert!(ours.contains(&"Server API => FPM/FastCGI".to_owned()));
}

#[test]
fn what_php_says_of_itself_fails_where_the_file_it_goes_to_may_not_grow() {
    let folder = tempfile::tempdir().unwrap();
    for which in Which::BOTH {
        let command = which.command();
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -f 1; exec \"$@\" -i >\"$0\""]);
        shell.arg(folder.path().join("said"));
        shell.arg(command.get_program()).args(command.get_args());
        let ended = shell.stdin(Stdio::null()).status().unwrap();
        assert!(!ended.success(), "{which:?}: {ended:?}");
    }
}

#[test]
fn what_makes_no_sense_exits_with_64_and_a_wrong_configuration_with_78() {
    let (place, good) = configured("");
    let bad = place.file("bad.conf");
    fs::write(&bad, "[www]\nnonsense = 1\n").unwrap();
    let bad = bad.display().to_string();
    for (flags, code) in [
        (vec!["-Z"], 64),
        (vec!["word"], 64),
        (vec!["--fpm-config"], 64),
        (vec!["-h"], 0),
        (vec!["-?"], 0),
        (vec!["--help"], 0),
        (vec!["-t", "-y", &good], 0),
        (vec!["-t", "-y", &bad], 78),
        (vec!["-F", "-y", &bad], 78),
        (vec!["-F", "-y", "/nowhere/php-fpm.conf"], 78),
        (vec!["-t", "-p", "/nowhere"], 78),
    ] {
        let [theirs, ours] = Which::BOTH.map(|which| run(which, &flags));
        assert_eq!(theirs.status.code(), Some(code), "php-fpm {flags:?}");
        assert_eq!(ours.status.code(), Some(code), "{flags:?}: {:?}", printed(&ours));
        // The name that the program calls itself by is another.
        let but_name = |output: &Output| -> Vec<String> {
            let lines = printed(output).into_iter();
            let lines = lines.map(|line| match line.split_once(" [-n]") {
                Some((_, rest)) if line.starts_with("Usage: ") => rest.to_owned(),
                _ => line,
            });
            lines.collect()
        };
        assert_eq!(but_name(&ours), but_name(&theirs), "{flags:?}");
    }
}

/// A server in the background, which ends with the test.
struct Background(Process);

impl Background {
    /// That whose process id the file holds.
    fn of(place: &Place) -> Background {
        let pid = fs::read_to_string(place.file("fpm.pid")).unwrap();
        Background(Process::read(pid.parse().unwrap()).unwrap())
    }

    fn stop(self) {
        self.0.signal(Signal::TERM);
        wait::until_true("the server in the background to end", || !self.0.is_running());
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.signal(Signal::TERM);
        let ended = wait::poll(wait::DEADLINE, || (!self.0.is_running()).then_some(()));
        if ended.is_none() {
            self.0.signal(Signal::KILL);
        }
    }
}

const BACKGROUND: &str = "[global]\ndaemonize = yes\npid = @FOLDER@/fpm.pid\n\
                          error_log = @FOLDER@/error.log\n";

#[test]
fn who_starts_a_server_in_the_background_learns_that_it_serves() {
    for which in Which::BOTH {
        let (place, file) = configured(BACKGROUND);
        let started = run(which, &["-y", &file]);
        assert_eq!(started.status.code(), Some(0), "{which:?}: {:?}", printed(&started));
        let server = Background::of(&place);
        assert_eq!(server.0.title, format!("php-fpm: master process ({file})"));
        let answer = place.listener("www.sock").ask(&Params::get("/", "/nothing.php"), b"");
        assert!(answer.unwrap().text().contains("File not found"), "{which:?}");
        let log = fs::read_to_string(place.file("error.log")).unwrap();
        let log: Vec<String> = log.lines().map(without_time).collect();
        let running = format!("NOTICE: fpm is running, pid {}", server.0.pid);
        assert!(log.contains(&running), "{which:?}: {log:#?}");
        assert!(
            log.contains(&"NOTICE: ready to handle connections".to_owned()),
            "{which:?}: {log:#?}"
        );
        server.stop();
        assert!(!place.file("fpm.pid").exists(), "{which:?} leaves its pid file");
        let log = fs::read_to_string(place.file("error.log")).unwrap();
        assert!(log.ends_with("NOTICE: exiting, bye-bye!\n"), "{which:?}: {log}");
    }
}

#[test]
fn who_starts_a_server_in_the_background_learns_that_it_does_not_serve() {
    for which in Which::BOTH {
        let (place, file) = configured(BACKGROUND);
        fs::create_dir(place.file("www.sock")).unwrap();
        let started = run(which, &["-y", &file]);
        assert_eq!(started.status.code(), Some(70), "{which:?}: {:?}", printed(&started));
        assert!(!place.file("fpm.pid").exists(), "{which:?}");
        let log = fs::read_to_string(place.file("error.log")).unwrap();
        assert!(log.contains("ERROR: FPM initialization failed"), "{which:?}: {log}");
    }
}

#[test]
fn scripts_that_look_for_workers_in_the_process_list_find_workers_alone() {
    for which in Which::BOTH {
        let daemon = Daemon::start(which, &usual("pm.max_children = 3\n"));
        let workers = || {
            let family = daemon.processes();
            let titles = family.iter().map(|process| process.title.as_str());
            titles.filter(|title| title.contains("php-fpm: pool www")).count()
        };
        wait::until_true("three workers", || workers() == 3);
        let masters = all();
        let master = masters.iter().find(|process| process.pid == daemon.pid());
        let title = &master.unwrap().title;
        let file = daemon.place().file("php-fpm.conf");
        assert_eq!(title, &format!("php-fpm: master process ({})", file.display()));
        daemon.stop();
    }
}

#[test]
fn the_log_is_the_error_log_unless_somebody_reads_standard_error() {
    for which in Which::BOTH {
        let (place, file) = configured("[global]\nerror_log = @FOLDER@/error.log\n");
        let mut command = which.command();
        command.args(["-F", "-y", &file]);
        command.stderr(fs::File::create(place.file("stderr")).unwrap());
        let mut server = Guarded::spawn(&mut command, Signal::TERM);
        let ready = || {
            let log = fs::read_to_string(place.file("error.log")).unwrap_or_default();
            log.contains("ready to handle connections").then_some(log)
        };
        wait::until("the error log", ready);
        let stderr = fs::read_to_string(place.file("stderr")).unwrap();
        assert!(!stderr.contains("ready to handle"), "{which:?}: {stderr}");
        assert!(server.stop().unwrap().success(), "{which:?}");
    }
}

#[test]
fn a_program_under_the_name_of_php_fpm_is_php_fpm() {
    let (place, file) = configured("");
    let theirs = run(Which::PhpFpm, &["-t", "-y", &file]);
    let expected = format!("NOTICE: configuration file {file} test is successful");
    assert_eq!(printed(&theirs)[0], expected);
    let program = maitred_tests::peer::fpm_program();
    let with_version = program.file_name().and_then(|name| name.to_str());
    for name in ["php-fpm", with_version.unwrap()] {
        let link = place.file(name);
        std::os::unix::fs::symlink(maitred_tests::maitred_program(), &link).unwrap();
        let tested = Command::new(&link).args(["-t", "-y", &file]).output().unwrap();
        assert_eq!(tested.status.code(), Some(0), "{:?}", printed(&tested));
        assert_eq!(printed(&tested), printed(&theirs), "{name}");
        let usage = Command::new(&link).arg("-h").output().unwrap();
        assert!(printed(&usage)[0].starts_with(&format!("Usage: {name} [-n]")));
    }
}

#[test]
fn pools_run_as_root_only_where_it_is_asked_for() {
    if !is_root() {
        return;
    }
    let (place, file) = configured("user = root\ngroup = root\n");
    for which in Which::BOTH {
        let refused = run(which, &["-F", "-O", "-y", &file]);
        assert_eq!(refused.status.code(), Some(78), "{which:?}");
        let text = printed(&refused).join("\n");
        assert!(text.contains("please specify user and group other than root"), "{text}");
        for flag in ["-R", "--allow-to-run-as-root"] {
            let allowed = run(which, &[flag, "-t", "-y", &file]);
            assert_eq!(allowed.status.code(), Some(0), "{which:?} {:?}", printed(&allowed));
        }
    }
    drop(place);
    let root = document_root(&[("who.php", "<?php echo posix_geteuid();")]);
    for which in Which::BOTH {
        let lines = usual("user = root\ngroup = root\n");
        let daemon = Daemon::start_with(which, &lines, Place::default(), &["-R"]);
        let params = Params::get(&root.path().display().to_string(), "/who.php");
        assert_eq!(daemon.listener().ask(&params, b"").unwrap().body(), "0", "{which:?}");
        daemon.stop();
    }
}

#[test]
fn no_pools_scripts_can_send_signals_to_the_front() {
    if !is_root() {
        return;
    }
    let root = document_root(&[(
        "signal.php",
        "<?php echo posix_kill((int) $_GET['pid'], 0) ? 'yes' : \
         posix_strerror(posix_get_last_error());",
    )]);
    let second = "[second]\nlisten = @FOLDER@/second.sock\npm = static\npm.max_children = 1\n\
                  user = nobody\n";
    let mut daemon = Daemon::start(
        Which::Maitred,
        &format!("{}[global]\nlog_level = debug\n{second}", usual("")),
    );
    daemon.expect_log(0, "the front runs as ");
    let processes = daemon.processes();
    let mut fronts = processes.iter();
    let front = fronts.find(|process| process.title.starts_with("php-fpm: front"));
    let target = format!("/signal.php?pid={}", front.unwrap().pid);
    for listener in ["www.sock", "second.sock"] {
        let params = Params::get(&root.path().display().to_string(), &target);
        let answer = daemon.place().listener(listener).ask(&params, b"").unwrap();
        assert_eq!(answer.body(), "Operation not permitted", "{listener}");
    }
    daemon.stop();
}

#[test]
fn the_masters_priority_and_core_size_are_those_of_its_configuration() {
    if !is_root() {
        return;
    }
    for which in Which::BOTH {
        let lines = "[global]\nprocess.priority = -3\nrlimit_core = 0\n";
        let daemon = Daemon::start(which, &usual(lines));
        let read =
            |name: &str| fs::read_to_string(format!("/proc/{}/{name}", daemon.pid())).unwrap();
        let stat = read("stat");
        let nice = stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap();
        assert_eq!(nice, "-3", "{which:?}");
        let limits = read("limits");
        let values = |name: &str| -> Vec<String> {
            let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
            let words = line[name.len()..].split_whitespace();
            words.take(2).map(str::to_owned).collect()
        };
        assert_eq!(values("Max core file size")[0], "0", "{which:?}");
        daemon.stop();
    }
}

/// Runs a shell in a mount namespace whose `/dev/log` is this socket.
const WITH_LOG: &str = "mkdir \"$1/dev\" && mount --rbind /dev \"$1/dev\" && \
                        mount -t tmpfs none /dev && cp -a \"$1\"/dev/null \"$1\"/dev/zero \
                        \"$1\"/dev/urandom \"$1\"/dev/random /dev/ && mkdir /dev/shm && \
                        mount --bind \"$1/dev/shm\" /dev/shm && ln -s \"$1/log\" /dev/log && \
                        ln -s /proc/self/fd /dev/fd && shift && exec \"$@\"";

/// Starts the server in the foreground, with the socket `log` of the place as `/dev/log`.
fn start_with_log(which: Which, place: &Place, file: &str) -> Guarded {
    let program = which.command();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", WITH_LOG, "sh"]);
    command.arg(place.folder()).arg(program.get_program()).args(program.get_args());
    command.args(["-F", "-y", file]);
    command.stdin(Stdio::null()).stderr(fs::File::create(place.file("stderr")).unwrap());
    Guarded::spawn(&mut command, Signal::TERM)
}

/// A script that writes a line to standard error, and its parameters.
fn saying() -> (TempDir, Params) {
    let say = "<?php fwrite(fopen('php://stderr', 'w'), \"a word\\n\"); echo 'said';";
    let root = document_root(&[("say.php", say)]);
    let params = Params::get(&root.path().display().to_string(), "/say.php");
    (root, params)
}

#[test]
fn the_log_goes_to_syslog_with_name_facility_and_level() {
    if !is_root() {
        return;
    }
    for which in Which::BOTH {
        let lines = "[global]\nerror_log = syslog\nsyslog.ident = test-fpm\n\
                     syslog.facility = local3\n[www]\ncatch_workers_output = yes\n";
        let (place, file) = configured(lines);
        let socket = UnixDatagram::bind(place.file("log")).unwrap();
        socket.set_read_timeout(Some(wait::DEADLINE)).unwrap();
        let mut server = start_with_log(which, &place, &file);
        let said = told(&socket, "ready to handle connections");
        let ready = said.last().unwrap();
        // local3 is 19, and a notice is 5: 19 * 8 + 5.
        assert!(ready.starts_with("<157>"), "{which:?} {ready}");
        let line = format!(" test-fpm[{}]: [NOTICE] ready to handle connections", server.pid());
        assert!(ready.ends_with(&line), "{which:?} {ready}");
        let (_root, params) = saying();
        place.listener("www.sock").ask(&params, b"").unwrap();
        if which == Which::Maitred {
            let said = told(&socket, "a word");
            let word = said.last().unwrap();
            assert!(word.starts_with("<156>"), "a warning: {word}");
            let end = " said into stderr: \"a word\"";
            assert!(word.contains("] child ") && word.ends_with(end), "{word}");
        }
        assert!(server.stop().unwrap().success(), "{which:?}");
        let stderr = fs::read_to_string(place.file("stderr")).unwrap();
        assert!(!stderr.contains("ready to handle"), "{which:?}: {stderr}");
        drop(socket);
        fs::remove_file(place.file("log")).unwrap();
    }
}

/// Fills the queue of a socket for datagrams, as any user can. Whether there was space.
fn fill(path: &Path) -> bool {
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    sender.connect(path).unwrap();
    let sent = std::iter::from_fn(|| sender.send(b"full").ok());
    sent.count() > 0
}

/// The worker of a server with one.
fn worker_of(server: i32) -> Process {
    wait::until("a worker", || {
        let mut family = family(server).into_iter();
        family.find(|process| process.title.trim_end() == "php-fpm: pool www")
    })
}

#[test]
fn a_syslog_whose_queue_is_full_delays_no_request_and_no_stop() {
    if !is_root() {
        return;
    }
    let lines = "pm.max_children = 1\ncatch_workers_output = yes\n\
                 [global]\nerror_log = syslog\nsyslog.ident = test-fpm\n";
    let (place, file) = configured(lines);
    let socket = UnixDatagram::bind(place.file("log")).unwrap();
    socket.set_read_timeout(Some(wait::DEADLINE)).unwrap();
    let mut server = start_with_log(Which::Maitred, &place, &file);
    told(&socket, "ready to handle connections");
    while fill(&place.file("log")) {}
    let (_root, params) = saying();
    let ask = || place.listener("www.sock").ask(&params, b"").unwrap().body();
    for _ in 0..3 {
        assert_eq!(ask(), "said");
        let worker = worker_of(server.pid());
        worker.signal(Signal::KILL);
        // That it has ended is logged before.
        wait::until_true("the next worker", || worker_of(server.pid()).pid != worker.pid);
    }
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 64]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    assert_eq!(ask(), "said");
    told(&socket, "dropped here: no reader took them");
    assert!(server.stop().unwrap().success());
}
