//! A request, and what its site and its rules have made of it.

use std::net::SocketAddr;
use std::sync::Arc;

use maitred_http1::Head;
use maitred_rules::SiteRules;
use maitred_rules::response_headers::HeaderPolicy;

use crate::backend::Backend;
use crate::http::client::After;
use crate::pool::queue::Priority;
use crate::site::Site;

/// How a request is answered: by which site, and what its rules have made of it.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The site.
    pub site: &'a Arc<Site>,
    /// Its rules, if it has any.
    pub rules: Option<&'a SiteRules>,
    /// The path, encoded; after rewrites.
    pub path: &'a str,
    /// The query that belongs to it.
    pub query: Option<&'a str>,
    /// Where its scripts run.
    pub backend: &'a Backend,
    /// Whom its scripts wait before.
    pub priority: Priority,
    /// Largest request body in bytes.
    pub max_body_size: u64,
    /// What becomes of the answer's header.
    pub header_policy: &'a HeaderPolicy<'a>,
    /// Who asks, and for what host, if that is not what connection and request say.
    pub origin: Option<Origin<'a>>,
    /// Whether the client speaks TLS, with us or with a proxy in front.
    pub is_https: bool,
    /// Whether it has shown a user that a `basic_auth` knows.
    pub has_user: bool,
    /// It is the page for this status, and then this becomes of the connection.
    pub status: Option<(u16, After)>,
}

/// What a proxy said of the client, or what the connection says.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The client.
    pub client: SocketAddr,
    /// Whether the client speaks TLS, if a proxy said so.
    pub is_https: Option<bool>,
    /// Whether that can be in `Forwarded`.
    pub by_forwarded: bool,
    /// The authority it asked for.
    pub host: &'a str,
}

impl RequestContext<'_> {
    /// Whether a page of the site's takes the place of a script's or a server's answer of this status.
    pub fn intercepts(&self, status: u16) -> bool {
        let rules = self.rules.filter(|rules| rules.settings().intercept_errors);
        let has_page = |rules: &SiteRules| rules.error_page(status).is_some();
        self.status.is_none() && rules.is_some_and(has_page)
    }

    /// The authority that was asked for.
    pub fn host<'h>(&'h self, head: &'h Head) -> &'h str {
        self.origin.map_or(head.host(), |origin| origin.host)
    }
}
