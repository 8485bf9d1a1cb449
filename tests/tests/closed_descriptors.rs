//! A script that closes the descriptors of its worker.

use std::time::{Duration, Instant};

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::server::{Setup, document_root};

const CLOSES: &str = "<?php
$c = FFI::cdef('int close(int);', 'libc.so.6');
for ($i = 3; $i < 1024; $i++) { $c->close($i); }
// Files that would take the numbers of those.
for ($i = 0; $i < 30; $i++) { $GLOBALS['f'][] = fopen(__DIR__ . '/opened', 'a'); }
echo 'closed';";

/// A worker that cannot notify the front is replaced before its second request.
#[test]
fn a_worker_whose_descriptors_a_script_has_closed_is_replaced() {
    let hello = "<?php usleep(20_000); echo getmypid();";
    let root = document_root(&[("close.php", CLOSES), ("hello.php", hello), ("opened", "")]);
    let server = Setup::new(root.path())
        .workers(1)
        .pool("php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }")
        .start();
    let address = server.address();
    let before = http::get(address, "/hello.php").text();
    let begun = Instant::now();
    assert_eq!(http::get(address, "/close.php").text(), "closed");
    let after = http::get(address, "/hello.php").text();
    assert_ne!(before, after, "another worker");
    assert!(begun.elapsed() < Duration::from_secs(5));
    server.expect_log(0, "has exited, since a script has closed its descriptors");
    assert_eq!(std::fs::read(root.path().join("opened")).unwrap(), b"", "nothing is written there");
    server.stop();
}
