//! Real applications in worker and snapshot mode, where copies also go back: Laravel, Symfony,
//! Slim and Illuminate components of Debian's packages, and a handler of PSR-7 requests, with the
//! calls of TYPO3's and Tempest's worker scripts as well, beside the same application in a classic
//! pool.

use std::fs;
use std::path::Path;

use maitred_tests::Target;
use maitred_tests::applications::{
    application, booted, classic, expect_the_same_pages, laravel_version, public,
};
use maitred_tests::http::{self, Request, Response};
use maitred_tests::server::{Server, give_to_web_user};

/// Requests in a row.
const MANY: usize = 60;

/// Slim 3 of Debian's php-slim, which newer releases have no more.
const SLIM: &str = "/usr/share/php/Slim/autoload.php";

fn in_worker_mode(public: &Path, lines: &[&str]) -> Server {
    booted("worker", &public.join("worker.php"), lines)
}

fn in_snapshot_mode(public: &Path, lines: &[&str]) -> Server {
    booted("snapshot", &public.join("snapshot.php"), lines)
}

/// What boots an application before it is copied.
const WARM: &str = "warm_requests = [\"/goods/7\"]";

/// Where copies go back.
const BACK: &str = "rewinds_per_child = 100";

fn answers_as_in_a_classic_pool(name: &str, targets: &[&str]) {
    let folder = application(name);
    let public = public(&folder);
    let servers = [
        ("classic", classic(&public)),
        ("worker", in_worker_mode(&public, &[])),
        ("copied", in_snapshot_mode(&public, &[WARM])),
        ("going back", in_snapshot_mode(&public, &[WARM, BACK])),
    ];
    expect_these_pages(servers, targets);
}

/// The same with one script for all modes but the classic one.
fn script_answers_as_in_a_classic_pool(script: &Path, targets: &[&str]) {
    let servers = [
        ("classic", classic(script.parent().expect("it is in the document root"))),
        ("worker", booted("worker", script, &["env = { MAX_REQUESTS = \"7\" }"])),
        ("copied", booted("snapshot", script, &[WARM])),
        ("going back", booted("snapshot", script, &[WARM, BACK])),
    ];
    expect_these_pages(servers, targets);
}

fn expect_these_pages(servers: [(&str, Server); 4], targets: &[&str]) {
    let requests: Vec<Request> = targets.iter().map(|target| Request::get(target)).collect();
    expect_the_same_pages(&servers, &requests);
    servers.into_iter().rev().for_each(|(_, server)| server.stop());
}

#[test]
fn a_symfony_application_answers_as_in_a_classic_pool() {
    let targets = ["/?name=Ann", "/?name=Bob", "/", "/goods/7", "/goods/99", "/nowhere", "/fails"];
    answers_as_in_a_classic_pool("symfony", &targets);
}

#[test]
fn an_illuminate_application_answers_as_in_a_classic_pool() {
    let targets = ["/?name=Ann", "/?name=Bob", "/", "/goods/7", "/goods/99", "/nowhere"];
    answers_as_in_a_classic_pool("illuminate", &targets);
}

#[test]
fn a_slim_application_answers_as_in_a_classic_pool() {
    if !Path::new(SLIM).exists() {
        return eprintln!("skipped: this release has no Slim 3 (package php-slim)");
    }
    let targets = ["/?name=Ann", "/?name=Bob", "/", "/goods/7", "/goods/99", "/nowhere", "/fails"];
    answers_as_in_a_classic_pool("slim", &targets);
}

#[test]
fn a_handler_of_psr_7_requests_answers_as_in_a_classic_pool() {
    let targets = ["/?name=Ann", "/?name=Bob", "/", "/goods/7", "/goods/99", "/nowhere"];
    answers_as_in_a_classic_pool("psr15", &targets);
}

#[test]
fn a_worker_script_that_calls_as_typo3s_does_answers_as_in_a_classic_pool() {
    let folder = application("psr15");
    let script = public(&folder).join("typo3.php");
    let targets = ["/?name=Ann", "/fails", "/?name=Bob", "/", "/goods/7", "/goods/99", "/nowhere"];
    script_answers_as_in_a_classic_pool(&script, &targets);
    let sessions = tempfile::tempdir().unwrap();
    give_to_web_user(sessions.path());
    let path = format!("php_value = {{ session.save_path = {:?} }}", sessions.path());
    expect_a_session_each(booted("worker", &script, &[&path]));
    expect_a_session_each(booted("snapshot", &script, &[&path, WARM, BACK]));
}

#[test]
fn a_front_controller_for_both_modes_as_tempests_answers_as_in_a_classic_pool() {
    let folder = application("psr15");
    let script = public(&folder).join("index.php");
    fs::copy(public(&folder).join("tempest.php"), &script).unwrap();
    let targets = ["/?name=Ann", "/?name=Bob", "/", "/goods/7", "/goods/99", "/nowhere"];
    script_answers_as_in_a_classic_pool(&script, &targets);
    assert!(folder.path().join("var/deferred").exists(), "a task after the response");
}

#[test]
fn a_laravel_application_answers_as_in_a_classic_pool() {
    eprintln!("with Laravel {}", laravel_version());
    let targets = ["/?name=Ann", "/?name=Bob", "/", "/visits", "/nowhere", "/fails"];
    answers_as_in_a_classic_pool("laravel", &targets);
}

#[test]
fn two_visitors_of_a_symfony_application_have_two_sessions() {
    let folder = application("symfony");
    let sessions = tempfile::tempdir().unwrap();
    give_to_web_user(sessions.path());
    let path = format!("php_value = {{ session.save_path = {:?} }}", sessions.path());
    expect_a_session_each(in_worker_mode(&public(&folder), &[&path]));
}

#[test]
fn two_visitors_of_a_laravel_application_have_two_sessions() {
    let folder = application("laravel");
    expect_a_session_each(in_worker_mode(&public(&folder), &[]));
    expect_a_session_each(in_snapshot_mode(&public(&folder), &[BACK]));
}

fn expect_a_session_each(server: Server) {
    let visit = |cookie: Option<&str>| {
        let request = Request::get("/visits");
        let request = cookie.into_iter().fold(request, |asked, it| asked.header("Cookie", it));
        http::ask(server.address(), &request)
    };
    let cookie = |answer: &Response| {
        let all = answer.all("Set-Cookie").map(|set| set.split(';').next().unwrap_or_default());
        let all: Vec<&str> = all.collect();
        assert!(!all.is_empty(), "a session has a cookie");
        all.join("; ")
    };
    let (ann, bob) = (visit(None), visit(None));
    assert_eq!((ann.text(), bob.text()), ("1".to_owned(), "1".to_owned()));
    let (ann, bob) = (cookie(&ann), cookie(&bob));
    assert_ne!(ann, bob);
    assert_eq!(visit(Some(&ann)).text(), "2");
    assert_eq!(visit(Some(&ann)).text(), "3");
    assert_eq!(visit(Some(&bob)).text(), "2");
    server.stop();
}

#[test]
fn a_runner_that_ends_its_loop_by_itself_loses_no_request() {
    let folder = application("symfony");
    let server = in_worker_mode(&public(&folder), &["env = { FRANKENPHP_LOOP_MAX = \"7\" }"]);
    for _ in 0..MANY {
        assert_eq!(http::get(server.address(), "/goods/1").status, 200);
    }
    server.stop();
}
