//! `mode = "snapshot"` in status, metrics and `top`.

use maitred_tests::http;
use maitred_tests::outside::{command, pool, text};
use maitred_tests::server::{Setup, document_root, give_to_web_user};
use maitred_tests::{Target, ports, wait};

const SCRIPT: &str = "<?php
maitred_snapshot();
switch ($_GET['a'] ?? '') {
    case 'fork': if (pcntl_fork() === 0) { exit; } pcntl_wait($status); break;
    case 'fatal': ini_set('memory_limit', '16M'); str_repeat('x', 64 << 20);
}
echo 'fine';";

#[test]
fn status_metrics_and_top_know_what_becomes_of_copies_and_go_on_after_a_reload() {
    let root = document_root(&[("index.php", SCRIPT)]);
    give_to_web_user(root.path());
    let script = root.path().join("index.php");
    let listener = ports::free_address();
    let server = Setup::new(root.path())
        .workers(1)
        .top(&format!("admin = \"{listener}\""))
        .pool("mode = \"snapshot\"\nrewinds_per_child = 1000")
        .pool(&format!("script = {script:?}"))
        .site("front_controller = \"/index.php\"")
        .start();
    let get = |target: &str| http::get(server.address(), target).status;
    for _ in 0..5 {
        assert_eq!(get("/"), 200);
    }
    assert_eq!((get("/?a=fork"), get("/?a=fatal")), (200, 500));
    // The copies that have ended, and those in their place. Each counts when it comes to it.
    let copies = wait::until("figures of seven requests", || {
        let copies = pool(&server)["copies"].clone();
        let stayed = &copies["not_rewound"];
        let have_ended = stayed["forked"] == 1 && stayed["fatal_error"] == 1;
        let is_told = have_ended
            && copies["rewound"].as_u64() >= Some(5)
            && copies["fork_time"]["count"].as_u64() >= Some(5);
        (is_told && copies["spare"] == 3 && copies["private_pages"].is_f64()).then_some(copies)
    });
    assert_eq!(copies["rewound"], 5, "{copies}");
    assert_eq!(copies["fork_time"]["count"], 5, "{copies}");
    assert!(copies["fork_time"]["p50_seconds"].as_f64() > Some(0.0));
    assert!(copies["private_pages"].as_f64() > Some(10.0), "{copies}");
    let generation = copies["generation"].as_u64().unwrap();
    let metrics = wait::until("metrics of the same", || {
        let metrics = http::get(listener, "/metrics").text();
        let told = "maitred_pool_copies_rewound_total{pool=\"www\"} 5";
        metrics.contains(told).then_some(metrics)
    });
    for line in [
        "maitred_pool_copies_spare{pool=\"www\"} 3",
        "maitred_pool_copies_fork_seconds_count{pool=\"www\"} 5",
        "maitred_pool_copies_not_rewound_total{pool=\"www\",reason=\"forked\"} 1",
        "maitred_pool_copies_not_rewound_total{pool=\"www\",reason=\"threads\"} 0",
        &format!("maitred_pool_copies_generation{{pool=\"www\"}} {generation}"),
    ] {
        let mut lines = metrics.lines();
        assert!(lines.any(|found| found == line), "{line} in\n{metrics}");
    }
    let details = text(&command(&server, &["status", "www"]).stdout);
    let expected = format!("copies          of generation {generation}, 3 ready");
    assert!(details.contains(&expected), "{details}");
    assert!(
        details.contains("rewound       5 times; exited instead: 1 fatal_error, 1 forked"),
        "{details}"
    );
    let top = text(&command(&server, &["top", "--once"]).stdout);
    assert!(top.contains("COPIES GENERATION SPARE"), "{top}");
    let reloaded = text(&command(&server, &["reload", "www"]).stdout);
    assert!(reloaded.contains("reloaded: "), "{reloaded}");
    assert_eq!(get("/"), 200);
    wait::until_true("figures of the next generation", || {
        let copies = pool(&server)["copies"].clone();
        copies["generation"].as_u64() > Some(generation) && copies["rewound"] == 6
    });
    server.stop();
}
