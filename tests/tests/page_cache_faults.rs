//! What can go wrong with the page cache goes wrong for nobody but whom it concerns: scripts that end
//! early or lie, PHP that hangs, is busy or down, disks that are full, read-only or changed under us,
//! hostile requests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::http2;
use maitred_tests::outside::{page_cache, status as told};
use maitred_tests::processes::Signal;
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, public_folder,
};
use maitred_tests::wait;
use tempfile::TempDir;

/// Counts its runs for a path in `runs/`, and does what the query says. It waits for the file
/// `runs/goWAIT` if the query has `wait=WAIT`, or for `runs/go` if there is `runs/hold`; and it sleeps for
/// `ms` milliseconds.
const PAGE: &str = "<?php
    $runs = __DIR__ . '/runs/';
    $file = $runs . md5(strtok($_SERVER['REQUEST_URI'], '?'));
    file_put_contents($file, 'x', FILE_APPEND | LOCK_EX);
    clearstatcache();
    $run = filesize($file);
    $wait = isset($_GET['wait']) || file_exists($runs . 'hold');
    $go = $runs . 'go' . ($_GET['wait'] ?? '');
    usleep(1000 * (int) ($_GET['ms'] ?? 0));
    while ($wait && !file_exists($go)) { clearstatcache(); usleep(2000); }
    foreach ($_GET['h'] ?? [] as $header) header($header, false);
    if (file_exists($runs . 'vary')) header(file_get_contents($runs . 'vary'));
    echo $_GET['body'] ?? \"run $run \";
    if (isset($_GET['host'])) echo 'links to ', $_SERVER['HTTP_HOST'], ' ',
        $_SERVER['HTTP_X_FORWARDED_HOST'] ?? '', $_SERVER['HTTP_X_ORIGINAL_URL'] ?? '';
    if (isset($_GET['end'])) {
        ob_end_flush();
        flush();
        switch ($_GET['end']) {
            case 'killed': posix_kill(getmypid(), SIGKILL);
            case 'fatal': no_such_function();
            case 'memory': ini_set('memory_limit', '8M'); str_repeat('x', 1 << 26);
            case 'cookie': setcookie('late', '1'); header('Cache-Control: private'); break;
            case 'pause':
                while (!file_exists($runs . 'go')) { clearstatcache(); usleep(2000); }
                echo 'and its end';
                break;
            case 'finished': fastcgi_finish_request(); no_such_function();
        }
    }
    if (isset($_GET['size'])) echo str_repeat(md5($_SERVER['REQUEST_URI']), (int) $_GET['size']);";

fn site() -> TempDir {
    let root = document_root(&[("index.php", PAGE), ("runs/.keep", "")]);
    give_to_web_user(&root.path().join("runs"));
    root
}

fn setup(root: &TempDir, lines: &[&str]) -> Setup {
    let setup = Setup::new(root.path()).site("[sites.cache]\nvalid = \"10m\"");
    lines.iter().fold(setup, |setup, line| setup.site(line))
}

/// A folder for the disk tier.
fn pages() -> (TempDir, String) {
    let pages = public_folder();
    give_to_web_user(pages.path());
    let line = format!("cache_dir = {:?}", pages.path());
    (pages, line)
}

fn status(answer: &Response) -> &str {
    answer.header("Cache-Status").unwrap_or_default()
}

fn is_hit(answer: &Response) -> bool {
    status(answer).starts_with("maitred; hit;")
}

fn request(target: &str, fields: &[(&str, &str)]) -> Request {
    let request = Request::new("GET", target).header("Connection", "close");
    let has_host = fields.iter().any(|(name, _)| *name == "Host");
    let host = (!has_host).then_some(("Host", "localhost"));
    let fields = host.iter().chain(fields);
    fields.fold(request, |request, (name, value)| {
        request.header(name, value)
    })
}

fn with(server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    http::ask(server.address(), &request(target, fields))
}

fn get(server: &Server, target: &str) -> Response {
    with(server, target, &[])
}

fn flag(root: &TempDir, name: &str) -> PathBuf {
    root.path().join("runs").join(name)
}

/// How often the script has run for a path.
fn runs(root: &TempDir, count: u64) -> bool {
    let files = fs::read_dir(root.path().join("runs")).expect("runs can be listed");
    let counts = files
        .map(|file| file.expect("the testbed works"))
        .filter(|file| file.file_name().len() == 32);
    counts
        .map(|file| file.metadata().expect("the testbed works").len())
        .sum::<u64>()
        >= count
}

/// Has the front killed, and waits for the next one to answer.
fn kill_front(server: &Server) {
    let before = server.front().expect("a front runs");
    before.signal(Signal::KILL);
    wait::until("the next front", || {
        let front = server.front().filter(|front| *front != before)?;
        let ready = request("/ready-or-not", &[("Cookie", "PHPSESSID=1")]);
        http::try_ask(server.address(), &ready).ok().map(|_| front)
    });
}

/// The files of the disk tier.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in fs::read_dir(dir).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            if file.file_name().len() == 32 {
                files.push(file.path());
            }
        }
    }
    files
}

/// The file of the page with this text in it.
fn file_with(dir: &Path, text: &str) -> PathBuf {
    let has = |file: &PathBuf| {
        let bytes = fs::read(file).unwrap_or_default();
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    let found = files(dir).into_iter().find(has);
    found.unwrap_or_else(|| panic!("no file holds {text:?}"))
}

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
            // The client gets what there is, and is told or sees that it is not all.
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
    wait::until_true("the page is kept", || {
        is_hit(&get(&server, "/finished?end=finished"))
    });
}

#[test]
fn a_page_is_made_to_its_end_however_the_client_leaves_who_asked_for_it() {
    let root = site();
    let server = setup(&root, &["lock_timeout = \"60s\""]).start();
    let target = |name: &str| format!("/{name}?end=pause");
    let begun = |count| wait::until_true("the script to run", || runs(&root, count));
    let mut reads = Connection::open(server.address());
    reads
        .send(&request(&target("reads"), &[]).to_bytes())
        .unwrap();
    reads.read_until(b"run 1 ").unwrap();
    drop(reads);
    let mut resets = http2::Connection::open(server.address(), &[]);
    resets.ask(1, &target("resets"));
    begun(2);
    let cancel = http2::frame(3, 0, 1, &8u32.to_be_bytes());
    resets.send(&cancel).unwrap();
    fs::write(flag(&root, "go"), "").unwrap();
    for name in ["reads", "resets"] {
        assert_eq!(
            get(&server, &target(name)).text(),
            "run 1 and its end",
            "{name}"
        );
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
    assert_eq!(
        [of("1", "1"), of("2", "1"), of("1", "2")],
        ["run 1 ", "run 2 ", "run 1 "]
    );
    // The answer to somebody else says that it depends on something else.
    says("Vary: X-B");
    assert_eq!(of("3", "1"), "run 3 ");
    assert_eq!(
        [of("1", "1"), of("1", "2"), of("9", "2")],
        ["run 3 ", "run 4 ", "run 4 "]
    );
    purge();
    says("X-None: 1");
    assert_eq!([of("1", "1"), of("2", "2")], ["run 5 ", "run 5 "]);
    purge();
    says("Vary: X-A, X-B");
    assert_eq!(
        [of("1", "1"), of("2", "1"), of("1", "1")],
        ["run 6 ", "run 7 ", "run 6 "]
    );
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
        wait::until_true("the script to run", || runs(&root, 1));
        fs::remove_file(flag(&root, "hold")).unwrap();
        let own = get(&server, "/a");
        assert_eq!(own.text(), "run 2 ");
        let why = "maitred; fwd=uri-miss; fwd-status=200; collapsed; detail=lock-timeout";
        assert_eq!(status(&own), why);
        fs::write(flag(&root, "go"), "").unwrap();
        assert_eq!(hangs.join().unwrap().text(), "run 1 ");
    });
    let kept = get(&server, "/a");
    assert!(
        is_hit(&kept) && kept.text() == "run 1 ",
        "{}",
        status(&kept)
    );
}

#[test]
fn a_page_that_the_queue_refuses_to_make_is_made_when_there_is_room() {
    let root = site();
    let server = setup(&root, &["stale_if_error = \"1h\""])
        .workers(1)
        .pool("request_queue_length = 1")
        .start();
    // So long that nobody waits in the spare slots of a busy worker.
    let stale = "/stale?ms=20&h[]=Cache-Control:%20max-age=600&h[]=Age:%20700";
    assert_eq!(get(&server, stale).text(), "run 1 ");
    std::thread::scope(|scope| {
        let asking = |target: &'static str| scope.spawn(|| get(&server, target));
        let busy = asking("/busy?wait");
        wait::until_true("the worker to be busy", || runs(&root, 2));
        let waits = asking("/waits");
        wait::until_true("the queue to be full", || {
            told(&server)["pools"][0]["queue"]["now"] == 1
        });
        let refused = get(&server, "/a");
        assert_eq!((refused.status, status(&refused)), (503, ""));
        let stood_in = get(&server, stale);
        assert_eq!((stood_in.status, stood_in.text().as_str()), (200, "run 1 "));
        assert!(
            status(&stood_in).ends_with("detail=error"),
            "{}",
            status(&stood_in)
        );
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
    // Each of them by several at once, none of whom has to wait behind another's failure.
    let mut clients = Vec::new();
    for number in (0..10).chain(0..10).chain(0..10).chain(0..10) {
        let mut connection = Connection::open(server.address());
        connection
            .send(&request(&page(number), &[]).to_bytes())
            .unwrap();
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
    assert!(
        begun.elapsed() < wait::DEADLINE,
        "nobody waited for the lock"
    );
    assert_eq!(get(&server, "/never-kept").status, 503);
    zygote.signal(Signal::CONT);
    wait::until_true("PHP to be back", || {
        get(&server, &page(0)).text() == "run 2 "
    });
}

/// Raises the limit of open files as far as it goes.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
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
    assert_eq!(
        (&requests["miss"], &requests["hit"]),
        (&1.into(), &999.into())
    );
}

/// How often a front is killed: 100 times where that is asked for.
fn kills() -> usize {
    match std::env::var_os("MAITRED_FRONT_KILLS") {
        Some(count) => count
            .to_str()
            .and_then(|count| count.parse().ok())
            .unwrap_or(100),
        None => 10,
    }
}

#[test]
fn a_front_that_is_killed_while_pages_are_made_leaves_no_key_stuck_and_no_page_damaged() {
    let root = site();
    let (dir, line) = pages();
    let server = setup(&root, &[]).top(&line).start();
    let kept = get(&server, "/kept").text();
    let large = |number: usize| format!("/large/{number}?size=8192");
    let expected = |number: usize| {
        let answer = get(&server, &large(number));
        assert_eq!(answer.status, 200);
        let text = answer.text();
        let (run, body) = text.split_once(' ').unwrap();
        let (_, body) = body.split_once(' ').unwrap();
        assert_eq!((run, body.len()), ("run", 32 * 8192));
        let (first, rest) = body.split_at(32);
        assert!(
            rest.as_bytes()
                .chunks(32)
                .all(|part| part == first.as_bytes())
        );
    };
    for round in 0..kills() {
        // A script whose front is gone waits on, for a word of its own.
        let target = format!("/{round}?wait={round}");
        let go = flag(&root, &format!("go{round}"));
        let before = runs_in_all(&root);
        let mut filling = Connection::open(server.address());
        filling.send(&request(&target, &[]).to_bytes()).unwrap();
        wait::until_true("the script to run", || runs_in_all(&root) > before);
        // And a large one is on its way to the disk, perhaps.
        let mut large_one = Connection::open(server.address());
        large_one
            .send(&request(&large(round), &[]).to_bytes())
            .unwrap();
        wait::until_true("its script to run", || runs_in_all(&root) > before + 1);
        kill_front(&server);
        assert!(filling.read_response(false).is_err(), "it was cut off");
        let again = get(&server, "/kept");
        assert!(is_hit(&again) && again.text() == kept, "{}", status(&again));
        fs::write(go, "").unwrap();
        let made = get(&server, &target);
        assert_eq!(made.status, 200, "{round}");
        assert!(is_hit(&get(&server, &target)), "{round}");
    }
    for round in 0..kills() {
        expected(round);
        expected(round);
    }
    assert_eq!(page_cache(&server)["damaged_files"], 0);
    drop(dir);
}

fn runs_in_all(root: &TempDir) -> u64 {
    let files = fs::read_dir(root.path().join("runs")).expect("runs can be listed");
    let counts = files.flatten().filter(|file| file.file_name().len() == 32);
    counts
        .map(|file| file.metadata().map_or(0, |meta| meta.len()))
        .sum()
}

#[test]
fn files_that_somebody_changes_takes_away_or_replaces_are_misses_and_nothing_worse() {
    let root = site();
    let (dir, line) = pages();
    let server = setup(&root, &[]).top(&line).start();
    let names = [
        "whole", "cut", "edited", "empty", "gone", "link", "other", "folder", "pipe",
    ];
    for name in names {
        get(&server, &format!("/{name}?body=body+of+{name}."));
    }
    let file = |name: &str| file_with(dir.path(), &format!("body of {name}."));
    let secret = root.path().join("runs/secret");
    fs::write(&secret, "SECRET").unwrap();
    let bytes = fs::read(file("cut")).unwrap();
    fs::write(file("cut"), &bytes[..bytes.len() - 3]).unwrap();
    let path = file("edited");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() = b'!';
    fs::write(&path, bytes).unwrap();
    fs::write(file("empty"), "").unwrap();
    fs::remove_file(file("gone")).unwrap();
    let whole = file("whole");
    // What another's page is is known by what is in it, not by its name.
    fs::copy(&whole, file("other")).unwrap();
    let replace = |name: &str, with: &dyn Fn(&Path)| {
        let path = file(name);
        fs::remove_file(&path).unwrap();
        with(&path);
        path
    };
    let link = replace("link", &|path| symlink(&secret, path).unwrap());
    let folder = replace("folder", &|path| fs::create_dir(path).unwrap());
    replace("pipe", &|path| {
        let made = Command::new("mkfifo").arg(path).status();
        assert!(made.is_ok_and(|made| made.success()));
    });
    kill_front(&server);
    for name in names {
        let answer = get(&server, &format!("/{name}?body=body+of+{name}."));
        assert_eq!(
            (answer.status, answer.text()),
            (200, format!("body of {name}."))
        );
        assert_eq!(
            is_hit(&answer),
            name == "whole",
            "{name}: {}",
            status(&answer)
        );
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "SECRET");
    assert!(
        !fs::symlink_metadata(&link).unwrap().is_symlink(),
        "the page has taken its place"
    );
    fs::remove_dir(&folder).unwrap();
    // All of it goes while the server runs, and comes again.
    for entry in fs::read_dir(dir.path()).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => fs::remove_dir_all(entry.path()).unwrap(),
            false => fs::remove_file(entry.path()).unwrap(),
        }
    }
    assert!(is_hit(&get(&server, "/whole?body=body+of+whole.")));
    get(&server, "/new?body=new");
    assert_eq!(files(dir.path()).len(), 1);
}

/// A folder on a file system of its own of 1 MB, unmounted when dropped.
struct TinyDisk(TempDir);

impl TinyDisk {
    fn mount() -> Option<TinyDisk> {
        let folder = public_folder();
        let options = "size=1m,mode=0777";
        let mounted = is_root() && mount(&["-t", "tmpfs", "-o", options, "tmpfs"], folder.path());
        mounted.then_some(TinyDisk(folder))
    }

    fn again(&self, how: &str) {
        assert!(
            mount(&["-o", &format!("remount,{how}")], self.0.path()),
            "{how}"
        );
    }
}

fn mount(arguments: &[&str], folder: &Path) -> bool {
    let mounted = Command::new("mount").args(arguments).arg(folder).status();
    mounted.is_ok_and(|status| status.success())
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_disk_that_is_full_or_read_only_costs_pages_their_place_there_and_nothing_else() {
    let Some(disk) = TinyDisk::mount() else {
        eprintln!("skipped: only root may mount a file system that is full soon");
        return;
    };
    let root = site();
    let start = || {
        let setup = setup(&root, &["purge_from = \"127.0.0.1\""]);
        let dir = format!("cache_dir = {:?}", disk.0.path());
        setup.top(&dir).start()
    };
    let server = start();
    let purge = |target: &str| {
        let purge = Request::new("PURGE", target).header("Host", "localhost");
        http::ask(server.address(), &purge.header("Connection", "close")).status
    };
    for name in ["/a", "/b", "/c"] {
        assert_eq!(get(&server, name).text(), "run 1 ");
    }
    let large = |number: usize| format!("/large/{number}?size=8192");
    for number in 0..8 {
        assert_eq!(get(&server, &large(number)).status, 200);
        assert!(is_hit(&get(&server, &large(number))), "in memory at least");
    }
    let cache = page_cache(&server);
    assert!(cache["write_errors"].as_u64() > Some(0), "{cache}");
    assert_eq!(cache["sites"][0]["stored"], 11, "{cache}");
    assert_eq!(purge("/a"), 200);
    assert_eq!(get(&server, "/a").text(), "run 2 ");
    disk.again("rw,size=8m");
    kill_front(&server);
    // What had no place on disk is made again, and what was purged does not come back.
    for number in 0..8 {
        assert_eq!(
            get(&server, &large(number)).body.len(),
            "run 1 ".len() + 32 * 8192
        );
    }
    assert_ne!(get(&server, "/a").text(), "run 1 ");
    server.stop();
    disk.again("ro");
    let server = start();
    assert!(server.log_text().contains("pages are kept in memory only"));
    assert!(!is_hit(&get(&server, "/c")) && is_hit(&get(&server, "/c")));
    assert!(page_cache(&server)["disk"].is_null());
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
        let all: Vec<_> = if has_host {
            fields.to_vec()
        } else {
            [&host, fields].concat()
        };
        let answer = http::try_ask(server.address(), &request(target, &all));
        let took = answer.map(|answer| (answer.status, status(&answer).to_owned()));
        let clean = with(&server, "/a?host", &host);
        assert!(
            !clean.text().contains("evil"),
            "{target} {fields:?}: {took:?}"
        );
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
    // Two fields of a name, and a body where there should be none.
    let two = [("Host", "shop.example"), ("Host", "evil.example")];
    let two = two
        .iter()
        .fold(Request::new("GET", target), |request, (name, value)| {
            request.header(name, value)
        });
    assert_eq!(http::ask(server.address(), &two).status, 400);
    let fat = request(target, &[("Host", "shop.example")]).body(b"host=evil.example");
    assert!(!is_hit(&http::ask(server.address(), &fat)));
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
    let server = setup(&root, &[&lines])
        .hosts(&["a.example"])
        .top(&line)
        .start();
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
    assert_eq!(
        [runs("a.example"), runs("b.example")],
        [format!("run {run} "), "run 1 ".into()]
    );
}
