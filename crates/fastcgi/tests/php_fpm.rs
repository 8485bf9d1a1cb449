//! The client side against a real application: the distribution's php-fpm, over a Unix socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use maitred_fastcgi::cgi::{CgiHeaders, HeadReader};
use maitred_fastcgi::{
    MAX_CONTENT_LEN, ProtocolStatus, RequestWriter, ResponseEvent, ResponseReader, write_stdin,
    write_stdin_end,
};
use tempfile::TempDir;

/// Its paths on Debian and Ubuntu, newest version first.
const PROGRAMS: [&str; 5] = ["php-fpm8.5", "php-fpm8.4", "php-fpm8.3", "php-fpm8.2", "php-fpm8.1"];

/// Deadline of a response in the test.
const PATIENCE: Duration = Duration::from_secs(30);

struct PhpFpm {
    folder: TempDir,
    process: Child,
}

impl PhpFpm {
    /// Starts one worker, and returns when it is ready.
    fn start() -> Self {
        let program = PROGRAMS
            .iter()
            .map(|name| PathBuf::from("/usr/sbin").join(name))
            .find(|path| path.exists())
            .expect("php-fpm is installed (package php-fpm)");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let config = format!(
            "[global]\nerror_log = /proc/self/fd/2\ndaemonize = no\n[www]\nuser = root\n\
             listen = {path}/sock\npm = static\npm.max_children = 1\n"
        );
        fs::write(folder.path().join("fpm.conf"), config).unwrap();
        let mut process = Command::new(program)
            .args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"])
            .arg(folder.path().join("fpm.conf"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready to handle connections") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "php-fpm ended before it was ready");
        }
        // Read the rest of its log, so that its pipe does not fill up.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { folder, process }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Writes a script and returns its path.
    fn script(&self, code: &str) -> String {
        let path = self.folder.path().join("script.php");
        fs::write(&path, code).unwrap();
        path.display().to_string()
    }
}

impl Drop for PhpFpm {
    /// Stops it with its worker, which SIGKILL would leave behind.
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

/// The wire form of a POST to `script`.
fn post(script: &str, params: &[(&str, &[u8])], body: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut request = RequestWriter::new(&mut wire, 1, true);
    let length = body.len().to_string();
    let own = [
        ("REQUEST_METHOD", &b"POST"[..]),
        ("SCRIPT_FILENAME", script.as_bytes()),
        ("CONTENT_LENGTH", length.as_bytes()),
    ];
    for (name, value) in own.iter().chain(params) {
        request.param(name.as_bytes(), value).unwrap();
    }
    request.finish();
    write_stdin(&mut wire, 1, body);
    write_stdin_end(&mut wire, 1);
    wire
}

/// Header, body and error messages of the response.
fn response(stream: &mut UnixStream) -> (CgiHeaders, Vec<u8>, Vec<u8>) {
    let (mut reader, mut heads, mut head) = (ResponseReader::new(1), HeadReader::default(), None);
    let (mut body, mut stderr, mut bytes) = (Vec::new(), Vec::new(), vec![0; 10_000]);
    loop {
        let len = stream.read(&mut bytes).unwrap();
        assert!(len > 0, "php-fpm closed the connection");
        let mut input = &bytes[..len];
        while let Some(event) = reader.next(&mut input).unwrap() {
            match event {
                ResponseEvent::Stderr(bytes) => stderr.extend_from_slice(bytes),
                ResponseEvent::Stdout(bytes) if head.is_some() => body.extend_from_slice(bytes),
                ResponseEvent::Stdout(bytes) => {
                    if let Some((complete, len)) = heads.read(bytes).unwrap() {
                        head = Some(complete);
                        body.extend_from_slice(&bytes[len..]);
                    }
                }
                ResponseEvent::Report(_) | ResponseEvent::Hints(_) => {
                    panic!("php-fpm knows neither")
                }
                ResponseEvent::End { protocol_status, .. } => {
                    assert_eq!(protocol_status, ProtocolStatus::RequestComplete);
                    assert!(input.is_empty(), "nothing follows the end");
                    return (head.expect("a head comes before the end"), body, stderr);
                }
            }
        }
    }
}

#[test]
fn php_fpm_understands_our_requests_and_we_its_answers() {
    let php = PhpFpm::start();
    let mut stream = php.connect();
    let script = php.script(
        "<?php http_response_code(404); error_log('a message');header('X-Lens: ' . \
         strlen($_SERVER['A']) . ',' . strlen($_SERVER['B']));echo \
         file_get_contents('php://input');",
    );
    // Together too much for one record, and B fills one exactly.
    let (a, b) = (vec![b'v'; 40_000], vec![b'v'; MAX_CONTENT_LEN - 6]);
    let body = b"0123456789".repeat(20_000);
    stream.write_all(&post(&script, &[("A", &a), ("B", &b), ("EMPTY", b"")], &body)).unwrap();
    let (head, echoed, stderr) = response(&mut stream);
    assert_eq!((head.status(), head.reason()), (404, Some(&b"Not Found"[..])));
    assert_eq!(head.header("x-lens"), Some(&b"40000,65529"[..]));
    assert!(echoed == body, "{} bytes came back of {}", echoed.len(), body.len());
    assert!(stderr.trim_ascii_end().ends_with(b"a message"), "{}", stderr.escape_ascii());
}

#[test]
fn php_fpm_hangs_up_on_a_pair_that_is_cut_between_records() {
    let php = PhpFpm::start();
    let mut stream = php.connect();
    let wire = post("/none.php", &[("A", &vec![b'v'; MAX_CONTENT_LEN - 5])], b"");
    // It may close the connection during the write, or after.
    let _ = stream.write_all(&wire);
    let read = stream.read(&mut [0; 100]);
    assert!(matches!(&read, Ok(0)) || read.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
}

#[test]
fn php_fpm_answers_many_requests_on_one_kept_connection() {
    let php = PhpFpm::start();
    let mut stream = php.connect();
    let script = php.script("<?php for ($i = 0; $i < $_SERVER['N']; $i++) header(\"X-$i: $i\");");
    for count in [0, 1, 10_000, 2] {
        stream.write_all(&post(&script, &[("N", count.to_string().as_bytes())], b"")).unwrap();
        let (head, body, _) = response(&mut stream);
        let numbered =
            head.headers().filter(|(name, _)| name.get(2).is_some_and(u8::is_ascii_digit));
        assert_eq!((numbered.count(), head.status(), body.len()), (count, 200, 0));
    }
}
