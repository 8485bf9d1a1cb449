//! Reloads of a server that was started as php-fpm, while every worker has something to do.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use maitred_tests::fpm::{Answer, Daemon, Listener, Params, Which, usual};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{WEB_USER, document_root, is_root, user_ids, write_file};
use maitred_tests::wait;
use tempfile::TempDir;

/// Scripts that take their time.
fn scripts() -> TempDir {
    document_root(&[
        ("slow.php", "<?php usleep(1000 * $_GET['ms']); echo 'done';"),
        (
            "wait.php",
            "<?php while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             echo 'done';",
        ),
    ])
}

/// A request that is never tried again.
fn post(root: &TempDir, target: &str) -> Params {
    let params = Params::get(&root.path().display().to_string(), target);
    params.with("REQUEST_METHOD", "POST")
}

/// Clients that ask without a pause, each as soon as it has its answer.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<u32>>,
}

impl Load {
    fn on(listeners: &[Listener], root: &TempDir, target: &str, clients: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let each =
            listeners.iter().flat_map(|listener| (0..clients).map(move |_| listener.clone()));
        let clients = each.map(|listener| {
            let (params, stop) = (post(root, target), stop.clone());
            thread::spawn(move || {
                let mut answered = 0;
                while !stop.load(Ordering::Relaxed) {
                    let answer = listener.ask(&params, b"").expect("no request is lost");
                    assert_eq!(answer.body(), "done");
                    answered += 1;
                }
                answered
            })
        });
        Load { clients: clients.collect(), stop }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            assert!(client.join().expect("every request is answered") > 0);
        }
    }
}

#[test]
fn saturated_pools_move_over_within_process_max_and_lose_no_request() {
    let root = scripts();
    let user = if is_root() { "user = www-data\n" } else { "" };
    let mut daemon = Daemon::start(
        Which::Maitred,
        &format!(
            "[global]\nprocess.max = 6\nprocess_control_timeout = 10s\n{}pm.max_children = 8\n\
             [other]\nlisten = @FOLDER@/other.sock\npm = dynamic\npm.max_children = 8\n\
             pm.start_servers = 1\npm.min_spare_servers = 1\npm.max_spare_servers = 2\n{user}",
            usual("")
        ),
    );
    let listeners = [daemon.listener(), daemon.place().listener("other.sock")];
    let load = Load::on(&listeners, &root, "/slow.php?ms=50", 8);
    for _ in 0..2 {
        let old = ["www", "other"].map(|pool| daemon.workers(pool)).concat();
        daemon.signal(Signal::USR2);
        wait::until_true("no old worker to be left", || {
            let now = ["www", "other"].map(|pool| daemon.workers(pool)).concat();
            assert!(now.len() <= 6 + 2, "one more for each pool that moves: {now:#?}");
            !old.iter().any(Process::is_running)
        });
    }
    load.end();
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR2);
    daemon.expect_log(mark, "ready to handle connections");
    daemon.stop();
}

#[test]
fn process_control_timeout_cuts_nothing_that_began_after_the_reload() {
    const WORKERS: usize = 8;
    let root = scripts();
    let lines = format!("pm.max_children = {WORKERS}\n[global]\nprocess_control_timeout = 12s\n");
    let daemon = Daemon::start(Which::Maitred, &usual(&lines));
    let ask = |target: &str| -> JoinHandle<io::Result<Answer>> {
        let (listener, params) = (daemon.listener(), post(&root, target));
        thread::spawn(move || listener.ask(&params, b""))
    };
    let old: Vec<_> = (0..WORKERS).map(|_| ask("/wait.php")).collect();
    // A worker has its zygote's title at first.
    let begun = wait::until("all workers", || {
        Some(daemon.workers("www")).filter(|workers| workers.len() == WORKERS)
    });
    daemon.signal(Signal::USR2);
    wait::until_true("the new generation", || daemon.workers("www").len() > begun.len());
    // Old workers get free all at once, while there are new ones for two of them.
    let new: Vec<_> = (0..WORKERS).map(|_| ask("/slow.php?ms=14000")).collect();
    fs::write(root.path().join("go"), "").expect("a file can be written");
    for asked in old.into_iter().chain(new) {
        let answer = asked.join().expect("the client does not panic");
        assert_eq!(answer.expect("it is answered").body(), "done");
    }
    wait::until_true("the old workers to go", || !begun.iter().any(Process::is_running));
    daemon.stop();
}

/// A folder to be `/` for scripts, whose `index.php` has this name and the number of the user that
/// runs it.
fn jail(name: &str) -> TempDir {
    let script = format!("<?php echo '{name} ', posix_geteuid();");
    let jail = document_root(&[("index.php", &script)]);
    // PHP as Debian packages it reads time zones from there.
    write_file(jail.path(), "usr/share/zoneinfo/none", b"");
    jail
}

#[test]
fn a_pool_that_gets_another_user_and_another_chroot_runs_no_script_of_the_former_user() {
    const OTHER_USER: &str = "nobody";
    if !is_root() {
        return eprintln!("skipped: only root can run pools as several users");
    }
    let [first, second] = ["first", "second"].map(jail);
    let tenant = |user: &str, jail: &TempDir| {
        usual(&format!("user = {user}\nchroot = {}\n", jail.path().display()))
    };
    let mut daemon = Daemon::start(Which::Maitred, &tenant(WEB_USER, &first));
    let params = Params::get("/", "/index.php");
    let ask = |daemon: &Daemon| daemon.listener().ask(&params, b"").map(|answer| answer.body());
    let by = |name: &str, user: &str| format!("{name} {}", user_ids(user).0);
    assert_eq!(ask(&daemon).expect("a response"), by("first", WEB_USER));
    let text = daemon.place().fill_in(&tenant(OTHER_USER, &second));
    fs::write(daemon.place().file("php-fpm.conf"), text).expect("a file can be written");
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR2);
    daemon.expect_log(mark, "ready to handle connections");
    let mut seen = BTreeSet::new();
    wait::until_true("the new tenant to be served", || {
        let body = ask(&daemon).unwrap_or_default();
        let is_new = body == by("second", OTHER_USER);
        seen.insert(body);
        is_new || seen.contains(&by("first", OTHER_USER))
    });
    assert!(!seen.contains(&by("first", OTHER_USER)), "{seen:?}");
    daemon.stop();
}
