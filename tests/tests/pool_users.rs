//! A reload that gives a pool another user: requests of the new configuration reach no worker of
//! the former one, whatever becomes of the new ones.

use std::collections::BTreeSet;
use std::os::unix::fs::chown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::installed::{installed, replace};
use maitred_tests::jobs;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, is_root, public_folder, set_mode, user_ids, write_file,
};
use maitred_tests::wait;
use tempfile::TempDir;

/// The second user, who is on every machine.
const OTHER_USER: &str = "nobody";

const HOST: &str = "moved.test";

/// A folder of a tenant: `index.php` has its name and the number of the user that runs it, and
/// `wait.php` ends when there is a file `go`.
fn tenant(name: &str) -> TempDir {
    let index = format!(
        "<?php preg_match('/^Uid:\\s+(\\d+)/m', file_get_contents('/proc/self/status'), $found);
         echo '{name} ', $found[1];"
    );
    document_root(&[
        ("index.php", &index),
        (
            "wait.php",
            "<?php echo 'waits'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             echo 'ends';",
        ),
        ("preload.php", "<?php sleep(2);"),
    ])
}

/// A server with the pool `www`, and a site that the pool `shop` runs with these settings.
fn with_shop(main: &TempDir, root: &TempDir, settings: &str) -> Setup {
    let site = format!("[[sites]]\nhosts = [{HOST:?}]\nroot = {:?}", root.path());
    Setup::new(main.path())
        .hosts(&["www.test"])
        .site(&format!("{site}\npool = \"shop\"\n[pools.shop]\nmax_children = 1\n{settings}"))
}

/// Has PHP take a while to start, in which the former workers are idle.
fn slow_start(root: &TempDir) -> String {
    let preload = root.path().join("preload.php");
    format!("php_admin_value = {{ \"opcache.preload\" = {preload:?} }}")
}

fn of_user(user: &str, others: &str) -> String {
    format!("user = {user:?}\n{others}")
}

fn request(target: &str) -> Request {
    Request::new("GET", target).header("Host", HOST)
}

/// What the site responds, and with which status.
fn ask(server: &Server) -> (u16, String) {
    let response = http::ask(server.address(), &request("/index.php"));
    (response.status, response.text())
}

fn by(tenant: &str, user: &str) -> (u16, String) {
    (200, format!("{tenant} {}", user_ids(user).0))
}

/// A list of users and groups of a server's own, in which `tenant` may be.
struct UserList(TempDir);

impl UserList {
    /// The number of `tenant`, and that of its group, which is not that of its folder.
    const IDS: (u32, u32) = (54_321, 54_322);

    /// Another number of `tenant`.
    const OTHER_ID: u32 = 54_323;

    fn new() -> UserList {
        let list = UserList(document_root(&[]));
        list.write("files", Some(UserList::IDS.0));
        list
    }

    /// `sources`: where users are looked up; `hesiod`, without its configuration, responds with an
    /// error. `tenant`: its number, if it is there.
    fn write(&self, sources: &str, tenant: Option<u32>) {
        let switch = format!("passwd: {sources}\ngroup: {sources}\nhosts: files dns\n");
        write_file(self.0.path(), "nsswitch.conf", switch.as_bytes());
        let (gid, uid) = (UserList::IDS.1, tenant.unwrap_or_default());
        let lines = [
            ("passwd", format!("tenant:x:{uid}:{gid}::/:/usr/sbin/nologin\n")),
            ("group", format!("tenant:x:{gid}:\n")),
        ];
        for (name, line) in lines {
            let all = fs::read_to_string(format!("/etc/{name}")).expect("it can be read");
            let line = if tenant.is_some() { line.as_str() } else { "" };
            write_file(self.0.path(), name, format!("{all}{line}").as_bytes());
        }
    }

    /// A server that has this list.
    fn start(&self, setup: Setup) -> Server {
        let folder = self.0.path().display();
        let mounts = ["nsswitch.conf", "passwd", "group"];
        let mounts = mounts.map(|name| format!("mount --bind {folder}/{name} /etc/{name} && "));
        let script = format!("{}exec \"$@\"", mounts.concat());
        setup.under(&["unshare", "--mount", "sh", "-c", &script, "sh"]).start()
    }
}

/// The number of the user of a process.
fn user_of(pid: i32) -> Option<u32> {
    let users = jobs::status_field(pid, "Uid");
    users.split_whitespace().next().and_then(|user| user.parse().ok())
}

fn skips() -> bool {
    if !is_root() {
        eprintln!("skipped: only root can run pools as several users");
    }
    !is_root()
}

/// The site stores its pages.
const CACHE: &str = "[sites.cache]\nvalid = \"10m\"";

fn with_cached_shop(main: &TempDir, root: &TempDir, settings: &str) -> Setup {
    let site = format!("[[sites]]\nhosts = [{HOST:?}]\nroot = {:?}", root.path());
    let pool = format!("[pools.shop]\n{settings}");
    let setup = Setup::new(main.path()).hosts(&["www.test"]);
    setup.site(&format!("{site}\npool = \"shop\"\n{CACHE}\n{pool}"))
}

/// What the site responds during a reload, as long as it lasts and until the new tenant is served.
fn responses_during_reload(server: &Server, expected: &(u16, String)) -> BTreeSet<(u16, String)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                seen.insert(ask(server));
            }
            seen
        });
        assert!(server.reload().contains("reloaded"), "{}", server.log_text());
        wait::until_true("the new tenant to be served", || ask(server) == *expected);
        is_over.store(true, Ordering::Relaxed);
        asking.join().expect("it does not panic")
    })
}

#[test]
fn a_reload_that_changes_the_user_of_a_pool_sends_no_request_to_the_former_users_workers() {
    if skips() {
        return;
    }
    let (main, [first, second]) = (tenant("main"), ["first", "second"].map(tenant));
    let server = with_shop(&main, &first, &of_user(WEB_USER, "pm = \"static\"")).start();
    let (former, new) = (by("first", WEB_USER), by("second", OTHER_USER));
    assert_eq!(ask(&server), former);
    server.configure(&with_shop(&main, &second, &of_user(OTHER_USER, &slow_start(&second))));
    let mut seen = responses_during_reload(&server, &new);
    seen.retain(|(status, _)| *status == 200);
    seen.remove(&former);
    assert_eq!(seen, BTreeSet::from([new]));
    server.configure(&with_shop(&main, &first, &of_user(WEB_USER, "")));
    responses_during_reload(&server, &former);
    server.stop();
}

#[test]
fn a_pool_whose_new_user_cannot_start_php_serves_nothing_as_the_former_user() {
    if skips() {
        return;
    }
    let (main, [first, second]) = (tenant("main"), ["first", "second"].map(tenant));
    let server = with_shop(&main, &first, &of_user(WEB_USER, "pm = \"static\"")).start();
    assert_eq!(ask(&server), by("first", WEB_USER));
    let mistakes = ["php_admin_value = { \"nonsense\" = \"1\" }", "php = \"0.1\""];
    let settings = mistakes.map(|mistake| of_user(OTHER_USER, mistake));
    for wrong in settings.into_iter().chain(["user = \"no-such-user\"".to_owned()]) {
        server.configure(&with_shop(&main, &second, &wrong));
        assert!(server.reload().contains("reloaded"), "{wrong}: {}", server.log_text());
        assert_eq!(ask(&server).0, 503, "{wrong}");
    }
    server.configure(&with_shop(&main, &second, &of_user(OTHER_USER, "")));
    assert!(server.reload().contains("reloaded"), "{}", server.log_text());
    assert_eq!(ask(&server), by("second", OTHER_USER));
    server.stop();
}

#[test]
fn a_reload_leaves_the_users_of_pools_without_user_as_they_are_while_none_can_be_looked_up() {
    if skips() {
        return;
    }
    let who = "<?php preg_match_all('/^[UG]id:\\s+(\\d+)/m',
                   file_get_contents('/proc/self/status'), $found);
               echo implode(' ', $found[1]), ' ', getmypid();";
    for group in ["", "group = \"tenant\""] {
        let (main, root, list) =
            (tenant("main"), document_root(&[("index.php", who)]), UserList::new());
        let (uid, gid) = UserList::IDS;
        chown(root.path(), Some(uid), Some(user_ids(WEB_USER).1)).expect("root gives it away");
        let setup = with_shop(&main, &root, &format!("pm = \"static\"\n{group}"));
        let server = list.start(setup);
        let before = ask(&server);
        assert!(before.1.starts_with(&format!("{uid} {gid} ")), "{before:?}");
        list.write("files hesiod", None);
        assert!(server.reload().contains("reloaded"), "{}", server.log_text());
        assert_eq!(ask(&server), before, "{group}: {}", server.log_text());
        server.stop();
    }
}

#[test]
fn an_upgrade_leaves_a_pool_its_user_while_that_cannot_be_looked_up() {
    if skips() {
        return;
    }
    let (main, root, list) = (tenant("main"), tenant("shop"), UserList::new());
    let server = list.start(with_shop(&main, &root, &of_user("tenant", "pm = \"static\"")));
    let before = (200, format!("shop {}", UserList::IDS.0));
    assert_eq!(ask(&server), before);
    list.write("files hesiod", None);
    server.signal(Signal::USR2);
    server.expect_log(0, "upgraded to maitred");
    assert_eq!(ask(&server), before, "{}", server.log_text());
    server.stop();
}

/// A folder of root's that the group of `tenant` may write to.
fn folder_of_its_group() -> TempDir {
    let folder = public_folder();
    chown(folder.path(), None, Some(UserList::IDS.1)).expect("root gives it away");
    set_mode(folder.path(), 0o775);
    folder
}

#[test]
fn an_upgrade_while_a_user_cannot_be_looked_up_trusts_no_log_in_a_folder_of_its_groups() {
    if skips() {
        return;
    }
    let (main, root, list) = (tenant("main"), tenant("shop"), UserList::new());
    let folder = folder_of_its_group();
    let [log, roots] = ["access.log", "roots"].map(|name| folder.path().join(name));
    let setup = with_shop(&main, &root, &of_user("tenant", "pm = \"static\""));
    let server = list.start(setup.top(&format!("access_log = {log:?}")));
    list.write("files hesiod", None);
    server.signal(Signal::USR2);
    server.expect_log(0, "upgraded to maitred");
    // A tenant can move a file of root's there from another such folder.
    fs::write(&roots, "").expect("it can be written");
    fs::rename(&log, folder.path().join("access.log.1")).expect("a log can be renamed");
    fs::hard_link(&roots, &log).expect("a link can be made");
    let mark = server.log().mark();
    server.signal(Signal::USR1);
    server.expect_log(mark, "cannot be opened again");
    server.stop();
}

#[test]
fn a_front_that_starts_after_an_upgrade_has_failed_serves_by_the_users_that_run() {
    if skips() {
        return;
    }
    let (main, root, list) = (tenant("main"), tenant("shop"), UserList::new());
    let folder = installed();
    let settings = of_user("tenant", "pm = \"static\"");
    let setup = with_shop(&main, &root, &settings).program(&folder.path().join("maitred"));
    let server = list.start(setup);
    let before = (200, format!("shop {}", UserList::IDS.0));
    assert_eq!(ask(&server), before);
    list.write("files", Some(UserList::OTHER_ID));
    replace(&folder.path().join("maitred-php"), "exit 1");
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "with the front and the workers of the one before");
    let front = server.front().expect("the front of the program before");
    front.signal(Signal::KILL);
    wait::until_true("the end of the front", || !front.is_running());
    wait::until_true("the pool to be served", || ask(&server) == before);
    server.stop();
}

#[test]
fn a_command_of_a_pool_whose_new_user_does_not_exist_ends_and_starts_as_the_next_user() {
    if skips() {
        return;
    }
    let (main, root) = (tenant("main"), tenant("shop"));
    let sleeps = "\n[[pools.shop.commands]]\nname = \"queue\"\ncommand = [\"sleep\", \"1000\"]";
    let as_user = |user| with_shop(&main, &root, &of_user(user, sleeps));
    let server = as_user(WEB_USER).start();
    let former = jobs::running(&server, "queue", 1)[0];
    assert_eq!(user_of(former), Some(user_ids(WEB_USER).0));
    server.configure(&as_user("no-such-user"));
    assert!(server.reload().contains("reloaded"), "{}", server.log_text());
    wait::until_true("the former user's command to end", || Process::read(former).is_none());
    server.configure(&as_user(OTHER_USER));
    assert!(server.reload().contains("reloaded"), "{}", server.log_text());
    let next = jobs::running(&server, "queue", 1)[0];
    assert_eq!(user_of(next), Some(user_ids(OTHER_USER).0));
    server.stop();
}

#[test]
fn a_run_of_a_schedule_ends_with_the_user_of_its_pool_and_the_next_users_runs_begin() {
    if skips() {
        return;
    }
    let (main, root) = (tenant("main"), tenant("shop"));
    let report = "\n[[pools.shop.schedules]]\nname = \"report\"\nevery = \"1s\"\n\
                  command = [\"sleep\", \"1000\"]";
    let as_user = |user| with_shop(&main, &root, &of_user(user, report));
    let server = as_user(WEB_USER).start();
    let run_of = |user| {
        let runs = || server.processes().into_iter().filter(|run| run.title.contains("sleep 1000"));
        let is_its = |run: &Process| user_of(run.pid) == Some(user_ids(user).0);
        wait::until("a run", || runs().find(is_its))
    };
    let former = run_of(WEB_USER);
    server.configure(&as_user(OTHER_USER));
    assert!(server.reload().contains("reloaded"), "{}", server.log_text());
    wait::until_true("the former user's run to end", || !former.is_running());
    run_of(OTHER_USER);
    server.stop();
}

#[test]
fn a_command_ends_at_an_upgrade_that_finds_another_user_for_its_pool() {
    if skips() {
        return;
    }
    let (main, root, list) = (tenant("main"), tenant("shop"), UserList::new());
    let sleeps = "\n[[pools.shop.commands]]\nname = \"queue\"\ncommand = [\"sleep\", \"1000\"]";
    let server = list.start(with_shop(&main, &root, &of_user("tenant", sleeps)));
    let former = jobs::running(&server, "queue", 1)[0];
    assert_eq!(user_of(former), Some(UserList::IDS.0));
    list.write("files", Some(UserList::OTHER_ID));
    server.signal(Signal::USR2);
    server.expect_log(0, "upgraded to maitred");
    wait::until_true("the former user's command to end", || Process::read(former).is_none());
    let next = jobs::running(&server, "queue", 1)[0];
    assert_eq!(user_of(next), Some(UserList::OTHER_ID));
    server.stop();
}

#[test]
fn a_command_ends_at_an_upgrade_that_finds_no_user_for_its_pool_and_starts_as_the_next_user() {
    if skips() {
        return;
    }
    let (main, root, list) = (tenant("main"), tenant("shop"), UserList::new());
    let sleeps = "\n[[pools.shop.commands]]\nname = \"queue\"\ncommand = [\"sleep\", \"1000\"]";
    let server = list.start(with_shop(&main, &root, &of_user("tenant", sleeps)));
    let former = jobs::running(&server, "queue", 1)[0];
    assert_eq!(user_of(former), Some(UserList::IDS.0));
    list.write("files", None);
    server.signal(Signal::USR2);
    server.expect_log(0, "upgraded to maitred");
    wait::until_true("the former user's command to end", || Process::read(former).is_none());
    list.write("files", Some(UserList::OTHER_ID));
    assert!(server.reload().contains("reloaded"), "{}", server.log_text());
    let next = jobs::running(&server, "queue", 1)[0];
    assert_eq!(user_of(next), Some(UserList::OTHER_ID));
    server.stop();
}

#[test]
fn a_script_of_the_former_user_of_a_pool_purges_no_page_of_the_new_one() {
    if skips() {
        return;
    }
    let purging = "<?php echo 'purges'; while (ob_get_level()) { ob_end_flush(); } flush();
        while (!file_exists(__DIR__ . '/go')) {
            clearstatcache();
            maitred_cache_purge_urls(['https://moved.test/*']);
            touch(__DIR__ . '/purged');
        }
        echo 'ends';";
    let (main, [first, second]) = (tenant("main"), ["first", "second"].map(tenant));
    write_file(first.path(), "purging.php", purging.as_bytes());
    chown(first.path(), Some(user_ids(WEB_USER).0), None).expect("root gives it away");
    let server = with_cached_shop(&main, &first, &of_user(WEB_USER, "")).start();
    let mut script = Connection::open(server.address());
    script.send(&request("/purging.php").to_bytes()).expect("the server takes a request");
    script.read_until(b"purges").expect("the script runs");
    server.configure(&with_cached_shop(&main, &second, &of_user(OTHER_USER, "")));
    assert!(server.reload().contains("reloaded"), "{}", server.log_text());
    let cached = || http::ask(server.address(), &request("/index.php"));
    wait::until_true("the new tenant to be served", || cached().status == 200);
    for _ in 0..20 {
        let purged = first.path().join("purged");
        let _ = fs::remove_file(&purged);
        wait::until_true("a purge", || purged.exists());
        assert!(cached().header("Cache-Status").is_some_and(|status| status.contains("hit")));
    }
    fs::write(first.path().join("go"), "").expect("a file can be written");
    script.read_until(b"ends").expect("the script ends");
    server.stop();
}

#[test]
fn a_worker_of_a_removed_pool_serves_no_other_user_whose_pool_has_its_name() {
    if skips() {
        return;
    }
    let (main, [first, second]) = (tenant("main"), ["first", "second"].map(tenant));
    let server = with_shop(&main, &first, &of_user(WEB_USER, "pm = \"static\"")).start();
    let mut waiting = Connection::open(server.address());
    waiting.send(&request("/wait.php").to_bytes()).expect("the server takes a request");
    waiting.read_until(b"waits").expect("the script runs");
    server.configure(&Setup::new(main.path()).hosts(&["www.test"]));
    assert!(server.reload().contains("pool shop removed"), "{}", server.log_text());
    let settings = format!("pm = \"ondemand\"\n{}", slow_start(&second));
    server.configure(&with_shop(&main, &second, &of_user(OTHER_USER, &settings)));
    assert!(server.reload().contains("reloaded"), "{}", server.log_text());
    fs::write(first.path().join("go"), "").expect("a file can be written");
    waiting.read_until(b"ends").expect("the script ends");
    assert_eq!(ask(&server), by("second", OTHER_USER));
    server.stop();
}
