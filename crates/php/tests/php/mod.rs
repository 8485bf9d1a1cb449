//! Runs scripts in the example program `serve_script`: there is one PHP per process, and some of
//! these end it.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The branches of PHP in which php.ini names OPcache.
const OPCACHE_IS_A_MODULE: [&str; 4] = ["8.1", "8.2", "8.3", "8.4"];

/// A PHP with a php.ini and a document root of its own.
pub struct Php {
    folder: TempDir,
    ini: String,
    options: Vec<String>,
}

/// What happened while the scripts ran.
#[derive(Debug)]
pub struct Run {
    pub requests: Vec<Request>,
    pub output: Output,
}

/// What one request did.
#[derive(Debug, Default)]
pub struct Request {
    /// `send`, `flush`, `finish`, `log` and `read` with their bytes, in their order.
    pub events: Vec<(String, Vec<u8>)>,
    /// The line that tells how it ended.
    pub served: String,
}

impl Php {
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        Self { folder, ini: String::new(), options: Vec::new() }
    }

    /// Adds lines to php.ini.
    pub fn ini(mut self, lines: &str) -> Self {
        self.ini.push_str(lines);
        self.ini.push('\n');
        self
    }

    /// Has OPcache loaded, which is a part of PHP from 8.5 on.
    pub fn opcache(self) -> Self {
        if OPCACHE_IS_A_MODULE.contains(&maitred_php::PHP_BRANCH) {
            self.ini("zend_extension=opcache")
        } else {
            self
        }
    }

    /// Adds options of `serve_script`.
    pub fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|&option| option.to_owned()));
        self
    }

    pub fn param(self, name: &str, value: &str) -> Self {
        self.with(&["--param", &format!("{name}={value}")])
    }

    /// Writes a file beneath the document root.
    pub fn file(self, name: &str, content: &str) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is made");
        fs::write(path, content).expect("the file is written");
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Serves the files in this order.
    pub fn serve(&self, scripts: &[&str]) -> Run {
        let output = self.command(scripts).arg("--events").output().expect("serve_script runs");
        Run { requests: requests(&output.stdout), output }
    }

    /// The same, with the answers printed as they are: for what the program prints beside them.
    pub fn serve_plainly(&self, scripts: &[&str]) -> Run {
        let output = self.command(scripts).output().expect("serve_script runs");
        Run { requests: Vec::new(), output }
    }

    pub fn command(&self, scripts: &[&str]) -> Command {
        let ini = self.path("php.ini");
        fs::write(&ini, &self.ini).expect("php.ini is written");
        let mut command = Command::new(program());
        command.env_clear().arg("--ini").arg(ini).args(["--scan-dir", ""]);
        command.arg("--param").arg(format!("DOCUMENT_ROOT={}", self.root().display()));
        command.args(&self.options);
        command.args(scripts.iter().map(|script| self.path(script)));
        command
    }
}

/// The response of one script.
pub fn response(code: &str) -> Request {
    Php::new().file("t.php", code).serve(&["t.php"]).one()
}

/// OPcache started by root needs a user for preloading.
pub fn owner(path: &Path) -> String {
    let output = Command::new("stat").args(["-c", "%U"]).arg(path).output();
    String::from_utf8_lossy(&output.expect("stat runs").stdout).trim().to_owned()
}

fn program() -> PathBuf {
    let test = std::env::current_exe().expect("the test program has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps");
    profile.join("examples/serve_script")
}

fn requests(mut bytes: &[u8]) -> Vec<Request> {
    let mut requests = Vec::new();
    let mut request = Request::default();
    while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes = &bytes[end + 1..];
        if let Some(served) = line.strip_prefix("served ") {
            request.served = served.to_owned();
            requests.push(std::mem::take(&mut request));
            continue;
        }
        let (name, length) = line.split_once(' ').expect("an event has a length");
        let length: usize = length.parse().expect("the length is a number");
        request.events.push((name.to_owned(), bytes[..length].to_vec()));
        bytes = &bytes[length + 1..];
    }
    if !request.events.is_empty() {
        requests.push(request);
    }
    requests
}

impl Run {
    pub fn one(mut self) -> Request {
        let request = self.requests.pop();
        request.unwrap_or_else(|| panic!("nothing was served: {:?}", self.output))
    }

    /// The bodies of all answers.
    pub fn bodies(&self) -> Vec<String> {
        self.requests.iter().map(Request::body).collect()
    }
}

impl Request {
    fn bytes(&self, name: &str) -> Vec<u8> {
        let of_name = self.events.iter().filter(|(event, _)| event == name);
        of_name.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }

    pub fn count(&self, name: &str) -> usize {
        self.events.iter().filter(|(event, _)| event == name).count()
    }

    pub fn order(&self) -> String {
        self.events.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn parts(&self) -> (String, String) {
        let response = self.bytes("send");
        let response = String::from_utf8_lossy(&response);
        let (head, body) = response.split_once("\r\n\r\n").expect("an answer has a head");
        (format!("{head}\r\n"), body.to_owned())
    }

    pub fn head(&self) -> String {
        self.parts().0
    }

    pub fn body(&self) -> String {
        self.parts().1
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&self.bytes("log")).into_owned()
    }
}
