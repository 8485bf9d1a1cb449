//! `maitred serve DIR --https`, and `maitred trust`: curl, openssl, certutil and Chromium judge the
//! certificates.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use maitred_tests::guard::Guarded;
use maitred_tests::http::{self, Connection};
use maitred_tests::processes::Signal;
use maitred_tests::server::{WEB_USER, document_root, is_root, public_folder, user_ids};
use maitred_tests::terminal::Terminal;
use maitred_tests::{maitred_program, ports, wait};
use tempfile::TempDir;

/// What a new authority makes the server say.
const NEXT_STEP: &str = "browsers do not trust this certificate yet; run `maitred trust` once";

/// A user's home folder.
struct Home(TempDir);

/// A server on a terminal.
struct Secured {
    _server: Guarded,
    terminal: Terminal,
    address: SocketAddr,
}

impl Home {
    fn new() -> Home {
        Home(public_folder())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn authority(&self, name: &str) -> PathBuf {
        self.file(".local/share/maitred/authority").join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(maitred_program());
        command.args(words).env("HOME", self.0.path()).env_remove("XDG_DATA_HOME");
        command.env_remove("SUDO_USER");
        command
    }

    fn trust(&self, words: &[&str]) -> Output {
        let words = [&["trust"], words].concat();
        self.command(&words).output().expect("maitred runs")
    }

    /// Serves a folder on a terminal until it serves.
    fn serve(&self, root: &Path, words: &[&str]) -> Secured {
        let (address, terminal) = (ports::free_address(), Terminal::new());
        let mut command = self.command(&["serve"]);
        command.arg(root).arg("--listen").arg(address.to_string()).args(words);
        command.arg("--admin-socket").arg(self.file(&format!("{}.sock", address.port())));
        command.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
        let server = Guarded::spawn(&mut command, Signal::TERM);
        wait::until_true("it to serve", || terminal.shows("; Ctrl-C stops it"));
        Secured { _server: server, terminal, address }
    }

    /// The identifier of its authority.
    fn id(&self) -> String {
        let subject =
            openssl(&["x509", "-noout", "-subject", "-in", text(&self.authority("ca.pem"))]);
        let name = said(&subject);
        name.trim().rsplit(' ').next().expect("a name").to_owned()
    }

    /// An NSS database, as a browser makes it.
    fn browser(&self, folder: &str) -> String {
        let folder = self.file(folder);
        fs::create_dir_all(&folder).expect("a folder can be made");
        let database = format!("sql:{}", folder.display());
        let made = run("certutil", &["-N", "-d", &database, "--empty-password"]);
        assert!(made.status.success(), "{}", complaint(&made));
        database
    }
}

impl Secured {
    fn curl(&self, home: &Home, words: &[&str]) -> Output {
        let ca = home.authority("ca.pem");
        let always = ["--silent", "--show-error", "--max-time", "60", "--cacert", text(&ca)];
        run("curl", &[&always, words].concat())
    }
}

fn run(program: &str, words: &[&str]) -> Output {
    Command::new(program).args(words).output().unwrap_or_else(|why| panic!("{program}: {why}"))
}

fn openssl(words: &[&str]) -> Output {
    run("openssl", words)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

fn site() -> TempDir {
    document_root(&[("index.php", "<?php echo $_SERVER['HTTPS'], ' ', $_SERVER['HTTP_HOST'];")])
}

#[test]
fn a_folder_is_served_over_https_with_a_certificate_that_curl_verifies() {
    let (home, root) = (Home::new(), site());
    let server = home.serve(root.path(), &["--https"]);
    let port = server.address.port();
    assert!(server.terminal.shows(&format!(" on https://localhost:{port} (")));
    wait::until_true("the next step", || server.terminal.shows(NEXT_STEP));
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        let (url, to) = (format!("https://{host}:{port}/"), format!("::{}", server.address));
        let words = ["--connect-to", &to, "--write-out", " %{http_version}", &url];
        let output = server.curl(&home, &words);
        let expected = format!("on {host}:{port} 2");
        assert_eq!(said(&output), expected, "{}", complaint(&output));
        let output = server.curl(&home, &[&["--http1.1"], &words[..]].concat());
        assert_eq!(said(&output), expected.replace(" 2", " 1.1"), "{}", complaint(&output));
    }
    let plain = http::get(server.address, "/");
    assert_eq!(plain.status, 400, "one port speaks one protocol");

    let leaf = home.authority(&format!("localhost-{}.pem", server.address));
    assert_eq!(mode(&home.authority("")), 0o700);
    for file in [&home.authority("ca.key"), &home.authority("ca.pem"), &leaf] {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    let ninety_days = (90 * 24 * 60 * 60).to_string();
    let lives = openssl(&["x509", "-noout", "-checkend", &ninety_days, "-in", text(&leaf)]);
    assert!(!lives.status.success(), "{}", said(&lives));
    let ca = home.authority("ca.pem");
    let verified = openssl(&["verify", "-x509_strict", "-CAfile", text(&ca), text(&leaf)]);
    assert!(verified.status.success(), "{}", complaint(&verified));
}

#[test]
fn a_second_server_uses_the_same_authority() {
    let (home, root) = (Home::new(), site());
    let first = home.serve(root.path(), &["--https"]);
    assert!(first.terminal.shows("a certificate authority of your own was made in "));
    let ca = fs::read(home.authority("ca.pem")).expect("a certificate");
    let second = home.serve(root.path(), &["--https"]);
    assert!(!second.terminal.shows("was made in "), "{}", second.terminal.text());
    wait::until_true("the next step", || second.terminal.shows(NEXT_STEP));
    assert_eq!(fs::read(home.authority("ca.pem")).expect("a certificate"), ca);
    for server in [&first, &second] {
        let url = format!("https://localhost:{}/", server.address.port());
        let output = server.curl(&home, &[&url]);
        assert!(output.status.success(), "{}", complaint(&output));
    }
}

#[test]
fn a_stolen_key_of_the_authority_is_good_for_no_site_of_the_web() {
    let home = Home::new();
    assert!(home.trust(&["--export"]).status.success());
    let folder = public_folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (ca, ca_key) = (home.authority("ca.pem"), home.authority("ca.key"));
    let verify = |names: &str| {
        let extensions = format!("subjectAltName={names}\n");
        fs::write(file("extensions"), extensions).expect("a file can be written");
        let new = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/O=thief"];
        let request =
            openssl(&[&new[..], &["-keyout", &file("key"), "-out", &file("csr")]].concat());
        assert!(request.status.success(), "{}", complaint(&request));
        let sign = ["x509", "-req", "-days", "9", "-in", &file("csr"), "-out", &file("pem")];
        let by = ["-CA", text(&ca), "-CAkey", text(&ca_key), "-extfile", &file("extensions")];
        let signed = openssl(&[&sign[..], &by].concat());
        assert!(signed.status.success(), "{}", complaint(&signed));
        openssl(&["verify", "-CAfile", text(&ca), &file("pem")])
    };
    for names in ["DNS:localhost", "DNS:shop.localhost", "DNS:shop.test", "IP:192.168.7.7"] {
        let verified = verify(names);
        assert!(verified.status.success(), "{names}: {}", complaint(&verified));
    }
    for names in ["DNS:example.com", "DNS:localhost,DNS:example.com", "IP:192.0.2.1", "DNS:nottest"]
    {
        let verified = verify(names);
        assert!(!verified.status.success(), "{names}: {}", said(&verified));
        assert!(complaint(&verified).contains("permitted subtree violation"), "{names}");
    }
}

#[test]
fn browsers_trust_the_authority_until_it_is_removed() {
    let (home, root) = (Home::new(), site());
    let databases = [home.browser(".pki/nssdb"), home.browser(".mozilla/firefox/a b.default")];
    let before =
        databases.each_ref().map(|database| said(&run("certutil", &["-L", "-d", database])));
    let browsers = ["--store", "browsers"];
    let output = home.trust(&browsers);
    assert!(output.status.success(), "{}", complaint(&output));
    assert!(said(&output).contains("a b.default: added"), "{}", said(&output));
    let name = format!("maitred development authority {}", home.id());
    for database in &databases {
        let valid = run("certutil", &["-V", "-u", "L", "-d", database, "-n", &name]);
        assert!(said(&valid).contains("certificate is valid"), "{}", complaint(&valid));
    }
    let server = home.serve(root.path(), &["--https"]);
    let chromium = |profile: &str| {
        let url = format!("https://localhost:{}/", server.address.port());
        let mut chromium = Command::new("chromium");
        chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
        chromium.args(["--disable-background-networking", "--disable-dev-shm-usage", "--dump-dom"]);
        chromium.arg(format!("--user-data-dir={}", home.file(profile).display()));
        said(&chromium.arg(url).env("HOME", home.0.path()).output().expect("chromium runs"))
    };
    let page = chromium("trusting");
    assert!(page.contains(&format!("on localhost:{}", server.address.port())), "{page}");
    assert!(!server.terminal.shows(NEXT_STEP), "{}", server.terminal.text());

    // Also one that was made before, and whose files are gone.
    fs::rename(home.authority(""), home.file("gone")).expect("a folder can be moved");
    assert!(home.trust(&browsers).status.success());
    let output = home.trust(&[&browsers[..], &["--remove"]].concat());
    assert!(output.status.success(), "{}", complaint(&output));
    for (database, before) in databases.iter().zip(&before) {
        assert_eq!(&said(&run("certutil", &["-L", "-d", database])), before);
    }
    let page = chromium("distrusting");
    assert!(!page.contains("on localhost"), "{page}");
    let again = home.trust(&[&browsers[..], &["--remove"]].concat());
    assert!(again.status.success(), "{}", complaint(&again));
}

#[test]
fn the_system_trusts_the_authority_until_it_is_removed() {
    if !is_root() {
        println!("skipped: only root mounts folders over those of the system");
        return;
    }
    let (home, root) = (Home::new(), site());
    let server = home.serve(root.path(), &["--https"]);
    let script = "set -e
        mkdir \"$HOME/etc\" \"$HOME/local\"
        cp -a /etc/ssl/certs/. \"$HOME/etc/\"
        mount --bind \"$HOME/etc\" /etc/ssl/certs
        mount --bind \"$HOME/local\" /usr/local/share/ca-certificates
        get() { curl --silent --show-error --max-time 60 --capath /etc/ssl/certs \"$URL\"; }
        if get; then echo 'trusted before'; exit 1; fi
        \"$MAITRED\" trust --store system && get
        \"$MAITRED\" trust --store system --remove
        if get; then echo 'trusted after'; exit 1; fi
        ls /usr/local/share/ca-certificates; ls /etc/ssl/certs | grep maitred || true";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "bash", "-c", script]).env("HOME", home.0.path());
    unshare.env_remove("XDG_DATA_HOME").env("MAITRED", maitred_program());
    unshare.env("URL", format!("https://localhost:{}/", server.address.port()));
    let output = unshare.output().expect("unshare runs");
    let title = "the system's store (curl, PHP and other programs)";
    let served = format!("on localhost:{}", server.address.port());
    let expected = format!("{title}: added\n{served}{title}: removed\n");
    assert_eq!(said(&output), expected, "{}", complaint(&output));
}

#[test]
fn an_ordinary_user_gets_the_command_for_the_systems_store() {
    let home = Home::new();
    let mut command = home.command(&["trust", "--store", "system"]);
    if is_root() {
        use std::os::unix::process::CommandExt;
        let (uid, gid) = user_ids(WEB_USER);
        std::os::unix::fs::chown(home.0.path(), Some(uid), Some(gid)).expect("root gives it away");
        command.uid(uid).gid(gid);
    }
    let output = command.output().expect("maitred runs");
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
    let ca = home.authority("ca.pem");
    let start = format!("needs root; run\n  sudo install -D -m 644 {} /usr/local/", text(&ca));
    let printed = said(&output);
    assert!(printed.contains(&start), "{printed}");
    assert!(printed.ends_with(".crt && sudo /usr/sbin/update-ca-certificates\n"), "{printed}");
}

#[test]
fn https_of_a_folder_is_refused_in_production_and_for_addresses_of_the_web() {
    let (home, root) = (Home::new(), site());
    let file = home.file("maitred.toml");
    fs::write(&file, format!("[[sites]]\nroot = {:?}\n", root.path())).expect("a file is written");
    for (words, expected) in [
        (&["--config", text(&file)][..], "write [tls] with `certificates`, or with `acme`"),
        (&[text(root.path()), "--production"], "cannot be used with"),
        (
            &[text(root.path()), "--listen", "192.0.2.1:8443"],
            "192.0.2.1:8443, an address of the web",
        ),
    ] {
        let words = [&["serve", "--https"], words].concat();
        let output = home.command(&words).output().expect("maitred runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(complaint(&output).contains(expected), "{words:?}: {}", complaint(&output));
    }
}

#[test]
fn the_browser_is_opened_when_the_server_serves() {
    let (home, root) = (Home::new(), site());
    let opener = home.file("xdg-open");
    let path = format!("{}:{}", home.0.path().display(), std::env::var("PATH").expect("a path"));
    let serve = |script: &str, terminal: Option<&Terminal>| {
        fs::write(&opener, script).expect("a file can be written");
        fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).expect("a mode can be set");
        let address = ports::free_address();
        let mut command = home.command(&["serve", text(root.path()), "--open", "--listen"]);
        command.arg(address.to_string()).env("PATH", &path);
        command.arg("--admin-socket").arg(home.file(&format!("{}.sock", address.port())));
        let log = home.file("log");
        match terminal {
            Some(terminal) => command.stderr(terminal.stdio()),
            None => command.stderr(fs::File::create(&log).expect("a file can be made")),
        };
        (Guarded::spawn(&mut command, Signal::TERM), address)
    };
    let opened = home.file("opened");
    let terminal = Terminal::new();
    let script = format!("#!/bin/sh\necho \"$1\" > {0}.new && mv {0}.new {0}", opened.display());
    let (server, address) = serve(&script, Some(&terminal));
    wait::until_true("the browser", || opened.exists());
    let url = fs::read_to_string(&opened).expect("a URL");
    assert_eq!(url, format!("http://localhost:{}\n", address.port()));
    drop(server);

    let terminal = Terminal::new();
    let (server, _) = serve("#!/bin/sh\nexit 3", Some(&terminal));
    let why = "--open: xdg-open has opened no browser (exit status: 3); open http://localhost:";
    wait::until_true("a warning", || terminal.shows(why));
    drop(server);

    fs::remove_file(&opened).expect("it is there");
    let (_server, address) = serve(&script, None);
    wait::until_true("it to serve", || Connection::try_open(address).is_ok());
    let log = fs::read_to_string(home.file("log")).expect("a log");
    assert!(log.contains("--open: without a terminal no browser is opened"), "{log}");
    assert!(!opened.exists());
}
