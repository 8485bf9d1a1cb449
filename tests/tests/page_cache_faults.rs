//! A failure of the page cache concerns one request only: scripts that
//! end early or lie, PHP that hangs, is busy or down, hostile requests.

use std::fs;

use maitred_tests::Target;
use maitred_tests::cached::{
    flag, get, is_hit, kill_front, pages, request, runs, setup, site, status, with,
};
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::http2;
use maitred_tests::outside::{page_cache, status as told};
use maitred_tests::processes::Signal;
use maitred_tests::server::Server;
use maitred_tests::wait;
use tempfile::TempDir;

#[test]
fn what_ends_early_or_lies_about_its_length_is_not_kept() {
    let root = site();
    let server = setup(&root, &[]).start();
    for (path, why) in [
        ("/killed", "end=killed"),
        ("/fatal", "end=fatal"),
        ("/memory", "end=memory"),
        ("/short", "h[]=Content-Length:%20200"),
        ("/long", "h[]=Content-Length:%202"),
    ] {
        let target = format!("{path}?{why}");
        for _ in 0..2 {
            // The client gets what there is, and can tell that it is incomplete.
            let _ = http::try_ask(server.address(), &request(&target, &[]));
        }
        let kept = page_cache(&server)["memory"]["pages"].clone();
        assert_eq!(kept, 0, "{target}");
    }
    wait::until_true("all to be counted", || {
        page_cache(&server)["sites"][0]["not_stored"]["incomplete"] == 10
    });
    // What goes wrong when the answer is over does not concern it.
    get(&server, "/finished?end=finished");
    wait::until_true("the page is kept", || is_hit(&get(&server, "/finished?end=finished")));
}

#[test]
fn a_page_is_made_to_its_end_however_the_client_leaves_who_asked_for_it() {
    let root = site();
    let server = setup(&root, &["lock_timeout = \"60s\""]).start();
    let target = |name: &str| format!("/{name}?end=pause");
    let begun = |count| wait::until_true("the script to run", || runs(&root) >= count);
    let mut reads = Connection::open(server.address());
    reads.send(&request(&target("reads"), &[]).to_bytes()).unwrap();
    reads.read_until(b"run 1 ").unwrap();
    drop(reads);
    let mut resets = http2::Connection::open(server.address(), &[]);
    resets.ask(1, &target("resets"));
    begun(2);
    let cancel = http2::frame(3, 0, 1, &8u32.to_be_bytes());
    resets.send(&cancel).unwrap();
    fs::write(flag(&root, "go"), "").unwrap();
    for name in ["reads", "resets"] {
        assert_eq!(get(&server, &target(name)).text(), "run 1 and its end", "{name}");
    }
    fs::remove_file(flag(&root, "go")).unwrap();
    let mut goes = http2::Connection::open(server.address(), &[]);
    goes.ask(1, &target("goes"));
    begun(3);
    drop(goes);
    fs::write(flag(&root, "go"), "").unwrap();
    assert_eq!(get(&server, &target("goes")).text(), "run 1 and its end");
}

#[test]
fn what_is_said_too_late_is_no_part_of_an_answer_for_anybody() {
    let root = site();
    let server = setup(&root, &[]).start();
    let first = get(&server, "/a?end=cookie");
    let second = get(&server, "/a?end=cookie");
    assert!(is_hit(&second), "{}", status(&second));
    for answer in [first, second] {
        assert_eq!(answer.header("Set-Cookie"), None);
        assert_eq!(answer.text(), "run 1 ");
    }
}

#[test]
fn an_address_whose_vary_changes_gives_each_what_is_theirs() {
    let root = site();
    let server = setup(&root, &["purge_from = \"127.0.0.1\""]).start();
    let of = |a: &str, b: &str| with(&server, "/a", &[("X-A", a), ("X-B", b)]).text();
    let says = |field: &str| fs::write(flag(&root, "vary"), field).unwrap();
    let purge = || {
        let purge = Request::new("PURGE", "/a").header("Host", "localhost");
        http::ask(server.address(), &purge.header("Connection", "close"))
    };
    says("Vary: X-A");
    assert_eq!([of("1", "1"), of("2", "1"), of("1", "2")], ["run 1 ", "run 2 ", "run 1 "]);
    // The response to another client varies by another header.
    says("Vary: X-B");
    assert_eq!(of("3", "1"), "run 3 ");
    assert_eq!([of("1", "1"), of("1", "2"), of("9", "2")], ["run 3 ", "run 4 ", "run 4 "]);
    purge();
    says("X-None: 1");
    assert_eq!([of("1", "1"), of("2", "2")], ["run 5 ", "run 5 "]);
    purge();
    says("Vary: X-A, X-B");
    assert_eq!([of("1", "1"), of("2", "1"), of("1", "1")], ["run 6 ", "run 7 ", "run 6 "]);
    purge();
    assert_eq!([of("1", "1"), of("2", "1")], ["run 8 ", "run 9 "]);
    purge();
    says("Vary: *");
    assert_eq!([of("1", "1"), of("1", "1")], ["run 10 ", "run 11 "]);
}

#[test]
fn who_waits_for_a_page_that_hangs_has_one_made_of_his_own() {
    let root = site();
    let server = setup(&root, &["lock_timeout = \"1s\""]).start();
    fs::write(flag(&root, "hold"), "").unwrap();
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| get(&server, "/a"));
        wait::until_true("the script to run", || runs(&root) >= 1);
        fs::remove_file(flag(&root, "hold")).unwrap();
        let own = get(&server, "/a");
        assert_eq!(own.text(), "run 2 ");
        let why = "maitred; fwd=uri-miss; fwd-status=200; collapsed; detail=lock-timeout";
        assert_eq!(status(&own), why);
        fs::write(flag(&root, "go"), "").unwrap();
        assert_eq!(hangs.join().unwrap().text(), "run 1 ");
    });
    let kept = get(&server, "/a");
    assert!(is_hit(&kept) && kept.text() == "run 1 ", "{}", status(&kept));
}

#[test]
fn a_page_that_the_queue_refuses_to_make_is_made_when_there_is_room() {
    let root = site();
    let server = setup(&root, &["stale_if_error = \"1h\""])
        .workers(1)
        .pool("request_queue_length = 1")
        .start();
    // Long enough that no request waits in the spare slots of a busy worker.
    let stale = "/stale?ms=20&h[]=Cache-Control:%20max-age=600&h[]=Age:%20700";
    assert_eq!(get(&server, stale).text(), "run 1 ");
    std::thread::scope(|scope| {
        let asking = |target: &'static str| scope.spawn(|| get(&server, target));
        let busy = asking("/busy?wait");
        wait::until_true("the worker to be busy", || runs(&root) >= 2);
        let waits = asking("/waits");
        wait::until_true("the queue to be full", || told(&server)["pools"][0]["queue"]["now"] == 1);
        let refused = get(&server, "/a");
        assert_eq!((refused.status, status(&refused)), (503, ""));
        let stood_in = get(&server, stale);
        assert_eq!((stood_in.status, stood_in.text().as_str()), (200, "run 1 "));
        assert!(status(&stood_in).ends_with("detail=error"), "{}", status(&stood_in));
        fs::write(flag(&root, "go"), "").unwrap();
        for asked in [busy, waits] {
            assert_eq!(asked.join().unwrap().status, 200);
        }
    });
    assert_eq!(get(&server, "/a").text(), "run 1 ");
    assert!(is_hit(&get(&server, "/a")));
    assert_eq!(get(&server, stale).text(), "run 2 ");
}

#[test]
fn a_page_that_is_purged_while_its_script_runs_stands_in_for_no_error() {
    let root = site();
    let server = setup(&root, &["stale_if_error = \"1h\"", "purge_from = \"127.0.0.1\""]).start();
    let target = "/a?h[]=Cache-Control:%20max-age=600&h[]=Age:%20700";
    assert_eq!(get(&server, target).text(), "run 1 ");
    fs::write(flag(&root, "vary"), "HTTP/1.1 500 Broken").unwrap();
    let stale = get(&server, target);
    assert_eq!((stale.status, stale.text().as_str()), (200, "run 1 "));
    fs::write(flag(&root, "hold"), "").unwrap();
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| get(&server, target));
        wait::until_true("the script to run", || runs(&root) >= 3);
        let purge = Request::new("PURGE", target).header("Host", "localhost");
        let purged = http::ask(server.address(), &purge.header("Connection", "close"));
        assert_eq!(purged.status, 200, "{}", purged.text());
        fs::write(flag(&root, "go"), "").unwrap();
        asked.join().unwrap()
    });
    assert_eq!((answer.status, answer.text().as_str()), (500, "run 3 "));
}

#[test]
fn while_php_is_down_every_kept_page_is_answered_and_said_to_be_stale() {
    let root = site();
    let lines = ["stale_if_error = \"1h\"", "lock_timeout = \"60s\""];
    let setup = setup(&root, &lines).pool("request_queue_timeout = \"500ms\"");
    let server = setup.start();
    let page = |number: usize| format!("/{number}?h[]=Cache-Control:%20max-age=600&h[]=Age:%20700");
    for number in 0..10 {
        assert_eq!(get(&server, &page(number)).text(), "run 1 ");
    }
    let zygote = server.zygote().expect("a zygote runs");
    zygote.signal(Signal::STOP);
    for worker in server.workers() {
        worker.signal(Signal::KILL);
    }
    wait::until_true("no worker", || server.workers().is_empty());
    // Each of them by several at once; none has to wait behind another's failure.
    let mut clients = Vec::new();
    for number in (0..10).chain(0..10).chain(0..10).chain(0..10) {
        let mut connection = Connection::open(server.address());
        connection.send(&request(&page(number), &[]).to_bytes()).unwrap();
        clients.push(connection);
    }
    let begun = std::time::Instant::now();
    for mut client in clients {
        let answer = client.read_response(false).expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "run 1 "));
        let said = status(&answer);
        assert!(said.starts_with("maitred; hit; ttl=-"), "{said}");
        assert!(said.ends_with("; detail=error"), "{said}");
    }
    assert!(begun.elapsed() < wait::DEADLINE, "no request waited for the lock");
    assert_eq!(get(&server, "/never-kept").status, 503);
    zygote.signal(Signal::CONT);
    wait::until_true("PHP to be back", || get(&server, &page(0)).text() == "run 2 ");
}

/// Raises the limit of open files as far as it goes.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised).expect("the limit can be raised");
}

#[test]
fn a_thousand_who_ask_for_one_cold_page_have_php_run_once() {
    let root = site();
    let server = setup(&root, &["lock_timeout = \"60s\""]).start();
    raise_file_limit();
    let ask = request("/a?wait", &[]).to_bytes();
    let mut clients = Vec::new();
    for _ in 0..1000 {
        let mut connection = Connection::open(server.address());
        connection.send(&ask).unwrap();
        clients.push(connection);
    }
    wait::until_true("999 to wait", || page_cache(&server)["waiting"] == 999);
    fs::write(flag(&root, "go"), "").unwrap();
    for mut client in clients {
        let answer = client.read_response(false).expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "run 1 "));
    }
    let requests = page_cache(&server)["sites"][0]["requests"].clone();
    assert_eq!((&requests["miss"], &requests["hit"]), (&1.into(), &999.into()));
}

#[test]
fn no_request_can_put_words_into_the_page_that_others_get() {
    let root = site();
    let server = setup(&root, &["ignore_parameters = \"utm_*\""])
        .hosts(&["shop.example", "*.shop.example"])
        .start();
    let target = "/a?host";
    let huge = format!("/a?host&x={}", "y".repeat(20_000));
    let attacks: [(&str, &[(&str, &str)]); 15] = [
        (target, &[("X-Forwarded-Host", "evil.example")]),
        (target, &[("x-forwarded-hOST", "evil.example")]),
        (target, &[("X_Forwarded_Host", "evil.example")]),
        (target, &[("X.Forwarded.Host", "evil.example")]),
        (target, &[("X-Original-URL", "/evil.example")]),
        (target, &[("X-Rewrite-URL", "/evil.example")]),
        (target, &[("Forwarded", "host=evil.example")]),
        (target, &[("X-HTTP-Method-Override", "evil.example")]),
        (target, &[("Host", "evil.example")]),
        (target, &[("Host", "shop.example@evil.example")]),
        (target, &[("Host", "evil.shop.example")]),
        (target, &[("Host", "shop.example:evil.example")]),
        ("http://evil.example/a?host", &[("Host", "shop.example")]),
        ("/a?utm_source=evil.example&host", &[]),
        ("/a?host&utm_x=evil.example", &[]),
    ];
    for (target, fields) in attacks {
        let host = [("Host", "shop.example")];
        let has_host = fields.iter().any(|(name, _)| *name == "Host");
        let all: Vec<_> = if has_host { fields.to_vec() } else { [&host, fields].concat() };
        let answer = http::try_ask(server.address(), &request(target, &all));
        let took = answer.map(|answer| (answer.status, status(&answer).to_owned()));
        let clean = with(&server, "/a?host", &host);
        assert!(!clean.text().contains("evil"), "{target} {fields:?}: {took:?}");
    }
    for target in ["/a%00?host", "/a%00.php?host", "/%2e%2e/a?host", &huge] {
        let answer = with(&server, target, &[("Host", "shop.example")]);
        assert!(!is_hit(&answer), "{target}");
    }
    // A path's letters count, a host's do not; another way to write a path is another page.
    let hit = |target: &str, host: &str| is_hit(&with(&server, target, &[("Host", host)]));
    assert!(hit(target, "SHOP.example") && hit(target, "shop.example:80"));
    assert!(!hit("/A?host", "shop.example") && !hit("/%61?host", "shop.example"));
    assert!(!hit("/a?host=", "shop.example") && !hit("/a?Host", "shop.example"));
    assert!(!hit(target, "shop.example."));
    // Two headers of a name, and a body where there should be none.
    let two = [("Host", "shop.example"), ("Host", "evil.example")];
    let two = two
        .iter()
        .fold(Request::new("GET", target), |request, (name, value)| request.header(name, value));
    assert_eq!(http::ask(server.address(), &two).status, 400);
    let fat = request(target, &[("Host", "shop.example")]).body(b"host=evil.example");
    assert!(!is_hit(&http::ask(server.address(), &fat)));
}

#[test]
fn a_post_purges_pages_also_if_its_client_leaves_before_the_response() {
    let root = site();
    let server = setup(&root, &[]).start();
    let page = "/p?h[]=Cache-Groups:%20%22t%22";
    let change = "/change?ms=1000&h[]=Cache-Group-Invalidation:%20%22t%22";
    for is_http2 in [false, true] {
        for target in [page, change] {
            get(&server, target);
            assert!(is_hit(&get(&server, target)), "{target}");
        }
        let post = Request::new("POST", change).header("Host", "localhost");
        if is_http2 {
            reset(&server, &root, change)
        } else {
            abandon(&server, &root, &post)
        }
        for target in [page, change] {
            wait::until_true("the page to be purged", || !is_hit(&get(&server, target)));
        }
    }
}

#[test]
fn a_get_purges_pages_for_litespeed_also_if_its_client_leaves_before_the_response() {
    let root = site();
    let server = setup(&root, &["litespeed = true"]).start();
    let page = "/p?h[]=X-LiteSpeed-Tag:%20t";
    get(&server, page);
    assert!(is_hit(&get(&server, page)));
    let change = Request::new("GET", "/change?ms=1000&h[]=X-LiteSpeed-Purge:%20tag=t");
    let change = change.header("Host", "localhost").header("Cookie", "PHPSESSID=a");
    abandon(&server, &root, &change);
    wait::until_true("the page to be purged", || !is_hit(&get(&server, page)));
}

#[test]
fn so_does_a_get_whose_response_is_not_for_the_cache() {
    let root = site();
    let server = setup(&root, &["litespeed = true", "no_store_paths = [\"/job*\"]"]).start();
    let page = "/p?h[]=X-LiteSpeed-Tag:%20t";
    let job = "/job?ms=1000&h[]=X-LiteSpeed-Purge:%20tag=t";
    let change = "/change?ms=1000&h[]=X-LiteSpeed-Purge:%20tag=t&h[]=Cache-Control:%20no-store";
    // From now on, requests for it do not wait for each other.
    get(&server, change);
    for target in [job, change] {
        get(&server, page);
        assert!(is_hit(&get(&server, page)), "{target}");
        let request = Request::new("GET", target).header("Host", "localhost");
        abandon(&server, &root, &request);
        wait::until_true("the page to be purged", || !is_hit(&get(&server, page)));
    }
}

/// Sends a request, and closes the connection when its script runs.
fn abandon(server: &Server, root: &TempDir, request: &Request) {
    let before = runs(root);
    let mut connection = Connection::open(server.address());
    connection.send(&request.to_bytes()).expect("the request can be sent");
    wait::until_true("the script to run", || runs(root) > before);
}

/// Sends a POST by HTTP/2, and resets its stream when its script runs.
fn reset(server: &Server, root: &TempDir, target: &str) {
    let before = runs(root);
    let mut connection = http2::Connection::open(server.address(), &[]);
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", target)];
    let fields = http2::fields(&[&fields[..], &[(":authority", "localhost")]].concat());
    connection.ask_with(1, &fields, http2::END_STREAM);
    wait::until_true("the script to run", || runs(root) > before);
    connection.send(&http2::frame(3, 0, 1, &8u32.to_be_bytes())).expect("the request can be sent");
}

#[test]
fn tenants_neither_see_nor_purge_each_others_pages() {
    let (root, other) = (site(), site());
    let lines = format!(
        "litespeed = true\npurge_from = \"127.0.0.1\"\n\
         [[sites]]\nhosts = [\"b.example\"]\npool = \"other\"\nroot = {:?}\n\
         [sites.cache]\nvalid = \"10m\"\nlitespeed = true\n\
         [pools.other]\nmax_children = 1\npm = \"static\"",
        other.path()
    );
    let (_dir, line) = pages();
    let server = setup(&root, &[&lines]).hosts(&["a.example"]).top(&line).start();
    let at = |method: &str, host: &str, target: &str| {
        let request = Request::new(method, target).header("Host", host);
        http::ask(server.address(), &request.header("Connection", "close"))
    };
    let page = "/p?h[]=X-LiteSpeed-Tag:%20t&h[]=Cache-Groups:%20%22t%22";
    let runs = |host: &str| at("GET", host, page).text();
    assert_eq!([runs("a.example"), runs("b.example")], ["run 1 ", "run 1 "]);
    let mut run = 1;
    for (method, target) in [
        ("GET", "/x1?h[]=X-LiteSpeed-Purge:%20*"),
        ("GET", "/x2?h[]=X-LiteSpeed-Purge:%20tag=t"),
        ("POST", "/x3?h[]=Cache-Group-Invalidation:%20%22t%22"),
        ("PURGE", "/*"),
    ] {
        at(method, "a.example", target);
        run += 1;
        assert_eq!(runs("a.example"), format!("run {run} "), "{target}");
        assert_eq!(runs("b.example"), "run 1 ", "{target}");
    }
    // Naming the other's address does not do it, and PURGE there is a request like any other.
    let named = "/x4?h[]=Location:%20http://b.example/p&h[]=Content-Location:%20//b.example/p";
    at("POST", "a.example", named);
    let tried = at("PURGE", "b.example", "/*");
    assert_ne!(tried.text(), "dropped: b.example/*\n");
    assert_eq!(runs("b.example"), "run 1 ");
    kill_front(&server);
    assert_eq!([runs("a.example"), runs("b.example")], [format!("run {run} "), "run 1 ".into()]);
}
