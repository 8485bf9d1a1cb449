//! The record of a request: the data of its line in the access log.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_seat::Spent;
use maitred_trace::RequestTrace;
use tokio::sync::oneshot;

use crate::http::client::Written;
use crate::logging::site_log::SiteLog;
use crate::runtime::request_id::RequestId;

/// The lookup of a page in the page cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheLookup {
    /// Its start.
    pub began: Instant,
    /// Its end, once it has ended.
    pub ended: Option<Instant>,
    /// The time in which it waited for a page that another request was fetching.
    pub waited: Duration,
}

/// The record of a request.
#[derive(Debug, Default)]
pub struct RequestRecord {
    /// The status sent.
    pub status: u16,
    /// Bytes of body sent to the client, framing included.
    pub bytes: u64,
    /// Bytes of the header.
    pub head_bytes: u64,
    /// Bytes of the request's body, if it was read.
    pub body_bytes: u64,
    /// The client, if a proxy has named it.
    pub client: Option<IpAddr>,
    /// Whether a trusted proxy has not named the client: the line has no address.
    pub is_client_unknown: bool,
    /// Whether the client uses TLS, to this server or to a proxy in front.
    pub is_https: bool,
    /// The time in the queue.
    pub queued: Option<Duration>,
    /// The part of that time in which the worker was starting.
    pub boot: Option<Duration>,
    /// The run time of the script.
    pub script: Option<Duration>,
    /// The cost of the script in that time, if its worker has reported it.
    pub spent: Option<Spent>,
    /// The total cost of the script, if that continues after its response.
    pub script_end: Option<oneshot::Receiver<Option<Spent>>>,
    /// Run time after the response, once known.
    pub rest: Duration,
    /// The name of the pool that ran it.
    pub pool: Option<Arc<str>>,
    /// The request's id, if one was assigned.
    pub id: Option<RequestId>,
    /// The trace of the request, if requests have traces.
    pub trace: Option<Arc<RequestTrace>>,
    /// When a script or an upstream server was asked for.
    pub backend_began: Option<Instant>,
    /// The upstream server, if the request has a trace.
    pub upstream: Option<Box<str>>,
    /// Whether the response carries the id.
    pub sends_id: bool,
    /// The result of the page cache, in a word.
    pub cache: Option<&'static str>,
    /// The lookup of its page in the page cache, if the request has a trace.
    pub lookup: Option<CacheLookup>,
    /// The log lines about it.
    pub lines: Vec<String>,
    /// The log of the request's site.
    pub log: SiteLog,
}

impl RequestRecord {
    /// Records the sent part of a response.
    ///
    /// # Errors
    /// Why it is incomplete.
    pub fn written(&mut self, written: Written) -> io::Result<()> {
        (self.status, self.head_bytes) = (written.status, written.head_bytes);
        written.result
    }

    /// The lookup in the page cache begins, if the request has a trace.
    pub fn begin_lookup(&mut self) {
        if self.trace.is_none() {
            return;
        }
        let began = Instant::now();
        self.lookup = Some(CacheLookup { began, ended: None, waited: Duration::ZERO });
    }

    /// The lookup in the page cache ends, if it has not.
    pub fn end_lookup(&mut self) {
        if let Some(lookup) = &mut self.lookup {
            lookup.ended.get_or_insert_with(Instant::now);
        }
    }

    /// The request's id, assigned at the first call.
    pub fn id(&mut self) -> RequestId {
        *self.id.get_or_insert_with(RequestId::next)
    }

    /// The id for the response, if it carries one.
    pub fn id_sent(&mut self) -> Option<RequestId> {
        self.sends_id.then(|| self.id())
    }
}
