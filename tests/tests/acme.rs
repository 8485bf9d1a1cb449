//! Certificates by ACME, issued by Pebble, the test authority of Let's Encrypt.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use maitred_tests::acme::{ISSUED, NONE, Site, expect_no_process, plain, serves, status, text};
use maitred_tests::pebble::{Habits, Pebble};
use maitred_tests::server::{Server, Setup};
use maitred_tests::tls::Authority;
use maitred_tests::{Target, maitred_program};

#[test]
fn by_either_challenge_the_hosts_of_all_sites_get_certificates_and_are_served() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (pebble, site, other) = (Pebble::default(), Site::default(), Site::default());
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
        assert_eq!(answer.status, 308, "{challenge}: from now on it is sent to HTTPS");
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
    let (pebble, site) = (Pebble::default(), Site::default());
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
    let (expires, next) = (said["expires"].as_u64().unwrap(), said["next"].as_u64().unwrap());
    let days = (expires - next) / (24 * 3600);
    assert!((29..=35).contains(&days), "{days} days before it expires");
    let command = Command::new(maitred_program())
        .args(["check", "--config"])
        .arg(server.configuration())
        .output();
    let said = text(&command.expect("maitred check runs"));
    assert!(said.contains("shop.test: its certificate expires"), "{said}");
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn a_host_that_a_reload_brings_gets_one_and_one_that_is_gone_is_forgotten() {
    let (pebble, site) = (Pebble::default(), Site::default());
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
    let pebble = Pebble::with(Habits { valid_seconds: 20, ..Habits::default() });
    let site = Site::default();
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
fn an_account_is_bound_to_one_that_the_authority_has_given() {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let pebble =
        Pebble::with(Habits { external: Some(("kid-1".into(), key.into())), ..Habits::default() });
    let site = Site::default();
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
    let (pebble, site, authority) = (Pebble::default(), Site::default(), Authority::default());
    let own = authority.issue("own", &["own.test", "*.own.test"]);
    let lines = [pebble.toml(site.state.path(), ""), format!("certificates = {}", own.toml())];
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
    let (pebble, site) = (Pebble::default(), Site::default());
    let place = ".well-known/acme-challenge";
    fs::create_dir_all(site.root.path().join(place)).unwrap();
    fs::write(site.root.path().join(place).join("own"), "mine").unwrap();
    let lines = [pebble.toml(site.state.path(), "")];
    let setup = Setup::new(site.root.path()).at(pebble.http);
    let server = setup.hosts(&["shop.test"]).tls(pebble.tls, &lines).start();
    server.expect_log(0, ISSUED);
    let answer = plain(&pebble, "shop.test", &format!("/{place}/own"));
    assert_eq!(answer.text(), "mine");
    assert_eq!(plain(&pebble, "shop.test", &format!("/{place}/none")).status, 404);
    let alpn = ["s_client", "-alpn", "acme-tls/1", "-servername", "shop.test", "-connect"];
    let refused = Command::new("openssl")
        .args(alpn)
        .arg(pebble.tls.to_string())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(text(&refused).contains("no application protocol"), "{}", text(&refused));
}

#[test]
fn a_proof_is_served_for_the_host_of_its_order_and_for_no_other() {
    let (pebble, site) = (Pebble::default(), Site::default());
    // The authority looks for the proof here, and waits while it is requested from the server.
    let elsewhere = SocketAddr::from(([127, 0, 0, 77], pebble.http.port()));
    let authority = TcpListener::bind(elsewhere).unwrap();
    for host in ["shop.test", "blog.test"] {
        pebble.move_host(host, "127.0.0.77");
    }
    let more = ", challenge = \"http-01\"";
    let _server = site.setup(&pebble, &["blog.test", "shop.test"], more).start();
    let mut line = String::new();
    let (connection, _) = authority.accept().unwrap();
    let mut lines = BufReader::new(connection);
    lines.read_line(&mut line).unwrap();
    let path = line.split(' ').nth(1).unwrap();
    assert!(path.starts_with("/.well-known/acme-challenge/"), "{line}");
    for host in ["blog.test", "BLOG.test:80", "blog.test."] {
        let proof = plain(&pebble, host, path);
        assert_eq!(proof.status, 200, "{host}");
        assert!(path.ends_with(proof.text().split('.').next().unwrap()), "{}", proof.text());
    }
    for host in ["shop.test", "other.test", "a.blog.test"] {
        assert_eq!(plain(&pebble, host, path).status, 404, "{host}");
    }
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
    let site = Site::default();
    let toml = |hosts: &str| {
        format!(
            "listen = \"127.0.0.1:0\"\nspool_dir = \"/tmp\"\n[tls]\nlisten = \"127.0.0.1:0\"\n\
             acme = {{ terms_agreed = true, folder = {:?} }}\n[[sites]]\nroot = {:?}\n\
             hosts = {hosts}\n",
            site.state.path(),
            site.root.path()
        )
    };
    let said = check(site.state.path(), &toml("[\"shop.com\", \"*.shop.com\"]"));
    assert_eq!(said.status.code(), Some(2));
    let why = "a site has the host `*.shop.com`, for which `acme` can get no certificate";
    assert!(text(&said).contains(why), "{}", text(&said));
    let said = check(site.state.path(), &toml("[\"shop.com\", \"10.0.0.1\", \"intranet\"]"));
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    for left in ["10.0.0.1: it is an address", "intranet: it is no name of the public"] {
        let sentence = format!("warning: no certificate is requested for {left}");
        assert!(text(&said).contains(&sentence), "{}", text(&said));
    }
    let said = check(site.state.path(), &toml("[\"localhost\"]"));
    assert_eq!(said.status.code(), Some(2));
    assert!(text(&said).contains("has no host to get a certificate for"), "{}", text(&said));
}
