//! The dashboard: one page, its style and its script, and the state of the server, which a stream
//! of server-sent events keeps current. Read only.

mod certificate_rows;
mod dashboard_queries;
pub(crate) mod merge_patch;
mod node_rows;
pub(crate) mod server_state;

use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use maitred_http1::Head;
use maitred_text::look;

use crate::pool::status::View;

/// Where the page is.
const PATH: &str = "/dashboard";

/// Most open dashboards.
const MAX_STREAMS: usize = 8;

/// What the page may load: what comes from here, and nothing from another host (CSP Level 3).
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
    style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// A file of the dashboard.
pub struct Asset {
    /// Its media type.
    pub content_type: &'static str,
    /// Its bytes.
    pub plain: Bytes,
    /// The same, compressed with gzip.
    pub gzip: Bytes,
}

/// What a path of the dashboard stands for.
pub enum DashboardTarget<'a> {
    /// A file.
    Asset(&'static Asset),
    /// The details of the slow or failed request with this number.
    Request(u64),
    /// The cached pages that were sent most often.
    Pages,
    /// A purge of the pages with this address.
    Purge(String),
    /// The stream of events, for the details of this pool.
    Events(Option<&'a str>),
}

static PAGE: LazyLock<Asset> =
    LazyLock::new(|| asset("text/html; charset=utf-8", &[include_str!("assets/index.html")]));
static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    asset("text/css; charset=utf-8", &[look::STYLE, include_str!("assets/style.css")])
});
static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| asset("text/javascript; charset=utf-8", &[include_str!("assets/app.js")]));

static ICON: LazyLock<Asset> =
    LazyLock::new(|| asset("image/svg+xml", &[include_str!("assets/icon.svg")]));

/// Open dashboards.
static STREAMS: AtomicUsize = AtomicUsize::new(0);

/// What the path of a request stands for; none: it is not of the dashboard.
pub fn target(head: &Head) -> Option<DashboardTarget<'_>> {
    match head.path() {
        PATH => Some(DashboardTarget::Asset(&PAGE)),
        "/dashboard/style.css" => Some(DashboardTarget::Asset(&STYLE)),
        "/dashboard/icon.svg" => Some(DashboardTarget::Asset(&ICON)),
        "/dashboard/app.js" => Some(DashboardTarget::Asset(&SCRIPT)),
        "/dashboard/pages" => Some(DashboardTarget::Pages),
        "/dashboard/purge" => {
            dashboard_queries::purged_url(head.query()?).map(DashboardTarget::Purge)
        }
        "/dashboard/request" => {
            dashboard_queries::request_number(head.query()?).map(DashboardTarget::Request)
        }
        "/dashboard/events" => {
            Some(DashboardTarget::Events(head.query().and_then(dashboard_queries::chosen_pool)))
        }
        _ => None,
    }
}

fn asset(content_type: &'static str, parts: &[&str]) -> Asset {
    let text = parts.concat();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let _ = gzip.write_all(text.as_bytes());
    let gzip = gzip.finish().unwrap_or_default();
    Asset { content_type, plain: text.into(), gzip: gzip.into() }
}

/// An open dashboard.
pub struct OpenDashboard(());

impl OpenDashboard {
    /// Counts another one; none if there are too many. Half of them are left to clients that may
    /// see everything: a tenant's script may open the others.
    pub fn another(view: View) -> Option<OpenDashboard> {
        let most = if view == View::Whole { MAX_STREAMS } else { MAX_STREAMS / 2 };
        let more = |open: usize| (open < most).then_some(open + 1);
        STREAMS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(OpenDashboard(()))
    }
}

impl Drop for OpenDashboard {
    fn drop(&mut self) {
        STREAMS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_has_nothing_that_its_policy_forbids() {
        let all = [&*PAGE, &*STYLE, &*SCRIPT, &*ICON];
        let bytes: usize = all.iter().map(|asset| asset.gzip.len()).sum();
        assert!(bytes <= 60 * 1024, "{bytes} bytes");
        let page = std::str::from_utf8(&PAGE.plain).unwrap();
        for forbidden in ["style=", "onclick", "<style", "http://", "https://", "eval("] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        let script = std::str::from_utf8(&SCRIPT.plain).unwrap();
        for forbidden in ["innerHTML", "eval(", "document.write", "insertAdjacentHTML"] {
            assert!(!script.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn there_are_only_so_many_open_dashboards() {
        let another = OpenDashboard::another;
        let some: Vec<_> = (0..MAX_STREAMS / 2).map(|_| another(View::WithoutRequests)).collect();
        assert!(some.iter().all(Option::is_some) && another(View::WithoutRequests).is_none());
        let more: Vec<_> = (0..MAX_STREAMS / 2).map(|_| another(View::Whole)).collect();
        assert!(more.iter().all(Option::is_some) && another(View::Whole).is_none());
        drop((some, more));
        assert!(another(View::Whole).is_some());
    }
}
