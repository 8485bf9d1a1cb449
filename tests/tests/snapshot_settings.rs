//! Which directives hold in copies of a booted application.

use std::fs;

use maitred_tests::booted::{application, snapshot};
use maitred_tests::{Target, http};

#[test]
fn what_the_boot_has_set_holds_over_what_is_set_for_the_folder() {
    let root = application(
        "$before = ini_get('memory_limit') . ' ' . ini_get('precision');
         ini_set('memory_limit', '256M');",
        "echo $before, ', ', ini_get('memory_limit'), ' ', ini_get('precision');",
    );
    fs::write(
        root.path().join(".user.ini"),
        "memory_limit = 64M\nprecision = 7\n",
    )
    .unwrap();
    for line in ["", "rewinds_per_child = 100"] {
        let server = snapshot(root.path()).workers(1).pool(line).start();
        for _ in 0..3 {
            let answer = http::get(server.address(), "/");
            assert_eq!(answer.text(), "64M 7, 256M 7", "{line}");
        }
        server.stop();
    }
}
