//! What `.htaccess` files decide about a request.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use maitred_htaccess::conf::Conf;
use maitred_htaccess::file::Mistake;
use maitred_htaccess::process::{Decision, Outcome, Processor};
use maitred_htaccess::request::{Addresses, Client, LocalTime, Request, Stat, World};
use maitred_rules::path::{CleanPath, encode_path};

use super::{Explainer, RoutedPath, Runner, htaccess_files};
use crate::handler::fastcgi_params::SOFTWARE_WITH_HTACCESS;
use crate::http::hosts::host_name;
use crate::site::conf_memory::{CommonMemory, ConfMemory};
use crate::site::directory_confs::{DirectoryConfs, NAME, SiteWorld};
use crate::site::evaluation_time::EvaluationTime;
use crate::site::fastcgi_servers::{FastcgiServers, ScriptRunner};
use crate::site::resolver::{Resolver, Route};

/// Directives about access: the lines that are shown with a refusal.
const ACCESS: [&str; 13] = [
    "require",
    "order",
    "allow",
    "deny",
    "satisfy",
    "authmerging",
    "authtype",
    "<files",
    "<limit",
    "<require",
    "<if",
    "authname",
    "authuserfile",
];

/// A request behind the rules of its site.
pub(super) struct Asked<'a> {
    pub path: &'a CleanPath<'a>,
    pub query: Option<&'a str>,
    pub runner: Runner<'a>,
}

/// The files of a site, with what was read and what decided.
struct NotedWorld<'w> {
    site: SiteWorld<'w>,
    folders: RefCell<Vec<Vec<u8>>>,
    notes: RefCell<Vec<String>>,
}

impl World for NotedWorld<'_> {
    fn stat(&self, path: &[u8]) -> Option<Stat> {
        self.site.stat(path)
    }

    fn is_link(&self, path: &[u8]) -> bool {
        self.site.is_link(path)
    }

    fn conf(&self, directory: &[u8]) -> Result<Arc<Conf>, Mistake> {
        self.folders.borrow_mut().push(directory.to_vec());
        self.site.conf(directory)
    }

    fn time(&self) -> LocalTime {
        self.site.time()
    }

    fn http_date(&self, seconds: i64) -> Vec<u8> {
        self.site.http_date(seconds)
    }

    fn is_late(&self) -> bool {
        self.site.is_late()
    }

    fn note(&self, note: &dyn Fn() -> String) {
        self.notes.borrow_mut().push(note());
    }

    fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.site.variable(name)
    }
}

impl Explainer<'_> {
    /// Explains what the `.htaccess` files decide, and what follows.
    pub(super) fn by_htaccess(&mut self, asked: &Asked<'_>, resolver: &mut Resolver) {
        if let Err(refused) = resolver.refresh(0) {
            return self.refuse(refused.status, refused.why);
        }
        let (memory, decisions) = (ConfMemory::new(&CommonMemory::default()), 0);
        let (rules, index) = (&self.site.rules, &self.site.index);
        let mut confs = DirectoryConfs::new(rules, index, memory, decisions);
        let (confs, paths) = (RefCell::new(&mut confs), RefCell::default());
        let time = EvaluationTime::start();
        let site = SiteWorld { resolver, confs, paths, failure: Cell::default(), time };
        let (folders, notes) = (RefCell::default(), RefCell::default());
        let world = NotedWorld { site, folders, notes };
        let client = self.client(resolver);
        let decision = Processor::new(&client, &world).decide(self.request(asked));
        let NotedWorld { folders, notes, .. } = world;
        let files = files_of(&folders.into_inner(), resolver.real_root());
        if files.is_empty() {
            self.said.say(".htaccess", "none on the way to the file");
        }
        for file in &files {
            self.said.say(".htaccess", file.display().to_string());
        }
        for note in notes.into_inner() {
            let (about, what) = note.split_once(' ').unwrap_or(("directive", &note));
            self.said.say(about, what);
        }
        if matches!(decision.outcome, Outcome::Status(401 | 403) | Outcome::NeedsUser) {
            self.access_lines(&files);
        }
        self.outcome(asked, decision, resolver);
    }

    fn outcome(&mut self, asked: &Asked<'_>, decision: Decision, resolver: &mut Resolver) {
        let Decision { request, outcome } = decision;
        let name = request.filename.get(resolver.real_root().len()..).unwrap_or_default().to_vec();
        let (path, evaluated) = (encode_path(&request.uri), encode_path(asked.path.as_bytes()));
        let path = RoutedPath { evaluated: &evaluated, path: &path };
        match outcome {
            Outcome::File => match resolver.resolve(&encode_path(&name), None) {
                Route::File(entry) => self.file(&path, &entry, resolver),
                Route::Refused(refused) => self.refuse(refused.status, refused.why),
                Route::Script(_) | Route::RedirectSlash(_) => self.refuse(403, "it is no file"),
            },
            Outcome::Script => {
                let of_path = match asked.runner {
                    Runner::Pool { name, .. } => ScriptRunner::Pool(name),
                    Runner::Upstream(upstream) => ScriptRunner::Upstream(upstream),
                };
                let servers = FastcgiServers::of(self.config);
                let handler = request.handler.as_deref().unwrap_or_default();
                let of_site = ScriptRunner::of_site(&self.site.destination);
                if let Some(why) = servers.refusal(handler, [of_path, of_site]) {
                    return self.refuse(500, &why);
                }
                self.variables(&request, asked.runner);
                match resolver.script_at(&name, &request.path_info) {
                    Ok(script) => self.script(&path, &script, asked.runner),
                    Err(refused) => self.refuse(refused.status, refused.why),
                }
            }
            Outcome::Listing => self.listing(&path),
            Outcome::Status(status @ 300..400) => {
                let location = request.headers_out.get(b"Location").unwrap_or_default();
                let location = String::from_utf8_lossy(location);
                self.said.say("response", format!("{status} to {location}"));
            }
            Outcome::Status(status) => {
                self.refuse(status, "the .htaccess files say so, or there is no such file");
                if let Some(document) = request.conf.core.error_documents.get(&status) {
                    self.said.say("ErrorDocument", format!("{document:?}"));
                }
            }
            Outcome::NeedsUser => {
                let users = request.conf.authn.users.clone().unwrap_or_default();
                let users = String::from_utf8_lossy(&users);
                self.said.say("AuthUserFile", format!("a user of {users} is needed"));
                self.refuse(401, "a name and a password are needed");
            }
            Outcome::Mistake(mistake) => self.said.say("response", format!("500: {mistake}")),
            Outcome::TooCostly => self.refuse(500, "a regular expression takes too many steps"),
        }
    }

    /// PHP's variables and settings by the directives.
    fn variables(&mut self, request: &Request, runner: Runner<'_>) {
        for (name, value) in request.env.iter() {
            let [name, value] = [name, value].map(String::from_utf8_lossy);
            self.said.say("variable", format!("{name}={value}"));
        }
        if let Runner::Upstream(_) = runner {
            return;
        }
        for setting in &request.conf.php {
            let [name, value] =
                [&setting.name, &setting.value].map(|text| String::from_utf8_lossy(text));
            self.said.say("php_value", format!("{name} = {value}"));
        }
    }

    /// The lines about access in files.
    fn access_lines(&mut self, files: &[PathBuf]) {
        for file in files {
            let Ok(parsed) = htaccess_files::parse(self.site, file) else { continue };
            let is_access = |text: &str| {
                let text = text.to_ascii_lowercase();
                ACCESS.iter().any(|name| text.starts_with(name)) && !text.starts_with("<ifmodule")
            };
            // A section's line is known once it has ended.
            let mut lines: Vec<_> =
                parsed.remarks.iter().filter(|remark| is_access(&remark.text)).collect();
            lines.sort_by_key(|remark| remark.line);
            for remark in lines {
                let what = format!("{}:{}: {}", file.display(), remark.line, remark.text);
                self.said.say("access", what);
            }
        }
    }

    fn client(&self, resolver: &Resolver) -> Client {
        let asked = self.asked;
        let host = host_name(&asked.authority);
        let port = asked.authority.strip_prefix(host);
        let port = port.and_then(|rest| rest.strip_prefix(':')?.parse().ok());
        let is_https = asked.scheme == "https";
        let remote = SocketAddr::new(asked.client, 0);
        let query = asked.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        let line = format!("{} {}{query} HTTP/1.1", asked.method, asked.path);
        Client {
            addresses: Addresses::new(
                remote,
                remote,
                SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0),
                &Arc::default(),
            ),
            is_https,
            is_http2: false,
            server_name: host.as_bytes().to_vec(),
            server_port: port.unwrap_or(if is_https { 443 } else { 80 }),
            protocol: b"HTTP/1.1".to_vec(),
            request_line: line.into_bytes(),
            document_root: resolver.real_root().to_vec(),
            software: SOFTWARE_WITH_HTACCESS.to_vec(),
        }
    }

    fn request(&self, asked: &Asked<'_>) -> Request {
        let args = asked.query.map(|query| query.as_bytes().to_vec());
        let method = self.asked.method.as_bytes();
        let mut request = Request::new(method, asked.path.as_bytes().to_vec(), args);
        request.headers_in.add(b"Host", self.asked.authority.as_bytes());
        for (name, value) in &self.asked.fields {
            request.headers_in.add(name.as_bytes(), value.as_bytes());
        }
        request
    }
}

/// The `.htaccess` files that apply in folders below the root, from the top.
fn files_of(folders: &[Vec<u8>], root: &[u8]) -> Vec<PathBuf> {
    let ends = |folder: &Vec<u8>| {
        let slashes = memchr::memchr_iter(b'/', folder).filter(|end| *end >= root.len());
        slashes.map(|end| [&folder[..=end], NAME].concat()).collect::<Vec<_>>()
    };
    let files = folders.iter().flat_map(ends);
    let files = files.map(|file| PathBuf::from(OsString::from_vec(file)));
    let mut files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    files.sort();
    files.dedup();
    files
}
