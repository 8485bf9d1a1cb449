//! Certificates of TLS: which one a host shows, those that clients show, and what is said of wrong
//! ones.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use maitred_tests::outside::{succeeded, text};
use maitred_tests::server::{Setup, WEB_USER, give_to_web_user, is_root, public_folder};
use maitred_tests::tls::{
    Authority, Certificate, ECDSA, RSA, s_client, served, shown, site, stored,
};
use maitred_tests::{Target, ports, wait};

#[test]
fn each_host_is_shown_its_certificate_of_a_kind_that_the_client_understands() {
    let authority = Authority::default();
    let certificates = [
        authority.issue("first", &["localhost"]),
        authority.issue_as("first-rsa", &["localhost"], RSA, 30),
        authority.issue("shop", &["shop.example.com"]),
        authority.issue("wild", &["*.example.com", "example.com"]),
    ];
    let (root, address) = (site(), ports::free_address());
    let items: Vec<_> = certificates.iter().map(Certificate::toml).collect();
    let line = format!("certificates = [{}]", items.join(", "));
    let _server = Setup::new(root.path()).tls(address, &[line]).start();
    let shown = |words: &[&str]| shown(&authority, address, words);
    assert_eq!(shown(&["-servername", "localhost"]), "first");
    assert_eq!(shown(&["-servername", "SHOP.example.com"]), "shop");
    assert_eq!(shown(&["-servername", "blog.example.com"]), "wild");
    assert_eq!(shown(&["-servername", "example.com"]), "wild");
    assert_eq!(shown(&["-servername", "a.b.example.com"]), "first");
    assert_eq!(shown(&["-noservername"]), "first");
    let rsa = ["-servername", "localhost", "-sigalgs", "RSA-PSS+SHA256"];
    assert_eq!(shown(&rsa), "first-rsa");
    let old = ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256", "-servername"];
    assert_eq!(shown(&[&old[..], &["localhost"]].concat()), "first-rsa");
}

#[test]
fn clients_show_certificates_that_our_authority_has_issued() {
    let served = served(&["client_certificates = \"required\"", "client_ca = \"DIR/ca.pem\""]);
    let url = "https://localhost/server.php";
    let without = served.curl(&[url]);
    assert!(!without.status.success(), "{}", text(&without.stdout));
    let client = served.authority.issue("Ann", &[]);
    let shows = |client: &Certificate, url: &str| {
        let (cert, key) = (client.cert.to_str().unwrap(), client.key.to_str().unwrap());
        served.curl(&[url, "--cert", cert, "--key", key])
    };
    let answer = succeeded(&shows(&client, url));
    for line in [
        "SSL_CLIENT_VERIFY=SUCCESS\n",
        "SSL_CLIENT_S_DN=CN=Ann,O=Tests\\, Inc.,C=AT\n",
        "SSL_CLIENT_S_DN_CN=Ann\n",
        "SSL_CLIENT_I_DN=CN=Test CA\n",
        "SSL_CLIENT_CERT=-----BEGIN CERTIFICATE-----\n",
    ] {
        assert!(answer.contains(line), "{line} is not in {answer}");
    }
    for (name, flags) in [
        ("SSL_CLIENT_M_SERIAL", &["-serial"][..]),
        ("SSL_CLIENT_V_START", &["-startdate"]),
        ("SSL_CLIENT_V_END", &["-enddate"]),
        ("SSL_CLIENT_FINGERPRINT", &["-fingerprint", "-sha1"]),
    ] {
        let mut openssl = Command::new("openssl");
        let said = openssl.args(["x509", "-noout", "-in"]).arg(&client.cert);
        let said = text(&said.args(flags).output().unwrap().stdout);
        let (_, value) = said.trim().split_once('=').unwrap();
        let value = match name {
            "SSL_CLIENT_FINGERPRINT" => value.replace(':', "").to_lowercase(),
            _ => value.to_owned(),
        };
        let line = format!("{name}={value}\n");
        assert!(answer.contains(&line), "{line} is not in {answer}");
    }
    let expired = served.authority.issue_as("Old", &[], ECDSA, -1);
    assert!(!shows(&expired, url).status.success());
    let stranger = Authority::new("Stranger").issue("Eve", &[]);
    assert!(!shows(&stranger, url).status.success());
}

#[test]
fn a_certificate_is_verified_in_each_connection_of_its_client() {
    let served = served(&["client_certificates = \"required\"", "client_ca = \"DIR/ca.pem\""]);
    let client = served.authority.issue("Ann", &[]);
    let (cert, key) = (client.cert.to_str().unwrap(), client.key.to_str().unwrap());
    let request = "GET /server.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for version in ["-tls1_2", "-tls1_3"] {
        let session = served.file(&format!("session{version}"));
        let words = [version, "-cert", cert, "-key", key, "-sess_out", &session];
        let output = served.ask(&words, request);
        assert!(text(&output.stdout).contains("SSL_CLIENT_VERIFY=SUCCESS"), "{version}");
        // A session that is resumed has the certificate, and nothing verifies it.
        let without = served.ask(&[version, "-sess_in", &session], request);
        let said = text(&[without.stdout, without.stderr].concat());
        assert!(!said.contains("SSL_CLIENT_VERIFY"), "{version}: {said}");
    }
}

#[test]
fn a_client_may_come_without_a_certificate_where_that_is_optional() {
    let served = served(&["client_certificates = \"optional\"", "client_ca = \"DIR/ca.pem\""]);
    let answer = served.page("/server.php");
    assert!(answer.contains("SSL_CLIENT_VERIFY=NONE\n"), "{answer}");
    assert!(!answer.contains("SSL_CLIENT_S_DN"), "{answer}");
}

#[test]
fn what_somebody_with_a_certificate_sees_is_kept_for_nobody() {
    let lines = ["client_certificates = \"optional\"", "client_ca = \"DIR/ca.pem\""];
    let served = served(&lines);
    let lines = [
        format!("certificates = [{}]", served.certificate.toml()),
        format!("client_ca = {:?}", served.authority.ca()),
        "client_certificates = \"optional\"".to_owned(),
    ];
    let cached = Setup::new(served.root.path())
        .tls(served.address, &lines)
        .site("[sites.cache]")
        .site("valid = \"10m\"");
    served.server.configure(&cached);
    assert!(served.server.reload().contains("reloaded"));
    let client = served.authority.issue("Ann", &[]);
    let (cert, key) = (client.cert.to_str().unwrap(), client.key.to_str().unwrap());
    let url = "https://localhost/server.php";
    let anns = || succeeded(&served.curl(&["-i", url, "--cert", cert, "--key", key]));
    let others = || succeeded(&served.curl(&["-i", url]));
    assert!(anns().contains("detail=client-certificate"), "{}", anns());
    assert!(others().contains("; stored; ttl=600"));
    let said = others();
    assert!(said.contains("; hit; ttl=") && said.contains("VERIFY=NONE"), "{said}");
    assert!(anns().contains("SSL_CLIENT_S_DN_CN=Ann"));
}

/// What `maitred check` says of a configuration with these certificates, without its path.
fn checked(root: &Path, authority: &Authority, certificates: &str) -> (Option<i32>, String) {
    let file = authority.folder().join("maitred.toml");
    let lines = format!(
        "[tls]\nlisten = \"127.0.0.1:443\"\ncertificates = {certificates}\n\
         [[sites]]\nroot = {root:?}\n"
    );
    fs::write(&file, lines).expect("a file can be written");
    let mut check = Command::new(maitred_tests::maitred_program());
    let output = check.args(["check", "--config"]).arg(&file).output();
    let output = output.expect("maitred runs");
    let said = text(&[output.stdout, output.stderr].concat());
    let folder = format!("{}/", authority.folder().display());
    (output.status.code(), said.replace(&folder, ""))
}

#[test]
fn what_is_wrong_with_a_certificate_is_said_with_its_file_and_line() {
    let (authority, root) = (Authority::default(), site());
    let good = authority.issue("good", &["localhost"]);
    let other = authority.issue("other", &["localhost"]);
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let (cert, ca, key) = (read(&good.cert), read(&authority.ca()), read(&good.key));
    let lines = |text: &str| text.lines().count();
    let reversed = authority.write("reversed.pem", format!("{ca}{cert}"));
    let strange = authority.write("strange.pem", format!("{cert}{}", read(&other.cert)));
    let rubbish = authority.write("rubbish.pem", [0, 159, 146, 150, 10, 255]);
    let damaged = authority.write("damaged.pem", cert.replacen('M', "!", 1));
    let cut = authority.write("cut.pem", &cert[..cert.len() / 2]);
    let empty = authority.write("empty.pem", "");
    let chain = authority.write("chain.pem", format!("{cert}{ca}"));
    let secret = authority.write("secret.key", format!("{ENCRYPTED}{key}"));
    let at = lines(&ca) + 1;
    let after = lines(&cert) + 1;
    let cases = [
        (
            &good.cert,
            &other.key,
            "good.pem:1: the certificate that starts here does not belong to \
                                  the key in other.key; name matching files"
                .to_owned(),
        ),
        (
            &reversed,
            &good.key,
            format!(
                "reversed.pem:{at}: \
                                        the certificate of the key in good.key starts here; \
                                        expected it first, followed by its chain"
            ),
        ),
        (
            &strange,
            &good.key,
            format!(
                "strange.pem:{after}: \
                                       the certificate that starts here did not issue the one \
                                       before it; expected the chain in order: \
                                       each followed by its issuer"
            ),
        ),
        (
            &rubbish,
            &good.key,
            "rubbish.pem: there is no certificate in it; expected PEM, \
                               with -----BEGIN CERTIFICATE-----"
                .to_owned(),
        ),
        (
            &empty,
            &good.key,
            "empty.pem: there is no certificate in it; expected PEM, \
                             with -----BEGIN CERTIFICATE-----"
                .to_owned(),
        ),
        (
            &damaged,
            &good.key,
            "damaged.pem:1: the certificate that starts here is damaged; \
                               copy the file again"
                .to_owned(),
        ),
        (
            &cut,
            &good.key,
            "cut.pem:1: the part that starts here has no `-----END \
                           CERTIFICATE-----`; copy the whole file again"
                .to_owned(),
        ),
        (
            &good.key,
            &good.cert,
            "good.key: there is a private key here and no certificate; \
                                 are `cert` and `key` swapped?"
                .to_owned(),
        ),
        (
            &good.cert,
            &rubbish,
            "rubbish.pem: there is no private key in it; expected PEM, \
                                with -----BEGIN PRIVATE KEY-----"
                .to_owned(),
        ),
        (
            &good.cert,
            &secret,
            "secret.key:1: the private key needs a passphrase, \
                               which a server cannot ask for; write it without one, \
                               with openssl pkey -in OLD -out NEW"
                .to_owned(),
        ),
    ];
    for (cert, key, sentence) in cases {
        let files = Certificate { cert: cert.clone(), key: key.clone() };
        let (code, said) = checked(root.path(), &authority, &files.toml());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&sentence), "{said}\nis not\n{sentence}");
    }
    let files = Certificate { cert: chain, key: good.key.clone() };
    assert_eq!(checked(root.path(), &authority, &files.toml()).0, Some(0));
    let folder = format!("{{ cert = {:?}, key = {:?} }}", root.path(), good.key);
    let (_, said) = checked(root.path(), &authority, &folder);
    assert!(said.contains("maitred.toml:3:25: ") && said.contains("Is a directory"), "{said}");
}

/// The beginning of a key that needs a passphrase.
const ENCRYPTED: &str =
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGj\n-----END ENCRYPTED PRIVATE KEY-----\n";

#[test]
fn an_expired_certificate_is_warned_about_and_used() {
    let (authority, root) = (Authority::default(), site());
    let old = authority.issue_as("old", &["localhost"], ECDSA, -1);
    let (code, said) = checked(root.path(), &authority, &old.toml());
    assert_eq!(code, Some(0), "{said}");
    let sentence = "old.pem: the certificate has expired a day ago; renew it";
    assert!(said.contains(sentence), "{said}");
    let address = ports::free_address();
    let line = format!("certificates = [{}]", old.toml());
    let server = Setup::new(root.path()).tls(address, &[line]).start();
    server.expect_log(0, "the certificate has expired a day ago; renew it");
    assert_eq!(shown(&authority, address, &[]), "old");
}

#[test]
fn a_server_does_not_start_with_a_key_of_another_certificate_alone_nor_take_it_in_a_reload() {
    let served = served(&[]);
    let other = served.authority.issue("other", &["localhost"]);
    let mismatched = Certificate { cert: served.certificate.cert.clone(), key: other.key };
    let line = format!("certificates = [{}]", mismatched.toml());
    let wrong = Setup::new(served.root.path()).tls(served.address, &[line]);
    served.server.configure(&wrong);
    let said = served.server.reload();
    assert!(said.contains("does not belong to the key in"), "{said}");
    assert_eq!(served.shown(&[]), "site");
    served.server.configure(&served.setup);
    assert!(served.server.reload().contains("reloaded"));
    let mut maitred = Command::new(maitred_tests::maitred_program());
    let (code, said) = checked(served.root.path(), &served.authority, &mismatched.toml());
    assert_eq!(code, Some(2), "{said}");
    let file = served.authority.folder().join("maitred.toml");
    let output = maitred.args(["serve", "--config"]).arg(file).output();
    let output = output.expect("maitred runs");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("does not belong to the key in"), "{said}");
}

#[test]
fn changed_files_are_noticed_while_the_server_runs_and_rubbish_is_said_once() {
    // As long as the server may take to look, and a little.
    let within = Duration::from_secs(100);
    let (good, bad) = (served(&[]), served(&[]));
    let renewed = good.authority.issue("renewed", &["localhost"]);
    let mark = bad.server.log().mark();
    renewed.replace(&good.certificate);
    fs::write(&bad.certificate.cert, "rubbish").unwrap();
    wait::until_within("the new certificate", within, || {
        (good.shown(&[]) == "renewed").then_some(())
    });
    let said = "the certificate that was read before is used until then";
    wait::until_within("the complaint", within, || {
        let lines = bad.server.log().since(mark);
        lines.iter().any(|line| line.contains(said)).then_some(())
    });
    assert_eq!(bad.shown(&[]), "site");
    let reloaded = bad.server.reload();
    assert!(reloaded.contains("reloaded: ") && reloaded.contains(said), "{reloaded}");
    let renewed = bad.authority.issue("renewed", &["localhost"]);
    renewed.replace(&bad.certificate);
    assert!(bad.server.reload().contains("reloaded"));
    assert_eq!(bad.shown(&[]), "renewed");
    let lines = bad.server.log().since(mark);
    let errors = lines.iter().filter(|line| line.contains("ERROR") && line.contains(said));
    assert_eq!(errors.count(), 1);
}

#[test]
fn a_certificate_file_of_a_tenant_takes_no_host_with_another_certificate() {
    if !is_root() {
        return;
    }
    let (authority, acme, tenant) = (Authority::default(), public_folder(), public_folder());
    let issued = authority.issue("a", &["a.example"]);
    let own =
        Certificate { cert: tenant.path().join("site.pem"), key: tenant.path().join("site.key") };
    give_to_web_user(tenant.path());
    issued.replace(&own);
    let file = authority.issue("b", &["b.example"]);
    let wild = authority.issue("wild", &["*.c.example"]);
    let by_acme = authority.issue("d", &["d.example"]);
    let lines = [
        format!("certificates = [{}, {}, {}]", own.toml(), file.toml(), wild.toml()),
        stored(acme.path(), "d.example", &authority, &by_acme),
    ];
    let (root, address) = (site(), ports::free_address());
    let other = format!(
        "[pools.other]\nuser = \"nobody\"\npm = \"static\"\nmax_children = 1\n\
         [[sites]]\nroot = {:?}\npool = \"other\"\n\
         hosts = [\"b.example\", \"*.c.example\", \"d.example\"]",
        root.path()
    );
    let server = Setup::new(root.path())
        .pool(&format!("user = {WEB_USER:?}"))
        .hosts(&["a.example"])
        .site(&other)
        .tls(address, &lines)
        .start();
    let name = |host: &str| shown(&authority, address, &["-servername", host]);
    let hosts = ["a.example", "b.example", "shop.c.example", "d.example"];
    assert_eq!(hosts.map(name), ["a", "b", "wild", "d"]);
    authority.issue("forged", &hosts).replace(&own);
    give_to_web_user(&own.cert);
    let said = server.reload();
    assert!(said.contains("reloaded"), "{said}");
    assert_eq!(hosts.map(name), ["forged", "b", "wild", "d"]);
    let warning = "site.pem: others than root and the user of b.example, shop.c.example, \
                   d.example may write it: any other certificate for these is used before it";
    assert!(server.log_text().contains(warning), "{}", server.log_text());
    server.stop();
}

#[test]
fn a_file_that_cannot_be_read_closes_no_host_with_a_stored_certificate() {
    let (authority, acme) = (Authority::default(), public_folder());
    let lost = authority.issue("lost", &["lost.example"]);
    let hidden = lost.cert.with_extension("hidden");
    fs::rename(&lost.cert, &hidden).unwrap();
    let by_acme = authority.issue("shop", &["shop.example"]);
    let setting = stored(acme.path(), "shop.example", &authority, &by_acme);
    let lines = [format!("certificates = [{}]", lost.toml()), setting];
    let (root, address) = (site(), ports::free_address());
    let server = Setup::new(root.path())
        .hosts(&["shop.example", "lost.example"])
        .tls(address, &lines)
        .start();
    assert_eq!(shown(&authority, address, &["-servername", "shop.example"]), "shop");
    let said = s_client(&authority, address, &["-servername", "lost.example"]);
    assert!(said.contains("no peer certificate available"), "{said}");
    fs::rename(&hidden, &lost.cert).unwrap();
    assert!(server.reload().contains("reloaded"));
    assert_eq!(shown(&authority, address, &["-servername", "lost.example"]), "lost");
    // Without any stored certificate, it starts all the same.
    fs::rename(&lost.cert, &hidden).unwrap();
    let server = server.restart(|_| fs::remove_dir_all(acme.path()).unwrap());
    let said = s_client(&authority, address, &["-servername", "shop.example"]);
    assert!(said.contains("no peer certificate available"), "{said}");
    server.stop();
}

#[test]
fn a_file_without_the_wildcard_of_its_site_closes_that_alone_beside_acme() {
    let (authority, acme) = (Authority::default(), public_folder());
    let file = authority.issue("wild", &["a.example", "*.a.example"]);
    let by_acme = authority.issue("shop", &["shop.example"]);
    let setting = stored(acme.path(), "shop.example", &authority, &by_acme);
    let lines = [format!("certificates = [{}]", file.toml()), setting];
    let (root, address) = (site(), ports::free_address());
    let hosts = ["shop.example", "a.example", "*.a.example"];
    let server = Setup::new(root.path()).hosts(&hosts).tls(address, &lines).start();
    assert_eq!(shown(&authority, address, &["-servername", "x.a.example"]), "wild");
    let narrow = authority.issue("narrow", &["a.example"]);
    let server = server.restart(|_| {
        fs::copy(&narrow.cert, &file.cert).unwrap();
        fs::copy(&narrow.key, &file.key).unwrap();
    });
    for (name, expected) in [("a.example", "narrow"), ("shop.example", "shop")] {
        assert_eq!(shown(&authority, address, &["-servername", name]), expected);
    }
    let said = s_client(&authority, address, &["-servername", "x.a.example"]);
    assert!(said.contains("no peer certificate available"), "{said}");
    let why = "`*.a.example`, for which `acme` can get no certificate";
    server.expect_log(0, why);
    server.stop();
}
