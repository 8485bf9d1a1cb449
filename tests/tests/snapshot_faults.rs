//! `mode = "snapshot"` when something fails: zygotes that are killed, locks that the dead held,
//! code that is replaced under load.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use maitred_tests::booted::{PATIENCE, application, expect_fine, from_environment, snapshot};
use maitred_tests::http;
use maitred_tests::outside::{command, text};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, write_file};
use maitred_tests::{Target, project_root, wait};

/// The same without a limit of the wait.
fn patient(root: &Path) -> Setup {
    snapshot(root).pool("request_queue_timeout = \"60s\"")
}

fn zygote(server: &Server) -> Process {
    server.zygote().expect("there is a zygote")
}

/// Says that it is over, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks again and again, from three clients, while `act` does something else.
fn under_load<T>(ask: impl Fn() + Sync, act: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    ask();
                }
            });
        }
        let _over = Over(&over);
        act()
    })
}

fn pass(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn whenever_its_zygote_is_killed_requests_are_served_and_no_copy_is_left_over() {
    const MOMENTS_APART: Duration = Duration::from_micros(170);
    let kills = from_environment("MAITRED_SNAPSHOT_KILLS", 8);
    let root = application("", "echo 'fine';");
    let server = patient(root.path()).workers(1).start();
    for kill in 0..kills {
        server.wait_for_full_strength(3, PATIENCE);
        let (zygote, supervisor) = (zygote(&server), server.supervisor());
        // Two copies are used up, and orders for two others wait for a zygote that stands still.
        zygote.signal(Signal::STOP);
        expect_fine(&server, 2);
        wait::until_true("two copies to be gone", || server.workers().len() == 1);
        // It gets through with some of them, which the supervisor hears of together with its death.
        supervisor.signal(Signal::STOP);
        zygote.signal(Signal::CONT);
        pass(MOMENTS_APART * (kill % 16));
        zygote.signal(Signal::KILL);
        supervisor.signal(Signal::CONT);
        expect_fine(&server, 5);
    }
    server.wait_for_full_strength(3, PATIENCE);
    // And at any moment, while clients keep it forking.
    let ask = || expect_fine(&server, 1);
    under_load(ask, || {
        for kill in 0..kills / 2 {
            let dead = zygote(&server);
            pass(MOMENTS_APART * (kill % 16));
            dead.signal(Signal::KILL);
            wait::until_within("another zygote", PATIENCE, || {
                server.zygote().filter(|zygote| *zygote != dead)
            });
            expect_fine(&server, 4);
        }
    });
    server.wait_for_full_strength(3, PATIENCE);
    server.stop();
}

#[test]
fn copies_that_are_killed_while_they_wait_cost_no_request_and_at_work_only_their_own() {
    const KILLS: usize = 6;
    let root = application("", "echo 'fine';");
    let server = patient(root.path()).workers(2).start();
    let kill_one = || {
        // As the kernel does without memory: any process.
        if let Some(copy) = server.workers().pop() {
            copy.signal(Signal::KILL);
        }
    };
    for _ in 0..KILLS {
        // There is no request, so it waits, or has responded.
        kill_one();
        expect_fine(&server, 2);
    }
    let lost = AtomicUsize::new(0);
    let ask = || {
        let answer = http::get(server.address(), "/");
        match answer.status {
            // Its copy had begun, and a request is never run twice.
            502 => _ = lost.fetch_add(1, Ordering::Relaxed),
            status => assert_eq!((status, &*answer.text()), (200, "fine")),
        }
    };
    under_load(ask, || {
        for _ in 0..KILLS {
            kill_one();
            ask();
            ask();
        }
    });
    let lost = lost.into_inner();
    assert!(lost <= KILLS, "{lost} requests for {KILLS} copies");
    server.wait_for_full_strength(4, PATIENCE);
    expect_fine(&server, 4);
    server.stop();
}

/// Replaces what a link leads to in one step, as deployments do.
fn lead_to(link: &Path, target: &Path) {
    let new = link.with_extension("new");
    std::os::unix::fs::symlink(target, &new).expect("a link can be made");
    std::fs::rename(new, link).expect("it can take its place");
}

#[test]
fn a_deployment_under_load_mixes_no_two_releases_and_waits_for_a_boot_that_takes_long() {
    let root = document_root(&[]);
    let release = |version: &str, boot: &str| {
        let folder = format!("releases/{version}");
        let script = format!(
            "<?php {boot}; require __DIR__ . '/boot.php'; maitred_snapshot();
             echo BOOTED, '-', require __DIR__ . '/page.php';"
        );
        let constant = format!("<?php const BOOTED = {version};");
        let page = format!("<?php return {version};");
        for (name, text) in [("index.php", &script), ("boot.php", &constant), ("page.php", &page)] {
            write_file(root.path(), &format!("{folder}/{name}"), text.as_bytes());
        }
        root.path().join(folder)
    };
    let (first, second) = (release("1", ""), release("2", "sleep(3)"));
    let current = root.path().join("current");
    lead_to(&current, &first);
    let server = patient(&current).workers(2).start();
    let address = server.address();
    under_load(
        || {
            let answer = http::get(address, "/");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(["1-1", "2-2"].contains(&&*answer.text()), "{}", answer.text());
        },
        || {
            lead_to(&current, &second);
            let reloaded = command(&server, &["reload", "www"]);
            assert!(text(&reloaded.stdout).contains("reloaded: "), "{reloaded:?}");
        },
    );
    std::fs::remove_dir_all(first).unwrap();
    for _ in 0..4 {
        assert_eq!(http::get(address, "/").text(), "2-2");
    }
    server.stop();
}

#[test]
fn what_the_boot_has_set_is_in_every_copy_and_an_emptied_opcache_does_no_harm() {
    let root = application(
        "ini_set('precision', '5'); umask(0127); chdir('/tmp'); setlocale(LC_ALL, 'C.UTF-8');
         putenv('BOOTED=yes'); date_default_timezone_set('Asia/Tokyo'); $reset = opcache_reset();",
        "echo json_encode([ini_get('precision'), umask(), getcwd(), setlocale(LC_ALL, 0), \
         getenv('BOOTED'),
             date_default_timezone_get(), $reset]);
         umask(0); chdir('/'); putenv('BOOTED=no'); ini_set('precision', '7');",
    );
    let server = patient(root.path()).workers(1).start();
    let set = serde_json::json!(["5", 0o127, "/tmp", "C.UTF-8", "yes", "Asia/Tokyo", true]);
    for _ in 0..4 {
        assert_eq!(http::get(server.address(), "/").json(), set);
    }
    server.stop();
}

/// A copy that says who it is in a file, and does `what` until it is killed.
const KILLED: &str = "file_put_contents(__DIR__ . '/pid.new', getmypid());
    rename(__DIR__ . '/pid.new', __DIR__ . '/pid');";

/// Has a copy do what it does until it is killed, and kills it so long after it has begun.
fn kill_at_work(server: &Server, root: &Path, target: &str, after: Duration) {
    let file = root.join("pid");
    let _ = std::fs::remove_file(&file);
    std::thread::scope(|threads| {
        let address = server.address();
        let answer = threads.spawn(move || http::get(address, target).status);
        let pid = wait::until_within("a copy at work", PATIENCE, || {
            std::fs::read_to_string(&file).ok()?.parse().ok()
        });
        pass(after);
        let copy = Process::read(pid).expect("it is at work");
        copy.signal(Signal::KILL);
        assert_eq!(answer.join().expect("there is an answer"), 502);
    });
}

/// Gives the pool new memory.
fn reload(server: &Server) {
    let reloaded = command(server, &["reload", "www"]);
    assert!(text(&reloaded.stdout).contains("reloaded: "), "{reloaded:?}");
}

#[test]
fn a_copy_that_is_killed_while_it_fills_opcache_leaves_that_to_others() {
    let filling = format!(
        "$page = __DIR__ . '/page.php';
         if (isset($_GET['fill'])) {{ {KILLED}
             while (true) {{ opcache_invalidate($page, true); opcache_compile_file($page); }}
         }}
         opcache_invalidate($page, true);
         echo json_encode([opcache_compile_file($page), opcache_is_script_cached($page),
             count(require $page)]);"
    );
    let root = application("", &filling);
    let list = (0..2000).map(|n| format!("['name' => 'entry {n}', 'next' => {n}],"));
    let page = format!("<?php return [{}];", list.collect::<String>());
    write_file(root.path(), "page.php", page.as_bytes());
    // Longer than to fill it takes on any machine.
    let limited = patient(root.path()).pool("request_terminate_timeout = \"15s\"");
    let server = limited.workers(2).start();
    let mut loops = 0;
    for kill in 0..6 {
        let after = Duration::from_micros(730) * kill;
        kill_at_work(&server, root.path(), "/?fill", after);
        let answer = http::get(server.address(), "/");
        if answer.status == 504 {
            // Killed between two instructions of PHP's, which leave a list without an end.
            loops += 1;
            reload(&server);
            continue;
        }
        assert_eq!(answer.json(), serde_json::json!([true, true, 2000]));
    }
    // One kill in some 500 does that, with PHP 8.2.
    assert!(loops < 3, "{loops} of 6");
    assert_eq!(http::get(server.address(), "/").status, 200);
    server.wait_for_full_strength(4, PATIENCE);
    server.stop();
}

#[test]
fn a_lock_of_apcu_that_the_dead_held_costs_those_who_want_it_and_goes_with_a_reload() {
    let holding = format!(
        "$times = apcu_entry('times', function () {{ return 0; }});
         if (isset($_GET['hold'])) {{ apcu_entry('held', function () {{ {KILLED} sleep(600); }}); }}
         echo 'fine';"
    );
    // Earlier messages concern no other test.
    let holding = format!("if (isset($_GET['without'])) {{ echo 'fine'; exit; }} {holding}");
    let root = application("", &holding);
    // Where the web user may read it.
    let apcu = root.path().join("apcu.so");
    std::fs::copy(project_root().join("target/tools/apcu.so"), &apcu)
        .expect("APCu is there: run scripts/setup-test");
    let server = patient(root.path())
        .workers(2)
        .pool("request_terminate_timeout = \"1s\"")
        .pool(&format!("php_admin_value.extension = {apcu:?}"))
        .start();
    expect_fine(&server, 2);
    kill_at_work(&server, root.path(), "/?hold", Duration::ZERO);
    let waits = http::Request::post("/", "text/plain", b"");
    assert_eq!(http::ask(server.address(), &waits).status, 504);
    for _ in 0..4 {
        assert_eq!(http::get(server.address(), "/?without").text(), "fine");
    }
    reload(&server);
    expect_fine(&server, 4);
    server.stop();
}
