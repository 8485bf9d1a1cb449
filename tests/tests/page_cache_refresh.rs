//! Refreshes of pages, and the requests that wait for them: the response of a refresh counts, with
//! or without a client.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::outside::page_cache;
use maitred_tests::rules::{USER, basic};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, public_folder, write_file,
};
use maitred_tests::wait;
use tempfile::TempDir;

/// Counts its runs for a name in `runs/NAME`. While `NAME.hold` is there, run 2 waits for
/// `NAME.go2`. It says the lines of `NAME.say` and the status of `NAME.status`; with `NAME.etag` it
/// has a tag, and says 304 to who has that. With `NAME.user` it shows the user.
const PAGE: &str = "<?php
    $name = __DIR__ . '/runs/' . basename(strtok($_SERVER['REQUEST_URI'], '?'));
    file_put_contents($name, 'x', FILE_APPEND | LOCK_EX);
    clearstatcache();
    $run = filesize($name);
    while (file_exists(\"$name.hold\") && !file_exists(\"$name.go$run\")) {
        clearstatcache();
        usleep(2000);
    }
    if (is_file(\"$name.say\")) {
        foreach (file(\"$name.say\", FILE_IGNORE_NEW_LINES) as $line) header($line);
    }
    if (is_file(\"$name.etag\")) {
        header('ETag: \"1\"');
        if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '\"1\"') { http_response_code(304); exit; }
    }
    if (is_file(\"$name.status\")) http_response_code((int) file_get_contents(\"$name.status\"));
    echo \"run $run\";
    if (is_file(\"$name.user\")) echo ' for ', $_SERVER['REMOTE_USER'] ?? 'none';";

struct Bed {
    root: TempDir,
    server: Server,
}

impl Bed {
    fn new(lines: &[&str]) -> Bed {
        Bed::with(lines, |setup| setup)
    }

    fn with(lines: &[&str], more: impl FnOnce(Setup) -> Setup) -> Bed {
        let root = document_root(&[("index.php", PAGE), ("runs/.keep", "")]);
        give_to_web_user(&root.path().join("runs"));
        let setup = more(Setup::new(root.path()).workers(6)).site("[sites.cache]");
        let setup = setup.site("purge_from = \"127.0.0.1\"");
        let setup = lines.iter().fold(setup, |setup, line| setup.site(line));
        let server = setup.start();
        Bed { root, server }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join("runs").join(name)
    }

    fn say(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("a file can be written");
    }

    fn runs(&self, name: &str) -> u64 {
        fs::metadata(self.file(name)).map_or(0, |file| file.len())
    }

    fn await_run(&self, name: &str, run: u64) {
        wait::until_true("the script runs", || self.runs(name) >= run);
    }

    fn get(&self, name: &str) -> Response {
        get(self.server.address(), name)
    }

    fn text(&self, name: &str) -> String {
        self.get(name).text()
    }

    fn purge(&self, name: &str, fields: &[(&str, &str)]) {
        let request = Request::new("PURGE", &format!("/{name}")).header("Host", "localhost");
        let request =
            fields.iter().fold(request, |request, (name, value)| request.header(name, value));
        let answer = http::ask(self.server.address(), &request.header("Connection", "close"));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    fn make_stale(&self, name: &str) {
        self.purge(name, &[("Soft-Purge", "1")]);
    }

    /// Asks in a thread of its own.
    fn ask(&self, name: &str, answers: &mpsc::Sender<String>) {
        let (address, name, answers) = (self.server.address(), name.to_owned(), answers.clone());
        thread::spawn(move || answers.send(get(address, &name).text()));
    }
}

fn get(address: SocketAddr, name: &str) -> Response {
    let request = Request::get(&format!("/{name}")).header("Connection", "close");
    http::ask(address, &request)
}

fn status(answer: &Response) -> &str {
    answer.header("Cache-Status").unwrap_or_default()
}

fn next(answers: &Receiver<String>) -> String {
    wait::until("an answer", || answers.try_recv().ok())
}

#[test]
fn a_page_that_may_not_be_kept_any_more_is_not_seen_again() {
    let bed = Bed::new(&["valid = \"1d\""]);
    for (name, says) in [("private", "Cache-Control: private"), ("cookie", "Set-Cookie: a=b")] {
        assert_eq!(bed.text(name), "run 1");
        bed.say(&format!("{name}.say"), says);
        bed.make_stale(name);
        let stale = bed.get(name);
        assert!(status(&stale).contains("updating"), "{}", status(&stale));
        // It has been made again in the background, and is gone.
        wait::until_true("the old page is gone", || bed.text(name) != "run 1");
        let again = bed.get(name);
        assert!(status(&again).contains("fwd=uri-miss"), "{}", status(&again));
    }
    // What a failure says is about the moment, and the page will do until then.
    assert_eq!(bed.text("broken"), "run 1");
    bed.say("broken.status", "503");
    bed.make_stale("broken");
    wait::until_true("it is requested again and again", || {
        assert_eq!(bed.text("broken"), "run 1");
        bed.runs("broken") >= 3
    });
}

#[test]
fn a_client_in_a_hurry_does_not_decide_how_long_a_page_takes_that_others_want() {
    let bed = Bed::with(&["valid = \"1d\""], |setup| {
        setup.pool("request_deadline_header = \"X-Request-Timeout\"")
    });
    let hurried = |method: &str, name: &str| {
        let request = Request::new(method, &format!("/{name}")).header("Host", "localhost");
        let request = request.header("X-Request-Timeout", "0");
        http::ask(bed.server.address(), &request.header("Connection", "close"))
    };
    assert_eq!(hurried("GET", "p").text(), "run 1");
    bed.make_stale("p");
    let stale = hurried("GET", "p");
    assert_eq!(stale.text(), "run 1", "{}", status(&stale));
    // The refresh of that request makes it again, without another request.
    bed.await_run("p", 2);
    // A private page is refreshed at once.
    assert_eq!(hurried("POST", "p").status, 503);
}

#[test]
fn a_304_that_forbids_to_keep_the_page_is_the_last_that_is_heard_of_it() {
    let bed = Bed::new(&[]);
    bed.say("p.etag", "");
    bed.say("p.say", "Cache-Control: no-cache");
    assert_eq!((bed.text("p"), bed.text("p")), ("run 1".into(), "run 1".into()));
    bed.say("p.say", "Cache-Control: private");
    assert_eq!(bed.text("p"), "run 1");
    // No further request has its tag.
    assert_eq!(bed.text("p"), "run 4");
}

#[test]
fn a_304_whose_answer_is_not_kept_is_told_whole_to_who_asked_and_to_nobody_else() {
    let bed = Bed::new(&["background_update = false"]);
    let says = "X-First: 1\nCache-Control: max-age=600";
    bed.say("p.etag", "");
    bed.say("p.say", says);
    assert_eq!(bed.text("p"), "run 1");
    let cookie = "Set-Cookie: a=b\nConnection: X-Hop\nX-Hop: 1\nX-Accel-Buffering: no";
    for (more, is_kept) in [(", no-cache=\"set-cookie\"", true), ("", false)] {
        bed.say("p.say", &format!("{says}{more}\n{cookie}"));
        bed.make_stale("p");
        let told = bed.get("p");
        assert!(status(&told).contains("revalidated"), "{}", status(&told));
        assert_eq!((told.status, told.text().as_str()), (200, "run 1"));
        let date = told.header("Date").unwrap_or_default();
        assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
        for (name, value) in [
            ("X-First", Some("1")),
            ("ETag", Some("\"1\"")),
            ("Set-Cookie", Some("a=b")),
            ("X-Hop", None),
            ("X-Accel-Buffering", None),
        ] {
            assert_eq!(told.header(name), value, "{name}, {more}");
        }
        let next = bed.get("p");
        assert_eq!(next.text() == "run 1", is_kept);
        assert!(!is_kept || next.header("Set-Cookie").is_none());
    }
}

#[test]
fn what_was_purged_while_it_was_asked_for_again_does_not_come_back_by_a_304() {
    let bed = Bed::new(&["background_update = false"]);
    bed.say("p.etag", "");
    bed.say("p.say", "Cache-Control: max-age=600");
    assert_eq!(bed.text("p"), "run 1");
    bed.make_stale("p");
    bed.say("p.hold", "");
    let (sender, answers) = mpsc::channel();
    bed.ask("p", &sender);
    bed.await_run("p", 2);
    bed.purge("p", &[]);
    bed.say("p.go2", "");
    // This one has asked before the purge.
    assert_eq!(next(&answers), "run 1");
    bed.say("p.go3", "");
    assert_eq!(bed.text("p"), "run 3");
}

#[test]
fn a_304_that_names_no_groups_leaves_the_page_in_those_it_was_in() {
    let bed = Bed::new(&["background_update = false"]);
    bed.say("p.etag", "");
    bed.say("p.say", "Cache-Control: max-age=600\nCache-Groups: \"news\"");
    assert_eq!(bed.text("p"), "run 1");
    bed.make_stale("p");
    bed.say("p.say", "Cache-Control: max-age=600");
    assert!(status(&bed.get("p")).contains("revalidated"));
    assert!(status(&bed.get("p")).contains("; hit;"));
    bed.purge("other", &[("Cache-Groups", "\"news\"")]);
    assert_eq!(bed.text("p"), "run 3");
}

#[test]
fn a_304_leaves_a_page_that_the_server_compresses_the_only_one_for_all_codings() {
    let bed =
        Bed::with(&["background_update = false"], |setup| setup.site("compression_min_length = 1"));
    let as_coding = |coding: &str| {
        let request = Request::get("/p").header("Accept-Encoding", coding);
        let response = http::ask(bed.server.address(), &request.header("Connection", "close"));
        assert_eq!(response.header("Vary"), Some("Accept-Encoding"), "{coding}");
        response
    };
    bed.say("p.etag", "");
    bed.say("p.say", "Cache-Control: max-age=600");
    for run in 1..=3 {
        let first = as_coding("gzip, br");
        assert_eq!(status(&first).contains("revalidated"), run > 1, "{}", status(&first));
        for coding in ["identity", "gzip", "zstd"] {
            assert!(status(&as_coding(coding)).contains("; hit;"), "run {run}, {coding}");
        }
        assert_eq!(bed.runs("p"), run);
        bed.make_stale("p");
    }
}

#[test]
fn who_waits_behind_one_who_was_overtaken_gets_the_page_as_soon_as_it_is_there() {
    let bed = Bed::new(&["valid = \"1d\"", "lock_timeout = \"5s\""]);
    bed.say("w.hold", "");
    let (sender, answers) = mpsc::channel();
    bed.ask("w", &sender);
    bed.await_run("w", 1);
    // This one waits for as long as one may, and then has a page made of its own.
    bed.ask("w", &sender);
    bed.await_run("w", 2);
    // By then the first is too old to be waited for: the next makes the page for those who come
    // later.
    bed.ask("w", &sender);
    bed.await_run("w", 3);
    bed.ask("w", &sender);
    wait::until_true("the last waits", || page_cache(&bed.server)["waiting"] == 1);
    bed.say("w.go1", "");
    assert_eq!([next(&answers), next(&answers)], ["run 1", "run 1"]);
    bed.say("w.go2", "");
    assert_eq!(next(&answers), "run 2");
    bed.say("w.go3", "");
    assert_eq!(next(&answers), "run 3");
    assert_eq!(bed.runs("w"), 3);
}

#[test]
fn a_connection_over_which_a_stale_page_went_is_free_for_the_next_request() {
    let bed = Bed::new(&["valid = \"1d\""]);
    assert_eq!((bed.text("p"), bed.text("q")), ("run 1".into(), "run 1".into()));
    bed.make_stale("p");
    bed.say("p.hold", "");
    let mut connection = Connection::open(bed.server.address());
    let ask = |connection: &mut Connection, name: &str| {
        let request = Request::get(&format!("/{name}"));
        connection.ask(&request).expect("an answer")
    };
    let stale = ask(&mut connection, "p");
    assert_eq!((stale.text().as_str(), stale.header("Connection")), ("run 1", None));
    bed.await_run("p", 2);
    assert_eq!(ask(&mut connection, "q").text(), "run 1");
    assert_eq!(ask(&mut connection, "p").text(), "run 1");
    // It is made to its end although the client goes.
    drop(connection);
    bed.say("p.go2", "");
    wait::until_true("the new page", || bed.text("p") == "run 2");
    assert_eq!(bed.runs("p"), 2);
}

#[test]
fn however_many_pages_are_not_kept_nobody_waits_for_one() {
    let bed = Bed::new(&["valid = \"1d\""]);
    let mut connection = Connection::open(bed.server.address());
    for page in 0..100 {
        bed.say(&format!("u{page}.say"), "Cache-Control: private");
        let request = Request::get(&format!("/u{page}"));
        let answer = connection.ask(&request).expect("an answer");
        assert_eq!(answer.text(), "run 1");
    }
    // Both of them run at once.
    let (sender, answers) = mpsc::channel();
    bed.say("u99.hold", "");
    bed.ask("u99", &sender);
    bed.ask("u99", &sender);
    bed.await_run("u99", 3);
    bed.say("u99.go2", "");
    bed.say("u99.go3", "");
    let mut both = [next(&answers), next(&answers)];
    both.sort();
    assert_eq!(both, ["run 2", "run 3"]);
}

#[test]
fn those_who_wait_for_a_page_that_is_stale_at_once_run_the_script_together() {
    let bed = Bed::new(&["lock_timeout = \"1h\""]);
    bed.say("v.say", "Cache-Control: no-cache\nETag: \"1\"");
    bed.say("v.hold", "");
    let (sender, answers) = mpsc::channel();
    (0..5).for_each(|_| bed.ask("v", &sender));
    wait::until_true("four wait", || page_cache(&bed.server)["waiting"] == 4);
    bed.say("v.go1", "");
    bed.await_run("v", 5);
    (2..6).for_each(|run| bed.say(&format!("v.go{run}"), ""));
    let mut all: Vec<String> = (0..5).map(|_| next(&answers)).collect();
    all.sort();
    assert_eq!(all, ["run 1", "run 2", "run 3", "run 4", "run 5"]);
}

#[test]
fn a_script_sees_in_the_background_the_user_whose_request_found_the_page_stale() {
    let users = public_folder();
    write_file(users.path(), "users", USER.as_bytes());
    let users = users.path().join("users");
    let auth = format!("basic_auth = {{ users = {users:?} }}");
    let bed = Bed::with(&["stale_while_revalidate = \"1h\""], |setup| setup.site(&auth));
    bed.say("p.say", "Cache-Control: public, max-age=600");
    bed.say("p.user", "");
    let anna = basic("anna", "secret");
    let ask = || {
        let request = Request::get("/p").header("Connection", "close");
        http::ask(bed.server.address(), &request.header("Authorization", &anna)).text()
    };
    assert_eq!(ask(), "run 1 for anna");
    bed.purge("p", &[("Soft-Purge", "1"), ("Authorization", &anna)]);
    assert_eq!(ask(), "run 1 for anna");
    bed.await_run("p", 2);
    wait::until_true("the new page", || ask() != "run 1 for anna");
    assert_eq!(ask(), "run 2 for anna");
}
