//! Certificates by ACME, issued by Pebble, the test authority of Let's Encrypt.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use maitred_tests::http::{self, Request};
use maitred_tests::pebble::{Habits, Pebble};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, is_root, public_folder, user_ids,
};
use maitred_tests::tls::Authority;
use maitred_tests::{Target, maitred_program, wait};
use tempfile::TempDir;

/// What the log says when a certificate is there.
const ISSUED: &str = "has a new certificate";

/// What the log says when there is none.
const NONE: &str = "no certificate for";

struct Site {
    root: TempDir,
    state: TempDir,
}

impl Site {
    fn new() -> Site {
        let files = [
            ("hello.txt", "Hello, world!"),
            ("hello.php", "<?php echo 'hello';"),
        ];
        Site {
            root: document_root(&files),
            state: public_folder(),
        }
    }

    /// A server whose certificates Pebble issues, with `more` among the settings of `acme`.
    fn setup(&self, pebble: &Pebble, hosts: &[&str], more: &str) -> Setup {
        let lines = [
            pebble.toml(self.state.path(), more),
            "redirect = true".into(),
        ];
        Setup::new(self.root.path())
            .at(pebble.http)
            .hosts(hosts)
            .tls(pebble.tls, &lines)
    }

    /// The files that are kept, without the account.
    fn kept(&self) -> Vec<PathBuf> {
        let within = |folder: &Path| {
            fs::read_dir(folder)
                .expect("a folder can be read")
                .flatten()
        };
        let files = within(self.state.path()).flat_map(|folder| within(&folder.path()));
        let mut files: Vec<_> = files.map(|file| file.path()).collect();
        files.sort();
        files.retain(|file| file.extension().is_some_and(|kind| kind == "pem"));
        files
    }
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// A page over plain HTTP.
fn plain(pebble: &Pebble, host: &str, path: &str) -> http::Response {
    http::ask(pebble.http, &Request::new("GET", path).header("Host", host))
}

/// Waits until a page of the host comes, with a certificate that Pebble has issued: the front uses it
/// a moment after the log says that it is there.
fn serves(pebble: &Pebble, host: &str) {
    let mut said = String::new();
    let served = wait::poll(wait::DEADLINE, || {
        said = text(&pebble.curl(host, "/hello.php"));
        (said == "hello").then_some(())
    });
    assert!(served.is_some(), "{host}: {said}");
}

/// The process that gets a certificate, when it has become who it is to be.
fn asking(server: &Server) -> Process {
    wait::until("the process that gets a certificate", || {
        let mut processes = server.processes().into_iter();
        let one = processes.find(|process| process.title.starts_with("maitred: acme"))?;
        let sockets = fs::read_dir(format!("/proc/{}/fd", one.pid))
            .ok()?
            .flatten();
        let sockets = sockets.filter_map(|fd| fs::read_link(fd.path()).ok());
        // One of them leads to the supervisor, another one to the authority.
        let sockets = sockets.filter(|to| to.to_string_lossy().starts_with("socket:"));
        (sockets.count() > 1).then_some(one)
    })
}

/// Nothing that gets a certificate runs any more.
fn expect_no_process(server: &Server) {
    wait::until_true("the process that gets certificates to be gone", || {
        let mut processes = server.processes().into_iter();
        !processes.any(|process| process.title.starts_with("maitred: acme"))
    });
}

/// What `maitred status --json` says of certificates.
fn status(server: &Server) -> Vec<serde_json::Value> {
    // Between two programs nobody answers.
    wait::until("the server to say how it is", || {
        let output = Command::new(maitred_program())
            .args(["status", "--json", "--admin-socket"])
            .arg(server.admin_socket())
            .output()
            .expect("maitred status runs");
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        all["certificates"].as_array().cloned()
    })
}

#[test]
fn by_either_challenge_the_hosts_of_all_sites_get_certificates_and_are_served() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (pebble, site, other) = (Pebble::default(), Site::new(), Site::new());
        let more = format!(", challenge = \"{challenge}\"");
        let second = format!(
            "\n[[sites]]\nroot = {:?}\nhosts = [\"blog.test\"]\npool = \"www\"",
            other.root.path()
        );
        let setup = site.setup(&pebble, &["shop.test", "www.shop.test"], &more);
        let server = setup.site(&second).start();
        for host in ["blog.test", "shop.test", "www.shop.test"] {
            server.expect_log(0, &format!("{host} {ISSUED}"));
            serves(&pebble, host);
        }
        let answer = plain(&pebble, "shop.test", "/hello.php");
        assert_eq!(
            answer.status, 308,
            "{challenge}: from now on it is sent to HTTPS"
        );
        expect_no_process(&server);
        assert_eq!(site.kept().len(), 3);
        for file in site.kept() {
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file:?}");
        }
        let log = server.log_text();
        assert!(!log.contains("PRIVATE") && !log.contains(NONE), "{log}");
        assert_eq!(pebble.orders(), 3);
    }
}

#[test]
fn another_start_uses_what_is_kept_without_asking_and_a_reload_too() {
    let (pebble, site) = (Pebble::default(), Site::new());
    let setup = site.setup(&pebble, &["shop.test"], "");
    let server = setup.clone().start();
    server.expect_log(0, ISSUED);
    server.stop();
    let server = setup.start();
    serves(&pebble, "shop.test");
    assert!(server.reload().contains("reloaded"));
    serves(&pebble, "shop.test");
    let said = &status(&server)[0];
    assert_eq!(said["name"], "shop.test");
    let (expires, next) = (
        said["expires"].as_u64().unwrap(),
        said["next"].as_u64().unwrap(),
    );
    let days = (expires - next) / (24 * 3600);
    assert!((29..=35).contains(&days), "{days} days before it expires");
    let command = Command::new(maitred_program())
        .args(["check", "--config"])
        .arg(server.configuration())
        .output();
    let said = text(&command.expect("maitred check runs"));
    assert!(
        said.contains("shop.test: its certificate expires"),
        "{said}"
    );
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn a_host_that_a_reload_brings_gets_one_and_one_that_is_gone_is_forgotten() {
    let (pebble, site) = (Pebble::default(), Site::new());
    let server = site.setup(&pebble, &["shop.test"], "").start();
    server.expect_log(0, ISSUED);
    let known = |server: &Server| {
        let hosts = status(server).into_iter();
        let names = hosts.map(|host| host["name"].as_str().unwrap_or_default().to_owned());
        names.collect::<Vec<_>>()
    };
    server.configure(&site.setup(&pebble, &["blog.test", "shop.test"], ""));
    server.reload();
    server.expect_log(0, &format!("blog.test {ISSUED}"));
    serves(&pebble, "blog.test");
    assert_eq!(known(&server), ["blog.test", "shop.test"]);
    server.configure(&site.setup(&pebble, &["blog.test"], ""));
    server.reload();
    assert_eq!(known(&server), ["blog.test"]);
    serves(&pebble, "blog.test");
    let own = pebble.authority.issue("own", &["blog.test"]);
    let lines = [format!("certificates = {}", own.toml())];
    let setup = Setup::new(site.root.path()).hosts(&["blog.test"]);
    server.configure(&setup.tls(pebble.tls, &lines));
    server.reload();
    assert!(known(&server).is_empty(), "nothing is got by ACME any more");
    assert_eq!(pebble.orders(), 2);
}

#[test]
fn a_certificate_is_renewed_before_it_expires_and_the_account_is_kept() {
    let pebble = Pebble::with(Habits {
        valid_seconds: 20,
        ..Habits::default()
    });
    let site = Site::new();
    let server = site.setup(&pebble, &["shop.test"], "").start();
    server.expect_log(0, ISSUED);
    let first = fs::read(&site.kept()[0]).unwrap();
    let mark = server.log().mark();
    server.expect_log(mark, ISSUED);
    assert_ne!(fs::read(&site.kept()[0]).unwrap(), first);
    serves(&pebble, "shop.test");
    let accounts = pebble.log_text().matches("accounts in memory").count();
    assert_eq!(accounts, 1, "{}", pebble.log_text());
}

#[test]
fn while_the_authority_is_not_there_sites_are_served_in_the_clear_and_it_is_asked_again() {
    let (mut pebble, site) = (Pebble::default(), Site::new());
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
    assert!(
        said["error"]
            .as_str()
            .unwrap()
            .contains("Connection refused"),
        "{said}"
    );
    pebble.start();
    server.expect_log(0, ISSUED);
    serves(&pebble, "shop.test");
    assert_eq!(
        server.log_text().matches(NONE).count(),
        1,
        "it is said once"
    );
}

#[test]
fn a_host_that_is_elsewhere_gets_none_until_it_is_here_and_others_do() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (pebble, site) = (Pebble::default(), Site::new());
        pebble.move_host("away.test", "127.0.0.77");
        let more = format!(", challenge = \"{challenge}\"");
        let hosts = ["away.test", "shop.test"];
        let server = site.setup(&pebble, &hosts, &more).start();
        let line = server.expect_log(0, NONE);
        let finds = format!("did not find by {challenge} that away.test is ours");
        assert!(line.contains(&finds), "{line}");
        let wait = ["in 5 min", "in 6 min"]
            .iter()
            .any(|wait| line.ends_with(wait));
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
    let pebble = Pebble::with(Habits {
        blocked: vec!["blocked.test".into()],
        ..Habits::default()
    });
    let site = Site::new();
    let server = site
        .setup(&pebble, &["blocked.test", "shop.test"], "")
        .start();
    let line = server.expect_log(0, NONE);
    assert!(line.contains("the authority refuses the order"), "{line}");
    assert!(line.contains("(rejectedIdentifier)"), "{line}");
    server.expect_log(0, &format!("shop.test {ISSUED}"));
    serves(&pebble, "shop.test");
}

#[test]
fn an_authority_that_dies_in_the_middle_or_forgets_the_account_costs_no_certificate() {
    let mut pebble = Pebble::with(Habits {
        valid_seconds: 15,
        hesitates_seconds: 3,
        ..Habits::default()
    });
    let site = Site::new();
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
    assert!(
        text(&shown).contains("BEGIN CERTIFICATE"),
        "{}",
        text(&shown)
    );
    let mark = server.log().mark();
    pebble.start();
    server.expect_log(mark, ISSUED);
    serves(&pebble, "shop.test");
}

#[test]
fn who_talks_with_the_authority_is_not_root_and_may_die_of_it() {
    let (pebble, site) = (Pebble::default(), Site::new());
    pebble.pause();
    let server = site.setup(&pebble, &["shop.test"], "").start();
    let process = asking(&server);
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap();
    let uids = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .unwrap();
    if is_root() {
        let (uid, _) = user_ids(WEB_USER);
        assert_eq!(uids, format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}"));
    }
    process.signal(Signal::KILL);
    pebble.go_on();
    let line = server.expect_log(0, NONE);
    assert!(
        line.contains("the process that gets it was ended by signal 9"),
        "{line}"
    );
    server.expect_log(0, ISSUED);
    serves(&pebble, "shop.test");
}

#[test]
fn nonces_that_are_refused_are_asked_for_anew() {
    let pebble = Pebble::with(Habits {
        refused_nonces: 20,
        ..Habits::default()
    });
    let site = Site::new();
    let server = site
        .setup(&pebble, &["shop.test", "www.shop.test"], "")
        .start();
    server.expect_log(0, &format!("www.shop.test {ISSUED}"));
    serves(&pebble, "shop.test");
}

#[test]
fn a_folder_that_cannot_be_written_is_said_before_anything_is_asked_for() {
    let (pebble, site) = (Pebble::default(), Site::new());
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
    let (pebble, site) = (Pebble::default(), Site::new());
    let setup = site.setup(&pebble, &["shop.test"], "");
    let server = setup.clone().start();
    server.expect_log(0, ISSUED);
    server.stop();
    let file = &site.kept()[0];
    let whole = fs::read(file).unwrap();
    fs::write(file, &whole[..whole.len() / 2]).unwrap();
    let server = setup.start();
    let line = server.expect_log(0, "a new certificate is asked for");
    assert!(line.contains("shop.test.pem"), "{line}");
    server.expect_log(0, ISSUED);
    serves(&pebble, "shop.test");
}

#[test]
fn an_expired_certificate_is_used_until_there_is_another() {
    let mut pebble = Pebble::with(Habits {
        valid_seconds: 4,
        ..Habits::default()
    });
    let site = Site::new();
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
    let (pebble, site) = (Pebble::default(), Site::new());
    let folder = pebble.folder_in(site.state.path());
    // Nothing can take the place of a folder.
    fs::create_dir_all(folder.join("account.json")).unwrap();
    fs::create_dir_all(folder.join("shop.test.pem")).unwrap();
    let server = site.setup(&pebble, &["shop.test"], "").start();
    server.expect_log(0, "shop.test.pem: it cannot be read: Is a directory");
    server.expect_log(0, "the account cannot be kept");
    let line = server.expect_log(0, "shop.test.pem cannot be written");
    assert!(
        line.contains("the certificate is lost at the next start"),
        "{line}"
    );
    server.expect_log(0, ISSUED);
    serves(&pebble, "shop.test");
    let beside = fs::read_dir(&folder).unwrap().count();
    assert_eq!(beside, 2, "nothing lies beside them");
}

#[test]
fn a_front_that_dies_during_an_order_costs_no_certificate() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let pebble = Pebble::with(Habits {
            hesitates_seconds: 10,
            ..Habits::default()
        });
        let site = Site::new();
        let more = format!(", challenge = \"{challenge}\"");
        let server = site.setup(&pebble, &["shop.test"], &more).start();
        wait::until_true("the order", || pebble.log_text().contains("POST /chalZ/"));
        let front = server.front().expect("a front");
        front.signal(Signal::KILL);
        server.expect_log(0, "front 2 accepts clients");
        // If Pebble looked just then, it has failed, and is asked again after a reload.
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
fn an_account_is_bound_to_one_that_the_authority_has_given() {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let pebble = Pebble::with(Habits {
        external: Some(("kid-1".into(), key.into())),
        ..Habits::default()
    });
    let site = Site::new();
    let server = site.setup(&pebble, &["shop.test"], "").start();
    let line = server.expect_log(0, NONE);
    assert!(line.contains("refuses an account"), "{line}");
    let file = pebble.authority.write("eab.key", format!("{key}\n"));
    let more = format!(", external_account = {{ id = \"kid-1\", key_file = {file:?} }}");
    server.configure(&site.setup(&pebble, &["shop.test"], &more));
    server.reload();
    server.expect_log(0, ISSUED);
    assert!(!server.log_text().contains(key));
}

#[test]
fn a_host_with_a_certificate_of_its_own_is_left_alone() {
    let (pebble, site, authority) = (Pebble::default(), Site::new(), Authority::default());
    let own = authority.issue("own", &["own.test", "*.own.test"]);
    let lines = [
        pebble.toml(site.state.path(), ""),
        format!("certificates = {}", own.toml()),
    ];
    let hosts = ["own.test", "a.own.test", "*.own.test", "shop.test"];
    let setup = Setup::new(site.root.path()).at(pebble.http).hosts(&hosts);
    let server = setup.tls(pebble.tls, &lines).start();
    server.expect_log(0, &format!("shop.test {ISSUED}"));
    assert_eq!(pebble.orders(), 1);
    let page = maitred_tests::tls::curl(&authority, pebble.tls, ["https://a.own.test/hello.php"]);
    assert_eq!(text(&page), "hello");
    serves(&pebble, "shop.test");
}

#[test]
fn what_authorities_do_not_look_for_is_the_sites() {
    let (pebble, site) = (Pebble::default(), Site::new());
    let place = ".well-known/acme-challenge";
    fs::create_dir_all(site.root.path().join(place)).unwrap();
    fs::write(site.root.path().join(place).join("own"), "mine").unwrap();
    let lines = [pebble.toml(site.state.path(), "")];
    let setup = Setup::new(site.root.path()).at(pebble.http);
    let server = setup.hosts(&["shop.test"]).tls(pebble.tls, &lines).start();
    server.expect_log(0, ISSUED);
    let answer = plain(&pebble, "shop.test", &format!("/{place}/own"));
    assert_eq!(answer.text(), "mine");
    assert_eq!(
        plain(&pebble, "shop.test", &format!("/{place}/none")).status,
        404
    );
    let alpn = [
        "s_client",
        "-alpn",
        "acme-tls/1",
        "-servername",
        "shop.test",
        "-connect",
    ];
    let refused = Command::new("openssl")
        .args(alpn)
        .arg(pebble.tls.to_string())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(
        text(&refused).contains("no application protocol"),
        "{}",
        text(&refused)
    );
}

#[test]
fn a_stop_in_the_middle_of_an_order_leaves_nothing_and_an_upgrade_goes_on_with_it() {
    let (pebble, site) = (Pebble::default(), Site::new());
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

fn check(folder: &Path, text: &str) -> Output {
    let file = folder.join("maitred.toml");
    fs::write(&file, text).expect("a file can be written");
    let mut command = Command::new(maitred_program());
    command.arg("check").arg("--config").arg(file);
    command.output().expect("maitred check runs")
}

#[test]
fn check_refuses_names_with_a_star_and_says_which_hosts_are_left_out() {
    let site = Site::new();
    let toml = |hosts: &str| {
        format!(
            "listen = \"127.0.0.1:0\"\nspool_dir = \"/tmp\"\n[tls]\nlisten = \"127.0.0.1:0\"\n\
             acme = {{ terms_agreed = true, folder = {:?} }}\n[[sites]]\nroot = {:?}\nhosts = {hosts}\n",
            site.state.path(),
            site.root.path()
        )
    };
    let said = check(site.state.path(), &toml("[\"shop.com\", \"*.shop.com\"]"));
    assert_eq!(said.status.code(), Some(2));
    let why = "a site has the host `*.shop.com`, for which `acme` can get no certificate";
    assert!(text(&said).contains(why), "{}", text(&said));
    let said = check(
        site.state.path(),
        &toml("[\"shop.com\", \"10.0.0.1\", \"intranet\"]"),
    );
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    for left in [
        "10.0.0.1: it is an address",
        "intranet: it is no name of the public",
    ] {
        let sentence = format!("warning: no certificate is asked for {left}");
        assert!(text(&said).contains(&sentence), "{}", text(&said));
    }
    let said = check(site.state.path(), &toml("[\"localhost\"]"));
    assert_eq!(said.status.code(), Some(2));
    assert!(
        text(&said).contains("has no host to get a certificate for"),
        "{}",
        text(&said)
    );
}
