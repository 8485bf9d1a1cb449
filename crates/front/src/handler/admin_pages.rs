//! Requests on the admin listener: who may read what, the pages, and the stream of the dashboard.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_http1::{
    CHUNK_END, Head, LAST_CHUNK, Method, ResponseFraming, ResponseStart, response_framing,
    write_chunk_header,
};
use serde_json::{Value, json};

use crate::admin::dashboard::merge_patch::merge_patch;
use crate::admin::dashboard::server_state;
use crate::admin::dashboard::{
    self, Asset, CONTENT_SECURITY_POLICY, DashboardTarget, OpenDashboard,
};
use crate::admin::{self, Refused};
use crate::handler::admin_cache;
use crate::handler::context::RequestCx;
use crate::handler::respond::{TextResponse, WholeResponse};
use crate::http::client::{After, Content, HeadWriter, HttpClient};
use crate::http::headers::Header;
use crate::net::admin_peer::AdminPeer;
use crate::pool::status::View;
use crate::runtime::clock::http_date;
use crate::services::{Shared, Thread, history};
use crate::site::sites::Sites;

/// The challenge for a client without the token of the admin listener (RFC 6750 §3).
const CHALLENGE: &str = "Bearer realm=\"maitred\"";

/// The same for a browser at the dashboard, which asks its user for the token as a password (RFC
/// 7617).
const BASIC_CHALLENGE: &str = "Basic realm=\"maitred\", charset=\"UTF-8\"";

/// The time between two events of a dashboard.
const PACE: Duration = Duration::from_secs(1);

/// Most bytes of events in a second: larger events are followed by a longer pause.
const BYTES_PER_SECOND: f64 = 30_000.0;

/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A comment is sent after this time without an event: the browser sees that the server is there.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The time between two measurements of memory and OPcache for open dashboards.
const MEASURED_EVERY: Duration = Duration::from_secs(10);

/// Serves a request on the admin listener.
///
/// # Errors
/// When the client has closed the connection.
pub async fn serve<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    sites: &Sites,
    peer: AdminPeer,
) -> io::Result<After> {
    let target = dashboard::target(cx.head);
    let view = match admit(cx, sites, peer, target.is_some()) {
        Ok(view) => view,
        Err(refusal) => return cx.refuse(refusal).await,
    };
    match target {
        Some(DashboardTarget::Asset(asset)) => send_asset(cx, asset).await,
        Some(DashboardTarget::Request(number)) => {
            let value = request(&cx.thread.shared, view, number);
            send_json(cx, value).await
        }
        Some(DashboardTarget::Pages) => {
            let value = admin_cache::pages(&cx.thread.shared, view);
            send_json(cx, value).await
        }
        Some(DashboardTarget::Purge(url)) => {
            Box::pin(admin_cache::purge(cx, &sites.admin, &url)).await
        }
        Some(DashboardTarget::Events(pool)) => {
            let pool = pool.map(str::to_owned);
            let rights = AdminRights { peer, view };
            events(cx, rights, pool.as_deref()).await
        }
        None => {
            let page = admin::page(&cx.thread.shared, cx.head, view).await;
            let none = || TextResponse::new(404, "There is no such page.");
            cx.refuse(page.map_or_else(none, TextResponse::from)).await
        }
    }
}

/// What a client may see.
fn admit<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    sites: &Sites,
    peer: AdminPeer,
    is_dashboard: bool,
) -> Result<View, TextResponse> {
    let head = cx.head;
    if peer == AdminPeer::Tcp && !admin::is_meant(cx.client.local().ip(), head.host()) {
        let why = "Only this machine's own address or localhost leads here.";
        return Err(TextResponse::new(421, why));
    }
    view_of(sites, peer, head).map_err(|refused| match refused {
        Refused::NoToken => {
            let response = TextResponse::new(401, "A token is needed here (admin_token).");
            let challenge = if is_dashboard { BASIC_CHALLENGE } else { CHALLENGE };
            response.with("WWW-Authenticate", challenge)
        }
        Refused::WrongUser => {
            TextResponse::new(403, "This user may not read what is here (admin_users).")
        }
        Refused::NoListener => {
            TextResponse::new(421, "The configuration has no such admin listener any more.")
        }
    })
}

/// The view of a client in the current configuration.
fn view_of(sites: &Sites, peer: AdminPeer, head: &Head) -> Result<View, Refused> {
    let access = sites.admin_access(peer).ok_or(Refused::NoListener)?;
    admin::decide(access, peer, head.header("authorization"))
}

/// A client of the dashboard, and its view.
#[derive(Clone, Copy)]
struct AdminRights {
    peer: AdminPeer,
    view: View,
}

impl AdminRights {
    /// Whether the client has the same view in the current configuration.
    fn are_current(self, sites: &Sites, head: &Head) -> bool {
        view_of(sites, self.peer, head) == Ok(self.view)
    }
}

/// The details of a request. Only a client that may see everything gets its log lines.
fn request(shared: &Shared, view: View, number: u64) -> Option<Value> {
    let found = shared.recent_requests.find(number);
    let mut request = found.filter(|_| view != View::WithoutRequests)?;
    if view != View::Whole {
        request.lines.clear();
    }
    serde_json::to_value(&request).ok()
}

async fn send_json<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    value: Option<Value>,
) -> io::Result<After> {
    let Some(value) = value else {
        return cx.refuse(TextResponse::new(404, "There is nothing to show.")).await;
    };
    let body = value.to_string();
    let after = cx.client.discard_body(cx.head);
    let headers: [Header<'_>; 3] = [
        (b"Content-Type", b"application/json"),
        (b"Cache-Control", b"no-store"),
        (b"X-Content-Type-Options", b"nosniff"),
    ];
    let content = match cx.head.kind() {
        Method::Head => Content::Nothing,
        _ => Content::Made(body.as_bytes()),
    };
    let response = WholeResponse::new(200, content, after);
    cx.send(&WholeResponse { headers: &headers, length: Some(body.len() as u64), ..response }).await
}

async fn send_asset<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    asset: &'static Asset,
) -> io::Result<After> {
    let after = cx.client.discard_body(cx.head);
    let accepted = cx.head.header("accept-encoding").unwrap_or_default();
    let is_gzip = String::from_utf8_lossy(accepted)
        .split(',')
        .any(|coding| coding.trim().eq_ignore_ascii_case("gzip"));
    let body = if is_gzip { &asset.gzip } else { &asset.plain };
    let mut headers: Vec<Header<'_>> = vec![
        (b"Content-Type", asset.content_type.as_bytes()),
        (b"Cache-Control", b"no-cache"),
        (b"Vary", b"Accept-Encoding"),
        (b"Content-Security-Policy", CONTENT_SECURITY_POLICY.as_bytes()),
        (b"X-Content-Type-Options", b"nosniff"),
        (b"Referrer-Policy", b"no-referrer"),
    ];
    if is_gzip {
        headers.push((b"Content-Encoding", b"gzip"));
    }
    let content = match cx.head.kind() {
        Method::Head => Content::Nothing,
        _ => Content::Kept(body),
    };
    let response = WholeResponse::new(200, content, after);
    cx.send(&WholeResponse { headers: &headers, length: Some(body.len() as u64), ..response }).await
}

/// Sends the state of the server, and then what changes of it, until the client leaves, a reload
/// changes its rights, or the front is to stop.
async fn events<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    rights: AdminRights,
    pool: Option<&str>,
) -> io::Result<After> {
    if cx.head.kind() == Method::Head {
        let why = "Events are for GET.";
        return cx.refuse(TextResponse::new(405, why)).await;
    }
    // The page of another site cannot read the events, but could occupy all streams.
    let from = cx.head.header("sec-fetch-site").unwrap_or(b"none");
    if !matches!(from, b"same-origin" | b"none") {
        return cx.refuse(TextResponse::new(403, "Events are for the dashboard's own page.")).await;
    }
    let Some(_open) = OpenDashboard::another(rights.view) else {
        let why = "There are as many open dashboards as there may be.";
        return cx.refuse(TextResponse::new(503, why)).await;
    };
    let thread = cx.thread.clone();
    let mut stream = EventStream::begin(cx)?;
    let mut feed = DashboardFeed::new(&thread, rights.view, pool);
    let mut quiet_since = Instant::now();
    loop {
        let events = feed.next().await;
        if !rights.are_current(&thread.sites(), cx.head) {
            break;
        }
        if !events.is_empty() {
            quiet_since = Instant::now();
            stream.send(cx.client, &events).await?;
        } else if quiet_since.elapsed() >= HEARTBEAT {
            quiet_since = Instant::now();
            stream.send(cx.client, ": here\n\n").await?;
        }
        let pause = Duration::from_secs_f64(events.len() as f64 / BYTES_PER_SECOND);
        tokio::select! {
            biased;
            () = thread.shared.is_to_close() => break,
            () = cx.client.gone() => return Err(io::ErrorKind::ConnectionAborted.into()),
            () = tokio::time::sleep(pause.clamp(PACE, MAX_PAUSE)) => {}
        }
    }
    stream.end(cx.client).await?;
    Ok(After::Close)
}

/// A response of unknown length.
struct EventStream {
    framing: ResponseFraming,
    /// The unsent header.
    head: Vec<u8>,
}

impl EventStream {
    fn begin<C: HttpClient>(cx: &mut RequestCx<'_, C>) -> io::Result<EventStream> {
        let version = cx.head.version();
        let framing = response_framing(version, false, 200, None);
        let date = http_date();
        let start = ResponseStart {
            version,
            status: 200,
            reason: None,
            framing,
            keep_alive: false,
            date: &date,
        };
        let headers: [Header<'_>; 3] = [
            (b"Content-Type", b"text/event-stream"),
            (b"Cache-Control", b"no-store"),
            (b"X-Content-Type-Options", b"nosniff"),
        ];
        let mut head = Vec::with_capacity(512);
        let (apart, _) = C::HeadWriter::head(&mut head, &start, headers.into_iter());
        if let Some(apart) = apart {
            cx.client.begin(apart)?;
        }
        (cx.record.status, cx.record.head_bytes) = (200, head.len() as u64);
        Ok(EventStream { framing, head })
    }

    async fn send(&mut self, client: &mut impl HttpClient, text: &str) -> io::Result<()> {
        let mut out = std::mem::take(&mut self.head);
        let is_chunked = self.framing == ResponseFraming::Chunked;
        if is_chunked {
            write_chunk_header(&mut out, text.len());
        }
        out.extend_from_slice(text.as_bytes());
        if is_chunked {
            out.extend_from_slice(CHUNK_END);
        }
        send_all(client, &out).await
    }

    async fn end(mut self, client: &mut impl HttpClient) -> io::Result<()> {
        if self.framing == ResponseFraming::Chunked {
            self.head.extend_from_slice(LAST_CHUNK);
        }
        send_all(client, &self.head).await
    }
}

async fn send_all(client: &mut impl HttpClient, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match client.try_send(bytes)? {
            0 => client.sendable().await?,
            count => bytes = bytes.get(count..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// What an open dashboard has, and what it gets next.
struct DashboardFeed<'a> {
    thread: &'a Arc<Thread>,
    view: View,
    pool: Option<&'a str>,
    /// The state that the client has; none: nothing yet.
    state: Option<Value>,
    /// The time of the last sample that it has.
    sampled: u64,
    measured: Option<Instant>,
}

impl<'a> DashboardFeed<'a> {
    fn new(thread: &'a Arc<Thread>, view: View, pool: Option<&'a str>) -> DashboardFeed<'a> {
        DashboardFeed { thread, view, pool, state: None, sampled: 0, measured: None }
    }

    /// The next events; empty if nothing has changed.
    async fn next(&mut self) -> String {
        let shared = &self.thread.shared;
        if self.measured.is_none_or(|last| last.elapsed() >= MEASURED_EVERY) {
            self.measured = Some(Instant::now());
            admin::request_measurement(shared);
        }
        let state = server_state::state(self.thread, self.view, self.pool).await;
        let mut out = String::new();
        match &self.state {
            None => {
                push(&mut out, "state", &state);
                let history = json!({
                    "step": history::STEP.as_millis() as u64,
                    "powers": history::POWERS,
                    "all": shared.history.of_all(),
                    "pool": self.pool.map(|name| shared.history.of_pool(name)),
                });
                push(&mut out, "history", &history);
            }
            Some(before) => {
                if let Some(patch) = merge_patch(before, &state) {
                    push(&mut out, "patch", &patch);
                }
            }
        }
        let (all, of_pool) = shared.history.last(self.pool);
        let at = all.map_or(0, |sample| sample.at);
        if at != self.sampled && self.state.is_some() {
            push(&mut out, "sample", &json!({ "all": all, "pool": of_pool }));
        }
        (self.sampled, self.state) = (at, Some(state));
        out
    }
}

/// Adds an event. JSON has no line break.
fn push(out: &mut String, name: &str, data: &Value) {
    out.push_str(&format!("event: {name}\ndata: {data}\n\n"));
}
