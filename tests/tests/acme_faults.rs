//! What can go wrong with certificates by ACME: an authority that is not there, refuses or dies,
//! files that are damaged or cannot be written, processes that end in the middle.

use std::fs;
use std::process::Command;
use std::time::Duration;

use maitred_tests::acme::{ISSUED, NONE, Site, asking, plain, serves, status, text};
use maitred_tests::dashboard_events::{Events, merge};
use maitred_tests::pebble::{Habits, Pebble};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Setup, WEB_USER, is_root, user_ids};
use maitred_tests::{Target, ports, wait};

#[test]
fn while_the_authority_is_not_there_sites_are_served_in_the_clear_and_it_is_asked_again() {
    let (mut pebble, site) = (Pebble::default(), Site::default());
    pebble.stop();
    let server = site.setup(&pebble, &["shop.test"], "").start();
    let line = server.expect_log(0, NONE);
    assert!(line.contains("Connection refused"), "{line}");
    assert!(line.contains("it is tried again in 1"), "{line}");
    let answer = plain(&pebble, "shop.test", "/hello.php");
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    let said = &status(&server)[0];
    assert!(said["expires"].is_null(), "{said}");
    assert!(said["failures"].as_u64() >= Some(1), "{said}");
    assert!(said["error"].as_str().unwrap().contains("Connection refused"), "{said}");
    pebble.start();
    server.expect_log(0, ISSUED);
    serves(&pebble, "shop.test");
    assert_eq!(server.log_text().matches(NONE).count(), 1, "it is said once");
}

#[test]
fn a_host_that_is_elsewhere_gets_none_until_it_is_here_and_others_do() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (pebble, site) = (Pebble::default(), Site::default());
        pebble.move_host("away.test", "127.0.0.77");
        let more = format!(", challenge = \"{challenge}\"");
        let hosts = ["away.test", "shop.test"];
        let server = site.setup(&pebble, &hosts, &more).start();
        let line = server.expect_log(0, NONE);
        let finds = format!("did not find by {challenge} that away.test is ours");
        assert!(line.contains(&finds), "{line}");
        let wait = ["in 5 min", "in 6 min"].iter().any(|wait| line.ends_with(wait));
        assert!(wait, "it is counted by the authority: {line}");
        server.expect_log(0, &format!("shop.test {ISSUED}"));
        serves(&pebble, "shop.test");
        pebble.move_host("away.test", "127.0.0.1");
        // A reload has it tried at once, or some seconds after the last time.
        server.reload();
        server.expect_log(0, &format!("away.test {ISSUED}"));
        serves(&pebble, "away.test");
    }
}

#[test]
fn a_host_that_the_authority_refuses_gets_none_and_others_do() {
    let pebble = Pebble::with(Habits { blocked: vec!["blocked.test".into()], ..Habits::default() });
    let site = Site::default();
    let admin = ports::free_address();
    let setup = site.setup(&pebble, &["blocked.test", "shop.test"], "");
    let server = setup.top(&format!("admin = \"{admin}\"")).start();
    let line = server.expect_log(0, NONE);
    assert!(line.contains("the authority refuses the order"), "{line}");
    assert!(line.contains("(rejectedIdentifier)"), "{line}");
    // The dashboard says why, too.
    let mut events = Events::open(admin, "", "");
    let mut state = events.next("state");
    wait::until_true("the reason", || {
        let all = state["certificates"].as_array().cloned().unwrap_or_default();
        let reason = all.iter().find_map(|one| one["error"].as_str());
        let is_there = reason.is_some_and(|why| why.contains("(rejectedIdentifier)"));
        if !is_there {
            merge(&mut state, &events.next("patch"));
        }
        is_there
    });
    drop(events);
    server.expect_log(0, &format!("shop.test {ISSUED}"));
    serves(&pebble, "shop.test");
}

#[test]
fn an_authority_that_dies_in_the_middle_or_forgets_the_account_costs_no_certificate() {
    let mut pebble =
        Pebble::with(Habits { valid_seconds: 15, hesitates_seconds: 3, ..Habits::default() });
    let site = Site::default();
    let server = site.setup(&pebble, &["shop.test"], "").start();
    server.expect_log(0, ISSUED);
    wait::until_true("the renewal to be ordered", || pebble.orders() == 2);
    pebble.stop();
    let line = server.expect_log(0, NONE);
    assert!(line.contains("the authority cannot be asked"), "{line}");
    let shown = Command::new("openssl")
        .args(["s_client", "-servername", "shop.test", "-connect"])
        .arg(pebble.tls.to_string())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(text(&shown).contains("BEGIN CERTIFICATE"), "{}", text(&shown));
    let mark = server.log().mark();
    pebble.start();
    server.expect_log(mark, ISSUED);
    serves(&pebble, "shop.test");
}

#[test]
fn who_talks_with_the_authority_is_not_root_and_may_die_of_it() {
    let (pebble, site) = (Pebble::default(), Site::default());
    pebble.pause();
    let server = site.setup(&pebble, &["shop.test"], "").start();
    let process = asking(&server);
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap();
    let uids = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    if is_root() {
        let (uid, _) = user_ids(WEB_USER);
        assert_eq!(uids, format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}"));
    }
    process.signal(Signal::KILL);
    pebble.go_on();
    let line = server.expect_log(0, NONE);
    assert!(line.contains("the process that gets it was ended by signal 9"), "{line}");
    server.expect_log(0, ISSUED);
    serves(&pebble, "shop.test");
}

#[test]
fn nonces_that_are_refused_are_asked_for_anew() {
    let pebble = Pebble::with(Habits { refused_nonces: 20, ..Habits::default() });
    let site = Site::default();
    let server = site.setup(&pebble, &["shop.test", "www.shop.test"], "").start();
    server.expect_log(0, &format!("www.shop.test {ISSUED}"));
    serves(&pebble, "shop.test");
}

#[test]
fn a_folder_that_cannot_be_written_is_said_before_anything_is_asked_for() {
    let (pebble, site) = (Pebble::default(), Site::default());
    let file = site.root.path().join("hello.txt");
    let folder = format!("{:?}", site.state.path());
    let line = pebble.toml(site.state.path(), "");
    let line = line.replace(&folder, &format!("{:?}", file.join("acme")));
    let setup = Setup::new(site.root.path()).at(pebble.http);
    let server = setup.hosts(&["shop.test"]).tls(pebble.tls, &[line]).start();
    let line = server.expect_log(0, NONE);
    assert!(line.contains("cannot be written: "), "{line}");
    assert_eq!(pebble.orders(), 0);
    assert_eq!(plain(&pebble, "shop.test", "/hello.php").status, 200);
}

#[test]
fn a_kept_file_that_is_damaged_is_said_and_replaced() {
    let (pebble, site) = (Pebble::default(), Site::default());
    let setup = site.setup(&pebble, &["shop.test"], "");
    let server = setup.clone().start();
    server.expect_log(0, ISSUED);
    server.stop();
    let file = &site.kept()[0];
    let whole = fs::read(file).unwrap();
    fs::write(file, &whole[..whole.len() / 2]).unwrap();
    let server = setup.start();
    let line = server.expect_log(0, "a new certificate is requested");
    assert!(line.contains("shop.test.pem"), "{line}");
    server.expect_log(0, ISSUED);
    serves(&pebble, "shop.test");
}

#[test]
fn an_expired_certificate_is_used_until_there_is_another() {
    let mut pebble = Pebble::with(Habits { valid_seconds: 4, ..Habits::default() });
    let site = Site::default();
    let setup = site.setup(&pebble, &["shop.test"], "");
    let server = setup.clone().start();
    server.expect_log(0, ISSUED);
    server.stop();
    pebble.stop();
    let kept = fs::metadata(&site.kept()[0]).unwrap().modified().unwrap();
    wait::until_true("the certificate to expire", || {
        kept.elapsed().is_ok_and(|age| age > Duration::from_secs(5))
    });
    let server = setup.start();
    let line = server.expect_log(0, "the certificate has expired");
    assert!(line.contains("shop.test.pem"), "{line}");
    server.expect_log(0, NONE);
    assert_eq!(plain(&pebble, "shop.test", "/hello.php").status, 308);
    pebble.start();
    server.expect_log(0, ISSUED);
}

#[test]
fn what_cannot_be_kept_is_used_and_said() {
    let (pebble, site) = (Pebble::default(), Site::default());
    let folder = pebble.folder_in(site.state.path());
    // Nothing can take the place of a folder.
    fs::create_dir_all(folder.join("account.json")).unwrap();
    fs::create_dir_all(folder.join("shop.test.pem")).unwrap();
    let server = site.setup(&pebble, &["shop.test"], "").start();
    server.expect_log(0, "shop.test.pem: it cannot be read: Is a directory");
    server.expect_log(0, "the account cannot be kept");
    let line = server.expect_log(0, "shop.test.pem cannot be written");
    assert!(line.contains("the certificate is lost at the next start"), "{line}");
    server.expect_log(0, ISSUED);
    serves(&pebble, "shop.test");
    let beside = fs::read_dir(&folder).unwrap().count();
    assert_eq!(beside, 2, "nothing lies beside them");
}

#[test]
fn a_front_that_dies_during_an_order_costs_no_certificate() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let pebble = Pebble::with(Habits { hesitates_seconds: 10, ..Habits::default() });
        let site = Site::default();
        let more = format!(", challenge = \"{challenge}\"");
        let server = site.setup(&pebble, &["shop.test"], &more).start();
        wait::until_true("the order", || pebble.log_text().contains("POST /chalZ/"));
        let front = server.front().expect("a front");
        front.signal(Signal::KILL);
        server.expect_log(0, "front 2 accepts clients");
        // A validation by Pebble at this moment fails, and a reload starts another.
        let came_to = |line: &str| line.contains(ISSUED) || line.contains(NONE);
        let line = server.log().find_since(0, wait::DEADLINE, came_to);
        if line.expect("an outcome").contains(NONE) {
            server.reload();
        }
        server.expect_log(0, ISSUED);
        serves(&pebble, "shop.test");
    }
}

#[test]
fn a_stop_in_the_middle_of_an_order_leaves_nothing_and_an_upgrade_goes_on_with_it() {
    let (pebble, site) = (Pebble::default(), Site::default());
    pebble.pause();
    let setup = site.setup(&pebble, &["shop.test"], "");
    let server = setup.clone().start();
    asking(&server);
    server.stop();
    let server = setup.start();
    asking(&server);
    server.signal(Signal::USR2);
    server.expect_log(0, "takes over");
    pebble.go_on();
    server.expect_log(0, ISSUED);
    serves(&pebble, "shop.test");
    wait::until_true("the status to know of it", || {
        status(&server).iter().any(|host| host["expires"].is_u64())
    });
    server.signal(Signal::USR2);
    let mark = server.log().mark();
    server.expect_log(mark, "takes over");
    wait::until_true("the next program to know of it", || {
        status(&server).iter().any(|host| host["expires"].is_u64())
    });
    serves(&pebble, "shop.test");
}
