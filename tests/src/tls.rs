//! TLS from outside: certificates that openssl makes for a test, and clients that are not ours,
//! curl and openssl.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;

use crate::ports;
use crate::server::{Server, Setup, document_root, public_folder, set_mode};

/// The kinds of key that sites have.
pub const ECDSA: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
/// The other kind.
pub const RSA: &[&str] = &["rsa:2048"];

/// Days that certificates of tests are valid, if the test says nothing else.
const DAYS: i32 = 30;

/// A certificate authority.
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
        let authority = Authority { folder: public_folder() };
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

    /// Issues a certificate with this kind of key, for this number of days; if negative, it has
    /// expired. Its files are called after its name.
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
        let into = ["-nodes", "-keyout", &key, "-out", &request, "-subj", &subject];
        self.openssl(&words.chain(into).collect::<Vec<_>>());
        let (extensions, cert, days) = (file("ext"), file("pem"), days.to_string());
        let by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        let words = ["x509", "-req", "-in", &request, "-days", &days];
        let into = ["-extfile", &extensions, "-out", &cert];
        let words = words.into_iter().chain(by).chain(into);
        self.openssl(&words.collect::<Vec<_>>());
        Certificate { cert: self.folder.path().join(cert), key: self.folder.path().join(key) }
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

/// The setting of an authority that nothing reaches, with the stored certificate of a host.
///
/// # Panics
/// When the files cannot be written.
pub fn stored(
    folder: &Path,
    host: &str,
    authority: &Authority,
    certificate: &Certificate,
) -> String {
    let of_authority = folder.join("127.0.0.1-1-directory");
    fs::create_dir_all(&of_authority).expect("the store can be made");
    let read = |path: &Path| fs::read_to_string(path).expect("the store can be made");
    let both = format!("{}{}", read(&certificate.key), read(&certificate.cert));
    let file = of_authority.join(format!("{host}.pem"));
    fs::write(&file, both).expect("the store can be made");
    set_mode(&file, 0o600);
    format!(
        "acme = {{ terms_agreed = true, directory = \"https://127.0.0.1:1/directory\", \
         ca = {:?}, folder = {folder:?} }}",
        authority.ca()
    )
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
    curl_command(authority, address).args(words).output().expect("curl runs")
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

/// A site with what tests of TLS ask for.
pub fn site() -> TempDir {
    document_root(&[
        ("hello.txt", "Hello, world!"),
        ("hello.php", "<?php echo 'hello';"),
        (
            "server.php",
            "<?php foreach ($_SERVER as $name => $value) {
                 if (preg_match('/^(HTTPS|REQUEST_SCHEME|SERVER_PORT|SSL_.*)$/', $name))
                     echo \"$name=$value\\n\";
             }",
        ),
        ("body.php", "<?php echo md5(file_get_contents('php://input'));"),
        (
            "large.php",
            "<?php for ($i = 0; $i < 200; $i++) echo str_repeat(chr(65 + $i % 26), 100000);",
        ),
        (
            "dies.php",
            "<?php echo str_repeat('x', 2000000); flush(); posix_kill(getmypid(), SIGKILL);",
        ),
        ("own.php", "<?php header('Strict-Transport-Security: max-age=7');"),
    ])
}

/// A server under TLS.
#[derive(Debug)]
pub struct Served {
    /// Who has issued its certificate.
    pub authority: Authority,
    /// Its certificate, for localhost.
    pub certificate: Certificate,
    /// Where it listens for TLS.
    pub address: SocketAddr,
    /// Its document root.
    pub root: TempDir,
    /// How it was started.
    pub setup: Setup,
    /// The server.
    pub server: Server,
}

/// A server with one certificate, for localhost, and further lines for `[tls]`.
pub fn served(lines: &[&str]) -> Served {
    served_with(lines, |setup| setup)
}

/// The same, with more of it set up.
pub fn served_with(lines: &[&str], change: impl Fn(Setup) -> Setup) -> Served {
    let (authority, root) = (Authority::default(), site());
    let certificate = authority.issue("site", &["localhost"]);
    let address = ports::free_address();
    let ca = authority.folder().display().to_string();
    let mut all = vec![format!("certificates = [{}]", certificate.toml())];
    all.extend(lines.iter().map(|line| line.replace("DIR", &ca)));
    let setup = change(Setup::new(root.path()).tls(address, &all));
    let server = setup.clone().start();
    Served { authority, certificate, address, root, setup, server }
}

impl Served {
    /// What curl does with these words.
    pub fn curl(&self, words: &[&str]) -> Output {
        curl(&self.authority, self.address, words)
    }

    /// The body of a page.
    pub fn page(&self, path: &str) -> String {
        page(&self.authority, self.address, path)
    }

    /// Which certificate is shown to openssl.
    pub fn shown(&self, words: &[&str]) -> String {
        shown(&self.authority, self.address, words)
    }

    /// What openssl says of a connection.
    pub fn s_client(&self, words: &[&str]) -> String {
        s_client(&self.authority, self.address, words)
    }

    /// Sends a request by openssl, and waits until the server closes the connection.
    pub fn ask(&self, words: &[&str], request: &str) -> Output {
        let mut client = Command::new("openssl")
            .args(["s_client", "-connect", &self.address.to_string(), "-quiet"])
            .arg("-CAfile")
            .arg(self.authority.ca())
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl runs");
        let mut pipe = client.stdin.take().expect("stdin is a pipe");
        let sent = pipe.write_all(request.as_bytes());
        sent.expect("openssl takes a request");
        client.wait_with_output().expect("openssl ends")
    }

    /// The path of a file beside the certificates.
    pub fn file(&self, name: &str) -> String {
        let path = self.authority.folder().join(name);
        path.to_str().expect("a path is text").to_owned()
    }
}
