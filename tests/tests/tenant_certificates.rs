//! Certificate files that a tenant can write, beside other certificates for the same hosts.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use maitred_tests::http::{self, Request};
use maitred_tests::outside::{self, text};
use maitred_tests::server::{
    Server, Setup, WEB_USER, give_to_web_user, is_root, public_folder, set_mode,
};
use maitred_tests::tls::{Authority, Certificate, ECDSA, shown, site, stored};
use maitred_tests::{Target, ports};

/// The files of a certificate in a tenant's folder.
fn of_tenant(folder: &Path, certificate: &Certificate) -> Certificate {
    let own = Certificate { cert: folder.join("site.pem"), key: folder.join("site.key") };
    give_to_web_user(folder);
    certificate.replace(&own);
    give_to_web_user(&own.cert);
    own
}

/// A server's site for `a.example` of the web user.
fn setup(root: &Path, address: SocketAddr, lines: &[String]) -> Setup {
    let pool = format!("user = {WEB_USER:?}");
    Setup::new(root).pool(&pool).hosts(&["a.example"]).tls(address, lines)
}

/// A site of another user.
fn others_site(root: &Path, host: &str) -> String {
    format!(
        "[pools.other]\nuser = \"nobody\"\npm = \"static\"\nmax_children = 1\n\
         [[sites]]\nroot = {root:?}\npool = \"other\"\nhosts = [{host:?}]"
    )
}

fn reload(server: &Server) {
    let said = server.reload();
    assert!(said.contains("reloaded"), "{said}");
}

#[test]
fn a_tenants_file_that_cannot_be_read_any_more_takes_no_host_that_has_become_anothers() {
    if !is_root() {
        return;
    }
    let (authority, tenant) = (Authority::default(), public_folder());
    let own = of_tenant(tenant.path(), &authority.issue("forged", &["a.example", "b.example"]));
    let certificates = |all: &[&Certificate]| {
        let items: Vec<_> = all.iter().map(|one| one.toml()).collect();
        format!("certificates = [{}]", items.join(", "))
    };
    let (root, address) = (site(), ports::free_address());
    let server = setup(root.path(), address, &[certificates(&[&own])]).start();
    let name = |host: &str| shown(&authority, address, &["-servername", host]);
    assert_eq!(name("b.example"), "forged", "it is the first, and no other site's host");
    fs::write(&own.cert, "rubbish").unwrap();
    let file = authority.issue("b", &["b.example"]);
    let with_other = setup(root.path(), address, &[certificates(&[&own, &file])])
        .site(&others_site(root.path(), "b.example"));
    server.configure(&with_other);
    reload(&server);
    assert_eq!(["a.example", "b.example"].map(name), ["forged", "b"]);
    server.stop();
}

#[test]
fn plain_http_is_redirected_where_a_file_that_others_can_write_has_the_host() {
    let (authority, acme) = (Authority::default(), public_folder());
    let file = authority.issue("file", &["a.example"]);
    set_mode(&file.cert, 0o664);
    let other = authority.issue("other", &["other.example"]);
    let lines = [
        format!("certificates = [{}]", file.toml()),
        stored(acme.path(), "other.example", &authority, &other),
        "redirect = true".to_owned(),
    ];
    let (root, address) = (site(), ports::free_address());
    let server = Setup::new(root.path()).hosts(&["a.example"]).tls(address, &lines).start();
    assert_eq!(shown(&authority, address, &["-servername", "a.example"]), "file");
    let request = Request::new("GET", "/").header("Host", "a.example");
    assert_eq!(http::ask(server.address(), &request).status, 308);
    server.stop();
}

#[test]
fn an_expired_certificate_by_acme_is_not_shown_before_a_valid_file_that_others_can_write() {
    let (authority, acme) = (Authority::default(), public_folder());
    let file = authority.issue("file", &["a.example"]);
    set_mode(&file.cert, 0o664);
    let expired = authority.issue_as("expired", &["a.example"], ECDSA, -1);
    let lines = [
        format!("certificates = [{}]", file.toml()),
        stored(acme.path(), "a.example", &authority, &expired),
    ];
    let (root, address) = (site(), ports::free_address());
    let server = Setup::new(root.path()).hosts(&["a.example"]).tls(address, &lines).start();
    assert_eq!(shown(&authority, address, &["-servername", "a.example"]), "file");
    server.stop();
}

#[test]
fn a_check_does_not_warn_of_a_file_of_the_pools_user() {
    if !is_root() {
        return;
    }
    let (authority, acme, tenant) = (Authority::default(), public_folder(), public_folder());
    let own = of_tenant(tenant.path(), &authority.issue("own", &["a.example"]));
    let other = authority.issue("other", &["other.example"]);
    let lines = [
        format!("certificates = [{}]", own.toml()),
        stored(acme.path(), "other.example", &authority, &other),
    ];
    let (root, address) = (site(), ports::free_address());
    let server = setup(root.path(), address, &lines)
        .site(&others_site(root.path(), "other.example"))
        .start();
    let check = || {
        let file = server.configuration();
        let output = outside::maitred(&["check", file.to_str().expect("a path is text")]);
        text(&[output.stdout, output.stderr].concat())
    };
    let said = check();
    assert!(said.contains("other.example: its certificate expires "), "{said}");
    assert!(!said.contains("may write it") && !said.contains(" a.example:"), "{said}");
    set_mode(&own.cert, 0o664);
    let said = check();
    assert!(said.contains("others than root and the user of a.example may write it"), "{said}");
    server.stop();
}
