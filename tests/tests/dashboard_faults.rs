//! Planted faults that a stranger to a server names from the dashboard alone.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use maitred_tests::browser::browse;
use maitred_tests::disk_group::DiskGroup;
use maitred_tests::http::{self, Request};
use maitred_tests::mariadb::MariaDb;
use maitred_tests::outside::{site, status};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Setup, give_to_web_user, write_file};
use maitred_tests::{Target, ports, wait};
use serde_json::json;
use tempfile::TempDir;

#[test]
fn a_stranger_finds_a_leak_on_the_page() {
    let worker = b"<?php $all = [];
        while (frankenphp_handle_request(function () use (&$all) {
            $all[] = random_bytes(300_000);
            usleep(100_000);
            echo count($all);
        })) { }";
    let root = site();
    write_file(root.path(), "worker.php", worker);
    write_file(root.path(), "index.php", b"<?php echo 'not run';");
    give_to_web_user(root.path());
    let admin = ports::free_address();
    let server = Setup::new(root.path())
        .workers(1)
        .top(&format!("admin = \"{admin}\""))
        .pool(&format!("mode = \"worker\"\nscript = {:?}", root.path().join("worker.php")))
        .pool("[pools.www.php_admin_value]\nmemory_limit = \"-1\"")
        .start();
    let over = Arc::new(AtomicBool::new(false));
    let traffic = keep_asking(server.address(), "localhost", "/", &over);
    let says = "document.getElementById('findings').innerText.includes('a leak, if that goes on')";
    let found = browse(&json!({
        "url": format!("http://{admin}/dashboard"),
        "views": ["pools", "sizing"],
        "widths": [1280],
        "schemes": ["light"],
        "ready": says,
        "patience": 240,
    }));
    over.store(true, Ordering::SeqCst);
    traffic.join().unwrap();
    let text = |view: usize| found["views"][view]["text"].as_str().unwrap().to_owned();
    assert!(text(0).contains("www: its memory has grown by"), "{}", text(0));
    assert!(text(1).contains("Its memory has grown by"), "{}", text(1));
    server.stop();
}

/// Requests in a loop until `over`.
fn keep_asking(
    address: SocketAddr,
    host: &'static str,
    path: &'static str,
    over: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let over = over.clone();
    std::thread::spawn(move || {
        let request = Request::new("GET", path).header("Host", host);
        while !over.load(Ordering::SeqCst) {
            http::ask(address, &request);
        }
    })
}

/// A site whose scripts are too slow for a worker, fill OPcache, wait for a database and write to a
/// disk.
fn faulty_site(database: &MariaDb) -> TempDir {
    let root = site();
    write_file(root.path(), "slow.php", b"<?php usleep(300000); echo 'slow';");
    let numbers: String = (0..6000).map(|number| format!("{number},")).collect();
    for part in 0..100 {
        let text = format!("<?php return [{part}, {numbers}];");
        write_file(root.path(), &format!("parts/{part}.php"), text.as_bytes());
    }
    let loads = b"<?php for ($n = 0; $n < 100; $n++) { require __DIR__ . \"/parts/$n.php\"; }";
    write_file(root.path(), "loads.php", loads);
    let queries = "<?php $database = new mysqli('localhost', 'stranger', '', '', 0, 'SOCKET');
        $database->query('SELECT SLEEP(0.3)');"
        .replace("SOCKET", database.socket().to_str().unwrap());
    write_file(root.path(), "queries.php", queries.as_bytes());
    // Written over, since new blocks would have others wait for them at the next commit.
    let writes = b"<?php $file = fopen(__DIR__ . '/data/' . $_GET['file'], 'r+');
        fwrite($file, random_bytes(4096)); fsync($file);";
    write_file(root.path(), "writes.php", writes);
    for file in ["0", "1", "2", "3"] {
        write_file(root.path(), &format!("data/{file}"), &[b'x'; 4096]);
        give_to_web_user(&root.path().join("data").join(file));
    }
    give_to_web_user(root.path());
    root
}

fn of_pool(root: &Path, pool: &str) -> String {
    format!("\n[[sites]]\nroot = {root:?}\nhosts = [\"{pool}\"]\npool = \"{pool}\"")
}

#[test]
fn a_stranger_finds_few_workers_a_full_opcache_and_a_slow_disk_or_database_on_the_page() {
    let database = MariaDb::start();
    database.run("CREATE USER stranger@localhost");
    let root = faulty_site(&database);
    let admin = ports::free_address();
    let of = |pool: &str| of_pool(root.path(), pool);
    let setup = Setup::new(root.path())
        .top(&format!("admin = \"{admin}\""))
        .pool("[pools.few]\npm = \"static\"\nmax_children = 1")
        .pool("[pools.slow]\npm = \"static\"\nmax_children = 8")
        .pool("[pools.disk]\npm = \"static\"\nmax_children = 8")
        .pool("[pools.full]\npm = \"static\"\nmax_children = 1\n[pools.full.php_admin_value]")
        .pool("\"opcache.memory_consumption\" = \"8\"")
        .pool("\"opcache.interned_strings_buffer\" = \"1\"")
        .site(&["few", "slow", "disk", "full"].map(of).concat());
    // The first to be dropped is the last.
    let disk = DiskGroup::with_writes(root.path(), 8);
    let setup = disk.as_ref().map_or_else(|| setup.clone(), |disk| disk.holds(setup.clone()));
    let server = setup.start();
    let (address, over) = (server.address(), Arc::new(AtomicBool::new(false)));
    let mut traffic = vec![keep_asking(address, "full", "/loads.php", &over)];
    traffic.extend((0..4).map(|_| keep_asking(address, "few", "/slow.php", &over)));
    traffic.extend((0..4).map(|_| keep_asking(address, "slow", "/queries.php", &over)));
    let mut sentences = vec![
        "few: its only worker is busy",
        "a database or another server is slow, not the disk (",
        "full: OPcache is full",
    ];
    if disk.is_some() {
        let files = ["/writes.php?file=0", "/writes.php?file=1", "/writes.php?file=2"];
        traffic.extend(files.map(|path| keep_asking(address, "disk", path, &over)));
        sentences.push("of their time: the disk is slow (");
    }
    let shown = "document.getElementById('findings').innerText";
    let ready: Vec<String> =
        sentences.iter().map(|one| format!("{shown}.includes({one:?})")).collect();
    let found = browse(&json!({
        "url": format!("http://{admin}/dashboard"),
        "views": ["pools"],
        "widths": [1280],
        "schemes": ["light"],
        "ready": ready.join(" && "),
    }));
    wait::until_true("the status to say what a running script waits for", || {
        let pools = status(&server)["pools"].clone();
        let slow = pools.as_array().unwrap().iter().find(|pool| pool["name"] == "slow").cloned();
        let running = slow.unwrap()["running"].as_array().unwrap().clone();
        running.iter().any(|one| one["waits_for"] == "network")
    });
    database.signal(Signal::STOP);
    let hung = browse(&json!({
        "url": format!("http://{admin}/dashboard"),
        "views": ["pools"],
        "widths": [1280],
        "schemes": ["light"],
        "ready": format!("{shown}.includes('10 s: a database or another server hangs (')"),
    }));
    database.signal(Signal::CONT);
    over.store(true, Ordering::SeqCst);
    traffic.into_iter().for_each(|one| one.join().unwrap());
    let text = hung["views"][0]["text"].as_str().unwrap();
    assert!(text.contains("slow: 4 scripts have run for more than 10 s: a database"), "{text}");
    let text = found["views"][0]["text"].as_str().unwrap();
    assert!(text.contains("more workers would help"), "{text}");
    let of_pool = |pool: &str| text.lines().find(|line| line.starts_with(pool)).unwrap_or_default();
    let slow = of_pool("slow: scripts are blocked");
    assert!(slow.contains("a database or another server is slow, not the disk ("), "{text}");
    if disk.is_some() {
        assert!(of_pool("disk: scripts are blocked").contains("the disk is slow ("), "{text}");
    }
    server.stop();
}
