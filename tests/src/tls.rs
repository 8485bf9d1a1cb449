//! TLS from outside: certificates that openssl makes for a test, and clients that are not ours, curl
//! and openssl.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;

use crate::server::{public_folder, set_mode};

/// The kinds of key that sites have.
pub const ECDSA: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
/// The other kind.
pub const RSA: &[&str] = &["rsa:2048"];

/// Days that certificates of tests are valid, if the test says nothing else.
const DAYS: i32 = 30;

/// Somebody who issues certificates.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The file with the certificate.
    pub cert: PathBuf,
    /// The file with the key.
    pub key: PathBuf,
}

impl Certificate {
    /// The two as an item of `certificates`.
    pub fn toml(&self) -> String {
        format!("{{ cert = {:?}, key = {:?} }}", self.cert, self.key)
    }

    /// Takes the place of another certificate, as a renewal does.
    pub fn replace(&self, other: &Certificate) {
        for (new, old) in [(&self.cert, &other.cert), (&self.key, &other.key)] {
            let beside = old.with_extension("new");
            fs::copy(new, &beside).expect("a file can be copied");
            fs::rename(&beside, old).expect("a file can be replaced");
        }
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new("Test CA")
    }
}

impl Authority {
    /// One of this name.
    ///
    /// # Panics
    /// When openssl cannot make it.
    pub fn new(name: &str) -> Authority {
        let authority = Authority {
            folder: public_folder(),
        };
        let subject = format!("/CN={name}");
        let new = ["req", "-x509", "-newkey"];
        let into = ["-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj"];
        let days = ["-days", "30"];
        let words = new.iter().chain(ECDSA).chain(&into);
        let words = words.copied().chain([subject.as_str()]).chain(days);
        authority.openssl(&words.collect::<Vec<_>>());
        authority
    }

    /// Its own certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The folder with all that it has issued.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Issues a certificate for hosts, with ECDSA.
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Certificate {
        self.issue_as(name, hosts, ECDSA, DAYS)
    }

    /// Issues a certificate with this kind of key, for so many days; fewer than none: it has expired.
    /// Its files are called after its name.
    ///
    /// # Panics
    /// When openssl cannot make it.
    pub fn issue_as(&self, name: &str, hosts: &[&str], key: &[&str], days: i32) -> Certificate {
        let file = |ending: &str| format!("{name}.{ending}");
        let hosts: Vec<_> = hosts.iter().map(|host| format!("DNS:{host}")).collect();
        let extensions = match hosts.is_empty() {
            true => "basicConstraints=CA:FALSE\n".to_owned(),
            false => format!("subjectAltName={}\n", hosts.join(",")),
        };
        let path = self.folder.path().join(file("ext"));
        fs::write(path, extensions).expect("a file can be written");
        let subject = format!("/C=AT/O=Tests, Inc./CN={name}");
        let words = ["req", "-newkey"].iter().chain(key).copied();
        let (request, key) = (file("csr"), file("key"));
        let into = [
            "-nodes", "-keyout", &key, "-out", &request, "-subj", &subject,
        ];
        self.openssl(&words.chain(into).collect::<Vec<_>>());
        let (extensions, cert, days) = (file("ext"), file("pem"), days.to_string());
        let by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        let words = ["x509", "-req", "-in", &request, "-days", &days];
        let into = ["-extfile", &extensions, "-out", &cert];
        let words = words.into_iter().chain(by).chain(into);
        self.openssl(&words.collect::<Vec<_>>());
        Certificate {
            cert: self.folder.path().join(cert),
            key: self.folder.path().join(key),
        }
    }

    /// Writes a file beside what it has issued, readable for its owner only.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, contents).expect("a file can be written");
        set_mode(&path, 0o600);
        path
    }

    fn openssl(&self, words: &[&str]) {
        let mut openssl = Command::new("openssl");
        let output = openssl.args(words).current_dir(self.folder.path()).output();
        let output = output.expect("openssl runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {words:?}: {said}");
    }
}

/// Runs curl, which trusts `authority` only and asks for `https://localhost` at `address`.
///
/// # Panics
/// When there is no curl.
pub fn curl<I: AsRef<OsStr>>(
    authority: &Authority,
    address: SocketAddr,
    words: impl IntoIterator<Item = I>,
) -> Output {
    curl_command(authority, address)
        .args(words)
        .output()
        .expect("curl runs")
}

/// The same, to be started.
pub fn curl_command(authority: &Authority, address: SocketAddr) -> Command {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--max-time", "120", "--cacert"])
        .arg(authority.ca())
        .args(["--connect-to", &format!("::{address}")]);
    command
}

/// What curl got as the body of a page.
///
/// # Panics
/// When it got none.
pub fn page(authority: &Authority, address: SocketAddr, path: &str) -> String {
    let output = curl(authority, address, [format!("https://localhost{path}")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{path}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What openssl says of a connection on which nothing is sent, error messages included.
///
/// # Panics
/// When there is no openssl.
pub fn s_client(authority: &Authority, address: SocketAddr, words: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string(), "-CAfile"])
        .arg(authority.ca())
        .args(words)
        .stdin(Stdio::null())
        .output();
    let output = output.expect("openssl runs");
    let all = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// The common name of the certificate that a client is shown.
///
/// # Panics
/// When it is shown none.
pub fn shown(authority: &Authority, address: SocketAddr, words: &[&str]) -> String {
    let said = s_client(authority, address, words);
    let subject = said.lines().find(|line| line.starts_with("subject="));
    let subject = subject.unwrap_or_else(|| panic!("no certificate: {said}"));
    let (_, name) = subject.rsplit_once("CN = ").expect("a common name");
    name.to_owned()
}

/// A client that speaks TLS for us; what it reads and writes are the bytes in it.
#[derive(Debug)]
pub struct Secure(Child);

impl Secure {
    /// Connects, speaks `protocol` (by ALPN) and sends these bytes.
    ///
    /// # Panics
    /// When there is no openssl.
    pub fn connect(address: SocketAddr, protocol: &str, bytes: &[u8]) -> Secure {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_quiet", "-alpn", protocol])
            .args(["-servername", "localhost", "-connect", &address.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let stdin = client.stdin.as_mut().expect("stdin is a pipe");
        // It may be refused before all of it has been sent.
        let _ = stdin.write_all(bytes);
        Secure(client)
    }

    /// What the server says. Who does not read it does not take it either.
    ///
    /// # Panics
    /// Never: there is one.
    pub fn output(&mut self) -> &mut ChildStdout {
        self.0.stdout.as_mut().expect("stdout is a pipe")
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
