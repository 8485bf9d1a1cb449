//! The request as the directives see it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::conf::Conf;
use crate::file::Mistake;
use crate::read_log::ReadLog;
use crate::table::Table;
use crate::user_groups::KnownUser;
use crate::weight::{Shared, Weight, weight_of};

/// Most work for one request: a rule that is tried costs 1, a subrequest [`SUBREQUEST`].
const MAX_WORK: u32 = 500_000;

/// The work of a subrequest.
pub const SUBREQUEST: u32 = 2000;

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Missing,
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A socket, a device and the like.
    Other,
}

/// The status of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is, with symbolic links followed.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// Whether anybody may execute it.
    pub is_executable: bool,
    /// When its content was last changed, in seconds since 1970.
    pub modified: i64,
}

/// The world outside of the evaluation: files, and the configuration of directories.
pub trait World {
    /// The status of an absolute path; none if nothing is there.
    fn stat(&self, path: &[u8]) -> Option<Stat>;

    /// Whether an absolute path is a symbolic link.
    fn is_link(&self, path: &[u8]) -> bool;

    /// The merged configuration of an absolute directory, which ends in a slash.
    ///
    /// # Errors
    /// The first mistake of one of its files.
    fn conf(&self, directory: &[u8]) -> Result<Arc<Conf>, Mistake>;

    /// The local time.
    fn time(&self) -> LocalTime;

    /// The HTTP date of the time in `seconds` from now.
    fn http_date(&self, seconds: i64) -> Vec<u8>;

    /// Takes note of a directive that has decided, for an explanation.
    fn note(&self, note: &dyn Fn() -> String) {
        let _ = note;
    }

    /// Whether the evaluation has taken longer than a request may. No further regular expression is
    /// matched then: each has a limit of its own, but there can be thousands.
    fn is_late(&self) -> bool {
        false
    }

    /// A variable of the server's environment.
    fn variable(&self, name: &[u8]) -> Option<Vec<u8>>;
}

/// A point in local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalTime {
    /// The year.
    pub year: i32,
    /// The month, from 1.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
    /// The hour.
    pub hour: u8,
    /// The minute.
    pub minute: u8,
    /// The second.
    pub second: u8,
    /// The day of the week; 0 is Sunday.
    pub weekday: u8,
}

/// The connection and the header of a request.
#[derive(Debug, Clone)]
pub struct Client {
    /// The addresses of the connection.
    pub addresses: Addresses,
    /// Whether TLS is in use.
    pub is_https: bool,
    /// Whether the version is HTTP/2.
    pub is_http2: bool,
    /// The name that the client requested, without its port.
    pub server_name: Vec<u8>,
    /// The port that the client requested.
    pub server_port: u16,
    /// `HTTP/1.1` and the like.
    pub protocol: Vec<u8>,
    /// The request line.
    pub request_line: Vec<u8>,
    /// The document root, without a trailing slash.
    pub document_root: Vec<u8>,
    /// The name of the server.
    pub software: Vec<u8>,
}

/// The addresses of a connection. A decision that reads one holds for this client alone.
#[derive(Debug, Clone)]
pub struct Addresses {
    remote: SocketAddr,
    peer: SocketAddr,
    local: SocketAddr,
    log: Arc<ReadLog>,
}

impl Addresses {
    /// The addresses of the client, of the peer of the connection, and of the server. Reads are
    /// logged.
    pub fn new(
        remote: SocketAddr,
        peer: SocketAddr,
        local: SocketAddr,
        log: &Arc<ReadLog>,
    ) -> Addresses {
        Addresses { remote, peer, local, log: Arc::clone(log) }
    }

    /// Those of a connection of another client to the same address.
    #[must_use]
    pub fn of_another(&self, remote: SocketAddr) -> Addresses {
        Addresses { remote, peer: remote, local: self.local, log: Arc::default() }
    }
}

impl Client {
    /// The memory of the client in bytes, roughly.
    pub fn bytes(&self) -> usize {
        size_of::<Client>() + self.heap(Shared::DoesNot)
    }

    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.addresses.log.unrepeatable();
        self.addresses.remote
    }

    /// The address of the peer of the connection.
    pub fn peer(&self) -> SocketAddr {
        self.addresses.log.unrepeatable();
        self.addresses.peer
    }

    /// The server's address.
    pub fn local(&self) -> SocketAddr {
        self.addresses.log.unrepeatable();
        self.addresses.local
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.is_https { "https" } else { "http" }
    }

    /// Scheme, name and port of this server as a URL without a path.
    pub fn origin(&self) -> Vec<u8> {
        let default = if self.is_https { 443 } else { 80 };
        let mut url = [self.scheme().as_bytes(), b"://", &self.server_name].concat();
        if self.server_port != default {
            url.extend_from_slice(format!(":{}", self.server_port).as_bytes());
        }
        url
    }
}

/// The request before an internal redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Previous {
    /// Its path.
    pub uri: Vec<u8>,
    /// Its query.
    pub args: Option<Vec<u8>>,
}

/// One round of a request: the first one, or that of an internal redirect or a subrequest.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Vec<u8>,
    /// The path, decoded and normalised.
    pub uri: Vec<u8>,
    /// The query.
    pub args: Option<Vec<u8>>,
    /// The absolute path of the file, up to the first segment that does not exist.
    pub filename: Vec<u8>,
    /// What follows the file's path.
    pub path_info: Vec<u8>,
    /// What the file's path names.
    pub kind: Kind,
    /// The configuration that applies.
    pub conf: Arc<Conf>,
    /// Variables.
    pub env: Table,
    /// The request headers.
    pub headers_in: Table,
    /// Response headers that have been set so far: `Location` and `Vary`.
    pub headers_out: Table,
    /// The authenticated user, of the files that apply.
    pub user: Option<Vec<u8>>,
    /// The client as a user of each `AuthUserFile` that was asked so far.
    pub users: Vec<KnownUser>,
    /// The request that was redirected to this one.
    pub previous: Option<Box<Previous>>,
    /// The handler, if not the default one.
    pub handler: Option<Vec<u8>>,
    /// The media type, if a directive sets it.
    pub content_type: Option<Vec<u8>>,
    /// The character set by extension.
    pub charset: Option<Vec<u8>>,
    /// The encodings by extension.
    pub content_encoding: Option<Vec<u8>>,
    /// The languages by extension.
    pub content_language: Vec<Vec<u8>>,
    /// The media type by the flag T of a rewrite.
    pub forced_type: Option<Vec<u8>>,
    /// The handler by the flag H of a rewrite.
    pub forced_handler: Option<Vec<u8>>,
    /// The status of a redirect by a rewrite.
    pub redirect_status: Option<u16>,
    /// The target of an internal redirect by a rewrite.
    pub redirect: Option<Vec<u8>>,
    /// The flag END has ended rewriting.
    pub is_rewritten_for_good: bool,
    /// The status of a response with content: 200, or that of an error whose page this is.
    pub status: u16,
    /// Whether RequestHeader has changed the headers.
    pub has_changed_headers: bool,
    /// It is a subrequest.
    pub is_sub: bool,
    /// Number of internal redirects before.
    pub redirects: usize,
    /// The path of the request that a subrequest belongs to.
    pub main_uri: Option<Vec<u8>>,
    /// The path that the subrequest for a file has once the file is found.
    pub uri_of_file: Option<Vec<u8>>,
    /// The sections that apply.
    pub walked: Walked,
    /// Those of the request that led to this one: the same access rules are not applied twice.
    pub checked: Option<Walked>,
    /// What its evaluation has cost, together with that of its rounds and subrequests.
    pub work: Arc<AtomicU32>,
}

/// The directory and the sections whose directives apply to a request.
#[derive(Debug, Clone, Default)]
pub struct Walked {
    /// The configuration of the directory.
    pub directory: Arc<Conf>,
    /// The positions of the sections, in order.
    pub sections: Vec<usize>,
}

impl PartialEq for Walked {
    fn eq(&self, other: &Walked) -> bool {
        Arc::ptr_eq(&self.directory, &other.directory) && self.sections == other.sections
    }
}

impl Request {
    /// The client as a user of the files that apply.
    pub fn known_user(&self) -> Option<&KnownUser> {
        let authn = &self.conf.authn;
        let mut users = self.users.iter();
        users.find(|user| user.file == authn.users && user.group_file == authn.groups)
    }

    /// Where a user is required, that of another file counts for nothing: after an internal
    /// redirect other files can apply.
    pub(crate) fn choose_user(&mut self) {
        if self.conf.authz.section.is_some() && self.conf.authn.is_set() {
            self.user = self.known_user().map(|user| user.name.clone());
        }
    }

    /// The bytes of the configuration that sections make for this request alone.
    pub fn private_conf_bytes(&self) -> usize {
        match Arc::ptr_eq(&self.conf, &self.walked.directory) {
            true => 0,
            false => self.conf.bytes(Shared::DoesNot),
        }
    }

    /// The memory of the request in bytes, roughly, without that of directories.
    pub fn bytes(&self) -> usize {
        size_of::<Request>() + self.heap(Shared::DoesNot) + self.private_conf_bytes()
    }

    /// A request that has not been mapped to a file.
    pub fn new(method: &[u8], uri: Vec<u8>, args: Option<Vec<u8>>) -> Request {
        Request {
            method: method.to_vec(),
            uri,
            args,
            filename: Vec::new(),
            path_info: Vec::new(),
            kind: Kind::Missing,
            conf: Arc::default(),
            env: Table::default(),
            headers_in: Table::default(),
            headers_out: Table::default(),
            user: None,
            users: Vec::new(),
            previous: None,
            handler: None,
            content_type: None,
            charset: None,
            content_encoding: None,
            content_language: Vec::new(),
            forced_type: None,
            forced_handler: None,
            redirect_status: None,
            redirect: None,
            is_rewritten_for_good: false,
            status: 200,
            has_changed_headers: false,
            is_sub: false,
            redirects: 0,
            main_uri: None,
            uri_of_file: None,
            walked: Walked::default(),
            checked: None,
            work: Arc::default(),
        }
    }

    /// Counts work. False once there is too much: rules and index files may lead to subrequests
    /// without end.
    pub fn may_spend(&self, cost: u32) -> bool {
        self.work.fetch_add(cost, Ordering::Relaxed) < MAX_WORK
    }

    /// The last segment of the file's path; empty for a directory with its slash.
    pub fn base_name(&self) -> &[u8] {
        let slash = memchr::memrchr(b'/', &self.filename);
        &self.filename[slash.map_or(0, |at| at + 1)..]
    }
}

weight_of!(Walked: sections);
weight_of!(Previous: uri, args);
weight_of!(KnownUser: file, group_file, name);
weight_of!(Request:
    method, uri, args, filename, path_info, env, headers_in, headers_out, user, users, previous,
    handler, content_type, charset, content_encoding, content_language, forced_type,
    forced_handler, redirect, main_uri, uri_of_file, walked, checked
);
weight_of!(Client: server_name, protocol, request_line, document_root, software);
