//! Reloads: changed pools get new processes, one after the other, without an effect on clients.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::load::{ECHO_PAGE, Load};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, public_folder};
use maitred_tests::{ports, wait};
use tempfile::TempDir;

/// Workers of the pool, and connections that load it.
const WORKERS: u32 = 4;
const CONNECTIONS: usize = 6;

/// Answers a load must get between two reloads.
const ENOUGH: u64 = 100;

fn site() -> TempDir {
    document_root(&[
        ECHO_PAGE,
        ("version.php", "<?php echo getenv('VERSION');"),
        (
            "wait.php",
            "<?php echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             echo getenv('VERSION');",
        ),
        ("slow.php", "<?php usleep(100000); echo 'slow';"),
    ])
}

/// The pool `www`, whose scripts see this version.
fn version(root: &Path, version: u32) -> Setup {
    Setup::new(root).workers(WORKERS).pool(&format!("env = {{ VERSION = \"{version}\" }}"))
}

/// A second site, run by a pool `blog` of one worker, with these settings.
fn with_blog(setup: Setup, root: &Path, settings: &str) -> Setup {
    setup
        .hosts(&["www.test"])
        .site(&format!("\n[pools.blog]\npm = \"static\"\nmax_children = 1\n{settings}"))
        .site(&format!("\n[[sites]]\nhosts = [\"blog.test\"]\nroot = {root:?}\npool = \"blog\""))
}

fn ask(server: &Server, host: &str, target: &str) -> http::Response {
    let request = Request::new("GET", target).header("Host", host);
    http::ask(server.address(), &request)
}

fn version_of(server: &Server) -> String {
    ask(server, "www.test", "/version.php").text()
}

fn of_pool(server: &Server, kind: &str, pool: &str) -> Vec<Process> {
    let title = format!("maitred-php: {kind} pool {pool}");
    let ours = |process: &Process| process.title.starts_with(&title);
    let mut found: Vec<Process> = server.processes().into_iter().filter(ours).collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// Waits until one zygote and this many workers of pool `www` are left, none of them among `old`.
fn wait_for_new(server: &Server, old: &[Process], workers: u32) {
    wait::until("the new generation alone", || {
        let new = server.workers();
        let none_old = !new.iter().any(|worker| old.contains(worker));
        let zygotes = of_pool(server, "zygote", "www").len();
        (none_old && new.len() == workers as usize && zygotes == 1).then_some(())
    });
}

#[test]
fn a_changed_pool_gets_new_workers_and_another_keeps_its_own() {
    let root = site();
    let setup = |number| with_blog(version(root.path(), number), root.path(), "");
    let server = setup(1).start();
    let (old, blog) = (server.workers(), of_pool(&server, "worker", "blog"));
    let blog_zygote = of_pool(&server, "zygote", "blog");
    server.configure(&setup(2));
    assert!(server.reload().contains("reloaded: pool www restarted, 1 unchanged"));
    assert_eq!(version_of(&server), "2");
    wait_for_new(&server, &old, WORKERS);
    assert_eq!(of_pool(&server, "worker", "blog"), blog);
    assert_eq!(of_pool(&server, "zygote", "blog"), blog_zygote);
}

#[test]
fn a_reload_without_a_change_changes_nothing() {
    let root = site();
    let server = version(root.path(), 1).start();
    let old = server.processes();
    assert!(server.reload().contains("reloaded: no pool restarted, 1 unchanged"));
    assert_eq!(server.processes(), old);
}

#[test]
fn no_request_is_lost_and_none_mixed_up_however_often_a_pool_is_reloaded_under_load() {
    let root = site();
    let server = version(root.path(), 0).start();
    let load = Load::start(server.address(), CONNECTIONS);
    for number in 1..=10 {
        load.wait_for_ok(ENOUGH);
        server.configure(&version(root.path(), number));
        assert!(server.reload().contains("reloaded: pool www restarted"));
        assert_eq!(version_of(&server).parse::<u32>(), Ok(number));
    }
    let tally = load.stop();
    assert_eq!((tally.failed(), tally.mixed_up), (0, 0), "{tally:?}");
    server.stop();
}

#[test]
fn a_running_script_ends_in_its_old_worker_while_others_are_answered_by_new_ones() {
    let root = site();
    let server = version(root.path(), 1).start();
    let old = server.workers();
    let mut busy = Connection::open(server.address());
    busy.send(&Request::get("/wait.php").to_bytes()).unwrap();
    busy.read_head().unwrap();
    server.configure(&version(root.path(), 2));
    server.reload();
    wait::until("all others to be new", || {
        let left = server.workers();
        let old = left.iter().filter(|worker| old.contains(worker)).count();
        (old == 1 && left.len() >= WORKERS as usize).then_some(())
    });
    for _ in 0..20 {
        assert_eq!(version_of(&server), "2");
    }
    std::fs::write(root.path().join("go"), "").unwrap();
    let mut text = Vec::new();
    loop {
        let chunk = busy.read_chunk().expect("the answer comes whole");
        if chunk.is_empty() {
            break;
        }
        text.extend(chunk);
    }
    assert_eq!(text, b"waiting1");
    wait_for_new(&server, &old, WORKERS);
}

#[test]
fn requests_that_wait_for_a_worker_when_the_pool_is_reloaded_are_answered() {
    let root = site();
    let server = version(root.path(), 1).workers(1).start();
    let send = |_| {
        let mut connection = Connection::open(server.address());
        let request = Request::get("/slow.php").to_bytes();
        connection.send(&request).unwrap();
        connection
    };
    let mut waiting: Vec<Connection> = (0..6).map(send).collect();
    server.configure(&version(root.path(), 2).workers(1));
    server.reload();
    for connection in &mut waiting {
        assert_eq!(connection.read_response(false).unwrap().text(), "slow");
    }
}

#[test]
fn a_pool_that_cannot_boot_goes_on_as_it_was_and_says_why_and_the_others_are_reloaded() {
    let root = site();
    let broken = "php_admin_value = { no_such_setting = \"1\" }";
    let server = with_blog(version(root.path(), 1), root.path(), "").start();
    let (old, blog) = (server.workers(), of_pool(&server, "worker", "blog"));
    server.configure(&with_blog(version(root.path(), 2), root.path(), broken));
    let line = server.reload();
    assert!(line.contains("reloaded: pool www restarted"), "{line}");
    assert!(line.contains("pool blog goes on as it was"), "{line}");
    assert!(line.contains("no_such_setting"), "{line}");
    assert_eq!(ask(&server, "blog.test", "/echo.php?id=7").text(), "7");
    assert_eq!(of_pool(&server, "worker", "blog"), blog);
    wait_for_new(&server, &old, WORKERS);
    wait::until_true("the zygote that failed to be gone", || {
        of_pool(&server, "zygote", "blog").len() == 1
    });
}

#[test]
fn a_wrong_configuration_is_refused_with_its_line_and_all_is_as_before() {
    let root = site();
    let server = version(root.path(), 1).start();
    let old = server.processes();
    server.configure(&version(root.path(), 2).pool("max_childern = 7"));
    let mark = server.log().mark();
    assert!(server.reload().contains("reload is refused"));
    server.expect_log(mark, "max_childern");
    assert_eq!(server.processes(), old);
    assert_eq!(version_of(&server), "1");
}

#[test]
fn what_needs_a_restart_stays_as_it_was_and_is_said() {
    let root = site();
    let server = version(root.path(), 1).start();
    let log = root.path().join("error.log");
    let changed =
        version(root.path(), 2).top(&format!("error_log = {log:?}")).top("front_threads = 3");
    server.configure(&changed);
    let mark = server.log().mark();
    let done = server.reload();
    assert!(done.contains("reloaded: pool www restarted"), "{done}");
    let line = server.expect_log(mark, "needs a restart");
    for said in [line, done] {
        assert!(said.contains("front_threads and error_log have"), "{said}");
    }
    assert_eq!(version_of(&server), "2");
    assert!(!log.exists());
}

#[test]
fn a_stop_waits_as_long_as_the_last_reload_says() {
    let root = site();
    let mut server = version(root.path(), 1).start();
    server.configure(&version(root.path(), 1).top("process_control_timeout = \"200ms\""));
    assert!(server.reload().contains("reloaded: no pool restarted"));
    let mut busy = Connection::open(server.address());
    busy.send(&Request::get("/wait.php").to_bytes()).unwrap();
    busy.read_head().unwrap();
    server.processes();
    server.signal(Signal::TERM);
    assert!(server.wait_for_end().success());
    server.expect_log(0, "requests still run after process_control_timeout = 0.2 s");
    server.assert_nothing_left();
}

#[test]
fn pools_sites_and_addresses_come_and_go() {
    let root = site();
    let setup = || version(root.path(), 1).hosts(&["www.test"]);
    let server = setup().start();
    let old = server.workers();
    assert_eq!(ask(&server, "blog.test", "/version.php").status, 404);
    let other = ports::free_address();
    let both = format!("listen = [\"{}\", \"{other}\"]", server.address());
    let more = with_blog(setup(), root.path(), "env = { VERSION = \"blog\" }");
    server.configure(&more.listen(&both));
    let line = server.reload();
    assert!(line.contains("reloaded: pool blog started, 1 unchanged"), "{line}");
    assert_eq!(ask(&server, "blog.test", "/version.php").text(), "blog");
    let there = Request::new("GET", "/version.php").header("Host", "www.test");
    assert_eq!(http::ask(other, &there).text(), "1");
    server.configure(&setup());
    let line = server.reload();
    assert!(line.contains("1 unchanged, pool blog removed"), "{line}");
    assert_eq!(ask(&server, "blog.test", "/version.php").status, 404);
    wait::until_true("the listener to be closed", || !ports::is_listening(other));
    wait::until_true("the pool to be gone", || {
        of_pool(&server, "worker", "blog").is_empty()
            && of_pool(&server, "zygote", "blog").is_empty()
    });
    assert_eq!(server.workers(), old);
}

#[test]
fn the_last_of_two_reloads_at_once_holds() {
    let root = site();
    let server = version(root.path(), 1).start();
    let old = server.workers();
    server.configure(&version(root.path(), 2));
    server.signal(Signal::HUP);
    server.configure(&version(root.path(), 3));
    assert!(server.reload().contains("reload"));
    wait::until_true("the last version", || version_of(&server) == "3");
    wait_for_new(&server, &old, WORKERS);
}

#[test]
fn a_reload_that_takes_over_from_another_has_the_ports_that_the_other_has_opened() {
    let root = site();
    let server = version(root.path(), 1).start();
    let port = ports::free_address();
    let with_port = |number| {
        let listen = format!("listen = [\"{}\", \"{port}\"]", server.address());
        version(root.path(), number).listen(&listen)
    };
    let front = server.front().expect("a front runs");
    front.signal(Signal::STOP);
    server.configure(&with_port(2));
    server.signal(Signal::HUP);
    wait::until_true("the port to be open", || TcpStream::connect(port).is_ok());
    let mark = server.log().mark();
    server.configure(&with_port(3));
    server.signal(Signal::HUP);
    server.expect_log(mark, "a later reload has taken over");
    front.signal(Signal::CONT);
    wait::until_true("the last version", || version_of(&server) == "3");
    assert_eq!(http::get(port, "/version.php").text(), "3");
}

#[test]
fn killing_any_kind_of_process_during_a_reload_leaves_a_whole_server() {
    let root = site();
    let server = version(root.path(), 0).start();
    let kinds = ["maitred: front", "maitred-php: zygote", "maitred-php: worker"];
    for (number, kind) in (1..).zip(kinds) {
        server.configure(&version(root.path(), number));
        let mark = server.log().mark();
        server.signal(Signal::HUP);
        let victims = server.processes();
        for victim in victims.iter().filter(|each| each.title.starts_with(kind)) {
            victim.signal(Signal::KILL);
        }
        let over = |line: &str| line.contains("reload");
        let line = server.log().find_since(mark, wait::DEADLINE, over);
        assert!(line.is_some(), "{}", server.log_text());
        // What the kill has spoilt, another reload does.
        wait::until_true("the version that was asked for", || {
            let there = http::try_ask(server.address(), &Request::get("/version.php"));
            there.is_ok_and(|answer| answer.text() == number.to_string()) || {
                // Each to its end: one that comes earlier takes over from the one before.
                server.reload();
                false
            }
        });
        wait::until("full strength", || {
            let workers = server.workers().len();
            (workers == WORKERS as usize && server.front().is_some()).then_some(())
        });
    }
}

#[test]
fn growing_pools_are_reloaded_too() {
    let root = site();
    for (pm, more) in [
        ("dynamic", "min_spare_servers = 1\nmax_spare_servers = 2"),
        ("ondemand", "process_idle_timeout = \"30s\""),
    ] {
        let setup = |number| version(root.path(), number).pm(pm).pool(more);
        let server = setup(1).start();
        assert_eq!(version_of(&server), "1");
        let old = server.workers();
        let load = Load::start(server.address(), 2);
        load.wait_for_ok(ENOUGH);
        server.configure(&setup(2));
        server.reload();
        load.wait_for_ok(ENOUGH);
        assert_eq!(version_of(&server), "2");
        let tally = load.stop();
        assert_eq!(tally.failed(), 0, "{pm}: {tally:?}");
        wait::until("the old workers to leave", || {
            let left = server.workers();
            let old = left.iter().any(|worker| old.contains(worker));
            (!old && of_pool(&server, "zygote", "www").len() == 1).then_some(())
        });
        server.stop();
    }
}

#[test]
fn an_ondemand_pool_at_rest_is_tried_and_rests_again() {
    let root = site();
    let setup = |number| {
        let setup = version(root.path(), number).pm("ondemand");
        let setup = setup.top("spare_zygotes = 0");
        setup.pool("process_idle_timeout = \"1s\"")
    };
    let server = setup(1).start();
    server.configure(&setup(2));
    assert!(server.reload().contains("reloaded: pool www restarted"));
    wait::until_true("no process to be left", || {
        server.workers().is_empty() && server.zygote().is_none()
    });
    assert_eq!(version_of(&server), "2");
}

#[test]
fn many_reloads_leave_no_descriptor_mapping_or_thread() {
    let root = site();
    let server = version(root.path(), 0).start();
    let figures = || {
        let front = server.front().expect("a front runs");
        let count = |process: &Process, what: &str| {
            std::fs::read_dir(format!("/proc/{}/{what}", process.pid)).map_or(0, Iterator::count)
        };
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", front.pid));
        let pools = maps.map_or(0, |maps| maps.matches("memfd:maitred-www").count());
        let supervisor = server.supervisor();
        [count(&supervisor, "fd"), count(&front, "fd"), count(&front, "task"), pools]
    };
    let reload = |number| {
        let old = server.workers();
        server.configure(&version(root.path(), number));
        server.reload();
        wait_for_new(&server, &old, WORKERS);
    };
    reload(1);
    let before = wait::until("a single generation", || {
        let figures = figures();
        (figures[3] == 1).then_some(figures)
    });
    for number in 2..20 {
        reload(number);
    }
    // Before, there may have been something that was about to go, such as a thread that has read a
    // file.
    wait::until_true("no more than before", || {
        let now = figures();
        now.iter().zip(&before).all(|(now, before)| now <= before)
    });
}

#[test]
fn logs_that_are_configured_otherwise_are_used_after_a_reload() {
    let root = site();
    let folder = maitred_tests::server::public_folder();
    let (first, second) = (folder.path().join("a.log"), folder.path().join("b.log"));
    let with = |log: String| version(root.path(), 1).top(&log);
    let lines = |file: &Path| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().filter(|line| line.contains("/echo.php")).count()
    };
    let ask = |server: &Server| assert_eq!(ask(server, "www.test", "/echo.php?id=1").text(), "1");
    let server = with(format!("access_log = {first:?}")).start();
    ask(&server);
    wait::until_true("a line", || lines(&first) == 1);
    server.configure(&with(format!("access_log = {second:?}")));
    assert!(server.reload().contains("reloaded: no pool restarted"));
    ask(&server);
    wait::until_true("a line in the other log", || lines(&second) == 1);
    server.configure(&with("access_log = \"off\"".to_owned()));
    server.reload();
    ask(&server);
    server.configure(&with("access_log = \"/nonexistent/a.log\"".to_owned()));
    assert!(server.reload().contains("reload is refused"));
    ask(&server);
    server.stop();
    assert_eq!((lines(&first), lines(&second)), (1, 1));
}

/// A connection whose script runs until the file `go` is there.
fn busy(server: &Server) -> Connection {
    let mut busy = Connection::open(server.address());
    busy.send(&Request::get("/wait.php").to_bytes()).expect("the server takes a request");
    busy.read_head().expect("its script has begun");
    busy
}

fn go(root: &Path) {
    std::fs::write(root.join("go"), "").expect("a file can be written");
}

#[test]
fn a_second_reload_does_not_wait_for_scripts_that_run_since_before_the_first() {
    let root = site();
    let server = version(root.path(), 1).start();
    let old = server.workers();
    let busy: Vec<Connection> = (0..WORKERS).map(|_| busy(&server)).collect();
    for number in 2..5 {
        server.configure(&version(root.path(), number));
        let line = server.reload();
        assert!(line.contains("reloaded: pool www restarted"), "{line}");
    }
    go(root.path());
    assert_eq!(version_of(&server), "4");
    wait_for_new(&server, &old, WORKERS);
    drop(busy);
}

#[test]
fn the_access_log_moves_to_another_file_with_a_reload() {
    let root = site();
    let folder = public_folder();
    let at = |name: &str| {
        let path = folder.path().join(name);
        version(root.path(), 1).top(&format!("access_log = {path:?}"))
    };
    let server = at("one.log").start();
    server.configure(&at("two.log"));
    server.reload();
    assert_eq!(version_of(&server), "1");
    wait::until_true("the line", || {
        let two = std::fs::read_to_string(folder.path().join("two.log"));
        two.is_ok_and(|two| two.contains("/version.php"))
    });
    let one = std::fs::read_to_string(folder.path().join("one.log")).unwrap();
    assert_eq!(one, "");
}

#[test]
fn an_access_log_that_a_reload_brings_is_the_next_fronts_too() {
    let root = site();
    let folder = public_folder();
    let server = version(root.path(), 1).start();
    let path = folder.path().join("access.log");
    server.configure(&version(root.path(), 1).top(&format!("access_log = {path:?}")));
    let mark = server.log().mark();
    server.reload();
    server.front().expect("a front runs").signal(Signal::KILL);
    server.expect_log(mark, "front 2 accepts clients");
    assert_eq!(version_of(&server), "1");
    wait::until_true("the line", || {
        let log = std::fs::read_to_string(&path);
        log.is_ok_and(|log| log.contains("/version.php"))
    });
}

#[test]
fn a_stop_gives_up_a_reload_that_the_front_has_not_answered() {
    let root = site();
    let server = version(root.path(), 1).start();
    let _busy = busy(&server);
    let front = server.front().expect("a front runs");
    front.signal(Signal::STOP);
    let other = ports::free_address();
    let both = format!("listen = [\"{}\", \"{other}\"]", server.address());
    server.configure(&version(root.path(), 1).listen(&both));
    let mark = server.log().mark();
    server.signal(Signal::HUP);
    server.expect_log(mark, "SIGHUP: reloading");
    server.signal(Signal::TERM);
    server.expect_log(mark, "asked to stop before the reload was done");
    front.signal(Signal::CONT);
    go(root.path());
    server.stop();
    assert!(!ports::is_listening(other));
}

#[test]
fn a_front_that_does_not_answer_a_reload_is_replaced_and_all_is_as_before() {
    let root = site();
    let server = version(root.path(), 1).start();
    let old = server.workers();
    server.front().expect("a front runs").signal(Signal::STOP);
    server.configure(&version(root.path(), 2));
    let mark = server.log().mark();
    assert!(server.reload().contains("the front said nothing for 20 s"));
    server.expect_log(mark, "front 2 accepts clients");
    assert_eq!(version_of(&server), "1");
    assert_eq!(server.workers(), old);
}

#[test]
fn pools_that_come_and_go_leave_no_descriptor() {
    let root = site();
    let server = version(root.path(), 1).hosts(&["www.test"]).start();
    let descriptors = || {
        let folder = format!("/proc/{}/fd", server.supervisor().pid);
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    };
    let before = descriptors();
    for number in 0..5 {
        let pool = format!(
            "\n[pools.p{number}]\npm = \"ondemand\"\nmax_children = 1\n\n[[sites]]\n\
             hosts = [\"p.test\"]\nroot = {:?}\npool = \"p{number}\"",
            root.path()
        );
        server.configure(&version(root.path(), 1).hosts(&["www.test"]).site(&pool));
        server.reload();
    }
    server.configure(&version(root.path(), 1).hosts(&["www.test"]));
    server.reload();
    // The process that closes their pipes has three until it ends.
    let as_before = || (descriptors() == before).then_some(());
    wait::until_within("as many as before", Duration::from_secs(120), as_before);
}

/// Reloads of one moment: more than processes that wait for the locks of folders may be.
const AT_ONCE: usize = 9;

#[test]
fn the_last_of_many_reloads_in_one_moment_is_done() {
    let root = site();
    let server = version(root.path(), 1).start();
    let connect = || {
        let socket = UnixStream::connect(server.admin_socket()).expect("the socket is there");
        BufReader::new(socket)
    };
    let mut sockets: Vec<_> = (0..AT_ONCE).map(|_| connect()).collect();
    let ask = |socket: &mut BufReader<UnixStream>, what: &str| {
        writeln!(socket.get_mut(), "{{\"do\":\"{what}\"}}").expect("a request");
    };
    let reply = |socket: &mut BufReader<UnixStream>| {
        let mut line = String::new();
        socket.read_line(&mut line).expect("a reply");
        line
    };
    // The supervisor knows all of them.
    for socket in &mut sockets {
        ask(socket, "status");
        reply(socket);
    }
    server.configure(&version(root.path(), 2));
    server.supervisor().signal(Signal::STOP);
    sockets.iter_mut().for_each(|socket| ask(socket, "reload"));
    server.supervisor().signal(Signal::CONT);
    let replies: Vec<String> = sockets.iter_mut().map(reply).collect();
    assert!(replies[AT_ONCE - 1].contains("reloaded: "), "{replies:?}");
    assert_eq!(version_of(&server), "2");
    server.stop();
}
