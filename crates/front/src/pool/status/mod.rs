//! A pool's status page and ping, in php-fpm's formats (`fpm_status.c`). The front answers them
//! itself: they need no worker, and so never wait for one.

pub(crate) mod fields;
pub(crate) mod formats;
pub(crate) mod openmetrics;

use maitred_http1::Head;
use maitred_seat::{Process, Snapshot};
use percent_encoding::percent_decode_str;

use crate::pool::Pool;

/// What keeps a page out of every cache; php-fpm's.
const NEVER_CACHED: [(&[u8], &[u8]); 2] = [
    (b"Expires", b"Thu, 01 Jan 1970 00:00:00 GMT"),
    (
        b"Cache-Control",
        b"no-cache, no-store, must-revalidate, max-age=0",
    ),
];

/// Where a script says nothing of its kind, which for php-fpm is so of a status page without body.
const DEFAULT_TYPE: &str = "text/html; charset=UTF-8";

/// What stands for a query string that is not to be seen.
const MASKED: &str = "***";

/// What a status page shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The pool's name.
    pub pool: String,
    /// `pm`, as php-fpm spells it.
    pub process_manager: &'static str,
    /// The figures; a worker may have written anything into them.
    pub figures: Snapshot,
}

/// The form of a status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Html,
    Xml,
    Json,
    OpenMetrics,
}

/// A page of the front's own.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    content_type: &'static str,
    body: String,
    is_ping: bool,
}

/// The page that a request asks for, if its path is one of the pool's two.
pub fn page(pool: &Pool, head: &Head) -> Option<Page> {
    let query = head.query().unwrap_or_default();
    page_at(pool, head.path().as_bytes(), || query, Part::None)
}

/// Whether a request for a page is itself among what the page counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It is not.
    None,
    /// It is, as with php-fpm, where a worker is taken to answer it: monitoring that expects one
    /// active worker at least finds it.
    OfPool,
}

/// The page of a pool at `path`, if it is one of its two.
pub fn page_at<Q: AsRef<str>>(
    pool: &Pool,
    path: &[u8],
    query: impl FnOnce() -> Q,
    part: Part,
) -> Option<Page> {
    let settings = pool.settings();
    let is = |page: &Option<String>| page.as_deref().is_some_and(|page| page.as_bytes() == path);
    let is_ping = is(&settings.ping_path);
    if !is_ping && !is(&settings.status_path) {
        return None;
    }
    if part == Part::OfPool {
        pool.count_page();
    }
    Some(match is_ping {
        true => ping(pool),
        false => of_pool(pool, query().as_ref(), part),
    })
}

/// The answer to a ping of a pool.
pub fn ping(pool: &Pool) -> Page {
    Page {
        content_type: Format::Text.content_type(),
        body: pool.settings().ping_response.clone(),
        is_ping: true,
    }
}

/// The status page of a pool in the form that the query asks for.
pub fn of_pool(pool: &Pool, query: &str, part: Part) -> Page {
    let mut figures = pool.snapshot();
    if part == Part::OfPool {
        with_one_more(&mut figures);
    }
    with_figures(pool, query, figures)
}

/// The same as a client of the admin listener may see it, which shows all pools.
pub fn for_admin(pool: &Pool, query: &str, view: View) -> Page {
    let mut figures = pool.snapshot();
    for process in &mut figures.processes {
        mask(process, view);
    }
    with_figures(pool, query, figures)
}

fn with_figures(pool: &Pool, query: &str, figures: Snapshot) -> Page {
    let settings = pool.settings();
    let status = Status {
        pool: settings.name.clone(),
        process_manager: settings.pm.name(),
        figures,
    };
    let (format, full) = asked_for(query);
    Page::of(&status, format, full)
}

/// Takes out of a worker's row what is not to be seen. What is missing is a dash.
fn mask(process: &mut Process, view: View) {
    match view {
        View::Whole => {}
        // That there was one is seen.
        View::WithoutQueries if process.query.is_empty() => {}
        View::WithoutQueries => MASKED.clone_into(&mut process.query),
        View::WithoutRequests => {
            for text in [
                &mut process.uri,
                &mut process.query,
                &mut process.user,
                &mut process.script,
            ] {
                text.clear();
            }
        }
    }
}

/// The figures as they would be if a worker were busy with the page: an idle one, or one that was
/// started for it. Where all are busy, php-fpm would answer once one is not.
fn with_one_more(figures: &mut Snapshot) {
    match figures.idle.checked_sub(1) {
        Some(idle) => (figures.idle, figures.active) = (idle, figures.active + 1),
        None => figures.active = figures.active.max(1),
    }
    figures.max_active = figures.max_active.max(figures.active);
}

/// The format, and whether each worker is shown. The order in which php-fpm looks for the keys
/// decides, not theirs; a key needs no value, and counts only as a whole, as since PHP 8.4.
fn asked_for(query: &str) -> (Format, bool) {
    let has = |wanted: &str| {
        query.split('&').any(|pair| {
            let key = pair.split('=').next().unwrap_or_default();
            percent_decode_str(key).eq(wanted.bytes())
        })
    };
    let formats = [
        ("html", Format::Html),
        ("xml", Format::Xml),
        ("json", Format::Json),
        ("openmetrics", Format::OpenMetrics),
    ];
    let format = formats.into_iter().find(|(key, _)| has(key));
    (
        format.map_or(Format::Text, |(_, format)| format),
        has("full"),
    )
}

impl Format {
    /// As PHP completes it with its default character set.
    fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain;charset=UTF-8",
            Format::Html => "text/html;charset=UTF-8",
            Format::Xml => "text/xml;charset=UTF-8",
            Format::Json => "application/json",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Page {
    /// A page with a body of its own kind.
    pub fn new(content_type: &'static str, body: String) -> Page {
        Page {
            content_type,
            body,
            is_ping: false,
        }
    }

    fn of(status: &Status, format: Format, full: bool) -> Page {
        let body = match format {
            Format::Text => formats::text(status, full),
            Format::Html => formats::html(status, full),
            Format::Xml => formats::xml(status, full),
            Format::Json => formats::json(status, full),
            Format::OpenMetrics => openmetrics::openmetrics(status),
        };
        Page::new(format.content_type(), body)
    }

    /// Its head for a web server (RFC 3875 §6.3), without the empty line; in php-fpm's order, where
    /// a ping's type comes first. `powered_by` is what PHP says of itself.
    pub fn cgi_headers(&self, powered_by: Option<&str>, is_head: bool) -> String {
        let powered_by = powered_by.map(|php| format!("X-Powered-By: {php}\r\n"));
        let powered_by = powered_by.unwrap_or_default();
        let [(expires, never), (cache, control)] =
            NEVER_CACHED.map(|(name, value)| (name.escape_ascii(), value.escape_ascii()));
        let never_cached = format!("{expires}: {never}\r\n{cache}: {control}\r\n");
        let content_type = match is_head && !self.is_ping {
            true => DEFAULT_TYPE,
            false => self.content_type,
        };
        // PHP spells it so where it has added the character set.
        let name = match content_type.starts_with("text/") {
            true => "Content-type",
            false => "Content-Type",
        };
        let kind = format!("{name}: {content_type}\r\n");
        match self.is_ping {
            true => powered_by + &kind + &never_cached,
            false => powered_by + &never_cached + &kind,
        }
    }

    /// Its body.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// What a client over HTTP is told of it.
    pub fn headers(&self) -> [(&[u8], &[u8]); 3] {
        let [expires, control] = NEVER_CACHED;
        let kind = (&b"Content-Type"[..], self.content_type.as_bytes());
        [expires, control, kind]
    }
}

/// What a client may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Everything.
    Whole,
    /// No query strings, which hold the secrets of clients.
    WithoutQueries,
    /// Nothing of what requests ask for: they may be of several tenants.
    WithoutRequests,
}

#[cfg(test)]
mod tests;
