//! `maitred fpm` beside php-fpm: what the command says, leaves behind and exits with.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use maitred_tests::fpm::{Daemon, Params, Place, Which, usual};
use maitred_tests::guard::Guarded;
use maitred_tests::processes::{Process, Signal, all};
use maitred_tests::wait;

/// What `which` says and exits with, given these flags.
fn run(which: Which, flags: &[&str]) -> Output {
    let mut command = which.command();
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/");
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
    for flags in [
        &["-v"][..],
        &["-n", "-v"],
        &["-m"],
        &["-d", "opcache.enable=0", "-nm"],
    ] {
        let [theirs, ours] = Which::BOTH.map(|which| run(which, flags));
        assert_eq!(printed(&ours), printed(&theirs), "{flags:?}");
        assert_eq!(ours.status.code(), Some(0), "{flags:?}");
        assert!(
            ours.stderr.is_empty(),
            "{flags:?}: standard output is asked for"
        );
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
        let lines = lines
            .iter()
            .filter(own)
            .filter(|line| *line != "maitred => active");
        lines.cloned().collect()
    };
    let (theirs, ours) = (same(theirs), same(ours));
    let other: Vec<_> = theirs.iter().zip(&ours).filter(|(a, b)| a != b).collect();
    assert!(other.len() <= 4 && theirs.len() == ours.len(), "{other:#?}");
    assert!(ours.contains(&"Server API => FPM/FastCGI".to_owned()));
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
        assert_eq!(
            ours.status.code(),
            Some(code),
            "{flags:?}: {:?}",
            printed(&ours)
        );
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
        wait::until_true("the server in the background to end", || {
            !self.0.is_running()
        });
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
        assert_eq!(
            started.status.code(),
            Some(0),
            "{which:?}: {:?}",
            printed(&started)
        );
        let server = Background::of(&place);
        assert_eq!(server.0.title, format!("php-fpm: master process ({file})"));
        let answer = place
            .door("www.sock")
            .ask(&Params::get("/", "/nothing.php"), b"");
        assert!(
            answer.unwrap().text().contains("File not found"),
            "{which:?}"
        );
        let log = fs::read_to_string(place.file("error.log")).unwrap();
        let log: Vec<String> = log.lines().map(without_time).collect();
        let running = format!("NOTICE: fpm is running, pid {}", server.0.pid);
        assert!(log.contains(&running), "{which:?}: {log:#?}");
        assert!(
            log.contains(&"NOTICE: ready to handle connections".to_owned()),
            "{which:?}: {log:#?}"
        );
        server.stop();
        assert!(
            !place.file("fpm.pid").exists(),
            "{which:?} leaves its pid file"
        );
        let log = fs::read_to_string(place.file("error.log")).unwrap();
        assert!(
            log.ends_with("NOTICE: exiting, bye-bye!\n"),
            "{which:?}: {log}"
        );
    }
}

#[test]
fn who_starts_a_server_in_the_background_learns_that_it_does_not_serve() {
    for which in Which::BOTH {
        let (place, file) = configured(BACKGROUND);
        fs::create_dir(place.file("www.sock")).unwrap();
        let started = run(which, &["-y", &file]);
        assert_eq!(
            started.status.code(),
            Some(70),
            "{which:?}: {:?}",
            printed(&started)
        );
        assert!(!place.file("fpm.pid").exists(), "{which:?}");
        let log = fs::read_to_string(place.file("error.log")).unwrap();
        assert!(
            log.contains("ERROR: FPM initialization failed"),
            "{which:?}: {log}"
        );
    }
}

#[test]
fn scripts_that_look_for_workers_in_the_process_list_find_workers_alone() {
    for which in Which::BOTH {
        let daemon = Daemon::start(which, &usual("pm.max_children = 3\n"));
        let workers = || {
            let family = daemon.processes();
            let titles = family.iter().map(|process| process.title.as_str());
            titles
                .filter(|title| title.contains("php-fpm: pool www"))
                .count()
        };
        wait::until_true("three workers", || workers() == 3);
        let masters = all();
        let master = masters.iter().find(|process| process.pid == daemon.pid());
        let title = &master.unwrap().title;
        let file = daemon.place().file("php-fpm.conf");
        assert_eq!(
            title,
            &format!("php-fpm: master process ({})", file.display())
        );
        daemon.stop();
    }
}

/// What is told on a socket until somebody says `last`.
fn told(socket: &UnixDatagram, last: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let length = socket.recv(&mut bytes).unwrap_or_else(|why| {
            panic!("nobody says {last}: {why}; what was said: {all:#?}");
        });
        all.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        if all.iter().any(|said| said.contains(last)) {
            return all;
        }
    }
}

#[test]
fn systemd_is_told_how_the_server_is_and_when_it_reloads_and_stops() {
    let place = Place::default();
    let socket = UnixDatagram::bind(place.file("notify")).unwrap();
    socket.set_read_timeout(Some(wait::DEADLINE)).unwrap();
    let file = place.file("php-fpm.conf");
    let lines = "pm.max_children = 2\n[global]\nsystemd_interval = 1\n";
    fs::write(&file, place.fill_in(&usual(lines))).unwrap();
    let mut command = Which::Maitred.command();
    command.args(["-F", "-O", "-y"]).arg(&file);
    command.env("NOTIFY_SOCKET", place.file("notify"));
    command.stderr(Stdio::null());
    let mut server = Guarded::spawn(&mut command, Signal::TERM);
    let pid = server.pid();
    let ready = told(&socket, "READY=1");
    assert!(
        ready[0].contains("STATUS=Ready to handle connections\n"),
        "{ready:?}"
    );
    assert!(ready[0].contains(&format!("MAINPID={pid}\n")), "{ready:?}");
    let status = told(&socket, "STATUS=Processes");
    let expected =
        "STATUS=Processes active: 0, idle: 2, Requests: 0, slow: 0, Traffic: 0.00req/sec";
    assert!(status.last().unwrap().contains(expected), "{status:?}");
    let master = Process::read(pid).unwrap();
    master.signal(Signal::USR2);
    let reloading = told(&socket, "RELOADING=1");
    assert!(
        reloading.last().unwrap().contains("MONOTONIC_USEC="),
        "{reloading:?}"
    );
    told(&socket, "READY=1\nSTATUS=Ready to handle connections");
    master.signal(Signal::TERM);
    told(&socket, "STOPPING=1");
    let ended = server.wait(wait::DEADLINE).unwrap();
    assert!(ended.success(), "{ended}");
    drop(socket);
    fs::remove_file(place.file("notify")).unwrap();
}

#[test]
fn a_watchdog_hears_from_the_server_twice_as_often_as_it_has_to() {
    let (place, file) = configured("");
    let socket = UnixDatagram::bind(place.file("notify")).unwrap();
    socket.set_read_timeout(Some(wait::DEADLINE)).unwrap();
    let mut command = Which::Maitred.command();
    command.args(["-F", "-O", "-y", &file]);
    command.env("NOTIFY_SOCKET", place.file("notify"));
    let watchdog = Duration::from_millis(2500);
    command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
    command.stderr(Stdio::null());
    let mut server = Guarded::spawn(&mut command, Signal::TERM);
    told(&socket, "WATCHDOG=1");
    told(&socket, "WATCHDOG=1");
    assert!(server.stop().unwrap().success());
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
    for name in ["php-fpm", "php-fpm8.2"] {
        let link = place.file(name);
        std::os::unix::fs::symlink(maitred_tests::maitred_program(), &link).unwrap();
        let tested = Command::new(&link)
            .args(["-t", "-y", &file])
            .output()
            .unwrap();
        assert_eq!(tested.status.code(), Some(0), "{:?}", printed(&tested));
        let expected = format!("NOTICE: configuration file {file} test is successful");
        assert_eq!(printed(&tested), [expected, String::new()]);
        let usage = Command::new(&link).arg("-h").output().unwrap();
        assert!(printed(&usage)[0].starts_with(&format!("Usage: {name} [-n]")));
    }
}
