//! Kinds of traffic.

/// A kind of traffic, each by clients of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A script's page of any size.
    Page,
    /// A body that a script receives, with a length or chunked.
    Upload,
    /// A static file, or a part of one.
    File,
    /// A client that reads a large page slowly.
    SlowReader,
    /// A cached page.
    Cached,
    /// The same page on another node.
    OtherNode,
    /// A cached page is changed and purged on all nodes.
    Purge,
    /// A folder whose `.htaccess` changes.
    Htaccess,
    /// A script in worker mode.
    Worker,
    /// A script in snapshot mode.
    Snapshot,
    /// An upstream's response.
    Proxied,
    /// The response of an upstream that is found by its name.
    Named,
    /// Messages over a WebSocket.
    WebSocket,
    /// A page over TLS and HTTP/2.
    Tls,
    /// The dashboard's stream of events, and other pages of the admin listener.
    Dashboard,
}

impl Kind {
    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Page => "pages",
            Kind::Upload => "uploads",
            Kind::File => "files",
            Kind::SlowReader => "slow readers",
            Kind::Cached => "cached pages",
            Kind::OtherNode => "other node",
            Kind::Purge => "purges",
            Kind::Htaccess => ".htaccess",
            Kind::Worker => "worker mode",
            Kind::Snapshot => "snapshot mode",
            Kind::Proxied => "proxied",
            Kind::Named => "named",
            Kind::WebSocket => "WebSocket",
            Kind::Tls => "TLS, HTTP/2",
            Kind::Dashboard => "dashboards",
        }
    }
}
