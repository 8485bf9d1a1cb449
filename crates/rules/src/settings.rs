//! What a site says about paths and clients, as it was read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::apps::App;
use crate::pattern::Pattern;

/// All that one site says. Where a list has patterns, the first that matches counts, unless it is
/// said otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The application whose rules follow the site's own.
    pub app: Option<App>,
    /// Addresses that lead elsewhere.
    pub redirects: Vec<Redirect>,
    /// Addresses that stand for others, unseen by the client.
    pub rewrite: Vec<Rewrite>,
    /// Clients that the site answers; empty: all.
    pub allow: Vec<IpNet>,
    /// What is refused; all that match hold.
    pub deny: Vec<Deny>,
    /// Scripts that may run; empty: all.
    pub allow_php: Vec<Pattern>,
    /// Where scripts do not run, and where they do all the same.
    pub deny_php: Vec<PhpRule>,
    /// Who has to say a user and a password.
    pub basic_auth: Vec<BasicAuth>,
    /// Header fields of answers; all that match count, the later ones over the earlier ones.
    pub headers: Vec<HeaderRule>,
    /// How long answers may be kept by a browser.
    pub expires: Vec<Expires>,
    /// Pages in place of the server's own words, by status: paths of the site.
    pub error_pages: BTreeMap<u16, String>,
    /// Whether they replace a script's answers, too.
    pub intercept_errors: bool,
    /// Folders whose files are listed where there is no index.
    pub autoindex: Vec<Pattern>,
    /// Folders beside the document root.
    pub aliases: Vec<Alias>,
    /// Settings for some paths.
    pub paths: Vec<PathSettings>,
    /// Other HTTP servers that answer for some paths.
    pub proxy: Vec<Proxy>,
    /// How often a client may ask; all that match hold.
    pub rate_limit: Vec<RateLimit>,
    /// How many requests of a client may be answered at a time.
    pub connection_limit: Option<u32>,
}

/// Whether scripts run at some paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhpRule {
    /// Which paths.
    pub path: Pattern,
    /// Scripts run there, whatever later rules say.
    pub runs: bool,
}

impl PhpRule {
    /// Reads a pattern; `!` in front of it makes an exception.
    ///
    /// # Errors
    /// What is wrong with `text`, as the end of a sentence that begins with it.
    pub fn parse(text: &str) -> Result<PhpRule, String> {
        let (runs, pattern) = match text.strip_prefix('!') {
            Some(pattern) => (true, pattern),
            None => (false, text),
        };
        let path = Pattern::parse(pattern)?;
        Ok(PhpRule { path, runs })
    }
}

/// A redirect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    /// What is asked for.
    pub from: Pattern,
    /// Where it leads.
    pub to: String,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A rewrite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrite {
    /// What is asked for.
    pub from: Pattern,
    /// What it stands for.
    pub to: String,
    /// No further rewrite follows.
    pub end: bool,
}

/// What is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deny {
    /// Which paths.
    pub path: Pattern,
    /// To whom; empty: to everybody.
    pub from: Vec<IpNet>,
    /// But not to these.
    pub except: Vec<IpNet>,
    /// The status it is refused with.
    pub status: u16,
}

/// Users of HTTP's basic authentication (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BasicAuth {
    /// Which paths need one.
    pub path: Pattern,
    /// What the browser shows.
    pub realm: String,
    /// The file with names and passwords, in the form of `htpasswd`.
    pub users: PathBuf,
}

/// Changes to the headers of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderRule {
    /// Paths whose responses change.
    pub path: Pattern,
    /// In place of headers of that name.
    pub set: Vec<(String, String)>,
    /// In addition to headers of that name.
    pub add: Vec<(String, String)>,
    /// Headers that are removed.
    pub unset: Vec<String>,
}

/// How long answers may be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expires {
    /// Paths whose responses change.
    pub path: Pattern,
    /// Only those of this media type, such as `text/css`, or `image/` for all images.
    pub media_type: Option<String>,
    /// For how long; zero: not without asking.
    pub after: Duration,
    /// It never changes under its name.
    pub immutable: bool,
}

/// A folder beside the document root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// What its paths begin with: begins and ends with a slash.
    pub path: String,
    /// The folder.
    pub folder: PathBuf,
}

/// Settings for some paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSettings {
    /// Which.
    pub path: Pattern,
    /// The pool that runs their scripts, if not the site's.
    pub pool: Option<String>,
    /// Largest request body in bytes, if not the site's.
    pub max_body_size: Option<u64>,
    /// Its scripts get workers before those of other paths.
    pub urgent: bool,
}

/// How often one client may ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// For what.
    pub path: Pattern,
    /// Requests in `per`.
    pub requests: u32,
    /// The time they are counted in.
    pub per: Duration,
    /// Requests beyond that which a client may have made at once.
    pub burst: u32,
}

/// Another HTTP server that answers for some paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxy {
    /// Which.
    pub path: Pattern,
    /// The server.
    pub to: Upstream,
    /// What it is told in `Host`, if not what the client asked for.
    pub host: Option<String>,
    /// The folder of `path` is no part of what it is asked for.
    pub strip_prefix: bool,
    /// How long it may take to accept a connection.
    pub connect_timeout: Duration,
    /// How long it may say nothing.
    pub read_timeout: Duration,
    /// How long it may take nothing of a request.
    pub send_timeout: Duration,
}

impl Proxy {
    /// The server as it is written in the configuration.
    pub fn server(&self) -> String {
        match &self.to {
            Upstream::Unix(path) => format!("unix:{}", path.display()),
            Upstream::Tcp { host, port } if host.contains(':') => format!("http://[{host}]:{port}"),
            Upstream::Tcp { host, port } => format!("http://{host}:{port}"),
        }
    }
}

/// The address of another server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Upstream {
    /// A Unix socket, by its absolute path.
    Unix(PathBuf),
    /// A host name or an address (IPv6 without brackets) and a port.
    Tcp {
        /// Host name or address.
        host: String,
        /// Port, not 0.
        port: u16,
    },
}
