//! The decision on a request: the result of routing and rules. `handler/request.rs` carries it out.

use std::sync::Arc;

use crate::handler::respond::TextResponse;
use crate::proxy::server::Server;
use crate::site::files::StaticFile;
use crate::site::resolver::Script;

/// The decision on a request.
pub enum Decision<'r> {
    /// Send a response of the server's own.
    Respond(TextResponse),
    /// Send a file.
    File(Arc<StaticFile>),
    /// Run a script.
    Script(Arc<Script>),
    /// Proxy to an upstream HTTP server.
    Proxy {
        /// The server.
        server: &'r Server,
        /// The path of the request, decoded and normalised.
        path: Vec<u8>,
    },
    /// Send the page of an error, with its status.
    ErrorPage {
        /// The status.
        status: u16,
        /// The page: a file or a script.
        page: Box<Decision<'r>>,
    },
    /// Purge pages from the cache.
    Purge,
}

impl From<TextResponse> for Decision<'_> {
    fn from(response: TextResponse) -> Self {
        Decision::Respond(response)
    }
}
