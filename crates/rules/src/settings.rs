//! The rules of a site as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::apps::App;
use crate::pattern::Pattern;

/// The rules of one site. In a list with patterns the first match counts, unless stated otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The application whose preset is appended.
    pub app: Option<App>,
    /// Redirects.
    pub redirects: Vec<Redirect>,
    /// Rewrites: internal, invisible to the client.
    pub rewrite: Vec<Rewrite>,
    /// Clients that have access; empty: all.
    pub allow: Vec<IpNet>,
    /// Denied paths; all that match apply.
    pub deny: Vec<Deny>,
    /// Scripts that may run; empty: all.
    pub allow_php: Vec<Pattern>,
    /// Paths whose scripts do not run, and exceptions.
    pub deny_php: Vec<PhpRule>,
    /// Paths that require a user and a password.
    pub basic_auth: Vec<BasicAuth>,
    /// Response headers; all that match apply, later ones override earlier ones.
    pub headers: Vec<HeaderRule>,
    /// Browser cache lifetimes.
    pub expires: Vec<Expires>,
    /// Custom error pages by status: paths of the site.
    pub error_pages: BTreeMap<u16, String>,
    /// Whether they replace a script's error responses, too.
    pub intercept_errors: bool,
    /// Whether `.htaccess` files in the document root apply.
    #[serde(default)]
    pub htaccess: bool,
    /// Whether unknown directives in them are left out, instead of a 500.
    #[serde(default)]
    pub htaccess_ignores_unknown: bool,
    /// The groups of directives and the directives that they may have; empty: all.
    #[serde(default)]
    pub htaccess_override: Vec<String>,
    /// Files and folders outside the document root that `AuthUserFile` and `AuthGroupFile` in them
    /// may name.
    #[serde(default)]
    pub htaccess_users: Vec<PathBuf>,
    /// Folders with a directory listing if there is no index.
    pub autoindex: Vec<Pattern>,
    /// Folders outside the document root.
    pub aliases: Vec<Alias>,
    /// Settings for some paths.
    pub paths: Vec<PathSettings>,
    /// Upstream HTTP servers for some paths.
    pub proxy: Vec<Proxy>,
    /// Request rate limits per client; all that match apply.
    pub rate_limit: Vec<RateLimit>,
    /// Concurrent requests per client.
    pub connection_limit: Option<u32>,
}

impl Rules {
    /// Whether `.htaccess` files apply, and there is no other rule.
    pub fn are_htaccess_alone(&self) -> bool {
        let others = Rules {
            htaccess: false,
            htaccess_ignores_unknown: false,
            htaccess_override: Vec::new(),
            htaccess_users: Vec::new(),
            ..self.clone()
        };
        self.htaccess && others == Rules::default()
    }
}

/// Whether scripts run at some paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhpRule {
    /// The paths.
    pub path: Pattern,
    /// Scripts run there, whatever later rules say.
    pub runs: bool,
}

impl PhpRule {
    /// Parses a pattern; with a leading `!` it is an exception.
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
    /// The requested path.
    pub from: Pattern,
    /// The target.
    pub to: String,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A rewrite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrite {
    /// The requested path.
    pub from: Pattern,
    /// The target.
    pub to: String,
    /// No further rewrite follows.
    pub end: bool,
}

/// A denied path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deny {
    /// The paths.
    pub path: Pattern,
    /// Denied clients; empty: all.
    pub from: Vec<IpNet>,
    /// Exceptions.
    pub except: Vec<IpNet>,
    /// The response status.
    pub status: u16,
}

/// HTTP basic authentication (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BasicAuth {
    /// The paths that require it.
    pub path: Pattern,
    /// The realm that the browser shows.
    pub realm: String,
    /// The file with users and password hashes, in the format of `htpasswd`.
    pub users: PathBuf,
}

/// Changes to the headers of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderRule {
    /// Paths whose responses change.
    pub path: Pattern,
    /// Headers that replace those with the same name.
    pub set: Vec<(String, String)>,
    /// Headers in addition to those with the same name.
    pub add: Vec<(String, String)>,
    /// Headers that are removed.
    pub unset: Vec<String>,
}

/// A browser cache lifetime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expires {
    /// Paths whose responses change.
    pub path: Pattern,
    /// Only those of this media type, such as `text/css`, or `image/` for all images.
    pub media_type: Option<String>,
    /// Lifetime; zero: revalidate before each use.
    pub after: Duration,
    /// The file never changes under its name.
    pub immutable: bool,
}

/// A folder outside the document root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The URL prefix: starts and ends with a slash.
    pub path: String,
    /// The folder.
    pub folder: PathBuf,
}

/// An entry of `paths`: settings for some paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSettings {
    /// The paths.
    pub path: Pattern,
    /// The pool that runs their scripts, if not the site's.
    pub pool: Option<String>,
    /// Largest request body in bytes, if not the site's.
    pub max_body_size: Option<u64>,
    /// Whether their scripts get workers before those of other paths, if it says so.
    pub urgent: Option<bool>,
}

/// A request rate limit per client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// The paths.
    pub path: Pattern,
    /// Requests in `per`.
    pub requests: u32,
    /// The period.
    pub per: Duration,
    /// Requests beyond that which a client may send at once.
    pub burst: u32,
}

/// An upstream HTTP server for some paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxy {
    /// The paths.
    pub path: Pattern,
    /// The server.
    pub to: Upstream,
    /// The `Host` header for it, if not the client's.
    pub host: Option<String>,
    /// Remove the folder of `path` from the forwarded path.
    pub strip_prefix: bool,
    /// Timeout for connecting.
    pub connect_timeout: Duration,
    /// Timeout for reading from it.
    pub read_timeout: Duration,
    /// Timeout for sending to it.
    pub send_timeout: Duration,
}

impl Proxy {
    /// The server, as written in the configuration.
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
