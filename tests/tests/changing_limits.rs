//! Limits of the control group that a server is in, changed while it serves: pools that find their
//! size heed them.

use maitred_tests::booted::PATIENCE;
use maitred_tests::load::Load;
use maitred_tests::memory_group::MemoryGroup;
use maitred_tests::outside::{WAIT_PAGE, let_go, occupy_many, pool};
use maitred_tests::processor_group::ProcessorGroup;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::{Target, wait};
use serde_json::Value;

/// Connections that keep the processors full, and a page of some milliseconds of work.
const CROWD: usize = 16;
const WORKS: &str = "<?php for ($i = 0; $i < 20000; $i++) { md5((string) $i); } echo $_GET['id'];";

fn size(server: &Server) -> Value {
    pool(server)["size"].clone()
}

#[test]
fn a_quota_of_processor_time_that_is_halved_and_restored_is_heeded() {
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let Some(group) = ProcessorGroup::with_cores(cores) else {
        return;
    };
    let root = document_root(&[("echo.php", WORKS)]);
    let setup = Setup::new(root.path()).pm("auto").workers(64);
    let server = group.holds(setup).start();
    let load = Load::start(server.address(), CROWD);
    let with = |cores: f64| {
        wait::until_within("the quota to be heeded", PATIENCE, || {
            let size = size(&server);
            let told = size["cores"].as_f64() == Some(cores) && size["cpu_seconds"].is_f64();
            let cpu = size["terms"]["cpu"].as_u64();
            cpu.filter(|_| told)
        })
    };
    let whole = with(cores);
    load.wait_for_ok(100);
    group.cores(cores / 2.0);
    let half = with(cores / 2.0);
    load.wait_for_ok(100);
    group.cores(cores);
    with(cores);
    load.wait_for_ok(100);
    let tally = load.stop();
    assert_eq!((tally.failed(), tally.mixed_up), (0, 0), "{tally:?}");
    assert!(half < whole, "{half} of {whole} workers");
    server.stop();
}

/// The first limit of the server and all else, in bytes, the memory of each request, in
/// megabytes, and the part of the lowered limit that is in use when it is set.
const LIMIT: u64 = 1 << 30;
const PAGE_MB: usize = 20;
const REQUESTS: usize = 16;
const SHORT: f64 = 0.98;

/// As many workers as there is room for, once that is known.
fn room(server: &Server) -> Option<usize> {
    let room = size(server)["terms"]["memory"].as_u64()?;
    usize::try_from(room).ok()
}

fn wait_for_a_worker_for_each(server: &Server) {
    wait::until_within("a worker for each request, and room", PATIENCE, || {
        let least = server.workers().len().min(room(server)?);
        (least >= REQUESTS).then_some(())
    });
}

#[test]
fn a_memory_limit_that_is_lowered_to_what_is_in_use_costs_workers_and_nobody_is_killed() {
    let Some(mut group) = MemoryGroup::with_limit(LIMIT) else {
        return;
    };
    let holds = format!("<?php $held = str_repeat('x', {PAGE_MB} << 20);");
    let (name, waits) = WAIT_PAGE;
    let waits = waits.replace("<?php", &holds);
    let works = format!("{holds} usleep(200000); echo $_GET['id'];");
    let root = document_root(&[(name, &waits), ("echo.php", &works)]);
    let setup = Setup::new(root.path()).pm("auto").workers(64);
    let setup = setup.pool("request_queue_timeout = \"60s\"");
    let server = group.holds(setup).start();
    // Before it is known what a request has, much is kept for each.
    let load = Load::start(server.address(), REQUESTS);
    wait_for_a_worker_for_each(&server);
    load.stop();
    let busy = occupy_many(&server, REQUESTS);

    group.limit((group.used() as f64 / SHORT) as u64);
    wait::until_within("the limit to be heeded", PATIENCE, || {
        (room(&server)? < REQUESTS).then_some(())
    });
    let_go(root.path());
    for mut connection in busy {
        while !connection.read_chunk().expect("the answer is whole").is_empty() {}
    }
    let load = Load::start(server.address(), REQUESTS);
    load.wait_for_ok(200);
    wait::until_within("no more workers than there is room for", PATIENCE, || {
        let room = room(&server)?;
        (server.workers().len() <= room && room < REQUESTS).then_some(())
    });
    group.limit(LIMIT);
    wait_for_a_worker_for_each(&server);
    let tally = load.stop();
    assert_eq!((tally.failed(), tally.mixed_up), (0, 0), "{tally:?}");
    assert_eq!(group.killed(), 0);
    server.stop();
}
