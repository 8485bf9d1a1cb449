//! A client as a site's rules and trusted proxies make it: with the address that a proxy names, with
//! the header fields that the site sets, and with errors kept back where the site has a page for
//! them.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use maitred_http1::Head;
use maitred_rules::SiteRules;
use maitred_rules::dress::{Expiry, HeaderPolicy};

use crate::http::body::{Body, NoBody};
use crate::http::body_stream::Inflow;
use crate::http::client::{After, Client, Content, HttpClient, Raw, Reply, Written};
use crate::net::admin_peer::AdminPeer;
use crate::net::tls::Secured;
use crate::runtime::clock::expires;

/// The client of one request.
pub struct Ruled<'a, C> {
    client: &'a mut C,
    peer: SocketAddr,
    dressing: &'a HeaderPolicy<'a>,
    /// Errors are kept back for which these have a page.
    pages: Option<&'a SiteRules>,
    /// The error that was kept back.
    pub caught: Option<Caught>,
}

/// An error that a page is to be sent for.
#[derive(Debug)]
pub struct Caught {
    /// The status.
    pub status: u16,
    /// What has to be in its header all the same, such as `Retry-After`.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The server's own words, for when there is no page after all.
    pub words: Vec<u8>,
    /// What becomes of the connection.
    pub after: After,
}

impl<'a, C: HttpClient> Ruled<'a, C> {
    /// `client` at the address `peer`, whose answers get this dressing.
    pub fn new(
        client: &'a mut C,
        peer: SocketAddr,
        dressing: &'a HeaderPolicy<'a>,
        pages: Option<&'a SiteRules>,
    ) -> Ruled<'a, C> {
        Ruled {
            client,
            peer,
            dressing,
            pages,
            caught: None,
        }
    }

    /// From now on nothing is kept back.
    pub fn let_through(&mut self) {
        self.pages = None;
    }

    fn catches(&self, status: u16) -> bool {
        self.pages
            .is_some_and(|rules| rules.error_page(status).is_some())
    }
}

impl<C: HttpClient> Client for Ruled<'_, C> {
    type Head = C::Head;

    async fn gone(&mut self) {
        self.client.gone().await;
    }

    async fn gone_later(&mut self) {
        self.client.gone_later().await;
    }

    fn begin(&mut self, head: C::Head) -> io::Result<()> {
        self.client.begin(head)
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.client.try_send(bytes)
    }

    async fn sendable(&mut self) -> io::Result<()> {
        self.client.sendable().await
    }

    fn spool_bytes(&self) -> usize {
        self.client.spool_bytes()
    }
}

impl<C: HttpClient> HttpClient for Ruled<'_, C> {
    type HeadWriter = C::HeadWriter;

    fn is_answered_by_script(&mut self) {
        self.pages = self.pages.filter(|rules| rules.settings().intercept_errors);
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&mut self) -> SocketAddr {
        self.client.local()
    }

    fn admin(&self) -> Option<AdminPeer> {
        self.client.admin()
    }

    fn secured(&self) -> Option<&Arc<Secured>> {
        self.client.secured()
    }

    fn break_off(&mut self) {
        self.client.break_off();
    }

    fn sent(&self) -> u64 {
        self.client.sent()
    }

    async fn body(&mut self, head: &Head, limit: u64, spool_dir: &Path) -> Result<Body, NoBody> {
        self.client.body(head, limit, spool_dir).await
    }

    async fn invite_body(&mut self, head: &Head) -> Result<(), NoBody> {
        self.client.invite_body(head).await
    }

    async fn next_body(&mut self, inflow: &mut Inflow) -> Result<Option<Bytes>, NoBody> {
        self.client.next_body(inflow).await
    }

    fn raw(&mut self) -> Option<Raw<'_>> {
        self.client.raw()
    }

    fn discard_body(&mut self, head: &Head) -> After {
        self.client.discard_body(head)
    }

    async fn answer(&mut self, reply: &Reply<'_>, content: Content<'_>) -> Written {
        if self.catches(reply.status) {
            let is_own = |name: &[u8]| name.eq_ignore_ascii_case(b"content-type");
            let kept = reply.headers.iter().filter(|(name, _)| !is_own(name));
            self.caught = Some(Caught {
                status: reply.status,
                headers: kept
                    .map(|(name, value)| (name.to_vec(), value.to_vec()))
                    .collect(),
                words: content.at_once().to_vec(),
                after: reply.after,
            });
            return Written {
                status: 0,
                head_bytes: 0,
                result: Ok(()),
            };
        }
        let dressing = self.dressing;
        if dressing.is_empty() {
            return self.client.answer(reply, content).await;
        }
        let kept = reply.headers.iter().copied();
        let kept = kept.filter(|(name, _)| dressing.keeps(name));
        let mut headers: Vec<(&[u8], &[u8])> = kept.chain(dressing.fields()).collect();
        let lines = kept_lines(reply.lines, dressing);
        let expiry = expiry(dressing, reply.status, &headers, &lines);
        let date = expiry.map(|expiry| expires(expiry.after));
        if let (Some(expiry), Some(date)) = (expiry, &date) {
            headers.push((b"Cache-Control", expiry.cache_control.as_bytes()));
            headers.push((b"Expires", date.as_bytes()));
        }
        let reply = Reply {
            headers: &headers,
            lines: &lines,
            ..*reply
        };
        self.client.answer(&reply, content).await
    }
}

/// Ready-made lines without those of fields that are set or taken away.
fn kept_lines(lines: &Bytes, dressing: &HeaderPolicy<'_>) -> Bytes {
    if fields_of(lines).all(|(name, _)| dressing.keeps(name)) {
        return lines.clone();
    }
    let mut kept = BytesMut::with_capacity(lines.len());
    for (name, value) in fields_of(lines).filter(|(name, _)| dressing.keeps(name)) {
        for part in [name, b": ", value, b"\r\n"] {
            kept.extend_from_slice(part);
        }
    }
    kept.freeze()
}

fn fields_of(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = lines.split(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii_start()))
    })
}

fn expiry<'d>(
    dressing: &HeaderPolicy<'d>,
    status: u16,
    headers: &[(&[u8], &[u8])],
    lines: &[u8],
) -> Option<Expiry<'d>> {
    let all = || headers.iter().copied().chain(fields_of(lines));
    let find = |wanted: &[u8]| all().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    if find(b"cache-control").or(find(b"expires")).is_some() {
        return None;
    }
    let media_type = find(b"content-type").map_or(&b""[..], |(_, value)| value);
    dressing.expiry(status, media_type)
}
