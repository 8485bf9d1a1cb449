//! Upgrades: another program takes over in the same process, without an effect on clients.

use std::os::unix::fs::symlink;

use maitred_tests::booted::{application, snapshot};
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::installed::{installed, replace};
use maitred_tests::load::{ECHO_PAGE, Load};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, public_folder};
use maitred_tests::{Target, maitred_program, ports, wait};
use tempfile::TempDir;

/// Workers of the pool, and connections that load it.
const WORKERS: u32 = 4;
const CONNECTIONS: usize = 6;

/// Answers a load must get between two upgrades.
const ENOUGH: u64 = 100;

fn site() -> TempDir {
    document_root(&[
        ECHO_PAGE,
        (
            "wait.php",
            "<?php echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             echo ' over';",
        ),
    ])
}

/// Sends SIGUSR2 and waits until the log says what came of it.
fn upgrade(server: &Server) -> String {
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    let over = |line: &str| {
        ["upgraded to", "upgrade is refused", "upgrade again"]
            .iter()
            .any(|said| line.contains(said))
    };
    let line = server.log().find_since(mark, wait::DEADLINE, over);
    line.unwrap_or_else(|| panic!("the upgrade is not over:\n{}", server.log_text()))
}

fn fronts(server: &Server) -> Vec<Process> {
    let is_front = |process: &Process| process.title.starts_with("maitred: front");
    server.processes().into_iter().filter(is_front).collect()
}

fn wait_for_new(server: &Server, old: &[Process]) {
    wait::until("the new processes alone", || {
        let new = server.processes();
        let none_old = !new.iter().any(|process| old.contains(process));
        let workers = server.workers().len();
        (none_old && fronts(server).len() == 1 && workers == WORKERS as usize).then_some(())
    });
}

/// The server's processes, but for the supervisor and the one that reads and closes pipes now and
/// then.
fn family(server: &Server) -> Vec<Process> {
    let supervisor = server.supervisor();
    let all = server.processes().into_iter();
    let is_lasting = |process: &Process| {
        process.pid != supervisor.pid && process.title.trim_end() != "maitred: pipes"
    };
    all.filter(is_lasting).collect()
}

#[test]
fn no_request_is_lost_and_none_mixed_up_by_upgrades_under_load() {
    let root = site();
    let server = Setup::new(root.path()).workers(WORKERS).start();
    let pid = server.supervisor().pid;
    let load = Load::start(server.address(), CONNECTIONS);
    for _ in 0..4 {
        load.wait_for_ok(ENOUGH);
        assert!(upgrade(&server).contains("upgraded to maitred"));
    }
    load.wait_for_ok(ENOUGH);
    let tally = load.stop();
    assert_eq!((tally.failed(), tally.mixed_up), (0, 0), "{tally:?}");
    assert_eq!(server.supervisor().pid, pid);
    wait::until("one front", || (fronts(&server).len() == 1).then_some(()));
    server.stop();
}

#[test]
fn an_upgrade_replaces_every_process_but_the_supervisor_and_a_running_script_ends_first() {
    let root = site();
    let server = Setup::new(root.path()).workers(WORKERS).start();
    let old = family(&server);
    let mut busy = Connection::open(server.address());
    busy.send(&Request::get("/wait.php").to_bytes()).unwrap();
    busy.read_head().unwrap();
    upgrade(&server);
    assert_eq!(http::get(server.address(), "/echo.php?id=1").text(), "1");
    std::fs::write(root.path().join("go"), "").unwrap();
    let mut text = busy.read_chunk().unwrap();
    while !text.ends_with(b"over") {
        text.extend(busy.read_chunk().expect("the answer comes whole"));
    }
    wait_for_new(&server, &old);
}

/// Upgrades a server whose only copy of a snapshot runs a request that waits, with more requests
/// behind it, and then lets them go on: the old front finishes them all.
fn upgrade_before_copies_are_done(upgrades: usize) {
    let waits = "while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }";
    let root = application("", &format!("{waits} echo 'over';"));
    let server = snapshot(root.path()).workers(1).start();
    let waiting = (0..8).map(|_| {
        let mut connection = Connection::open(server.address());
        connection.send(&Request::get("/").to_bytes()).expect("it is open");
        connection
    });
    let waiting: Vec<Connection> = waiting.collect();
    wait::until_true("all to be accepted", || ports::unaccepted(server.address()) == 0);
    for _ in 0..upgrades {
        assert!(upgrade(&server).contains("upgraded to maitred"));
    }
    std::fs::write(root.path().join("go"), "").expect("a file can be written");
    let responses = waiting.into_iter().map(|mut connection| {
        let response = connection.read_response(false).expect("a response");
        (response.status, response.text())
    });
    let responses: Vec<_> = responses.collect();
    assert!(responses.iter().all(|got| *got == (200, "over".to_owned())), "{responses:?}");
    wait::until("one front", || (fronts(&server).len() == 1).then_some(()));
    server.stop();
}

#[test]
fn an_old_front_finishes_more_requests_than_its_snapshot_has_copies() {
    upgrade_before_copies_are_done(1);
}

#[test]
fn an_old_front_keeps_its_snapshot_through_a_second_upgrade() {
    upgrade_before_copies_are_done(2);
}

#[test]
fn a_program_that_cannot_take_over_is_refused_and_all_goes_on() {
    let root = site();
    let folder = installed();
    let program = folder.path().join("maitred");
    let server = Setup::new(root.path()).program(&program).start();
    let old = server.processes();
    for script in ["exit 0", "exit 3", "kill -9 $$"] {
        replace(&program, script);
        assert!(upgrade(&server).contains("upgrade is refused"));
    }
    std::fs::remove_file(&program).unwrap();
    assert!(upgrade(&server).contains("cannot be run"));
    assert_eq!(server.processes(), old);
    assert_eq!(http::get(server.address(), "/echo.php?id=1").text(), "1");
}

#[test]
fn a_program_whose_php_does_not_start_keeps_the_workers_of_the_one_before() {
    let root = site();
    let folder = installed();
    let program = folder.path().join("maitred");
    let server = Setup::new(root.path()).program(&program).start();
    let old = family(&server);
    replace(&folder.path().join("maitred-php"), "exit 1");
    assert!(upgrade(&server).contains("with the front and the workers of the one before"));
    assert_eq!(http::get(server.address(), "/echo.php?id=1").text(), "1");
    wait::until_true("the old processes alone", || family(&server) == old);
    let php = folder.path().join("maitred-php");
    std::fs::remove_file(&php).unwrap();
    symlink(maitred_program().with_file_name("maitred-php"), &php).unwrap();
    assert!(upgrade(&server).contains("upgraded to maitred"));
    wait::until_true("no old process to be left", || {
        !family(&server).iter().any(|process| old.contains(process))
    });
}

#[test]
fn a_pool_whose_php_does_not_start_keeps_no_other_from_an_upgrade() {
    let root = site();
    let scanned = root.path().join("conf.d");
    let extension = scanned.join("20-exif.ini");
    std::fs::create_dir(&scanned).unwrap();
    std::fs::write(&extension, "extension=exif\n").unwrap();
    let other = format!(
        "\n[[sites]]\nroot = {:?}\nhosts = \"other.example\"\npool = \"other\"\n\
         [pools.other]\npm = \"static\"\nmax_children = 1\nphp_ini_scan_dir = {scanned:?}\n\
         php_admin_value = {{ \"exif.encode_unicode\" = \"UTF-8\" }}\n",
        root.path()
    );
    let server = Setup::new(root.path()).hosts(&["main.example"]).site(&other).start();
    let get = |host: &str| {
        let mut request = http::Request::get("/echo.php?id=1");
        request.headers[0].1 = host.to_owned();
        http::Connection::open(server.address()).ask(&request).expect("a response")
    };
    assert_eq!(get("other.example").text(), "1");
    std::fs::remove_file(&extension).unwrap();
    let old = family(&server);
    assert!(upgrade(&server).contains("upgraded to maitred"));
    assert_eq!(get("main.example").text(), "1");
    wait::until_true("no old process to be left", || {
        !family(&server).iter().any(|process| old.contains(process))
    });
    assert_eq!(get("other.example").status, 503);
    server.expect_log(0, "the upgrade goes on without a pool");
    std::fs::write(&extension, "extension=exif\n").unwrap();
    wait::until_true("the other pool to be mended", || get("other.example").text() == "1");
}

#[test]
fn a_reload_during_an_upgrade_and_an_upgrade_during_a_reload_wait_for_each_other() {
    let root = site();
    let with = |depth: u32| {
        let setup = Setup::new(root.path()).workers(WORKERS);
        setup.pool(&format!("request_slowlog_trace_depth = {depth}"))
    };
    let server = with(1).start();
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.configure(&with(2));
    server.signal(Signal::HUP);
    server.expect_log(mark, "upgraded to");
    server.expect_log(mark, "reloaded: pool www restarted");
    let mark = server.log().mark();
    server.configure(&with(3));
    server.signal(Signal::HUP);
    server.expect_log(mark, "reloading");
    server.signal(Signal::USR2);
    server.expect_log(mark, "reloaded: pool www restarted");
    server.expect_log(mark, "upgraded to");
}

#[test]
fn pools_at_rest_stay_so_through_an_upgrade_however_long_the_others_take() {
    let root = site();
    let file = root.path().join("preload.php");
    std::fs::write(&file, "<?php usleep(1500000);").unwrap();
    let preload = format!("php_admin_value.\"opcache.preload\" = {file:?}");
    let rests = |name: &str| {
        format!(
            "\n[pools.{name}]\npm = \"ondemand\"\nprocess_idle_timeout = \"1s\"\nmax_children = 1"
        )
    };
    let server = Setup::new(root.path())
        .top("spare_zygotes = 0")
        .pool(&preload)
        .site(&rests("one"))
        .site(&rests("two"));
    let server = server.start();
    assert!(upgrade(&server).contains("upgraded to maitred"));
    let woken = |process: &Process| process.title.contains("zygote pool one");
    assert!(!server.processes().iter().any(woken));
}

#[test]
fn a_stop_in_the_middle_of_an_upgrade_leaves_nothing() {
    let root = site();
    let server = Setup::new(root.path()).workers(WORKERS).start();
    server.processes();
    server.signal(Signal::USR2);
    server.stop();
}

#[test]
fn an_upgrade_needs_no_folder_that_the_access_log_was_in() {
    let root = site();
    let folder = public_folder();
    let log = format!("access_log = {:?}", folder.path().join("access.log"));
    let server = Setup::new(root.path()).top(&log).start();
    drop(folder);
    assert!(upgrade(&server).contains("upgraded to maitred"));
    assert_eq!(http::get(server.address(), "/echo.php?id=1").text(), "1");
}

#[test]
fn a_front_that_dies_while_the_new_program_is_tried_is_replaced_before_that_takes_over() {
    let root = site();
    let folder = installed();
    let program = folder.path().join("maitred");
    let server = Setup::new(root.path()).workers(WORKERS).program(&program).start();
    let old = family(&server);
    let real = folder.path().join("real");
    std::fs::rename(&program, &real).unwrap();
    let (real, front) = (real.display(), server.front().expect("a front runs").pid);
    // The wait is for the death to be seen, however that is; without it, too, all has to be well.
    let kill = format!("kill -9 {front} && sleep 0.05");
    replace(
        &program,
        &format!(
            "case \"$*\" in *--try-take-over*) {real} \"$@\" && {kill}; exit;; esac\n\
             exec {real} \"$@\""
        ),
    );
    assert!(upgrade(&server).contains("upgraded to maitred"));
    wait_for_new(&server, &old);
    wait::until_true("one zygote", || {
        let zygote = |process: &&Process| process.title.starts_with("maitred-php: zygote");
        server.processes().iter().filter(zygote).count() == 1
    });
    assert_eq!(http::get(server.address(), "/echo.php?id=1").text(), "1");
}

#[test]
fn an_upgrade_shortly_after_the_deaths_of_workers_is_an_upgrade_like_others() {
    let root = site();
    let server = Setup::new(root.path()).workers(WORKERS).start();
    let mark = server.log().mark();
    for worker in server.workers() {
        worker.signal(Signal::KILL);
    }
    server.expect_log(mark, "further deaths are counted");
    server.wait_for_full_strength(WORKERS as usize, wait::DEADLINE);
    assert!(upgrade(&server).contains("upgraded to maitred"));
    assert_eq!(http::get(server.address(), "/echo.php?id=1").text(), "1");
}

#[test]
fn a_pool_whose_boot_hangs_again_and_again_does_not_prevent_an_upgrade() {
    let boot = "touch(__DIR__ . '/boots');
        while (file_exists(__DIR__ . '/hang')) { clearstatcache(); usleep(2000); }";
    let root = application(boot, "echo 'fine';");
    let (hang, boots) = (root.path().join("hang"), root.path().join("boots"));
    let server = snapshot(root.path()).workers(1).start();
    std::fs::write(&hang, "").unwrap();
    std::fs::remove_file(&boots).unwrap();
    server.zygote().expect("a zygote").signal(Signal::KILL);
    wait::until_true("a boot that hangs", || boots.exists());
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "has waited for 5 s, is killed");
    server.expect_log(mark, "takes over");
    std::fs::remove_file(&hang).unwrap();
    server.expect_log(mark, "upgraded to maitred");
    assert_eq!(http::get(server.address(), "/").text(), "fine");
}

#[test]
fn a_zygote_that_is_stopped_with_orders_that_it_has_not_taken_does_not_prevent_an_upgrade() {
    const SLOW: u32 = 16;
    let root = document_root(&[ECHO_PAGE, ("slow.php", "<?php usleep(150000); echo 'slow';")]);
    let logs = public_folder();
    let log = logs.path().join("slow.log");
    let slowlog = format!("request_slowlog_timeout = \"50ms\"\nslowlog = {log:?}");
    let server = Setup::new(root.path()).workers(SLOW).pool(&slowlog).start();
    server.zygote().expect("a zygote").signal(Signal::STOP);
    let clients = (0..SLOW).map(|_| Connection::open(server.address()));
    let mut clients: Vec<Connection> = clients.collect();
    // Each slow script is an order, and the socket has room for some 280.
    for _ in 0..40 {
        for client in &mut clients {
            client.send(&Request::get("/slow.php").to_bytes()).expect("it is open");
        }
        for client in &mut clients {
            assert_eq!(client.read_response(false).expect("a response").text(), "slow");
        }
    }
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "which does not take its orders and for which the upgrade has waited");
    server.expect_log(mark, "upgraded to maitred");
    assert_eq!(http::get(server.address(), "/echo.php?id=1").text(), "1");
}
