//! Responses of the server's own, and the one function that sends a response of known length.

use std::io;
use std::pin::Pin;

use bytes::Bytes;
use maitred_http1::{Method, Version, carries_body};
use maitred_scoreboard::Counter;

use crate::backend::error::Failure;
use crate::handler::context::{ErrorPage, RequestContext, RequestCx};
use crate::handler::htaccess;
use crate::handler::htaccess_response::{OwnedHeader, ResponseSource};
use crate::handler::response_headers::{ResponseHeaders, find, headers_of_lines};
use crate::http::body::{BodyError, NO_SPACE_FOR_BODY, RETRY_BODY_SECONDS};
use crate::http::client::{After, Content, HttpClient, Reply};
use crate::http::error_body::{in_words, of_request, unfiltered};
use crate::http::headers::{Header, PLAIN, ServerHeaders};
use crate::http::request_memory::{HeldMemory, MemoryGrowth};
use crate::pool::status::StatusPage;
use crate::site::listing::ListingPage;

/// Bytes of the largest page that is not accounted for: as small as the text of an error.
const UNCOUNTED_BYTES: usize = 4 * 1024;

/// The type of pages of the server.
pub const HTML: Header<'static> = (b"Content-Type", b"text/html; charset=utf-8");

static EMPTY: Bytes = Bytes::new();

/// A text response: a status with its reason, or a page of the server.
#[derive(Debug)]
pub struct TextResponse {
    /// The status.
    pub status: u16,
    headers: Vec<OwnedHeader>,
    text: TextBody,
}

#[derive(Debug)]
enum TextBody {
    /// The name of the status, followed by this sentence.
    Reason(&'static str),
    /// The whole body.
    Whole(String),
    /// The page of a listing.
    Listing(ListingPage),
}

impl TextBody {
    /// Bytes of a page.
    fn page_bytes(&self) -> usize {
        match self {
            TextBody::Reason(_) => 0,
            TextBody::Whole(text) => text.len(),
            TextBody::Listing(page) => page.text.len(),
        }
    }
}

impl TextResponse {
    /// A response with the name of the status and a sentence with the reason.
    pub fn new(status: u16, reason: &'static str) -> TextResponse {
        TextResponse { status, headers: vec![owned(&PLAIN)], text: TextBody::Reason(reason) }
    }

    /// A redirect.
    pub fn redirect(status: u16, location: &str) -> TextResponse {
        TextResponse::new(status, "").with("Location", location)
    }

    /// A page with status 200.
    pub fn page(headers: &[Header<'_>], body: String) -> TextResponse {
        TextResponse {
            status: 200,
            headers: headers.iter().map(owned).collect(),
            text: TextBody::Whole(body),
        }
    }

    /// The page of a listing.
    pub fn listing(page: ListingPage) -> TextResponse {
        let headers = vec![owned(&HTML)];
        TextResponse { status: 200, headers, text: TextBody::Listing(page) }
    }

    /// This response with another status.
    #[must_use]
    pub fn with_status(self, status: u16) -> TextResponse {
        TextResponse { status, ..self }
    }

    /// This response with one more header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> TextResponse {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// This response, if it is a 401, with the challenges of the one that it replaces: without them
    /// no browser asks for credentials (RFC 9110 §15.5.2).
    #[must_use]
    pub fn with_challenges<'a>(mut self, values: impl Iterator<Item = &'a [u8]>) -> TextResponse {
        if self.status == 401 {
            self.headers.extend(values.map(|value| owned(&(b"WWW-Authenticate", value))));
        }
        self
    }
}

impl From<StatusPage> for TextResponse {
    fn from(page: StatusPage) -> TextResponse {
        let response = TextResponse::page(&page.headers(), page.body().to_owned());
        TextResponse { status: page.status(), ..response }
    }
}

fn owned(header: &Header<'_>) -> OwnedHeader {
    (header.0.to_vec(), header.1.to_vec())
}

fn borrowed(header: &OwnedHeader) -> Header<'_> {
    (&header.0, &header.1)
}

/// A response of known length.
pub struct WholeResponse<'a> {
    /// The status.
    pub status: u16,
    /// Headers. `Server`, `Date` and those of [`ResponseHeaders`] are added.
    pub headers: &'a [Header<'a>],
    /// Prepared header lines, each with its CR LF.
    pub lines: Bytes,
    /// Header lines that are not sent, but suppress the server's headers of the same names.
    pub unsent_lines: &'a [u8],
    /// The body.
    pub content: Content<'a>,
    /// The length of the body in bytes; none if the lines contain it, or the status allows none.
    pub length: Option<u64>,
    /// The state of the connection afterwards.
    pub after: After,
    /// Whether a script has created it: error pages replace it only with `intercept_errors`.
    pub is_by_script: bool,
    /// What it comes from, for `.htaccess` files.
    pub source: ResponseSource,
}

impl<'a> WholeResponse<'a> {
    /// A response without headers.
    pub fn new(status: u16, content: Content<'a>, after: After) -> WholeResponse<'a> {
        WholeResponse {
            status,
            headers: &[],
            lines: Bytes::new(),
            unsent_lines: &[],
            content,
            length: None,
            after,
            is_by_script: false,
            source: ResponseSource::Server,
        }
    }

    fn has(&self, name: &[u8]) -> bool {
        let headers = self.headers.iter().copied();
        let lines = headers_of_lines(&self.lines).chain(headers_of_lines(self.unsent_lines));
        headers.chain(lines).any(|(own, _)| own.eq_ignore_ascii_case(name))
    }
}

/// A response that was not sent, because the site has a page for its status.
#[derive(Debug)]
pub struct InterceptedResponse {
    /// The status.
    pub status: u16,
    /// The state of the connection afterwards.
    pub after: After,
    /// Headers that the page gets as well, such as `Retry-After`.
    headers: Vec<OwnedHeader>,
    /// The body, in case the error page cannot be sent.
    pub body: Vec<u8>,
}

impl InterceptedResponse {
    /// A response of which the page of an error needs nothing.
    pub fn bare(status: u16, after: After) -> InterceptedResponse {
        InterceptedResponse { status, after, headers: Vec::new(), body: Vec::new() }
    }

    /// The error, for the script that makes its page.
    pub fn page(&self) -> ErrorPage<'_> {
        ErrorPage { status: self.status, headers: &self.headers, after: self.after }
    }

    fn of(response: &WholeResponse<'_>) -> InterceptedResponse {
        let is_type = |name: &[u8]| name.eq_ignore_ascii_case(b"content-type");
        let headers = response.headers.iter().filter(|(name, _)| !is_type(name));
        InterceptedResponse {
            status: response.status,
            after: response.after,
            headers: headers.map(owned).collect(),
            body: response.content.at_once().to_vec(),
        }
    }
}

fn length_of_lines(lines: &[u8]) -> Option<u64> {
    let value = find(headers_of_lines(lines), "content-length")?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

impl<'r, C: HttpClient> RequestCx<'r, C> {
    /// The headers that the server and the rules of the site add to the response.
    pub fn response_headers(&mut self) -> ResponseHeaders<'r> {
        let server =
            ServerHeaders { secured: self.client.secured().cloned(), id: self.record.id_sent() };
        ResponseHeaders::new(server, self.header_policy.clone()).directed(self.directives.clone())
    }

    /// Sends a response, or intercepts it if the site has a page for its status.
    ///
    /// # Errors
    /// When the client has closed the connection or does not read, or the file has become shorter.
    pub async fn send(&mut self, response: &WholeResponse<'_>) -> io::Result<After> {
        if self.intercepts(response) {
            self.intercepted = Some(Box::new(InterceptedResponse::of(response)));
            return Ok(response.after);
        }
        let own = self.response_headers();
        let mut headers: Vec<Header<'_>> =
            own.complete(response.headers.iter().copied(), |name| response.has(name)).collect();
        let lines = own.filter_lines(&response.lines);
        let all = || headers.iter().copied().chain(headers_of_lines(&lines));
        let expiry = own.expiry(response.status, |name| find(all(), name));
        headers.extend(expiry.iter().flat_map(|expiry| expiry.headers()));
        let source = response.source;
        let before = || headers.iter().copied().chain(headers_of_lines(&lines)).collect::<Vec<_>>();
        if own.reads_files() {
            own.look_ahead(response.status, &before(), source).await;
        }
        let changed = own.change(response.status, source, before);
        let Ok(changed) = changed else {
            return self.send_unevaluated(response.after).await;
        };
        let changed: Option<Vec<Header<'_>>> =
            changed.as_ref().map(|all| all.iter().map(borrowed).collect());
        // The length of a file is one of its prepared lines.
        let length = match changed {
            Some(_) => response.length.or_else(|| length_of_lines(&lines)),
            None => response.length,
        };
        let reply = Reply {
            request: self.head,
            status: response.status,
            headers: changed.as_ref().unwrap_or(&headers),
            lines: if changed.is_some() { &EMPTY } else { &lines },
            length,
            after: response.after,
        };
        let written = self.client.respond(&reply, response.content).await;
        self.record.written(written)?;
        Ok(response.after)
    }

    /// Sends a 500 in place of a response of which the `.htaccess` files say nothing in time: it
    /// could lack the headers that its site relies on.
    async fn send_unevaluated(&mut self, after: After) -> io::Result<After> {
        self.give_up_directives();
        let failure = Failure::Unevaluated;
        let id = self.record.id();
        let body = of_request(failure.status(), failure.sentence(), id.as_str());
        let own = self.response_headers();
        let headers: Vec<Header<'_>> = own.complete([PLAIN].into_iter(), |_| false).collect();
        let content = match self.head.kind() {
            Method::Head => Content::Nothing,
            _ => Content::Made(body.as_bytes()),
        };
        let reply = Reply {
            request: self.head,
            status: failure.status(),
            headers: &headers,
            lines: &EMPTY,
            length: Some(body.len() as u64),
            after,
        };
        let written = self.client.respond(&reply, content).await;
        self.record.written(written)?;
        Ok(after)
    }

    /// Logs that the directives about headers take too long, and leaves them out of the response
    /// that says so.
    pub fn give_up_directives(&mut self) {
        if let Some(directives) = self.directives.take() {
            let path = String::from_utf8_lossy(&directives.request.uri);
            let said = htaccess::too_costly(&path);
            let root = &directives.site.settings.root;
            self.thread.shared.troubles.htaccess_failed(root, &said);
        }
    }

    fn intercepts(&self, response: &WholeResponse<'_>) -> bool {
        self.error_pages.is_some_and(|rules| {
            rules.error_page(response.status).is_some()
                && (!response.is_by_script || rules.settings().intercept_errors)
        })
    }

    /// Sends a response of the server to a request with an unread body. The connection stays open
    /// if the body can be discarded.
    pub fn refuse(
        &mut self,
        response: TextResponse,
    ) -> Pin<Box<impl Future<Output = io::Result<After>>>> {
        let after = self.client.discard_body(self.head);
        self.respond(response, after)
    }

    /// Sends a response of the server. `after` depends on whether the request's body has been read:
    /// bytes after an unread body must not be parsed as a request. Boxed, because this is rare.
    pub fn respond(
        &mut self,
        response: TextResponse,
        after: After,
    ) -> Pin<Box<impl Future<Output = io::Result<After>>>> {
        Box::pin(async move {
            let (response, _held) = match self.hold_page(&response) {
                Ok(held) => (response, held),
                Err(refusal) => {
                    // The page and its turn do not wait until the client has read the refusal.
                    drop(response);
                    (refusal, None)
                }
            };
            let body = match response.text {
                TextBody::Whole(body) => body,
                TextBody::Listing(page) => page.text,
                // Clients of the admin listener may read the reason of a 403 and 404 as well.
                TextBody::Reason(reason) if self.client.admin().is_some() => {
                    unfiltered(response.status, reason)
                }
                TextBody::Reason(reason) if response.status < 400 => {
                    in_words(response.status, reason)
                }
                TextBody::Reason(reason) => {
                    let (status, id) = (response.status, self.record.id());
                    let target = self.head.target().escape_debug();
                    tracing::debug!("{target}: {status}: {reason} [request {}]", id.as_str());
                    of_request(status, reason, id.as_str())
                }
            };
            let headers: Vec<Header<'_>> = response.headers.iter().map(borrowed).collect();
            let content = Content::Made(body.as_bytes());
            self.send_text(response.status, &headers, content, after).await
        })
    }

    /// Accounts for a large page until its client has read it. The connections of the admin
    /// listener are few.
    fn hold_page(
        &mut self,
        response: &TextResponse,
    ) -> Result<Option<HeldMemory<'r>>, TextResponse> {
        let bytes = response.text.page_bytes();
        if bytes <= UNCOUNTED_BYTES || self.client.admin().is_some() {
            return Ok(None);
        }
        let (thread, peer) = (self.thread, self.target.peer.ip());
        let growth = MemoryGrowth { before: self.head.memory_bytes(), more: bytes };
        let held = self.client.hold(&thread.shared.requests, growth, || thread.address(peer));
        held.map_err(|why| {
            thread.shared.refuse_head(peer, why);
            TextResponse::new(503, "Too many large pages are in progress.")
        })
    }

    /// Sends an error page of the site in place of an intercepted response.
    pub async fn send_error_page(
        &mut self,
        error: &InterceptedResponse,
        content_type: &str,
        content: Content<'_>,
    ) -> io::Result<After> {
        let headers = error.headers.iter().map(borrowed);
        let content_type = (&b"Content-Type"[..], content_type.as_bytes());
        let headers: Vec<Header<'_>> = headers.chain([content_type]).collect();
        self.send_text(error.status, &headers, content, error.after).await
    }

    /// Sends a response with its length; to HEAD without its content (RFC 9110 §9.3.2), and without
    /// both if its status has none (§6.4.1).
    async fn send_text(
        &mut self,
        status: u16,
        headers: &[Header<'_>],
        content: Content<'_>,
        after: After,
    ) -> io::Result<After> {
        let length = carries_body(false, status).then_some(content.len());
        let is_head = self.head.kind() == Method::Head;
        let content = if carries_body(is_head, status) { content } else { Content::Nothing };
        let response =
            WholeResponse { headers, length, ..WholeResponse::new(status, content, after) };
        self.send(&response).await
    }

    /// What happens to the connection after the response to a request that could not be read: over
    /// HTTP/2, it does not affect the other streams.
    pub fn after_failed_request(&self) -> After {
        match self.head.version() {
            Version::Http2 => After::Keep,
            _ => After::Linger,
        }
    }

    /// Responds to a request whose body could not be read, and closes the connection of HTTP/1.
    ///
    /// # Errors
    /// When the client has closed the connection.
    pub async fn refuse_body(
        &mut self,
        context: &RequestContext<'_>,
        body_error: BodyError,
    ) -> io::Result<After> {
        let (status, reason) = match body_error {
            BodyError::TooLarge => {
                let (method, target) = (self.head.method(), self.head.target());
                let id = self.record.id();
                if context.backend.may_log(method.len() + target.len()) {
                    tracing::warn!(
                        "{method} {target}: 413: its body is larger than max_body_size allows \
                         [request {}]",
                        id.as_str()
                    );
                }
                (413, "")
            }
            BodyError::TooSlow => (408, "The body came too slowly."),
            BodyError::Gone => {
                self.record.status = 499;
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            BodyError::Refused(refusal) => (refusal.status(), refusal.reason()),
            BodyError::Spool(error) => {
                let dir = context.site.spool.path.display();
                let (method, target) = (self.head.method(), self.head.target());
                let id = self.record.id();
                let id = id.as_str();
                if context.backend.may_log(method.len() + target.len()) {
                    tracing::error!(
                        "{method} {target}: its body cannot be kept in {dir}: {error} \
                         [request {id}]"
                    );
                }
                let reason = "The body could not be kept: the disk is full or cannot be written.";
                (507, reason)
            }
            BodyError::NoSpace => {
                context.backend.count(Counter::BodiesRefused);
                (503, NO_SPACE_FOR_BODY)
            }
        };
        let mut response = TextResponse::new(status, reason);
        if status == 503 {
            response = response.with("Retry-After", &RETRY_BODY_SECONDS.to_string());
        }
        let after = self.after_failed_request();
        self.respond(response, after).await
    }
}
