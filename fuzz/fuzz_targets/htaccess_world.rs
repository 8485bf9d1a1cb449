//! A document root in memory, with one `.htaccess` file.

use std::net::SocketAddr;
use std::sync::Arc;

use maitred_htaccess::conf::Conf;
use maitred_htaccess::file::{Mistake, Reading, parse};
use maitred_htaccess::process::{Outcome, Processor};
use maitred_htaccess::request::{Addresses, Client, Kind, LocalTime, Request, Stat, World};

/// The file's text, and how it is read.
pub struct Files<'t> {
    pub text: &'t [u8],
    pub ignores_unknown: bool,
}

struct Root(Result<Arc<Conf>, Mistake>);

impl World for Root {
    fn stat(&self, path: &[u8]) -> Option<Stat> {
        let kind = match path {
            b"/www" | b"/www/" | b"/www/a" | b"/www/a/" => Kind::Directory,
            b"/www/index.php" | b"/www/a/page.html" | b"/www/a/x.php" => Kind::File,
            _ => return None,
        };
        Some(Stat { kind, size: 1, is_executable: false, modified: 0 })
    }

    fn is_link(&self, _path: &[u8]) -> bool {
        false
    }

    fn conf(&self, _directory: &[u8]) -> Result<Arc<Conf>, Mistake> {
        self.0.clone()
    }

    fn time(&self) -> LocalTime {
        LocalTime::default()
    }

    fn http_date(&self, _seconds: i64) -> Vec<u8> {
        b"Sun, 06 Nov 1994 08:49:37 GMT".to_vec()
    }

    fn variable(&self, _name: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// The outcome of a request for a target such as `/path?query`.
pub fn decide(files: &Files<'_>, target: &[u8]) -> Outcome {
    let reading = Reading { ignores_unknown: files.ignores_unknown, ..Reading::default() };
    let parsed = parse(files.text, b"/www/", &reading);
    let mark = target.iter().position(|byte| *byte == b'?');
    let path = [b"/", target[..mark.unwrap_or(target.len())].trim_ascii_start()].concat();
    let path = path.strip_prefix(b"/").filter(|rest| rest.starts_with(b"/")).unwrap_or(&path);
    let args = mark.map(|mark| target[mark + 1..].to_vec());
    let mut request = Request::new(b"GET", path.to_vec(), args);
    for (name, value) in [("Host", "a.test"), ("User-Agent", "Fuzz"), ("Cookie", "a=b; c=d")] {
        request.headers_in.add(name.as_bytes(), value);
    }
    Processor::new(&client(), &Root(parsed.conf)).decide(request).outcome
}

/// A file whose access lines cannot be understood denies.
#[allow(dead_code)]
pub fn check_denied(outcome: &Outcome) {
    assert!(!matches!(outcome, Outcome::File | Outcome::Script | Outcome::Listing), "{outcome:?}");
}

fn client() -> Client {
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    Client {
        addresses: Addresses::new(address, address, address, &Arc::default()),
        is_https: false,
        is_http2: false,
        server_name: b"a.test".to_vec(),
        server_port: 80,
        protocol: b"HTTP/1.1".to_vec(),
        request_line: b"GET / HTTP/1.1".to_vec(),
        document_root: b"/www".to_vec(),
        software: b"maitred".to_vec(),
    }
}
