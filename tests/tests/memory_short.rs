//! What pools that find their size do when memory gets short while they serve.

use maitred_tests::booted::{PATIENCE, application, snapshot};
use maitred_tests::http::{self, Connection, Request, get};
use maitred_tests::memory_group::MemoryGroup;
use maitred_tests::outside::{let_go, occupy_many, text};
use maitred_tests::server::Server;
use maitred_tests::{Target, wait};

/// What the server and all else may have, in bytes, and the part that is in use when memory is short.
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

/// What comes of an answer after its head.
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
        "[pools.rests]\npm = \"ondemand\"\n[[sites]]\nhosts = [\"rests.test\"]\nroot = {:?}\npool = \"rests\"\n",
        root.path()
    );
    let entering = group.entering();
    let server = snapshot(root.path())
        .pm("auto")
        .workers(8)
        .hosts(&["localhost"])
        .top("spare_zygotes = 1")
        .site(&rests)
        .under(&entering.each_ref().map(String::as_str))
        .start();
    server.wait_for_full_strength(1 + READY, PATIENCE);
    wait::until_true("the PHP of a pool that rests", || {
        has_zygote(&server, "rests")
    });
    let busy = occupy_many(&server, 2);
    wait::until_true("copies to be ready beyond those", || {
        pids(&server).len() >= 2 + READY
    });

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
            let pid = text
                .strip_prefix("waiting")
                .and_then(|pid| pid.parse().ok());
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
