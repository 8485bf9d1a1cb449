//! A pool's status page and ping, in php-fpm's formats (`fpm_status.c`). The front generates them
//! itself: they never wait for a worker.

pub(crate) mod fields;
pub(crate) mod formats;
pub(crate) mod openmetrics;

use maitred_http1::Head;
use maitred_seat::{PoolState, WorkerState};
use percent_encoding::percent_decode_str;

use crate::pool::Pool;

/// The headers that prevent caching; php-fpm's.
const NEVER_CACHED: [(&[u8], &[u8]); 2] = [
    (b"Expires", b"Thu, 01 Jan 1970 00:00:00 GMT"),
    (b"Cache-Control", b"no-cache, no-store, must-revalidate, max-age=0"),
];

/// PHP's default `Content-Type`, which php-fpm's status page has without a body.
const DEFAULT_TYPE: &str = "text/html; charset=UTF-8";

/// Replaces a query string that the client may not see.
const MASKED: &str = "***";

/// The content of a status page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The pool's name.
    pub pool: String,
    /// `pm`, as php-fpm spells it.
    pub process_manager: &'static str,
    /// Whether it shows the highest peak memory of a script.
    pub shows_memory_peak: bool,
    /// The counters, which a hostile worker may have overwritten.
    pub figures: PoolState,
}

/// The format of a status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusFormat {
    Text,
    Html,
    Xml,
    Json,
    OpenMetrics,
}

/// A page that the front generates.
#[derive(Debug, PartialEq, Eq)]
pub struct StatusPage {
    content_type: &'static str,
    body: String,
    is_ping: bool,
    status: u16,
}

/// The status page or ping for a request; none for any other path.
pub fn page(pool: &Pool, head: &Head) -> Option<StatusPage> {
    let query = head.query().unwrap_or_default();
    page_at(pool, head.path().as_bytes(), || query, SelfCount::Excluded)
}

/// Whether the page counts its own request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelfCount {
    /// It does not count it.
    Excluded,
    /// It counts it, as with php-fpm, where a worker generates the page: monitoring may expect at
    /// least one active worker.
    Included,
}

/// The status page or ping of a pool at `path`; none for any other path.
pub fn page_at<Q: AsRef<str>>(
    pool: &Pool,
    path: &[u8],
    query: impl FnOnce() -> Q,
    self_count: SelfCount,
) -> Option<StatusPage> {
    let settings = pool.settings();
    let is = |page: &Option<String>| page.as_deref().is_some_and(|page| page.as_bytes() == path);
    let is_ping = is(&settings.ping_path);
    if !is_ping && !is(&settings.status_path) {
        return None;
    }
    if self_count == SelfCount::Included {
        pool.count_page();
    }
    if is_ping {
        return Some(ping(pool));
    }
    Some(of_pool(pool, query().as_ref(), self_count))
}

/// The response to a ping of a pool.
pub fn ping(pool: &Pool) -> StatusPage {
    StatusPage {
        content_type: StatusFormat::Text.content_type(),
        body: pool.settings().ping_response.clone(),
        is_ping: true,
        status: 200,
    }
}

/// The status page of a pool, in the format of the query.
pub fn of_pool(pool: &Pool, query: &str, self_count: SelfCount) -> StatusPage {
    let mut figures = pool.snapshot();
    if self_count == SelfCount::Included {
        with_one_more(&mut figures);
    }
    with_figures(pool, query, figures)
}

/// The status page, reduced to the `view` of a client of the admin listener.
pub fn for_admin(pool: &Pool, query: &str, view: View) -> StatusPage {
    let mut figures = pool.snapshot();
    for process in &mut figures.processes {
        mask(process, view);
    }
    with_figures(pool, query, figures)
}

fn with_figures(pool: &Pool, query: &str, figures: PoolState) -> StatusPage {
    let settings = pool.settings();
    let status = Status {
        pool: settings.name.clone(),
        process_manager: settings.pm.name(),
        shows_memory_peak: pool.manner.load().shows_memory_peak,
        figures,
    };
    let (format, full) = parse_query(query);
    StatusPage::of(&status, format, full)
}

/// Removes from a worker's row what the client may not see. The page shows a dash for it.
fn mask(process: &mut WorkerState, view: View) {
    match view {
        View::Whole => {}
        // The client sees that there was none.
        View::WithoutQueries if process.query.is_empty() => {}
        View::WithoutQueries => MASKED.clone_into(&mut process.query),
        View::WithoutRequests => {
            for text in
                [&mut process.uri, &mut process.query, &mut process.user, &mut process.script]
            {
                text.clear();
            }
        }
    }
}

/// Counts a worker that generates the page: an idle one, or one started for it. While all are busy,
/// php-fpm would respond later.
fn with_one_more(figures: &mut PoolState) {
    match figures.idle.checked_sub(1) {
        Some(idle) => (figures.idle, figures.active) = (idle, figures.active + 1),
        None => figures.active = figures.active.max(1),
    }
    figures.max_active = figures.max_active.max(figures.active);
}

/// The format of the query, and whether it shows each worker. php-fpm's order of the keys decides,
/// not theirs; a key needs no value, and counts only as a whole, as since PHP 8.4.
fn parse_query(query: &str) -> (StatusFormat, bool) {
    let has = |wanted: &str| {
        query.split('&').any(|pair| {
            let key = pair.split('=').next().unwrap_or_default();
            percent_decode_str(key).eq(wanted.bytes())
        })
    };
    let formats = [
        ("html", StatusFormat::Html),
        ("xml", StatusFormat::Xml),
        ("json", StatusFormat::Json),
        ("openmetrics", StatusFormat::OpenMetrics),
    ];
    let format = formats.into_iter().find(|(key, _)| has(key));
    (format.map_or(StatusFormat::Text, |(_, format)| format), has("full"))
}

impl StatusFormat {
    /// The content type, completed with PHP's default character set.
    fn content_type(self) -> &'static str {
        match self {
            StatusFormat::Text => "text/plain;charset=UTF-8",
            StatusFormat::Html => "text/html;charset=UTF-8",
            StatusFormat::Xml => "text/xml;charset=UTF-8",
            StatusFormat::Json => "application/json",
            StatusFormat::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }
    }
}

impl StatusPage {
    /// A page with a body of any content type.
    pub fn new(content_type: &'static str, body: String) -> StatusPage {
        StatusPage { content_type, body, is_ping: false, status: 200 }
    }

    /// The same with another status than 200.
    #[must_use]
    pub fn with_status(self, status: u16) -> StatusPage {
        StatusPage { status, ..self }
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.status
    }

    fn of(status: &Status, format: StatusFormat, full: bool) -> StatusPage {
        let body = match format {
            StatusFormat::Text => formats::text(status, full),
            StatusFormat::Html => formats::html(status, full),
            StatusFormat::Xml => formats::xml(status, full),
            StatusFormat::Json => formats::json(status, full),
            StatusFormat::OpenMetrics => openmetrics::openmetrics(status),
        };
        StatusPage::new(format.content_type(), body)
    }

    /// Its CGI headers (RFC 3875 §6.3), without the empty line; in php-fpm's order, where a ping's
    /// type comes first. `powered_by` is the value of PHP's `X-Powered-By`.
    pub fn cgi_headers(&self, powered_by: Option<&str>, is_head: bool) -> String {
        let powered_by = powered_by.map(|php| format!("X-Powered-By: {php}\r\n"));
        let powered_by = powered_by.unwrap_or_default();
        let [(expires, never), (cache, control)] =
            NEVER_CACHED.map(|(name, value)| (name.escape_ascii(), value.escape_ascii()));
        let never_cached = format!("{expires}: {never}\r\n{cache}: {control}\r\n");
        let content_type = if is_head && !self.is_ping { DEFAULT_TYPE } else { self.content_type };
        // PHP spells it so where it has added the character set.
        let name = if content_type.starts_with("text/") { "Content-type" } else { "Content-Type" };
        let kind = format!("{name}: {content_type}\r\n");
        if self.is_ping {
            powered_by + &kind + &never_cached
        } else {
            powered_by + &never_cached + &kind
        }
    }

    /// Its body.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Its HTTP headers.
    pub fn headers(&self) -> [(&[u8], &[u8]); 3] {
        let [expires, control] = NEVER_CACHED;
        let kind = (&b"Content-Type"[..], self.content_type.as_bytes());
        [expires, control, kind]
    }
}

/// The parts of a page that a client may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Everything.
    Whole,
    /// No query strings, which may contain secrets.
    WithoutQueries,
    /// Nothing about single requests, which may belong to several tenants.
    WithoutRequests,
}

impl View {
    /// Whether the client may see the hosts, upstream servers and routes of all tenants.
    pub fn shows_tenants(self) -> bool {
        self != View::WithoutRequests
    }
}

#[cfg(test)]
mod tests;
