//! The admin listener: metrics, readiness, load, status pages and pings over HTTP. The front serves
//! all of it itself, so none of it waits for a worker.

pub(crate) mod access;
pub(crate) mod announced;
pub(crate) mod application_metrics;
pub(crate) mod busy_routes;
pub(crate) mod dashboard;
mod exposition;
pub(crate) mod metrics;
pub(crate) mod node_load;
pub(crate) mod pool_metrics;
pub(crate) mod readiness;
pub(crate) mod server_metrics;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use maitred_control::FromFront;
use maitred_http1::Head;

use crate::http::hosts::host_name;
use crate::pool::status::{self, StatusPage};
use crate::services::Shared;
use crate::services::measurements::FRESH;

pub use crate::admin::access::{Refused, decide};
pub use crate::pool::status::View;

/// Longest that metrics wait for the supervisor to measure the pools' memory and to ask for the
/// figures of OPcache; it takes some milliseconds. Older figures are shown then.
const MEASURING: Duration = Duration::from_millis(50);

/// How often is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Whether the `Host` header of a request fits the admin listener (protection from DNS rebinding).
/// A web page in a browser on this machine can make its own host name resolve to a loopback address
/// and read the response, but it cannot use `localhost` or an address as its host name.
pub fn is_meant(local: IpAddr, authority: &str) -> bool {
    let name = host_name(authority);
    let is_address = name.starts_with('[') || name.parse::<Ipv4Addr>().is_ok();
    let name = name.to_ascii_lowercase();
    let is_ours = name.is_empty() || name == "localhost" || name.ends_with(".localhost");
    is_address || is_ours || !local.to_canonical().is_loopback()
}

/// The page at a path of the admin listener; none: there is no such page.
pub async fn page(shared: &Shared, head: &Head, view: View) -> Option<StatusPage> {
    let query = head.query().unwrap_or_default();
    match head.path() {
        "/" => Some(index(shared)),
        "/live" => Some(readiness::live_page()),
        "/ready" => Some(readiness::ready_page(shared)),
        "/scale" => Some(node_load::node_page(shared)),
        "/startup" => Some(readiness::startup_page(shared)),
        "/metrics" => {
            measure(shared).await;
            let accept = head.header("accept").unwrap_or_default();
            Some(metrics::page(shared, accept, view))
        }
        path => {
            let (kind, name) = path.strip_prefix('/')?.split_once('/')?;
            if kind == "scale" {
                return node_load::pool_page(shared, name);
            }
            let pool = shared.pools.all().into_iter().find(|pool| *pool.name == *name)?;
            match kind {
                "status" => Some(status::for_admin(&pool, query, view)),
                "ping" => Some(status::ping(&pool)),
                _ => None,
            }
        }
    }
}

/// What there is. Names of pools hold nothing that HTML knows.
fn index(shared: &Shared) -> StatusPage {
    let mut body = String::from(
        "<!DOCTYPE html>\n<title>maitred</title>\n<h1>maitred</h1>\n<ul>\n\
         <li><a href=\"/dashboard\">dashboard</a></li>\n\
         <li><a href=\"/metrics\">metrics</a></li>\n\
         <li><a href=\"/ready\">ready</a>, <a href=\"/startup\">startup</a>, \
         <a href=\"/live\">live</a>, <a href=\"/scale\">scale</a></li>\n",
    );
    for pool in shared.pools.all() {
        let name = &pool.name;
        body.push_str(&format!(
            "<li>pool {name}: <a href=\"/status/{name}?html&amp;full\">status</a>, \
             <a href=\"/ping/{name}\">ping</a></li>\n"
        ));
    }
    body.push_str("</ul>\n");
    StatusPage::new("text/html;charset=UTF-8", body)
}

/// Requests a measurement of the pools, unless one was requested just now. False if that fails.
pub fn request_measurement(shared: &Shared) -> bool {
    !shared.measurements.begin(maitred_scoreboard::now())
        || shared.supervisor.report(&FromFront::MetricsRequested)
}

/// Has the pools' memory measured and their OPcaches looked at, unless that was done just now. Only
/// the supervisor may look into the processes of all users.
async fn measure(shared: &Shared) {
    let begun = maitred_scoreboard::now();
    let pools = shared.pools.all();
    let tallies: Vec<_> = pools.iter().filter_map(|pool| pool.metrics()).collect();
    let measured_since = |moment: Duration| {
        let mut pages = tallies.iter().map(|tally| tally.page());
        pages.all(|page| page.measured_at() >= moment && page.cache_asked_at() >= moment)
    };
    if measured_since(begun.saturating_sub(FRESH)) || !request_measurement(shared) {
        return;
    }
    let requested = shared.measurements.last();
    let waited = tokio::time::Instant::now();
    while !measured_since(requested) && waited.elapsed() < MEASURING {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_somebody_else_leads_to_a_loopback_listener() {
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        for host in ["", "localhost:9180", "LocalHost", "127.0.0.1:9180", "[::1]:9180"] {
            assert!(is_meant(here, host), "{host}");
        }
        for host in ["evil.example:9180", "localhost.evil.example", "127.0.0.1.example"] {
            assert!(!is_meant(here, host), "{host}");
            assert!(!is_meant("::ffff:127.0.0.1".parse().unwrap(), host), "{host}");
            assert!(is_meant("10.0.0.5".parse().unwrap(), host), "{host}");
        }
    }
}
