//! Pools that find their size (`pm = "auto"`).

use std::path::Path;

use maitred_tests::Target;
use maitred_tests::booted::{PATIENCE, application, snapshot};
use maitred_tests::http::{Request, get};
use maitred_tests::load::Load;
use maitred_tests::mariadb::MariaDb;
use maitred_tests::outside::{WAIT_PAGE, command, let_go, occupy, occupy_many, pool, send, text};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::wait;
use tempfile::TempDir;

/// Requests that come at once, and most workers there may be for them.
const BURST: usize = 12;
const ROOM: u32 = 64;

/// Connections that keep the processors full.
const CROWD: usize = 16;

/// A page that works for about two milliseconds, for the load of the test bed.
const WORKS: (&str, &str) = (
    "echo.php",
    "<?php $until = hrtime(true) + 2e6; while (hrtime(true) < $until) { md5('x'); } \
     echo $_GET['id'];",
);

fn site() -> TempDir {
    document_root(&[
        WORKS,
        WAIT_PAGE,
        ("status.php", "<?php echo fpm_get_status()['process-manager'];"),
    ])
}

fn auto(root: &Path) -> Setup {
    Setup::new(root).pm("auto").workers(ROOM)
}

#[test]
fn requests_that_wait_get_workers_and_it_is_told_how_many_and_why() {
    let root = site();
    let server = auto(root.path()).start();
    assert_eq!(server.workers().len(), 1);
    let told = server.log_text();
    let words = format!("(auto, up to {ROOM} workers, PHP ");
    assert!(told.contains(&words), "{told}");
    assert_eq!(get(server.address(), "/status.php").text(), "auto");
    let busy = occupy_many(&server, BURST);
    let many = server.workers().len();
    assert!((BURST..=BURST + 1).contains(&many), "{many} workers");
    server.reload();
    std::fs::write(root.path().join("go"), "").expect("a file can be written");
    drop(busy);
    let load = Load::start(server.address(), CROWD);
    wait::until_true("what requests cost to be known", || {
        pool(&server)["size"]["cpu_seconds"].is_f64()
    });
    let tally = load.stop();
    assert_eq!(tally.failed(), 0, "{tally:?}");
    let size = pool(&server)["size"].clone();
    assert!(size["workers"].as_u64().is_some_and(|workers| workers >= 1));
    assert_eq!(size["terms"]["max_children"], ROOM, "{size}");
    assert!(size["terms"]["cpu"].is_u64() && size["cpu_seconds"].is_f64(), "{size}");
    let told = text(&command(&server, &["status", "www"]).stdout);
    for words in ["workers, by ", "CPU is saturated at ", "requests/s of "] {
        assert!(told.contains(words), "{told}");
    }
    let log = server.log_text();
    assert!(!log.contains("ERROR"), "{log}");
    server.stop();
}

#[test]
fn a_pool_of_which_nobody_says_a_word_finds_its_size() {
    let root = site();
    let server = Server::serve(root.path(), &[]);
    assert_eq!(server.workers().len(), 1);
    let told = server.log_text();
    assert!(told.contains("(auto, up to "), "{told}");
    assert_eq!(get(server.address(), "/status.php").text(), "auto");
    server.stop();
}

#[test]
fn a_fixed_number_of_workers_is_advised_on_and_stays() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    for _ in 0..30 {
        assert_eq!(get(server.address(), "/status.php").text(), "static");
    }
    wait::until_true("what 30 requests cost to be told", || {
        let told = text(&command(&server, &["status", "--advice"]).stdout);
        told.contains("www: pm = \"auto\" would have ") && told.contains("CPU is saturated at ")
    });
    assert!(pool(&server)["size"].is_null());
    assert_eq!(server.workers().len(), 2);
    server.stop();
}

#[test]
fn who_waits_behind_one_that_hangs_gets_a_worker_of_its_own() {
    let root = site();
    let server = auto(root.path()).start();
    let hangs = occupy(&server);
    for _ in 0..3 {
        assert_eq!(get(server.address(), "/status.php").text(), "auto");
    }
    let few = server.workers().len();
    assert!((2..=4).contains(&few), "{few} workers");
    std::fs::write(root.path().join("go"), "").expect("a file can be written");
    drop(hangs);
    server.stop();
}

#[test]
fn scripts_that_hang_take_no_place_from_others_though_processors_are_few() {
    let root = site();
    let server = auto(root.path()).start();
    let load = Load::start(server.address(), CROWD);
    wait::until_true("what requests cost to be known", || {
        pool(&server)["size"]["cpu_seconds"].is_f64()
    });
    let tally = load.stop();
    assert_eq!(tally.failed(), 0, "{tally:?}");
    // More than keep the processors busy: each gets a worker while others hang.
    let hang = occupy_many(&server, BURST);
    assert_eq!(get(server.address(), "/status.php").text(), "auto");
    wait::until_true("all that hang to be seen", || pool(&server)["size"]["hanging"] == BURST);
    let size = pool(&server)["size"].clone();
    let cpu = size["terms"]["cpu"].as_u64();
    assert!(cpu.is_some_and(|cpu| cpu > BURST as u64), "{size}");
    let_go(root.path());
    drop(hang);
    server.stop();
}

/// A page that asks a database at SOCKET, for the load of the test bed.
const ASKS: &str = "<?php mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
    $database = new mysqli('localhost', 'root', '', '', 0, 'SOCKET');
    $database->query('SELECT SLEEP(0.01)'); echo $_GET['id'];";

fn site_with(database: &MariaDb) -> TempDir {
    let socket = database.socket().display().to_string();
    let status = "<?php echo fpm_get_status()['process-manager'];";
    document_root(&[("echo.php", &ASKS.replace("SOCKET", &socket)), ("status.php", status)])
}

#[test]
fn a_database_that_is_gone_costs_the_requests_that_ask_it_and_nothing_when_it_is_back() {
    let mut database = MariaDb::start();
    let root = site_with(&database);
    let server = auto(root.path()).start();
    let load = Load::start(server.address(), CROWD);
    load.wait_for_ok(200);
    database.stop();
    assert_eq!(get(server.address(), "/echo.php?id=1").status, 500);
    assert_eq!(get(server.address(), "/status.php").text(), "auto");
    database.start_again();
    load.wait_for_ok(200);
    let tally = load.stop();
    let others = tally.answers.keys().find(|code| ![200, 500].contains(*code));
    assert_eq!(others, None, "{tally:?}");
    assert_eq!((tally.broken, tally.unconnected, tally.mixed_up), (0, 0, 0));
    let size = pool(&server)["size"].clone();
    assert!(size["workers"].as_u64() < Some(u64::from(ROOM)), "{size}");
    server.stop();
}

#[test]
fn a_database_that_stands_still_takes_no_worker_from_others_and_no_request_from_those_who_wait() {
    let database = MariaDb::start();
    let root = site_with(&database);
    let server = auto(root.path()).start();
    let load = Load::start(server.address(), CROWD);
    load.wait_for_ok(200);
    database.signal(Signal::STOP);
    wait::until_true("all who ask it to be seen hanging", || {
        pool(&server)["size"]["hanging"] == CROWD
    });
    assert_eq!(get(server.address(), "/status.php").text(), "auto");
    database.signal(Signal::CONT);
    load.wait_for_ok(200);
    let tally = load.stop();
    assert_eq!(tally.failed(), 0, "{tally:?}");
    server.stop();
}

#[test]
fn copies_are_made_before_they_are_asked_for_also_where_nobody_says_how_many() {
    let root = application("", "echo getmypid();");
    let server = snapshot(root.path()).pm("auto").workers(8).start();
    server.wait_for_full_strength(3, PATIENCE);
    assert_eq!(pool(&server)["size"]["workers"], 1);
    let ready: Vec<String> = server.workers().iter().map(|copy| copy.pid.to_string()).collect();
    let served: Vec<String> = (0..3).map(|_| get(server.address(), "/").text()).collect();
    assert!(served.iter().all(|copy| ready.contains(copy)), "{served:?} of {ready:?}");
    server.stop();
}

/// More concurrent requests than one process serves, each with its own response.
fn expect_growth(setup: Setup) {
    let server = setup.pm("auto").workers(ROOM).start();
    let load = Load::start(server.address(), CROWD);
    wait::until_true("the pool to grow", || {
        pool(&server)["size"]["workers"].as_u64() >= Some(CROWD as u64 / 2)
    });
    load.wait_for_ok(500);
    let tally = load.stop();
    assert_eq!((tally.failed(), tally.mixed_up), (0, 0), "{tally:?}");
    let log = server.log_text();
    assert!(!log.contains("ERROR"), "{log}");
    server.stop();
}

#[test]
fn copies_become_as_many_as_are_asked_for() {
    let root = application("", "usleep(20000); echo $_GET['id'];");
    expect_growth(snapshot(root.path()));
    expect_growth(snapshot(root.path()).pool("rewinds_per_child = 100"));
}

#[test]
fn workers_that_boot_an_application_become_as_many_as_are_asked_for() {
    let script = "<?php $handle = function () { usleep(20000); echo $_GET['id']; };
        while (frankenphp_handle_request($handle)) {}";
    let root = document_root(&[("index.php", script)]);
    give_to_web_user(root.path());
    let script = root.path().join("index.php");
    let setup = Setup::new(root.path())
        .pool("mode = \"worker\"")
        .pool(&format!("script = {script:?}"))
        .site("front_controller = \"/index.php\"");
    expect_growth(setup);
}

/// Most workers of a pool that a stopped database would fill.
const FEW: u32 = 24;

fn waiting(server: &Server) -> u64 {
    pool(server)["queue"]["now"].as_u64().expect("a number")
}

#[test]
fn a_database_that_stands_still_does_not_take_all_workers_there_may_be() {
    let database = MariaDb::start();
    let root = site_with(&database);
    let patient = "request_queue_timeout = \"60s\"";
    let server = auto(root.path()).workers(FEW).pool(patient).start();
    let load = Load::start(server.address(), CROWD);
    load.wait_for_ok(200);
    database.signal(Signal::STOP);
    wait::until_true("all who ask it to be seen hanging", || {
        pool(&server)["size"]["hanging"] == CROWD
    });
    let more = Load::start(server.address(), CROWD);
    wait::until_true("who asks it too to wait for those", || {
        waiting(&server) >= 2 * CROWD as u64 - u64::from(FEW)
    });
    for _ in 0..10 {
        assert_eq!(get(server.address(), "/status.php").text(), "auto");
    }
    let workers = pool(&server)["workers"].clone();
    assert!(workers["busy"].as_u64() < Some(u64::from(FEW)), "{workers}");
    database.signal(Signal::CONT);
    load.wait_for_ok(200);
    more.wait_for_ok(200);
    for tally in [load.stop(), more.stop()] {
        assert_eq!((tally.failed(), tally.mixed_up), (0, 0), "{tally:?}");
    }
    server.stop();
}

#[test]
fn who_waits_for_others_that_hang_leaves_when_it_likes_and_is_served_when_they_are() {
    let root = site();
    let patient = "request_queue_timeout = \"60s\"";
    let server = auto(root.path()).workers(8).pool(patient).start();
    for _ in 0..30 {
        assert_eq!(get(server.address(), "/status.php").text(), "auto");
    }
    // Of eight a quarter is kept at most, and one at least.
    let hang = occupy_many(&server, 6);
    wait::until_true("all that hang to be seen", || pool(&server)["size"]["hanging"] == 6);
    let mut all: Vec<_> = (0..5).map(|_| send(&server, &Request::get("/wait.php"))).collect();
    wait::until_true("some to wait for those", || waiting(&server) >= 4);
    assert_eq!(get(server.address(), "/status.php").text(), "auto");
    drop(all.split_off(2));
    wait::until_true("who has left to wait no longer", || waiting(&server) < 3);
    let_go(root.path());
    for connection in &mut all {
        let answer = connection.read_response(false).expect("an answer");
        assert_eq!(answer.text(), "waiting");
    }
    for mut connection in hang {
        while !connection.read_chunk().expect("an answer ends").is_empty() {}
    }
    assert_eq!(waiting(&server), 0);
    server.stop();
}

#[test]
fn who_waits_for_others_that_hang_counts_towards_the_queue_and_others_do_not_notice() {
    let root = site();
    let bounds = "request_queue_timeout = \"2s\"\nrequest_queue_length = 6";
    let server = auto(root.path()).workers(8).pool(bounds).start();
    for _ in 0..30 {
        assert_eq!(get(server.address(), "/status.php").text(), "auto");
    }
    let hang = occupy_many(&server, 6);
    wait::until_true("all that hang to be seen", || pool(&server)["size"]["hanging"] == 6);
    // Of eight a quarter is kept at most, and one at least: one of these may have a worker.
    let mut all: Vec<_> = (0..8).map(|_| send(&server, &Request::get("/wait.php"))).collect();
    wait::until_true("as many to wait as may", || waiting(&server) == 6);
    assert_eq!(get(server.address(), "/status.php").text(), "auto");
    for connection in all.iter_mut().skip(1) {
        let answer = connection.read_response(false).expect("an answer");
        assert_eq!(answer.status, 503);
    }
    assert_eq!(get(server.address(), "/status.php").text(), "auto");
    wait::until_true("the log to say so", || {
        server.log_text().contains("of the same kind are held back")
    });
    drop(hang);
    let_go(root.path());
    server.stop();
}

#[test]
fn a_pool_that_may_have_no_worker_begins_with_none_and_answers() {
    let root = site();
    let server = auto(root.path()).pool("min_spare_servers = 0").start();
    assert_eq!(server.workers().len(), 0);
    assert_eq!(get(server.address(), "/status.php").text(), "auto");
    assert_eq!(server.workers().len(), 1, "it stays for who asks next");
    server.stop();
}

#[test]
fn a_pool_in_whose_queue_nobody_may_wait_grows_by_those_that_it_refuses() {
    for least in 0..2 {
        let root = site();
        let bounds = format!("min_spare_servers = {least}\nrequest_queue_length = 0");
        let server = auto(root.path()).pool(&bounds).start();
        let answers = || get(server.address(), "/status.php").status == 200;
        wait::until_true("the first worker", answers);
        let mut busy = None;
        wait::until_true("that one to be kept busy", || {
            let mut client = send(&server, &Request::get("/wait.php?for=go"));
            let head = client.read_head().expect("an answer begins");
            let begins = head.status == 200;
            busy = begins.then_some(client);
            begins
        });
        wait::until_true("another", answers);
        drop(busy);
        let_go(root.path());
        server.stop();
    }
}
