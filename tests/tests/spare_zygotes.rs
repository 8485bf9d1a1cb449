//! Ondemand pools whose PHP stays started while they have no worker (`spare_zygotes`).

use maitred_tests::http::{self, Request};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::{Target, wait};

fn zygote(server: &Server, pool: &str) -> Option<i32> {
    let title = format!("maitred-php: zygote pool {pool}");
    let found = server.processes().into_iter();
    let mut found = found.filter(|process| process.title == title);
    found.next().map(|process| process.pid)
}

fn workers(server: &Server) -> usize {
    let all = server.processes().into_iter();
    all.filter(|process| process.title.starts_with("maitred-php: worker pool ")).count()
}

fn hello(server: &Server, host: &str) {
    let request = Request::new("GET", "/hello.php").header("Host", host);
    assert_eq!(http::ask(server.address(), &request).text(), "hello");
}

#[test]
fn the_php_of_the_ondemand_pools_that_were_asked_last_stays_started() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let setup = |spare: u32| {
        let rests = |name: &str| {
            format!(
                "[pools.{name}]\npm = \"ondemand\"\nmax_children = 2\n\
                 process_idle_timeout = \"1s\"\n\
                 [[sites]]\nhosts = [\"{name}.test\"]\nroot = {:?}\npool = \"{name}\"\n",
                root.path()
            )
        };
        Setup::new(root.path())
            .workers(1)
            .hosts(&["localhost"])
            .top(&format!("spare_zygotes = {spare}"))
            .site(&rests("one"))
            .site(&rests("two"))
    };
    let server = setup(1).start();
    let started = |pool: &str| wait::until("PHP to start", || zygote(&server, pool));
    // Before anybody has asked, the first of the file.
    let first = started("one");
    assert_eq!(zygote(&server, "two"), None);
    hello(&server, "one.test");
    assert_eq!(zygote(&server, "one"), Some(first));
    // A pool counts as asked until its last worker has gone.
    wait::until_true("its worker to leave", || workers(&server) == 1);
    hello(&server, "two.test");
    let second = started("two");
    wait::until_true("the other to rest, and the workers to leave", || {
        zygote(&server, "one").is_none() && workers(&server) == 1
    });
    assert_eq!(zygote(&server, "two"), Some(second), "it stays");
    server.configure(&setup(0));
    server.reload();
    wait::until_true("it to rest, too", || zygote(&server, "two").is_none());
    server.configure(&setup(2));
    server.reload();
    started("one");
    started("two");
    server.stop();
}

#[test]
fn a_spare_php_that_does_not_start_is_told_once_and_not_tried_again_for_nobody() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let broken = format!(
        "[pools.broken]\npm = \"ondemand\"\nmax_children = 1\nrequest_queue_timeout = \"1s\"\n\
         php_admin_value = {{ no_such_setting = 1 }}\n\
         [[sites]]\nhosts = [\"broken.test\"]\nroot = {:?}\npool = \"broken\"\n",
        root.path()
    );
    let server = Setup::new(root.path())
        .workers(1)
        .hosts(&["localhost"])
        .site(&broken)
        // A second failure within a minute is not logged again.
        .under(&["env", "MAITRED_LOG=debug"])
        .start();
    server.expect_log(0, "no_such_setting");
    wait::until_true("it to have gone", || zygote(&server, "broken").is_none());
    let mark = server.log().mark();
    hello(&server, "localhost");
    let request = Request::new("GET", "/hello.php").header("Host", "broken.test");
    // Requests are rejected at first, and then have it tried again.
    wait::until_true("another attempt", || {
        assert_eq!(http::ask(server.address(), &request).status, 503);
        let lines = server.log().since(mark);
        lines.iter().any(|line| line.contains("PHP could not start for pool `broken`"))
    });
    server.stop();
}
