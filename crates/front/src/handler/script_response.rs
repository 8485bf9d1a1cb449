//! A script's response over HTTP: its CGI header becomes an HTTP header, its body is framed.

use std::io;
use std::time::Duration;

use maitred_fastcgi::ResponseEvent;
use maitred_fastcgi::cgi::{CgiHeaders, HeadReader};
use maitred_http1::{
    CHUNK_END, LAST_CHUNK, Method, ResponseFraming, ResponseStart, Version, carries_body,
    response_framing, write_chunk_header,
};
use maitred_pagecache::admit;

use crate::backend::Backend;
use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::Failure;
use crate::backend::run::Run;
use crate::backend::script_headers::{Named, is_for_us};
use crate::cache::CACHE_STATUS;
use crate::handler::context::RequestContext;
use crate::handler::htaccess_response::{ResponseSource, Unevaluated};
use crate::handler::response_headers::{ResponseHeaders, find};
use crate::http::client::{After, HeadWriter};
use crate::http::early_hints::{self, Hints};
use crate::http::headers::Header;
use crate::http::server_timing;
use crate::runtime::clock::http_date;
use crate::site::compress::{Encoder, PassingEncoder, Plan};

/// The response to one request over HTTP.
pub struct HttpEncoder<'a, W: HeadWriter> {
    run: &'a Run<'a>,
    context: &'a RequestContext<'a>,
    headers: &'a ResponseHeaders<'a>,
    head_reader: HeadReader,
    /// The script's header section, once it is complete and until it is framed: a client may take
    /// long to read the body.
    head: Option<CgiHeaders>,
    framing: ResponseFraming,
    /// Body bytes that are not framed yet: as long as the whole response may be sent in one piece.
    first: Vec<u8>,
    /// Bytes of body still to come, if the script has sent the `Content-Length` header.
    announced: Option<u64>,
    /// Compresses the body, if it is sent while the script runs.
    encoder: Option<Box<PassingEncoder>>,
    framed: bool,
    hints: Hints,
    /// Early hints that have not been sent: bytes, or headers.
    early: Vec<u8>,
    early_apart: Vec<W::Head>,
    /// The response header, if it is not part of the bytes and has not been sent.
    apart: Option<W::Head>,
    /// The sent status; 0 before the response header was sent.
    pub status: u16,
    /// Bytes of the sent header.
    pub head_bytes: u64,
    /// Whether the connection can be used again.
    pub reusable: bool,
    /// The value of the `Cache-Status` header, if the site has a cache.
    pub cache_status: Option<String>,
    /// The value of the `Server-Timing` header, if the response has it.
    timing: Option<String>,
}

impl<'a, W: HeadWriter> HttpEncoder<'a, W> {
    /// An empty response. `headers` are added to those of the script.
    pub fn new(
        run: &'a Run<'a>,
        context: &'a RequestContext<'a>,
        headers: &'a ResponseHeaders<'a>,
    ) -> HttpEncoder<'a, W> {
        HttpEncoder {
            run,
            context,
            headers,
            head_reader: HeadReader::default(),
            head: None,
            framing: ResponseFraming::NoBody,
            first: Vec::new(),
            announced: None,
            encoder: None,
            framed: false,
            hints: Hints::default(),
            early: Vec::new(),
            early_apart: Vec::new(),
            apart: None,
            status: 0,
            head_bytes: 0,
            reusable: false,
            cache_status: None,
            timing: None,
        }
    }

    /// The header of the script's response, until it is framed.
    pub fn script_head(&self) -> Option<&CgiHeaders> {
        self.head.as_ref()
    }

    /// Whether the script's header section is complete.
    fn has_head(&self) -> bool {
        self.framed || self.head.is_some()
    }

    fn take_output(&mut self, mut content: &[u8]) -> Result<(), Failure> {
        if !self.has_head() {
            match self.head_reader.read(content) {
                Ok(None) => return Ok(()),
                Ok(Some((head, used))) => {
                    let (status, names_file) = (head.status(), Named::by(&head).is_some());
                    self.head = Some(head);
                    if self.context.intercepts(status) {
                        return Err(Failure::Intercepted(status));
                    }
                    if names_file {
                        return Err(Failure::FileNamed);
                    }
                    content = &content[used..];
                }
                Err(error) => return Err(Failure::invalid(error)),
            }
        }
        self.first.extend_from_slice(content);
        Ok(())
    }

    /// Takes early hints, which clients get that support interim responses (RFC 9110 §15.2), before
    /// the response starts.
    fn take_hints(&mut self, lines: &[u8]) {
        let wanted =
            self.context.head.version() != Version::Http10 && self.context.error_page.is_none();
        let Some(lines) = self.hints.take(lines) else {
            return;
        };
        if wanted && !self.has_head() {
            let fields: Vec<Header<'_>> = early_hints::fields(&lines).collect();
            if !fields.is_empty() {
                let head = W::hints(&mut self.early, fields.into_iter());
                self.early_apart.extend(head);
            }
        }
    }

    fn frame_head(
        &mut self,
        head: &CgiHeaders,
        over: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        (self.framing, self.announced) = self.choose_framing(head, over);
        let error_page = self.context.error_page;
        let mut plan = self.plan(head);
        self.start_compression(&mut plan, head, over);
        let lasts = error_page.is_none_or(|page| page.after == After::Keep);
        let keep_alive = self.context.head.keep_alive && lasts;
        let before = out.len();
        let status = self.status_of(head);
        let response = ResponseStart {
            version: self.context.head.version(),
            status,
            reason: head.reason().filter(|_| error_page.is_none()),
            framing: self.framing,
            keep_alive,
            date: &http_date(),
        };
        out.reserve(512 + self.first.len());
        let expiry = self.headers.expiry(status, |name| find(head.headers(), name));
        let cache = self.context.site.cache.as_ref();
        let is_for_cache =
            |name: &[u8]| cache.is_some_and(|cache| admit::is_for_cache(&cache.settings, name));
        let for_client = head
            .headers()
            .filter(|(name, _)| !is_for_us(name) && !is_for_cache(name) && !plan.replaces(name));
        let cache_status = self.cache_status.as_ref();
        let cache_status = cache_status.map(|status| (CACHE_STATUS, status.as_bytes()));
        let timing = self.timing.as_ref();
        let timing = timing.map(|value| (server_timing::NAME, value.as_bytes()));
        let has = |name: &[u8]| {
            let mut names = head.headers().map(|(name, _)| name);
            names.any(|own| own.eq_ignore_ascii_case(name))
        };
        let of_error = error_page.map_or(&[][..], |page| page.headers).iter();
        let of_error = of_error.map(|(name, value)| (&name[..], &value[..]));
        let of_error = of_error.filter(|(name, _)| !has(name));
        let own = for_client.chain(cache_status).chain(timing).chain(of_error);
        let all = self.headers.complete(own, has);
        let expiry = expiry.iter().flat_map(|expiry| expiry.headers());
        let all: Vec<Header<'_>> = all.chain(expiry).chain(plan.fields()).collect();
        let changed = self.headers.change(status, ResponseSource::Script, || all.clone());
        let changed = changed.map_err(|Unevaluated| Failure::Unevaluated)?;
        let (apart, unfit) = match &changed {
            None => W::head(out, &response, all.into_iter()),
            Some(changed) => {
                let changed = changed.iter().map(|(name, value)| (&name[..], &value[..]));
                W::head(out, &response, changed)
            }
        };
        self.apart = apart;
        if unfit > 0 {
            let words = format!("{unfit} headers hold forbidden bytes: left out");
            self.run.log(words.as_bytes());
        }
        self.status = status;
        self.head_bytes += (out.len() - before) as u64;
        self.reusable = keep_alive && self.framing != ResponseFraming::UntilClose;
        Ok(())
    }

    /// Whether and how the body is compressed, as far as it is known.
    fn plan(&self, head: &CgiHeaders) -> Plan {
        let compression = self.context.site.compression.as_deref();
        let status = self.status_of(head);
        Plan::make(compression, self.context.head, head.headers(), status, self.announced)
    }

    /// Starts to compress the body; one that is complete is compressed at once.
    fn start_compression(&mut self, plan: &mut Plan, head: &CgiHeaders, over: bool) {
        let Some(coding) = plan.coding else { return };
        let is_head = self.context.head.kind() == Method::Head;
        let mut length = None;
        if !is_head && over {
            if self.is_short() {
                return plan.give_up();
            }
            let Ok(coded) = Encoder::whole(coding, &self.first) else {
                return plan.give_up();
            };
            length = Some(coded.len() as u64);
            (self.first, self.announced) = (coded, length);
        } else if !is_head {
            let encoder = match self.run.backend {
                Backend::Pool(_) => PassingEncoder::of_pool(coding),
                Backend::Upstream(..) => PassingEncoder::of_upstream(coding),
            };
            let Some(encoder) = encoder else {
                return plan.give_up();
            };
            self.encoder = Some(Box::new(encoder));
        }
        self.framing =
            response_framing(self.context.head.version(), is_head, self.status_of(head), length);
    }

    /// The status that is sent: that of the error, where the script makes an error page.
    fn status_of(&self, head: &CgiHeaders) -> u16 {
        self.context.error_page.map_or(head.status(), |page| page.status)
    }

    /// Whether the first piece of the body has fewer bytes than the response.
    fn is_short(&self) -> bool {
        self.announced.is_some_and(|announced| announced > self.first.len() as u64)
    }

    /// The framing, and the length: of a complete response the counted one, otherwise the value of
    /// the `Content-Length` header, if the script sends it. A body that ends before that length
    /// keeps it, so that the client sees an incomplete response.
    fn choose_framing(&self, head: &CgiHeaders, over: bool) -> (ResponseFraming, Option<u64>) {
        let is_head = self.context.head.kind() == Method::Head;
        let announced = head
            .header("content-length")
            .and_then(|value| std::str::from_utf8(value).ok())
            .and_then(|value| value.parse::<u64>().ok());
        let known = match (over, is_head) {
            (true, false) => announced.max(Some(self.first.len() as u64)),
            _ => announced,
        };
        let status = self.status_of(head);
        let framing = response_framing(self.context.head.version(), is_head, status, known);
        (framing, known)
    }

    fn frame_body(&mut self, over: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut body = std::mem::take(&mut self.first);
        let is_head = self.context.head.kind() == Method::Head;
        if !carries_body(is_head, self.status) {
            return Ok(());
        }
        if let Some(left) = &mut self.announced {
            let count = usize::try_from(*left).map_or(body.len(), |left| left.min(body.len()));
            body.truncate(count);
            *left -= count as u64;
        }
        let is_whole = over && self.announced.is_none_or(|left| left == 0);
        if let Some(mut encoder) = self.encoder.take() {
            if is_whole {
                body = encoder.last(&body).map_err(not_compressed)?;
            } else {
                if !body.is_empty() {
                    body = encoder.piece(&body).map_err(not_compressed)?;
                }
                // After the script nothing limits their number, and a client may take long.
                self.encoder = Some(encoder).filter(|_| !over);
            }
        }
        match self.framing {
            ResponseFraming::Chunked => {
                if !body.is_empty() {
                    write_chunk_header(out, body.len());
                    out.extend_from_slice(&body);
                    out.extend_from_slice(CHUNK_END);
                }
                if is_whole {
                    out.extend_from_slice(LAST_CHUNK);
                }
            }
            ResponseFraming::Length(_)
            | ResponseFraming::UntilClose
            | ResponseFraming::EndOfStream => {
                out.extend_from_slice(&body);
            }
            ResponseFraming::NoBody => {}
        }
        if over && !is_whole {
            // Fewer bytes than `Content-Length`: only the end of the connection can show that, and
            // where it is the end of the response as well, only an end in the middle.
            self.reusable = false;
            if self.framing == ResponseFraming::UntilClose {
                return Err(Failure::invalid("it has fewer bytes than its Content-Length"));
            }
        }
        Ok(())
    }
}

fn not_compressed(error: io::Error) -> Failure {
    Failure::invalid(format!("it cannot be compressed: {error}"))
}

impl<W: HeadWriter> ResponseEncoder for HttpEncoder<'_, W> {
    type Head = W::Head;

    fn take(&mut self, said: ResponseEvent<'_>) -> Result<(), Failure> {
        match said {
            ResponseEvent::Stdout(content) => self.take_output(content)?,
            ResponseEvent::Stderr(content) => self.run.log(content),
            ResponseEvent::Hints(lines) => self.take_hints(lines),
            ResponseEvent::Report(_) | ResponseEvent::End { .. } => {}
        }
        Ok(())
    }

    async fn settle(&mut self) {
        if !self.framed
            && self.headers.reads_files()
            && let Some(head) = &self.head
        {
            let headers: Vec<Header<'_>> = head.headers().collect();
            let status = self.status_of(head);
            self.headers.look_ahead(status, &headers, ResponseSource::Script).await;
        }
    }

    fn frame(&mut self, over: bool) -> Result<Vec<u8>, Failure> {
        let mut out = std::mem::take(&mut self.early);
        self.head_bytes += out.len() as u64;
        if !self.framed {
            let Some(head) = self.head.take() else {
                return if over {
                    Err(Failure::invalid(self.head_reader.ended_early()))
                } else {
                    Ok(out)
                };
            };
            self.frame_head(&head, over, &mut out)?;
            self.framed = true;
        }
        self.frame_body(over, &mut out)?;
        Ok(out)
    }

    fn head(&mut self) -> Option<W::Head> {
        if self.early_apart.is_empty() {
            return self.apart.take();
        }
        Some(self.early_apart.remove(0))
    }

    fn needs_yield(&self) -> bool {
        self.encoder.is_some()
    }

    fn record_duration(&mut self, _time: Duration) {}

    fn has_begun(&self) -> bool {
        self.framed
    }

    fn timed(&mut self, value: String) {
        self.timing = Some(value);
    }
}
