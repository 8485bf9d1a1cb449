//! A document root in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use maitred_htaccess::conf::Conf;
use maitred_htaccess::file::{Mistake, Reading, parse};
use maitred_htaccess::process::{Outcome, Processor};
use maitred_htaccess::request::{Addresses, Client, Kind, LocalTime, Request, Stat, World};

/// Where it is.
const ROOT: &str = "/www";

/// Its files by their paths, with the text of those that are `.htaccess`.
#[derive(Default)]
pub struct MemoryRoot {
    files: BTreeMap<String, String>,
    reading: Reading,
    links: BTreeSet<String>,
    is_https: bool,
}

impl MemoryRoot {
    /// One without a file.
    pub fn new() -> MemoryRoot {
        MemoryRoot::default()
    }

    /// A file of this path.
    pub fn file(mut self, path: &str, text: &str) -> MemoryRoot {
        self.files.insert(path.to_owned(), text.to_owned());
        self
    }

    /// Makes the file or folder of this path a symbolic link.
    pub fn link(mut self, path: &str) -> MemoryRoot {
        self.links.insert(path.to_owned());
        self
    }

    /// One whose unknown directives are left out.
    pub fn ignoring_unknown(mut self) -> MemoryRoot {
        self.reading.ignores_unknown = true;
        self
    }

    /// One that is served over TLS.
    pub fn over_tls(mut self) -> MemoryRoot {
        self.is_https = true;
        self
    }

    /// The outcome of a request for a path that is decoded once.
    pub fn outcome(&self, path: &str) -> Outcome {
        self.outcome_of(path, &[])
    }

    /// The same for a request with these headers.
    pub fn outcome_of(&self, path: &str, headers: &[(&str, &str)]) -> Outcome {
        let mut request = Request::new(b"GET", path.as_bytes().to_vec(), None);
        for (name, value) in headers {
            request.headers_in.add(name.as_bytes(), *value);
        }
        let client = Client { is_https: self.is_https, ..client() };
        Processor::new(&client, self).decide(request).outcome
    }

    fn folders(&self) -> BTreeSet<&str> {
        let of_file = |path: &'_ String| -> Vec<usize> {
            path.match_indices('/').map(|(at, _)| at).collect()
        };
        self.files.keys().flat_map(|path| of_file(path).into_iter().map(|at| &path[..at])).collect()
    }

    fn conf_of(&self, directory: &str) -> Result<Arc<Conf>, Mistake> {
        let mut merged = Conf::default();
        merged.authz.grant_all();
        for (slash, _) in directory.match_indices('/') {
            let folder = &directory[..=slash];
            if let Some(text) = self.files.get(&format!("{folder}.htaccess")) {
                let folder = format!("{ROOT}{folder}");
                let own = parse(text.as_bytes(), folder.as_bytes(), &self.reading).conf?;
                merged = own.below(&merged).expect("a small configuration");
            }
        }
        Ok(Arc::new(merged))
    }
}

fn below_root(path: &[u8]) -> Option<&str> {
    std::str::from_utf8(path).ok()?.strip_prefix(ROOT)
}

impl World for MemoryRoot {
    fn stat(&self, path: &[u8]) -> Option<Stat> {
        let path = below_root(path)?;
        let kind = match self.files.contains_key(path) {
            true => Kind::File,
            false if self.folders().contains(path.trim_end_matches('/')) => Kind::Directory,
            false => return None,
        };
        Some(Stat { kind, size: 1, is_executable: false, modified: 0 })
    }

    fn is_link(&self, path: &[u8]) -> bool {
        below_root(path).is_some_and(|path| self.links.contains(path))
    }

    fn conf(&self, directory: &[u8]) -> Result<Arc<Conf>, Mistake> {
        self.conf_of(below_root(directory).unwrap_or_default())
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
        document_root: ROOT.as_bytes().to_vec(),
        software: b"maitred".to_vec(),
    }
}
