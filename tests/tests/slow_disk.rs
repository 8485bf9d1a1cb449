//! A cache folder on a slow disk: other threads than the serving ones use it, and only requests
//! that need it wait for it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use maitred_tests::guard::Guarded;
use maitred_tests::http::{self, Response};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::{Target, project_root, traced, wait};

/// How long the slow disk takes for each step.
const STEP: Duration = Duration::from_secs(1);

/// The files of pages in the folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let children = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let folders = children(folder).into_iter();
    let folders = folders.filter(|path| path.is_dir() && !path.ends_with("begun"));
    folders.flat_map(|path| children(&path)).collect()
}

/// Makes each use of these files by the front take a second, for as long as it runs. Nothing, which
/// is public, where it must not be.
fn slow_down(server: &Server, files: &[PathBuf]) -> Option<Guarded> {
    let steps = "open,openat,rename,renameat,renameat2";
    let slow = by_permission(files).or_else(|| by_tracing(server, steps, STEP, files));
    if slow.is_none() {
        say_untested("neither fanotify (root) nor strace is permitted here");
    }
    slow
}

/// Past what is kept back of a test that passes.
fn say_untested(why: &str) {
    let _ = writeln!(std::io::stderr(), "NOT TESTED: slow_disk: {why}");
}

/// The kernel asks a listener of fanotify(7) for permission to open a file, and waits a second for
/// root.
fn by_permission(files: &[PathBuf]) -> Option<Guarded> {
    let mut asked = Command::new("python3");
    asked.arg(project_root().join("tests/fixtures/slow-files.py"));
    asked.arg(STEP.as_secs_f64().to_string()).args(files);
    asked.stdout(Stdio::piped());
    let mut asked = Guarded::spawn(&mut asked, Signal::TERM);
    let mut line = String::new();
    let said = asked.child().stdout.take().expect("stdout is a pipe");
    let said = BufReader::new(said).read_line(&mut line);
    said.expect("stdout can be read");
    (line.trim_end() == "attached").then_some(asked)
}

/// strace delays these system calls for these files, where one may trace.
fn by_tracing(server: &Server, steps: &str, time: Duration, files: &[PathBuf]) -> Option<Guarded> {
    let front = server.front().expect("there is a front");
    let trace = format!("trace={steps}");
    let delay = time.as_micros();
    let slow = format!("inject={steps}:delay_enter={delay}");
    let mut options = ["-o", "/dev/null", "-e", &trace, "-e", &slow].map(OsStr::new).to_vec();
    for file in files {
        options.extend([OsStr::new("-P"), file.as_os_str()]);
    }
    traced::attach(&front, &options)
}

fn verdict(answer: &Response) -> &str {
    let said = answer.header("Cache-Status").expect("the cache says something");
    match said.contains("; hit;") {
        true => "hit",
        false if said.contains("; stored;") => "stored",
        false => said,
    }
}

#[test]
fn a_slow_disk_holds_up_nobody_who_does_not_need_it() {
    let root = document_root(&[("index.php", "<?php echo 'page ', $_SERVER['REQUEST_URI'];")]);
    let pages = public_folder();
    give_to_web_user(pages.path());
    let server = Setup::new(root.path())
        .top(&format!("cache_dir = {:?}", pages.path()))
        .site("[sites.cache]\nvalid = \"1h\"\npurge_from = \"127.0.0.1\"")
        .start();
    let get = |path: &str| {
        let answer = http::get(server.address(), path);
        assert_eq!(answer.text(), format!("page {path}"));
        answer
    };
    for path in ["/a", "/b", "/c"] {
        get(path);
    }
    let all = files(pages.path());
    assert_eq!(all.len(), 3, "{all:?}");
    // Of these the files are known, and there are none in memory.
    for path in ["/a", "/b"] {
        let purge = http::Request::new("PURGE", path).header("Host", "localhost");
        assert_eq!(http::ask(server.address(), &purge).status, 200);
    }
    let mark = server.log().mark();
    let Some(slow) = slow_down(&server, &all) else {
        return;
    };
    // The first finds out, for all.
    assert_eq!(verdict(&get("/a")), "stored");
    server.expect_log(mark, "cache_dir has taken ");
    let begun = Instant::now();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let answer = get("/b");
            (verdict(&answer).to_owned(), begun.elapsed())
        });
        let mut hits = 0;
        while !waits.is_finished() {
            let asked = Instant::now();
            assert_eq!(verdict(&get("/c")), "hit");
            if asked.elapsed() < STEP / 2 {
                hits += 1;
            }
        }
        let (verdict, took) = waits.join().expect("it is answered");
        assert_eq!(verdict, "stored");
        assert!(took >= STEP, "it was to be slow: {took:?}");
        assert!(hits > 5, "only {hits} were answered meanwhile");
    });
    assert_eq!(verdict(&get("/b")), "hit");
    drop(slow);
    wait::until("the page to be on the disk", || (files(pages.path()).len() == 3).then_some(()));
    server.stop();
}

#[test]
fn a_purge_that_a_slow_disk_does_not_record_in_time_is_not_confirmed_and_delays_no_other() {
    let root = document_root(&[("index.php", "<?php echo 'page ', $_SERVER['REQUEST_URI'];")]);
    let pages = public_folder();
    give_to_web_user(pages.path());
    let server = Setup::new(root.path())
        .top(&format!("cache_dir = {:?}", pages.path()))
        .site("[sites.cache]\nvalid = \"1h\"\npurge_from = \"127.0.0.1\"")
        .start();
    let ask = |method: &str, path: &str| {
        let request = http::Request::new(method, path).header("Host", "localhost");
        http::ask(server.address(), &request)
    };
    for path in ["/a", "/b", "/c"] {
        assert_eq!(verdict(&ask("GET", path)), "stored");
    }
    let mark = server.log().mark();
    let journal = [pages.path().join("purges")];
    // Longer than a purge waits.
    let Some(slow) = by_tracing(&server, "write", 4 * STEP, &journal) else {
        return say_untested("strace is not permitted here");
    };
    thread::scope(|scope| {
        let purges = scope.spawn(|| ask("PURGE", "/a"));
        let posts = scope.spawn(|| ask("POST", "/b"));
        let mut hits = 0;
        while !purges.is_finished() || !posts.is_finished() {
            let asked = Instant::now();
            assert_eq!(verdict(&ask("GET", "/c")), "hit");
            if asked.elapsed() < STEP / 2 {
                hits += 1;
            }
        }
        let purged = purges.join().expect("it is answered");
        assert_eq!(purged.status, 504, "{}", purged.text());
        assert!(purged.text().contains("not recorded in cache_dir"), "{}", purged.text());
        assert_eq!(posts.join().expect("it is answered").text(), "page /b");
        assert!(hits > 5, "only {hits} were answered meanwhile");
    });
    server.expect_log(mark, "cache_dir does not respond");
    for path in ["/a", "/b"] {
        assert_eq!(verdict(&ask("GET", path)), "stored", "it is purged all the same");
    }
    drop(slow);
    wait::until("a purge to be recorded", || (ask("PURGE", "/a").status == 200).then_some(()));
    server.stop();
}
