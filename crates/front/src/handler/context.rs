//! The request object of the handlers, and the results of routing and rules for it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use maitred_http1::Head;
use maitred_rules::SiteRules;
use maitred_rules::forwarded::{ForwardedClient, ForwardedHeader, Trust};
use maitred_rules::response_headers::HeaderPolicy;

use crate::backend::Backend;
use crate::handler::htaccess_response::Directives;
use crate::handler::htaccess_response::OwnedHeader;
use crate::handler::respond::InterceptedResponse;
use crate::http::client::{After, HttpClient};
use crate::logging::request_record::RequestRecord;
use crate::pool::queue::Priority;
use crate::services::Thread;
use crate::site::Site;
use crate::site::resolver::{Refused, RootVersion};

/// One request on its way to a response. Built once, when its header is complete.
pub struct RequestCx<'r, C> {
    /// The client: a connection of HTTP/1, or a stream of HTTP/2.
    pub client: &'r mut C,
    /// The request header.
    pub head: &'r Head,
    /// The thread that serves the request, and what its requests share.
    pub thread: &'r Arc<Thread>,
    /// Host, scheme and client address.
    pub target: RequestTarget<'r>,
    /// The record for the access log.
    pub record: RequestRecord,
    /// The header rules for the path; none: there are none.
    pub header_policy: Option<Arc<HeaderPolicy<'r>>>,
    /// The error pages of the site: a response with one of their statuses is intercepted. None:
    /// responses are sent as they are.
    pub error_pages: Option<&'r SiteRules>,
    /// The intercepted response, which an error page of the site replaces.
    pub intercepted: Option<Box<InterceptedResponse>>,
    /// The directives of `.htaccess` files for the response.
    pub directives: Option<Arc<Directives>>,
}

/// Host, scheme and client address of a request: from the connection and the request header, or
/// from a trusted proxy.
#[derive(Debug, Clone, Copy)]
pub struct RequestTarget<'r> {
    /// The authority the client requested.
    pub host: &'r str,
    /// The client's address.
    pub peer: SocketAddr,
    /// Whether the client speaks TLS, with this server or with a proxy in front.
    pub is_https: bool,
    /// Whether the client uses TLS to the trusted proxy; none: the proxy does not report it.
    pub forwarded_https: Option<bool>,
    /// Whether the `Forwarded` header of a trusted proxy may name the client.
    pub by_forwarded: bool,
}

impl<'r> RequestTarget<'r> {
    /// The target from the connection and the request header alone.
    pub fn direct(client: &impl HttpClient, head: &'r Head) -> RequestTarget<'r> {
        RequestTarget {
            host: head.host(),
            peer: client.peer(),
            is_https: client.secured().is_some(),
            forwarded_https: None,
            by_forwarded: false,
        }
    }

    /// This target with another host.
    pub fn with_host<'h>(self, host: &'h str) -> RequestTarget<'h> {
        RequestTarget {
            host,
            peer: self.peer,
            is_https: self.is_https,
            forwarded_https: self.forwarded_https,
            by_forwarded: self.by_forwarded,
        }
    }

    /// This target with the values that a trusted proxy reports.
    pub fn forwarded(self, trust: &Trust, heard: &'r ForwardedClient) -> RequestTarget<'r> {
        let is_trusted = trust.proxies.contain(self.peer.ip());
        RequestTarget {
            host: heard.host.as_deref().unwrap_or(self.host),
            peer: heard.client.unwrap_or(self.peer),
            is_https: heard.is_https.unwrap_or(self.is_https),
            forwarded_https: heard.is_https,
            by_forwarded: is_trusted && trust.fields.contains(&ForwardedHeader::Forwarded),
        }
    }
}

/// A request at its site, after routing and rules.
#[derive(Clone)]
pub struct RequestContext<'r> {
    /// The request header.
    pub head: &'r Head,
    /// Host, scheme and client address.
    pub target: RequestTarget<'r>,
    /// The site.
    pub site: &'r Arc<Site>,
    /// The path after rewrites, percent-encoded.
    pub path: Cow<'r, str>,
    /// The query after rewrites.
    pub query: Option<Cow<'r, str>>,
    /// The backend of its scripts.
    pub backend: &'r Backend,
    /// The queue priority of its scripts.
    pub lane: Priority,
    /// Largest request body in bytes.
    pub max_body_size: u64,
    /// Whether the client has authenticated as a user of `basic_auth`.
    pub has_user: bool,
    /// The error, if this request serves an error page.
    pub error_page: Option<ErrorPage<'r>>,
    /// The directives of `.htaccess` files, if they apply.
    pub directives: Option<Arc<Directives>>,
    /// Whether those would be others for another client that requests the same.
    pub depends_on_client: bool,
    /// The document root whose `.htaccess` files have decided on the script, if another folder of
    /// its name could replace the script.
    pub script_root: Option<RootVersion>,
    /// The address that the client connected to, at a site with `.htaccess` files.
    pub local: Option<SocketAddr>,
}

/// The error for which a page of the site is sent.
#[derive(Debug, Clone, Copy)]
pub struct ErrorPage<'r> {
    /// The status of the response.
    pub status: u16,
    /// Headers of the error, which the page has as well unless its script sends them.
    pub headers: &'r [OwnedHeader],
    /// The state of the connection after the response.
    pub after: After,
}

impl<'r> RequestContext<'r> {
    /// A request at its site, before rules change it.
    pub fn new(
        head: &'r Head,
        target: RequestTarget<'r>,
        site: &'r Arc<Site>,
    ) -> RequestContext<'r> {
        RequestContext {
            head,
            target,
            site,
            path: head.path().into(),
            query: head.query().map(Cow::Borrowed),
            backend: &site.backend,
            lane: Priority::Normal,
            max_body_size: site.settings.max_body_size,
            has_user: false,
            error_page: None,
            directives: None,
            depends_on_client: false,
            script_root: None,
            local: None,
        }
    }

    /// The query.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Checks, after a wait, that the script is still the one on which `.htaccess` files have
    /// decided.
    ///
    /// # Errors
    /// When another folder has the name of its document root.
    pub async fn check_script_root(&self) -> Result<(), Refused> {
        match self.script_root {
            Some(root) => self.site.check_root(root).await,
            None => Ok(()),
        }
    }

    /// Whether the site has an error page for this status that replaces the response of a script or
    /// an upstream server.
    pub fn intercepts(&self, status: u16) -> bool {
        let rules = self.site.rules.as_ref();
        let rules = rules.filter(|rules| rules.settings().intercept_errors);
        let has_page = |rules: &SiteRules| rules.error_page(status).is_some();
        self.error_page.is_none() && rules.is_some_and(has_page)
    }
}
