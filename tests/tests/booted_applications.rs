//! Real applications in worker and snapshot mode, where copies also go back: Laravel, Symfony,
//! Slim and Illuminate components of Debian's packages, and a handler of PSR-7 requests, beside the
//! same application in a classic pool.

use std::path::{Path, PathBuf};
use std::process::Command;

use maitred_tests::Target;
use maitred_tests::http::{self, Request, Response};
use maitred_tests::project_root;
use maitred_tests::server::{Server, Setup, give_to_web_user};
use tempfile::TempDir;

/// Requests in a row.
const MANY: usize = 60;

/// A copy of an application, with its database, in a folder where it may write.
fn application(name: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let source = project_root().join("tests/fixtures").join(name);
    run(Command::new("cp").arg("-r").arg(format!("{}/.", source.display())).arg(folder.path()));
    let var = folder.path().join("var");
    std::fs::create_dir(&var).expect("a folder can be made");
    let make = "$d = new PDO('sqlite:' . $argv[1]);
        $d->exec('CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT)');
        for ($i = 1; $i <= 20; $i++) { $d->exec(\"INSERT INTO goods VALUES ($i, 'thing <$i>')\");
        }";
    let database = var.join("goods.sqlite");
    run(Command::new("php").args(["-r", make]).arg(&database));
    maitred_tests::server::set_mode(folder.path(), 0o755);
    // Where Laravel writes.
    for name in [
        "bootstrap/cache",
        "storage/logs",
        "storage/framework/sessions",
        "storage/framework/views",
        "storage/framework/cache",
    ] {
        let storage = folder.path().join(name);
        std::fs::create_dir_all(&storage).expect("folders can be made");
        give_to_web_user(&storage);
    }
    give_to_web_user(&var);
    give_to_web_user(&database);
    folder
}

fn run(command: &mut Command) {
    let status = command.status().expect("a program can be run");
    assert!(status.success(), "{command:?}: {status}");
}

fn public(folder: &TempDir) -> PathBuf {
    folder.path().join("public")
}

fn classic(public: &Path) -> Server {
    Setup::new(public).workers(1).start()
}

fn booted(public: &Path, lines: &[&str]) -> Server {
    booted_in("worker", public, lines)
}

/// The application boots once, in the script that is named for the mode.
fn booted_in(mode: &str, public: &Path, lines: &[&str]) -> Server {
    let script = public.join(format!("{mode}.php")).display().to_string();
    let setup = Setup::new(public).workers(1).pool(&format!("mode = {mode:?}"));
    let setup = setup.pool(&format!("script = {script:?}"));
    lines.iter().fold(setup, |setup, line| setup.pool(line)).start()
}

/// What must be the same however the application is run.
fn page(answer: &Response) -> (u16, Option<String>, String) {
    let kind = answer.header("Content-Type").map(str::to_owned);
    (answer.status, kind, answer.text())
}

fn answers_as_in_a_classic_pool(name: &str, targets: &[&str]) {
    let folder = application(name);
    let public = public(&folder);
    let (before, after) = (classic(&public), booted(&public, &[]));
    let warm = "warm_requests = [\"/goods/7\"]";
    let copied = booted_in("snapshot", &public, &[warm]);
    let rewound = booted_in("snapshot", &public, &[warm, "rewinds_per_child = 100"]);
    assert_eq!(http::get(before.address(), targets[0]).status, 200);
    for round in 0..3 {
        for target in targets {
            let expected = page(&http::get(before.address(), target));
            let found = page(&http::get(after.address(), target));
            assert_eq!(found, expected, "{target}, round {round}");
            let found = page(&http::get(copied.address(), target));
            assert_eq!(found, expected, "{target}, copied, round {round}");
            let found = page(&http::get(rewound.address(), target));
            assert_eq!(found, expected, "{target}, going back, round {round}");
        }
    }
    rewound.stop();
    copied.stop();
    after.stop();
    before.stop();
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
    let targets = ["/?name=Ann", "/?name=Bob", "/", "/goods/7", "/goods/99", "/nowhere", "/fails"];
    answers_as_in_a_classic_pool("slim", &targets);
}

#[test]
fn a_handler_of_psr_7_requests_answers_as_in_a_classic_pool() {
    let targets = ["/?name=Ann", "/?name=Bob", "/", "/goods/7", "/goods/99", "/nowhere"];
    answers_as_in_a_classic_pool("psr15", &targets);
}

#[test]
fn a_laravel_application_answers_as_in_a_classic_pool() {
    let targets = ["/?name=Ann", "/?name=Bob", "/", "/visits", "/nowhere", "/fails"];
    answers_as_in_a_classic_pool("laravel", &targets);
}

#[test]
fn two_visitors_of_a_symfony_application_have_two_sessions() {
    let folder = application("symfony");
    let sessions = tempfile::tempdir().unwrap();
    give_to_web_user(sessions.path());
    let path = format!("php_value = {{ session.save_path = {:?} }}", sessions.path());
    expect_a_session_each(booted(&public(&folder), &[&path]));
}

#[test]
fn two_visitors_of_a_laravel_application_have_two_sessions() {
    let folder = application("laravel");
    expect_a_session_each(booted(&public(&folder), &[]));
    expect_a_session_each(booted_in("snapshot", &public(&folder), &["rewinds_per_child = 100"]));
}

fn expect_a_session_each(server: Server) {
    let visit = |cookie: Option<&str>| {
        let request = Request::get("/visits");
        let request = cookie.into_iter().fold(request, |asked, it| asked.header("Cookie", it));
        http::ask(server.address(), &request)
    };
    let cookie = |answer: &Response| {
        let set = answer.header("Set-Cookie").expect("a session has a cookie");
        set.split(';').next().unwrap_or_default().to_owned()
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
    let server = booted(&public(&folder), &["env = { FRANKENPHP_LOOP_MAX = \"7\" }"]);
    for _ in 0..MANY {
        assert_eq!(http::get(server.address(), "/goods/1").status, 200);
    }
    server.stop();
}
