//! Many pools that find their size: their start, and their rest.

use std::fmt::Write as _;
use std::time::Duration;

use maitred_tests::http::{Connection, Request};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, public_folder, write_file};
use maitred_tests::{Target, wait};

/// Pools beside the first.
const POOLS: usize = 24;

/// Zygotes that stay without a worker: `spare_zygotes`.
const SPARE: usize = 2;

/// Most memory that the front shares with pools at rest, in KiB: seven pages for each and its
/// scoreboard, and for the first, which has a worker, some more.
const RESTING_KIB: usize = 28 * (POOLS + 1) + 256;

const HOSTS: [&str; 1] = ["s0.example"];

/// A site for each pool. `idle`: settings of all pools.
fn start(idle: &str) -> (tempfile::TempDir, Server) {
    let folder = public_folder();
    let mut sites = String::new();
    let mut pools = String::from("pool_idle_timeout = \"0\"\n");
    for number in 0..=POOLS {
        let script = format!("<?php echo 'pool {number}';");
        write_file(folder.path(), &format!("s{number}/index.php"), script.as_bytes());
    }
    for number in 1..=POOLS {
        let root = folder.path().join(format!("s{number}"));
        let _ = write!(
            sites,
            "\n[[sites]]\nroot = {root:?}\npool = \"p{number}\"\nhosts = [\"s{number}.example\"]\n"
        );
        let _ = write!(pools, "\n[pools.p{number}]\n{idle}\n");
    }
    let root = folder.path().join("s0");
    let setup = Setup::new(&root).pm("auto").hosts(&HOSTS).site(&sites).pool(&pools);
    let server = setup.start();
    (folder, server)
}

/// Processes of PHP with this word in their titles.
fn titled(server: &Server, word: &str) -> usize {
    let start = format!("maitred-php: {word} pool");
    server.processes().iter().filter(|process| process.title.starts_with(&start)).count()
}

fn workers(server: &Server) -> usize {
    titled(server, "worker")
}

fn ask(server: &Server, number: usize) {
    let mut request = Request::get("/");
    request.headers[0].1 = format!("s{number}.example");
    let response = Connection::open(server.address()).ask(&request).expect("a response");
    assert_eq!(response.text(), format!("pool {number}"));
}

/// Memory of the front that it shares with the workers, in KiB.
fn shared_kib(server: &Server) -> usize {
    let front = server.front().expect("the front runs");
    let status = std::fs::read_to_string(format!("/proc/{}/status", front.pid)).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn the_server_is_ready_before_all_pools_have_started_and_a_requested_pool_starts_first() {
    let (_folder, server) = start("");
    // The last one by name is served before all others have a worker.
    ask(&server, 9);
    let started = workers(&server);
    assert!(started <= POOLS, "{started} pools had a worker before the last one was served");
    wait::until_true("all pools to start", || workers(&server) == POOLS + 1);
    server.stop();
}

#[test]
fn pools_without_requests_end_their_worker_and_their_php_until_the_next_request() {
    let (_folder, server) = start("pool_idle_timeout = \"3s\"\nprocess_idle_timeout = \"1s\"");
    ask(&server, 3);
    ask(&server, 7);
    // The first pool never rests.
    let rest = || workers(&server) == 1 && titled(&server, "zygote") == 1 + SPARE;
    wait::until_within("all pools to rest", Duration::from_secs(60), || rest().then_some(()));
    let titles: Vec<String> = server.processes().into_iter().map(|one| one.title).collect();
    for number in [3, 7] {
        let zygote = format!("zygote pool p{number}");
        assert!(titles.iter().any(|title| title.contains(&zygote)), "{titles:?}");
    }
    // The slots of the workers are given back, which had 64 KiB each.
    wait::until_true("the memory to be given back", || shared_kib(&server) <= RESTING_KIB);
    ask(&server, 12);
    assert_eq!(workers(&server), 2);
    // A reload that changes nothing wakes none.
    assert!(server.reload().contains("reloaded: "));
    wait::until_within("the pool to rest again", Duration::from_secs(60), || rest().then_some(()));
    ask(&server, 12);
    server.stop();
}

/// Pools that a front takes a while to open; the last one by name is that of `o99.example`.
const ONDEMAND_POOLS: usize = 300;

/// Clients that wait for a new front.
const CLIENTS: usize = 24;

#[test]
fn a_new_front_has_all_pools_before_it_accepts_a_client() {
    let root = document_root(&[("index.php", "<?php echo 'hello';")]);
    let mut sites = String::new();
    for number in 1..=ONDEMAND_POOLS {
        let _ = write!(
            sites,
            "\n[[sites]]\nroot = {:?}\npool = \"o{number}\"\nhosts = [\"o{number}.example\"]\n\
             [pools.o{number}]\npm = \"ondemand\"\nmax_children = 2\n",
            root.path()
        );
    }
    let server = Setup::new(root.path()).hosts(&HOSTS).site(&sites).start();
    let mut request = Request::get("/");
    request.headers[0].1 = "o99.example".to_owned();
    for _ in 0..2 {
        let front = server.front().expect("a front");
        front.signal(Signal::KILL);
        wait::until_true("the front to be gone", || !front.is_running());
        let mut clients: Vec<Connection> =
            (0..CLIENTS).map(|_| Connection::open(server.address())).collect();
        for client in &mut clients {
            client.send(&request.to_bytes()).expect("the kernel takes it");
        }
        for mut client in clients {
            assert_eq!(client.read_response(false).expect("a response").text(), "hello");
        }
    }
    server.stop();
}
