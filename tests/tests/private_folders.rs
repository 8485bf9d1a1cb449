//! The folders of pools' users for temporary files and sessions: private by default where pools
//! have several users, and what a pool, php.ini or `.user.ini` sets instead.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred_tests::http::{self, Request};
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, is_root, public_folder, set_mode, user_ids, write_file,
};
use maitred_tests::{Target, maitred_program, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A second user, who is on every machine.
const OTHER_USER: &str = "nobody";

/// `where.php` says where files go, `count.php` counts in a session, `upload.php` says where an
/// upload lies, and `spy.php` tries to read a folder and all in it.
fn scripts() -> TempDir {
    document_root(&[
        (
            "where.php",
            "<?php echo json_encode(['temp' => sys_get_temp_dir(),
                'upload' => (string) ini_get('upload_tmp_dir'), 'env' => getenv('TMPDIR'),
                'sessions' => session_save_path(), 'gc' => ini_get('session.gc_probability')]);",
        ),
        (
            "count.php",
            "<?php session_id($_GET['id']); session_start();
             $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo $_SESSION['n'];
             touch(tempnam(sys_get_temp_dir(), 'mine'));",
        ),
        ("upload.php", "<?php echo dirname($_FILES['file']['tmp_name']);"),
        (
            "spy.php",
            "<?php $found = @scandir($_GET['path']);
             foreach (['sess_visitor1', ''] as $file) {
                 $read[] = @file_get_contents($_GET['path'] . '/' . $file); }
             echo json_encode([$found, $read, @file_put_contents($_GET['path'] . '/x', 'x')]);",
        ),
    ])
}

/// A server with the pool `www`, and the pool `other` of another user at the host other.test.
fn of_two_users(root: &Path) -> Setup {
    Setup::new(root)
        .workers(1)
        .site(&format!("[[sites]]\nhosts = [\"other.test\"]\nroot = {root:?}\npool = \"other\""))
        .site(&format!("[pools.other]\npm = \"static\"\nmax_children = 1\nuser = {OTHER_USER:?}"))
}

fn ask(server: &Server, host: &str, target: &str) -> String {
    http::ask(server.address(), &Request::new("GET", target).header("Host", host)).text()
}

/// What `where.php` says at a host.
fn places(server: &Server, host: &str) -> Value {
    let text = ask(server, host, "/where.php");
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

/// The parts of a user's folder below `parent`.
fn folder_of(parent: &Path, user: &str) -> [PathBuf; 2] {
    let folder = parent.join(user_ids(user).0.to_string());
    ["tmp", "sessions"].map(|part| folder.join(part))
}

fn skips() -> bool {
    if !is_root() {
        eprintln!("skipped: only root can run pools as several users");
    }
    !is_root()
}

#[test]
fn no_pool_reads_the_temporary_files_or_sessions_of_another_users_pool() {
    if skips() {
        return;
    }
    let root = scripts();
    let server = of_two_users(root.path()).start();
    assert_eq!(ask(&server, "www.test", "/count.php?id=visitor1"), "1");
    for (host, user) in [("www.test", WEB_USER), ("other.test", OTHER_USER)] {
        let [tmp, sessions] = folder_of(&server.state().join("users"), user);
        let expected = json!({"temp": tmp, "upload": tmp, "env": tmp, "sessions": sessions,
            "gc": "1"});
        assert_eq!(places(&server, host), expected);
        for path in [tmp.parent().expect("it has one"), &tmp, &sessions] {
            let found = fs::metadata(path).expect("it exists");
            assert_eq!((found.uid(), found.mode() & 0o7777), (user_ids(user).0, 0o700));
        }
    }
    let [tmp, sessions] = folder_of(&server.state().join("users"), WEB_USER);
    assert!(sessions.join("sess_visitor1").is_file());
    assert_eq!(fs::read_dir(&tmp).expect("it exists").count(), 1, "what tempnam() has made");
    for path in [tmp.as_path(), sessions.as_path(), &server.state().join("users")] {
        let spied = ask(&server, "other.test", &format!("/spy.php?path={}", path.display()));
        assert_eq!(spied, "[false,[false,false],false]", "{}", path.display());
    }
    let body =
        b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b--";
    let request = Request::new("POST", "/upload.php")
        .header("Host", "www.test")
        .header("Content-Type", "multipart/form-data; boundary=b")
        .body(body);
    let uploaded = http::ask(server.address(), &request);
    assert_eq!(uploaded.text(), tmp.display().to_string());
}

#[test]
fn a_session_goes_on_after_a_reload_and_a_restart() {
    if skips() {
        return;
    }
    let (root, folders) = (scripts(), public_folder());
    let setup = of_two_users(root.path()).top(&format!("private_dir = {:?}", folders.path()));
    let count = |server: &Server| ask(server, "www.test", "/count.php?id=visitor1");
    let server = setup.clone().start();
    assert_eq!(count(&server), "1");
    server.configure(&setup.clone().pool("env = { A = \"b\" }"));
    assert!(server.reload().contains("reloaded"));
    assert_eq!(count(&server), "2");
    server.stop();
    let server = setup.start();
    assert_eq!(count(&server), "3");
    let sessions = folders.path().join(user_ids(WEB_USER).0.to_string()).join("sessions");
    assert_eq!(places(&server, "www.test")["sessions"], json!(sessions));
}

#[test]
fn what_the_pool_php_ini_or_user_ini_sets_is_used_instead() {
    if skips() {
        return;
    }
    let (root, own) = (scripts(), public_folder());
    set_mode(own.path(), 0o777);
    let path = own.path().display().to_string();
    let change = |pool: &str| of_two_users(root.path()).pool(pool).start();
    let server = change(&format!(
        "php_admin_value = {{ sys_temp_dir = {path:?} }}\n\
         php_value = {{ \"session.save_path\" = {path:?} }}"
    ));
    let expected = json!({"temp": path, "upload": "", "env": false, "sessions": path, "gc": "0"});
    assert_eq!(places(&server, "www.test"), expected);
    drop(server);
    let server = change(&format!("env = {{ TMPDIR = {path:?} }}"));
    let found = places(&server, "www.test");
    assert_eq!([&found["temp"], &found["env"]], [&json!(path), &json!(path)]);
    drop(server);
    let ini = own.path().join("php.ini");
    fs::write(&ini, format!("upload_tmp_dir = {path}\nsession.save_path = {path}\n"))
        .expect("php.ini can be written");
    let server = change(&format!("php_ini = {ini:?}"));
    let [tmp, _] = folder_of(&server.state().join("users"), WEB_USER);
    let found = places(&server, "www.test");
    assert_eq!([&found["temp"], &found["upload"]], [&json!(tmp), &json!(path)]);
    assert_eq!(found["sessions"], json!(path));
    drop(server);
    write_file(root.path(), ".user.ini", format!("session.save_path = {path}\n").as_bytes());
    let server = change("");
    assert_eq!(places(&server, "www.test")["sessions"], json!(path));
}

#[test]
fn a_pool_whose_open_basedir_excludes_the_folder_has_temporary_files_elsewhere() {
    if skips() {
        return;
    }
    let root = scripts();
    let allowed = |list: &str| format!("php_admin_value = {{ open_basedir = {list:?} }}");
    let list = root.path().display().to_string();
    let server = of_two_users(root.path()).pool(&allowed(&list)).start();
    let [_, sessions] = folder_of(&server.state().join("users"), WEB_USER);
    let expected =
        json!({"temp": "/tmp", "upload": "", "env": false, "sessions": sessions, "gc": "1"});
    assert_eq!(places(&server, "www.test"), expected);
    assert_eq!(ask(&server, "www.test", "/count.php?id=visitor1"), "1");
    drop(server);
    let server = of_two_users(root.path()).pool(&allowed("/")).start();
    let [tmp, _] = folder_of(&server.state().join("users"), WEB_USER);
    assert_eq!(places(&server, "www.test")["temp"], json!(tmp));
}

#[test]
fn pools_of_one_user_and_those_with_private_dir_off_use_php_inis_folders() {
    if skips() {
        return;
    }
    let root = scripts();
    let server = Setup::new(root.path()).start();
    let usual = places(&server, "www.test");
    assert_eq!(usual["env"], json!(false));
    assert!(!server.state().exists());
    // Another user's pool is added, and gone again.
    server.configure(&of_two_users(root.path()));
    assert!(server.reload().contains("reloaded"));
    let [tmp, _] = folder_of(&server.state().join("users"), WEB_USER);
    let places = || places(&server, "www.test");
    wait::until_true("the pool to use its folder", || places()["temp"] == json!(tmp));
    server.configure(&of_two_users(root.path()).top("private_dir = \"off\""));
    assert!(server.reload().contains("reloaded"));
    wait::until_true("the pool to use php.ini's folders", || places() == usual);
}

#[test]
fn a_folder_that_cannot_be_made_is_logged_and_stops_only_pools_that_are_to_have_one() {
    if skips() {
        return;
    }
    let root = scripts();
    let nowhere = ["env", "STATE_DIRECTORY=/proc/nowhere"];
    let server = of_two_users(root.path()).under(&nowhere).start();
    server.expect_log(0, "pool `www` has no folder of its own, /proc/nowhere/users/");
    assert_eq!(places(&server, "www.test")["env"], json!(false));
    let open = public_folder();
    set_mode(open.path(), 0o777);
    let mark = server.log().mark();
    server.configure(&of_two_users(root.path()).top(&format!("private_dir = {:?}", open.path())));
    server.reload();
    server.expect_log(mark, "only root may own");
    // The pools go on as they are.
    assert_eq!(places(&server, "www.test")["env"], json!(false));
    let mut check = Command::new(maitred_program());
    let check = check.args(["check", "--config"]).arg(server.configuration()).output();
    let check = check.expect("check runs");
    let said = String::from_utf8_lossy(&check.stderr);
    let expected = format!("the `private_dir` {} cannot be used", open.path().display());
    assert!(!check.status.success() && said.contains(&expected), "{said}");
}
