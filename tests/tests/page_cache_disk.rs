//! Kept pages on disk: fronts that are killed while pages are made, files that others change,
//! disks that are full or read-only.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use maitred_tests::cached::{
    file_with, files, flag, get, is_hit, kill_front, pages, request, runs, setup, site, status,
    with,
};
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::page_cache;
use maitred_tests::server::{Server, is_root, public_folder, user_ids};
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// How often a front is killed: 100 times where the variable has no number.
fn kills() -> usize {
    match std::env::var_os("MAITRED_FRONT_KILLS") {
        Some(count) => count.to_str().and_then(|count| count.parse().ok()).unwrap_or(100),
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
        assert!(rest.as_bytes().chunks(32).all(|part| part == first.as_bytes()));
    };
    for round in 0..kills() {
        // A script whose front is gone waits on, for a word of its own.
        let target = format!("/{round}?wait={round}");
        let go = flag(&root, &format!("go{round}"));
        let before = runs(&root);
        let mut filling = Connection::open(server.address());
        filling.send(&request(&target, &[]).to_bytes()).unwrap();
        wait::until_true("the script to run", || runs(&root) > before);
        // And a large one is on its way to the disk, perhaps.
        let mut large_one = Connection::open(server.address());
        large_one.send(&request(&large(round), &[]).to_bytes()).unwrap();
        wait::until_true("its script to run", || runs(&root) > before + 1);
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
    assert_eq!(page_cache(&server)["corrupt_files"], 0);
    drop(dir);
}

#[test]
fn files_that_somebody_changes_takes_away_or_replaces_are_misses_and_nothing_worse() {
    let root = site();
    let (dir, line) = pages();
    let server = setup(&root, &[]).top(&line).start();
    let names = ["whole", "cut", "edited", "empty", "gone", "link", "other", "folder", "pipe"];
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
    replace("pipe", &make_fifo);
    kill_front(&server);
    for name in names {
        let answer = get(&server, &format!("/{name}?body=body+of+{name}."));
        assert_eq!((answer.status, answer.text()), (200, format!("body of {name}.")));
        assert_eq!(is_hit(&answer), name == "whole", "{name}: {}", status(&answer));
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "SECRET");
    assert!(!fs::symlink_metadata(&link).unwrap().is_symlink(), "the page has taken its place");
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
        assert!(mount(&["-o", &format!("remount,{how}")], self.0.path()), "{how}");
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
    expect_one_line_about_unrecorded_purges(&server, &disk);
    disk.again("rw,size=8m");
    kill_front(&server);
    // What had no place on disk is made again, and what was purged does not come back.
    for number in 0..8 {
        assert_eq!(get(&server, &large(number)).body.len(), "run 1 ".len() + 32 * 8192);
    }
    assert_ne!(get(&server, "/a").text(), "run 1 ");
    server.stop();
    disk.again("ro");
    let server = start();
    assert!(server.log_text().contains("pages are cached in memory only"));
    assert!(!is_hit(&get(&server, "/c")) && is_hit(&get(&server, "/c")));
    assert!(page_cache(&server)["disk"].is_null());
}

/// Fills the disk, and has a client purge more than its journal has room for.
fn expect_one_line_about_unrecorded_purges(server: &Server, disk: &TinyDisk) {
    let filler = disk.0.path().join("filler");
    assert!(fs::write(&filler, vec![0; 16 << 20]).is_err(), "there was room for it");
    let words = "purges are done but could not be written to cache_dir";
    for number in 0..100 {
        let target = format!("/{number}{}", "x".repeat(1000));
        let post = Request::post(&target, "text/plain", b"changed");
        assert_eq!(http::ask(server.address(), &post).status, 200);
    }
    server.expect_log(0, words);
    assert_eq!(server.log_text().matches(words).count(), 1, "{}", server.log_text());
    fs::remove_file(filler).expect("it can be removed");
}

/// Gives the pool another user for a while: what it has stored is not served to the former one.
fn with_another_user(server: Server, text: &str) -> Server {
    if !is_root() {
        return server;
    }
    server.configure_as(&text.replace("[pools.shop]", "[pools.shop]\nuser = \"nobody\""));
    assert!(server.reload().contains("reloaded"));
    assert!(!is_hit(&get(&server, "/page")) && is_hit(&get(&server, "/page")));
    server.configure_as(text);
    let server = server.restart(|_| {});
    assert!(!is_hit(&get(&server, "/page")));
    server
}

#[test]
fn a_site_that_is_another_tenants_gets_neither_pages_nor_cookies_of_the_one_before() {
    let (first, second) = (site(), site());
    let (_dir, line) = pages();
    let of = |root: &TempDir| setup(root, &[]).top(&line);
    let server = of(&first).start();
    let is_known = |server: &Server| {
        let seen = with(server, "/other", &[("Cookie", "login=1")]);
        status(&seen).contains("detail=site-cookie")
    };
    get(&server, "/page");
    get(&server, "/login?h[]=Set-Cookie:+login=1");
    assert!(is_hit(&get(&server, "/page")) && is_known(&server));
    // The same tenant, whose pool has another name.
    let text = fs::read_to_string(server.configuration()).unwrap();
    let renamed = text.replace("[pools.www]", "[pools.shop]").replace("\"www\"", "\"shop\"");
    server.configure_as(&renamed);
    assert!(server.reload().contains("reloaded"));
    assert!(is_hit(&get(&server, "/page")) && is_known(&server));
    let server = with_another_user(server, &renamed);
    server.configure(&of(&second));
    assert!(server.reload().contains("reloaded"));
    assert!(!is_hit(&get(&server, "/page")) && runs(&second) == 1);
    assert!(is_hit(&get(&server, "/page")) && !is_known(&server));
    // Back at the first tenant, whose pages could have changed meanwhile.
    server.configure(&of(&first));
    let before = runs(&first);
    let server = server.restart(|_| {});
    assert!(!is_hit(&get(&server, "/page")) && runs(&first) == before + 1);
    // The same of the second one, whose pages are on disk.
    server.configure(&of(&second));
    let server = server.restart(|_| {});
    assert!(!is_hit(&get(&server, "/page")) && is_hit(&get(&server, "/page")));
    let server = server.restart(|_| {});
    assert!(is_hit(&get(&server, "/page")));
    server.stop();
}

#[test]
fn a_site_that_had_no_cache_between_two_restarts_gets_no_page_of_before() {
    let root = site();
    let (_dir, line) = pages();
    let of = |lines: &[&str]| setup(&root, lines).top(&line);
    let server = of(&[]).start();
    get(&server, "/page");
    assert!(is_hit(&get(&server, "/page")));
    server.configure(&of(&["enabled = false"]));
    let server = server.restart(|_| {});
    let post = Request::post("/page", "text/plain", b"changed");
    assert_eq!(http::ask(server.address(), &post).status, 200);
    server.configure(&of(&[]));
    let server = server.restart(|_| {});
    assert!(!is_hit(&get(&server, "/page")) && is_hit(&get(&server, "/page")));
    server.stop();
}

#[test]
fn what_is_not_to_be_stored_by_new_rules_is_served_no_more() {
    let root = site();
    let (_dir, line) = pages();
    let of = |lines: &[&str]| setup(&root, lines).top(&line);
    let server = of(&[]).start();
    let is_cached = |server: &Server| {
        get(server, "/account/a");
        is_hit(&get(server, "/account/a"))
    };
    assert!(is_cached(&server));
    let rule = "no_store_paths = \"/account/*\"";
    server.configure(&of(&[rule]));
    assert!(server.reload().contains("reloaded"));
    assert!(!is_cached(&server));
    // The pages of before are gone, and those with the same rules stay.
    server.configure(&of(&["min_uses = 1"]));
    let server = server.restart(|_| {});
    assert!(!is_hit(&get(&server, "/account/a")) && is_cached(&server));
    server.configure(&of(&["lock_timeout = \"9s\""]));
    assert!(server.reload().contains("reloaded"));
    assert!(is_hit(&get(&server, "/account/a")));
    server.configure(&of(&[rule]));
    let server = server.restart(|_| {});
    assert!(!is_cached(&server));
    server.stop();
}

#[test]
fn a_site_whose_root_gets_another_owner_gets_no_page_of_the_one_before() {
    if !is_root() {
        return eprintln!("skipped: only as root a pool has the owner of its root for its user");
    }
    let root = site();
    let (_dir, line) = pages();
    let server = setup(&root, &[]).top(&line).start();
    get(&server, "/page");
    assert!(is_hit(&get(&server, "/page")));
    let server = server.restart(|_| {
        let (uid, gid) = user_ids("nobody");
        chown(root.path(), Some(uid), Some(gid)).expect("root can give a folder away");
    });
    assert!(!is_hit(&get(&server, "/page")) && is_hit(&get(&server, "/page")));
    server.stop();
}

#[test]
fn fifos_and_links_in_place_of_the_files_in_the_folder_hold_no_start() {
    let root = site();
    let (dir, line) = pages();
    let server = setup(&root, &[]).top(&line).start();
    get(&server, "/page");
    let names = ["cookies", "cookies.new", "sites", "sites.new", "purges", "purges.new"];
    let secret = root.path().join("runs/secret");
    fs::write(&secret, "SECRET").unwrap();
    let server = server.restart(|_| {
        for path in names.map(|name| dir.path().join(name)) {
            let _ = fs::remove_file(&path);
            make_fifo(&path);
        }
    });
    get(&server, "/login?h[]=Set-Cookie:+login=1");
    let written = || fs::symlink_metadata(dir.path().join("cookies")).ok()?.is_file().then_some(());
    wait::until("the file of cookies", written);
    assert!(!is_hit(&get(&server, "/page")) && is_hit(&get(&server, "/page")));
    let server = server.restart(|_| {
        for path in names.map(|name| dir.path().join(name)) {
            let _ = fs::remove_file(&path);
            symlink(&secret, path).unwrap();
        }
    });
    assert!(!is_hit(&get(&server, "/page")) && is_hit(&get(&server, "/page")));
    assert_eq!(fs::read_to_string(&secret).unwrap(), "SECRET");
    let server = server.restart(|_| {
        fs::remove_file(dir.path().join("lock")).unwrap();
        make_fifo(&dir.path().join("lock"));
    });
    server.expect_log(0, "pages are cached in memory only");
    assert!(!is_hit(&get(&server, "/page")) && is_hit(&get(&server, "/page")));
    server.stop();
}

#[test]
fn a_page_that_another_user_puts_into_an_open_folder_is_none_and_the_log_warns_of_the_folder() {
    let root = site();
    let (dir, line) = pages();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let server = setup(&root, &[]).top(&line).start();
    server.expect_log(0, "another user may write there");
    get(&server, "/page?body=planted");
    assert!(is_hit(&get(&server, "/page?body=planted")));
    if is_root() {
        let (uid, gid) = user_ids("nobody");
        let file = file_with(dir.path(), "planted");
        chown(&file, Some(uid), Some(gid)).expect("root can give a file away");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        kill_front(&server);
        assert!(!is_hit(&get(&server, "/page?body=planted")));
    }
    server.stop();
}

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|made| made.success()));
}

#[test]
fn what_is_purged_while_the_folder_cannot_be_used_is_not_served_when_it_can_be_again() {
    let root = site();
    let (dir, line) = pages();
    let server = setup(&root, &[]).top(&line).start();
    get(&server, "/page");
    assert!(is_hit(&get(&server, "/page")));
    let lock = dir.path().join("lock");
    let server = server.restart(|_| {
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
    });
    server.expect_log(0, "pages are cached in memory only; the pages in that folder are discarded");
    let post = Request::post("/page", "text/plain", b"changed");
    assert_eq!(http::ask(server.address(), &post).status, 200);
    let server = server.restart(|_| fs::remove_dir(&lock).unwrap());
    let before = runs(&root);
    assert!(!is_hit(&get(&server, "/page")) && runs(&root) == before + 1);
    server.stop();
}
