//! Purges: after a purge, by any client and under any name, no response has the old page.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use maitred_tests::fastcgi::{self, Wire};
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::ports;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::{Target, maitred_program, wait};
use tempfile::TempDir;

/// Counts its runs for a path, and sends the cache tags of the query. It purges
/// what `tags` and `urls` say, and tells what came of it; after its answer if `late` is there, and
/// not before the file `go` is there if `wait` is.
const PAGE: &str = "<?php
    $file = __DIR__ . '/runs/' . md5(strtok($_SERVER['REQUEST_URI'], '?'));
    file_put_contents($file, 'x', FILE_APPEND | LOCK_EX);
    clearstatcache();
    if (isset($_GET['group'])) { header('Cache-Groups: \"' . $_GET['group'] . '\"'); }
    if (isset($_GET['wait'])) {
        file_put_contents(__DIR__ . '/runs/waits', '');
        while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
    }
    if (isset($_GET['late'])) { echo 'early'; fastcgi_finish_request(); }
    set_error_handler(fn ($level, $text) => print(\"[$text]\"));
    $soft = isset($_GET['soft']);
    foreach (['tags', 'urls'] as $kind) {
        if (isset($_GET[$kind])) {
            header('Cache-Control: no-store');
            $names = array_fill(0, $_GET['many'] ?? 1, $_GET[$kind]);
            $names = array_merge(...$names);
            if (isset($_GET['long'])) { $names[0] = str_repeat($names[0], $_GET['long']); }
            var_dump(('maitred_cache_purge_' . $kind)($names, $soft));
        }
    }
    if (isset($_GET['late'])) { file_put_contents(__DIR__ . '/runs/late', ''); }
    echo 'run ', filesize($file);";

fn site() -> TempDir {
    let root = document_root(&[("index.php", PAGE), ("runs/.keep", "")]);
    give_to_web_user(&root.path().join("runs"));
    root
}

fn setup(root: &TempDir) -> Setup {
    let setup = Setup::new(root.path()).hosts(&["a.example", "www.a.example"]);
    setup.site("[sites.cache]").site("valid = \"1d\"")
}

fn at(server: &Server, method: &str, host: &str, target: &str) -> Response {
    let request = Request::new(method, target).header("Host", host);
    http::ask(server.address(), &request.header("Connection", "close"))
}

fn get(server: &Server, target: &str) -> String {
    at(server, "GET", "a.example", target).text()
}

fn status(server: &Server, target: &str) -> String {
    let answer = at(server, "GET", "a.example", target);
    answer.header("Cache-Status").unwrap_or_default().to_owned()
}

fn command(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(maitred_program());
    command.arg("purge").args(arguments);
    command.arg("--admin-socket").arg(server.admin_socket());
    command.output().expect("maitred can be run")
}

/// What a purge that goes well says.
fn purge(server: &Server, arguments: &[&str]) -> String {
    let output = command(server, arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    said
}

/// The exit code of one that does not, and what it says.
fn refused(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(server, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_command_drops_pages_by_every_name_they_have_and_says_so_in_one_line() {
    let root = site();
    let server = setup(&root).start();
    let pages = ["/a", "/b/1", "/b/2", "/c?group=g", "/d"];
    let now = || pages.map(|page| get(&server, page).replace("run ", ""));
    assert_eq!((now(), now()), (["1"; 5].map(str::to_owned), ["1"; 5].map(str::to_owned)));
    assert_eq!(purge(&server, &["https://a.example/a"]), "dropped: a.example/a\n");
    assert_eq!(now(), ["2", "1", "1", "1", "1"]);
    let both = purge(&server, &["--prefix", "/b/", "--tag", "g"]);
    assert_eq!(both, "dropped: /b/* of a.example, tag g of a.example\n");
    assert_eq!(now(), ["2", "2", "2", "2", "1"]);
    assert_eq!(purge(&server, &["--host", "A.example"]), "dropped: a.example\n");
    assert_eq!(now(), ["3", "3", "3", "3", "2"]);
    purge(&server, &["--everything", "--site", "www.a.example"]);
    assert_eq!(now(), ["4", "4", "4", "4", "3"]);
    assert!(status(&server, "/a").contains("; hit;"));
    assert_eq!(purge(&server, &["a.example/a", "--soft"]), "marked stale: a.example/a\n");
    assert!(status(&server, "/a").contains("detail=updating"));
}

#[test]
fn a_purge_that_is_about_nobodys_pages_is_refused_with_a_reason() {
    let root = site();
    let server = setup(&root).start();
    let (code, why) = refused(&server, &[]);
    assert_eq!((code, why.contains("--everything")), (Some(2), true), "{why}");
    let (code, why) = refused(&server, &["https://other.example/"]);
    assert!(why.contains("no site with a cache"), "{why}");
    assert_eq!(code, Some(2));
    let (code, why) = refused(&server, &["--everything", "--site", "other.example"]);
    assert!(why.contains("no site with a cache has the host other.example"), "{why}");
    assert_eq!(code, Some(2));
    let socket = server.admin_socket();
    server.stop();
    let gone = Command::new(maitred_program())
        .args(["purge", "--everything", "--admin-socket"])
        .arg(socket)
        .output()
        .expect("maitred can be run");
    assert_eq!(gone.status.code(), Some(1));
}

#[test]
fn a_site_without_a_cache_has_nothing_to_purge() {
    let root = site();
    let server = Server::start(root.path());
    assert_eq!(refused(&server, &["--everything"]).0, Some(2));
    let said = http::get(server.address(), "/?tags[]=t").text();
    assert!(said.contains("No site of this pool has a cache]bool(false)"), "{said}");
}

#[test]
fn what_a_script_purges_is_gone_before_it_goes_on() {
    let root = site();
    let server = setup(&root).start();
    let pages = ["/a?group=g", "/b?group=h", "/c"];
    let now = || pages.map(|page| get(&server, page).replace("run ", ""));
    assert_eq!(now(), ["1", "1", "1"]);
    assert_eq!(get(&server, "/x?tags[]=g&tags[]=none"), "bool(true)\nrun 1");
    assert_eq!(now(), ["2", "1", "1"]);
    let urls = "/x?urls[]=http://a.example/c&urls[]=http://a.example/b%3Fgroup%3Dh";
    assert_eq!(get(&server, urls), "bool(true)\nrun 2");
    assert_eq!(now(), ["2", "2", "2"]);
    get(&server, "/x?tags[]=g&soft");
    assert!(status(&server, pages[0]).contains("detail=updating"));
    let said = get(&server, "/x?urls[]=http://b.example/");
    assert!(said.contains("A URL belongs to no site of this pool"), "{said}");
    let long = get(&server, "/x?tags[]=t&long=17000");
    assert!(long.contains("A name is too long]bool(false)"), "{long}");
    assert_eq!(now(), ["3", "2", "2"]);
    // More than there is room for at once; the last is heard, too.
    assert!(get(&server, "/x?tags[]=0123456789&tags[]=h&many=900").contains("bool(true)"));
    assert_eq!(now(), ["3", "3", "2"]);
}

#[test]
fn what_a_script_purges_after_its_answer_is_gone_as_well() {
    let root = site();
    let server = setup(&root).start();
    assert_eq!(get(&server, "/a?group=g"), "run 1");
    assert_eq!(get(&server, "/x?late&tags[]=g"), "early");
    wait::until_true("the script has purged", || root.path().join("runs/late").exists());
    assert_eq!(get(&server, "/a?group=g"), "run 2");
}

#[test]
fn a_script_that_a_web_server_asks_for_purges_the_sites_of_its_pool() {
    let root = site();
    let folder = public_folder();
    let listener = folder.path().join("php.sock");
    let server = setup(&root).pool(&format!("listen = {listener:?}")).start();
    assert_eq!(get(&server, "/a?group=g"), "run 1");
    let script = root.path().join("index.php").display().to_string();
    let params =
        fastcgi::params(root.path(), "/index.php?tags[]=g", &[("SCRIPT_FILENAME", &script)]);
    let answer = Wire::connect(&listener).ask(1, &params, b"");
    assert!(answer.body().starts_with("bool(true)"), "{answer:?}");
    assert_eq!(get(&server, "/a?group=g"), "run 2");
}

#[test]
fn scripts_of_one_pool_purge_nothing_of_anothers_sites() {
    let (root, other) = (site(), site());
    let user = maitred_tests::server::is_root().then_some("user = \"www-data\"\n");
    let lines = format!(
        "[sites.cache]\nvalid = \"10m\"\n[[sites]]\nhosts = [\"b.example\"]\npool = \"other\"\n\
         root = {:?}\n[sites.cache]\nvalid = \"10m\"\n[pools.other]\npm = \"static\"\n\
         max_children = 1\n{}",
        other.path(),
        user.unwrap_or_default()
    );
    let server = Setup::new(root.path()).hosts(&["a.example"]).site(&lines).start();
    let page = |host: &str| at(&server, "GET", host, "/a?group=g").text();
    assert_eq!((page("a.example"), page("b.example")), ("run 1".into(), "run 1".into()));
    get(&server, "/x?tags[]=g");
    assert_eq!((page("a.example"), page("b.example")), ("run 2".into(), "run 1".into()));
    let said = get(&server, "/x?urls[]=http://b.example/a%3Fgroup%3Dg");
    assert!(said.contains("bool(false)"), "{said}");
    assert_eq!(page("b.example"), "run 1");
}

#[test]
fn scripts_that_purge_beyond_their_budget_purge_all_their_pages_and_no_others() {
    let (root, other, pages) = (site(), site(), public_folder());
    give_to_web_user(pages.path());
    let user = maitred_tests::server::is_root().then_some("user = \"www-data\"\n");
    let lines = format!(
        "[sites.cache]\nvalid = \"10m\"\n[[sites]]\nhosts = [\"b.example\"]\npool = \"other\"\n\
         root = {:?}\n[sites.cache]\nvalid = \"10m\"\n[pools.other]\npm = \"static\"\n\
         max_children = 1\n{}",
        other.path(),
        user.unwrap_or_default()
    );
    let dir = format!("cache_dir = {:?}", pages.path());
    let server = Setup::new(root.path()).hosts(&["a.example"]).top(&dir).site(&lines).start();
    let page = |host: &str| at(&server, "GET", host, "/a?group=g").text();
    assert_eq!((page("a.example"), page("b.example")), ("run 1".into(), "run 1".into()));
    let within = get(&server, "/x?tags[]=none&many=2000");
    assert!(within.contains("bool(true)"), "{within}");
    assert_eq!((page("a.example"), page("b.example")), ("run 1".into(), "run 1".into()));
    let beyond = get(&server, "/x?tags[]=none&many=2000");
    assert!(beyond.contains("bool(true)"), "{beyond}");
    assert_eq!((page("a.example"), page("b.example")), ("run 2".into(), "run 1".into()));
    let log = server.log_text();
    assert_eq!(log.matches("purges of cached pages a second").count(), 1, "{log}");
    // 2000 records of 48 bytes, and two of all pages.
    let journal = fs::metadata(pages.path().join("purges")).unwrap().len();
    assert!((90_000..110_000).contains(&journal), "{journal}");
}

#[test]
fn a_purge_over_http_can_be_a_soft_one_and_one_that_is_no_list_is_refused() {
    let root = site();
    let server = setup(&root).site("purge_from = \"127.0.0.1\"").start();
    get(&server, "/a?group=g");
    let ask = |fields: &[(&str, &str)]| {
        let request = Request::new("PURGE", "/").header("Host", "a.example");
        let request =
            fields.iter().fold(request, |request, (name, value)| request.header(name, value));
        http::ask(server.address(), &request.header("Connection", "close"))
    };
    assert_eq!(ask(&[("Cache-Groups", "\"g")]).status, 400);
    assert!(status(&server, "/a?group=g").contains("; hit;"));
    let soft = ask(&[("Cache-Groups", "\"g\""), ("Soft-Purge", "1")]);
    assert_eq!(soft.text(), "stale: tag g\n");
    assert!(status(&server, "/a?group=g").contains("detail=updating"));
}

#[test]
fn an_address_that_no_page_can_have_is_not_remembered() {
    let root = site();
    let listener = ports::free_address();
    let server = setup(&root).hosts(&[]).top(&format!("admin = \"{listener}\"")).start();
    let long = "h".repeat(20_000);
    for (host, count) in [("a.example", 1), (&long, 1), ("b.example", 2)] {
        assert_eq!(at(&server, "POST", host, "/").status, 200);
        let metrics = http::get(listener, "/metrics").text();
        let mut lines = metrics.lines();
        let counted = lines.find_map(|line| line.strip_prefix("maitred_cache_purges_total{"));
        let counted = counted.and_then(|line| line.rsplit(' ').next());
        assert_eq!(counted, Some(count.to_string().as_str()), "{metrics}");
    }
}

#[test]
fn a_purge_that_comes_while_the_front_is_replaced_is_done_by_the_next_one() {
    let root = site();
    let pages = public_folder();
    give_to_web_user(pages.path());
    let dir = format!("cache_dir = {:?}", pages.path());
    let server = setup(&root).top(&dir).start();
    assert_eq!(get(&server, "/a"), "run 1");
    // A front that is stopped hears nothing, and one that is killed has not heard it.
    let front = server.front().expect("there is a front");
    front.signal(Signal::STOP);
    let told = thread::scope(|scope| {
        let told = scope.spawn(|| purge(&server, &["a.example/a"]));
        wait::until_true("the purge is on its way", || {
            let path = server.admin_socket();
            let connections = fs::read_to_string("/proc/net/unix").unwrap_or_default();
            let path = path.display().to_string();
            connections.lines().filter(|line| line.ends_with(&path)).count() > 1
        });
        front.signal(Signal::KILL);
        told.join().expect("the command ends")
    });
    assert_eq!(told, "dropped: a.example/a\n");
    wait::until_true("the new front answers", || {
        let request = Request::get("/b").header("Connection", "close");
        http::try_ask(server.address(), &request).is_ok()
    });
    assert_eq!(get(&server, "/a"), "run 2");
}

fn asks(connection: &mut Connection, target: &str) -> String {
    let request = Request::new("GET", target).header("Host", "a.example");
    connection.ask(&request).expect("an answer").text()
}

fn files(folder: &Path) -> usize {
    let folders = fs::read_dir(folder).expect("the folder is there");
    let within = folders.filter_map(|folder| fs::read_dir(folder.ok()?.path()).ok());
    within.map(Iterator::count).sum()
}

#[test]
fn while_two_fronts_serve_a_purge_reaches_both_and_the_files() {
    let root = site();
    let pages = public_folder();
    give_to_web_user(pages.path());
    let dir = format!("cache_dir = {:?}", pages.path());
    let server = setup(&root).workers(4).top(&dir).start();
    let kept = ["/a?group=g", "/b?group=h", "/c?group=i"];
    let mut old = kept.map(|page| {
        let mut connection = Connection::open(server.address());
        assert_eq!(asks(&mut connection, page), "run 1");
        connection
    });
    let mut waits = Connection::open(server.address());
    let request = Request::new("GET", "/x?wait&tags[]=g").header("Host", "a.example");
    waits.send(&request.to_bytes()).expect("a request");
    wait::until_true("the script waits", || root.path().join("runs/waits").exists());
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to maitred");
    // The new front has the files when the old one has let go of them.
    let before = files(pages.path());
    wait::until_true("the new front keeps pages in files", || {
        get(&server, &format!("/probe/{}", files(root.path())));
        files(pages.path()) > before
    });
    assert_eq!(get(&server, kept[0]), "run 1", "what the old one has kept");
    fs::write(root.path().join("go"), "").expect("a file can be written");
    let answer = waits.read_response(false).expect("an answer");
    assert!(answer.text().starts_with("bool(true)"), "{}", answer.text());
    assert_eq!(get(&server, kept[0]), "run 2", "purged by a script of the old one");
    assert_eq!(get(&server, kept[1]), "run 1");
    purge(&server, &["--tag", "h"]);
    assert_eq!(get(&server, kept[1]), "run 2", "purged by a command");
    assert_eq!(asks(&mut old[1], kept[1]), "run 3", "in the old one, too");
    assert_eq!(get(&server, "/y?tags[]=i"), "bool(true)\nrun 1");
    assert_eq!(asks(&mut old[2], kept[2]), "run 2", "purged by a script of the new one");
}

/// Pages of the test below, if it is not said how many (`MAITRED_MANY_PAGES`).
const MANY_PAGES: usize = 200;

/// The longest time of a purge, on a busy machine. The test prints the time on an idle one.
const PURGE_LIMIT: Duration = Duration::from_secs(10);

#[test]
fn a_tenth_of_many_pages_is_purged_in_no_time_wherever_they_are() {
    let script = "<?php header('Cache-Groups: \"' . $_GET['group'] . '\"');
        echo str_repeat('a page ', 100);";
    let root = document_root(&[("index.php", script)]);
    let pages = public_folder();
    give_to_web_user(pages.path());
    let many = std::env::var("MAITRED_MANY_PAGES").ok();
    let many = many.map_or(MANY_PAGES, |many| many.parse().expect("a number"));
    let dir = format!("cache_dir = {:?}", pages.path());
    // Most are on disk alone, and stay there however long it takes to ask for all of them.
    let tiers = "cache_memory = \"1M\"\ncache_inactive = \"1d\"";
    let server = setup(&root).top(&dir).top(tiers).start();
    let group = |page| if page % 10 == 0 { "tenth" } else { "other" };
    let urls = (0..many).map(|page| format!("http://a.example/{page}?group={}\n", group(page)));
    let list = root.path().join("urls.txt");
    fs::write(&list, urls.collect::<String>()).expect("a file can be written");
    let warm = || {
        let output = Command::new(maitred_program())
            .args(["warm", "--json", "--rate", "100000", "--limit", "1000000"])
            .arg("--config")
            .arg(server.configuration())
            .arg("--urls-file")
            .arg(&list)
            .output()
            .expect("maitred can be run");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        [&json["stored"], &json["there"]].map(|count| count.as_u64().expect("a count") as usize)
    };
    assert_eq!(warm(), [many, 0]);
    let ask = |request: &str| {
        let mut socket = UnixStream::connect(server.admin_socket()).expect("the socket is there");
        let begun = Instant::now();
        socket.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        let read = BufReader::new(&socket).read_line(&mut answer);
        read.expect("an answer");
        (begun.elapsed(), answer)
    };
    let (took, answer) =
        ask("{\"do\":\"purge\",\"targets\":[{\"tag\":\"tenth\"}],\"how\":\"hard\"}\n");
    assert_eq!(answer, "{\"purged\":{\"what\":[\"tag tenth of a.example\"]}}\n");
    println!("{many} pages, {} of them purged in {took:?}", many / 10);
    assert!(took < PURGE_LIMIT, "{took:?}");
    // The next request for one of them makes it again.
    assert_eq!(warm(), [many / 10, many - many / 10]);
}
