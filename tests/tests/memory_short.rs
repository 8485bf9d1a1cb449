//! What pools that find their size do when memory gets short while they serve.

use std::collections::HashSet;
use std::time::Duration;

use maitred_tests::booted::{PATIENCE, application, snapshot};
use maitred_tests::http::{self, Connection, Request, get};
use maitred_tests::load::Load;
use maitred_tests::memory_group::MemoryGroup;
use maitred_tests::outside::{WAIT_PAGE, let_go, occupy_many, pool, send, status, text};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::{Target, wait};

/// What the server and all else may have, in bytes, and the part that is in use when memory is
/// short.
const LIMIT: u64 = 1 << 30;
const SHORT: f64 = 0.94;

/// Copies that are ready beyond those that serve.
const READY: usize = 2;

/// Says who serves; asked to, waits for a file `go` before.
const SERVES: &str = "if (isset($_GET['for'])) {
        echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
        while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
    }
    echo getmypid();";

fn pids(server: &Server) -> Vec<i32> {
    let mut all: Vec<i32> = server.workers().iter().map(|copy| copy.pid).collect();
    all.sort_unstable();
    all
}

fn has_zygote(server: &Server, pool: &str) -> bool {
    let title = format!("maitred-php: zygote pool {pool}");
    server.processes().iter().any(|one| one.title == title)
}

/// What comes of an answer after its header.
fn rest(mut connection: Connection) -> String {
    let mut body = Vec::new();
    loop {
        let chunk = connection.read_chunk().expect("an answer ends");
        match chunk.is_empty() {
            true => return text(&body),
            false => body.extend(chunk),
        }
    }
}

#[test]
fn where_memory_is_short_what_only_waits_goes_first_and_nobody_who_works() {
    let Some(group) = MemoryGroup::with_limit(LIMIT) else {
        return;
    };
    let root = application("", SERVES);
    let rests = format!(
        "[pools.rests]\npm = \"ondemand\"\n[[sites]]\nhosts = [\"rests.test\"]\nroot = {:?}\n\
         pool = \"rests\"\n",
        root.path()
    );
    let setup = snapshot(root.path())
        .pm("auto")
        .workers(8)
        .hosts(&["localhost"])
        .top("spare_zygotes = 1")
        .site(&rests);
    let server = group.holds(setup).start();
    server.wait_for_full_strength(1 + READY, PATIENCE);
    wait::until_true("the PHP of a pool that rests", || has_zygote(&server, "rests"));
    let busy = occupy_many(&server, 2);
    wait::until_true("copies to be ready beyond those", || pids(&server).len() >= 2 + READY);

    let held = group.fill(SHORT);
    wait::until_true("those that work to be all there is", || {
        pids(&server).len() == 2 && !has_zygote(&server, "rests")
    });
    let log = server.log_text();
    assert!(log.contains("memory is short ("), "{log}");
    let works = pids(&server);
    let_go(root.path());
    let mut served: Vec<i32> = busy
        .into_iter()
        .map(|connection| {
            let text = rest(connection);
            let pid = text.strip_prefix("waiting").and_then(|pid| pid.parse().ok());
            pid.expect("the answer is whole")
        })
        .collect();
    served.sort_unstable();
    assert_eq!(served, works);
    // One serves whatever there is, and a pool that rests is still there for who asks it.
    assert_eq!(get(server.address(), "/").status, 200);
    let asks = Request::new("GET", "/index.php").header("Host", "rests.test");
    assert_eq!(http::ask(server.address(), &asks).status, 200);

    drop(held);
    wait::until_within("all that was ready to be so again", PATIENCE, || {
        (pids(&server).len() == 1 + READY && has_zygote(&server, "rests")).then_some(())
    });
    server.stop();
}

/// In bytes: of this there is room for no second copy, and of this for some.
const FOR_ONE: u64 = 160 << 20;
const FOR_SOME: u64 = 1 << 30;

#[test]
fn copies_that_would_only_wait_are_not_made_where_there_is_no_room_and_are_once_there_is() {
    let Some(mut group) = MemoryGroup::with_limit(FOR_ONE) else {
        return;
    };
    let root = application("", "echo getmypid();");
    let setup = snapshot(root.path()).pm("auto").workers(8);
    let server = group.holds(setup).start();
    let mut served = HashSet::new();
    for request in 1..=5 {
        assert!(served.insert(get(server.address(), "/").text()));
        wait::until_true("a copy in its place, and no more", || {
            // It has its title a moment after it was counted.
            let started = &pool(&server)["counters"]["workers_started"];
            *started == request + 1 && server.workers().len() == 1
        });
    }
    group.limit(FOR_SOME);
    // At rest it is looked twice a minute how much there is.
    wait::until_within("copies that wait", PATIENCE, || {
        get(server.address(), "/");
        (server.workers().len() == 1 + READY).then_some(())
    });
    server.stop();
}

/// What a server has whose scripts run programs, what such a program has, both in bytes, and
/// clients that ask at once: there is no room for as many programs.
const OF_PROGRAMS: u64 = 512 << 20;
const PROGRAM_HAS: u64 = 40 << 20;
const CLIENTS: usize = 24;

#[test]
fn what_programs_have_that_scripts_run_counts_as_what_their_workers_have() {
    let Some(group) = MemoryGroup::with_limit(OF_PROGRAMS) else {
        return;
    };
    // A shell has tail(1) for a child, which keeps all of it until the other end is closed.
    let runs = format!(
        "<?php shell_exec('(head -c {PROGRAM_HAS} /dev/zero; sleep 0.2) | tail -c {PROGRAM_HAS} \
         >/dev/null'); echo $_GET['id'];"
    );
    let root = document_root(&[("echo.php", &runs)]);
    let setup = Setup::new(root.path()).pm("auto").workers(64);
    let setup = setup.pool("request_queue_timeout = \"60s\"");
    let server = group.holds(setup).start();
    let load = Load::start(server.address(), CLIENTS);
    load.wait_for_ok(300);
    let size = pool(&server)["size"].clone();
    let tally = load.stop();
    // A killed program goes unnoticed: its script responds all the same.
    assert_eq!(group.killed(), 0, "{size}");
    assert_eq!((tally.failed(), tally.mixed_up), (0, 0), "{tally:?}");
    let room = size["terms"]["memory"].as_u64();
    assert!(room.is_some_and(|room| room < CLIENTS as u64), "{size}");
    server.stop();
}

/// What a page has while it waits, in megabytes, clients of each of two pools that ask for it at
/// once, and what a worker is taken to need of which nothing is known.
const PAGE_MB: usize = 100;
const OF_EACH: usize = 12;
const UNKNOWN: u64 = 128 << 20;

#[test]
fn two_cold_pools_that_want_the_same_memory_are_not_both_promised_it() {
    let Some(group) = MemoryGroup::with_limit(LIMIT) else {
        return;
    };
    let (_, waits) = WAIT_PAGE;
    let holds = waits.replace("<?php", &format!("<?php $held = str_repeat('x', {PAGE_MB} << 20);"));
    let root = document_root(&[("wait.php", &holds)]);
    let other = format!(
        "[pools.other]\npm = \"auto\"\nrequest_queue_timeout = \"60s\"\n\
         [[sites]]\nhosts = [\"other.test\"]\nroot = {:?}\npool = \"other\"\n",
        root.path()
    );
    let setup = Setup::new(root.path())
        .pm("auto")
        .workers(64)
        .hosts(&["localhost"])
        .pool("request_queue_timeout = \"60s\"")
        .site(&other);
    let server = group.holds(setup).start();
    let ask = |host: &str| {
        let request = Request::new("GET", "/wait.php").header("Host", host);
        let all = (0..OF_EACH).map(|_| send(&server, &request));
        all.collect::<Vec<Connection>>()
    };
    let waiting = [ask("localhost"), ask("other.test")];
    let workers = || {
        let all = server.processes().into_iter();
        let workers = all.filter(|one| one.title.starts_with("maitred-php: worker pool "));
        workers.count() as u64
    };
    // Of the tenth that is left alone, one for the pool that came too late may take a part.
    let most = LIMIT * 9 / 10 / UNKNOWN + 1;
    wait::until_true("workers to come", || workers() >= 5);
    let too_many =
        wait::poll(Duration::from_secs(1), || Some(workers()).filter(|workers| *workers > most));
    assert_eq!(too_many, None, "workers, not {most}");
    let_go(root.path());
    // Those that begin now end at once: their answers may come whole, with a length.
    for mut connection in waiting.into_iter().flatten() {
        let answer = connection.read_response(false).expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "waiting"));
    }
    assert_eq!(group.killed(), 0);
    server.stop();
}

/// Holds this many bytes, which each of its children shares with it, until a file `go` is there.
const SHARES: &str = "import ctypes, os, signal, sys, time
held = b'x' * int(sys.argv[1])
libc = ctypes.CDLL(None)
stacks = [ctypes.create_string_buffer(65536) for _ in range(15)]
ends = [ctypes.c_void_p(ctypes.addressof(stack) + 65520) for stack in stacks]
CLONE_VM = 0x100
children = [libc.clone(libc.pause, end, CLONE_VM | signal.SIGCHLD, None) for end in ends]
while not os.path.exists('go'): time.sleep(0.05)
[os.kill(child, signal.SIGKILL) for child in children]";

/// What such a program has, in bytes: with its children it seems to have more than there is.
const SHARED: u64 = 80 << 20;

#[test]
fn a_program_whose_processes_share_their_memory_takes_no_worker_from_another_pool() {
    let Some(group) = MemoryGroup::with_limit(LIMIT) else {
        return;
    };
    let echo = "<?php usleep(50000); echo $_GET['id'];";
    let runs = format!("<?php shell_exec('python3 shares.py {SHARED}'); echo 'ended';");
    let root = document_root(&[("echo.php", echo), ("runs.php", &runs), ("shares.py", SHARES)]);
    let other = format!(
        "[pools.other]\npm = \"auto\"\n[[sites]]\nhosts = [\"other.test\"]\nroot = {:?}\n\
         pool = \"other\"\n",
        root.path()
    );
    let setup = Setup::new(root.path()).pm("auto").workers(64).hosts(&["localhost"]).site(&other);
    let server = group.holds(setup).start();
    let load = Load::start(server.address(), CLIENTS);
    load.wait_for_ok(1000);
    let size = |pool: &str| {
        let pools = status(&server)["pools"].as_array().cloned().unwrap_or_default();
        let found = pools.into_iter().find(|one| one["name"] == pool);
        found.map(|pool| pool["size"].clone()).unwrap_or_default()
    };
    let room = |pool: &str| size(pool)["terms"]["memory"].as_u64();
    let before = size("www");
    assert!(before["workers"].as_u64() > Some(3), "{before}");
    let request = Request::new("GET", "/runs.php").header("Host", "other.test");
    let mut busy = send(&server, &request);
    wait::until_true("the memory of all processes to be counted", || room("other") == Some(1));
    let less = wait::poll(Duration::from_secs(10), || {
        Some(size("www")).filter(|size| size["workers"].as_u64() < Some(3))
    });
    assert_eq!(less, None, "{before}");
    let_go(root.path());
    assert_eq!(busy.read_response(false).expect("an answer").text(), "ended");
    let tally = load.stop();
    assert_eq!((tally.failed(), group.killed()), (0, 0), "{tally:?}");
    server.stop();
}
