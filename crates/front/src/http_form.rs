//! A script's answer as HTTP: its CGI head becomes a head of HTTP, its body is framed.

use maitred_fastcgi::AnswerEvent;
use maitred_fastcgi::cgi::{AnswerHead, HeadReader};
use maitred_http1::{
    Answer, AnswerFraming, CHUNK_END, Head, LAST_CHUNK, answer_framing, carries_body,
    write_chunk_header,
};
use maitred_rules::SiteRules;

use crate::clock::http_date;
use crate::http_client::After;
use crate::request::{Header, Way};
use crate::script::{Failure, Form, Run};

/// How heads look in a version of HTTP.
pub trait Wire {
    /// What goes to the client apart from bytes, if anything.
    type Head;

    /// Makes the head of an answer, in `out` or apart from it. Returns also how many of `headers`
    /// have been left out because no head can carry them.
    fn head<'h>(
        out: &mut Vec<u8>,
        answer: &Answer<'_>,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> (Option<Self::Head>, usize);
}

/// An answer to one request over HTTP.
pub struct HttpForm<'a, W: Wire> {
    run: &'a Run<'a>,
    request: &'a Head,
    /// A header of ours, where the script does not say the same.
    beside: Option<Header<'a>>,
    way: &'a Way<'a>,
    head_reader: HeadReader,
    head: Option<AnswerHead>,
    framing: AnswerFraming,
    /// Body bytes that came with the head and are not framed yet, as long as the whole answer
    /// may still come in one piece.
    first: Vec<u8>,
    /// Bytes of body still to come when the script has announced how many.
    announced: Option<u64>,
    framed: bool,
    /// The head, if it goes apart from the bytes and has not gone.
    apart: Option<W::Head>,
    /// The status sent; 0 before there is one.
    pub status: u16,
    /// Bytes of the head that was sent.
    pub head_bytes: u64,
    /// Whether the connection can be used again.
    pub reusable: bool,
}

impl<'a, W: Wire> HttpForm<'a, W> {
    /// An answer of which nothing has been said. `beside` is a header of ours, where the script does
    /// not say the same.
    pub fn new(
        run: &'a Run<'a>,
        request: &'a Head,
        way: &'a Way<'a>,
        beside: Option<Header<'a>>,
    ) -> HttpForm<'a, W> {
        HttpForm {
            run,
            request,
            way,
            beside,
            head_reader: HeadReader::default(),
            head: None,
            framing: AnswerFraming::NoBody,
            first: Vec::new(),
            announced: None,
            framed: false,
            apart: None,
            status: 0,
            head_bytes: 0,
            reusable: false,
        }
    }

    fn take_output(&mut self, mut content: &[u8]) -> Result<(), Failure> {
        if self.head.is_none() {
            match self.head_reader.read(content) {
                Ok(None) => return Ok(()),
                Ok(Some((head, used))) => {
                    if self.is_intercepted(&head) {
                        return Err(Failure::Intercepted(head.status()));
                    }
                    self.head = Some(head);
                    content = &content[used..];
                }
                Err(error) => return Err(Failure::Invalid(error.to_string())),
            }
        }
        self.first.extend_from_slice(content);
        Ok(())
    }

    fn frame_head(&mut self, head: &AnswerHead, over: bool, out: &mut Vec<u8>) {
        (self.framing, self.announced) = self.choose_framing(head, over);
        let page_of = self.way.status;
        let lasts = page_of.is_none_or(|(_, after)| after == After::Keep);
        let keep_alive = self.request.keep_alive && lasts;
        let status = page_of.map_or(head.status(), |(status, _)| status);
        let answer = Answer {
            version: self.request.version(),
            status,
            reason: head.reason().filter(|_| page_of.is_none()),
            framing: self.framing,
            keep_alive,
            date: &http_date(),
        };
        out.reserve(512 + self.first.len());
        let for_client = head.headers().filter(|(name, _)| !is_for_us(name));
        let is_said = |(name, _): &Header<'_>| {
            let mut said = head.headers().map(|(said, _)| said);
            said.any(|said| said.eq_ignore_ascii_case(name))
        };
        let beside = self.beside.filter(|beside| !is_said(beside));
        let dressing = self.way.dressing;
        let (apart, unfit) = match dressing.is_empty() {
            true => W::head(out, &answer, for_client.chain(beside)),
            false => {
                let kept = for_client
                    .chain(beside)
                    .filter(|(name, _)| dressing.keeps(name));
                let says = head.header("cache-control").or(head.header("expires"));
                let media_type = head.header("content-type").unwrap_or_default();
                let expiry = match says {
                    Some(_) => None,
                    None => dressing.cache_control(status, media_type),
                };
                let expiry = expiry.map(|value| (&b"Cache-Control"[..], value.as_bytes()));
                W::head(out, &answer, kept.chain(dressing.fields()).chain(expiry))
            }
        };
        self.apart = apart;
        if unfit > 0 {
            let words = format!("{unfit} headers hold forbidden bytes: left out");
            self.run.log(words.as_bytes());
        }
        self.status = status;
        self.head_bytes = out.len() as u64;
        self.reusable = keep_alive && self.framing != AnswerFraming::UntilClose;
    }

    /// Whether a page of the site's takes the place of this answer.
    fn is_intercepted(&self, head: &AnswerHead) -> bool {
        let rules = self
            .way
            .rules
            .filter(|rules| rules.settings().intercept_errors);
        let has_page = |rules: &SiteRules| rules.error_page(head.status()).is_some();
        self.way.status.is_none() && rules.is_some_and(has_page)
    }

    /// A complete answer has a length of our own counting. One that is sent while it is made has
    /// the length that the script announces, if any.
    fn choose_framing(&self, head: &AnswerHead, over: bool) -> (AnswerFraming, Option<u64>) {
        let is_head = self.request.kind() == maitred_http1::Method::Head;
        let announced = head
            .header("content-length")
            .and_then(|value| std::str::from_utf8(value).ok())
            .and_then(|value| value.parse::<u64>().ok());
        let known = match (over, is_head) {
            (true, false) => Some(self.first.len() as u64),
            _ => announced,
        };
        let framing = answer_framing(self.request.version(), is_head, head.status(), known);
        (framing, known)
    }

    fn frame_body(&mut self, over: bool, out: &mut Vec<u8>) {
        let mut body = std::mem::take(&mut self.first);
        let is_head = self.request.kind() == maitred_http1::Method::Head;
        if !carries_body(is_head, self.status) {
            return;
        }
        if let Some(left) = &mut self.announced {
            let count = usize::try_from(*left).map_or(body.len(), |left| left.min(body.len()));
            body.truncate(count);
            *left -= count as u64;
        }
        match self.framing {
            AnswerFraming::Chunked => {
                if !body.is_empty() {
                    write_chunk_header(out, body.len());
                    out.extend_from_slice(&body);
                    out.extend_from_slice(CHUNK_END);
                }
                if over {
                    out.extend_from_slice(LAST_CHUNK);
                }
            }
            AnswerFraming::Length(_) | AnswerFraming::UntilClose | AnswerFraming::EndOfStream => {
                out.extend_from_slice(&body);
            }
            AnswerFraming::NoBody => {}
        }
        if over && self.announced.is_some_and(|left| left > 0) {
            // Fewer bytes than announced: only the end of the connection can say so.
            self.reusable = false;
        }
    }
}

impl<W: Wire> Form for HttpForm<'_, W> {
    type Head = W::Head;

    fn take(&mut self, said: AnswerEvent<'_>) -> Result<(), Failure> {
        match said {
            AnswerEvent::Stdout(content) => self.take_output(content)?,
            AnswerEvent::Stderr(content) => self.run.log(content),
            AnswerEvent::Report(_) | AnswerEvent::End { .. } => {}
        }
        Ok(())
    }

    fn frame(&mut self, over: bool) -> Result<Vec<u8>, Failure> {
        let mut out = Vec::new();
        let Some(head) = self.head.take() else {
            return match over {
                true => Err(Failure::Invalid(self.head_reader.ended_early().to_string())),
                false => Ok(out),
            };
        };
        if !self.framed {
            self.framed = true;
            self.frame_head(&head, over, &mut out);
        }
        self.head = Some(head);
        self.frame_body(over, &mut out);
        Ok(out)
    }

    fn head(&mut self) -> Option<W::Head> {
        self.apart.take()
    }

    fn has_begun(&self) -> bool {
        self.framed
    }

    fn restart(&mut self) {
        *self = HttpForm::new(self.run, self.request, self.way, self.beside);
    }
}

/// Headers by which a script speaks to its web server (nginx's `X-Accel-…`).
pub fn is_for_us(name: &[u8]) -> bool {
    name.get(..8)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
}
