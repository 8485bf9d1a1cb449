//! The record of a request: what its line in the access log needs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use maitred_seat::Spent;
use tokio::sync::oneshot;

use crate::http::client::Written;
use crate::logging::site_log::SiteLog;
use crate::runtime::request_id::RequestId;

/// What a line says of an answer.
#[derive(Debug, Default)]
pub struct RequestRecord {
    /// The status sent.
    pub status: u16,
    /// Bytes of body that the client was really sent, its framing included.
    pub bytes: u64,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Bytes of the request's body, if anybody wanted it.
    pub body_bytes: u64,
    /// The client, if a proxy has named another than who connected.
    pub client: Option<IpAddr>,
    /// A trusted proxy has not said who the client is: the line has no address.
    pub is_client_unknown: bool,
    /// Whether the client speaks TLS, with us or with a proxy in front.
    pub is_https: bool,
    /// How long the request waited for a worker.
    pub queued: Option<Duration>,
    /// How long its script took.
    pub script: Option<Duration>,
    /// Where that time went, if its worker has told.
    pub spent: Option<Spent>,
    /// What all of its script has cost, if that continues though its response is complete.
    pub script_end: Option<oneshot::Receiver<Option<Spent>>>,
    /// How long it went on, once that is known.
    pub rest: Duration,
    /// The name of the pool that ran it.
    pub pool: Option<Arc<str>>,
    /// The request's id, if somebody has wanted it.
    pub id: Option<RequestId>,
    /// The answer carries it.
    pub sends_id: bool,
    /// What the page cache has done for it, in a word.
    pub cache: Option<&'static str>,
    /// Where the request is logged.
    pub log: SiteLog,
}

impl RequestRecord {
    /// Records a response that was sent, or part of one.
    ///
    /// # Errors
    /// Why it is incomplete.
    pub fn written(&mut self, written: Written) -> io::Result<()> {
        (self.status, self.head_bytes) = (written.status, written.head_bytes);
        written.result
    }

    /// The request's id, which it gets when it is first wanted.
    pub fn id(&mut self) -> RequestId {
        *self.id.get_or_insert_with(RequestId::next)
    }

    /// The id that the answer carries, if it does.
    pub fn id_sent(&mut self) -> Option<RequestId> {
        self.sends_id.then(|| self.id())
    }
}
